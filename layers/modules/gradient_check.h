/* gradient_check.h - compares a module's backward functions with finite differences of its forward function. */
#ifndef SL_LAYERS_MODULES_GRADIENT_CHECK_H
#define SL_LAYERS_MODULES_GRADIENT_CHECK_H

#include "layers/modules/module.h"

SL_BEGIN_C

struct sl_gradient_check {
    /* Rows of a microbatch; number of microbatches; microbatches per backward_weight call. */
    int rows, microbatches, wgrad_group;
    int sequence; /* rows of a sequence; 0: rows are independent of each other */
    float step;   /* step of the central differences, which are taken with it and with twice of it; 0: 1e-2 */
    uint64_t seed;
    /* Types of backward's saved arrays and of products' operands, SL_F32 or SL_BF16. The differences always use
     * float32, so with bf16 the gradients differ by rounding errors. */
    enum sl_dtype storage, precision;
    const char *frozen;               /* patterns of parameters without gradients; NULL: none */
    const struct sl_kernels *kernels; /* NULL: the kernels of sl_kernels_select */
};

/* Plans MODULE on one coordinate, draws x, dy and the parameters from the seed, and compares the gradients of sum(y *
 * dy), summed in double. *DIFFERENCE receives the largest relative difference among dx and the parameters' gradients:
 * the norm of the difference over the norm of the tensor's gradient. WORST[96] (may be NULL) receives that tensor's
 * name. A correct module differs by about 1e-4.
 *
 * MODULE may be of any type with backward functions; a loss has none: SL_BAD_INPUT. Of a tensor with more than 200
 * elements only a sample is compared. W is run with and without dx, and the two results are compared, too; a module
 * whose host code accesses a NULL dx is SL_BAD_INPUT. If the module leaves elements unwritten, or adds to an array that
 * it should overwrite, the difference is infinite. */
int sl_gradient_check(struct sl_module *module, const struct sl_gradient_check *check,
                      const struct sl_gemm_backend *gemm, double *difference, char *worst, struct sl_error *error);

SL_END_C
#endif
