/* rounding.h - how far values of few digits may lie from those of floats. */
#ifndef SL_TESTS_RIGS_ROUNDING_H
#define SL_TESTS_RIGS_ROUNDING_H

#include <math.h>

#include "layers/storage/store.h"

/* What is rounded has a relative error of up to 2^-8, as a bf16 has 8 digits, and errors of roundings in a row are
 * independent: their squares add up. */
static inline double rounding_error(double roundings) { return 0x1p-8 * sqrt(roundings); }

/* The square root of the sum of squares; OTHER NULL: of TENSOR alone. */
static inline double norm_of_difference(const struct sl_tensor *tensor, const float *other) {
    const float *x = tensor->array.data;
    double sum = 0;
    for (size_t i = 0; i < sl_array_elements(&tensor->array); i++)
        sum += ((double)x[i] - (other ? other[i] : 0)) * ((double)x[i] - (other ? other[i] : 0));
    return sqrt(sum);
}

#endif
