/* test_reduce.c - sums, means and maxima of several arrays: every CPU level gives the bits of a plain loop over
 * elements, in whole pieces and in the rest, into one array, into all, and in place. */
#include "tests/rigs/numbers.h"

#include <string.h>

#include "collectives/sums/reduce.h"
#include "spmd/base/cpu_level.h"
#include "spmd/base/numbers/dtype.h"

enum { MOST = 2100, MEMBERS = 11 };

union values {
    float f32[MOST];
    uint16_t bf16[MOST];
    uint32_t i32[MOST];
};
static union values *x, *y, want; /* [MEMBERS]; the current device can read and write x and y */

/* Reduces on the current device, which may be the host. */
static void reduce_on_device(enum sl_reduction reduction, enum sl_dtype dtype, float scale, size_t count, int inputs,
                             const void *const *input, int outputs, void *const *output) {
    const struct sl_matrices one = sl_one_array(count);
    sl_reduce_on_device(reduction, dtype, scale, &one, inputs, input, outputs, output);
}

static void (*reduce)(enum sl_reduction, enum sl_dtype, float, size_t, int, const void *const *, int, void *const *);

/* Sums of these depend on their order, and integers wrap around. Some are infinite in all arrays, or have no exponent
 * of f16's. */
static void fill(enum sl_dtype dtype) {
    for (int m = 0; m < MEMBERS; m++) {
        for (int i = 0; i < MOST; i++) {
            const float sign = i % 2 ? -1.0f : 1.0f;
            const float value = sign * (i % 31 == 5   ? INFINITY
                                        : i % 31 == 6 ? 0x1p-20f * (float)(m + 1)
                                                      : 1.0f / (float)(1 + (i * 7 + m * 13) % 101));
            if (dtype == SL_I32)
                x[m].i32[i] = (uint32_t)(i + 1) * 0x9e3779b9u * (uint32_t)(m + 1);
            else
                sl_store_float(dtype, &x[m], (size_t)i, value);
        }
    }
}

/* By definition: the sum of the first values, the largest power of two below COUNT, plus the sum of the others. */
static float tree(const float *values, int count) {
    int left = 1;
    if (count == 1) return *values;
    while (2 * left < count) left *= 2;
    return tree(values, left) + tree(values + left, count - left);
}

/* By definition: sums of SL_SUM_BLOCK values in order, then sums of these, and so on. Overwrites VALUES. */
static float sum_in_blocks(float *values, int count) {
    for (int left; count > 1; count = left) {
        left = 0;
        for (int first = 0; first < count; first += SL_SUM_BLOCK) {
            float sum = values[first];
            for (int k = first + 1; k < count && k < first + SL_SUM_BLOCK; k++) sum += values[k];
            values[left++] = sum;
        }
    }
    return *values;
}

static void compute(enum sl_reduction reduction, enum sl_dtype dtype, float scale, size_t count, int inputs) {
    want = y[0];
    for (size_t i = 0; i < count; i++) {
        uint32_t whole = x[0].i32[dtype == SL_I32 ? i : 0];
        float sum = dtype == SL_I32 ? 0 : sl_load_float(dtype, &x[0], i), values[MEMBERS] = {sum};
        for (int m = 1; m < inputs; m++) {
            const uint32_t next = x[m].i32[dtype == SL_I32 ? i : 0];
            if (dtype != SL_I32) values[m] = sl_load_float(dtype, &x[m], i);
            if (dtype == SL_I32)
                whole = reduction != SL_MAXIMUM ? whole + next : (int32_t)next > (int32_t)whole ? next : whole;
            else if (reduction == SL_SUM)
                sum += values[m];
            else if (values[m] > sum)
                sum = values[m];
        }
        if (reduction == SL_TREE && dtype != SL_I32) sum = tree(values, inputs);
        if (dtype == SL_I32)
            want.i32[i] = whole;
        else
            sl_store_float(dtype, &want, i, scale != 1 ? sum * scale : sum);
    }
}

static void expect(enum sl_reduction reduction, enum sl_dtype dtype, float scale, size_t count, int inputs) {
    const void *in[MEMBERS];
    void *out[MEMBERS], *same[MEMBERS];
    for (int m = 0; m < MEMBERS; m++) in[m] = same[m] = &x[m], out[m] = &y[m];
    fill(dtype);
    memset(y, 0x55, MEMBERS * sizeof *y);
    compute(reduction, dtype, scale, count, inputs);
    reduce(reduction, dtype, scale, count, inputs, in, 1, out);
    assert_memory_equal(&y[0], &want, sizeof want);
    assert_int_equal(y[1].bf16[0], 0x5555);
    reduce(reduction, dtype, scale, count, inputs, in, inputs, out);
    for (int m = 0; m < inputs; m++) assert_memory_equal(&y[m], &want, sizeof want);
    reduce(reduction, dtype, scale, count, inputs, in, inputs, same);
    for (int m = 0; m < inputs; m++) assert_memory_equal(&x[m], &want, count * sl_dtype_size(dtype));
}

static void expect_all(size_t count, int inputs) {
    for (enum sl_dtype dtype = SL_F32; dtype <= SL_F16; dtype++) {
        expect(SL_SUM, dtype, 1, count, inputs);
        expect(SL_TREE, dtype, 1, count, inputs);
        expect(SL_MAXIMUM, dtype, 1, count, inputs);
    }
    expect(SL_SUM, SL_F32, 1.0f / 3, count, inputs);
    expect(SL_SUM, SL_BF16, 1.0f / 3, count, inputs);
    expect(SL_TREE, SL_F32, 1.0f / 3, count, inputs);
}

static const int members[] = {1, 2, 3, 6, 7, MEMBERS}; /* a launch has parameters for at most seven and a result */

static void all_levels_agree(void **state) {
    (void)state;
    static const size_t counts[] = {1, 63, 64, 65, 511, 512, 513, 1024, 1100, MOST};
    reduce = sl_reduce;
    unsetenv("SHARDLOOP_CPU_LEVEL");
    for (int level = sl_cpu_level(); level >= 2; level--) {
        const char name[2] = {(char)('0' + level), 0};
        setenv("SHARDLOOP_CPU_LEVEL", name, 1);
        assert_int_equal(sl_cpu_level(), level);
        for (size_t c = 0; c < sizeof counts / sizeof *counts; c++)
            for (size_t m = 0; m < sizeof members / sizeof *members; m++) expect_all(counts[c], members[m]);
    }
    unsetenv("SHARDLOOP_CPU_LEVEL");
}

static void devices_agree(void **state) {
    (void)state;
    reduce = reduce_on_device;
    for (size_t m = 0; m < sizeof members / sizeof *members; m++) {
        expect_all(1, members[m]);
        expect_all(MOST, members[m]);
    }
}

/* So many members that sums of blocks are added in blocks, too. */
static void blocks_of_many_are_added(void **state) {
    (void)state;
    enum { MANY = SL_SUM_BLOCK * SL_SUM_BLOCK + 2, ELEMENTS = 4 };
    static const int counts[] = {SL_SUM_BLOCK + 1, MANY};
    static const void *in[MANY];
    static float values[2][MANY];
    const struct sl_matrices one = sl_one_array(ELEMENTS);
    char *all = device_array((size_t)(MANY + 1) * ELEMENTS, sizeof(float));
    void *out = all + (size_t)MANY * ELEMENTS * sizeof(float);
    for (enum sl_dtype dtype = SL_F32; dtype <= SL_F16; dtype++) {
        for (int k = 0; dtype != SL_I32 && k < MANY; k++) {
            in[k] = all + (size_t)k * ELEMENTS * sizeof(float);
            for (size_t i = 0; i < ELEMENTS; i++) { /* the last ones are infinite, or have no exponent of f16's */
                const float value = 1.0f / (float)(1 + (i * 7 + (size_t)k * 13) % 101);
                sl_store_float(dtype, (void *)(uintptr_t)in[k], i,
                               i == 2   ? 0x1p-22f * (float)(k % 7 - 3)
                               : i == 3 ? INFINITY
                                        : value);
            }
        }
        for (int c = 0; dtype != SL_I32 && c < 4; c++) {
            const int count = counts[c / 2];
            sl_reduce_on_device(c % 2 ? SL_TREE : SL_SUM, dtype, 1, &one, count, in, 1, &out);
            for (size_t i = 0; i < ELEMENTS; i++) {
                for (int k = 0; k < count; k++) values[0][k] = sl_load_float(dtype, in[k], i);
                sl_store_float(dtype, values[1], i, c % 2 ? tree(*values, count) : sum_in_blocks(*values, count));
            }
            assert_memory_equal(out, values[1], ELEMENTS * sl_dtype_size(dtype));
        }
    }
    release_array(all);
}

/* So many members that the sums of blocks of blocks are added in blocks, too; all have the same array. On the host: a
 * device's lists have room for fewer. */
static void blocks_of_blocks_are_added(void **state) {
    (void)state;
    enum { MANY = SL_SUM_BLOCK * SL_SUM_BLOCK * SL_SUM_BLOCK + 1 };
    static const void *in[MANY];
    float own[2] = {1.0f, -2.0f}, sum[2];
    for (int k = 0; k < MANY; k++) in[k] = own;
    sl_reduce(SL_SUM, SL_F32, 1, 2, MANY, in, 1, (void *[]){sum});
    assert_true(sum[0] == (float)MANY && sum[1] == -2.0f * (float)MANY);
}

/* Reduces matrices with gaps between rows; the gaps of the outputs stay unchanged. */
static void expect_apart(enum sl_reduction reduction, enum sl_dtype dtype, int inputs, bool on_device) {
    const struct sl_matrices m = {3, 4, 70, {600, 90}, {330, 80}};
    const void *in[MEMBERS];
    void *out[2] = {&y[0], &y[1]};
    const size_t size = sl_dtype_size(dtype);
    fill(dtype);
    memset(y, 0x55, MEMBERS * sizeof *y);
    memset(&want, 0x55, sizeof want);
    for (size_t i = 0; i < m.count * m.rows; i++) {
        const size_t from = i / m.rows * m.in[0] + i % m.rows * m.in[1];
        void *to = (char *)&want + size * (i / m.rows * m.out[0] + i % m.rows * m.out[1]);
        for (int k = 0; k < inputs; k++) in[k] = (char *)&x[k] + size * from;
        sl_reduce(reduction, dtype, 0.5f, m.columns, inputs, in, 1, &to);
    }
    for (int k = 0; k < inputs; k++) in[k] = &x[k];
    (on_device ? sl_reduce_on_device : sl_reduce_matrices)(reduction, dtype, 0.5f, &m, inputs, in, 2, out);
    for (int k = 0; k < 2; k++) assert_memory_equal(&y[k], &want, sizeof want);
}

static void rows_may_lie_apart(void **state) {
    (void)state;
    for (enum sl_dtype dtype = SL_F32; dtype <= SL_I32; dtype++) {
        expect_apart(SL_SUM, dtype, 3, false);
        expect_apart(SL_SUM, dtype, 3, true);
        expect_apart(SL_SUM, dtype, MEMBERS, true);
        expect_apart(SL_TREE, dtype, 3, true);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_levels_agree), cmocka_unit_test(devices_agree), cmocka_unit_test(blocks_of_many_are_added),
        cmocka_unit_test(blocks_of_blocks_are_added), cmocka_unit_test(rows_may_lie_apart)};
    cmocka_set_message_output(CM_OUTPUT_TAP);
    x = device_array(MEMBERS, sizeof *x), y = device_array(MEMBERS, sizeof *y);
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    release_array(x);
    release_array(y);
    return failed;
}
