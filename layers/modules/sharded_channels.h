/* sharded_channels.h - checks for the plan functions of modules with sharded channels. */
#ifndef SL_LAYERS_MODULES_SHARDED_CHANNELS_H
#define SL_LAYERS_MODULES_SHARDED_CHANNELS_H

#include "layers/modules/module.h"

SL_BEGIN_C

/* All functions here concern the module being planned. */

/* Leaves of this coordinate if sums over AXIS add leaves (layers/modules/leaves.h), otherwise 0. */
int sl_plan_leaves(const struct sl_plan *plan, const char *axis);
/* Number of parts of this coordinate's channels that are summed separately: its leaves; 1 without leaves. */
int sl_plan_slices(const struct sl_plan *plan, const char *axis);
/* Number of parts of the channels along AXIS: leaves or, without them, coordinates; and the name of these parts. */
int sl_plan_parts(const struct sl_plan *plan, const char *axis);
const char *sl_plan_parts_name(const struct sl_plan *plan, const char *axis);
/* Returns SL_BAD_INPUT if there are leaves along AXIS: the module sums only in the order of coordinates. */
int sl_plan_without_leaves(const struct sl_plan *plan, const char *axis);

/* Returns SL_BAD_INPUT if the parts along AXIS do not divide COLUMNS, which consist of SEGMENTS side by side. */
int sl_plan_columns(const struct sl_plan *plan, const char *axis, int columns, int segments);

/* Returns SL_BAD_INPUT unless coordinates along AXIS can have equal shares of the rows of each sequence. */
int sl_plan_share_rows(const struct sl_plan *plan, const char *axis);

/* Returns SL_BAD_INPUT unless dim DIM of the module's parameter I is sharded over AXIS alone (NULL: not at all), in
 * SEGMENTS. An axis of size 1 counts as no sharding. */
int sl_plan_expect_sharded(const struct sl_plan *plan, int i, int dim, const char *axis, int segments);

/* For a module that receives the rows of all coordinates along AXIS: the number of coordinates for which it computes
 * gradients separately. All, if gradients are summed over AXIS in tree order, with members as leaves; otherwise 1, for
 * all rows together. */
int sl_plan_members_apart(const struct sl_plan *plan, const char *axis);
/* Declares how the gradient of the module's parameter I is computed (PARTS), if it trains. */
void sl_plan_gradient_parts(const struct sl_plan *plan, int i, enum sl_parts parts);

/* Returns the axis that shards dim DIM of the module's parameter I. If the data axis is a list of axes, and all of them
 * together shard the dim, returns the list. NULL if no axis shards the dim, or if several other axes do together. Axes
 * of size 1 do not count. */
const char *sl_plan_sharding_axis(const struct sl_plan *plan, int i, int dim);

SL_END_C
#endif
