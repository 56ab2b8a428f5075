/* attention_latent.h - causal attention over latents, of which each head's keys and values would be products
 * (DeepSeek-AI, "DeepSeek-V2", 2024, 2.1.2). One source (attention_latent.c), built as kernels.c is.
 *
 * Key = latent K_h, so q . key = (q K_h^T) . latent: K is absorbed into the query. Values = latent V_h + bias_h, whose
 * mean by the weights of attention is that of the latents, times V_h, plus bias_h: V is absorbed into the output. A
 * bias of the keys would add the same number to all scores of a query and head, which softmax does not see. So only
 * latents are read, and a read serves all heads. */
#ifndef SL_LAYERS_KERNELS_ATTENTION_ATTENTION_LATENT_H
#define SL_LAYERS_KERNELS_ATTENTION_ATTENTION_LATENT_H

#include "spmd/base/dtype.h"

SL_BEGIN_C

/* Query t of a sequence sees the latents [0, position + t] of the same sequence, whose rows begin at row s * key_rows
 * of the cache. A head's score is (q . key + q_rope . rotary key) / sqrt(width + rope). */
struct sl_latent_attention {
    size_t sequences, queries; /* of each sequence */
    size_t position, key_rows;
    size_t heads, width, rope; /* of q, keys and values; of q_rope and the rotary key that all heads share, or 0 */
    size_t latent;             /* columns of a latent */
    enum sl_dtype cached;      /* of cache and table: SL_F32 or SL_BF16, which is widened as it is read */
};

struct sl_latent_kernels {
    /* table [2 * latent * columns]: what forward takes of KERNEL [latent, k | v], each of k and v having COLUMNS =
     * heads * width columns; as DTYPE keeps it. */
    void (*absorb)(size_t latent, size_t columns, const float *kernel, enum sl_dtype dtype, void *table);
    /* Bytes of forward's scratch. */
    size_t (*scratch)(const struct sl_latent_attention *shape);
    /* Writes o [sequences * queries, heads * width]. q has the shape of o; q_rope [sequences * queries, heads * rope];
     * cache [rows, latent + rope], a rotary key behind each latent; bias [heads * width] of the values. QUEUE: on CPUs
     * NULL, or the calling thread's struct sl_crew, which helps and does not change a bit. */
    void (*forward)(const struct sl_latent_attention *shape, const float *q, const float *q_rope, const void *cache,
                    const void *table, const float *bias, float *o, void *scratch, void *queue);
};

extern const struct sl_latent_kernels sl_latent_kernels_v2, sl_latent_kernels_v3, sl_latent_kernels_v4;
extern const struct sl_latent_kernels sl_latent_kernels_device; /* in builds for devices */

SL_END_C
#endif
