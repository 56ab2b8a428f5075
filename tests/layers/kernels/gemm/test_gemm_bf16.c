/* test_gemm_bf16.c - products with results in bf16 only, with an added array, with gelu and with its slope, and over
 * columns of wider arrays: against naive products in double, for every backend that supports it. */
#include "tests/rigs/operands.h"

#include <stdio.h>

enum { COUNT = 3 };

static double gelu_argument(double x) { return 2 * sqrt(2 / 3.14159265358979323846) * (x + 0.044715 * x * x * x); }
static double gelu(double x) { return x / (1 + exp(-gelu_argument(x))); }
static double gelu_slope(double x) { return (gelu(x + 1e-5) - gelu(x - 1e-5)) / 2e-5; }

/* A product with its inputs and results. */
struct run {
    struct sl_gemm gemm;
    size_t m, n, k;
    size_t a_stride, c_stride; /* from row to row of A; of C, and of X */
    bool transposed;
    struct operand a, b, bias, x, c;
    float *result, *before; /* C and X, when the product has run */
};

/* Opens a run. Rows of A and C are WIDER than the product's. All arrays except A and B lie BY elements behind an
 * aligned address. */
static void open_wide_run(struct run *run, struct numbers *numbers, const struct sl_gemm_backend *backend,
                          const int shape[3], enum sl_epilogue epilogue, size_t by, const int wider[2]) {
    const size_t m = COUNT * (size_t)shape[0], n = (size_t)shape[1], k = (size_t)shape[2];
    const int a_stride = wider[0] ? shape[2] + wider[0] : 0, c_stride = wider[1] ? shape[1] + wider[1] : 0;
    *run = (struct run){.m = m,
                        .n = n,
                        .k = k,
                        .a_stride = k + (size_t)wider[0],
                        .c_stride = n + (size_t)wider[1],
                        .transposed = epilogue == SL_EPILOGUE_SLOPE};
    assert_int_equal(sl_gemm_plan_columns(&run->gemm, backend, SL_BF16, shape[0], shape[1], shape[2], false,
                                          run->transposed, epilogue, a_stride, c_stride, NULL),
                     SL_OK);
    run->a = make_operand(numbers, SL_BF16, false, m * run->a_stride, 0);
    run->b = make_operand(numbers, SL_BF16, false, k * n, 0);
    run->bias = make_operand(numbers, SL_BF16, false, n, by);
    run->x = make_operand(numbers, SL_BF16, false, m * run->c_stride, by);
    run->c = make_operand(numbers, SL_BF16, false, m * run->c_stride, by);
    run->result = floats(m * run->c_stride);
    run->before = floats(m * run->c_stride);
}

static void open_run(struct run *run, struct numbers *numbers, const struct sl_gemm_backend *backend,
                     const int shape[3], enum sl_epilogue epilogue, size_t by) {
    open_wide_run(run, numbers, backend, shape, epilogue, by, (const int[]){0, 0});
}

/* BIASED: the plan has a bias; ADDS: an array is added. */
static void multiply(const struct run *run, bool biased, bool adds) {
    const struct sl_gemm_arrays arrays = {.count = COUNT,
                                          .a = sl_rows_bf16(run->a.data),
                                          .b = sl_rows_bf16(run->b.data),
                                          .bias = sl_rows_bf16(biased ? run->bias.data : NULL),
                                          .x = sl_rows_bf16(adds ? run->x.data : NULL),
                                          .gelu =
                                              sl_rows_bf16(run->gemm.epilogue >= SL_EPILOGUE_GELU ? run->x.data : NULL),
                                          .c = sl_out_bf16(run->c.data)};
    assert_int_equal(sl_gemm_execute(&run->gemm, arrays, NULL), SL_OK);
}

static void read_halves(const struct operand *from, size_t n, float *to) {
    uint16_t *half = array_of(n, sizeof *half);
    sl_device.copy(half, from->data, n * sizeof *half);
    assert_int_equal(sl_device.settle(NULL), SL_OK);
    for (size_t i = 0; i < n; i++) to[i] = sl_float_of_bf16(half[i]);
    free(half);
}

static void read_results(struct run *run) {
    read_halves(&run->c, run->m * run->c_stride, run->result);
    read_halves(&run->x, run->m * run->c_stride, run->before);
}

static void close_run(struct run *run) {
    struct operand *const taken[] = {&run->a, &run->b, &run->bias, &run->x, &run->c};
    for (size_t i = 0; i < sizeof taken / sizeof *taken; i++) free_operand(taken[i]);
    free(run->result);
    free(run->before);
    sl_gemm_release(&run->gemm);
}

/* Element I of the product, and the largest error of sums of floats in any order. */
static double product_of(const struct run *run, size_t i, double *error) {
    const size_t row = i / run->n, column = i % run->n;
    double sum = 0, magnitude = 2;
    for (size_t l = 0; l < run->k; l++) {
        const size_t at = run->transposed ? column * run->k + l : l * run->n + column;
        const double term = (double)run->a.value[row * run->a_stride + l] * run->b.value[at];
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
        const size_t at = i / run->n * run->c_stride + i % run->n;
        double error, sum = product_of(run, i, &error);
        sum += (biased ? run->bias.value[i % run->n] : 0.0) + (adds ? run->x.value[at] : 0.0);
        expect_close("the sum", i, run->result[at], sum, ROUNDING, error);
    }
}

/* Columns beside C's stay unchanged. */
static void expect_untouched(const struct run *run) {
    for (size_t i = 0; i < run->m * run->c_stride; i++)
        if (i % run->c_stride >= run->n) assert_true(run->result[i] == run->c.value[i]);
}

/* Gelu may read x before or after rounding; its slope, at most 1.13, hardly enlarges the difference. */
static void expect_gelu(const struct run *run, bool biased) {
    for (size_t i = 0; i < run->m * run->n; i++) {
        double error, x = product_of(run, i, &error) + (biased ? run->bias.value[i % run->n] : 0.0);
        expect_close("gelu's x", i, run->before[i], x, ROUNDING, error);
        expect_close("gelu", i, run->result[i], gelu(x), ROUNDING, 1.13 * (error + fabs(x) * ROUNDING) + 1e-6);
    }
}

/* The region that replaces it rounds twice. */
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
    multiply(&run, biased, adds);
    read_results(&run);
    expect_sum(&run, biased, adds);
    assert_memory_equal(run.before, run.x.value, run.m * run.n * sizeof *run.before);
    close_run(&run);
}

/* Forms: as below; of columns of wider rows, of whole vectors or not. */
static void check_columns(struct numbers *numbers, const struct sl_gemm_backend *backend, const int shape[3],
                          int form) {
    static const int wider[][2] = {{32, 0}, {0, 64}, {8, 40}, {3, 5}};
    const bool biased = form & 1, adds = form & 2;
    struct run run;
    for (size_t i = 0; i < sizeof wider / sizeof *wider; i++) {
        open_wide_run(&run, numbers, backend, shape, biased ? SL_EPILOGUE_BIAS : SL_EPILOGUE_NONE, form & 4 ? 1 : 0,
                      wider[i]);
        multiply(&run, biased, adds);
        read_results(&run);
        expect_sum(&run, biased, adds);
        expect_untouched(&run);
        assert_memory_equal(run.before, run.x.value, run.m * run.c_stride * sizeof *run.before);
        close_run(&run);
    }
}

/* A^T B of columns of wider rows of A, with the sums of B's columns. */
static void check_transposed_columns(struct numbers *numbers, const struct sl_gemm_backend *backend, const int shape[3],
                                     int wider) {
    const size_t m = (size_t)shape[0], n = (size_t)shape[1], k = (size_t)shape[2], stride = m + (size_t)wider;
    struct operand a = make_operand(numbers, SL_BF16, false, k * stride, 0);
    struct operand b = make_operand(numbers, SL_BF16, false, k * n, 0);
    struct operand c = make_operand(numbers, SL_F32, false, m * n, 0),
                   sums = make_operand(numbers, SL_F32, false, n, 0);
    float *got = floats(m * n);
    struct sl_gemm gemm;
    assert_int_equal(sl_gemm_plan_columns(&gemm, backend, SL_BF16, shape[0], shape[1], shape[2], true, false,
                                          SL_EPILOGUE_SUMS, (int)stride, 0, NULL),
                     SL_OK);
    struct sl_gemm_arrays arrays = sl_gemm_floats(&gemm, 1, a.data, b.data, NULL, false, c.data);
    arrays.sums = sums.data;
    assert_int_equal(sl_gemm_execute(&gemm, arrays, NULL), SL_OK);
    sl_device.copy(got, c.data, m * n * sizeof *got);
    assert_int_equal(sl_device.settle(NULL), SL_OK);
    for (size_t i = 0; i < m * n; i++) {
        double sum = 0, magnitude = 0;
        for (size_t l = 0; l < k; l++) {
            const double term = (double)a.value[l * stride + i / n] * b.value[l * n + i % n];
            sum += term;
            magnitude += fabs(term);
        }
        expect_close("the gradient", i, got[i], sum, 0, magnitude * ((double)k + 4) * 0x1p-24);
    }
    free(got);
    sl_gemm_release(&gemm);
    struct operand *const taken[] = {&a, &b, &c, &sums};
    for (size_t i = 0; i < sizeof taken / sizeof *taken; i++) free_operand(taken[i]);
}

static void check_gelu(struct numbers *numbers, const struct sl_gemm_backend *backend, const int shape[3], int form) {
    const bool biased = form & 1;
    struct run run;
    open_run(&run, numbers, backend, shape, biased ? SL_EPILOGUE_BIAS_GELU : SL_EPILOGUE_GELU, form & 4 ? 1 : 0);
    multiply(&run, biased, false);
    read_results(&run);
    expect_gelu(&run, biased);
    close_run(&run);
    open_run(&run, numbers, backend, shape, SL_EPILOGUE_SLOPE, form & 4 ? 1 : 0);
    multiply(&run, false, false);
    read_results(&run);
    expect_slope(&run);
    assert_memory_equal(run.before, run.x.value, run.m * run.n * sizeof *run.before);
    close_run(&run);
}

/* Forms: with a bias, with an added array, unaligned. For unaligned arrays and for columns that are no whole vectors
 * cuBLASLt fuses no gelu: a target region applies it. */
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
                if (backends[i]->takes_columns) check_columns(&numbers, backends[i], shapes[s], form);
            }
            if (backends[i]->takes_columns)
                for (int wider = 1; wider <= 64; wider *= 8)
                    check_transposed_columns(&numbers, backends[i], shapes[s], wider);
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
    assert_false(sl_gemm_leaves_bf16(&sl_gemm_cpu)); /* a CPU's pass rounds results that are still in its caches */
}

static void wide_rows_are_refused_where_they_are_not_taken(void **state) {
    (void)state;
    for (int i = 0; i < 2 * BACKENDS; i++) {
        const struct sl_gemm_backend *backend = backends[i / 2];
        const enum sl_epilogue epilogue = backend->takes_columns ? SL_EPILOGUE_GELU : SL_EPILOGUE_NONE;
        struct sl_gemm gemm;
        struct sl_error error = {0};
        char wanted[120];
        if (!sl_gemm_supports(backend, SL_BF16)) continue;
        snprintf(wanted, sizeof wanted, "matrix products by \"%s\" read and leave dense arrays%s", backend->name,
                 backend->takes_columns ? " with gelu" : "");
        assert_int_equal(sl_gemm_plan_columns(&gemm, backend, SL_BF16, 3, 4, 5, false, false, epilogue, i % 2 ? 8 : 0,
                                              i % 2 ? 0 : 8, &error),
                         SL_BAD_INPUT);
        assert_string_equal(error.message, wanted);
        sl_gemm_release(&gemm);
    }
}

int main(void) {
    cmocka_set_message_output(CM_OUTPUT_TAP);
    const struct CMUnitTest tests[] = {cmocka_unit_test(products_leave_bf16), cmocka_unit_test(others_refuse),
                                       cmocka_unit_test(wide_rows_are_refused_where_they_are_not_taken)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
