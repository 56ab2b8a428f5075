/* modules.h - the modules there are. Each constructor returns a module that its parent, or sl_module_free, frees; NULL
 * without memory. Those that take modules own them from the call on, and free them where they fail or find a NULL among
 * them, so that constructors may be nested. */
#ifndef SL_LAYERS_MODULES_MODULES_H
#define SL_LAYERS_MODULES_MODULES_H

#include "layers/modules/module.h"

SL_BEGIN_C

/* y = x kernel + bias; kernel [in, out] lecun-normal, bias [out] zeros. Parameters NAME.kernel, NAME.bias. */
struct sl_module *sl_dense(const char *name, int in, int out);

/* The same with the kernel cut into equal shards over the coordinates along AXIS of MESH, which all have the same rows.
 * By columns: x is the same on all of them, and each has OUT / size columns of y. By rows: each has IN / size columns
 * of x, and y is the same on all. IN and OUT are those of the whole; the module's own are what a coordinate has of
 * them. AXIS outlives the modules. */
struct sl_module *sl_column_parallel(const char *name, int in, int out, const struct sl_mesh *mesh, const char *axis);
struct sl_module *sl_row_parallel(const char *name, int in, int out, const struct sl_mesh *mesh, const char *axis);

/* y = (x - mean) / sqrt(variance + 1e-6) * scale + bias, over the columns. Parameters NAME.scale, NAME.bias [cols]. */
struct sl_module *sl_layer_norm(const char *name, int cols);

/* y = x sigmoid(x) */
struct sl_module *sl_silu(int cols);

/* y = x mask / (1 - rate) while training, x otherwise; 0 <= rate < 1. */
struct sl_module *sl_dropout(int cols, double rate);

/* sl_dropout(sl_silu(x)) in one pass. */
struct sl_module *sl_silu_dropout(int cols, double rate);

/* The children one after another. Takes ownership of CHILD[children]. */
struct sl_module *sl_sequential(const char *name, int children, struct sl_module *const *child);

/* y = x + inner(x). Takes ownership of INNER. */
struct sl_module *sl_residual(struct sl_module *inner);

/* The notebook's residual MLP block: x + output_dense(dropout(silu(input_dense(pre_norm(x))))), with
 * hidden * expansion columns inside. */
struct sl_module *sl_mlp_block(const char *name, int hidden, int expansion, double rate);

/* Softmax cross entropy with labels of the context's batch; rows with label -1 are left out. A loss ends a model: its
 * forward takes x = logits [rows, classes], adds loss, argmax hits and rows to the context's metrics, and leaves the
 * gradient of x, times context->weight, in y [rows, classes]. It has no backward functions. */
struct sl_module *sl_softmax_cross_entropy(int classes);

SL_END_C
#endif
