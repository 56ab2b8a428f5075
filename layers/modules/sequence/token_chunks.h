/* token_chunks.h - softmax cross entropy of logits = x table^T, a chunk of classes at a time, without an array of all
 * logits.
 *
 * Forward computes each chunk's logits once, and from them the sums of the softmax and dx together (cf. Milakov &
 * Gimelshein, "Online normalizer calculation for softmax", 2018). With m the largest logit so far,
 *
 *     p = exp(logits - m),  sums = e sums + sum of p,  dx = e dx + p chunk,  e = exp(m before - m)
 *     and in the end dx = weight (dx / sums - the label's row of the table).
 *
 * W computes the logits again, unless there is only one chunk or the vocabulary has keeps_logits: then they are
 * stashed. Chunks depend only on the size of the vocabulary, and are added in their order, on any number of
 * coordinates. */
#ifndef SL_LAYERS_MODULES_SEQUENCE_TOKEN_CHUNKS_H
#define SL_LAYERS_MODULES_SEQUENCE_TOKEN_CHUNKS_H

#include "layers/modules/feedforward/products.h"
#include "layers/modules/sequence/token_table.h"

SL_BEGIN_C

enum { SL_KEPT_CHUNKS = 64 }; /* limit */

struct sl_token_chunks {
    size_t classes, columns; /* size of a slice of this coordinate's rows of the table */
    size_t slices;           /* each belongs to a leaf: their dx are not summed here */
    size_t chunk, chunks;    /* classes of each chunk; the last one may have fewer */
    size_t kept; /* number of first chunks with logits saved from forward to W; 0 if there are several slices */
    struct sl_products products[2];              /* for a whole chunk; for the last one */
    struct sl_place kept_logits[SL_KEPT_CHUNKS]; /* [own rows, the chunk's classes] */
    struct sl_place logits, p;                   /* [own rows, chunk]: arrays of a chunk without saved logits */
    struct sl_place scales;                      /* [own rows]: e above */
    struct sl_place no_logits;                   /* [padding]: -inf, the logits of the table's padding */
    bool stores_alone; /* on devices: of p and of gradients only bf16 for products is written */
    /* If the coordinate has several leaves (layers/modules/leaves.h), each has products of its own: */
    int leaves;                     /* 1 without leaves */
    struct sl_place waiting;        /* [levels, chunk, columns]: gradients of leaves waiting for others */
    struct sl_place grouped;        /* [own rows, columns + 2]: x, maxima and sums of W's group, leaf by leaf */
    struct sl_place grouped_logits; /* [own rows, chunk]: saved logits in the same order */
};

/* State of the softmax of some rows, computed over a part of the classes. All arrays are [rows]. */
struct sl_softmax {
    size_t rows;
    int32_t first;         /* number of the slice's first class in the vocabulary */
    const int32_t *labels; /* -1: no loss for this row */
    float *maxima, *argmaxima, *sums, *targets;
    bool begins; /* no classes yet: the arrays are overwritten */
};

/* Plans microbatches of ROWS rows on this coordinate. */
int sl_token_chunks_plan(struct sl_token_chunks *chunks, struct sl_plan *plan, const struct sl_token_table *table,
                         size_t rows);
void sl_token_chunks_release(struct sl_token_chunks *chunks);

/* Rows of MODULE's table in their stored type. */
struct sl_rows sl_token_chunks_rows(const struct sl_module *module, const struct sl_token_chunks *chunks,
                                    const struct sl_context *context);

/* Adds a slice of the coordinate's classes to S, and to DX [rows, columns] without the labels; if DX is NULL, only to
 * S. X [rows, columns] is bf16 if HALF; the products must then read bf16. */
int sl_token_chunks_forward(const struct sl_module *module, const struct sl_token_chunks *chunks,
                            struct sl_context *context, const struct sl_softmax *s, const void *x, bool half,
                            float *dx);

/* W: adds dlogits^T X, over all rows of context->wgrad_group microbatches, to the table's gradient. MAXIMA and SUMS are
 * over all classes, X has all channels; LABELS: memory for the labels of a coordinate's tokens. Undivided: all
 * coordinates compute the same; by classes: each computes all of its rows; by tokens: parts are summed. */
int sl_token_chunks_weight(const struct sl_module *module, const struct sl_token_chunks *chunks,
                           struct sl_context *context, const struct sl_place *labels, float *maxima, float *sums,
                           const void *x, bool half);

SL_END_C
#endif
