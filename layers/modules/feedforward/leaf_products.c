/* leaf_products.c - splits x into slices, multiplies each, and sums or joins the results. */
#include "layers/modules/feedforward/leaf_products.h"

#include "layers/modules/kept.h"
#include "layers/modules/leaves.h"

/* ---- planning ---- */

int sl_leaf_products_plan(struct sl_leaf_products *leaves, struct sl_plan *plan, int count, int in, int segments,
                          int out) {
    const bool trains = sl_plan_trains(plan, 0), halves = plan->precision == SL_BF16 || plan->storage == SL_BF16;
    const size_t run = sl_plan_rows(plan), group = trains ? (size_t)plan->rows * (size_t)plan->wgrad_group : 0;
    const size_t rows = run > group ? run : group;
    leaves->count = count ? count * segments : 1;
    leaves->segments = (size_t)segments;
    leaves->width = (size_t)(in / leaves->count);
    leaves->out = (size_t)out;
    if (leaves->count == 1) return SL_OK;
    if (halves && leaves->width % 2)
        return sl_error_set(plan->error, SL_BAD_INPUT,
                            "%s%s: leaves with %zu columns of x each: bf16 need an even number", plan->name,
                            plan->module->type->name, leaves->width);
    sl_plan_workspace(plan, rows * leaves->width * sizeof(float), &leaves->packed);
    sl_plan_workspace(plan, sl_tree_levels(leaves->count) * run * leaves->out * sizeof(float), &leaves->waiting);
    return SL_OK;
}

/* ---- slices ---- */

/* Columns of x, and rows of the kernel, before slice I: a leaf has one slice of each segment. */
static size_t before(const struct sl_leaf_products *leaves, int i) {
    const size_t segment = leaves->width * (size_t)leaves->count / leaves->segments;
    return (size_t)i % leaves->segments * segment + (size_t)i / leaves->segments * leaves->width;
}

static const void *kernel_of(const struct sl_leaf_products *leaves, const struct sl_products *products, int i,
                             const void *kernel) {
    return (const char *)kernel + before(leaves, i) * leaves->out * sl_dtype_size(products->kernel);
}

/* Slice I of X [rows, in] in the operands' type; if X is bf16, in bf16. Two bf16 elements move as a
 * float. */
static const void *pack(const struct sl_context *context, const struct sl_leaf_products *leaves, enum sl_dtype operand,
                        size_t rows, int i, struct sl_rows x) {
    const struct sl_sequence_kernels *kernels = context->kernels->sequence;
    const size_t width = leaves->width, in = width * (size_t)leaves->count, first = before(leaves, i);
    void *room = sl_at(context, &leaves->packed);
    const float *at = x.at;
    if (x.type == SL_BF16)
        kernels->copy_block(rows, width / 2, at + first / 2, in / 2, room, width / 2);
    else if (operand == SL_BF16)
        kernels->round_block(rows, width, at + first, in, room, width);
    else
        kernels->copy_block(rows, width, at + first, in, room, width);
    return room;
}

/* ---- products ---- */

int sl_leaf_products_forward(struct sl_context *context, const struct sl_leaf_products *leaves,
                             const struct sl_products *products, struct sl_given x, const void *kernel, float *y) {
    const enum sl_dtype operand = products->forward.dtype;
    const size_t rows = (size_t)context->rows;
    const struct sl_rows given = operand == SL_BF16 && x.halves ? sl_rows_bf16(x.halves) : sl_given_rows(x);
    const struct sl_tree tree = {context->kernels, rows * leaves->out, y, sl_at(context, &leaves->waiting)};
    for (int i = 0; i < leaves->count; i++) {
        const void *a = pack(context, leaves, operand, rows, i, given);
        SL_TRY(sl_products_forward(context, products, (int)sl_call_microbatches(context), a,
                                   kernel_of(leaves, products, i, kernel), NULL, SL_INTO(sl_tree_summand(&tree, i))));
        sl_tree_add(&tree, i);
    }
    return SL_OK;
}

int sl_leaf_products_input_gradient(struct sl_context *context, const struct sl_leaf_products *leaves,
                                    const struct sl_products *products, const void *dy, const void *kernel, float *dx) {
    const size_t rows = (size_t)context->rows, in = leaves->width * (size_t)leaves->count;
    float *slice = sl_at(context, &leaves->packed);
    for (int i = 0; i < leaves->count; i++) {
        SL_TRY(sl_products_input_gradient(context, products, (int)sl_call_microbatches(context), dy,
                                          kernel_of(leaves, products, i, kernel), false, SL_INTO(slice)));
        context->kernels->sequence->copy_block(rows, leaves->width, slice, leaves->width, dx + before(leaves, i), in);
    }
    return SL_OK;
}

int sl_leaf_products_weight_gradient(struct sl_context *context, const struct sl_leaf_products *leaves,
                                     const struct sl_products *products, struct sl_given x, const void *dy,
                                     bool accumulate, float *gradient) {
    const struct sl_rows given = sl_given_rows(x);
    const bool half = given.type == SL_BF16, reads = products->widens_weight;
    const enum sl_dtype operand = products->weight_gradient.dtype;
    const size_t rows = (size_t)context->rows * (size_t)context->wgrad_group;
    for (int i = 0; i < leaves->count; i++) {
        const void *a = pack(context, leaves, operand, rows, i, given);
        if (half && operand == SL_F32 && !reads)
            a = sl_widen(context, &products->x, rows * leaves->width, sl_given_bf16(a));
        SL_TRY(sl_products_weight_gradient(context, products, a, dy, accumulate,
                                           gradient + before(leaves, i) * leaves->out, NULL));
    }
    return SL_OK;
}
