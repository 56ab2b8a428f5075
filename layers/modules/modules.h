/* modules.h - the constructors of modules.
 *
 * A constructor returns a module, to be freed by its parent or with sl_module_free, or NULL if there is no memory. A
 * constructor takes ownership of the modules passed to it. If it fails, or if one of them is NULL, it frees them and
 * returns NULL, so constructors may be nested. */
#ifndef SL_LAYERS_MODULES_MODULES_H
#define SL_LAYERS_MODULES_MODULES_H

#include "layers/modules/module.h"

SL_BEGIN_C

/* y = x kernel + bias; kernel [in, out] lecun-normal, bias [out] zeros. Parameters NAME.kernel, NAME.bias. */
struct sl_module *sl_dense(const char *name, int in, int out);

/* sl_dense with its kernel divided into equal shards over the coordinates along AXIS of MESH, which all have the same
 * rows. IN and OUT are the widths of the whole layer. Column-parallel: every coordinate has all of x [rows, IN], and
 * its own columns of y [rows, OUT / size]. Row-parallel: a coordinate has its own columns of x [rows, IN / size], and
 * every coordinate has all of y [rows, OUT]. AXIS must outlive the modules. */
struct sl_module *sl_column_parallel(const char *name, int in, int out, const struct sl_mesh *mesh, const char *axis);
struct sl_module *sl_row_parallel(const char *name, int in, int out, const struct sl_mesh *mesh, const char *axis);

/* y = (x - mean) / sqrt(variance + 1e-6) * scale + bias, over the columns. Parameters NAME.scale, NAME.bias [cols]. */
struct sl_module *sl_layer_norm(const char *name, int cols);

/* y = x sigmoid(x) */
struct sl_module *sl_silu(int cols);

/* y = gelu(x) in its tanh form. COLUMNS are the columns of one coordinate. */
struct sl_module *sl_gelu(int columns);
/* Returns whether MODULE is a gelu in its tanh form, which the products before and after it may compute. */
bool sl_is_gelu(const struct sl_module *module);

/* y = x mask / (1 - rate) while training, x otherwise; 0 <= rate < 1. */
struct sl_module *sl_dropout(int cols, double rate);

/* sl_dropout(sl_silu(x)) in one pass. */
struct sl_module *sl_silu_dropout(int cols, double rate);

/* Runs the children one after another. Takes ownership of CHILD[children]. Its W also accepts several groups of
 * microbatches at once (context->microbatches): it then finishes all groups of one child before it begins the next
 * child. */
struct sl_module *sl_sequential(const char *name, int children, struct sl_module *const *child);
bool sl_is_sequential(const struct sl_module *module);

/* y = x + inner(x). Takes ownership of INNER. */
struct sl_module *sl_residual(struct sl_module *inner);

/* The notebook's residual MLP block: y = x + output_dense(dropout(silu(input_dense(pre_norm(x))))), with hidden *
 * expansion columns inside. */
struct sl_module *sl_mlp_block(const char *name, int hidden, int expansion, double rate);

/* Softmax cross entropy with the labels of the context's batch. Rows with label -1 are skipped. A loss ends a model:
 * its forward takes x = logits [rows, classes], adds loss, argmax hits and rows to the context's metrics, and writes
 * the gradient of x, multiplied by context->weight, to y [rows, classes]. It has no backward functions. */
struct sl_module *sl_softmax_cross_entropy(int classes);

/* Mean squared error to the targets [rows, COLUMNS] of the context's batch, as a loss that ends a model. The loss of a
 * row is the mean over its columns of (x - target)^2, so the mean over rows equals torch.nn.MSELoss. It counts no hits:
 * metrics.correct does not change. */
struct sl_module *sl_mean_squared_error(int columns);

SL_END_C
#endif
