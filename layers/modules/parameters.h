/* parameters.h - a coordinate's parameters, gradients and optimizer state: flat per loop.
 *
 * A loop's parameters lie one after another in flat ranges, padded to (size of the data axis) x 64 bytes, so that one
 * collective moves a loop and one fused pass updates it:
 *     [0, loops)           loop l's, whole on all members of the data axis: gradients are to be summed over it
 *     [loops, 2 loops)     those of loop l that specs shard over data (FSDP): modules leave gradients complete
 *     2 loops              tied ones: used by the first and the last stage, whose gradients are added up first
 * Parameters are declared while modules are planned; storage comes afterwards, so that memory can be told without being
 * taken. A model planned again, for other rows, over the same parameters finds what was declared the first time. */
#ifndef SL_LAYERS_MODULES_PARAMETERS_H
#define SL_LAYERS_MODULES_PARAMETERS_H

#include "collectives/collectives.h"
#include "layers/kernels/kernels.h"
#include "layers/modules/rules.h"
#include "spmd/spec.h"

SL_BEGIN_C

enum { SL_OPTIMIZER_STATES = 4 }; /* tensors that an optimizer keeps beside each value, at most */

enum sl_initializer { SL_INIT_ZEROS, SL_INIT_ONES, SL_INIT_TRUNCATED_NORMAL };

struct sl_parameter {
    char name[96]; /* global: "blocks.3.input_dense.kernel" */
    int dims;
    size_t shape[SL_MAX_DIMS]; /* global */
    struct sl_spec spec;
    enum sl_initializer initializer;
    float scale; /* of the truncated normal */
    bool decay;  /* weight decay applies: as the rules say */
    struct sl_key key;
    bool key_is_flax; /* key gives the whole array in JAX's layout; otherwise words go by the element's global index */
    int range;
    bool tied, second; /* of two stages; and declared here by both, of which this is the later one: values are shared,
                          gradients apart */
    size_t offset, count; /* elements in the flat range; count is the shard's */
};

struct sl_range {
    size_t used, count;                /* elements: of parameters; padded */
    size_t shard, shard_count;         /* the range that this coordinate updates: all of it without ZeRO-1 */
    float *value, *gradient;           /* [count] */
    float *second;                     /* [count]: the later stage's gradients of what both declare; else NULL */
    float *state[SL_OPTIMIZER_STATES]; /* [shard_count] each: the optimizer's; NULL beyond the parameters' states */
    uint16_t *rounded;                 /* [count]: the values as bf16; NULL where nobody reads them */
};

struct sl_parameters {
    int count, capacity;
    struct sl_parameter *list;
    int loops, ranges;
    struct sl_range *range;
    const char *data_axis, *stage_axis; /* set after opening: of data (NULL: nothing is sharded over it), of stages */
    const struct sl_decay_rule *decays; /* set after opening: which ones decay; NULL: all */
    int states;                         /* set before laying out: tensors of the optimizer, called */
    const char *const *state_name;      /* [states] */
    bool tied_elsewhere;                /* the tied ones' other stage is another coordinate's, and the first one */
    bool values_only; /* no gradients and no optimizer state: set before laying out by who will not train */
    bool laid_out;    /* nothing new can be declared */
    bool rounds;      /* some module reads rounded values */
    float *memory;    /* all ranges' storage: one block, so that it lies on huge pages */
};

int sl_parameters_open(struct sl_parameters *parameters, int loops);
void sl_parameters_close(struct sl_parameters *parameters);

static inline bool sl_range_is_sharded(const struct sl_parameters *parameters, int range) {
    return range >= parameters->loops && range < 2 * parameters->loops;
}

/* Appends a copy of PARAMETER, whose range is its loop's number (range, offset and count are filled in), or finds it
 * where all have been laid out; returns its number, or -1 with the error set. */
int sl_parameters_declare(struct sl_parameters *parameters, const struct sl_mesh *mesh,
                          const struct sl_parameter *parameter, struct sl_error *error);

/* Pads the ranges for a data axis of DATA members of which this is member INDEX; ZERO: optimizer state only for the
 * shard. */
void sl_parameters_layout(struct sl_parameters *parameters, int data, int index, bool zero);
/* Bytes that sl_parameters_take will take. */
size_t sl_parameters_bytes(const struct sl_parameters *parameters);
int sl_parameters_take(struct sl_parameters *parameters, struct sl_error *error);

/* Gives every parameter a key of its own, from the seed and its name: the same in every layout. */
void sl_parameters_seed(struct sl_parameters *parameters, uint64_t seed);

/* Whether this coordinate's copy of parameter I stands for all replicas: it is the first along all axes that neither
 * shard it nor hold different stages. With SHARED, members of the data axis stand for a share each. */
bool sl_parameter_is_first(const struct sl_parameters *parameters, const struct sl_spmd *self, int i, bool shared);

/* The part of parameter I that this coordinate updates, and whose optimizer state it has: elements *FIRST to *FIRST +
 * *COUNT of its shard. */
void sl_parameter_share(const struct sl_parameters *parameters, int i, size_t *first, size_t *count);
/* That part's state number STATE; [*COUNT]. */
float *sl_parameter_state(const struct sl_parameters *parameters, int i, int state);

/* Fills in initial values: made by the first member of DATA, then broadcast over it; those that data shards, by all. */
int sl_parameters_initialize(struct sl_parameters *parameters, struct sl_spmd *self, const struct sl_group *data);

/* Rounds RANGE's values, which have changed; does nothing where nobody reads rounded ones. */
void sl_parameters_round(const struct sl_parameters *parameters, const struct sl_kernels *kernels, int range);

static inline float *sl_parameter_value(const struct sl_parameters *parameters, int i) {
    return parameters->range[parameters->list[i].range].value + parameters->list[i].offset;
}
static inline float *sl_parameter_gradient(const struct sl_parameters *parameters, int i) {
    const struct sl_parameter *parameter = &parameters->list[i];
    const struct sl_range *range = &parameters->range[parameter->range];
    return (parameter->second ? range->second : range->gradient) + parameter->offset;
}
static inline const uint16_t *sl_parameter_rounded(const struct sl_parameters *parameters, int i) {
    return parameters->range[parameters->list[i].range].rounded + parameters->list[i].offset;
}

SL_END_C
#endif
