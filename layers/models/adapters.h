/* adapters.h - merges adapters (struct sl_lora) into the kernels of a model without adapters: W + scale A B.
 *
 * sl_import computes the sums while it reads a kernel, a few megabytes at a time, so no layout needs memory for a whole
 * merged kernel. All layouts get the same bits. */
#ifndef SL_LAYERS_MODELS_ADAPTERS_H
#define SL_LAYERS_MODELS_ADAPTERS_H

#include "layers/formats/stores/store.h"

SL_BEGIN_C

/* Whether STORE has tensors NAME.lora_a.kernel. */
bool sl_adapters_are_in(const struct sl_store *store);

/* Merges adapters: importing STORE then reads NAME.kernel [in, out] plus NAME.lora_a.kernel [in, rank] times
 * NAME.lora_b.kernel [rank, out] times ALPHA / rank, for every NAME with an adapter; ALPHA 0 means twice the rank. Do
 * not add tensors to STORE afterwards. SL_BAD_INPUT names a missing tensor, or one with another shape or type. */
int sl_adapters_merge(struct sl_store *store, double alpha, struct sl_error *error);

SL_END_C
#endif
