/* parameters.h - a coordinate's parameters, gradients and optimizer state: flat arrays, a few for each loop.
 *
 * The parameters of a loop lie one after another in flat ranges. Each range is padded to a multiple of (size of the
 * data axis) x 64 bytes, so that one collective moves a loop's range and one fused pass updates it. The ranges are:
 *
 *     [0, loops)           loop l's parameters that every member of the data axis holds: their gradients are summed
 *                          over the data axis
 *     [loops, 2 loops)     loop l's parameters whose specs shard them over data (FSDP): the gradients that modules
 *                          leave are already complete
 *     [2 loops, 3 loops)   where float values of kernels are sharded over data (shards_floats): loop l's kernels of the
 *                          first kind; else nothing
 *     3 loops              tied parameters, which the first and the last stage use: the two stages' gradients are
 *                          added up first
 *     from 3 loops + 1 on  frozen parameters: loop l's that every member of the data axis holds, then loop l's that are
 *                          sharded over it. They have values alone
 *
 * Where gradients of layers are complete one after another (--zero 2), each layer counts as a loop here, behind the
 * pipeline's own loops, which have the other parameters.
 *
 * Parameters are declared while modules are planned. Storage is taken later, so the memory can be computed without
 * being taken. If a model is planned again over the same parameters, for another number of rows, it finds what the
 * first planning declared. */
#ifndef SL_LAYERS_MODULES_PARAMETERS_PARAMETERS_H
#define SL_LAYERS_MODULES_PARAMETERS_PARAMETERS_H

#include "collectives/collectives.h"
#include "layers/kernels/kernels.h"
#include "layers/modules/parameters/rules.h"
#include "layers/storage/quantized/blocks.h"
#include "spmd/device/window.h"
#include "spmd/spec.h"

SL_BEGIN_C

enum { SL_OPTIMIZER_STATES = 4 }; /* the most tensors that an optimizer keeps beside each value */

/* How the gradient of what is sharded over data comes about. Only what trains has parts. */
enum sl_parts {
    SL_COMPLETE, /* modules leave that of the shard */
    SL_OWN_ROWS, /* they leave that of the whole columns of an array of two dims, of this coordinate's rows: its sum is
                    scattered over data, along the second dim, at the end of a step */
    SL_EACH_MEMBERS /* [members of data, shard]: they leave that of each member's rows apart */
};

enum sl_initializer { SL_INIT_ZEROS, SL_INIT_ONES, SL_INIT_TRUNCATED_NORMAL };

struct sl_parameter {
    char name[96]; /* name in the whole model: "blocks.3.input_dense.kernel" */
    int dims;
    size_t shape[SL_MAX_DIMS]; /* of the whole array */
    struct sl_spec spec;
    enum sl_initializer initializer;
    float scale;   /* scale of the truncated normal */
    bool decay;    /* the rules say that weight decay applies */
    bool frozen;   /* it stays as it is: there is no gradient and no optimizer state */
    bool adapter;  /* see sl_parameters.adapters */
    bool gathered; /* all columns are read; the members of data have some each. Set while planning */
    bool kernel;   /* all who read it read it as sl_plan_kernel_type says */
    struct sl_key key;
    /* The key draws the whole array in JAX's layout. Otherwise a word follows from the element's global index. */
    bool key_is_flax;
    int range;
    /* Tied: two stages use it. Second: this coordinate has both stages, and this is the later stage's declaration,
     * which shares the values but has its own gradient. */
    bool tied, second;
    enum sl_parts parts;  /* set while planning (sl_parameters_part_gradient) */
    size_t part;          /* in elements: where they begin in the parts of its range */
    uint64_t mark;        /* hash of the name; filled in when it is declared */
    size_t offset, count; /* in elements: where the shard begins in its range, and how many elements it has; where
                             its values are bf16 alone, in the range's rounded values */
    size_t room;          /* count with padding: what lies behind the shard is zeros, and no part of the parameter */
    /* Its values, where they lie in a file's blocks: as [columns, rows] of the shard, or, of a table, as [rows,
     * columns]. Then it has no place here, and count is 0. */
    struct sl_blocks blocks;
};

/* Bits: in the I of the modules, where W follows it, or in their W. */
enum { SL_WRITTEN_BY_INPUT = 1, SL_WRITTEN_BY_WEIGHT = 2 };

struct sl_range {
    size_t used, count;        /* elements of parameters, and with padding */
    size_t shard, shard_count; /* the part of the range that this coordinate updates: all of it without ZeRO-1 */
    float *value, *gradient;   /* [count]; see sl_range_values */
    bool own_floats;           /* of the values as floats there are only this coordinate's: value is [shard_count] */
    float *parts;              /* [parts_count]: what gradients are summed from at the end of a step; NULL: nothing */
    size_t parts_count;        /* whole cache lines for each parameter */
    float *sum;                /* [shard_count]: the part of the gradients' sum; in gradient, unless that has a room */
    /* Set before the layout, which must be with ZERO: number, from 1, of the room in which the gradient is computed,
     * and which is another range's once the sum has been taken. 0: it has a place of its own. */
    int room;
    int loop;         /* of the pipeline */
    unsigned written; /* when its gradients are computed: SL_WRITTEN_BY_INPUT and the like; set while planning */
    /* [count]: the later stage's gradients of tied parameters that this coordinate declares twice; else NULL. */
    float *second;
    /* [shard_count] each: the optimizer's tensors; NULL beyond sl_parameters.states, and where they are far. */
    float *state[SL_OPTIMIZER_STATES];
    size_t far;           /* where they are far: floats before the first of them */
    uint16_t *rounded;    /* [rounded_count]: the values as bf16; NULL if no module reads them */
    size_t rounded_count; /* count; those that are bf16 alone, where there are such */
};

/* Whether a checkpoint, of all values, has those of adapters alone: what is saved, and what is loaded. */
struct sl_adapters_alone {
    bool saved, loaded;
};

/* Whose values lie in a file's blocks, and may stay there: fills in PARAMETER's blocks, of this coordinate's SHARD, or
 * does nothing. The file's memory outlives the parameters. */
struct sl_block_source {
    void (*find)(const void *arg, const struct sl_shard *shard, struct sl_parameter *parameter);
    const void *arg;
};

struct sl_parameters {
    int count, capacity;
    struct sl_parameter *list;
    int loops, ranges;
    struct sl_range *range;
    /* Set after opening: axis of the data (NULL: it shards nothing), axis of the stages. */
    const char *data_axis, *stage_axis;
    int coordinate;    /* set by sl_pipeline_plan: which one this is, of the mesh that parameters are declared for */
    bool sums_by_tree; /* set after opening: gradients are summed over data in the order of psum_tree */
    /* Set after opening: gradients of kernels that are sharded over data are added up before they are scattered, once
     * in a step, SL_OWN_ROWS. */
    bool scatters_late;
    const struct sl_decay_rule *decays; /* set after opening: which parameters have weight decay; NULL: all */
    const char *frozen;                 /* set after opening: patterns of those that stay as they are; NULL: none */
    /* Set after opening: patterns of adapters, which alone train, and begin with values of their own where the others'
     * come from elsewhere; NULL: there are none. */
    const char *adapters;
    /* Set before they are initialized: the owner writes all values afterwards, but those of adapters: only these are
     * drawn. */
    bool given;
    struct sl_adapters_alone alone; /* set before the run is saved, or loaded */
    /* Set after opening: sums over data of which a layer's gradient in a room is made in a step; 0 counts as 1. */
    int layer_sums;
    const struct sl_block_source
        *source;                   /* set after opening, of kernels that nobody trains; NULL: none lie in blocks */
    int states;                    /* set before the layout: the optimizer's tensors, with */
    const char *const *state_name; /* [states] their names */
    /* Another coordinate has the same tied parameters, and its copies count. */
    bool tied_elsewhere;
    /* Before declaring: two ranks have copies of each parameter, and so all are tied. */
    bool copied;
    /* Set before the layout by those that will not train: there are no gradients and no optimizer state. */
    bool values_only;
    /* Set before the layout, which must be with ZERO: the members of the data axis hold the values that are not sharded
     * over it together, in memory that all of them read, and each writes its part of a range. */
    bool one_copy;
    /* Set before planning, where members of the data axis read each other's memory and modules read kernels as floats:
     * what is sharded over it has its values in memory that all of them read, too, a kernel whole, so that nobody
     * gathers it. A member writes its own columns. */
    bool wholes;
    /* Set before the layout, which must be with ZERO: modules read kernels as bf16 alone, and so each member of the
     * data axis has float values of kernels only in its own part of a range; the bf16 values are everybody's. */
    bool shards_floats;
    /* Set before the layout: the optimizer's tensors lie further away (spmd/device/far.h), where the host computes in a
     * file in far_directory, and come to a room a piece at a time. */
    bool far_states;
    const char *far_directory;
    struct sl_far far;
    float *far_room; /* [states, sl_far_piece] */
    /* Values and gradients of the loops, where they take turns in memory (sl_parameters_begin_turns); else NULL. */
    struct sl_window *turns; /* [2] */
    bool laid_out;           /* no new parameter can be declared */
    bool rounds;             /* a module reads bf16 values */
    /* Set while planning: modules read kernels and tables as bf16, whatever the operands of their products are. The
     * optimizer goes on with the float values, of which the others are copies; what never trains has no float values
     * of them. */
    bool working_bf16;
    /* Set while planning: kernels and tables are floats, but only those that a bf16 can be. So what does not train need
     * not widen them for each product of floats, where none reads bf16 as they lie (sl_gemm_widens). */
    bool settled_bf16;
    int members, member;    /* of the data axis, as the layout was told, and which one this coordinate is */
    float *memory;          /* storage of all ranges in one block, so that it lies on huge pages */
    float *common;          /* that of the values held together: their group owns it */
    struct sl_budget *held; /* set before the storage is taken: counts it; NULL: nobody does */
};

/* Opens an empty list of parameters for a model with LOOPS loops on this coordinate, layers that count as loops
 * included. SL_FAILED, without a message, if there is no memory. Free with sl_parameters_close. */
int sl_parameters_open(struct sl_parameters *parameters, int loops);
/* Says that PART, a layer that counts as a loop, belongs to LOOP. */
void sl_parameters_part(struct sl_parameters *parameters, int part, int loop);
void sl_parameters_close(struct sl_parameters *parameters);

/* The range of tied parameters, unless they are frozen: after it come the ranges of those. */
static inline int sl_tied_range(const struct sl_parameters *parameters) { return 3 * parameters->loops; }
static inline bool sl_range_is_frozen(const struct sl_parameters *parameters, int range) {
    return range > sl_tied_range(parameters);
}

/* Whether members of the data axis have different parts of RANGE's values. */
static inline bool sl_range_is_sharded(const struct sl_parameters *parameters, int range) {
    const bool frozen = range > sl_tied_range(parameters) + parameters->loops;
    return (range >= parameters->loops && range < 2 * parameters->loops) || frozen;
}

/* Whether RANGE has gradients and optimizer state. */
static inline bool sl_range_trains(const struct sl_parameters *parameters, int range) {
    return !parameters->values_only && !sl_range_is_frozen(parameters, range);
}

/* Whether RANGE is a layer's that counts as a loop, and has its gradient in a room: it is summed before its loop's are.
 */
static inline bool sl_range_is_freed_early(const struct sl_parameters *parameters, int range) {
    const struct sl_range *of = &parameters->range[range];
    return of->room && range % parameters->loops != of->loop;
}

/* The sums over data of which the gradient of RANGE is made in a step. */
static inline int sl_range_sums(const struct sl_parameters *parameters, int range) {
    return parameters->layer_sums > 1 && sl_range_is_freed_early(parameters, range) ? parameters->layer_sums : 1;
}

/* The values of RANGE from element FIRST on, which must be this coordinate's own where the others are not there. */
static inline float *sl_range_values(const struct sl_range *range, size_t first) {
    return range->value + (first - (range->own_floats ? range->shard : 0));
}

/* Whether kernels have no float values: nobody trains them. */
static inline bool sl_kernels_are_bf16_alone(const struct sl_parameters *parameters) {
    return parameters->values_only && parameters->working_bf16;
}
static inline bool sl_parameter_is_bf16_alone(const struct sl_parameters *parameters, int i) {
    return sl_kernels_are_bf16_alone(parameters) && parameters->list[i].kernel;
}

/* Whether the values of RANGE are held together with the other members of the data axis. */
static inline bool sl_range_is_common(const struct sl_parameters *parameters, int range) {
    return parameters->one_copy && !sl_range_is_sharded(parameters, range);
}

/* Whether the values of RANGE are sharded, and lie beside the other members' of the data axis. */
static inline bool sl_range_is_whole(const struct sl_parameters *parameters, int range) {
    return parameters->wholes && sl_range_is_sharded(parameters, range);
}

/* Whether values and gradients of RANGE take turns in memory with those of other loops. */
static inline bool sl_range_takes_turns(const struct sl_parameters *parameters, int range) {
    return parameters->turns && range < 2 * parameters->loops;
}

/* Appends a copy of PARAMETER and returns its number, or -1 with the error set. The caller sets PARAMETER's range to
 * the number of its loop; the copy's range, offset and count are computed. SL_BAD_INPUT if its name has been declared,
 * unless both are tied and have the same shape. After the layout it only finds the parameter of that name, which must
 * have the same shape. */
int sl_parameters_declare(struct sl_parameters *parameters, const struct sl_mesh *mesh,
                          const struct sl_parameter *parameter, struct sl_error *error);

/* Says while planning that parameter I is a kernel, which modules read as sl_plan_kernel_type says or as blocks: those
 * it is given here. */
void sl_parameters_find_blocks(struct sl_parameters *parameters, const struct sl_mesh *mesh, int i);
/* For sl_parameters_layout: the others close ranks. And the bytes of all blocks. */
void sl_parameters_leave_blocks_out(struct sl_parameters *parameters);
size_t sl_parameters_block_bytes(const struct sl_parameters *parameters);

/* Says while planning how the gradient of parameter I, which is sharded over data, comes about. After the layout it
 * does nothing: the first planning has said so. */
void sl_parameters_part_gradient(struct sl_parameters *parameters, int i, enum sl_parts parts);

/* Pads the ranges for a data axis of DATA members, of which this coordinate is member INDEX. ZERO: a member keeps
 * optimizer state only for its own part of each range. Of the ranges that have rooms the largest, or all, lose them
 * where that takes less memory. */
void sl_parameters_layout(struct sl_parameters *parameters, int data, int index, bool zero);
/* Bytes that this coordinate will hold, all together and one by one: of values held together its part. */
struct sl_parameter_bytes {
    size_t values; /* with rounded ones */
    size_t gradients, states;
    size_t far; /* what lies further away; the others are what is in memory of it then */
};
struct sl_parameter_bytes sl_parameters_each_bytes(const struct sl_parameters *parameters);
size_t sl_parameters_bytes(const struct sl_parameters *parameters);
/* Adds them to BUDGET. */
void sl_parameters_plan_bytes(const struct sl_parameters *parameters, struct sl_budget *budget);
/* With one_copy, takes the values' memory together with the other members of DATA, of an engine that lets them
 * (sl_reads_peers); it is theirs until they have closed DATA. Otherwise does nothing. */
int sl_parameters_take_common(struct sl_parameters *parameters, struct sl_spmd *self, const struct sl_group *data);
/* Takes the storage, filled with zeros. SL_BAD_INPUT if there is no layout yet, if the storage has been taken, or if
 * what is held together has not; SL_FAILED if there is not enough memory. */
int sl_parameters_take(struct sl_parameters *parameters, struct sl_error *error);

/* Gives every parameter a key of its own, which follows from the seed and its name, and so is the same in every
 * layout. */
void sl_parameters_seed(struct sl_parameters *parameters, uint64_t seed);

/* Whether this coordinate's copy of parameter I stands for all copies. It does if the coordinate is the first one along
 * each axis that neither shards the parameter nor holds the stages. With SHARED, the data axis does not count either:
 * each of its members stands for its own part. */
bool sl_parameter_is_first(const struct sl_parameters *parameters, const struct sl_spmd *self, int i, bool shared);

/* The part of parameter I that this coordinate updates, and for which it has optimizer state: elements [*FIRST, *FIRST
 * + *COUNT) of its shard; none of what is frozen. */
void sl_parameter_share(const struct sl_parameters *parameters, int i, size_t *first, size_t *count);

/* Elements [FIRST, FIRST + COUNT) of this coordinate's part of state tensor STATE of RANGE, wherever it lies. SL_FAILED
 * if a file gives or takes less. */
int sl_parameters_read_state(const struct sl_parameters *parameters, int range, int state, size_t first, size_t count,
                             float *to, struct sl_error *error);
int sl_parameters_write_state(const struct sl_parameters *parameters, int range, int state, size_t first, size_t count,
                              const float *from, struct sl_error *error);
/* All state tensors' elements will be read soon: where they are far. */
void sl_parameters_expect_states(const struct sl_parameters *parameters, int range, size_t first, size_t count);
/* Elements of each tensor that come to the room at a time. */
size_t sl_far_piece(const struct sl_parameters *parameters);
/* ---- values and gradients that take turns in memory ---- */

/* Once, before planning: from now on values and gradients of loops lie further away, where the host computes in files
 * in far_directory, and come to memory while their loop computes. Does nothing if there is one loop. */
int sl_parameters_begin_turns(struct sl_parameters *parameters, struct sl_error *error);
/* The next use in a step, of LOOP's gradients or values. Other uses are allowed, but not expected. */
int sl_parameters_plan_turns(struct sl_parameters *parameters, int loop, bool gradients, struct sl_error *error);
/* Values, or gradients, of the loop of RANGE are in memory until those of another loop are used: until then addresses
 * in them last. CHANGES: they will be written to. These do nothing where nothing takes turns. */
int sl_parameters_use_values(const struct sl_parameters *parameters, int range, bool changes, struct sl_error *error);
int sl_parameters_use_gradients(const struct sl_parameters *parameters, int range, bool changes,
                                struct sl_error *error);
/* All gradients will be overwritten. */
void sl_parameters_drop_gradients(const struct sl_parameters *parameters);

/* Bytes of values, or gradients, that take turns: in memory, and further away. */
struct sl_far_values {
    int frames;
    size_t near, far;
};
struct sl_far_values sl_parameters_far_values(const struct sl_parameters *parameters, bool gradients);
/* Floats of a range's values in all forms. */
size_t sl_range_value_floats(const struct sl_range *range);

/* For sl_parameters_layout and sl_parameters_take: of the ranges that have rooms the largest, or all, lose them where
 * that takes less memory, and those that are alone in one. Then how many rooms there are, the floats of all, and of
 * number ROOM: those of the largest range of at most MOST elements that it is for. */
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
 * broadcasts them to the others; what members hold together, one of them draws where it lies; what is sharded over
 * data, every member draws itself. Collective over DATA.
 * SL_BAD_INPUT if the storage has not been taken. */
int sl_parameters_initialize(struct sl_parameters *parameters, struct sl_spmd *self, const struct sl_group *data);

/* Whether all of RANGE that this coordinate rounds are values of its own shard, which nobody else reads as bf16 here.
 */
/* The number of a parameter's at VALUE, and those behind it, as bf16; NULL where kernels alone are. */
const uint16_t *sl_parameters_rounded(const struct sl_parameters *parameters, const float *value);
bool sl_range_is_rounded_here(const struct sl_parameters *parameters, int range);
/* Rounds the values of RANGE to bf16; call it after they have changed. Of values held together it rounds this
 * coordinate's part; the members meet before they read. Where others' floats are not there it rounds this coordinate's,
 * and the bf16 values are gathered. Does nothing if no module reads bf16 values. */
void sl_parameters_round(const struct sl_parameters *parameters, const struct sl_kernels *kernels, int range);
/* The values of all ranges. */
int sl_parameters_round_all(const struct sl_parameters *parameters, struct sl_error *error);

/* Copies values [FIRST, FIRST + COUNT) of RANGE, which are this coordinate's own, to PIECE, or from it if WRITES is
 * set; wherever they lie. */
void sl_parameters_copy_values(const struct sl_parameters *parameters, int range, size_t first, size_t count,
                               float *piece, bool writes);

/* Of the values of a range that is whole: how many of PARAMETER's shard lie together, a row of its columns or all. */
static inline size_t sl_parameter_run(const struct sl_parameters *parameters, const struct sl_parameter *parameter) {
    return parameter->gathered ? parameter->shape[parameter->dims - 1] / (size_t)parameters->members : parameter->count;
}
/* Whether all columns of parameter I lie at its value, and not just the shard. */
static inline bool sl_parameter_is_whole(const struct sl_parameters *parameters, int i) {
    return parameters->list[i].gathered && sl_range_is_whole(parameters, parameters->list[i].range);
}
/* Addresses of parameter I on this coordinate: its values, unless they are bf16 alone, or only its range's own ones are
 * there, [count] or those of all members; its gradient, NULL if it is frozen; and its bf16 values, each [count]. */
static inline float *sl_parameter_value(const struct sl_parameters *parameters, int i) {
    const struct sl_parameter *parameter = &parameters->list[i];
    float *const values = parameters->range[parameter->range].value;
    if (!sl_range_is_whole(parameters, parameter->range)) return values + parameter->offset;
    const size_t own = parameter->gathered ? 0 : parameter->count * (size_t)parameters->member;
    return values + parameter->offset * (size_t)parameters->members + own;
}
static inline float *sl_parameter_gradient(const struct sl_parameters *parameters, int i) {
    const struct sl_parameter *parameter = &parameters->list[i];
    const struct sl_range *range = &parameters->range[parameter->range];
    if (parameter->frozen) return NULL;
    return (parameter->second ? range->second : range->gradient) + parameter->offset;
}
/* Where modules leave what its gradient is made from: parts, or, where it is SL_COMPLETE, itself. */
static inline float *sl_parameter_parts(const struct sl_parameters *parameters, int i) {
    if (parameters->list[i].parts == SL_COMPLETE) return sl_parameter_gradient(parameters, i);
    return parameters->range[parameters->list[i].range].parts + parameters->list[i].part;
}
static inline uint16_t *sl_parameter_rounded(const struct sl_parameters *parameters, int i) {
    return parameters->range[parameters->list[i].range].rounded + parameters->list[i].offset;
}

SL_END_C
#endif
