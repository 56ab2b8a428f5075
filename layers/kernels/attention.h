/* attention.h - causal attention without an array of queries x keys: online softmax over blocks of keys
 * (Milakov & Gimelshein 2018; Dao et al. 2022). One source (attention.c), built as kernels.c is.
 *
 * Each head has WIDTH columns of its own in q, k and v, and, where ROPE > 0, ROPE more in q_rope, which meet the ROPE
 * columns of k_rope that all heads share: score = (q k + q_rope k_rope) / sqrt(width + rope). Query t of a sequence
 * sees its keys [0, position + t]. Rows of queries: [sequences * queries]; keys of sequence s begin at row s *
 * key_rows. All strides are elements from one row to the next. */
#ifndef SL_LAYERS_KERNELS_ATTENTION_H
#define SL_LAYERS_KERNELS_ATTENTION_H

#include "spmd/base/base.h"

SL_BEGIN_C

struct sl_attention {
    size_t sequences, queries; /* of each sequence */
    size_t position;           /* of each sequence's first query: 0 in training */
    size_t key_rows;           /* from one sequence's keys to the next's: QUERIES in training, a cache's capacity */
    size_t heads, width, rope; /* rope 0: none */
    size_t key_stride;         /* of k and v, which may lie side by side in one array [k | v] */
};

struct sl_attention_kernels {
    /* o [sequences * queries, heads * width]; logsum [heads, sequences * queries] = log of the sum of exp(scores). q is
     * like o; q_rope [sequences * queries, heads * rope]; k_rope [.., rope]. */
    void (*forward)(const struct sl_attention *shape, const float *q, const float *q_rope, const float *k,
                    const float *v, const float *k_rope, float *o, float *logsum);
    /* Gradients of all of them, overwritten, laid out as they are (dk and dv with key_stride); for position 0 and
     * key_rows = queries. dk_rope sums over these heads in ascending order. SCRATCH: sl_attention_scratch bytes. */
    void (*backward)(const struct sl_attention *shape, const float *q, const float *q_rope, const float *k,
                     const float *v, const float *k_rope, const float *o, const float *logsum, const float *d_o,
                     float *dq, float *dq_rope, float *dk, float *dv, float *dk_rope, void *scratch);
};

extern const struct sl_attention_kernels sl_attention_kernels_v2, sl_attention_kernels_v3, sl_attention_kernels_v4;
extern const struct sl_attention_kernels sl_attention_kernels_device; /* where the CPU does not compute */

/* Each head's part of dk_rope. */
static inline size_t sl_attention_scratch(const struct sl_attention *shape) {
    return shape->heads * shape->sequences * shape->queries * shape->rope * sizeof(float);
}

SL_END_C
#endif
