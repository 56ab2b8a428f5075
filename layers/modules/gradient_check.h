/* gradient_check.h - compares a module's backward functions with finite differences of its forward. */
#ifndef SL_LAYERS_MODULES_GRADIENT_CHECK_H
#define SL_LAYERS_MODULES_GRADIENT_CHECK_H

#include "layers/modules/module.h"

SL_BEGIN_C

struct sl_gradient_check {
    int rows, microbatches, wgrad_group; /* rows a microbatch; weight gradients in groups of this many microbatches */
    int sequence;                        /* rows of a sequence; 0: rows have nothing to do with each other */
    float step;                          /* of the central differences, which also take twice of it; 0: 1e-2 */
    uint64_t seed;
};

/* Plans MODULE (any but a loss, which has no backward functions) on one coordinate, draws x, dy and parameters from the
 * seed, and writes the largest relative difference (difference over the norm of the tensor's gradient) of dx and of
 * every parameter's gradient to *DIFFERENCE, and the name of the worst tensor to WORST[96] (may be NULL). The loss is
 * sum(y * dy), summed in double; a correct module differs by about 1e-4. Tensors of more than 200 elements are sampled.
 * W is also compared with and without dx. What a module leaves unwritten, or adds to where it should overwrite, gives
 * an infinite difference. */
int sl_gradient_check(struct sl_module *module, const struct sl_gradient_check *check,
                      const struct sl_gemm_backend *gemm, double *difference, char *worst, struct sl_error *error);

SL_END_C
#endif
