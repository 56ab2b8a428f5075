/* gemm.c - finds backends, checks plans. */
#include "layers/gemm.h"

#include <string.h>

#ifndef SL_GEMM_DEFAULT /* the build's choice */
#define SL_GEMM_DEFAULT "cpu"
#endif

static const struct sl_gemm_backend *const backends[] = {&sl_gemm_cpu, &sl_gemm_onednn, &sl_gemm_reference};
enum { BACKENDS = sizeof backends / sizeof *backends };

const struct sl_gemm_backend *sl_gemm_find(const char *name, struct sl_error *error) {
    if (!name) name = SL_GEMM_DEFAULT;
    char names[128] = "";
    for (int i = 0; i < BACKENDS; i++) {
        const struct sl_gemm_backend *backend = backends[i];
        if (!strcmp(backend->name, name)) {
            if (!backend->missing) return backend;
            sl_error_set(error, SL_BAD_INPUT,
                         "matrix products by \"%s\" were left out of this build: build with -D%s=ON", name,
                         backend->missing);
            return NULL;
        }
        if (i) strcat(names, ", ");
        strcat(names, backend->name);
    }
    sl_error_set(error, SL_BAD_INPUT, "there are no matrix products by \"%s\": there are %s", name, names);
    return NULL;
}

int sl_gemm_plan(struct sl_gemm *gemm, const struct sl_gemm_backend *backend, int m, int n, int k, bool transpose_a,
                 bool transpose_b, enum sl_epilogue epilogue, struct sl_error *error) {
    *gemm = (struct sl_gemm){m, n, k, transpose_a, transpose_b, epilogue, backend, NULL};
    if (m < 1 || n < 1 || k < 1) {
        gemm->backend = NULL;
        return sl_error_set(error, SL_BAD_INPUT, "matrix product with m = %d, n = %d, k = %d: all must be at least 1",
                            m, n, k);
    }
    const int status = backend->plan(gemm, error);
    if (status) gemm->backend = NULL;
    return status;
}

int sl_gemm_execute(const struct sl_gemm *gemm, const float *a, const float *b, const float *bias, bool accumulate,
                    float *c, void *queue) {
    return gemm->backend->execute(gemm, a, b, bias, accumulate, c, queue);
}

void sl_gemm_release(struct sl_gemm *gemm) {
    if (gemm->backend) gemm->backend->release(gemm);
    gemm->backend = NULL;
    gemm->state = NULL;
}
