/* shard_map.h - maps a function over shards of global arrays: slice, run, assemble. */
#ifndef SL_COLLECTIVES_SHARD_MAP_H
#define SL_COLLECTIVES_SHARD_MAP_H

#include "spmd/engine.h"
#include "spmd/spec.h"

SL_BEGIN_C

enum { SL_MAX_ARRAYS = 16 };

/* Sees its own shards: in[i] holds this coordinate's slice, out[i] a zeroed shard to fill; both are freed afterwards.
 */
typedef int sl_shard_function(struct sl_spmd *self, const struct sl_array *in, struct sl_array *out, void *arg);

struct sl_shard_map {
    int inputs, outputs;
    struct sl_array *input;         /* [inputs] global arrays, read */
    const struct sl_spec *in_spec;  /* [inputs] */
    struct sl_array *output;        /* [outputs] global arrays with their data allocated by the caller, written */
    const struct sl_spec *out_spec; /* [outputs]; where it leaves an axis out, the coordinates along it must agree */
};

/* Runs FUNCTION on every coordinate's shards and assembles the outputs (process 0 receives them where there are
 * several). All shapes are checked before anything runs. Where coordinates that should hold the same output do not, the
 * run fails and names two of them. */
int sl_shard_map_run(const struct sl_shard_map *map, const struct sl_mesh *mesh, const struct sl_engine *engine,
                     sl_shard_function *function, void *arg);

SL_END_C
#endif
