/* shards.h - what modules whose channels are sharded check while they are planned. */
#ifndef SL_LAYERS_MODULES_SHARDS_H
#define SL_LAYERS_MODULES_SHARDS_H

#include "layers/modules/module.h"

SL_BEGIN_C

/* All are for plan functions, and speak of the module that is being planned. */

/* SL_BAD_INPUT where COLUMNS, SEGMENTS side by side, do not divide by the coordinates along AXIS. */
int sl_plan_columns(const struct sl_plan *plan, const char *axis, int columns, int segments);

/* SL_BAD_INPUT unless dim DIM of the module's parameter I is sharded over AXIS (NULL: none) and nothing else, in
 * SEGMENTS. Where the mesh has one coordinate along an axis, sharding over it makes no difference. */
int sl_plan_expect_sharded(const struct sl_plan *plan, int i, int dim, const char *axis, int segments);

/* The one axis, of more than one coordinate, over which dim DIM of the module's parameter I is sharded; NULL: none, or
 * several. */
const char *sl_plan_sharding_axis(const struct sl_plan *plan, int i, int dim);

SL_END_C
#endif
