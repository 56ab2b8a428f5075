/* optimizer_adamw.c - AdamW (Loshchilov & Hutter, "Decoupled Weight Decay Regularization", ICLR 2019) in optax's order
 * of operations. The formula is at struct sl_adamw_step in layers/kernels/kernels.h. */
#include <math.h>

#include "layers/training/optimizers/optimizer.h"

enum { FIRST_MOMENT, SECOND_MOMENT };

/* 1 - beta^step. In float, as JAX computes it, cancellation in the first steps changes up to 3e-5 of an update, as in
 * optax. */
static float correction(const struct sl_optimizer_options *options, double beta, int64_t step) {
    return options->exact ? (float)(1.0 - pow(beta, (double)step)) : 1.0f - powf((float)beta, (float)step);
}

static void update(const struct sl_optimizer_options *options, const struct sl_kernels *kernels,
                   const struct sl_optimizer_run *run) {
    const struct sl_adamw_step step = {
        .learning_rate = options->learning_rate,
        .beta1 = (float)options->beta1,
        .beta2 = (float)options->beta2,
        .rest1 = (float)(1.0 - options->beta1),
        .rest2 = (float)(1.0 - options->beta2),
        .epsilon = options->epsilon,
        .decay = run->decay,
        .correction1 = correction(options, options->beta1, run->step),
        .correction2 = correction(options, options->beta2, run->step),
        .gradient_scale = run->gradient_scale,
        .shared = run->shared,
        .hash = run->hash,
    };
    kernels->adamw(run->count, &step, run->gradient, run->addend, run->value, run->rounded, run->state[FIRST_MOMENT],
                   run->state[SECOND_MOMENT]);
}

const struct sl_optimizer sl_adamw = {
    .name = "adamw",
    .help = "AdamW, with decoupled weight decay",
    .state = {[FIRST_MOMENT] = "first_moment", [SECOND_MOMENT] = "second_moment"},
    .settings = {"beta1", "beta2", "epsilon"},
    .defaults = {.beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-8f, .decay = 1e-4f},
    .adds = true,
    .rounds = true,
    .hashes = true,
    .update = update,
};
