/* operands.h - results that are written as bf16 in the pass that computes them: what products alone read, without
 * floats beside it; and where the storage is bf16, what is kept, too.
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

    /* Where the storage is bf16. Y, or DX, is left as LEFT says, and is NULL where only what is stored will be read;
     * all that is read as bf16 is widened first.
     *
     * y = silu(x), of floats, or of bf16 if HALF; slope = silu'(x) */
    void (*silu_kept)(size_t n, const void *x, bool half, float *y, struct sl_settled left, uint16_t *slope);
    /* y and slope of sl_kernels' silu_dropout_forward with WORDS, or, without SILU, of its dropout_forward: on hosts */
    void (*dropout_kept)(size_t n, bool silu, const float *x, const uint32_t *words, uint32_t threshold, float keep,
                         float *y, struct sl_settled left, uint16_t *slope);
    /* dx = dy slope, of a dy that is bf16 if HALF, or else floats, which are rounded as they are read, as nobody has
     * done so yet */
    void (*multiply_kept)(size_t n, const void *dy, bool half, const uint16_t *slope, float *dx,
                          struct sl_settled left);
};

extern const struct sl_operand_kernels sl_operand_kernels_v2, sl_operand_kernels_v3, sl_operand_kernels_v4;
extern const struct sl_operand_kernels sl_operand_kernels_device; /* in builds for devices */

SL_END_C
#endif
