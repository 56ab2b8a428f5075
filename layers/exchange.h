/* exchange.h - between the coordinates' shards and whole tensors under their global names. */
#ifndef SL_LAYERS_EXCHANGE_H
#define SL_LAYERS_EXCHANGE_H

#include "layers/parameters.h"
#include "layers/safetensors.h"

SL_BEGIN_C

/* Copies this coordinate's shards of the values in STORE. SL_BAD_INPUT names the tensor that is missing or differs in
 * shape or type. */
int sl_import(struct sl_spmd *self, struct sl_parameters *parameters, const struct sl_store *store);

/* Collective over WORLD (the whole mesh): assembles all coordinates' values, or gradients, times SCALE, in STORE on
 * coordinate 0. OWNER: this coordinate's shards are sent; it is set on one of each set of replicas. */
int sl_export(struct sl_spmd *self, const struct sl_group *world, const struct sl_parameters *parameters, bool owner,
              bool gradients, float scale, struct sl_store *store);

SL_END_C
#endif
