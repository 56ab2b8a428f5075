/* parameters.h - a coordinate's parameters, gradients and optimizer state: flat arrays, a few for each loop.
 *
 * The parameters of a loop lie one after another in flat ranges. Each range is padded to a multiple of (size of the
 * data axis) x 64 bytes, so one collective moves a loop's range and one fused pass updates it. The ranges are:
 *
 *     [0, loops)           loop l's parameters that every member of the data axis holds: their gradients are summed
 *                          over the data axis
 *     [loops, 2 loops)     loop l's parameters with specs that shard them over data (FSDP): modules write complete
 *                          gradients
 *     [2 loops, 3 loops)   if float values of kernels are sharded over data (shards_floats): loop l's kernels of the
 *                          first kind; otherwise empty
 *     3 loops              tied parameters of the first and the last stage: the two stages' gradients are summed first
 *     from 3 loops + 1 on  frozen parameters, which have only values: loop l's that every member of the data axis
 *                          holds, then loop l's that are sharded over it
 *
 * If gradients of layers are completed one layer after another (--zero 2), each layer counts as a loop here. These
 * loops follow the pipeline's own loops, which have the other parameters.
 *
 * Parameters are declared while modules are planned. Storage is allocated later, so its size can be computed without
 * allocating it. If a model is planned again over the same parameters, for another number of rows, it finds the
 * parameters declared by the first planning. */
#ifndef SL_LAYERS_MODULES_PARAMETERS_PARAMETERS_H
#define SL_LAYERS_MODULES_PARAMETERS_PARAMETERS_H

#include "collectives/collectives.h"
#include "layers/kernels/kernels.h"
#include "layers/modules/parameters/rules.h"
#include "layers/formats/quantized/blocks.h"
#include "spmd/device/window.h"
#include "spmd/spec.h"

SL_BEGIN_C

enum { SL_OPTIMIZER_STATES = 4 }; /* limit of the optimizer tensors beside each value */

/* Form of the gradient of a parameter sharded over data. Only parameters that train have parts. */
enum sl_parts {
    SL_COMPLETE,    /* modules write the shard's gradient */
    SL_OWN_ROWS,    /* modules write the gradient of the whole columns of a 2-dim array, from this coordinate's rows; at
                       the end of a step it is summed and scattered over data, along the second dim */
    SL_EACH_MEMBERS /* [members of data, shard]: modules write the gradient of each member's rows separately */
};

enum sl_initializer { SL_INIT_ZEROS, SL_INIT_ONES, SL_INIT_TRUNCATED_NORMAL };

struct sl_parameter {
    char name[96]; /* name in the whole model: "blocks.3.input_dense.kernel" */
    int dims;
    size_t shape[SL_MAX_DIMS]; /* shape of the whole array */
    struct sl_spec spec;
    enum sl_initializer initializer;
    float scale;  /* scale of the truncated normal */
    bool decay;   /* weight decay applies, according to the rules */
    bool frozen;  /* never changes: it has no gradient and no optimizer state */
    bool adapter; /* see sl_parameters.adapters */
    size_t runs;  /* set during planning, if modules read the columns of all members of data: contiguous runs of this
                     member's, its rows or, if rows are sharded, 1; otherwise 0 */
    bool kernel;  /* all its readers read it in sl_plan_kernel_type */
    struct sl_key key;
    /* If set, the key draws the whole array in JAX's layout. Otherwise a word follows from the element's global
     * index. */
    bool key_is_flax;
    int range;
    int loop; /* loop, or layer of it, that declares it first; the declarer passes it as `range` */
    /* Tied: two stages use it. Second: this coordinate has both stages, and this is the later stage's declaration,
     * which shares the values but has its own gradient. */
    bool tied, second;
    enum sl_parts parts;  /* set during planning (sl_parameters_part_gradient) */
    size_t part;          /* begin of its parts in its range's parts, in elements */
    uint64_t mark;        /* hash of the name; set by its declaration */
    size_t offset, count; /* in elements: begin of the shard in its range, and its size; for bf16-only values, in the
                             range's rounded values */
    size_t room;          /* count with padding: elements after the shard are zeros, and not part of the parameter */
    /* Its values, if they stay in a file's blocks: the shard as [columns, rows] or, for a table, as [rows, columns]. It
     * then has no place here, and count is 0. */
    struct sl_blocks blocks;
};

/* Bits: gradients are computed in the modules' I, if W follows it, or in their W. */
enum { SL_WRITTEN_BY_INPUT = 1, SL_WRITTEN_BY_WEIGHT = 2 };

struct sl_range {
    size_t used, count;        /* elements of parameters, without and with padding */
    size_t shard, shard_count; /* part of the range updated by this coordinate: all of it without ZeRO-1 */
    float *value, *gradient;   /* [count]; see sl_range_values */
    bool own_floats;           /* only this coordinate's part of the float32 values exists: value is [shard_count] */
    float *parts;              /* [parts_count]: parts of gradients to be summed at the end of a step; NULL: none */
    size_t parts_count;        /* whole cache lines for each parameter */
    float *sum; /* [shard_count]: this coordinate's part of the gradients' sum; inside gradient, unless the range has a
                   room */
    /* Room for the gradient, numbered from 1; set before the layout, which must be with ZERO. After the sum another
     * range uses the room. 0: the gradient has its own memory. */
    int room;
    size_t apart; /* floats of earlier ranges in one leaf's gradients (struct sl_apart) */
    int loop;     /* loop of the pipeline */
    unsigned
        written; /* half of backward that computes its gradients: SL_WRITTEN_BY_INPUT and so on; set during planning */
    /* [count]: the later stage's gradients of tied parameters declared twice on this coordinate; else NULL. */
    float *second;
    /* [shard_count] each: the optimizer's tensors; NULL from sl_parameters.states on, and if they are offloaded. */
    float *state[SL_OPTIMIZER_STATES];
    size_t far;           /* if the optimizer's tensors are offloaded: floats before the first of them */
    uint16_t *rounded;    /* [rounded_count]: the values as bf16; NULL if no module reads bf16 */
    size_t rounded_count; /* count; or the number of bf16-only values, if there are any */
};

/* Whether a checkpoint of all values has only the adapters' values, when saving and when loading. */
struct sl_adapters_alone {
    bool saved, loaded;
};

/* Source of values that may stay in a file's blocks: for this coordinate's SHARD, fills in PARAMETER's blocks, or does
 * nothing. The file's memory outlives the parameters. */
struct sl_block_source {
    void (*find)(const void *arg, const struct sl_shard *shard, struct sl_parameter *parameter);
    const void *arg;
    bool dots; /* as in struct sl_blocks */
};

/* Gradients of a coordinate's leaves of sequences (spmd/cut.h), which are added up in tree order. */
struct sl_apart {
    int count;     /* 0 counts as 1 */
    float *memory; /* [count - 1, floats]: of all but the first leaf, whose gradients are those of the ranges */
    size_t floats;
};

struct sl_parameters {
    int count, capacity;
    struct sl_parameter *list;
    int *place; /* [2 capacity]: parameters by the hashes of their names, numbered from 1 */
    int loops, ranges;
    struct sl_range *range;
    /* Set after opening: axis of the data, or a list of axes that replicas lie along (NULL: it shards nothing); axis of
     * the stages. */
    const char *data_axis, *stage_axis;
    int coordinate;    /* set by sl_pipeline_plan: this coordinate's number in the mesh of the declarations */
    bool sums_by_tree; /* set after opening: gradients are summed over data in the order of psum_tree */
    /* Set after opening: gradients of kernels sharded over data accumulate locally and are scattered once in a step,
     * SL_OWN_ROWS. */
    bool scatters_late;
    const struct sl_decay_rule *decays; /* set after opening: rules for weight decay; NULL: on all parameters */
    const char *frozen;                 /* set after opening: name patterns of frozen parameters; NULL: none */
    /* Set after opening: name patterns of adapters; NULL: none. Only adapters train. They are initialized here even if
     * all other values are loaded. */
    const char *adapters;
    /* Set before initialization: the owner writes all values afterwards, except adapters' values: only adapters are
     * drawn. */
    bool given;
    struct sl_adapters_alone alone; /* set before the run is saved or loaded */
    /* Set after opening: number of sums over data per step for a layer's gradient in a room; 0 counts as 1. */
    int layer_sums;
    const struct sl_block_source *source; /* set after opening: blocks for kernels without training; NULL: none */
    int states;                           /* set before the layout: number of the optimizer's tensors */
    const char *const *state_name;        /* [states] names of these tensors */
    /* Another coordinate has the same tied parameters: exports, norms and hashes count its copies, not this
     * coordinate's. */
    bool tied_elsewhere;
    /* Set before declaring: two ranks have copies of each parameter, so all are tied. */
    bool copied;
    /* Set before the layout if there will be no training: there are no gradients and no optimizer state. */
    bool values_only;
    /* Set before the layout, which must be with ZERO: values that are not sharded over the data axis exist once, in
     * memory that all its members read. Each member writes its part of a range. */
    bool one_copy;
    /* Set before planning, if members of the data axis read each other's memory and modules read kernels as float32:
     * values sharded over this axis also lie in memory that all members read, as whole kernels, so they need not be
     * gathered. A member writes its own columns. */
    bool wholes;
    /* Set before the layout, which must be with ZERO: modules read kernels only as bf16. Each member of the data axis
     * has float32 values of kernels only for its own part of a range; all members have the bf16 values. */
    bool shards_floats;
    /* Set before the layout: the optimizer's tensors are offloaded (spmd/device/far.h), on CPUs to a file in
     * far_directory, and copied to a room a piece at a time. */
    bool far_states;
    const char *far_directory;
    struct sl_far far;
    float *far_room; /* [states, sl_far_piece] */
    /* Windows for offloaded values and gradients of the loops (sl_parameters_begin_turns); otherwise NULL. */
    struct sl_window *turns; /* [2] */
    bool laid_out;           /* no new parameter can be declared */
    bool rounds;             /* a module reads bf16 values */
    /* Set during planning: modules read kernels and tables as bf16, for operands of any type. The optimizer updates the
     * float32 values, and the bf16 values are copies; without training there are no float32 values of kernels and
     * tables. */
    bool working_bf16;
    /* Set during planning: kernels and tables are float32, but only bf16-representable values. Runs without training
     * then need not widen them for each float32 product, if no product reads bf16 directly (sl_gemm_widens). */
    bool settled_bf16;
    struct sl_apart apart;  /* set before planning, except its memory */
    int members, member;    /* members of the data axis, from the layout, and this coordinate's number among them */
    float *memory;          /* storage of all ranges in one block, so that it lies on huge pages */
    float *common;          /* storage of the values held together, owned by their group */
    struct sl_budget *held; /* set before allocation: counts the storage; NULL: not counted */
};

/* Opens an empty list of parameters for a model with LOOPS loops on this coordinate, including layers that count as
 * loops. Returns SL_FAILED, without a message, if there is no memory. Free with sl_parameters_close. */
int sl_parameters_open(struct sl_parameters *parameters, int loops);
/* Sets the loop of PART, a layer that counts as a loop, to LOOP. */
void sl_parameters_part(struct sl_parameters *parameters, int part, int loop);
void sl_parameters_close(struct sl_parameters *parameters);

/* The range of tied parameters that train; later ranges are frozen. */
static inline int sl_tied_range(const struct sl_parameters *parameters) { return 3 * parameters->loops; }
static inline bool sl_range_is_frozen(const struct sl_parameters *parameters, int range) {
    return range > sl_tied_range(parameters);
}

/* Returns whether members of the data axis have different parts of RANGE's values. */
static inline bool sl_range_is_sharded(const struct sl_parameters *parameters, int range) {
    const bool frozen = range > sl_tied_range(parameters) + parameters->loops;
    return (range >= parameters->loops && range < 2 * parameters->loops) || frozen;
}

/* Returns whether RANGE has gradients and optimizer state. */
static inline bool sl_range_trains(const struct sl_parameters *parameters, int range) {
    return !parameters->values_only && !sl_range_is_frozen(parameters, range);
}

/* Returns whether RANGE belongs to a layer that counts as a loop and has its gradient in a room: it is summed before
 * its loop's other ranges. */
static inline bool sl_range_is_freed_early(const struct sl_parameters *parameters, int range) {
    const struct sl_range *of = &parameters->range[range];
    return of->room && range % parameters->loops != of->loop;
}

/* Number of sums over data per step for the gradient of RANGE. */
static inline int sl_range_sums(const struct sl_parameters *parameters, int range) {
    return parameters->layer_sums > 1 && sl_range_is_freed_early(parameters, range) ? parameters->layer_sums : 1;
}

/* Values of RANGE from element FIRST on; if the range has own_floats, FIRST must be in this coordinate's part. */
static inline float *sl_range_values(const struct sl_range *range, size_t first) {
    return range->value + (first - (range->own_floats ? range->shard : 0));
}

/* Returns whether kernels have no float32 values, because there is no training. */
static inline bool sl_kernels_are_bf16_alone(const struct sl_parameters *parameters) {
    return parameters->values_only && parameters->working_bf16;
}
static inline bool sl_parameter_is_bf16_alone(const struct sl_parameters *parameters, int i) {
    return sl_kernels_are_bf16_alone(parameters) && parameters->list[i].kernel;
}

/* Returns whether the members of the data axis hold the values of RANGE together. */
static inline bool sl_range_is_common(const struct sl_parameters *parameters, int range) {
    return parameters->one_copy && !sl_range_is_sharded(parameters, range);
}

/* Returns whether the values of RANGE are sharded, and lie beside the other members' parts in shared memory. */
static inline bool sl_range_is_whole(const struct sl_parameters *parameters, int range) {
    return parameters->wholes && sl_range_is_sharded(parameters, range);
}

/* Returns whether values and gradients of RANGE are offloaded while other loops compute. */
static inline bool sl_range_takes_turns(const struct sl_parameters *parameters, int range) {
    return parameters->turns && range < 2 * parameters->loops;
}

/* Appends a copy of PARAMETER and returns its number, or -1 with the error set. The caller sets PARAMETER's range to
 * the number of its loop; the copy's range, offset and count are computed. A name declared before is SL_BAD_INPUT,
 * unless both parameters are tied and have the same shape. After the layout it only finds the declared parameter of
 * that name, which must have the same shape. */
int sl_parameters_declare(struct sl_parameters *parameters, const struct sl_mesh *mesh,
                          const struct sl_parameter *parameter, struct sl_error *error);

/* Declares during planning that parameter I is a kernel, which modules read in sl_plan_kernel_type or as blocks; sets
 * its blocks if the source has them. */
void sl_parameters_find_blocks(struct sl_parameters *parameters, const struct sl_mesh *mesh, int i);
/* For sl_parameters_layout: parameters whose values stay in a file's blocks get no room in their ranges. The second
 * function returns the bytes of all blocks. */
void sl_parameters_leave_blocks_out(struct sl_parameters *parameters);
size_t sl_parameters_block_bytes(const struct sl_parameters *parameters);

/* Declares during planning the form of the gradient of parameter I, which is sharded over data. After the layout it
 * does nothing: the first planning has declared the form. */
void sl_parameters_part_gradient(struct sl_parameters *parameters, int i, enum sl_parts parts);

/* Pads the ranges for a data axis of DATA members; this coordinate is member INDEX. With ZERO, a member has optimizer
 * state only for its own part of each range. The largest ranges with rooms, or all, lose their rooms if that takes less
 * memory. */
void sl_parameters_layout(struct sl_parameters *parameters, int data, int index, bool zero);
/* Bytes of this coordinate's storage, by kind and in total. If values are held together, only its part of them
 * counts. */
struct sl_parameter_bytes {
    size_t values; /* including bf16 copies */
    size_t gradients, states;
    size_t far; /* offloaded bytes; the other fields then count only the bytes in memory */
};
struct sl_parameter_bytes sl_parameters_each_bytes(const struct sl_parameters *parameters);
size_t sl_parameters_bytes(const struct sl_parameters *parameters);
/* Adds these bytes to BUDGET. */
void sl_parameters_plan_bytes(const struct sl_parameters *parameters, struct sl_budget *budget);
/* With one_copy or wholes, allocates the values held together with the other members of DATA, on an engine that
 * supports it (sl_reads_peers); the memory lives until DATA is closed. Otherwise does nothing. */
int sl_parameters_take_common(struct sl_parameters *parameters, struct sl_spmd *self, const struct sl_group *data);
/* Allocates the storage, filled with zeros. Returns SL_BAD_INPUT if there is no layout yet, if the storage exists, or
 * if values held together have no memory; SL_FAILED if there is not enough memory. */
int sl_parameters_take(struct sl_parameters *parameters, struct sl_error *error);

/* Gives every parameter a key of its own, from the seed and its name, so it is the same in every layout. */
void sl_parameters_seed(struct sl_parameters *parameters, uint64_t seed);

/* Returns whether this coordinate's copy of parameter I stands for all copies: the coordinate is the first one along
 * each axis except axes that shard the parameter or hold the stages. With SHARED, the data axis does not count either:
 * each of its members stands for its own part. */
bool sl_parameter_is_first(const struct sl_parameters *parameters, const struct sl_spmd *self, int i, bool shared);

/* The part of parameter I updated by this coordinate, with optimizer state: elements [*FIRST, *FIRST + *COUNT) of its
 * shard; empty for frozen parameters. */
void sl_parameter_share(const struct sl_parameters *parameters, int i, size_t *first, size_t *count);

/* Reads or writes elements [FIRST, FIRST + COUNT) of this coordinate's part of state tensor STATE of RANGE, in memory
 * or offloaded. Returns SL_FAILED if a file reads or writes less. */
int sl_parameters_read_state(const struct sl_parameters *parameters, int range, int state, size_t first, size_t count,
                             float *to, struct sl_error *error);
int sl_parameters_write_state(const struct sl_parameters *parameters, int range, int state, size_t first, size_t count,
                              const float *from, struct sl_error *error);
/* Announces reads of these elements of all state tensors; call it only if they are offloaded. */
void sl_parameters_expect_states(const struct sl_parameters *parameters, int range, size_t first, size_t count);
/* Elements of each tensor per piece. */
size_t sl_far_piece(const struct sl_parameters *parameters);
/* ---- offloading of values and gradients ---- */

/* Call it once, before planning: from now on values and gradients of loops are offloaded, on CPUs to files in
 * far_directory, and are in memory while their loop computes. Does nothing if there is one loop. */
int sl_parameters_begin_turns(struct sl_parameters *parameters, struct sl_error *error);
/* Declares the next use in a step, of LOOP's gradients or values. Other uses are allowed, but not expected. */
int sl_parameters_plan_turns(struct sl_parameters *parameters, int loop, bool gradients, struct sl_error *error);
/* Bring values, or gradients, of the loop of RANGE into memory. Addresses in them are valid until another loop's
 * values, or gradients, are used. CHANGES: the caller will write to them. Without offloading these do nothing. */
int sl_parameters_use_values(const struct sl_parameters *parameters, int range, bool changes, struct sl_error *error);
int sl_parameters_use_gradients(const struct sl_parameters *parameters, int range, bool changes,
                                struct sl_error *error);
/* Declares that all gradients will be overwritten. */
void sl_parameters_drop_gradients(const struct sl_parameters *parameters);

/* Bytes of offloaded values, or gradients. near: in memory; far: in the offload memory. */
struct sl_far_values {
    int frames;
    size_t near, far;
};
struct sl_far_values sl_parameters_far_values(const struct sl_parameters *parameters, bool gradients);
/* Floats of a range's values in all forms. */
size_t sl_range_value_floats(const struct sl_range *range);

/* For sl_parameters_layout and sl_parameters_take. sl_rooms_choose removes the rooms of the largest ranges, or of all,
 * if that saves memory, and of ranges that are alone in a room. The others return the number of rooms, the floats of
 * all rooms, and the floats of number ROOM: those of its largest range of at most MOST elements. */
void sl_rooms_choose(struct sl_parameters *parameters);
int sl_rooms_count(const struct sl_parameters *parameters);
size_t sl_rooms_floats(const struct sl_parameters *parameters);
size_t sl_room_floats(const struct sl_parameters *parameters, int room, size_t most);

/* For sl_parameters_take and sl_parameters_close. */
int sl_parameters_open_turns(struct sl_parameters *parameters, struct sl_error *error);
void sl_parameters_close_turns(struct sl_parameters *parameters);
size_t sl_far_room_bytes(const struct sl_parameters *parameters);
int sl_parameters_open_far(struct sl_parameters *parameters, struct sl_error *error);
void sl_parameters_close_far(struct sl_parameters *parameters);

/* Fills in the initial values, and rounds them as sl_parameters_round does. The first member of DATA draws them and
 * broadcasts them to the others. If values are held together, one member draws each parameter in place. If values are
 * sharded over data, every member draws its own. Collective over DATA.
 *
 * Returns SL_BAD_INPUT if the storage has not been allocated. */
int sl_parameters_initialize(struct sl_parameters *parameters, struct sl_spmd *self, const struct sl_group *data);

/* The bf16 copies of the values at VALUE and behind it; NULL if no values, or only kernels, have bf16 copies. */
const uint16_t *sl_parameters_rounded(const struct sl_parameters *parameters, const float *value);
/* Returns whether an update of RANGE can also round it: this coordinate updates all values that it rounds, and no other
 * coordinate reads its bf16 values in place. */
bool sl_range_is_rounded_here(const struct sl_parameters *parameters, int range);
/* Rounds the values of RANGE to bf16; call it after they have changed. If values are held together, rounds this
 * coordinate's part, and the members must meet before they read. If this coordinate has float32 values only for its own
 * part, rounds these, and the bf16 values must be gathered. If no module reads bf16 values, does nothing. */
void sl_parameters_round(const struct sl_parameters *parameters, const struct sl_kernels *kernels, int range);
/* Rounds the values of all ranges. */
int sl_parameters_round_all(const struct sl_parameters *parameters, struct sl_error *error);

/* Copies values [FIRST, FIRST + COUNT) of RANGE, which are this coordinate's own, to PIECE or, if WRITES is set, from
 * PIECE. */
void sl_parameters_copy_values(const struct sl_parameters *parameters, int range, size_t first, size_t count,
                               float *piece, bool writes);

/* For a range that is whole: the number of contiguous values of PARAMETER's shard, a run if it has runs, otherwise the
 * whole shard. */
static inline size_t sl_parameter_run(const struct sl_parameter *parameter) {
    return parameter->runs ? parameter->count / parameter->runs : parameter->count;
}
/* Returns whether all columns of parameter I lie at its value, and not just the shard. */
static inline bool sl_parameter_is_whole(const struct sl_parameters *parameters, int i) {
    return parameters->list[i].runs && sl_range_is_whole(parameters, parameters->list[i].range);
}
/* Addresses of parameter I on this coordinate: its values, unless they are bf16-only or the range has own_floats,
 * [count] or those of all members; its gradient, NULL if it is frozen; and its bf16 values, each [count]. */
static inline float *sl_parameter_value(const struct sl_parameters *parameters, int i) {
    const struct sl_parameter *parameter = &parameters->list[i];
    float *const values = parameters->range[parameter->range].value;
    if (!sl_range_is_whole(parameters, parameter->range)) return values + parameter->offset;
    const size_t own = parameter->runs ? 0 : parameter->count * (size_t)parameters->member;
    return values + parameter->offset * (size_t)parameters->members + own;
}
static inline float *sl_parameter_gradient(const struct sl_parameters *parameters, int i) {
    const struct sl_parameter *parameter = &parameters->list[i];
    const struct sl_range *range = &parameters->range[parameter->range];
    if (parameter->frozen) return NULL;
    return (parameter->second ? range->second : range->gradient) + parameter->offset;
}
/* Gradient of RANGE, or its `second`, from leaf LEAF of sequences. */
static inline float *sl_range_gradient_of(const struct sl_parameters *parameters, int range, bool second, int leaf) {
    const struct sl_range *of = &parameters->range[range];
    if (!leaf) return second ? of->second : of->gradient;
    return parameters->apart.memory + (size_t)(leaf - 1) * parameters->apart.floats + of->apart +
           (second ? of->count : 0);
}
/* Address for the modules' parts of its gradient or, if it is SL_COMPLETE, of the gradient itself. */
static inline float *sl_parameter_parts(const struct sl_parameters *parameters, int i) {
    if (parameters->list[i].parts == SL_COMPLETE) return sl_parameter_gradient(parameters, i);
    return parameters->range[parameters->list[i].range].parts + parameters->list[i].part;
}
static inline uint16_t *sl_parameter_rounded(const struct sl_parameters *parameters, int i) {
    return parameters->range[parameters->list[i].range].rounded + parameters->list[i].offset;
}

SL_END_C
#endif
