/* cpu_level.h - which of the levels that one source is built for this CPU has. */
#ifndef SL_LAYERS_KERNELS_CPU_LEVEL_H
#define SL_LAYERS_KERNELS_CPU_LEVEL_H

#include <stdbool.h>

/* 4, 3 or 2, as in x86-64-v4. */
int sl_cpu_level(void);

/* And instructions that multiply bf16. */
bool sl_cpu_has_bf16(void);

#endif
