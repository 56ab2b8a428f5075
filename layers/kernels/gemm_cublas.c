/* gemm_cublas.c - matrix products on NVIDIA GPUs by cuBLASLt, enqueued: the caller goes on.
 *
 * The library's matrices are column-major. A row-major matrix is, as it lies, the transpose of a column-major one, so
 * what it computes is C^T [n, m] = op(B)^T op(A)^T: its first operand is B, its second A, transposes stay, and a bias
 * is one number a row.
 *
 * How a product is computed is chosen when it is planned, for its shape and for the alignment of its operands: once for
 * vectors of 16 bytes, which everything here has but slices of odd widths, and once for none. So the same operands at
 * addresses of the same alignment always give the same bits. */
#include "layers/kernels/gemm.h"

#include <cublasLt.h>
#include <stdlib.h>

#include "spmd/device/device.h"
#include "spmd/device/cuda.h"

enum { VECTOR = 16, WORKSPACE = 32 << 20 }; /* bytes; the workspace is what NVIDIA advises for its largest GPUs */
enum { ALIGNED, ANY, ALIGNMENTS };

struct cublas {
    cublasLtMatrixLayoutOpaque_t first, second, product;
    cublasLtMatmulAlgo_t algorithm[ALIGNMENTS];
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

/* On the caller's stack, for the bias is part of it and a plan serves many threads. */
static bool describe(struct sl_cuda_queue *queue, const struct sl_gemm *gemm, const float *bias,
                     cublasLtMatmulDesc_t description) {
    const int32_t first = gemm->transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N;
    const int32_t second = gemm->transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N;
    const uint32_t epilogue = CUBLASLT_EPILOGUE_BIAS;
    if (!CUBLAS(queue, cublasLtMatmulDescInit(description, arithmetic(gemm), CUDA_R_32F)) ||
        !SET(queue, description, CUBLASLT_MATMUL_DESC_TRANSA, first) ||
        !SET(queue, description, CUBLASLT_MATMUL_DESC_TRANSB, second))
        return false;
    return gemm->epilogue != SL_EPILOGUE_BIAS || (SET(queue, description, CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue) &&
                                                  SET(queue, description, CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias));
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
static void choose(struct sl_cuda_queue *queue, const struct sl_gemm *gemm, struct cublas *cublas, int alignment) {
    const uint32_t operands = alignment == ALIGNED ? VECTOR : (uint32_t)sl_dtype_size(gemm->dtype);
    const uint32_t floats = alignment == ALIGNED ? VECTOR : (uint32_t)sizeof(float);
    cublasLtMatmulDescOpaque_t description;
    cublasLtMatmulPreferenceOpaque_t preference;
    cublasLtMatmulHeuristicResult_t found;
    int count = 0;
    cublas->exists[alignment] =
        describe(queue, gemm, (const float *)(uintptr_t)floats, &description) &&
        prefer(queue, operands, floats, &preference) &&
        !cublasLtMatmulAlgoGetHeuristic(of(queue)->handle, &description, &cublas->first, &cublas->second,
                                        &cublas->product, &cublas->product, &preference, 1, &found, &count) &&
        count == 1 && !found.state;
    if (cublas->exists[alignment]) cublas->algorithm[alignment] = found.algo;
}

/* What works for any alignment works for vectors. */
static bool choose_all(struct sl_cuda_queue *queue, const struct sl_gemm *gemm, struct cublas *cublas) {
    for (int alignment = 0; alignment < ALIGNMENTS; alignment++) choose(queue, gemm, cublas, alignment);
    if (!cublas->exists[ALIGNED]) {
        cublas->exists[ALIGNED] = cublas->exists[ANY];
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

static int alignment_of(const void *a, const void *b, const float *bias, const float *c) {
    const uintptr_t all = (uintptr_t)a | (uintptr_t)b | (uintptr_t)bias | (uintptr_t)c;
    return all % VECTOR ? ANY : ALIGNED;
}

static int execute(const struct sl_gemm *gemm, const void *a, const void *b, const float *bias, bool accumulate,
                   float *c, void *queue_or_none) {
    struct sl_cuda_queue *queue = queue_or_none ? queue_or_none : sl_cuda_queue();
    struct cublas *cublas = gemm->state; /* which the library does not change */
    const struct of_queue *of_queue = of(queue);
    const float *added = gemm->epilogue == SL_EPILOGUE_BIAS ? bias : NULL;
    const int alignment = alignment_of(a, b, added, c);
    const float one = 1.0f, kept = accumulate ? 1.0f : 0.0f;
    cublasLtMatmulDescOpaque_t description;
    if (!cublas->exists[alignment])
        sl_cuda_fail(queue, "cuBLAS", "no product for operands that lie at these addresses");
    if (!of_queue || !cublas->exists[alignment] || !describe(queue, gemm, added, &description)) return SL_FAILED;
    queue->busy = true;
    return CUBLAS(queue, cublasLtMatmul(of_queue->handle, &description, &one, b, &cublas->first, a, &cublas->second,
                                        &kept, c, &cublas->product, c, &cublas->product, &cublas->algorithm[alignment],
                                        of_queue->workspace, WORKSPACE, queue->stream))
               ? SL_OK
               : SL_FAILED;
}

const struct sl_gemm_backend sl_gemm_cublas = {
    .name = "cublas", .on_device = true, .plan = plan, .execute = execute, .release = release};
const struct sl_gemm_backend sl_gemm_cublas_tf32 = {
    .name = "cublas-tf32", .on_device = true, .plan = plan, .execute = execute, .release = release};
