/* mla_context.c - latent attention to divided sequences whose latents are gathered.
 *
 * A coordinate gathers the latents of all tokens and kv_up's columns for its heads, and computes keys and values of all
 * tokens; only rotary keys are moved as attention reads them. Backward does so again. The gradients of keys and values
 * become those of latents, which are summed over the coordinates, each of which receives its own rows. kv_up's
 * gradients are those of all tokens' rows from this coordinate's queries: sums over the replicas complete them. */
#include "layers/modules/feedforward/affine.h"
#include "layers/modules/sequence/context_internal.h"
#include "layers/modules/sequence/mla/mla_internal.h"

/* Operands of products, in all tokens' rows: latents [rows, latent], the kernel [latent, columns], and the gradients of
 * keys and values [rows, columns]. */
enum operand { LATENTS, KERNEL, GRADIENT };

/* ---- planning ---- */

int sl_mla_choose_latents(struct mla *mla, const struct sl_plan *plan) {
    struct sl_module *const kv_up = mla->module.child[KV_UP];
    mla->by_latents = plan->context_axis && plan->context_by == SL_CONTEXT_BY_LATENTS;
    if (mla->by_latents && (plan->leaf_axis || kv_up->children))
        return sl_error_set(plan->error, SL_BAD_INPUT,
                            "%slatents: they are gathered over \"%s\" only without %s (--context-by latents)",
                            plan->name, plan->context_axis, plan->leaf_axis ? "leaves of sums" : "adapters of kv_up");
    if (!kv_up->children) sl_sharded_dense_by_columns(kv_up, mla->by_latents);
    return SL_OK;
}

/* The expansion takes place in forward and in I. */
static void count(const struct mla *mla, const struct sl_plan *plan, int rows) {
    const int columns = (int)(2 * mla->columns), latent = mla->shape.latent;
    const struct sl_load_product expansion = {plan->precision, rows, columns, latent, false, false, 1};
    const double bytes = (double)plan->rows * latent * sizeof(float);
    const char *const axis = mla->whole_latents ? NULL : mla->axis;
    sl_load_product(plan, SL_LOAD_FORWARD, &expansion);
    sl_load_call(plan, SL_LOAD_FORWARD, SL_ALL_GATHER, axis, bytes, 1);
    if (plan->forward_only) return;
    sl_load_product(plan, SL_LOAD_INPUT, &expansion);
    sl_load_product(plan, SL_LOAD_INPUT,
                    &(struct sl_load_product){plan->precision, rows, latent, columns, false, true, 1});
    sl_load_product(plan, SL_LOAD_INPUT,
                    &(struct sl_load_product){plan->precision, latent, columns, rows, true, false, 1});
    sl_load_call(plan, SL_LOAD_INPUT, SL_ALL_GATHER, axis, bytes, 1);
    sl_load_call(plan, SL_LOAD_INPUT, SL_PSUM_SCATTER, axis, bytes, 1);
}

static int plan_products(struct mla *mla, struct sl_plan *plan, int rows) {
    const int columns = (int)(2 * mla->columns), latent = mla->shape.latent;
    sl_gemm_release(&mla->expansion);
    sl_gemm_release(&mla->latent_gradient);
    sl_gemm_release(&mla->kernel_gradient);
    if (plan->sizes_only) return SL_OK;
    SL_TRY(sl_gemm_plan(&mla->expansion, plan->gemm, plan->precision, rows, columns, latent, false, false,
                        SL_EPILOGUE_BIAS, plan->error));
    if (plan->forward_only) return SL_OK;
    SL_TRY(sl_gemm_plan(&mla->latent_gradient, plan->gemm, plan->precision, rows, latent, columns, false, true,
                        SL_EPILOGUE_NONE, plan->error));
    return sl_gemm_plan(&mla->kernel_gradient, plan->gemm, plan->precision, latent, columns, rows, true, false,
                        SL_EPILOGUE_NONE, plan->error);
}

static void plan_rounded(struct mla *mla, struct sl_plan *plan, size_t rows) {
    const size_t latent = (size_t)mla->shape.latent, columns = 2 * mla->columns, size = sizeof(uint16_t);
    sl_plan_workspace(plan, rows * latent * size, &mla->rounded[LATENTS]);
    sl_plan_workspace(plan, latent * columns * size, &mla->rounded[KERNEL]);
    if (!plan->forward_only) sl_plan_workspace(plan, rows * columns * size, &mla->rounded[GRADIENT]);
}

int sl_mla_plan_context(struct mla *mla, struct sl_plan *plan) {
    const size_t latent = (size_t)mla->shape.latent, columns = 2 * mla->columns;
    const int rows = plan->rows * sl_cut_parts(plan->cut);
    mla->all.columns[0] = latent;
    mla->all.group = mla->context.group;
    sl_plan_context_moves(plan, &mla->all);
    if (mla->group >= 0)
        SL_TRY(sl_plan_array(plan, (size_t)plan->rows * latent, SL_UNTIL_RETURN, &mla->kept[ALL_LATENT].values));
    sl_plan_workspace(plan, latent * columns * sizeof(float), &mla->kernel);
    sl_plan_workspace(plan, columns * sizeof(float), &mla->bias);
    if (!plan->forward_only) {
        sl_plan_workspace(plan, latent * columns * sizeof(float), &mla->d_kernel);
        sl_plan_workspace(plan, columns * sizeof(float), &mla->d_bias);
    }
    if (plan->precision == SL_BF16) plan_rounded(mla, plan, sl_plan_run(plan) * (size_t)rows);
    if (plan->load) count(mla, plan, rows);
    return plan_products(mla, plan, rows);
}

/* ---- calls ---- */

static float *floats_of(const struct mla *mla, const struct sl_context *context, enum operand i) {
    return sl_at(context, i == LATENTS ? &mla->all.whole[0] : i == KERNEL ? &mla->kernel : &mla->context.gradient[0]);
}

/* Operand I in the type of products. */
static const void *operand(const struct mla *mla, const struct sl_context *context, enum operand i) {
    return mla->precision == SL_BF16 ? sl_at(context, &mla->rounded[i]) : floats_of(mla, context, i);
}

/* Prepares operand I [rows, columns], whose floats have been written. */
static void round_operand(const struct mla *mla, const struct sl_context *context, enum operand i, size_t rows,
                          size_t columns) {
    if (mla->precision == SL_BF16)
        context->kernels->round_bf16(rows * columns, floats_of(mla, context, i), sl_at(context, &mla->rounded[i]));
}

int sl_mla_expand(const struct sl_module *module, struct sl_context *context, const float *latents) {
    const struct mla *mla = sl_mla_of(module);
    const struct sl_gemm *expansion = &mla->expansion;
    const size_t count = sl_call_microbatches(context), latent = (size_t)expansion->k;
    SL_TRY(sl_mla_all_latents(module, context, latents, &latents));
    SL_TRY(sl_context_gather(context, &mla->all, 0, SL_F32, latents));
    SL_TRY(sl_mla_take_columns(module, context));
    round_operand(mla, context, LATENTS, count * (size_t)expansion->m, latent);
    round_operand(mla, context, KERNEL, latent, (size_t)expansion->n);
    return sl_products_multiply(context, expansion,
                                sl_gemm_floats(expansion, (int)count, operand(mla, context, LATENTS),
                                               operand(mla, context, KERNEL), sl_at(context, &mla->bias), false,
                                               sl_at(context, &mla->context.whole[0])));
}

/* Gives kv_up its gradients from microbatch I's rows. */
static int give(const struct sl_module *module, struct sl_context *context, size_t i) {
    const struct mla *mla = sl_mla_of(module);
    const struct sl_gemm *product = &mla->kernel_gradient;
    const size_t rows = (size_t)product->k, columns = (size_t)product->n, size = sl_dtype_size(mla->precision);
    const char *const latents = (const char *)operand(mla, context, LATENTS) + i * rows * (size_t)product->m * size;
    const char *const d_keys = (const char *)operand(mla, context, GRADIENT) + i * rows * columns * size;
    float *const kernel = sl_at(context, &mla->d_kernel), *const bias = sl_at(context, &mla->d_bias);
    SL_TRY(sl_products_multiply(context, product, sl_gemm_floats(product, 1, latents, d_keys, NULL, false, kernel)));
    context->kernels->column_sums(rows, columns, floats_of(mla, context, GRADIENT) + i * rows * columns, false, bias);
    return sl_sharded_dense_give(module->child[KV_UP], context, i, kernel, bias);
}

int sl_mla_expand_backward(const struct sl_module *module, struct sl_context *context, float *dx) {
    const struct mla *mla = sl_mla_of(module);
    const struct sl_gemm *product = &mla->latent_gradient;
    const struct sl_group *peers = sl_group_of(context, mla->group);
    const size_t shape[] = {(size_t)context->rows, (size_t)mla->shape.latent};
    float *const own = peers ? sl_mla_at(module, context, ALL_LATENT) : dx;
    const size_t count = sl_call_microbatches(context);
    round_operand(mla, context, GRADIENT, count * (size_t)product->m, (size_t)product->k);
    for (size_t i = 0; !module->child[KV_UP]->frozen && i < count; i++) SL_TRY(give(module, context, i));
    SL_TRY(sl_products_multiply(context, product,
                                sl_gemm_floats(product, (int)count, operand(mla, context, GRADIENT),
                                               operand(mla, context, KERNEL), NULL, false,
                                               sl_at(context, &mla->all.gradient[0]))));
    SL_TRY(sl_context_scatter(context, &mla->all, 0, own));
    if (!peers) return SL_OK;
    return sl_communicate(context, sl_describe_shares_of_sum(false, peers, own, dx, 2, shape, 1));
}
