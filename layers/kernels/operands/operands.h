/* operands.h - results that are written as they will be read, in the pass that computes them: as floats, as bf16 where
 * products alone read them, and, where the storage is bf16, as that, with rounded floats beside it or without.
 *
 * Bf16 is the result of the kernels of floats, rounded to the nearest, ties to even. All arrays have N elements. */
#ifndef SL_LAYERS_KERNELS_OPERANDS_OPERANDS_H
#define SL_LAYERS_KERNELS_OPERANDS_OPERANDS_H

#include "spmd/base/base.h"
#include "spmd/base/dtype.h"

SL_BEGIN_C

struct sl_operand_kernels {
    /* y = a b. Floats of a and b: y as floats, which may be a or b, or as bf16. Bf16 of b, a slope that is kept so: of
     * a gradient a in bf16, or of floats, which are rounded as they are read, as nobody has done so yet; y in any form.
     */
    void (*multiply)(size_t n, struct sl_rows a, struct sl_rows b, struct sl_out y);
    /* y = silu(x), slope = silu'(x). Floats of slope: of floats of x, with y as floats or as bf16; the two may be x.
     * Bf16 of slope: of floats or bf16 of x, with y in any form. */
    void (*silu)(size_t n, struct sl_rows x, struct sl_out y, struct sl_rows slope);
    /* Y and slope of silu(x), or, without SILU, of x, of floats of x; both are multiplied by mask / keep, where mask[i]
     * is 1 if words[i] >> 9 < threshold and 0 otherwise. Floats of slope: with y as floats, which may be x. Bf16 of
     * slope: with y in any form. Devices have kernels that draw the words (dropout.h). */
    void (*dropout)(size_t n, bool silu, struct sl_rows x, const uint32_t *words, uint32_t threshold, float keep,
                    struct sl_out y, struct sl_rows slope);
};

extern const struct sl_operand_kernels sl_operand_kernels_v2, sl_operand_kernels_v3, sl_operand_kernels_v4;
extern const struct sl_operand_kernels sl_operand_kernels_device; /* in builds for devices */

SL_END_C
#endif
