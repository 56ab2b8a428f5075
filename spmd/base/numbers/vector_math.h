/* vector_math.h - exp, exp2, log, log1p and sigmoid in float: no branches, no calls, so that loops over them become
 * vector code on hosts and devices (gcc needs -fno-trapping-math for that).
 *
 * Errors are below 1 ulp, 1.2 for exp2, 2.5 for sigmoid; infinities, NaN and subnormal numbers behave as in <math.h>.
 * On NVIDIA GPUs exp takes 7 instructions, not 35: exp and sigmoid err by less than 2^-20 of the result, and exp is 0
 * instead of a subnormal number. Ranges are reduced and approximated as in Moshier's Cephes (expf, exp2f, logf). */
#ifndef SL_SPMD_BASE_NUMBERS_VECTOR_MATH_H
#define SL_SPMD_BASE_NUMBERS_VECTOR_MATH_H

#include <math.h>
#include <string.h>

#include "spmd/base/base.h"

SL_BEGIN_C

/* Always inlines a function: a call would keep a loop from becoming vector code. */
#define SL_INLINE static inline __attribute__((always_inline))

SL_INLINE uint32_t sl_bits_of_float(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

SL_INLINE float sl_float_of_bits(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* Maps a float to an integer with the same order, and back: compilers vectorize maxima of integers only. NaN is above
 * or below all other values, by its sign. */
SL_INLINE int32_t sl_order_of_float(float x) {
    const int32_t bits = (int32_t)sl_bits_of_float(x);
    return bits < 0 ? bits ^ INT32_MAX : bits;
}

SL_INLINE float sl_float_of_order(int32_t order) {
    return sl_float_of_bits((uint32_t)(order < 0 ? order ^ INT32_MAX : order));
}

/* a * b + c, rounded once. Without an FMA instruction the sum is first rounded to double, which changes a result in
 * some 2^-29 of cases. */
#if defined(__FMA__) || defined(__NVPTX__) || defined(__ARM_FEATURE_FMA)
SL_INLINE float sl_fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
#else
SL_INLINE float sl_fma(float a, float b, float c) { return (float)((double)a * b + c); }
#endif

/* The square root, rounded to nearest. On NVIDIA GPUs clang would link sqrtf to CUDA's approximate square root. */
#ifdef __NVPTX__
SL_INLINE float sl_sqrt(float x) { return __nvvm_sqrt_rn_f(x); }
#else
SL_INLINE float sl_sqrt(float x) { return sqrtf(x); }
#endif

#ifdef __NVPTX__
/* 2^t by the GPU's instruction, times a factor for t's rounding error. The factor's bounds count for an infinite x. */
SL_INLINE float sl_exp(float x) {
    const float t = x * 1.44269504f, lost = sl_fma(t, -0.693147181f, x), bound = 1.0f / 65536;
    return __nvvm_ex2_approx_ftz_f(t) * (1.0f + __builtin_fminf(__builtin_fmaxf(lost, -bound), bound));
}
#else
SL_INLINE float sl_exp(float x) {
    /* Beyond these bounds exp is inf or 0 anyway; a NaN passes, as it compares false. */
    x = x > 89.0f ? 89.0f : x;
    x = x < -105.0f ? -105.0f : x;
    /* x = n ln 2 + r. Adding 1.5 * 2^23 rounds to an integer, which is then in the low bits. */
    const float magic = 12582912.0f;
    const float shifted = x * 1.44269504f + magic;
    const float n = shifted - magic;
    const float r = (x - n * 0.693359375f) - n * -2.12194440e-4f;
    float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    const float e = (p * (r * r) + r) + 1.0f;
    /* 2^n as two factors: n is -151 to 128. Unsigned, so that the garbage of a NaN is harmless. */
    const uint32_t power = sl_bits_of_float(shifted) - sl_bits_of_float(magic) + 512; /* n + 512 */
    const uint32_t half = power / 2;
    return e * sl_float_of_bits((half - 256 + 127) << 23) * sl_float_of_bits((power - half - 256 + 127) << 23);
}
#endif

/* 2^x for x up to 127; 0 if the result is below the smallest normal number: arithmetic with subnormal numbers is
 * slow. */
SL_INLINE float sl_exp2(float x) {
    /* x = n + r. Adding 1.5 * 2^23 + 127 rounds to an integer, and n + 127 is then in the low bits. */
    const float magic = 12583039.0f;
    const float shifted = x + magic;
    const float r = x - (shifted - magic);
    float p = 1.535336188319500e-4f;
    p = p * r + 1.339887440266574e-3f;
    p = p * r + 9.618437357674640e-3f;
    p = p * r + 5.550332471162809e-2f;
    p = p * r + 2.402264791363012e-1f;
    p = p * r + 6.931472028550421e-1f;
    const float e = (p * r + 1.0f) * sl_float_of_bits(sl_bits_of_float(shifted) << 23);
    return x < -126.0f ? 0.0f : e; /* a NaN passes */
}

/* log(1 + f) for 1 + f from sqrt(1/2) to sqrt(2), plus n ln 2 and a small correction. */
SL_INLINE float sl_log_reduced(float f, float n, float correction) {
    const float square = f * f;
    float p = 7.0376836292e-2f;
    p = p * f - 1.1514610310e-1f;
    p = p * f + 1.1676998740e-1f;
    p = p * f - 1.2420140846e-1f;
    p = p * f + 1.4249322787e-1f;
    p = p * f - 1.6668057665e-1f;
    p = p * f + 2.0000714765e-1f;
    p = p * f - 2.4999993993e-1f;
    p = p * f + 3.3333331174e-1f;
    float y = p * f * square;
    y = y + n * -2.12194440e-4f;
    y = y + correction;
    y = y - 0.5f * square;
    return (f + y) + n * 0.693359375f;
}

/* x = 2^n (1 + f), 1 + f from sqrt(1/2) to sqrt(2), for normal x > 0. */
SL_INLINE float sl_log_split(float x, float *n) {
    const uint32_t sqrt_half = 0x3f3504f3u;
    const uint32_t above = sl_bits_of_float(x) - sqrt_half; /* its upper bits are n, in two's complement */
    *n = (float)((int32_t)above >> 23);
    return sl_float_of_bits((above & 0x7fffffu) + sqrt_half) - 1.0f;
}

SL_INLINE float sl_log(float x) {
    const bool subnormal = x < 1.17549435e-38f;
    float n;
    const float f = sl_log_split(subnormal ? x * 8388608.0f : x, &n);
    float y = sl_log_reduced(f, subnormal ? n - 23.0f : n, 0.0f);
    y = x == INFINITY ? x : y;
    y = x == 0.0f ? -INFINITY : y;
    return x >= 0.0f ? y : NAN;
}

SL_INLINE float sl_log1p(float x) {
    const float u = 1.0f + x;
    float n;
    const float split = sl_log_split(u, &n);
    /* Near 0 the sum has lost x's low bits and x itself is exact; elsewhere the sum's rounding error is added back. */
    const bool near = n == 0.0f;
    const float lost = x - (u - 1.0f);
    float y = sl_log_reduced(near ? x : split, n, near ? 0.0f : lost / u);
    y = x == INFINITY ? x : y;
    y = x == -1.0f ? -INFINITY : y;
    y = x == 0.0f ? x : y; /* keeps the sign of -0 */
    return x >= -1.0f ? y : NAN;
}

SL_INLINE float sl_sigmoid(float x) { return 1.0f / (1.0f + sl_exp(-x)); }

SL_END_C

#endif
