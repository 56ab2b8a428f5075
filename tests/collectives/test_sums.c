/* test_sums.c - sums of several members' rows, equal to those of a plain loop: whole pieces and the rest, into rows of
 * other strides, added to existing values, and in place. Sums that are interrupted, with the bits of whole ones. And
 * copies of rows, which write nothing else. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "collectives/sums/copies.h"
#include "collectives/sums/partial.h"
#include "collectives/sums/reduce.h"
#include "collectives/sums/sums.h"

enum { ROWS = 3, STRIDE = 300, Y_STRIDE = 295, MEMBERS = 3 };

static float x[MEMBERS][ROWS * STRIDE], y[ROWS * STRIDE], want[ROWS * STRIDE];

/* Sums of these depend on their order. */
static void fill(float *to, int seed) {
    for (int i = 0; i < ROWS * STRIDE; i++) to[i] = 1.0f / (float)(1 + (i * 7 + seed * 13) % 101);
}

static void expect_sum(size_t rows, size_t columns, int members, bool accumulate, float *to, size_t to_stride) {
    const float *const all[MEMBERS] = {x[0], x[1], x[2]};
    memcpy(want, to, sizeof want);
    for (size_t r = 0; r < rows; r++) {
        for (size_t c = 0; c < columns; c++) {
            float sum = x[0][r * STRIDE + c];
            for (int i = 1; i < members; i++) sum += x[i][r * STRIDE + c];
            float *element = &want[r * to_stride + c];
            *element = accumulate ? *element + sum : sum;
        }
    }
    sl_add_rows(rows, columns, members, all, STRIDE, accumulate, to, to_stride);
    assert_memory_equal(to, want, sizeof want);
}

static void rows_are_added_in_order(void **state) {
    (void)state;
    static const size_t columns[] = {1, 63, 64, 65, 127, 128, 129, 200, 256, 290};
    for (int i = 0; i < 10; i++) {
        for (int members = 1; members <= MEMBERS; members++) {
            for (int accumulate = 0; accumulate < 2; accumulate++) {
                for (int m = 0; m < MEMBERS; m++) fill(x[m], m);
                fill(y, MEMBERS);
                expect_sum(ROWS, columns[i], members, accumulate, y, Y_STRIDE);
                expect_sum(1, columns[i], members, accumulate, y, 0);
                expect_sum(ROWS, columns[i], members, false, x[members - 1], STRIDE);
            }
        }
    }
}

enum { ARRAYS = 4200, ELEMENTS = 70, WAITING = 12 };
static float long_x[ARRAYS][ELEMENTS];

/* Sums SIZE arrays in parts of PART arrays and more. */
static void expect_parts(enum sl_reduction reduction, enum sl_dtype dtype, int size, int part) {
    static float waiting[WAITING * ELEMENTS];
    float sum[ELEMENTS] = {0}, wanted[ELEMENTS] = {0};
    static const void *input[ARRAYS];
    for (int k = 0; k < size; k++) input[k] = long_x[k];
    sl_reduce(reduction, dtype, 0.3f, ELEMENTS, size, input, 1, (void *[]){wanted});
    for (int before = 0, now; before < size; before += now, part++) {
        const struct sl_partial partial = {reduction, dtype, 0.3f, before, size};
        now = part < size - before ? part : size - before;
        sl_continue_sum(&partial, ELEMENTS, now, input + before, waiting, sum);
        assert_in_range(sl_waiting_sums(reduction, before + now), 0, WAITING);
    }
    assert_memory_equal(sum, wanted, sizeof sum);
}

static void sums_are_interrupted(void **state) {
    (void)state;
    static const int sizes[] = {1, 2, 5, 16, 63, 64, 65, 128, 200, ARRAYS}, parts[] = {1, 3, 16, 64, 1000};
    for (int k = 0; k < ARRAYS; k++)
        for (int i = 0; i < ELEMENTS; i++) long_x[k][i] = 1.0f / (float)(1 + (i * 7 + k * 13) % 101);
    for (int i = 0; i < 10 * 5; i++) {
        expect_parts(SL_SUM, SL_F32, sizes[i / 5], parts[i % 5]);
        expect_parts(SL_SUM, SL_BF16, sizes[i / 5], parts[i % 5]);
        expect_parts(SL_TREE, SL_F32, sizes[i / 5], parts[i % 5]);
    }
    assert_int_equal(sl_waiting_sums(SL_TREE, 48), 2);
    assert_int_equal(sl_waiting_sums(SL_SUM, 48), 1);
    assert_int_equal(sl_waiting_sums(SL_SUM, 64 * 64 + 64 + 1), 3);
}

/* A tree of the largest number of arrays, of which all but the last have been added. */
static void the_last_of_most_is_added(void **state) {
    (void)state;
    enum { LEVELS = 20 };
    const float last = 1;
    float waiting[LEVELS], sum = 0;
    for (int i = 0; i < LEVELS; i++) waiting[i] = (float)(1 << i);
    const struct sl_partial partial = {SL_TREE, SL_F32, 1, SL_MOST_COORDINATES - 1, SL_MOST_COORDINATES};
    assert_int_equal(sl_waiting_sums(SL_TREE, SL_MOST_COORDINATES - 1), LEVELS);
    sl_continue_sum(&partial, 1, 1, (const void *[]){&last}, waiting, &sum);
    assert_true(sum == SL_MOST_COORDINATES);
}

static void rows_are_copied(void **state) {
    (void)state;
    static const size_t bytes[] = {0, 1, 15, 16, 48, 64, 112, 128, 500, 512, 528, 800};
    for (int i = 0; i < 12; i++) {
        for (size_t rows = 0; rows <= ROWS; rows++) {
            const char *in = (const char *)x[0] + 4;
            char *out = (char *)y + 8, *wanted = (char *)want + 8;
            fill(x[0], i);
            fill(y, i + 1);
            memcpy(want, y, sizeof want);
            for (size_t r = 0; r < rows; r++) memcpy(wanted + r * 820, in + r * 836, bytes[i]);
            sl_copy_rows(rows, bytes[i], out, 820, in, 836);
            assert_memory_equal(y, want, sizeof want);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(rows_are_added_in_order),
                                       cmocka_unit_test(sums_are_interrupted),
                                       cmocka_unit_test(the_last_of_most_is_added), cmocka_unit_test(rows_are_copied)};
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
