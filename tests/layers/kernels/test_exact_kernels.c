/* test_exact_kernels.c - kernels of every level of this CPU, on numbers without rounding errors: results equal those of
 * a plain loop exactly, for counts around the ends of a GPU's groups of four, warps and teams. Elements that kernels
 * should not read are NaN. */
#include "tests/rigs/kernel_levels.h"
#include "tests/rigs/numbers.h"

#include "layers/kernels/expert.h"
#include "layers/kernels/sequence.h"

/* Numbers of rows, or of columns */
static const size_t counts[] = {1, 2, 3, 4, 5, 31, 33, 127, 128, 129, 130, 257};
enum { COUNTS = sizeof counts / sizeof *counts, BEHIND = 300 };

/* Sets the elements behind the first N of ROOM elements to NaN. */
static void poison(float *x, size_t n, size_t room) {
    for (size_t i = n; i < room; i++) x[i] = NAN;
}

static void release(void *const *arrays, size_t count) {
    for (size_t i = 0; i < count; i++) release_array(arrays[i]);
}
#define RELEASE(...) release((void *const[]){__VA_ARGS__}, sizeof(void *[]){__VA_ARGS__} / sizeof(void *))

/* ---- sums of all elements ---- */

static void sums_of_squares_are_exact(void **state) {
    (void)state;
    static const size_t sizes[] = {1, 129, 1023, 1024, 1025, 2049, 5000, 140000};
    FOR_EACH_LEVEL(kernels) {
        struct numbers numbers = {1};
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
            const size_t n = sizes[s];
            float *x = random_device_wholes(&numbers, n + BEHIND);
            double *room = device_array(SL_SUM_ROOM, sizeof *room), *sum = device_array(1, sizeof *sum), want = 7;
            int32_t *bits = device_array(1, sizeof *bits);
            poison(x, n, n + BEHIND);
            x[n - 1] = -5.0f;
            for (size_t i = 0; i < n; i++) want += (double)x[i] * x[i];
            *sum = 7;
            kernels->sum_of_squares(n, x, room, sum);
            *bits = 3;
            kernels->largest_bits(n, x, room, bits);
            assert_int_equal(sl_device.settle(NULL), SL_OK);
            assert_true(*sum == want);
            assert_int_equal(*bits, 0x40a00000); /* of 5 */
            x[n / 2] = -0x1p30f;
            kernels->largest_bits(n, x, room, bits);
            kernels->largest_bits(1, &x[n - 1], room, bits); /* of a smaller number, which changes nothing */
            assert_int_equal(sl_device.settle(NULL), SL_OK);
            assert_int_equal(*bits, 0x4e800000);
            RELEASE(x, room, sum, bits);
        }
    }
}

/* As many elements as give each lane of a team some, in each of the parts. */
static void sums_of_scaled_squares_are_exact(void **state) {
    (void)state;
    static const size_t sizes[] = {1, 129, 511, 513, 140001};
    FOR_EACH_LEVEL(kernels) {
        struct numbers numbers = {7};
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
            const size_t n = sizes[s];
            float *x = random_device_floats(&numbers, n + BEHIND, -2, 2);
            double *room = device_array(SL_SUM_ROOM, sizeof *room);
            uint64_t *sums = device_array(2, sizeof *sums), high = 3, low = 5;
            poison(x, n, n + BEHIND);
            sums[0] = high, sums[1] = low;
            for (size_t i = 0; i < n; i++) {
                const uint64_t multiple = (uint64_t)((double)x[i] / 2 * ((double)x[i] / 2) * 0x1p63);
                high += (multiple >> 32) + ((low + (multiple & UINT32_MAX)) >> 32);
                low = (low + multiple) & UINT32_MAX;
            }
            kernels->add_squares(n, x, 0.5, room, sums);
            assert_int_equal(sl_device.settle(NULL), SL_OK);
            assert_true(sums[0] == high && sums[1] == low);
            RELEASE(x, room, sums);
        }
    }
}

/* ---- maxima ---- */

/* Row r has a single largest logit, in column r; all logits are below SHIFT. */
/* By definition: the sum of the first numbers, the largest power of two below N, plus the sum of the others. */
static float tree_of(const float *x, size_t n) {
    size_t left = 1;
    if (n == 1) return *x;
    while (2 * left < n) left *= 2;
    return tree_of(x, left) + tree_of(x + left, n - left);
}

static void rows_are_summed_as_trees(void **state) {
    (void)state;
    enum { ROWS = 3 };
    FOR_EACH_LEVEL(kernels) {
        struct numbers numbers = {8};
        for (size_t c = 0; c < COUNTS; c++) {
            const size_t cols = counts[c], n = ROWS * cols;
            float *x = random_device_floats(&numbers, n, -2, 2), *before = device_copy(x, n * sizeof *x);
            float *sums = device_floats(ROWS);
            kernels->row_trees(ROWS, cols, x, sums);
            assert_int_equal(sl_device.settle(NULL), SL_OK);
            for (size_t r = 0; r < ROWS; r++) assert_true(sums[r] == tree_of(before + r * cols, cols));
            RELEASE(x, before, sums);
        }
    }
}

static void expect_maxima(const struct sl_sequence_kernels *kernels, size_t cols, float shift) {
    struct numbers numbers = {cols};
    float *x = random_device_wholes(&numbers, cols * cols), *numbers_of[5], *p = device_floats(cols * cols);
    int32_t *labels = device_array(cols, sizeof *labels);
    for (int i = 0; i < 5; i++) numbers_of[i] = device_floats(cols);
    for (size_t i = 0; i < cols * cols; i++) x[i] += shift - (i / cols == i % cols ? x[i] : 5.0f);
    for (size_t r = 0; r < cols; r++) labels[r] = (int32_t)r;
    kernels->row_maxima(cols, cols, 3, x, numbers_of[0], numbers_of[1]);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(sl_device.settle(NULL), SL_OK);
        for (size_t r = 0; r < cols; r++) assert_true(numbers_of[0][r] == shift && numbers_of[1][r] == (float)(r + 3));
        for (size_t r = 0; r < cols; r++) numbers_of[0][r] = numbers_of[1][r] = NAN;
        kernels->softmax_chunk(cols, cols, 3, x, labels, true, numbers_of[0], numbers_of[1], numbers_of[2],
                               numbers_of[3], numbers_of[4], sl_out_f32(p));
    }
    for (int i = 0; i < 5; i++) release_array(numbers_of[i]);
    RELEASE(x, p, labels);
}

static void a_row_has_its_largest_anywhere(void **state) {
    (void)state;
    static const float shifts[] = {-7, 0, 2, 90};
    FOR_EACH_LEVEL(kernels)
    for (int i = 0; i < 8; i++) expect_maxima(kernels->sequence, i % 2 ? 133 : 37, shifts[i / 2]);
}

/* ---- losses ---- */

/* Rows that are left out have NaN. Sums of so few floats from 1 to 2 are exact in double, in any order. */
static void losses_of_counted_rows_are_added(void **state) {
    (void)state;
    FOR_EACH_LEVEL(kernels) {
        struct numbers numbers = {2};
        for (size_t i = 0; i < COUNTS; i++) {
            double want[3] = {7, -8, 9}, *sums = device_copy(want, sizeof want);
            float *losses = random_device_floats(&numbers, 2 * counts[i], 1, 2);
            int32_t *labels = device_array(counts[i], sizeof *labels);
            for (size_t r = 0; r < counts[i]; r++) {
                labels[r] = (int32_t)((r + i) % 3) - 1;
                if (labels[r] < 0)
                    losses[2 * r] = losses[2 * r + 1] = NAN;
                else
                    want[0] += (double)losses[2 * r], want[1] += (double)losses[2 * r + 1], want[2] += 1;
            }
            kernels->add_losses(counts[i], labels, losses, sums);
            assert_int_equal(sl_device.settle(NULL), SL_OK);
            assert_memory_equal(sums, want, sizeof want);
            RELEASE(sums, losses, labels);
        }
    }
}

static void squared_errors_are_exact(void **state) {
    (void)state;
    enum { COLUMNS = 8 };
    FOR_EACH_LEVEL(kernels) {
        struct numbers numbers = {3};
        for (size_t i = 0; i < COUNTS; i++) {
            const size_t n = counts[i] * COLUMNS;
            float *outputs = random_device_wholes(&numbers, n), *targets = random_device_wholes(&numbers, n);
            float *gradient = random_device_wholes(&numbers, n + BEHIND);
            double want[3] = {7, 8, 9 + (double)counts[i]};
            double *room = device_array(SL_SUM_ROOM, sizeof *room), *sums = device_copy(want, sizeof want);
            poison(gradient, n, n + BEHIND);
            sums[2] = 9;
            for (size_t e = 0; e < n; e++)
                want[0] += (double)(outputs[e] - targets[e]) * (outputs[e] - targets[e]) / COLUMNS;
            kernels->mean_squared_error(counts[i], COLUMNS, outputs, targets, 0.5f, gradient, room, sums);
            assert_int_equal(sl_device.settle(NULL), SL_OK);
            assert_memory_equal(sums, want, sizeof want);
            for (size_t e = 0; e < n; e++) assert_true(gradient[e] == (outputs[e] - targets[e]) / COLUMNS);
            for (size_t e = n; e < n + BEHIND; e++) assert_true(isnan(gradient[e]));
            RELEASE(outputs, targets, gradient, room, sums);
        }
    }
}

/* Sums of 1, of which the logarithm is 0. */
static void losses_of_sequences_are_exact(void **state) {
    (void)state;
    FOR_EACH_LEVEL(kernels) {
        struct numbers numbers = {4};
        for (size_t i = 0; i < COUNTS; i++) {
            const size_t rows = counts[i];
            float *maxima = random_device_wholes(&numbers, rows), *guesses = device_floats(rows);
            float *sums = device_floats(rows), *targets = random_device_wholes(&numbers, rows);
            int32_t *labels = device_array(rows, sizeof *labels);
            double want[3] = {100, 200, 300}, *totals = device_copy(want, sizeof want);
            for (size_t r = 0; r < rows; r++) {
                labels[r] = (int32_t)((r + i) % 4) - 1;
                guesses[r] = (float)((r / 4 + i) % 3);
                sums[r] = 1.0f;
                if (labels[r] < 0) {
                    maxima[r] = targets[r] = sums[r] = NAN;
                    guesses[r] = -1.0f;
                    continue;
                }
                want[0] += 2.0 * (double)(maxima[r] - targets[r]);
                want[1] += 3.0 * (guesses[r] == (float)labels[r]);
                want[2] += 2.0;
            }
            kernels->sequence->softmax_losses(rows, labels, maxima, guesses, sums, targets, 2, 3, totals);
            assert_int_equal(sl_device.settle(NULL), SL_OK);
            assert_memory_equal(totals, want, sizeof want);
            RELEASE(maxima, guesses, sums, targets, labels, totals);
        }
    }
}

/* ---- the loss over token sequences ----
 *
 * Logits are the row's maximum, or so far below it that their power is 0: sums are numbers of equals. */

enum { LOW = -1000, EXACT_ROWS = 3 };

/* The values that softmax_chunk should write for a row. */
struct left {
    float maximum, argmaximum, sum, target, scale;
};

/* Adds a chunk of the row's classes to LEFT. */
static struct left add_exactly(struct left left, size_t cols, const float *x, int32_t first, int32_t label,
                               bool begins) {
    float highest = -INFINITY;
    int32_t at = 0;
    for (size_t c = 0; c < cols; c++)
        if (x[c] > highest) highest = x[c], at = (int32_t)c;
    const bool grows = begins || highest > left.maximum;
    struct left now = left;
    if (grows) now.maximum = highest, now.argmaximum = (float)(first + at);
    now.scale = begins || grows ? 0.0f : 1.0f;
    now.sum = grows ? 0.0f : left.sum;
    for (size_t c = 0; c < cols; c++) now.sum += x[c] == now.maximum;
    now.target = begins ? 0.0f : left.target;
    if (label >= first && label < first + (int32_t)cols) now.target += x[label - first];
    return now;
}

/* Rows of COLS classes in two chunks, in the form of FORM: floats, bf16, or both. */
static void expect_exact_rows(const struct sl_sequence_kernels *kernels, struct numbers *numbers, size_t cols,
                              int form) {
    const size_t n = EXACT_ROWS * cols;
    float *numbers_of[5], *x[2], *out = device_floats(n + 4);
    uint16_t *halves = device_array(n + 4, sizeof *halves);
    int32_t *labels = device_array(EXACT_ROWS, sizeof *labels);
    struct left left[EXACT_ROWS] = {0};
    for (int i = 0; i < 5; i++) numbers_of[i] = device_floats(EXACT_ROWS);
    for (int r = 0; r < EXACT_ROWS; r++) labels[r] = r == 2 ? -1 : (int32_t)(next_word(numbers) % (2 * cols));
    for (int chunk = 0; chunk < 2; chunk++) {
        const int32_t first = chunk ? (int32_t)cols : 0;
        x[chunk] = device_floats(n);
        for (size_t i = 0; i < n; i++) /* the second row's maximum grows in the second chunk */
            x[chunk][i] =
                (next_word(numbers) % 3 ? 0.0f : (float)LOW) + (i / cols == 1 && !chunk ? (float)(3 * LOW) : 0.0f);
        for (size_t i = 0; i < n + 4; i++) out[i] = -7.0f, halves[i] = 7;
        kernels->softmax_chunk(EXACT_ROWS, cols, first, x[chunk], labels, !chunk, numbers_of[0], numbers_of[1],
                               numbers_of[2], numbers_of[3], numbers_of[4],
                               form == 0   ? sl_out_f32(out)
                               : form == 1 ? sl_out_bf16(halves)
                                           : sl_out_of(out, false, halves));
        assert_int_equal(sl_device.settle(NULL), SL_OK);
        for (size_t r = 0; r < EXACT_ROWS; r++) {
            left[r] = add_exactly(left[r], cols, x[chunk] + r * cols, first, labels[r], !chunk);
            assert_true(numbers_of[0][r] == left[r].maximum && numbers_of[1][r] == left[r].argmaximum);
            assert_true(numbers_of[2][r] == left[r].sum && numbers_of[3][r] == left[r].target);
            assert_true(numbers_of[4][r] == left[r].scale);
        }
        for (size_t i = 0; i < n + 4; i++) {
            const float p = i < n ? (float)(x[chunk][i] == left[i / cols].maximum) : -7.0f;
            assert_true(form == 1 ? out[i] == -7.0f : out[i] == p);
            assert_int_equal(halves[i], form == 0 || i >= n ? 7 : sl_bf16_of_float(p));
        }
    }
    for (int chunk = 0; chunk < 2; chunk++) { /* a weight such that weight / sum is 0.25 */
        for (size_t r = 0; r < EXACT_ROWS; r++) numbers_of[2][r] = 8.0f;
        for (size_t i = 0; i < n + 4; i++) out[i] = -7.0f, halves[i] = 7;
        const int32_t first = chunk ? (int32_t)cols : 0;
        kernels->softmax_dlogits(EXACT_ROWS, cols, first, labels, numbers_of[0], numbers_of[2], 2.0f, x[chunk],
                                 form == 0   ? sl_out_f32(out)
                                 : form == 1 ? sl_out_bf16(halves)
                                             : sl_out_of(out, false, halves));
        assert_int_equal(sl_device.settle(NULL), SL_OK);
        for (size_t i = 0; i < n + 4; i++) {
            const size_t r = i / cols;
            float slope = -7.0f;
            if (i < n) slope = labels[r] < 0 || x[chunk][i] != left[r].maximum ? 0.0f : 0.25f;
            if (i < n && labels[r] == first + (int32_t)(i % cols)) slope -= 2.0f;
            assert_true(form == 1 ? out[i] == -7.0f : out[i] == slope);
            assert_int_equal(halves[i], form == 0 || i >= n ? 7 : sl_bf16_of_float(slope));
        }
    }
    for (int i = 0; i < 5; i++) release_array(numbers_of[i]);
    void *const arrays[] = {x[0], x[1], out, halves, labels};
    for (size_t a = 0; a < sizeof arrays / sizeof *arrays; a++) release_array(arrays[a]);
}

/* Classes around the ends of a group of four, of a warp and of a team of a GPU, and of two turns of it. */
static void sums_of_equals_are_exact(void **state) {
    (void)state;
    static const size_t widths[] = {1, 2, 3, 4, 5, 31, 33, 127, 128, 129, 130, 511, 512, 513, 515, 1025};
    struct numbers numbers = {6};
    FOR_EACH_LEVEL(kernels)
    for (size_t w = 0; w < sizeof widths / sizeof *widths; w++)
        for (int form = 0; form < 3; form++) expect_exact_rows(kernels->sequence, &numbers, widths[w], form);
}

/* ---- experts ---- */

enum { CHOICES = 2, PAIRS = 2 * CHOICES };

/* Half of the pairs have a slot; slot 0 has none, and NaN. */
static void gate_gradients_are_exact(void **state) {
    (void)state;
    const struct sl_routing routing = {.rows = 2, .sequences = 1, .experts = 3, .choices = CHOICES, .capacity = 2};
    FOR_EACH_LEVEL(kernels) {
        struct numbers numbers = {5};
        for (size_t i = 0; i < COUNTS; i++) {
            const size_t cols = counts[i];
            float *dy = random_device_wholes(&numbers, 2 * cols + BEHIND), *gates = device_floats(PAIRS + BEHIND);
            float *x = random_device_wholes(&numbers, (PAIRS + 1) * cols + BEHIND);
            int32_t *slots = device_array(PAIRS, sizeof *slots);
            poison(dy, 2 * cols, 2 * cols + BEHIND);
            poison(x, (PAIRS + 1) * cols, (PAIRS + 1) * cols + BEHIND);
            poison(gates, PAIRS, PAIRS + BEHIND);
            for (size_t c = 0; c < cols; c++) x[c] = NAN;
            for (size_t pair = 0; pair < PAIRS; pair++) slots[pair] = pair % 3 ? (int32_t)(PAIRS - pair) : -1;
            kernels->experts->gate_gradients(&routing, cols, slots, dy, x, gates);
            assert_int_equal(sl_device.settle(NULL), SL_OK);
            for (size_t pair = 0; pair < PAIRS; pair++) {
                float dot = 0;
                for (size_t c = 0; c < cols && slots[pair] >= 0; c++)
                    dot += dy[pair / CHOICES * cols + c] * x[(size_t)slots[pair] * cols + c];
                assert_true(gates[pair] == dot);
            }
            for (size_t e = PAIRS; e < PAIRS + BEHIND; e++) assert_true(isnan(gates[e]));
            RELEASE(dy, x, gates, slots);
        }
    }
}

int main(void) {
    setenv("SHARDLOOP_MEMORY", "managed", 1);
    cmocka_set_message_output(CM_OUTPUT_TAP);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_of_squares_are_exact),      cmocka_unit_test(sums_of_scaled_squares_are_exact),
        cmocka_unit_test(a_row_has_its_largest_anywhere), cmocka_unit_test(losses_of_counted_rows_are_added),
        cmocka_unit_test(squared_errors_are_exact),       cmocka_unit_test(losses_of_sequences_are_exact),
        cmocka_unit_test(sums_of_equals_are_exact),       cmocka_unit_test(rows_are_summed_as_trees),
        cmocka_unit_test(gate_gradients_are_exact),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
