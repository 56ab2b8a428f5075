/* f16.h - IEEE 754's half precision, as uint16_t: a type of files; no computation uses it. */
#ifndef SL_SPMD_BASE_NUMBERS_F16_H
#define SL_SPMD_BASE_NUMBERS_F16_H

#include "spmd/base/numbers/vector_math.h"

SL_BEGIN_C

SL_INLINE float sl_float_of_f16(uint16_t x) {
    const uint32_t sign = (uint32_t)(x & 0x8000u) << 16, rest = x & 0x7fffu;
    if (rest >= 0x7c00u) return sl_float_of_bits(sign | 0x7f800000u | (rest & 0x3ffu) << 13); /* not finite */
    if (rest < 0x0400u) {                                                                     /* a multiple of 2^-24 */
        const float small = (float)rest * 0x1p-24f;
        return sign ? -small : small;
    }
    return sl_float_of_bits(sign | ((rest << 13) + 0x38000000u));
}

/* Rounds to nearest, ties to even; too large values become an infinity, and a NaN a quiet one. */
SL_INLINE uint16_t sl_f16_of_float(float x) {
    const uint32_t bits = sl_bits_of_float(x), rest = bits & 0x7fffffffu;
    const uint16_t sign = (uint16_t)(bits >> 16 & 0x8000u);
    if (rest > 0x7f800000u) return (uint16_t)(sign | 0x7e00u);
    if (rest >= 0x47800000u) return (uint16_t)(sign | 0x7c00u);
    if (rest < 0x38800000u) { /* the sum's last digit stands for 2^-24, and addition rounds */
        const float sum = sl_float_of_bits(rest) + 0.5f;
        return (uint16_t)(sign | (sl_bits_of_float(sum) - 0x3f000000u));
    }
    return (uint16_t)(sign | ((rest - 0x38000000u + 0xfffu + (rest >> 13 & 1)) >> 13));
}

SL_END_C
#endif
