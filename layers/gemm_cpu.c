/* gemm_cpu.c - matrix products on CPUs: few rows by few_rows.c, all others by the library. */
#include <stdlib.h>

#include "layers/few_rows.h"
#include "layers/gemm.h"

/* From here on the weights' way matters less: measured with weights of 512 x 512 to 1024 x 4096, cached and not. */
enum { FEW_ROWS = 32 };

struct cpu {
    const struct sl_few_rows *few; /* or NULL: */
    struct sl_gemm library;
};

static bool fits(const struct sl_few_rows *few, const struct sl_gemm *gemm) {
    const size_t along = (size_t)(gemm->transpose_b ? gemm->k : gemm->n);
    return gemm->m <= FEW_ROWS && !gemm->transpose_a && along % few->lanes == 0 &&
           !(gemm->transpose_b && gemm->epilogue == SL_EPILOGUE_BIAS);
}

static int plan(struct sl_gemm *gemm, struct sl_error *error) {
    struct cpu *cpu = calloc(1, sizeof *cpu);
    if (!cpu) return sl_error_set(error, SL_FAILED, "matrix products: no memory");
    const struct sl_few_rows *few = sl_few_rows_select();
    int status = SL_OK;
    if (fits(few, gemm)) {
        cpu->few = few;
    } else {
        const struct sl_gemm_backend *library = sl_gemm_onednn.missing ? &sl_gemm_reference : &sl_gemm_onednn;
        status = sl_gemm_plan(&cpu->library, library, gemm->m, gemm->n, gemm->k, gemm->transpose_a, gemm->transpose_b,
                              gemm->epilogue, error);
    }
    if (status) {
        free(cpu);
        return status;
    }
    gemm->state = cpu;
    return SL_OK;
}

static void release(struct sl_gemm *gemm) {
    struct cpu *cpu = gemm->state;
    if (!cpu->few) sl_gemm_release(&cpu->library);
    free(cpu);
}

static int execute(const struct sl_gemm *gemm, const float *a, const float *b, const float *bias, bool accumulate,
                   float *c, void *queue) {
    const struct cpu *cpu = gemm->state;
    const size_t m = (size_t)gemm->m, n = (size_t)gemm->n, k = (size_t)gemm->k;
    if (!cpu->few) return sl_gemm_execute(&cpu->library, a, b, bias, accumulate, c, queue);
    if (gemm->transpose_b) {
        cpu->few->multiply_transposed(m, n, k, a, b, accumulate, c);
    } else {
        cpu->few->multiply(m, n, k, a, b, gemm->epilogue == SL_EPILOGUE_BIAS ? bias : NULL, accumulate, c);
    }
    return SL_OK;
}

const struct sl_gemm_backend sl_gemm_cpu = {.name = "cpu", .plan = plan, .execute = execute, .release = release};
