/* mla_attend.c - attention of latent attention's heads to a call's own tokens, and the children's inputs. */
#include "layers/modules/sequence/mla/mla_internal.h"

#include "layers/modules/leaves.h"

struct sl_attention sl_mla_attention(const struct mla *mla, int rows, int sequence) {
    return (struct sl_attention){.sequences = (size_t)(rows / sequence),
                                 .queries = (size_t)sequence,
                                 .key_rows = (size_t)sequence,
                                 .heads = mla->heads,
                                 .width = mla->columns / mla->heads,
                                 .rope = mla->rope,
                                 .products = mla->precision,
                                 .key_stride = 2 * mla->columns};
}

/* TENSOR in the type read by forward's attention. */
static const void *attended(const struct sl_module *module, const struct sl_context *context, enum tensor tensor) {
    return sl_kept_if(context, &sl_mla_of(module)->kept[tensor], sl_mla_of(module)->reads_stored);
}

int sl_mla_attend(const struct sl_module *module, struct sl_context *context, struct sl_out o) {
    const struct mla *mla = sl_mla_of(module);
    struct sl_attention shape = sl_mla_attention(mla, context->rows, context->sequence);
    shape.places = context->batch.places;
    shape.keys = shape.stored_q = mla->reads_stored ? SL_BF16 : SL_F32;
    const void *keys_values = attended(module, context, KEYS_VALUES);
    const void *values = (const char *)keys_values + mla->columns * sl_dtype_size(shape.keys);
    const void *keys = mla->rope ? attended(module, context, ROTATED_KEYS) : NULL;
    const void *queries = mla->rope ? attended(module, context, ROTATED_QUERIES) : NULL;
    if (mla->context.divided)
        return sl_context_forward(context, &mla->context, &shape,
                                  &(struct sl_context_call){.q = attended(module, context, QUERIES),
                                                            .q_rope = queries,
                                                            .own = {mla->by_latents ? NULL : keys_values, keys},
                                                            .to = o,
                                                            .logsum = sl_mla_at(module, context, LOGSUM)});
    const struct sl_context alone = {.kernels = context->kernels}; /* sums to be merged have one order */
    sl_attend(context->caches ? &alone : context, &shape, attended(module, context, QUERIES), queries, keys_values,
              values, keys, o, sl_mla_at(module, context, LOGSUM));
    return SL_OK;
}

struct sl_given sl_mla_stored(const struct sl_module *module, const struct sl_context *context, enum tensor tensor) {
    return sl_kept_saved(context, &sl_mla_of(module)->kept[tensor]);
}

struct sl_given sl_mla_input_of(const struct sl_module *module, const struct sl_context *context, int i,
                                struct sl_given x) {
    return i == DOWN ? x : sl_mla_stored(module, context, sl_mla_input[i]);
}

int sl_mla_backward_input(const struct sl_module *module, struct sl_context *context, int i, struct sl_given x,
                          struct sl_result *dx) {
    return sl_module_backward_input(module->child[i], context, sl_mla_input_of(module, context, i, x),
                                    sl_kept_given(context, &sl_mla_of(module)->kept[sl_mla_gradient[i]]), dx);
}
