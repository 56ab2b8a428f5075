/* optimizer_sgd.c - stochastic gradient descent as torch.optim.SGD defines it (PyTorch's documentation; dampening 0):
 *
 *     g = gradient + decay p                  weight decay is part of the gradient, and so of the momentum
 *     m = momentum m + g                      m begins as 0; without momentum there is no m, and d = g
 *     d = m, with Nesterov g + momentum m
 *     p = p - learning_rate d */
#include "layers/training/optimizers/optimizer.h"
#include "spmd/device/offload.h"

enum { MOMENTUM };

static void update_plainly(const struct sl_optimizer_options *options, const struct sl_optimizer_run *run) {
    const float rate = options->learning_rate, decay = run->decay, scale = run->gradient_scale;
    const float *gradient = run->gradient;
    float *value = run->value;
    const size_t n = run->count;
    SL_ELEMENTWISE(is_device_ptr(gradient, value))
    for (size_t i = 0; i < n; i++) value[i] -= rate * (gradient[i] * scale + decay * value[i]);
}

static void update_with_momentum(const struct sl_optimizer_options *options, const struct sl_optimizer_run *run) {
    const float rate = options->learning_rate, decay = run->decay, scale = run->gradient_scale;
    const float factor = options->momentum;
    const bool nesterov = options->nesterov;
    const float *gradient = run->gradient;
    float *value = run->value, *momentum = run->state[MOMENTUM];
    const size_t n = run->count;
    SL_ELEMENTWISE(is_device_ptr(gradient, value, momentum))
    for (size_t i = 0; i < n; i++) {
        const float p = value[i], g = gradient[i] * scale + decay * p, m = factor * momentum[i] + g;
        momentum[i] = m;
        value[i] = p - rate * (nesterov ? g + factor * m : m);
    }
}

static void update(const struct sl_optimizer_options *options, const struct sl_kernels *kernels,
                   const struct sl_optimizer_run *run) {
    (void)kernels;
    if (options->momentum > 0.0f)
        update_with_momentum(options, run);
    else
        update_plainly(options, run);
}

static int states(const struct sl_optimizer_options *options) { return options->momentum > 0.0f ? 1 : 0; }

static int check(const struct sl_optimizer_options *options, struct sl_error *error) {
    if (!options->nesterov || options->momentum > 0.0f) return SL_OK;
    return sl_error_set(error, SL_BAD_INPUT, "optimizer sgd: nesterov needs a momentum above 0");
}

const struct sl_optimizer sl_sgd = {
    .name = "sgd",
    .help = "stochastic gradient descent, weight decay as part of the gradient",
    .state = {[MOMENTUM] = "momentum"},
    .settings = {"momentum", "nesterov"},
    .states = states,
    .check = check,
    .update = update,
};
