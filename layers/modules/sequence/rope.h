/* rope.h - tables of cosines and sines for rotary positions (Su et al. 2021), in memory that the device can read.
 *
 * Position t, counted from 0, rotates pair i of COLUMNS columns by the angle (t + 1) 10000^(-2i / COLUMNS). A
 * coordinate's table has only the pairs that it rotates. */
#ifndef SL_LAYERS_MODULES_SEQUENCE_ROPE_H
#define SL_LAYERS_MODULES_SEQUENCE_ROPE_H

#include "spmd/base/error.h"

SL_BEGIN_C

struct sl_rope {
    int positions, columns;
    int first, pairs;     /* the coordinate's pairs, out of COLUMNS / 2 */
    float *cosine, *sine; /* [positions, pairs], both in one block; NULL: not open */
};

/* Takes and fills ROPE's table. Does nothing if it is open with the same numbers. SL_FAILED if there is no memory. Free
 * with sl_rope_close. */
int sl_rope_open(struct sl_rope *rope, int positions, int columns, int first, int pairs, struct sl_error *error);
void sl_rope_close(struct sl_rope *rope);

SL_END_C
#endif
