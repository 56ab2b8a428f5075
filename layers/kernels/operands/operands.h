/* operands.h - results that products alone read, written as the bf16 that these read, without floats beside them.
 *
 * They are the results of the kernels of floats, rounded to the nearest, ties to even. All arrays have N elements, but
 * for those of rows. */
#ifndef SL_LAYERS_KERNELS_OPERANDS_OPERANDS_H
#define SL_LAYERS_KERNELS_OPERANDS_OPERANDS_H

#include "spmd/base/base.h"
#include "spmd/base/bf16.h"

SL_BEGIN_C

struct sl_operand_kernels {
    /* y [rows, cols] of sl_kernels' layer_norm_forward, whose other arrays are floats */
    void (*layer_norm_forward)(size_t rows, size_t cols, const float *x, const float *scale, const float *bias,
                               float epsilon, float *normalized, float *rstd, uint16_t *y);
    /* y = a b, of sl_kernels' multiply */
    void (*multiply)(size_t n, const float *a, const float *b, uint16_t *y);
    /* y = silu(x), and slope = silu'(x) as floats, of sl_kernels' silu_dropout_forward without dropout, which has a
     * kernel of its own on devices (dropout.h); SLOPE may be X. */
    void (*silu_forward)(size_t n, const float *x, uint16_t *y, float *slope);
};

extern const struct sl_operand_kernels sl_operand_kernels_v2, sl_operand_kernels_v3, sl_operand_kernels_v4;
extern const struct sl_operand_kernels sl_operand_kernels_device; /* in builds for devices */

SL_END_C
#endif
