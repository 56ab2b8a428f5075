/* tensor_parallel.c - y = x kernel + bias, the kernel sharded over the coordinates along an axis.
 *
 * By columns: each makes its columns of y of all of x; what each makes of its columns of dy sums up to dx.
 * By rows: what each makes of its columns of x sums up to y; its columns of dx need nothing but dy.
 * So a pair of the two sums once in forward and once in backward, and what lies between them stays sharded (f and g in
 * Shoeybi et al., "Megatron-LM", 2019). Sums leave the same bits on all coordinates along the axis, so that what each
 * of them computes alone, such as the bias of a kernel sharded by rows, stays the same too. */
#include <stdio.h>

#include "layers/modules/feedforward/affine.h"
#include "layers/modules/modules.h"

/* ---- planning ---- */

/* PART: the module's own columns of those that are sharded. */
static int plan_shards(struct sl_module *module, struct sl_plan *plan, int part) {
    const int shards = sl_mesh_axis_size(plan->mesh, module->axis);
    if (module->whole != shards * part)
        return sl_error_set(plan->error, SL_BAD_INPUT,
                            "%s%s: %d columns do not divide by the %d coordinates along \"%s\"", plan->name,
                            module->type->name, module->whole, shards, module->axis);
    return sl_plan_group(plan, module, module->axis);
}

static int plan_columns(struct sl_module *module, struct sl_plan *plan) {
    const size_t kernel[] = {(size_t)module->in, (size_t)module->whole};
    char spec[SL_AXIS_NAME + 2];
    snprintf(spec, sizeof spec, "-,%s", module->axis);
    SL_TRY(plan_shards(module, plan, module->out));
    return sl_affine_plan(module, plan, kernel, spec, module->axis, SL_EPILOGUE_BIAS);
}

static int plan_rows(struct sl_module *module, struct sl_plan *plan) {
    const size_t kernel[] = {(size_t)module->whole, (size_t)module->out};
    SL_TRY(plan_shards(module, plan, module->in));
    return sl_affine_plan(module, plan, kernel, module->axis, "", SL_EPILOGUE_NONE);
}

/* X [rows, columns] becomes the sum of all peers' x. */
static int sum(const struct sl_module *module, struct sl_context *context, int columns, float *x) {
    const struct sl_group *peers = sl_group_of(module, context);
    if (!peers) return SL_OK;
    const enum sl_work before = sl_profile_begin(context->profile, SL_WORK_COMMUNICATION);
    const int status = sl_psum(context->self, peers, SL_F32, x, x, (size_t)context->rows * (size_t)columns);
    sl_profile_end(context->profile, before);
    return status;
}

/* ---- by columns ---- */

/* Where nobody needs dx, no peer does: they are in the same stage. */
static int columns_backward_input(const struct sl_module *module, struct sl_context *context, const float *x,
                                  const float *dy, float *dx) {
    (void)x;
    if (!dx) return SL_OK;
    SL_TRY(sl_affine_backward_input(module, context, dy, dx));
    return sum(module, context, module->in, dx);
}

static const struct sl_module_type column_parallel = {"column_parallel", plan_columns, sl_affine_forward,
                                                      columns_backward_input, sl_affine_backward_weight};

/* ---- by rows ---- */

/* The bias is added after the sum, and so once. */
static int rows_forward(const struct sl_module *module, struct sl_context *context, const float *x, float *y) {
    const size_t columns = (size_t)module->out;
    SL_TRY(sl_affine_forward(module, context, x, y));
    SL_TRY(sum(module, context, module->out, y));
    for (size_t r = 0; r < (size_t)context->rows; r++)
        context->kernels->add(columns, sl_value(module, context, SL_AFFINE_BIAS), y + r * columns);
    return SL_OK;
}

static int rows_backward_input(const struct sl_module *module, struct sl_context *context, const float *x,
                               const float *dy, float *dx) {
    (void)x;
    return dx ? sl_affine_backward_input(module, context, dy, dx) : SL_OK;
}

static const struct sl_module_type row_parallel = {"row_parallel", plan_rows, rows_forward, rows_backward_input,
                                                   sl_affine_backward_weight};

/* ---- construction ---- */

static struct sl_module *new_parallel(const struct sl_module_type *type, const char *name, int in, int out, int whole,
                                      const char *axis) {
    struct sl_module *module = sl_module_new(type, name, in, out);
    if (!module) return NULL;
    module->whole = whole;
    snprintf(module->axis, sizeof module->axis, "%s", axis);
    return module;
}

struct sl_module *sl_column_parallel(const char *name, int in, int out, const struct sl_mesh *mesh, const char *axis) {
    return new_parallel(&column_parallel, name, in, out / sl_mesh_axis_size(mesh, axis), out, axis);
}

struct sl_module *sl_row_parallel(const char *name, int in, int out, const struct sl_mesh *mesh, const char *axis) {
    return new_parallel(&row_parallel, name, in / sl_mesh_axis_size(mesh, axis), out, in, axis);
}
