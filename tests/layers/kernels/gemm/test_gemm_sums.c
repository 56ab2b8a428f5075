/* test_gemm_sums.c - products that also write the sums of B's columns: against a naive product and sums in double, for
 * every backend that supports it; the others refuse. */
#include "tests/rigs/operands.h"

#include <stdio.h>
#include <string.h>

/* Returns a result on the device with old numbers, to be overwritten or added to. */
static float *make_result(const float *before, size_t count) {
    float *result = sl_device.take(count * sizeof *result);
    assert_non_null(result);
    sl_device.copy(result, before, count * sizeof *result);
    return result;
}

/* Sums of K floats err by less than (k + 2) 2^-24 times the sum of magnitudes, in whatever order. */
static double allowed(double magnitude, size_t k) { return magnitude * ((double)k + 2) * 0x1p-24; }

static void expect_product(const struct sl_gemm *gemm, const float *a, const float *b, const float *before,
                           const float *c) {
    const size_t m = (size_t)gemm->m, n = (size_t)gemm->n, k = (size_t)gemm->k;
    for (size_t i = 0; i < m * n; i++) {
        double sum = before ? before[i] : 0.0, magnitude = fabs(sum);
        for (size_t l = 0; l < k; l++) {
            const double term = (double)a[l * m + i / n] * b[l * n + i % n];
            sum += term;
            magnitude += fabs(term);
        }
        expect_close("the product", i, c[i], sum, 0.0, allowed(magnitude, k));
    }
}

static void expect_sums(const struct sl_gemm *gemm, const float *b, const float *sums) {
    const size_t n = (size_t)gemm->n, k = (size_t)gemm->k;
    for (size_t j = 0; j < n; j++) {
        double sum = 0.0, magnitude = 0.0;
        for (size_t l = 0; l < k; l++) {
            sum += b[l * n + j];
            magnitude += fabs(b[l * n + j]);
        }
        expect_close("sums of columns", j, sums[j], sum, 0.0, allowed(magnitude, k));
    }
}

/* The weight gradient of m inputs, n outputs and k rows. */
static void check(struct numbers *numbers, const struct sl_gemm_backend *backend, enum sl_dtype dtype,
                  const int shape[3], bool accumulate, size_t by) {
    const size_t m = (size_t)shape[0], n = (size_t)shape[1], k = (size_t)shape[2];
    struct sl_gemm gemm;
    assert_int_equal(
        sl_gemm_plan(&gemm, backend, dtype, shape[0], shape[1], shape[2], true, false, SL_EPILOGUE_SUMS, NULL), SL_OK);
    struct operand a = make_operand(numbers, dtype, true, k * m, by), b = make_operand(numbers, dtype, true, k * n, by);
    float *before = random_floats(numbers, m * n, -1.0f, 1.0f), *c = floats(m * n), *sums = floats(n);
    float *product = make_result(before, m * n), *left = make_result(before, n);
    struct sl_gemm_arrays arrays = sl_gemm_floats(&gemm, 1, a.data, b.data, NULL, accumulate, product);
    arrays.sums = left;
    assert_int_equal(sl_gemm_execute(&gemm, arrays, NULL), SL_OK);
    sl_device.copy(c, product, m * n * sizeof *c);
    sl_device.copy(sums, left, n * sizeof *sums);
    assert_int_equal(sl_device.settle(NULL), SL_OK);
    expect_product(&gemm, a.value, b.value, accumulate ? before : NULL, c);
    expect_sums(&gemm, b.value, sums);
    sl_device.give(product);
    sl_device.give(left);
    free(before);
    free(c);
    free(sums);
    free_operand(&a);
    free_operand(&b);
    sl_gemm_release(&gemm);
}

/* For unaligned operands the fake library has no products with sums, so a region adds up the columns. */
static void products_leave_sums_of_columns(void **state) {
    (void)state;
    static const int shapes[][3] = {{96, 128, 32}, {64, 8, 300}, {7, 33, 65}, {1, 1, 1}, {16, 24, 1}};
    struct numbers numbers = {1};
    int checked = 0;
    for (int i = 0; i < 2 * BACKENDS; i++) {
        const struct sl_gemm_backend *backend = backends[i / 2];
        const enum sl_dtype dtype = i % 2 ? SL_BF16 : SL_F32;
        if (!sl_gemm_supports(backend, dtype) || !sl_gemm_sums(backend, dtype)) continue;
        for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
            for (int form = 0; form < 4; form++, checked++)
                check(&numbers, backend, dtype, shapes[s], form & 1, form & 2 ? 1 : 0);
    }
    assert_false(sl_gemm_sums(&sl_gemm_cublas, SL_F32)); /* it must not round floats */
    if (!checked) printf("# no backend of this build leaves sums\n");
}

static void expect_refusal(const struct sl_gemm_backend *backend, enum sl_dtype dtype, bool transposed) {
    struct sl_gemm gemm;
    struct sl_error error = {0};
    char wanted[120];
    snprintf(wanted, sizeof wanted, "matrix products by \"%s\" do not add up columns of %s%s", backend->name,
             sl_dtypes[dtype].name, transposed ? " by rows" : "");
    assert_int_equal(sl_gemm_plan(&gemm, backend, dtype, 3, 4, 5, true, transposed, SL_EPILOGUE_SUMS, &error),
                     SL_BAD_INPUT);
    assert_string_equal(error.message, wanted);
    sl_gemm_release(&gemm);
}

static void others_refuse(void **state) {
    (void)state;
    for (int i = 0; i < BACKENDS; i++) {
        for (int d = 0; d < 2; d++) {
            const enum sl_dtype dtype = d ? SL_BF16 : SL_F32;
            if (!sl_gemm_supports(backends[i], dtype)) continue;
            if (!sl_gemm_sums(backends[i], dtype)) expect_refusal(backends[i], dtype, false);
            expect_refusal(backends[i], dtype, true);
        }
    }
    assert_false(sl_gemm_sums(&sl_gemm_cpu, SL_BF16)); /* its sums are in ascending order */
}

int main(void) {
    cmocka_set_message_output(CM_OUTPUT_TAP);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_leave_sums_of_columns),
        cmocka_unit_test(others_refuse),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
