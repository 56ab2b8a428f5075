/* kernels_select.c - picks the kernels and products for the CPU that the process runs on. */
#include "layers/few_rows.h"
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

static int best_level(void) { return has_v4() ? 0 : has_v3() ? 1 : 2; }

const struct sl_kernels *sl_kernels_available(int i) {
    const struct sl_kernels *tables[] = {&sl_kernels_v4, &sl_kernels_v3, &sl_kernels_v2, NULL};
    return i < 0 || best_level() + i > 3 ? NULL : tables[best_level() + i];
}

const struct sl_kernels *sl_kernels_select(void) { return sl_kernels_available(0); }

const struct sl_few_rows *sl_few_rows_available(int i) {
    const struct sl_few_rows *tables[] = {&sl_few_rows_v4, &sl_few_rows_v3, &sl_few_rows_v2, NULL};
    return i < 0 || best_level() + i > 3 ? NULL : tables[best_level() + i];
}

const struct sl_few_rows *sl_few_rows_select(void) { return sl_few_rows_available(0); }

const struct sl_few_rows_bf16 *sl_few_rows_bf16_select(void) {
    return has_v4() && __builtin_cpu_supports("avx512bf16") ? &sl_few_rows_avx512_bf16 : NULL;
}
