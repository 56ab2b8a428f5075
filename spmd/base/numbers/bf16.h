/* bf16.h - bfloat16: the upper half of a float, as uint16_t. */
#ifndef SL_SPMD_BASE_NUMBERS_BF16_H
#define SL_SPMD_BASE_NUMBERS_BF16_H

#include "spmd/base/numbers/vector_math.h"

SL_BEGIN_C

SL_INLINE float sl_float_of_bf16(uint16_t x) { return sl_float_of_bits((uint32_t)x << 16); }

/* Rounds to nearest, ties to even. A NaN becomes a quiet NaN, because its upper half alone may be an infinity; on
 * NVIDIA GPUs, which have an instruction for this, 0x7fff. */
#ifdef __NVPTX__
SL_INLINE uint16_t sl_bf16_of_float(float x) {
    const __bf16 rounded = (__bf16)x;
    uint16_t bits;
    memcpy(&bits, &rounded, sizeof bits);
    return bits;
}
#else
SL_INLINE uint16_t sl_bf16_of_float(float x) {
    const uint32_t bits = sl_bits_of_float(x);
    const bool nan = (bits & 0x7fffffffu) > 0x7f800000u;
    const uint32_t rounded = nan ? bits | 0x00400000u : bits + 0x7fffu + (bits >> 16 & 1);
    return (uint16_t)(rounded >> 16);
}
#endif

/* X rounded to bf16, as a float. */
SL_INLINE float sl_bf16_part(float x) { return sl_float_of_bf16(sl_bf16_of_float(x)); }

/* Rounds element I of X, which is complete, to bf16, and stores it at STORED (may be NULL). */
SL_INLINE void sl_settle(float *x, uint16_t *stored, size_t i) {
    const uint16_t rounded = sl_bf16_of_float(x[i]);
    if (stored) stored[i] = rounded;
    x[i] = sl_float_of_bf16(rounded);
}

SL_END_C
#endif
