/* stream_level.c - see stream_pass.h. The build defines SL_STREAM_PASS, SL_SUM_PASS and SL_READ_PASS, the functions'
 * names. */
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

float SL_READ_PASS(size_t n, const float *array) {
    enum { SUMS = 128 }; /* eight independent sums of the widest vectors */
    float sum[SUMS] = {0};
    for (size_t i = 0; i + SUMS <= n; i += SUMS) {
        for (int j = 0; j < SUMS; j++) sum[j] += array[i + (size_t)j];
    }
    float all = 0;
    for (int j = 0; j < SUMS; j++) all += sum[j];
    return all;
}
