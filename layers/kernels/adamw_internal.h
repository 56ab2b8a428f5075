/* adamw_internal.h - AdamW's pass over values, gradients and moments; hashes of the two former, where a journal wants
 * them.
 */
#ifndef SL_LAYERS_KERNELS_ADAMW_INTERNAL_H
#define SL_LAYERS_KERNELS_ADAMW_INTERNAL_H

#include "layers/kernels/rows/fetch_internal.h"
#include "layers/kernels/kernels.h"
#include "spmd/base/bf16.h"

#include <math.h>

#if SL_STREAMS
#include "layers/kernels/rows/hash_internal.h"
#endif

/* With ADDS and ROUNDS as constants: loops of vectors that only may add would ask for an address that is none, which is
 * slow. New values of elements [FIRST, END) go to TO. */
SL_INLINE void adamw_of(size_t first, size_t end, const struct sl_adamw_step *step, const float *gradient,
                        const float *addend, const bool adds, const bool rounds, const float *value, float *to,
                        uint16_t *rounded, float *first_moment, float *second_moment) {
    const float rate = step->learning_rate, epsilon = step->epsilon, decay = step->decay, scale = step->gradient_scale;
    const float beta1 = step->beta1, rest1 = step->rest1, correction1 = step->correction1;
    const float beta2 = step->beta2, rest2 = step->rest2, correction2 = step->correction2;
    SL_ELEMENTWISE(is_device_ptr(gradient, addend, value, rounded, first_moment, second_moment, to))
    for (size_t i = first; i < end; i++) {
        const float g = (adds ? gradient[i] + addend[i] : gradient[i]) * scale, p = value[i];
        const float m = rest1 * g + beta1 * first_moment[i];
        const float v = rest2 * (g * g) + beta2 * second_moment[i];
        const float direction = m / correction1 / (sqrtf(v / correction2) + epsilon);
        first_moment[i] = m;
        second_moment[i] = v;
        const float moved = p - rate * (direction + decay * p);
        to[i - first] = moved;
        if (rounds) rounded[i] = sl_bf16_of_float(moved);
    }
}

#if SL_STREAMS
/* The same with hashes. Divisions take most of a pass: hashes of a few elements are almost free, for they are made
 * while the next ones' divisions are under way; of a piece they would take as long as in a pass of their own. */
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
    /* Five arrays from far away, and divisions that are slow: a core that asks for the next piece first does both at
     * once. */
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
