/* leaf_columns.c - splits a kernel into slices of columns, multiplies by each, and joins y or sums dx. */
#include "layers/modules/feedforward/leaf_columns.h"

#include "layers/modules/kept.h"
#include "layers/modules/leaves.h"

/* ---- planning ---- */

int sl_leaf_columns_plan(struct sl_leaf_columns *columns, struct sl_plan *plan, int leaves, int in, int out,
                         int segments) {
    const bool trains = sl_plan_trains(plan, 0), halves = plan->precision == SL_BF16 || plan->storage == SL_BF16;
    const size_t run = sl_plan_rows(plan), group = trains ? (size_t)plan->rows * (size_t)plan->wgrad_group : 0;
    const size_t rows = run > group ? run : group;
    columns->count = leaves ? leaves * segments : 1;
    columns->segments = (size_t)segments;
    columns->width = (size_t)(out / columns->count);
    columns->in = (size_t)in;
    if (columns->count == 1) return SL_OK;
    if (halves && columns->width % 2)
        return sl_error_set(plan->error, SL_BAD_INPUT,
                            "%s%s: leaves with %zu columns of y each: bf16 need an even number", plan->name,
                            plan->module->type->name, columns->width);
    sl_plan_workspace(plan, columns->in * columns->width * sizeof(float), &columns->kernel);
    sl_plan_workspace(plan, rows * columns->width * sizeof(float), &columns->packed);
    if (plan->forward_only) return SL_OK;
    sl_plan_workspace(plan, sl_tree_levels(columns->count) * run * columns->in * sizeof(float), &columns->waiting);
    return SL_OK;
}

/* ---- slices ---- */

static size_t all_of(const struct sl_leaf_columns *columns) { return columns->width * (size_t)columns->count; }

/* Columns of y before slice I: a leaf has one slice of each segment. */
static size_t before(const struct sl_leaf_columns *columns, int i) {
    const size_t segment = all_of(columns) / columns->segments;
    return (size_t)i % columns->segments * segment + (size_t)i / columns->segments * columns->width;
}

/* Copies slice I of X [rows, out], bf16 if HALF, in the same type: two bf16 elements move as a float. */
static void cut(const struct sl_context *context, const struct sl_leaf_columns *columns, size_t rows, int i,
                const void *x, bool half, void *to) {
    const size_t parts = half ? 2 : 1, width = columns->width / parts;
    context->kernels->sequence->copy_block(rows, width, (const float *)x + before(columns, i) / parts,
                                           all_of(columns) / parts, to, width);
}

static const void *kernel_of(const struct sl_context *context, const struct sl_leaf_columns *columns,
                             const struct sl_products *products, int i, const void *kernel) {
    void *slice = sl_at(context, &columns->kernel);
    cut(context, columns, columns->in, i, kernel, products->kernel == SL_BF16, slice);
    return slice;
}

/* Slice I of DY, in the type OPERAND; if DY is bf16, in bf16. */
static const void *pack(const struct sl_context *context, const struct sl_leaf_columns *columns, enum sl_dtype operand,
                        size_t rows, int i, struct sl_rows dy) {
    void *room = sl_at(context, &columns->packed);
    if (dy.type == SL_F32 && operand == SL_BF16)
        context->kernels->sequence->round_block(rows, columns->width, (const float *)dy.at + before(columns, i),
                                                all_of(columns), room, columns->width);
    else
        cut(context, columns, rows, i, dy.at, dy.type == SL_BF16, room);
    return room;
}

/* ---- products ---- */

int sl_leaf_columns_forward(struct sl_context *context, const struct sl_leaf_columns *columns,
                            const struct sl_products *products, const void *x, const void *kernel, float *y) {
    const size_t rows = (size_t)context->rows, width = columns->width;
    float *slice = sl_at(context, &columns->packed);
    for (int i = 0; i < columns->count; i++) {
        const void *b = kernel_of(context, columns, products, i, kernel);
        SL_TRY(sl_products_forward(context, products, (int)sl_call_microbatches(context), x, b, NULL, SL_INTO(slice)));
        context->kernels->sequence->copy_block(rows, width, slice, width, y + before(columns, i), all_of(columns));
    }
    return SL_OK;
}

int sl_leaf_columns_input_gradient(struct sl_context *context, const struct sl_leaf_columns *columns,
                                   const struct sl_products *products, struct sl_given dy, const void *kernel,
                                   float *dx) {
    const enum sl_dtype operand = products->input_gradient.dtype;
    const size_t rows = (size_t)context->rows;
    const struct sl_rows given = operand == SL_BF16 && dy.halves ? sl_rows_bf16(dy.halves) : sl_given_rows(dy);
    const struct sl_tree tree = {context->kernels, rows * columns->in, dx, sl_at(context, &columns->waiting)};
    for (int i = 0; i < columns->count; i++) {
        const void *a = pack(context, columns, operand, rows, i, given);
        const void *b = kernel_of(context, columns, products, i, kernel);
        SL_TRY(sl_products_input_gradient(context, products, (int)sl_call_microbatches(context), a, b, false,
                                          SL_INTO(sl_tree_summand(&tree, i))));
        sl_tree_add(&tree, i);
    }
    return SL_OK;
}

int sl_leaf_columns_weight_gradient(struct sl_context *context, const struct sl_leaf_columns *columns,
                                    const struct sl_products *products, const void *x, struct sl_given dy,
                                    float *gradient) {
    const struct sl_sequence_kernels *kernels = context->kernels->sequence;
    const enum sl_dtype operand = products->weight_gradient.dtype;
    const size_t rows = (size_t)context->rows * (size_t)context->wgrad_group, in = columns->in, width = columns->width;
    const struct sl_rows given = sl_given_rows(dy);
    const bool widens = given.type == SL_BF16 && operand == SL_F32 && !products->widens_weight;
    float *slice = sl_at(context, &columns->kernel);
    for (int i = 0; i < columns->count; i++) {
        const void *b = pack(context, columns, operand, rows, i, given);
        if (widens) b = sl_widen(context, &products->dy, rows * width, sl_given_bf16(b));
        if (context->accumulate) cut(context, columns, in, i, gradient, false, slice);
        SL_TRY(sl_products_weight_gradient(context, products, x, b, context->accumulate, slice, NULL));
        kernels->copy_block(in, width, slice, width, gradient + before(columns, i), all_of(columns));
    }
    return SL_OK;
}
