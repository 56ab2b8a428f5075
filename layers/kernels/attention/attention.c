/* attention.c - causal attention in blocks of queries and keys, built once per CPU level, or for devices.
 *
 * The build defines SL_ATTENTION_KERNELS, the table's name, and lets the compiler fuse a * b + c.
 *
 * Forward takes a block of queries through all blocks of keys. Its scores are [keys, queries]: queries are the lanes of
 * vectors, so maxima and sums over keys are computed lane by lane. Backward takes a block of keys through all blocks of
 * queries, and its scores are [queries, keys]. So the operand of the fixed block is transposed once. If a block's
 * queries see only some of its keys, the block is computed in strips, without the keys that no query of a strip sees.
 * Scores are logarithms to the base 2, because powers of 2 are cheaper than powers of e.
 *
 * On NVIDIA GPUs a team has a block of queries, or in backward every TEAMS-th block of a head's keys; its threads share
 * the tiles. In backward each team has its own part of dq, and the parts are added in the order of the keys. */
#include "layers/kernels/attention/attention.h"
#include "layers/kernels/attention/attention_blocks_internal.h"
#include "layers/kernels/attention/attention_sight_internal.h"
#include "layers/kernels/attention/attention_warps_internal.h"

/* BLOCK: queries, or keys, in a block; DEPTH: columns that are transposed at a time. COPIES_KEYS, COPIES_VALUES:
 * whether forward makes dense copies of rows with a stride of at least APART floats, for which the first-level cache
 * has few places; COPIES: whether either does. With more registers values are read less often. WIDENS: whether backward
 * reads bf16, and widens a block at a time. ON_WARPS: whether there are tensor cores. */
#if defined(SL_DEVICE_CUDA)
enum { BLOCK = 32, DEPTH = 32 }; /* local arrays share a team's 48 KB */
enum { COPIES_KEYS = 0, COPIES_VALUES = 0, WIDENS = 0, ON_WARPS = 1 };
#else
enum { BLOCK = SL_ATTENTION_BLOCK, DEPTH = 128 };
enum { COPIES_KEYS = 1, COPIES_VALUES = LANES < 16, WIDENS = 1, ON_WARPS = 0 };
#endif
enum { COPIES = COPIES_KEYS || COPIES_VALUES };
/* BEYOND: keys in a tile after the last visible key of a vector of queries, for the tile's other queries; without
 * SCALES, all keys. */
enum { APART = 256, BEYOND = !SCALES ? BLOCK : (LANES % DOWN) + (LANES % TALL) ? TALL : 0 };
enum { SOON = 128 }; /* rows of the next head that are prefetched */

/* ---- scores ---- */

/* Transposed rows: [columns, BLOCK]. */
struct turned {
    _Alignas(SL_CACHE_LINE) float own[DEPTH * BLOCK], rope[DEPTH * BLOCK];
};

SL_INLINE size_t columns_from(struct rows rows, size_t from) {
    return rows.cols > from ? smaller(DEPTH, rows.cols - from) : 0;
}

/* Returns COLS columns from column FIRST on of COUNT rows, at most DEPTH. If they are bf16, or have a large stride and
 * COPIES is set, they are copied as floats into ROOM [BLOCK * DEPTH]. */
SL_INLINE struct rows columns_of(struct rows x, size_t count, size_t first, size_t cols, bool copies, float *room) {
    const bool far = copies && x.stride >= APART;
    if (!x.bf16 && !far) return (struct rows){x.at + first, x.stride, cols, NULL};
    if (x.bf16 || !COPIES)
        widen_rows(count, cols, x.bf16 + first, x.stride, room);
    else
        copy_rows(count, cols, x.at + first, x.stride, room);
    return (struct rows){room, cols, cols, NULL};
}

/* scores [x's rows, BLOCK] = (x y^T + x_rope y_rope^T) factor. OF_KEYS: x is the block's keys and y its queries; else
 * the reverse. TERMS: 1 without rotary columns. TURNED holds y transposed; FRESH: not yet. Scores of keys invisible to
 * a whole strip are not written. ROOM [2, BLOCK * DEPTH], or NULL: for copies of x, which may be bf16. */
SL_INLINE void make_scores(const struct sight *sight, const bool of_keys, const int terms, struct rows x,
                           struct rows x_rope, struct rows y, struct rows y_rope, float factor, bool fresh,
                           struct turned *turned, float *room, float *scores, struct wanted *wanted) {
    const size_t rows = of_keys ? sight->keys : sight->queries, others = of_keys ? sight->queries : sight->keys;
    const size_t depth = x.cols > x_rope.cols ? x.cols : x_rope.cols;
    for (size_t from = 0; from < depth; from += DEPTH) {
        const size_t own = columns_from(x, from), rope = columns_from(x_rope, from);
        if (fresh || depth > DEPTH) {
            transpose(y, others, from, own, factor, turned->own, BLOCK);
            if (terms > 1) transpose(y_rope, others, from, rope, factor, turned->rope, BLOCK);
        }
        const struct rows part = columns_of(x, rows, from, own, COPIES_KEYS && room, room);
        const struct rows part_rope = columns_of(x_rope, rows, from, rope, false, room ? room + BLOCK * DEPTH : NULL);
        for (size_t first = 0; first < rows;) {
            const struct strip s = of_keys ? strip_of_keys(sight, first) : strip_of_queries(sight, first);
            const size_t column = s.from / LANES * LANES, end = sl_round_up(s.end, LANES);
            const struct rows a = from_row(part, first), a_rope = from_row(part_rope, first);
            if (column < end)
                multiply_terms((struct product){s.count,
                                                end - column,
                                                from > 0,
                                                scores + first * BLOCK + column,
                                                BLOCK,
                                                {{own, a.at, a.stride, 1, turned->own + column, BLOCK},
                                                 {rope, a_rope.at, a_rope.stride, 1, turned->rope + column, BLOCK}},
                                                .wanted = wanted},
                               terms);
            first += s.count;
        }
    }
}

/* ---- forward: a block of queries ---- */

/* For each query: the largest score so far, the sum of 2^(score - largest), the factor by which the last block of keys
 * has rescaled this sum, and in the end 1 / sum. */
struct softmax {
    _Alignas(SL_CACHE_LINE) float largest[BLOCK], sum[BLOCK], factor[BLOCK], whole[BLOCK];
};

/* Hides a key's scores from the queries in lanes below SEEING. */
SL_INLINE void hide(float *scores, int32_t seeing) {
    store(scores, in_lanes(seeing, LANES, load(scores), spread(-INFINITY)));
}

/* Replaces scores by 2^(score - largest), or by 0 if the query does not see the key; HIDDEN: such keys exist. For LANES
 * queries from GROUP on. Keys alternate between two maxima, so that neither waits for the other. */
SL_INLINE void exponentials_of(struct softmax *s, size_t group, size_t keys, int64_t ahead, const bool hidden,
                               float *scores) {
    float *column = scores + group, *largest = s->largest + group, *factor = s->factor + group;
    float high[LANES], also[LANES], sum[LANES];
    size_t key = hidden ? clamp((int64_t)group - ahead + 1, keys) : keys; /* from here on some lanes do not see it */
    for (; LANES > 1 && key < keys; key++) hide(column + key * BLOCK, (int32_t)(ahead + (int64_t)key - (int64_t)group));
    for (int l = 0; l < LANES; l++) also[l] = high[l] = largest[l];
    for (key = 0; key + 2 <= keys; key += 2) {
        const float *row = column + key * BLOCK, *next = row + BLOCK;
        SL_IN_BLOCK()
        for (int l = 0; l < LANES; l++) high[l] = row[l] > high[l] ? row[l] : high[l];
        SL_IN_BLOCK()
        for (int l = 0; l < LANES; l++) also[l] = next[l] > also[l] ? next[l] : also[l];
    }
    if (key < keys) {
        const float *row = column + key * BLOCK;
        SL_IN_BLOCK()
        for (int l = 0; l < LANES; l++) high[l] = row[l] > high[l] ? row[l] : high[l];
    }
    SL_IN_BLOCK()
    for (int l = 0; l < LANES; l++) {
        high[l] = also[l] > high[l] ? also[l] : high[l];
        factor[l] = sl_exp2(largest[l] - high[l]);
        largest[l] = high[l];
        sum[l] = s->sum[group + (size_t)l] * factor[l];
    }
    for (key = 0; key < keys; key++) {
        float *row = column + key * BLOCK;
        SL_IN_BLOCK()
        for (int l = 0; l < LANES; l++) {
            const float e = sl_exp2(row[l] - high[l]);
            row[l] = e;
            sum[l] += e;
        }
    }
    for (int l = 0; l < LANES; l++) s->sum[group + (size_t)l] = sum[l];
}

/* Computes exponentials of all queries, for keys visible to a query of their vector; 0 for later keys in their tile. */
SL_INLINE void exponentials(const struct sight *sight, struct softmax *s, float *scores) {
    const bool hidden = !all_see_all(sight);
    EACH_TILE()
    for (size_t group = 0; group < sight->queries; group += LANES) {
        const size_t end = clamp((int64_t)(group + LANES) - sight->ahead, sight->keys);
        if (hidden)
            exponentials_of(s, group, end, sight->ahead, true, scores);
        else
            exponentials_of(s, group, sight->keys, sight->ahead, false, scores);
        for (size_t key = end; hidden && key < smaller(end + BEYOND, sight->keys); key++)
            store(scores + key * BLOCK + group, (vector){0});
    }
}

/* o [queries, v's columns] = (o before + p [keys, queries]^T v) after. BEFORE [queries]: NULL if there is no o yet;
 * AFTER [queries]: NULL for ones. */
SL_INLINE void add_values(const struct sight *sight, const float *p, struct rows v, const float *before,
                          const float *after, float *o, size_t stride, struct wanted *wanted) {
    if (!SCALES && before) scale_rows(sight->queries, before, v.cols, stride, o);
    multiply((struct product){.rows = sight->queries,
                              .cols = v.cols,
                              .accumulate = before,
                              .c = o,
                              .c_row = stride,
                              .term = {{sight->keys, p, 1, BLOCK, v.at, v.stride}},
                              .wanted = wanted,
                              .before = before,
                              .after = after,
                              .stairs = !all_see_all(sight),
                              .ahead = sight->ahead},
             BY_TERMS);
    if (!SCALES && after) scale_rows(sight->queries, after, v.cols, stride, o);
}

/* O and LOGSUM begin at the block's first query. */
SL_INLINE void forward_block(const struct head *h, size_t first, size_t queries, float *o, float *logsum,
                             struct wanted *wanted) {
    struct turned q;
    struct softmax s;
    _Alignas(SL_CACHE_LINE) float scores[BLOCK * BLOCK], near[2 * BLOCK * DEPTH];
    const size_t width = h->v.cols, stride = h->q.stride, seen = smaller(h->past.position + first + queries, h->keys);
    const size_t begin = first_block(&h->past, first, BLOCK);
    const bool limited = is_limited(&h->past);
    EACH_TILE()
    for (size_t i = 0; i < BLOCK; i++) {
        s.largest[i] = limited ? LOWEST : -INFINITY;
        s.sum[i] = 0.0f;
    }
    for (size_t from = begin; from < seen; from += BLOCK) {
        const struct sight sight = {queries, smaller(BLOCK, seen - from),
                                    (int64_t)from - (int64_t)(h->past.position + first)};
        make_scores(&sight, true, TERMS, from_row(h->k, from), from_row(h->k_rope, from), from_row(h->q, first),
                    from_row(h->q_rope, first), h->scale * per_log_2, from == begin, &q, near, scores, wanted);
        if (limited) fill_others(&h->past, &sight, from, first, -INFINITY, BLOCK, 1, scores, NULL);
        exponentials(&sight, &s, scores);
        const bool last = from + BLOCK >= seen;
        if (last) {
            EACH_TILE()
            for (size_t i = 0; i < queries; i++) s.whole[i] = 1.0f / s.sum[i];
        }
        for (size_t c = 0; c < width; c += DEPTH) {
            const struct rows v =
                columns_of(from_row(h->v, from), sight.keys, c, smaller(DEPTH, width - c), COPIES_VALUES, near);
            add_values(&sight, scores, v, from > begin ? s.factor : NULL, last ? s.whole : NULL, o + c, stride, wanted);
        }
    }
    EACH_TILE()
    for (size_t i = 0; i < queries; i++) logsum[i] = s.largest[i] * log_2 + sl_log(s.sum[i]);
}

/* Rounds attention_decode.c's results. */
static void settle_few(size_t rows, size_t cols, bool rounds, float *o, uint16_t *stored) {
    SL_ROWS(is_device_ptr(o, stored))
    for (size_t i = 0; i < rows; i++) {
        if (rounds)
            settle_elements(i * cols, (i + 1) * cols, o, stored);
        else
            round_elements(cols, o + i * cols, stored + i * cols);
    }
}

static void forward(const struct sl_attention *shape, const void *q, const void *q_rope, const void *k, const void *v,
                    const void *k_rope, struct sl_out o, float *logsum) {
    const size_t sequences = shape->sequences, queries = shape->queries, position = shape->position;
    const size_t key_rows = shape->key_rows, heads = shape->heads, width = shape->width, rope = shape->rope;
    const size_t key_stride = shape->key_stride, group = shape->group, lead = shape->lead, window = shape->window;
    const enum sl_dtype keys = shape->keys;
    const size_t blocks = (queries + BLOCK - 1) / BLOCK;
    const bool rounds = o.rounds;
    const int32_t *places = shape->places;
    float *values = sl_out_floats(o);
    uint16_t *stored = sl_out_halves(o);
    if (queries <= SL_ATTENTION_FEW && !places) {
        SL_ATTENTION_DECODE(shape, q, q_rope, k, v, k_rope, values, logsum);
        if (rounds || stored) settle_few(sequences * queries, heads * width, rounds, values, stored);
        return;
    }
    if (ON_WARPS && sl_attention_warps_take(shape)) {
        sl_attention_warps_forward(shape, q, q_rope, k, v, k_rope, o, logsum);
        return;
    }
    SL_ROWS(is_device_ptr(q, q_rope, k, v, k_rope, values, logsum, stored, places))
    for (size_t unit = 0; unit < sequences * heads * blocks; unit++) {
        const struct sl_attention all = {.sequences = sequences,
                                         .queries = queries,
                                         .position = position,
                                         .key_rows = key_rows,
                                         .heads = heads,
                                         .width = width,
                                         .rope = rope,
                                         .group = group,
                                         .lead = lead,
                                         .key_stride = key_stride,
                                         .keys = keys,
                                         .window = window,
                                         .places = places};
        const size_t number = unit / blocks, first = unit % blocks * BLOCK;
        const size_t row = number / heads * queries + first, head = number % heads,
                     count = smaller(BLOCK, queries - first);
        const size_t at = row * (heads * width) + head * width;
        const struct head h = head_of(&all, number, SL_F32, q, q_rope, k, v, k_rope);
        struct wanted next = {.count = 0};
        if (ASKS) want_block(&all, unit + 1, blocks, BLOCK, q, k, v, values, &next);
        forward_block(&h, first, count, values + at, logsum + head * (sequences * queries) + row, ASKS ? &next : NULL);
        if (rounds || stored) settle_rows(count, width, heads * width, at, rounds, values, stored);
    }
}

static void merge(const struct sl_attention *shape, const float *others, const float *others_logsum, float *o,
                  float *logsum) {
    const size_t rows = shape->sequences * shape->queries, heads = shape->heads, width = shape->width;
    SL_ROWS(is_device_ptr(others, others_logsum, o, logsum))
    for (size_t row = 0; row < rows; row++) {
        for (size_t head = 0; head < heads; head++) {
            const size_t at = head * rows + row, first = (row * heads + head) * width;
            const float own = logsum[at], other = others_logsum[at], high = own > other ? own : other;
            const float weight = sl_exp(own - high), other_weight = sl_exp(other - high), sum = weight + other_weight;
            if (other == -INFINITY) continue;
            SL_LANES()
            for (size_t c = first; c < first + width; c++) o[c] = weight / sum * o[c] + other_weight / sum * others[c];
            logsum[at] = high + sl_log(sum);
        }
    }
}

/* ---- backward: a block of keys ---- */

/* Gradients of one head, each beginning at the head's first element; dk_rope's rows are the head's own. ADDS: adds to
 * other heads' values in dk and dv. STEP: blocks of keys from one that is added up in dq and dq_rope to the next. */
struct gradients {
    float *dq, *dq_rope, *dk, *dv, *dk_rope;
    bool adds;
    size_t step;
};

/* Arrays for a block of keys and a block of queries: weights and gradients of scores; and in NEAR, rows of both as
 * floats, if they are bf16. */
enum { NEAR_K, NEAR_V, NEAR_K_ROPE, NEAR_Q, NEAR_Q_ROPE, NEAR };
struct meeting {
    _Alignas(SL_CACHE_LINE) float p[BLOCK * BLOCK], ds[BLOCK * BLOCK], near[WIDENS ? NEAR * BLOCK * DEPTH : 1];
};

/* attention_decode.c computes few queries. */
static bool stores_alone(const struct sl_attention *shape) {
    return ON_WARPS && sl_attention_warps_take(shape) && (shape->queries > SL_ATTENTION_FEW || shape->places);
}

static bool takes_parts(const struct sl_attention *shape) { return !(ON_WARPS && sl_attention_warps_take(shape)); }

static bool reads_stored(const struct sl_attention *shape) {
    return ON_WARPS ? sl_attention_warps_take(shape) : WIDENS && shape->width <= DEPTH && shape->rope <= DEPTH;
}

/* Returns COUNT rows of X from FIRST on; if they are bf16, widened into place WHICH of NEAR. */
SL_INLINE struct rows near_rows(struct rows x, size_t first, size_t count, float *near, int which) {
    const struct rows own = from_row(x, first);
    float *room = near + which * BLOCK * DEPTH;
    if (!WIDENS || !own.bf16) return own;
    widen_rows(count, own.cols, own.bf16, own.stride, room);
    return (struct rows){room, own.cols, own.cols, NULL};
}

/* Writes the gradients of block NUMBER of the head's keys by its QUERIES, and adds these keys' part to the queries'
 * gradients. D_O has q's shape; SUMS are the head's. */
SL_INLINE void backward_block(const struct head *h, size_t number, size_t queries, struct rows d_o,
                              struct row_sums sums, const struct gradients *to, struct wanted *wanted) {
    struct turned k_turned, v_turned;
    struct meeting meeting;
    float *const p = meeting.p, *const ds = meeting.ds, *const near = meeting.near;
    const size_t rope = h->k_rope.cols, stride = h->k.stride, position = h->past.position;
    const struct key_block own_keys = block_of_keys(position, BLOCK, number, smaller(position + queries, h->keys));
    const size_t from = own_keys.from, keys = own_keys.count, begin = first_query_of(position, BLOCK, number);
    const struct rows k = near_rows(h->k, from, keys, near, NEAR_K), v = near_rows(h->v, from, keys, near, NEAR_V);
    const struct rows k_rope = near_rows(h->k_rope, from, keys, near, NEAR_K_ROPE), none = {v.at, 0, 0, NULL};
    const bool limited = is_limited(&h->past);
    float *dk = to->dk + from * stride, *dv = to->dv + from * stride, *dk_rope = to->dk_rope + from * rope;
    if (rope && first_key(&h->past, begin) >= from + keys) clear_rows(keys, rope, dk_rope);
    for (size_t first = begin; first < queries && first_key(&h->past, first) < from + keys; first += BLOCK) {
        const struct sight own = {smaller(BLOCK, queries - first), keys, (int64_t)from - (int64_t)(position + first)},
                           sight = own;
        const struct rows q = near_rows(h->q, first, sight.queries, near, NEAR_Q);
        const struct rows q_rope = near_rows(h->q_rope, first, sight.queries, near, NEAR_Q_ROPE);
        const struct rows dy = from_row(d_o, first);
        const bool fresh = first == begin;
        const bool adds = number >= number_of_block(position, BLOCK, first_key(&h->past, first)) + to->step;
        make_scores(&sight, false, TERMS, q, q_rope, k, k_rope, h->scale * per_log_2, fresh, &k_turned, NULL, p,
                    wanted);
        make_scores(&sight, false, 1, dy, none, v, none, 1.0f, fresh, &v_turned, NULL, ds, wanted);
        score_gradients(&sight, BLOCK, (struct row_sums){sums.logsum + first, sums.delta + first}, h->scale, p, ds);
        if (limited) fill_others(&h->past, &sight, from, first, 0.0f, 1, BLOCK, p, ds);
        add_to_keys(own, BLOCK, p, dy, to->adds || !fresh, dv, stride, wanted);
        add_to_keys(own, BLOCK, ds, q, to->adds || !fresh, dk, stride, wanted);
        add_to_keys(own, BLOCK, ds, q_rope, !fresh, dk_rope, rope, wanted);
        add_to_queries(own, BLOCK, ds, k, adds, to->dq + first * h->q.stride, h->q.stride, wanted);
        add_to_queries(own, BLOCK, ds, k_rope, adds, to->dq_rope + first * h->q_rope.stride, h->q_rope.stride, wanted);
    }
}

/* Returns the number of teams per head of keys. */
static size_t teams_of(const struct sl_attention *shape) {
    if (ON_WARPS && sl_attention_warps_take(shape)) return 1;
    const size_t heads = shape->sequences * sl_attention_key_heads(shape);
    return smaller((shape->queries + BLOCK - 1) / BLOCK, (heads + SL_TEAMS - 1) / heads);
}

/* Keys of each sequence that backward reads. */
static size_t keys_of_backward(const struct sl_attention *shape) {
    return smaller(shape->position + shape->queries, shape->key_rows);
}

static size_t scratch(const struct sl_attention *shape) {
    const size_t teams = teams_of(shape), each = shape->heads * shape->sequences, rows = each * shape->queries;
    const size_t parts = teams > 1 ? teams * (shape->width + shape->rope) : 0;
    return (rows * (teams + parts) + each * keys_of_backward(shape) * shape->rope) * sizeof(float);
}

/* Computes all gradients except dk_rope; SCRATCH gets each head's part of dk_rope. */
static void backward(const struct sl_attention *shape, const void *q, const void *q_rope, const void *k, const void *v,
                     const void *k_rope, const void *o, const float *logsum, const float *d_o, struct sl_out dq,
                     float *dq_rope, struct sl_out dk, struct sl_out dv, void *scratch) {
    const size_t sequences = shape->sequences, queries = shape->queries, heads = shape->heads, width = shape->width;
    const size_t rope = shape->rope, key_stride = shape->key_stride, rows = sequences * queries, window = shape->window;
    const size_t group = shape->group, lead = shape->lead, key_heads = sl_attention_key_heads(shape);
    const size_t position = shape->position, keys = keys_of_backward(shape), key_rows = shape->key_rows;
    const size_t blocks = number_of_block(position, BLOCK, keys - 1) + 1, teams = teams_of(shape), every = heads * rows;
    float *deltas = scratch, *parts = deltas + teams * every; /* [teams, heads, rows]; dk_rope [heads, keys, rope] */
    float *d_queries = sl_out_floats(dq), *d_keys = sl_out_floats(dk), *d_values = sl_out_floats(dv);
    float *own = teams > 1 ? parts + heads * sequences * keys * rope : d_queries; /* [teams, rows, heads * width] */
    float *own_rope = teams > 1 ? own + teams * every * width : dq_rope;
    const bool half = shape->stored_o == SL_BF16, adds = shape->adds;
    const enum sl_dtype stored = WIDENS ? shape->stored : SL_F32;
    const int32_t *places = shape->places;
    const bool rounds_dq = dq.rounds && teams == 1, rounds_dk = dk.rounds, rounds_dv = dv.rounds;
    uint16_t *dq_stored = sl_out_halves(dq), *dk_stored = sl_out_halves(dk), *dv_stored = sl_out_halves(dv);
    SL_ROWS(is_device_ptr(q, q_rope, k, v, k_rope, o, logsum, d_o, own, own_rope, d_keys, d_values, deltas, parts,
                          dq_stored, dk_stored, dv_stored, places))
    for (size_t number = 0; number < sequences * key_heads * teams; number++) {
        const struct sl_attention all = {.sequences = sequences,
                                         .queries = queries,
                                         .position = position,
                                         .key_rows = key_rows,
                                         .heads = heads,
                                         .width = width,
                                         .rope = rope,
                                         .group = group,
                                         .lead = lead,
                                         .key_stride = key_stride,
                                         .keys = stored,
                                         .window = window,
                                         .places = places};
        const size_t unit = number / teams, team = number % teams;
        const size_t begin = first_query_of(position, BLOCK, team);
        const size_t key_head = unit % key_heads, sequence = unit / key_heads, row = sequence * queries;
        const size_t of_key = sequence * key_rows * key_stride + key_head * width;
        const struct span span = heads_of(&all, key_head);
        for (size_t head = span.first; head < span.end; head++) {
            const struct head h = head_of(&all, sequence * heads + head, stored, q, q_rope, k, v, k_rope);
            const size_t part = head * rows + row, of_query = row * (heads * width) + head * width;
            const struct rows dy = {d_o + of_query, heads * width, width, NULL};
            float *q_own = rope ? own_rope + team * every * rope + row * (heads * rope) + head * rope : own;
            const struct gradients to = {.dq = own + team * every * width + of_query,
                                         .dq_rope = q_own,
                                         .dk = d_keys + of_key,
                                         .dv = d_values + of_key,
                                         .dk_rope = rope ? parts + (head * sequences + sequence) * keys * rope : d_keys,
                                         .adds = adds || head > span.first,
                                         .step = teams};
            const size_t next = sequence * heads + head + 1, next_sequence = next / heads, next_head = next % heads;
            const size_t next_row = next_sequence * key_rows, column = sl_attention_key_head(&all, next_head) * width;
            const float *const of_keys[] = {d_values, d_keys, v, k}, *const of_queries[] = {own, d_o, q, o};
            const int wanted_queries = stored != SL_F32 ? 2 : half ? 3 : 4;
            struct wanted wanted = {.rows = smaller(queries, SOON)};
            if (ASKS && next < sequences * heads) {
                want(&wanted, stored == SL_F32 ? 4 : 2, of_keys, next_row * key_stride + column, key_stride, width);
                want(&wanted, wanted_queries, of_queries, (next_sequence * queries * heads + next_head) * width,
                     heads * width, width);
            }
            float *delta = deltas + team * every + part;
            make_deltas(begin, queries, width, heads * width, half, o, d_o, of_query, delta);
            for (size_t block = team; block < blocks; block += teams)
                backward_block(&h, block, queries, dy, (struct row_sums){logsum + part, delta}, &to,
                               ASKS ? &wanted : NULL);
            if (rounds_dq) settle_rows(queries, width, heads * width, of_query, true, own, dq_stored);
        }
        for (size_t block = team; block < blocks && span.first < span.end; block += teams) {
            const struct key_block b = block_of_keys(position, BLOCK, block, keys);
            const size_t at = of_key + b.from * key_stride;
            if (rounds_dk) settle_rows(b.count, width, key_stride, at, true, d_keys, dk_stored);
            if (rounds_dv) settle_rows(b.count, width, key_stride, at, true, d_values, dv_stored);
        }
    }
    if (teams > 1)
        add_teams(teams, rows, queries, heads * width, BLOCK, position, window, places, own, dq.rounds, d_queries,
                  dq_stored);
    if (teams > 1 && rope)
        add_teams(teams, rows, queries, heads * rope, BLOCK, position, window, places, own_rope, false, dq_rope, NULL);
}

static void gradients_of_all(const struct sl_attention *shape, const void *q, const void *q_rope, const void *k,
                             const void *v, const void *k_rope, const void *o, const float *logsum, const void *d_o,
                             struct sl_out dq, float *dq_rope, struct sl_out dk, struct sl_out dv, float *dk_rope,
                             void *scratch) {
    const size_t heads = shape->heads, rows = shape->sequences * shape->queries, rope = shape->rope;
    float *deltas = scratch, *parts = deltas + teams_of(shape) * heads * rows;
    if (ON_WARPS && sl_attention_warps_take(shape))
        sl_attention_warps_backward(shape, q, q_rope, k, v, k_rope, o, logsum, d_o, dq, dq_rope, dk, dv, parts, deltas);
    else
        backward(shape, q, q_rope, k, v, k_rope, o, logsum, d_o, dq, dq_rope, dk, dv, scratch);
    const size_t leaves = shape->leaves ? shape->leaves : 1;
    const size_t elements = shape->sequences * keys_of_backward(shape) * rope, of_leaf = heads / leaves * elements;
    for (size_t leaf = 0; rope && leaf < leaves; leaf++)
        sum_heads(heads / leaves, elements, shape->adds, parts + leaf * of_leaf, dk_rope + leaf * elements);
}

const struct sl_attention_kernels SL_ATTENTION_KERNELS = {.forward = forward,
                                                          .merge = merge,
                                                          .scratch = scratch,
                                                          .reads_stored = reads_stored,
                                                          .stores_alone = stores_alone,
                                                          .takes_parts = takes_parts,
                                                          .backward = gradients_of_all};
