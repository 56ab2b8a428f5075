/* kernels_cpu.c - selects the kernels for this CPU. */
#include "spmd/base/cpu_level.h"
#include "layers/kernels/kernels.h"

const struct sl_kernels *sl_kernels_available(int i) {
    const struct sl_kernels *tables[] = {&sl_kernels_v4, &sl_kernels_v3, &sl_kernels_v2, NULL};
    const int best = 4 - sl_cpu_level();
    return i < 0 || best + i > 3 ? NULL : tables[best + i];
}

const struct sl_kernels *sl_kernels_select(void) { return sl_kernels_available(0); }
