/* module.h - a layer: its type declares parameters and arrays, and computes forward and the two halves of backward.
 *
 * One struct sl_module is one layer of one stage; its type is a table of functions. The life of a module:
 *
 *     plan             Declares parameters, stash and workspace for microbatches of plan->rows rows.
 *     forward          Computes y [rows, out] from x [rows, in]; rows is context->rows.
 *     backward_input   I: computes dx [rows, in] from dy [rows, out]. If no caller needs dx, DX is NULL. dx and dy are
 *                      different arrays. Writes to the stash the arrays that W needs, even if DX is NULL.
 *     backward_weight  W: computes the parameters' gradients from context->wgrad_group microbatches, beginning with
 *                      context->microbatch. If context->accumulate is set, adds to the gradients; otherwise
 *                      overwrites them.
 *
 * A module receives x again in both backward functions, and dy in W: the module's owner saves these rows in the stash,
 * consecutive microbatches one after another. If backward does not read x, plan sets module->x.lasts to
 * SL_UNTIL_RETURN, and backward receives none; if only W does not read x, plan sets it to SL_UNTIL_INPUT, and W
 * receives none; if W does not read dy, plan sets module->y.lasts to SL_UNTIL_RETURN, and W receives none
 * (sl_plan_keeps_nothing sets both to SL_UNTIL_RETURN). In forward-only plans both have this value from the beginning.
 * A parent copies x.lasts and y.lasts from the children that read its x and dy. The module saves everything else that
 * its backward needs, in stash arrays that it declares.
 *
 * A type that needs more fields than struct sl_module has its own struct, which begins with a struct sl_module:
 *
 *     struct dropout {
 *         struct sl_module module;
 *         double rate;
 *     };
 *     static const struct sl_module_type dropout = {..., .bytes = sizeof(struct dropout)};
 *
 * sl_module_new allocates this struct, filled with zeros, and the type's functions cast their module pointer to it.
 *
 * A call of forward or backward_input may take several consecutive microbatches at once. Their rows lie one after
 * another in x, y, dy, dx, the batch and the stash arrays. A type that supports such calls sets fuses: it takes
 * context->rows rows, of context->microbatches microbatches, and plans workspace for sl_plan_rows rows. Other types are
 * called for one microbatch at a time. Each row must get the same bits as in a call for one microbatch.
 *
 * Arrays have a type (layers/modules/calls/given.h): floats, bf16, or both. A type that declares nothing reads
 * x.floats and dy.floats, and writes y->floats and dx->floats.
 *
 * If the plan's storage is bf16, saved arrays take half the memory: x in both backward functions and dy in W are bf16
 * alone. A type that supports this sets stores, and saves its own arrays as bf16 too (layers/modules/kept.h). Other
 * types are planned as if the storage were float32; x and dy are widened for them.
 *
 * Layers that the model repeats set is_layer. Dropouts are then numbered by layer; if dropout keys follow flax's order,
 * each layer has one key.
 *
 * drivers/examples/custom_module.c is a complete example. */
#ifndef SL_LAYERS_MODULES_MODULE_H
#define SL_LAYERS_MODULES_MODULE_H

#include "collectives/waits.h"
#include "layers/kernels/gemm/gemm.h"
#include "layers/modules/calls/batch.h"
#include "layers/modules/calls/caches.h"
#include "spmd/cut.h"
#include "layers/modules/parameters/gathers.h"
#include "layers/modules/calls/groups.h"
#include "layers/modules/load.h"
#include "layers/modules/parameters/parameters.h"
#include "layers/modules/calls/profile.h"
#include "layers/modules/parameters/rules.h"
#include "layers/modules/parameters/scatters.h"
#include "layers/modules/calls/given.h"
#include "layers/modules/calls/use.h"
#include "spmd/trace.h"

SL_BEGIN_C

/* Purpose of a call. SL_PREFILL evaluates a prompt and fills the caches; SL_DECODE evaluates one more token of each
 * sequence, and reads and extends the caches. */
enum sl_phase { SL_TRAIN, SL_EVALUATE, SL_PREFILL, SL_DECODE };

/* Tensors saved from a microbatch's forward to its backward, owned by the pipeline. Each is [slots][rows, cols].
 * Microbatch i lies in slot i % slots, so consecutive microbatches of a group form one contiguous array. */
struct sl_stash_tensor {
    size_t stride; /* bytes of one microbatch */
    size_t offset; /* in elements of one slot: the sum of the padded strides of the tensors before this one */
    bool passes;   /* lasts no longer than a call, and lies in the stash `once` under the same number */
};
struct sl_stash {
    int slots; /* a multiple of wgrad_group; may be set after planning */
    int count, capacity;
    struct sl_stash_tensor *tensor;
    size_t used;           /* floats of one slot: the sum of the tensors' padded strides */
    size_t elements;       /* the largest value of `used`: tensors of modules that take turns share a place */
    float *data;           /* [slots * elements] */
    size_t begin;          /* if DATA holds only a part of the tensors: the first one's offset */
    struct sl_stash *once; /* if the stash is of recomputed modules: the stash of tensors with `passes`; NULL: all
                              tensors are saved */
};

/* Place of a module's own array: in the stash, which lasts until W, or in the workspace, which lasts until the call
 * returns. Planning fills it in; sl_at returns the address. */
struct sl_place {
    bool stashed;
    int number;    /* if stashed: the stash tensor's number */
    size_t offset; /* otherwise: bytes from the beginning of the workspace */
};

/* Source of dropout's random words. Without layer_key a word follows from step_key, the dropout's number in the model,
 * and the element's global row and column. */
struct sl_dropout_source {
    /* One key for each layer of this stage, words in JAX's layout; NULL: words by global position. */
    const struct sl_key *layer_key;
    /* For words by global position: folded with the dropout's number, then hashed with (row, column). */
    struct sl_key step_key;
    uint32_t first_row; /* global row of the call's first row; if sequences are divided, rows of a coordinate count */
    size_t next_keys;   /* keys from a microbatch's layer_key to the next microbatch's in the same call */
    int parts;          /* of a sequence's rows, of which this coordinate has one; 0 counts as 1 */
};

/* Arguments of every call of a type's functions. The pipeline owns one for each coordinate. */
struct sl_context {
    struct sl_spmd *self;
    const struct sl_kernels *kernels;
    void *queue;          /* compute queue; on CPUs the crew */
    struct sl_crew *crew; /* this coordinate's crew (spmd/base/crew.h) in forward-only runs; NULL: none */
    enum sl_phase phase;
    int microbatch;       /* number of the call's first microbatch in this step */
    int first_microbatch; /* number of the first microbatch of the module's stage in this step */
    int microbatches;     /* microbatches of this call of forward or backward_input; 0 counts as 1 */
    int rows;             /* rows of all these microbatches together; in backward_weight: rows of one microbatch */
    int sequence;         /* rows of a sequence, which lie one after another; 0: rows are independent of each other */
    struct sl_cut cut;    /* of sequences, of which a coordinate has SEQUENCE rows each; with leaves, a call's
                             microbatches and sequences are blocks of SEQUENCE rows */
    int position;         /* position of each sequence's first row */
    const int *positions; /* for sequences of one row at different positions: the position of each; otherwise NULL */
    int first_sequence;   /* number of the step's first sequence in the caches */
    bool begins;          /* cached arrays made of parameters must be computed again */
    bool unread;          /* forward: y will not be read, so its computation may be skipped; the stash must be filled */
    int wgrad_group;      /* microbatches of one backward_weight call */
    enum sl_dtype storage; /* type of the arrays that modules save: SL_F32 or SL_BF16 */
    bool accumulate; /* backward_weight adds to the gradients; in I: the stage's first W will add, as all others do */
    struct sl_batch batch;      /* the call's rows of the batch, in device-readable memory */
    int inputs, targets;        /* columns of the batch's inputs and targets */
    float weight;               /* factor of each row's loss in the gradient */
    struct sl_metrics *metrics; /* sums for the host to add to */
    struct sl_sums *sums;       /* sums for kernels to add to; NULL: not requested */
    struct sl_dropout_source dropout;
    const struct sl_parameters *parameters;
    /* Called before the gradients of a layer that is a PART of the parameters are written; NULL: no callback. */
    int (*begin)(struct sl_spmd *self, int part, void *arg);
    void *begin_arg;
    const struct sl_stash *stash;
    const struct sl_groups *groups;   /* NULL: none */
    const struct sl_gathers *gathers; /* gathers of kernels added during planning */
    struct sl_scatters *scatters;     /* scatters of their gradients */
    struct sl_caches *caches;         /* NULL unless the model generates */
    const struct sl_stash *again; /* stash of recomputed modules for backward (layers/modules/parents/recompute.c) */
    const struct sl_stash *once;  /* stash of recomputed modules for forward: the same tensors; modules reuse the same
                                     memory one after another */
    char *workspace;
    struct sl_profile *profile;     /* NULL: no profile */
    struct sl_trace *trace;         /* NULL: no trace */
    struct sl_inspector *inspector; /* NULL, or checks all results (layers/modules/not_finite.h) */
};

struct sl_module;
struct sl_rope;

/* Inputs and results of planning. */
struct sl_plan {
    const struct sl_mesh *mesh;
    const struct sl_rule *rules; /* rules for the parameters' specs; may be NULL */
    const struct sl_gemm_backend *gemm;
    enum sl_dtype precision; /* type of the operands of products, SL_F32 or SL_BF16; all other numbers are float32 */
    enum sl_dtype storage;   /* type of the planned module's arrays saved for backward, SL_F32 or SL_BF16 */
    int rows;                /* rows of a microbatch */
    int run; /* largest number of microbatches of one forward or backward_input call; 0 counts as 1; 1 for modules that
                do not fuse */
    int sequence;      /* rows of a sequence; 0: rows are independent of each other */
    struct sl_cut cut; /* of sequences over CONTEXT_AXIS, which is NULL if they are not divided; leaves: as in struct
                          sl_context */
    const char *context_axis;
    enum sl_context_way context_by; /* for attention */
    int wgrad_group;                /* microbatches of one weight-gradient product */
    const char *leaf_axis;    /* axis with LEAVES: sums over it add leaves in tree order (layers/modules/leaves.h) */
    int leaves;               /* with fewer than two, sums add coordinates */
    int loop;                 /* loop of the parameters */
    int part;                 /* the parameters' loop with the module's parameters: LOOP, or a layer that counts as a
                                 loop */
    int layer;                /* number of the layer in its stage */
    int global_layer;         /* number of the layer in the model */
    int dropouts;             /* dropouts planned in this layer so far */
    size_t padded_rows;       /* padded number of rows of the parameter declared next; 0: no padding */
    char name[64];            /* prefix of parameter names: "blocks.3." */
    struct sl_module *module; /* the module being planned */
    struct sl_parameters *parameters;
    struct sl_stash *stash;
    struct sl_stash *again;   /* stash of recomputed modules, which has a stash `once` */
    struct sl_caches *caches; /* NULL: no generation */
    int x_stride; /* request to a module without children: until W, x and dx are columns of wider rows, which have this
                     many elements and exist only as bf16; 0: dense */
    bool forward_only;   /* there will be no backward call */
    bool no_rewrite;     /* no modules are fused (layers/modules/parents/rewrite.h) */
    bool weights_follow; /* the W of an I's microbatches can run right after it, group by group */
    bool forward_keeps;  /* in a recomputed module's stash, arrays that W reads have their place from forward on */
    bool has_dx;         /* the module's DX will never be NULL */
    bool nobody_waits; /* no rank waits for the stage's dx: the stage is the first, or the rank before it has no core to
                          run on */
    bool sizes_only;   /* no calls will be made: planning skips everything that only calls need */
    struct sl_rope *ropes;        /* tables shared by layers (layers/modules/sequence/rope.h) */
    struct sl_budget *held;       /* counts the memory allocated by planning; NULL: not counted */
    struct sl_groups *groups;     /* groups for communication between modules; NULL: none */
    struct sl_gathers *gathers;   /* gathers kernels before their use; NULL: modules gather them themselves */
    struct sl_scatters *scatters; /* sums the kernels' gradients during other work; NULL: modules sum them themselves */
    struct sl_load *load;         /* counts the work; NULL: not counted */
    struct sl_batch_bounds *bounds;   /* bounds of the batch's labels and tokens (sl_plan_bound); NULL: not checked */
    size_t workspace, workspace_peak; /* bytes in use now, and their largest number so far */
    struct sl_error *error;
};

/* Arrays of context->batch read by a type's functions, as bits. x is not among them: in the first stage it is
 * batch.inputs. */
enum { SL_READS_LABELS = 1, SL_READS_TOKENS = 2, SL_READS_TARGETS = 4 };

enum { SL_MODULE_PARAMETERS = 8 }; /* limit for one module */
/* Limit for one layer. Dropout d of layer l is number l * 64 + d in the model. */
enum { SL_LAYER_DROPOUTS = 64 };

struct sl_module_type {
    const char *name;
    /* These functions return SL_OK, or a status with the error set. Except for plan, they fail only if a communication
     * call or a product in them fails. Use SL_TRY around children and calls. */
    int (*plan)(struct sl_module *module, struct sl_plan *plan); /* NULL: nothing to plan */
    int (*forward)(const struct sl_module *module, struct sl_context *context, struct sl_given x, struct sl_result *y);
    /* NULL for a loss */
    int (*backward_input)(const struct sl_module *module, struct sl_context *context, struct sl_given x,
                          struct sl_given dy, struct sl_result *dx);
    /* NULL for a module without parameters */
    int (*backward_weight)(const struct sl_module *module, struct sl_context *context, struct sl_given x,
                           struct sl_given dy);
    bool stores;    /* reads saved x and dy as bf16 if the storage is bf16 */
    bool fuses;     /* forward and backward_input accept the rows of several microbatches at once */
    bool spares;    /* W skips parameters for which sl_is_frozen is true */
    unsigned reads; /* SL_READS_LABELS and so on; steps refuse batches without these arrays */
    size_t bytes;   /* size of the type's own struct, which begins with a struct sl_module; 0: no own struct */
    void (*release)(struct sl_module *module); /* frees the resources of the own struct; NULL: none */
};

/* One layer of one stage. */
struct sl_module {
    const struct sl_module_type *type;
    const char *name; /* prefix of its parameters' names, "input_dense"; stored behind the type's own struct */
    char called[SL_MODULE_CALLED]; /* name in error reports, "blocks.0.input_dense (dense)"; planning fills it in */
    int in, out;                   /* columns of x and y */
    bool is_layer;                 /* planning it increments the layer's number */
    int part;            /* number of the loop that its parameters have for themselves (sl_model_open_parameters); 0:
                            none */
    struct sl_use x, y;  /* how the module uses its ends; set by planning */
    int x_stride;        /* the requested stride, if forward and W read x and I writes bf16-only dx with it; else 0 */
    bool weights_follow; /* W runs right after I, so dy need not be saved for it */
    enum sl_dtype follower_dy; /* type of dy for a W that follows: the storage's; or float32, as I reads it, if W reads
                                  only floats or no dy */
    bool frozen;               /* all its parameters are frozen, and it has no children: W is not called */
    int parameters;
    int parameter[SL_MODULE_PARAMETERS]; /* numbers of its parameters, in the order of plan's declarations */
    /* Workspace for bf16 storage: x and dy widened for a type that does not store, or bf16 dy for a W that follows. */
    struct sl_place room_x, room_dy;
    int children;
    struct sl_module **child; /* owned */
};

/* Allocates a module of TYPE without children; returns NULL if there is no memory. Copies NAME; NULL is an empty name,
 * which adds nothing to its parameters' names. Free with sl_module_free, or pass to a parent. */
struct sl_module *sl_module_new(const struct sl_module_type *type, const char *name, int in, int out);
/* Allocates a module and takes ownership of its children. If it fails, or if a child is NULL, frees the children and
 * returns NULL. */
struct sl_module *sl_module_new_parent(const struct sl_module_type *type, const char *name, int in, int out,
                                       int children, struct sl_module *const *child);
/* Frees MODULE and its children. NULL is allowed. */
void sl_module_free(struct sl_module *module);

/* ---- planning ---- */

/* Returns SL_BAD_INPUT if MODULE or one of its children lacks a function that a part of a stage needs: forward and,
 * unless FORWARD_ONLY, backward_input. */
int sl_module_check(const struct sl_module *module, bool forward_only, struct sl_error *error);
/* Arrays of the batch read by MODULE and its children: SL_READS_LABELS and so on. NULL reads nothing. */
unsigned sl_module_reads(const struct sl_module *module);

/* Plans MODULE, again if it has been planned before. Returns SL_BAD_INPUT if MODULE has parameters but no
 * backward_weight.
 *
 * While its type plans, the prefix of parameter names is extended by the module's name and a dot. Afterwards
 * plan->workspace is the end of MODULE's workspace. */
int sl_module_plan(struct sl_module *module, struct sl_plan *plan);
/* Plans a child for its parent. Call it for each child with the same BEGIN: children use the same workspace, one after
 * another. Afterwards plan->workspace is the end of the largest workspace of the children so far. */
int sl_plan_child(struct sl_plan *plan, struct sl_module *child, size_t begin);
/* The plan function of a type that has nothing to plan: its backward reads neither x nor, in W, dy. */
int sl_plan_keeps_nothing(struct sl_module *module, struct sl_plan *plan);

/* Declares the next parameter of the module being planned; the module's parameters are numbered 0, 1, ... in this
 * order. The full name is the plan's prefix and NAME. SHAPE is [dims]. SCALE is the scale of a truncated normal; other
 * initializers ignore it. Every coordinate holds the whole array. */
int sl_plan_parameter(struct sl_plan *plan, const char *name, enum sl_initializer initializer, float scale, int dims,
                      const size_t *shape);
/* Returns the scale of a truncated normal with variance 1 / IN (LeCun et al. 1998). */
float sl_lecun_normal(size_t in);
/* Declares a parameter sharded by SPEC ("-,tensor": spmd/spec.h): this coordinate holds one shard; SHAPE is the whole
 * array's. Axes missing in the mesh do not shard. If only the data axis shards a dim after the first and does not
 * divide it, the dim stays whole. */
int sl_plan_parameter_sharded(struct sl_plan *plan, const char *name, enum sl_initializer initializer, float scale,
                              int dims, const size_t *shape, const char *spec);
/* Declares a parameter with the spec of its full name in the plan's rules. */
int sl_plan_parameter_by_rule(struct sl_plan *plan, const char *name, enum sl_initializer initializer, float scale,
                              int dims, const size_t *shape);
/* Declares a tied parameter: the first and the last stage use the same values, and their gradients are summed. Both
 * stages declare it. Its full name is NAME, without prefix; its spec comes from the rules. */
int sl_plan_parameter_tied(struct sl_plan *plan, const char *name, enum sl_initializer initializer, float scale,
                           int dims, const size_t *shape);

/* Plans COUNT floats for each microbatch, in the stash until W. */
int sl_plan_stash(struct sl_plan *plan, size_t count, struct sl_place *place);
/* Plans BYTES of workspace, aligned to a cache line. */
void sl_plan_workspace(struct sl_plan *plan, size_t bytes, struct sl_place *place);
/* Plans COUNT floats for each microbatch: in the stash if they must outlast the call and there will be a backward,
 * otherwise in the workspace. */
int sl_plan_array(struct sl_plan *plan, size_t count, enum sl_lifetime lifetime, struct sl_place *place);
/* Plans COUNT bf16 numbers for each microbatch, in the stash. Not if plan->forward_only. */
int sl_plan_stored(struct sl_plan *plan, size_t count, enum sl_lifetime lifetime, struct sl_place *place);
/* Declares a new cache, *NUMBER, of COLUMNS floats per position. plan->caches must not be NULL. */
int sl_plan_cache(struct sl_plan *plan, size_t columns, int *number);
/* The same with COLUMNS floats in all, for an array made of parameters when a prompt begins. */
int sl_plan_cache_once(struct sl_plan *plan, size_t columns, int *number);
/* Finds the group over AXES; *GROUP is its number, or -1 if the coordinate is alone along them. */
int sl_plan_group(const struct sl_plan *plan, const char *axes, int *group);

/* Returns whether W computes the gradient of the planned module's parameter I. If not, arrays read only by W need not
 * be saved. */
static inline bool sl_plan_trains(const struct sl_plan *plan, int i) {
    return !plan->forward_only && i < plan->module->parameters &&
           !plan->parameters->list[plan->module->parameter[i]].frozen;
}
/* Declares that products of the planned module read parameters as bf16. */
static inline void sl_plan_rounded_values(struct sl_plan *plan) { plan->parameters->rounds = true; }
/* Declares that all readers of the planned module's parameter I read it in sl_plan_kernel_type or, if it is stored as
 * blocks, as blocks. Without training it then needs no float32 values. */
static inline void sl_plan_kernel(struct sl_plan *plan, int i) {
    const int number = plan->module->parameter[i];
    plan->parameters->list[number].kernel = true;
    sl_parameters_find_blocks(plan->parameters, plan->mesh, number);
}
/* Returns whether the planned module's parameter I is stored as blocks; known after sl_plan_kernel. */
static inline bool sl_plan_blocks(const struct sl_plan *plan, int i) {
    return plan->parameters->list[plan->module->parameter[i]].blocks.at;
}
/* Type in which the planned module reads its kernel: bf16 if products have bf16 operands or the storage is bf16. */
static inline enum sl_dtype sl_plan_kernel_type(const struct sl_plan *plan) {
    return plan->precision == SL_BF16 || plan->parameters->working_bf16 ? SL_BF16 : SL_F32;
}

/* Microbatches of the longest call of forward or backward_input, and their rows: the size of workspace arrays. */
static inline size_t sl_plan_run(const struct sl_plan *plan) { return plan->run > 1 ? (size_t)plan->run : 1; }
static inline size_t sl_plan_rows(const struct sl_plan *plan) { return (size_t)plan->rows * sl_plan_run(plan); }

/* Declares that the labels or tokens (READS) must be below COUNT: steps refuse batches with larger ones. */
void sl_plan_bound(struct sl_plan *plan, unsigned reads, int count);

/* ---- for the other functions of a type ---- */

/* Values of the module's parameter I: this coordinate's shard. */
static inline const float *sl_value(const struct sl_module *module, const struct sl_context *context, int i) {
    return sl_parameter_value(context->parameters, module->parameter[i]);
}
/* The same values as bf16. */
static inline const uint16_t *sl_rounded_value(const struct sl_module *module, const struct sl_context *context,
                                               int i) {
    return sl_parameter_rounded(context->parameters, module->parameter[i]);
}
/* The same values as blocks; NULL if they are not stored so. */
static inline const struct sl_blocks *sl_blocks_value(const struct sl_module *module, const struct sl_context *context,
                                                      int i) {
    const struct sl_blocks *blocks = &context->parameters->list[module->parameter[i]].blocks;
    return blocks->at ? blocks : NULL;
}
/* Returns whether parameter I is frozen: it has no gradient. If all parameters of a module are frozen, its W is called
 * only for its children. */
static inline bool sl_is_frozen(const struct sl_module *module, const struct sl_context *context, int i) {
    return context->parameters->list[module->parameter[i]].frozen;
}
/* Gradient of the module's parameter I, from the leaf of sequences that the microbatch belongs to; NULL if it is
 * frozen. */
static inline float *sl_gradient(const struct sl_module *module, const struct sl_context *context, int i) {
    const struct sl_parameters *parameters = context->parameters;
    const struct sl_parameter *parameter = &parameters->list[module->parameter[i]];
    const struct sl_range *range = &parameters->range[parameter->range];
    const int leaf = sl_cut_leaf(context->cut, context->microbatch);
    if (!leaf || parameter->frozen) return sl_parameter_gradient(parameters, module->parameter[i]);
    return parameters->apart.memory + (size_t)(leaf - 1) * parameters->apart.floats + range->apart +
           (parameter->second ? range->count : 0) + parameter->offset;
}

/* The same gradient in parts (enum sl_parts), if it has parts. */
static inline float *sl_gradient_parts(const struct sl_module *module, const struct sl_context *context, int i) {
    const bool complete = context->parameters->list[module->parameter[i]].parts == SL_COMPLETE;
    return complete ? sl_gradient(module, context, i) : sl_parameter_parts(context->parameters, module->parameter[i]);
}

/* Address of the array at PLACE. In the stash it is the array of the context's microbatch; for W, the following
 * microbatches' arrays lie behind it. */
static inline void *sl_at(const struct sl_context *context, const struct sl_place *place) {
    const struct sl_stash *stash = context->stash;
    if (!place->stashed) return context->workspace + place->offset;
    if (stash->tensor[place->number].passes) stash = stash->once;
    const struct sl_stash_tensor *tensor = &stash->tensor[place->number];
    const size_t slots = (size_t)stash->slots, slot = (size_t)(context->microbatch % stash->slots);
    return (char *)(stash->data + (tensor->offset - stash->begin) * slots) + tensor->stride * slot;
}

/* Number of microbatches in a call of forward or backward_input. */
static inline size_t sl_call_microbatches(const struct sl_context *context) {
    return context->microbatches > 1 ? (size_t)context->microbatches : 1;
}

/* Elements of MODULE's input in the call. */
static inline size_t sl_module_elements(const struct sl_module *module, const struct sl_context *context) {
    return (size_t)context->rows * (size_t)module->in;
}

/* The group numbered by sl_plan_group; NULL if the coordinate is alone. */
static inline const struct sl_group *sl_group_of(const struct sl_context *context, int group) {
    return group < 0 ? NULL : &context->groups->group[group];
}

/* Makes a collective call; the profile counts its time as communication: sl_communicate(context,
 * sl_describe_psum(...)). */
#define sl_communicate(context, ...) sl_communicate_at(context, SL_HERE, __VA_ARGS__)
int sl_communicate_at(struct sl_context *context, const char *site, struct sl_collective call);
/* Describes a sum: Y becomes this coordinate's share, along dim DIM of SHAPE [dims], of the sum of all members' X.
 * Terms are added in tree order (BY_TREE) or in member order. */
static inline struct sl_collective sl_describe_shares_of_sum(bool by_tree, const struct sl_group *group, const float *x,
                                                             float *y, int dims, const size_t *shape, int dim) {
    return by_tree ? sl_describe_psum_scatter_tree_dim(group, SL_F32, x, y, dims, shape, dim)
                   : sl_describe_psum_scatter_dim(group, SL_F32, x, y, dims, shape, dim);
}
/* Sums X [n] over all coordinates of GROUP, in place: in tree order if the group sums by_tree, otherwise in the order
 * of the coordinates. If the coordinate is alone (-1), does nothing. */
int sl_sum_over(struct sl_context *context, int group, size_t n, float *x);

SL_END_C

#include "layers/modules/module_calls.h"

#endif
