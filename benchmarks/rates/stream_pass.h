/* stream_pass.h - a pass of the optimizer's kind through four arrays of N floats, and one that reads an array and
 * returns its sum, built once per CPU level. */
#ifndef SL_BENCHMARKS_RATES_STREAM_PASS_H
#define SL_BENCHMARKS_RATES_STREAM_PASS_H

#include <stddef.h>

typedef void sl_stream_pass(size_t n, const float *gradient, float *value, float *first, float *second);
sl_stream_pass sl_stream_pass_v2, sl_stream_pass_v3, sl_stream_pass_v4;
typedef float sl_read_pass(size_t n, const float *array);
sl_read_pass sl_read_pass_v2, sl_read_pass_v3, sl_read_pass_v4;

#endif
