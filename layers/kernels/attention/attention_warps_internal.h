/* attention_warps_internal.h - attention on tensor cores: what attention.c does on GPUs where products may round their
 * operands to bf16 (Dao, "FlashAttention-2", 2023). */
#ifndef SL_LAYERS_KERNELS_ATTENTION_ATTENTION_WARPS_INTERNAL_H
#define SL_LAYERS_KERNELS_ATTENTION_ATTENTION_WARPS_INTERNAL_H

#include "layers/kernels/attention/attention.h"

SL_BEGIN_C

/* Columns of a head's keys, those with rotary positions among them, at most; both are multiples of PART. */
enum { SL_WARPS_COLUMNS = 128, SL_WARPS_PART = 16 };

/* Whether these kernels take SHAPE. */
static inline bool sl_attention_warps_take(const struct sl_attention *shape) {
    return shape->products == SL_BF16 && shape->width % SL_WARPS_PART == 0 && shape->rope % SL_WARPS_PART == 0 &&
           shape->width + shape->rope <= SL_WARPS_COLUMNS && !(shape->group > 1 && shape->rope);
}

/* As forward and backward of struct sl_attention_kernels, but for bits: q, k, v and d_o, the weights of values and the
 * gradients of scores are rounded to bf16, and sums are made in the order of the keys, or queries, in tiles of 8 or 16.
 * Where scores grow, what forward has of a row is scaled only once they are 8 above those it was scaled for. DELTAS
 * [heads, rows], minus o . d_o, and, where there is rope, DK_ROPE [heads, rows, rope], whose sums over heads the caller
 * makes. */
void sl_attention_warps_forward(const struct sl_attention *shape, const void *q, const void *q_rope, const void *k,
                                const void *v, const void *k_rope, float *o, float *logsum);
void sl_attention_warps_backward(const struct sl_attention *shape, const void *q, const void *q_rope, const void *k,
                                 const void *v, const void *k_rope, const void *o, const float *logsum, const void *d_o,
                                 float *dq, float *dq_rope, float *dk, float *dv, float *dk_rope, float *deltas);

SL_END_C
#endif
