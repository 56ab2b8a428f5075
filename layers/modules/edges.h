/* edges.h - the arrays between neighbours in a sequence of modules: each edge has an activation and, in backward, its
 * gradient; and children that read the same x. Planning chooses their place and form from the uses (struct sl_use) of
 * the modules that write and read them; calls pass them in this form. */
#ifndef SL_LAYERS_MODULES_EDGES_H
#define SL_LAYERS_MODULES_EDGES_H

#include "layers/modules/kept.h"

SL_BEGIN_C

/* Edge I lies between child I and child I + 1 of a module. */
struct sl_edge {
    struct sl_kept activation, gradient;
};

/* Settles the edges between MODULE's planned children: EDGE [children - 1].
 *
 * If one of the two children needs an array saved, it lies in the stash; if child I + 1 can write dx over x, the two
 * arrays share one place. Otherwise the array lies in one of two workspace buffers, used by every second edge: a child
 * reads one edge while it writes the next. If the storage is bf16, all floats are in these buffers during a call.
 * Gradients that W reads at once, and operands on a device, also have bf16 copies in the workspace. A child that writes
 * an operand may write only this copy. */
int sl_edges_settle(const struct sl_module *module, struct sl_plan *plan, struct sl_edge *edge);

/* Call child I of MODULE with the arrays of its edges; at MODULE's ends these are X and Y, and DY and DX. */
int sl_edges_forward(const struct sl_module *module, struct sl_context *context, const struct sl_edge *edge, int i,
                     struct sl_given x, struct sl_result *y);
int sl_edges_backward_input(const struct sl_module *module, struct sl_context *context, const struct sl_edge *edge,
                            int i, struct sl_given x, struct sl_given dy, struct sl_result *dx);
int sl_edges_backward_weight(const struct sl_module *module, struct sl_context *context, const struct sl_edge *edge,
                             int i, struct sl_given x, struct sl_given dy);

/* ---- readers: the first COUNT children of MODULE, which all read its x ---- */

/* Sets MODULE's use of x, except how dx is written, from its planned readers. */
void sl_readers_plan(struct sl_module *module, int count);
/* DX, which may be NULL, becomes the sum of the readers' dx, added in their order; PART is memory for one of them.
 * GRADIENT [count]: the readers' dy. */
int sl_readers_backward_input(const struct sl_module *module, struct sl_context *context, int count, struct sl_given x,
                              const struct sl_kept *gradient, float *part, struct sl_result *dx);

SL_END_C

#endif
