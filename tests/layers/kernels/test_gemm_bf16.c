/* test_gemm_bf16.c - products that leave bf16 alone, with what is added, with gelu and with its slope: beside naive
 * products in double, for every backend that does so. */
#include "tests/rigs/operands.h"

#include <stdio.h>

enum { COUNT = 3 };

static double gelu_argument(double x) { return 2 * sqrt(2 / 3.14159265358979323846) * (x + 0.044715 * x * x * x); }
static double gelu(double x) { return x / (1 + exp(-gelu_argument(x))); }
static double gelu_slope(double x) { return (gelu(x + 1e-5) - gelu(x - 1e-5)) / 2e-5; }

/* A product and all that it reads and writes. */
struct run {
    struct sl_gemm gemm;
    size_t m, n, k;
    bool transposed;
    struct operand a, b, bias, x, c;
    float *result, *before; /* C and X, when the product has run */
};

/* All but A and B lie BY elements behind what is aligned. */
static void open_run(struct run *run, struct numbers *numbers, const struct sl_gemm_backend *backend,
                     const int shape[3], enum sl_epilogue epilogue, size_t by) {
    const size_t m = COUNT * (size_t)shape[0], n = (size_t)shape[1], k = (size_t)shape[2];
    *run = (struct run){.m = m, .n = n, .k = k, .transposed = epilogue == SL_EPILOGUE_SLOPE};
    assert_int_equal(sl_gemm_plan(&run->gemm, backend, SL_BF16, shape[0], shape[1], shape[2], false, run->transposed,
                                  epilogue, NULL),
                     SL_OK);
    run->a = make_operand(numbers, SL_BF16, false, m * k, 0);
    run->b = make_operand(numbers, SL_BF16, false, k * n, 0);
    run->bias = make_operand(numbers, SL_BF16, false, n, by);
    run->x = make_operand(numbers, SL_BF16, false, m * n, by);
    run->c = make_operand(numbers, SL_BF16, false, m * n, by);
    run->result = floats(m * n);
    run->before = floats(m * n);
}

static void read_halves(const struct operand *from, size_t n, float *to) {
    uint16_t *half = array_of(n, sizeof *half);
    sl_device.copy(half, from->data, n * sizeof *half);
    assert_int_equal(sl_device.settle(NULL), SL_OK);
    for (size_t i = 0; i < n; i++) to[i] = sl_float_of_bf16(half[i]);
    free(half);
}

static void read_results(struct run *run) {
    read_halves(&run->c, run->m * run->n, run->result);
    read_halves(&run->x, run->m * run->n, run->before);
}

static void close_run(struct run *run) {
    struct operand *const taken[] = {&run->a, &run->b, &run->bias, &run->x, &run->c};
    for (size_t i = 0; i < sizeof taken / sizeof *taken; i++) free_operand(taken[i]);
    free(run->result);
    free(run->before);
    sl_gemm_release(&run->gemm);
}

/* Element I of the product, and by how much sums of floats in whatever order may miss it. */
static double product_of(const struct run *run, size_t i, double *error) {
    const size_t row = i / run->n, column = i % run->n;
    double sum = 0, magnitude = 2;
    for (size_t l = 0; l < run->k; l++) {
        const size_t at = run->transposed ? column * run->k + l : l * run->n + column;
        const double term = (double)run->a.value[row * run->k + l] * run->b.value[at];
        sum += term;
        magnitude += fabs(term);
    }
    *error = magnitude * ((double)run->k + 4) * 0x1p-24;
    return sum;
}

/* Half a unit in the last place of bf16. */
#define ROUNDING 0x1p-8

static void expect_sum(const struct run *run, bool biased, bool adds) {
    for (size_t i = 0; i < run->m * run->n; i++) {
        double error, sum = product_of(run, i, &error);
        sum += (biased ? run->bias.value[i % run->n] : 0.0) + (adds ? run->x.value[i] : 0.0);
        expect_close("the sum", i, run->result[i], sum, ROUNDING, error);
    }
}

/* Gelu may read its x before or after that is rounded, which its slope of at most 1.13 makes no larger. */
static void expect_gelu(const struct run *run, bool biased) {
    for (size_t i = 0; i < run->m * run->n; i++) {
        double error, x = product_of(run, i, &error) + (biased ? run->bias.value[i % run->n] : 0.0);
        expect_close("gelu's x", i, run->before[i], x, ROUNDING, error);
        expect_close("gelu", i, run->result[i], gelu(x), ROUNDING, 1.13 * (error + fabs(x) * ROUNDING) + 1e-6);
    }
}

/* The region that stands in for it rounds twice. */
static void expect_slope(const struct run *run) {
    for (size_t i = 0; i < run->m * run->n; i++) {
        double error, dy = product_of(run, i, &error);
        const double slope = gelu_slope(run->x.value[i]);
        expect_close("gelu's gradient", i, run->result[i], dy * slope, 2.01 * ROUNDING, 1.13 * error + 1e-6);
    }
}

static const int shapes[][3] = {{96, 128, 32}, {64, 8, 300}, {7, 33, 65}, {1, 1, 1}, {16, 24, 1}};
enum { SHAPES = sizeof shapes / sizeof *shapes };

static void check_sums(struct numbers *numbers, const struct sl_gemm_backend *backend, const int shape[3], int form) {
    const bool biased = form & 1, adds = form & 2;
    struct run run;
    open_run(&run, numbers, backend, shape, biased ? SL_EPILOGUE_BIAS : SL_EPILOGUE_NONE, form & 4 ? 1 : 0);
    assert_int_equal(sl_gemm_execute_bf16(&run.gemm, COUNT, run.a.data, run.b.data, biased ? run.bias.data : NULL,
                                          adds ? run.x.data : NULL, run.c.data, NULL),
                     SL_OK);
    read_results(&run);
    expect_sum(&run, biased, adds);
    assert_memory_equal(run.before, run.x.value, run.m * run.n * sizeof *run.before);
    close_run(&run);
}

static void check_gelu(struct numbers *numbers, const struct sl_gemm_backend *backend, const int shape[3], int form) {
    const bool biased = form & 1;
    struct run run;
    open_run(&run, numbers, backend, shape, biased ? SL_EPILOGUE_BIAS_GELU : SL_EPILOGUE_GELU, form & 4 ? 1 : 0);
    assert_int_equal(sl_gemm_execute_gelu(&run.gemm, COUNT, run.a.data, run.b.data, biased ? run.bias.data : NULL,
                                          run.x.data, run.c.data, NULL),
                     SL_OK);
    read_results(&run);
    expect_gelu(&run, biased);
    close_run(&run);
    open_run(&run, numbers, backend, shape, SL_EPILOGUE_SLOPE, form & 4 ? 1 : 0);
    assert_int_equal(sl_gemm_execute_slope(&run.gemm, COUNT, run.a.data, run.b.data, run.x.data, run.c.data, NULL),
                     SL_OK);
    read_results(&run);
    expect_slope(&run);
    assert_memory_equal(run.before, run.x.value, run.m * run.n * sizeof *run.before);
    close_run(&run);
}

/* Forms: with a bias, with what is added, apart from what is aligned. Of the last, and of columns that are no whole
 * vectors, the library has no gelu: a region applies it. */
static void products_leave_bf16(void **state) {
    (void)state;
    struct numbers numbers = {1};
    int checked = 0;
    for (int i = 0; i < BACKENDS; i++) {
        if (!sl_gemm_supports(backends[i], SL_BF16) || !sl_gemm_leaves_bf16(backends[i])) continue;
        for (int s = 0; s < SHAPES; s++) {
            for (int form = 0; form < 8; form++, checked++) {
                check_sums(&numbers, backends[i], shapes[s], form);
                check_gelu(&numbers, backends[i], shapes[s], form);
            }
        }
    }
    if (!checked) printf("# no backend of this build leaves bf16 alone\n");
}

static void others_refuse(void **state) {
    (void)state;
    for (int i = 0; i < 2 * BACKENDS; i++) {
        const struct sl_gemm_backend *backend = backends[i / 2];
        const enum sl_dtype dtype = i % 2 ? SL_BF16 : SL_F32;
        struct sl_gemm gemm;
        struct sl_error error = {0};
        char wanted[120];
        if (!sl_gemm_supports(backend, dtype) || (dtype == SL_BF16 && sl_gemm_leaves_bf16(backend))) continue;
        snprintf(wanted, sizeof wanted, "matrix products by \"%s\" do not leave gelu of %s", backend->name,
                 sl_dtypes[dtype].name);
        for (enum sl_epilogue epilogue = SL_EPILOGUE_GELU; epilogue <= SL_EPILOGUE_SLOPE; epilogue++) {
            assert_int_equal(sl_gemm_plan(&gemm, backend, dtype, 3, 4, 5, false, false, epilogue, &error),
                             SL_BAD_INPUT);
            assert_string_equal(error.message, wanted);
            sl_gemm_release(&gemm);
        }
    }
    assert_false(sl_gemm_leaves_bf16(&sl_gemm_cpu)); /* whose caches have what a pass then rounds */
}

int main(void) {
    cmocka_set_message_output(CM_OUTPUT_TAP);
    const struct CMUnitTest tests[] = {cmocka_unit_test(products_leave_bf16), cmocka_unit_test(others_refuse)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
