/* operands.h - kernels with results in the next kernel's input form, written in the pass that computes them: floats;
 * bf16, if only products read them; or, if storage is bf16, bf16 with or without rounded floats.
 *
 * The bf16 results are the float kernels' results, rounded to the nearest, ties to even. All arrays have N elements. */
#ifndef SL_LAYERS_KERNELS_OPERANDS_OPERANDS_H
#define SL_LAYERS_KERNELS_OPERANDS_OPERANDS_H

#include "spmd/base/base.h"
#include "spmd/base/numbers/dtype.h"
#include "spmd/random.h"

SL_BEGIN_C

/* The random words of dropout's elements. On hosts the caller draws them, because drawing whole vectors of words is
 * faster. On devices kernels draw them, with the bits of sl_draws' words_each and words_global. */
struct sl_dropout_words {
    const uint32_t *at;        /* the words, [elements]; NULL: drawn by the kernel, where */
    const struct sl_key *keys; /* element i of part k has word i of keys[k * next], out of PART words; */
    size_t parts, next;
    uint32_t part;
    struct sl_key key; /* if KEYS is NULL, the word of its global row and column, by this key */
    uint32_t first_row, rows, first_col, cols;
};

/* The arrays that dropout reads and writes, with or without silu. mask is 1 or 0 for each element. */
struct sl_dropout_arrays {
    size_t count;       /* elements of each array */
    bool silu;          /* y = silu(x) mask / keep; otherwise y = x mask / keep */
    struct sl_rows x;   /* floats; bf16 only if the kernel draws the words */
    uint32_t threshold; /* mask is 1 if the upper 23 bits of the element's word are below this */
    float keep;
    struct sl_out y;      /* in any form if slope is bf16 or the kernel draws the words; otherwise floats, perhaps x */
    struct sl_rows slope; /* dy/dx; if it is floats, it may be x */
};

struct sl_operand_kernels {
    /* y = a b. If a and b are floats, y is bf16, or floats, and then it may be a or b. If b, a saved slope, is bf16,
     * then a is a gradient in bf16 or in unrounded floats, which are rounded while they are read; y has any form. */
    void (*multiply)(size_t n, struct sl_rows a, struct sl_rows b, struct sl_out y);
    /* y = silu(x), slope = silu'(x). If slope is floats, x is floats, and y floats or bf16; y and slope may be x. If
     * slope is bf16, x is floats or bf16, and y has any form. */
    void (*silu)(size_t n, struct sl_rows x, struct sl_out y, struct sl_rows slope);
    void (*dropout)(const struct sl_dropout_words *words, const struct sl_dropout_arrays *arrays);
};

extern const struct sl_operand_kernels sl_operand_kernels_v2, sl_operand_kernels_v3, sl_operand_kernels_v4;
extern const struct sl_operand_kernels sl_operand_kernels_device; /* in builds for devices */

SL_END_C
#endif
