/* merge_internal.h - merges the pairs of a word. */
#ifndef SL_LAYERS_TOKENIZERS_MERGE_INTERNAL_H
#define SL_LAYERS_TOKENIZERS_MERGE_INTERNAL_H

#include "layers/tokenizers/vocabulary_internal.h"

/* A token of a word, and the places of its neighbours in the list; -1: none. */
struct sl_symbol {
    int32_t token; /* -1: it has become a part of the one before */
    int before, after;
};

/* A pair that could merge, when it was noted. Those of less order come first: by rank, then by place. */
struct sl_candidate {
    uint64_t order; /* rank, and place in the low half */
    int32_t left, right, token;
};

/* Zero-initialize; free with sl_merging_free. */
struct sl_merging {
    struct sl_symbol *symbol;
    struct sl_candidate *heap; /* the least first */
    size_t symbols, candidates, room, heap_room;
};

void sl_merging_free(struct sl_merging *merging);

/* Begins a word. */
static inline void sl_merging_begin(struct sl_merging *merging) { merging->symbols = 0; }
/* Adds a symbol. False without memory. */
bool sl_merging_add(struct sl_merging *merging, int32_t token);
/* Merges until nothing is left to merge, in time n log n. False without memory. The tokens that remain are those of the
 * symbols whose token is not -1, in their order. */
bool sl_merging_run(struct sl_merging *merging, const struct sl_tokenizer *tokenizer);

#endif
