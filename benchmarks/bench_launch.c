/* bench_launch.c - what it costs to start work on a device: a target region, and a product and the wait for it. Prints
 * one JSON object. */
#include <stdio.h>
#include <stdlib.h>

#include "benchmarks/measure.h"
#include "layers/kernels/gemm.h"
#include "layers/kernels/kernels.h"
#include "spmd/base/cpu_level.h"
#include "spmd/device/device.h"

enum { ROUNDS = 200, AT_ONCE = 20, SIZE = 64 };

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
    return sl_gemm_execute(&bench->gemm, a, b, NULL, false, bench->memory + 2 * SIZE * SIZE, NULL);
}

static int product_and_wait(struct bench *bench) {
    SL_TRY(product(bench));
    return sl_device.settle(NULL);
}

/* Median microseconds of a call; what it leaves in the queue is waited for outside the time. */
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
    measure(&bench, product);
    printf("\"product_us\":%.9g,\"product_and_wait_us\":%.9g}\n", measure(&bench, product),
           measure(&bench, product_and_wait));
    sl_gemm_release(&bench.gemm);
    sl_device.give(bench.memory);
    return SL_OK;
}
