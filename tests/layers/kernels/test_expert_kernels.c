/* test_expert_kernels.c - the kernels of a mixture of experts, of every level of this CPU, against naive oracles in
 * double: more experts and columns than a team has threads, a number that leaves lanes of a warp idle, and one. */
#include "tests/rigs/numbers.h"

#include "layers/kernels/expert.h"
#include "layers/kernels/kernels.h"

/* tokens, sequences, experts, choices, capacity, whole sequences */
static const struct sl_routing shapes[] = {
    {1, 1, 1, 1, 1, {0}},    {6, 2, 7, 2, 3, {0}},    {5, 1, 33, 1, 4, {0}},  {12, 3, 40, 3, 1, {0}},
    {257, 1, 64, 8, 9, {0}}, {10, 2, 300, 5, 2, {0}}, {4, 2, 20, 11, 3, {0}}, {3, 1, 5, 1, 12, {0}},
};
static const size_t widths[] = {1, 3, 33, 128, 300};
enum { SHAPES = sizeof shapes / sizeof *shapes, WIDTHS = sizeof widths / sizeof *widths };

#define FOR_EACH_SHAPE(kernels, routing)                                                                               \
    for (int level = 0; sl_kernels_available(level); level++)                                                          \
        for (const struct sl_expert_kernels *kernels = sl_kernels_available(level)->experts; kernels; kernels = NULL)  \
            for (const struct sl_routing *routing = shapes; routing < shapes + SHAPES; routing++)

static size_t pairs_of(const struct sl_routing *routing) { return routing->rows * routing->choices; }

/* Returns for each token different experts, in any order. */
static int32_t *random_choices(struct numbers *numbers, const struct sl_routing *routing) {
    int32_t *chosen = device_array(pairs_of(routing), sizeof *chosen);
    for (size_t r = 0; r < routing->rows; r++) {
        const uint32_t first = next_word(numbers), step = 1 + next_word(numbers) % 2 * (routing->experts > 7 ? 6 : 0);
        for (size_t k = 0; k < routing->choices; k++)
            chosen[r * routing->choices + k] = (int32_t)((first % routing->experts + k * step) % routing->experts);
    }
    return chosen;
}

static void release(void *const *arrays, size_t count) {
    for (size_t i = 0; i < count; i++) release_array(arrays[i]);
}
#define RELEASE(...) release((void *const[]){__VA_ARGS__}, sizeof(void *[]){__VA_ARGS__} / sizeof(void *))

/* ---- routing ---- */

/* Returns whether expert E comes before expert OTHER: its logit is larger, or equal and its number is lower. */
static bool comes_before(const float *logits, size_t e, size_t other) {
    return logits[e] > logits[other] || (logits[e] == logits[other] && e < other);
}

static void expect_routed(const struct sl_routing *routing, const float *logits, const float *p, const int32_t *chosen,
                          const float *gates) {
    const size_t experts = routing->experts, choices = routing->choices;
    double sum = 0, most = logits[chosen[0]], together = 0;
    for (size_t e = 0; e < experts; e++) sum += exp(logits[e] - most);
    for (size_t e = 0; e < experts; e++) {
        size_t place = 0;
        for (size_t other = 0; other < experts; other++) place += comes_before(logits, other, e);
        if (place < choices) assert_int_equal(chosen[place], e);
        expect_close("probability", e, p[e], exp(logits[e] - most) / sum, 1e-5, 0);
        together += place < choices ? exp(logits[e] - most) : 0;
    }
    for (size_t k = 0; k < choices; k++)
        expect_close("gate", k, gates[k], exp(logits[chosen[k]] - most) / (choices > 1 ? together : sum), 1e-5, 0);
}

/* Logits are multiples of 1/4, so that many are equal. */
static void experts_of_the_largest_logits(void **state) {
    (void)state;
    struct numbers numbers = {4};
    FOR_EACH_SHAPE(kernels, routing) {
        const size_t count = routing->rows * routing->experts;
        float *logits = random_device_floats(&numbers, count, -8, 8), *p = device_floats(count);
        float *gates = device_floats(pairs_of(routing));
        int32_t *chosen = device_array(pairs_of(routing), sizeof *chosen);
        for (size_t i = 0; i < count; i++) logits[i] = floorf(logits[i] * 4) / 4;
        kernels->route(routing, logits, p, chosen, gates);
        for (size_t r = 0; r < routing->rows; r++)
            expect_routed(routing, logits + r * routing->experts, p + r * routing->experts,
                          chosen + r * routing->choices, gates + r * routing->choices);
        RELEASE(logits, p, gates, chosen);
    }
}

/* ---- balance ---- */

static void balance_is_counted(void **state) {
    (void)state;
    struct numbers numbers = {1};
    FOR_EACH_SHAPE(kernels, routing) {
        const size_t experts = routing->experts, sequences = routing->sequences, length = routing->rows / sequences;
        float *p = random_device_floats(&numbers, routing->rows * experts, 0, 1);
        float *shares = device_floats(sequences * experts), *sums = device_floats(sequences * experts);
        double *total = device_array(1, sizeof *total), auxiliary = 3.0;
        int32_t *chosen = random_choices(&numbers, routing);
        *total = auxiliary;
        kernels->balance(routing, p, chosen, shares, sums);
        kernels->add_balance(routing, shares, sums, 0.5, total);
        for (size_t i = 0; i < sequences * experts; i++) {
            const size_t first = i / experts * length, e = i % experts;
            double count = 0, sum = 0;
            for (size_t r = first; r < first + length; r++) {
                for (size_t k = 0; k < routing->choices; k++) count += chosen[r * routing->choices + k] == (int32_t)e;
                sum += p[r * experts + e];
            }
            const double share = count / (double)(length * routing->choices);
            expect_close("share", i, shares[i], share, 1e-6, 0);
            expect_close("sum", i, sums[i], sum, 1e-5, 0);
            auxiliary += 0.5 * (double)experts * share * sum / (double)length;
        }
        expect_close("total", 0, *total, auxiliary, 1e-5, 0);
        RELEASE(p, shares, sums, total, chosen);
    }
}

/* ---- the gradient of logits ---- */

static double slope_of(const struct sl_routing *routing, size_t r, size_t e, const float *p, const int32_t *chosen,
                       const float *gates, const float *dgates, const float *shares, double factor) {
    const size_t experts = routing->experts, choices = routing->choices, length = routing->rows / routing->sequences;
    const float *share = shares + r / length * experts;
    const double each = factor * (double)experts / (double)length;
    double mean = 0, along = 0, slope = 0;
    for (size_t other = 0; other < experts; other++) mean += (double)p[r * experts + other] * share[other];
    for (size_t k = r * choices; k < (r + 1) * choices; k++) along += (double)gates[k] * dgates[k];
    slope += p[r * experts + e] * (each * (share[e] - mean) - (choices > 1 ? 0 : along));
    for (size_t k = r * choices; k < (r + 1) * choices; k++)
        if (chosen[k] == (int32_t)e) slope += gates[k] * (dgates[k] - (choices > 1 ? along : 0));
    return slope;
}

static void gradients_of_logits(void **state) {
    (void)state;
    struct numbers numbers = {2};
    FOR_EACH_SHAPE(kernels, routing) {
        const size_t count = routing->rows * routing->experts;
        float *p = random_device_floats(&numbers, count, 0, 1), *dlogits = device_floats(count);
        float *shares = random_device_floats(&numbers, routing->sequences * routing->experts, 0, 1);
        float *gates = random_device_floats(&numbers, pairs_of(routing), 0, 1);
        float *dgates = random_device_floats(&numbers, pairs_of(routing), -1, 1);
        int32_t *chosen = random_choices(&numbers, routing);
        kernels->route_backward(routing, p, chosen, gates, dgates, shares, 0.25f, dlogits);
        for (size_t i = 0; i < count; i++)
            expect_close(
                "dlogits", i, dlogits[i],
                slope_of(routing, i / routing->experts, i % routing->experts, p, chosen, gates, dgates, shares, 0.25),
                1e-5, 1e-5 * (double)routing->experts);
        RELEASE(p, dlogits, shares, gates, dgates, chosen);
    }
}

/* ---- to experts and back ---- */

/* Slots of CHOSEN, and rows of WIDTH on both sides. */
struct trip {
    const struct sl_routing *routing;
    size_t slots, width;
    int32_t *chosen, *slot_of, *pair_of;
    float *gates, *x, *at_experts, *y, *dgates;
};

static struct trip make_trip(const struct sl_expert_kernels *kernels, struct numbers *numbers,
                             const struct sl_routing *routing, size_t width) {
    const size_t slots = sl_routing_slots(routing), pairs = pairs_of(routing);
    struct trip t = {
        .routing = routing,
        .slots = slots,
        .width = width,
        .chosen = random_choices(numbers, routing),
        .slot_of = device_array(pairs, sizeof(int32_t)),
        .pair_of = device_array(slots, sizeof(int32_t)),
        .gates = random_device_floats(numbers, pairs, 0.1f, 1),
        .x = random_device_floats(numbers, routing->rows * width, -1, 1),
        .at_experts = device_floats(slots * width),
        .y = device_floats(routing->rows * width),
        .dgates = device_floats(pairs),
    };
    kernels->assign(routing, NULL, t.chosen, t.slot_of, t.pair_of);
    return t;
}

static void release_trip(struct trip *t) {
    RELEASE(t->chosen, t->slot_of, t->pair_of, t->gates, t->x, t->at_experts, t->y, t->dgates);
}

static void expect_at_experts(const struct trip *t, bool weighs) {
    for (size_t i = 0; i < t->slots * t->width; i++) {
        const int32_t pair = t->pair_of[i / t->width];
        const float x = pair < 0 ? 0 : t->x[(size_t)pair / t->routing->choices * t->width + i % t->width];
        assert_true(t->at_experts[i] == (weighs && pair >= 0 ? t->gates[pair] : 1.0f) * x);
    }
}

static void expect_back(const struct trip *t, bool weighs) {
    const size_t choices = t->routing->choices;
    for (size_t i = 0; i < t->routing->rows * t->width; i++) {
        double sum = 0;
        for (size_t pair = i / t->width * choices; pair < (i / t->width + 1) * choices; pair++) {
            const int32_t slot = t->slot_of[pair];
            if (slot >= 0)
                sum += (weighs ? t->gates[pair] : 1.0) * t->at_experts[(size_t)slot * t->width + i % t->width];
        }
        expect_close("combined", i, t->y[i], sum, 1e-6, 1e-6);
    }
}

static void expect_gate_gradients(const struct trip *t) {
    for (size_t pair = 0; pair < pairs_of(t->routing); pair++) {
        const float *dy = t->x + pair / t->routing->choices * t->width;
        double dot = 0;
        for (size_t c = 0; c < t->width && t->slot_of[pair] >= 0; c++)
            dot += (double)dy[c] * t->at_experts[(size_t)t->slot_of[pair] * t->width + c];
        expect_close("dgate", pair, t->dgates[pair], dot, 1e-5, 1e-5);
    }
}

/* ---- divided sequences ---- */

/* Copies this part's rows of FROM, which has all rows, with ROUTING's choices. */
static int32_t *own_choices(const struct sl_routing *routing, const int32_t *from) {
    const size_t choices = routing->choices;
    const uint32_t length = (uint32_t)(routing->rows / routing->sequences);
    int32_t *chosen = device_array(pairs_of(routing), sizeof *chosen);
    for (size_t r = 0; r < routing->rows; r++)
        for (size_t k = 0; k < choices; k++)
            chosen[r * choices + k] = from[sl_cut_row(routing->cut, length, (uint32_t)r) * choices + k];
    return chosen;
}

/* A pair of a part has the slot that it has in WHOLE, and other pairs' slots are empty. */
static void expect_own_slots(const struct sl_routing *routing, const struct trip *whole, const int32_t *slot_of,
                             const int32_t *pair_of) {
    const uint32_t length = (uint32_t)(routing->rows / routing->sequences);
    size_t filled = 0, fit = 0;
    for (size_t pair = 0; pair < pairs_of(routing); pair++) {
        const size_t row = sl_cut_row(routing->cut, length, (uint32_t)(pair / routing->choices));
        assert_int_equal(slot_of[pair], whole->slot_of[row * routing->choices + pair % routing->choices]);
        if (slot_of[pair] >= 0) assert_int_equal(pair_of[slot_of[pair]], pair);
        fit += slot_of[pair] >= 0;
    }
    for (size_t slot = 0; slot < whole->slots; slot++) filled += pair_of[slot] >= 0;
    assert_int_equal(filled, fit);
}

static void slots_of_parts_are_those_of_whole_sequences(void **state) {
    (void)state;
    enum { PARTS = 3, LENGTH = 24, SEQUENCES = 2 };
    const struct sl_routing all = {LENGTH * SEQUENCES, SEQUENCES, 7, 2, 5, {0}};
    const size_t counts = SEQUENCES * 2 * all.experts, shares = SEQUENCES * all.experts;
    struct numbers numbers = {4};
    for (int level = 0; sl_kernels_available(level); level++) {
        const struct sl_expert_kernels *kernels = sl_kernels_available(level)->experts;
        struct trip whole = make_trip(kernels, &numbers, &all, 1);
        float *probabilities = device_floats(all.rows * all.experts), *sums = device_floats(shares);
        float *want = device_floats(shares), *share = device_floats(shares);
        int32_t *count = device_array(PARTS * counts, sizeof *count), *first = device_array(counts, sizeof *first);
        int32_t *chosen[PARTS];
        struct sl_routing routing = all;
        routing.rows /= PARTS;
        kernels->balance(&all, probabilities, whole.chosen, want, sums);
        for (int part = 0; part < PARTS; part++) {
            routing.cut = (struct sl_cut){.parts = PARTS, .part = part};
            chosen[part] = own_choices(&routing, whole.chosen);
            kernels->count(&routing, chosen[part], count + (size_t)part * counts);
        }
        for (int part = 0; part < PARTS; part++) {
            int32_t *slot_of = device_array(pairs_of(&routing), sizeof *slot_of);
            int32_t *pair_of = device_array(whole.slots, sizeof *pair_of);
            routing.cut.part = part;
            kernels->places(&routing, count, first, share);
            kernels->assign(&routing, first, chosen[part], slot_of, pair_of);
            expect_own_slots(&routing, &whole, slot_of, pair_of);
            assert_memory_equal(share, want, shares * sizeof *share);
            RELEASE(slot_of, pair_of, chosen[part]);
        }
        RELEASE(probabilities, sums, want, share, count, first);
        release_trip(&whole);
    }
}

static void rows_go_to_experts_and_back(void **state) {
    (void)state;
    struct numbers numbers = {3};
    FOR_EACH_SHAPE(kernels, routing) {
        for (size_t w = 0; w < WIDTHS && routing->rows * widths[w] < 10000; w++) {
            struct trip t = make_trip(kernels, &numbers, routing, widths[w]);
            for (int weighs = 0; weighs < 2; weighs++) {
                float *gates = weighs ? t.gates : NULL;
                kernels->dispatch(routing, t.width, t.pair_of, gates, t.x, t.at_experts);
                expect_at_experts(&t, weighs);
                kernels->combine(routing, t.width, t.slot_of, gates, t.at_experts, t.y);
                expect_back(&t, weighs);
            }
            kernels->gate_gradients(routing, t.width, t.slot_of, t.x, t.at_experts, t.dgates);
            expect_gate_gradients(&t);
            release_trip(&t);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(experts_of_the_largest_logits),
        cmocka_unit_test(balance_is_counted),
        cmocka_unit_test(gradients_of_logits),
        cmocka_unit_test(rows_go_to_experts_and_back),
        cmocka_unit_test(slots_of_parts_are_those_of_whole_sequences),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
