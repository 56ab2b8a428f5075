/* many_rows_select.c - selects the products with many rows for this CPU. */
#include "spmd/base/cpu_level.h"
#include "layers/kernels/gemm/rows/many_rows.h"

const struct sl_many_rows *sl_many_rows_available(int i) {
    const struct sl_many_rows *tables[] = {&sl_many_rows_v4, &sl_many_rows_v3, &sl_many_rows_v2, NULL};
    const int best = 4 - sl_cpu_level();
    return i < 0 || best + i > 3 ? NULL : tables[best + i];
}

const struct sl_many_rows_widening *sl_many_rows_widening_available(int i) {
    const struct sl_many_rows_widening *tables[] = {&sl_many_rows_widening_v4, &sl_many_rows_widening_v3,
                                                    &sl_many_rows_widening_v2, NULL};
    const int best = 4 - sl_cpu_level();
    return i < 0 || best + i > 3 ? NULL : tables[best + i];
}

const struct sl_many_rows *sl_many_rows_select(void) { return sl_many_rows_available(0); }
