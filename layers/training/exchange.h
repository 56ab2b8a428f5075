/* exchange.h - between the coordinates' shards and whole tensors under their global names.
 *
 * Coordinate 0 has the tensors. What another one holds goes to it, or comes from it, as one stream in pieces of a few
 * megabytes: beside the store, which may lie in a file, no more memory is taken. */
#ifndef SL_LAYERS_TRAINING_EXCHANGE_H
#define SL_LAYERS_TRAINING_EXCHANGE_H

#include "layers/modules/parameters.h"
#include "layers/storage/safetensors.h"
#include "layers/training/trace.h"

SL_BEGIN_C

/* What is exchanged: values, gradients, or SL_STATES + s, the optimizer's state number s. Its tensors are called
 * optimizer.STATE.NAME ("optimizer.first_moment.norm.gamma"), the others as the parameter. Where coordinates along data
 * keep a share each of what all of them use (ZeRO), state and gradients are each one's share. */
enum sl_state { SL_VALUES, SL_GRADIENTS, SL_STATES };

/* Collective over WORLD (the whole mesh): every coordinate gets its shards of the values, or state, in STORE, which
 * is read at coordinate 0 alone. SL_BAD_INPUT names the tensor that is missing or differs in shape or type. */
int sl_import(struct sl_spmd *self, const struct sl_group *world, struct sl_parameters *parameters, enum sl_state state,
              const struct sl_store *store);

/* Collective over WORLD: assembles all coordinates' state, times SCALE, in STORE on coordinate 0: in tensors that are
 * there, or new ones. Of replicas the first one's are sent. */
int sl_export(struct sl_spmd *self, const struct sl_group *world, const struct sl_parameters *parameters,
              enum sl_state state, float scale, struct sl_store *store);

/* Collective over WORLD: declares in STORE on coordinate 0 what sl_export would put into it. */
int sl_declare(struct sl_spmd *self, const struct sl_group *world, const struct sl_parameters *parameters,
               enum sl_state state, struct sl_store *store);

/* Collective over the mesh: coordinate 0 gets everyone's own of RECORDS[coordinates], each of BYTES, a multiple of 4.
 * Where memory is shared, all give the same array. */
int sl_gather_records(struct sl_spmd *self, void *records, size_t bytes);

/* Collective over the mesh: coordinate 0 gets everyone's events in TRACE[coordinates], where there is as much room. */
int sl_gather_traces(struct sl_spmd *self, struct sl_trace *trace);

SL_END_C
#endif
