/* test_forms.c - kernels whose results have several forms leave the same values in each: floats, rounded floats, bf16;
 * in rows of which four elements can be read at once, and in others; in rows of more elements than a GPU's team has
 * threads, and of fewer. */
#include "tests/rigs/kernel_levels.h"
#include "tests/rigs/numbers.h"

#include "layers/kernels/norms/norms.h"
#include "layers/kernels/sequence.h"

/* Compares X [n], rounded if ROUNDS, and STORED, unless it is NULL, with the unrounded WANT. */
static void expect_form(const float *want, size_t n, const float *x, bool rounds, const uint16_t *stored) {
    for (size_t i = 0; i < n; i++) {
        const float rounded = sl_float_of_bf16(sl_bf16_of_float(want[i])), wanted = rounds ? rounded : want[i];
        if (x) assert_memory_equal(&x[i], &wanted, sizeof wanted);
        if (stored) assert_int_equal(stored[i], sl_bf16_of_float(want[i]));
    }
}

static void rotated_heads(void **state) {
    (void)state;
    struct numbers numbers = {41};
    const size_t widths[] = {6, 8, 22, 90}, rows = 5, heads = 3;
    FOR_EACH_LEVEL(kernels) {
        for (size_t w = 0; w < 8; w++) {
            const size_t width = widths[w / 2], n = rows * heads * width;
            const bool halves = w % 2;
            float *x = random_device_floats(&numbers, n, -1.0f, 1.0f), *y = device_floats(n), *want = device_floats(n);
            float *cosine = random_device_floats(&numbers, rows * width / 2, -1.0f, 1.0f);
            float *sine = random_device_floats(&numbers, rows * width / 2, -1.0f, 1.0f);
            uint16_t *stored = device_array(n, sizeof *stored);
            memcpy(want, x, n * sizeof *x);
            kernels->published->rotate_heads(rows, heads, width, rows, 0, NULL, halves, cosine, sine, false,
                                             sl_out_f32(want));
            for (int copy = 0; copy < 2; copy++) {
                memcpy(y, x, n * sizeof *x);
                kernels->published->rotate_heads(rows, heads, width, rows, 0, NULL, halves, cosine, sine, false,
                                                 sl_out_of(y, true, copy ? stored : NULL));
                expect_form(want, n, y, true, copy ? stored : NULL);
            }
            void *const arrays[] = {x, y, want, cosine, sine, stored};
            for (size_t i = 0; i < 6; i++) release_array(arrays[i]);
        }
    }
}

static void copied_blocks(void **state) {
    (void)state;
    struct numbers numbers = {42};
    enum { ROWS = 5, STRIDE = 268 };
    static const size_t widths[] = {37, 38, 39, 40, 261, 262, 263, 264};
    FOR_EACH_LEVEL(kernels) {
        for (size_t w = 0; w < sizeof widths / sizeof *widths; w++) {
            const size_t cols = widths[w];
            float *x = random_device_floats(&numbers, ROWS * STRIDE, -1.0f, 1.0f), *y = device_floats(ROWS * STRIDE);
            uint16_t *stored = device_array(ROWS * STRIDE, sizeof *stored);
            for (int form = 0; form < 4; form++) {
                const bool rounds = form > 0, copies = form > 1;
                const size_t stride = form == 3 ? STRIDE - 1 : STRIDE;
                const struct sl_out to = sl_out_of(y, rounds, copies ? stored : NULL);
                kernels->sequence->copy_settled(ROWS, cols, x, stride, to, stride);
                for (size_t r = 0; r < ROWS; r++)
                    expect_form(x + r * stride, cols, y + r * stride, rounds, copies ? stored + r * stride : NULL);
            }
            release_array(x);
            release_array(y);
            release_array(stored);
        }
    }
}

/* Tokens outside of the table have zeros. */
static void looked_up_rows(void **state) {
    (void)state;
    struct numbers numbers = {43};
    enum { ROWS = 6, COUNT = 4, FIRST = 3 };
    FOR_EACH_LEVEL(kernels)
    for (size_t cols = 10; cols < 300; cols += 251) {
        float *table = random_device_floats(&numbers, COUNT * cols, -1.0f, 1.0f), *y = device_floats(ROWS * cols);
        uint16_t *half = settle(table, COUNT * cols), *stored = device_array(ROWS * cols, sizeof *stored);
        int32_t *tokens = device_array(ROWS, sizeof *tokens);
        for (int32_t r = 0; r < ROWS; r++) tokens[r] = FIRST - 1 + r;
        for (int form = 0; form < 8; form++) {
            const bool floats = form % 2, halves = form / 2 % 2, rounds = !floats || form / 4;
            kernels->sequence->lookup(ROWS, cols, tokens, FIRST, COUNT,
                                      halves ? sl_rows_bf16(half) : sl_rows_f32(table), cols,
                                      sl_out_of(floats ? y : NULL, rounds, rounds ? stored : NULL));
            for (size_t i = 0; i < ROWS * cols; i++) {
                const int32_t place = tokens[i / cols] - FIRST;
                const float want = place >= 0 && place < COUNT ? table[(size_t)place * cols + i % cols] : 0.0f;
                expect_form(&want, 1, floats ? y + i : NULL, false, rounds ? stored + i : NULL);
            }
        }
        void *const arrays[] = {table, y, half, stored, tokens};
        for (size_t i = 0; i < 5; i++) release_array(arrays[i]);
    }
}

static void sums_of_rows(void **state) {
    (void)state;
    struct numbers numbers = {44};
    const size_t rows = 9, widths[] = {5, 64, 71, 300};
    FOR_EACH_LEVEL(kernels) {
        for (size_t w = 0; w < 4; w++) {
            const size_t cols = widths[w];
            float *x = random_device_floats(&numbers, rows * cols, -1.0f, 1.0f), *sums = device_floats(rows);
            kernels->published->row_sums(rows, cols, x, sums);
            for (size_t r = 0; r < rows; r++) {
                double want = 0.0;
                for (size_t c = 0; c < cols; c++) want += (double)x[r * cols + c];
                expect_close("sum", r, sums[r], want, 1e-6, 1e-5);
            }
            release_array(x);
            release_array(sums);
        }
    }
}

/* Norms of whole rows of bf16, the form on devices. */
static void norms_of_bf16(void **state) {
    (void)state;
    struct numbers numbers = {45};
    enum { ROWS = 11 };
    const size_t widths[] = {7, 40, 130};
    FOR_EACH_LEVEL(kernels) {
        for (size_t w = 0; w < 3 && kernels->whole_norms; w++) {
            const size_t cols = widths[w], n = ROWS * cols;
            float *x = random_device_floats(&numbers, n, -1.0f, 1.0f), *y = device_floats(n), *other = device_floats(n);
            float *gamma = random_device_floats(&numbers, cols, 0.5f, 1.5f),
                  *beta = random_device_floats(&numbers, cols, -1.0f, 1.0f);
            float *rstd = device_floats(ROWS);
            uint16_t *half = settle(x, n);
            kernels->norms->rms_norm_forward(ROWS, cols, cols, sl_rows_f32(x), NULL, gamma, beta, 1e-6f, rstd,
                                             sl_out_f32(y));
            kernels->norms->rms_norm_forward(ROWS, cols, cols, sl_rows_bf16(half), NULL, gamma, beta, 1e-6f, rstd,
                                             sl_out_f32(other));
            assert_memory_equal(y, other, n * sizeof *y);
            void *const arrays[] = {x, y, other, gamma, beta, rstd, half};
            for (size_t i = 0; i < 7; i++) release_array(arrays[i]);
        }
    }
}

/* The gradients of many rows: RMS norms as devices have them, and layer norms of each type. */
static void gradients_of_many_rows(void **state) {
    (void)state;
    struct numbers numbers = {46};
    enum { ROWS = 1100, COLS = 9, N = ROWS * COLS };
    FOR_EACH_LEVEL(kernels) {
        const struct sl_norm_kernels *norms = kernels->norms;
        float *x = random_device_floats(&numbers, N, -1.0f, 1.0f), *dy = random_device_floats(&numbers, N, -1.0f, 1.0f);
        float *scale = random_device_floats(&numbers, COLS, 0.5f, 1.5f), *dx = device_floats(N);
        float *rstd = random_device_floats(&numbers, ROWS, 0.5f, 2.0f),
              *room = device_floats(norms->rms_norm_room(1, ROWS, COLS));
        float *dscale = device_floats(COLS), *dbias = device_floats(COLS);
        uint16_t *half_x = settle(x, N), *half_dy = settle(dy, N);
        const struct sl_out to = sl_out_f32(dx);
        for (int form = 0; form < 6; form++) {
            const bool rms = form > 2;
            if (rms && !kernels->whole_norms) continue;
            const struct sl_rows of_x = form % 3 ? sl_rows_bf16(half_x) : sl_rows_f32(x);
            const struct sl_rows of_dy = form % 3 > 1 ? sl_rows_bf16(half_dy) : sl_rows_f32(dy);
            if (rms)
                norms->rms_norm_backward(1, ROWS, COLS, COLS, of_dy, of_x, rstd, scale, NULL, sl_rows_f32(NULL), to,
                                         dscale, dbias, room);
            else
                norms->layer_norm_backward(1, ROWS, COLS, of_dy, of_x, rstd, scale, sl_rows_f32(NULL), to, dscale,
                                           dbias);
            for (size_t c = 0; c < COLS; c++) {
                double to_scale = 0.0, to_bias = 0.0;
                for (size_t r = 0; r < ROWS; r++) {
                    to_scale += (double)dy[r * COLS + c] * x[r * COLS + c] * (rms ? rstd[r] : 1.0f);
                    to_bias += dy[r * COLS + c];
                }
                expect_close("dscale", c, dscale[c], to_scale, 1e-5, 1e-4);
                expect_close("dbias", c, dbias[c], to_bias, 1e-5, 1e-4);
            }
        }
        void *const arrays[] = {x, dy, scale, dx, rstd, room, dscale, dbias, half_x, half_dy};
        for (size_t i = 0; i < 10; i++) release_array(arrays[i]);
    }
}

/* Gradients of norms whose rows lie in several places, with a summand. */
static void rounded_gradients_of_shares(void **state) {
    (void)state;
    struct numbers numbers = {47};
    enum { ROWS = 5 };
    FOR_EACH_LEVEL(kernels)
    for (size_t cols = 37; cols < 300; cols += 224) {
        const size_t n = ROWS * cols;
        float *x = random_device_floats(&numbers, n, -1.0f, 1.0f), *dy = random_device_floats(&numbers, n, -1.0f, 1.0f);
        float *gamma = random_device_floats(&numbers, cols, 0.5f, 1.5f);
        float *rstd = random_device_floats(&numbers, ROWS, 0.5f, 2.0f);
        float *dots = random_device_floats(&numbers, ROWS, -1.0f, 1.0f);
        float *summand = random_device_floats(&numbers, n, -1.0f, 1.0f), *want = device_floats(n),
              *dx = device_floats(n);
        uint16_t *half_x = settle(x, n), *stored = device_array(n, sizeof *stored);
        for (int half = 0; half < 2; half++) {
            const struct sl_rows from = half ? sl_rows_bf16(half_x) : sl_rows_f32(x);
            for (int form = 0; form < 3; form++) { /* first the float32 that the others round */
                uint16_t *copy = form > 1 ? stored : NULL;
                const struct sl_out to = sl_out_of(form ? dx : want, form > 0, copy);
                kernels->norms->rms_norm_backward(1, ROWS, cols, 2 * cols, sl_rows_f32(dy), from, rstd, gamma, dots,
                                                  sl_rows_f32(summand), to, NULL, NULL, NULL);
                if (form) expect_form(want, n, dx, true, copy);
            }
        }
        void *const arrays[] = {x, dy, gamma, rstd, dots, summand, want, dx, half_x, stored};
        for (size_t i = 0; i < 10; i++) release_array(arrays[i]);
    }
}

int main(void) {
    cmocka_set_message_output(CM_OUTPUT_TAP);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rotated_heads),
        cmocka_unit_test(copied_blocks),
        cmocka_unit_test(looked_up_rows),
        cmocka_unit_test(sums_of_rows),
        cmocka_unit_test(norms_of_bf16),
        cmocka_unit_test(gradients_of_many_rows),
        cmocka_unit_test(rounded_gradients_of_shares),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
