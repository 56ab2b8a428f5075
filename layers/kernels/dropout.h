/* dropout.h - dropout, with or without silu, that draws its own random words: for devices, whose memory takes longer
 * than a hash. One source (dropout.c), built as kernels.c is.
 *
 * The words, and so the bits, are as by sl_draws' words_each and words_global; the results as by sl_operand_kernels'
 * dropout. */
#ifndef SL_LAYERS_KERNELS_DROPOUT_H
#define SL_LAYERS_KERNELS_DROPOUT_H

#include "spmd/base/numbers/dtype.h"
#include "spmd/random.h"

SL_BEGIN_C

/* The words of elements. */
struct sl_dropout_words {
    const struct sl_key *keys; /* element i of part k has word i of keys[k * next], out of PART words; */
    size_t parts, next;
    uint32_t part;
    struct sl_key key; /* if KEYS is NULL, the word of its global row and column, by this key */
    uint32_t first_row, rows, first_col, cols;
};

/* Arrays that are read and written: all [elements]. */
struct sl_dropout_arrays {
    bool silu; /* y is silu(x), then dropped; else x, dropped */
    struct sl_rows x;
    uint32_t threshold; /* elements are kept if the upper 23 bits of their word are below this */
    float keep;         /* kept elements are divided by this */
    struct sl_out y;
    struct sl_rows slope; /* dy/dx; if it is floats, it may be x */
};

struct sl_dropout_kernels {
    void (*drop)(const struct sl_dropout_words *words, const struct sl_dropout_arrays *arrays);
};

extern const struct sl_dropout_kernels sl_dropout_kernels_v2, sl_dropout_kernels_v3, sl_dropout_kernels_v4;
extern const struct sl_dropout_kernels sl_dropout_kernels_device; /* in builds for devices */

SL_END_C
#endif
