/* cut.h - sequences whose rows are divided over an axis of the mesh ("context").
 *
 * A sequence is cut into 2 blocks for each of PARTS coordinates. Coordinate PART has block PART, and after it block
 * 2 PARTS - 1 - PART: one near the sequence's beginning and one near its end, so that causal attention is equal work
 * for all of them. If nothing is divided, the sequence is one block. */
#ifndef SL_SPMD_CUT_H
#define SL_SPMD_CUT_H

#include "spmd/base/base.h"

SL_BEGIN_C

struct sl_cut {
    int parts, part; /* parts 0 counts as 1 */
};

static inline int sl_cut_parts(struct sl_cut cut) { return cut.parts > 1 ? cut.parts : 1; }
/* Blocks of a sequence on each coordinate. */
static inline int sl_cut_blocks(struct sl_cut cut) { return cut.parts > 1 ? 2 : 1; }
/* Number of the coordinate's block BLOCK (0 or 1) among the blocks of the whole sequence. */
static inline int sl_cut_block(struct sl_cut cut, int block) { return block ? 2 * cut.parts - 1 - cut.part : cut.part; }
/* Position in the whole sequence of the coordinate's row ROW of SEQUENCE. */
static inline int sl_cut_position(struct sl_cut cut, int sequence, int row) {
    const int rows = sequence / sl_cut_blocks(cut);
    return sl_cut_block(cut, row / rows) * rows + row % rows;
}
/* Number of a row among the rows of all whole sequences. ROW is its number among this coordinate's rows of all
 * sequences, each of SEQUENCE rows. */
static inline uint32_t sl_cut_row(struct sl_cut cut, uint32_t sequence, uint32_t row) {
    const uint32_t parts = (uint32_t)cut.parts;
    if (parts < 2) return row;
    return row / sequence * sequence * parts + (uint32_t)sl_cut_position(cut, (int)sequence, (int)(row % sequence));
}

SL_END_C
#endif
