/* rope.h - cosines and sines of rotary positions (Su et al. 2021), where the device reaches them.
 *
 * Position t, counted from 0, rotates pair i of COLUMNS columns by (t + 1) 10000^(-2i / COLUMNS). A coordinate has a
 * table of the pairs that it rotates. */
#ifndef SL_LAYERS_MODULES_SEQUENCE_ROPE_H
#define SL_LAYERS_MODULES_SEQUENCE_ROPE_H

#include "spmd/base/error.h"

SL_BEGIN_C

struct sl_rope {
    int positions, columns;
    int first, pairs;     /* the coordinate's of COLUMNS / 2 */
    float *cosine, *sine; /* [positions, pairs], in one block; NULL: not open */
};

/* Takes and fills in ROPE's table; does nothing where it is open with the same numbers. */
int sl_rope_open(struct sl_rope *rope, int positions, int columns, int first, int pairs, struct sl_error *error);
void sl_rope_close(struct sl_rope *rope);

SL_END_C
#endif
