/* fma_bf16.c - multiply-adds of bf16 in pairs. */
#include "benchmarks/rates/fma.h"

#include <immintrin.h>

enum { SUMS = 16, LANES = 16, PAIR = 2 };

static float run(uint64_t rounds) {
    volatile int start = 0x3f80; /* 1 */
    const __m512i x = _mm512_set1_epi16((short)start), y = _mm512_set1_epi16((short)(start - 0x800));
    __m512 sum[SUMS], all = _mm512_setzero_ps();
    for (int i = 0; i < SUMS; i++) sum[i] = _mm512_set1_ps((float)i);
    for (uint64_t round = 0; round < rounds; round++) {
        for (int i = 0; i < SUMS; i++) sum[i] = _mm512_dpbf16_ps(sum[i], (__m512bh)x, (__m512bh)y);
    }
    for (int i = 0; i < SUMS; i++) all = _mm512_add_ps(all, sum[i]);
    return _mm512_cvtss_f32(all);
}

const struct sl_fma_loop sl_fma_loop_bf16 = {
    .level = "AVX512_BF16", .flops = 2 * PAIR * LANES, .in_a_round = SUMS, .run = run};
