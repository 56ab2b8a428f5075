/* dot_bytes_internal.h - products of four unsigned codes with four signed bytes in each lane, and half floats as
 * floats. The instructions are those of the including file's CPU level. */
#ifndef SL_LAYERS_KERNELS_GEMM_BLOCKS_DOT_BYTES_INTERNAL_H
#define SL_LAYERS_KERNELS_GEMM_BLOCKS_DOT_BYTES_INTERNAL_H

#include "layers/kernels/loops/vectors_internal.h"
#include "spmd/base/numbers/f16.h"

#if defined(__AVX2__)
#include <immintrin.h>
#endif

/* add_products: adds four products of CODE and X to each lane. Codes are at most MOST. If MOST is 255, weights are
 * codes - 128.
 * DOT: sums. PAIRS: sums in 16 bits, zeros at first; fold_pairs moves them to DOT, at least after each words_of_pairs.
 * STARTS_AT_BASE: the caller starts DOT at -base times the sums of X; otherwise at 0 if MOST is 255. */
#if defined(__AVX512VNNI__)
enum { STARTS_AT_BASE = true };
static inline int words_of_pairs(int most) { return most ? 8 : 0; }
static inline __attribute__((always_inline)) void add_products(const int most, words code, words x, integers *pairs,
                                                               integers *dot) {
    (void)most, (void)pairs;
    *dot = (integers)_mm512_dpbusd_epi32((__m512i)*dot, (__m512i)code, (__m512i)x);
}
static inline __attribute__((always_inline)) void fold_pairs(integers *pairs, integers *dot) { (void)pairs, (void)dot; }
#elif defined(__AVX2__)
#if defined(__AVX512BW__)
#define SL_BYTES(name) _mm512_##name
typedef __m512i bits;
static inline bits negate_where(bits weights, bits x) {
    return _mm512_mask_sub_epi8(x, _mm512_movepi8_mask(weights), _mm512_setzero_si512(), x);
}
#else
#define SL_BYTES(name) _mm256_##name
typedef __m256i bits;
static inline bits negate_where(bits weights, bits x) { return _mm256_sign_epi8(x, weights); }
#endif
/* The instruction adds two products in 16 bits, too few for codes above 128: these become signed weights, and their
 * signs move to X. */
enum { STARTS_AT_BASE = false };
static inline int words_of_pairs(int most) { return most > 31 ? 2 : most > 15 ? 4 : 8; }
static inline __attribute__((always_inline)) void add_products(const int most, words code, words x, integers *pairs,
                                                               integers *dot) {
    typedef int16_t shorts __attribute__((vector_size(4 * LANES)));
    const bits ones = SL_BYTES(set1_epi16)(1), weights = (bits)(code ^ 0x80808080u);
    if (most == 255)
        *dot += (integers)SL_BYTES(madd_epi16)(
            SL_BYTES(maddubs_epi16)(SL_BYTES(abs_epi8)(weights), negate_where(weights, (bits)x)), ones);
    else
        *pairs = (integers)((shorts)*pairs + (shorts)SL_BYTES(maddubs_epi16)((bits)code, (bits)x));
}
static inline __attribute__((always_inline)) void fold_pairs(integers *pairs, integers *dot) {
    *dot += (integers)SL_BYTES(madd_epi16)((bits)*pairs, SL_BYTES(set1_epi16)(1));
    *pairs = (integers){0};
}
#else
enum { STARTS_AT_BASE = true };
static inline int words_of_pairs(int most) { return most ? 8 : 0; }
static inline __attribute__((always_inline)) void add_products(const int most, words code, words x, integers *pairs,
                                                               integers *dot) {
    (void)most, (void)pairs;
    SL_UNROLL
    for (int i = 0; i < 32; i += 8) *dot += (integers)(code >> i & 255) * ((integers)(x << (24 - i)) >> 24);
}
static inline void fold_pairs(integers *pairs, integers *dot) { (void)pairs, (void)dot; }
#endif

/* Returns the lower halves of X, which are half floats. */
static inline __attribute__((always_inline)) vector floats_of_halves(words x) {
#if defined(__AVX512F__)
    return (vector)_mm512_cvtph_ps((__m256i) __builtin_convertvector(x, halves));
#elif defined(__AVX2__)
    return (vector)_mm256_cvtph_ps((__m128i) __builtin_convertvector(x, halves));
#else
    vector floats;
    for (int i = 0; i < LANES; i++) floats[i] = sl_float_of_f16((uint16_t)x[i]);
    return floats;
#endif
}

/* Returns four bytes of each lane, those from OFFSET on. */
static inline __attribute__((always_inline)) words load_word(const uint8_t *const at[LANES], size_t offset) {
#if defined(__AVX512F__)
    const void *const from = (const void *)offset; /* the indices are addresses */
    const __m256i low = _mm512_i64gather_epi32(_mm512_loadu_si512(at), from, 1);
    return (words)_mm512_inserti64x4(_mm512_castsi256_si512(low),
                                     _mm512_i64gather_epi32(_mm512_loadu_si512(at + 8), from, 1), 1);
#elif defined(__AVX2__)
    const void *const from = (const void *)offset; /* the indices are addresses */
    const __m128i low = _mm256_i64gather_epi32(from, _mm256_loadu_si256((const __m256i *)(const void *)at), 1);
    const __m256i next = _mm256_loadu_si256((const __m256i *)(const void *)(at + 4));
    return (words)_mm256_set_m128i(_mm256_i64gather_epi32(from, next, 1), low);
#else
    words word;
    for (int i = 0; i < LANES; i++) {
        uint32_t own;
        memcpy(&own, at[i] + offset, sizeof own);
        word[i] = own;
    }
    return word;
#endif
}

#endif
