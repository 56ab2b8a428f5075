/* dropout.h - dropout, alone and behind silu, that draws its random words itself: for devices, whose memory takes
 * longer than a hash does. One source (dropout.c), built as kernels.c is.
 *
 * The words, and so the bits, are those of sl_draws' words_each and words_global; what is made of them is that of
 * sl_operand_kernels' dropout. */
#ifndef SL_LAYERS_KERNELS_DROPOUT_H
#define SL_LAYERS_KERNELS_DROPOUT_H

#include "spmd/base/dtype.h"
#include "spmd/random.h"

SL_BEGIN_C

/* Which word an element has. */
struct sl_dropout_words {
    const struct sl_key *keys; /* element i of part k has word i of keys[k * next], of PART in all; */
    size_t parts, next;
    uint32_t part;
    struct sl_key key; /* or, where KEYS is NULL, that of its global row and column */
    uint32_t first_row, rows, first_col, cols;
};

/* What is read and written: all [elements]. */
struct sl_dropout_arrays {
    bool silu; /* y is silu of x that is dropped, else x */
    struct sl_rows x;
    uint32_t threshold; /* an element is kept whose word's upper 23 bits are below it, */
    float keep;         /* and divided by this */
    struct sl_out y;
    struct sl_rows slope; /* dy/dx; floats of it may be x */
};

struct sl_dropout_kernels {
    void (*drop)(const struct sl_dropout_words *words, const struct sl_dropout_arrays *arrays);
};

extern const struct sl_dropout_kernels sl_dropout_kernels_v2, sl_dropout_kernels_v3, sl_dropout_kernels_v4;
extern const struct sl_dropout_kernels sl_dropout_kernels_device; /* in builds for devices */

SL_END_C
#endif
