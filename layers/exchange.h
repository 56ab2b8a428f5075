/* exchange.h - between the coordinates' shards and whole tensors under their global names. */
#ifndef SL_LAYERS_EXCHANGE_H
#define SL_LAYERS_EXCHANGE_H

#include "layers/parameters.h"
#include "layers/safetensors.h"
#include "layers/trace.h"

SL_BEGIN_C

/* Collective over WORLD (the whole mesh): every coordinate gets its shards of the values in STORE, which is read at
 * coordinate 0 alone. SL_BAD_INPUT names the tensor that is missing or differs in shape or type. */
int sl_import(struct sl_spmd *self, const struct sl_group *world, struct sl_parameters *parameters,
              const struct sl_store *store);

/* Collective over WORLD: assembles all coordinates' values, or gradients, times SCALE, in STORE on
 * coordinate 0. OWNER: this coordinate's shards are sent; it is set on one of each set of replicas. */
int sl_export(struct sl_spmd *self, const struct sl_group *world, const struct sl_parameters *parameters, bool owner,
              bool gradients, float scale, struct sl_store *store);

/* Collective over the mesh: coordinate 0 gets everyone's own of RECORDS[coordinates], each of BYTES, a multiple of 4.
 * Where memory is shared, all give the same array. */
int sl_gather_records(struct sl_spmd *self, void *records, size_t bytes);

/* Collective over the mesh: coordinate 0 gets everyone's events in TRACE[coordinates], where there is as much room. */
int sl_gather_traces(struct sl_spmd *self, struct sl_trace *trace);

SL_END_C
#endif
