/* products.c - plans and runs the products of modules with a kernel. */
#include "layers/modules/feedforward/products.h"

#include <math.h>

#include "layers/kernels/gemm/blocks/block_dots.h"
#include "layers/kernels/gemm/blocks/block_rows.h"
#include "layers/modules/feedforward/affine.h"
#include "layers/modules/kept.h"
#include "spmd/device/device.h"

/* The standard deviation of a standard normal cut off at -2 and 2. */
#define TRUNCATED_DEVIATION 0.87962566103423978f

/* In float and in this order, as JAX. */
float sl_lecun_normal(size_t in) { return sqrtf(1.0f / (float)in) / TRUNCATED_DEVIATION; }

void sl_products_release(struct sl_products *products) {
    sl_gemm_release(&products->forward);
    sl_gemm_release(&products->input_gradient);
    sl_gemm_release(&products->weight_gradient);
    sl_gemm_release(&products->gelu);
    sl_gemm_release(&products->slope);
}

/* Returns whether the kernel has a gradient. */
static bool trains(const struct sl_plan *plan) { return sl_plan_trains(plan, 0); }

/* Plans rounded x and dy; or widened ones for a W whose product reads only floats. */
static void plan_operands(struct sl_products *products, struct sl_plan *plan, const struct sl_products_shape *shape) {
    const bool rounds = shape->precision == SL_BF16;
    const size_t run = rounds ? sl_plan_run(plan) * (size_t)shape->rows : 0;
    const size_t group = trains(plan) ? (size_t)shape->wgrad_rows : 0, rows = run > group ? run : group;
    const size_t size = sl_dtype_size(shape->precision);
    if (!rounds && !(products->takes_floats && trains(plan))) return;
    sl_plan_workspace(plan, rows * (size_t)shape->in * size, &products->x);
    if (!plan->forward_only) sl_plan_workspace(plan, rows * (size_t)shape->out * size, &products->dy);
}

void sl_products_plan_blocks(struct sl_plan *plan, size_t rows, size_t in, struct sl_place *room) {
    if (plan->parameters->list[plan->module->parameter[0]].blocks.dots)
        sl_plan_workspace(plan, sl_dot_rows_room(rows, in), room);
}

static void plan_kernel(struct sl_products *products, struct sl_plan *plan, const struct sl_products_shape *shape) {
    const int rows = shape->rows, in = shape->in, out = shape->out;
    products->kernel = shape->float_kernel ? SL_F32 : sl_plan_kernel_type(plan);
    products->widens_forward = products->widens_input = false;
    if (!shape->float_kernel) sl_plan_kernel(plan, 0);
    if (!shape->float_kernel && sl_plan_blocks(plan, 0)) {
        products->kernel = SL_QUANTIZED;
        sl_products_plan_blocks(plan, sl_plan_run(plan) * (size_t)rows, (size_t)in, &products->rounded);
        if (!plan->forward_only) sl_plan_workspace(plan, (size_t)in * (size_t)out * sizeof(float), &products->widened);
        return;
    }
    if (products->kernel == SL_F32) return;
    sl_plan_rounded_values(plan);
    if (shape->precision != SL_F32) return;
    const int own = rows / products->leaves;
    products->widens_forward = sl_gemm_widens(plan->gemm, own, out, in, false, shape->transposed, shape->epilogue);
    products->widens_input =
        !plan->forward_only && sl_gemm_widens(plan->gemm, own, in, out, false, !shape->transposed, SL_EPILOGUE_NONE);
    if (!products->widens_forward || !(products->widens_input || plan->forward_only))
        sl_plan_workspace(plan, (size_t)in * (size_t)out * sizeof(float), &products->widened);
}

/* A transposed kernel's gradient is dy^T x. */
static bool widens_weight(const struct sl_products *products, const struct sl_plan *plan,
                          const struct sl_products_shape *shape) {
    const int m = shape->transposed ? shape->out : shape->in, n = shape->transposed ? shape->in : shape->out;
    return shape->kept && shape->precision == SL_F32 && plan->storage != SL_F32 &&
           sl_gemm_widens(plan->gemm, m, n, shape->wgrad_rows / products->leaves, true, false, SL_EPILOGUE_NONE);
}

/* W's product also sums dy if both the kernel and the bias have a gradient. The sums are of bf16 dy; with leaves they
 * are not used, because bits must not depend on the number of leaves per coordinate. */
static void plan_sums(struct sl_products *products, struct sl_plan *plan, const struct sl_products_shape *shape) {
    products->sums = shape->biased && trains(plan) && sl_plan_trains(plan, SL_AFFINE_BIAS) && !shape->transposed &&
                     products->leaves == 1 && !plan->leaf_axis && sl_gemm_sums(plan->gemm, shape->precision);
    if (products->sums) sl_plan_workspace(plan, (size_t)shape->out * sizeof(float), &products->added);
}

/* Plans a bf16 copy of the bias: needed if only kernels have bf16 values. */
static void plan_bias(struct sl_products *products, struct sl_plan *plan, const struct sl_products_shape *shape) {
    const bool leaves = shape->precision == SL_BF16 && sl_gemm_leaves_bf16(plan->gemm);
    if (leaves && plan->forward_only && shape->epilogue == SL_EPILOGUE_BIAS)
        sl_plan_workspace(plan, (size_t)shape->out * sizeof(uint16_t), &products->bias);
}

/* Returns whether x and dx are bf16 only and products read and write them in place, without copies. */
static bool takes_columns(const struct sl_products *products, const struct sl_plan *plan,
                          const struct sl_products_shape *shape) {
    const bool alone = plan->storage != SL_F32 || sl_keeps_operands(plan);
    return alone && shape->precision == SL_BF16 && trains(plan) && products->leaves == 1 && !plan->leaf_axis &&
           !shape->transposed && plan->gemm->takes_columns && sl_gemm_leaves_bf16(plan->gemm);
}

/* Fuses a gelu only with products of all rows and columns; with leaves it is never fused, because bits must not depend
 * on the number of leaves per coordinate. */
bool sl_products_fuse_gelus(const struct sl_products *products, const struct sl_plan *plan) {
    return plan->precision == SL_BF16 && sl_gemm_leaves_bf16(plan->gemm) && products->leaves == 1 && !plan->leaf_axis;
}

int sl_products_plan_gelu(struct sl_products *products, struct sl_plan *plan) {
    const struct sl_gemm *forward = &products->forward;
    const enum sl_epilogue gelu = forward->epilogue == SL_EPILOGUE_BIAS ? SL_EPILOGUE_BIAS_GELU : SL_EPILOGUE_GELU;
    if (plan->sizes_only) return SL_OK;
    return sl_gemm_plan(&products->gelu, plan->gemm, SL_BF16, forward->m, forward->n, forward->k, false, false, gelu,
                        plan->error);
}

int sl_products_plan_slope(struct sl_products *products, struct sl_plan *plan) {
    const struct sl_gemm *input = &products->input_gradient;
    if (plan->sizes_only) return SL_OK;
    return sl_gemm_plan(&products->slope, plan->gemm, SL_BF16, input->m, input->n, input->k, false, true,
                        SL_EPILOGUE_SLOPE, plan->error);
}

/* Counts bytes in the caches' elements. */
static int plan_packed(struct sl_products *products, struct sl_plan *plan, const struct sl_products_shape *shape) {
    products->packed = -1;
    if (products->kernel == SL_QUANTIZED) return SL_OK;
    if (!plan->caches || !plan->caches->packs || !shape->own_kernel || shape->transposed || products->leaves > 1 ||
        !sl_gemm_packs(plan->gemm, shape->precision, products->kernel, plan->caches->packs, shape->out, shape->in))
        return SL_OK;
    const size_t bytes = (size_t)shape->in * (size_t)shape->out * sl_dtype_size(products->kernel);
    const size_t element = sl_dtype_size(plan->caches->storage);
    return sl_plan_cache_once(plan, (bytes + element - 1) / element, &products->packed);
}

/* Runs share a forward and an input gradient, groups a weight gradient. */
static void count(const struct sl_products *products, const struct sl_plan *plan,
                  const struct sl_products_shape *shape) {
    const int in = shape->in, out = shape->out, run = (int)sl_plan_run(plan);
    const int rows = shape->rows * run, leaves = shape->leaves > 1 ? shape->leaves : 1;
    const bool loss = !plan->module->type->backward_input;
    const struct sl_load_product forward = {shape->precision, rows, out, in, false, shape->transposed, 1.0 / run};
    const struct sl_load_product input = {shape->precision, rows, in, out, false, !shape->transposed, 1.0 / run};
    const struct sl_load_product weight = {shape->precision,
                                           in,
                                           out,
                                           shape->wgrad_rows / leaves,
                                           true,
                                           false,
                                           (double)shape->rows * leaves / shape->wgrad_rows};
    sl_load_product(plan, SL_LOAD_FORWARD, &forward);
    if (plan->forward_only) return;
    if (plan->has_dx || loss) sl_load_product(plan, SL_LOAD_INPUT, &input);
    if (trains(plan)) sl_load_product(plan, SL_LOAD_WEIGHT, &weight);
    if (shape->epilogue != SL_EPILOGUE_NONE && sl_plan_trains(plan, SL_AFFINE_BIAS) && !products->sums)
        sl_load_floats(plan, SL_LOAD_WEIGHT, SL_LOAD_MOVES, (double)shape->rows * out);
}

/* Blocks must be whole kernels of float32 products. */
static int check_blocks(const struct sl_products *products, const struct sl_plan *plan,
                        const struct sl_products_shape *shape) {
    const bool whole = (shape->own_kernel || shape->transposed) && products->leaves == 1 && !plan->leaf_axis;
    if (products->kernel != SL_QUANTIZED || (whole && shape->precision == SL_F32 && sl_device.shares_memory))
        return SL_OK;
    return sl_error_set(plan->error, SL_BAD_INPUT,
                        "%s%s: a kernel that lies in a file's blocks is for products of floats on CPUs, is not sharded "
                        "over data, and has no leaves",
                        plan->name, plan->module->type->name);
}

int sl_products_plan(struct sl_products *products, struct sl_plan *plan, const struct sl_products_shape *shape) {
    const int in = shape->in, out = shape->out, leaves = shape->leaves > 1 ? shape->leaves : 1;
    const int rows = shape->rows / leaves;
    sl_products_release(products);
    products->leaves = leaves;
    plan_sums(products, plan, shape);
    if (plan->load) count(products, plan, shape);
    plan_kernel(products, plan, shape);
    SL_TRY(check_blocks(products, plan, shape));
    const bool blocks = products->kernel == SL_QUANTIZED,
               transposed = shape->transposed || blocks; /* rows of blocks are columns of y */
    SL_TRY(plan_packed(products, plan, shape));
    products->widens_weight = trains(plan) && widens_weight(products, plan, shape);
    products->takes_floats = shape->precision == SL_F32 && plan->storage != SL_F32 && !products->widens_weight;
    plan_operands(products, plan, shape);
    plan_bias(products, plan, shape);
    const int stride = products->x_stride = takes_columns(products, plan, shape) ? shape->x_stride : 0;
    if (plan->sizes_only) return SL_OK;
    if (blocks && plan->forward_only) { /* no backend multiplies blocks */
        products->forward = (struct sl_gemm){.m = rows, .n = out, .k = in, .epilogue = shape->epilogue};
        return SL_OK;
    }
    SL_TRY(sl_gemm_plan_columns(&products->forward, plan->gemm, shape->precision, rows, out, in, false, transposed,
                                shape->epilogue, stride, 0, plan->error));
    if (plan->forward_only) return SL_OK;
    SL_TRY(sl_gemm_plan_columns(&products->input_gradient, plan->gemm, shape->precision, rows, in, out, false,
                                !transposed, SL_EPILOGUE_NONE, 0, stride, plan->error));
    if (!trains(plan)) return SL_OK;
    return sl_gemm_plan_columns(&products->weight_gradient, plan->gemm, shape->precision, transposed ? out : in,
                                transposed ? in : out, shape->wgrad_rows / leaves, true, false,
                                products->sums ? SL_EPILOGUE_SUMS : SL_EPILOGUE_NONE, stride, 0, plan->error);
}

void sl_products_offer(const struct sl_products *products, struct sl_module *module, const struct sl_plan *plan,
                       bool biased, bool adds_up, bool whole) {
    const bool sums = !biased || products->sums || !sl_plan_trains(plan, SL_AFFINE_BIAS);
    if (products->takes_floats) module->follower_dy = SL_F32;
    module->x_stride = products->x_stride;
    const bool leaves = plan->precision == SL_BF16 && whole && sl_gemm_leaves_bf16(plan->gemm);
    const bool operands = sl_keeps_operands(plan) && trains(plan) && !adds_up;
    module->x.writes = leaves ? SL_WRITES_BF16 : SL_WRITES_ASKED;
    module->y.writes = SL_WRITES_ASKED;
    module->y.adds = adds_up ? SL_ADDS_NOTHING : leaves ? SL_ADDS_BF16 : SL_ADDS_FLOATS;
    if (operands) module->x.reads = SL_READS_OPERAND;
    if (operands && sums) module->y.reads = SL_READS_OPERAND;
}

static bool rounds(const struct sl_products *products) { return products->forward.dtype == SL_BF16; }

const void *sl_products_kernel(const struct sl_products *products, const struct sl_module *module,
                               const struct sl_context *context) {
    if (products->kernel == SL_F32) return sl_value(module, context, 0);
    if (products->kernel == SL_QUANTIZED) return sl_blocks_value(module, context, 0);
    return sl_rounded_value(module, context, 0);
}

const void *sl_products_weights(const struct sl_products *products, const struct sl_context *context, size_t n,
                                const void *kernel) {
    if (products->kernel == products->forward.dtype) return kernel;
    float *widened = sl_at(context, &products->widened);
    if (products->kernel == SL_QUANTIZED) {
        sl_block_rows_widen(kernel, widened, context->crew);
        return widened;
    }
    context->kernels->widen_bf16(n, kernel, widened);
    return widened;
}

const void *sl_products_operand(const struct sl_products *products, const struct sl_context *context,
                                const struct sl_place *room, size_t n, struct sl_given x) {
    if (rounds(products)) return x.halves ? x.halves : sl_round_rows(context, n, x.floats, sl_at(context, room));
    return x.floats || products->takes_floats ? (const void *)sl_widen(context, room, n, x) : x.halves;
}

uint16_t *sl_products_room(const struct sl_products *products, const struct sl_context *context,
                           const struct sl_place *room) {
    return rounds(products) ? sl_at(context, room) : NULL;
}

int sl_products_multiply(struct sl_context *context, const struct sl_gemm *gemm, struct sl_gemm_arrays arrays) {
    const enum sl_work before = sl_profile_begin(context->profile, SL_WORK_PRODUCTS);
    const int status = sl_gemm_execute(gemm, arrays, context->queue);
    sl_profile_end(context->profile, before);
    if (status == SL_OK || sl_device.settle(&context->self->error)) return status; /* with the queue's error */
    return sl_fail(context->self, status, "no memory for a matrix product");
}

/* Makes the copy when a run begins. Returns whether forward has few enough rows to use it. */
static bool reads_copy(struct sl_context *context, const struct sl_products *products, int count, const void *kernel) {
    if (products->packed < 0) return false;
    if (context->begins)
        sl_gemm_pack(&products->forward, products->kernel, kernel, context->caches->cache[products->packed].data,
                     context->queue);
    return products->forward.m <= context->caches->packs && count == 1;
}

/* BIAS [out] (may be NULL) as bf16: the parameters' copy, or rounded here. */
static const uint16_t *rounded_bias(const struct sl_context *context, const struct sl_products *products,
                                    const float *bias) {
    const uint16_t *rounded = bias ? sl_parameters_rounded(context->parameters, bias) : NULL;
    if (!bias || rounded) return rounded;
    uint16_t *room = sl_at(context, &products->bias);
    context->kernels->round_bf16((size_t)products->forward.n, bias, room);
    return room;
}

/* Returns whether a product by GEMM writes C as bf16 alone. If the storage is bf16, this holds for all rows between
 * modules, also at the end of a stage, so bits do not depend on the stages; otherwise for rows that are read only as
 * bf16. */
static bool leaves_bf16(const struct sl_gemm *gemm, const struct sl_result *c) {
    return c->form == SL_ALONE && gemm->dtype == SL_BF16 && sl_gemm_leaves_bf16(gemm->backend);
}

/* Makes the product write C as bf16 alone. */
static void leave_bf16(struct sl_result *c, const uint16_t *bias, struct sl_gemm_arrays *arrays) {
    arrays->bias = sl_rows_bf16(bias);
    arrays->gelu = sl_rows_bf16(c->gelu);
    arrays->x = sl_rows_bf16(NULL);
    arrays->c = sl_result_exactly(c);
}

/* Makes the product add the summand of C. A sum in floats is rounded by its owner. */
static void add_summand(struct sl_context *context, const struct sl_products *products, const float *bias,
                        struct sl_gemm_arrays *arrays, struct sl_result *c) {
    const struct sl_rows stored = sl_given_stored(c->adds);
    if (stored.type == SL_BF16 && leaves_bf16(&products->forward, c)) {
        leave_bf16(c, rounded_bias(context, products, bias), arrays);
        arrays->x = stored;
        return;
    }
    const size_t n = (size_t)arrays->count * (size_t)products->forward.m * (size_t)products->forward.n;
    if (!c->adds.floats) context->kernels->widen_bf16(n, c->adds.halves, c->floats);
    arrays->x = sl_rows_f32(c->adds.floats ? c->adds.floats : c->floats);
    c->made = SL_ADDED;
}

void sl_products_by_blocks(struct sl_context *context, const struct sl_blocks *kernel, const struct sl_place *room,
                           size_t rows, const float *a, const float *bias, float *c) {
    const enum sl_work before = sl_profile_begin(context->profile, SL_WORK_PRODUCTS);
    if (kernel->dots)
        sl_block_dots_multiply(kernel, rows, a, bias, c, sl_at(context, room), context->crew);
    else
        sl_block_rows_multiply(kernel, rows, a, bias, c, context->crew);
    sl_profile_end(context->profile, before);
}

int sl_products_forward(struct sl_context *context, const struct sl_products *products, int count, const void *a,
                        const void *kernel, const float *bias, struct sl_result *c) {
    const struct sl_gemm *gemm = &products->forward;
    if (!gemm->backend) {
        sl_products_by_blocks(context, kernel, &products->rounded, (size_t)count * (size_t)gemm->m, a,
                              gemm->epilogue == SL_EPILOGUE_BIAS ? bias : NULL, c->floats);
        return SL_OK;
    }
    const bool widens = products->widens_forward, adds = sl_given_exists(c->adds);
    struct sl_gemm_arrays arrays = sl_gemm_floats(gemm, count * products->leaves, a, kernel, bias, false, c->floats);
    arrays.packed = reads_copy(context, products, arrays.count, kernel);
    if (arrays.packed)
        arrays.b = sl_rows_of(products->kernel, context->caches->cache[products->packed].data);
    else if (widens)
        arrays.b.type = SL_BF16;
    else
        arrays.b =
            sl_rows_of(gemm->dtype, sl_products_weights(products, context, (size_t)gemm->n * (size_t)gemm->k, kernel));
    if (adds && !widens && !arrays.packed && sl_gemm_adds(gemm->backend)) {
        add_summand(context, products, bias, &arrays, c);
    } else if (!adds && sl_result_rounds(c) && (widens || sl_gemm_settles(gemm->backend))) {
        arrays.c = sl_out_of(c->floats, true, c->halves);
        c->made = SL_MADE;
    } else if (!adds && leaves_bf16(gemm, c)) {
        leave_bf16(c, rounded_bias(context, products, bias), &arrays);
    }
    return sl_products_multiply(context, arrays.gelu.at ? &products->gelu : gemm, arrays);
}

int sl_products_input_gradient(struct sl_context *context, const struct sl_products *products, int count, const void *a,
                               const void *kernel, bool accumulate, struct sl_result *c) {
    const struct sl_gemm *gemm = &products->input_gradient;
    struct sl_gemm_arrays arrays =
        sl_gemm_floats(gemm, count * products->leaves, a, kernel, NULL, accumulate, c->floats);
    if (products->widens_input) {
        arrays.b.type = SL_BF16;
        return sl_products_multiply(context, gemm, arrays);
    }
    arrays.b =
        sl_rows_of(gemm->dtype, sl_products_weights(products, context, (size_t)gemm->n * (size_t)gemm->k, kernel));
    if (leaves_bf16(gemm, c)) leave_bf16(c, NULL, &arrays);
    return sl_products_multiply(context, arrays.gelu.at ? &products->slope : gemm, arrays);
}

int sl_products_weight_gradient(struct sl_context *context, const struct sl_products *products, const void *a,
                                const void *b, bool accumulate, float *c, float *bias) {
    const struct sl_gemm *gemm = &products->weight_gradient;
    const bool adds =
        products->sums && context->accumulate; /* the product overwrites sums, so they are added separately */
    struct sl_gemm_arrays arrays = sl_gemm_floats(gemm, 1, a, b, NULL, accumulate, c);
    if (products->widens_weight) arrays.a.type = arrays.b.type = SL_BF16;
    arrays.sums = adds ? sl_at(context, &products->added) : bias;
    SL_TRY(sl_products_multiply(context, gemm, arrays));
    if (adds) context->kernels->add((size_t)gemm->n, arrays.sums, bias);
    return SL_OK;
}
