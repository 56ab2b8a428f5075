/* caches.h - what layers remember of a sequence while it is generated: apart from parameters and stash.
 *
 * Modules declare their caches while they are planned, in the order of the walk, so that a pipeline for the prompt and
 * one for single tokens, planned over the same model, find the same ones. */
#ifndef SL_LAYERS_MODULES_CACHES_H
#define SL_LAYERS_MODULES_CACHES_H

#include "spmd/base/error.h"

SL_BEGIN_C

struct sl_cache {
    size_t columns;
    float *data; /* [sequences, positions, columns] */
};

struct sl_caches {
    int sequences; /* of a coordinate: all microbatches' */
    int positions; /* at most */
    int count, capacity;
    struct sl_cache *cache;
    int planned; /* how many the pipeline that is being planned has asked for */
};

/* For whoever plans a pipeline: the walk begins. */
static inline void sl_caches_begin(struct sl_caches *caches) { caches->planned = 0; }
/* Number of the next cache of the walk, COLUMNS floats a position; -1 with the error set. Called by sl_plan_cache. */
int sl_caches_declare(struct sl_caches *caches, size_t columns, struct sl_error *error);
size_t sl_caches_bytes(const struct sl_caches *caches);
/* Takes memory for those declared since. */
int sl_caches_take(struct sl_caches *caches, struct sl_error *error);
void sl_caches_close(struct sl_caches *caches);

/* Rows of SEQUENCE (of this coordinate), from position 0 on. */
static inline float *sl_cache_rows(const struct sl_caches *caches, int number, int sequence) {
    const struct sl_cache *cache = &caches->cache[number];
    return cache->data + (size_t)sequence * (size_t)caches->positions * cache->columns;
}

SL_END_C
#endif
