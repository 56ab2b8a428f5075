/* one_row_select.c - picks the products of one row for the CPU that the process runs on. */
#include "spmd/base/cpu_level.h"
#include "layers/kernels/rows/one_row.h"

const struct sl_one_row *sl_one_row_available(int i) {
    const struct sl_one_row *tables[] = {&sl_one_row_v4, &sl_one_row_v3, &sl_one_row_v2, NULL};
    const int best = 4 - sl_cpu_level();
    return i < 0 || best + i > 3 ? NULL : tables[best + i];
}
