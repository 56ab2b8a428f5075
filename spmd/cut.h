/* cut.h - sequences whose rows are divided over an axis of the mesh ("context").
 *
 * A sequence is cut into 2 blocks for each of PARTS coordinates. Coordinate PART has block PART, and after it block
 * 2 PARTS - 1 - PART: one near the sequence's beginning and one near its end, so that causal attention is equal work
 * for all of them. If nothing is divided, the sequence is one block.
 *
 * With LEAVES, a sequence has 2 LEAVES blocks, whatever the number of coordinates, and a coordinate has the blocks of
 * neighbouring leaves: leaf i is the blocks i and 2 LEAVES - 1 - i. Sums over leaves then have one order. */
#ifndef SL_SPMD_CUT_H
#define SL_SPMD_CUT_H

#include "spmd/base/base.h"

SL_BEGIN_C

/* How a block's tokens see the other blocks. */
enum sl_context_way { SL_CONTEXT_BY_GATHER, SL_CONTEXT_BY_RING, SL_CONTEXT_BY_HEADS, SL_CONTEXT_BY_LATENTS };

struct sl_cut {
    int parts, part; /* parts 0 counts as 1 */
    int leaves;      /* a multiple of parts; 0: none */
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

/* ---- leaves ---- */

/* Blocks of a sequence on each coordinate, if there are leaves; otherwise 1: its rows are not divided further. */
static inline int sl_cut_own_blocks(struct sl_cut cut) { return cut.leaves ? 2 * cut.leaves / sl_cut_parts(cut) : 1; }
/* The leaf, counted on this coordinate, of its block BLOCK. Blocks of several sequences follow each other. */
static inline int sl_cut_leaf(struct sl_cut cut, int block) {
    const int own = sl_cut_own_blocks(cut), i = block % own;
    return i < own / 2 || own == 1 ? i : own - 1 - i;
}
/* Number of a block in the whole sequence, which has OWN times parts blocks; it is block BLOCK of this coordinate's OWN
 * blocks. */
static inline int sl_cut_number(struct sl_cut cut, int own, int block) {
    const int before = cut.part * (own / 2);
    return block < own / 2 ? before + block : own * sl_cut_parts(cut) - before - own + block;
}

SL_END_C
#endif
