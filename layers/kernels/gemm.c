/* gemm.c - finds backends, checks plans. */
#include "layers/kernels/gemm.h"

#include <stdio.h>
#include <string.h>

#include "layers/kernels/sanitizers_internal.h"
#include "spmd/device/device.h"

#ifndef SL_GEMM_DEFAULT /* the build's choice */
#define SL_GEMM_DEFAULT "cpu"
#endif

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

/* COUNT products follow. Sanitizers see neither into libraries nor, on the host, into the plain loops (kernels.cmake).
 */
static void tell_sanitizers(const struct sl_gemm *gemm, int count, const void *a, enum sl_dtype weights, const void *b,
                            const float *bias, struct sl_settled settled, float *c) {
    const size_t m = (size_t)count * (size_t)gemm->m, n = (size_t)gemm->n, k = (size_t)gemm->k;
    const size_t element = sl_dtype_size(gemm->transpose_a ? weights : gemm->dtype);
    if (!SL_SANITIZED || sl_device.reaches(a)) return; /* a device is not told of */
    sl_will_read(a, m * k * element);
    sl_will_read(b, k * n * sl_dtype_size(weights));
    if (gemm->epilogue == SL_EPILOGUE_BIAS) sl_will_read(bias, n * sizeof *bias);
    sl_will_write(c, m * n * sizeof *c);
    if (settled.stored) sl_will_write(settled.stored, m * n * sizeof *settled.stored);
}

int sl_gemm_execute(const struct sl_gemm *gemm, const void *a, const void *b, const float *bias, bool accumulate,
                    float *c, void *queue) {
    tell_sanitizers(gemm, 1, a, gemm->dtype, b, bias, (struct sl_settled){0}, c);
    return gemm->backend->execute(gemm, a, b, bias, accumulate, c, queue);
}

int sl_gemm_execute_many(const struct sl_gemm *gemm, int count, const void *a, const void *b, const float *bias,
                         bool accumulate, float *c, void *queue) {
    const struct sl_gemm_backend *backend = gemm->backend;
    const size_t m = (size_t)gemm->m, row = (size_t)gemm->k * sl_dtype_size(gemm->dtype);
    tell_sanitizers(gemm, count, a, gemm->dtype, b, bias, (struct sl_settled){0}, c);
    if (backend->execute_many && count > 1) return backend->execute_many(gemm, count, a, b, bias, accumulate, c, queue);
    for (int i = 0; i < count; i++, c += m * (size_t)gemm->n) {
        const void *rows = (const char *)a + (size_t)i * m * row;
        SL_TRY(backend->execute(gemm, rows, b, bias, accumulate, c, queue));
    }
    return SL_OK;
}

bool sl_gemm_settles(const struct sl_gemm *gemm) { return gemm->backend->execute_settled != NULL; }

int sl_gemm_execute_settled(const struct sl_gemm *gemm, int count, const void *a, const void *b, const float *bias,
                            struct sl_settled settled, float *c, void *queue) {
    tell_sanitizers(gemm, count, a, gemm->dtype, b, bias, settled, c);
    return gemm->backend->execute_settled(gemm, count, a, b, bias, settled, c, queue);
}

int sl_gemm_execute_adding(const struct sl_gemm *gemm, int count, const void *a, const void *b, const float *bias,
                           const float *x, float *c, void *queue) {
    tell_sanitizers(gemm, count, a, gemm->dtype, b, bias, (struct sl_settled){0}, c);
    return gemm->backend->execute_adding(gemm, count, a, b, bias, x, c, queue);
}

/* These lie in a device's memory, of which sanitizers are not told. */
int sl_gemm_execute_bf16(const struct sl_gemm *gemm, int count, const void *a, const void *b, const uint16_t *bias,
                         const uint16_t *x, uint16_t *c, void *queue) {
    return gemm->backend->execute_bf16(gemm, count, a, b, bias, x, c, queue);
}

int sl_gemm_execute_gelu(const struct sl_gemm *gemm, int count, const void *a, const void *b, const uint16_t *bias,
                         uint16_t *x, uint16_t *y, void *queue) {
    return gemm->backend->execute_gelu(gemm, count, a, b, bias, x, y, queue);
}

int sl_gemm_execute_slope(const struct sl_gemm *gemm, int count, const void *a, const void *b, const uint16_t *x,
                          uint16_t *dx, void *queue) {
    return gemm->backend->execute_slope(gemm, count, a, b, x, dx, queue);
}

bool sl_gemm_widens(const struct sl_gemm_backend *backend, int m, int n, int k, bool transpose_a, bool transpose_b,
                    enum sl_epilogue epilogue) {
    const struct sl_gemm gemm = {SL_F32, m, n, k, transpose_a, transpose_b, epilogue, backend, NULL, 0, 0};
    return backend->widens && backend->widens(&gemm);
}

int sl_gemm_execute_widening(const struct sl_gemm *gemm, int count, const void *a, const uint16_t *b, const float *bias,
                             bool accumulate, struct sl_settled settled, float *c, void *queue) {
    tell_sanitizers(gemm, count, a, SL_BF16, b, bias, settled, c);
    return gemm->backend->execute_widening(gemm, count, a, b, bias, accumulate, settled, c, queue);
}

bool sl_gemm_packs(const struct sl_gemm_backend *backend, enum sl_dtype dtype, enum sl_dtype weights, int m, int n,
                   int k) {
    const struct sl_gemm gemm = {dtype, m, n, k, false, false, SL_EPILOGUE_NONE, backend, NULL, 0, 0};
    return backend->packs && backend->packs(&gemm, weights);
}

void sl_gemm_pack(const struct sl_gemm *gemm, enum sl_dtype weights, const void *b, void *packed, void *queue) {
    gemm->backend->pack(gemm, weights, b, packed, queue);
}

int sl_gemm_execute_packed(const struct sl_gemm *gemm, enum sl_dtype weights, const void *a, const void *packed,
                           const float *bias, struct sl_settled settled, float *c, void *queue) {
    tell_sanitizers(gemm, 1, a, weights, packed, bias, settled, c);
    return gemm->backend->execute_packed(gemm, weights, a, packed, bias, settled, c, queue);
}

bool sl_gemm_sums(const struct sl_gemm_backend *backend, enum sl_dtype dtype) {
    return backend->execute_summing && (dtype == SL_BF16 || backend->sums_floats);
}

int sl_gemm_execute_summing(const struct sl_gemm *gemm, const void *a, const void *b, bool accumulate, float *c,
                            float *sums, void *queue) {
    tell_sanitizers(gemm, 1, a, gemm->dtype, b, NULL, (struct sl_settled){0}, c);
    return gemm->backend->execute_summing(gemm, a, b, accumulate, c, sums, queue);
}

void sl_gemm_release(struct sl_gemm *gemm) {
    if (gemm->backend) gemm->backend->release(gemm);
    gemm->backend = NULL;
    gemm->state = NULL;
}
