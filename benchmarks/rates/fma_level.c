/* fma_level.c - multiply-adds of floats, built once per CPU level. The build defines SL_FMA_LOOP and SL_LEVEL, and lets
 * the compiler fuse a * b + c. */
#include "benchmarks/rates/fma.h"
#include "layers/kernels/loops/vectors_internal.h"

/* Two units times a latency of up to five cycles; with X and Y they fit the 16 registers of AVX2. */
enum { SUMS = 12 };

static float run(uint64_t rounds) {
    volatile float start = 1.0f; /* volatile, so the compiler does not compute the result */
    const vector x = spread(start - 0x1p-20f), y = spread(start * 0x1p-20f);
    vector sum[SUMS], all = {0};
    for (int i = 0; i < SUMS; i++) sum[i] = spread(start * (float)i);
    for (uint64_t round = 0; round < rounds; round++) {
        for (int i = 0; i < SUMS; i++) sum[i] = sum[i] * x + y;
    }
    for (int i = 0; i < SUMS; i++) all += sum[i];
    return all[0];
}

const struct sl_fma_loop SL_FMA_LOOP = {.level = SL_LEVEL, .flops = 2 * LANES, .in_a_round = SUMS, .run = run};
