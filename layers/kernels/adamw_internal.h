/* adamw_internal.h - AdamW's pass over values, gradients and moments, with hashes of gradients and values if a journal
 * asks for them. */
#ifndef SL_LAYERS_KERNELS_ADAMW_INTERNAL_H
#define SL_LAYERS_KERNELS_ADAMW_INTERNAL_H

#include "layers/kernels/loops/fours_internal.h"
#include "layers/kernels/loops/fetch_internal.h"
#include "layers/kernels/kernels.h"
#include "spmd/base/numbers/vector_math.h"

#if SL_STREAMS
#include "layers/kernels/loops/hash_internal.h"
#endif

struct adamw_numbers {
    float rate, epsilon, decay, scale, beta1, rest1, correction1, beta2, rest2, correction2;
};

/* Updates COUNT elements from I on; the new value of element FIRST goes to the beginning of TO. */
SL_INLINE void adamw_few(const size_t count, size_t i, size_t first, struct adamw_numbers by, const float *gradient,
                         const float *addend, const bool adds, const bool rounds, const float *value, float *to,
                         uint16_t *rounded, float *first_moment, float *second_moment) {
    const few_floats in = load_floats(count, gradient + i), p = load_floats(count, value + i);
    const few_floats more = adds ? load_floats(count, addend + i) : in;
    few_floats m = load_floats(count, first_moment + i), v = load_floats(count, second_moment + i), moved = p;
    for (size_t k = 0; k < count; k++) {
        const float g = (adds ? OF(in, k) + OF(more, k) : OF(in, k)) * by.scale;
        OF(m, k) = by.rest1 * g + by.beta1 * OF(m, k);
        OF(v, k) = by.rest2 * (g * g) + by.beta2 * OF(v, k);
        const float direction = OF(m, k) / by.correction1 / (sl_sqrt(OF(v, k) / by.correction2) + by.epsilon);
        OF(moved, k) = OF(p, k) - by.rate * (direction + by.decay * OF(p, k));
    }
    store_floats(count, m, first_moment + i);
    store_floats(count, v, second_moment + i);
    store_floats(count, moved, to + (i - first));
    if (rounds) store_halves(count, round_floats(count, moved), rounded + i);
}

/* Updates elements [FIRST, END); new values go to TO. ADDS and ROUNDS are constants: a vector loop with an optional
 * addend would compute addresses from NULL, which is slow. */
SL_INLINE void adamw_of(size_t first, size_t end, const struct sl_adamw_step *step, const float *gradient,
                        const float *addend, const bool adds, const bool rounds, const float *value, float *to,
                        uint16_t *rounded, float *first_moment, float *second_moment) {
    const float rate = step->learning_rate, epsilon = step->epsilon, decay = step->decay, scale = step->gradient_scale;
    const float beta1 = step->beta1, rest1 = step->rest1, correction1 = step->correction1;
    const float beta2 = step->beta2, rest2 = step->rest2, correction2 = step->correction2;
    SL_ELEMENTWISE(is_device_ptr(gradient, addend, value, rounded, first_moment, second_moment, to))
    for (size_t i = first; i < end; i += SL_FOUR) {
        const struct adamw_numbers by = {rate,  epsilon,     decay, scale, beta1,
                                         rest1, correction1, beta2, rest2, correction2};
        SL_BY_FOUR(adamw_few, i, end,
                   FLOATS_AT(gradient + i) | FLOATS_AT(adds ? addend + i : NULL) | FLOATS_AT(value + i) |
                       FLOATS_AT(to + (i - first)) | FLOATS_AT(first_moment + i) | FLOATS_AT(second_moment + i) |
                       HALVES_AT(rounds ? rounded + i : NULL),
                   first, by, gradient, addend, adds, rounds, value, to, rounded, first_moment, second_moment);
    }
}

#if SL_STREAMS
/* adamw_of with hashes. Divisions take most of a pass, so hashes of a few elements at a time are almost free: the CPU
 * computes them during the next elements' divisions. Hashes of a whole piece would take as long as a separate pass. */
SL_INLINE void adamw_hashed(size_t first, size_t end, const struct sl_adamw_step *step, const uint32_t *keys,
                            const float *gradient, const float *addend, const bool adds, const bool rounds,
                            const float *value, float *to, uint16_t *rounded, float *first_moment,
                            float *second_moment) {
    enum { FEW = 32 };
    struct pass_sums sums = {0};
    for (size_t at = first, next; at < end; at = next) {
        next = end - at < FEW ? end : at + FEW;
        adamw_of(at, next, step, gradient, addend, adds, rounds, value, to + (at - first), rounded, first_moment,
                 second_moment);
        hash_few(&sums, next - at, keys + (at - first), gradient + at, adds ? addend + at : NULL, adds,
                 to + (at - first));
    }
    step->hash->add(step->hash, first, end - first, sums.gradient + total_of_pairs(sums.gradients),
                    sums.value + total_of_pairs(sums.values));
}
#else
#define adamw_hashed(...) ((void)0) /* never called: HASHES is false */
#endif

SL_INLINE void adamw_pass(size_t n, const struct sl_adamw_step *step, const float *gradient, const float *addend,
                          const bool adds, const bool streams, const bool rounds, const bool hashes, float *value,
                          uint16_t *rounded, float *first_moment, float *second_moment) {
    float piece[SL_STREAMS ? SL_PIECE : 1];
    /* Five arrays come from memory, and divisions are slow: a core that prefetches the next piece does both at once. */
    for (size_t first = 0, end; first < n; first = end) {
        const uint32_t *keys = NULL;
        const size_t most = hashes ? step->hash->keys(step->hash, first, &keys) : SL_PIECE;
        const size_t count = most < SL_PIECE ? most : SL_PIECE;
        end = n - first < count ? n : first + count;
        const size_t next = n - end < SL_PIECE ? n : end + SL_PIECE;
        fetch(gradient, end, next);
        if (adds) fetch(addend, end, next);
        if (streams) fetch(value, end, next);
        if (!streams) fetch_to_write(value, end, next);
        if (rounds) fetch_half_to_write(rounded, end, next);
        fetch_to_write(first_moment, end, next);
        fetch_to_write(second_moment, end, next);
        float *const to = streams ? piece : value + first;
        if (hashes)
            adamw_hashed(first, end, step, keys, gradient, addend, adds, rounds, value, to, rounded, first_moment,
                         second_moment);
        else
            adamw_of(first, end, step, gradient, addend, adds, rounds, value, to, rounded, first_moment, second_moment);
        if (streams) stream(piece, value + first, (end - first) * sizeof *value);
    }
    if (streams) end_streams();
}

SL_INLINE void adamw_chosen(size_t n, const struct sl_adamw_step *step, const float *gradient, const float *addend,
                            const bool hashes, float *value, uint16_t *rounded, float *first, float *second) {
    const bool streams = SL_STREAMS && step->shared;
    if (addend && rounded)
        adamw_pass(n, step, gradient, addend, true, false, true, hashes, value, rounded, first, second);
    else if (rounded)
        adamw_pass(n, step, gradient, NULL, false, false, true, hashes, value, rounded, first, second);
    else if (addend && streams)
        adamw_pass(n, step, gradient, addend, true, true, false, hashes, value, NULL, first, second);
    else if (addend)
        adamw_pass(n, step, gradient, addend, true, false, false, hashes, value, NULL, first, second);
    else if (streams)
        adamw_pass(n, step, gradient, NULL, false, true, false, hashes, value, NULL, first, second);
    else
        adamw_pass(n, step, gradient, NULL, false, false, false, hashes, value, NULL, first, second);
}

static void adamw(size_t n, const struct sl_adamw_step *step, const float *gradient, const float *addend, float *value,
                  uint16_t *rounded, float *first_moment, float *second_moment) {
    if (SL_STREAMS && step->hash)
        adamw_chosen(n, step, gradient, addend, true, value, rounded, first_moment, second_moment);
    else
        adamw_chosen(n, step, gradient, addend, false, value, rounded, first_moment, second_moment);
}

#endif
