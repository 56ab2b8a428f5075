/* merge_internal.h - merges the pairs of a word. */
#ifndef SL_LAYERS_FORMATS_TOKENIZERS_MERGE_INTERNAL_H
#define SL_LAYERS_FORMATS_TOKENIZERS_MERGE_INTERNAL_H

#include "layers/formats/tokenizers/vocabulary_internal.h"

/* A token of a word, and the indices of its neighbours in the list; -1: none. */
struct sl_symbol {
    int32_t token; /* -1: merged into the one before */
    int before, after;
};

/* A pair, able to merge when it was added. The lowest order comes first: by rank, then by place. */
struct sl_candidate {
    uint64_t order; /* rank, with the place in the low half */
    int32_t left, right, token;
};

/* Zero-initialize; free with sl_merging_free. */
struct sl_merging {
    struct sl_symbol *symbol;
    struct sl_candidate *heap; /* lowest order first */
    size_t symbols, candidates, room, heap_room;
};

void sl_merging_free(struct sl_merging *merging);

/* Begins a word. */
static inline void sl_merging_begin(struct sl_merging *merging) { merging->symbols = 0; }
/* Adds a symbol. Returns false if memory is short. */
bool sl_merging_add(struct sl_merging *merging, int32_t token);
/* Merges until no pair can merge, in time n log n. Returns false if memory is short. The result is the tokens of the
 * symbols in order, without -1. */
bool sl_merging_run(struct sl_merging *merging, const struct sl_tokenizer *tokenizer);

#endif
