/* rope.h - tables of cosines and sines for rotary positions (Su et al. 2021), in device-readable memory.
 *
 * Position t, counted from 0, rotates pair i of COLUMNS columns by the angle from struct sl_rotary; latent attention
 * has no such struct and rotates by (t + 1) 10000^(-2i / COLUMNS). A coordinate's table has only its rotated pairs. All
 * layers planned together share their tables. */
#ifndef SL_LAYERS_MODULES_SEQUENCE_ROPE_H
#define SL_LAYERS_MODULES_SEQUENCE_ROPE_H

#include "spmd/base/budget.h"
#include "layers/modules/transformer_modules.h"

SL_BEGIN_C

struct sl_rope {
    int positions, columns;
    int first, pairs;        /* the coordinate's pairs, out of COLUMNS / 2 */
    struct sl_rotary angles; /* base 0: angles of latent attention */
    float *cosine, *sine;    /* [positions, pairs], both in one block */
    int users;
    struct sl_rope *next; /* next table in the plan's list */
};

/* Sets *ROPE to a table with LIKE's positions, columns, first, pairs and angles. It stays if it is this table already;
 * otherwise it is found in LIST, or allocated, counted in HELD, filled and added to LIST. With SIZES_ONLY a table has
 * no memory. Only one thread may use a list. sl_rope_release does not remove a table from its list, so do not
 * release a table while its list is in use. Returns SL_FAILED if there is no memory. */
int sl_rope_share(struct sl_rope **list, const struct sl_rope *like, bool sizes_only, struct sl_budget *held,
                  struct sl_rope **rope, struct sl_error *error);
/* Bytes of all tables in LIST, including tables without memory. */
size_t sl_rope_bytes(const struct sl_rope *list);
/* Frees ROPE if it has no other users. NULL is allowed. */
void sl_rope_release(struct sl_rope *rope);

SL_END_C
#endif
