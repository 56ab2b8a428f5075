/* expert.h - which tokens go to which experts, and the way there and back. One source (expert.c), built
 * as kernels.c is.
 *
 * A token chooses several experts: its choices are PAIRS, numbered token * choices + choice. Each expert has CAPACITY
 * slots for each sequence: slot = (expert * sequences + sequence) * capacity + place. Arrays are dense, row-major; ROWS
 * are tokens, one sequence after another. No kernel allocates, and each has ended when it returns. */
#ifndef SL_LAYERS_KERNELS_EXPERT_H
#define SL_LAYERS_KERNELS_EXPERT_H

#include "spmd/base/base.h"

SL_BEGIN_C

struct sl_routing {
    size_t rows, sequences; /* tokens, and what they divide into */
    size_t experts, choices, capacity;
};

struct sl_expert_kernels {
    /* chosen [pairs]: each token's experts of the largest logits [rows, experts], the largest first and of equals the
     * first; probabilities [rows, experts] = softmax(logits), which they may be; gates [pairs]: the chosen ones'
     * probabilities as shares of their sum, or, of a token's only one, itself, so that it has a gradient. */
    void (*route)(const struct sl_routing *routing, const float *logits, float *probabilities, int32_t *chosen,
                  float *gates);
    /* slot_of [pairs]: its slot, -1 where the expert has none left for the sequence; pair_of [slots]: who has it, -1:
     * nobody. Slots are given out in the order of pairs: what becomes of a token depends on those before it alone. */
    void (*assign)(const struct sl_routing *routing, const int32_t *chosen, int32_t *slot_of, int32_t *pair_of);
    /* shares [sequences, experts] of a sequence's pairs that chose the expert. Returns the sum over sequences of
     * experts * sum over experts of share * mean probability: 1 for each where all are alike. */
    double (*balance)(const struct sl_routing *routing, const float *probabilities, const int32_t *chosen,
                      float *shares);
    /* dlogits [rows, experts] of dgates [pairs], and of the sum that balance returns times FACTOR. */
    void (*route_backward)(const struct sl_routing *routing, const float *probabilities, const int32_t *chosen,
                           const float *gates, const float *dgates, const float *shares, float factor, float *dlogits);

    /* y [slots, cols] = gates x [rows, cols] of the tokens that have the slots, zeros where nobody has it. GATES may be
     * NULL: ones. */
    void (*dispatch)(const struct sl_routing *routing, size_t cols, const int32_t *pair_of, const float *gates,
                     const float *x, float *y);
    /* y [rows, cols] = sums over a token's slots of gates x [slots, cols]; GATES may be NULL: ones. */
    void (*combine)(const struct sl_routing *routing, size_t cols, const int32_t *slot_of, const float *gates,
                    const float *x, float *y);
    /* dgates [pairs] = sums over columns of dy [rows, cols] x [slots, cols], 0 where there is no slot */
    void (*gate_gradients)(const struct sl_routing *routing, size_t cols, const int32_t *slot_of, const float *dy,
                           const float *x, float *dgates);
};

extern const struct sl_expert_kernels sl_expert_kernels_v2, sl_expert_kernels_v3, sl_expert_kernels_v4;
extern const struct sl_expert_kernels sl_expert_kernels_device; /* where the CPU does not compute */

static inline size_t sl_routing_slots(const struct sl_routing *routing) {
    return routing->experts * routing->sequences * routing->capacity;
}

SL_END_C
#endif
