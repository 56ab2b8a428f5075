/* norm.h - what layer_norm and rms_norm share: a factor and a shift of each column, and where their gradients come
 * from.
 */
#ifndef SL_LAYERS_MODULES_FEEDFORWARD_NORM_H
#define SL_LAYERS_MODULES_FEEDFORWARD_NORM_H

#include "layers/modules/module.h"

SL_BEGIN_C

#define SL_NORM_EPSILON 1e-6

enum { SL_NORM_FACTOR, SL_NORM_SHIFT }; /* parameters: scale and bias, gamma and beta */

/* What these modules' own structs begin with. */
struct sl_norm {
    struct sl_module module;
    struct sl_place rstd;   /* [rows]: the factor by which a row was multiplied */
    struct sl_place sum[2]; /* of each parameter: [columns], the microbatch's gradient, which I leaves */
};

static inline const struct sl_norm *sl_norm_of(const struct sl_module *module) {
    return (const struct sl_norm *)module;
}

/* SUM in the stash. */
static inline int sl_norm_plan_sums(struct sl_norm *norm, struct sl_plan *plan) {
    for (int i = SL_NORM_FACTOR; i <= SL_NORM_SHIFT; i++)
        SL_TRY(sl_plan_stash(plan, (size_t)norm->module.in, &norm->sum[i]));
    return SL_OK;
}

/* Adds up the microbatches' sums. */
static inline int sl_norm_backward_weight(const struct sl_module *module, struct sl_context *context, const float *x,
                                          const float *dy) {
    (void)x, (void)dy;
    for (int i = SL_NORM_FACTOR; i <= SL_NORM_SHIFT; i++)
        context->kernels->column_sums((size_t)context->wgrad_group, (size_t)module->in,
                                      sl_at(context, &sl_norm_of(module)->sum[i]), context->accumulate,
                                      sl_gradient(module, context, i));
    return SL_OK;
}

SL_END_C
#endif
