/* test_dropout.c - elements that dropout keeps: as in JAX, by position, and in the right proportion. */
#include "tests/rigs/module_rig.h"

/* Returns LAST behind LAYERS layers with a dropout each, and behind BEFORE more dropouts in its own layer. None of
 * these drops elements. */
static struct sl_module *after(int layers, int before, int cols, struct sl_module *last) {
    struct sl_module *part[8];
    int parts = 0;
    for (; parts < layers + before; parts++) {
        part[parts] = sl_dropout(cols, 0.0);
        part[parts]->is_layer = parts < layers;
    }
    part[parts++] = last;
    return sl_sequential("", parts, part);
}

static void test_dropout_is_jax(void **state) {
    (void)state;
    /* jax.random.bernoulli(PRNGKey(42), 1 - 0.4, shape), threefry not partitionable */
    static const struct {
        int rows, cols;
        const char *mask;
    } cases[] = {{3, 5, "111.1.1.111...1"}, {4, 6, "...1111.....11..1.1111.1"}};
    const struct sl_key keys[] = {sl_key_of_seed(1), sl_key_of_seed(2), sl_key_of_seed(42)};
    for (int i = 0; i < 2; i++) {
        for (int with_silu = 0; with_silu < 2; with_silu++) {
            struct rig rig;
            const int cols = cases[i].cols;
            struct sl_module *dropout = with_silu ? sl_silu_dropout(cols, 0.4) : sl_dropout(cols, 0.4);
            open_rig(&rig, after(2, 0, cols, dropout), cases[i].rows, 1, 1);
            rig.context.dropout.layer_key = keys;
            rig.x[0] = -100.0f; /* e^100 is no float */
            forward(&rig);
            for (int j = 0; j < cases[i].rows * cols; j++) {
                const double x = rig.x[j], y = with_silu ? x / (1.0 + exp(-x)) : x;
                const double expected = cases[i].mask[j] == '1' ? y / 0.6 : 0.0;
                assert_close(1, &rig.y[j], &expected, 1e-6);
            }
            close_rig(&rig);
        }
    }
}

static struct {
    float keep;
    uint32_t threshold;
} seen;

static void see_words(const struct sl_dropout_words *words, const struct sl_dropout_arrays *arrays) {
    (void)words;
    seen.keep = arrays->keep;
    seen.threshold = arrays->threshold;
}

/* JAX subtracts in double and compares a float: the float nearest to 0.9797 is not 1.0f - 0.0203f. */
static void test_dropout_share_is_exact(void **state) {
    (void)state;
    static const double rates[] = {0.1, 0.0203, 0.5, 0.25};
    static const float keeps[] = {0.9f, 0.9797f, 0.5f, 0.75f};
    for (int i = 0; i < 4; i++) {
        struct rig rig;
        open_rig(&rig, sl_dropout(3, rates[i]), 2, 1, 1);
        struct sl_kernels kernels = *rig.context.kernels;
        struct sl_operand_kernels operands = *kernels.operands;
        operands.dropout = see_words;
        kernels.operands = &operands;
        rig.context.kernels = &kernels;
        forward(&rig);
        assert_true(seen.keep == keeps[i]);
        /* The first of the 2^23 uniform numbers at or above keep. */
        assert_false(seen.threshold * 0x1p-23f < keeps[i]);
        assert_true((seen.threshold - 1) * 0x1p-23f < keeps[i]);
        close_rig(&rig);
    }
}

/* The mask of a row depends on its place in the batch, not on how the batch is cut. */
static void test_dropout_by_position(void **state) {
    (void)state;
    enum { BATCH = 12, COLS = 7 };
    float whole[BATCH * COLS];
    for (int microbatches = 1; microbatches <= BATCH; microbatches++) {
        if (BATCH % microbatches) continue;
        struct rig rig;
        /* The fourth dropout of layer 1 is number 64 + 3. */
        open_rig(&rig, after(1, 3, COLS, sl_dropout(COLS, 0.5)), BATCH / microbatches, microbatches, 1);
        forward(&rig);
        if (microbatches == 1) memcpy(whole, rig.y, sizeof whole);
        const struct sl_key key = sl_fold_in(rig.context.dropout.step_key, 67);
        for (uint32_t i = 0; i < BATCH * COLS; i++)
            assert_int_equal(rig.y[i] != 0.0f, !(global_word(key, i / COLS, i % COLS) >> 31));
        assert_memory_equal(rig.y, whole, sizeof whole);
        close_rig(&rig);
    }
}

static void test_dropout_share(void **state) {
    (void)state;
    enum { COLS = 256, N = 64 * COLS };
    struct rig rig;
    open_rig(&rig, sl_dropout(COLS, 0.3), 16, 4, 1);
    forward(&rig);
    int kept = 0;
    for (int i = 0; i < N; i++) kept += rig.y[i] != 0.0f;
    assert_true(fabs(kept - 0.7 * N) < 4.0 * sqrt(0.3 * 0.7 * N));
    /* Another step, other words. */
    float *first = floats(N);
    memcpy(first, rig.y, N * sizeof *first);
    rig.context.dropout.step_key = sl_key_of_seed(8);
    forward(&rig);
    assert_memory_not_equal(first, rig.y, N * sizeof *first);
    free(first);
    close_rig(&rig);
}

static void test_dropout_off(void **state) {
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct rig rig;
        open_rig(&rig, sl_dropout(7, i ? 0.0 : 0.5), ROWS, MICROBATCHES, 1);
        rig.context.phase = i ? SL_TRAIN : SL_EVALUATE;
        forward(&rig);
        backward(&rig);
        assert_memory_equal(rig.y, rig.x, MICROBATCHES * rig.inputs * sizeof(float));
        assert_memory_equal(rig.dx, rig.dy, MICROBATCHES * rig.inputs * sizeof(float));
        close_rig(&rig);

        struct rig plain;
        open_rig(&plain, sl_silu(7), ROWS, MICROBATCHES, 1);
        open_rig(&rig, sl_silu_dropout(7, i ? 0.0 : 0.5), ROWS, MICROBATCHES, 1);
        rig.context.phase = i ? SL_TRAIN : SL_EVALUATE;
        forward(&plain);
        forward(&rig);
        assert_memory_equal(rig.y, plain.y, MICROBATCHES * rig.inputs * sizeof(float));
        close_rig(&plain);
        close_rig(&rig);
    }
}

/* Checks that DROPOUT, planned as part of RIG, keeps elements by its NUMBER in the model; and, with a key for each
 * layer of the stage, by the key of LAYER. */
static void check_numbers(struct rig *rig, const struct sl_module *dropout, uint32_t number, int layer) {
    enum { COUNT = ROWS * 16 };
    const struct sl_key key[] = {sl_key_of_seed(1), sl_key_of_seed(2), sl_key_of_seed(3)};
    const struct sl_key step_key = sl_fold_in(rig->context.dropout.step_key, number);
    uint32_t *words = device_array(COUNT, sizeof *words);
    set_microbatch(rig, 0);
    rig->context.dropout.layer_key = NULL;
    assert_int_equal(dropout->type->forward(dropout, &rig->context, sl_given_f32(rig->x), SL_INTO(rig->y)), SL_OK);
    for (uint32_t i = 0; i < COUNT; i++)
        assert_int_equal(rig->y[i] != 0.0f, !(global_word(step_key, i / 16, i % 16) >> 31));
    rig->context.dropout.layer_key = key;
    assert_int_equal(dropout->type->forward(dropout, &rig->context, sl_given_f32(rig->x), SL_INTO(rig->y)), SL_OK);
    rig->context.kernels->draws->words(key[layer], COUNT, words);
    for (uint32_t i = 0; i < COUNT; i++) assert_int_equal(rig->y[i] != 0.0f, !(words[i] >> 31));
    release_array(words);
}

static void test_dropout_numbers(void **state) {
    (void)state;
    struct sl_module *dropout[6];
    for (int i = 0; i < 6; i++) dropout[i] = sl_dropout(16, 0.5);
    struct sl_module *first = sl_sequential("", 2, &dropout[1]), *second = sl_sequential("", 2, &dropout[3]);
    first->is_layer = second->is_layer = true;
    struct sl_module *whole = sl_sequential("", 4, (struct sl_module *[]){dropout[0], first, second, dropout[5]});
    struct rig rig;
    struct sl_plan plan;
    struct sl_error error = {0};
    open_rig(&rig, whole, ROWS, 1, 1);
    struct sl_stash unused = {0};
    plan = (struct sl_plan){.mesh = &rig.mesh,
                            .rows = ROWS,
                            .parameters = &rig.parameters,
                            .stash = &unused,
                            .global_layer = 4,
                            .error = &error};
    assert_int_equal(sl_module_plan(whole, &plan), SL_OK); /* the same again, in the middle of a model */
    static const uint32_t numbers[] = {4 * 64, 4 * 64 + 1, 4 * 64 + 2, 5 * 64, 5 * 64 + 1, 6 * 64};
    static const int layers[] = {0, 0, 0, 1, 1, 2};
    for (int i = 0; i < 6; i++) check_numbers(&rig, dropout[i], numbers[i], layers[i]);
    free(unused.tensor);
    close_rig(&rig);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_dropout_is_jax),      cmocka_unit_test(test_dropout_share_is_exact),
        cmocka_unit_test(test_dropout_by_position), cmocka_unit_test(test_dropout_share),
        cmocka_unit_test(test_dropout_off),         cmocka_unit_test(test_dropout_numbers),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
