/* attention.h - causal attention without an array of queries x keys: online softmax over blocks of keys
 * (Milakov & Gimelshein 2018; Dao et al. 2022). One source (attention.c), built as kernels.c is.
 *
 * Each head has WIDTH columns of its own in q, and in k and v, too, unless GROUP heads share a head of k and v (Ainslie
 * et al., "GQA", 2023): then head h reads the columns of head (h + lead) / group of k and v. If ROPE > 0, each head has
 * ROPE more columns in q_rope, and all heads share the ROPE columns of k_rope: score = (q . k + q_rope . k_rope) /
 * sqrt(width + rope). Query t of a sequence sees the keys [0, position + t] of its sequence, as far as there are such
 * rows; if a sequence has several documents, only keys of its own document; with a window, only the last WINDOW of
 * these (Beltagy et al., "Longformer", 2020). Queries have [sequences * queries] rows; the keys of consecutive
 * sequences begin key_rows rows apart. A stride is the number of elements from one row to the next.
 *
 * k, v and k_rope are floats. Forward may read them as bf16 and widen them on the way; backward may do so with all of
 * forward's inputs, if reads_stored. Tensor cores multiply bf16: there q and the result's gradient may be bf16, too,
 * and results may be written as bf16 without floats (stores_alone). */
#ifndef SL_LAYERS_KERNELS_ATTENTION_ATTENTION_H
#define SL_LAYERS_KERNELS_ATTENTION_ATTENTION_H

#include "spmd/base/numbers/dtype.h"

SL_BEGIN_C

/* Most queries for attention_decode.c; queries, or keys, of a block on CPUs. The first block begins with the first
 * query or key of a sequence. */
enum { SL_ATTENTION_FEW = 4, SL_ATTENTION_BLOCK = 64 };

struct sl_attention {
    size_t sequences, queries; /* queries of each sequence */
    size_t position;           /* of each sequence's first query: 0 in training, unless its rows are divided */
    size_t key_rows;           /* rows from a sequence's keys to the next: QUERIES in training, or a cache's capacity */
    size_t heads, width, rope; /* rope 0: none */
    size_t group, lead; /* heads per head of k and v (0: 1); heads of other calls before the first head here, which also
                           read the first columns of k and v */
    size_t key_stride;  /* of k and v, which may be side by side in one array [k | v] */
    size_t leaves;      /* leaves with equally many heads; dk_rope has one sum per leaf, one after another (0: 1) */
    size_t window;      /* most keys of a query, including its own; 0: no limit */
    enum sl_dtype keys; /* of k, v and k_rope: SL_F32, or SL_BF16 in forward */
    enum sl_dtype stored_q; /* of forward's q and q_rope: SL_BF16 only if stores_alone */
    /* [sequences * queries]: number of keys before its own that a query sees: 0, or one more than the query before it;
     * in memory that the device reads. NULL: all keys. */
    const int32_t *places;
    bool adds;              /* backward adds to dk, dv and dk_rope, which are floats, not rounded and without copies */
    enum sl_dtype stored_o; /* of backward's o; and */
    enum sl_dtype stored_d_o; /* of its d_o: SL_BF16 only if stores_alone */
    enum sl_dtype products;   /* SL_BF16 if operands of products may be rounded to bf16; else SL_F32 */
    enum sl_dtype stored;     /* of backward's q, q_rope, k, v and k_rope: SL_BF16 only if reads_stored */
};

/* The forms of o, dq, dk and dv: floats, which may be rounded; with a bf16 copy in their shape and stride if they are
 * rounded, or if stores_alone; and bf16 alone if stores_alone. */
struct sl_attention_kernels {
    /* Writes o [sequences * queries, heads * width] and logsum [heads, sequences * queries], the log of the sum of
     * exp(score). q has the shape of o; q_rope [sequences * queries, heads * rope]; k_rope [key rows, rope]. */
    void (*forward)(const struct sl_attention *shape, const void *q, const void *q_rope, const void *k, const void *v,
                    const void *k_rope, struct sl_out o, float *logsum);
    /* Merges forward's results for two sets of keys: O and LOGSUM for one set, OTHERS and OTHERS_LOGSUM for the other.
     * Writes the results for both sets together into O and LOGSUM. A query may see no key of the other set, and then
     * has no result for it: its logsum is -INFINITY. */
    void (*merge)(const struct sl_attention *shape, const float *others, const float *others_logsum, float *o,
                  float *logsum);
    /* Returns the bytes of backward's scratch: numbers for each head's queries, the head's part of dk_rope, and on
     * devices parts of dq if teams share heads. With more heads, fewer teams share one: so the number of parts is
     * bounded by the device's teams. The bytes grow in proportion to QUERIES. */
    size_t (*scratch)(const struct sl_attention *shape);
    /* Returns whether backward of SHAPE reads bf16. It does not on NVIDIA GPUs without tensor cores, whose teams have
     * no room for blocks of floats, nor for unusually wide heads. */
    bool (*reads_stored)(const struct sl_attention *shape);
    /* Returns whether forward and backward of SHAPE read all operands as bf16, and can write o, dq, dk and dv as bf16
     * alone: on tensor cores. */
    bool (*stores_alone)(const struct sl_attention *shape);
    /* Returns whether backward takes queries at a position other than 0. Tensor cores' kernels do not. */
    bool (*takes_parts)(const struct sl_attention *shape);
    /* Writes the gradients of all inputs, each in its input's layout (dk and dv with key_stride). Either position is 0
     * and key_rows = queries; or there is one sequence, with the keys [0, position + queries) or key_rows of these, and
     * `adds` is set, on kernels that say so (takes_parts): then blocks of queries that see none do not write dq.
     * dk_rope is the sum over this call's heads in ascending order, or has one sum per leaf; dk and dv are sums over
     * the heads of each group. Columns of k and v without readers are not written. O is of the dtype stored_o, D_O of
     * stored_d_o. SCRATCH has scratch(SHAPE) bytes. */
    void (*backward)(const struct sl_attention *shape, const void *q, const void *q_rope, const void *k, const void *v,
                     const void *k_rope, const void *o, const float *logsum, const void *d_o, struct sl_out dq,
                     float *dq_rope, struct sl_out dk, struct sl_out dv, float *dk_rope, void *scratch);
};

extern const struct sl_attention_kernels sl_attention_kernels_v2, sl_attention_kernels_v3, sl_attention_kernels_v4;
extern const struct sl_attention_kernels sl_attention_kernels_device; /* in builds for devices */

/* forward for few queries: one pass over the keys and values of a sequence for all heads (attention_decode.c). */
typedef void sl_attention_decode(const struct sl_attention *shape, const float *q, const float *q_rope, const void *k,
                                 const void *v, const void *k_rope, float *o, float *logsum);
extern sl_attention_decode sl_attention_decode_v2, sl_attention_decode_v3, sl_attention_decode_v4;
extern sl_attention_decode sl_attention_decode_device; /* in builds for devices */

/* Returns HEAD's head of k and v; the next function returns the number of such heads. */
static inline size_t sl_attention_key_head(const struct sl_attention *shape, size_t head) {
    return shape->group > 1 ? (head + shape->lead) / shape->group : head;
}
static inline size_t sl_attention_key_heads(const struct sl_attention *shape) {
    return sl_attention_key_head(shape, shape->heads - 1) + 1;
}

SL_END_C
#endif
