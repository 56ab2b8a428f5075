/* expert.h - kernels of a mixture of experts: route tokens to experts, copy them there and back. One source (expert.c),
 * built like kernels.c.
 *
 * A token chooses several experts. A (token, choice) is a PAIR, numbered token * choices + choice. Each expert has
 * CAPACITY slots per sequence: slot = (expert * sequences + sequence) * capacity + place. Arrays are dense and
 * row-major. ROWS are tokens, one sequence after another. No kernel allocates. On the CPU
 * the work is done when a call returns; on devices it is enqueued on the thread's queue. */
#ifndef SL_LAYERS_KERNELS_EXPERT_H
#define SL_LAYERS_KERNELS_EXPERT_H

#include "spmd/base/base.h"
#include "spmd/cut.h"

SL_BEGIN_C

struct sl_routing {
    size_t rows, sequences; /* tokens; their sequences */
    size_t experts;
    size_t choices;    /* experts chosen by a token */
    size_t capacity;   /* slots of an expert per sequence */
    struct sl_cut cut; /* of sequences, without leaves: rows are this coordinate's blocks, and slots are those of whole
                          sequences */
};

struct sl_expert_kernels {
    /* chosen [pairs]: each token's experts with the largest logits [rows, experts], largest first; of equal logits the
     * lower expert comes first. probabilities [rows, experts] = softmax(logits); PROBABILITIES may be LOGITS. gates
     * [pairs]: the probability of the chosen expert, divided by the sum over the token's choices; with one choice per
     * token it is not divided, so the gate has a gradient. */
    void (*route)(const struct sl_routing *routing, const float *logits, float *probabilities, int32_t *chosen,
                  float *gates);
    /* counts [sequences, blocks, experts]: number of pairs that chose the expert, in each of this coordinate's blocks
     * of the cut. */
    void (*count)(const struct sl_routing *routing, const int32_t *chosen, int32_t *counts);
    /* ALL [parts, sequences, blocks, experts] has the counts of all parts of the cut, at least two. first [sequences,
     * blocks, experts]: number of pairs that chose the expert, in earlier blocks of the sequence. shares [sequences,
     * experts]: as in balance, but of the whole sequence. */
    void (*places)(const struct sl_routing *routing, const int32_t *all, int32_t *first, float *shares);
    /* slot_of [pairs]: the pair's slot, or -1 if the expert had none left for the sequence. pair_of [slots]: the slot's
     * pair, or -1 if it is empty or another coordinate's. Pairs get slots in ascending order, so a token's slot depends
     * only on earlier tokens. FIRST is of places; NULL: sequences are whole. */
    void (*assign)(const struct sl_routing *routing, const int32_t *first, const int32_t *chosen, int32_t *slot_of,
                   int32_t *pair_of);
    /* shares [sequences, experts]: the fraction of the sequence's pairs that chose the expert; sums [sequences,
     * experts]: sums of the expert's probabilities over the sequence's rows. */
    void (*balance)(const struct sl_routing *routing, const float *probabilities, const int32_t *chosen, float *shares,
                    float *sums);
    /* *total += FACTOR times the sum over sequences of experts * (sum over experts of share * mean probability); a
     * sequence adds 1 if all experts are chosen equally often. */
    void (*add_balance)(const struct sl_routing *routing, const float *shares, const float *sums, double factor,
                        double *total);
    /* dlogits [rows, experts]: the gradient through the gates (dgates [pairs]) plus FACTOR times the gradient of
     * add_balance's sum. */
    void (*route_backward)(const struct sl_routing *routing, const float *probabilities, const int32_t *chosen,
                           const float *gates, const float *dgates, const float *shares, float factor, float *dlogits);

    /* y [slots, cols]: the slot's token's row of x [rows, cols] times the gate, or zeros for an empty slot. If GATES is
     * NULL, all gates are 1. */
    void (*dispatch)(const struct sl_routing *routing, size_t cols, const int32_t *pair_of, const float *gates,
                     const float *x, float *y);
    /* y [rows, cols]: sum over the token's slots of gate times row of x [slots, cols]. If GATES is NULL, all gates
     * are 1. */
    void (*combine)(const struct sl_routing *routing, size_t cols, const int32_t *slot_of, const float *gates,
                    const float *x, float *y);
    /* dgates [pairs]: the dot product of the token's row of dy [rows, cols] and the slot's row of x [slots, cols], or 0
     * for a pair without a slot. */
    void (*gate_gradients)(const struct sl_routing *routing, size_t cols, const int32_t *slot_of, const float *dy,
                           const float *x, float *dgates);
};

extern const struct sl_expert_kernels sl_expert_kernels_v2, sl_expert_kernels_v3, sl_expert_kernels_v4;
extern const struct sl_expert_kernels sl_expert_kernels_device; /* in builds for devices */

static inline size_t sl_routing_slots(const struct sl_routing *routing) {
    return routing->experts * routing->sequences * routing->capacity;
}

SL_END_C
#endif
