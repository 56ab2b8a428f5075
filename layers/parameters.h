/* parameters.h - a coordinate's parameters, gradients and optimizer state: flat per loop.
 *
 * A loop's parameters lie one after another in one flat range, padded to (size of the data axis) x 64 bytes, so that
 * one collective moves a loop and one fused pass updates it. Parameters are declared while modules are planned; storage
 * comes afterwards, so that memory can be told without being taken. */
#ifndef SL_LAYERS_PARAMETERS_H
#define SL_LAYERS_PARAMETERS_H

#include "collectives/collectives.h"
#include "layers/kernels.h"
#include "spmd/spec.h"

SL_BEGIN_C

enum sl_initializer { SL_INIT_ZEROS, SL_INIT_ONES, SL_INIT_TRUNCATED_NORMAL };

struct sl_parameter {
    char name[96]; /* global: "blocks.3.input_dense.kernel" */
    int dims;
    size_t shape[SL_MAX_DIMS]; /* global */
    struct sl_spec spec;
    enum sl_initializer initializer;
    float scale; /* of the truncated normal */
    bool decay;  /* weight decay applies */
    struct sl_key key;
    bool key_is_flax; /* key gives the whole array in JAX's layout; otherwise words go by the element's global index */
    int loop;
    size_t offset, count; /* elements in the loop's flat range; count is the shard's */
};

struct sl_loop_storage {
    size_t used, count;                  /* elements: of parameters; padded */
    size_t shard, shard_count;           /* the range that this coordinate updates: all of it without ZeRO-1 */
    float *value, *gradient;             /* [count] */
    float *first_moment, *second_moment; /* [shard_count] */
    uint16_t *rounded;                   /* [count]: the values as bf16; NULL where nobody reads them */
};

struct sl_parameters {
    int count, capacity;
    struct sl_parameter *list;
    int loops;
    struct sl_loop_storage *loop;
    bool rounds;   /* some module reads rounded values */
    float *memory; /* all loops' storage: one block, so that it lies on huge pages */
};

int sl_parameters_open(struct sl_parameters *parameters, int loops);
void sl_parameters_close(struct sl_parameters *parameters);

/* Appends a copy of PARAMETER to its loop (offset and count are filled in); returns its number, or -1 without memory.
 */
int sl_parameters_declare(struct sl_parameters *parameters, const struct sl_mesh *mesh,
                          const struct sl_parameter *parameter, struct sl_error *error);

/* Pads the loops for a data axis of DATA members of which this is member INDEX; ZERO: optimizer state only for the
 * shard. */
void sl_parameters_layout(struct sl_parameters *parameters, int data, int index, bool zero);
/* Bytes that sl_parameters_take will take. */
size_t sl_parameters_bytes(const struct sl_parameters *parameters);
int sl_parameters_take(struct sl_parameters *parameters, struct sl_error *error);

/* Gives every parameter a key of its own, from the seed and its name: the same in every layout. */
void sl_parameters_seed(struct sl_parameters *parameters, uint64_t seed);

/* Fills in initial values: made by the first member of DATA, then broadcast over it. */
int sl_parameters_initialize(struct sl_parameters *parameters, struct sl_spmd *self, const struct sl_group *data);

/* Rounds LOOP's values, which have changed; does nothing where nobody reads rounded ones. */
void sl_parameters_round(const struct sl_parameters *parameters, const struct sl_kernels *kernels, int loop);

static inline float *sl_parameter_value(const struct sl_parameters *parameters, int i) {
    return parameters->loop[parameters->list[i].loop].value + parameters->list[i].offset;
}
static inline float *sl_parameter_gradient(const struct sl_parameters *parameters, int i) {
    return parameters->loop[parameters->list[i].loop].gradient + parameters->list[i].offset;
}
static inline const uint16_t *sl_parameter_rounded(const struct sl_parameters *parameters, int i) {
    return parameters->loop[parameters->list[i].loop].rounded + parameters->list[i].offset;
}

SL_END_C
#endif
