/* bench_attention.c - speed of attention on one core, beside matrix products of the same sizes: forward, backward, and
 * the decoding of a token, by width of heads and length of sequences. Prints JSON lines.
 *
 * Attention's operations are the products for visible pairs of a query and a key; exponentials are not counted. Forward
 * has two products, backward five. The peer is the same products of whole matrices, each head's separately, [sequence,
 * width] and [sequence, sequence], by the library (oneDNN) or by ours, the faster of the two. Attention and products
 * are measured in turns; a rate is the median of --rounds, and so is the ratio. */
#include <getopt.h>
#include <stdio.h>
#include <string.h>

#include "benchmarks/measure.h"
#include "benchmarks/rates/fma.h"
#include "layers/kernels/gemm/gemm.h"
#include "layers/kernels/kernels.h"
#include "spmd/base/cpu_level.h"
#include "spmd/base/memory.h"

enum { COLUMNS = 512, ROWS = 1024, MAX_LENGTH = 8192, MAX_ROUNDS = 100, PRODUCTS = 5, BACKENDS = 2 };

/* A product of a head: A and B are, from the queries' side, [1 or sequence, width or sequence]. */
enum size { QUERIES, KEYS, WIDTH };
struct factors {
    enum size m, n, k;
    bool transpose_a, transpose_b;
    int count;
};

static const struct pass {
    const char *name;
    bool decodes;
    struct factors product[3];
} passes[] = {
    {"forward", false, {{QUERIES, KEYS, WIDTH, false, true, 1}, {QUERIES, WIDTH, KEYS, false, false, 1}}},
    {"backward",
     false,
     {{QUERIES, KEYS, WIDTH, false, true, 2},
      {QUERIES, WIDTH, KEYS, false, false, 1},
      {KEYS, WIDTH, QUERIES, true, false, 2}}},
    {"decode", true, {{QUERIES, KEYS, WIDTH, false, true, 1}, {QUERIES, WIDTH, KEYS, false, false, 1}}},
};
enum { PASSES = sizeof passes / sizeof *passes, KINDS = 3 };

static const struct sl_gemm_backend *const backends[BACKENDS] = {&sl_gemm_onednn, &sl_gemm_cpu};

/* Arrays of floats, [rows, columns] each, except keys and values, which lie side by side as a layer makes them, and the
 * last arrays. Caches have separate keys and values. */
enum array { Q, KV, O, D_O, DQ, DKV, LOGSUM, SCRATCH, SQUARE, ARRAYS };

struct bench {
    struct sl_list widths, lengths;
    double seconds; /* of a measurement */
    int rounds;
    float *memory, *array[ARRAYS];
    const struct sl_fma_loop *fma;
};

/* A measurement: attention, and its products. */
struct task {
    const struct bench *bench;
    const struct pass *pass;
    struct sl_attention shape;
    size_t length, heads; /* heads: of all sequences */
    struct sl_gemm gemm[KINDS][BACKENDS];
    double flops, products_flops; /* of a call; of all products, masked pairs included */
    double rate[MAX_ROUNDS], products_rate[MAX_ROUNDS], ratio[MAX_ROUNDS], fma[MAX_ROUNDS];
};

/* ---- the measured calls ---- */

static int attend(const struct task *task) {
    const struct sl_attention_kernels *kernels = sl_kernels_select()->attention;
    float *const *a = task->bench->array;
    const size_t values = task->pass->decodes ? task->shape.sequences * task->length * COLUMNS : COLUMNS;
    if (!strcmp(task->pass->name, "backward"))
        kernels->backward(&task->shape, a[Q], NULL, a[KV], a[KV] + values, NULL, a[O], a[LOGSUM], a[D_O],
                          sl_out_f32(a[DQ]), NULL, sl_out_f32(a[DKV]), sl_out_f32(a[DKV] + values), NULL, a[SCRATCH]);
    else
        kernels->forward(&task->shape, a[Q], NULL, a[KV], a[KV] + values, NULL, sl_out_f32(a[O]), a[LOGSUM]);
    return SL_OK;
}

/* Does all heads' products of a kind. All heads share one square of scores, which stays in the cache. */
static int multiply(const struct task *task, const struct sl_gemm *gemm) {
    float *const *a = task->bench->array;
    const bool makes_scores = gemm->transpose_b;
    const size_t queries = task->shape.queries * task->shape.width, keys = task->length * task->shape.width;
    const size_t values = task->heads * keys;
    for (size_t head = 0; head < task->heads; head++) {
        const size_t left = head * queries, right = head * keys;
        int status;
        if (makes_scores)
            status = sl_gemm_execute(gemm, sl_gemm_floats(gemm, 1, a[Q] + left, a[KV] + right, NULL, false, a[SQUARE]),
                                     NULL);
        else if (gemm->transpose_a)
            status = sl_gemm_execute(gemm, sl_gemm_floats(gemm, 1, a[SQUARE], a[Q] + left, NULL, false, a[DKV] + right),
                                     NULL);
        else
            status = sl_gemm_execute(
                gemm, sl_gemm_floats(gemm, 1, a[SQUARE], a[KV] + values + right, NULL, false, a[O] + left), NULL);
        SL_TRY(status);
    }
    return SL_OK;
}

/* Seconds of a call of attention (GEMM is NULL) or of a product. */
static int measure(const struct task *task, const struct sl_gemm *gemm, double *seconds) {
    const double began = sl_now();
    double calls = 0, elapsed;
    do {
        SL_TRY(gemm ? multiply(task, gemm) : attend(task));
        calls++;
        elapsed = sl_now() - began;
    } while (elapsed < task->bench->seconds);
    *seconds = elapsed / calls;
    return SL_OK;
}

/* Measures all of the pass's products, each by the faster backend. */
static int measure_products(const struct task *task, double *seconds) {
    *seconds = 0;
    for (int kind = 0; kind < KINDS && task->pass->product[kind].count; kind++) {
        double best = 0;
        for (int b = 0; b < BACKENDS; b++) {
            double own;
            if (!task->gemm[kind][b].backend) continue;
            SL_TRY(measure(task, &task->gemm[kind][b], &own));
            if (best == 0 || own < best) best = own;
        }
        *seconds += task->pass->product[kind].count * best;
    }
    return SL_OK;
}

/* Measures the rounds. Round -1 warms up and is not saved. */
static int measure_rounds(struct task *task) {
    for (int round = -1; round < task->bench->rounds; round++) {
        double own, products;
        SL_TRY(measure(task, NULL, &own));
        SL_TRY(measure_products(task, &products));
        if (round < 0) continue;
        task->rate[round] = task->flops / own;
        task->products_rate[round] = task->products_flops / products;
        task->ratio[round] = task->rate[round] / task->products_rate[round];
        task->fma[round] = sl_fma_loop_measure(task->bench->fma, task->bench->seconds / 5);
    }
    return SL_OK;
}

/* ---- a task ---- */

static int plan(struct task *task, struct sl_error *error) {
    const int size[] = {
        [QUERIES] = (int)task->shape.queries, [KEYS] = (int)task->length, [WIDTH] = (int)task->shape.width};
    for (int kind = 0; kind < KINDS && task->pass->product[kind].count; kind++) {
        const struct factors *f = &task->pass->product[kind];
        task->products_flops += (double)f->count * 2.0 * (double)task->heads * size[f->m] * size[f->n] * size[f->k];
        for (int b = 0; b < BACKENDS; b++) {
            if (!sl_gemm_supports(backends[b], SL_F32)) continue;
            SL_TRY(sl_gemm_plan(&task->gemm[kind][b], backends[b], SL_F32, size[f->m], size[f->n], size[f->k],
                                f->transpose_a, f->transpose_b, SL_EPILOGUE_NONE, error));
        }
    }
    return SL_OK;
}

static void print(struct task *task) {
    const int rounds = task->bench->rounds;
    const double fma = sl_median(rounds, task->fma), ratio = sl_median(rounds, task->ratio);
    printf("{\"benchmark\":\"attention\",\"pass\":\"%s\",\"width\":%zu,\"sequence\":%zu,\"sequences\":%zu,"
           "\"heads\":%zu,\"gflop\":%.9g,\"gflops_rounds\":[",
           task->pass->name, task->shape.width, task->length, task->shape.sequences, task->shape.heads,
           1e-9 * task->flops);
    for (int i = 0; i < rounds; i++) printf("%s%.5g", i ? "," : "", 1e-9 * task->rate[i]);
    const double rate = sl_median(rounds, task->rate);
    printf("],\"gflops\":%.9g,\"products_gflops\":%.9g,\"ratio\":%.9g,\"ratio_min\":%.9g,\"fma_gflops\":%.9g,"
           "\"kernels\":\"%s\"}\n",
           1e-9 * rate, 1e-9 * sl_median(rounds, task->products_rate), ratio, task->ratio[0], 1e-9 * fma,
           sl_kernels_select()->name);
    fflush(stdout);
}

static int run_task(const struct bench *bench, const struct pass *pass, size_t width, size_t length,
                    struct sl_error *error) {
    struct task task = {.bench = bench, .pass = pass, .length = length};
    struct sl_attention *shape = &task.shape;
    *shape = (struct sl_attention){.sequences = length < ROWS ? ROWS / length : 1,
                                   .queries = pass->decodes ? 1 : length,
                                   .position = pass->decodes ? length - 1 : 0,
                                   .key_rows = length,
                                   .heads = COLUMNS / width,
                                   .width = width,
                                   .key_stride = pass->decodes ? COLUMNS : 2 * COLUMNS};
    task.heads = shape->sequences * shape->heads;
    const double pairs =
        (double)task.heads * (pass->decodes ? (double)length : 0.5 * (double)length * (double)(length + 1));
    for (int kind = 0; kind < KINDS; kind++) task.flops += 2.0 * pass->product[kind].count * (double)width * pairs;
    int status = plan(&task, error);
    if (status == SL_OK && measure_rounds(&task))
        status = sl_error_set(error, SL_FAILED, "a product cannot be computed");
    if (status == SL_OK) print(&task);
    for (int kind = 0; kind < KINDS; kind++) {
        for (int b = 0; b < BACKENDS; b++) sl_gemm_release(&task.gemm[kind][b]);
    }
    return status;
}

/* ---- main ---- */

static int take_memory(struct bench *bench, struct sl_error *error) {
    size_t longest = ROWS, count = 0;
    for (int i = 0; i < bench->lengths.count; i++)
        if ((size_t)bench->lengths.value[i] > longest) longest = (size_t)bench->lengths.value[i];
    const size_t one = longest * COLUMNS,
                 apart = 17 * SL_CACHE_LINE / sizeof(float); /* no two begin alike in a cache */
    for (int i = 0; i < ARRAYS; i++)
        count += (i == SQUARE ? longest * longest : i == KV || i == DKV ? 2 * one : one) + apart;
    bench->memory = sl_memory_take(count * sizeof(float));
    if (!bench->memory)
        return sl_error_set(error, SL_FAILED, "no memory for %zu bytes of keys and scores", count * sizeof(float));
    for (size_t i = 0; i < count; i++) bench->memory[i] = 1e-3f * (float)(i % 31);
    bench->array[0] = bench->memory;
    for (int i = 1; i < ARRAYS; i++)
        bench->array[i] = bench->array[i - 1] + (i - 1 == KV || i - 1 == DKV ? 2 * one : one) + apart;
    return SL_OK;
}

static int run_all(struct bench *bench, struct sl_error *error) {
    SL_TRY(sl_cpu_level_check(error));
    SL_TRY(take_memory(bench, error));
    bench->fma = sl_fma_loop_select(SL_F32);
    for (int p = 0; p < PASSES; p++) {
        for (int w = 0; w < bench->widths.count; w++) {
            for (int l = 0; l < bench->lengths.count; l++)
                SL_TRY(run_task(bench, &passes[p], (size_t)bench->widths.value[w], (size_t)bench->lengths.value[l],
                                error));
        }
    }
    return SL_OK;
}

static const char usage[] =
    "usage: bench_attention [--widths N,N...] [--sequences N,N...] [--seconds S] [--rounds N]\n"
    "Times attention on one core and products of the same sizes in turns, 512 columns of heads of each width over\n"
    "sequences of each length, each --rounds times for about --seconds. Prints JSON lines.\n";

static int read_options(struct bench *bench, int argc, char **argv, bool *answered) {
    static const struct option option[] = {
        {"widths", required_argument, NULL, 'w'},  {"sequences", required_argument, NULL, 'l'},
        {"seconds", required_argument, NULL, 't'}, {"rounds", required_argument, NULL, 'r'},
        {"help", no_argument, NULL, 'h'},          {0}};
    for (int code; (code = getopt_long(argc, argv, "", option, NULL)) != -1;) {
        if (code == '?') return SL_BAD_INPUT;
        if (code == 'w') SL_TRY(sl_read_list("widths", optarg, 1, COLUMNS, &bench->widths));
        if (code == 'l') SL_TRY(sl_read_list("sequences", optarg, 1, MAX_LENGTH, &bench->lengths));
        if (code == 't') SL_TRY(sl_read_real("seconds", optarg, 0, 60, &bench->seconds));
        if (code == 'r') SL_TRY(sl_read_integer("rounds", optarg, 1, MAX_ROUNDS, &bench->rounds));
        if (code == 'h') {
            fputs(usage, stdout);
            *answered = true;
            return SL_OK;
        }
    }
    if (optind == argc) return SL_OK;
    fprintf(stderr, "bench_attention: \"%.80s\" is no option\n", argv[optind]);
    return SL_BAD_INPUT;
}

int main(int argc, char **argv) {
    struct bench bench = {.widths = {3, {32, 64, 128}}, .lengths = {2, {128, 1024}}, .seconds = 0.01, .rounds = 6};
    struct sl_error error = {0};
    bool answered = false;
    int status = read_options(&bench, argc, argv, &answered);
    if (status || answered) return status;
    sl_stay_on_this_core();
    status = run_all(&bench, &error);
    if (status) fprintf(stderr, "bench_attention: %s\n", error.message);
    sl_memory_give(bench.memory);
    return status;
}
