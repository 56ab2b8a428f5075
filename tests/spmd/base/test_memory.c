/* test_memory.c - memory for training. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "spmd/base/memory.h"

#define LARGE ((size_t)4 << 20)
#define HUGE_PAGE ((size_t)2 << 20)

static void expect_zeros(const unsigned char *memory, size_t bytes) {
    for (size_t i = 0; i < bytes; i++) assert_int_equal(memory[i], 0);
}

static void aligned_zeroed_and_writable(void **state) {
    (void)state;
    const size_t sizes[] = {1, 63, 64, 65, 4095, 1 << 20, LARGE - 1, LARGE, LARGE + 1, LARGE + HUGE_PAGE + 12345};
    for (int round = 0; round < 2; round++) { /* the second round gets used memory */
        unsigned char *taken[sizeof sizes / sizeof *sizes];
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            taken[i] = sl_memory_take(sizes[i]);
            assert_non_null(taken[i]);
            const size_t alignment = sizes[i] >= LARGE ? HUGE_PAGE : SL_CACHE_LINE;
            assert_int_equal((uintptr_t)taken[i] % alignment, 0);
            expect_zeros(taken[i], sizes[i]);
            memset(taken[i], (int)i + 1, sizes[i]);
        }
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) { /* blocks do not overlap */
            assert_int_equal(taken[i][0], i + 1);
            assert_int_equal(taken[i][sizes[i] - 1], i + 1);
            sl_memory_give(taken[i]);
        }
    }
}

static void counts_what_is_taken(void **state) {
    (void)state;
    const uint64_t before = sl_memory_count();
    void *small = sl_memory_take(100), *large = sl_memory_take(LARGE);
    assert_int_equal(sl_memory_count(), before + 2);
    sl_memory_give(small);
    sl_memory_give(large);
    sl_memory_give(NULL);
    assert_int_equal(sl_memory_count(), before + 2);
}

static void large_memory_costs_nothing_until_touched(void **state) {
    (void)state;
    const size_t bytes = 64 * HUGE_PAGE;
    char *memory = sl_memory_take(bytes);
    assert_non_null(memory);
    memory[0] = 1;
    unsigned char first = 0, last = 0;
    assert_int_equal(mincore(memory, 1, &first), 0);
    assert_int_equal(mincore(memory + bytes - HUGE_PAGE, 1, &last), 0);
    assert_int_equal(first & 1, 1);
    assert_int_equal(last & 1, 0);
    sl_memory_give(memory);
}

static void says_when_there_is_none(void **state) {
    (void)state;
    assert_null(sl_memory_take(SIZE_MAX));
    assert_null(sl_memory_take(SIZE_MAX / 2));
    void *nothing = sl_memory_take(0);
    assert_non_null(nothing);
    sl_memory_give(nothing);
}

static void rounds_up(void **state) {
    (void)state;
    assert_int_equal(sl_round_up(0, 64), 0);
    assert_int_equal(sl_round_up(1, 64), 64);
    assert_int_equal(sl_round_up(64, 64), 64);
    assert_int_equal(sl_round_up(65, 64), 128);
}

static void grows_lists(void **state) {
    (void)state;
    int *list = NULL, capacity = 0;
    for (int count = 0; count < 100; count++) {
        int *grown = sl_grow(list, count, &capacity, 3, sizeof *list);
        assert_non_null(grown);
        assert_true(capacity > count);
        list = grown;
        list[count] = count;
        for (int i = 0; i <= count; i++) assert_int_equal(list[i], i);
    }
    assert_int_equal(capacity, 192); /* 3, doubled */
    free(list);
}

static void leaves_a_list_that_cannot_grow(void **state) {
    (void)state;
    int capacity = 0;
    char *list = sl_grow(NULL, 0, &capacity, 2, 1);
    assert_non_null(list);
    list[0] = 'a';
    list[1] = 'b';
    assert_null(sl_grow(list, 2, &capacity, 2, SIZE_MAX / 2)); /* more bytes than there are */
    assert_int_equal(capacity, 2);
    assert_memory_equal(list, "ab", 2);
    free(list);
    capacity = INT_MAX / 2 + 1;
    assert_null(sl_grow(NULL, capacity, &capacity, 1, 1)); /* more elements than can be counted */
    assert_int_equal(capacity, INT_MAX / 2 + 1);
}

int main(void) {
    cmocka_set_message_output(CM_OUTPUT_TAP);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(aligned_zeroed_and_writable),
        cmocka_unit_test(counts_what_is_taken),
        cmocka_unit_test(large_memory_costs_nothing_until_touched),
        cmocka_unit_test(says_when_there_is_none),
        cmocka_unit_test(grows_lists),
        cmocka_unit_test(leaves_a_list_that_cannot_grow),
        cmocka_unit_test(rounds_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
