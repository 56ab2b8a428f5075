/* head_norm.c - divides each head's columns by their root mean square, and scales them, with one scale for all heads.
 * Heads may be sharded over an axis: then each coordinate has a part of the scale's gradient, and with leaves each leaf
 * has one (layers/modules/leaves.h). */
#include "layers/modules/norms/norm.h"
#include "layers/modules/kept.h"
#include "layers/modules/leaves.h"
#include "layers/modules/sharded_channels.h"
#include "layers/modules/transformer_modules.h"
#include "spmd/device/device.h"

enum { SCALE = SL_NORM_FACTOR };

struct head_norm {
    struct sl_norm norm;
    const char *axis;
    int group;
    int heads, width; /* heads on this coordinate; columns of a head */
    float epsilon;
    struct sl_place sums;     /* [rows * heads] */
    struct sl_place no_shift; /* [microbatches of a call, width]: zeros; memory for an unused gradient */
    struct sl_place part;     /* [leaves, width]: this coordinate's parts of the gradient */
    int leaves;               /* 1 without leaves */
    struct sl_place packed;   /* [rows, own columns] of one leaf: dy and x; rstd */
};

static const struct head_norm *own(const struct sl_module *module) { return (const struct head_norm *)module; }

static int plan(struct sl_module *module, struct sl_plan *plan) {
    struct head_norm *norm = (struct head_norm *)module;
    const size_t width = (size_t)norm->width, heads = (size_t)norm->heads, size = sizeof(float);
    SL_TRY(sl_plan_group(plan, norm->axis, &norm->group));
    norm->leaves = sl_plan_slices(plan, norm->axis);
    const size_t leaves = (size_t)norm->leaves;
    SL_TRY(sl_plan_parameter_by_rule(plan, "scale", SL_INIT_ONES, 0.0f, 1, &width));
    sl_plan_workspace(plan, sl_plan_rows(plan) * heads * size, &norm->sums);
    sl_plan_workspace(plan, sl_plan_run(plan) * width * size, &norm->no_shift);
    SL_TRY(sl_plan_array(plan, (size_t)plan->rows * heads, SL_UNTIL_INPUT, &norm->norm.rstd));
    module->x.lasts = sl_until_input_if(!plan->forward_only);
    module->y.lasts = SL_UNTIL_RETURN;
    module->y.reads = SL_READS_WHOLE;
    sl_norm_count(plan, module->in);
    if (plan->forward_only) return SL_OK;
    if (leaves > 1 && plan->storage == SL_BF16 && heads / leaves * width % 2)
        return sl_error_set(plan->error, SL_BAD_INPUT, "%s%s: leaves with %zu columns each: bf16 need an even number",
                            plan->name, module->type->name, heads / leaves * width);
    sl_plan_workspace(plan, leaves * width * size, &norm->part);
    if (leaves > 1)
        sl_plan_workspace(plan, (size_t)plan->rows * (heads / leaves) * (2 * width + 1) * size, &norm->packed);
    if (sl_plan_trains(plan, SCALE))
        sl_load_call(plan, SL_LOAD_WEIGHT, SL_PSUM, norm->axis, (double)(width * size) / plan->wgrad_group,
                     1.0 / plan->wgrad_group);
    return sl_plan_array(plan, leaves * width, sl_from_input_if(sl_plan_trains(plan, SCALE)), &norm->norm.sum[SCALE]);
}

static int forward(const struct sl_module *module, struct sl_context *context, struct sl_given x, struct sl_result *y) {
    const struct head_norm *norm = own(module);
    const struct sl_norm_kernels *kernels = context->kernels->norms;
    const size_t rows = (size_t)context->rows * (size_t)norm->heads, width = (size_t)norm->width;
    float *sums = sl_at(context, &norm->sums), *zeros = sl_at(context, &norm->no_shift);
    context->kernels->fill(width, 0.0f, zeros);
    kernels->square_sums(rows, width, x.floats, sums);
    kernels->rms_norm_forward(rows, width, width, sl_given_rows(x), sums, sl_value(module, context, SCALE), zeros,
                              norm->epsilon, sl_at(context, &norm->norm.rstd), sl_out_f32(y->floats));
    return SL_OK;
}

/* Writes SUM [parts, width], the scale's gradient for PARTS parts of ROWS rows. */
static void sum_parts(const struct sl_module *module, const struct sl_context *context, size_t parts, size_t rows,
                      const float *dy, struct sl_rows x, const float *rstd, float *sum) {
    const struct head_norm *norm = own(module);
    context->kernels->norms->rms_norm_backward(parts, rows, (size_t)norm->width, (size_t)norm->width, sl_rows_f32(dy),
                                               x, rstd, NULL, NULL, sl_rows_f32(NULL), sl_out_f32(NULL), sum,
                                               sl_at(context, &norm->no_shift), NULL);
}

/* Writes SUM [microbatches, leaves, width], for each leaf's heads. Two bf16 elements move as a float. */
static void sum_leaves(const struct sl_module *module, struct sl_context *context, const float *dy, struct sl_rows x,
                       const float *rstd, float *sum) {
    const struct head_norm *norm = own(module);
    const struct sl_sequence_kernels *kernels = context->kernels->sequence;
    const bool half = x.type != SL_F32;
    const size_t leaves = (size_t)norm->leaves, width = (size_t)norm->width, heads = (size_t)norm->heads / leaves;
    const size_t microbatches = sl_call_microbatches(context), rows = (size_t)context->rows / microbatches;
    const size_t columns = heads * width, words = half ? columns / 2 : columns; /* columns of x, in words */
    float *own_dy = sl_at(context, &norm->packed), *own_x = own_dy + rows * columns, *own_rstd = own_x + rows * columns;
    for (size_t i = 0; i < microbatches * leaves; i++, sum += width) {
        const size_t row = i / leaves * rows, leaf = i % leaves;
        kernels->copy_block(rows, columns, dy + row * leaves * columns + leaf * columns, leaves * columns, own_dy,
                            columns);
        kernels->copy_block(rows, words, (const float *)x.at + row * leaves * words + leaf * words, leaves * words,
                            own_x, words);
        kernels->copy_block(rows, heads, rstd + row * leaves * heads + leaf * heads, leaves * heads, own_rstd, heads);
        sum_parts(module, context, 1, rows * heads, own_dy, sl_rows_of(x.type, own_x), own_rstd, sum);
    }
}

/* Saves each microbatch's sums for the scale: W adds them up. */
static int backward_input(const struct sl_module *module, struct sl_context *context, struct sl_given x,
                          struct sl_given dy, struct sl_result *dx) {
    const struct head_norm *norm = own(module);
    const struct sl_norm_kernels *kernels = context->kernels->norms;
    const size_t microbatches = sl_call_microbatches(context), width = (size_t)norm->width;
    const size_t rows = (size_t)context->rows * (size_t)norm->heads;
    const float *scale = sl_value(module, context, SCALE), *rstd = sl_at(context, &norm->norm.rstd);
    float *sum = sl_at(context, &norm->norm.sum[SCALE]);
    const struct sl_rows in = sl_given_rows(x);
    if (!module->frozen && norm->leaves > 1)
        sum_leaves(module, context, dy.floats, in, rstd, sum);
    else if (!module->frozen)
        sum_parts(module, context, microbatches, rows / microbatches, dy.floats, in, rstd, sum);
    if (!dx) return SL_OK;
    float *dots = sl_at(context, &norm->sums);
    kernels->rms_norm_dots(rows, 1, width, dy.floats, in, scale, dots);
    kernels->rms_norm_backward(1, rows, width, width, sl_given_rows(dy), in, rstd, scale, dots, sl_rows_f32(NULL),
                               sl_out_f32(dx->floats), NULL, NULL, NULL);
    return SL_OK;
}

static int backward_weight(const struct sl_module *module, struct sl_context *context, struct sl_given x,
                           struct sl_given dy) {
    const struct head_norm *norm = own(module);
    const size_t width = (size_t)norm->width;
    float *gradient = sl_gradient(module, context, SCALE);
    const bool alone = context->accumulate || norm->leaves > 1;
    float *part = alone ? sl_at(context, &norm->part) : gradient;
    (void)x, (void)dy;
    context->kernels->column_sums((size_t)context->wgrad_group, (size_t)norm->leaves * width,
                                  sl_at(context, &norm->norm.sum[SCALE]), false, part);
    sl_tree_blocks(context->kernels, norm->leaves, width, part);
    SL_TRY(sl_sum_over(context, norm->group, width, part));
    if (context->accumulate)
        context->kernels->add(width, part, gradient);
    else if (alone)
        sl_device.copy(gradient, part, width * sizeof *part);
    return SL_OK;
}

static const struct sl_module_type head_norm = {.name = "head_norm",
                                                .plan = plan,
                                                .forward = forward,
                                                .backward_input = backward_input,
                                                .backward_weight = backward_weight,
                                                .stores = true,
                                                .fuses = true,
                                                .bytes = sizeof(struct head_norm)};

struct sl_module *sl_head_norm(const char *name, int heads, int width, double epsilon,
                               const struct sl_channels *channels) {
    struct sl_module *module = sl_module_new(&head_norm, name, heads * width, heads * width);
    struct head_norm *norm = (struct head_norm *)module;
    if (!module) return NULL;
    norm->axis = channels->axis;
    norm->heads = heads;
    norm->width = width;
    norm->epsilon = (float)epsilon;
    norm->norm.no_shift = true;
    return module;
}
