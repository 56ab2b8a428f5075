/* tensor_parallel.c - y = x kernel + bias, the kernel sharded over the coordinates along an axis.
 *
 * By columns: each makes its columns of y of all of x; what each makes of its columns of dy sums up to dx.
 * By rows: what each makes of its columns of x sums up to y; its columns of dx need nothing but dy.
 * So a pair of the two sums once in forward and once in backward, and what lies between them stays sharded (f and g in
 * Shoeybi et al., "Megatron-LM", 2019). Sums leave the same bits on all coordinates along the axis, so that what each
 * of them computes alone, such as the bias of a kernel sharded by rows, stays the same too. */
#include <math.h>
#include <stdio.h>

#include "layers/modules.h"

enum { KERNEL, BIAS };                             /* parameters */
enum { FORWARD, INPUT_GRADIENT, WEIGHT_GRADIENT }; /* products */
enum { X, DY };                                    /* workspace: of a group's rows, rounded */

/* The standard deviation of a standard normal cut off at -2 and 2. */
#define TRUNCATED_DEVIATION 0.87962566103423978f

/* ---- planning ---- */

/* PART: the module's own columns of those that are sharded. */
static int plan_shards(struct sl_module *module, struct sl_plan *plan, int part) {
    const int shards = sl_mesh_axis_size(plan->mesh, module->axis);
    if (module->whole != shards * part)
        return sl_error_set(plan->error, SL_BAD_INPUT,
                            "%s%s: %d columns do not divide by the %d coordinates along \"%s\"", plan->name,
                            module->type->name, module->whole, shards, module->axis);
    return sl_plan_peers(plan, module, module->axis);
}

/* KERNEL is the whole one's shape. */
static int plan_parameters(struct sl_module *module, struct sl_plan *plan, const size_t kernel[2],
                           const char *kernel_spec, const char *bias_spec) {
    const float scale = sqrtf(1.0f / (float)kernel[0]) / TRUNCATED_DEVIATION; /* lecun normal, as dense.c's */
    module->parameter[KERNEL] =
        sl_plan_parameter_sharded(plan, "kernel", SL_INIT_TRUNCATED_NORMAL, scale, 2, kernel, kernel_spec);
    if (module->parameter[KERNEL] < 0) return plan->error->status;
    module->parameter[BIAS] = sl_plan_parameter_sharded(plan, "bias", SL_INIT_ZEROS, 0.0f, 1, &kernel[1], bias_spec);
    return module->parameter[BIAS] < 0 ? plan->error->status : SL_OK;
}

static int plan_products(struct sl_module *module, struct sl_plan *plan, enum sl_epilogue epilogue) {
    const int rows = plan->rows, group_rows = rows * plan->group, in = module->in, out = module->out;
    module->keeps_input = module->keeps_gradient = true;
    if (plan->precision == SL_BF16) {
        sl_plan_rounded_values(plan);
        module->workspace[X] = sl_plan_workspace(plan, (size_t)group_rows * (size_t)in * sizeof(uint16_t));
        module->workspace[DY] = sl_plan_workspace(plan, (size_t)group_rows * (size_t)out * sizeof(uint16_t));
    }
    SL_TRY(sl_gemm_plan(&module->gemm[FORWARD], plan->gemm, plan->precision, rows, out, in, false, false, epilogue,
                        plan->error));
    SL_TRY(sl_gemm_plan(&module->gemm[INPUT_GRADIENT], plan->gemm, plan->precision, rows, in, out, false, true,
                        SL_EPILOGUE_NONE, plan->error));
    return sl_gemm_plan(&module->gemm[WEIGHT_GRADIENT], plan->gemm, plan->precision, in, out, group_rows, true, false,
                        SL_EPILOGUE_NONE, plan->error);
}

static int plan_columns(struct sl_module *module, struct sl_plan *plan) {
    const size_t kernel[] = {(size_t)module->in, (size_t)module->whole};
    char spec[SL_AXIS_NAME + 2];
    snprintf(spec, sizeof spec, "-,%s", module->axis);
    SL_TRY(plan_shards(module, plan, module->out));
    SL_TRY(plan_parameters(module, plan, kernel, spec, module->axis));
    return plan_products(module, plan, SL_EPILOGUE_BIAS);
}

static int plan_rows(struct sl_module *module, struct sl_plan *plan) {
    const size_t kernel[] = {(size_t)module->whole, (size_t)module->out};
    SL_TRY(plan_shards(module, plan, module->in));
    SL_TRY(plan_parameters(module, plan, kernel, module->axis, ""));
    return plan_products(module, plan, SL_EPILOGUE_NONE);
}

/* ---- what both are made of ---- */

static bool rounds(const struct sl_module *module) { return module->gemm[FORWARD].dtype == SL_BF16; }

static const void *kernel_operand(const struct sl_module *module, const struct sl_context *context) {
    if (!rounds(module)) return sl_value(module, context, KERNEL);
    return sl_rounded_value(module, context, KERNEL);
}

/* X [n] as the products take it, where need be in workspace number BUFFER. */
static const void *operand(const struct sl_module *module, const struct sl_context *context, int buffer, size_t n,
                           const float *x) {
    if (!rounds(module)) return x;
    uint16_t *rounded = (uint16_t *)(void *)(context->workspace + module->workspace[buffer]);
    context->kernels->round_bf16(n, x, rounded);
    return rounded;
}

static int multiply(const struct sl_module *module, struct sl_context *context, int product, const void *a,
                    const void *b, const float *bias, bool accumulate, float *c) {
    const enum sl_work before = sl_profile_begin(context->profile, SL_WORK_PRODUCTS);
    const int status = sl_gemm_execute(&module->gemm[product], a, b, bias, accumulate, c, context->queue);
    sl_profile_end(context->profile, before);
    return status ? sl_fail(context->self, status, "no memory for a matrix product") : SL_OK;
}

/* X [rows, columns] becomes the sum of all peers' x. */
static int sum(const struct sl_module *module, struct sl_context *context, int columns, float *x) {
    const struct sl_group *peers = sl_peers_of(module, context);
    if (!peers) return SL_OK;
    const enum sl_work before = sl_profile_begin(context->profile, SL_WORK_COMMUNICATION);
    const int status = sl_psum(context->self, peers, SL_F32, x, x, (size_t)context->rows * (size_t)columns);
    sl_profile_end(context->profile, before);
    return status;
}

/* This coordinate's y = x kernel (+ bias). */
static int forward_part(const struct sl_module *module, struct sl_context *context, const float *x, const float *bias,
                        float *y) {
    const void *a = operand(module, context, X, (size_t)context->rows * (size_t)module->in, x);
    return multiply(module, context, FORWARD, a, kernel_operand(module, context), bias, false, y);
}

/* This coordinate's dx = dy kernel^T. */
static int backward_part(const struct sl_module *module, struct sl_context *context, const float *dy, float *dx) {
    const void *a = operand(module, context, DY, (size_t)context->rows * (size_t)module->out, dy);
    return multiply(module, context, INPUT_GRADIENT, a, kernel_operand(module, context), NULL, false, dx);
}

/* dkernel (+)= x^T dy, one product over the rows of the whole group; dbias (+)= column sums of dy */
static int backward_weight(const struct sl_module *module, struct sl_context *context, const float *x,
                           const float *dy) {
    const size_t rows = (size_t)context->rows * (size_t)context->group;
    const void *a = operand(module, context, X, rows * (size_t)module->in, x);
    const void *b = operand(module, context, DY, rows * (size_t)module->out, dy);
    SL_TRY(multiply(module, context, WEIGHT_GRADIENT, a, b, NULL, context->accumulate,
                    sl_gradient(module, context, KERNEL)));
    context->kernels->column_sums(rows, (size_t)module->out, dy, context->accumulate,
                                  sl_gradient(module, context, BIAS));
    return SL_OK;
}

/* ---- by columns ---- */

static int columns_forward(const struct sl_module *module, struct sl_context *context, const float *x, float *y) {
    return forward_part(module, context, x, sl_value(module, context, BIAS), y);
}

/* Where nobody needs dx, no peer does: they are in the same stage. */
static int columns_backward_input(const struct sl_module *module, struct sl_context *context, const float *x,
                                  const float *dy, float *dx) {
    (void)x;
    if (!dx) return SL_OK;
    SL_TRY(backward_part(module, context, dy, dx));
    return sum(module, context, module->in, dx);
}

static const struct sl_module_type column_parallel = {"column_parallel", plan_columns, columns_forward,
                                                      columns_backward_input, backward_weight};

/* ---- by rows ---- */

/* The bias is added after the sum, and so once. */
static int rows_forward(const struct sl_module *module, struct sl_context *context, const float *x, float *y) {
    const size_t columns = (size_t)module->out;
    SL_TRY(forward_part(module, context, x, NULL, y));
    SL_TRY(sum(module, context, module->out, y));
    for (size_t r = 0; r < (size_t)context->rows; r++)
        context->kernels->add(columns, sl_value(module, context, BIAS), y + r * columns);
    return SL_OK;
}

static int rows_backward_input(const struct sl_module *module, struct sl_context *context, const float *x,
                               const float *dy, float *dx) {
    (void)x;
    return dx ? backward_part(module, context, dy, dx) : SL_OK;
}

static const struct sl_module_type row_parallel = {"row_parallel", plan_rows, rows_forward, rows_backward_input,
                                                   backward_weight};

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
