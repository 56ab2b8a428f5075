/* elements_internal.h - elementwise kernels of layers/kernels/kernels.h: sums and roundings; kernels.c includes it. */
#ifndef SL_LAYERS_KERNELS_ELEMENTS_INTERNAL_H
#define SL_LAYERS_KERNELS_ELEMENTS_INTERNAL_H

#include "layers/kernels/loops/fours_internal.h"
#include "layers/kernels/loops/fetch_internal.h"
#include "spmd/base/numbers/bf16.h"
#include "spmd/device/offload.h"

SL_INLINE void fill_few(const size_t count, size_t i, float value, float *y) {
    few_floats all = {0};
    for (size_t k = 0; k < count; k++) OF(all, k) = value;
    store_floats(count, all, y + i);
}

static void fill(size_t n, float value, float *y) {
    SL_ELEMENTWISE(is_device_ptr(y))
    for (size_t i = 0; i < n; i += SL_FOUR) SL_BY_FOUR(fill_few, i, n, FLOATS_AT(y + i), value, y);
}

SL_INLINE void add_few(const size_t count, size_t i, const float *x, float *y) {
    const few_floats more = load_floats(count, x + i);
    few_floats sum = load_floats(count, y + i);
    for (size_t k = 0; k < count; k++) OF(sum, k) += OF(more, k);
    store_floats(count, sum, y + i);
}

static void add(size_t n, const float *x, float *y) {
    SL_ELEMENTWISE(is_device_ptr(x, y))
    for (size_t i = 0; i < n; i += SL_FOUR) SL_BY_FOUR(add_few, i, n, FLOATS_AT(x + i) | FLOATS_AT(y + i), x, y);
}

/* STORES is a constant, as below. */
SL_INLINE void settle_sum(const size_t count, size_t i, const bool stores, const float *x, float *y, uint16_t *stored) {
    const few_floats more = load_floats(count, x + i);
    few_floats sum = load_floats(count, y + i);
    for (size_t k = 0; k < count; k++) OF(sum, k) = OF(more, k) + OF(sum, k);
    const few_halves rounded = round_floats(count, sum);
    if (stores) store_halves(count, rounded, stored + i);
    store_floats(count, widen_halves(count, rounded), y + i);
}

static void add_settled(size_t n, const float *x, float *y, uint16_t *stored) {
    if (!stored) {
        SL_ELEMENTWISE(is_device_ptr(x, y))
        for (size_t i = 0; i < n; i += SL_FOUR)
            SL_BY_FOUR(settle_sum, i, n, FLOATS_AT(x + i) | FLOATS_AT(y + i), false, x, y, NULL);
        return;
    }
    SL_ELEMENTWISE(is_device_ptr(x, y, stored))
    for (size_t i = 0; i < n; i += SL_FOUR)
        SL_BY_FOUR(settle_sum, i, n, FLOATS_AT(x + i) | FLOATS_AT(y + i) | HALVES_AT(stored + i), true, x, y, stored);
}

SL_INLINE void round_few(const size_t count, size_t i, const float *x, uint16_t *y) {
    store_halves(count, round_floats(count, load_floats(count, x + i)), y + i);
}

static void round_bf16(size_t n, const float *x, uint16_t *y) {
    SL_ELEMENTWISE(is_device_ptr(x, y))
    for (size_t i = 0; i < n; i += SL_FOUR) SL_BY_FOUR(round_few, i, n, FLOATS_AT(x + i) | HALVES_AT(y + i), x, y);
}

static void share_bf16(size_t n, const float *x, uint16_t *y) {
    enum { PIECE = SL_STREAMS ? 2 * SL_BLOCK : 1 };
    uint16_t piece[PIECE];
    if (!SL_STREAMS) {
        round_bf16(n, x, y);
        return;
    }
    for (size_t first = 0, count; first < n; first += count) {
        count = n - first < PIECE ? n - first : PIECE;
        round_bf16(count, x + first, piece);
        stream(piece, y + first, count * sizeof *y);
    }
    end_streams();
}

SL_INLINE void widen_few(const size_t count, size_t i, const uint16_t *x, float *y) {
    store_floats(count, widen_halves(count, load_halves(count, x + i)), y + i);
}

static void widen_bf16(size_t n, const uint16_t *x, float *y) {
    SL_ELEMENTWISE(is_device_ptr(x, y))
    for (size_t i = 0; i < n; i += SL_FOUR) SL_BY_FOUR(widen_few, i, n, HALVES_AT(x + i) | FLOATS_AT(y + i), x, y);
}

static void settle_bf16(size_t n, float *x, uint16_t *y) {
    if (!y) {
        SL_ELEMENTWISE(is_device_ptr(x))
        for (size_t i = 0; i < n; i += SL_FOUR) SL_BY_FOUR(settle_few, i, n, FLOATS_AT(x + i), false, x, NULL);
        return;
    }
    for (size_t first = 0, end; first < n; first = end) {
        end = n - first < SL_PIECE ? n : first + SL_PIECE;
        const size_t next = n - end < SL_PIECE ? n : end + SL_PIECE;
        fetch_to_write(x, end, next);
        fetch_half_to_write(y, end, next);
        SL_ELEMENTWISE(is_device_ptr(x, y))
        for (size_t i = first; i < end; i += SL_FOUR)
            SL_BY_FOUR(settle_few, i, end, FLOATS_AT(x + i) | HALVES_AT(y + i), true, x, y);
    }
}

#endif
