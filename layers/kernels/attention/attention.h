/* attention.h - causal attention without an array of queries x keys: online softmax over blocks of keys
 * (Milakov & Gimelshein 2018; Dao et al. 2022). One source (attention.c), built as kernels.c is.
 *
 * Each head has WIDTH columns of its own in q. So it has in k and v, unless GROUP heads share a head of k and v
 * (Ainslie et al., "GQA", 2023): then head h reads the columns of head (h + lead) / group there. If ROPE > 0, it has
 * ROPE more columns in q_rope, and all heads share the ROPE columns of k_rope: score = (q . k + q_rope . k_rope) /
 * sqrt(width + rope). Query t of a sequence sees the keys [0, position + t] of the same sequence, as far as there are
 * such rows; of several documents in a sequence, those of its own one; of these the last WINDOW, if there is one
 * (Beltagy et al., "Longformer", 2020). Queries have [sequences * queries] rows; the keys of a sequence begin key_rows
 * rows behind those of the one before it. A stride is the number of elements from one row to the next.
 *
 * k, v and k_rope are floats, or in forward alone bf16, which are widened as they are read; so is what backward reads
 * of forward's inputs, where the kernels read that. On tensor cores, which multiply bf16, q and the result's gradient
 * may be that, too, and results may be left as bf16 alone (stores_alone). */
#ifndef SL_LAYERS_KERNELS_ATTENTION_ATTENTION_H
#define SL_LAYERS_KERNELS_ATTENTION_ATTENTION_H

#include "spmd/base/bf16.h"
#include "spmd/base/dtype.h"

SL_BEGIN_C

/* Queries that attention_decode.c takes; those, or keys, of a block on CPUs, of which the first begins with a
 * sequence's first one. */
enum { SL_ATTENTION_FEW = 4, SL_ATTENTION_BLOCK = 64 };

struct sl_attention {
    size_t sequences, queries; /* of each sequence */
    size_t position;           /* of each sequence's first query: 0 in training */
    size_t key_rows;           /* from one sequence's keys to the next's: QUERIES in training, a cache's capacity */
    size_t heads, width, rope; /* rope 0: none */
    size_t group, lead;     /* heads that share one of k and v (0: 1); heads, of other calls, that come before the first
                               one, and read the first columns of k and v */
    size_t key_stride;      /* of k and v, which may lie side by side in one array [k | v] */
    size_t leaves;          /* of equally many heads, whose sums dk_rope has one after another (0: 1) */
    size_t window;          /* keys that a query sees at most, its own among them; 0: no limit */
    enum sl_dtype keys;     /* of k, v and k_rope: SL_F32, or SL_BF16 in forward */
    enum sl_dtype stored_q; /* of forward's q and q_rope: SL_BF16 only if it stores_alone */
    /* [sequences * queries]: so many keys before its own a query sees, from 0, or one more than the query before it; in
     * memory that the device reads, and only for position 0 and key_rows = queries. NULL: all. */
    const int32_t *places;
    struct sl_settled o, dq, dk, dv; /* forward's result; backward's, each of its array's shape, stride and all, which
                                        are stored only where they are rounded, or it stores_alone */
    enum sl_dtype stored_o;          /* of backward's o, */
    enum sl_dtype stored_d_o;        /* and of its d_o: SL_BF16 only if it stores_alone */
    enum sl_dtype products;          /* to which operands of products may be rounded: SL_BF16 where the run's are */
    enum sl_dtype stored;            /* of backward's q, q_rope, k, v and k_rope: SL_BF16 only if it reads_stored */
};

struct sl_attention_kernels {
    /* Writes o [sequences * queries, heads * width] and logsum [heads, sequences * queries], the log of the sum of
     * exp(score). q has the shape of o; q_rope [sequences * queries, heads * rope]; k_rope [key rows, rope]. O is NULL
     * where only what is stored of it will be read, if it stores_alone. */
    void (*forward)(const struct sl_attention *shape, const void *q, const void *q_rope, const void *k, const void *v,
                    const void *k_rope, float *o, float *logsum);
    /* O and LOGSUM, which forward has written of some keys, become what it would write of these and of those of which
     * it has written OTHERS and OTHERS_LOGSUM. */
    void (*merge)(const struct sl_attention *shape, const float *others, const float *others_logsum, float *o,
                  float *logsum);
    /* Bytes of backward's scratch: numbers for each head's queries, the head's part of dk_rope, and on devices parts of
     * dq for teams that share a head, of which there are fewer the more heads there are: so they are never more than
     * some for each team of the device, and grow as QUERIES do. */
    size_t (*scratch)(const struct sl_attention *shape);
    /* Whether backward of SHAPE reads bf16. Not on NVIDIA without tensor cores, where a team has no room for blocks of
     * floats, nor of heads that are wider than most. */
    bool (*reads_stored)(const struct sl_attention *shape);
    /* Whether forward and backward of SHAPE read all their operands as bf16, and leave o, dq, dk and dv as bf16 alone,
     * where the floats are NULL: on tensor cores. */
    bool (*stores_alone)(const struct sl_attention *shape);
    /* Writes the gradients of all inputs, each laid out as its input (dk and dv with key_stride). Only for position 0
     * and key_rows = queries. dk_rope is the sum over this call's heads in ascending order, or has one for each of its
     * leaves; dk and dv are those over the heads of each group; what no head reads of k and v is left alone there. O is
     * of the dtype stored_o, D_O of stored_d_o. SCRATCH has scratch(SHAPE) bytes. */
    void (*backward)(const struct sl_attention *shape, const void *q, const void *q_rope, const void *k, const void *v,
                     const void *k_rope, const void *o, const float *logsum, const void *d_o, float *dq, float *dq_rope,
                     float *dk, float *dv, float *dk_rope, void *scratch);
};

extern const struct sl_attention_kernels sl_attention_kernels_v2, sl_attention_kernels_v3, sl_attention_kernels_v4;
extern const struct sl_attention_kernels sl_attention_kernels_device; /* in builds for devices */

/* forward for few queries, in one pass over the keys and values of a sequence for all heads (attention_decode.c). */
typedef void sl_attention_decode(const struct sl_attention *shape, const float *q, const float *q_rope, const void *k,
                                 const void *v, const void *k_rope, float *o, float *logsum);
extern sl_attention_decode sl_attention_decode_v2, sl_attention_decode_v3, sl_attention_decode_v4;
extern sl_attention_decode sl_attention_decode_device; /* in builds for devices */

/* The head of k and v that HEAD reads; how many there are. */
static inline size_t sl_attention_key_head(const struct sl_attention *shape, size_t head) {
    return shape->group > 1 ? (head + shape->lead) / shape->group : head;
}
static inline size_t sl_attention_key_heads(const struct sl_attention *shape) {
    return sl_attention_key_head(shape, shape->heads - 1) + 1;
}

SL_END_C
#endif
