/* few_rows_select.c - selects the products with few rows for this CPU. */
#include "spmd/base/cpu_level.h"
#include "layers/kernels/gemm/rows/few_rows.h"

const struct sl_few_rows *sl_few_rows_available(int i) {
    const struct sl_few_rows *tables[] = {&sl_few_rows_v4, &sl_few_rows_v3, &sl_few_rows_v2, NULL};
    const int best = 4 - sl_cpu_level();
    return i < 0 || best + i > 3 ? NULL : tables[best + i];
}

const struct sl_few_rows_widening *sl_few_rows_widening_available(int i) {
    const struct sl_few_rows_widening *tables[] = {&sl_few_rows_widening_v4, &sl_few_rows_widening_v3,
                                                   &sl_few_rows_widening_v2, NULL};
    const int best = 4 - sl_cpu_level();
    return i < 0 || best + i > 3 ? NULL : tables[best + i];
}

const struct sl_few_rows *sl_few_rows_select(void) { return sl_few_rows_available(0); }

const struct sl_few_rows_bf16 *sl_few_rows_bf16_select(void) {
    return sl_cpu_has_bf16() ? &sl_few_rows_avx512_bf16 : NULL;
}
