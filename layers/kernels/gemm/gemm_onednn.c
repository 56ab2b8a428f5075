/* gemm_onednn.c - matrix products by oneDNN: by dnnl_sgemm, or by the matmul primitive if it is faster.
 *
 * dnnl_sgemm reaches the peak for C = A B and C = A^T B. For C = A B^T from 16 rows on it copies B slowly, and the
 * primitive is 1.2 to 2 times faster up to 64 rows, 1.05 at 512. For bf16 only primitives exist: one overwrites C, one
 * adds to it. The choice follows from the plan and ACCUMULATE alone, and any number of threads may execute a plan at
 * once: so the same operands always give the same bits. */
#include "layers/kernels/gemm/gemm.h"

#include <dlfcn.h>
#include <malloc.h>
#include <math.h>
#include <oneapi/dnnl/dnnl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "layers/kernels/gemm/onednn/onednn_internal.h"
#include "layers/kernels/gemm/rows/many_rows.h"
#include "spmd/base/memory.h"

enum { PRIMITIVE_ROWS = 16, BIAS_FIRST_ROWS = 32 };
enum { OVERWRITE, ADD, PRIMITIVES }; /* by their effect on C */

enum { A, B, C, SCRATCHPAD, OPERANDS };

/* A primitive's operands: made once, and set to each call's arrays. */
struct operands {
    dnnl_memory_t memory[OPERANDS];
};

struct onednn {
    int (*get_threads)(void); /* OpenMP's, or NULL if this oneDNN does not use OpenMP */
    void (*set_threads)(int);
    dnnl_engine_t engine; /* the following are NULL in plans for dnnl_sgemm only */
    dnnl_stream_t stream;
    dnnl_memory_desc_t a, b, c, scratchpad[PRIMITIVES];
    dnnl_primitive_t primitive[PRIMITIVES];          /* NULL: dnnl_sgemm */
    _Atomic(struct operands *) operands[PRIMITIVES]; /* NULL while a call uses them; a concurrent call makes its own */
};

static bool has_bf16(void *arg) {
    const int isa = (int)dnnl_get_effective_cpu_isa(), needed = dnnl_cpu_isa_avx512_core_bf16;
    *(bool *)arg = (isa & needed) == needed;
    return true;
}

/* Without bf16 instructions oneDNN has no bf16 products, or has them slower than float products. If oneDNN lacks memory
 * for this query, planning the product reports it. */
static bool supports(enum sl_dtype dtype) {
    bool has = true;
    return dtype == SL_F32 || !sl_onednn_guard(has_bf16, &has) || has;
}

static bool has_amx(void *arg) {
    const int isa = (int)dnnl_get_effective_cpu_isa(), needed = dnnl_cpu_isa_avx512_core_amx;
    *(bool *)arg = (isa & needed) == needed;
    return true;
}

static bool has_tiles(enum sl_dtype dtype) {
    bool has = false;
    return dtype == SL_BF16 && sl_onednn_guard(has_amx, &has) && has;
}

/* Each coordinate is one thread and computes alone. oneDNN asks its OpenMP runtime (libgomp, or libomp in its place),
 * which stores the number of threads per calling thread. */
static int begin_alone(const struct onednn *state) {
    if (!state->set_threads) return 1;
    const int threads = state->get_threads();
    state->set_threads(1);
    return threads;
}

static void end_alone(const struct onednn *state, int threads) {
    if (state->set_threads) state->set_threads(threads);
}

static void find_threads(struct onednn *state) {
    const dnnl_version_t *version = dnnl_version();
    if (version->cpu_runtime != DNNL_RUNTIME_OMP) return;
    void *get = dlsym(RTLD_DEFAULT, "omp_get_max_threads"), *set = dlsym(RTLD_DEFAULT, "omp_set_num_threads");
    if (!get || !set) return;
    memcpy(&state->get_threads, &get, sizeof get); /* C has no conversion from data to function pointers */
    memcpy(&state->set_threads, &set, sizeof set);
}

/* oneDNN allocates 74 KB to 2 MB of scratch memory per call. By default malloc maps and unmaps such blocks, so that
 * every call faults their pages in again. The thresholds are global because malloc is. */
static pthread_once_t scratch_memory = PTHREAD_ONCE_INIT;
static void keep_scratch_memory(void) {
    mallopt(M_MMAP_THRESHOLD, 32 << 20);
    mallopt(M_TRIM_THRESHOLD, 128 << 20);
}

/* All primitives of a thread share one scratchpad, one after another. The library's own scratchpad belongs to the
 * thread that made a primitive; with one per plan a deep model would need more memory for them than for anything else.
 * The scratchpad's size is stored in front of it. */
static pthread_key_t scratchpad_key;
static pthread_once_t scratchpads = PTHREAD_ONCE_INIT;
static bool has_scratchpads;
static void begin_scratchpads(void) { has_scratchpads = !pthread_key_create(&scratchpad_key, free); }

/* Returns BYTES of scratch memory, valid until the thread asks for more, or NULL if there is no memory. */
static void *scratchpad_of(size_t bytes) {
    pthread_once(&scratchpads, begin_scratchpads);
    size_t *size = has_scratchpads ? pthread_getspecific(scratchpad_key) : NULL;
    if (!size || *size < bytes) {
        size_t *larger = aligned_alloc(SL_CACHE_LINE, sl_round_up(bytes, SL_CACHE_LINE) + SL_CACHE_LINE);
        if (!larger || !has_scratchpads || pthread_setspecific(scratchpad_key, larger)) {
            free(larger);
            return NULL;
        }
        free(size);
        *larger = bytes;
        size = larger;
    }
    return (char *)size + SL_CACHE_LINE;
}

static void free_operands(struct operands *operands) {
    if (!operands) return;
    for (int i = 0; i < OPERANDS; i++) {
        if (operands->memory[i]) dnnl_memory_destroy(operands->memory[i]);
    }
    free(operands);
}

static void free_state(struct onednn *state) {
    for (int i = 0; i < PRIMITIVES; i++) {
        free_operands(state->operands[i]);
        if (state->primitive[i]) dnnl_primitive_destroy(state->primitive[i]);
    }
    if (state->stream) dnnl_stream_destroy(state->stream);
    if (state->engine) dnnl_engine_destroy(state->engine);
    free(state);
}

/* Describes a [rows, cols] matrix, or the transpose of one stored [cols, rows]. */
static dnnl_status_t describe(dnnl_memory_desc_t *description, enum sl_dtype dtype, int rows, int cols,
                              bool transposed) {
    const dnnl_dims_t dims = {rows, cols}, strides = {transposed ? 1 : cols, transposed ? rows : 1};
    return dnnl_memory_desc_init_by_strides(description, 2, dims, dtype == SL_BF16 ? dnnl_bf16 : dnnl_f32, strides);
}

static bool describe_operands(const struct sl_gemm *gemm, struct onednn *state) {
    return !dnnl_engine_create(&state->engine, dnnl_cpu, 0) &&
           !dnnl_stream_create(&state->stream, state->engine, dnnl_stream_default_flags) &&
           !describe(&state->a, gemm->dtype, gemm->m, gemm->k, gemm->transpose_a) &&
           !describe(&state->b, gemm->dtype, gemm->k, gemm->n, gemm->transpose_b) &&
           !describe(&state->c, SL_F32, gemm->m, gemm->n, false);
}

static bool set_attributes(dnnl_primitive_attr_t attributes, int which) {
    dnnl_post_ops_t sum = NULL;
    const bool set = !dnnl_primitive_attr_set_scratchpad_mode(attributes, dnnl_scratchpad_mode_user) &&
                     (which == OVERWRITE || (!dnnl_post_ops_create(&sum) && !dnnl_post_ops_append_sum(sum, 1.0f) &&
                                             !dnnl_primitive_attr_set_post_ops(attributes, sum)));
    if (sum) dnnl_post_ops_destroy(sum);
    return set;
}

static struct operands *make_operands(struct onednn *state, int which) {
    struct operands *operands = calloc(1, sizeof *operands);
    if (!operands) return NULL;
    dnnl_memory_t *memory = operands->memory;
    if (!dnnl_memory_create(&memory[A], &state->a, state->engine, DNNL_MEMORY_NONE) &&
        !dnnl_memory_create(&memory[B], &state->b, state->engine, DNNL_MEMORY_NONE) &&
        !dnnl_memory_create(&memory[C], &state->c, state->engine, DNNL_MEMORY_NONE) &&
        !dnnl_memory_create(&memory[SCRATCHPAD], &state->scratchpad[which], state->engine, DNNL_MEMORY_NONE))
        return operands;
    free_operands(operands);
    return NULL;
}

static bool make_primitive(struct onednn *state, int which) {
    dnnl_matmul_desc_t product;
    dnnl_primitive_attr_t attributes = NULL;
    dnnl_primitive_desc_t description = NULL;
    if (!dnnl_matmul_desc_init(&product, &state->a, &state->b, NULL, &state->c) &&
        !dnnl_primitive_attr_create(&attributes) && set_attributes(attributes, which) &&
        !dnnl_primitive_desc_create(&description, &product, attributes, state->engine, NULL) &&
        !dnnl_primitive_create(&state->primitive[which], description))
        state->scratchpad[which] = *dnnl_primitive_desc_query_md(description, dnnl_query_scratchpad_md, 0);
    if (description) dnnl_primitive_desc_destroy(description);
    if (attributes) dnnl_primitive_attr_destroy(attributes);
    if (!state->primitive[which]) return false;
    state->operands[which] = make_operands(state, which);
    return state->operands[which] != NULL;
}

/* Callback of sl_onednn_generate. */
static bool make_primitives(void *arg) {
    const struct sl_gemm *gemm = arg;
    struct onednn *state = gemm->state;
    const bool bf16 = gemm->dtype == SL_BF16;
    if (!bf16 && (gemm->transpose_a || !gemm->transpose_b || gemm->epilogue || gemm->m < PRIMITIVE_ROWS)) return true;
    return describe_operands(gemm, state) && make_primitive(state, OVERWRITE) && (!bf16 || make_primitive(state, ADD));
}

static int plan(struct sl_gemm *gemm, struct sl_error *error) {
    struct onednn *state = calloc(1, sizeof *state);
    if (!state) return sl_error_set(error, SL_FAILED, "matrix products: no memory");
    pthread_once(&scratch_memory, keep_scratch_memory);
    find_threads(state);
    gemm->state = state;
    const int threads = begin_alone(state); /* primitives are made for this number of threads */
    const bool made = sl_onednn_generate(make_primitives, gemm);
    end_alone(state, threads);
    if (made) return SL_OK;
    free_state(state);
    return sl_error_set(error, SL_FAILED, "oneDNN has no memory for the product with m = %d, n = %d, k = %d", gemm->m,
                        gemm->n, gemm->k);
}

static void release(struct sl_gemm *gemm) { free_state(gemm->state); }

/* Arguments of a call. */
struct call {
    const struct sl_gemm *gemm;
    const void *a, *b;
    bool accumulate;
    float *c;
};

static bool execute_primitive(const struct onednn *state, int which, const struct call *call,
                              const struct operands *operands, void *scratchpad) {
    const dnnl_memory_t *memory = operands->memory;
    const dnnl_exec_arg_t arguments[OPERANDS] = {{DNNL_ARG_SRC, memory[A]},
                                                 {DNNL_ARG_WEIGHTS, memory[B]},
                                                 {DNNL_ARG_DST, memory[C]},
                                                 {DNNL_ARG_SCRATCHPAD, memory[SCRATCHPAD]}};
    return !dnnl_memory_set_data_handle(memory[A], (void *)(uintptr_t)call->a) &&
           !dnnl_memory_set_data_handle(memory[B], (void *)(uintptr_t)call->b) &&
           !dnnl_memory_set_data_handle(memory[C], call->c) &&
           !dnnl_memory_set_data_handle(memory[SCRATCHPAD], scratchpad) &&
           !dnnl_primitive_execute(state->primitive[which], state->stream, OPERANDS, arguments);
}

static bool run_primitive(const struct call *call, int which) {
    struct onednn *state = call->gemm->state;
    struct operands *operands = atomic_exchange(&state->operands[which], NULL);
    if (!operands) operands = make_operands(state, which);
    void *scratchpad = scratchpad_of(dnnl_memory_desc_get_size(&state->scratchpad[which]));
    const bool done = operands && scratchpad && execute_primitive(state, which, call, operands, scratchpad);
    free_operands(atomic_exchange(&state->operands[which], operands));
    return done;
}

static bool run_sgemm(const struct call *call) {
    const struct sl_gemm *gemm = call->gemm;
    const dnnl_dim_t m = gemm->m, n = gemm->n, k = gemm->k;
    return !dnnl_sgemm(gemm->transpose_a ? 'T' : 'N', gemm->transpose_b ? 'T' : 'N', m, n, k, 1.0f, call->a,
                       gemm->transpose_a ? m : k, call->b, gemm->transpose_b ? k : n, call->accumulate ? 1.0f : 0.0f,
                       call->c, n);
}

/* Callback of sl_onednn_guard. */
static bool run(void *arg) {
    const struct call *call = arg;
    const struct onednn *state = call->gemm->state;
    const int which = call->accumulate ? ADD : OVERWRITE;
    return state->primitive[which] ? run_primitive(call, which) : run_sgemm(call);
}

/* Adds the bias after a product of many rows: filling C with the bias first would wait for memory, and after the
 * product C is in cache. */
static void add_bias(const struct sl_gemm *gemm, const float *bias, float *c) {
    const size_t columns = (size_t)gemm->n;
    for (int i = 0; i < gemm->m; i++, c += columns) {
        for (size_t j = 0; j < columns; j++) c[j] += bias[j];
    }
}

/* *REST: the bias still to be added by the caller, or NULL. */
static int multiply(const struct sl_gemm *gemm, const void *a, const void *b, const float *bias, bool accumulate,
                    float *c, const float **rest) {
    const bool biased = gemm->epilogue == SL_EPILOGUE_BIAS, before = biased && gemm->m <= BIAS_FIRST_ROWS;
    const size_t columns = (size_t)gemm->n;
    for (int i = 0; before && i < gemm->m; i++) memcpy(c + (size_t)i * columns, bias, columns * sizeof *c);
    struct call call = {gemm, a, b, accumulate || before, c};
    const int threads = begin_alone(gemm->state);
    const bool done = sl_onednn_guard(run, &call);
    end_alone(gemm->state, threads);
    *rest = biased && !before ? bias : NULL;
    return done ? SL_OK : SL_FAILED; /* the only possible cause is lack of memory */
}

/* Executes product by product; the pass that adds the bias also rounds. */
static int execute(const struct sl_gemm *gemm, const struct sl_gemm_arrays *arrays, void *queue) {
    const size_t m = (size_t)gemm->m, n = (size_t)gemm->n, row = (size_t)gemm->k * sl_dtype_size(gemm->dtype);
    const char *a = arrays->a.at;
    float *c = arrays->c.rows.at;
    const float *rest;
    (void)queue;
    for (size_t i = 0; i < (size_t)arrays->count; i++, c += m * n) {
        SL_TRY(multiply(gemm, a + i * m * row, arrays->b.at, arrays->bias.at, arrays->x.at != NULL, c, &rest));
        if (arrays->c.rounds)
            sl_many_rows_select()->settle(m, n, rest, sl_out_from(arrays->c, i * m * n));
        else if (rest)
            add_bias(gemm, rest, c);
    }
    return SL_OK;
}

static bool find_isa(void *arg) {
    *(int *)arg = (int)dnnl_get_effective_cpu_isa();
    return true;
}

static void describe_library(char *text, size_t size) {
    const dnnl_version_t *version = dnnl_version();
    int isa = 0;
    sl_onednn_guard(find_isa, &isa);
    snprintf(text, size, "oneDNN %d.%d.%d, ISA %x", version->major, version->minor, version->patch, (unsigned)isa);
}

const struct sl_gemm_backend sl_gemm_onednn = {.name = "onednn",
                                               .supports = supports,
                                               .has_tiles = has_tiles,
                                               .settles = true,
                                               .plan = plan,
                                               .execute = execute,
                                               .release = release,
                                               .describe = describe_library};
