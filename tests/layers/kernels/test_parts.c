/* test_parts.c - kernels that take several microbatches, or several keys, at once: the bits of separate calls, at every
 * level of this CPU. */
#include "tests/rigs/kernel_levels.h"
#include "tests/rigs/numbers.h"

#include "layers/kernels/gemm/gemm.h"
#include "layers/kernels/kernels.h"
#include "spmd/base/numbers/bf16.h"

static const size_t shapes[][2] = {{1, 1}, {3, 1}, {2, 10}, {5, 33}, {7, 64}, {3, 512}, {2, 1100}};
enum { SHAPES = sizeof shapes / sizeof *shapes, PARTS = 3 };
static const uint32_t counts[] = {0, 1, 2, 3, 33, 64, 129, 257, 1001, 2100};
enum { COUNTS = sizeof counts / sizeof *counts };

static void words_of_several_keys_are_those_of_each(void **state) {
    (void)state;
    enum { MOST = 9, NEXT = 3 };
    struct sl_key keys[MOST * NEXT];
    for (uint32_t k = 0; k < MOST * NEXT; k++) keys[k] = (struct sl_key){{k * 0x9e3779b9u, ~k}};
    FOR_EACH_LEVEL(kernels) {
        for (int i = 0; i < COUNTS; i++) {
            for (size_t count = 1; count <= MOST; count += 4) {
                const uint32_t n = counts[i];
                uint32_t *words = device_array(count * n + 1, sizeof *words);
                words[count * n] = 0x12345678;
                kernels->draws->words_each(count, keys, NEXT, n, words);
                for (size_t w = 0; w < count * n; w++)
                    assert_int_equal(words[w], sl_random_word(keys[w / n * NEXT], n, (uint32_t)(w % n)));
                assert_int_equal(words[count * n], 0x12345678);
                release_array(words);
            }
        }
    }
}

static void parts_are_summed_each_by_itself(void **state) {
    (void)state;
    FOR_EACH_LEVEL(kernels) {
        struct numbers numbers = {17};
        for (int s = 0; s < SHAPES; s++) {
            const size_t rows = shapes[s][0], cols = shapes[s][1], n = PARTS * rows * cols;
            float *x = random_device_floats(&numbers, n, -2, 2), *sums = device_floats(PARTS * cols + 1);
            float *alone = device_floats(cols);
            uint16_t *rounded = device_array(n, sizeof *rounded);
            kernels->settle_bf16(n, x, rounded);
            for (int half = 0; half < 2; half++) {
                memset(sums, 0x55, (PARTS * cols + 1) * sizeof *sums);
                const float behind = sums[PARTS * cols];
                kernels->part_sums(PARTS, rows, cols, half ? (void *)rounded : (void *)x, half, false, sums);
                for (size_t p = 0; p < PARTS; p++) {
                    kernels->column_sums(rows, cols, x + p * rows * cols, false, alone);
                    assert_memory_equal(sums + p * cols, alone, cols * sizeof *sums);
                }
                assert_memory_equal(&sums[PARTS * cols], &behind, sizeof behind);
            }
            release_array(x);
            release_array(alone);
            release_array(sums);
            release_array(rounded);
        }
    }
}

static void layer_norm(const struct sl_kernels *kernels, size_t parts, size_t rows, size_t cols, const float *dy,
                       const float *unit, const float *rstd, const float *scale, const float *summand, float *dx,
                       float *dscale, float *dbias) {
    kernels->norms->layer_norm_backward(parts, rows, cols, sl_rows_f32(dy), sl_rows_f32(unit), rstd, scale,
                                        sl_rows_f32(summand), sl_out_f32(dx), dscale, dbias);
}

static void layer_norms_of_parts_are_those_of_each(void **state) {
    (void)state;
    FOR_EACH_LEVEL(kernels) {
        struct numbers numbers = {18};
        for (int s = 0; s < SHAPES; s++) {
            const size_t rows = shapes[s][0], cols = shapes[s][1], n = PARTS * rows * cols;
            float *dy = random_device_floats(&numbers, n, -1, 1), *unit = random_device_floats(&numbers, n, -1, 1);
            float *rstd = random_device_floats(&numbers, PARTS * rows, 0.5f, 2), *dx = device_floats(n);
            float *scale = random_device_floats(&numbers, cols, -1, 1), *alone = device_floats(rows * cols);
            float *dscale = device_floats(PARTS * cols), *dbias = device_floats(PARTS * cols);
            float *its_scale = device_floats(cols), *its_bias = device_floats(cols), *added = device_floats(n);
            layer_norm(kernels, PARTS, rows, cols, dy, unit, rstd, scale, NULL, dx, dscale, dbias);
            for (size_t p = 0; p < PARTS; p++) {
                const size_t at = p * rows * cols;
                layer_norm(kernels, 1, rows, cols, dy + at, unit + at, rstd + p * rows, scale, NULL, alone, its_scale,
                           its_bias);
                assert_memory_equal(dx + at, alone, rows * cols * sizeof *dx);
                assert_memory_equal(dscale + p * cols, its_scale, cols * sizeof *dscale);
                assert_memory_equal(dbias + p * cols, its_bias, cols * sizeof *dbias);
            }
            layer_norm(kernels, PARTS, rows, cols, dy, unit, rstd, scale, unit, added, dscale, dbias);
            for (size_t i = 0; i < n; i++)
                expect_close(kernels->name, i, added[i], (double)dx[i] + unit[i], 1e-6, 1e-6);
            void *const taken[] = {dy, unit, rstd, dx, scale, alone, dscale, dbias, its_scale, its_bias, added};
            for (size_t i = 0; i < sizeof taken / sizeof *taken; i++) release_array(taken[i]);
        }
    }
}

static void rms_norm(const struct sl_kernels *kernels, size_t parts, size_t rows, size_t cols, const float *dy,
                     const float *x, const float *rstd, float *dgamma, float *dbeta) {
    kernels->norms->rms_norm_backward(parts, rows, cols, cols, sl_rows_f32(dy), sl_rows_f32(x), rstd, NULL, NULL,
                                      sl_rows_f32(NULL), sl_out_f32(NULL), dgamma, dbeta, NULL);
}

static void rms_norms_of_parts_are_those_of_each(void **state) {
    (void)state;
    FOR_EACH_LEVEL(kernels) {
        struct numbers numbers = {41};
        for (int s = 0; s < SHAPES; s++) {
            const size_t rows = shapes[s][0], cols = shapes[s][1], n = PARTS * rows * cols;
            float *x = random_device_floats(&numbers, n, -1, 1), *dy = random_device_floats(&numbers, n, -1, 1);
            float *rstd = random_device_floats(&numbers, PARTS * rows, 0.5f, 2), *dgamma = device_floats(PARTS * cols);
            float *dbeta = device_floats(PARTS * cols), *gamma = device_floats(cols), *beta = device_floats(cols);
            rms_norm(kernels, PARTS, rows, cols, dy, x, rstd, dgamma, dbeta);
            for (size_t p = 0; p < PARTS; p++) {
                const size_t at = p * rows * cols;
                rms_norm(kernels, 1, rows, cols, dy + at, x + at, rstd + p * rows, gamma, beta);
                assert_memory_equal(dgamma + p * cols, gamma, cols * sizeof *gamma);
                assert_memory_equal(dbeta + p * cols, beta, cols * sizeof *beta);
            }
            void *const taken[] = {x, dy, rstd, dgamma, dbeta, gamma, beta};
            for (size_t i = 0; i < sizeof taken / sizeof *taken; i++) release_array(taken[i]);
        }
    }
}

/* ---- products ---- */

/* Makes COUNT products of GEMM at once, and one after another, in the backend's memory. C holds BEFORE at first. */
static void expect_same_rows(const struct sl_gemm *gemm, size_t count, const void *a, const void *b, const float *bias,
                             bool accumulate, const float *before) {
    const size_t rows = (size_t)gemm->m * (size_t)gemm->k * sl_dtype_size(gemm->dtype);
    const size_t part = (size_t)gemm->m * (size_t)gemm->n, bytes = count * part * sizeof(float);
    float *merged = sl_device.take(bytes), *alone = sl_device.take(bytes), *here = floats(count * part);
    float *also = floats(count * part);
    assert_true(merged && alone);
    sl_device.copy(merged, before, bytes);
    sl_device.copy(alone, before, bytes);
    assert_int_equal(sl_gemm_execute(gemm, sl_gemm_floats(gemm, (int)count, a, b, bias, accumulate, merged), NULL),
                     SL_OK);
    for (size_t i = 0; i < count; i++)
        assert_int_equal(
            sl_gemm_execute(
                gemm, sl_gemm_floats(gemm, 1, (const char *)a + i * rows, b, bias, accumulate, alone + i * part), NULL),
            SL_OK);
    sl_device.copy(here, merged, bytes);
    sl_device.copy(also, alone, bytes);
    assert_memory_equal(here, also, bytes);
    sl_device.give(merged);
    sl_device.give(alone);
    free(here);
    free(also);
}

static void *operand(struct numbers *numbers, enum sl_dtype dtype, size_t count) {
    float *values = random_floats(numbers, count, -1, 1);
    void *there = sl_device.take(count * sl_dtype_size(dtype));
    assert_non_null(there);
    if (dtype == SL_F32) sl_device.copy(there, values, count * sizeof *values);
    for (size_t i = 0; i < count && dtype == SL_BF16; i++) {
        const uint16_t half = sl_bf16_of_float(values[i]);
        sl_device.copy((uint16_t *)there + i, &half, sizeof half);
    }
    free(values);
    return there;
}

/* Also if cuBLAS's algorithm does not accept the rows of all parts together: only the fake CUDA reads this environment
 * variable. */
static void products_of_parts_are_those_of_each(void **state) {
    (void)state;
    static const int shapes_of[][4] = {{3, 8, 48, 96}, {4, 1, 64, 33}, {2, 5, 24, 40}};
    const struct sl_gemm_backend *const backends[] = {&sl_gemm_reference, &sl_gemm_cublas, &sl_gemm_cublas_tf32};
    for (int i = 0; i < 3 * 2 * 3 * 4; i++) {
        const int *shape = shapes_of[i % 3], form = i / 3 % 4; /* C = A B + bias, C += A B, and both with B^T */
        const enum sl_dtype dtype = i / 12 % 2 ? SL_BF16 : SL_F32;
        const struct sl_gemm_backend *backend = backends[i / 24];
        const size_t count = (size_t)shape[0], m = (size_t)shape[1], n = (size_t)shape[2], k = (size_t)shape[3];
        struct numbers numbers = {11};
        struct sl_gemm gemm;
        if (!sl_gemm_supports(backend, dtype)) continue;
        void *a = operand(&numbers, dtype, count * m * k), *b = operand(&numbers, dtype, n * k);
        float *bias = operand(&numbers, SL_F32, n), *before = operand(&numbers, SL_F32, count * m * n);
        assert_int_equal(sl_gemm_plan(&gemm, backend, dtype, shape[1], shape[2], shape[3], false, form & 2,
                                      form & 1 ? SL_EPILOGUE_NONE : SL_EPILOGUE_BIAS, NULL),
                         SL_OK);
        for (int refused = 0; refused < 2; refused++) {
            setenv("FAKE_CUDA_FAIL", refused ? "cublasLtMatmulAlgoCheck@1" : "", 1);
            expect_same_rows(&gemm, count, a, b, bias, form & 1, before);
        }
        unsetenv("FAKE_CUDA_FAIL");
        sl_gemm_release(&gemm);
        void *const taken[] = {a, b, bias, before};
        for (size_t t = 0; t < sizeof taken / sizeof *taken; t++) sl_device.give(taken[t]);
    }
}

int main(void) {
    setenv("SHARDLOOP_MEMORY", "managed", 1);
    cmocka_set_message_output(CM_OUTPUT_TAP);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(words_of_several_keys_are_those_of_each),
        cmocka_unit_test(parts_are_summed_each_by_itself),
        cmocka_unit_test(layer_norms_of_parts_are_those_of_each),
        cmocka_unit_test(rms_norms_of_parts_are_those_of_each),
        cmocka_unit_test(products_of_parts_are_those_of_each),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
