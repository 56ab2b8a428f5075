/* module.h - what a layer is: it declares parameters and stash, then computes forward and the two backward halves.
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
 * NULL is passed. What else backward needs, the module keeps itself in stash tensors that it declared.
 *
 * Layers that are repeated through the model set is_layer: dropouts are then numbered by layer, and dropout keys in
 * flax's order are given one a layer.
 *
 * drivers/examples/custom_module.c is a complete example. */
#ifndef SL_LAYERS_MODULES_MODULE_H
#define SL_LAYERS_MODULES_MODULE_H

#include "layers/modules/batch.h"
#include "layers/modules/caches.h"
#include "layers/kernels/gemm.h"
#include "layers/modules/parameters.h"
#include "layers/modules/groups.h"
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

/* What plan fills in. */
struct sl_plan {
    const struct sl_mesh *mesh;
    const struct sl_rule *rules; /* of parameters' specs; may be NULL */
    const struct sl_gemm_backend *gemm;
    enum sl_dtype precision; /* of products' operands: SL_F32 or SL_BF16; all else is float */
    int rows;                /* of a microbatch */
    int sequence;            /* rows of one sequence; 0: rows have nothing to do with each other */
    int wgrad_group;         /* microbatches of a weight-gradient product */
    int loop;                /* the loop whose storage parameters go to */
    int layer;               /* the layer's number in its stage */
    int global_layer;        /* and in the model */
    int dropouts;            /* dropouts planned in this layer so far */
    char name[64];           /* prefix of parameter names: "blocks.3." */
    struct sl_parameters *parameters;
    struct sl_stash *stash;
    struct sl_stash *again;           /* of what is recomputed */
    struct sl_caches *caches;         /* NULL: nothing will be generated */
    bool forward_only;                /* there will be no backward call */
    const struct sl_groups *groups;   /* groups that are open for modules; NULL: none */
    size_t workspace, workspace_peak; /* bytes now in use, and the most */
    struct sl_error *error;
};

struct sl_module;

struct sl_module_type {
    const char *name;
    int (*plan)(struct sl_module *module, struct sl_plan *plan);
    /* These return SL_OK, or the status of a communication call that failed (use SL_TRY around children and calls). */
    int (*forward)(const struct sl_module *module, struct sl_context *context, const float *x, float *y);
    int (*backward_input)(const struct sl_module *module, struct sl_context *context, const float *x, const float *dy,
                          float *dx);
    /* NULL: no parameters */
    int (*backward_weight)(const struct sl_module *module, struct sl_context *context, const float *x, const float *dy);
};

/* One layer of one stage. Fields that a type has no use for stay zero. */
struct sl_module {
    const struct sl_module_type *type;
    char name[32]; /* what it adds to its parameters' names: "input_dense" */
    int in, out;   /* columns of x and y */
    bool is_layer; /* planning it counts up the plan's layer */
    bool keeps_input, keeps_gradient;
    double option;                 /* dropout: rate; layer_norm: epsilon */
    int layer, dropout;            /* dropout: its layer in the stage, its number in the model */
    char axis[SL_AXIS_NAME];       /* over which its parameters are sharded, */
    int whole;                     /* and the columns, of x or of y, that all shards have together */
    int parameter[4];              /* numbers of its parameters */
    int stash[8];                  /* numbers of its stash tensors */
    int cache[2];                  /* numbers of its caches */
    size_t workspace[8];           /* offsets into the workspace, bytes */
    int group;                     /* number of the group that it communicates over; -1: alone */
    int data_group;                /* and of the one over which its parameters are sharded, FSDP */
    int whole_in;                  /* and of x, where both are sharded */
    int segments_in, segments_out; /* side by side in x and y, each sharded by itself (spmd/spec.h) */
    struct sl_gemm gemm[3];        /* forward, input gradient, weight gradient */
    int children;
    struct sl_module **child; /* owned */
    struct sl_edge *edge;     /* sequential: where the tensors between its children lie, owned */
    void *user;               /* a user's own, and NULL or what gives it back when the module is freed */
    void (*release)(struct sl_module *module);
};

/* Allocates a module of TYPE. NULL without memory, or where NAME is too long. */
struct sl_module *sl_module_new(const struct sl_module_type *type, const char *name, int in, int out);
/* Frees MODULE, its GEMM plans and its children. NULL is allowed. */
void sl_module_free(struct sl_module *module);

/* Plans MODULE, which may have been planned before: its name and a dot are added to the prefix of parameters' names
 * while its type plans. Afterwards plan->workspace is the end of what MODULE uses, for the parent to reset. */
int sl_module_plan(struct sl_module *module, struct sl_plan *plan);

/* For types' plan functions. Numbers; -1 with the error set where that fails. Stash tensors have COLUMNS floats a row
 * of the microbatch (sl_plan_stash) or COUNT floats a microbatch (sl_plan_stash_flat). Workspace is the module's
 * until its call returns; it gives an offset in bytes. A parent sets plan->workspace back before it plans the next
 * child, so that children share, and takes its own from the largest end that a child left. */
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
/* Number of a cache of COLUMNS floats a position; only where plan->caches is given. */
int sl_plan_cache(struct sl_plan *plan, size_t columns);
int sl_plan_stash(struct sl_plan *plan, size_t columns);
int sl_plan_stash_flat(struct sl_plan *plan, size_t count);
size_t sl_plan_workspace(struct sl_plan *plan, size_t bytes);

/* The planned module's products read its parameters as bf16. */
static inline void sl_plan_rounded_values(struct sl_plan *plan) { plan->parameters->rounds = true; }

/* Finds the group over AXES for module->group. */
static inline int sl_plan_group(struct sl_plan *plan, struct sl_module *module, const char *axes) {
    return sl_groups_find(plan->groups, plan->mesh, axes, &module->group, plan->error);
}

/* For types' other functions. */
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
/* The group that it asked for; NULL: alone. */
static inline const struct sl_group *sl_group_of(const struct sl_module *module, const struct sl_context *context) {
    return module->group < 0 ? NULL : &context->groups->group[module->group];
}
/* The context's microbatch's part of stash tensor NUMBER; for W the group's microbatches follow one another. */
static inline float *sl_stash_of(const struct sl_context *context, int number) {
    const struct sl_stash *stash = context->stash;
    const struct sl_stash_tensor *tensor = &stash->tensor[number];
    const size_t slots = (size_t)stash->slots, slot = (size_t)(context->microbatch % stash->slots);
    return stash->data + tensor->offset * slots + tensor->stride * slot;
}

SL_END_C
#endif
