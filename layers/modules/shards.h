/* shards.h - checks for the plan functions of modules whose channels are sharded. */
#ifndef SL_LAYERS_MODULES_SHARDS_H
#define SL_LAYERS_MODULES_SHARDS_H

#include "layers/modules/module.h"

SL_BEGIN_C

/* All functions here concern the module that is being planned. */

/* Leaves of this coordinate, where sums over AXIS are those of leaves (layers/modules/leaves.h); otherwise 0. */
int sl_plan_leaves(const struct sl_plan *plan, const char *axis);
/* Parts of this coordinate's channels that have sums of their own: its leaves; 1 without leaves. */
int sl_plan_slices(const struct sl_plan *plan, const char *axis);
/* Into how many parts AXIS divides channels: leaves, or, without them, coordinates; and what these are called. */
int sl_plan_parts(const struct sl_plan *plan, const char *axis);
const char *sl_plan_parts_name(const struct sl_plan *plan, const char *axis);
/* SL_BAD_INPUT if there are leaves along AXIS: the module has sums in the order of coordinates alone. */
int sl_plan_without_leaves(const struct sl_plan *plan, const char *axis);

/* SL_BAD_INPUT if COLUMNS, which consist of SEGMENTS side by side, do not divide by the parts along AXIS. */
int sl_plan_columns(const struct sl_plan *plan, const char *axis, int columns, int segments);

/* SL_BAD_INPUT unless dim DIM of the module's parameter I is sharded over AXIS alone (NULL: not at all), in SEGMENTS.
 * An axis of size 1 counts as no sharding. */
int sl_plan_expect_sharded(const struct sl_plan *plan, int i, int dim, const char *axis, int segments);

/* How many coordinates' rows a module that gets those of all coordinates along AXIS computes apart: all, if sums of
 * gradients over it have the order of a tree, whose leaves they are; else 1, all rows together. */
int sl_plan_members_apart(const struct sl_plan *plan, const char *axis);
/* Says so of the gradient of the module's parameter I, if it trains. */
void sl_plan_gradient_parts(const struct sl_plan *plan, int i, enum sl_parts parts);

/* Returns the axis over which dim DIM of the module's parameter I is sharded; NULL if there is none, or several. Axes
 * of size 1 do not count. */
const char *sl_plan_sharding_axis(const struct sl_plan *plan, int i, int dim);

SL_END_C
#endif
