/* gemm_cublas.c - matrix products on NVIDIA GPUs by cuBLASLt, enqueued: the caller continues at once.
 *
 * The library's matrices are column-major. A row-major matrix has the layout of a column-major transpose, so the
 * library computes C^T [n, m] = op(B)^T op(A)^T: its first operand is B, its second A, transpose flags do not change,
 * and a bias is one number per row.
 *
 * A plan chooses the algorithm, by shape and by alignment of the operands: one for vectors of 16 bytes (all arrays here
 * except slices of odd widths), and one for any alignment. So the same operands at addresses of the same alignment
 * always give the same bits.
 *
 * An addend of a product is the library's matrix C, which differs from the result D, with a factor of 1.
 *
 * Column sums of B are row sums of the library's first operand. If the library has no product with such sums, a
 * separate region adds them up.
 *
 * A product of bf16 writes floats or bf16. If it writes bf16, its bias, addend, and gelu's input are bf16, too; gelu
 * reads the unrounded sum. If the library has no product with gelu, or with its slope, a region applies it to the
 * result of a plain product. */
#include "layers/kernels/gemm/gemm.h"
#include "layers/kernels/kernels.h"
#include "layers/kernels/sequence.h"

#include <cublasLt.h>
#include <stdlib.h>
#include <string.h>

#include "spmd/base/memory.h"
#include "spmd/device/device.h"
#include "spmd/device/cuda/cuda.h"

enum { VECTOR = 16, WORKSPACE = 32 << 20 }; /* bytes; NVIDIA recommends this workspace for its largest GPUs */
enum { ALIGNED, ANY, ALIGNMENTS };

enum { FLOATS, HALVES, RESULTS }; /* type of the result */

/* A way to compute a product. */
struct choice {
    cublasLtMatmulAlgo_t algorithm;
    enum sl_epilogue epilogue; /* the product's own: less than the plan's, if a region does the rest */
    bool exists;
};

struct cublas {
    cublasLtMatrixLayoutOpaque_t first, second, product[RESULTS];
    struct choice choice[RESULTS][ALIGNMENTS];
};

/* Objects of a queue: products of one queue run one after another, so they share the workspace. */
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

/* Returns the queue's objects, or NULL on failure. */
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

/* Describes a matrix stored [rows, cols], row-major, with STRIDE elements from one row to the next. */
static bool describe_matrix(struct sl_cuda_queue *queue, cublasLtMatrixLayout_t layout, enum sl_dtype dtype, int rows,
                            int cols, int stride) {
    return CUBLAS(queue, cublasLtMatrixLayoutInit(layout, type_of(dtype), (uint64_t)cols, (uint64_t)rows, stride));
}

/* Elements from one stored row of A, or of C, to the next. */
static int a_stride(const struct sl_gemm *gemm) {
    return gemm->a_stride ? gemm->a_stride : gemm->transpose_a ? gemm->m : gemm->k;
}
static int c_stride(const struct sl_gemm *gemm) { return gemm->c_stride ? gemm->c_stride : gemm->n; }

static enum sl_dtype type_of_result(int result) { return result == HALVES ? SL_BF16 : SL_F32; }

static bool describe_matrices(struct sl_cuda_queue *queue, const struct sl_gemm *gemm, struct cublas *cublas) {
    const int m = gemm->m, n = gemm->n, k = gemm->k;
    const int b_rows = gemm->transpose_b ? n : k, b_cols = gemm->transpose_b ? k : n;
    const int a_rows = gemm->transpose_a ? k : m, a_cols = gemm->transpose_a ? m : k;
    return describe_matrix(queue, &cublas->first, gemm->dtype, b_rows, b_cols, b_cols) &&
           describe_matrix(queue, &cublas->second, gemm->dtype, a_rows, a_cols, a_stride(gemm)) &&
           describe_matrix(queue, &cublas->product[FLOATS], SL_F32, m, n, c_stride(gemm)) &&
           describe_matrix(queue, &cublas->product[HALVES], SL_BF16, m, n, c_stride(gemm));
}

static cublasComputeType_t arithmetic(const struct sl_gemm *gemm) {
    return gemm->backend == &sl_gemm_cublas_tf32 && gemm->dtype == SL_F32 ? CUBLAS_COMPUTE_32F_FAST_TF32
                                                                          : CUBLAS_COMPUTE_32F;
}

#define SET(queue, description, attribute, value)                                                                      \
    CUBLAS(queue, cublasLtMatmulDescSetAttribute(description, attribute, &(value), sizeof(value)))

static uint32_t epilogue_of(enum sl_epilogue epilogue) {
    static const uint32_t all[] = {[SL_EPILOGUE_BIAS] = CUBLASLT_EPILOGUE_BIAS,
                                   [SL_EPILOGUE_SUMS] = CUBLASLT_EPILOGUE_BGRADA,
                                   [SL_EPILOGUE_GELU] = CUBLASLT_EPILOGUE_GELU_AUX,
                                   [SL_EPILOGUE_BIAS_GELU] = CUBLASLT_EPILOGUE_GELU_AUX_BIAS,
                                   [SL_EPILOGUE_SLOPE] = CUBLASLT_EPILOGUE_DGELU};
    return all[epilogue];
}

static bool has_vector(enum sl_epilogue epilogue) {
    return epilogue == SL_EPILOGUE_BIAS || epilogue == SL_EPILOGUE_SUMS || epilogue == SL_EPILOGUE_BIAS_GELU;
}

static bool has_gelu(enum sl_epilogue epilogue) { return epilogue >= SL_EPILOGUE_GELU; }

/* Fills a description on the caller's stack, because its pointers are part of it and a plan serves many threads: VECTOR
 * is the bias or the destination of the sums, BEFORE is gelu's input. */
static bool describe(struct sl_cuda_queue *queue, const struct sl_gemm *gemm, enum sl_epilogue wanted,
                     const void *vector, const void *before, cublasLtMatmulDesc_t description) {
    const int32_t first = gemm->transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N;
    const int32_t second = gemm->transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N;
    const uint32_t epilogue = wanted == SL_EPILOGUE_NONE ? CUBLASLT_EPILOGUE_DEFAULT : epilogue_of(wanted);
    const int64_t columns = gemm->n;
    if (!CUBLAS(queue, cublasLtMatmulDescInit(description, arithmetic(gemm), CUDA_R_32F)) ||
        !SET(queue, description, CUBLASLT_MATMUL_DESC_TRANSA, first) ||
        !SET(queue, description, CUBLASLT_MATMUL_DESC_TRANSB, second))
        return false;
    if (wanted == SL_EPILOGUE_NONE) return true;
    if (!SET(queue, description, CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue)) return false;
    if (has_vector(wanted) && !SET(queue, description, CUBLASLT_MATMUL_DESC_BIAS_POINTER, vector)) return false;
    return !has_gelu(wanted) || (SET(queue, description, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, before) &&
                                 SET(queue, description, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, columns));
}

#define PREFER(queue, preference, attribute, value)                                                                    \
    CUBLAS(queue, cublasLtMatmulPreferenceSetAttribute(preference, attribute, &(value), sizeof(value)))

static bool prefer(struct sl_cuda_queue *queue, uint32_t operands, uint32_t results,
                   cublasLtMatmulPreference_t preference) {
    const uint64_t workspace = WORKSPACE;
    return CUBLAS(queue, cublasLtMatmulPreferenceInit(preference)) &&
           PREFER(queue, preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, workspace) &&
           PREFER(queue, preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, operands) &&
           PREFER(queue, preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, operands) &&
           PREFER(queue, preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, results) &&
           PREFER(queue, preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, results);
}

/* Takes the library's first choice. SOMEWHERE is not read here; its address gives its alignment. */
static bool choose(struct sl_cuda_queue *queue, const struct sl_gemm *gemm, enum sl_epilogue epilogue,
                   struct cublas *cublas, int result, int alignment) {
    const uint32_t operands = alignment == ALIGNED ? VECTOR : (uint32_t)sl_dtype_size(gemm->dtype);
    const uint32_t results = alignment == ALIGNED ? VECTOR : (uint32_t)sl_dtype_size(type_of_result(result));
    const void *somewhere = (const void *)(uintptr_t)results;
    struct choice *choice = &cublas->choice[result][alignment];
    cublasLtMatrixLayout_t product = &cublas->product[result];
    cublasLtMatmulDescOpaque_t description;
    cublasLtMatmulPreferenceOpaque_t preference;
    cublasLtMatmulHeuristicResult_t found;
    int count = 0;
    choice->exists = describe(queue, gemm, epilogue, somewhere, somewhere, &description) &&
                     prefer(queue, operands, results, &preference) &&
                     !cublasLtMatmulAlgoGetHeuristic(of(queue)->handle, &description, &cublas->first, &cublas->second,
                                                     product, product, &preference, 1, &found, &count) &&
                     count == 1 && !found.state;
    choice->epilogue = epilogue;
    if (choice->exists) choice->algorithm = found.algo;
    return choice->exists;
}

/* Returns the product's own epilogue if a region does the rest. */
static enum sl_epilogue without_region(enum sl_epilogue epilogue) {
    if (epilogue == SL_EPILOGUE_BIAS_GELU) return SL_EPILOGUE_BIAS;
    return epilogue == SL_EPILOGUE_BIAS ? epilogue : SL_EPILOGUE_NONE;
}

/* The library stores gelu's input in rows of whole vectors. */
static bool may_fuse(const struct sl_gemm *gemm, int alignment) {
    return !has_gelu(gemm->epilogue) || (alignment == ALIGNED && gemm->n % (VECTOR / (int)sizeof(uint16_t)) == 0);
}

/* An algorithm for any alignment also works for vectors. */
static bool choose_all(struct sl_cuda_queue *queue, const struct sl_gemm *gemm, struct cublas *cublas, int result) {
    struct choice *choice = cublas->choice[result];
    for (int alignment = 0; alignment < ALIGNMENTS; alignment++)
        if (!may_fuse(gemm, alignment) || !choose(queue, gemm, gemm->epilogue, cublas, result, alignment))
            choose(queue, gemm, without_region(gemm->epilogue), cublas, result, alignment);
    if (!choice[ALIGNED].exists) choice[ALIGNED] = choice[ANY];
    return choice[ALIGNED].exists;
}

/* Returns whether products of GEMM may write RESULT. */
static bool leaves(const struct sl_gemm *gemm, int result) {
    if (result == FLOATS) return !has_gelu(gemm->epilogue);
    return gemm->dtype == SL_BF16 && gemm->epilogue != SL_EPILOGUE_SUMS;
}

static void release(struct sl_gemm *gemm) { free(gemm->state); }

/* Operands and their layout. */
struct call {
    const void *a, *b;
    const void *vector; /* the bias, or the destination of the sums; NULL: neither */
    const void *before; /* gelu's input; NULL: none */
    const void *x;      /* the addend; NULL: none */
    void *c;
    int result, alignment;
    cublasLtMatmulDescOpaque_t description;
    cublasLtMatrixLayoutOpaque_t second, product;
};

static int alignment_of(const struct call *call) {
    const uintptr_t operands = (uintptr_t)call->a | (uintptr_t)call->b | (uintptr_t)call->vector;
    const uintptr_t results = (uintptr_t)call->before | (uintptr_t)call->x | (uintptr_t)call->c;
    return (operands | results) % VECTOR ? ANY : ALIGNED;
}

static const struct choice *choice_of(const struct sl_gemm *gemm, const struct call *call) {
    return &((const struct cublas *)gemm->state)->choice[call->result][call->alignment];
}

static bool open_call(struct sl_cuda_queue *queue, const struct sl_gemm *gemm, struct call *call) {
    const struct cublas *cublas = gemm->state;
    memset(&call->description, 0, sizeof call->description); /* also bytes not set by the library */
    if (!has_vector(gemm->epilogue)) call->vector = NULL;
    call->alignment = alignment_of(call);
    call->second = cublas->second;
    call->product = cublas->product[call->result];
    const struct choice *choice = choice_of(gemm, call);
    if (choice->exists)
        return of(queue) && describe(queue, gemm, choice->epilogue, call->vector, call->before, &call->description);
    sl_cuda_fail(queue, "cuBLAS", "no product for operands that lie at these addresses");
    return false;
}

/* All inputs of a product. */
struct product {
    cublasLtHandle_t handle;
    void *workspace;
    const void *a, *b;
    const void *x; /* the addend */
    void *c;
    float one, kept; /* factors of the product and of the addend */
    cublasLtMatmulDescOpaque_t description;
    cublasLtMatrixLayoutOpaque_t first, second, product;
    cublasLtMatmulAlgo_t algorithm;
};

static bool run_product(struct sl_cuda_queue *queue, const void *argument) {
    struct product *p = (struct product *)(uintptr_t)argument; /* the library does not change it */
    return CUBLAS(queue, cublasLtMatmul(p->handle, &p->description, &p->one, p->b, &p->first, p->a, &p->second,
                                        &p->kept, p->x, &p->product, p->c, &p->product, &p->algorithm, p->workspace,
                                        WORKSPACE, queue->stream));
}

/* A product to which a region applies gelu writes to gelu's input. */
static void *result_of(const struct sl_gemm *gemm, const struct call *call) {
    const bool whole = choice_of(gemm, call)->epilogue == gemm->epilogue;
    const bool forward = gemm->epilogue == SL_EPILOGUE_GELU || gemm->epilogue == SL_EPILOGUE_BIAS_GELU;
    return forward && !whole ? (void *)(uintptr_t)call->before : call->c;
}

static int multiply(struct sl_cuda_queue *queue, const struct sl_gemm *gemm, const struct call *call) {
    const struct cublas *cublas = gemm->state;
    struct product product;
    memset(&product, 0, sizeof product);
    product.handle = of(queue)->handle;
    product.workspace = of(queue)->workspace;
    product.a = call->a;
    product.b = call->b;
    product.c = result_of(gemm, call);
    product.x = call->x ? call->x : product.c;
    product.one = 1.0f;
    product.kept = call->x ? 1.0f : 0.0f;
    product.description = call->description;
    product.first = cublas->first;
    product.second = call->second;
    product.product = call->product;
    product.algorithm = choice_of(gemm, call)->algorithm;
    return sl_cuda_enqueue(queue, run_product, &product, sizeof product) ? SL_OK : SL_FAILED;
}

/* Runs each product for vectors once on temporary memory, if there is enough: this loads the library's code before a
 * step in which coordinates wait for each other, and reports products that the library cannot run. */
static int run_once(struct sl_cuda_queue *queue, struct sl_gemm *gemm) {
    const size_t m = (size_t)gemm->m, n = (size_t)gemm->n, k = (size_t)gemm->k, word = sizeof(float);
    const size_t a = (gemm->transpose_a ? k : m) * (size_t)a_stride(gemm), c = m * (size_t)c_stride(gemm);
    const size_t size[] = {a * word, k * n * word, n * word, c * word, c * word};
    enum { PLACES = sizeof size / sizeof *size };
    size_t at[PLACES + 1] = {0};
    for (int i = 0; i < PLACES; i++) at[i + 1] = sl_round_up(at[i] + size[i], VECTOR);
    char *memory = sl_device.take(at[PLACES]);
    int status = SL_OK;
    for (int result = 0; memory && status == SL_OK && result < RESULTS; result++) {
        struct call call = {.a = memory,
                            .b = memory + at[1],
                            .vector = memory + at[2],
                            .before = has_gelu(gemm->epilogue) ? memory + at[3] : NULL,
                            .c = memory + at[4],
                            .result = result};
        if (!leaves(gemm, result)) continue;
        status = open_call(queue, gemm, &call) ? multiply(queue, gemm, &call) : SL_FAILED;
    }
    sl_device.give(memory);
    return status;
}

static int plan(struct sl_gemm *gemm, struct sl_error *error) {
    struct sl_cuda_queue *queue = sl_cuda_queue();
    struct cublas *cublas = calloc(1, sizeof *cublas);
    if (!cublas) return sl_error_set(error, SL_FAILED, "matrix products: no memory");
    gemm->state = cublas;
    bool found = of(queue) && describe_matrices(queue, gemm, cublas);
    for (int result = 0; found && result < RESULTS; result++)
        found = !leaves(gemm, result) || choose_all(queue, gemm, cublas, result);
    if (found && run_once(queue, gemm) == SL_OK) return SL_OK;
    free(cublas);
    if (sl_device.settle(error)) return SL_FAILED;
    return sl_error_set(error, SL_FAILED, "cuBLAS has no product with m = %d, n = %d, k = %d", gemm->m, gemm->n,
                        gemm->k);
}

static struct sl_cuda_queue *queue_of(void *queue_or_none) { return queue_or_none ? queue_or_none : sl_cuda_queue(); }

/* Returns whether COUNT products can be one, with the same bits for every row: by the algorithm chosen for the rows of
 * one product, if it supports so many rows, and if each product alone would have the same alignment. */
static bool merges(struct sl_cuda_queue *queue, const struct sl_gemm *gemm, int count, struct call *call) {
    const struct cublas *cublas = gemm->state;
    const enum sl_dtype dtype = type_of_result(call->result);
    const size_t row = (size_t)gemm->m * (size_t)a_stride(gemm) * sl_dtype_size(gemm->dtype);
    const size_t result = (size_t)gemm->m * (size_t)c_stride(gemm) * sl_dtype_size(dtype);
    cublasLtMatmulHeuristicResult_t found;
    if (call->alignment == ALIGNED && (row % VECTOR || result % VECTOR)) return false;
    return describe_matrix(queue, &call->second, gemm->dtype, count * gemm->m, gemm->k, a_stride(gemm)) &&
           describe_matrix(queue, &call->product, dtype, count * gemm->m, gemm->n, c_stride(gemm)) &&
           !cublasLtMatmulAlgoCheck(of(queue)->handle, &call->description, (void *)&cublas->first, &call->second,
                                    &call->product, &call->product, &choice_of(gemm, call)->algorithm, &found) &&
           found.workspaceSize <= WORKSPACE;
}

/* Applies the part of the epilogue that the product of CALL, of ROWS rows, has not done. */
static void do_rest(const struct sl_gemm *gemm, const struct call *call, size_t rows) {
    const struct sl_sequence_kernels *kernels = sl_kernels_select()->sequence;
    const size_t n = rows * (size_t)gemm->n;
    if (!has_gelu(gemm->epilogue) || choice_of(gemm, call)->epilogue == gemm->epilogue) return;
    if (gemm->epilogue == SL_EPILOGUE_SLOPE)
        kernels->gelu_backward(n, sl_rows_bf16(call->before), sl_rows_bf16(call->c), sl_out_bf16(call->c));
    else
        kernels->gelu_forward(n, sl_rows_bf16(call->before), NULL, sl_out_bf16(call->c));
}

/* Adds up the columns of B in a region if the library's product does not. */
static void sum_columns(const struct sl_gemm *gemm, const struct call *call) {
    float *sums = (float *)(uintptr_t)call->vector;
    if (gemm->epilogue != SL_EPILOGUE_SUMS || choice_of(gemm, call)->epilogue == SL_EPILOGUE_SUMS) return;
    sl_kernels_select()->part_sums(1, (size_t)gemm->k, (size_t)gemm->n, call->b, gemm->dtype == SL_BF16, false, sums);
}

/* Returns CALL with all operands moved by ROWS rows of A. */
static struct call from(const struct sl_gemm *gemm, const struct call *call, size_t rows) {
    const size_t in = rows * (size_t)a_stride(gemm) * sl_dtype_size(gemm->dtype);
    const size_t out = rows * (size_t)c_stride(gemm) * sl_dtype_size(type_of_result(call->result));
    struct call next = *call;
    next.a = (const char *)call->a + in;
    next.c = (char *)call->c + out;
    if (call->x) next.x = (const char *)call->x + out;
    if (call->before) next.before = (const char *)call->before + out;
    return next;
}

/* C = op(A) op(B) + X, for COUNT products that share B; X may be C. */
static int execute_call(struct sl_cuda_queue *queue, const struct sl_gemm *gemm, int count, struct call *call) {
    if (!open_call(queue, gemm, call)) return SL_FAILED;
    if (count == 1 || merges(queue, gemm, count, call)) {
        sum_columns(gemm, call);
        SL_TRY(multiply(queue, gemm, call));
        do_rest(gemm, call, (size_t)count * (size_t)gemm->m);
        return SL_OK;
    }
    for (size_t i = 0; i < (size_t)count; i++) {
        struct call one = from(gemm, call, i * (size_t)gemm->m);
        SL_TRY(execute_call(queue, gemm, 1, &one));
    }
    return SL_OK;
}

static int execute(const struct sl_gemm *gemm, const struct sl_gemm_arrays *arrays, void *queue) {
    const bool sums = gemm->epilogue == SL_EPILOGUE_SUMS;
    struct call call = {.a = arrays->a.at,
                        .b = arrays->b.at,
                        .vector = sums ? arrays->sums : arrays->bias.at,
                        .before = arrays->gelu.at,
                        .x = arrays->x.at,
                        .c = arrays->c.rows.at,
                        .result = arrays->c.rows.type == SL_BF16 ? HALVES : FLOATS};
    return execute_call(queue_of(queue), gemm, arrays->count, &call);
}

const struct sl_gemm_backend sl_gemm_cublas = {.name = "cublas",
                                               .on_device = true,
                                               .takes_columns = true,
                                               .adds = true,
                                               .leaves_bf16 = true,
                                               .sums = true,
                                               .plan = plan,
                                               .execute = execute,
                                               .release = release};
const struct sl_gemm_backend sl_gemm_cublas_tf32 = {.name = "cublas-tf32",
                                                    .on_device = true,
                                                    .takes_columns = true,
                                                    .adds = true,
                                                    .sums = true,
                                                    .sums_floats = true,
                                                    .plan = plan,
                                                    .execute = execute,
                                                    .release = release};
