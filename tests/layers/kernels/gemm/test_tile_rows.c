/* test_tile_rows.c - products of bf16 by tiles, bit by bit: 32 terms at a time, the even ones and the odd ones one by
 * one, then both to the sum, for any rows, columns and terms. */
#include "tests/rigs/numbers.h"

#include "layers/kernels/gemm/gemm.h"
#include "layers/kernels/gemm/tiles/tile_rows.h"
#include "spmd/base/crew.h"

enum kind { PLAIN, TRANSPOSED, GRADIENT, KINDS };

struct shape {
    enum kind kind;
    size_t m, n, k;
    int form; /* 0: overwrites C; 1: with a bias; 2: adds to C; 3: with a bias, rounded; 4: and with a copy */
};

enum { UNTOUCHED = 0x5a5a }; /* in copies */

/* Operands; sums [m, n] as they should be, before the bias. */
struct run {
    struct shape shape;
    uint16_t *a, *b, *copy;
    float *bias, *before, *c, *sum;
};

static float term(const uint16_t *of, size_t at) { return sl_float_of_bf16(of[at]); }

static float expected_sum(const struct run *run, size_t i, size_t j) {
    const struct shape *s = &run->shape;
    float sum = s->form == 2 ? run->before[i * s->n + j] : 0.0f;
    for (size_t from = 0; from < s->k; from += 32) {
        float part[2] = {0.0f, 0.0f};
        for (size_t l = from; l < from + 32 && l < s->k; l++) {
            const float a = term(run->a, s->kind == GRADIENT ? l * s->m + i : i * s->k + l);
            const float b = term(run->b, s->kind == TRANSPOSED ? j * s->k + l : l * s->n + j);
            part[l % 2] = fmaf(a, b, part[l % 2]);
        }
        sum += part[0] + part[1];
    }
    return sum;
}

static struct run open_run(struct numbers *numbers, const struct shape *s) {
    struct run run = {*s,
                      random_operand(numbers, SL_BF16, s->m * s->k),
                      random_operand(numbers, SL_BF16, s->n * s->k),
                      array_of(s->m * s->n, sizeof(uint16_t)),
                      random_floats(numbers, s->n, -1.0f, 1.0f),
                      random_floats(numbers, s->m * s->n, -1.0f, 1.0f),
                      floats(s->m * s->n),
                      floats(s->m * s->n)};
    for (size_t i = 0; i < s->m * s->n; i++) run.sum[i] = expected_sum(&run, i / s->n, i % s->n);
    return run;
}

static void close_run(struct run *run) {
    void *const taken[] = {run->a, run->b, run->copy, run->bias, run->before, run->c, run->sum};
    for (size_t i = 0; i < sizeof taken / sizeof *taken; i++) free(taken[i]);
}

/* Computes columns [FIRST, END). */
static void multiply(const struct run *run, size_t first, size_t end) {
    const struct sl_tile_rows *tiles = sl_tile_rows_select();
    const struct shape *s = &run->shape;
    const bool biased = s->form % 2 || s->form == 4;
    const struct sl_tile_product product = {
        .m = s->m,
        .n = s->n,
        .k = s->k,
        .first = first,
        .end = end,
        .a = run->a,
        .b = run->b,
        .bias = biased ? run->bias : NULL,
        .accumulate = s->form == 2,
        .c = {sl_rows_f32(run->c), sl_rows_bf16(s->form == 4 ? run->copy : NULL), s->form > 2}};
    (s->kind == PLAIN        ? tiles->multiply
     : s->kind == TRANSPOSED ? tiles->multiply_transposed
                             : tiles->multiply_gradient)(&product);
}

static void expect(const struct run *run, size_t first, size_t end) {
    const struct shape *s = &run->shape;
    for (size_t i = 0; i < s->m * s->n; i++) {
        const size_t column = i % s->n;
        float right = run->sum[i] + (s->form % 2 || s->form == 4 ? run->bias[column] : 0.0f);
        if (s->form > 2) right = sl_bf16_part(right);
        if (column < first || column >= end) right = run->before[i];
        if (memcmp(&run->c[i], &right, sizeof right))
            fail_msg("kind %d, m %zu, n %zu, k %zu, form %d, columns %zu to %zu: element %zu is %.9g, not %.9g",
                     (int)s->kind, s->m, s->n, s->k, s->form, first, end, i, (double)run->c[i], (double)right);
        const bool copied = s->form == 4 && column >= first && column < end;
        assert_int_equal(run->copy[i], copied ? sl_bf16_of_float(right) : UNTOUCHED);
    }
}

static void check(struct numbers *numbers, const struct shape *s) {
    struct run run = open_run(numbers, s);
    const size_t cut = s->n / 2, end[] = {s->n, cut}, first[] = {0, s->n / 3};
    for (int i = 0; i < 2; i++) {
        memcpy(run.c, run.before, s->m * s->n * sizeof *run.c);
        for (size_t j = 0; j < s->m * s->n; j++) run.copy[j] = UNTOUCHED;
        multiply(&run, first[i], end[i]);
        expect(&run, first[i], end[i]);
    }
    close_run(&run);
}

static void terms_are_added_in_order(void **state) {
    (void)state;
    static const size_t m[] = {1, 2, 15, 16, 17, 31, 32, 33, 65, 70}, n[] = {1, 2, 15, 17, 31, 33, 64, 65, 97, 130},
                        k[] = {1, 2, 31, 32, 33, 63, 64, 100, 513, 545};
    enum { EACH = 10 };
    struct numbers numbers = {1};
    for (int kind = 0; kind < KINDS; kind++) {
        for (size_t i = 0; i < EACH; i++) {
            for (size_t j = 0; j < EACH;
                 j++) /* all pairs of rows and columns, of columns and terms, of rows and terms */
                check(&numbers, &(struct shape){kind, m[i], n[j], k[(i + j) % EACH], (int)((i + 2 * j) % 5)});
        }
    }
}

/* More rows than a block has, more columns than a chunk, more terms than a panel. */
static void large_products_have_the_same_order(void **state) {
    (void)state;
    struct numbers numbers = {2};
    for (int kind = 0; kind < KINDS; kind++) {
        check(&numbers, &(struct shape){kind, 290, 40, 70, 2});
        check(&numbers, &(struct shape){kind, 40, 600, 40, 4});
        check(&numbers, &(struct shape){kind, 20, 70, 1100, kind == PLAIN ? 1 : 2});
    }
}

/* So is a sum that is smaller than the smallest normal number. */
static void denormal_numbers_are_zeros(void **state) {
    (void)state;
    const uint16_t denormal = 0x0040, one = 0x3f80, least = 0x0080, half = 0x3f00;
    uint16_t a[2] = {denormal, least}, b[2] = {one, half};
    float c = 1.0f;
    const struct sl_tile_product product = {.m = 1, .n = 1, .k = 2, .end = 1, .a = a, .b = b, .c = sl_out_f32(&c)};
    sl_tile_rows_select()->multiply(&product);
    assert_true(c == 0.0f);
}

/* A plan has the bits of tiles, for any number of threads. */
static void threads_do_not_change_bits(void **state) {
    (void)state;
    enum { M = 40, N = 330, K = 160 };
    struct numbers numbers = {3};
    uint16_t *a = random_operand(&numbers, SL_BF16, M * K), *b = random_operand(&numbers, SL_BF16, N * K);
    float *one = floats(M * N), *many = floats(M * N);
    const struct sl_tile_rows *tiles = sl_tile_rows_select();
    const struct sl_tile_product product = {.m = M, .n = N, .k = K, .end = N, .a = a, .b = b, .c = sl_out_f32(one)};
    for (int threads = 2; threads <= 5; threads++) {
        struct sl_crew *crew = sl_crew_open(threads);
        for (int gradient = 0; gradient < 2; gradient++) {
            struct sl_gemm gemm;
            assert_int_equal(
                sl_gemm_plan(&gemm, &sl_gemm_cpu, SL_BF16, M, N, K, gradient, false, SL_EPILOGUE_NONE, NULL), SL_OK);
            (gradient ? tiles->multiply_gradient : tiles->multiply)(&product);
            for (int shared = 0; shared < 2; shared++) {
                assert_int_equal(
                    sl_gemm_execute(&gemm, sl_gemm_floats(&gemm, 1, a, b, NULL, false, many), shared ? crew : NULL),
                    SL_OK);
                assert_memory_equal(one, many, M * N * sizeof *one);
            }
            sl_gemm_release(&gemm);
        }
        sl_crew_close(crew);
    }
    free(a);
    free(b);
    free(one);
    free(many);
}

static void lower_levels_have_no_tiles(void **state) {
    (void)state;
    static const char *const levels[] = {"2", "3", "4"};
    for (int i = 0; i < 3; i++) {
        setenv("SHARDLOOP_CPU_LEVEL", levels[i], 1);
        assert_null(sl_tile_rows_select());
    }
    setenv("SHARDLOOP_CPU_LEVEL", "5", 1);
    assert_non_null(sl_tile_rows_select());
    unsetenv("SHARDLOOP_CPU_LEVEL");
}

int main(void) {
    cmocka_set_message_output(CM_OUTPUT_TAP);
    if (!sl_tile_rows_select()) {
        printf("1..0 # SKIP this CPU has no AMX_BF16, or the kernel does not grant it\n");
        return 0;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(terms_are_added_in_order), cmocka_unit_test(large_products_have_the_same_order),
        cmocka_unit_test(denormal_numbers_are_zeros), cmocka_unit_test(threads_do_not_change_bits),
        cmocka_unit_test(lower_levels_have_no_tiles)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
