/* squares.c - sums of squares as whole numbers. */
#include "layers/training/exact/squares.h"

#include <math.h>
#include <string.h>

#include "spmd/device/device.h"

enum { PIECE = 2048 };

/* The next COUNT <= PIECE of X where the host can read them: in ROOM [PIECE], or where they lie. */
static const float *here(const float *x, size_t count, float *room) {
    if (sl_device.shares_memory) return x;
    sl_device.copy(room, x, count * sizeof *x);
    return room;
}

static size_t piece_of(size_t left) { return left < PIECE ? left : PIECE; }

int32_t sl_largest_bits(int32_t bits, const float *x, size_t count) {
    float room[PIECE];
    for (size_t begin = 0, some; begin < count; begin += some) {
        some = piece_of(count - begin);
        const float *const values = here(x + begin, some, room);
        for (size_t i = 0; i < some; i++) {
            int32_t own;
            memcpy(&own, &values[i], sizeof own);
            own &= INT32_MAX;
            bits = own > bits ? own : bits;
        }
    }
    return bits;
}

struct sl_squares sl_squares_of(int32_t largest) {
    struct sl_squares squares = {0};
    float value;
    memcpy(&value, &largest, sizeof value);
    if (isfinite(value)) frexp((double)value, &squares.exponent);
    return squares;
}

/* Each square is exact as a double, and below 1. */
void sl_squares_add(struct sl_squares *squares, const float *x, size_t count) {
    const double scale = ldexp(1.0, -squares->exponent);
    float room[PIECE];
    for (size_t begin = 0, some; begin < count; begin += some) {
        uint64_t high = 0, low = squares->low;
        some = piece_of(count - begin);
        const float *const values = here(x + begin, some, room);
        for (size_t i = 0; i < some; i++) {
            const double scaled = (double)values[i] * scale;
            const uint64_t multiple = (uint64_t)(int64_t)(scaled * scaled * 0x1p63);
            high += multiple >> 32;
            low += multiple & UINT32_MAX;
        }
        squares->high += high + (low >> 32);
        squares->low = low & UINT32_MAX;
    }
}

int sl_squares_root(struct sl_spmd *self, const struct sl_group *group, const struct sl_squares *squares,
                    double *root) {
    const uint64_t own[2] = {squares->high, squares->low};
    uint64_t all[2 * SL_MAX_COORDINATES], high = 0, low = 0;
    SL_TRY(sl_all_gather(self, group, SL_I32, own, all, sizeof own / (sizeof(int32_t))));
    for (int i = 0; i < group->size; i++) high += all[2 * i], low += all[2 * i + 1];
    const double sum = (double)(high + (low >> 32)) + (double)(low & UINT32_MAX) * 0x1p-32;
    *root = ldexp(sqrt(sum * 0x1p-31), squares->exponent);
    return SL_OK;
}
