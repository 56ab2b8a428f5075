/* test_few_terms.c - products of few terms and with weights of few columns have oneDNN's bits, on CPUs with AVX-512.
 */
#include "tests/rigs/numbers.h"

#include "spmd/base/cpu_level.h"
#include "layers/kernels/gemm/rows/few_terms.h"
#include "layers/kernels/gemm/gemm.h"

#include <stdio.h>

static bool possible(void) { return sl_cpu_level() >= 4 && sl_gemm_supports(&sl_gemm_onednn, SL_F32); }

/* C [m, n] by oneDNN. */
static void multiply_by_library(const struct sl_gemm *shape, const float *a, const float *b, const float *bias,
                                bool accumulate, float *c) {
    struct sl_gemm gemm;
    struct sl_error error;
    assert_int_equal(sl_gemm_plan(&gemm, &sl_gemm_onednn, SL_F32, shape->m, shape->n, shape->k, shape->transpose_a,
                                  shape->transpose_b, bias ? SL_EPILOGUE_BIAS : SL_EPILOGUE_NONE, &error),
                     SL_OK);
    assert_int_equal(sl_gemm_execute(&gemm, sl_gemm_floats(&gemm, 1, a, b, bias, accumulate, c), NULL), SL_OK);
    sl_gemm_release(&gemm);
}

static void multiply_here(const struct sl_gemm *shape, const float *a, const float *b, const float *bias,
                          bool accumulate, float *c) {
    const size_t m = (size_t)shape->m, n = (size_t)shape->n, k = (size_t)shape->k;
    if (shape->transpose_a)
        sl_few_terms_multiply(m, n, k, a, b, accumulate, c);
    else if (shape->transpose_b)
        sl_few_columns_multiply_transposed(m, n, k, a, b, accumulate, c);
    else
        sl_few_columns_multiply(m, n, k, a, b, bias, accumulate, c);
}

static void check(struct numbers *numbers, const struct sl_gemm *shape, bool biased, bool accumulate) {
    const size_t m = (size_t)shape->m, n = (size_t)shape->n, k = (size_t)shape->k;
    float *a = random_floats(numbers, m * k, -1.0f, 1.0f), *b = random_floats(numbers, k * n, -1.0f, 1.0f);
    float *bias = random_floats(numbers, n, -1.0f, 1.0f);
    float *expected = random_floats(numbers, m * n, -1.0f, 1.0f), *c = floats(m * n);
    memcpy(c, expected, m * n * sizeof *c);
    multiply_by_library(shape, a, b, biased ? bias : NULL, accumulate, expected);
    multiply_here(shape, a, b, biased ? bias : NULL, accumulate, c);
    for (size_t i = 0; i < m * n; i++) {
        if (memcmp(&c[i], &expected[i], sizeof *c))
            fail_msg("m %zu, n %zu, k %zu, transposed %d %d, bias %d, accumulate %d: element %zu is %.9g, not %.9g", m,
                     n, k, shape->transpose_a, shape->transpose_b, biased, accumulate, i, (double)c[i],
                     (double)expected[i]);
    }
    free(a);
    free(b);
    free(bias);
    free(expected);
    free(c);
}

static int number(struct numbers *numbers, int first, int last) {
    return first + (int)(next_word(numbers) % (uint32_t)(last - first + 1));
}

static void few_terms_have_the_library_bits(void **state) {
    (void)state;
    struct numbers numbers = {1};
    for (int i = 0; i < 200; i++) {
        const struct sl_gemm shape = {.m = number(&numbers, 2, 200),
                                      .n = number(&numbers, 2, i % 10 ? 200 : 1100),
                                      .k = number(&numbers, 1, SL_FEW_TERMS),
                                      .transpose_a = true};
        check(&numbers, &shape, false, i % 2);
    }
}

static void few_columns_have_the_library_bits(void **state) {
    (void)state;
    struct numbers numbers = {2};
    for (int i = 0; i < 200; i++) {
        const struct sl_gemm shape = {.m = number(&numbers, 2, 32),
                                      .n = number(&numbers, 2, SL_FEW_COLUMNS),
                                      .k = number(&numbers, 1, i % 2 ? 300 : 2500)};
        check(&numbers, &shape, i % 3 == 0, i % 3 == 1);
    }
}

static void few_columns_transposed_have_the_library_bits(void **state) {
    (void)state;
    struct numbers numbers = {3};
    for (int i = 0; i < 200; i++) {
        const struct sl_gemm shape = {.m = number(&numbers, 2, 15),
                                      .n = number(&numbers, 2, 600),
                                      .k = number(&numbers, 1, SL_FEW_COLUMNS),
                                      .transpose_b = true};
        check(&numbers, &shape, false, i % 2);
    }
}

int main(void) {
    cmocka_set_message_output(CM_OUTPUT_TAP);
    unsetenv("DNNL_MAX_CPU_ISA"); /* of other instructions the library has other bits */
    unsetenv("ONEDNN_MAX_CPU_ISA");
    if (!possible()) {
        printf("1..0 # SKIP this CPU has no AVX-512, or this build no oneDNN\n");
        return 0;
    }
    const struct CMUnitTest tests[] = {cmocka_unit_test(few_terms_have_the_library_bits),
                                       cmocka_unit_test(few_columns_have_the_library_bits),
                                       cmocka_unit_test(few_columns_transposed_have_the_library_bits)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
