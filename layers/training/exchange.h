/* exchange.h - moves tensors between the coordinates' shards and a store of whole tensors under their global names.
 *
 * Coordinate 0 has the store. Data moves between it and another coordinate as one stream, in pieces of a few megabytes.
 * So no more memory is needed beside the store, which may itself be in a file. */
#ifndef SL_LAYERS_TRAINING_EXCHANGE_H
#define SL_LAYERS_TRAINING_EXCHANGE_H

#include "layers/modules/parameters/parameters.h"
#include "layers/storage/safetensors.h"
#include "layers/training/trace.h"

SL_BEGIN_C

/* What is exchanged: values, gradients, the values of adapters (sl_parameters.adapters) alone, where all others keep
 * those that they have, or SL_STATES + s for the optimizer's state tensor number s. A state's tensors are called
 * optimizer.STATE.NAME ("optimizer.first_moment.norm.gamma"); values and gradients have the parameter's name. Under
 * ZeRO each coordinate along data exchanges its own part of state and gradients. */
enum sl_state { SL_VALUES, SL_GRADIENTS, SL_ADAPTERS, SL_STATES };

/* Collective over WORLD (the whole mesh): copies values or state from STORE to every coordinate's shards, and rounds
 * the values as sl_parameters_round does. STORE is read on coordinate 0 alone. SL_BAD_INPUT names the tensor that is
 * missing or that differs in shape or type. */
int sl_import(struct sl_spmd *self, const struct sl_group *world, struct sl_parameters *parameters, enum sl_state state,
              const struct sl_store *store);

/* The same of values, but adapters (sl_parameters.adapters) keep those that they have. */
int sl_import_base(struct sl_spmd *self, const struct sl_group *world, struct sl_parameters *parameters,
                   const struct sl_store *store);

/* Collective over WORLD: assembles values, gradients or state of all coordinates, multiplied by SCALE, in STORE on
 * coordinate 0. Tensors that STORE lacks are added. If several coordinates hold the same shard, the first one sends
 * it. */
int sl_export(struct sl_spmd *self, const struct sl_group *world, const struct sl_parameters *parameters,
              enum sl_state state, float scale, struct sl_store *store);

/* The same of all values or state where coordinates share memory and pass the same STORE, which has all tensors: each
 * copies its own parts, beside the others. STORE is whole once all of them have returned. SL_FAILED without memory. */
int sl_export_beside(struct sl_spmd *self, const struct sl_group *world, const struct sl_parameters *parameters,
                     enum sl_state state, struct sl_store *store);

/* Collective over WORLD: declares in STORE on coordinate 0 the tensors that sl_export would write. */
int sl_declare(struct sl_spmd *self, const struct sl_group *world, const struct sl_parameters *parameters,
               enum sl_state state, struct sl_store *store);

/* Where each coordinate has a store of its own, OWN, for what it alone writes: of a shard that several hold, its share
 * if they share out the range, otherwise all of it at the first one.
 * Collective over WORLD: declares OWN's tensors, of one dim, and in WHOLE, on coordinate 0, the whole tensors, with a
 * piece for each coordinate (layers/storage/store.h). */
int sl_declare_own(struct sl_spmd *self, const struct sl_group *world, const struct sl_parameters *parameters,
                   enum sl_state state, struct sl_store *own, struct sl_store *whole);
/* Copies this coordinate's values or state to OWN, whose declared tensors have their memory. */
int sl_export_own(struct sl_spmd *self, const struct sl_parameters *parameters, enum sl_state state,
                  struct sl_store *own);

/* Collective over the mesh: coordinate 0 gets the record of every coordinate. RECORDS is [coordinates], each of BYTES,
 * a multiple of 4; a coordinate fills in its own before the call. If coordinates share memory, all must pass the same
 * array. */
int sl_gather_records(struct sl_spmd *self, void *records, size_t bytes);

/* Collective over the mesh: coordinate 0 gets the events of every coordinate in TRACE [coordinates], whose entries must
 * have room for them. */
int sl_gather_traces(struct sl_spmd *self, struct sl_trace *trace);

SL_END_C
#endif
