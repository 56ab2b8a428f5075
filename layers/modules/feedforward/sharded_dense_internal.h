/* sharded_dense_internal.h - what sharded_dense.c plans, and how its rows move over the axis (sharded_moves.c). */
#ifndef SL_LAYERS_MODULES_FEEDFORWARD_SHARDED_DENSE_INTERNAL_H
#define SL_LAYERS_MODULES_FEEDFORWARD_SHARDED_DENSE_INTERNAL_H

#include "layers/modules/feedforward/affine.h"
#include "layers/modules/feedforward/leaf_products.h"

struct sharded {
    struct sl_module module;
    const char *axis;
    int whole_in, whole;           /* columns of x and of y that all shards have together */
    int segments_in, segments_out; /* side by side in x and y, each sharded by itself (spmd/spec.h) */
    bool biased;
    bool scatters;         /* y is scattered over its columns; otherwise all have all of it */
    int group, data_group; /* over the axis; over the one that shards the kernel's columns */
    int gathered;          /* the kernel's number in the plan's gathers, whose scatters sum its gradient; or -1 */
    int asked, pieces;     /* of a microbatch's rows, which move one after another (sharded_moves.c); 1: all at once */
    bool adds_up;          /* products of peers, or of leaves: the bias comes after that */
    struct sl_products products;
    struct sl_leaf_products leaves;
    struct sl_place own_dy;    /* W's dy as floats, where it is kept as bf16 and is to be summed */
    struct sl_place columns;   /* [rows of a group, whole]: what the product makes of y; all of dy, as bf16 where it is
                                  stored so */
    struct sl_place kernel;    /* [in, whole]: where it is sharded and not gathered ahead, the kernel; its gradient */
    struct sl_place shard;     /* of that gradient, to be added */
    struct sl_place exchanged; /* the kernel as bf16: for sl_sharded_dense_columns */
    struct sl_place sums;      /* [whole]: the microbatch's gradient of the bias */
};

static inline const struct sharded *own(const struct sl_module *module) { return (const struct sharded *)module; }

/* *ALL [rows, whole] of DY [rows, out], which is of TYPE: floats, where it is summed. */
int sl_sharded_gather(const struct sl_module *module, struct sl_context *context, size_t rows, enum sl_dtype type,
                      const void *dy, const float **all);
/* Y [rows, out] of SHARE [rows, whole], of which it is the sum; where all of it stays, SHARE is Y. Without peers it is
 * all there. */
int sl_sharded_add_up(const struct sl_module *module, struct sl_context *context, const float *share, float *y);

/* The same in pieces, with the products: each piece has one of its own, and while it is multiplied, those before it are
 * scattered, or those behind it gathered. Sums have the members' order in any case. So bits are those of the whole
 * product, where its kernel gives a row the same bits whatever rows are beside it.
 *
 * Forward: Y and SHARE as above, of A [rows, in], whose type is the products'. The input gradient: DX [rows, in], as
 * the context's result asks, of DY, whose type is the products', too; *ALL as above. */
int sl_sharded_forward_in_pieces(const struct sl_module *module, struct sl_context *context, const void *a,
                                 const void *kernel, float *share, float *y);
int sl_sharded_gradient_in_pieces(const struct sl_module *module, struct sl_context *context, const void *dy,
                                  const void *kernel, const float **all, float *dx);

#endif
