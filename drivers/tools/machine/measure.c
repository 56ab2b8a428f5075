/* measure.c - times products, kernels and calls on all cores at once.
 *
 * A step reads weights that other work has pushed out of the near caches, so products take turns with several
 * matrices. Rounds repeat all measurements three times, so a drift of the clock over minutes affects all alike. */
#include "drivers/tools/machine/measure.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "collectives/collectives.h"
#include "collectives/launcher.h"
#include "drivers/tools/machine/measure_links.h"
#include "drivers/tools/machine/measure_pairs.h"
#include "drivers/speed/cores.h"
#include "layers/kernels/kernels.h"
#include "layers/training/exchange.h"
#include "spmd/device/device.h"
#include "spmd/random.h"

enum { ROUNDS = 3, POOL = 1 << 21 /* floats: past the near caches */, KERNEL_FLOATS = 1 << 18, NEAR_FLOATS = 1 << 14 };
/* Seconds of one timing. */
static const double short_timing = 5e-4, long_timing = 2e-3, shortest_stretch = 1e-5;
/* Products that take longer are large enough: larger ones have their rate. */
static const double longest = 0.05, longest_brief = 0.01;

struct bench {
    struct sl_machine *machine;
    const struct sl_measurement *measurement;
    const struct sl_gemm_backend *gemm;
    struct sl_spmd *self;
    struct sl_group world;
    float *a, *b, *c; /* [POOL] each, on the device */
    void *scratch;    /* attention's */
    size_t turn;
    double timing;
    double most[2]; /* operations of the largest products to time, in float and in bf16 */
    double seconds[SL_MACHINE_PRODUCTS + SL_MACHINE_KERNELS + 1][ROUNDS];
    float *least; /* [coordinates][products], one array for coordinates sharing memory */
};

/* Does WHAT once; *AMOUNT receives the number of units for which times are given. */
typedef int work(struct bench *bench, void *what, double *amount);

/* Measures WHAT: EACH receives the median seconds per unit, over stretches long enough for the clock. */
static int time_work(struct bench *bench, work *work, void *what, double *each) {
    enum { MOST = 64 };
    double taken[MOST], amount = 1;
    int count = 0, batch = 1;
    SL_TRY(work(bench, what, &amount)); /* the first run generates code and fills caches */
    SL_TRY(sl_device.settle(&bench->self->error));
    for (const double end = sl_now() + bench->timing; count == 0 || (count < MOST && sl_now() < end);) {
        const double began = sl_now();
        for (int i = 0; i < batch; i++) {
            SL_TRY(work(bench, what, &amount));
            SL_TRY(sl_device.settle(&bench->self->error));
        }
        const double seconds = sl_now() - began;
        if (seconds < shortest_stretch && count == 0)
            batch *= 2;
        else
            taken[count++] = seconds / batch;
    }
    *each = sl_median_of(taken, count) / amount;
    return SL_OK;
}

/* ---- products ---- */

/* Returns COUNT floats in POOL, at a different place each time. */
static float *part(struct bench *bench, float *pool, size_t count) {
    const size_t places = count < POOL ? POOL / count : 1;
    return pool + bench->turn++ % places * count;
}

static int run_product(struct bench *bench, void *what, double *amount) {
    const struct sl_gemm *gemm = what;
    const size_t m = (size_t)gemm->m, n = (size_t)gemm->n, k = (size_t)gemm->k;
    const size_t half = gemm->dtype == SL_BF16 ? 2 : 1;
    const float *b = part(bench, bench->b, (k * n + half - 1) / half);
    *amount = 1;
    const float *a = part(bench, bench->a, (m * k + half - 1) / half);
    return sl_gemm_execute(gemm, sl_gemm_floats(gemm, 1, a, b, NULL, false, part(bench, bench->c, m * n)),
                           bench->self->queue);
}

static double operations(const struct sl_machine_product *shape) { return 2.0 * shape->m * shape->n * shape->k; }

/* Times a product; SECONDS stays 0 if it is too large. */
static int time_product(struct bench *bench, const struct sl_machine_product *shape, double *seconds) {
    struct sl_gemm gemm = {0};
    double *const most = &bench->most[shape->type == SL_BF16];
    if (*most > 0 && operations(shape) > *most) return SL_OK;
    SL_TRY(sl_gemm_plan(&gemm, bench->gemm, shape->type, shape->m, shape->n, shape->k, shape->a_transposed,
                        shape->b_transposed, SL_EPILOGUE_NONE, &bench->self->error));
    const int status = time_work(bench, run_product, &gemm, seconds);
    const double limit = bench->measurement->brief ? longest_brief : longest;
    if (*seconds > limit && (*most == 0 || operations(shape) < *most)) *most = operations(shape);
    sl_gemm_release(&gemm);
    return status;
}

/* Adds the grid: rows and widths of our models, for forward (NN), input gradients (NT) and weight gradients (TN). */
static void add_grid(struct bench *bench) {
    static const int rows[] = {2, 8, 32, 128, 512, 2048}, widths[] = {64, 256, 1024};
    struct sl_machine *machine = bench->machine;
    for (int type = 0; type < 2; type++) {
        if (!sl_gemm_supports(bench->gemm, type ? SL_BF16 : SL_F32)) continue;
        for (int way = 0; way < 3; way++)
            for (int r = 0; r < 6; r++)
                for (int w = 0; w < 9; w += bench->measurement->brief ? 2 : 1) {
                    const int other = widths[w / 3], width = widths[w % 3];
                    struct sl_machine_product *product = &machine->product[machine->products++];
                    *product = (struct sl_machine_product){.type = type ? SL_BF16 : SL_F32,
                                                           .m = way == 2 ? other : rows[r],
                                                           .n = width,
                                                           .k = way == 2 ? rows[r] : other,
                                                           .a_transposed = way == 2,
                                                           .b_transposed = way == 1};
                }
    }
}

static void add_products(struct bench *bench) {
    const struct sl_measurement *measurement = bench->measurement;
    struct sl_machine *machine = bench->machine;
    for (int i = 0; i < measurement->products && machine->products < SL_MACHINE_PRODUCTS; i++) {
        const struct sl_machine_product *x = &measurement->product[i];
        const double a = (double)x->m * x->k, b = (double)x->k * x->n, c = (double)x->m * x->n;
        if (a <= POOL && b <= POOL && c <= POOL && sl_gemm_supports(bench->gemm, x->type))
            machine->product[machine->products++] = *x;
    }
}

/* ---- kernels ---- */

enum { NARROW = 32, WIDE = 64 }; /* widths of heads */
enum { ATTENDED = 256 /* queries, and columns of all heads */, ATTENDED_FLOATS = ATTENDED * ATTENDED };

static struct sl_attention attention_of(size_t width) {
    return (struct sl_attention){.sequences = 1,
                                 .queries = ATTENDED,
                                 .key_rows = ATTENDED,
                                 .heads = ATTENDED / width,
                                 .width = width,
                                 .key_stride = 2 * ATTENDED};
}

/* Runs forward and backward of heads of WIDTH, as in training; returns the multiply-adds of their seven products. */
static double run_attention(struct bench *bench, const struct sl_attention_kernels *kernels, size_t width) {
    const struct sl_attention shape = attention_of(width);
    float *q = part(bench, bench->a, KERNEL_FLOATS), *d_o = q + ATTENDED_FLOATS, *dq = d_o + ATTENDED_FLOATS;
    float *kv = part(bench, bench->b, KERNEL_FLOATS), *dkv = kv + 2 * ATTENDED_FLOATS;
    float *o = part(bench, bench->c, KERNEL_FLOATS), *logsum = o + ATTENDED_FLOATS;
    kernels->forward(&shape, q, NULL, kv, kv + ATTENDED, NULL, sl_out_f32(o), logsum);
    kernels->backward(&shape, q, NULL, kv, kv + ATTENDED, NULL, o, logsum, d_o, sl_out_f32(dq), NULL, sl_out_f32(dkv),
                      sl_out_f32(dkv + ATTENDED), NULL, bench->scratch);
    return (double)ATTENDED * (ATTENDED + 1) / 2 * 7 * ATTENDED;
}

/* Runs a kernel of KIND once; returns its number of elements. */
static double run_kernel(struct bench *bench, const struct sl_kernels *kernels, int kind) {
    enum { ROWS = 512, COLUMNS = KERNEL_FLOATS / ROWS };
    float *x = part(bench, bench->a, KERNEL_FLOATS), *y = part(bench, bench->b, KERNEL_FLOATS);
    float *rows = bench->c + POOL - 8 * ROWS;
    const struct sl_sequence_kernels *sequence = kernels->sequence;
    const struct sl_adamw_step step = {1e-3f,  0.9f, 0.999f, 1e-8f, 0.01f, 0.1f,
                                       0.001f, 0.1f, 0.001f, 1.0f,  false, NULL};
    switch (kind) {
    case SL_MACHINE_MOVES:
        kernels->add(KERNEL_FLOATS, x, y);
        return 3.0 * KERNEL_FLOATS;
    case SL_MACHINE_NORMS:
        kernels->norms->square_sums(ROWS, COLUMNS, x, rows);
        kernels->norms->rms_norm_forward(ROWS, COLUMNS, COLUMNS, sl_rows_f32(x), rows, bench->b, bench->b, 1e-6f,
                                         rows + ROWS, sl_out_f32(y));
        return KERNEL_FLOATS;
    case SL_MACHINE_GELU:
        sequence->gelu_forward(KERNEL_FLOATS, sl_rows_f32(x), NULL, sl_out_f32(y));
        return KERNEL_FLOATS;
    case SL_MACHINE_SOFTMAX:
        sequence->softmax_chunk(ROWS, COLUMNS, 0, x, (const int32_t *)(const void *)(bench->c + POOL - 16 * ROWS), true,
                                rows, rows + ROWS, rows + 2 * ROWS, rows + 3 * ROWS, rows + 4 * ROWS, sl_out_f32(y));
        return KERNEL_FLOATS;
    case SL_MACHINE_DROPOUT:
        /* Random words may be any float, so they are not written where kernels read floats or labels. */
        kernels->draws->words(sl_key_of_seed(1), KERNEL_FLOATS, (uint32_t *)(void *)bench->c);
        return KERNEL_FLOATS;
    case SL_MACHINE_OPTIMIZER:
        kernels->adamw(NEAR_FLOATS, &step, bench->a, NULL, bench->b, NULL, bench->c, bench->c + NEAR_FLOATS);
        return NEAR_FLOATS;
    default: /* attention */
        return run_attention(bench, kernels->attention, NARROW) + run_attention(bench, kernels->attention, WIDE);
    }
}

static int run_kind(struct bench *bench, void *what, double *elements) {
    *elements = run_kernel(bench, sl_kernels_select(), *(const int *)what);
    return SL_OK;
}

/* ---- memory ---- */

struct stretch {
    float *x, *y; /* half of a size each */
    size_t count; /* floats of each */
};

static int go_over(struct bench *bench, void *what, double *bytes) {
    const struct stretch *stretch = what;
    (void)bench;
    sl_kernels_select()->add(stretch->count, stretch->x, stretch->y);
    *bytes = 3 * (double)(stretch->count * sizeof(float));
    return SL_OK;
}

/* Times memory of sizes from a place's own caches to far beyond any cache. */
static int time_memory(struct bench *bench) {
    enum { FIRST = 1 << 17, LAST = 1 << 25 };
    double each[SL_MACHINE_SIZES][ROUNDS];
    struct sl_machine *machine = bench->machine;
    struct stretch all = {sl_device.take(LAST / 2 * sizeof(float)), sl_device.take(LAST / 2 * sizeof(float)), LAST / 2};
    int status = all.x && all.y ? SL_OK : sl_fail(bench->self, SL_FAILED, "no memory to measure this machine");
    if (status == SL_OK) {
        sl_kernels_select()->fill(all.count, 0.5f, all.x);
        sl_kernels_select()->fill(all.count, 0.25f, all.y);
    }
    machine->sizes = 0;
    for (int round = 0; round < ROUNDS && status == SL_OK; round++)
        for (size_t size = FIRST, i = 0; size <= LAST && status == SL_OK; size *= 2, i++) {
            struct stretch part = {all.x, all.y, size / 2};
            status = time_work(bench, go_over, &part, &each[i][round]);
        }
    for (size_t size = FIRST; size <= LAST && status == SL_OK; size *= 2) {
        const double bandwidth = 1 / sl_median_of(each[machine->sizes], ROUNDS);
        machine->memory[machine->sizes++] = (struct sl_machine_memory){(double)(size * sizeof(float)), bandwidth};
    }
    sl_device.give(all.x);
    sl_device.give(all.y);
    return status;
}

/* ---- places ---- */

/* Returns the speed of place number PLACE relative to the first: the median over the work of both; RATIO [count] is
 * scratch. */
static double speed_of(const float *seconds, int count, int place, double *ratio) {
    const float *own = seconds + (size_t)place * (size_t)count;
    int known = 0;
    for (int i = 0; i < count; i++)
        if (own[i] > 0 && seconds[i] > 0) ratio[known++] = (double)seconds[i] / own[i];
    return known ? sl_median_of(ratio, known) : 1;
}

void sl_machine_compare_places(struct sl_machine *machine, const float *seconds, int count) {
    static const double alike = 0.02;
    struct sl_machine_nodes *nodes = &machine->nodes[0];
    double ratio[SL_MACHINE_PRODUCTS], least = 1, most = 1;
    for (int i = 0; i < nodes->places && i < SL_MACHINE_SPEEDS; i++) {
        nodes->speeds[i] = speed_of(seconds, count, i, ratio);
        least = fmin(least, nodes->speeds[i]);
        most = fmax(most, nodes->speeds[i]);
    }
    if (most / least < 1 + alike) memset(nodes->speeds, 0, sizeof nodes->speeds);
}

/* Compares places by COUNT timed products: gathers all times at the first place. Does nothing for several nodes. */
static int compare_places(struct bench *bench, int count) {
    const struct sl_machine *machine = bench->machine;
    float *own = bench->least + (size_t)bench->self->coordinate * (size_t)count;
    for (int i = 0; i < count; i++) {
        own[i] = (float)bench->seconds[i][0];
        for (int round = 1; round < ROUNDS; round++) own[i] = fminf(own[i], (float)bench->seconds[i][round]);
    }
    SL_TRY(sl_gather_records(bench->self, bench->least, (size_t)count * sizeof *own));
    if (bench->self->coordinate == 0 && machine->kinds == 1 && machine->nodes[0].count == 1)
        sl_machine_compare_places(bench->machine, bench->least, count);
    return SL_OK;
}

/* ---- the whole measurement ---- */

static int open_pools(struct bench *bench) {
    float **const pool[] = {&bench->a, &bench->b, &bench->c};
    const struct sl_kernels *kernels = sl_kernels_select();
    for (int i = 0; i < 3; i++) {
        *pool[i] = sl_device.take(POOL * sizeof(float));
        if (!*pool[i]) return sl_fail(bench->self, SL_FAILED, "no memory to measure this machine");
        kernels->fill(POOL, i == 0 ? 0.5f : 0.25f, *pool[i]);
    }
    const struct sl_attention narrow = attention_of(NARROW), wide = attention_of(WIDE);
    const size_t one = kernels->attention->scratch(&narrow), other = kernels->attention->scratch(&wide);
    bench->scratch = sl_device.take(one > other ? one : other);
    if (!bench->scratch) return sl_fail(bench->self, SL_FAILED, "no memory to measure this machine");
    sl_device.zero(bench->c + POOL - 16 * 512, 8 * 512 * sizeof(float)); /* labels */
    return sl_device.settle(&bench->self->error);
}

static int time_all(struct bench *bench) {
    struct sl_machine *machine = bench->machine;
    const int kernels = SL_MACHINE_KERNELS + 1;
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < machine->products; i++)
            SL_TRY(time_product(bench, &machine->product[i], &bench->seconds[i][round]));
        for (int k = 0; k < kernels; k++)
            SL_TRY(time_work(bench, run_kind, &k, &bench->seconds[SL_MACHINE_PRODUCTS + k][round]));
        SL_TRY(sl_progress(bench->self));
    }
    const int timed = machine->products;
    int known = 0;
    for (int i = 0; i < timed; i++) {
        const double seconds = sl_median_of(bench->seconds[i], ROUNDS);
        if (!(seconds > 0)) continue;
        machine->product[known] = machine->product[i];
        machine->product[known].gflops = 1e-9 * operations(&machine->product[i]) / seconds;
        known++;
    }
    machine->products = known;
    for (int k = 0; k < kernels; k++) {
        const double each = sl_median_of(bench->seconds[SL_MACHINE_PRODUCTS + k], ROUNDS);
        if (k < SL_MACHINE_KERNELS)
            machine->kernel[k] = each;
        else
            machine->attention = 1 / each;
    }
    SL_TRY(time_memory(bench));
    SL_TRY(sl_progress(bench->self));
    SL_TRY(sl_measure_links(bench->self, bench->gemm, machine));
    if (bench->self->engine->table->apart) SL_TRY(sl_measure_pairs(bench->self, &bench->world, machine));
    return compare_places(bench, timed);
}

struct run {
    struct sl_machine *machine;
    const struct sl_measurement *measurement;
    const struct sl_gemm_backend *gemm;
    float *least; /* [coordinates][products] */
};

/* Runs in all coordinates; the first one's results count. */
static int program(struct sl_spmd *self, void *arg) {
    const struct run *run = arg;
    struct bench *bench = calloc(1, sizeof *bench);
    struct sl_machine *own = calloc(1, sizeof *own);
    int status = bench && own ? SL_OK : sl_fail(self, SL_FAILED, "no memory to measure this machine");
    if (status == SL_OK) {
        *own = *run->machine;
        *bench = (struct bench){.machine = own,
                                .measurement = run->measurement,
                                .gemm = run->gemm,
                                .self = self,
                                .least = run->least,
                                .timing = run->measurement->brief ? short_timing : long_timing};
        status = sl_group_axes(self, "*", &bench->world);
    }
    if (status == SL_OK) {
        add_grid(bench);
        add_products(bench);
        status = open_pools(bench);
    }
    if (status == SL_OK) status = time_all(bench);
    if (status == SL_OK) status = sl_barrier(self, &bench->world);
    if (status == SL_OK && self->device >= 0 && !self->engine->table->apart) own->nodes[0].gpus = self->mesh->size;
    if (status == SL_OK && self->coordinate == 0) *run->machine = *own;
    if (bench) {
        sl_device.give(bench->a);
        sl_device.give(bench->b);
        sl_device.give(bench->c);
        sl_device.give(bench->scratch);
    }
    free(bench);
    free(own);
    return status;
}

int sl_machine_measure(struct sl_machine *machine, const struct sl_engine *engine,
                       const struct sl_measurement *measurement, struct sl_error *error) {
    const bool apart = engine->table->apart;
    const int cores = apart ? sl_launch_of_process().processes : sl_cores_of(engine), most = cores > 0 ? cores : 1;
    const int places = most < SL_MACHINE_SPEEDS ? most : SL_MACHINE_SPEEDS;
    struct sl_engine own = *engine;
    struct run run = {machine, measurement, measurement->gemm ? measurement->gemm : sl_gemm_find(NULL, error), NULL};
    struct sl_mesh mesh = {.axes = 1, .axis[0] = {.name = "data", .size = places}, .size = places};
    if (!run.gemm) return error->status;
    *machine = (struct sl_machine){.name = "this machine", .kinds = 1, .far = SL_MACHINE_FAR, .action = 1e-6};
    machine->nodes[0] = (struct sl_machine_nodes){.count = 1, .places = places, .shares = !apart, .speed = 1};
    own.error = error;
    own.delay = 0;
    run.least = calloc((size_t)places * SL_MACHINE_PRODUCTS, sizeof *run.least);
    if (!run.least) return sl_error_set(error, SL_FAILED, "no memory to measure this machine");
    const int status = sl_run(&mesh, &own, program, &run);
    free(run.least);
    SL_TRY(status);
    return apart ? SL_OK : sl_measure_sharing(&own, run.gemm, places, run.measurement->brief, machine);
}
