/* shards.h - what modules whose channels are sharded check while they are planned. */
#ifndef SL_LAYERS_MODULES_SHARDS_H
#define SL_LAYERS_MODULES_SHARDS_H

#include "layers/modules/module.h"

SL_BEGIN_C

/* SL_BAD_INPUT where COLUMNS, SEGMENTS side by side, do not divide by the coordinates along the module's axis. */
int sl_plan_columns(const struct sl_module *module, struct sl_plan *plan, int columns, int segments);

/* SL_BAD_INPUT unless dim DIM of the declared parameter NUMBER is sharded over AXIS (NULL: none) and nothing else, in
 * SEGMENTS. Where the mesh has one coordinate along an axis, sharding over it makes no difference. */
int sl_plan_expect_sharded(struct sl_plan *plan, int number, int dim, const char *axis, int segments);

/* The one axis, of more than one coordinate, over which the parameter's dim is sharded; NULL: none, or several. */
const char *sl_plan_sharding_axis(const struct sl_plan *plan, int number, int dim);

SL_END_C
#endif
