/* context_heads.c - attention of all rows of divided sequences, for a share of the heads (Jacobs et al., "DeepSpeed
 * Ulysses", 2023).
 *
 * An all_to_all turns inputs from [own rows, all heads] to [all rows, own heads], and another one turns the output
 * back. Keys that all heads share are gathered. */
#include <stdint.h>

#include "layers/modules/sequence/context_internal.h"
#include "spmd/device/device.h"

/* ---- planning ---- */

static int check(const struct sl_plan *plan, const struct sl_attention *shape, const struct sl_context_keys *keys) {
    const size_t parts = (size_t)plan->cut.parts,
                 key_heads = keys->beside ? shape->heads : shape->key_stride / shape->width;
    const size_t group = shape->group > 1 ? shape->group : 1;
    if (shape->heads % parts == 0 && key_heads % parts == 0 && shape->heads == key_heads * group) return SL_OK;
    return sl_error_set(
        plan->error, SL_BAD_INPUT,
        "%sheads: %zu of queries and %zu of keys on a coordinate do not divide over \"%s\", of size %zu "
        "(--context-by heads)",
        plan->name, shape->heads, key_heads, plan->context_axis, parts);
}

/* Backward turns the arrays of forward and the output's gradient, and turns the inputs' gradients back. All are put in
 * order by copies. */
static void count(const struct sl_plan *plan, double columns, double rotated, double keys, double shared) {
    const double bytes = (double)plan->rows * sizeof(float), parts = plan->cut.parts;
    sl_load_call(plan, SL_LOAD_FORWARD, SL_ALL_TO_ALL, plan->context_axis, bytes * (2 * columns + rotated + keys), 4);
    sl_load_floats(plan, SL_LOAD_FORWARD, SL_LOAD_MOVES,
                   2 * plan->rows * (2 * columns + rotated + keys + parts * shared));
    if (shared > 0) sl_load_call(plan, SL_LOAD_FORWARD, SL_ALL_GATHER, plan->context_axis, bytes * parts * shared, 1);
    if (plan->forward_only) return;
    sl_load_call(plan, SL_LOAD_INPUT, SL_ALL_TO_ALL, plan->context_axis, bytes * (4 * columns + 2 * rotated + 2 * keys),
                 8);
    sl_load_floats(plan, SL_LOAD_INPUT, SL_LOAD_MOVES,
                   4 * plan->rows * (2 * columns + rotated + keys + parts * shared));
    if (shared <= 0) return;
    sl_load_call(plan, SL_LOAD_INPUT, SL_ALL_GATHER, plan->context_axis, bytes * parts * shared, 1);
    sl_load_call(plan, SL_LOAD_INPUT, SL_PSUM_SCATTER, plan->context_axis, bytes * parts * shared, 1);
}

/* Returns SHAPE for all rows and a share of the heads. */
static struct sl_attention turned_shape(struct sl_cut cut, size_t sequences, const struct sl_attention *shape) {
    const size_t parts = (size_t)cut.parts;
    struct sl_attention whole = *shape;
    whole.sequences = sequences;
    whole.queries = whole.key_rows = shape->queries * parts;
    whole.heads = shape->heads / parts;
    whole.key_stride = shape->key_stride / parts;
    return whole;
}

int sl_plan_context_heads(struct sl_plan *plan, const struct sl_attention *shape, struct sl_context_keys *keys) {
    const size_t size = sizeof(float), rows = sl_plan_rows(plan), all = rows * (size_t)plan->cut.parts;
    const size_t columns = shape->heads * shape->width, rotated = shape->heads * shape->rope;
    const size_t shared = keys->beside ? keys->columns[1] : 0;
    size_t widest = keys->columns[0] > columns ? keys->columns[0] : columns, most;
    SL_TRY(check(plan, shape, keys));
    widest = rotated > widest ? rotated : widest;
    most = all * shared > rows * widest ? all * shared : rows * widest;
    for (int i = 0; i < SL_CONTEXT_ARRAYS; i++) {
        const size_t bytes = (i == 1 && shared ? all : rows) * keys->columns[i] * size;
        sl_plan_workspace(plan, bytes, &keys->whole[i]);
        if (!plan->forward_only) sl_plan_workspace(plan, bytes, &keys->gradient[i]);
    }
    for (int i = 0; i < (plan->forward_only ? SL_TURNED_D_O : SL_TURNED); i++)
        sl_plan_workspace(plan, rows * (i == SL_TURNED_Q_ROPE || i == SL_TURNED_DQ_ROPE ? rotated : columns) * size,
                          &keys->turned[i]);
    sl_plan_workspace(plan, all * sizeof(int32_t), &keys->places);
    sl_plan_workspace(plan, (most > all ? most : all) * size, &keys->moved);
    count(plan, (double)columns, (double)rotated, (double)(keys->columns[0] + (shared ? 0 : keys->columns[1])),
          (double)shared);
    if (plan->forward_only) return SL_OK;
    const struct sl_attention whole = turned_shape(plan->cut, rows / shape->queries, shape);
    sl_plan_workspace(plan, sl_kernels_select()->attention->scratch(&whole), &keys->scratch);
    return SL_OK;
}

/* ---- moves ---- */

/* Turns OWN, of DTYPE [rows, SEGMENTS, columns / SEGMENTS] to AT [all rows in order, SEGMENTS, a share of a segment];
 * if BACK, AT to OWN. */
static int turn_rows(struct sl_context *context, const struct sl_context_keys *keys, enum sl_dtype dtype,
                     size_t columns, size_t segments, bool back, void *own, void *at) {
    const struct sl_group *peers = sl_group_of(context, keys->group);
    const size_t parts = (size_t)peers->size, rows = (size_t)context->rows, each = columns / segments;
    const size_t whole[] = {rows, segments, each}, share[] = {rows * parts, segments, each / parts};
    const size_t bytes = columns / parts * sl_dtype_size(dtype);
    char *const moved = sl_at(context, &keys->moved);
    if (!columns) return SL_OK;
    if (back) sl_context_order(context, bytes, true, moved, at);
    SL_TRY(sl_communicate(context, back ? sl_describe_all_to_all(peers, dtype, moved, own, 3, share, 0, 2)
                                        : sl_describe_all_to_all(peers, dtype, own, moved, 3, whole, 2, 0)));
    if (!back) sl_context_order(context, bytes, false, moved, at);
    return SL_OK;
}

/* The same for floats. */
static int turn(struct sl_context *context, const struct sl_context_keys *keys, size_t columns, size_t segments,
                bool back, float *own, float *at) {
    return turn_rows(context, keys, SL_F32, columns, segments, back, own, at);
}

static float *turned(const struct sl_context *context, const struct sl_context_keys *keys, enum sl_turned array) {
    return sl_at(context, &keys->turned[array]);
}

/* Turns an input, without a change to OWN. */
static int turn_input(struct sl_context *context, const struct sl_context_keys *keys, size_t columns, const void *own,
                      enum sl_turned array) {
    return turn(context, keys, columns, 1, false, (float *)own, turned(context, keys, array));
}

/* Turns queries and keys; gathers places, and keys that all heads share; and sets WHOLE to the shape of the call. */
static int turn_inputs(struct sl_context *context, const struct sl_context_keys *keys, const struct sl_attention *shape,
                       const struct sl_context_call *call, struct sl_attention *whole) {
    const size_t rows = (size_t)context->rows;
    int32_t *const places = sl_at(context, &keys->places);
    void *const moved = sl_at(context, &keys->moved);
    SL_TRY(sl_communicate(
        context, sl_describe_all_gather(sl_group_of(context, keys->group), SL_I32, shape->places, moved, rows)));
    sl_context_order(context, sizeof *places, false, moved, (char *)places);
    SL_TRY(turn_input(context, keys, shape->heads * shape->width, call->q, SL_TURNED_Q));
    SL_TRY(turn_input(context, keys, shape->heads * shape->rope, call->q_rope, SL_TURNED_Q_ROPE));
    for (int i = 0; i < SL_CONTEXT_ARRAYS; i++) {
        if (i == 1 && keys->beside)
            SL_TRY(sl_context_gather(context, keys, i, SL_F32, call->own[i]));
        else
            SL_TRY(turn(context, keys, keys->columns[i], keys->beside ? 2 : 1, false, (float *)call->own[i],
                        sl_at(context, &keys->whole[i])));
    }
    *whole = turned_shape(context->cut, rows / shape->queries, shape);
    whole->places = places;
    return SL_OK;
}

/* ---- calls ---- */

/* Returns the values, which lie beside or after the keys at ARRAY. */
static float *values_of(const struct sl_context *context, const struct sl_context_keys *keys,
                        const struct sl_place *array, const struct sl_attention *whole) {
    return keys->beside ? (float *)sl_at(context, &array[0]) + whole->key_stride / 2 : sl_at(context, &array[1]);
}
static float *shared_of(const struct sl_context *context, const struct sl_context_keys *keys,
                        const struct sl_place *array) {
    return keys->beside && keys->columns[1] ? sl_at(context, &array[1]) : NULL;
}

int sl_context_heads_forward(struct sl_context *context, const struct sl_context_keys *keys,
                             const struct sl_attention *shape, const struct sl_context_call *call) {
    struct sl_attention whole;
    float *const o = turned(context, keys, SL_TURNED_O);
    SL_TRY(turn_inputs(context, keys, shape, call, &whole));
    context->kernels->attention->forward(&whole, turned(context, keys, SL_TURNED_Q),
                                         shape->rope ? turned(context, keys, SL_TURNED_Q_ROPE) : NULL,
                                         sl_at(context, &keys->whole[0]), values_of(context, keys, keys->whole, &whole),
                                         shared_of(context, keys, keys->whole), sl_out_f32(o), call->logsum);
    SL_TRY(turn(context, keys, shape->heads * shape->width, 1, true, sl_out_floats(call->to), o));
    sl_context_settle(context, shape->heads * shape->width, call->to);
    return SL_OK;
}

int sl_context_heads_backward(struct sl_context *context, const struct sl_context_keys *keys,
                              const struct sl_attention *shape, const struct sl_context_call *call) {
    const size_t columns = shape->heads * shape->width, rotated = shape->heads * shape->rope;
    float *const dq = turned(context, keys, SL_TURNED_DQ), *const dk = sl_at(context, &keys->gradient[0]);
    float *const dq_rope = rotated ? turned(context, keys, SL_TURNED_DQ_ROPE) : NULL;
    struct sl_attention whole;
    SL_TRY(turn_inputs(context, keys, shape, call, &whole));
    SL_TRY(turn_rows(context, keys, shape->stored_o, columns, 1, false, (void *)(uintptr_t)call->o,
                     turned(context, keys, SL_TURNED_O)));
    SL_TRY(turn_input(context, keys, columns, call->d_o, SL_TURNED_D_O));
    context->kernels->attention->backward(
        &whole, turned(context, keys, SL_TURNED_Q), rotated ? turned(context, keys, SL_TURNED_Q_ROPE) : NULL,
        sl_at(context, &keys->whole[0]), values_of(context, keys, keys->whole, &whole),
        shared_of(context, keys, keys->whole), turned(context, keys, SL_TURNED_O), call->logsum,
        turned(context, keys, SL_TURNED_D_O), sl_out_f32(dq), dq_rope, sl_out_f32(dk),
        sl_out_f32(values_of(context, keys, keys->gradient, &whole)), shared_of(context, keys, keys->gradient),
        sl_at(context, &keys->scratch));
    SL_TRY(turn(context, keys, columns, 1, true, sl_out_floats(call->dq), dq));
    sl_context_settle(context, columns, call->dq);
    SL_TRY(turn(context, keys, rotated, 1, true, call->dq_rope, dq_rope));
    SL_TRY(turn(context, keys, keys->columns[0], keys->beside ? 2 : 1, true, call->d_own[0], dk));
    if (keys->beside) return sl_context_scatter(context, keys, 1, call->d_own[1]);
    return turn(context, keys, keys->columns[1], 1, true, call->d_own[1], sl_at(context, &keys->gradient[1]));
}
