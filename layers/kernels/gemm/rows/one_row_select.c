/* one_row_select.c - selects the products of one row for this CPU. */
#include "spmd/base/cpu_level.h"
#include "layers/kernels/gemm/rows/one_row.h"
#include "spmd/base/memory.h"

enum { PART = 320 }; /* as in few_rows.c */

size_t sl_one_row_depth(size_t k) {
    const size_t parts = (k + PART - 1) / PART;
    return sl_round_up((k + parts - 1) / parts, 8);
}

const struct sl_one_row *sl_one_row_available(int i) {
    const struct sl_one_row *tables[] = {&sl_one_row_v4, &sl_one_row_v3, &sl_one_row_v2, NULL};
    const int best = 4 - sl_cpu_level();
    return i < 0 || best + i > 3 ? NULL : tables[best + i];
}
