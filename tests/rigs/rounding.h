/* rounding.h - bounds for the difference between rounded values and floats. */
#ifndef SL_TESTS_RIGS_ROUNDING_H
#define SL_TESTS_RIGS_ROUNDING_H

#include <math.h>

#include "layers/formats/stores/store.h"

/* Returns the relative error after ROUNDINGS roundings in a row. One rounding to bf16 (8 digits) has an error of up to
 * 2^-8; errors are independent, so their squares add up. */
static inline double rounding_error(double roundings) { return 0x1p-8 * sqrt(roundings); }

/* Returns the Euclidean norm of TENSOR - OTHER; OTHER NULL: the norm of TENSOR. */
static inline double norm_of_difference(const struct sl_tensor *tensor, const float *other) {
    const float *x = tensor->array.data;
    double sum = 0;
    for (size_t i = 0; i < sl_array_elements(&tensor->array); i++)
        sum += ((double)x[i] - (other ? other[i] : 0)) * ((double)x[i] - (other ? other[i] : 0));
    return sqrt(sum);
}

#endif
