/* random.h - threefry2x32 and JAX's random numbers, inline for devices.
 *
 * The bits are those of jax.random with jax_threefry_partitionable off (the layout of JAX 0.4.25): for an array of n
 * words the counts 0..n-1 are cut into two halves and hashed in pairs; an odd n is padded by one zero count.
 * Floating-point values agree with JAX's within 2 ulp, and are the same if JAX runs on a CPU that fuses multiply and
 * add.
 *
 * Sources: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011 (20 rounds); erfinv: Giles,
 * "Approximating the erfinv function", GPU Computing Gems 2011. */
#ifndef SL_SPMD_RANDOM_H
#define SL_SPMD_RANDOM_H

#include "spmd/base/numbers/vector_math.h"

SL_BEGIN_C

struct sl_key {
    uint32_t word[2];
};

SL_INLINE uint32_t sl_rotate_left(uint32_t x, int n) { return (x << n) | (x >> (32 - n)); }

/* The block function: hashes the pair of counts (x0, x1) under KEY. */
SL_INLINE void sl_threefry2x32(struct sl_key key, uint32_t x0, uint32_t x1, uint32_t *y0, uint32_t *y1) {
    static const int rotation[2][4] = {{13, 15, 26, 6}, {17, 29, 16, 24}};
    const uint32_t schedule[3] = {key.word[0], key.word[1], key.word[0] ^ key.word[1] ^ 0x1BD11BDAu};
    x0 += schedule[0];
    x1 += schedule[1];
    for (int group = 0; group < 5; group++) {
        for (int i = 0; i < 4; i++) {
            x0 += x1;
            x1 = sl_rotate_left(x1, rotation[group & 1][i]) ^ x0;
        }
        x0 += schedule[(group + 1) % 3];
        x1 += schedule[(group + 2) % 3] + (uint32_t)(group + 1);
    }
    *y0 = x0;
    *y1 = x1;
}

/* jax.random.PRNGKey(seed), seed taken modulo 2^32. */
static inline struct sl_key sl_key_of_seed(uint64_t seed) { return (struct sl_key){{0, (uint32_t)seed}}; }

/* jax.random.fold_in(key, data). */
static inline struct sl_key sl_fold_in(struct sl_key key, uint32_t data) {
    struct sl_key folded;
    sl_threefry2x32(key, 0, data, &folded.word[0], &folded.word[1]);
    return folded;
}

/* Word I of the N random words of KEY. */
SL_INLINE uint32_t sl_random_word(struct sl_key key, uint32_t n, uint32_t i) {
    const uint32_t half = n / 2 + (n & 1), low = i < half ? i : i - half;
    uint32_t y0, y1;
    sl_threefry2x32(key, low, low + half < n ? low + half : 0, &y0, &y1);
    return i < half ? y0 : y1;
}

/* Key number I of jax.random.split(key, n). */
static inline struct sl_key sl_split(struct sl_key key, uint32_t n, uint32_t i) {
    return (struct sl_key){{sl_random_word(key, 2 * n, 2 * i), sl_random_word(key, 2 * n, 2 * i + 1)}};
}

/* Floats from words. Each float depends on its word alone, so that kernels can compute it where they use it. */

/* Uniform on [0, 1), from the upper 23 bits. */
SL_INLINE float sl_uniform_of_word(uint32_t word) { return sl_float_of_bits((word >> 9) | 0x3f800000u) - 1.0f; }

/* Uniform on [minimum, maximum), up to rounding. */
SL_INLINE float sl_uniform_between_of_word(uint32_t word, float minimum, float maximum) {
    const float u = sl_fma(sl_uniform_of_word(word), maximum - minimum, minimum);
    return u > minimum ? u : minimum;
}

/* log(1 + x) as XLA computes it; for other purposes sl_log1p is better. A difference of one in its last place becomes
 * one of three in normally distributed numbers, so operations and their order are XLA's (Cephes; the logarithm is
 * Eigen's). */
SL_INLINE float sl_xla_log1p(float x) {
    float numerator = 4.5270000862445199635e-5f, denominator = 1.0f;
    numerator = sl_fma(numerator, x, 4.9854102823193375972e-1f);
    numerator = sl_fma(numerator, x, 6.5787325942061044846f);
    numerator = sl_fma(numerator, x, 2.9911919328553073277e1f);
    numerator = sl_fma(numerator, x, 6.0949667980987787058e1f);
    numerator = sl_fma(numerator, x, 5.7112963590585538103e1f);
    numerator = sl_fma(numerator, x, 2.0039553499201281260e1f);
    denominator = sl_fma(denominator, x, 1.5062909083469192043e1f);
    denominator = sl_fma(denominator, x, 8.3047565967967209469e1f);
    denominator = sl_fma(denominator, x, 2.2176239823732856465e2f);
    denominator = sl_fma(denominator, x, 3.0909872225312059774e2f);
    denominator = sl_fma(denominator, x, 2.1642788614495947685e2f);
    denominator = sl_fma(denominator, x, 6.0118660497603843919e1f);
    const float square = x * x;
    const float near = x + sl_fma(x * square, numerator / denominator, -0.5f * square);

    float n;
    const float f = sl_log_split(1.0f + x, &n);
    const float f2 = f * f, f3 = f2 * f;
    const float high = sl_fma(sl_fma(7.0376836292e-2f, f, -1.1514610310e-1f), f, 1.1676998740e-1f);
    const float middle = sl_fma(sl_fma(-1.2420140846e-1f, f, 1.4249322787e-1f), f, -1.6668057665e-1f);
    const float low = sl_fma(sl_fma(2.0000714765e-1f, f, -2.4999993993e-1f), f, 3.3333331174e-1f);
    const float tail = sl_fma(sl_fma(sl_fma(high, f3, middle), f3, low), f3, n * -2.12194440e-4f);
    const float far = ((f - 0.5f * f2) + tail) + n * 0.693359375f;
    return fabsf(x) < 0.414213562f ? near : far;
}

/* The inverse error function on [-1, 1]; infinite at both ends. */
SL_INLINE float sl_erfinv(float x) {
    const float w = -sl_xla_log1p(-x * x);
    const bool central = w < 5.0f;
    const float t = central ? w - 2.5f : sl_sqrt(w) - 3.0f;
    float p = central ? 2.81022636e-08f : -0.000200214257f;
    p = sl_fma(p, t, central ? 3.43273939e-07f : 0.000100950558f);
    p = sl_fma(p, t, central ? -3.5233877e-06f : 0.00134934322f);
    p = sl_fma(p, t, central ? -4.39150654e-06f : -0.00367342844f);
    p = sl_fma(p, t, central ? 0.00021858087f : 0.00573950773f);
    p = sl_fma(p, t, central ? -0.00125372503f : -0.0076224613f);
    p = sl_fma(p, t, central ? -0.00417768164f : 0.00943887047f);
    p = sl_fma(p, t, central ? 0.246640727f : 1.00167406f);
    p = sl_fma(p, t, central ? 1.50140941f : 2.83297682f);
    return fabsf(x) == 1.0f ? x * INFINITY : p * x;
}

/* Standard normal. */
SL_INLINE float sl_normal_of_word(uint32_t word) {
    return 1.41421356f * sl_erfinv(sl_uniform_between_of_word(word, -0x1.fffffep-1f, 1.0f));
}

/* Standard normal truncated to the open interval (-2, 2); its standard deviation is 0.87962566. */
SL_INLINE float sl_truncated_normal_of_word(uint32_t word) {
    const float edge = 0x1.e8b43p-1f;   /* erf(2 / sqrt 2) as XLA has it */
    const float limit = 0x1.fffffep+0f; /* the last number below 2 */
    const float x = 1.41421356f * sl_erfinv(sl_uniform_between_of_word(word, -edge, edge));
    return x < -limit ? -limit : x > limit ? limit : x;
}

/* Arrays: OUT [N] as by the function of the same name in jax.random (random.c). */

/* Words of any bits. */
void sl_random_bits(struct sl_key key, uint32_t n, uint32_t *out);
/* [minimum, maximum) */
void sl_random_uniform(struct sl_key key, uint32_t n, float minimum, float maximum, float *out);
void sl_random_normal(struct sl_key key, uint32_t n, float *out);
/* In (-2, 2). */
void sl_random_truncated_normal(struct sl_key key, uint32_t n, float *out);
/* 1 with probability P, else 0. */
void sl_random_bernoulli(struct sl_key key, uint32_t n, float p, uint8_t *out);
/* [minimum, maximum); MINIMUM alone if that range is empty. */
void sl_random_randint(struct sl_key key, uint32_t n, int32_t minimum, int32_t maximum, int32_t *out);

SL_END_C

#endif
