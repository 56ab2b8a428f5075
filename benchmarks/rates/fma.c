/* fma.c - chooses this process's multiply-adds, and measures their rate and the clock's. */
#include "benchmarks/rates/fma.h"

#include "spmd/base/cpu_level.h"
#include "spmd/spmd.h"

const struct sl_fma_loop *sl_fma_loop_select(enum sl_dtype dtype) {
    const struct sl_fma_loop *const levels[] = {&sl_fma_loop_v2, &sl_fma_loop_v3, &sl_fma_loop_v4};
    if (dtype == SL_BF16 && sl_fma_has_tiles()) return &sl_fma_loop_tiles;
    if (dtype == SL_BF16) return sl_cpu_has_bf16() ? &sl_fma_loop_bf16 : NULL;
    return levels[sl_cpu_level() - 2];
}

double sl_fma_loop_measure(const struct sl_fma_loop *fma, double seconds) {
    enum { ROUNDS = 2000 }; /* 5 to 20 microseconds */
    volatile float kept = fma->run(ROUNDS);
    const double began = sl_now();
    double runs = 0, elapsed;
    do {
        kept = fma->run(ROUNDS);
        runs++;
        elapsed = sl_now() - began;
    } while (elapsed < seconds);
    (void)kept;
    return runs * ROUNDS * fma->in_a_round * fma->flops / elapsed;
}

double sl_clock_measure(double seconds) {
    enum { TIMES = 1000, TOGETHER = 8 };
    uint64_t sum = 1, added = 3;
    const double began = sl_now();
    double cycles = 0, elapsed;
    do {
        for (int i = 0; i < TIMES; i++) /* in registers: additions of constants cost some CPUs nothing */
            __asm__ volatile("add %1, %0\n\tadd %1, %0\n\tadd %1, %0\n\tadd %1, %0\n\t"
                             "add %1, %0\n\tadd %1, %0\n\tadd %1, %0\n\tadd %1, %0"
                             : "+r"(sum)
                             : "r"(added));
        cycles += TIMES * TOGETHER;
        elapsed = sl_now() - began;
    } while (elapsed < seconds);
    return cycles / elapsed;
}
