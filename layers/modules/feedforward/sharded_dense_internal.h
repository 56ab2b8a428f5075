/* sharded_dense_internal.h - the state of sharded_dense.c, and the movement of its rows over the axis
 * and of its kernel (sharded_moves.c). */
#ifndef SL_LAYERS_MODULES_FEEDFORWARD_SHARDED_DENSE_INTERNAL_H
#define SL_LAYERS_MODULES_FEEDFORWARD_SHARDED_DENSE_INTERNAL_H

#include "layers/modules/feedforward/affine.h"
#include "layers/modules/feedforward/leaf_products.h"

struct sharded {
    struct sl_module module;
    const char *axis;
    int whole_in, whole;           /* columns of x in all shards together, and of a coordinate's product */
    int whole_out;                 /* columns of the kernel on all coordinates together */
    const char *out_axis;          /* axis that shards the kernel's columns; NULL: the kernel has all columns here */
    int kernel_segments;           /* segments of these columns */
    int segments_in, segments_out; /* number of segments in x and y, each sharded separately (spmd/spec.h) */
    bool biased;
    bool scatters;         /* y is scattered; otherwise all coordinates have all of it */
    bool by_rows;          /* over the rows of each sequence; otherwise over its columns */
    int group, data_group; /* over the axis; over the axis sharding the kernel's columns */
    int gathered;          /* the kernel's number in the plan's gathers, which are used with its scatters; or -1 */
    int asked, pieces; /* pieces of a microbatch's rows, moved one after another (sharded_moves.c): requested, planned;
                          1: all at once */
    bool by_columns;   /* the parent computes products (sl_sharded_dense_by_columns) */
    bool adds_up;      /* sums of products of peers or of leaves; the bias is added afterwards */
    struct sl_products products;
    struct sl_leaf_products leaves;
    struct sl_place own_dy;    /* W's dy as floats, if it is saved as bf16 and must be summed */
    struct sl_place columns;   /* [rows of a group, whole]: y before its sum; all of dy, in its stored type */
    struct sl_place kernel;    /* [in, whole]: the kernel, if it is sharded and not gathered ahead; its gradient */
    struct sl_place shard;     /* a shard of that gradient, to be added */
    struct sl_place exchanged; /* the kernel as bf16, for sl_sharded_dense_columns */
    struct sl_place sums;      /* [whole]: the microbatch's gradient of the bias */
    struct sl_place given;     /* [in, whole]: the microbatch's gradient of the kernel, if the parent computes it */
};

static inline const struct sharded *own(const struct sl_module *module) { return (const struct sharded *)module; }

/* The kernel as gathers and scatters over data see it: RUNS rows of RUN columns, which are sharded. A kernel with
 * sharded rows is one run. */
static inline size_t sl_sharded_runs(const struct sharded *dense) {
    return dense->out_axis ? 1 : (size_t)dense->module.in;
}
static inline size_t sl_sharded_run(const struct sharded *dense) {
    return (size_t)dense->module.in * (size_t)dense->whole / sl_sharded_runs(dense);
}

/* An array of all columns of some rows, as it moves over the axis: dim DIM is sharded. */
struct sl_sharded_move {
    size_t shape[3];
    int dim;
};
static inline struct sl_sharded_move sl_sharded_move(const struct sharded *dense, size_t sequence, size_t rows) {
    const size_t segments = (size_t)dense->segments_out, whole = (size_t)dense->whole;
    if (dense->by_rows) return (struct sl_sharded_move){{rows / sequence, sequence, whole}, 1};
    return (struct sl_sharded_move){{rows, segments, whole / segments}, 2};
}

/* The types' plan function (sharded_plan.c). */
int sl_sharded_plan(struct sl_module *module, struct sl_plan *plan);

/* The products of a planned sharded or summed dense MODULE, if forward's is all of y; otherwise NULL. */
struct sl_products *sl_sharded_dense_products(struct sl_module *module);

/* Sets *KERNEL [in, whole] to the kernel in its stored type. */
int sl_sharded_kernel(const struct sl_module *module, struct sl_context *context, const void **kernel);
/* Plans a module whose parent computes its products. */
int sl_sharded_plan_columns(struct sharded *dense, struct sl_plan *plan);
/* GRADIENT [in, whole] (+)= the gradients that W's microbatches were given. */
int sl_sharded_add_given(const struct sl_module *module, struct sl_context *context, bool accumulate, float *gradient);

/* Sets *ALL [rows, whole] to all of DY [rows, out], in the same type; if dy must be summed, it is float32. */
int sl_sharded_gather(const struct sl_module *module, struct sl_context *context, size_t rows, struct sl_rows dy,
                      struct sl_rows *all);
/* Sums SHARE [rows, whole] into Y [rows, out]. If every coordinate has all of y, SHARE is Y. Without peers SHARE is
 * complete. */
int sl_sharded_add_up(const struct sl_module *module, struct sl_context *context, const float *share, float *y);

/* The same in pieces, together with the products: each piece has a product of its own; while it is multiplied, earlier
 * pieces are scattered, or later ones gathered. Sums always have the members' order. Bits equal those of the whole
 * product if its kernel computes each row independently of the other rows.
 *
 * Forward: Y and SHARE as above, from A [rows, in], in the products' type. The input gradient: DX [rows, in] from
 * DY, also in the products' type; *ALL as above. */
int sl_sharded_forward_in_pieces(const struct sl_module *module, struct sl_context *context, const void *a,
                                 const void *kernel, float *share, float *y);
int sl_sharded_gradient_in_pieces(const struct sl_module *module, struct sl_context *context, struct sl_rows dy,
                                  const void *kernel, struct sl_rows *all, struct sl_result *dx);

#endif
