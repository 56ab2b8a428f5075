/* norm.h - common parts of layer_norm and rms_norm: each multiplies a column by a factor and adds a shift. The
 * gradients of these two parameters are sums over rows; I computes each microbatch's sum, and W adds the sums up. */
#ifndef SL_LAYERS_MODULES_NORMS_NORM_H
#define SL_LAYERS_MODULES_NORMS_NORM_H

#include "layers/modules/module.h"

SL_BEGIN_C

#define SL_NORM_EPSILON 1e-6

enum { SL_NORM_FACTOR, SL_NORM_SHIFT }; /* numbers of the parameters: scale and bias, or gamma and beta */

/* The own structs of both modules begin with this one. */
struct sl_norm {
    struct sl_module module;
    bool no_shift;          /* has only the factor */
    struct sl_place rstd;   /* [rows]: the normalizing factor of each row */
    struct sl_place sum[2]; /* [columns] for each parameter: the microbatch's gradient, computed by I */
};

/* Adds the work on rows of COLUMNS to the plan's load. */
void sl_norm_count(const struct sl_plan *plan, int columns);
/* Plans norm->sum in the stash. */
int sl_norm_plan_sums(struct sl_norm *norm, struct sl_plan *plan);
/* The types' backward_weight: sums norm->sum over the microbatches. */
int sl_norm_backward_weight(const struct sl_module *module, struct sl_context *context, struct sl_given x,
                            struct sl_given dy);

SL_END_C
#endif
