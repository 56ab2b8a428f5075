/* fours_internal.h - elements in groups of four: a thread of an NVIDIA GPU loads or stores four neighbours at once, in
 * 16 bytes of floats or 8 of bf16. It moves the same bytes with a quarter of the instructions.
 *
 * A loop over elements takes steps of SL_FOUR (1 on other machines) and passes each step to SL_BY_FOUR. The work on
 * elements is a function of COUNT (a constant), the first element, and other arguments. Its numbers are vectors: in a
 * region, compilers for GPUs place an array in memory that threads share, because each subscript takes its address. */
#ifndef SL_LAYERS_KERNELS_LOOPS_FOURS_INTERNAL_H
#define SL_LAYERS_KERNELS_LOOPS_FOURS_INTERNAL_H

#include "spmd/base/numbers/dtype.h"
#include "spmd/device/offload.h"

#include <stdint.h>

#if SL_FOUR > 1
typedef float few_floats __attribute__((vector_size(4 * SL_FOUR), may_alias));
typedef uint16_t few_halves __attribute__((vector_size(2 * SL_FOUR), may_alias)); /* bf16 */
#define OF(x, k) ((x)[k])
#else
typedef float few_floats;
typedef uint16_t few_halves;
#define OF(x, k) (x)
#endif

/* Addresses of elements of floats and of bf16: their OR is 0 modulo 16 if all arrays can go by four. */
#define FLOATS_AT(x) ((uintptr_t)(x))
#define HALVES_AT(x) (2 * (uintptr_t)(x))

/* Calls FUNCTION(count, i, ...) for elements from I on, SL_FOUR at most, and below END. */
#if SL_FOUR > 1
#define SL_BY_FOUR(function, i, end, addresses, ...)                                                                   \
    do {                                                                                                               \
        if ((end) - (i) >= SL_FOUR && (addresses) % 16 == 0) {                                                         \
            function(SL_FOUR, i, __VA_ARGS__);                                                                         \
        } else {                                                                                                       \
            SL_ROLLED                                                                                                  \
            for (size_t each = i; each < (end) && each < (i) + SL_FOUR; each++) function(1, each, __VA_ARGS__);        \
        }                                                                                                              \
    } while (0)
#else
#define SL_BY_FOUR(function, i, end, addresses, ...) function(1, i, __VA_ARGS__)
#endif

/* SL_BY_FOUR for a row of COLS elements that begins LEAD elements after an aligned group of four, with its floats at X:
 * a row of any length goes by four except at its ends. PLACE is 0, SL_FOUR and so on, below LEAD + COLS. Other arrays
 * must be aligned ALIKE. */
#define SL_LEAD(x) ((uintptr_t)(x) / sizeof(float) % SL_FOUR)
#define SL_ALIKE(x, addresses) ((FLOATS_AT(x) - (addresses)) % 16 == 0)
#if SL_FOUR > 1
#define SL_ROW_BY_FOUR(function, place, lead, cols, alike, ...)                                                        \
    do {                                                                                                               \
        const uint32_t from = (uint32_t)((place) - (lead)), past = (uint32_t)(cols); /* FROM wraps below LEAD */       \
        if (from < ((alike) && past >= SL_FOUR ? past - SL_FOUR + 1 : 0)) {                                            \
            function(SL_FOUR, from, __VA_ARGS__);                                                                      \
        } else {                                                                                                       \
            SL_ROLLED                                                                                                  \
            for (uint32_t each = from + SL_FOUR < SL_FOUR ? 0 : from; each < past && each - from < SL_FOUR; each++)    \
                function(1, each, __VA_ARGS__);                                                                        \
        }                                                                                                              \
    } while (0)
#else
#define SL_ROW_BY_FOUR(function, place, lead, cols, alike, ...) function(1, place, __VA_ARGS__)
#endif

/* Loads or stores COUNT elements: SL_FOUR aligned ones, or one, the first of the vector. */
#define SL_LOAD_FOUR(type, count, x)                                                                                   \
    type y = {0};                                                                                                      \
    if ((count) == SL_FOUR) return *(const type *)(x);                                                                 \
    OF(y, 0) = *(x);                                                                                                   \
    return y
#define SL_STORE_FOUR(type, count, x, y)                                                                               \
    if ((count) == SL_FOUR)                                                                                            \
        *(type *)(y) = x;                                                                                              \
    else                                                                                                               \
        *(y) = OF(x, 0)

SL_INLINE few_floats load_floats(const size_t count, const float *x) { SL_LOAD_FOUR(few_floats, count, x); }
SL_INLINE few_halves load_halves(const size_t count, const uint16_t *x) { SL_LOAD_FOUR(few_halves, count, x); }
SL_INLINE void store_floats(const size_t count, few_floats x, float *y) { SL_STORE_FOUR(few_floats, count, x, y); }
SL_INLINE void store_halves(const size_t count, few_halves x, uint16_t *y) { SL_STORE_FOUR(few_halves, count, x, y); }

SL_INLINE few_halves round_floats(const size_t count, few_floats x) {
    few_halves y = {0};
    for (size_t k = 0; k < count; k++) OF(y, k) = sl_bf16_of_float(OF(x, k));
    return y;
}

SL_INLINE few_floats widen_halves(const size_t count, few_halves x) {
    few_floats y = {0};
    for (size_t k = 0; k < count; k++) OF(y, k) = sl_float_of_bf16(OF(x, k));
    return y;
}

/* Loads elements of X from I on: bf16 if HALF (a constant on hosts), else floats. */
SL_INLINE few_floats load_elements(const size_t count, const bool half, const void *x, size_t i) {
    if (half) return widen_halves(count, load_halves(count, (const uint16_t *)x + i));
    return load_floats(count, (const float *)x + i);
}
#define ELEMENTS_AT(half, x) ((half) ? HALVES_AT(x) : FLOATS_AT(x))

/* Writes VALUES to y from element I on, if FLOATS, rounded if ROUNDS, and as bf16 to STORED, if STORES: the form of a
 * struct sl_out. */
SL_INLINE void leave_few(const size_t count, size_t i, few_floats values, const bool floats, const bool rounds,
                         const bool stores, float *y, uint16_t *stored) {
    const few_halves rounded = round_floats(count, values);
    if (stores) store_halves(count, rounded, stored + i);
    if (floats) store_floats(count, rounds ? widen_halves(count, rounded) : values, y + i);
}

/* Rounds elements of X from I on to bf16 in place, and copies them to STORED, if STORES. */
SL_INLINE void settle_few(const size_t count, size_t i, const bool stores, float *x, uint16_t *stored) {
    leave_few(count, i, load_floats(count, x + i), true, true, stores, x, stored);
}

#endif
