/* peak_measure.c - times square products of a fixed size on every core at once; the best of several rounds counts. */
#include "drivers/training/peak_measure.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "spmd/device/device.h"

enum { ROUNDS = 8, SMALLEST = 64, LARGEST = 1024, LARGEST_ON_DEVICE = 4096 };
/* Seconds: minimal time of a large enough product, and of a round. */
static const double long_product = 4e-3, long_round = 0.03;

/* Products of N x N matrices. */
struct products {
    int n;
    struct sl_gemm gemm;
    char *room;
};

static void close_products(struct products *products) {
    sl_device.give(products->room);
    if (products->room) sl_gemm_release(&products->gemm);
    *products = (struct products){0};
}

static int open_products(struct products *products, struct sl_worker *worker, int n) {
    const struct sl_job *job = worker->job;
    const size_t square = (size_t)n * (size_t)n, size = sl_dtype_size(job->precision);
    products->n = n;
    SL_TRY(sl_gemm_plan(&products->gemm, job->gemm, job->precision, n, n, n, false, false, SL_EPILOGUE_NONE,
                        &worker->self->error));
    products->room = sl_device.take(square * (sizeof(float) + 2 * size));
    if (products->room) return SL_OK;
    sl_gemm_release(&products->gemm);
    return sl_fail(worker->self, SL_FAILED, "no memory to measure products");
}

/* Multiplies for SECONDS, at least once; writes the speed to *RATE. */
static int multiply(const struct products *products, struct sl_spmd *self, double seconds, double *rate) {
    const size_t square = (size_t)products->n * (size_t)products->n;
    const char *a = products->room + square * sizeof(float), *b = a + square * sl_dtype_size(products->gemm.dtype);
    const double began = sl_now();
    double count = 0, elapsed;
    do {
        SL_TRY(sl_gemm_execute(&products->gemm,
                               sl_gemm_floats(&products->gemm, 1, a, b, NULL, false, (float *)(void *)products->room),
                               self->queue));
        SL_TRY(sl_device.settle(&self->error));
        count++;
        elapsed = sl_now() - began;
    } while (elapsed < seconds);
    *rate = count * 2 * (double)square * products->n / elapsed;
    return SL_OK;
}

/* Grows the matrices until a product takes long enough: a build without fast products then does not run for long.
 * The first product of a size touches memory and generates code. */
static int choose_size(struct products *products, struct sl_worker *worker) {
    const int largest = strcmp(sl_device.name, "cpu") != 0 ? LARGEST_ON_DEVICE : LARGEST;
    double rate;
    for (int n = SMALLEST;; n *= 2) {
        SL_TRY(open_products(products, worker, n));
        SL_TRY(multiply(products, worker->self, 0, &rate));
        SL_TRY(multiply(products, worker->self, 0, &rate));
        if (n == largest || 2.0 * n * n * n / rate >= long_product) return SL_OK;
        close_products(products);
    }
}

/* Runs the rounds; all coordinates begin them together. */
static int run_rounds(const struct products *products, struct sl_worker *worker, bool works, double *best) {
    struct sl_spmd *self = worker->self;
    const struct sl_group *world = sl_trainer_world(worker->trainer);
    *best = 0;
    for (int round = 0; round < ROUNDS; round++) {
        double rate = 0;
        SL_TRY(sl_barrier(self, world));
        if (works) SL_TRY(multiply(products, self, long_round, &rate));
        float sum = (float)rate;
        SL_TRY(sl_psum(self, world, SL_F32, &sum, &sum, 1));
        if ((double)sum > *best) *best = (double)sum;
    }
    return SL_OK;
}

static int cores_at_work(const struct sl_job *job) {
    return job->cores > 0 && job->cores < job->mesh.size ? job->cores : job->mesh.size;
}

static int measure(struct sl_worker *worker, double *best) {
    struct products products = {0};
    const bool works = worker->self->coordinate < cores_at_work(worker->job);
    int status = works ? choose_size(&products, worker) : SL_OK;
    if (status == SL_OK) status = run_rounds(&products, worker, works, best);
    close_products(&products);
    return status;
}

/* ---- the file ---- */

/* Prints a remark, except about missing memory: the run then fails with a message of its own, or does not need the
 * memory. */
static void remark(const struct sl_error *error, const char *consequence) {
    if (errno == ENOMEM) return;
    fprintf(stderr, "%s: %s: %s\n", program_invocation_short_name, error->message, consequence);
}

static struct sl_peak_key key_of(const struct sl_job *job) {
    char library[80];
    sl_gemm_describe(job->gemm, library, sizeof library);
    return sl_peak_key(library, sl_dtypes[job->precision].name, cores_at_work(job), job->cores);
}

static void read_peak(const struct sl_job *job, struct sl_peak *peak) {
    char path[SL_MAX_PATH];
    struct sl_error error = {0};
    const struct sl_peak_key key = key_of(job);
    if (sl_peak_path(path) && sl_peak_read(path, &key, peak, &error))
        remark(&error, "what products reach is measured for this run");
}

static void keep_peak(const struct sl_job *job, const struct sl_peak *peak) {
    char path[SL_MAX_PATH];
    struct sl_error error = {0};
    const struct sl_peak_key key = key_of(job);
    if (sl_peak_path(path) && sl_peak_write(path, &key, peak, &error))
        remark(&error, "what products reach is not kept for other runs");
}

/* Sets PEAK to today's measurement. */
static void take_peak(const struct sl_job *job, double flops, struct sl_peak *peak) {
    peak->flops = flops;
    sl_peak_date(peak->date);
    keep_peak(job, peak);
}

int sl_peak_find(struct sl_worker *worker, bool anew, struct sl_peak *peak) {
    struct sl_spmd *self = worker->self;
    const bool speaks = self->coordinate == 0;
    double best;
    if (speaks) *peak = (struct sl_peak){0};
    if (speaks && !anew) read_peak(worker->job, peak);
    float known = speaks && peak->flops > 0 ? 1 : 0;
    SL_TRY(sl_psum(self, sl_trainer_world(worker->trainer), SL_F32, &known, &known, 1));
    if (known > 0) return SL_OK;
    SL_TRY(measure(worker, &best));
    if (speaks) take_peak(worker->job, best, peak);
    return SL_OK;
}

int sl_peak_raise(struct sl_worker *worker, struct sl_peak *peak) {
    double best;
    SL_TRY(measure(worker, &best));
    if (worker->self->coordinate == 0 && best > peak->flops) take_peak(worker->job, best, peak);
    return SL_OK;
}
