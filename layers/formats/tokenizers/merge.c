/* merge.c - merges pairs: a word's symbols are in a list, candidate pairs in a heap. */
#include "layers/formats/tokenizers/merge_internal.h"

#include <stdlib.h>

void sl_merging_free(struct sl_merging *m) {
    free(m->symbol);
    free(m->heap);
    *m = (struct sl_merging){0};
}

/* Makes room for one more element; returns the array, or NULL. */
static void *widen(void *array, size_t count, size_t *room, size_t size) {
    if (count < *room) return array;
    void *wider = realloc(array, (2 * count + 64) * size);
    if (wider) *room = 2 * count + 64;
    return wider;
}

bool sl_merging_add(struct sl_merging *m, int32_t token) {
    struct sl_symbol *symbol = widen(m->symbol, m->symbols, &m->room, sizeof *symbol);
    if (!symbol) return false;
    m->symbol = symbol;
    symbol[m->symbols] = (struct sl_symbol){token, (int)m->symbols - 1, -1};
    if (m->symbols) symbol[m->symbols - 1].after = (int)m->symbols;
    m->symbols++;
    return true;
}

static bool push(struct sl_merging *m, struct sl_candidate candidate) {
    struct sl_candidate *heap = widen(m->heap, m->candidates, &m->heap_room, sizeof *heap);
    if (!heap) return false;
    m->heap = heap;
    size_t at = m->candidates++;
    for (; at && heap[(at - 1) / 2].order > candidate.order; at = (at - 1) / 2) heap[at] = heap[(at - 1) / 2];
    heap[at] = candidate;
    return true;
}

static struct sl_candidate pop(struct sl_merging *m) {
    struct sl_candidate *heap = m->heap;
    const struct sl_candidate least = heap[0], last = heap[--m->candidates];
    size_t at = 0;
    for (size_t child; (child = 2 * at + 1) < m->candidates; at = child) {
        if (child + 1 < m->candidates && heap[child + 1].order < heap[child].order) child++;
        if (heap[child].order >= last.order) break;
        heap[at] = heap[child];
    }
    heap[at] = last;
    return least;
}

/* Adds the pair at symbol AT to the heap, if it can merge. */
static bool note(struct sl_merging *m, const struct sl_tokenizer *tokenizer, int at) {
    const struct sl_symbol *symbol = m->symbol;
    if (at < 0 || symbol[at].after < 0) return true;
    const int32_t left = symbol[at].token, right = symbol[symbol[at].after].token;
    const struct sl_merge *merge = sl_vocabulary_pair(tokenizer, left, right);
    return !merge ||
           push(m, (struct sl_candidate){(uint64_t)merge->rank << 32 | (uint32_t)at, left, right, merge->token});
}

bool sl_merging_run(struct sl_merging *m, const struct sl_tokenizer *tokenizer) {
    m->candidates = 0;
    for (size_t i = 0; i < m->symbols; i++)
        if (!note(m, tokenizer, (int)i)) return false;
    while (m->candidates) {
        const struct sl_candidate best = pop(m);
        struct sl_symbol *symbol = m->symbol;
        const int at = (int)(uint32_t)best.order, after = symbol[at].after;
        if (symbol[at].token != best.left || after < 0 || symbol[after].token != best.right)
            continue; /* the pair has changed */
        symbol[at].token = best.token;
        symbol[at].after = symbol[after].after;
        if (symbol[after].after >= 0) symbol[symbol[after].after].before = at;
        symbol[after].token = -1;
        if (!note(m, tokenizer, symbol[at].before) || !note(m, tokenizer, at)) return false;
    }
    return true;
}
