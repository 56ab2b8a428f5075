/* attention_latent.h - causal attention over latents: each head's keys and values would be products of the latents
 * (DeepSeek-AI, "DeepSeek-V2", 2024, 2.1.2). One source (attention_latent.c), built as kernels.c is.
 *
 * Key = latent K_h, so q . key = (q K_h^T) . latent: K is absorbed into the query. Values = latent V_h + bias_h; their
 * mean by attention weights is the latents' mean times V_h, plus bias_h: V is absorbed into the output. A bias of the
 * keys would add the same number to all scores of a query and head, and softmax would cancel it. So only latents are
 * read, and one read serves all heads. */
#ifndef SL_LAYERS_KERNELS_ATTENTION_ATTENTION_LATENT_H
#define SL_LAYERS_KERNELS_ATTENTION_ATTENTION_LATENT_H

#include "spmd/base/numbers/dtype.h"

SL_BEGIN_C

/* Query t of a sequence sees the latents [0, position + t] of its sequence s, as far as there are such rows: they begin
 * at row s * key_rows of the cache, and there are key_rows. A head's score is (q . key + q_rope . rotary key) /
 * sqrt(width + rope). */
struct sl_latent_attention {
    size_t sequences, queries; /* queries of each sequence */
    size_t position, key_rows;
    size_t heads, width, rope; /* width: of q, keys, values; rope: of q_rope and the shared rotary key, or 0 */
    size_t latent;             /* columns of a latent */
    enum sl_dtype cached;      /* of cache and table: SL_F32, or SL_BF16, which is widened while it is read */
};

struct sl_latent_kernels {
    /* Writes table [2 * latent * columns], forward's form of KERNEL [latent, k | v], as DTYPE. k and v each have
     * COLUMNS = heads * width columns. */
    void (*absorb)(size_t latent, size_t columns, const float *kernel, enum sl_dtype dtype, void *table);
    /* Returns the bytes of forward's scratch. */
    size_t (*scratch)(const struct sl_latent_attention *shape);
    /* Writes o [sequences * queries, heads * width]. q has the shape of o; q_rope [sequences * queries, heads * rope];
     * cache [rows, latent + rope], a rotary key after each latent; bias [heads * width] of the values. Writes logsum
     * [heads, sequences * queries], the log of the sum of exp(score), unless it is NULL. QUEUE: on CPUs NULL, or the
     * calling thread's struct sl_crew, which helps and does not change the bits. */
    void (*forward)(const struct sl_latent_attention *shape, const float *q, const float *q_rope, const void *cache,
                    const void *table, const float *bias, float *o, float *logsum, void *scratch, void *queue);
};

extern const struct sl_latent_kernels sl_latent_kernels_v2, sl_latent_kernels_v3, sl_latent_kernels_v4;
extern const struct sl_latent_kernels sl_latent_kernels_device; /* in builds for devices */

SL_END_C
#endif
