/* squares.h - sums of squares with bits that do not depend on the order or division of the numbers.
 *
 * All squares are rounded down to multiples of 2^-63 of a bound that no square reaches. These multiples are whole
 * numbers, and their sums are exact. Rounding one square loses less than 2^-61 of the sum. */
#ifndef SL_LAYERS_TRAINING_EXACT_SQUARES_H
#define SL_LAYERS_TRAINING_EXACT_SQUARES_H

#include "collectives/collectives.h"
#include "layers/modules/module.h"

SL_BEGIN_C

/* A sum of up to 2^32 squares. Sums with the same exponent may be added. */
struct sl_squares {
    uint64_t high, low; /* multiples of 2^-31 and 2^-63 of the square of 2^exponent; low < 2^32 */
    int exponent;
};

/* An empty sum for numbers whose largest one has the bits LARGEST (sl_kernels' largest_bits). */
struct sl_squares sl_squares_of(int32_t largest);
/* sl_squares_add adds the squares of X [COUNT], in device memory, to SUMS, which the caller has cleared before.
 * sl_squares_read waits for all queued work, and reads SUMS. */
void sl_squares_add(const struct sl_squares *squares, const struct sl_kernels *kernels, const float *x, size_t count,
                    struct sl_sums *sums);
void sl_squares_read(struct sl_squares *squares, const struct sl_sums *sums);
/* The root of the sum over the members of GROUP, which all have the same exponent. Collective over GROUP. */
int sl_squares_root(struct sl_spmd *self, const struct sl_group *group, const struct sl_squares *squares, double *root);

SL_END_C
#endif
