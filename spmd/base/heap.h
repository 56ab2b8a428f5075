/* heap.h - ranks, each with a time; adding one and taking the earliest cost O(log n) steps. */
#ifndef SL_SPMD_BASE_HEAP_H
#define SL_SPMD_BASE_HEAP_H

#include "spmd/base/base.h"

SL_BEGIN_C

struct sl_heap_entry {
    double time;
    int rank;
};

/* A binary heap: no entry is earlier than the one above it, number (i - 1) / 2. */
struct sl_heap {
    int count;
    struct sl_heap_entry *entry; /* room for all entries, owned by the caller */
};

static inline void sl_heap_add(struct sl_heap *heap, double time, int rank) {
    int at = heap->count++;
    for (; at > 0 && heap->entry[(at - 1) / 2].time > time; at = (at - 1) / 2)
        heap->entry[at] = heap->entry[(at - 1) / 2];
    heap->entry[at] = (struct sl_heap_entry){time, rank};
}

/* Removes the earliest entry and returns its rank. The heap must not be empty. */
static inline int sl_heap_take(struct sl_heap *heap) {
    const int rank = heap->entry[0].rank;
    const struct sl_heap_entry last = heap->entry[--heap->count];
    int at = 0;
    for (int below; (below = 2 * at + 1) < heap->count; at = below) {
        if (below + 1 < heap->count && heap->entry[below + 1].time < heap->entry[below].time) below++;
        if (heap->entry[below].time >= last.time) break;
        heap->entry[at] = heap->entry[below];
    }
    heap->entry[at] = last;
    return rank;
}

SL_END_C
#endif
