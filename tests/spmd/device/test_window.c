/* test_window.c - units that share memory in turns have their last written values, in any order and with any number of
 * frames; failures of the file are reported. */
#include "tests/rigs/numbers.h"

#include <unistd.h>

#include "spmd/device/window.h"

enum { UNITS = 6, MOST = 3000, USES = 400 };

static size_t count_of(int unit) { return (size_t)(MOST - 16 * 11 * unit); }

static void open_window(struct sl_window *window, int frames, int uses, const int *order) {
    struct sl_error error = {0};
    *window = (struct sl_window){0};
    for (int u = 0; u < UNITS; u++)
        assert_int_equal(sl_window_add(window, count_of(u) * sizeof(int32_t), &error), SL_OK);
    for (int i = 0; i < uses; i++) assert_int_equal(sl_window_plan_use(window, order[i], &error), SL_OK);
    if (sl_window_open(window, frames, ".", &error)) fail_msg("%s", error.message);
    assert_int_equal(sl_window_near_bytes(window, frames), (size_t)frames * ((MOST * 4 + 63) / 64 * 64));
}

static void *use(struct sl_window *window, int unit, bool changes) {
    struct sl_error error = {0};
    void *memory = NULL;
    if (sl_window_use(window, unit, changes, &memory, &error)) fail_msg("%s", error.message);
    return memory;
}

/* Fills VALUES with the unit's values of its write NUMBER. */
static void fill(int32_t *values, int unit, int number) {
    for (size_t i = 0; i < count_of(unit); i++) values[i] = unit * 1000003 + number * 7919 + (int32_t)i;
}

static void write_unit(void *memory, int unit, int number) {
    static int32_t values[MOST];
    fill(values, unit, number);
    sl_device.copy(memory, values, count_of(unit) * sizeof *values);
}

static void expect_unit(const void *memory, int unit, int number) {
    static int32_t values[MOST], wanted[MOST];
    fill(wanted, unit, number);
    sl_device.copy(values, memory, count_of(unit) * sizeof *values);
    assert_int_equal(sl_device.settle(NULL), SL_OK);
    assert_memory_equal(values, wanted, count_of(unit) * sizeof *values);
}

/* Uses units in ORDER, which may be planned or not; some uses write, some end with the unit dropped. */
static void walk(struct sl_window *window, int uses, const int *order, struct numbers *numbers) {
    int number[UNITS] = {0};
    for (int i = 0; i < uses; i++) {
        const int unit = order[i];
        const bool writes = number[unit] == 0 || next_word(numbers) % 3 == 0;
        void *memory = use(window, unit, writes);
        if (number[unit]) expect_unit(memory, unit, number[unit]);
        if (writes) write_unit(memory, unit, number[unit] = i + 1);
        if (next_word(numbers) % 8) continue;
        sl_window_drop(window, unit);
        number[unit] = 0;
    }
}

static void units_keep_what_is_written(void **state) {
    struct numbers numbers = {11};
    (void)state;
    for (int frames = 1; frames <= UNITS + 1; frames++) {
        for (int planned = 0; planned < 2; planned++) {
            struct sl_window window;
            int order[USES];
            for (int i = 0; i < USES; i++) order[i] = (int)(next_word(&numbers) % UNITS);
            open_window(&window, frames, planned ? USES / 2 : 0, order); /* the rest comes as a surprise */
            walk(&window, USES, order, &numbers);
            sl_window_close(&window);
            sl_window_close(&window);
        }
    }
}

static void what_is_stored_begins_as_zeros(void **state) {
    static const int32_t zeros[MOST];
    int32_t values[MOST];
    struct sl_window window;
    (void)state;
    open_window(&window, 2, 0, NULL);
    for (int u = 0; u < UNITS; u++) write_unit(use(&window, u, true), u, 1);
    for (int u = 0; u < UNITS; u++) sl_window_drop(&window, u);
    sl_window_close(&window);
    open_window(&window, 2, 0, NULL);
    sl_window_begin_stored(&window);
    for (int u = 0; u < UNITS; u++) {
        sl_device.copy(values, use(&window, u, false), count_of(u) * sizeof *values);
        assert_int_equal(sl_device.settle(NULL), SL_OK);
        assert_memory_equal(values, zeros, count_of(u) * sizeof *values);
    }
    sl_window_close(&window);
}

/* Up and down, as activations go: the last units are still there when they are used again. */
static void the_order_decides_what_stays(void **state) {
    static const int order[] = {0, 1, 2, 3, 4, 5, 4, 3, 2, 1, 0};
    struct sl_window window;
    (void)state;
    open_window(&window, 3, 11, order);
    for (int i = 0; i < 6; i++) write_unit(use(&window, order[i], true), order[i], 1);
    assert_true(window.unit[5].frame >= 0 && window.unit[4].frame >= 0 && window.unit[3].frame >= 0);
    for (int i = 6; i < 11; i++) {
        if (i < 10) assert_true(window.unit[order[i]].frame >= 0); /* it has come ahead */
        expect_unit(use(&window, order[i], false), order[i], 1);
        if (i < 9) assert_true(window.unit[order[i + 1]].frame >= 0);
    }
    sl_window_close(&window);
}

static void a_short_file_is_told(void **state) {
    struct sl_window window;
    struct sl_error error = {0};
    void *memory;
    (void)state;
    if (!sl_device.shares_memory) return; /* there is no file */
    open_window(&window, 1, 0, NULL);
    for (int u = 0; u < UNITS; u++) write_unit(use(&window, u, true), u, 1);
    use(&window, 1, false); /* without a write, which would fail first */
    assert_int_equal(ftruncate(window.far.scratch.file, 100), 0);
    assert_int_equal(sl_window_use(&window, 0, false, &memory, &error), SL_FAILED);
    assert_string_equal(error.message, "the offload file cannot be read at byte 100: it ends there");
    sl_window_close(&window);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(units_keep_what_is_written),
        cmocka_unit_test(what_is_stored_begins_as_zeros),
        cmocka_unit_test(the_order_decides_what_stays),
        cmocka_unit_test(a_short_file_is_told),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
