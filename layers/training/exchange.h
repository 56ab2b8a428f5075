/* exchange.h - moves tensors between the coordinates' shards and a store of whole tensors under their global names.
 *
 * Coordinate 0 has the store, which may itself be in a file. Data moves between coordinate 0 and another coordinate as
 * one stream, in pieces of a few megabytes, so little further memory is needed. */
#ifndef SL_LAYERS_TRAINING_EXCHANGE_H
#define SL_LAYERS_TRAINING_EXCHANGE_H

#include "layers/modules/parameters/parameters.h"
#include "layers/formats/stores/checksums.h"
#include "layers/formats/stores/safetensors.h"
#include "spmd/trace.h"

SL_BEGIN_C

/* Kinds of tensors to exchange: values, gradients, adapters' values only (sl_parameters.adapters; all other values stay
 * unchanged), or SL_STATES + s for the optimizer's state tensor number s. A state's tensors are called
 * optimizer.STATE.NAME ("optimizer.first_moment.norm.gamma"); values and gradients have the parameter's name. Under
 * ZeRO each coordinate along data exchanges its own part of state and gradients. */
enum sl_state { SL_VALUES, SL_GRADIENTS, SL_ADAPTERS, SL_STATES };

/* Copies values or state from STORE to every coordinate's shards, and rounds the values as sl_parameters_round does.
 * Only coordinate 0 reads STORE. Collective over WORLD (the whole mesh). SL_BAD_INPUT names a missing tensor, or one
 * with another shape or type. */
int sl_import(struct sl_spmd *self, const struct sl_group *world, struct sl_parameters *parameters, enum sl_state state,
              const struct sl_store *store);

/* As sl_import for values, but adapters (sl_parameters.adapters) stay unchanged. */
int sl_import_base(struct sl_spmd *self, const struct sl_group *world, struct sl_parameters *parameters,
                   const struct sl_store *store);

/* Assembles values, gradients or state of all coordinates, multiplied by SCALE, in STORE on coordinate 0. Missing
 * tensors are added to STORE. If several coordinates hold the same shard, the first one sends it. Collective over
 * WORLD. */
int sl_export(struct sl_spmd *self, const struct sl_group *world, const struct sl_parameters *parameters,
              enum sl_state state, float scale, struct sl_store *store);

/* As sl_export for values or state, for coordinates with shared memory and the same STORE, which has all tensors: each
 * copies its own parts. STORE is complete once all coordinates have returned. SL_FAILED if memory is short. */
int sl_export_beside(struct sl_spmd *self, const struct sl_group *world, const struct sl_parameters *parameters,
                     enum sl_state state, struct sl_store *store);

/* Declares in STORE on coordinate 0 the tensors of sl_export. Collective over WORLD. */
int sl_declare(struct sl_spmd *self, const struct sl_group *world, const struct sl_parameters *parameters,
               enum sl_state state, struct sl_store *store);

/* Declares the tensors, of one dim, of OWN, this coordinate's own store, and in WHOLE on coordinate 0 the whole
 * tensors, with a piece for each coordinate (layers/formats/stores/store.h). If several coordinates hold a shard and
 * share out its range, each writes its share; if they do not, the first one writes all of it. Collective over WORLD. */
int sl_declare_own(struct sl_spmd *self, const struct sl_group *world, const struct sl_parameters *parameters,
                   enum sl_state state, struct sl_store *own, struct sl_store *whole);
/* Copies this coordinate's values or state to the declared tensors of OWN, which have memory, and gives them their
 * checksums on the way, by SUM (NULL: without). */
int sl_export_own(struct sl_spmd *self, const struct sl_parameters *parameters, enum sl_state state,
                  struct sl_store *own, struct sl_checking *sum);

/* A tensor in another coordinate's own store whose elements this coordinate has, too. */
struct sl_held {
    char name[128]; /* of the tensor */
    enum sl_state state;
    int parameter; /* this coordinate's; the tensor has elements [first, first + count) of its shard */
    size_t first, count;
    size_t at; /* the tensor's place, for the caller */
};
/* Zero-initialize; free the list. */
struct sl_held_list {
    int count, room;
    struct sl_held *list;
};

/* Declares in COPY the tensors that sl_declare_own declares at coordinate OF, and adds to HELD those that this
 * coordinate has, too. OF is -1 at coordinates without a copy. Collective over WORLD. */
int sl_declare_copy(struct sl_spmd *self, const struct sl_group *world, const struct sl_parameters *parameters,
                    enum sl_state state, int of, struct sl_store *copy, struct sl_held_list *held);
/* Copies the elements of HELD from this coordinate's memory to TO. */
int sl_export_held(struct sl_spmd *self, const struct sl_parameters *parameters, const struct sl_held *held, float *to);

/* Gathers the record of every coordinate on coordinate 0. RECORDS is [coordinates] of BYTES each, a multiple of 4; each
 * coordinate fills in its own before the call. If coordinates share memory, all must pass the same array. Collective
 * over the mesh. */
int sl_gather_records(struct sl_spmd *self, void *records, size_t bytes);

/* Gathers the events of every coordinate in TRACE [coordinates] on coordinate 0, whose entries must have room.
 * Collective over the mesh. */
int sl_gather_traces(struct sl_spmd *self, struct sl_trace *trace);

SL_END_C
#endif
