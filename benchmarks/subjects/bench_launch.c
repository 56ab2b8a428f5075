/* bench_launch.c - cost of starting work on a device: a target region, also as one of a graph, and a product and the
 * wait for it. Prints one JSON object. */
#include <stdio.h>
#include <stdlib.h>

#include "benchmarks/measure.h"
#include "layers/kernels/gemm/gemm.h"
#include "layers/kernels/kernels.h"
#include "spmd/base/cpu_level.h"
#include "spmd/device/device.h"

enum { ROUNDS = 200, AT_ONCE = 20, IN_A_STEP = 1000, SIZE = 64 };

struct bench {
    const struct sl_kernels *kernels;
    struct sl_gemm gemm;
    float *memory; /* [3 * SIZE * SIZE] */
};

static int region(struct bench *bench) {
    bench->kernels->fill(1, 1.0f, bench->memory);
    return SL_OK;
}

static int product(struct bench *bench) {
    const float *a = bench->memory, *b = a + SIZE * SIZE;
    return sl_gemm_execute(&bench->gemm,
                           sl_gemm_floats(&bench->gemm, 1, a, b, NULL, false, bench->memory + 2 * SIZE * SIZE), NULL);
}

static int product_and_wait(struct bench *bench) {
    SL_TRY(product(bench));
    return sl_device.settle(NULL);
}

/* Returns the median microseconds of a call. The wait for its work in the queue is not timed. */
static double measure(struct bench *bench, int (*work)(struct bench *bench)) {
    double us[ROUNDS];
    for (int round = 0; round < ROUNDS; round++) {
        const double began = sl_now();
        for (int i = 0; i < AT_ONCE; i++)
            if (work(bench)) exit(SL_FAILED);
        us[round] = 1e6 * (sl_now() - began) / AT_ONCE;
        sl_device.settle(NULL);
    }
    return sl_median(ROUNDS, us);
}

/* The host's and the device's median microseconds of a region, as one of IN_A_STEP: by itself, or in graphs. */
static void measure_steps(struct bench *bench, enum sl_graphs graphs, double *host, double *device) {
    double enqueued[ROUNDS], done[ROUNDS];
    for (int round = 0; round < ROUNDS; round++) {
        const double began = sl_now();
        sl_device.begin_step(graphs ? bench : NULL, graphs);
        for (int i = 0; i < IN_A_STEP; i++) region(bench);
        sl_device.end_step();
        enqueued[round] = 1e6 * (sl_now() - began) / IN_A_STEP;
        sl_device.settle(NULL);
        done[round] = 1e6 * (sl_now() - began) / IN_A_STEP;
    }
    *host = sl_median(ROUNDS, enqueued);
    *device = sl_median(ROUNDS, done);
}

static void print_steps(struct bench *bench) {
    double host, device;
    measure_steps(bench, SL_GRAPHS_OFF, &host, &device);
    printf("\"step_region_us\":%.9g,\"step_region_done_us\":%.9g,", host, device);
    if (!sl_device.report_graphs) return;
    measure_steps(bench, SL_GRAPHS_AUTO, &host, &device);
    struct sl_graph_report report;
    sl_device.report_graphs(&report);
    printf("\"graph_region_us\":%.9g,\"graph_region_done_us\":%.9g,\"graphs\":%d,", host, device, report.graphs);
}

int main(void) {
    struct sl_error error = {0};
    struct bench bench = {.kernels = sl_kernels_select()};
    const struct sl_gemm_backend *backend = sl_gemm_find(NULL, &error);
    int status = backend ? sl_device.check(&error) : error.status;
    if (!status) status = sl_cpu_level_check(&error);
    if (!status)
        status = sl_gemm_plan(&bench.gemm, backend, SL_F32, SIZE, SIZE, SIZE, false, false, SL_EPILOGUE_NONE, &error);
    if (status) {
        fprintf(stderr, "bench_launch: %s\n", error.message);
        return status;
    }
    bench.memory = sl_device.take(3 * SIZE * SIZE * sizeof *bench.memory);
    if (!bench.memory) return SL_FAILED;
    measure(&bench, region);
    printf("{\"benchmark\":\"launch\",\"device\":\"%s\",\"region_us\":%.9g,", sl_device.name, measure(&bench, region));
    print_steps(&bench);
    measure(&bench, product);
    printf("\"product_us\":%.9g,\"product_and_wait_us\":%.9g}\n", measure(&bench, product),
           measure(&bench, product_and_wait));
    sl_gemm_release(&bench.gemm);
    sl_device.give(bench.memory);
    return SL_OK;
}
