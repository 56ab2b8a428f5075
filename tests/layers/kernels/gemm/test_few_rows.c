/* test_few_rows.c - products with few rows against sums in double, at every level of this CPU. */
#include "tests/rigs/numbers.h"

#include "layers/kernels/gemm/rows/few_rows.h"

#include "spmd/base/numbers/bf16.h"

#include <stdio.h>
#include <string.h>

struct operands {
    size_t m, n, k;
    float *a, *b, *bias, *before, *c;
};

static void make(struct operands *o, struct numbers *numbers, size_t m, size_t n, size_t k) {
    *o = (struct operands){.m = m, .n = n, .k = k};
    o->a = random_floats(numbers, m * k, -1.0f, 1.0f);
    o->b = random_floats(numbers, k * n, -1.0f, 1.0f);
    o->bias = random_floats(numbers, n, -1.0f, 1.0f);
    o->before = random_floats(numbers, m * n, -1.0f, 1.0f);
    o->c = floats(m * n);
    memcpy(o->c, o->before, m * n * sizeof *o->c);
}

static void release(struct operands *o) {
    free(o->a);
    free(o->b);
    free(o->bias);
    free(o->before);
    free(o->c);
}

/* A sum of k + 1 terms in float errs by less than (k + 2) 2^-24 times the sum of their magnitudes. */
static void expect_sums(const struct operands *o, const char *what, const float *first, size_t first_stride,
                        size_t b_row, size_t b_column) {
    for (size_t i = 0; i < o->m; i++) {
        for (size_t j = 0; j < o->n; j++) {
            double sum = first ? first[i * first_stride + j] : 0, magnitude = fabs(sum);
            for (size_t l = 0; l < o->k; l++) {
                const double term = (double)o->a[i * o->k + l] * o->b[l * b_row + j * b_column];
                sum += term;
                magnitude += fabs(term);
            }
            expect_close(what, i * o->n + j, o->c[i * o->n + j], sum, 0.0, magnitude * (double)(o->k + 2) * 0x1p-24);
        }
    }
}

enum variant { PLAIN, ACCUMULATE, BIAS };

static void check(const struct sl_few_rows *few, struct numbers *numbers, size_t m, size_t n, size_t k,
                  enum variant variant) {
    struct operands o;
    char what[120];
    snprintf(what, sizeof what, "%zu lanes m %zu n %zu k %zu variant %d", few->lanes, m, n, k, (int)variant);
    make(&o, numbers, m, n, k);
    few->multiply(m, n, k, o.a, o.b, variant == BIAS ? o.bias : NULL, variant == ACCUMULATE, o.c);
    expect_sums(&o, what,
                variant == BIAS         ? o.bias
                : variant == ACCUMULATE ? o.before
                                        : NULL,
                variant == BIAS ? 0 : n, n, 1);
    release(&o);
}

static void check_transposed(const struct sl_few_rows *few, struct numbers *numbers, size_t m, size_t n, size_t k,
                             bool accumulate) {
    struct operands o;
    char what[120];
    snprintf(what, sizeof what, "%zu lanes transposed m %zu n %zu k %zu accumulate %d", few->lanes, m, n, k,
             accumulate);
    make(&o, numbers, m, n, k);
    few->multiply_transposed(m, n, k, o.a, o.b, accumulate, o.c);
    expect_sums(&o, what, accumulate ? o.before : NULL, n, 1, k);
    release(&o);
}

enum kernel { MULTIPLY, TRANSPOSED, KERNELS };

/* The last ROWS rows of C, as a product of their own. */
static void multiply_last(const struct sl_few_rows *few, enum kernel kernel, const struct operands *o, size_t rows) {
    const float *a = o->a + (o->m - rows) * o->k;
    float *c = o->c + (o->m - rows) * o->n;
    if (kernel == MULTIPLY) few->multiply(rows, o->n, o->k, a, o->b, NULL, true, c);
    if (kernel == TRANSPOSED) few->multiply_transposed(rows, o->n, o->k, a, o->b, true, c);
}

/* Any number of rows, in tiles, panels and blocks of every size. */
static void rows_have_the_bits_that_they_have_alone(void **state) {
    (void)state;
    static const size_t alone[] = {1, 2, 3, 5, 7, 8, 9, 14, 31, 64, 65, 127, 131};
    const struct sl_few_rows *few;
    struct numbers numbers = {3};
    for (int level = 0; (few = sl_few_rows_available(level)); level++) {
        for (size_t vectors = 3; vectors <= 7; vectors++) {
            for (enum kernel kernel = MULTIPLY; kernel < KERNELS; kernel++) {
                struct operands o;
                make(&o, &numbers, 200, vectors * few->lanes, vectors % 2 ? 40 * few->lanes : 3 * few->lanes);
                multiply_last(few, kernel, &o, o.m);
                const size_t count = o.m * o.n;
                float *all = floats(count);
                memcpy(all, o.c, count * sizeof *all);
                for (size_t i = 0; i < sizeof alone / sizeof *alone; i++) {
                    const size_t before = (o.m - alone[i]) * o.n;
                    memcpy(o.c + before, o.before + before, alone[i] * o.n * sizeof *all);
                    multiply_last(few, kernel, &o, alone[i]);
                    assert_memory_equal(o.c, all, count * sizeof *all);
                }
                free(all);
                release(&o);
            }
        }
    }
}

static void equal_the_sums(void **state) {
    (void)state;
    struct numbers numbers = {1};
    const struct sl_few_rows *few;
    for (int level = 0; (few = sl_few_rows_available(level)); level++) {
        for (size_t m = 1; m <= 19; m++) {
            for (size_t vectors = 1; vectors <= 5; vectors++) {
                const size_t other = 1 + next_word(&numbers) % 40;
                for (enum variant v = PLAIN; v <= BIAS; v++) check(few, &numbers, m, vectors * few->lanes, other, v);
                for (int v = 0; v < 2; v++) check_transposed(few, &numbers, m, other, vectors * few->lanes, v);
            }
        }
    }
}

/* Sums longer than the transposed product packs at a time. */
static void equal_long_sums(void **state) {
    (void)state;
    struct numbers numbers = {2};
    const struct sl_few_rows *few;
    for (int level = 0; (few = sl_few_rows_available(level)); level++) {
        for (int accumulate = 0; accumulate < 2; accumulate++) {
            check_transposed(few, &numbers, 9, 7, 512, accumulate);
            check_transposed(few, &numbers, 9, 7, 1024 + few->lanes, accumulate);
        }
    }
}

/* B as bf16, and as floats with the same values. */
static void bf16_weights_give_the_bits_of_their_floats(void **state) {
    (void)state;
    static const size_t rows[] = {1, 2, 5, 8, 11, 32, 70};
    struct numbers numbers = {4};
    const struct sl_few_rows *few;
    for (int level = 0; (few = sl_few_rows_available(level)); level++) {
        const struct sl_few_rows_widening *widening = sl_few_rows_widening_available(level);
        assert_int_equal(widening->lanes, few->lanes);
        for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
            struct operands o;
            make(&o, &numbers, rows[i], (2 + i) * few->lanes, (i % 2 ? 3 : 40) * few->lanes);
            const size_t count = o.n * o.k, bytes = o.m * o.n * sizeof *o.c;
            uint16_t *rounded = malloc(count * sizeof *rounded);
            float *c = floats(o.m * o.n);
            for (size_t j = 0; j < count; j++) o.b[j] = sl_float_of_bf16(rounded[j] = sl_bf16_of_float(o.b[j]));
            for (int kind = 0; kind < 4; kind++) {
                const bool adds = kind % 2;
                memcpy(c, o.before, bytes);
                memcpy(o.c, o.before, bytes);
                if (kind < 2) {
                    few->multiply(o.m, o.n, o.k, o.a, o.b, adds ? NULL : o.bias, adds, o.c);
                    widening->multiply(o.m, o.n, o.k, o.a, rounded, adds ? NULL : o.bias, adds, c);
                } else {
                    few->multiply_transposed(o.m, o.n, o.k, o.a, o.b, adds, o.c);
                    widening->multiply_transposed(o.m, o.n, o.k, o.a, rounded, adds, c);
                }
                assert_memory_equal(c, o.c, bytes);
            }
            free(rounded);
            free(c);
            release(&o);
        }
    }
}

int main(void) {
    cmocka_set_message_output(CM_OUTPUT_TAP);
    const struct CMUnitTest tests[] = {cmocka_unit_test(equal_the_sums), cmocka_unit_test(equal_long_sums),
                                       cmocka_unit_test(bf16_weights_give_the_bits_of_their_floats),
                                       cmocka_unit_test(rows_have_the_bits_that_they_have_alone)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
