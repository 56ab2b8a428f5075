/* dot_bytes_internal.h - products of 32 codes of weights with 32 signed bytes, added up to eight sums of four
 * neighbours each; and a half float in all of eight lanes. The instructions are those of the including file's CPU
 * level.
 * */
#ifndef SL_LAYERS_KERNELS_GEMM_BLOCKS_DOT_BYTES_INTERNAL_H
#define SL_LAYERS_KERNELS_GEMM_BLOCKS_DOT_BYTES_INTERNAL_H

#include <string.h>

#include "spmd/base/numbers/f16.h"

#if defined(__AVX2__)
#include <immintrin.h>
#endif

enum { GROUP = 32, FOURS = GROUP / 4 }; /* codes of a group, and its sums of four neighbours */

typedef uint8_t codes __attribute__((vector_size(GROUP), aligned(1), may_alias));
typedef uint64_t longs __attribute__((vector_size(GROUP)));
typedef int8_t numbers __attribute__((vector_size(GROUP), aligned(1), may_alias));
typedef int32_t sums __attribute__((vector_size(4 * FOURS), aligned(4), may_alias));
typedef float scales __attribute__((vector_size(4 * FOURS), aligned(4), may_alias));

/* dot_codes: TO = START + products of CODES and X. Codes are at most 63. If WIDE, they may be any byte: weights are
 * then codes - 128, and START contains -128 times the sums of X. */
#if defined(__AVX512VNNI__) && defined(__AVX512VL__)
static inline __attribute__((always_inline)) void dot_codes(const bool wide, const codes *c, const numbers *x,
                                                            const sums *start, sums *to) {
    (void)wide;
    *to = (sums)_mm256_dpbusd_epi32((__m256i)*start, (__m256i)*c, (__m256i)*x);
}
#elif defined(__AVX2__)
/* The instruction adds two products in 16 bits, which is too few for codes above 128. So codes become signed weights,
 * whose signs move to x, and START is not added. */
static inline __attribute__((always_inline)) void dot_codes(const bool wide, const codes *c, const numbers *x,
                                                            const sums *start, sums *to) {
    const __m256i weights = (__m256i)(*c ^ 128), ones = _mm256_set1_epi16(1);
    const __m256i pairs = wide ? _mm256_maddubs_epi16(_mm256_abs_epi8(weights), _mm256_sign_epi8((__m256i)*x, weights))
                               : _mm256_maddubs_epi16((__m256i)*c, (__m256i)*x);
    *to = (sums)_mm256_madd_epi16(pairs, ones);
    if (!wide) *to += *start;
}
#else
static void dot_codes(const bool wide, const codes *c, const numbers *x, const sums *start, sums *to) {
    const uint8_t *code = (const void *)c;
    const int8_t *number = (const void *)x;
    int32_t *sum = (void *)to;
    (void)wide;
    *to = *start;
    for (int i = 0; i < GROUP; i++) sum[i / 4] += code[i] * number[i];
}
#endif

static inline __attribute__((always_inline)) void spread_half(const uint8_t *at, scales *to) {
    uint16_t half;
    memcpy(&half, at, sizeof half);
#if defined(__F16C__) && defined(__AVX2__)
    *to = (scales)_mm256_cvtph_ps(_mm_set1_epi16((int16_t)half));
#else
    *to = sl_float_of_f16(half) - (scales){0};
#endif
}

#endif
