/* test_packed_weights.c - products of few rows by packed weights have the bits of products by unpacked weights. */
#include "tests/rigs/numbers.h"

#include "layers/kernels/gemm/gemm.h"
#include "layers/kernels/gemm/rows/one_row.h"
#include "layers/kernels/gemm/rows/packed_weights.h"
#include "spmd/base/numbers/bf16.h"
#include "spmd/base/memory.h"

/* Columns of less than a strip, and of several with a remainder; terms of one part of the sums and of several. */
static const int shapes[][2] = {{32, 5},    {64, 64},  {96, 330},   {192, 576},
                                {224, 130}, {576, 66}, {1024, 700}, {2080, 40}};
enum { SHAPES = sizeof shapes / sizeof *shapes };
static const int threads[] = {1, 2, 3, 7};
enum { THREADS = sizeof threads / sizeof *threads, MOST_ROWS = 32 };
static const int rows[] = {1, 2, 7, MOST_ROWS}; /* one row has kernels of its own */
enum { ROWS = sizeof rows / sizeof *rows };

struct operands {
    size_t n, k;
    float *a, *b, *bias, *want, *c;
    uint16_t *a_bf16, *b_bf16, *want_stored, *stored;
    void *packed;
};

static uint16_t *halves(size_t count, const float *values) {
    uint16_t *rounded = calloc(count, sizeof *rounded);
    assert_non_null(rounded);
    for (size_t i = 0; values && i < count; i++) rounded[i] = sl_bf16_of_float(values[i]);
    return rounded;
}

static struct operands make(struct numbers *numbers, const int shape[2]) {
    struct operands o = {.n = (size_t)shape[0], .k = (size_t)shape[1]};
    o.a = random_floats(numbers, MOST_ROWS * o.k, -1.0f, 1.0f);
    o.b = random_floats(numbers, o.k * o.n, -1.0f, 1.0f);
    o.bias = random_floats(numbers, o.n, -1.0f, 1.0f);
    o.want = floats(MOST_ROWS * o.n);
    o.c = floats(MOST_ROWS * o.n);
    o.a_bf16 = halves(MOST_ROWS * o.k, o.a);
    o.b_bf16 = halves(o.k * o.n, o.b);
    o.want_stored = halves(MOST_ROWS * o.n, NULL);
    o.stored = halves(MOST_ROWS * o.n, NULL);
    o.packed = floats(o.k * o.n);
    return o;
}

static void release(struct operands *o) {
    void *const all[] = {o->a,      o->b,      o->bias,        o->want,   o->c,
                         o->a_bf16, o->b_bf16, o->want_stored, o->stored, o->packed};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
}

static void expect_bits(const struct operands *o, size_t m, const char *what, int helped) {
    for (size_t j = 0; j < m * o->n; j++)
        if (memcmp(o->c + j, o->want + j, sizeof *o->c))
            fail_msg("%s, %d threads, m %zu, n %zu, k %zu: number %zu is %.9g, not %.9g", what, helped, m, o->n, o->k,
                     j, (double)o->c[j], (double)o->want[j]);
}

/* ---- every level ---- */

struct strips {
    sl_one_row_multiply *one;
    size_t k;
    const void *a;
    const float *bias;
    float *c;
};

static void multiply_strip(const void *arg, size_t first, size_t columns, const void *strip) {
    const struct strips *s = arg;
    s->one(columns, columns, s->k, s->a, strip, s->bias + first, s->c + first);
}

/* ONE by B as it lies, and by its copy. */
static void compare(struct operands *o, sl_one_row_multiply *one, const void *a, const void *b, size_t element,
                    struct sl_crew *crew, int helped) {
    const size_t columns = sl_round_up((o->n + (size_t)helped - 1) / (size_t)helped, 32);
    const struct sl_packed_weights shape = {o->n, o->k, columns, element};
    const struct strips strips = {one, o->k, a, o->bias, o->c};
    one(o->n, o->n, o->k, a, b, o->bias, o->want);
    sl_packed_weights_fill(&shape, b, o->packed, crew);
    sl_packed_weights_multiply(&shape, o->packed, multiply_strip, &strips, crew);
    expect_bits(o, 1, element == sizeof(float) ? "floats" : "bf16", helped);
}

static void check_level(struct operands *o, const struct sl_one_row *table, struct sl_crew *crew, int helped) {
    compare(o, table->f32, o->a, o->b, sizeof *o->b, crew, helped);
    compare(o, table->widening, o->a, o->b_bf16, sizeof *o->b_bf16, crew, helped);
    compare(o, table->bf16, o->a_bf16, o->b_bf16, sizeof *o->b_bf16, crew, helped);
}

static void every_level_has_the_bits_of_weights_as_they_lie(void **state) {
    (void)state;
    struct numbers numbers = {1};
    for (int i = 0; i < SHAPES; i++) {
        struct operands o = make(&numbers, shapes[i]);
        for (int t = 0; t < THREADS; t++) {
            struct sl_crew *crew = sl_crew_open(threads[t]);
            for (int level = 0; sl_one_row_available(level); level++)
                check_level(&o, sl_one_row_available(level), crew, threads[t]);
            sl_crew_close(crew);
        }
        release(&o);
    }
}

/* ---- the backend ---- */

/* Multiplies as in generation: a plan of many rows packs the weights, and a plan of M rows reads them. */
static void check_plan(struct operands *o, int m, enum sl_dtype dtype, enum sl_dtype weights, struct sl_crew *crew,
                       enum sl_epilogue epilogue) {
    const struct sl_gemm_backend *backend = &sl_gemm_cpu;
    const int n = (int)o->n, k = (int)o->k;
    const void *a = dtype == SL_BF16 ? (const void *)o->a_bf16 : o->a;
    const void *b = weights == SL_BF16 ? (const void *)o->b_bf16 : o->b;
    struct sl_gemm few, many;
    assert_int_equal(sl_gemm_plan(&few, backend, dtype, m, n, k, false, false, epilogue, NULL), SL_OK);
    assert_int_equal(sl_gemm_plan(&many, backend, dtype, 40, n, k, false, false, epilogue, NULL), SL_OK);
    memset(o->packed, 0xff, o->n * o->k * sl_dtype_size(weights));
    sl_gemm_pack(&many, weights, b, o->packed, crew);
    for (int settles = 0; settles < 2; settles++) {
        struct sl_gemm_arrays arrays = sl_gemm_floats(&few, 1, a, b, o->bias, false, o->want);
        arrays.b.type = weights;
        if (settles) arrays.c = sl_out_of(o->want, true, o->want_stored);
        assert_int_equal(sl_gemm_execute(&few, arrays, crew), SL_OK);
        arrays.packed = true;
        arrays.b.at = o->packed;
        arrays.c = sl_out_of(o->c, settles, settles ? o->stored : NULL);
        assert_int_equal(sl_gemm_execute(&few, arrays, crew), SL_OK);
        expect_bits(o, (size_t)m, weights == dtype ? "a plan" : "a plan that widens", sl_crew_threads(crew));
        if (settles) assert_memory_equal(o->stored, o->want_stored, (size_t)m * o->n * sizeof *o->stored);
    }
    sl_gemm_release(&few);
    sl_gemm_release(&many);
}

static void plans_have_the_bits_of_weights_as_they_lie(void **state) {
    (void)state;
    static const enum sl_dtype types[][2] = {{SL_F32, SL_F32}, {SL_F32, SL_BF16}, {SL_BF16, SL_BF16}};
    struct numbers numbers = {2};
    for (int i = 0; i < SHAPES * 3 * ROWS; i++) {
        const enum sl_dtype dtype = types[i % 3][0], weights = types[i % 3][1];
        const int m = rows[i / 3 % ROWS];
        struct operands o = make(&numbers, shapes[i / 3 / ROWS]);
        const bool packs = sl_gemm_packs(&sl_gemm_cpu, dtype, weights, m, (int)o.n, (int)o.k);
        if (dtype == SL_F32) assert_true(packs); /* bf16 is packed only if products of so few rows have a kernel */
        for (int t = 0; packs && t < THREADS; t++) {
            struct sl_crew *crew = sl_crew_open(threads[t]);
            check_plan(&o, m, dtype, weights, crew, t % 2 ? SL_EPILOGUE_BIAS : SL_EPILOGUE_NONE);
            sl_crew_close(crew);
        }
        release(&o);
    }
}

/* Columns that are not whole vectors, many rows, and backends without kernels of their own: weights are not packed. */
static void others_are_read_as_they_lie(void **state) {
    (void)state;
    assert_false(sl_gemm_packs(&sl_gemm_cpu, SL_F32, SL_F32, 1, 67, 64));
    assert_false(sl_gemm_packs(&sl_gemm_cpu, SL_F32, SL_F32, MOST_ROWS + 1, 64, 64));
    assert_false(sl_gemm_packs(&sl_gemm_reference, SL_F32, SL_F32, 1, 64, 64));
}

int main(void) {
    cmocka_set_message_output(CM_OUTPUT_TAP);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_level_has_the_bits_of_weights_as_they_lie),
        cmocka_unit_test(plans_have_the_bits_of_weights_as_they_lie),
        cmocka_unit_test(others_are_read_as_they_lie),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
