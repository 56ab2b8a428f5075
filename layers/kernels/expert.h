/* expert.h - kernels of a mixture of experts: which tokens go to which experts, and the way there and back. One source
 * (expert.c), built like kernels.c.
 *
 * A token chooses several experts. A (token, choice) is a PAIR, numbered token * choices + choice. Each expert has
 * CAPACITY slots for each sequence: slot = (expert * sequences + sequence) * capacity + place. Arrays are dense and
 * row-major. ROWS are tokens, one sequence after another. No kernel allocates; each has finished when it returns. */
#ifndef SL_LAYERS_KERNELS_EXPERT_H
#define SL_LAYERS_KERNELS_EXPERT_H

#include "spmd/base/base.h"

SL_BEGIN_C

struct sl_routing {
    size_t rows, sequences; /* tokens; sequences that they belong to */
    size_t experts;
    size_t choices;  /* experts that a token chooses */
    size_t capacity; /* slots of an expert for each sequence */
};

struct sl_expert_kernels {
    /* chosen [pairs]: each token's experts with the largest logits [rows, experts], largest first; of equal logits the
     * lower expert comes first. probabilities [rows, experts] = softmax(logits); the two may be the same array. gates
     * [pairs]: the probability of the chosen expert, divided by the sum over the token's choices; with one choice a
     * token it is not divided, so that it has a gradient. */
    void (*route)(const struct sl_routing *routing, const float *logits, float *probabilities, int32_t *chosen,
                  float *gates);
    /* slot_of [pairs]: the pair's slot; -1 if the expert had none left for the sequence. pair_of [slots]: the pair in
     * the slot; -1 if it is empty. Slots are given out in the order of pairs, so a token's fate depends only on the
     * tokens before it. */
    void (*assign)(const struct sl_routing *routing, const int32_t *chosen, int32_t *slot_of, int32_t *pair_of);
    /* shares [sequences, experts]: the share of the sequence's pairs that chose the expert; sums [sequences, experts]:
     * of the probabilities that its rows gave the expert. */
    void (*balance)(const struct sl_routing *routing, const float *probabilities, const int32_t *chosen, float *shares,
                    float *sums);
    /* *total += FACTOR times the sum over sequences of experts * (sum over experts of share * mean probability); a
     * sequence adds 1 if all experts are chosen alike. */
    void (*add_balance)(const struct sl_routing *routing, const float *shares, const float *sums, double factor,
                        double *total);
    /* dlogits [rows, experts]: the gradient through the gates (dgates [pairs]) plus FACTOR times that of add_balance's
     * sum. */
    void (*route_backward)(const struct sl_routing *routing, const float *probabilities, const int32_t *chosen,
                           const float *gates, const float *dgates, const float *shares, float factor, float *dlogits);

    /* y [slots, cols]: for each slot its token's row of x [rows, cols] times the gate; zeros for an empty slot. GATES
     * may be NULL: all gates are 1. */
    void (*dispatch)(const struct sl_routing *routing, size_t cols, const int32_t *pair_of, const float *gates,
                     const float *x, float *y);
    /* y [rows, cols]: for each token the sum over its slots of gate times row of x [slots, cols]. GATES may be NULL:
     * all gates are 1. */
    void (*combine)(const struct sl_routing *routing, size_t cols, const int32_t *slot_of, const float *gates,
                    const float *x, float *y);
    /* dgates [pairs]: the dot product of the token's row of dy [rows, cols] and the slot's row of x [slots, cols]; 0
     * for a pair without a slot. */
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
