/* one_row_select.c - picks the products of one row for the CPU that the process runs on. */
#include "layers/kernels/cpu_level.h"
#include "layers/kernels/few_rows.h"
#include "layers/kernels/decode/one_row.h"

const struct sl_one_row *sl_one_row_available(int i) {
    const struct sl_one_row *tables[] = {&sl_one_row_v4, &sl_one_row_v3, &sl_one_row_v2, NULL};
    const int best = 4 - sl_cpu_level();
    return i < 0 || best + i > 3 ? NULL : tables[best + i];
}

sl_one_row_multiply *sl_one_row_select(const struct sl_gemm *gemm) {
    const struct sl_one_row *table = sl_one_row_available(0);
    const struct sl_few_rows_bf16 *pairs = sl_few_rows_bf16_select();
    const size_t n = (size_t)gemm->n;
    if (gemm->m != 1 || gemm->transpose_a || gemm->transpose_b || n % table->lanes) return NULL;
    if (gemm->dtype == SL_F32) return table->f32;
    if (pairs) return n % pairs->lanes || gemm->k % 2 ? NULL : sl_one_row_avx512_bf16;
    return sl_gemm_supports(&sl_gemm_onednn, SL_BF16) ? NULL : table->bf16;
}
