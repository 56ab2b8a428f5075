/* expert.c - kernels of a mixture of experts: routing, and copies to experts and back; built as kernels.c is.
 *
 * The build defines SL_EXPERT_KERNELS, the table's name. */
#include "layers/kernels/expert.h"
#include "spmd/device/offload.h"
#include "spmd/base/numbers/vector_math.h"

/* ---- routing ---- */

static void route(const struct sl_routing *routing, const float *logits, float *probabilities, int32_t *chosen,
                  float *gates) {
    const size_t rows = routing->rows, choices = routing->choices;
    const int32_t experts = (int32_t)routing->experts;
    SL_ROWS(is_device_ptr(logits, probabilities, chosen, gates))
    for (size_t r = 0; r < rows; r++) {
        const float *x = logits + r * (size_t)experts;
        float *p = probabilities + r * (size_t)experts, *gate = gates + r * choices;
        int32_t *choice = chosen + r * choices;
        int32_t before = INT32_MAX,
                at = experts; /* the previous choice: later choices are smaller, or equal with a higher number */
        float max = 0.0f;
        for (size_t k = 0; k < choices; k++) {
            int32_t highest = INT32_MIN, first = experts;
            SL_LANES(reduction(max : highest))
            for (int32_t e = 0; e < experts; e++) {
                const int32_t value = sl_order_of_float(x[e]);
                const bool left = (value < before) | ((value == before) & (e > at));
                const int32_t candidate = left ? value : INT32_MIN;
                highest = candidate > highest ? candidate : highest;
            }
            SL_LANES(reduction(min : first))
            for (int32_t e = 0; e < experts; e++) {
                const bool is = (sl_order_of_float(x[e]) == highest) & ((highest < before) | (e > at));
                const int32_t candidate = is ? e : experts;
                first = candidate < first ? candidate : first;
            }
            if (k == 0) max = sl_float_of_order(highest);
            before = highest;
            choice[k] = at = first;
        }
        SL_LANES()
        for (int32_t e = 0; e < experts; e++) p[e] = sl_exp(x[e] - max);
        float sum = 0.0f;
        SL_LANES(reduction(+ : sum))
        for (int32_t e = 0; e < experts; e++) sum += p[e];
        SL_LANES()
        for (int32_t e = 0; e < experts; e++) p[e] /= sum;
        float together = choices > 1 ? 0.0f : 1.0f;
        for (size_t k = 0; k < choices && choices > 1; k++) together += p[choice[k]];
        for (size_t k = 0; k < choices; k++) gate[k] = p[choice[k]] / together;
    }
}

/* Pairs of a block. */
static size_t pairs_of_block(const struct sl_routing *routing) {
    return routing->rows / routing->sequences / (size_t)sl_cut_blocks(routing->cut) * routing->choices;
}

static void count(const struct sl_routing *routing, const int32_t *chosen, int32_t *counts) {
    const size_t experts = routing->experts, pairs = pairs_of_block(routing);
    const size_t blocks = routing->sequences * (size_t)sl_cut_blocks(routing->cut);
    SL_ROWS(is_device_ptr(chosen, counts))
    for (size_t i = 0; i < blocks * experts; i++) {
        const int32_t expert = (int32_t)(i % experts), *choice = chosen + i / experts * pairs;
        int32_t sum = 0;
        SL_LANES(reduction(+ : sum))
        for (size_t pair = 0; pair < pairs; pair++) sum += choice[pair] == expert;
        counts[i] = sum;
    }
}

static void places(const struct sl_routing *routing, const int32_t *all, int32_t *first, float *shares) {
    const size_t experts = routing->experts, sequences = routing->sequences, parts = (size_t)routing->cut.parts;
    const size_t own = (size_t)routing->cut.part, pairs = 2 * parts * pairs_of_block(routing);
    SL_ROWS(is_device_ptr(all, first, shares))
    for (size_t i = 0; i < sequences * experts; i++) {
        int32_t sum = 0;
        for (size_t block = 0; block < 2 * parts; block++) {
            const size_t part = block < parts ? block : 2 * parts - 1 - block;
            const size_t at = (i / experts * 2 + block / parts) * experts + i % experts;
            if (part == own) first[at] = sum;
            sum += all[part * sequences * 2 * experts + at];
        }
        shares[i] = (float)sum / (float)pairs;
    }
}

static void assign(const struct sl_routing *routing, const int32_t *first, const int32_t *chosen, int32_t *slot_of,
                   int32_t *pair_of) {
    const size_t experts = routing->experts, sequences = routing->sequences, capacity = routing->capacity;
    const size_t pairs = pairs_of_block(routing), blocks = (size_t)sl_cut_blocks(routing->cut);
    const bool divided = first != NULL;
    if (!divided) first = chosen; /* not read */
    SL_ROWS(is_device_ptr(first, chosen, slot_of, pair_of))
    for (size_t i = 0; i < experts * sequences; i++) {
        const size_t expert = i / sequences, slot = i * capacity;
        for (size_t place = 0; place < capacity; place++) pair_of[slot + place] = -1;
        for (size_t block = i % sequences * blocks; block < (i % sequences + 1) * blocks; block++) {
            size_t place = divided ? (size_t)first[block * experts + expert] : 0;
            for (size_t pair = block * pairs; pair < (block + 1) * pairs; pair++) {
                if (chosen[pair] != (int32_t)expert) continue;
                const bool fits = place < capacity;
                slot_of[pair] = fits ? (int32_t)(slot + place) : -1;
                if (fits) pair_of[slot + place++] = (int32_t)pair;
            }
        }
    }
}

static void balance(const struct sl_routing *routing, const float *probabilities, const int32_t *chosen, float *shares,
                    float *sums) {
    const size_t experts = routing->experts, sequences = routing->sequences;
    const size_t length = routing->rows / sequences, pairs = length * routing->choices;
    SL_ROWS(is_device_ptr(probabilities, chosen, shares, sums))
    for (size_t i = 0; i < sequences * experts; i++) {
        const size_t sequence = i / experts, expert = i % experts;
        const int32_t *choice = chosen + sequence * pairs;
        const float *p = probabilities + sequence * length * experts + expert;
        int count = 0;
        SL_LANES(reduction(+ : count))
        for (size_t pair = 0; pair < pairs; pair++) count += choice[pair] == (int32_t)expert;
        float sum = 0.0f;
        SL_LANES(reduction(+ : sum))
        for (size_t t = 0; t < length; t++) sum += p[t * experts];
        shares[i] = (float)count / (float)pairs;
        sums[i] = sum;
    }
}

static void add_balance(const struct sl_routing *routing, const float *shares, const float *sums, double factor,
                        double *total) {
    const size_t experts = routing->experts, sequences = routing->sequences, length = routing->rows / sequences;
    SL_ROWS(is_device_ptr(shares, sums, total))
    for (size_t once = 0; once < 1; once++) {
        double result = 0.0;
        SL_ADDS(reduction(+ : result))
        for (size_t i = 0; i < sequences * experts; i++)
            result += (double)experts * shares[i] * sums[i] / (double)length;
        *total += result * factor;
    }
}

/* Gates are a softmax over the chosen experts; with one choice per token, over all experts. */
static void route_backward(const struct sl_routing *routing, const float *probabilities, const int32_t *chosen,
                           const float *gates, const float *dgates, const float *shares, float factor, float *dlogits) {
    const size_t rows = routing->rows, experts = routing->experts, choices = routing->choices;
    const size_t length = rows / routing->sequences;
    const float each = factor * (float)experts / (float)length; /* gradient of a probability over its expert's share */
    SL_ROWS(is_device_ptr(probabilities, chosen, gates, dgates, shares, dlogits))
    for (size_t r = 0; r < rows; r++) {
        const float *p = probabilities + r * experts, *share = shares + r / length * experts;
        const float *gate = gates + r * choices, *dgate = dgates + r * choices;
        const int32_t *choice = chosen + r * choices;
        float *dx = dlogits + r * experts, mean = 0.0f, along = 0.0f;
        SL_LANES(reduction(+ : mean))
        for (size_t e = 0; e < experts; e++) mean += p[e] * share[e];
        for (size_t k = 0; k < choices; k++) along += gate[k] * dgate[k];
        const float all = each * mean + (choices > 1 ? 0.0f : along);
        SL_LANES()
        for (size_t e = 0; e < experts; e++) dx[e] = p[e] * (each * share[e] - all);
        for (size_t k = 0; k < choices; k++) dx[choice[k]] += gate[k] * (choices > 1 ? dgate[k] - along : dgate[k]);
    }
}

/* ---- to experts and back ---- */

static void dispatch(const struct sl_routing *routing, size_t cols, const int32_t *pair_of, const float *gates,
                     const float *x, float *y) {
    const size_t slots = sl_routing_slots(routing), choices = routing->choices;
    const bool weighs = gates != NULL;
    if (!weighs) gates = x; /* not read */
    SL_ROWS(is_device_ptr(pair_of, gates, x, y))
    for (size_t s = 0; s < slots; s++) {
        const int32_t pair = pair_of[s];
        const size_t row = pair < 0 ? 0 : (size_t)pair / choices;
        const float gate = weighs && pair >= 0 ? gates[pair] : 1.0f, *in = x + row * cols;
        float *out = y + s * cols;
        SL_LANES()
        for (size_t c = 0; c < cols; c++) out[c] = pair < 0 ? 0.0f : gate * in[c];
    }
}

static void combine(const struct sl_routing *routing, size_t cols, const int32_t *slot_of, const float *gates,
                    const float *x, float *y) {
    const size_t rows = routing->rows, choices = routing->choices;
    const bool weighs = gates != NULL;
    if (!weighs) gates = x; /* not read */
    SL_ROWS(is_device_ptr(slot_of, gates, x, y))
    for (size_t r = 0; r < rows; r++) {
        float *out = y + r * cols;
        SL_LANES()
        for (size_t c = 0; c < cols; c++) out[c] = 0.0f;
        for (size_t pair = r * choices; pair < (r + 1) * choices; pair++) {
            const int32_t slot = slot_of[pair];
            if (slot < 0) continue;
            const float gate = weighs ? gates[pair] : 1.0f, *in = x + (size_t)slot * cols;
            SL_LANES()
            for (size_t c = 0; c < cols; c++) out[c] += gate * in[c];
        }
    }
}

static void gate_gradients(const struct sl_routing *routing, size_t cols, const int32_t *slot_of, const float *dy,
                           const float *x, float *dgates) {
    const size_t pairs = routing->rows * routing->choices, choices = routing->choices;
    SL_ROWS(is_device_ptr(slot_of, dy, x, dgates))
    for (size_t pair = 0; pair < pairs; pair++) {
        const int32_t slot = slot_of[pair];
        const float *gradient = dy + pair / choices * cols, *in = x + (slot < 0 ? 0 : (size_t)slot) * cols;
        float dot = 0.0f;
        SL_LANES(reduction(+ : dot))
        for (size_t c = 0; c < cols; c++) dot += gradient[c] * in[c];
        dgates[pair] = slot < 0 ? 0.0f : dot;
    }
}

const struct sl_expert_kernels SL_EXPERT_KERNELS = {
    .route = route,
    .count = count,
    .places = places,
    .assign = assign,
    .balance = balance,
    .add_balance = add_balance,
    .route_backward = route_backward,
    .dispatch = dispatch,
    .combine = combine,
    .gate_gradients = gate_gradients,
};
