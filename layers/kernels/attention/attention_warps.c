/* attention_warps.c - attention by tensor cores: forward, and the gradients of queries, and of keys and values.
 *
 * A team has 64 queries of a head, 16 per warp, and takes them through the head's keys; kernels called deep have 128,
 * 32 per warp, so that each read of keys serves twice as many products. For the gradients of keys and values a team has
 * 64 keys, and takes them through the queries of all heads that read them. Scores stay in registers. So backward
 * computes scores twice, and adds nothing up in memory: seven products instead of five, in an order that depends
 * neither on the number of sequences nor on the device. */
#include "layers/kernels/attention/attention_backward_internal.h"
#include "layers/kernels/attention/attention_forward_internal.h"

/* ---- regions ---- */

/* SHAPE as scalars, which a region receives. */
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

/* The last queries see most keys, so their blocks come first. */
#define FORWARD(NAME, COLUMNS, KEYS, WHOLE, DOWN)                                                                      \
    static void NAME##_##COLUMNS(const struct sl_attention *shape, const void *q, const void *q_rope, const void *k,   \
                                 const void *v, const void *k_rope, struct sl_out o, float *logsum) {                  \
        SL_SHAPE(shape);                                                                                               \
        const uint32_t every = (uint32_t)(sequences * heads), blocks = blocks_of(queries, DOWN * OWN);                 \
        const enum sl_dtype keys = shape->keys, stored_q = shape->stored_q;                                            \
        const bool rounds = o.rounds;                                                                                  \
        float *values = sl_out_floats(o);                                                                              \
        uint16_t *stored = sl_out_halves(o);                                                                           \
        SL_ROWS(is_device_ptr(q, q_rope, k, v, k_rope, values, logsum, stored, places))                                \
        for (uint32_t unit = 0; unit < every * blocks; unit++) {                                                       \
            SL_ROOM(room, 4 * KEYS, COLUMNS);                                                                          \
            SL_TEAM() {                                                                                                \
                const struct sl_attention all = SL_SHAPE_HERE(keys);                                                   \
                const struct block b =                                                                                 \
                    block_of(&all, unit % every / (uint32_t)heads, unit % every % (uint32_t)heads,                     \
                             blocks - 1 - unit / every, DOWN * OWN, stored_q, q, q_rope, k, v, k_rope);                \
                const size_t sums = b.number * (sequences * queries) + b.row;                                          \
                forward_block(&b, COLUMNS, WHOLE, DOWN, room, sl_out_of(values, rounds, stored),                       \
                              (b.row * heads + b.number) * width, logsum + sums);                                      \
            }                                                                                                          \
        }                                                                                                              \
    }

#define BACKWARD_QUERIES(NAME, COLUMNS, KEYS, WHOLE, DOWN, STEP)                                                       \
    static void NAME##_##COLUMNS(const struct sl_attention *shape, const void *q, const void *q_rope, const void *k,   \
                                 const void *v, const void *k_rope, const void *o, const float *logsum,                \
                                 const void *d_o, struct sl_out dq, float *dq_rope, float *deltas) {                   \
        SL_SHAPE(shape);                                                                                               \
        const enum sl_dtype inputs = shape->stored;                                                                    \
        const uint32_t every = (uint32_t)(sequences * heads), blocks = blocks_of(queries, DOWN * OWN);                 \
        const enum sl_dtype stored_o = shape->stored_o, stored_d_o = shape->stored_d_o;                                \
        const bool rounds = dq.rounds;                                                                                 \
        float *values = sl_out_floats(dq);                                                                             \
        uint16_t *stored = sl_out_halves(dq);                                                                          \
        SL_ROWS(is_device_ptr(q, q_rope, k, v, k_rope, o, logsum, d_o, values, dq_rope, deltas, stored, places))       \
        for (uint32_t unit = 0; unit < every * blocks; unit++) {                                                       \
            SL_ROOM(room, 4 * KEYS, COLUMNS);                                                                          \
            SL_TEAM() {                                                                                                \
                const struct sl_attention all = SL_SHAPE_HERE(inputs);                                                 \
                const struct block b =                                                                                 \
                    block_of(&all, unit % every / (uint32_t)heads, unit % every % (uint32_t)heads,                     \
                             blocks - 1 - unit / every, DOWN * OWN, inputs, q, q_rope, k, v, k_rope);                  \
                const struct outputs io = {o, d_o, sl_out_of(values, rounds, stored), dq_rope, stored_o, stored_d_o};  \
                const size_t sums = b.number * (sequences * queries) + b.row;                                          \
                queries_block(&b, COLUMNS, WHOLE, DOWN, STEP, room, &io, (b.row * heads + b.number) * width,           \
                              (b.row * heads + b.number) * rope, logsum + sums, deltas + sums);                        \
            }                                                                                                          \
        }                                                                                                              \
    }

/* Most queries see the first keys. */
#define BACKWARD_KEYS(NAME, COLUMNS, QUERIES, WHOLE)                                                                   \
    static void NAME##_##COLUMNS(const struct sl_attention *shape, const void *q, const void *q_rope, const void *k,   \
                                 const void *v, const void *k_rope, const float *logsum, const void *d_o,              \
                                 struct sl_out dk, struct sl_out dv, float *dk_rope, const float *deltas) {            \
        SL_SHAPE(shape);                                                                                               \
        const enum sl_dtype inputs = shape->stored;                                                                    \
        const uint32_t in_one = (uint32_t)sl_attention_key_heads(shape), every = (uint32_t)sequences * in_one;         \
        const uint32_t blocks = blocks_of(queries, OWN);                                                               \
        const enum sl_dtype stored_d_o = shape->stored_d_o;                                                            \
        const bool rounds_dk = dk.rounds, rounds_dv = dv.rounds;                                                       \
        float *d_keys = sl_out_floats(dk), *d_values = sl_out_floats(dv);                                              \
        uint16_t *dk_stored = sl_out_halves(dk), *dv_stored = sl_out_halves(dv);                                       \
        SL_ROWS(is_device_ptr(q, q_rope, k, v, k_rope, logsum, d_o, d_keys, d_values, dk_rope, deltas, dk_stored,      \
                              dv_stored, places))                                                                      \
        for (uint32_t unit = 0; unit < every * blocks; unit++) {                                                       \
            _Alignas(16) uint16_t room[SL_QUERY_BLOCKS(COLUMNS, WHOLE) * SL_QUERIES(QUERIES, COLUMNS)];                \
            SL_ROOM(own, COLUMNS == 64 ? 1 : WHOLE ? OWN : 2 * OWN, COLUMNS);                                          \
            SL_TEAM() {                                                                                                \
                struct sl_attention all = SL_SHAPE_HERE(inputs);                                                       \
                all.stored_d_o = stored_d_o;                                                                           \
                const struct key_outputs io = {sl_out_of(d_keys, rounds_dk, dk_stored),                                \
                                               sl_out_of(d_values, rounds_dv, dv_stored), dk_rope};                    \
                uint16_t *k_room = SL_HOLDS_KEYS(COLUMNS, WHOLE) ? room : own + OWN * SL_PITCH(COLUMNS);               \
                uint16_t *v_room = COLUMNS == 64 ? room + OWN * SL_PITCH(COLUMNS) : own;                               \
                keys_block(&all, unit % every / in_one, unit % every % in_one, unit / every, COLUMNS, WHOLE, room,     \
                           k_room, v_room, q, q_rope, k, v, k_rope, logsum, d_o, deltas, &io);                         \
            }                                                                                                          \
        }                                                                                                              \
    }

/* Kernels for WHOLE rows: heads with all of a team's columns, none of them rotary, and rows of which 16 bytes can be
 * read at once; and kernels for other rows. */
#define KERNELS(COLUMNS, KEYS, QUERIES)                                                                                \
    FORWARD(attention_forward, COLUMNS, KEYS, true, 1)                                                                 \
    FORWARD(attention_forward_any, COLUMNS, KEYS, false, 1)                                                            \
    BACKWARD_QUERIES(attention_queries, COLUMNS, KEYS, true, 1, KEYS)                                                  \
    BACKWARD_QUERIES(attention_queries_any, COLUMNS, KEYS, false, 1, KEYS)                                             \
    BACKWARD_KEYS(attention_keys, COLUMNS, QUERIES, true)                                                              \
    BACKWARD_KEYS(attention_keys_any, COLUMNS, QUERIES, false)

FORWARD(attention_forward_deep, 64, KEYS_64, true, DEEP)
BACKWARD_QUERIES(attention_queries_deep, 64, KEYS_64, true, DEEP, 16)
KERNELS(64, KEYS_64, FEW_64)
KERNELS(128, KEYS_128, FEW_128)

/* Returns whether SHAPE's rows are whole; STORED: q's type. */
static bool is_whole(const struct sl_attention *shape, size_t columns, enum sl_dtype stored, const void *q,
                     const void *k, const void *v) {
    const struct head h = head_at(shape, 0, 0, stored, q, q, k, v, k);
    return !shape->rope && are_whole(h.q, columns) && are_whole(h.k, columns) && are_whole(h.v, columns);
}

/* Returns whether the deep kernels are used, with more queries per warp: for WHOLE rows, and if the fewer teams still
 * keep a device busy. */
static bool goes_deep(const struct sl_attention *shape, size_t columns, bool whole) {
    const size_t teams = shape->sequences * shape->heads * blocks_of(shape->queries, DEEP * OWN);
    return columns == 64 && whole && teams >= BUSY;
}

void sl_attention_warps_forward(const struct sl_attention *shape, const void *q, const void *q_rope, const void *k,
                                const void *v, const void *k_rope, struct sl_out o, float *logsum) {
    const size_t columns = shape->width + shape->rope <= 64 ? 64 : 128;
    const bool whole = is_whole(shape, columns, shape->stored_q, q, k, v);
    if (goes_deep(shape, columns, whole))
        attention_forward_deep_64(shape, q, q_rope, k, v, k_rope, o, logsum);
    else if (columns == 64)
        (whole ? attention_forward_64 : attention_forward_any_64)(shape, q, q_rope, k, v, k_rope, o, logsum);
    else
        (whole ? attention_forward_128 : attention_forward_any_128)(shape, q, q_rope, k, v, k_rope, o, logsum);
}

void sl_attention_warps_backward(const struct sl_attention *shape, const void *q, const void *q_rope, const void *k,
                                 const void *v, const void *k_rope, const void *o, const float *logsum, const void *d_o,
                                 struct sl_out dq, float *dq_rope, struct sl_out dk, struct sl_out dv, float *dk_rope,
                                 float *deltas) {
    const size_t columns = shape->width + shape->rope <= 64 ? 64 : 128;
    const struct rows dy = rows_of(shape->stored_d_o, d_o, 0, shape->heads * shape->width, shape->width);
    const bool whole = is_whole(shape, columns, shape->stored, q, k, v) && are_whole(dy, columns);
    if (columns == 64) {
        (goes_deep(shape, columns, whole) ? attention_queries_deep_64
         : whole                          ? attention_queries_64
                 : attention_queries_any_64)(shape, q, q_rope, k, v, k_rope, o, logsum, d_o, dq, dq_rope, deltas);
        (whole ? attention_keys_64 : attention_keys_any_64)(shape, q, q_rope, k, v, k_rope, logsum, d_o, dk, dv,
                                                            dk_rope, deltas);
        return;
    }
    (whole ? attention_queries_128 : attention_queries_any_128)(shape, q, q_rope, k, v, k_rope, o, logsum, d_o, dq,
                                                                dq_rope, deltas);
    (whole ? attention_keys_128 : attention_keys_any_128)(shape, q, q_rope, k, v, k_rope, logsum, d_o, dk, dv, dk_rope,
                                                          deltas);
}
