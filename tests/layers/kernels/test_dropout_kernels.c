/* test_dropout_kernels.c - dropout that draws its words itself gives the same bits as dropout with drawn words as
 * input, at every level of this CPU. */
#include "tests/rigs/kernel_levels.h"
#include "tests/rigs/numbers.h"

enum { PARTS = 7, NEXT = 3, BEHIND = 5 };
static const float KEEP = 0.9f;
static const uint32_t THRESHOLD = 7549747; /* of 2^23, rounded up */

/* Inputs, both ways' results, and a guard behind each. */
struct arrays {
    size_t n;
    uint32_t *words;
    float *x, *y, *slope, *want, *want_slope;
    uint16_t *stored, *want_stored;
};

static struct arrays make_arrays(struct numbers *numbers, size_t n) {
    struct arrays a = {.n = n,
                       .words = device_array(n + BEHIND, sizeof(uint32_t)),
                       .x = random_device_floats(numbers, n + BEHIND, -4, 4),
                       .y = device_floats(n + BEHIND),
                       .slope = device_floats(n + BEHIND),
                       .want = device_floats(n + BEHIND),
                       .want_slope = device_floats(n + BEHIND),
                       .stored = device_array(n + BEHIND, sizeof(uint16_t)),
                       .want_stored = device_array(n + BEHIND, sizeof(uint16_t))};
    for (size_t i = 0; i < n + BEHIND; i++) {
        a.y[i] = a.slope[i] = a.want[i] = a.want_slope[i] = 3;
        a.stored[i] = a.want_stored[i] = 0x1234;
    }
    return a;
}

static void free_arrays(struct arrays *a) {
    void *const taken[] = {a->words, a->x, a->y, a->slope, a->want, a->want_slope, a->stored, a->want_stored};
    for (size_t i = 0; i < sizeof taken / sizeof *taken; i++) release_array(taken[i]);
}

/* Applies dropout with A's words. */
static void drop_by_words(const struct sl_kernels *kernels, const struct arrays *a, bool silu) {
    const struct sl_dropout_words words = {.at = a->words};
    const struct sl_dropout_arrays arrays = {.count = a->n,
                                             .silu = silu,
                                             .x = sl_rows_f32(a->x),
                                             .threshold = THRESHOLD,
                                             .keep = KEEP,
                                             .y = sl_out_f32(a->want),
                                             .slope = sl_rows_f32(a->want_slope)};
    kernels->operands->dropout(&words, &arrays);
}

/* The same for x and the slope as bf16: the results of a rounded x in floats. */
static void expect_same_of_halves(const struct sl_kernels *kernels, struct arrays *a,
                                  const struct sl_dropout_words *words) {
    const struct sl_dropout_words drawn = {.at = a->words};
    float *x = device_copy(a->x, a->n * sizeof *x);
    uint16_t *half_x = settle(x, a->n), *half_slope = device_array(a->n, sizeof *half_slope);
    for (int silu = 0; silu < 2; silu++) {
        struct sl_dropout_arrays arrays = {.count = a->n,
                                           .silu = silu,
                                           .x = sl_rows_f32(x),
                                           .threshold = THRESHOLD,
                                           .keep = KEEP,
                                           .y = sl_out_f32(a->want),
                                           .slope = sl_rows_f32(a->want_slope)};
        kernels->operands->dropout(&drawn, &arrays);
        arrays.x = sl_rows_bf16(half_x), arrays.y = sl_out_f32(a->y), arrays.slope = sl_rows_bf16(half_slope);
        kernels->operands->dropout(words, &arrays);
        assert_memory_equal(a->y, a->want, a->n * sizeof *a->y);
        for (size_t i = 0; i < a->n; i++) assert_int_equal(half_slope[i], sl_bf16_of_float(a->want_slope[i]));
    }
    release_array(x);
    release_array(half_x);
    release_array(half_slope);
}

/* Expects dropout that draws WORDS itself to give the results of A's words, which are the same. */
static void expect_same(const struct sl_kernels *kernels, struct arrays *a, const struct sl_dropout_words *words) {
    const size_t n = a->n, bytes = (n + BEHIND) * sizeof(float);
    struct sl_dropout_arrays arrays = {.count = n,
                                       .x = sl_rows_f32(a->x),
                                       .threshold = THRESHOLD,
                                       .keep = KEEP,
                                       .y = sl_out_f32(a->y),
                                       .slope = sl_rows_f32(a->slope)};
    for (int silu = 0; silu < 2; silu++) {
        arrays.silu = silu;
        drop_by_words(kernels, a, silu);
        kernels->operands->dropout(words, &arrays);
        assert_memory_equal(a->y, a->want, bytes);
        assert_memory_equal(a->slope, a->want_slope, bytes);
    }
    for (size_t i = 0; i < n; i++) a->want_stored[i] = sl_bf16_of_float(a->want[i]);
    arrays.y = sl_out_bf16(a->stored);
    memset(a->slope, 0, n * sizeof *a->slope);
    kernels->operands->dropout(words, &arrays);
    assert_memory_equal(a->stored, a->want_stored, (n + BEHIND) * sizeof *a->stored);
    assert_memory_equal(a->slope, a->want_slope, bytes);
    arrays.silu = false;
    drop_by_words(kernels, a, false);
    kernels->operands->dropout(words, &arrays);
    for (size_t i = 0; i < n; i++) assert_int_equal(a->stored[i], sl_bf16_of_float(a->want[i]));
    assert_memory_equal(a->slope, a->want_slope, bytes);
    expect_same_of_halves(kernels, a, words);
}

/* One microbatch, as many as a region takes, and more; parts with and without a middle word. */
static void parts_have_words_of_their_keys(void **state) {
    (void)state;
    static const uint32_t sizes[] = {1, 2, 3, 31, 129, 257, 513};
    FOR_EACH_LEVEL(kernels) {
        struct numbers numbers = {3};
        struct sl_key keys[PARTS * NEXT];
        for (size_t k = 0; k < sizeof keys / sizeof *keys; k++) keys[k] = (struct sl_key){{(uint32_t)k, 77}};
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
            for (size_t parts = 1; parts <= PARTS; parts++) {
                const struct sl_dropout_words words = {.keys = keys, .next = NEXT, .parts = parts, .part = sizes[s]};
                struct arrays a = make_arrays(&numbers, parts * sizes[s]);
                kernels->draws->words_each(parts, keys, NEXT, sizes[s], a.words);
                expect_same(kernels, &a, &words);
                free_arrays(&a);
            }
        }
    }
}

/* Rows that begin and end with either half of a hash. Where columns are few, there are enough rows for several teams of
 * a GPU. */
static void elements_have_words_of_their_places(void **state) {
    (void)state;
    FOR_EACH_LEVEL(kernels) {
        struct numbers numbers = {4};
        for (uint32_t first_col = 0; first_col < 4; first_col++) {
            for (uint32_t cols = 1; cols < 70; cols += cols < 5 ? 1 : 32) {
                const struct sl_dropout_words words = {
                    .key = {{5, 6}}, .first_row = 9, .rows = cols < 5 ? 700 : 5, .first_col = first_col, .cols = cols};
                struct arrays a = make_arrays(&numbers, (size_t)words.rows * cols);
                kernels->draws->words_global(words.key, 9, words.rows, first_col, cols, cols, a.words);
                expect_same(kernels, &a, &words);
                free_arrays(&a);
            }
        }
    }
}

int main(void) {
    cmocka_set_message_output(CM_OUTPUT_TAP);
    const struct CMUnitTest tests[] = {cmocka_unit_test(parts_have_words_of_their_keys),
                                       cmocka_unit_test(elements_have_words_of_their_places)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
