/* floor.c - the least time that this machine needs for a training step. */
#include "benchmarks/floor.h"

#include <stdio.h>

#include "spmd/base/numbers/bf16.h"
#include "spmd/device/device.h"
#include "spmd/base/memory.h"

/* Elements of each of the stream's arrays, at most: larger than any cache. */
enum { MAX_ELEMENTS = 1 << 26 };

static void add_product(struct sl_floor *floor, int m, int n, int k, char transposed, double count) {
    const struct sl_product new = {
        .m = m, .n = n, .k = k, .transpose_a = transposed == 'A', .transpose_b = transposed == 'B', .count = count};
    for (int i = 0; i < floor->products; i++) {
        const struct sl_product *old = &floor->product[i];
        if (old->m == new.m && old->n == new.n && old->k == new.k && old->transpose_a == new.transpose_a &&
            old->transpose_b == new.transpose_b) {
            floor->product[i].count += new.count;
            return;
        }
    }
    floor->product[floor->products++] = new;
}

void sl_floor_add_dense(struct sl_floor *floor, int layers, int in, int out, int batch, int local, int rows, int group,
                        bool input_gradient) {
    const double microbatches = (double)layers * batch / rows, groups = (double)layers * batch / group;
    add_product(floor, rows, out, in, 0, microbatches);
    if (input_gradient) add_product(floor, rows, in, out, 'B', microbatches);
    add_product(floor, in, out, group, 'A', groups);
    if (!floor->devices) {
        add_product(floor, in, out, local, 'A', 0);
        add_product(floor, local, out, in, 0, 0);
        if (input_gradient) add_product(floor, local, in, out, 'B', 0);
    }
    floor->flops += (input_gradient ? 3.0 : 2.0) * 2.0 * layers * in * (double)out * batch;
}

/* C, then A, then B; a whole number of cache lines. */
static size_t bytes_of(const struct sl_floor *floor, const struct sl_product *product) {
    const size_t m = (size_t)product->m, n = (size_t)product->n, k = (size_t)product->k;
    return sl_round_up(m * n * sizeof(float) + (m * k + k * n) * sl_dtype_size(floor->precision), SL_CACHE_LINE);
}

static int fill(const struct sl_floor *floor, size_t bytes) {
    void *values = sl_memory_take(bytes);
    float *floats = values;
    uint16_t *halves = values;
    if (!values) return SL_FAILED;
    for (size_t i = 0; i < bytes / sl_dtype_size(floor->precision); i++) {
        const float value = 1e-3f * (float)(i % 31);
        if (floor->precision == SL_BF16)
            halves[i] = sl_bf16_of_float(value);
        else
            floats[i] = value;
    }
    sl_device.copy(floor->operands, values, bytes);
    sl_memory_give(values);
    return SL_OK;
}

static int plan(struct sl_floor *floor, int i, struct sl_error *error) {
    const struct sl_product *p = &floor->product[i];
    const struct sl_gemm_backend *backend[SL_FLOOR_BACKENDS] = {floor->backend};
    if (floor->backend == &sl_gemm_cpu && sl_gemm_supports(&sl_gemm_onednn, floor->precision))
        backend[1] = &sl_gemm_onednn;
    for (int b = 0; b < SL_FLOOR_BACKENDS && backend[b]; b++)
        SL_TRY(sl_gemm_plan(&floor->gemm[i][b], backend[b], floor->precision, p->m, p->n, p->k, p->transpose_a,
                            p->transpose_b, SL_EPILOGUE_NONE, error));
    return SL_OK;
}

static int open_products(struct sl_floor *floor, struct sl_error *error) {
    for (int i = 0; i < floor->products; i++) {
        SL_TRY(plan(floor, i, error));
        const size_t bytes = bytes_of(floor, &floor->product[i]);
        if (bytes > floor->operand_bytes) floor->operand_bytes = bytes;
    }
    const size_t bytes = floor->operand_bytes * (size_t)(floor->devices ? 1 : floor->cores->count);
    floor->operands = sl_device.take(bytes);
    if (!floor->operands || fill(floor, bytes))
        return sl_error_set(error, SL_FAILED, "no memory for %zu bytes of operands", bytes);
    return SL_OK;
}

static int open_device_stream(struct sl_floor *floor, size_t elements, struct sl_error *error) {
    floor->stream.elements = elements;
    floor->stream.memory = sl_device.take(2 * elements * sizeof *floor->stream.memory);
    return floor->stream.memory ? SL_OK : sl_error_set(error, SL_FAILED, "no memory to measure its bandwidth");
}

void sl_floor_add_classifier(struct sl_floor *floor, const struct sl_classifier *classifier, int batch, int data,
                             int rows) {
    const int hidden = classifier->hidden, inside = hidden * classifier->expansion, local = batch / data;
    floor->parameters = (double)sl_classifier_parameters(classifier);
    sl_floor_add_dense(floor, 1, classifier->inputs, hidden, batch, local, rows, local, false);
    sl_floor_add_dense(floor, classifier->layers, hidden, inside, batch, local, rows, local, true);
    sl_floor_add_dense(floor, classifier->layers, inside, hidden, batch, local, rows, local, true);
    sl_floor_add_dense(floor, 1, hidden, classifier->classes, batch, local, rows, local, true);
}

int sl_floor_open(struct sl_floor *floor, struct sl_error *error) {
    SL_TRY(open_products(floor, error));
    const size_t streamed = floor->parameters < MAX_ELEMENTS ? (size_t)floor->parameters : MAX_ELEMENTS;
    if (floor->devices) return open_device_stream(floor, streamed, error);
    floor->fma = sl_fma_loop_select(floor->precision);
    if (sl_stream_open(&floor->stream, floor->cores, streamed, floor->seconds))
        return sl_error_set(error, SL_FAILED, "the memory's bandwidth cannot be measured: no memory, or no threads");
    return SL_OK;
}

static double multiply_on_core(void *arg, int i) {
    const struct sl_floor *floor = arg;
    const struct sl_gemm *gemm = floor->measured;
    const size_t m = (size_t)gemm->m, n = (size_t)gemm->n, k = (size_t)gemm->k;
    char *block = floor->operands + floor->operand_bytes * (size_t)i;
    float *c = (float *)(void *)block;
    const char *a = block + m * n * sizeof *c, *b = a + m * k * sl_dtype_size(floor->precision);
    const double began = sl_now();
    double products = 0, elapsed;
    do {
        if (sl_gemm_execute(gemm, sl_gemm_floats(gemm, 1, a, b, NULL, false, c), NULL)) return 0;
        products++;
        elapsed = sl_now() - began;
    } while (elapsed < floor->seconds);
    return products * 2.0 * (double)m * (double)n * (double)k / elapsed;
}

/* ---- on a device: work is enqueued, and the queue waited for ---- */

enum { AT_ONCE = 20 }; /* pieces of work between two looks at the clock */

static double multiply_on_device(struct sl_floor *floor) {
    const struct sl_gemm *gemm = floor->measured;
    const size_t m = (size_t)gemm->m, n = (size_t)gemm->n, k = (size_t)gemm->k;
    float *c = (float *)(void *)floor->operands;
    const char *a = floor->operands + m * n * sizeof *c, *b = a + m * k * sl_dtype_size(floor->precision);
    double products = 0, elapsed;
    sl_gemm_execute(gemm, sl_gemm_floats(gemm, 1, a, b, NULL, false, c), NULL); /* first call: warms up */
    sl_device.settle(NULL);
    const double began = sl_now();
    do {
        for (int i = 0; i < AT_ONCE; i++)
            if (sl_gemm_execute(gemm, sl_gemm_floats(gemm, 1, a, b, NULL, false, c), NULL)) return 0;
        if (sl_device.settle(NULL)) return 0;
        products += AT_ONCE;
        elapsed = sl_now() - began;
    } while (elapsed < floor->seconds);
    return products * 2.0 * (double)m * (double)n * (double)k / elapsed * floor->devices;
}

static double stream_on_device(struct sl_floor *floor) {
    const size_t bytes = floor->stream.elements * sizeof *floor->stream.memory;
    double copies = 0, elapsed;
    sl_device.settle(NULL);
    const double began = sl_now();
    do {
        for (int i = 0; i < AT_ONCE; i++)
            sl_device.copy(floor->stream.memory, floor->stream.memory + floor->stream.elements, bytes);
        if (sl_device.settle(NULL)) return 0;
        copies += AT_ONCE;
        elapsed = sl_now() - began;
    } while (elapsed < floor->seconds);
    return copies * 2.0 * (double)bytes / elapsed * floor->devices;
}

/* ---- the whole floor ---- */

/* Returns whether to measure the shape again: not if it was once far from the best rate; on devices always, because
 * each product counts by itself. */
static bool may_be_best(const struct sl_floor *floor, const struct sl_product *product) {
    const double rate = product->flops_per_second;
    return floor->devices || rate == 0 || rate > 0.8 * floor->best.flops;
}

static int measure_product(struct sl_floor *floor, int i, struct sl_error *error) {
    struct sl_product *product = &floor->product[i];
    if (!may_be_best(floor, product)) return SL_OK;
    for (int b = 0; b < SL_FLOOR_BACKENDS && floor->gemm[i][b].backend; b++) {
        floor->measured = &floor->gemm[i][b];
        const double rate =
            floor->devices ? multiply_on_device(floor) : sl_on_all_cores(floor->cores, multiply_on_core, floor);
        if (rate <= 0) return sl_error_set(error, SL_FAILED, "the floor's products cannot be run");
        if (rate > floor->last.flops) floor->last.flops = rate;
        if (rate <= product->flops_per_second) continue;
        product->flops_per_second = rate;
        product->by = floor->measured->backend;
    }
    return SL_OK;
}

static double add_on_core(void *arg, int i) {
    const struct sl_floor *floor = arg;
    (void)i;
    return sl_fma_loop_measure(floor->fma, floor->seconds);
}

static void measure_theory(struct sl_floor *floor) {
    if (floor->devices) {
        floor->best.read = floor->best.bytes;
        return;
    }
    floor->last.read = sl_stream_read(&floor->stream, (size_t)(floor->read_bytes / sizeof(float)));
    if (floor->last.read > floor->best.read) floor->best.read = floor->last.read;
    if (!floor->fma) return;
    const double rate = sl_on_all_cores(floor->cores, add_on_core, floor);
    if (rate > floor->fma_per_second) floor->fma_per_second = rate;
    if (floor->least_fma == 0 || rate < floor->least_fma) floor->least_fma = rate;
}

int sl_floor_measure(struct sl_floor *floor, struct sl_error *error) {
    floor->last = (struct sl_floor_rates){0};
    for (int i = 0; i < floor->products; i++) SL_TRY(measure_product(floor, i, error));
    const double bandwidth = floor->devices ? stream_on_device(floor) : sl_stream_measure(&floor->stream);
    if (bandwidth <= 0) return sl_error_set(error, SL_FAILED, "the memory's bandwidth cannot be measured: no threads");
    floor->last.bytes = floor->last.read = bandwidth;
    if (floor->last.flops > floor->best.flops) floor->best.flops = floor->last.flops;
    if (bandwidth > floor->best.bytes) floor->best.bytes = bandwidth;
    measure_theory(floor);
    return SL_OK;
}

void sl_floor_close(struct sl_floor *floor) {
    for (int i = 0; i < floor->products; i++) {
        for (int b = 0; b < SL_FLOOR_BACKENDS; b++) sl_gemm_release(&floor->gemm[i][b]);
    }
    sl_device.give(floor->operands);
    if (floor->devices)
        sl_device.give(floor->stream.memory);
    else
        sl_stream_close(&floor->stream);
}

const struct sl_product *sl_floor_best(const struct sl_floor *floor) {
    const struct sl_product *best = floor->product;
    for (int i = 1; i < floor->products; i++)
        if (floor->product[i].flops_per_second > best->flops_per_second) best = &floor->product[i];
    return best;
}

double sl_floor_products_ms(const struct sl_floor *floor) { return 1e3 * floor->flops / floor->best.flops; }

double sl_floor_library_ms(const struct sl_floor *floor) {
    double seconds = 0;
    for (int i = 0; i < floor->products; i++) {
        const struct sl_product *p = &floor->product[i];
        seconds += p->count * 2.0 * p->m * (double)p->n * p->k / p->flops_per_second;
    }
    return 1e3 * seconds;
}

double sl_floor_optimizer_ms(const struct sl_floor *floor) {
    return 1e3 * SL_STREAM_BYTES * floor->parameters / floor->best.bytes;
}

double sl_floor_step_ms(const struct sl_floor *floor, struct sl_floor_rates rates) {
    return 1e3 * (floor->flops / rates.flops + SL_STREAM_BYTES * floor->parameters / rates.bytes);
}

double sl_floor_theory_ms(const struct sl_floor *floor, double flops) {
    const bool bounds = floor->fma_per_second * 1.05 > floor->best.flops;
    return bounds ? 1e3 * flops / floor->fma_per_second : 0;
}

void sl_floor_print(const struct sl_floor *floor) {
    const struct sl_product *best = sl_floor_best(floor);
    printf("\"gflops_peak\":%.9g,\"peak_by\":\"%s, %d x %d x %d%s\",\"bandwidth_gbs\":%.9g,", 1e-9 * floor->best.flops,
           best->by ? best->by->name : "", best->m, best->n, best->k,
           best->transpose_a   ? ", A transposed"
           : best->transpose_b ? ", B transposed"
                               : "",
           1e-9 * floor->best.bytes);
    if (floor->fma)
        printf("\"level\":\"%s\",\"fma_gflops\":%.9g,\"fma_gflops_min\":%.9g,", floor->fma->level,
               1e-9 * floor->fma_per_second, 1e-9 * floor->least_fma);
    if (!floor->devices) printf("\"read_gbs\":%.9g,", 1e-9 * floor->best.read);
}
