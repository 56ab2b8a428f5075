/* operands.h - kernels with results in the next kernel's input form, written in the pass that computes them: floats;
 * bf16, if only products read them; or, if storage is bf16, bf16 with or without rounded floats.
 *
 * The bf16 results are the float kernels' results, rounded to the nearest, ties to even. All arrays have N elements. */
#ifndef SL_LAYERS_KERNELS_OPERANDS_OPERANDS_H
#define SL_LAYERS_KERNELS_OPERANDS_OPERANDS_H

#include "spmd/base/base.h"
#include "spmd/base/numbers/dtype.h"

SL_BEGIN_C

struct sl_operand_kernels {
    /* y = a b. If a and b are floats, y is floats, and may be a or b, or bf16. If b is bf16, a saved slope, then a is a
     * gradient in bf16, or in unrounded floats, which are rounded while they are read; y has any form. */
    void (*multiply)(size_t n, struct sl_rows a, struct sl_rows b, struct sl_out y);
    /* y = silu(x), slope = silu'(x). If slope is floats, x is floats, and y floats or bf16; y and slope may be x. If
     * slope is bf16, x is floats or bf16, and y has any form. */
    void (*silu)(size_t n, struct sl_rows x, struct sl_out y, struct sl_rows slope);
    /* y and slope of silu(x), or of x without SILU, both multiplied by mask / keep; x is floats. mask[i] is 1 if
     * words[i] >> 9 < threshold and 0 otherwise. If slope is floats, y is floats, and may be x. If slope is bf16, y has
     * any form. Devices use kernels that draw the words (dropout.h). */
    void (*dropout)(size_t n, bool silu, struct sl_rows x, const uint32_t *words, uint32_t threshold, float keep,
                    struct sl_out y, struct sl_rows slope);
};

extern const struct sl_operand_kernels sl_operand_kernels_v2, sl_operand_kernels_v3, sl_operand_kernels_v4;
extern const struct sl_operand_kernels sl_operand_kernels_device; /* in builds for devices */

SL_END_C
#endif
