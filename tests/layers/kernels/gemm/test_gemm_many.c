/* test_gemm_many.c - products of several microbatches at once on CPUs: each row has the same bits as alone, below and
 * above the numbers of rows at which kernels change, and with any number of threads, at every level of this CPU. */
#include "tests/rigs/numbers.h"

#include "layers/kernels/gemm/gemm.h"
#include "spmd/base/crew.h"

#include <string.h>

static const char *const levels[] = {"5", "4", "3", "2"};

struct shape {
    enum sl_dtype dtype;
    int count, m, n, k;
    bool transposed, accumulate; /* or a bias */
};

static void check(struct numbers *numbers, const char *level, const struct shape *s) {
    const size_t rows = (size_t)s->count * (size_t)s->m, n = (size_t)s->n, k = (size_t)s->k;
    const size_t part = (size_t)s->m * n, row_bytes = (size_t)s->m * k * sl_dtype_size(s->dtype);
    char *a = random_operand(numbers, s->dtype, rows * k), *b = random_operand(numbers, s->dtype, n * k);
    float *bias = random_floats(numbers, n, -1.0f, 1.0f);
    float *many = random_floats(numbers, rows * n, -1.0f, 1.0f), *alone = floats(rows * n);
    memcpy(alone, many, rows * n * sizeof *many);
    struct sl_gemm gemm;
    assert_int_equal(sl_gemm_plan(&gemm, &sl_gemm_cpu, s->dtype, s->m, s->n, s->k, false, s->transposed,
                                  s->accumulate ? SL_EPILOGUE_NONE : SL_EPILOGUE_BIAS, NULL),
                     SL_OK);
    assert_int_equal(sl_gemm_execute(&gemm, sl_gemm_floats(&gemm, s->count, a, b, bias, s->accumulate, many), NULL),
                     SL_OK);
    for (size_t i = 0; i < (size_t)s->count; i++)
        assert_int_equal(
            sl_gemm_execute(
                &gemm, sl_gemm_floats(&gemm, 1, a + i * row_bytes, b, bias, s->accumulate, alone + i * part), NULL),
            SL_OK);
    if (memcmp(many, alone, rows * n * sizeof *many))
        fail_msg("level %s: %d x m %d, n %d, k %d, %s, transposed %d, accumulate %d: other bits", level, s->count, s->m,
                 s->n, s->k, sl_dtypes[s->dtype].name, s->transposed, s->accumulate);
    sl_gemm_release(&gemm);
    free(a);
    free(b);
    free(bias);
    free(many);
    free(alone);
}

static int number(struct numbers *numbers, int first, int last) {
    return first + (int)(next_word(numbers) % (uint32_t)(last - first + 1));
}

static void rows_have_the_bits_that_they_have_alone(void **state) {
    (void)state;
    static const int rows[] = {1, 2, 8, 9, 15, 16, 31, 32, 33, 64, 255, 256};
    for (size_t l = 0; l < sizeof levels / sizeof *levels; l++) {
        struct numbers numbers = {1};
        setenv("SHARDLOOP_CPU_LEVEL", levels[l], 1);
        for (int i = 0; i < 192; i++) {
            const uint32_t word = next_word(&numbers) >> 8;
            struct shape s = {.dtype = word % 3 ? SL_F32 : SL_BF16, .transposed = word & 1, .accumulate = word & 2};
            s.m = rows[i % 12];
            s.count = number(&numbers, 2, s.m > 64 ? 2 : 5);
            s.n = word & 4 ? 16 * number(&numbers, 1, 6) : number(&numbers, 1, 70);
            s.k = word & 8 ? 32 * number(&numbers, 1, 24) : number(&numbers, 1, 70);
            check(&numbers, levels[l], &s);
        }
        /* Weights larger than a core's own cache. */
        check(&numbers, levels[l], &(struct shape){SL_F32, 3, 50, 832, 323, false, false});
    }
    unsetenv("SHARDLOOP_CPU_LEVEL");
}

/* ---- rows divided among threads ---- */

/* SETTLES: rounds results, with a bf16 copy; otherwise adds them to C. */
static void multiply(const struct sl_gemm *gemm, int count, const void *a, const void *b, const float *bias,
                     bool settles, float *c, uint16_t *stored, struct sl_crew *crew) {
    const bool accumulate = gemm->epilogue == SL_EPILOGUE_NONE && !settles;
    struct sl_gemm_arrays arrays = sl_gemm_floats(gemm, count, a, b, bias, accumulate, c);
    if (settles) arrays.c = sl_out_of(c, true, stored);
    assert_int_equal(sl_gemm_execute(gemm, arrays, crew), SL_OK);
}

static void check_shared(struct numbers *numbers, const char *level, const struct shape *s, bool settles,
                         struct sl_crew *crew) {
    const size_t rows = (size_t)s->count * (size_t)s->m, n = (size_t)s->n, k = (size_t)s->k;
    void *a = random_operand(numbers, s->dtype, rows * k), *b = random_operand(numbers, s->dtype, n * k);
    float *bias = random_floats(numbers, n, -1.0f, 1.0f), *alone = random_floats(numbers, rows * n, -1.0f, 1.0f);
    float *shared = floats(rows * n);
    uint16_t *stored = array_of(rows * n, sizeof *stored), *also = array_of(rows * n, sizeof *also);
    memcpy(shared, alone, rows * n * sizeof *shared);
    const enum sl_epilogue epilogue = s->accumulate ? SL_EPILOGUE_NONE : SL_EPILOGUE_BIAS;
    struct sl_gemm gemm;
    assert_int_equal(
        sl_gemm_plan(&gemm, &sl_gemm_cpu, s->dtype, s->m, s->n, s->k, false, s->transposed, epilogue, NULL), SL_OK);
    multiply(&gemm, s->count, a, b, bias, settles, alone, stored, NULL);
    multiply(&gemm, s->count, a, b, bias, settles, shared, also, crew);
    if (memcmp(alone, shared, rows * n * sizeof *alone) || memcmp(stored, also, rows * n * sizeof *stored))
        fail_msg("level %s, %d threads: %d x m %d, n %d, k %d, %s, transposed %d, settles %d: other bits", level,
                 sl_crew_threads(crew), s->count, s->m, s->n, s->k, sl_dtypes[s->dtype].name, s->transposed, settles);
    sl_gemm_release(&gemm);
    free(a);
    free(b);
    free(bias);
    free(alone);
    free(shared);
    free(stored);
    free(also);
}

/* Rows as of a prompt: numbers that neither the threads nor the library's parts divide. */
static void threads_change_no_bit(void **state) {
    (void)state;
    static const int rows[] = {2, 16, 31, 33, 100, 256, 261, 387};
    for (size_t l = 0; l < sizeof levels / sizeof *levels; l++) {
        struct numbers numbers = {3};
        setenv("SHARDLOOP_CPU_LEVEL", levels[l], 1);
        for (int threads = 2; threads < 5; threads++) {
            struct sl_crew *crew = sl_crew_open(threads);
            assert_non_null(crew);
            for (int i = 0; i < 32; i++) {
                struct shape s = {.dtype = i & 1 ? SL_BF16 : SL_F32, .transposed = i & 2, .accumulate = i & 4};
                s.m = rows[i / 4];
                s.count = 1 + i % 3 / 2;
                s.n = 192 + 7 * (i % 5 / 4);
                s.k = 192;
                check_shared(&numbers, levels[l], &s, i & 8, crew);
            }
            sl_crew_close(crew);
        }
    }
    unsetenv("SHARDLOOP_CPU_LEVEL");
}

/* ---- rounded results ---- */

/* With a bf16 copy beside the floats, or without. */
static void check_settled(struct numbers *numbers, const char *level, const struct shape *s, bool stores) {
    const size_t rows = (size_t)s->count * (size_t)s->m, n = (size_t)s->n, k = (size_t)s->k;
    void *a = random_operand(numbers, s->dtype, rows * k), *b = random_operand(numbers, s->dtype, n * k);
    float *bias = random_floats(numbers, n, -1.0f, 1.0f), *want = floats(rows * n), *got = floats(rows * n);
    uint16_t *want_stored = array_of(rows * n + 1, sizeof *want_stored);
    uint16_t *stored = array_of(rows * n + 1, sizeof *stored);
    struct sl_gemm gemm;
    const enum sl_epilogue epilogue = s->accumulate ? SL_EPILOGUE_NONE : SL_EPILOGUE_BIAS;
    assert_int_equal(
        sl_gemm_plan(&gemm, &sl_gemm_cpu, s->dtype, s->m, s->n, s->k, false, s->transposed, epilogue, NULL), SL_OK);
    assert_true(sl_gemm_settles(gemm.backend));
    struct sl_gemm_arrays arrays = sl_gemm_floats(&gemm, s->count, a, b, bias, false, want);
    assert_int_equal(sl_gemm_execute(&gemm, arrays, NULL), SL_OK);
    for (size_t i = 0; i < rows * n; i++) sl_settle(want, stores ? want_stored : NULL, i);
    arrays.c = sl_out_of(got, true, stores ? stored : NULL);
    assert_int_equal(sl_gemm_execute(&gemm, arrays, NULL), SL_OK);
    if (memcmp(got, want, rows * n * sizeof *got) || memcmp(stored, want_stored, (rows * n + 1) * sizeof *stored))
        fail_msg("level %s: %d x m %d, n %d, k %d, %s, transposed %d, bias %d, stored %d: other bits", level, s->count,
                 s->m, s->n, s->k, sl_dtypes[s->dtype].name, s->transposed, !s->accumulate, stores);
    sl_gemm_release(&gemm);
    free(a);
    free(b);
    free(bias);
    free(want);
    free(got);
    free(want_stored);
    free(stored);
}

static void rounded_results_have_the_bits_of_a_pass_afterwards(void **state) {
    (void)state;
    static const int rows[] = {1, 8, 32, 33, 64, 256};
    for (size_t l = 0; l < sizeof levels / sizeof *levels; l++) {
        struct numbers numbers = {2};
        setenv("SHARDLOOP_CPU_LEVEL", levels[l], 1);
        for (int i = 0; i < 96; i++) {
            const uint32_t word = next_word(&numbers) >> 8;
            struct shape s = {.dtype = i % 2 ? SL_F32 : SL_BF16, .transposed = word & 1, .accumulate = word & 2};
            s.m = rows[i / 2 % 6];
            s.count = number(&numbers, 1, 3);
            s.n = word & 4 ? 32 * number(&numbers, 1, 5) : number(&numbers, 1, 70);
            s.k = word & 8 ? 32 * number(&numbers, 1, 24) : number(&numbers, 1, 70);
            check_settled(&numbers, levels[l], &s, word & 16);
        }
        check_settled(&numbers, levels[l], &(struct shape){SL_F32, 2, 50, 832, 1100, false, false}, true);
    }
    unsetenv("SHARDLOOP_CPU_LEVEL");
}

int main(void) {
    cmocka_set_message_output(CM_OUTPUT_TAP);
    const struct CMUnitTest tests[] = {cmocka_unit_test(rows_have_the_bits_that_they_have_alone),
                                       cmocka_unit_test(threads_change_no_bit),
                                       cmocka_unit_test(rounded_results_have_the_bits_of_a_pass_afterwards)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
