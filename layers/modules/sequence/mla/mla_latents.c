/* mla_latents.c - the latent between down and the products that read its halves, and its gradient.
 *
 * These two products, and down's product for the gradient, may read only bf16 and accept columns of wider rows. If so,
 * the latent and its gradient are stored once as bf16, without copies. Otherwise kv_up and q_up have copies of their
 * halves, and their gradients are copied to their places. */
#include "layers/modules/sequence/mla/mla_internal.h"

/* ---- planning ---- */

int sl_mla_latent_stride(const struct mla *mla, const struct sl_plan *plan) {
    const struct sl_module *down = mla->module.child[DOWN];
    if (mla->rope || plan->caches || plan->forward_only) return 0;
    const bool bf16 = plan->storage == SL_F32 ? sl_reads_operand(&down->y) : sl_reads_copy(&down->y);
    return bf16 ? 2 * (int)mla->latent : 0;
}

/* Lifetime of a child's x; CHILD may be an absent one. */
static enum sl_lifetime lifetime_of_input(const struct sl_module *module, int child) {
    if (child == KV_UP && sl_mla_of(module)->by_latents) return SL_UNTIL_INPUT;
    return child < module->children ? module->child[child]->x.lasts : SL_UNTIL_RETURN;
}

/* Returns whether products read both halves directly in the latent. */
static bool cuts_nothing(const struct mla *mla) {
    return mla->module.child[KV_UP]->x_stride > 0 && mla->module.child[Q_UP]->x_stride > 0;
}

/* Plans child I's x, ROWS of the latent's columns: in the latent; as a copy with rows of the latent's width, if this
 * child accepts them but the other one does not; or as a dense copy. */
static int plan_part(struct mla *mla, struct sl_plan *plan, size_t rows, int i) {
    struct sl_module *child = mla->module.child[i];
    struct sl_kept *kept = &mla->kept[sl_mla_input[i]];
    const size_t half = rows * mla->latent, wide = child->x_stride > 0 ? 2 : 1;
    if (cuts_nothing(mla))
        *kept = mla->kept[LATENT];
    else
        SL_TRY(sl_plan_kept_input(plan, child, wide * half, lifetime_of_input(&mla->module, i), SL_BESIDE, kept));
    kept->count = half;
    kept->column = i == Q_UP && child->x_stride > 0 ? mla->latent : 0;
    return SL_OK;
}

/* Returns whether child I reads its half of the latent only as bf16. */
static bool rounds_part(const struct mla *mla, int i) {
    return mla->kept[sl_mla_input[i]].stores && sl_reads_copy(&mla->module.child[i]->x);
}

/* The whole latent has two readers with the same needs. */
int sl_mla_plan_latents(struct mla *mla, struct sl_plan *plan) {
    const struct sl_module *module = &mla->module;
    const enum sl_lifetime keys = lifetime_of_input(module, K_ROPE), queries = lifetime_of_input(module, Q_ROPE);
    const size_t rows = (size_t)plan->rows, half = rows * mla->latent;
    struct sl_kept *kept = mla->kept;
    if (mla->rope && sl_reads_operand(&module->child[K_ROPE]->x) && sl_reads_operand(&module->child[Q_ROPE]->x)) {
        SL_TRY(sl_plan_kept_input(plan, module->child[K_ROPE], 2 * half, keys, SL_BESIDE, &kept[LATENT]));
    } else if (cuts_nothing(mla)) {
        SL_TRY(sl_plan_kept_input(plan, module->child[KV_UP], 2 * half, SL_UNTIL_WEIGHT, SL_ALONE, &kept[LATENT]));
        kept[LATENT].form = SL_ALONE;
    } else {
        SL_TRY(sl_plan_kept(plan, 2 * half, sl_longer(keys, queries), &kept[LATENT]));
    }
    for (int i = KV_UP; i <= Q_UP; i++) SL_TRY(plan_part(mla, plan, rows, i));
    if (!mla->rope && !plan->caches && !cuts_nothing(mla) && rounds_part(mla, KV_UP) && rounds_part(mla, Q_UP))
        kept[LATENT].form = SL_WHOLE; /* its only reader is the pass that splits it and rounds the halves */
    return SL_OK;
}

/* ---- forward and backward ---- */

/* Copies child I's x from the latent's columns, also as bf16 if it is saved so. */
static void cut_part(const struct sl_module *module, const struct sl_context *context, int i, const float *latent) {
    const struct mla *mla = sl_mla_of(module);
    const struct sl_sequence_kernels *kernels = context->kernels->sequence;
    const struct sl_kept *kept = &mla->kept[sl_mla_input[i]];
    const size_t rows = (size_t)context->rows, columns = mla->latent;
    if (kept->stores)
        kernels->round_block(rows, columns, latent, 2 * columns, sl_kept_halves(context, kept),
                             mla->module.child[i]->x_stride > 0 ? 2 * columns : columns);
    if (!rounds_part(mla, i) || context->caches)
        kernels->copy_block(rows, columns, latent, 2 * columns, sl_kept_values(context, kept), columns);
}

void sl_mla_cut(const struct sl_module *module, const struct sl_context *context, const float *latent) {
    if (cuts_nothing(sl_mla_of(module))) return;
    cut_part(module, context, KV_UP, latent);
    cut_part(module, context, Q_UP, latent + sl_mla_of(module)->latent);
}

int sl_mla_latent_gradient(const struct sl_module *module, struct sl_context *context) {
    const struct mla *mla = sl_mla_of(module);
    const size_t rows = (size_t)context->rows, half = mla->latent;
    float *latent = sl_mla_at(module, context, D_LATENT), *part = sl_mla_at(module, context, PART);
    const struct sl_out settled = sl_mla_out(module, context, D_LATENT);
    uint16_t *stored = sl_out_halves(settled);
    const struct sl_sequence_kernels *kernels = context->kernels->sequence;
    const struct sl_given none = sl_given_f32(NULL); /* these children's x is not the module's */
    for (int i = KV_UP; i <= Q_UP; i++) {
        const size_t first = i == Q_UP ? half : 0;
        if (module->child[i]->x_stride > 0) {
            struct sl_result columns = {.floats = part, .halves = stored + first, .form = SL_ALONE};
            SL_TRY(sl_mla_backward_input(module, context, i, none, &columns));
            continue;
        }
        if (i == KV_UP && mla->by_latents) SL_TRY(sl_mla_expand_backward(module, context, part));
        SL_TRY(sl_mla_backward_input(module, context, i, none, SL_INTO(part)));
        kernels->copy_settled(rows, half, part, half, sl_out_from(mla->rope ? sl_out_f32(latent) : settled, first),
                              2 * half);
    }
    for (int i = K_ROPE; i < module->children; i++) {
        SL_TRY(sl_mla_backward_input(module, context, i, none, SL_INTO(part)));
        if (i == module->children - 1 && settled.rounds)
            context->kernels->add_settled(rows * 2 * half, part, latent, stored);
        else
            context->kernels->add(rows * 2 * half, part, latent);
    }
    return SL_OK;
}
