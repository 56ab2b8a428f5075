/* fma.h - the rate of a core's multiply-adds without memory, which no matrix product can exceed.
 *
 * The loop's sums stay in registers and do not wait for each other. It is built once per CPU level, as kernels are. */
#ifndef SL_BENCHMARKS_RATES_FMA_H
#define SL_BENCHMARKS_RATES_FMA_H

#include <stdbool.h>
#include <stdint.h>

#include "spmd/base/numbers/dtype.h"

struct sl_fma_loop {
    const char *level; /* "x86-64-v4" */
    int flops;         /* of an instruction, or of the two instructions that replace it */
    int in_a_round;    /* such instructions */
    float (*run)(uint64_t rounds);
};

extern const struct sl_fma_loop sl_fma_loop_v2, sl_fma_loop_v3, sl_fma_loop_v4;
extern const struct sl_fma_loop sl_fma_loop_bf16;  /* two bf16 products a float, AVX512_BF16 */
extern const struct sl_fma_loop sl_fma_loop_tiles; /* AMX_BF16 */

/* Returns whether this process may use the CPU's tile unit, and ONEDNN_MAX_CPU_ISA does not keep oneDNN from it. */
bool sl_fma_has_tiles(void);

/* Returns the fastest loop that this process can use; NULL if it has no instruction for DTYPE. */
const struct sl_fma_loop *sl_fma_loop_select(enum sl_dtype dtype);

/* FLOP/s of the calling thread, over SECONDS. */
double sl_fma_loop_measure(const struct sl_fma_loop *fma, double seconds);

/* Returns the core's clock in Hz, measured by dependent additions: each takes a cycle. */
double sl_clock_measure(double seconds);

#endif
