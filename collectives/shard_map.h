/* shard_map.h - maps a function over shards of global arrays: slice, run, assemble. */
#ifndef SL_COLLECTIVES_SHARD_MAP_H
#define SL_COLLECTIVES_SHARD_MAP_H

#include "spmd/engine.h"
#include "spmd/spec.h"

SL_BEGIN_C

enum { SL_MAX_ARRAYS = 16 };

/* The mapped function. in[i] is this coordinate's shard of input i, and out[i] its shard of output i, filled with
 * zeros. sl_shard_map_run frees both after the function has returned. */
typedef int sl_shard_function(struct sl_spmd *self, const struct sl_array *in, struct sl_array *out, void *arg);

struct sl_shard_map {
    int inputs, outputs;
    struct sl_array *input;         /* [inputs] global arrays, read only */
    const struct sl_spec *in_spec;  /* [inputs] */
    struct sl_array *output;        /* [outputs] global arrays; the caller has allocated their data */
    const struct sl_spec *out_spec; /* [outputs]; coordinates along an axis missing from a spec must agree */
};

/* Runs FUNCTION on every coordinate's shards and assembles the outputs; if there are several processes, process 0
 * receives them. Checks all shapes before it runs anything: SL_BAD_INPUT if one does not fit. SL_FAILED if coordinates
 * differ in an output they should share; the message names two of them. */
int sl_shard_map_run(const struct sl_shard_map *map, const struct sl_mesh *mesh, const struct sl_engine *engine,
                     sl_shard_function *function, void *arg);

SL_END_C
#endif
