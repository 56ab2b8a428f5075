/* attention_backward_internal.h - gradients of attention by tensor cores: of queries, and of keys and values. */
#ifndef SL_LAYERS_KERNELS_ATTENTION_ATTENTION_BACKWARD_INTERNAL_H
#define SL_LAYERS_KERNELS_ATTENTION_ATTENTION_BACKWARD_INTERNAL_H

#include "layers/kernels/attention/attention_tiles_internal.h"

/* Replaces a score by its weight, and DS, the gradient of the weight minus delta, by the gradient of the score divided
 * by its scale. LOGSUM and FACTOR: for powers of 2. */
SL_INLINE void gradient_of_score(float *s, float *ds, float logsum, float factor) {
    const float p = rough_exp2(*s * factor - logsum);
    *s = p;
    *ds *= p;
}

/* ---- queries ---- */

/* Other inputs and outputs of backward, for all rows. */
struct outputs {
    const void *o, *d_o;
    struct sl_out dq; /* in the layout of q */
    float *dq_rope;   /* in the layout of q_rope; not used without rotary columns */
    enum sl_dtype stored_o, stored_d_o;
};

/* State of a warp, in tiles of 16 queries. START: minus their deltas, the initial values of products of gradients and
 * values. */
struct query_warp {
    struct sums dq[DEEP][ACROSS], start[DEEP];
    struct operand q[DEEP][ACROSS / 2], dy[DEEP][ACROSS / 2];
    float logsum[DEEP][LANES_HERE][2];
    struct view view;
};

/* Computes minus o . d_o of each row of a warp, for types O and D_O. */
SL_INLINE void deltas_of(const struct block *b, size_t width, size_t row, size_t count, const struct outputs *io,
                         size_t at, const enum sl_dtype o, const enum sl_dtype d_o, struct sums *start) {
    const enum sl_dtype type_o = sl_f32_or_bf16(o), type_d_o = sl_f32_or_bf16(d_o);
    const size_t stride = b->head.q.stride;
    SL_UNROLL
    for (int i = 0; i < 2; i++) {
        float sum[LANES_HERE];
        EACH_LANE(l) {
            const size_t own = row_of_sum(l, 2 * i) + nothing();
            const size_t from = at + (row + own) * stride + column_of_sum(l, 0);
            sum[l] = 0.0f;
            for (size_t c = 0; own < count && c < width; c += 8) {
                for (size_t e = from + c; e < from + c + 2; e++)
                    sum[l] -= sl_load_float(type_o, io->o, e) * sl_load_float(type_d_o, io->d_o, e);
            }
        }
        sum_of_row(sum);
        EACH_LANE(l) start->x[l][2 * i] = start->x[l][2 * i + 1] = sum[l];
    }
}

/* Computes weights and score gradients from scores [16, 8 TILES] of a warp's queries and the weights' gradients. */
SL_INLINE void gradients_of_rows(float factor, const int tiles, float logsum[LANES_HERE][2], struct sums *s,
                                 struct sums *ds) {
    SL_UNROLL
    for (int n = 0; n < tiles; n++) {
        EACH_LANE(l) {
            SL_UNROLL
            for (int i = 0; i < 4; i++) gradient_of_score(&s[n].x[l][i], &ds[n].x[l][i], logsum[l][i / 2], factor);
        }
    }
}

/* Initializes tile D of a warp, whose rows are in Q and DY from ROW on. */
SL_INLINE void begin_queries(const struct block *b, const int columns, const bool whole, const uint16_t *q,
                             const uint16_t *dy, const struct outputs *io, size_t at, const float *logsum,
                             float *deltas, size_t row, const int d, struct query_warp *own) {
    const size_t count = b->count > row ? b->count - row : 0, first = row * SL_PITCH(columns);
    struct sums *start = &own->start[d];
    read_rows(q + first, depth_of(&b->head, columns, whole), columns, own->q[d]);
    read_rows(dy + first, width_of(&b->head, columns, whole), columns, own->dy[d]);
    clear_tiles(columns / 8, own->dq[d]);
    if (io->stored_o == SL_BF16 && io->stored_d_o == SL_BF16)
        deltas_of(b, width_of(&b->head, columns, whole), row, count, io, at, SL_BF16, SL_BF16, start);
    else if (io->stored_o == SL_F32 && io->stored_d_o == SL_F32)
        deltas_of(b, width_of(&b->head, columns, whole), row, count, io, at, SL_F32, SL_F32, start);
    else
        deltas_of(b, width_of(&b->head, columns, whole), row, count, io, at, io->stored_o, io->stored_d_o, start);
    EACH_LANE(l) {
        SL_UNROLL
        for (int i = 0; i < 2; i++) {
            const size_t query = row_of_sum(l, 2 * i) + nothing();
            own->logsum[d][l][i] = query < count ? logsum[row + query] * per_log_2 : 0.0f;
            if (query < count && lane_of(l) % 4 == 0) deltas[row + query] = start->x[l][2 * i];
        }
    }
}

SL_INLINE void write_queries(const struct block *b, const int columns, const bool whole, const struct outputs *io,
                             size_t at, size_t at_rope, size_t row, struct sums *dq) {
    const struct head *h = &b->head;
    const size_t count = b->count > row ? b->count - row : 0, stride = h->q.stride;
    scale_tiles(columns / 8, h->scale, dq);
    write_tiles(dq, 0, width_of(h, columns, whole), columns / 8, count, io->dq, at + row * stride, stride);
    if (!whole && h->q_rope.cols)
        write_tiles(dq, h->v.cols / 8, h->q_rope.cols, columns / 8, count, sl_out_f32(io->dq_rope),
                    at_rope + row * h->q_rope.stride, h->q_rope.stride);
}

/* Each warp has DOWN tiles of 16 rows, and takes STEP keys at a time, so that its values fit in registers. ROOM: for
 * two blocks, shared by the team; queries and the result's gradients pass through it. AT, AT_ROPE: of the block's first
 * row. */
SL_INLINE void queries_block(const struct block *b, const int columns, const bool whole, const int down, const int step,
                             uint16_t *room, const struct outputs *io, size_t at, size_t at_rope, const float *logsum,
                             float *deltas) {
    const int keys = SL_NEAR(columns, KEYS_64, KEYS_128) / (whole ? 1 : 2), pitch = SL_PITCH(columns),
              each = 2 * keys * pitch, most = smaller(step, keys);
    const uint32_t rows = 16 * (uint32_t)down;
    const struct head *h = &b->head;
    const size_t width = width_of(h, columns, whole), depth = depth_of(h, columns, whole), last = b->first + b->count;
    const struct rows turned = {0};
    const struct source q = source_of(h->q, h->q_rope),
                        dy = source_of(rows_of(io->stored_d_o, io->d_o, at, h->q.stride, width), turned);
    const struct key_source flow = keys_of(h);
    const struct sums none = {0};
    struct query_warp own[WARPS_HERE];
    bring(&q, (uint32_t)b->first, (uint32_t)b->count, rows * WARPS, columns, whole, room);
    bring(&dy, 0, (uint32_t)b->count, rows * WARPS, columns, whole, room + rows * WARPS * (uint32_t)pitch);
    wait_for_copies();
    wait_for_team();
    EACH_WARP(w) {
        const size_t row = rows * (uint32_t)warp_of(w);
        SL_UNROLL
        for (int d = 0; d < down; d++)
            begin_queries(b, columns, whole, room, room + rows * WARPS * (uint32_t)pitch, io, at, logsum, deltas,
                          row + 16 * (size_t)d, d, &own[w]);
        own[w].view = down > 1 ? view_of(b, row, rows) : view_of(b, 0, b->count);
    }
    uint32_t from = (uint32_t)first_block(&h->past, b->first, (size_t)keys), next;
    int now, later = 0;
    wait_for_team();
    bring_keys(&flow, from, (uint32_t)last, (uint32_t)keys, columns, whole, room);
    for (; from < (uint32_t)last; from = next) {
        now = later, later = each - now, next = from + (uint32_t)keys;
        wait_for_copies();
        wait_for_team(); /* the block has arrived, and all warps have read the previous one */
        if (next < (uint32_t)last)
            bring_keys(&flow, next, (uint32_t)last, (uint32_t)keys, columns, whole, room + later);
        const uint16_t *k = room + now, *v = k + keys * pitch;
        EACH_WARP(w) {
            const int left = (int)(own[w].view.end - from), seen = down > 1 && left < keys ? left : keys;
            SL_ROLLED
            for (int c = 0; c < seen; c += most) {
                struct sums s[KEYS_64 / 8], ds[KEYS_64 / 8];
                const uint16_t *own_k = k + c * pitch;
                multiply_rows(own[w].q, NULL, own_k, depth, columns, down, most / 8, &none, 0, 0, s);
                multiply_rows(own[w].dy, NULL, v + c * pitch, width, columns, down, most / 8, own[w].start, 1, 0, ds);
                SL_UNROLL
                for (int d = 0; d < down; d++) {
                    struct sums *part = ds + d * (most / 8);
                    gradients_of_rows(h->scale * per_log_2, most / 8, own[w].logsum[d], s + d * (most / 8), part);
                    if (!sees_all(&own[w].view.clear, from, next))
                        hide_keys(h, b->first + rows * (uint32_t)warp_of(w) + 16 * (size_t)d, last, from + (uint32_t)c,
                                  most / 8, 0.0f, part);
                }
                add_weighted(ds, down, most / 8, own_k, depth, columns, own[w].dq);
            }
        }
    }
    EACH_WARP(w) {
        SL_UNROLL
        for (int d = 0; d < down; d++)
            write_queries(b, columns, whole, io, at, at_rope, rows * (uint32_t)warp_of(w) + 16 * (size_t)d,
                          own[w].dq[d]);
    }
}

/* ---- keys and values ---- */

/* Elements of a block of queries with their logsums and deltas; number of blocks in a team's room; whether keys stay in
 * registers: there are too few for 128 columns that are not WHOLE. */
#define SL_QUERIES(few, columns) (2 * (few) * SL_PITCH(columns) + 4 * (few))
#define SL_HOLDS_KEYS(columns, whole) ((columns) == 64 || (whole))
#define SL_QUERY_BLOCKS(columns, whole) (SL_HOLDS_KEYS(columns, whole) ? 2 : 1)

/* State of 16 keys. K and V are not used if they are in the team's memory: V for 128 columns, K for 128 columns that
 * are not WHOLE. */
struct key_warp {
    struct sums dk[1][ACROSS], dv[1][ACROSS];
    struct operand k[1][ACROSS / 2], v[1][ACROSS / 2];
};

/* TO [2, FEW] = COUNT elements of LOGSUM and of DELTAS from FIRST on, padded with values for zero gradients. */
SL_INLINE void bring_sums(const float *logsum, const float *deltas, uint32_t first, uint32_t count, const uint32_t few,
                          float *to) {
    for (int here = 0; here < THREADS_HERE; here++) {
        const uint32_t thread = (uint32_t)thread_of(here), row = thread % few;
        if (thread >= 2 * few) continue;
        const float *from = (thread < few ? logsum : deltas) + row;
        if (row < count)
            copy_ahead(from + first, sizeof *from, true, to + thread);
        else
            to[thread] = thread < few ? INFINITY : 0.0f;
    }
}

/* The queries of one head for add_queries. D_O, LOGSUM and DELTAS are the head's rows in the sequence. */
struct queries {
    uint32_t count;
    struct source q, d_o;
    const float *logsum, *deltas;
};

/* Copies a block of queries from FIRST on: queries, the result's gradients, logsums and deltas [2, FEW]. */
SL_INLINE void bring_queries(const struct queries *x, uint32_t first, const int columns, const bool whole,
                             uint16_t *to) {
    const uint32_t few = SL_NEAR(columns, FEW_64, FEW_128), count = x->count - first < few ? x->count - first : few;
    uint16_t *dy = to + few * SL_PITCH(columns), *sums = dy + few * SL_PITCH(columns);
    bring_both(&x->q, &x->d_o, first, count, few, columns, whole, to, dy);
    bring_sums(x->logsum, x->deltas, first, count, few, (float *)(void *)sums);
}

typedef float two_floats __attribute__((vector_size(8), may_alias));

/* Reads lane L's two elements of X [8 TILES], one for each column, of tile N: with one instruction. */
SL_INLINE two_floats of_columns(const float *x, int n, int l) {
    return *(const two_floats *)(const void *)(x + (size_t)n * 8 + column_of_sum(l, 0));
}

/* Computes weights and score gradients from scores [16 keys, 8 TILES queries] and the weights' gradients. */
SL_INLINE void gradients_of_columns(float factor, const int tiles, const float *logsum, struct sums *s,
                                    struct sums *ds) {
    SL_UNROLL
    for (int n = 0; n < tiles; n++) {
        EACH_LANE(l) {
            const two_floats sums = of_columns(logsum, n, l) * per_log_2;
            SL_UNROLL
            for (int i = 0; i < 4; i++) gradient_of_score(&s[n].x[l][i], &ds[n].x[l][i], sums[i % 2], factor);
        }
    }
}

/* Initializes sums with the DELTAS of their columns. */
SL_INLINE void start_of_columns(const int tiles, const float *deltas, struct sums *start) {
    SL_UNROLL
    for (int n = 0; n < tiles; n++) {
        EACH_LANE(l) {
            const two_floats sums = of_columns(deltas, n, l);
            SL_UNROLL
            for (int i = 0; i < 4; i++) start[n].x[l][i] = sums[i % 2];
        }
    }
}

/* Adds the gradients of the block's keys by the queries of a head. ROOM: for blocks of queries; LATER: position of the
 * next block in it; returns the new position. K, V: the block's keys and values, if they are in the team's memory. */
SL_INLINE int add_queries(const struct block *b, const int columns, const bool whole, const struct queries *all,
                          uint16_t *room, int later, const uint16_t *k, const uint16_t *v, struct key_warp *to) {
    const int few = SL_NEAR(columns, FEW_64, FEW_128), pitch = SL_PITCH(columns), each = SL_QUERIES(few, columns);
    const bool twice = SL_QUERY_BLOCKS(columns, whole) == 2, holds = SL_HOLDS_KEYS(columns, whole);
    const struct head *h = &b->head;
    const size_t width = width_of(h, columns, whole), depth = depth_of(h, columns, whole);
    const uint32_t keys = (uint32_t)b->first, end = keys + (uint32_t)b->count;
    const uint32_t last = first_behind(h, end - 1, keys, all->count), clear = first_behind(h, keys, keys, all->count);
    const struct sums none = {0};
    if (!twice) wait_for_team(); /* all warps have read the previous block */
    bring_queries(all, keys, columns, whole, room + later);
    for (uint32_t first = keys, next; first < last; first = next) {
        const int now = later;
        later = twice ? each - now : 0, next = first + (uint32_t)few;
        wait_for_copies();
        wait_for_team(); /* the block has arrived, and all warps have read the previous one */
        if (twice && next < last) bring_queries(all, next, columns, whole, room + later);
        const uint16_t *q = room + now, *dy = q + few * pitch;
        const float *logsum = (const float *)(const void *)(dy + few * pitch);
        EACH_WARP(w) {
            const uint32_t row = 16 * (uint32_t)warp_of(w);
            struct sums s[FEW_64 / 8], ds[FEW_64 / 8], start[FEW_64 / 8];
            start_of_columns(few / 8, logsum + few, start);
            multiply_rows(holds ? to[w].k : NULL, k + row * (uint32_t)pitch, q, depth, columns, 1, few / 8, &none, 0, 0,
                          s);
            multiply_rows(columns == 64 ? to[w].v : NULL, v + row * (uint32_t)pitch, dy, width, columns, 1, few / 8,
                          start, 0, 1, ds);
            gradients_of_columns(h->scale * per_log_2, few / 8, logsum, s, ds);
            if (first + 1 < keys + OWN || next > clear) hide_queries(h, keys + row, first, all->count, few / 8, s, ds);
            add_weighted(s, 1, few / 8, dy, width, columns, to[w].dv);
            add_weighted(ds, 1, few / 8, q, depth, columns, to[w].dk);
        }
        if (!twice && next < last) {
            wait_for_team();
            bring_queries(all, next, columns, whole, room);
        }
    }
    return later;
}

/* Gradients of keys and values, in the layout of k and v. */
struct key_outputs {
    struct sl_out dk, dv;
    float *dk_rope;
};

/* Writes the gradients of a warp's COUNT keys. AT, AT_ROPE: of its first key. */
SL_INLINE void write_keys(const struct sl_attention *shape, const int columns, const bool whole,
                          const struct key_outputs *io, size_t at, size_t at_rope, size_t count,
                          struct key_warp *sums) {
    const size_t width = whole ? (size_t)columns : shape->width, rope = whole ? 0 : shape->rope;
    scale_tiles(columns / 8, scale_of(shape), sums->dk[0]);
    write_tiles(sums->dk[0], 0, width, columns / 8, count, io->dk, at, shape->key_stride);
    write_tiles(sums->dv[0], 0, width, columns / 8, count, io->dv, at, shape->key_stride);
    if (rope) write_tiles(sums->dk[0], width / 8, rope, columns / 8, count, sl_out_f32(io->dk_rope), at_rope, rope);
}

/* Computes block NUMBER of the keys of a head of keys, with the queries of all heads that read it. ROOM: for blocks of
 * queries. K_ROOM, V_ROOM: for keys and values; inside ROOM if they stay in registers. */
SL_INLINE void keys_block(const struct sl_attention *shape, uint32_t sequence, uint32_t key_head, uint32_t number,
                          const int columns, const bool whole, uint16_t *room, uint16_t *k_room, uint16_t *v_room,
                          const void *q, const void *q_rope, const void *k, const void *v, const void *k_rope,
                          const float *logsum, const void *d_o, const float *deltas, const struct key_outputs *io) {
    const size_t width = whole ? (size_t)columns : shape->width, rope = whole ? 0 : shape->rope;
    const uint32_t heads = (uint32_t)shape->heads, queries = (uint32_t)shape->queries;
    const uint32_t rows = (uint32_t)shape->sequences * queries, row = sequence * queries;
    const struct span span = heads_of(shape, key_head);
    const uint32_t begin = (uint32_t)span.first, end = (uint32_t)span.end;
    const struct rows turned = {0};
    struct key_warp own[WARPS_HERE];
    if (begin == end) return;
    const struct block b = block_of(shape, sequence, begin, number, OWN, shape->keys, q, q_rope, k, v, k_rope);
    const struct key_source keys = keys_of(&b.head);
    bring(&keys.k, (uint32_t)b.first, (uint32_t)b.count, OWN, columns, whole, k_room);
    bring(&keys.v, (uint32_t)b.first, (uint32_t)b.count, OWN, columns, whole, v_room);
    wait_for_copies();
    wait_for_team();
    EACH_WARP(w) {
        const size_t first = 16 * (size_t)warp_of(w) * SL_PITCH(columns);
        if (SL_HOLDS_KEYS(columns, whole)) read_rows(k_room + first, width + rope, columns, own[w].k[0]);
        if (columns == 64) read_rows(v_room + first, width, columns, own[w].v[0]);
        clear_tiles(columns / 8, own[w].dk[0]);
        clear_tiles(columns / 8, own[w].dv[0]);
    }
    wait_for_team();
    int later = 0;
    for (uint32_t head = begin; head < end; head++) {
        const size_t sums = (size_t)head * rows + row;
        const struct rows dy =
            rows_of(shape->stored_d_o, d_o, ((size_t)row * heads + head) * width, heads * width, width);
        const struct head h = head_at(shape, sequence, head, shape->keys, q, q_rope, k, v, k_rope);
        const struct queries all = {queries, source_of(h.q, h.q_rope), source_of(dy, turned), logsum + sums,
                                    deltas + sums};
        later = add_queries(&b, columns, whole, &all, room, later, k_room, v_room, own);
    }
    EACH_WARP(w) {
        const size_t first = number * OWN + 16 * (size_t)warp_of(w) + nothing(),
                     count = queries > first ? queries - first : 0;
        write_keys(shape, columns, whole, io, (row + first) * shape->key_stride + key_head * width,
                   ((size_t)(end - 1) * rows + row + first) * rope, smaller(count, 16), &own[w]);
    }
}

#endif
