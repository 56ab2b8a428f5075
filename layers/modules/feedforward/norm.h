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

/* Plans SUM. */
int sl_norm_plan_sums(struct sl_norm *norm, struct sl_plan *plan);
/* Adds up the microbatches' sums. */
int sl_norm_backward_weight(const struct sl_module *module, struct sl_context *context, const float *x,
                            const float *dy);

SL_END_C
#endif
