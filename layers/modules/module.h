/* module.h - what a layer is: it declares parameters and arrays, then computes forward and the two halves of backward.
 *
 * One struct sl_module is one layer of one stage; its type is a table of functions. The life of a module:
 *
 *     plan             Declares parameters, stash and workspace for microbatches of plan->rows rows; sets keeps_*.
 *     forward          Computes y [rows, out] from x [rows, in]; rows is context->rows.
 *     backward_input   I: computes dx [rows, in] from dy [rows, out]. DX is NULL if nobody needs dx, and is never
 *                      the same array as DY. Leaves in the stash what W needs, also if DX is NULL.
 *     backward_weight  W: computes the parameters' gradients from context->wgrad_group microbatches, the first of
 *                      which is context->microbatch. Adds to the gradients if context->accumulate is set, and
 *                      overwrites them otherwise.
 *
 * A module that sets keeps_input is given x again in both backward functions, and a module that sets keeps_gradient is
 * given dy again in W; other modules are given NULL there. Whoever owns the module keeps these rows in the stash,
 * consecutive microbatches one after another. Anything else that backward needs, the module itself keeps in stash
 * arrays that it has declared. A type whose backward functions can do without x says needs_no_input, and one whose W
 * can do without dy says needs_no_gradient: planning refuses modules that neither keep nor say so, unless a part of
 * them is frozen (sl_plan_trains): they would read NULL.
 *
 * A type that needs more fields than struct sl_module has its own struct, which begins with a struct sl_module:
 *
 *     struct dropout {
 *         struct sl_module module;
 *         double rate;
 *     };
 *     static const struct sl_module_type dropout = {..., .bytes = sizeof(struct dropout)};
 *
 * sl_module_new allocates the own struct, filled with zeros, and the type's functions cast the module that they are
 * given.
 *
 * A call of forward or backward_input may take a run of several microbatches at once, whose rows lie one after another:
 * in x, y, dy, dx, in the batch, and in stash arrays. A type that can do so says fuses: it takes context->rows rows,
 * which are those of context->microbatches microbatches, and plans workspace for sl_plan_rows rows. All other types
 * are called for one microbatch after the other. Each row must get the bits that it gets alone.
 *
 * Where the plan's storage is bf16, what is kept takes half the room: x in both backward functions and dy in W are bf16
 * arrays behind the same pointers. A type that knows this says stores, and keeps its own arrays in the same way
 * (layers/modules/kept.h). All others are planned as if the storage were float, and x and dy are widened for them.
 *
 * Layers that the model repeats set is_layer. Dropouts are then numbered by layer, and if dropout keys follow flax's
 * order, each layer has one key.
 *
 * drivers/examples/custom_module.c is a complete example. */
#ifndef SL_LAYERS_MODULES_MODULE_H
#define SL_LAYERS_MODULES_MODULE_H

#include "collectives/waits.h"
#include "layers/kernels/gemm.h"
#include "layers/modules/batch.h"
#include "layers/modules/caches.h"
#include "layers/modules/parameters/gathers.h"
#include "layers/modules/groups.h"
#include "layers/modules/load.h"
#include "layers/modules/parameters/parameters.h"
#include "layers/modules/profile.h"
#include "layers/modules/parameters/rules.h"
#include "layers/modules/parameters/scatters.h"
#include "layers/modules/use.h"

SL_BEGIN_C

/* What a call is part of. SL_PREFILL evaluates a prompt and fills the caches; SL_DECODE evaluates one more token of
 * each sequence, and reads and extends the caches. */
enum sl_phase { SL_TRAIN, SL_EVALUATE, SL_PREFILL, SL_DECODE };

/* Tensors that are kept between a microbatch's forward and its backward, owned by the pipeline. Each is [slots][rows,
 * cols]. Microbatch i lies in slot i % slots, so that consecutive microbatches of a group are one contiguous array. */
struct sl_stash_tensor {
    size_t stride; /* bytes of one microbatch */
    size_t offset; /* in elements of one slot: the padded strides of the tensors before this one */
    bool passes;   /* it lasts no longer than a call, and lies in the stash `once` under the same number */
};
struct sl_stash {
    int slots; /* a multiple of wgrad_group; may be set after planning */
    int count, capacity;
    struct sl_stash_tensor *tensor;
    size_t used;           /* floats of one slot: the sum of the tensors' padded strides, */
    size_t elements;       /* and the most that it has been: tensors whose modules take turns lie in the same place */
    float *data;           /* [slots * elements], */
    size_t begin;          /* or, of a part of the tensors, from the first one's offset on */
    struct sl_stash *once; /* of recomputed modules: room for what passes; NULL: everything is kept */
};

/* How long an array lasts that a module's forward or I writes. */
enum sl_lifetime {
    SL_UNTIL_RETURN, /* until the call returns, */
    SL_UNTIL_WEIGHT, /* until W, which reads it, */
    SL_UNTIL_INPUT,  /* until I, which reads it, while W does not, */
    SL_FROM_INPUT    /* or from I, which writes it, until W */
};

/* Where a module's own array lies: in the stash, where W finds it again, or in the workspace, where it lasts until the
 * call returns. Planning fills it in; sl_at returns the address. */
struct sl_place {
    bool stashed;
    int number;    /* the stash tensor's number if stashed, */
    size_t offset; /* or else bytes from the beginning of the workspace */
};

/* Where dropout's random words come from. Without layer_key a word follows from step_key, the dropout's number in the
 * model, and the element's global row and column. */
struct sl_dropout_source {
    /* One key for each layer of this stage, words in JAX's layout; NULL: words by global position. */
    const struct sl_key *layer_key;
    /* By global position: folded with the dropout's number, then hashed with (row, column). */
    struct sl_key step_key;
    uint32_t first_row; /* global row of the call's first row */
    size_t next_keys;   /* from a microbatch's layer_key to that of the next one in the call */
};

/* Floats of a call that lie as bf16, too: VALUES [count] are what STORED [count] widens to. */
struct sl_rounded {
    const float *values; /* NULL: none do */
    const uint16_t *stored;
    size_t count;
};

/* How a call should leave y in forward, or dx in I: rounded to bf16. */
struct sl_result {
    uint16_t *stored; /* as bf16, too, unless NULL; */
    bool unread;      /* then the floats need not be written: nobody reads them; */
    bool whole;       /* or they keep all digits, beside what is stored: asked of modules that leave_operand_beside */
    bool done;        /* set by the module that has done so */
    uint16_t *gelu;   /* of those that leave_gelu or leave_slope, which must do so: y is left here, and gelu(y) where y
                         would be stored; or the x of the gelu, whose slope dx is multiplied by. NULL: neither */
};

/* What a call on a device may add to y in forward, or to dx in I, in the pass that writes it: a residual connection's x
 * or dy, as many floats. */
struct sl_summand {
    const float *x;
    const uint16_t *stored;   /* x as bf16, where it lies so, or NULL; then X may be NULL */
    struct sl_result *result; /* how the sum may be left, or NULL: then this one's done is set, too */
    bool done;                /* set by the module that has added X, which others add otherwise */
};

/* What the functions of a type are given in every call. The pipeline owns one for each coordinate. */
struct sl_context {
    struct sl_spmd *self;
    const struct sl_kernels *kernels;
    void *queue;          /* compute queue; on CPUs the crew */
    struct sl_crew *crew; /* of this coordinate (spmd/base/crew.h), where forward is all; NULL: none */
    enum sl_phase phase;
    int microbatch;        /* number of the call's first microbatch in this step */
    int first_microbatch;  /* that the module's stage sees in this step */
    int microbatches;      /* of this call of forward or backward_input; 0 counts as 1 */
    int rows;              /* rows of all of them together; backward_weight: of one microbatch */
    int sequence;          /* rows of a sequence, which lie one after another; 0: rows are independent of each other */
    int position;          /* position of each sequence's first row */
    const int *positions;  /* where sequences of one row differ: the position of each one of the call; else NULL */
    int first_sequence;    /* in the caches: the first of the step's sequences */
    bool begins;           /* what caches keep of parameters is made anew */
    bool unread;           /* forward: nobody will read y, so that computing it may be left out; the stash is filled */
    int wgrad_group;       /* microbatches that one backward_weight call takes */
    enum sl_dtype storage; /* of x in backward_input, and of x and dy in backward_weight: SL_F32 or SL_BF16 */
    struct sl_rounded rounded;  /* x in forward, dy in backward_input, where the parent has stored it; dy in the W that
                                   follows, where I has rounded it */
    struct sl_result *result;   /* NULL: y, or dx, is left as floats of any digits */
    struct sl_summand *summand; /* NULL: nothing is to be added */
    bool accumulate;       /* backward_weight adds to the gradients; in I: the stage's first W will, as all others */
    struct sl_batch batch; /* the call's rows of the batch, in memory that the device can read */
    int inputs, targets;   /* columns of the batch's inputs and targets */
    float weight;          /* factor of each row's loss in the gradient */
    struct sl_metrics *metrics; /* what the host adds to */
    struct sl_sums *sums;       /* what kernels add to; NULL: not wanted */
    struct sl_dropout_source dropout;
    const struct sl_parameters *parameters;
    /* Called before gradients of a layer that is a PART of the parameters are written; NULL: nobody asks. */
    int (*begin)(struct sl_spmd *self, int part, void *arg);
    void *begin_arg;
    const struct sl_stash *stash;
    const struct sl_groups *groups;   /* NULL: none */
    const struct sl_gathers *gathers; /* of the kernels that were added while planning, */
    struct sl_scatters *scatters;     /* and of their gradients */
    struct sl_caches *caches;         /* NULL unless the model generates */
    const struct sl_stash *again;     /* stash of recomputed modules for backward (layers/modules/recompute.c), */
    const struct sl_stash *once;      /* and for forward: the same tensors, where one module's follow another's */
    char *workspace;
    struct sl_profile *profile;       /* NULL: nothing is measured */
    struct sl_not_finite *not_finite; /* looks at all results (layers/modules/not_finite.h); NULL: nobody does */
};

struct sl_module;
struct sl_rope;

/* What planning is given, and what it fills in. */
struct sl_plan {
    const struct sl_mesh *mesh;
    const struct sl_rule *rules; /* rules for the parameters' specs; may be NULL */
    const struct sl_gemm_backend *gemm;
    enum sl_dtype precision; /* of the operands of products, SL_F32 or SL_BF16; everything else is float */
    enum sl_dtype storage;   /* of what the planned module keeps for backward, SL_F32 or SL_BF16 */
    int rows;                /* rows of a microbatch */
    int run; /* the most microbatches of one call of forward or backward_input; 0 counts as 1, and modules that do not
                fuse plan with 1 */
    int sequence;             /* rows of a sequence; 0: rows are independent of each other */
    int wgrad_group;          /* microbatches of one weight-gradient product */
    const char *leaf_axis;    /* sums over this axis are those of LEAVES (layers/modules/leaves.h), */
    int leaves;               /* or, with fewer than two, of coordinates */
    int loop;                 /* loop to which the parameters belong, */
    int part;                 /* and which of the parameters' loops they lie in: that one, or a layer of it */
    int layer;                /* the layer's number in its stage */
    int global_layer;         /* the layer's number in the model */
    int dropouts;             /* dropouts planned in this layer so far */
    size_t padded_rows;       /* what the rows of the parameter that is declared next are padded to; 0: nothing */
    char name[64];            /* prefix of parameter names: "blocks.3." */
    struct sl_module *module; /* the module that is being planned */
    struct sl_parameters *parameters;
    struct sl_stash *stash;
    struct sl_stash *again;           /* stash of recomputed modules, which has a stash `once` */
    struct sl_caches *caches;         /* NULL: nothing will be generated */
    int x_stride;                     /* asked of a module without children: x and dx as columns of rows so wide, of
                                         bf16 alone, until W; 0: dense */
    bool forward_only;                /* there will be no backward call */
    bool weights_follow;              /* the W of the microbatches of each I can follow it at once, group by group */
    bool forward_keeps;               /* what W reads has its place in a recomputed module's stash from forward on */
    bool has_dx;                      /* the module's DX will never be NULL */
    bool nobody_waits;                /* for the stage's dx: no stage is before it, or that one has no core to go on */
    bool sizes_only;                  /* there will be no call at all: what only calls need is left out */
    struct sl_rope *ropes;            /* tables that layers share (layers/modules/sequence/rope.h) */
    struct sl_budget *held;           /* counts what is taken while planning; NULL: nobody does */
    struct sl_groups *groups;         /* groups over which modules may communicate; NULL: none */
    struct sl_gathers *gathers;       /* gathers kernels ahead of their use; NULL: modules do so themselves */
    struct sl_scatters *scatters;     /* sums their gradients while others are computed; NULL as well */
    struct sl_load *load;             /* counts the work; NULL: nobody does */
    struct sl_batch_bounds *bounds;   /* of what modules read of the batch (sl_plan_bound); NULL: nobody checks it */
    size_t workspace, workspace_peak; /* bytes in use now, and the most so far */
    struct sl_error *error;
};

/* What a type's functions read of context->batch, as bits; x, which for the first stage is batch.inputs, apart. */
enum { SL_READS_LABELS = 1, SL_READS_TOKENS = 2, SL_READS_TARGETS = 4 };

enum { SL_MODULE_PARAMETERS = 8 }; /* the most that one module can have */
/* The most that one layer can have. Dropout d of layer l is number l * 64 + d in the model. */
enum { SL_LAYER_DROPOUTS = 64 };

struct sl_module_type {
    const char *name;
    /* These functions return SL_OK, or a status with the error set. All but plan fail only if a communication call or a
     * product in them fails. Use SL_TRY around children and calls. */
    int (*plan)(struct sl_module *module, struct sl_plan *plan); /* NULL: nothing to plan */
    int (*forward)(const struct sl_module *module, struct sl_context *context, const float *x, float *y);
    /* NULL for a loss */
    int (*backward_input)(const struct sl_module *module, struct sl_context *context, const float *x, const float *dy,
                          float *dx);
    /* NULL for a module without parameters */
    int (*backward_weight)(const struct sl_module *module, struct sl_context *context, const float *x, const float *dy);
    /* Or NULL: forward and backward_input between arrays that a sequence stores as bf16, in the same bits, but without
     * its passes that round. X (forward) and DY are rounded as they are read, as nobody has done so yet; what is stored
     * is written beside y and dx. Y or DX is NULL where only what is stored will be read. For types that keep x, but
     * nothing else, and whose dx_may_be_x. */
    void (*forward_stored)(const struct sl_module *module, struct sl_context *context, const float *x,
                           uint16_t *x_stored, float *y, uint16_t *y_stored);
    void (*backward_stored)(const struct sl_module *module, struct sl_context *context, const uint16_t *x,
                            const float *dy, float *dx, uint16_t *dx_stored);
    /* Backward does without x, W does without dy. A type with children need not say so: it keeps what they keep. */
    bool needs_no_input, needs_no_gradient;
    bool rounds_result; /* forward or backward_input may see to context->result, and set done; their parent rounds what
                           they leave. For types that fuse; I, for those that store, too */
    bool adds_in_forward, adds_in_backward; /* forward, or I, may see to context->summand, and set done. For types that
                                               store and fuse. One with children hands it to the last, or to the first:
                                               sl_take_summand */
    bool is_gelu;                           /* y = gelu(x) in its tanh form, which products on both sides may see to */
    bool rounds_gradient; /* I rounds dy as it reads it where context->storage is bf16: so nobody else need do so */
    bool dx_may_be_x;     /* backward_input may be given the same array for both, and W does without x */
    bool stores;          /* it takes x and dy as they are kept, in context->storage */
    bool fuses;           /* forward and backward_input take the rows of several microbatches at once */
    bool spares;          /* W leaves out parameters of which sl_is_frozen says that they are */
    unsigned reads;       /* SL_READS_LABELS and the like; steps refuse batches without it */
    size_t bytes;         /* size of the type's own struct, which begins with a struct sl_module; 0: none */
    void (*release)(struct sl_module *module); /* frees what the own struct holds; NULL: nothing */
};

/* One layer of one stage. */
struct sl_module {
    const struct sl_module_type *type;
    const char *name; /* added to the names of its parameters, "input_dense"; stored behind the type's own struct */
    char called[SL_MODULE_CALLED]; /* as verdicts call it, "blocks.0.input_dense (dense)"; planning fills it in */
    int in, out;                   /* columns of x and y */
    bool is_layer;                 /* planning it increments the layer's number */
    int part; /* where its parameters have a loop of their own (sl_model_open_parameters), that loop's number; else 0 */
    bool keeps_input, keeps_gradient;
    struct sl_use x, y;  /* planning says how they are used */
    int x_stride;        /* as asked, if forward and W read x so, and I leaves dx so, where it is unread; else 0 */
    int operand_readers; /* of a parent whose x may be an operand: its first children, who read it */
    bool weights_follow; /* W follows I at once, while x and dy are near: so nobody has to keep dy for it; */
    bool takes_floats;   /* then it takes dy as the floats that I has read, whatever the storage is */
    bool frozen;         /* all its parameters are, and it has no children: nobody calls W */
    int parameters;
    int parameter[SL_MODULE_PARAMETERS]; /* numbers of its parameters, in the order in which plan declares them */
    /* Where the storage is bf16: x and dy widened for a type that does not store, or dy as bf16 for W that follows. */
    struct sl_place room_x, room_dy;
    int children;
    struct sl_module **child; /* owned */
};

/* Allocates a module of TYPE; NULL if there is no memory. NAME is copied; NULL is an empty name, which adds nothing to
 * its parameters' names. Free with sl_module_free, or hand it to a parent. A new module has no children. */
struct sl_module *sl_module_new(const struct sl_module_type *type, const char *name, int in, int out);
/* Allocates a module with children, which it owns from the call on. If it fails, or if a child is NULL, it frees the
 * children and returns NULL. */
struct sl_module *sl_module_new_parent(const struct sl_module_type *type, const char *name, int in, int out,
                                       int children, struct sl_module *const *child);
/* Frees MODULE and its children. NULL is allowed. */
void sl_module_free(struct sl_module *module);

/* ---- planning ---- */

/* SL_BAD_INPUT if MODULE or one of its children lacks a function that a part of a stage needs: forward and, unless
 * FORWARD_ONLY, backward_input. */
int sl_module_check(const struct sl_module *module, bool forward_only, struct sl_error *error);
/* What MODULE and its children read of the batch: SL_READS_LABELS and the like. NULL reads nothing. */
unsigned sl_module_reads(const struct sl_module *module);

/* Plans MODULE, which may have been planned before. SL_BAD_INPUT if it does not keep what its backward functions need,
 * or if its type lacks backward_weight although it has parameters.
 * While its type plans, the prefix of parameter names is extended by the module's name and a dot. Afterwards
 * plan->workspace is the end of what MODULE uses. */
int sl_module_plan(struct sl_module *module, struct sl_plan *plan);
/* Plans a child for its parent. Call it for each child with the same BEGIN: children use the same workspace, one after
 * another. Afterwards plan->workspace is the end of what the largest child so far uses. */
int sl_plan_child(struct sl_plan *plan, struct sl_module *child, size_t begin);

/* Declares the next parameter of the module that is being planned; the module's parameters are numbered 0, 1, ... in
 * this order. The full name is the plan's prefix and NAME. SHAPE is [dims]. SCALE is the scale of a truncated normal;
 * other initializers ignore it. Every coordinate holds the whole array. */
int sl_plan_parameter(struct sl_plan *plan, const char *name, enum sl_initializer initializer, float scale, int dims,
                      const size_t *shape);
/* The scale of a truncated normal that has variance 1 / IN (LeCun et al. 1998). */
float sl_lecun_normal(size_t in);
/* Declares a parameter of which this coordinate has only the shard under SPEC ("-,tensor": spmd/spec.h); SHAPE is the
 * whole array's. Axes that the mesh lacks do not shard. A dim after the first stays whole if only the data axis shards
 * it and does not divide it. */
int sl_plan_parameter_sharded(struct sl_plan *plan, const char *name, enum sl_initializer initializer, float scale,
                              int dims, const size_t *shape, const char *spec);
/* Declares a parameter with the spec that the plan's rules have for its full name. */
int sl_plan_parameter_by_rule(struct sl_plan *plan, const char *name, enum sl_initializer initializer, float scale,
                              int dims, const size_t *shape);
/* Declares a tied parameter: the first and the last stage use the same values, and their gradients are added up. Both
 * stages declare it. Its full name is NAME, without prefix; its spec comes from the rules. */
int sl_plan_parameter_tied(struct sl_plan *plan, const char *name, enum sl_initializer initializer, float scale,
                           int dims, const size_t *shape);

/* PLACE is in the stash until W: COUNT floats for each microbatch. */
int sl_plan_stash(struct sl_plan *plan, size_t count, struct sl_place *place);
/* PLACE is in the workspace: BYTES, aligned to a cache line. */
void sl_plan_workspace(struct sl_plan *plan, size_t bytes, struct sl_place *place);
/* PLACE has COUNT floats: in the stash if they must outlast the call and there will be a backward, in the workspace
 * otherwise. */
int sl_plan_array(struct sl_plan *plan, size_t count, enum sl_lifetime lifetime, struct sl_place *place);
/* PLACE has COUNT numbers as bf16: in the stash. Not if plan->forward_only. */
int sl_plan_stored(struct sl_plan *plan, size_t count, enum sl_lifetime lifetime, struct sl_place *place);
/* *NUMBER is a new cache of COLUMNS floats a position. Allowed only if plan->caches is not NULL. */
int sl_plan_cache(struct sl_plan *plan, size_t columns, int *number);
/* The same, of COLUMNS floats in all: for what is made of parameters when a prompt begins. */
int sl_plan_cache_once(struct sl_plan *plan, size_t columns, int *number);
/* *GROUP is the number of the group over AXES, -1 if the coordinate is alone along them. */
int sl_plan_group(const struct sl_plan *plan, const char *axes, int *group);

/* Whether the planned module has a parameter I whose gradient W computes. Where it has not, what W alone reads need not
 * be kept. */
static inline bool sl_plan_trains(const struct sl_plan *plan, int i) {
    return !plan->forward_only && i < plan->module->parameters &&
           !plan->parameters->list[plan->module->parameter[i]].frozen;
}
/* Declares that products of the planned module read parameters as bf16. */
static inline void sl_plan_rounded_values(struct sl_plan *plan) { plan->parameters->rounds = true; }
/* All who read parameter I of the planned module read it as sl_plan_kernel_type says, or as blocks where it lies so. So
 * it needs no float values where nobody trains. */
static inline void sl_plan_kernel(struct sl_plan *plan, int i) {
    const int number = plan->module->parameter[i];
    plan->parameters->list[number].kernel = true;
    sl_parameters_find_blocks(plan->parameters, plan->mesh, number);
}
/* Whether parameter I of the planned module lies as blocks; known from sl_plan_kernel on. */
static inline bool sl_plan_blocks(const struct sl_plan *plan, int i) {
    return plan->parameters->list[plan->module->parameter[i]].blocks.at;
}
/* The type in which the planned module reads its kernel: bf16 where products have such operands, or where the storage
 * is bf16. */
static inline enum sl_dtype sl_plan_kernel_type(const struct sl_plan *plan) {
    return plan->precision == SL_BF16 || plan->parameters->working_bf16 ? SL_BF16 : SL_F32;
}

/* Microbatches of the longest call of forward or backward_input, and their rows: what workspace must have room for. */
static inline size_t sl_plan_run(const struct sl_plan *plan) { return plan->run > 1 ? (size_t)plan->run : 1; }
static inline size_t sl_plan_rows(const struct sl_plan *plan) { return (size_t)plan->rows * sl_plan_run(plan); }

/* The batch's labels or tokens, which the module READS, are below COUNT: steps refuse others. */
void sl_plan_bound(struct sl_plan *plan, unsigned reads, int count);

/* ---- for the other functions of a type ---- */

/* The values of the module's parameter I: this coordinate's shard. */
static inline const float *sl_value(const struct sl_module *module, const struct sl_context *context, int i) {
    return sl_parameter_value(context->parameters, module->parameter[i]);
}
/* The same values as bf16. */
static inline const uint16_t *sl_rounded_value(const struct sl_module *module, const struct sl_context *context,
                                               int i) {
    return sl_parameter_rounded(context->parameters, module->parameter[i]);
}
/* The same values as blocks; NULL: they do not lie so. */
static inline const struct sl_blocks *sl_blocks_value(const struct sl_module *module, const struct sl_context *context,
                                                      int i) {
    const struct sl_blocks *blocks = &context->parameters->list[module->parameter[i]].blocks;
    return blocks->at ? blocks : NULL;
}
/* Whether parameter I is frozen: it has no gradient. Where all are, no W is called, unless for children. */
static inline bool sl_is_frozen(const struct sl_module *module, const struct sl_context *context, int i) {
    return context->parameters->list[module->parameter[i]].frozen;
}
/* The gradient of the module's parameter I, unless it is frozen. */
static inline float *sl_gradient(const struct sl_module *module, const struct sl_context *context, int i) {
    return sl_parameter_gradient(context->parameters, module->parameter[i]);
}

/* Its gradient's parts, where that has some. */
static inline float *sl_gradient_parts(const struct sl_module *module, const struct sl_context *context, int i) {
    return sl_parameter_parts(context->parameters, module->parameter[i]);
}

/* The address of the array at PLACE. A stash array is that of the context's microbatch; for W, those of the following
 * microbatches lie behind it. */
static inline void *sl_at(const struct sl_context *context, const struct sl_place *place) {
    const struct sl_stash *stash = context->stash;
    if (!place->stashed) return context->workspace + place->offset;
    if (stash->tensor[place->number].passes) stash = stash->once;
    const struct sl_stash_tensor *tensor = &stash->tensor[place->number];
    const size_t slots = (size_t)stash->slots, slot = (size_t)(context->microbatch % stash->slots);
    return (char *)(stash->data + (tensor->offset - stash->begin) * slots) + tensor->stride * slot;
}

/* The microbatches of a call of forward or backward_input. */
static inline size_t sl_call_microbatches(const struct sl_context *context) {
    return context->microbatches > 1 ? (size_t)context->microbatches : 1;
}

/* The group with the number that sl_plan_group gave; NULL if the coordinate is alone. */
static inline const struct sl_group *sl_group_of(const struct sl_context *context, int group) {
    return group < 0 ? NULL : &context->groups->group[group];
}

/* Makes a collective call; the profile counts its time as communication: sl_communicate(context,
 * sl_describe_psum(...)). */
#define sl_communicate(context, ...) sl_communicate_at(context, SL_HERE, __VA_ARGS__)
int sl_communicate_at(struct sl_context *context, const char *site, struct sl_collective call);
/* Y becomes this coordinate's share, along dim DIM of SHAPE [dims], of the sum of all members' X, in the order of a
 * tree or of the members. */
static inline struct sl_collective sl_describe_shares_of_sum(bool by_tree, const struct sl_group *group, const float *x,
                                                             float *y, int dims, const size_t *shape, int dim) {
    return by_tree ? sl_describe_psum_scatter_tree_dim(group, SL_F32, x, y, dims, shape, dim)
                   : sl_describe_psum_scatter_dim(group, SL_F32, x, y, dims, shape, dim);
}
/* X [n] becomes the sum of X over all coordinates of GROUP, in the order of a tree where sums are those of leaves, else
 * in that of the coordinates. Does nothing if the coordinate is alone (-1). */
int sl_sum_over(struct sl_context *context, int group, size_t n, float *x);

SL_END_C

#include "layers/modules/module_calls.h"

#endif
