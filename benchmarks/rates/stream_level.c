/* stream_level.c - see stream_pass.h. The build defines SL_STREAM_PASS and SL_SUM_PASS, the functions' names. */
#include "benchmarks/rates/stream_pass.h"

void SL_STREAM_PASS(size_t n, const float *restrict gradient, float *restrict value, float *restrict first,
                    float *restrict second) {
    for (size_t i = 0; i < n; i++) {
        first[i] = 0.9f * first[i] + 0.1f * gradient[i];
        second[i] = 0.999f * second[i] + 0.001f * gradient[i] * gradient[i];
        value[i] -= 0.001f * (first[i] + second[i]);
    }
}

void SL_SUM_PASS(size_t n, float *restrict x, float *restrict y) {
    for (size_t i = 0; i < n; i++) {
        const float sum = x[i] + y[i];
        x[i] = sum;
        y[i] = sum;
    }
}
