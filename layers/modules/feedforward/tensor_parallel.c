/* tensor_parallel.c - y = x kernel + bias, with the kernel sharded over the coordinates along an axis.
 *
 * By columns: each coordinate computes its columns of y from all of x; dx is the sum of the products of all
 * coordinates' columns of dy. By rows: y is the sum of the products of all coordinates' columns of x; a coordinate's
 * columns of dx need only dy.
 *
 * A pair of the two thus sums once in forward and once in backward, and all arrays between them stay sharded (f and g
 * in Shoeybi et al., "Megatron-LM", 2019). Sums have the same bits on all coordinates along the axis, so parameters
 * that each of them updates alone, such as the bias of a kernel sharded by rows, stay equal, too. */
#include <stdio.h>

#include "layers/modules/feedforward/affine.h"
#include "layers/modules/modules.h"
#include "layers/modules/sharded_channels.h"

struct parallel {
    struct sl_affine affine;
    const char *axis;
    int whole; /* columns of x or of y in all shards together */
    int group;
};

/* ---- planning ---- */

/* PART: the module's own number of sharded columns. */
static int plan_shards(struct parallel *parallel, struct sl_plan *plan, int part) {
    const int shards = sl_mesh_axis_size(plan->mesh, parallel->axis);
    if (parallel->whole != shards * part)
        return sl_error_set(plan->error, SL_BAD_INPUT,
                            "%s%s: %d columns do not divide by the %d coordinates along \"%s\"", plan->name,
                            plan->module->type->name, parallel->whole, shards, parallel->axis);
    SL_TRY(sl_plan_without_leaves(plan, parallel->axis));
    return sl_plan_group(plan, parallel->axis, &parallel->group);
}

static int plan_columns(struct sl_module *module, struct sl_plan *plan) {
    struct parallel *parallel = (struct parallel *)module;
    const size_t kernel[] = {(size_t)module->in, (size_t)parallel->whole};
    char spec[SL_AXIS_NAME + 2];
    SL_TRY(plan_shards(parallel, plan, module->out));
    snprintf(spec, sizeof spec, "-,%s", parallel->axis);
    return sl_affine_plan(module, plan, kernel, spec, parallel->axis, SL_EPILOGUE_BIAS);
}

static int plan_rows(struct sl_module *module, struct sl_plan *plan) {
    struct parallel *parallel = (struct parallel *)module;
    const size_t kernel[] = {(size_t)parallel->whole, (size_t)module->out};
    SL_TRY(plan_shards(parallel, plan, module->in));
    return sl_affine_plan(module, plan, kernel, parallel->axis, "", SL_EPILOGUE_NONE);
}

/* Sums X [rows, columns] over all peers, in place. */
static int sum(const struct sl_module *module, struct sl_context *context, int columns, float *x) {
    return sl_sum_over(context, ((const struct parallel *)module)->group, (size_t)context->rows * (size_t)columns, x);
}

/* ---- by columns ---- */

/* If DX is NULL, it is NULL on all peers: they are in the same stage. */
static int columns_backward_input(const struct sl_module *module, struct sl_context *context, struct sl_given x,
                                  struct sl_given dy, struct sl_result *dx) {
    if (!dx) return SL_OK;
    SL_TRY(sl_affine_backward_input(module, context, x, dy, dx));
    return sum(module, context, module->in, dx->floats);
}

static const struct sl_module_type column_parallel = {.name = "column_parallel",
                                                      .plan = plan_columns,
                                                      .forward = sl_affine_forward,
                                                      .backward_input = columns_backward_input,
                                                      .backward_weight = sl_affine_backward_weight,
                                                      .spares = true,
                                                      .stores = true,
                                                      .fuses = true,
                                                      .bytes = sizeof(struct parallel),
                                                      .release = sl_affine_release};

/* ---- by rows ---- */

/* The bias is added after the sum, and so only once. */
static int rows_forward(const struct sl_module *module, struct sl_context *context, struct sl_given x,
                        struct sl_result *y) {
    const size_t columns = (size_t)module->out;
    if (context->unread) return SL_OK;
    SL_TRY(sl_affine_forward(module, context, x, y));
    SL_TRY(sum(module, context, module->out, y->floats));
    for (size_t r = 0; r < (size_t)context->rows; r++)
        context->kernels->add(columns, sl_value(module, context, SL_AFFINE_BIAS), y->floats + r * columns);
    return SL_OK;
}

static const struct sl_module_type row_parallel = {.name = "row_parallel",
                                                   .plan = plan_rows,
                                                   .forward = rows_forward,
                                                   .backward_input = sl_affine_backward_input,
                                                   .backward_weight = sl_affine_backward_weight,
                                                   .spares = true,
                                                   .stores = true,
                                                   .fuses = true,
                                                   .bytes = sizeof(struct parallel),
                                                   .release = sl_affine_release};

/* ---- construction ---- */

static struct sl_module *new_parallel(const struct sl_module_type *type, const char *name, int in, int out, int whole,
                                      const char *axis) {
    struct sl_module *module = sl_module_new(type, name, in, out);
    if (!module) return NULL;
    ((struct parallel *)module)->whole = whole;
    ((struct parallel *)module)->axis = axis;
    return module;
}

struct sl_module *sl_column_parallel(const char *name, int in, int out, const struct sl_mesh *mesh, const char *axis) {
    return new_parallel(&column_parallel, name, in, out / sl_mesh_axis_size(mesh, axis), out, axis);
}

struct sl_module *sl_row_parallel(const char *name, int in, int out, const struct sl_mesh *mesh, const char *axis) {
    return new_parallel(&row_parallel, name, in / sl_mesh_axis_size(mesh, axis), out, in, axis);
}
