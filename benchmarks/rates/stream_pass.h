/* stream_pass.h - passes through arrays of N floats, built once per CPU level: one like an optimizer's through four
 * arrays, one like a sum's through two, which both receive it, and one that reads an array and returns its sum. */
#ifndef SL_BENCHMARKS_RATES_STREAM_PASS_H
#define SL_BENCHMARKS_RATES_STREAM_PASS_H

#include <stddef.h>

typedef void sl_stream_pass(size_t n, const float *gradient, float *value, float *first, float *second);
sl_stream_pass sl_stream_pass_v2, sl_stream_pass_v3, sl_stream_pass_v4;
typedef float sl_read_pass(size_t n, const float *array);
sl_read_pass sl_read_pass_v2, sl_read_pass_v3, sl_read_pass_v4;

typedef void sl_sum_pass(size_t n, float *x, float *y);
sl_sum_pass sl_sum_pass_v2, sl_sum_pass_v3, sl_sum_pass_v4;

#endif
