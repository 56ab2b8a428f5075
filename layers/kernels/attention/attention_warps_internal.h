/* attention_warps_internal.h - attention on tensor cores: attention.c uses it on GPUs if products may round their
 * operands to bf16 (Dao, "FlashAttention-2", 2023). */
#ifndef SL_LAYERS_KERNELS_ATTENTION_ATTENTION_WARPS_INTERNAL_H
#define SL_LAYERS_KERNELS_ATTENTION_ATTENTION_WARPS_INTERNAL_H

#include "layers/kernels/attention/attention.h"

SL_BEGIN_C

/* Most columns of a head's keys, including rotary columns; and the unit: width and rope are multiples of PART. */
enum { SL_WARPS_COLUMNS = 128, SL_WARPS_PART = 16 };

/* Returns whether these kernels support SHAPE. */
static inline bool sl_attention_warps_take(const struct sl_attention *shape) {
    return shape->products == SL_BF16 && shape->width % SL_WARPS_PART == 0 && shape->rope % SL_WARPS_PART == 0 &&
           shape->width + shape->rope <= SL_WARPS_COLUMNS && !(shape->group > 1 && shape->rope);
}

/* forward and backward of struct sl_attention_kernels, with other bits: q, k, v and d_o, the weights of values and the
 * gradients of scores are rounded to bf16, and sums are added in the order of the keys, or queries, in tiles of 8
 * or 16. If scores grow, forward rescales a row only after its scores exceed their reference by 8. Backward writes
 * DELTAS [heads, rows], minus o . d_o, and, if there is rope, DK_ROPE [heads, rows, rope]; the caller adds up the heads
 * of DK_ROPE. */
void sl_attention_warps_forward(const struct sl_attention *shape, const void *q, const void *q_rope, const void *k,
                                const void *v, const void *k_rope, struct sl_out o, float *logsum);
void sl_attention_warps_backward(const struct sl_attention *shape, const void *q, const void *q_rope, const void *k,
                                 const void *v, const void *k_rope, const void *o, const float *logsum, const void *d_o,
                                 struct sl_out dq, float *dq_rope, struct sl_out dk, struct sl_out dv, float *dk_rope,
                                 float *deltas);

SL_END_C
#endif
