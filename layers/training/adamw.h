/* adamw.h - AdamW over flat storage (Loshchilov & Hutter 2019, optax's order of operations). */
#ifndef SL_LAYERS_TRAINING_ADAMW_H
#define SL_LAYERS_TRAINING_ADAMW_H

#include "layers/modules/parameters.h"

SL_BEGIN_C

struct sl_adamw {
    float learning_rate;
    double beta1, beta2; /* double, as 1 - beta is taken before it is rounded to float */
    float epsilon, decay;
    bool exact; /* 1 - beta^step is computed in double, otherwise in float, as optax does */
};

/* optax.adamw's defaults: beta1 0.9, beta2 0.999, epsilon 1e-8, decay 1e-4. */
struct sl_adamw sl_adamw_defaults(float learning_rate);

/* Updates RANGE's shard [shard, shard + shard_count) of the values from the gradients times GRADIENT_SCALE. STEP counts
 * from 1. */
void sl_adamw_update(const struct sl_adamw *adamw, const struct sl_kernels *kernels, struct sl_parameters *parameters,
                     int range, int64_t step, float gradient_scale);

SL_END_C
#endif
