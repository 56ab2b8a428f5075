/* attention_warps.c - attention whose products tensor cores make: forward, and the gradients of queries, and of keys
 * and values.
 *
 * A team has 64 queries of a head, 16 for each warp, and takes them through its keys; for the gradients of keys and
 * values it has 64 keys, and takes them through the queries of all heads that read them. Scores stay in registers. So
 * backward makes scores twice, and nothing is added up in memory: seven products in place of five, whose order depends
 * neither on the number of sequences nor on the device. */
#include "layers/kernels/attention/attention_tiles_internal.h"

/* Rows of the others that are in the team's memory at a time, of heads of so many columns: it has 48 KB. */
#define SL_NEAR(columns, narrow, wide) ((columns) == 64 ? (narrow) : (wide))
enum { KEYS_64 = 64, KEYS_128 = 32, FEW_64 = 32, FEW_128 = 16 };

/* A block of a head's queries, or keys: OWN or what is left of them. */
struct block {
    struct head head;
    size_t first, count, row; /* of its sequence; of all rows, the block's first one */
    size_t number;            /* the head's */
};

static inline size_t blocks_of(size_t queries) { return (queries + OWN - 1) / OWN; }

/* Block NUMBER of QUERIES of a sequence, of head HEAD of all sequences. */
SL_INLINE struct block block_of(const struct sl_attention *shape, size_t head, size_t number, enum sl_dtype dtype,
                                const void *q, const void *q_rope, const void *k, const void *v, const void *k_rope) {
    const size_t first = number * OWN;
    return (struct block){.head = head_of(shape, head, dtype, q, q_rope, k, v, k_rope),
                          .first = first,
                          .count = smaller(OWN, shape->queries - first),
                          .row = head / shape->heads * shape->queries + first,
                          .number = head % shape->heads};
}

/* ---- forward ---- */

/* Of 16 queries: what values give them, and for every row the largest score and the sum of 2^(score - largest), of
 * which each lane has its columns' part. */
struct softmax {
    struct sums o[ACROSS];
    float largest[LANES_HERE][2], sum[LANES_HERE][2];
};

/* Scores, times FACTOR, become weights 2^(score - largest). */
SL_INLINE void weigh(float factor, const int tiles, const int columns, struct sums *s, struct softmax *to) {
    SL_UNROLL
    for (int half = 0; half < 2; half++) {
        float high[LANES_HERE];
        EACH_LANE(l) {
            high[l] = -INFINITY;
            SL_UNROLL
            for (int n = 0; n < tiles; n++) {
                SL_UNROLL
                for (int i = 2 * half; i < 2 * half + 2; i++) high[l] = fmaxf(high[l], s[n].x[l][i]);
            }
        }
        largest_of_row(high);
        EACH_LANE(l) {
            const float old = to->largest[l][half], largest = fmaxf(old, high[l] * factor),
                        by = rough_exp2(old - largest);
            float sum = 0.0f;
            SL_UNROLL
            for (int n = 0; n < tiles; n++) {
                SL_UNROLL
                for (int i = 2 * half; i < 2 * half + 2; i++) {
                    s[n].x[l][i] = rough_exp2(s[n].x[l][i] * factor - largest);
                    sum += s[n].x[l][i];
                }
            }
            to->largest[l][half] = largest;
            to->sum[l][half] = to->sum[l][half] * by + sum;
            SL_UNROLL
            for (int n = 0; n < columns / 8; n++) {
                SL_UNROLL
                for (int i = 2 * half; i < 2 * half + 2; i++) to->o[n].x[l][i] *= by;
            }
        }
    }
}

/* O [rows, heads * width] and LOGSUM [rows] of the block's head; what a team shares: Q [OWN], K and V [KEYS]. */
SL_INLINE void forward_block(const struct block *b, const int columns, uint16_t *q, uint16_t *k, uint16_t *v, float *o,
                             size_t at, struct sl_settled left, float *logsum) {
    const int keys = SL_NEAR(columns, KEYS_64, KEYS_128);
    const size_t pitch = SL_PITCH(columns), width = b->head.v.cols, depth = width + b->head.q_rope.cols;
    const size_t end = smaller(b->head.past.position + b->first + b->count, b->head.keys);
    struct softmax own[WARPS_HERE];
    share_both(b->head.q, b->head.q_rope, b->first, b->count, OWN, pitch, q);
    EACH_WARP(w) {
        clear_tiles(columns / 8, own[w].o);
        EACH_LANE(l) {
            SL_UNROLL
            for (int i = 0; i < 2; i++) {
                own[w].largest[l][i] = LOWEST;
                own[w].sum[l][i] = 0.0f;
            }
        }
    }
    for (size_t from = first_block(&b->head.past, b->first, (size_t)keys); from < end; from += (size_t)keys) {
        const size_t count = smaller((size_t)keys, end - from);
        const bool hides = !sees_all(&b->head, b->first, b->count, from, from + (size_t)keys);
        wait_for_team(); /* what is there has been read */
        share_both(b->head.k, b->head.k_rope, from, count, (size_t)keys, pitch, k);
        share_rows(from_row(b->head.v, from), count, (size_t)keys, 0, pitch, v);
        wait_for_team();
        EACH_WARP(w) {
            struct sums s[KEYS_64 / 8];
            const size_t row = 16 * (size_t)warp_of(w);
            multiply_rows(q + row * pitch, k, depth, pitch, keys / 8, s);
            if (hides) hide_keys(&b->head, b->first + row, b->first + b->count, from, keys / 8, -INFINITY, s);
            weigh(b->head.scale * per_log_2, keys / 8, columns, s, &own[w]);
            add_weighted(s, keys / 8, v, width, pitch, columns / 8, own[w].o);
        }
    }
    EACH_WARP(w) {
        const size_t row = 16 * (size_t)warp_of(w), count = b->count > row ? b->count - row : 0;
        SL_UNROLL
        for (int half = 0; half < 2; half++) {
            float sum[LANES_HERE];
            EACH_LANE(l) sum[l] = own[w].sum[l][half];
            sum_of_row(sum);
            EACH_LANE(l) {
                const size_t query = row_of_sum(l, 2 * half);
                const float whole = 1.0f / sum[l];
                if (query < count && lane_of(l) % 4 == 0)
                    logsum[row + query] = own[w].largest[l][half] * log_2 + sl_log(sum[l]);
                SL_UNROLL
                for (int n = 0; n < columns / 8; n++) {
                    SL_UNROLL
                    for (int i = 2 * half; i < 2 * half + 2; i++) own[w].o[n].x[l][i] *= whole;
                }
            }
        }
        write_tiles(own[w].o, 0, width, columns / 8, count, o, at + row * b->head.q.stride, b->head.q.stride, left);
    }
}

/* ---- gradients of scores ---- */

/* A score becomes a weight, and DS, the gradient of that, the score's. */
SL_INLINE void gradient_of_score(float *s, float *ds, float logsum, float delta, float scale) {
    const float p = rough_exp2(*s * (scale * per_log_2) - logsum * per_log_2);
    *s = p;
    *ds = p * (*ds - delta) * scale;
}

/* ---- backward: queries ---- */

/* What backward reads besides, and writes, of all rows. */
struct outputs {
    const void *o, *d_o;
    float *dq, *dq_rope; /* as q and q_rope; also for what has no columns */
    enum sl_dtype stored_o, stored_d_o;
    struct sl_settled left;
};

/* o . d_o of each row of a warp: what LANE has, in quarters. */
SL_INLINE void deltas_of(const struct block *b, size_t row, size_t count, const struct outputs *io, size_t at,
                         float delta[LANES_HERE][2]) {
    const size_t width = b->head.v.cols, stride = b->head.q.stride;
    SL_UNROLL
    for (int i = 0; i < 2; i++) {
        float sum[LANES_HERE];
        EACH_LANE(l) {
            const size_t own = row_of_sum(l, 2 * i), from = at + (row + own) * stride;
            sum[l] = 0.0f;
            for (size_t c = column_of_sum(l, 0); own < count && c < width; c += 8) {
                for (size_t e = from + c; e < from + c + 2; e++)
                    sum[l] += sl_load_float(io->stored_o, io->o, e) * sl_load_float(io->stored_d_o, io->d_o, e);
            }
        }
        sum_of_row(sum);
        EACH_LANE(l) delta[l][i] = sum[l];
    }
}

/* Scores [16, 8 TILES] of a warp's queries, and the gradients of what they weigh. */
SL_INLINE void gradients_of_rows(float scale, const int tiles, float logsum[LANES_HERE][2], float delta[LANES_HERE][2],
                                 struct sums *s, struct sums *ds) {
    SL_UNROLL
    for (int n = 0; n < tiles; n++) {
        EACH_LANE(l) {
            SL_UNROLL
            for (int i = 0; i < 4; i++)
                gradient_of_score(&s[n].x[l][i], &ds[n].x[l][i], logsum[l][i / 2], delta[l][i / 2], scale);
        }
    }
}

/* What a team shares: Q and DY [OWN], K and V [FEW]. AT, AT_ROPE: of the block's first row. */
SL_INLINE void queries_block(const struct block *b, const int columns, uint16_t *q, uint16_t *dy, uint16_t *k,
                             uint16_t *v, const struct outputs *io, size_t at, size_t at_rope, const float *logsum,
                             float *deltas) {
    const int keys = SL_NEAR(columns, FEW_64, FEW_128);
    const size_t pitch = SL_PITCH(columns), width = b->head.v.cols, rope = b->head.q_rope.cols;
    const struct rows d_o = rows_of(io->stored_d_o, io->d_o, at, b->head.q.stride, width);
    struct {
        struct sums dq[ACROSS];
        float logsum[LANES_HERE][2], delta[LANES_HERE][2];
    } own[WARPS_HERE];
    share_both(b->head.q, b->head.q_rope, b->first, b->count, OWN, pitch, q);
    share_rows(d_o, b->count, OWN, 0, pitch, dy);
    EACH_WARP(w) {
        const size_t row = 16 * (size_t)warp_of(w), count = b->count > row ? b->count - row : 0;
        clear_tiles(columns / 8, own[w].dq);
        deltas_of(b, row, count, io, at, own[w].delta);
        EACH_LANE(l) {
            SL_UNROLL
            for (int i = 0; i < 2; i++) {
                const size_t query = row_of_sum(l, 2 * i);
                own[w].logsum[l][i] = query < count ? logsum[row + query] : 0.0f;
                if (query < count && lane_of(l) % 4 == 0) deltas[row + query] = own[w].delta[l][i];
            }
        }
    }
    const size_t end = b->first + b->count;
    for (size_t from = first_block(&b->head.past, b->first, (size_t)keys); from < end; from += (size_t)keys) {
        const size_t count = smaller((size_t)keys, end - from);
        const bool hides = !sees_all(&b->head, b->first, b->count, from, from + (size_t)keys);
        wait_for_team();
        share_both(b->head.k, b->head.k_rope, from, count, (size_t)keys, pitch, k);
        share_rows(from_row(b->head.v, from), count, (size_t)keys, 0, pitch, v);
        wait_for_team();
        EACH_WARP(w) {
            struct sums s[FEW_64 / 8], ds[FEW_64 / 8];
            const size_t row = 16 * (size_t)warp_of(w);
            multiply_rows(q + row * pitch, k, width + rope, pitch, keys / 8, s);
            multiply_rows(dy + row * pitch, v, width, pitch, keys / 8, ds);
            gradients_of_rows(b->head.scale, keys / 8, own[w].logsum, own[w].delta, s, ds);
            if (hides) hide_keys(&b->head, b->first + row, end, from, keys / 8, 0.0f, ds);
            add_weighted(ds, keys / 8, k, width + rope, pitch, columns / 8, own[w].dq);
        }
    }
    EACH_WARP(w) {
        const size_t row = 16 * (size_t)warp_of(w), count = b->count > row ? b->count - row : 0;
        write_tiles(own[w].dq, 0, width, columns / 8, count, io->dq, at + row * b->head.q.stride, b->head.q.stride,
                    io->left);
        if (rope)
            write_tiles(own[w].dq, width / 8, rope, columns / 8, count, io->dq_rope,
                        at_rope + row * b->head.q_rope.stride, b->head.q_rope.stride, (struct sl_settled){0});
    }
}

/* ---- backward: keys and values ---- */

/* Scores [16 keys, 8 TILES queries], which begin at FIRST, and the gradients of what they weigh. */
SL_INLINE void gradients_of_columns(float scale, size_t first, size_t queries, const int tiles, const float *logsum,
                                    const float *delta, struct sums *s, struct sums *ds) {
    SL_UNROLL
    for (int n = 0; n < tiles; n++) {
        EACH_LANE(l) {
            SL_UNROLL
            for (int e = 0; e < 2; e++) {
                const size_t query = smaller(first + (size_t)n * 8 + column_of_sum(l, e), queries - 1);
                const float sum = logsum[query], less = delta[query];
                SL_UNROLL
                for (int i = e; i < 4; i += 2) gradient_of_score(&s[n].x[l][i], &ds[n].x[l][i], sum, less, scale);
            }
        }
    }
}

struct key_sums {
    struct sums dk[ACROSS], dv[ACROSS];
};

/* Adds what the queries of the block's head give its keys. K and V [OWN] are in the team's memory, Q and DY [FEW] come
 * there. D_O: the head's rows in the sequence; so LOGSUM and DELTAS. */
SL_INLINE void add_queries(const struct block *b, const int columns, uint16_t *k, uint16_t *v, uint16_t *q,
                           uint16_t *dy, size_t queries, struct rows d_o, const float *logsum, const float *deltas,
                           struct key_sums *to) {
    const int few = SL_NEAR(columns, FEW_64, FEW_128);
    const size_t pitch = SL_PITCH(columns), width = b->head.v.cols, rope = b->head.q_rope.cols,
                 end = b->first + b->count;
    for (size_t first = b->first; first < queries && first_key(&b->head.past, first) < end; first += (size_t)few) {
        const size_t count = smaller((size_t)few, queries - first);
        const bool hides = !sees_all(&b->head, first, count, b->first, b->first + OWN);
        wait_for_team();
        share_both(b->head.q, b->head.q_rope, first, count, (size_t)few, pitch, q);
        share_rows(from_row(d_o, first), count, (size_t)few, 0, pitch, dy);
        wait_for_team();
        EACH_WARP(w) {
            struct sums s[FEW_64 / 8], ds[FEW_64 / 8];
            const size_t row = 16 * (size_t)warp_of(w);
            multiply_rows(k + row * pitch, q, width + rope, pitch, few / 8, s);
            multiply_rows(v + row * pitch, dy, width, pitch, few / 8, ds);
            gradients_of_columns(b->head.scale, first, queries, few / 8, logsum, deltas, s, ds);
            if (hides) hide_queries(&b->head, b->first + row, first, queries, few / 8, s, ds);
            add_weighted(s, few / 8, dy, width, pitch, columns / 8, to[w].dv);
            add_weighted(ds, few / 8, q, width + rope, pitch, columns / 8, to[w].dk);
        }
    }
}

/* Gradients of keys and values, as they lie in k and v. */
struct key_outputs {
    float *dk, *dv, *dk_rope; /* dk_rope [heads, rows, rope] */
    struct sl_settled left_k, left_v;
};

SL_INLINE void write_keys(const struct block *b, const int columns, const struct key_outputs *io, size_t at,
                          size_t at_rope, const struct key_sums *sums) {
    const size_t width = b->head.v.cols, rope = b->head.k_rope.cols, stride = b->head.k.stride;
    EACH_WARP(w) {
        const size_t row = 16 * (size_t)warp_of(w), count = b->count > row ? b->count - row : 0;
        write_tiles(sums[w].dk, 0, width, columns / 8, count, io->dk, at + row * stride, stride, io->left_k);
        write_tiles(sums[w].dv, 0, width, columns / 8, count, io->dv, at + row * stride, stride, io->left_v);
        if (rope)
            write_tiles(sums[w].dk, width / 8, rope, columns / 8, count, io->dk_rope, at_rope + row * rope, rope,
                        (struct sl_settled){0});
    }
}

/* Block NUMBER of the keys of a head of keys, and the queries of all heads that read it. What a team shares: K and V
 * [OWN], Q and DY [FEW]. */
SL_INLINE void keys_block(const struct sl_attention *shape, size_t sequence, size_t key_head, size_t number,
                          const int columns, uint16_t *k_room, uint16_t *v_room, uint16_t *q_room, uint16_t *dy_room,
                          const void *q, const void *q_rope, const void *k, const void *v, const void *k_rope,
                          const float *logsum, const void *d_o, const float *deltas, const struct key_outputs *io) {
    const size_t pitch = SL_PITCH(columns), width = shape->width, heads = shape->heads, queries = shape->queries;
    const size_t rows = shape->sequences * queries, row = sequence * queries;
    const struct span span = heads_of(shape, key_head);
    struct key_sums own[WARPS_HERE];
    if (span.first == span.end) return;
    struct block b = block_of(shape, sequence * heads + span.first, number, shape->keys, q, q_rope, k, v, k_rope);
    share_both(b.head.k, b.head.k_rope, b.first, b.count, OWN, pitch, k_room);
    share_rows(from_row(b.head.v, b.first), b.count, OWN, 0, pitch, v_room);
    EACH_WARP(w) {
        clear_tiles(columns / 8, own[w].dk);
        clear_tiles(columns / 8, own[w].dv);
    }
    for (size_t head = span.first; head < span.end; head++) {
        const struct rows dy = rows_of(shape->stored_d_o, d_o, (row * heads + head) * width, heads * width, width);
        b = block_of(shape, sequence * heads + head, number, shape->keys, q, q_rope, k, v, k_rope);
        add_queries(&b, columns, k_room, v_room, q_room, dy_room, queries, dy, logsum + head * rows + row,
                    deltas + head * rows + row, own);
    }
    write_keys(&b, columns, io, b.row * shape->key_stride + key_head * width, (b.number * rows + b.row) * shape->rope,
               own);
}

/* ---- regions ---- */

/* SHAPE as a region takes it: numbers. */
#define SL_SHAPE(shape)                                                                                                \
    const size_t sequences = shape->sequences, queries = shape->queries, position = shape->position,                   \
                 key_rows = shape->key_rows, heads = shape->heads, width = shape->width, rope = shape->rope,           \
                 group = shape->group, lead = shape->lead, key_stride = shape->key_stride, window = shape->window;     \
    const int32_t *places = shape->places
#define SL_SHAPE_HERE(dtype)                                                                                           \
    {.sequences = sequences,                                                                                           \
     .queries = queries,                                                                                               \
     .position = position,                                                                                             \
     .key_rows = key_rows,                                                                                             \
     .heads = heads,                                                                                                   \
     .width = width,                                                                                                   \
     .rope = rope,                                                                                                     \
     .group = group,                                                                                                   \
     .lead = lead,                                                                                                     \
     .key_stride = key_stride,                                                                                         \
     .window = window,                                                                                                 \
     .keys = dtype,                                                                                                    \
     .places = places}

/* The last queries see most keys: their blocks come first. */
#define FORWARD(COLUMNS, KEYS)                                                                                         \
    static void attention_forward_##COLUMNS(const struct sl_attention *shape, const void *q, const void *q_rope,       \
                                            const void *k, const void *v, const void *k_rope, float *o,                \
                                            float *logsum) {                                                           \
        SL_SHAPE(shape);                                                                                               \
        const size_t every = sequences * heads, blocks = blocks_of(queries);                                           \
        const enum sl_dtype keys = shape->keys, stored_q = shape->stored_q;                                            \
        const bool rounds = shape->o.rounds;                                                                           \
        uint16_t *stored = shape->o.stored;                                                                            \
        SL_ROWS(is_device_ptr(q, q_rope, k, v, k_rope, o, logsum, stored, places))                                     \
        for (size_t unit = 0; unit < every * blocks; unit++) {                                                         \
            SL_ROOM(q_room, OWN, COLUMNS);                                                                             \
            SL_ROOM(k_room, KEYS, COLUMNS);                                                                            \
            SL_ROOM(v_room, KEYS, COLUMNS);                                                                            \
            SL_TEAM() {                                                                                                \
                const struct sl_attention all = SL_SHAPE_HERE(keys);                                                   \
                const struct block b =                                                                                 \
                    block_of(&all, unit % every, blocks - 1 - unit / every, stored_q, q, q_rope, k, v, k_rope);        \
                forward_block(&b, COLUMNS, q_room, k_room, v_room, o, (b.row * heads + b.number) * width,              \
                              (struct sl_settled){rounds, stored}, logsum + b.number * (sequences * queries) + b.row); \
            }                                                                                                          \
        }                                                                                                              \
    }

#define BACKWARD_QUERIES(COLUMNS, KEYS)                                                                                \
    static void attention_queries_##COLUMNS(const struct sl_attention *shape, const void *q, const void *q_rope,       \
                                            const void *k, const void *v, const void *k_rope, const void *o,           \
                                            const float *logsum, const void *d_o, float *dq, float *dq_rope,           \
                                            float *deltas) {                                                           \
        SL_SHAPE(shape);                                                                                               \
        const enum sl_dtype inputs = shape->stored;                                                                    \
        const size_t every = sequences * heads, blocks = blocks_of(queries);                                           \
        const enum sl_dtype stored_o = shape->stored_o, stored_d_o = shape->stored_d_o;                                \
        const bool rounds = shape->dq.rounds;                                                                          \
        uint16_t *stored = shape->dq.stored;                                                                           \
        SL_ROWS(is_device_ptr(q, q_rope, k, v, k_rope, o, logsum, d_o, dq, dq_rope, deltas, stored, places))           \
        for (size_t unit = 0; unit < every * blocks; unit++) {                                                         \
            SL_ROOM(q_room, OWN, COLUMNS);                                                                             \
            SL_ROOM(dy_room, OWN, COLUMNS);                                                                            \
            SL_ROOM(k_room, KEYS, COLUMNS);                                                                            \
            SL_ROOM(v_room, KEYS, COLUMNS);                                                                            \
            SL_TEAM() {                                                                                                \
                const struct sl_attention all = SL_SHAPE_HERE(inputs);                                                 \
                const struct block b =                                                                                 \
                    block_of(&all, unit % every, blocks - 1 - unit / every, inputs, q, q_rope, k, v, k_rope);          \
                const struct outputs io = {o, d_o, dq, dq_rope, stored_o, stored_d_o, {rounds, stored}};               \
                const size_t sums = b.number * (sequences * queries) + b.row;                                          \
                queries_block(&b, COLUMNS, q_room, dy_room, k_room, v_room, &io, (b.row * heads + b.number) * width,   \
                              (b.row * heads + b.number) * rope, logsum + sums, deltas + sums);                        \
            }                                                                                                          \
        }                                                                                                              \
    }

/* The first keys are seen by most queries. */
#define BACKWARD_KEYS(COLUMNS, QUERIES)                                                                                \
    static void attention_keys_##COLUMNS(const struct sl_attention *shape, const void *q, const void *q_rope,          \
                                         const void *k, const void *v, const void *k_rope, const float *logsum,        \
                                         const void *d_o, float *dk, float *dv, float *dk_rope, const float *deltas) { \
        SL_SHAPE(shape);                                                                                               \
        const enum sl_dtype inputs = shape->stored;                                                                    \
        const size_t key_heads = sl_attention_key_heads(shape), every = sequences * key_heads;                         \
        const size_t blocks = blocks_of(queries);                                                                      \
        const enum sl_dtype stored_d_o = shape->stored_d_o;                                                            \
        const bool rounds_dk = shape->dk.rounds, rounds_dv = shape->dv.rounds;                                         \
        uint16_t *dk_stored = shape->dk.stored, *dv_stored = shape->dv.stored;                                         \
        SL_ROWS(is_device_ptr(q, q_rope, k, v, k_rope, logsum, d_o, dk, dv, dk_rope, deltas, dk_stored, dv_stored,     \
                              places))                                                                                 \
        for (size_t unit = 0; unit < every * blocks; unit++) {                                                         \
            SL_ROOM(q_room, QUERIES, COLUMNS);                                                                         \
            SL_ROOM(dy_room, QUERIES, COLUMNS);                                                                        \
            SL_ROOM(k_room, OWN, COLUMNS);                                                                             \
            SL_ROOM(v_room, OWN, COLUMNS);                                                                             \
            SL_TEAM() {                                                                                                \
                struct sl_attention all = SL_SHAPE_HERE(inputs);                                                       \
                all.stored_d_o = stored_d_o;                                                                           \
                const struct key_outputs io = {dk, dv, dk_rope, {rounds_dk, dk_stored}, {rounds_dv, dv_stored}};       \
                keys_block(&all, unit % every / key_heads, unit % key_heads, unit / every, COLUMNS, k_room, v_room,    \
                           q_room, dy_room, q, q_rope, k, v, k_rope, logsum, d_o, deltas, &io);                        \
            }                                                                                                          \
        }                                                                                                              \
    }

FORWARD(64, KEYS_64)
FORWARD(128, KEYS_128)
BACKWARD_QUERIES(64, FEW_64)
BACKWARD_QUERIES(128, FEW_128)
BACKWARD_KEYS(64, FEW_64)
BACKWARD_KEYS(128, FEW_128)

void sl_attention_warps_forward(const struct sl_attention *shape, const void *q, const void *q_rope, const void *k,
                                const void *v, const void *k_rope, float *o, float *logsum) {
    if (shape->width + shape->rope <= 64)
        attention_forward_64(shape, q, q_rope, k, v, k_rope, o, logsum);
    else
        attention_forward_128(shape, q, q_rope, k, v, k_rope, o, logsum);
}

void sl_attention_warps_backward(const struct sl_attention *shape, const void *q, const void *q_rope, const void *k,
                                 const void *v, const void *k_rope, const void *o, const float *logsum, const void *d_o,
                                 float *dq, float *dq_rope, float *dk, float *dv, float *dk_rope, float *deltas) {
    if (shape->width + shape->rope <= 64) {
        attention_queries_64(shape, q, q_rope, k, v, k_rope, o, logsum, d_o, dq, dq_rope, deltas);
        attention_keys_64(shape, q, q_rope, k, v, k_rope, logsum, d_o, dk, dv, dk_rope, deltas);
        return;
    }
    attention_queries_128(shape, q, q_rope, k, v, k_rope, o, logsum, d_o, dq, dq_rope, deltas);
    attention_keys_128(shape, q, q_rope, k, v, k_rope, logsum, d_o, dk, dv, dk_rope, deltas);
}
