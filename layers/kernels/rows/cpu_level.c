/* cpu_level.c - asks the CPU, feature by feature: gcc 12 does not know the levels' names. */
#include "layers/kernels/rows/cpu_level.h"

#include <stdlib.h>

static bool has_v3(void) {
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi") &&
           __builtin_cpu_supports("bmi2");
}

static bool has_v4(void) {
    return has_v3() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vl");
}

static int find_level(void) { return has_v4() ? 4 : has_v3() ? 3 : 2; }

int sl_cpu_level(void) {
    const char *told = getenv("SHARDLOOP_CPU_LEVEL");
    const int level = find_level(), most = told ? atoi(told) : level;
    return most >= 2 && most < level ? most : level;
}

bool sl_cpu_has_bf16(void) { return sl_cpu_level() == 4 && __builtin_cpu_supports("avx512bf16"); }
