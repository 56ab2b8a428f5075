/* kernels_select.c - picks the kernels for the CPU that the process runs on. */
#include "layers/kernels.h"

/* Feature by feature: gcc 12 does not know the levels' names. */
static bool has_v3(void) {
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi") &&
           __builtin_cpu_supports("bmi2");
}

static bool has_v4(void) {
    return has_v3() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vl");
}

const struct sl_kernels *sl_kernels_available(int i) {
    const struct sl_kernels *tables[] = {&sl_kernels_v4, &sl_kernels_v3, &sl_kernels_v2, NULL};
    const int best = has_v4() ? 0 : has_v3() ? 1 : 2;
    return i < 0 || best + i > 3 ? NULL : tables[best + i];
}

const struct sl_kernels *sl_kernels_select(void) { return sl_kernels_available(0); }
