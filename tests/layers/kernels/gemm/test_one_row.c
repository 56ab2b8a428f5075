/* test_one_row.c - products of one row have the bits of products of few rows, at every level of this CPU. */
#include "tests/rigs/numbers.h"

#include "layers/kernels/gemm/rows/one_row.h"
#include "layers/kernels/gemm/rows/few_rows.h"
#include "layers/kernels/gemm/gemm.h"
#include "spmd/base/numbers/bf16.h"
#include "spmd/base/crew.h"

#include <stdio.h>

/* Sums of one part and of several, rows with a remainder; columns beyond the number that one_row.c takes at a time. */
static const size_t depths[] = {1, 7, 64, 130, 321, 1000}, widths[] = {1, 3, 5, 31, 70, 131};
enum { DEPTHS = sizeof depths / sizeof *depths, WIDTHS = sizeof widths / sizeof *widths };

struct operands {
    size_t n, k;
    float *a, *b, *bias, *c, *want;
    uint16_t *a_bf16, *b_bf16;
};

static uint16_t *round_all(size_t count, float *values) {
    uint16_t *rounded = malloc(count * sizeof *rounded);
    for (size_t i = 0; i < count; i++) rounded[i] = sl_bf16_of_float(values[i]);
    return rounded;
}

static struct operands make(struct numbers *numbers, size_t n, size_t k) {
    struct operands o = {.n = n, .k = k};
    o.a = random_floats(numbers, k, -1.0f, 1.0f);
    o.b = random_floats(numbers, k * n, -1.0f, 1.0f);
    o.bias = random_floats(numbers, n, -1.0f, 1.0f);
    o.c = floats(n);
    o.want = floats(n);
    o.a_bf16 = round_all(k, o.a);
    o.b_bf16 = round_all(k * n, o.b);
    return o;
}

static void release(struct operands *o) {
    free(o->a);
    free(o->b);
    free(o->bias);
    free(o->c);
    free(o->want);
    free(o->a_bf16);
    free(o->b_bf16);
}

static void expect_bits(const struct operands *o, size_t lanes) {
    for (size_t j = 0; j < o->n; j++)
        if (memcmp(o->c + j, o->want + j, sizeof *o->c))
            fail_msg("%zu lanes, n %zu, k %zu: column %zu is %.9g, not %.9g", lanes, o->n, o->k, j, (double)o->c[j],
                     (double)o->want[j]);
}

/* Calls CHECK with operands of every shape, with columns in whole vectors of LANES. */
static void each_shape(size_t lanes, void (*check)(struct operands *o, int level), int level) {
    struct numbers numbers = {1};
    for (int i = 0; i < DEPTHS * WIDTHS; i++) {
        struct operands o = make(&numbers, widths[i % WIDTHS] * lanes, depths[i / WIDTHS]);
        check(&o, level);
        release(&o);
    }
}

static void check_floats(struct operands *o, int level) {
    const struct sl_few_rows *few = sl_few_rows_available(level);
    for (int with_bias = 0; with_bias < 2; with_bias++) {
        const float *bias = with_bias ? o->bias : NULL;
        few->multiply(1, o->n, o->k, o->a, o->b, bias, false, o->want);
        sl_one_row_available(level)->f32(o->n, o->n, o->k, o->a, o->b, bias, o->c);
        expect_bits(o, few->lanes);
    }
}

/* B as bf16, and as floats with the same values. */
static void check_widening(struct operands *o, int level) {
    const struct sl_one_row *table = sl_one_row_available(level);
    for (size_t i = 0; i < o->k * o->n; i++) o->b[i] = sl_float_of_bf16(o->b_bf16[i]);
    for (int with_bias = 0; with_bias < 2; with_bias++) {
        const float *bias = with_bias ? o->bias : NULL;
        table->f32(o->n, o->n, o->k, o->a, o->b, bias, o->want);
        table->widening(o->n, o->n, o->k, o->a, o->b_bf16, bias, o->c);
        expect_bits(o, table->lanes);
    }
}

static void equals_few_rows(void **state) {
    (void)state;
    for (int level = 0; sl_one_row_available(level); level++) {
        each_shape(sl_one_row_available(level)->lanes, check_widening, level);
        assert_int_equal(sl_one_row_available(level)->lanes, sl_few_rows_available(level)->lanes);
        each_shape(sl_one_row_available(level)->lanes, check_floats, level);
    }
}

/* The blocked backend takes the highest level's vectors. */
static void check_blocked(struct operands *o, int level) {
    struct sl_gemm gemm;
    (void)level;
    for (int with_bias = 0; with_bias < 2; with_bias++) {
        const enum sl_epilogue epilogue = with_bias ? SL_EPILOGUE_BIAS : SL_EPILOGUE_NONE;
        const float *bias = with_bias ? o->bias : NULL;
        assert_int_equal(
            sl_gemm_plan(&gemm, &sl_gemm_blocked, SL_BF16, 1, (int)o->n, (int)o->k, false, false, epilogue, NULL),
            SL_OK);
        sl_gemm_execute(&gemm, sl_gemm_floats(&gemm, 1, o->a_bf16, o->b_bf16, bias, false, o->want), NULL);
        sl_gemm_release(&gemm);
        sl_one_row_available(0)->bf16(o->n, o->n, o->k, o->a_bf16, o->b_bf16, bias, o->c);
        expect_bits(o, sl_one_row_available(0)->lanes);
    }
}

/* Other levels: sums of one part are the sums of the widened bf16 operands. */
static void check_rounded(struct operands *o, int level) {
    const struct sl_one_row *table = sl_one_row_available(level);
    if (o->k > 128) return;
    for (size_t i = 0; i < o->k; i++) o->a[i] = sl_float_of_bf16(o->a_bf16[i]);
    for (size_t i = 0; i < o->k * o->n; i++) o->b[i] = sl_float_of_bf16(o->b_bf16[i]);
    table->f32(o->n, o->n, o->k, o->a, o->b, o->bias, o->want);
    table->bf16(o->n, o->n, o->k, o->a_bf16, o->b_bf16, o->bias, o->c);
    expect_bits(o, table->lanes);
}

static void equals_blocked(void **state) {
    (void)state;
    each_shape(sl_one_row_available(0)->lanes, check_blocked, 0);
    for (int level = 0; sl_one_row_available(level); level++)
        each_shape(sl_one_row_available(level)->lanes, check_rounded, level);
}

static void check_pairs(struct operands *o, int level) {
    const struct sl_few_rows_bf16 *few = sl_few_rows_bf16_select();
    (void)level;
    if (o->k % 2) return;
    for (int with_bias = 0; with_bias < 2; with_bias++) {
        const float *bias = with_bias ? o->bias : NULL;
        few->multiply(1, o->n, o->k, o->a_bf16, o->b_bf16, bias, false, o->want);
        sl_one_row_avx512_bf16(o->n, o->n, o->k, o->a_bf16, o->b_bf16, bias, o->c);
        expect_bits(o, few->lanes);
    }
}

static void equals_few_rows_of_bf16(void **state) {
    (void)state;
    if (!sl_few_rows_bf16_select())
        printf("# this CPU does not multiply bf16\n");
    else
        each_shape(sl_few_rows_bf16_select()->lanes, check_pairs, 0);
}

/* ---- by several threads ---- */

static void multiply(struct operands *o, enum sl_dtype dtype, enum sl_dtype weights, bool transposed, bool biased,
                     float *c, struct sl_crew *crew) {
    struct sl_gemm gemm;
    const void *a = dtype == SL_BF16 ? (const void *)o->a_bf16 : o->a;
    const void *b = weights == SL_BF16 ? (const void *)o->b_bf16 : o->b;
    assert_int_equal(sl_gemm_plan(&gemm, &sl_gemm_cpu, dtype, 1, (int)o->n, (int)o->k, false, transposed,
                                  biased ? SL_EPILOGUE_BIAS : SL_EPILOGUE_NONE, NULL),
                     SL_OK);
    memset(c, 0xff, o->n * sizeof *c);
    struct sl_gemm_arrays arrays = sl_gemm_floats(&gemm, 1, a, b, biased ? o->bias : NULL, false, c);
    arrays.b.type = weights;
    assert_int_equal(sl_gemm_execute(&gemm, arrays, crew), SL_OK);
    sl_gemm_release(&gemm);
}

/* Parts of equal and of unequal width; more threads than parts; few columns, divided into parts of sums: as many as
 * threads, twice as many, or another number. The last product is too small to be divided. */
static void threads_change_no_bit(void **state) {
    (void)state;
    static const size_t shapes[][2] = {{1024, 130}, {704, 256}, {192, 576}, {256, 1024}, {64, 1000}, {64, 64}};
    struct numbers numbers = {1};
    for (int threads = 2; threads <= 5; threads++) {
        struct sl_crew *crew = sl_crew_open(threads);
        assert_non_null(crew);
        for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
            struct operands o = make(&numbers, shapes[i][0], shapes[i][1]);
            for (int kind = 0; kind < 9; kind++) {
                const enum sl_dtype dtype = kind % 3 == 1 ? SL_BF16 : SL_F32, weights = kind % 3 ? SL_BF16 : SL_F32;
                const bool transposed = kind >= 6, biased = kind / 3 == 1;
                if (weights != dtype && !sl_gemm_widens(&sl_gemm_cpu, 1, (int)o.n, (int)o.k, false, transposed,
                                                        biased ? SL_EPILOGUE_BIAS : SL_EPILOGUE_NONE))
                    continue;
                multiply(&o, dtype, weights, transposed, biased, o.want, NULL);
                multiply(&o, dtype, weights, transposed, biased, o.c, crew);
                expect_bits(&o, sl_one_row_available(0)->lanes);
            }
            release(&o);
        }
        sl_crew_close(crew);
    }
}

int main(void) {
    cmocka_set_message_output(CM_OUTPUT_TAP);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equals_few_rows),
        cmocka_unit_test(equals_blocked),
        cmocka_unit_test(equals_few_rows_of_bf16),
        cmocka_unit_test(threads_change_no_bit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
