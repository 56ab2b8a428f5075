/* bench_products.c - speed of products on one core: by shape, by rows, by place of the weights, by the library (oneDNN)
 * and by ours (backend "cpu", which chooses between the library and its own kernels). Prints JSON lines.
 *
 * The first line of a dtype, fma, is the best rate of multiply-adds without memory. A product's share is its rate over
 * that rate, measured in turns, because the clock changes with the machine's load and heat. For weights [in, out] there
 * are the three products of a dense layer over ROWS rows: "A B", the outputs; "A B^T", the gradient of the inputs; "A^T
 * B", the gradient of the weights (the place is then the gradient's). The place follows from the number of copies that
 * take turns: "near", one, which fits the second-level cache; "shared", more than fit it, but within half of the shared
 * cache; "memory", twice the shared cache. Places without room for a copy, or with too little to show, are left out.
 * Library and ours are measured in turns; a rate is the median of --rounds. */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "benchmarks/rates/fma.h"
#include "benchmarks/measure.h"
#include "layers/kernels/gemm/gemm.h"
#include "spmd/base/cpu_level.h"
#include "spmd/base/numbers/bf16.h"
#include "spmd/base/memory.h"

enum { MAX_ROWS = 1 << 16, MAX_ROUNDS = 100 };

static const struct {
    int in, out;
} shapes[] = {{512, 512}, {1024, 1024}, {1024, 4096}};
enum { SHAPES = sizeof shapes / sizeof *shapes };

static const struct {
    const char *name;
    bool transpose_a, transpose_b;
} kinds[] = {{"A B", false, false}, {"A B^T", false, true}, {"A^T B", true, false}};
enum { KINDS = sizeof kinds / sizeof *kinds };

enum place { NEAR, SHARED, MEMORY, PLACES };
static const char *const places[PLACES] = {"near", "shared", "memory"};

enum who { LIBRARY, OURS, BOTH };
static const char *const names[BOTH] = {"library", "ours"};
static const struct sl_gemm_backend *const backends[BOTH] = {&sl_gemm_onednn, &sl_gemm_cpu};

struct bench {
    int shapes; /* of the table above, the first ones */
    struct sl_list rows;
    bool wanted[2]; /* dtypes: SL_F32, SL_BF16 */
    double seconds; /* of a measurement */
    int rounds;

    size_t near, shared; /* bytes of the caches, 0: unknown */
    char *weights;       /* [capacity] */
    size_t capacity;
    char *left, *right; /* the two other arrays, [activations] each */
    size_t activations;
    const struct sl_fma_loop *fma;
};

/* One product, in one place. */
struct product {
    enum sl_dtype dtype;
    int kind, m, n, k;
    size_t bytes;  /* of the weights, or of their gradient */
    size_t copies; /* that take turns */
    size_t next;
    struct sl_gemm gemm[BOTH];
    double rate[BOTH][MAX_ROUNDS], fma[MAX_ROUNDS]; /* FLOP/s */
};

/* ---- place of weights ---- */

/* Returns how many copies of BYTES lie in PLACE; 0: none. */
static size_t copies_in(const struct bench *bench, enum place place, size_t bytes) {
    size_t least = 0, most = 0;
    if (place == NEAR) {
        least = bytes;
        most = bench->near / 4 * 3; /* activations want room, too */
    } else if (place == SHARED) {
        least = 8 * bench->near;
        most = bench->shared / 2;
        if (least > most) least = 3 * bench->near;
    } else {
        least = 2 * bench->shared;
        most = bench->capacity;
    }
    const size_t copies = (least + bytes - 1) / bytes;
    return copies * bytes <= most ? copies : 0;
}

/* ---- measuring ---- */

static int multiply(const struct bench *bench, struct product *product, enum who who) {
    char *weights = bench->weights + product->bytes * product->next;
    product->next = (product->next + 1) % product->copies;
    const bool gradient = kinds[product->kind].transpose_a;
    const void *b = gradient ? bench->right : weights;
    float *c = (float *)(void *)(gradient ? weights : bench->right);
    return sl_gemm_execute(&product->gemm[who], sl_gemm_floats(&product->gemm[who], 1, bench->left, b, NULL, false, c),
                           NULL);
}

/* Warms up: first calls, and weights into the shared cache. */
static int warm_up(const struct bench *bench, struct product *product, enum who who) {
    const bool cached = product->copies * product->bytes <= bench->shared;
    for (size_t i = 0; i < (cached ? product->copies : 1); i++) SL_TRY(multiply(bench, product, who));
    return SL_OK;
}

static int measure(const struct bench *bench, struct product *product, enum who who, double *rate) {
    const double began = sl_now();
    double calls = 0, elapsed;
    do {
        SL_TRY(multiply(bench, product, who));
        calls++;
        elapsed = sl_now() - began;
    } while (elapsed < bench->seconds);
    *rate = calls * 2.0 * product->m * (double)product->n * product->k / elapsed;
    return SL_OK;
}

static void fill(void *array, size_t bytes, enum sl_dtype dtype) {
    const size_t count = bytes / sl_dtype_size(dtype);
    float *floats = array;
    uint16_t *halves = array;
    for (size_t i = 0; i < count; i++) {
        const float value = 1e-3f * (float)(i % 31);
        if (dtype == SL_BF16)
            halves[i] = sl_bf16_of_float(value);
        else
            floats[i] = value;
    }
}

static int measure_product(const struct bench *bench, struct product *product, struct sl_error *error) {
    fill(bench->left, bench->activations, product->dtype);
    fill(bench->right, bench->activations, product->dtype);
    int status = SL_OK;
    for (int who = 0; who < BOTH && status == SL_OK; who++) {
        if (product->gemm[who].backend) status = warm_up(bench, product, who);
    }
    for (int round = 0; round < bench->rounds; round++) {
        product->fma[round] = sl_fma_loop_measure(bench->fma, bench->seconds / 5);
        for (int who = 0; who < BOTH && status == SL_OK; who++) {
            if (product->gemm[who].backend) status = measure(bench, product, who, &product->rate[who][round]);
        }
    }
    return status ? sl_error_set(error, status, "a product cannot be computed") : SL_OK;
}

static int plan(struct product *product, struct sl_error *error) {
    for (int who = 0; who < BOTH; who++) {
        if (!sl_gemm_supports(backends[who], product->dtype)) continue;
        SL_TRY(sl_gemm_plan(&product->gemm[who], backends[who], product->dtype, product->m, product->n, product->k,
                            kinds[product->kind].transpose_a, kinds[product->kind].transpose_b, SL_EPILOGUE_NONE,
                            error));
    }
    return SL_OK;
}

static void print(const struct bench *bench, struct product *product, int shape, int rows, enum place place) {
    double fma = 0; /* the best of these rounds */
    for (int round = 0; round < bench->rounds; round++)
        if (product->fma[round] > fma) fma = product->fma[round];
    for (int who = 0; who < BOTH; who++) {
        if (!product->gemm[who].backend) continue;
        double *rate = product->rate[who];
        printf("{\"benchmark\":\"products\",\"dtype\":\"%s\",\"product\":\"%s\",\"in\":%d,\"out\":%d,\"rows\":%d,",
               sl_dtypes[product->dtype].name, kinds[product->kind].name, shapes[shape].in, shapes[shape].out, rows);
        printf("\"gflops_rounds\":[");
        for (int i = 0; i < bench->rounds; i++) printf("%s%.5g", i ? "," : "", 1e-9 * rate[i]);
        const double median = sl_median(bench->rounds, rate);
        printf("],\"where\":\"%s\",\"copies\":%zu,\"who\":\"%s\",\"gflops\":%.9g,\"gflops_min\":%.9g,"
               "\"gflops_max\":%.9g,\"fma_gflops\":%.9g,\"share\":%.9g}\n",
               places[place], product->copies, names[who], 1e-9 * median, 1e-9 * rate[0],
               1e-9 * rate[bench->rounds - 1], 1e-9 * fma, median / fma);
    }
    fflush(stdout);
}

static int run_product(const struct bench *bench, enum sl_dtype dtype, int kind, int shape, int rows, enum place place,
                       struct sl_error *error) {
    const int in = shapes[shape].in, out = shapes[shape].out;
    const bool a = kinds[kind].transpose_a, b = kinds[kind].transpose_b;
    struct product product = {.dtype = dtype,
                              .kind = kind,
                              .m = a ? in : rows,
                              .n = b ? in : out,
                              .k = a   ? rows
                                   : b ? out
                                       : in};
    product.bytes = (size_t)in * (size_t)out * (a ? sizeof(float) : sl_dtype_size(dtype)); /* gradients are floats */
    product.copies = copies_in(bench, place, product.bytes);
    if (!product.copies) return SL_OK;
    int status = plan(&product, error);
    if (status == SL_OK) status = measure_product(bench, &product, error);
    if (status == SL_OK) print(bench, &product, shape, rows, place);
    for (int who = 0; who < BOTH; who++) sl_gemm_release(&product.gemm[who]);
    return status;
}

/* The core's multiply-adds, and how many of them it does in a cycle. */
static void print_fma(const struct bench *bench, enum sl_dtype dtype) {
    enum { TIMES = 20 };
    double fma = 0, clock = 0; /* the best */
    for (int i = 0; i < TIMES; i++) {
        const double rate = sl_fma_loop_measure(bench->fma, bench->seconds);
        const double hertz = sl_clock_measure(bench->seconds / 5);
        if (rate > fma) fma = rate;
        if (hertz > clock) clock = hertz;
    }
    printf("{\"benchmark\":\"fma\",\"dtype\":\"%s\",\"level\":\"%s\",\"gflops\":%.9g,\"clock_ghz\":%.9g,"
           "\"flops_of_instruction\":%d,\"instructions_a_cycle\":%.9g}\n",
           sl_dtypes[dtype].name, bench->fma->level, 1e-9 * fma, 1e-9 * clock, bench->fma->flops,
           fma / bench->fma->flops / clock);
}

static int run_dtype(struct bench *bench, enum sl_dtype dtype, struct sl_error *error) {
    bench->fma = sl_fma_loop_select(dtype);
    if (!bench->fma) return SL_OK; /* this CPU has no instruction for it */
    print_fma(bench, dtype);
    fill(bench->weights, bench->capacity, dtype);
    for (int kind = 0; kind < KINDS; kind++) {
        for (int shape = 0; shape < bench->shapes; shape++) {
            for (int place = 0; place < PLACES; place++) {
                for (int i = 0; i < bench->rows.count; i++)
                    SL_TRY(run_product(bench, dtype, kind, shape, bench->rows.value[i], place, error));
            }
        }
    }
    return SL_OK;
}

/* ---- main ---- */

static size_t cache_bytes(int name) {
    const long bytes = sysconf(name);
    return bytes > 0 ? (size_t)bytes : 0;
}

static int take_memory(struct bench *bench, struct sl_error *error) {
    int most = 0, dim = 0;
    for (int i = 0; i < bench->rows.count; i++)
        if (bench->rows.value[i] > most) most = bench->rows.value[i];
    for (int i = 0; i < bench->shapes; i++)
        if (shapes[i].out > dim) dim = shapes[i].out;
    const size_t largest = (size_t)dim * 1024 * sizeof(float); /* weights; no shape has more inputs */
    bench->near = cache_bytes(_SC_LEVEL2_CACHE_SIZE);
    bench->shared = cache_bytes(_SC_LEVEL3_CACHE_SIZE);
    if (!bench->near) bench->near = 1 << 20;
    if (bench->shared < bench->near) bench->shared = bench->near;
    bench->activations = (size_t)most * (size_t)dim * sizeof(float);
    bench->capacity = sl_round_up(2 * bench->shared + largest, largest);
    bench->weights = sl_memory_take(bench->capacity);
    bench->left = sl_memory_take(bench->activations);
    bench->right = sl_memory_take(bench->activations);
    if (bench->weights && bench->left && bench->right) return SL_OK;
    return sl_error_set(error, SL_FAILED, "no memory for weights of %zu MB", bench->capacity >> 20);
}

static const char usage[] =
    "usage: bench_products [--rows N,N...] [--shapes N] [--dtypes f32|bf16|all] [--seconds S] [--rounds N]\n"
    "Times products on one core, the first N of three shapes, each --rounds times for about --seconds. Prints JSON\n"
    "lines.\n";

static int read_dtypes(struct bench *bench, const char *text) {
    const bool all = !strcmp(text, "all");
    bench->wanted[SL_F32] = all || !strcmp(text, "f32");
    bench->wanted[SL_BF16] = all || !strcmp(text, "bf16");
    if (bench->wanted[SL_F32] || bench->wanted[SL_BF16]) return SL_OK;
    fprintf(stderr, "--dtypes: \"%.80s\" is not f32, bf16 or all\n", text);
    return SL_BAD_INPUT;
}

static int read_options(struct bench *bench, int argc, char **argv, bool *answered) {
    static const struct option option[] = {{"rows", required_argument, NULL, 'm'},
                                           {"shapes", required_argument, NULL, 's'},
                                           {"dtypes", required_argument, NULL, 'd'},
                                           {"seconds", required_argument, NULL, 't'},
                                           {"rounds", required_argument, NULL, 'r'},
                                           {"help", no_argument, NULL, 'h'},
                                           {0}};
    for (int code; (code = getopt_long(argc, argv, "", option, NULL)) != -1;) {
        if (code == '?') return SL_BAD_INPUT;
        if (code == 'm') SL_TRY(sl_read_list("rows", optarg, 1, MAX_ROWS, &bench->rows));
        if (code == 's') SL_TRY(sl_read_integer("shapes", optarg, 1, SHAPES, &bench->shapes));
        if (code == 'd') SL_TRY(read_dtypes(bench, optarg));
        if (code == 't') SL_TRY(sl_read_real("seconds", optarg, 0, 60, &bench->seconds));
        if (code == 'r') SL_TRY(sl_read_integer("rounds", optarg, 1, MAX_ROUNDS, &bench->rounds));
        if (code == 'h') {
            fputs(usage, stdout);
            *answered = true;
            return SL_OK;
        }
    }
    if (optind == argc) return SL_OK;
    fprintf(stderr, "bench_products: \"%.80s\" is no option\n", argv[optind]);
    return SL_BAD_INPUT;
}

int main(int argc, char **argv) {
    struct bench bench = {.shapes = SHAPES,
                          .rows = {6, {1, 8, 32, 64, 128, 512}},
                          .wanted = {[SL_F32] = true, [SL_BF16] = true},
                          .seconds = 0.005,
                          .rounds = 6};
    struct sl_error error = {0};
    bool answered = false;
    int status = read_options(&bench, argc, argv, &answered);
    if (status || answered) return status;
    sl_stay_on_this_core();
    status = sl_cpu_level_check(&error);
    if (status == SL_OK) status = take_memory(&bench, &error);
    if (status == SL_OK && bench.wanted[SL_F32]) status = run_dtype(&bench, SL_F32, &error);
    if (status == SL_OK && bench.wanted[SL_BF16]) status = run_dtype(&bench, SL_BF16, &error);
    if (status) fprintf(stderr, "bench_products: %s\n", error.message);
    sl_memory_give(bench.weights);
    sl_memory_give(bench.left);
    sl_memory_give(bench.right);
    return status;
}
