/* adamw.c - AdamW over flat storage. */
#include "layers/training/adamw.h"

#include <math.h>

struct sl_adamw sl_adamw_defaults(float learning_rate) {
    return (struct sl_adamw){
        .learning_rate = learning_rate, .beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-8f, .decay = 1e-4f};
}

/* 1 - beta^step; in float, as JAX computes it, the cancellation in the first steps is part of optax's numbers: up to
 * 3e-5 of an update. */
static float correction(const struct sl_adamw *adamw, double beta, int64_t step) {
    return adamw->exact ? (float)(1.0 - pow(beta, (double)step)) : 1.0f - powf((float)beta, (float)step);
}

/* Elements [first, end) of the loop's flat range that lie in the shard. */
static void update_run(const struct sl_kernels *kernels, const struct sl_adamw_step *step, const struct sl_range *loop,
                       size_t first, size_t end) {
    const size_t shard_end = loop->shard + loop->shard_count;
    if (first < loop->shard) first = loop->shard;
    if (end > shard_end) end = shard_end;
    if (first >= end) return;
    const size_t state = first - loop->shard;
    kernels->adamw(end - first, step, loop->gradient + first, loop->value + first, loop->first_moment + state,
                   loop->second_moment + state);
}

void sl_adamw_update(const struct sl_adamw *adamw, const struct sl_kernels *kernels, struct sl_parameters *parameters,
                     int range, int64_t step, float gradient_scale) {
    const struct sl_range *storage = &parameters->range[range];
    struct sl_adamw_step constants = {
        .learning_rate = adamw->learning_rate,
        .beta1 = (float)adamw->beta1,
        .beta2 = (float)adamw->beta2,
        .rest1 = (float)(1.0 - adamw->beta1),
        .rest2 = (float)(1.0 - adamw->beta2),
        .epsilon = adamw->epsilon,
        .correction1 = correction(adamw, adamw->beta1, step),
        .correction2 = correction(adamw, adamw->beta2, step),
        .gradient_scale = gradient_scale,
    };
    /* A run ends where the next parameter with another flag begins; the last one takes the padding along. */
    size_t first = 0;
    for (int i = 0; i < parameters->count; i++) {
        const struct sl_parameter *parameter = &parameters->list[i];
        const float decay = parameter->decay ? adamw->decay : 0.0f;
        if (parameter->range != range || parameter->second) continue;
        if (decay != constants.decay) {
            update_run(kernels, &constants, storage, first, parameter->offset);
            first = parameter->offset;
            constants.decay = decay;
        }
    }
    update_run(kernels, &constants, storage, first, storage->count);
}
