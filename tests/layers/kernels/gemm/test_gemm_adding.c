/* test_gemm_adding.c - products with another array added at the end: against a naive product in double, for every
 * backend that supports it. */
#include "tests/rigs/operands.h"

#include <stdio.h>

enum { COUNT = 3 };

/* Sums of K + 2 numbers err by less than (k + 4) 2^-24 times the sum of magnitudes, in whatever order; operands of TF32
 * by half a unit in their tenth bit. */
static void expect_product(const struct sl_gemm *gemm, const float *a, const float *b, const float *bias,
                           const float *x, const float *c) {
    const size_t m = COUNT * (size_t)gemm->m, n = (size_t)gemm->n, k = (size_t)gemm->k;
    const bool tf32 = gemm->backend == &sl_gemm_cublas_tf32 && gemm->dtype == SL_F32;
    for (size_t i = 0; i < m * n; i++) {
        double sum = (double)x[i] + (bias ? bias[i % n] : 0.0), magnitude = fabs(x[i]) + 1.0;
        for (size_t l = 0; l < k; l++) {
            const double term = (double)a[i / n * k + l] * b[l * n + i % n];
            sum += term;
            magnitude += fabs(term);
        }
        expect_close("the product", i, c[i], sum, 0.0, magnitude * (((double)k + 4) * 0x1p-24 + (tf32 ? 0x1p-10 : 0)));
    }
}

/* COUNT products. X lies BY elements behind an aligned address; all other arrays are aligned. */
static void check(struct numbers *numbers, const struct sl_gemm_backend *backend, enum sl_dtype dtype,
                  const int shape[3], bool biased, size_t by) {
    const size_t m = COUNT * (size_t)shape[0], n = (size_t)shape[1], k = (size_t)shape[2];
    struct sl_gemm gemm;
    assert_int_equal(sl_gemm_plan(&gemm, backend, dtype, shape[0], shape[1], shape[2], false, false,
                                  biased ? SL_EPILOGUE_BIAS : SL_EPILOGUE_NONE, NULL),
                     SL_OK);
    struct operand a = make_operand(numbers, dtype, false, m * k, 0), b = make_operand(numbers, dtype, false, k * n, 0);
    struct operand bias = make_operand(numbers, SL_F32, false, n, 0),
                   x = make_operand(numbers, SL_F32, false, m * n, by);
    struct operand c = make_operand(numbers, SL_F32, false, m * n, 0);
    float *result = floats(m * n), *added = floats(m * n);
    struct sl_gemm_arrays arrays =
        sl_gemm_floats(&gemm, COUNT, a.data, b.data, biased ? bias.data : NULL, false, c.data);
    arrays.x = sl_rows_f32(x.data);
    assert_int_equal(sl_gemm_execute(&gemm, arrays, NULL), SL_OK);
    sl_device.copy(result, c.data, m * n * sizeof *result);
    sl_device.copy(added, x.data, m * n * sizeof *added);
    assert_int_equal(sl_device.settle(NULL), SL_OK);
    expect_product(&gemm, a.value, b.value, biased ? bias.value : NULL, x.value, result);
    assert_memory_equal(added, x.value, m * n * sizeof *added);
    struct operand *const taken[] = {&a, &b, &bias, &x, &c};
    for (size_t i = 0; i < sizeof taken / sizeof *taken; i++) free_operand(taken[i]);
    free(result);
    free(added);
    sl_gemm_release(&gemm);
}

static void products_add_another_array(void **state) {
    (void)state;
    static const int shapes[][3] = {{96, 128, 32}, {64, 8, 300}, {7, 33, 65}, {1, 1, 1}, {16, 24, 1}};
    struct numbers numbers = {1};
    int checked = 0;
    for (int i = 0; i < BACKENDS; i++) {
        for (int d = 0; d < 2; d++) {
            const enum sl_dtype dtype = d ? SL_BF16 : SL_F32;
            if (!sl_gemm_supports(backends[i], dtype) || !sl_gemm_adds(backends[i])) continue;
            for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
                for (int form = 0; form < 4; form++, checked++)
                    check(&numbers, backends[i], dtype, shapes[s], form & 1, form & 2 ? 1 : 0);
        }
    }
    assert_true(checked > 0);
}

/* On CPUs a separate sum keeps the bits of earlier runs. */
static void products_of_cpus_do_not(void **state) {
    (void)state;
    assert_false(sl_gemm_adds(&sl_gemm_cpu));
    assert_false(sl_gemm_adds(&sl_gemm_onednn));
    assert_false(sl_gemm_adds(&sl_gemm_blocked));
}

int main(void) {
    cmocka_set_message_output(CM_OUTPUT_TAP);
    const struct CMUnitTest tests[] = {cmocka_unit_test(products_add_another_array),
                                       cmocka_unit_test(products_of_cpus_do_not)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
