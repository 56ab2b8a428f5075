/* gradient_check.h - compares a module's backward functions with finite differences of its forward function. */
#ifndef SL_LAYERS_MODULES_GRADIENT_CHECK_H
#define SL_LAYERS_MODULES_GRADIENT_CHECK_H

#include "layers/modules/module.h"

SL_BEGIN_C

struct sl_gradient_check {
    /* Rows of a microbatch; number of microbatches; how many of them one backward_weight call takes. */
    int rows, microbatches, wgrad_group;
    int sequence; /* rows of a sequence; 0: rows are independent of each other */
    float step;   /* of the central differences, which are taken with it and with twice of it; 0: 1e-2 */
    uint64_t seed;
    /* Of backward's run, SL_F32 or SL_BF16: of what it keeps, and of products' operands. The differences are those of
     * floats in any case: so gradients differ by what rounding does to them. */
    enum sl_dtype storage, precision;
    const char *frozen;               /* patterns of parameters whose gradients W leaves out; NULL: none */
    const struct sl_kernels *kernels; /* NULL: sl_kernels_select's */
};

/* Plans MODULE on one coordinate, draws x, dy and the parameters from the seed, and compares the gradients of sum(y *
 * dy), summed in double. *DIFFERENCE receives the largest relative difference among dx and the parameters' gradients:
 * the norm of the difference over the norm of the tensor's gradient. WORST[96] (may be NULL) receives that tensor's
 * name. A correct module differs by about 1e-4.
 *
 * MODULE may be of any type but a loss, which has no backward functions: SL_BAD_INPUT. Of a tensor with more than 200
 * elements only a sample is compared. W is run with and without dx, and the two results are compared, too; a module
 * that touches dx on the host though it is NULL is SL_BAD_INPUT. The difference is infinite if the module leaves
 * elements unwritten, or adds to an array that it should overwrite. */
int sl_gradient_check(struct sl_module *module, const struct sl_gradient_check *check,
                      const struct sl_gemm_backend *gemm, double *difference, char *worst, struct sl_error *error);

SL_END_C
#endif
