/* gemm_cublas.c - matrix products on NVIDIA GPUs by cuBLASLt, enqueued: the caller goes on.
 *
 * The library's matrices are column-major. A row-major matrix is, as it lies, the transpose of a column-major one, so
 * what it computes is C^T [n, m] = op(B)^T op(A)^T: its first operand is B, its second A, transposes stay, and a bias
 * is one number a row.
 *
 * How a product is computed is chosen when it is planned, for its shape and for the alignment of its operands: once for
 * vectors of 16 bytes, which everything here has but slices of odd widths, and once for none. So the same operands at
 * addresses of the same alignment always give the same bits.
 *
 * What is added to a product is its matrix C, which is another one than the result D, and has a factor of 1.
 *
 * Sums of B's columns are those of the rows of the library's first operand. Where it has no product that leaves them, a
 * region adds them up beside it. */
#include "layers/kernels/gemm.h"
#include "layers/kernels/kernels.h"

#include <cublasLt.h>
#include <stdlib.h>
#include <string.h>

#include "spmd/device/device.h"
#include "spmd/device/cuda.h"

enum { VECTOR = 16, WORKSPACE = 32 << 20 }; /* bytes; the workspace is what NVIDIA advises for its largest GPUs */
enum { ALIGNED, ANY, ALIGNMENTS };

struct cublas {
    cublasLtMatrixLayoutOpaque_t first, second, product;
    cublasLtMatmulAlgo_t algorithm[ALIGNMENTS];
    enum sl_epilogue epilogue[ALIGNMENTS]; /* the product's own: none, where a region adds up columns */
    bool exists[ALIGNMENTS];
};

/* What each queue needs once: products of one queue run one after another, so that they share the workspace. */
struct of_queue {
    cublasLtHandle_t handle;
    void *workspace;
};

static bool succeeded(struct sl_cuda_queue *queue, const char *call, cublasStatus_t status) {
    if (status) sl_cuda_fail(queue, call, cublasLtGetStatusString(status));
    return !status;
}
#define CUBLAS(queue, call) succeeded(queue, #call, call)

static void free_of_queue(void *products) {
    struct of_queue *of_queue = products;
    cublasLtDestroy(of_queue->handle);
    sl_device.give(of_queue->workspace);
    free(of_queue);
}

/* NULL, where something is missing that the queue then tells of. */
static const struct of_queue *of(struct sl_cuda_queue *queue) {
    if (queue->products) return queue->products;
    struct of_queue *of_queue = calloc(1, sizeof *of_queue);
    if (!of_queue) return NULL;
    if (!CUBLAS(queue, cublasLtCreate(&of_queue->handle))) {
        free(of_queue);
        return NULL;
    }
    of_queue->workspace = sl_device.take(WORKSPACE);
    if (!of_queue->workspace) {
        sl_cuda_fail(queue, "cuBLAS", "no memory on the device for its workspace");
        free_of_queue(of_queue);
        return NULL;
    }
    queue->products = of_queue;
    queue->free_products = free_of_queue;
    return of_queue;
}

static cudaDataType_t type_of(enum sl_dtype dtype) { return dtype == SL_BF16 ? CUDA_R_16BF : CUDA_R_32F; }

/* A matrix stored [rows, cols], row-major. */
static bool describe_matrix(struct sl_cuda_queue *queue, cublasLtMatrixLayout_t layout, enum sl_dtype dtype, int rows,
                            int cols) {
    return CUBLAS(queue, cublasLtMatrixLayoutInit(layout, type_of(dtype), (uint64_t)cols, (uint64_t)rows, cols));
}

static bool describe_matrices(struct sl_cuda_queue *queue, const struct sl_gemm *gemm, struct cublas *cublas) {
    const int m = gemm->m, n = gemm->n, k = gemm->k;
    return describe_matrix(queue, &cublas->first, gemm->dtype, gemm->transpose_b ? n : k, gemm->transpose_b ? k : n) &&
           describe_matrix(queue, &cublas->second, gemm->dtype, gemm->transpose_a ? k : m, gemm->transpose_a ? m : k) &&
           describe_matrix(queue, &cublas->product, SL_F32, m, n);
}

static cublasComputeType_t arithmetic(const struct sl_gemm *gemm) {
    return gemm->backend == &sl_gemm_cublas_tf32 && gemm->dtype == SL_F32 ? CUBLAS_COMPUTE_32F_FAST_TF32
                                                                          : CUBLAS_COMPUTE_32F;
}

#define SET(queue, description, attribute, value)                                                                      \
    CUBLAS(queue, cublasLtMatmulDescSetAttribute(description, attribute, &(value), sizeof(value)))

/* On the caller's stack, for VECTOR, which is the bias or where the sums go, is part of it and a plan serves many
 * threads. */
static bool describe(struct sl_cuda_queue *queue, const struct sl_gemm *gemm, enum sl_epilogue wanted,
                     const float *vector, cublasLtMatmulDesc_t description) {
    const int32_t first = gemm->transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N;
    const int32_t second = gemm->transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N;
    const uint32_t epilogue = wanted == SL_EPILOGUE_SUMS ? CUBLASLT_EPILOGUE_BGRADA : CUBLASLT_EPILOGUE_BIAS;
    if (!CUBLAS(queue, cublasLtMatmulDescInit(description, arithmetic(gemm), CUDA_R_32F)) ||
        !SET(queue, description, CUBLASLT_MATMUL_DESC_TRANSA, first) ||
        !SET(queue, description, CUBLASLT_MATMUL_DESC_TRANSB, second))
        return false;
    return wanted == SL_EPILOGUE_NONE || (SET(queue, description, CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue) &&
                                          SET(queue, description, CUBLASLT_MATMUL_DESC_BIAS_POINTER, vector));
}

#define PREFER(queue, preference, attribute, value)                                                                    \
    CUBLAS(queue, cublasLtMatmulPreferenceSetAttribute(preference, attribute, &(value), sizeof(value)))

static bool prefer(struct sl_cuda_queue *queue, uint32_t operands, uint32_t floats,
                   cublasLtMatmulPreference_t preference) {
    const uint64_t workspace = WORKSPACE;
    return CUBLAS(queue, cublasLtMatmulPreferenceInit(preference)) &&
           PREFER(queue, preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, workspace) &&
           PREFER(queue, preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, operands) &&
           PREFER(queue, preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, operands) &&
           PREFER(queue, preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, floats) &&
           PREFER(queue, preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, floats);
}

/* The library's first choice. The bias is not read here, but its address tells its alignment. */
static void choose(struct sl_cuda_queue *queue, const struct sl_gemm *gemm, enum sl_epilogue epilogue,
                   struct cublas *cublas, int alignment) {
    const uint32_t operands = alignment == ALIGNED ? VECTOR : (uint32_t)sl_dtype_size(gemm->dtype);
    const uint32_t floats = alignment == ALIGNED ? VECTOR : (uint32_t)sizeof(float);
    cublasLtMatmulDescOpaque_t description;
    cublasLtMatmulPreferenceOpaque_t preference;
    cublasLtMatmulHeuristicResult_t found;
    int count = 0;
    cublas->exists[alignment] =
        describe(queue, gemm, epilogue, (const float *)(uintptr_t)floats, &description) &&
        prefer(queue, operands, floats, &preference) &&
        !cublasLtMatmulAlgoGetHeuristic(of(queue)->handle, &description, &cublas->first, &cublas->second,
                                        &cublas->product, &cublas->product, &preference, 1, &found, &count) &&
        count == 1 && !found.state;
    cublas->epilogue[alignment] = epilogue;
    if (cublas->exists[alignment]) cublas->algorithm[alignment] = found.algo;
}

/* What works for any alignment works for vectors. */
static bool choose_all(struct sl_cuda_queue *queue, const struct sl_gemm *gemm, struct cublas *cublas) {
    for (int alignment = 0; alignment < ALIGNMENTS; alignment++) {
        choose(queue, gemm, gemm->epilogue, cublas, alignment);
        if (!cublas->exists[alignment] && gemm->epilogue == SL_EPILOGUE_SUMS)
            choose(queue, gemm, SL_EPILOGUE_NONE, cublas, alignment);
    }
    if (!cublas->exists[ALIGNED]) {
        cublas->exists[ALIGNED] = cublas->exists[ANY];
        cublas->epilogue[ALIGNED] = cublas->epilogue[ANY];
        cublas->algorithm[ALIGNED] = cublas->algorithm[ANY];
    }
    return cublas->exists[ALIGNED];
}

static int plan(struct sl_gemm *gemm, struct sl_error *error) {
    struct sl_cuda_queue *queue = sl_cuda_queue();
    struct cublas *cublas = calloc(1, sizeof *cublas);
    if (!cublas) return sl_error_set(error, SL_FAILED, "matrix products: no memory");
    gemm->state = cublas;
    if (of(queue) && describe_matrices(queue, gemm, cublas) && choose_all(queue, gemm, cublas)) return SL_OK;
    free(cublas);
    if (sl_device.settle(error)) return SL_FAILED;
    return sl_error_set(error, SL_FAILED, "cuBLAS has no product with m = %d, n = %d, k = %d", gemm->m, gemm->n,
                        gemm->k);
}

static void release(struct sl_gemm *gemm) { free(gemm->state); }

static int alignment_of(const void *a, const void *b, const float *vector, const float *x, const float *c) {
    const uintptr_t all = (uintptr_t)a | (uintptr_t)b | (uintptr_t)vector | (uintptr_t)x | (uintptr_t)c;
    return all % VECTOR ? ANY : ALIGNED;
}

/* Operands, and how they lie. */
struct call {
    const void *a, *b;
    const float *vector; /* the bias, or where the sums go; NULL: neither */
    const float *x;      /* what is added; NULL: nothing */
    float *c;
    int alignment;
    cublasLtMatmulDescOpaque_t description;
    cublasLtMatrixLayoutOpaque_t second, product;
};

static bool open_call(struct sl_cuda_queue *queue, const struct sl_gemm *gemm, struct call *call) {
    const struct cublas *cublas = gemm->state;
    memset(&call->description, 0, sizeof call->description); /* whatever the library leaves as it is */
    if (gemm->epilogue == SL_EPILOGUE_NONE) call->vector = NULL;
    call->alignment = alignment_of(call->a, call->b, call->vector, call->x, call->c);
    call->second = cublas->second;
    call->product = cublas->product;
    if (cublas->exists[call->alignment])
        return of(queue) && describe(queue, gemm, cublas->epilogue[call->alignment], call->vector, &call->description);
    sl_cuda_fail(queue, "cuBLAS", "no product for operands that lie at these addresses");
    return false;
}

/* All that a product depends on. */
struct product {
    cublasLtHandle_t handle;
    void *workspace;
    const void *a, *b;
    const float *x; /* what is added */
    float *c;
    float one, kept; /* factors of the product, and of what is added */
    cublasLtMatmulDescOpaque_t description;
    cublasLtMatrixLayoutOpaque_t first, second, product;
    cublasLtMatmulAlgo_t algorithm;
};

static bool run_product(struct sl_cuda_queue *queue, const void *argument) {
    struct product *p = (struct product *)(uintptr_t)argument; /* which the library does not change */
    return CUBLAS(queue, cublasLtMatmul(p->handle, &p->description, &p->one, p->b, &p->first, p->a, &p->second,
                                        &p->kept, p->x, &p->product, p->c, &p->product, &p->algorithm, p->workspace,
                                        WORKSPACE, queue->stream));
}

static int multiply(struct sl_cuda_queue *queue, const struct sl_gemm *gemm, const struct call *call) {
    const struct cublas *cublas = gemm->state;
    struct product product;
    memset(&product, 0, sizeof product);
    product.handle = of(queue)->handle;
    product.workspace = of(queue)->workspace;
    product.a = call->a;
    product.b = call->b;
    product.x = call->x ? call->x : call->c;
    product.c = call->c;
    product.one = 1.0f;
    product.kept = call->x ? 1.0f : 0.0f;
    product.description = call->description;
    product.first = cublas->first;
    product.second = call->second;
    product.product = call->product;
    product.algorithm = cublas->algorithm[call->alignment];
    return sl_cuda_enqueue(queue, run_product, &product, sizeof product) ? SL_OK : SL_FAILED;
}

static struct sl_cuda_queue *queue_of(void *queue_or_none) { return queue_or_none ? queue_or_none : sl_cuda_queue(); }

/* C = op(A) op(B) + X, which may be C; NULL: nothing is added. */
static int execute_one(struct sl_cuda_queue *queue, const struct sl_gemm *gemm, const void *a, const void *b,
                       const float *bias, const float *x, float *c) {
    struct call call = {.a = a, .b = b, .vector = bias, .x = x, .c = c};
    return open_call(queue, gemm, &call) ? multiply(queue, gemm, &call) : SL_FAILED;
}

static int execute(const struct sl_gemm *gemm, const void *a, const void *b, const float *bias, bool accumulate,
                   float *c, void *queue_or_none) {
    return execute_one(queue_of(queue_or_none), gemm, a, b, bias, accumulate ? c : NULL, c);
}

static int execute_summing(const struct sl_gemm *gemm, const void *a, const void *b, bool accumulate, float *c,
                           float *sums, void *queue_or_none) {
    const struct cublas *cublas = gemm->state;
    struct sl_cuda_queue *queue = queue_of(queue_or_none);
    struct call call = {.a = a, .b = b, .vector = sums, .x = accumulate ? c : NULL, .c = c};
    if (!open_call(queue, gemm, &call)) return SL_FAILED;
    if (cublas->epilogue[call.alignment] != SL_EPILOGUE_SUMS)
        sl_kernels_select()->part_sums(1, (size_t)gemm->k, (size_t)gemm->n, b, gemm->dtype == SL_BF16, false, sums);
    return multiply(queue, gemm, &call);
}

/* Whether COUNT products can be one, in which every row has the bits that it has alone: by the algorithm that was
 * chosen for the rows of one of them, if it takes as many, and if each of them alone would lie as aligned. */
static bool merges(struct sl_cuda_queue *queue, const struct sl_gemm *gemm, int count, struct call *call) {
    const struct cublas *cublas = gemm->state;
    const size_t row = (size_t)gemm->m * (size_t)gemm->k * sl_dtype_size(gemm->dtype);
    const size_t result = (size_t)gemm->m * (size_t)gemm->n * sizeof(float);
    cublasLtMatmulHeuristicResult_t found;
    if (call->alignment == ALIGNED && (row % VECTOR || result % VECTOR)) return false;
    return describe_matrix(queue, &call->second, gemm->dtype, count * gemm->m, gemm->k) &&
           describe_matrix(queue, &call->product, SL_F32, count * gemm->m, gemm->n) &&
           !cublasLtMatmulAlgoCheck(of(queue)->handle, &call->description, (void *)&cublas->first, &call->second,
                                    &call->product, &call->product, &cublas->algorithm[call->alignment], &found) &&
           found.workspaceSize <= WORKSPACE;
}

static int execute_adding(const struct sl_gemm *gemm, int count, const void *a, const void *b, const float *bias,
                          const float *x, float *c, void *queue_or_none) {
    struct sl_cuda_queue *queue = queue_of(queue_or_none);
    const size_t row = (size_t)gemm->m * (size_t)gemm->k * sl_dtype_size(gemm->dtype);
    const size_t result = (size_t)gemm->m * (size_t)gemm->n;
    struct call call = {.a = a, .b = b, .vector = bias, .x = x, .c = c};
    if (!open_call(queue, gemm, &call)) return SL_FAILED;
    if (count == 1 || merges(queue, gemm, count, &call)) return multiply(queue, gemm, &call);
    for (size_t i = 0; i < (size_t)count; i++)
        SL_TRY(execute_one(queue, gemm, (const char *)a + i * row, b, bias, x ? x + i * result : NULL, c + i * result));
    return SL_OK;
}

static int execute_many(const struct sl_gemm *gemm, int count, const void *a, const void *b, const float *bias,
                        bool accumulate, float *c, void *queue) {
    return execute_adding(gemm, count, a, b, bias, accumulate ? c : NULL, c, queue);
}

const struct sl_gemm_backend sl_gemm_cublas = {.name = "cublas",
                                               .on_device = true,
                                               .plan = plan,
                                               .execute = execute,
                                               .execute_many = execute_many,
                                               .execute_adding = execute_adding,
                                               .execute_summing = execute_summing,
                                               .release = release};
const struct sl_gemm_backend sl_gemm_cublas_tf32 = {.name = "cublas-tf32",
                                                    .on_device = true,
                                                    .plan = plan,
                                                    .execute = execute,
                                                    .execute_many = execute_many,
                                                    .execute_adding = execute_adding,
                                                    .execute_summing = execute_summing,
                                                    .sums_floats = true,
                                                    .release = release};
