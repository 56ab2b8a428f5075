/* module.h - what a layer is: it declares parameters and arrays, then computes forward and the two backward halves.
 *
 * One struct sl_module is one layer of one stage; its type is a table of functions. The life of a module:
 *
 * plan             Declares parameters, stash and workspace for microbatches of plan->rows rows; sets keeps_*.
 * forward          Computes y [rows, out] of x [rows, in].
 * backward_input   I: dx [rows, in] of dy [rows, out]. DX is NULL where nobody needs it, and is never dy. Leaves in the
 *                  stash what W needs, also without DX.
 * backward_weight  W: the parameters' gradients from context->wgrad_group microbatches, the first of which is
 *                  context->microbatch: adds to them where context->accumulate is set, overwrites them otherwise.
 *
 * A module that sets keeps_input finds x again in both backward calls, one that sets keeps_gradient finds dy again in
 * W: whoever owns the module keeps them in the stash, the rows of consecutive microbatches one after another. Otherwise
 * NULL is passed. What else backward needs, the module keeps itself in arrays of the stash that it declared.
 *
 * What a type needs beyond struct sl_module is its own struct, which begins with one:
 *     struct dropout {
 *         struct sl_module module;
 *         double rate;
 *     };
 *     static const struct sl_module_type dropout = {..., .bytes = sizeof(struct dropout)};
 * sl_module_new allocates it, filled with zeros, and the type's functions cast the module that they are given.
 *
 * Layers that are repeated through the model set is_layer: dropouts are then numbered by layer, and dropout keys in
 * flax's order are given one a layer.
 *
 * drivers/examples/custom_module.c is a complete example. */
#ifndef SL_LAYERS_MODULES_MODULE_H
#define SL_LAYERS_MODULES_MODULE_H

#include "layers/kernels/gemm.h"
#include "layers/modules/batch.h"
#include "layers/modules/caches.h"
#include "layers/modules/groups.h"
#include "layers/modules/parameters.h"
#include "layers/modules/profile.h"
#include "layers/modules/rules.h"

SL_BEGIN_C

/* Prefill and decode are evaluation that fills and reads caches: of a prompt, and of one token a sequence. */
enum sl_phase { SL_TRAIN, SL_EVALUATE, SL_PREFILL, SL_DECODE };

/* Tensors kept between a microbatch's forward and its backward: [slots][rows, cols], owned by the pipeline. Microbatch
 * i lies in slot i % slots, so that a group of consecutive microbatches is one contiguous array. */
struct sl_stash_tensor {
    size_t stride; /* elements a microbatch */
    size_t offset; /* padded strides of the tensors before it */
};
struct sl_stash {
    int slots; /* a multiple of the group; may be set after planning */
    int count, capacity;
    struct sl_stash_tensor *tensor;
    size_t elements; /* a slot: all tensors' padded strides */
    float *data;     /* [slots * elements] */
};

/* Where an array of a module's own lies: in the stash, where W finds it again, or in the workspace, where it lasts
 * until the call returns. Filled in by planning, read by sl_at. */
struct sl_place {
    bool stashed;
    int number;    /* of the stash tensor, */
    size_t offset; /* or bytes into the workspace */
};

/* Where dropout's random words come from. */
struct sl_dropout_source {
    const struct sl_key *layer_key; /* one key a layer of this stage, words in JAX's layout; NULL: by global position */
    struct sl_key step_key;         /* by global position: folded with the dropout's number, then (row, column) */
    uint32_t first_row;             /* global row of the microbatch's first row */
};

/* Sums over rows. */
struct sl_metrics {
    double loss, correct, rows;
    double auxiliary; /* losses beside the model's own, times the rows that they stand for */
};

/* Adds SUMS of loss, hits and rows to METRICS. */
static inline void sl_metrics_add(struct sl_metrics *metrics, const double sums[3]) {
    metrics->loss += sums[0];
    metrics->correct += sums[1];
    metrics->rows += sums[2];
}

/* What every call gets. Owned by the pipeline, one a coordinate. */
struct sl_context {
    struct sl_spmd *self;
    const struct sl_kernels *kernels;
    void *queue; /* compute queue; NULL on CPUs */
    enum sl_phase phase;
    int microbatch;        /* in this step */
    int rows;              /* of a microbatch */
    int sequence;          /* rows of one sequence, one after another; 0: rows have nothing to do with each other */
    int position;          /* of each sequence's first row */
    int wgrad_group;       /* microbatches of a weight-gradient call */
    bool accumulate;       /* it adds to the gradients */
    struct sl_batch batch; /* the microbatch's rows of it, where the device reaches them */
    float weight;          /* of a row's loss in the gradient */
    struct sl_metrics *metrics; /* a loss adds to it */
    struct sl_dropout_source dropout;
    const struct sl_parameters *parameters;
    const struct sl_stash *stash;
    const struct sl_groups *groups; /* NULL: none */
    struct sl_caches *caches;       /* NULL but in prefill and decode */
    const struct sl_stash *again;   /* of what is recomputed, for backward (layers/modules/recompute.c), */
    const struct sl_stash *once;    /* and for forward: the same tensors, one slot */
    char *workspace;
    struct sl_profile *profile; /* NULL: nothing is measured */
};

struct sl_module;

/* What planning is given, and what it fills in. */
struct sl_plan {
    const struct sl_mesh *mesh;
    const struct sl_rule *rules; /* of parameters' specs; may be NULL */
    const struct sl_gemm_backend *gemm;
    enum sl_dtype precision;  /* of products' operands: SL_F32 or SL_BF16; all else is float */
    int rows;                 /* of a microbatch */
    int sequence;             /* rows of one sequence; 0: rows have nothing to do with each other */
    int wgrad_group;          /* microbatches of a weight-gradient product */
    int loop;                 /* the loop whose storage parameters go to */
    int layer;                /* the layer's number in its stage */
    int global_layer;         /* and in the model */
    int dropouts;             /* dropouts planned in this layer so far */
    char name[64];            /* prefix of parameter names: "blocks.3." */
    struct sl_module *module; /* the one that is being planned */
    struct sl_parameters *parameters;
    struct sl_stash *stash;
    struct sl_stash *again;           /* of what is recomputed */
    struct sl_caches *caches;         /* NULL: nothing will be generated */
    bool forward_only;                /* there will be no backward call */
    const struct sl_groups *groups;   /* groups that are open for modules; NULL: none */
    size_t workspace, workspace_peak; /* bytes now in use, and the most */
    struct sl_error *error;
};

enum { SL_MODULE_PARAMETERS = 8 }; /* of one module, at most */
enum { SL_LAYER_DROPOUTS = 64 };   /* of one layer, at most: they are numbered in the model by layer * 64 */

struct sl_module_type {
    const char *name;
    /* These return SL_OK, or a status with the error set; all but plan only that of a communication call that failed.
     * Use SL_TRY around children and calls. */
    int (*plan)(struct sl_module *module, struct sl_plan *plan); /* NULL: nothing to plan */
    int (*forward)(const struct sl_module *module, struct sl_context *context, const float *x, float *y);
    /* NULL: a loss */
    int (*backward_input)(const struct sl_module *module, struct sl_context *context, const float *x, const float *dy,
                          float *dx);
    /* NULL: no parameters */
    int (*backward_weight)(const struct sl_module *module, struct sl_context *context, const float *x, const float *dy);
    size_t bytes;                              /* of the type's own struct; 0: it needs none */
    void (*release)(struct sl_module *module); /* gives back what that holds, where it holds any; NULL: nothing */
};

/* One layer of one stage. */
struct sl_module {
    const struct sl_module_type *type;
    const char *name; /* what it adds to its parameters' names, "input_dense"; lies behind the type's own struct */
    int in, out;      /* columns of x and y */
    bool is_layer;    /* planning it counts up the plan's layer */
    bool keeps_input, keeps_gradient;
    int parameters;
    int parameter[SL_MODULE_PARAMETERS]; /* their numbers, in the order in which plan declares them */
    int children;
    struct sl_module **child; /* owned */
};

/* Allocates a module of TYPE. NULL without memory. */
struct sl_module *sl_module_new(const struct sl_module_type *type, const char *name, int in, int out);
/* The same with children: owns CHILD[children] from the call on, and frees them where it fails or finds a NULL. */
struct sl_module *sl_module_new_parent(const struct sl_module_type *type, const char *name, int in, int out,
                                       int children, struct sl_module *const *child);
/* Frees MODULE and its children. NULL is allowed. */
void sl_module_free(struct sl_module *module);

/* ---- planning ---- */

/* Plans MODULE, which may have been planned before: its name and a dot are added to the prefix of parameters' names
 * while its type plans. Afterwards plan->workspace is the end of what MODULE uses. */
int sl_module_plan(struct sl_module *module, struct sl_plan *plan);
/* Plans a child for its parent. Children share the workspace from BEGIN on, where the first of them began: afterwards
 * plan->workspace is the end of the child that uses most. */
int sl_plan_child(struct sl_plan *plan, struct sl_module *child, size_t begin);

/* Declares the next parameter of the module that is being planned, number 0, 1, .. of the module: NAME under the plan's
 * prefix, SHAPE [dims]. SCALE is that of a truncated normal. */
int sl_plan_parameter(struct sl_plan *plan, const char *name, enum sl_initializer initializer, float scale, int dims,
                      const size_t *shape);
/* SHAPE is the whole array's, of which this coordinate has the shard under SPEC ("-,tensor": spmd/spec.h). Axes that
 * the mesh has not do not shard. */
int sl_plan_parameter_sharded(struct sl_plan *plan, const char *name, enum sl_initializer initializer, float scale,
                              int dims, const size_t *shape, const char *spec);
/* The same with the spec that the plan's rules have for its full name. Of a dim after the first, what the data axis
 * does not divide is left whole over it. */
int sl_plan_parameter_by_rule(struct sl_plan *plan, const char *name, enum sl_initializer initializer, float scale,
                              int dims, const size_t *shape);
/* The parameter of two stages, the first and the last, whose gradients are added up: both declare it, under NAME as it
 * stands, without prefix; its spec is by the rules. */
int sl_plan_parameter_tied(struct sl_plan *plan, const char *name, enum sl_initializer initializer, float scale,
                           int dims, const size_t *shape);

/* PLACE in the stash: COUNT floats a microbatch. */
int sl_plan_stash(struct sl_plan *plan, size_t count, struct sl_place *place);
/* PLACE in the workspace, on a cache line. */
void sl_plan_workspace(struct sl_plan *plan, size_t bytes, struct sl_place *place);
/* PLACE of COUNT floats: in the stash where W needs them (KEPT) and there will be a backward; else in the workspace. */
int sl_plan_array(struct sl_plan *plan, size_t count, bool kept, struct sl_place *place);
/* *NUMBER of a cache of COLUMNS floats a position; only where plan->caches is given. */
int sl_plan_cache(struct sl_plan *plan, size_t columns, int *number);
/* *GROUP over AXES, -1 where the coordinate is alone along them. */
int sl_plan_group(const struct sl_plan *plan, const char *axes, int *group);

/* The planned module's products read its parameters as bf16. */
static inline void sl_plan_rounded_values(struct sl_plan *plan) { plan->parameters->rounds = true; }

/* ---- for types' other functions ---- */

/* Of the module's parameter I. */
static inline const float *sl_value(const struct sl_module *module, const struct sl_context *context, int i) {
    return sl_parameter_value(context->parameters, module->parameter[i]);
}
static inline const uint16_t *sl_rounded_value(const struct sl_module *module, const struct sl_context *context,
                                               int i) {
    return sl_parameter_rounded(context->parameters, module->parameter[i]);
}
static inline float *sl_gradient(const struct sl_module *module, const struct sl_context *context, int i) {
    return sl_parameter_gradient(context->parameters, module->parameter[i]);
}

/* The array at PLACE: in the stash, that of the context's microbatch; for W the group's follow one another. */
static inline void *sl_at(const struct sl_context *context, const struct sl_place *place) {
    const struct sl_stash *stash = context->stash;
    if (!place->stashed) return context->workspace + place->offset;
    const struct sl_stash_tensor *tensor = &stash->tensor[place->number];
    const size_t slots = (size_t)stash->slots, slot = (size_t)(context->microbatch % stash->slots);
    return stash->data + tensor->offset * slots + tensor->stride * slot;
}

/* The group that planning has found; NULL: alone. */
static inline const struct sl_group *sl_group_of(const struct sl_context *context, int group) {
    return group < 0 ? NULL : &context->groups->group[group];
}

/* A collective call of a module, profiled as communication: sl_communicate(context, sl_describe_psum(...)). */
#define sl_communicate(context, ...) sl_communicate_at(context, SL_HERE, __VA_ARGS__)
int sl_communicate_at(struct sl_context *context, const char *site, struct sl_collective call);
/* X [n] becomes the sum of x of all coordinates of GROUP; does nothing where the coordinate is alone (-1). */
int sl_sum_over(struct sl_context *context, int group, size_t n, float *x);

/* A child's functions: of X and DY it is given what it keeps. */
static inline int sl_module_forward(const struct sl_module *module, struct sl_context *context, const float *x,
                                    float *y) {
    return module->type->forward(module, context, x, y);
}
static inline int sl_module_backward_input(const struct sl_module *module, struct sl_context *context, const float *x,
                                           const float *dy, float *dx) {
    return module->type->backward_input(module, context, module->keeps_input ? x : NULL, dy, dx);
}
static inline int sl_module_backward_weight(const struct sl_module *module, struct sl_context *context, const float *x,
                                            const float *dy) {
    if (!module->type->backward_weight) return SL_OK;
    return module->type->backward_weight(module, context, module->keeps_input ? x : NULL,
                                         module->keeps_gradient ? dy : NULL);
}

SL_END_C
#endif
