/* adapters.h - values of a run with adapters (struct sl_lora) as those of a model without: W + scale A B.
 *
 * Nothing is added up before it is read: sl_import reads a few megabytes at a time, and so no more memory is needed, in
 * any layout. The sums have the same bits in all of them. */
#ifndef SL_LAYERS_MODELS_ADAPTERS_H
#define SL_LAYERS_MODELS_ADAPTERS_H

#include "layers/storage/store.h"

SL_BEGIN_C

/* Whether STORE has tensors NAME.lora_a.kernel. */
bool sl_adapters_are_in(const struct sl_store *store);

/* From now on those who import STORE read NAME.kernel [in, out] with NAME.lora_a.kernel [in, rank] and
 * NAME.lora_b.kernel [rank, out], times ALPHA / rank, for every NAME that has them; ALPHA 0 is twice the rank. No
 * tensor may be added to STORE after that. SL_BAD_INPUT names a tensor that is missing or has another shape or type. */
int sl_adapters_merge(struct sl_store *store, double alpha, struct sl_error *error);

SL_END_C
#endif
