/* token_chunks.h - softmax cross entropy of logits = x table^T, a chunk of classes at a time, so that no array of all
 * logits exists.
 *
 * Forward makes each chunk's logits once, and of them the sums of the softmax and dx together (cf. Milakov &
 * Gimelshein, "Online normalizer calculation for softmax", 2018). With m the largest logit so far,
 *
 *     p = exp(logits - m),  sums = e sums + sum of p,  dx = e dx + p chunk,  e = exp(m before - m)
 *     and in the end dx = weight (dx / sums - the label's row of the table).
 *
 * W makes the logits again, unless there is one chunk only or the vocabulary says so: then they are stashed. Chunks
 * follow from the size of the vocabulary alone, and are added up in their order, whoever has them. */
#ifndef SL_LAYERS_MODULES_SEQUENCE_TOKEN_CHUNKS_H
#define SL_LAYERS_MODULES_SEQUENCE_TOKEN_CHUNKS_H

#include "layers/modules/feedforward/products.h"
#include "layers/modules/sequence/token_table.h"

SL_BEGIN_C

enum { SL_KEPT_CHUNKS = 64 }; /* at most */

struct sl_token_chunks {
    size_t classes, columns; /* of a slice of this coordinate's rows of the table */
    size_t slices;           /* each of a leaf: their dx are not added up here */
    size_t chunk, chunks;    /* classes of each chunk but the last, which may have fewer */
    size_t kept;             /* the first of them, whose logits are kept from forward to W; none of several slices */
    struct sl_products products[2];              /* with a whole chunk, with the last one */
    struct sl_place kept_logits[SL_KEPT_CHUNKS]; /* [own rows, the chunk's classes] */
    struct sl_place logits, p;                   /* [own rows, chunk]: of a chunk that is not kept */
    struct sl_place scales;                      /* [own rows]: e above */
    struct sl_place no_logits;                   /* [padding]: -inf, the logits of the table's padding */
    bool stores_alone; /* on devices bf16 that products read is all that is written of p, and of gradients */
    /* Where the coordinate has several leaves (layers/modules/leaves.h), each of which has products of its own: */
    int leaves;                     /* 1 without leaves */
    struct sl_place waiting;        /* [levels, chunk, columns]: gradients of leaves that wait for others */
    struct sl_place grouped;        /* of W's group, leaf by leaf: [own rows, columns + 2], x, maxima and sums; */
    struct sl_place grouped_logits; /* [own rows, chunk], of one that is kept */
};

/* What is known of rows after some of the classes: all [rows]. */
struct sl_softmax {
    size_t rows;
    int32_t first;         /* number of the slice's first class in the vocabulary */
    const int32_t *labels; /* -1: the row is left out */
    float *maxima, *argmaxima, *sums, *targets;
    bool begins; /* nothing is known yet */
};

/* Classes of a chunk of a vocabulary of SIZE tokens. */
size_t sl_token_chunk(const struct sl_vocabulary *vocabulary);

/* Plans for microbatches of which this coordinate does ROWS rows. */
int sl_token_chunks_plan(struct sl_token_chunks *chunks, struct sl_plan *plan, const struct sl_token_table *table,
                         size_t rows);
void sl_token_chunks_release(struct sl_token_chunks *chunks);

/* The rows of MODULE's table as they lie in memory. */
const void *sl_token_chunks_kernel(const struct sl_module *module, const struct sl_token_chunks *chunks,
                                   const struct sl_context *context);
static inline bool sl_token_chunks_round(const struct sl_token_chunks *chunks) {
    return chunks->products[0].kernel == SL_BF16;
}

/* Adds a slice of the coordinate's classes to S, and to DX [rows, columns] without the labels; DX NULL: to S alone. X
 * [rows, columns], as bf16 if HALF, which the products must read then. */
int sl_token_chunks_forward(const struct sl_module *module, const struct sl_token_chunks *chunks,
                            struct sl_context *context, const struct sl_softmax *s, const void *x, bool half,
                            float *dx);

/* W: adds to the table's gradient dlogits^T X of all rows of context->wgrad_group microbatches. MAXIMA and SUMS are
 * those of all classes, X has all channels; LABELS: where those of a coordinate's tokens are. Undivided, all
 * coordinates make the same; by classes, each all of its rows; by tokens, parts are summed. */
int sl_token_chunks_weight(const struct sl_module *module, const struct sl_token_chunks *chunks,
                           struct sl_context *context, const struct sl_place *labels, float *maxima, float *sums,
                           const void *x, bool half);

SL_END_C
#endif
