/* transformer_internal.h - facts about a transformer for the files that build and count it. */
#ifndef SL_LAYERS_MODELS_TRANSFORMER_INTERNAL_H
#define SL_LAYERS_MODELS_TRANSFORMER_INTERNAL_H

#include "layers/models/transformer.h"

SL_BEGIN_C

static inline bool is_grouped(const struct sl_transformer *t) { return t->attention == SL_ATTENTION_GROUPED; }
/* Whether norms have shifts. */
static inline bool shifts(const struct sl_transformer *t) {
    return t->norm == SL_NORM_LAYER || t->biases == SL_BIASES_ALL;
}
static inline int layers_of(const struct sl_transformer *t) { return t->blocks * t->layers_per_block; }

SL_END_C

#endif
