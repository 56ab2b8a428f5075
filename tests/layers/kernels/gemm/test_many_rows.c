/* test_many_rows.c - products of copied blocks against sums in double, and their rows' bits, at every level of this
 * CPU. */
#include "tests/rigs/numbers.h"

#include "layers/kernels/gemm/rows/many_rows.h"

#include <stdio.h>

enum kind { PLAIN, TRANSPOSED, GRADIENT, KINDS };
enum variant { OVERWRITE, ACCUMULATE, BIAS, VARIANTS };

struct product {
    size_t m, n, k;
    float *a, *b, *bias, *before, *c;
};

static void make(struct product *p, struct numbers *numbers, size_t m, size_t n, size_t k) {
    *p = (struct product){m,
                          n,
                          k,
                          random_floats(numbers, m * k, -1.0f, 1.0f),
                          random_floats(numbers, n * k, -1.0f, 1.0f),
                          random_floats(numbers, n, -1.0f, 1.0f),
                          random_floats(numbers, m * n, -1.0f, 1.0f),
                          floats(m * n)};
}

static void release(struct product *p) {
    free(p->a);
    free(p->b);
    free(p->bias);
    free(p->before);
    free(p->c);
}

/* M rows of op(A) from row FIRST on; of A^T all. */
static void multiply(const struct sl_many_rows *many, const struct product *p, enum kind kind, enum variant variant,
                     size_t first, size_t m) {
    const float *a = p->a + first * p->k;
    float *c = p->c + first * p->n;
    memcpy(c, p->before + first * p->n, m * p->n * sizeof *c);
    if (kind == PLAIN)
        many->multiply(m, p->n, p->k, a, p->b, variant == BIAS ? p->bias : NULL, variant == ACCUMULATE, sl_out_f32(c));
    else if (kind == TRANSPOSED)
        many->multiply_transposed(m, p->n, p->k, a, p->b, variant == ACCUMULATE, c);
    else
        many->multiply_gradient(m, p->n, p->k, p->a, p->b, variant == ACCUMULATE, c);
}

/* A sum of k + 1 terms in float errs by less than (k + 2) 2^-24 times the sum of their magnitudes. */
static void expect_sums(const struct product *p, enum kind kind, enum variant variant) {
    const size_t m = p->m, n = p->n, k = p->k;
    char what[100];
    snprintf(what, sizeof what, "kind %d variant %d m %zu n %zu k %zu", (int)kind, (int)variant, m, n, k);
    for (size_t i = 0; i < m * n; i++) {
        const size_t row = i / n, column = i % n;
        double sum = variant == BIAS ? p->bias[column] : variant == ACCUMULATE ? p->before[i] : 0, size = fabs(sum);
        for (size_t l = 0; l < k; l++) {
            const double term = (double)p->a[kind == GRADIENT ? l * m + row : row * k + l] *
                                p->b[kind == TRANSPOSED ? column * k + l : l * n + column];
            sum += term;
            size += fabs(term);
        }
        expect_close(what, i, p->c[i], sum, 0.0, size * (double)(k + 2) * 0x1p-24);
    }
}

/* Tiles, panels, blocks and parts of the sums: whole, and at every edge. */
static void equal_the_sums(void **state) {
    (void)state;
    static const size_t shapes[][3] = {{1, 1, 1},     {5, 3, 2},       {12, 32, 16},   {33, 40, 17},
                                       {36, 96, 64},  {64, 13, 33},    {250, 70, 9},   {13, 45, 530},
                                       {300, 33, 65}, {40, 130, 1030}, {266, 36, 2048}};
    struct numbers numbers = {1};
    const struct sl_many_rows *many;
    for (int level = 0; (many = sl_many_rows_available(level)); level++) {
        for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
            struct product p;
            make(&p, &numbers, shapes[s][0], shapes[s][1], shapes[s][2]);
            for (enum kind kind = PLAIN; kind < KINDS; kind++) {
                for (enum variant v = OVERWRITE; v < (kind == PLAIN ? VARIANTS : BIAS); v++) {
                    multiply(many, &p, kind, v, 0, p.m);
                    expect_sums(&p, kind, v);
                }
            }
            release(&p);
        }
    }
}

static void rows_have_the_bits_that_they_have_alone(void **state) {
    (void)state;
    static const size_t alone[] = {1, 2, 5, 12, 31, 64, 129, 250};
    struct numbers numbers = {2};
    const struct sl_many_rows *many;
    for (int level = 0; (many = sl_many_rows_available(level)); level++) {
        for (enum kind kind = PLAIN; kind <= TRANSPOSED; kind++) {
            struct product p;
            make(&p, &numbers, 300, 76, 600);
            multiply(many, &p, kind, ACCUMULATE, 0, p.m);
            float *all = floats(p.m * p.n);
            memcpy(all, p.c, p.m * p.n * sizeof *all);
            for (size_t i = 0; i < sizeof alone / sizeof *alone; i++) {
                multiply(many, &p, kind, ACCUMULATE, p.m - alone[i], alone[i]);
                assert_memory_equal(p.c, all, p.m * p.n * sizeof *all);
            }
            free(all);
            release(&p);
        }
    }
}

/* B as bf16, and A of a gradient as bf16, against floats with the same values; also with rounded sums. */
static void bf16_gives_the_bits_of_its_floats(void **state) {
    (void)state;
    static const size_t shapes[][3] = {{1, 1, 1},    {12, 32, 16},  {33, 40, 17},    {36, 96, 64},
                                       {64, 13, 33}, {13, 45, 530}, {40, 130, 1030}, {266, 36, 1024}};
    struct numbers numbers = {3};
    const struct sl_many_rows *many;
    for (int level = 0; (many = sl_many_rows_available(level)); level++) {
        const struct sl_many_rows_widening *widening = sl_many_rows_widening_available(level);
        for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
            struct product p;
            make(&p, &numbers, shapes[s][0], shapes[s][1], shapes[s][2]);
            const size_t bytes = p.m * p.n * sizeof *p.c;
            uint16_t *a = malloc(p.m * p.k * sizeof *a), *b = malloc(p.n * p.k * sizeof *b);
            float *c = floats(p.m * p.n);
            for (size_t i = 0; i < p.n * p.k; i++) sl_settle(p.b, b, i);
            for (int kind = 0; kind < 8; kind++) {
                const bool adds = kind % 2;
                memcpy(c, p.before, bytes);
                memcpy(p.c, p.before, bytes);
                if (kind == 4) /* the gradients come last */
                    for (size_t i = 0; i < p.m * p.k; i++) sl_settle(p.a, a, i);
                if (kind < 2) {
                    many->multiply(p.m, p.n, p.k, p.a, p.b, adds ? NULL : p.bias, adds, sl_out_f32(p.c));
                    widening->multiply(p.m, p.n, p.k, p.a, b, adds ? NULL : p.bias, adds, sl_out_f32(c));
                } else if (kind < 4) {
                    many->multiply_transposed(p.m, p.n, p.k, p.a, p.b, adds, p.c);
                    widening->multiply_transposed(p.m, p.n, p.k, p.a, b, adds, c);
                } else if (kind < 6) {
                    many->multiply_gradient(p.m, p.n, p.k, p.a, p.b, adds, p.c);
                    widening->multiply_gradient(p.m, p.n, p.k, a, b, adds, c);
                } else {
                    many->multiply(p.m, p.n, p.k, p.a, p.b, p.bias, false, sl_out_of(p.c, true, NULL));
                    widening->multiply(p.m, p.n, p.k, p.a, b, p.bias, false, sl_out_of(c, true, NULL));
                }
                assert_memory_equal(c, p.c, bytes);
            }
            free(a);
            free(b);
            free(c);
            release(&p);
        }
    }
}

int main(void) {
    cmocka_set_message_output(CM_OUTPUT_TAP);
    const struct CMUnitTest tests[] = {cmocka_unit_test(equal_the_sums),
                                       cmocka_unit_test(rows_have_the_bits_that_they_have_alone),
                                       cmocka_unit_test(bf16_gives_the_bits_of_its_floats)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
