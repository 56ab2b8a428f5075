/* mla_operands.c - operands of kv_up for other products than its own: all latents, and the kernel's columns and the
 * bias of this coordinate's heads. */
#include "layers/modules/feedforward/affine.h"
#include "layers/modules/sequence/mla/mla_internal.h"
#include "layers/modules/transformer_modules.h"
#include "spmd/device/device.h"

int sl_mla_all_latents(const struct sl_module *module, struct sl_context *context, const float *latents,
                       const float **all) {
    const struct mla *mla = sl_mla_of(module);
    const struct sl_group *peers = sl_group_of(context, mla->group);
    const size_t shape[] = {(size_t)context->rows, mla->latent};
    float *const gathered = peers ? sl_mla_at(module, context, ALL_LATENT) : NULL;
    *all = peers ? gathered : latents;
    if (!peers) return SL_OK;
    return sl_communicate(context, sl_describe_all_gather_dim(peers, SL_F32, latents, gathered, 2, shape, 1));
}

const float *sl_mla_bias(const struct sl_module *module, const struct sl_context *context, bool values) {
    const struct mla *mla = sl_mla_of(module);
    const struct sl_group *peers = sl_group_of(context, mla->group);
    const size_t keys = peers ? (size_t)mla->shape.dimension : mla->columns;
    const size_t first = peers ? (size_t)peers->rank * mla->columns : 0;
    return sl_value(module->child[KV_UP], context, SL_AFFINE_BIAS) + (values ? keys : 0) + first;
}

int sl_mla_take_columns(const struct sl_module *module, struct sl_context *context) {
    const struct mla *mla = sl_mla_of(module);
    float *const bias = sl_at(context, &mla->bias);
    for (int values = 0; values < 2; values++)
        sl_device.copy(bias + (values ? mla->columns : 0), sl_mla_bias(module, context, values),
                       mla->columns * sizeof *bias);
    return sl_sharded_dense_columns(module->child[KV_UP], context, sl_at(context, &mla->kernel));
}
