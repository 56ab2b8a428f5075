/* caches.h - what layers remember of a sequence while it is generated. Caches are neither parameters nor stash.
 *
 * Modules declare their caches when they are planned, in the order in which planning walks over them. The pipeline for
 * the prompt and the pipeline for single tokens are planned over the same model, so both find the same caches. */
#ifndef SL_LAYERS_MODULES_CACHES_H
#define SL_LAYERS_MODULES_CACHES_H

#include "spmd/base/budget.h"
#include "spmd/base/dtype.h"
#include "spmd/base/error.h"

SL_BEGIN_C

/* What latent attention (layers/modules/sequence/mla.c) remembers of a token: the latent and the rotary key, or the
 * keys and values of all heads. */
enum sl_cache_form { SL_CACHE_LATENT, SL_CACHE_EXPANDED };

struct sl_cache {
    size_t columns;
    bool once;  /* made of parameters: [columns] */
    void *data; /* or [sequences, positions, columns]; in device memory */
};

struct sl_caches {
    enum sl_cache_form form;
    enum sl_dtype storage; /* SL_F32 or SL_BF16 */
    int sequences;         /* sequences of a coordinate, in all its microbatches together */
    int positions;         /* the longest sequence */
    int packs; /* products of up to so many rows have copies of their kernels (layers/modules/feedforward/products.h) */
    int count, capacity;
    struct sl_cache *cache;
    void *made;             /* memory of those that are made of parameters */
    int planned;            /* caches that the pipeline which is being planned has asked for so far */
    struct sl_budget *held; /* counts what is taken; NULL: nobody does */
};

/* Call this before a pipeline is planned over CACHES: its first cache is number 0 again. */
static inline void sl_caches_begin(struct sl_caches *caches) { caches->planned = 0; }
/* Returns the number of the next cache, which has COLUMNS elements a position, or once; -1 with the error set if there
 * is no memory. sl_plan_cache calls it. */
int sl_caches_declare(struct sl_caches *caches, size_t columns, bool once, struct sl_error *error);
/* Bytes of all declared caches, or of what is made of parameters; taken, these count as SL_MEMORY_PARAMETERS. */
size_t sl_caches_bytes(const struct sl_caches *caches, bool once);
/* Takes memory for the caches that have none yet. SL_FAILED if there is not enough. Free with sl_caches_close. */
int sl_caches_take(struct sl_caches *caches, struct sl_error *error);
void sl_caches_close(struct sl_caches *caches);

/* The rows of SEQUENCE (counted in this coordinate) in cache NUMBER, from position 0 on: [positions, columns]. */
static inline void *sl_cache_rows(const struct sl_caches *caches, int number, int sequence) {
    const struct sl_cache *cache = &caches->cache[number];
    const size_t rows = (size_t)sequence * (size_t)caches->positions;
    return (char *)cache->data + rows * cache->columns * sl_dtype_size(caches->storage);
}

SL_END_C
#endif
