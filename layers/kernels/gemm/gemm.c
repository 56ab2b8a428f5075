/* gemm.c - finds backends, checks plans. */
#include "layers/kernels/gemm/gemm.h"

#include <stdio.h>
#include <string.h>

#include "layers/kernels/gemm/sanitizers_internal.h"
#include "spmd/device/device.h"

static const struct sl_gemm_backend *const backends[] = {&sl_gemm_cpu,       &sl_gemm_onednn, &sl_gemm_blocked,
                                                         &sl_gemm_reference, &sl_gemm_cublas, &sl_gemm_cublas_tf32};
enum { BACKENDS = sizeof backends / sizeof *backends };

const struct sl_gemm_backend *sl_gemm_find(const char *name, struct sl_error *error) {
    if (!name) name = SL_GEMM_DEFAULT;
    char names[128] = "";
    for (int i = 0; i < BACKENDS; i++) {
        const struct sl_gemm_backend *backend = backends[i];
        if (!strcmp(backend->name, name)) {
            if (!backend->missing) return backend;
            sl_error_set(error, SL_BAD_INPUT, "matrix products by \"%s\" were left out of this build: build with -D%s",
                         name, backend->missing);
            return NULL;
        }
        if (i) strcat(names, ", ");
        strcat(names, backend->name);
    }
    sl_error_set(error, SL_BAD_INPUT, "there are no matrix products by \"%s\": there are %s", name, names);
    return NULL;
}

bool sl_gemm_supports(const struct sl_gemm_backend *backend, enum sl_dtype dtype) {
    if (backend->missing || (dtype != SL_F32 && dtype != SL_BF16)) return false;
    return !backend->supports || backend->supports(dtype);
}

void sl_gemm_describe(const struct sl_gemm_backend *backend, char *text, size_t size) {
    if (backend->describe)
        backend->describe(text, size);
    else
        snprintf(text, size, "%s", backend->name);
}

static int check(const struct sl_gemm *gemm, struct sl_error *error) {
    if (gemm->m < 1 || gemm->n < 1 || gemm->k < 1)
        return sl_error_set(error, SL_BAD_INPUT, "matrix product with m = %d, n = %d, k = %d: all must be at least 1",
                            gemm->m, gemm->n, gemm->k);
    if (!sl_gemm_supports(gemm->backend, gemm->dtype))
        return sl_error_set(error, SL_BAD_INPUT, "there are no matrix products of %s by \"%s\" on this CPU",
                            sl_dtypes[gemm->dtype].name, gemm->backend->name);
    if ((gemm->a_stride || gemm->c_stride) && (!gemm->backend->takes_columns || gemm->epilogue >= SL_EPILOGUE_GELU))
        return sl_error_set(error, SL_BAD_INPUT, "matrix products by \"%s\" read and leave dense arrays%s",
                            gemm->backend->name, gemm->backend->takes_columns ? " with gelu" : "");
    if (gemm->epilogue == SL_EPILOGUE_SUMS && (gemm->transpose_b || !sl_gemm_sums(gemm->backend, gemm->dtype)))
        return sl_error_set(error, SL_BAD_INPUT, "matrix products by \"%s\" do not add up columns of %s%s",
                            gemm->backend->name, sl_dtypes[gemm->dtype].name, gemm->transpose_b ? " by rows" : "");
    if (gemm->epilogue >= SL_EPILOGUE_GELU && (gemm->dtype != SL_BF16 || !sl_gemm_leaves_bf16(gemm->backend)))
        return sl_error_set(error, SL_BAD_INPUT, "matrix products by \"%s\" do not leave gelu of %s",
                            gemm->backend->name, sl_dtypes[gemm->dtype].name);
    return SL_OK;
}

int sl_gemm_plan(struct sl_gemm *gemm, const struct sl_gemm_backend *backend, enum sl_dtype dtype, int m, int n, int k,
                 bool transpose_a, bool transpose_b, enum sl_epilogue epilogue, struct sl_error *error) {
    return sl_gemm_plan_columns(gemm, backend, dtype, m, n, k, transpose_a, transpose_b, epilogue, 0, 0, error);
}

int sl_gemm_plan_columns(struct sl_gemm *gemm, const struct sl_gemm_backend *backend, enum sl_dtype dtype, int m, int n,
                         int k, bool transpose_a, bool transpose_b, enum sl_epilogue epilogue, int a_stride,
                         int c_stride, struct sl_error *error) {
    *gemm = (struct sl_gemm){dtype, m, n, k, transpose_a, transpose_b, epilogue, backend, NULL, a_stride, c_stride};
    int status = check(gemm, error);
    if (status == SL_OK) status = backend->plan(gemm, error);
    if (status) gemm->backend = NULL;
    return status;
}

/* Reports a product's reads and writes to sanitizers, which see neither into libraries nor, on the host, into the plain
 * loops (kernels.cmake). */
static void tell_sanitizers(const struct sl_gemm *gemm, const struct sl_gemm_arrays *arrays) {
    const struct sl_rows *a = &arrays->a, *b = &arrays->b, *bias = &arrays->bias, *c = &arrays->c.rows;
    const size_t m = (size_t)arrays->count * (size_t)gemm->m, n = (size_t)gemm->n, k = (size_t)gemm->k;
    if (!SL_SANITIZED || sl_device.reaches(a->at)) return; /* sanitizers do not watch device memory */
    sl_will_read(a->at, m * k * sl_dtype_size(a->type));
    sl_will_read(b->at, k * n * sl_dtype_size(b->type));
    if (gemm->epilogue == SL_EPILOGUE_BIAS) sl_will_read(bias->at, n * sl_dtype_size(bias->type));
    sl_will_write(c->at, m * n * sl_dtype_size(c->type));
    if (arrays->c.copy.at) sl_will_write(arrays->c.copy.at, m * n * sl_dtype_size(arrays->c.copy.type));
}

struct sl_gemm_arrays sl_gemm_floats(const struct sl_gemm *gemm, int count, const void *a, const void *b,
                                     const float *bias, bool accumulate, float *c) {
    return (struct sl_gemm_arrays){.count = count,
                                   .a = sl_rows_of(gemm->dtype, a),
                                   .b = sl_rows_of(gemm->dtype, b),
                                   .bias = sl_rows_f32(bias),
                                   .x = sl_rows_f32(accumulate ? c : NULL),
                                   .c = sl_out_f32(c)};
}

int sl_gemm_execute(const struct sl_gemm *gemm, struct sl_gemm_arrays arrays, void *queue) {
    tell_sanitizers(gemm, &arrays);
    return gemm->backend->execute(gemm, &arrays, queue);
}

bool sl_gemm_widens(const struct sl_gemm_backend *backend, int m, int n, int k, bool transpose_a, bool transpose_b,
                    enum sl_epilogue epilogue) {
    const struct sl_gemm gemm = {SL_F32, m, n, k, transpose_a, transpose_b, epilogue, backend, NULL, 0, 0};
    return backend->widens && backend->widens(&gemm);
}

bool sl_gemm_packs(const struct sl_gemm_backend *backend, enum sl_dtype dtype, enum sl_dtype weights, int m, int n,
                   int k) {
    const struct sl_gemm gemm = {dtype, m, n, k, false, false, SL_EPILOGUE_NONE, backend, NULL, 0, 0};
    return backend->packs && backend->packs(&gemm, weights);
}

void sl_gemm_pack(const struct sl_gemm *gemm, enum sl_dtype weights, const void *b, void *packed, void *queue) {
    gemm->backend->pack(gemm, weights, b, packed, queue);
}

bool sl_gemm_sums(const struct sl_gemm_backend *backend, enum sl_dtype dtype) {
    return backend->sums && (dtype == SL_BF16 || backend->sums_floats);
}

void sl_gemm_release(struct sl_gemm *gemm) {
    if (gemm->backend) gemm->backend->release(gemm);
    gemm->backend = NULL;
    gemm->state = NULL;
}
