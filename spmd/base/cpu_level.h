/* cpu_level.h - the instruction level of this CPU; kernels are built once for each level. */
#ifndef SL_SPMD_BASE_CPU_LEVEL_H
#define SL_SPMD_BASE_CPU_LEVEL_H

#include <stdbool.h>

#include "spmd/base/error.h"

SL_BEGIN_C

/* Returns 4, 3 or 2, as in x86-64-v4 (AVX-512), v3 (AVX2) and v2. SHARDLOOP_CPU_LEVEL in the environment lowers the
 * level, for tests and benchmarks; it cannot raise it. Level 5 is 4 with tiles. */
int sl_cpu_level(void);

/* SL_BAD_INPUT if SHARDLOOP_CPU_LEVEL is neither empty nor 2, 3, 4 or 5; sl_cpu_level ignores it then. */
int sl_cpu_level_check(struct sl_error *error);

/* Whether a CPU of level 4 also has instructions that multiply bf16 (AVX512_BF16). */
bool sl_cpu_has_bf16(void);

/* Whether a CPU of level 4 also has instructions that multiply bytes (AVX512_VNNI). */
bool sl_cpu_has_byte_dots(void);

/* Whether this process may also use the CPU's tile unit for bf16 (AMX): asks the kernel for permission, which holds for
 * all threads. False if SHARDLOOP_CPU_LEVEL asks for a level below 5. */
bool sl_cpu_has_tiles(void);

SL_END_C
#endif
