/* squares.c - sums of squares as whole numbers. */
#include "layers/training/exact/squares.h"

#include <math.h>
#include <string.h>

#include "spmd/device/device.h"

struct sl_squares sl_squares_of(int32_t largest) {
    struct sl_squares squares = {0};
    float value;
    memcpy(&value, &largest, sizeof value);
    if (isfinite(value)) frexp((double)value, &squares.exponent);
    return squares;
}

void sl_squares_add(const struct sl_squares *squares, const struct sl_kernels *kernels, const float *x, size_t count,
                    struct sl_sums *sums) {
    if (count) kernels->add_squares(count, x, ldexp(1.0, -squares->exponent), sums->room, sums->exact_squares);
}

void sl_squares_read(struct sl_squares *squares, const struct sl_sums *sums) {
    uint64_t here[2];
    sl_device.copy(here, sums->exact_squares, sizeof here);
    squares->high = here[0];
    squares->low = here[1];
}

int sl_squares_root(struct sl_spmd *self, const struct sl_group *group, const struct sl_squares *squares,
                    double *root) {
    const uint64_t own[2] = {squares->high, squares->low};
    uint64_t all[2 * group->size], high = 0, low = 0;
    SL_TRY(sl_all_gather(self, group, SL_I32, own, all, sizeof own / (sizeof(int32_t))));
    for (int i = 0; i < group->size; i++) high += all[2 * i], low += all[2 * i + 1];
    const double sum = (double)(high + (low >> 32)) + (double)(low & UINT32_MAX) * 0x1p-32;
    *root = ldexp(sqrt(sum * 0x1p-31), squares->exponent);
    return SL_OK;
}
