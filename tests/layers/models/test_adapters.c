/* test_adapters.c - values of a run with adapters, read with the adapters merged into their kernels. */
#include "layers/models/adapters.h"
#include "tests/rigs/numbers.h"

static float *add(struct sl_store *store, const char *name, size_t rows, size_t columns, struct numbers *numbers) {
    const size_t shape[] = {rows, columns};
    struct sl_tensor *tensor = sl_store_add(store, name, SL_F32, 2, shape);
    assert_non_null(tensor);
    float *data = tensor->array.data;
    for (size_t i = 0; i < rows * columns; i++) data[i] = next_float(numbers, -1, 1);
    return data;
}

/* Any part of a kernel, read at once or in pieces, has the same bits; other parameters' values are unchanged. */
static void values_are_read_with_adapters(void **state) {
    (void)state;
    enum { HIGH = 7, WIDE = 601, DEEP = 5 };
    struct numbers numbers = {7};
    struct sl_store store = {0};
    static float whole[HIGH * WIDE], part[HIGH * WIDE];
    const float *w = add(&store, "l.q.kernel", HIGH, WIDE, &numbers);
    const float *a = add(&store, "l.q.lora_a.kernel", HIGH, DEEP, &numbers);
    const float *b = add(&store, "l.q.lora_b.kernel", DEEP, WIDE, &numbers);
    const float *v = add(&store, "l.v.kernel", HIGH, WIDE, &numbers);
    assert_true(sl_adapters_are_in(&store));
    assert_int_equal(sl_adapters_merge(&store, 20, NULL), SL_OK);
    const struct sl_tensor *q = sl_store_find(&store, "l.q.kernel");
    sl_tensor_read(q, 0, HIGH * WIDE, whole);
    for (size_t i = 0; i < HIGH * WIDE; i++) {
        double want = w[i];
        for (size_t r = 0; r < DEEP; r++) want += 4.0 * a[i / WIDE * DEEP + r] * b[r * WIDE + i % WIDE];
        expect_close("W + scale A B", i, whole[i], want, 1e-6, 1e-6);
    }
    for (int i = 0; i < 200; i++) {
        const size_t first = (size_t)next_float(&numbers, 0, HIGH * WIDE - 1), left = HIGH * WIDE - first;
        const size_t count = 1 + (size_t)next_float(&numbers, 0, (float)(left - 1));
        sl_tensor_read(q, first, count, part);
        assert_memory_equal(part, whole + first, count * sizeof *part);
    }
    sl_tensor_read(sl_store_find(&store, "l.v.kernel"), 3, 100, part);
    assert_memory_equal(part, v + 3, 100 * sizeof *part);
    sl_store_free(&store);
}

static void merge_fails(struct sl_store *store, const char *line) {
    struct sl_error error = {0};
    assert_int_equal(sl_adapters_merge(store, 1, &error), SL_BAD_INPUT);
    assert_string_equal(error.message, line);
    sl_store_free(store);
}

static void values_that_do_not_fit_are_refused(void **state) {
    (void)state;
    struct numbers numbers = {8};
    struct sl_store store = {0};
    add(&store, "q.kernel", 4, 6, &numbers);
    assert_false(sl_adapters_are_in(&store));
    assert_int_equal(sl_adapters_merge(&store, 1, NULL), SL_OK);
    add(&store, "q.lora_a.kernel", 4, 2, &numbers);
    merge_fails(&store, "the values: there is q.lora_a.kernel, but no q.lora_b.kernel");
    add(&store, "q.lora_b.kernel", 4, 2, &numbers);
    merge_fails(&store, "the values: there is q.lora_b.kernel, but no q.lora_a.kernel");
    add(&store, "q.lora_a.kernel", 4, 2, &numbers);
    add(&store, "q.lora_b.kernel", 2, 6, &numbers);
    merge_fails(&store, "the values: there is q.lora_a.kernel, but no q.kernel");
    add(&store, "q.kernel", 4, 6, &numbers);
    add(&store, "q.lora_a.kernel", 4, 2, &numbers);
    add(&store, "q.lora_b.kernel", 3, 6, &numbers);
    merge_fails(&store, "the values: q.kernel is [4, 6], and its adapter [4, 2] by [3, 6]");
    const size_t length = 24;
    assert_non_null(sl_store_add(&store, "q.kernel", SL_F32, 1, &length));
    add(&store, "q.lora_a.kernel", 4, 2, &numbers);
    add(&store, "q.lora_b.kernel", 2, 6, &numbers);
    merge_fails(&store, "the values: q.kernel, of an adapter, is no matrix of float32");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_are_read_with_adapters),
        cmocka_unit_test(values_that_do_not_fit_are_refused),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
