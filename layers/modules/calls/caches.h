/* caches.h - caches of sequences being generated. Caches are neither parameters nor stash.
 *
 * Modules declare their caches during planning, in the order of planning. The pipelines for the prompt and for single
 * tokens are planned over the same model, so both use the same caches. */
#ifndef SL_LAYERS_MODULES_CALLS_CACHES_H
#define SL_LAYERS_MODULES_CALLS_CACHES_H

#include "spmd/base/budget.h"
#include "spmd/base/numbers/dtype.h"
#include "spmd/base/error.h"

SL_BEGIN_C

/* Cached arrays of latent attention (layers/modules/sequence/mla/mla.c) per token: the latent and the rotary key, or
 * the keys and values of all heads. */
enum sl_cache_form { SL_CACHE_LATENT, SL_CACHE_EXPANDED };

struct sl_cache {
    size_t columns;
    bool once;  /* computed from parameters: [columns] */
    void *data; /* [columns] if once, otherwise [sequences, positions, columns]; in device memory */
};

struct sl_caches {
    enum sl_cache_form form;
    enum sl_dtype storage; /* SL_F32 or SL_BF16 */
    int sequences;         /* sequences of this coordinate, in all its microbatches together */
    int positions;         /* length of the longest sequence; if positions are divided, the most of this coordinate's */
    /* Positions are divided over AXIS, whose coordinates have the same tokens: in chunks, which they take in turns. */
    const char *axis;
    int parts, part; /* parts 0 counts as 1 */
    int packs;       /* products of at most this many rows have copies of their kernels
                        (layers/modules/feedforward/products.h) */
    int count, capacity;
    struct sl_cache *cache;
    void *made;             /* memory of the caches computed from parameters */
    int planned;            /* caches requested so far by the pipeline being planned */
    struct sl_budget *held; /* counts the memory; NULL: not counted */
};

enum { SL_CACHE_CHUNK = 64 }; /* positions that a coordinate has in one piece */

/* Whether this coordinate has POSITION. */
static inline bool sl_caches_have(const struct sl_caches *caches, int position) {
    return caches->parts < 2 || position / SL_CACHE_CHUNK % caches->parts == caches->part;
}
/* Number of this coordinate's positions before POSITION: the place of POSITION itself if it has it. */
static inline int sl_caches_before(const struct sl_caches *caches, int position) {
    if (caches->parts < 2) return position;
    const int chunk = position / SL_CACHE_CHUNK, turn = chunk % caches->parts;
    const int last = turn > caches->part ? SL_CACHE_CHUNK : turn == caches->part ? position % SL_CACHE_CHUNK : 0;
    return chunk / caches->parts * SL_CACHE_CHUNK + last;
}
/* Number of positions from POSITION on that the same coordinate has, at most COUNT. */
static inline int sl_caches_piece(const struct sl_caches *caches, int position, int count) {
    const int left = SL_CACHE_CHUNK - position % SL_CACHE_CHUNK;
    return caches->parts < 2 || count < left ? count : left;
}
/* Sets `positions` for sequences of LENGTH; the other fields are set. */
static inline void sl_caches_divide(struct sl_caches *caches, int length) {
    const int chunks = (length + SL_CACHE_CHUNK - 1) / SL_CACHE_CHUNK, parts = caches->parts;
    caches->positions = parts < 2 ? length : (chunks + parts - 1) / parts * SL_CACHE_CHUNK;
}

/* Prepares for planning a pipeline over CACHES: its first cache is number 0 again. */
static inline void sl_caches_begin(struct sl_caches *caches) { caches->planned = 0; }
/* Returns the number of the next cache, which has COLUMNS elements per position or, if ONCE, in all; returns -1 with
 * the error set if there is no memory. sl_plan_cache calls it. */
int sl_caches_declare(struct sl_caches *caches, size_t columns, bool once, struct sl_error *error);
/* Bytes of all caches per position or, if ONCE, of all caches computed from parameters; the latter count as
 * SL_MEMORY_PARAMETERS. */
size_t sl_caches_bytes(const struct sl_caches *caches, bool once);
/* Allocates the caches that have no memory yet. Returns SL_FAILED if there is not enough. Free with sl_caches_close. */
int sl_caches_take(struct sl_caches *caches, struct sl_error *error);
void sl_caches_close(struct sl_caches *caches);

/* Rows of this coordinate's SEQUENCE in cache NUMBER, from position 0 on: [positions, columns]. */
static inline void *sl_cache_rows(const struct sl_caches *caches, int number, int sequence) {
    const struct sl_cache *cache = &caches->cache[number];
    const size_t rows = (size_t)sequence * (size_t)caches->positions;
    return (char *)cache->data + rows * cache->columns * sl_dtype_size(caches->storage);
}

SL_END_C
#endif
