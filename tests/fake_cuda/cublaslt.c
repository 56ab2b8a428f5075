/* cublaslt.c - the fake CUDA's matrix products: column-major, by plain loops, on the stream's thread. It refuses
 * products that a GPU could not compute: operands in the host's memory or less aligned than promised, a workspace too
 * small, another device's stream. */
#include "cublasLt.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fake.h"

#define FAKE_PRODUCT()                                                                                                 \
    fake_record("call %s", __func__);                                                                                  \
    if (fake_fails(__func__)) return CUBLAS_STATUS_INTERNAL_ERROR

enum { SUMS_ALIGNMENT = 16 }; /* bytes; of an operand with added rows (BGRADA) */
enum { GELU_COLUMN = 8 };     /* elements; the column stride of gelu's saved input is a multiple of it */

struct cublasLtContext {
    int device;
};

static cublasStatus_t refuse(cublasStatus_t status, const char *why) {
    fprintf(stderr, "# cuBLASLt (fake): %s\n", why);
    return status;
}

const char *cublasLtGetStatusString(cublasStatus_t status) {
    switch (status) {
    case CUBLAS_STATUS_SUCCESS:
        return "success";
    case CUBLAS_STATUS_ALLOC_FAILED:
        return "the resource allocation failed";
    case CUBLAS_STATUS_INVALID_VALUE:
        return "an unsupported value or parameter was passed to the function";
    case CUBLAS_STATUS_NOT_SUPPORTED:
        return "the functionality requested is not supported";
    default:
        return "an internal operation failed";
    }
}

cublasStatus_t cublasLtCreate(cublasLtHandle_t *handle) {
    FAKE_PRODUCT();
    *handle = calloc(1, sizeof **handle);
    if (!*handle) return CUBLAS_STATUS_ALLOC_FAILED;
    (*handle)->device = fake_device();
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
    free(handle);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutInit(cublasLtMatrixLayout_t layout, cudaDataType type, uint64_t rows, uint64_t cols,
                                        int64_t leading) {
    *layout = (cublasLtMatrixLayoutOpaque_t){type, rows, cols, leading};
    return leading < (int64_t)rows ? CUBLAS_STATUS_INVALID_VALUE : CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescInit(cublasLtMatmulDesc_t description, cublasComputeType_t arithmetic,
                                      cudaDataType_t scale) {
    *description = (cublasLtMatmulDescOpaque_t){.arithmetic = arithmetic, .epilogue = CUBLASLT_EPILOGUE_DEFAULT};
    return scale == CUDA_R_32F ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
}

static cublasStatus_t set(void *field, size_t size, const void *value, size_t bytes) {
    if (size != bytes) return CUBLAS_STATUS_INVALID_VALUE;
    memcpy(field, value, bytes);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t description,
                                              cublasLtMatmulDescAttributes_t attribute, const void *value,
                                              size_t bytes) {
    switch (attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
        return set(&description->operation[0], sizeof(int32_t), value, bytes);
    case CUBLASLT_MATMUL_DESC_TRANSB:
        return set(&description->operation[1], sizeof(int32_t), value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
        return set(&description->epilogue, sizeof(uint32_t), value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
        return set(&description->bias, sizeof(void *), value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER:
        return set(&description->before, sizeof(void *), value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD:
        return set(&description->leading, sizeof(int64_t), value, bytes);
    }
    return CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtMatmulPreferenceInit(cublasLtMatmulPreference_t preference) {
    *preference = (cublasLtMatmulPreferenceOpaque_t){.alignment = {256, 256, 256, 256}};
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute, const void *value,
                                                    size_t bytes) {
    if (attribute == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES)
        return set(&preference->workspace, sizeof(uint64_t), value, bytes);
    return set(&preference->alignment[attribute - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES], sizeof(uint32_t), value,
               bytes);
}

/* Rows of operand WHICH after its operation. */
static uint64_t rows_of(const cublasLtMatmulDescOpaque_t *description, int which,
                        const cublasLtMatrixLayoutOpaque_t *layout) {
    return description->operation[which] == CUBLAS_OP_T ? layout->cols : layout->rows;
}
static uint64_t cols_of(const cublasLtMatmulDescOpaque_t *description, int which,
                        const cublasLtMatrixLayoutOpaque_t *layout) {
    return description->operation[which] == CUBLAS_OP_T ? layout->rows : layout->cols;
}

/* Returns whether the product adds up an operand's rows. The fake refuses unaligned operands for it, so callers have to
 * check the alignment. */
static bool sums_rows(const cublasLtMatmulDescOpaque_t *description) {
    return description->epilogue == CUBLASLT_EPILOGUE_BGRADA;
}

static bool applies_gelu(const cublasLtMatmulDescOpaque_t *description) {
    return description->epilogue == CUBLASLT_EPILOGUE_GELU_AUX ||
           description->epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS;
}

static bool applies_slope(const cublasLtMatmulDescOpaque_t *description) {
    return description->epilogue == CUBLASLT_EPILOGUE_DGELU;
}

static bool adds_bias(const cublasLtMatmulDescOpaque_t *description) {
    return description->epilogue == CUBLASLT_EPILOGUE_BIAS || description->epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS;
}

/* Gelu is asked for of bf16 alone, and reads whole vectors. */
static bool fits_gelu(const cublasLtMatmulDescOpaque_t *description, const cublasLtMatrixLayoutOpaque_t *d) {
    if (!applies_gelu(description) && !applies_slope(description)) return true;
    return d->type == CUDA_R_16BF && description->before && description->leading % GELU_COLUMN == 0 &&
           description->leading >= (int64_t)d->rows;
}

static bool fit(const cublasLtMatmulDescOpaque_t *description, const cublasLtMatrixLayoutOpaque_t *a,
                const cublasLtMatrixLayoutOpaque_t *b, const cublasLtMatrixLayoutOpaque_t *d) {
    const bool tf32 = description->arithmetic == CUBLAS_COMPUTE_32F_FAST_TF32;
    return rows_of(description, 0, a) == d->rows && cols_of(description, 1, b) == d->cols &&
           cols_of(description, 0, a) == rows_of(description, 1, b) && a->type == b->type &&
           (d->type == CUDA_R_32F || (d->type == CUDA_R_16BF && a->type == CUDA_R_16BF && !sums_rows(description))) &&
           (a->type == CUDA_R_32F || (a->type == CUDA_R_16BF && !tf32)) && fits_gelu(description, d);
}

/* Returns the only algorithm. It relies on the promised alignment and on the whole workspace. */
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t description,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int requested,
                                              cublasLtMatmulHeuristicResult_t *results, int *count) {
    FAKE_PRODUCT();
    *count = 0;
    if (!handle || requested < 1 || memcmp(c, d, sizeof *c) || !fit(description, a, b, d))
        return refuse(CUBLAS_STATUS_NOT_SUPPORTED, "no such product");
    if (sums_rows(description) && preference->alignment[0] < SUMS_ALIGNMENT) return CUBLAS_STATUS_NOT_SUPPORTED;
    memset(results, 0, sizeof *results);
    results->algo.workspace = results->workspaceSize = preference->workspace;
    memcpy(results->algo.alignment, preference->alignment, sizeof preference->alignment);
    *count = 1;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t handle, cublasLtMatmulDesc_t description,
                                       cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c,
                                       cublasLtMatrixLayout_t d, const cublasLtMatmulAlgo_t *algorithm,
                                       cublasLtMatmulHeuristicResult_t *result) {
    FAKE_PRODUCT();
    if (!handle || memcmp(c, d, sizeof *c) || !fit(description, a, b, d))
        return refuse(CUBLAS_STATUS_NOT_SUPPORTED, "no such product");
    memset(result, 0, sizeof *result);
    result->workspaceSize = algorithm->workspace;
    return CUBLAS_STATUS_SUCCESS;
}

struct product {
    cublasLtMatmulDescOpaque_t description;
    cublasLtMatrixLayoutOpaque_t a_layout, b_layout;
    uint64_t m, n, k;
    cudaDataType type; /* of c, d and the bias */
    const void *a, *b, *c;
    void *d;
    float alpha, beta;
    int64_t leading;
    char *workspace;
};

/* Rounds a float as tensor cores do: 10 bits behind the point, to the nearest, ties away from zero. */
static float tf32_of(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    if ((bits & 0x7f800000u) != 0x7f800000u) bits = (bits + 0x1000u) & ~0x1fffu;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static float float_of(const void *array, cudaDataType type, uint64_t at) {
    float value;
    if (type != CUDA_R_16BF) return ((const float *)array)[at];
    const uint32_t bits = (uint32_t)((const uint16_t *)array)[at] << 16;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* To the nearest, ties to even; a NaN stays one. */
static void put(void *array, cudaDataType type, uint64_t at, float value) {
    uint32_t bits;
    if (type != CUDA_R_16BF) {
        ((float *)array)[at] = value;
        return;
    }
    memcpy(&bits, &value, sizeof bits);
    ((uint16_t *)array)[at] =
        isnan(value) ? (uint16_t)(bits >> 16 | 64) : (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1)) >> 16);
}

/* Gelu in its tanh form, with the inner function u = sqrt(2 / pi) (x + 0.044715 x^3). */
static float gelu(float x) {
    const float u = 0.797884561f * (x + 0.044715f * x * x * x);
    return 0.5f * x * (1.0f + tanhf(u));
}
static float gelu_slope(float x) {
    const float u = 0.797884561f * (x + 0.044715f * x * x * x), t = tanhf(u);
    return 0.5f * (1.0f + t) + 0.5f * x * (1.0f - t * t) * 0.797884561f * (1.0f + 0.134145f * x * x);
}

static float element(const void *operand, const cublasLtMatrixLayoutOpaque_t *layout, uint64_t row, uint64_t col,
                     bool tf32) {
    const float value = float_of(operand, layout->type, row + col * (uint64_t)layout->leading);
    return tf32 && layout->type == CUDA_R_32F ? tf32_of(value) : value;
}

/* op(A) [k][m], or op(B) [n][k], as floats of our own. */
static float *copy_operand(const struct product *p, int which) {
    const void *operand = which ? p->b : p->a;
    const cublasLtMatrixLayoutOpaque_t *layout = which ? &p->b_layout : &p->a_layout;
    const bool transposed = p->description.operation[which] == CUBLAS_OP_T;
    const bool tf32 = p->description.arithmetic == CUBLAS_COMPUTE_32F_FAST_TF32;
    const uint64_t rows = which ? p->k : p->m, cols = which ? p->n : p->k;
    float *copy = malloc(rows * cols * sizeof *copy);
    for (uint64_t col = 0; copy && col < cols; col++) {
        for (uint64_t row = 0; row < rows; row++)
            copy[row + col * rows] = element(operand, layout, transposed ? col : row, transposed ? row : col, tf32);
    }
    return copy;
}

/* Adds op(A) [k][m] times a column of op(B) to zeroed sums [m]. No other thread knows these arrays, so sanitizers,
 * which would slow the loop down, are off. */
__attribute__((no_sanitize("thread", "address", "undefined"))) static void
multiply_column(uint64_t m, uint64_t k, const float *restrict a, const float *restrict column, float *restrict sums) {
    memset(sums, 0, m * sizeof *sums);
    for (uint64_t l = 0; l < k; l++) {
        for (uint64_t i = 0; i < m; i++) sums[i] += a[l * m + i] * column[l];
    }
}

/* sums [m] of op(A) [k][m] */
__attribute__((no_sanitize("thread", "address", "undefined"))) static void add_rows(const struct product *p,
                                                                                    const float *a) {
    float *sums = (float *)(uintptr_t)p->description.bias;
    memset(sums, 0, p->m * sizeof *sums);
    for (uint64_t l = 0; l < p->k; l++) {
        for (uint64_t i = 0; i < p->m; i++) sums[i] += a[l * p->m + i];
    }
}

/* Column J of the result, of the SUMS of its products. */
static void finish_column(const struct product *p, uint64_t j, const float *sums) {
    const cublasLtMatmulDescOpaque_t *d = &p->description;
    for (uint64_t i = 0; i < p->m; i++) {
        const uint64_t at = i + j * (uint64_t)p->leading, before = i + j * (uint64_t)d->leading;
        float value = p->alpha * sums[i] + (p->beta != 0.0f ? p->beta * float_of(p->c, p->type, at) : 0.0f);
        if (adds_bias(d)) value += float_of(d->bias, p->type, i);
        if (applies_gelu(d)) {
            put(d->before, p->type, before, value);
            value = gelu(value);
        }
        if (applies_slope(d)) value *= gelu_slope(float_of(d->before, p->type, before));
        put(p->d, p->type, at, value);
    }
}

/* COLS columns of ROWS elements at ARRAY are read, or written. */
static void tell(void (*how)(const void *, size_t), const void *array, cudaDataType type, uint64_t rows, uint64_t cols,
                 int64_t leading) {
    const size_t element = type == CUDA_R_16BF ? 2 : 4;
    for (uint64_t col = 0; col < cols; col++)
        how((const char *)array + element * col * (uint64_t)leading, element * rows);
}

/* To the executor. */
static void tell_operands(const struct product *p) {
    const cublasLtMatmulDescOpaque_t *d = &p->description;
    tell(fake_read, p->a, p->a_layout.type, p->a_layout.rows, p->a_layout.cols, p->a_layout.leading);
    tell(fake_read, p->b, p->b_layout.type, p->b_layout.rows, p->b_layout.cols, p->b_layout.leading);
    if (p->beta != 0.0f) tell(fake_read, p->c, p->type, p->m, p->n, p->leading);
    if (adds_bias(d)) tell(fake_read, d->bias, p->type, p->m, 1, 0);
    if (applies_slope(d)) tell(fake_read, d->before, p->type, p->m, p->n, d->leading);
    if (applies_gelu(d)) tell(fake_written, d->before, p->type, p->m, p->n, d->leading);
    if (sums_rows(d)) tell(fake_written, d->bias, CUDA_R_32F, p->m, 1, 0);
    tell(fake_written, p->d, p->type, p->m, p->n, p->leading);
}

static void run_product(void *argument) {
    const struct product *p = argument;
    if (fake_number("FAKE_CUDA_IDLE", 0)) return;
    if (fake_executor) tell_operands(p);
    float *a = copy_operand(p, 0), *b = copy_operand(p, 1), *sums = malloc(p->m * sizeof *sums);
    if (!a || !b || !sums) abort();
    p->workspace[0]++; /* two streams must not share it */
    if (sums_rows(&p->description)) add_rows(p, a);
    for (uint64_t j = 0; j < p->n; j++) {
        multiply_column(p->m, p->k, a, b + j * p->k, sums);
        finish_column(p, j, sums);
    }
    free(sums);
    free(b);
    free(a);
}

static bool lies_on_device(const void *memory) {
    struct cudaPointerAttributes attributes;
    return !cudaPointerGetAttributes(&attributes, memory) && attributes.type >= cudaMemoryTypeDevice;
}

static bool aligned(const void *memory, uint32_t alignment) { return (uintptr_t)memory % alignment == 0; }

static void record(cudaStream_t stream, cublasLtMatmulDesc_t description, cublasLtMatrixLayout_t a,
                   cublasLtMatrixLayout_t d, bool adds, const void *const operand[4]) {
    char name[4][64];
    if (!fake_records()) return;
    for (int i = 0; i < 4; i++) fake_name(name[i], sizeof name[i], operand[i]);
    const size_t m = d->rows, n = d->cols, k = cols_of(description, 0, a);
    const bool half = a->type == CUDA_R_16BF, tf32 = description->arithmetic == CUBLAS_COMPUTE_32F_FAST_TF32;
    const size_t result = m * n * (d->type == CUDA_R_16BF ? 2 : 4);
    const size_t results = 1 + adds + applies_gelu(description) + applies_slope(description);
    const size_t bytes = (m * k + k * n) * (half ? 2 : 4) + result * results;
    fake_work(stream, "product %zu %zu %zu %s %zu %s %s %s %s", m, n, k,
              half   ? "bf16"
              : tf32 ? "tf32"
                     : "f32",
              bytes, name[0], name[1], name[2], name[3]);
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t description, const void *alpha,
                              const void *a, cublasLtMatrixLayout_t a_layout, const void *b,
                              cublasLtMatrixLayout_t b_layout, const void *beta, const void *c,
                              cublasLtMatrixLayout_t c_layout, void *d, cublasLtMatrixLayout_t d_layout,
                              const cublasLtMatmulAlgo_t *algorithm, void *workspace, size_t bytes,
                              cudaStream_t stream) {
    FAKE_PRODUCT();
    const void *vector = adds_bias(description) || sums_rows(description) ? description->bias : d;
    const void *before = applies_gelu(description) || applies_slope(description) ? description->before : d;
    const uint32_t *alignment = algorithm->alignment;
    if (!stream || fake_stream_device(stream) != fake_device() || handle->device != fake_device())
        return refuse(CUBLAS_STATUS_INVALID_VALUE, "the handle or the stream is another device's");
    if (memcmp(c_layout, d_layout, sizeof *c_layout) || !fit(description, a_layout, b_layout, d_layout))
        return refuse(CUBLAS_STATUS_INVALID_VALUE, "these matrices do not fit");
    if (!lies_on_device(a) || !lies_on_device(b) || !lies_on_device(c) || !lies_on_device(d) ||
        !lies_on_device(vector) || !lies_on_device(before))
        return refuse(CUBLAS_STATUS_INVALID_VALUE, "an operand does not lie in a device's memory");
    if (!aligned(a, alignment[0]) || !aligned(b, alignment[1]) || !aligned(c, alignment[2]) ||
        !aligned(d, alignment[3]) || !aligned(vector, alignment[3]) || !aligned(before, alignment[3]))
        return refuse(CUBLAS_STATUS_INVALID_VALUE, "an operand is less aligned than promised");
    if (bytes < algorithm->workspace || !lies_on_device(workspace))
        return refuse(CUBLAS_STATUS_INVALID_VALUE, "the workspace is too small");
    record(stream, description, a_layout, d_layout, *(const float *)beta != 0.0f, (const void *const[]){a, b, d, c});
    const struct product product = {.description = *description,
                                    .a_layout = *a_layout,
                                    .b_layout = *b_layout,
                                    .m = d_layout->rows,
                                    .n = d_layout->cols,
                                    .k = cols_of(description, 0, a_layout),
                                    .type = d_layout->type,
                                    .a = a,
                                    .b = b,
                                    .c = c,
                                    .d = d,
                                    .alpha = *(const float *)alpha,
                                    .beta = *(const float *)beta,
                                    .leading = d_layout->leading,
                                    .workspace = workspace};
    return fake_enqueue(stream, run_product, &product, sizeof product) ? CUBLAS_STATUS_EXECUTION_FAILED
                                                                       : CUBLAS_STATUS_SUCCESS;
}

/* The functions that NVIDIA's header calls. Their sizes are of NVIDIA's structs, which are larger. */

cublasStatus_t cublasLtMatrixLayoutInit_internal(cublasLtMatrixLayout_t layout, size_t size, cudaDataType type,
                                                 uint64_t rows, uint64_t cols, int64_t leading) {
    if (size < sizeof *layout) return CUBLAS_STATUS_INVALID_VALUE;
    return cublasLtMatrixLayoutInit(layout, type, rows, cols, leading);
}

cublasStatus_t cublasLtMatmulDescInit_internal(cublasLtMatmulDesc_t description, size_t size,
                                               cublasComputeType_t arithmetic, cudaDataType_t scale) {
    if (size < sizeof *description) return CUBLAS_STATUS_INVALID_VALUE;
    return cublasLtMatmulDescInit(description, arithmetic, scale);
}

cublasStatus_t cublasLtMatmulPreferenceInit_internal(cublasLtMatmulPreference_t preference, size_t size) {
    if (size < sizeof *preference) return CUBLAS_STATUS_INVALID_VALUE;
    return cublasLtMatmulPreferenceInit(preference);
}
