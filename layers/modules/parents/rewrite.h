/* rewrite.h - fusions: while planning, a parent replaces some neighbours among its children by one module that computes
 * the same in fewer passes. The rules see the plan and the planned children, so they depend on mesh, frozen parameters,
 * leaves and the backend of products. */
#ifndef SL_LAYERS_MODULES_PARENTS_REWRITE_H
#define SL_LAYERS_MODULES_PARENTS_REWRITE_H

#include "layers/modules/module.h"

SL_BEGIN_C

/* Applies all rules to MODULE's planned children. The new modules own the modules that they replace, which keep their
 * names, their parameters and the numbers of their dropouts. Does nothing if plan->no_rewrite. */
int sl_rewrite(struct sl_module *module, struct sl_plan *plan);
/* Puts the replaced children back. Call it before MODULE is planned again. */
void sl_rewrite_undo(struct sl_module *module);
/* Returns whether modules inside a residual connection may add its summands in their own passes: the last product adds
 * x (forward), the first norm adds dy (I). */
bool sl_rewrite_sums(const struct sl_plan *plan);

SL_END_C

#endif
