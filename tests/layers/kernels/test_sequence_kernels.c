/* test_sequence_kernels.c - the kernels for token sequences of every level of this CPU, against naive oracles in
 * double; sharded arrays in one part and in two. */
#include "tests/rigs/sequence_levels.h"

#include "spmd/base/numbers/bf16.h"

/* ---- copies and biases ---- */

static void blocks_are_copied(void **state) {
    (void)state;
    FOR_EACH_LEVEL(kernels) {
        struct numbers numbers = {1};
        for (int s = 0; s < SHAPES; s++) {
            const size_t rows = shapes[s][0], cols = shapes[s][1], x_stride = cols + 3, y_stride = cols + 7;
            float *x = random_device_floats(&numbers, rows * x_stride, -2, 2), *y = device_floats(rows * y_stride);
            for (size_t i = 0; i < rows * y_stride; i++) y[i] = 9;
            uint16_t *rounded = device_copy(y, rows * y_stride * sizeof *y);
            const uint16_t nine = rounded[1];
            for (size_t i = 0; i < rows * y_stride; i++) rounded[i] = nine;
            kernels->copy_block(rows, cols, x + 2, x_stride, y + 5, y_stride);
            kernels->round_block(rows, cols, x + 2, x_stride, rounded + 5, y_stride);
            for (size_t i = 0; i < rows * y_stride; i++) {
                const size_t r = i / y_stride, c = i % y_stride;
                const bool outside = c < 5 || c >= 5 + cols;
                assert_true(y[i] == (outside ? 9 : x[r * x_stride + 2 + c - 5]));
                assert_int_equal(rounded[i], outside ? nine : sl_bf16_of_float(y[i]));
            }
            for (int i = 0; i < 3; i++) { /* as it is, rounded, and stored, too */
                const struct sl_out to = sl_out_of(y, i > 0, i > 1 ? rounded : NULL);
                for (size_t e = 0; e < rows * y_stride; e++) rounded[e] = nine;
                kernels->copy_settled(rows, cols, x + 2, x_stride, sl_out_from(to, 5), y_stride);
                for (size_t e = 0; e < rows * y_stride; e++) {
                    const size_t r = e / y_stride, c = e % y_stride;
                    const bool outside = c < 5 || c >= 5 + cols;
                    const float own = outside ? 9 : x[r * x_stride + 2 + c - 5];
                    assert_true(y[e] == (outside || i == 0 ? own : sl_float_of_bf16(sl_bf16_of_float(own))));
                    assert_int_equal(rounded[e], outside || i < 2 ? nine : sl_bf16_of_float(own));
                }
            }
            release_array(rounded);
            release_array(x);
            release_array(y);
        }
    }
}

static void biases_are_added(void **state) {
    (void)state;
    FOR_EACH_LEVEL(kernels) {
        struct numbers numbers = {2};
        for (int s = 0; s < SHAPES; s++) {
            const size_t rows = shapes[s][0], cols = shapes[s][1], stride = cols + 4, n = rows * stride;
            float *bias = random_device_floats(&numbers, cols, -2, 2), *y = random_device_floats(&numbers, n, -2, 2),
                  *before = device_copy(y, n * sizeof *y);
            kernels->add_bias(rows, cols, bias, sl_out_f32(y + 1), stride);
            for (size_t i = 0; i < n; i++) {
                const size_t c = i % stride;
                assert_true(y[i] == (c < 1 || c > cols ? before[i] : before[i] + bias[c - 1]));
            }
            release_array(bias);
            release_array(y);
            release_array(before);
        }
    }
}

/* ---- RMS norm ---- */

static const double EPSILON = 1e-6;

/* A share of the columns, from FIRST on, and the kernels' results for it. */
struct norm_part {
    size_t first, cols;
    float *x, *gamma, *beta, *dy;   /* inputs */
    float *sums, *dots, *rstd;      /* [rows] */
    float *y, *dx, *dgamma, *dbeta; /* results */
};

static struct norm_part make_norm_part(struct numbers *numbers, size_t rows, size_t first, size_t cols) {
    return (struct norm_part){
        .first = first,
        .cols = cols,
        .x = random_device_floats(numbers, rows * cols, -1, 3),
        .gamma = random_device_floats(numbers, cols, 0.5f, 1.5f),
        .beta = random_device_floats(numbers, cols, -1, 1),
        .dy = random_device_floats(numbers, rows * cols, -1, 1),
        .sums = device_floats(rows),
        .dots = device_floats(rows),
        .rstd = device_floats(rows),
        .y = device_floats(rows * cols),
        .dx = device_floats(rows * cols),
        .dgamma = random_device_floats(numbers, cols, -1, 1),
        .dbeta = random_device_floats(numbers, cols, -1, 1),
    };
}

static void free_norm_part(struct norm_part *p) {
    float *const arrays[] = {p->x,    p->gamma, p->beta, p->dy,     p->sums, p->dots,
                             p->rstd, p->y,     p->dx,   p->dgamma, p->dbeta};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) release_array(arrays[i]);
}

/* I, with SUMMAND, unless it is NULL, and W, of dy and x of ROWS rows of COLS of WHOLE columns. */
static void norm_input(int level, size_t rows, size_t cols, size_t whole, const float *dy, struct sl_rows x,
                       const struct norm_part *p, const float *summand, struct sl_out dx) {
    sl_kernels_available(level)->norms->rms_norm_backward(1, rows, cols, whole, sl_rows_f32(dy), x, p->rstd, p->gamma,
                                                          p->dots, sl_rows_f32(summand), dx, NULL, NULL, NULL);
}

static void norm_weight(int level, size_t rows, size_t cols, const float *dy, struct sl_rows x, const float *rstd,
                        float *dgamma, float *dbeta) {
    sl_kernels_available(level)->norms->rms_norm_backward(1, rows, cols, cols, sl_rows_f32(dy), x, rstd, NULL, NULL,
                                                          sl_rows_f32(NULL), sl_out_f32(NULL), dgamma, dbeta, NULL);
}

static void run_rms_norm(int level, size_t rows, size_t whole, int parts, struct norm_part *part) {
    const struct sl_norm_kernels *kernels = sl_kernels_available(level)->norms;
    float *sums[2], *dots[2];
    for (int i = 0; i < parts; i++) {
        struct norm_part *p = &part[i];
        kernels->square_sums(rows, p->cols, p->x, sums[i] = p->sums);
        kernels->rms_norm_dots(rows, 1, p->cols, p->dy, sl_rows_f32(p->x), p->gamma, dots[i] = p->dots);
    }
    psum(parts, rows, sums);
    psum(parts, rows, dots);
    for (int i = 0; i < parts; i++) {
        struct norm_part *p = &part[i];
        kernels->rms_norm_forward(rows, p->cols, whole, sl_rows_f32(p->x), p->sums, p->gamma, p->beta, (float)EPSILON,
                                  p->rstd, sl_out_f32(p->y));
        norm_input(level, rows, p->cols, whole, p->dy, sl_rows_f32(p->x), p, NULL, sl_out_f32(p->dx));
        norm_weight(level, rows, p->cols, p->dy, sl_rows_f32(p->x), p->rstd, p->dgamma, p->dbeta);
    }
}

/* A row in double: x, gamma, dy of all parts. */
struct norm_row {
    size_t cols;
    double *x, *gamma, *dy;
};

static double rstd_of(const struct norm_row *row) {
    double squares = 0;
    for (size_t c = 0; c < row->cols; c++) squares += row->x[c] * row->x[c];
    return 1 / sqrt(squares / (double)row->cols + EPSILON);
}

/* How much sum(dy y) grows with x[at], by a difference. */
static double slope_along(const struct norm_row *row, size_t at) {
    const double h = 1e-5, saved = row->x[at];
    double sum[2] = {0, 0};
    for (int side = 0; side < 2; side++) {
        row->x[at] = saved + (side ? h : -h);
        const double rstd = rstd_of(row);
        for (size_t c = 0; c < row->cols; c++) sum[side] += row->dy[c] * row->x[c] * rstd * row->gamma[c];
    }
    row->x[at] = saved;
    return (sum[1] - sum[0]) / (2 * h);
}

static void expect_rms_norm(int level, size_t rows, size_t whole, int parts, const struct norm_part *part) {
    struct norm_row row = {whole, array_of(whole, sizeof *row.x), array_of(whole, sizeof *row.x),
                           array_of(whole, sizeof *row.x)};
    double *dgamma = array_of(whole, sizeof *dgamma), *dbeta = array_of(whole, sizeof *dbeta);
    for (size_t r = 0; r < rows; r++) {
        for (const struct norm_part *p = part; p < part + parts; p++) {
            for (size_t c = 0; c < p->cols; c++) {
                row.x[p->first + c] = p->x[r * p->cols + c];
                row.dy[p->first + c] = p->dy[r * p->cols + c];
                row.gamma[p->first + c] = p->gamma[c];
            }
        }
        const double rstd = rstd_of(&row);
        for (const struct norm_part *p = part; p < part + parts; p++) {
            expect_close(at_level(level, "rstd"), r, p->rstd[r], rstd, 1e-6, 0);
            for (size_t c = 0; c < p->cols; c++) {
                const size_t at = r * p->cols + c, all = p->first + c;
                expect_close(at_level(level, "rms_norm y"), at, p->y[at], row.x[all] * rstd * p->gamma[c] + p->beta[c],
                             1e-6, 1e-6);
                expect_close(at_level(level, "rms_norm dx"), at, p->dx[at], slope_along(&row, all), 2e-5, 2e-6);
                dgamma[all] += row.dy[all] * row.x[all] * rstd;
                dbeta[all] += row.dy[all];
            }
        }
    }
    for (const struct norm_part *p = part; p < part + parts; p++) {
        for (size_t c = 0; c < p->cols; c++) {
            expect_close(at_level(level, "rms_norm dgamma"), c, p->dgamma[c], dgamma[p->first + c], 2e-6, 2e-6);
            expect_close(at_level(level, "rms_norm dbeta"), c, p->dbeta[c], dbeta[p->first + c], 1e-6, 1e-6);
        }
    }
    double *const arrays[] = {row.x, row.gamma, row.dy, dgamma, dbeta};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) free(arrays[i]);
}

static void rms_norm_and_its_gradients(void **state) {
    (void)state;
    for (int level = 0; sl_kernels_available(level); level++) {
        struct numbers numbers = {3};
        for (int s = 0; s < SHAPES; s++) {
            const size_t rows = shapes[s][0], whole = shapes[s][1];
            for (int parts = 1; parts <= 2; parts++) {
                const size_t head = parts == 1 ? whole : whole / 3;
                struct norm_part part[2] = {make_norm_part(&numbers, rows, 0, head),
                                            make_norm_part(&numbers, rows, head, whole - head)};
                run_rms_norm(level, rows, whole, parts, part);
                expect_rms_norm(level, rows, whole, parts, part);
                free_norm_part(&part[0]);
                free_norm_part(&part[1]);
            }
        }
    }
}

/* Rows are added in ascending order: if products are exact, there is one right result, to the last bit. */
static void weight_gradients_add_rows_in_order(void **state) {
    (void)state;
    enum { ROWS = 9, COLS = 70 };
    for (int level = 0; sl_kernels_available(level); level++) {
        struct numbers numbers = {4};
        struct norm_part p = make_norm_part(&numbers, ROWS, 0, COLS);
        for (int i = 0; i < ROWS * COLS; i++) p.x[i] = 2.0f;
        for (int r = 0; r < ROWS; r++) p.rstd[r] = r % 2 ? 0.5f : 0.25f;
        norm_weight(level, ROWS, COLS, p.dy, sl_rows_f32(p.x), p.rstd, p.dgamma, p.dbeta);
        for (int c = 0; c < COLS; c++) {
            const int slice = (ROWS + sl_kernels_select()->slices - 1) / sl_kernels_select()->slices;
            float dgamma = 0, dbeta = 0;
            for (int first = 0; first < ROWS; first += slice) {
                float slice_gamma = 0, slice_beta = 0;
                for (int r = first; r < ROWS && r < first + slice; r++) {
                    slice_gamma += p.dy[r * COLS + c] * (r % 2 ? 1.0f : 0.5f);
                    slice_beta += p.dy[r * COLS + c];
                }
                dgamma += slice_gamma;
                dbeta += slice_beta;
            }
            assert_true(p.dgamma[c] == dgamma && p.dbeta[c] == dbeta);
        }
        free_norm_part(&p);
    }
}

static void rms_norm_of_zeros_is_beta(void **state) {
    (void)state;
    for (int level = 0; sl_kernels_available(level); level++) {
        struct numbers numbers = {5};
        struct norm_part p = make_norm_part(&numbers, 1, 0, 33);
        memset(p.x, 0, 33 * sizeof *p.x);
        run_rms_norm(level, 1, 33, 1, &p);
        for (int c = 0; c < 33; c++) assert_true(p.y[c] == p.beta[c] && isfinite(p.dx[c]));
        expect_close(at_level(level, "rstd"), 0, p.rstd[0], 1000, 1e-6, 0);
        free_norm_part(&p);
    }
}

/* With rounding in the same pass: the bits of separate passes. */
static void rms_norm_rounds_what_is_stored(void **state) {
    (void)state;
    for (int level = 0; sl_kernels_available(level); level++) {
        const struct sl_kernels *passes = sl_kernels_available(level);
        struct numbers numbers = {31};
        for (int s = 0; s < SHAPES; s++) {
            const size_t rows = shapes[s][0], cols = shapes[s][1], n = rows * cols;
            struct norm_part p = make_norm_part(&numbers, rows, 0, cols);
            float *y = device_floats(n + 1), *dy = device_copy(p.dy, n * sizeof *p.dy), *dx = device_floats(n);
            float *dots = device_floats(rows), *dgamma = device_floats(cols), *dbeta = device_floats(cols);
            uint16_t *x = device_array(n, sizeof *x), *want = device_array(n, sizeof *want);
            uint16_t *stored = device_array(n + 1, sizeof *stored);
            passes->settle_bf16(n, p.x, x);
            passes->settle_bf16(n, p.dy, NULL);
            run_rms_norm(level, rows, cols, 1, &p);
            passes->settle_bf16(n, p.y, want);
            stored[n] = 0x1234;
            y[n] = 3;
            for (int form = 1; form < 4; form++) {
                memset(y, 0, n * sizeof *y);
                memset(stored, 0, n * sizeof *stored);
                passes->norms->rms_norm_forward(rows, cols, cols, sl_rows_f32(p.x), p.sums, p.gamma, p.beta,
                                                (float)EPSILON, p.rstd,
                                                sl_out_of(form & 1 ? y : NULL, true, form & 2 ? stored : NULL));
                if (form & 1) assert_memory_equal(y, p.y, n * sizeof *y);
                if (form & 2) assert_memory_equal(stored, want, n * sizeof *stored);
            }
            passes->norms->rms_norm_dots(rows, 1, cols, dy, sl_rows_bf16(x), p.gamma, dots);
            norm_input(level, rows, cols, cols, dy, sl_rows_bf16(x), &p, NULL, sl_out_f32(dx));
            norm_weight(level, rows, cols, dy, sl_rows_bf16(x), p.rstd, dgamma, dbeta);
            for (size_t r = 0; r < rows; r++) /* cols terms of at most 4.5, in any order */
                expect_close(at_level(level, "dots"), r, dots[r], p.dots[r], 0, 4.5 * (double)cols * 0x1p-22);
            assert_memory_equal(dx, p.dx, n * sizeof *dx);
            norm_input(level, rows, cols, cols, dy, sl_rows_bf16(x), &p, p.y, sl_out_f32(dx));
            for (size_t i = 0; i < n; i++)
                expect_close(at_level(level, "with summands"), i, dx[i], (double)p.dx[i] + p.y[i], 1e-6, 1e-6);
            norm_input(level, rows, cols, cols, dy, sl_rows_bf16(x), &p, p.y, sl_out_of(p.dx, true, want));
            passes->settle_bf16(n, dx, stored);
            assert_memory_equal(dx, p.dx, n * sizeof *dx);
            assert_memory_equal(stored, want, n * sizeof *stored);
            assert_memory_equal(dgamma, p.dgamma, cols * sizeof *dgamma);
            assert_memory_equal(dbeta, p.dbeta, cols * sizeof *dbeta);
            assert_true(stored[n] == 0x1234 && y[n] == 3);
            void *const taken[] = {y, dy, dx, dots, dgamma, dbeta, x, want, stored};
            for (size_t i = 0; i < sizeof taken / sizeof *taken; i++) release_array(taken[i]);
            free_norm_part(&p);
        }
    }
}

/* ---- activation ---- */

/* Returns 2 z, with z = sqrt(2 / pi) (x + 0.044715 x^3). */
static double gelu_argument(double x) { return 2 * sqrt(2 / 3.14159265358979323846) * (x + 0.044715 * x * x * x); }
static double gelu(double x) { return x / (1 + exp(-gelu_argument(x))); }
static double gelu_slope(double x) { return (gelu(x + 1e-5) - gelu(x - 1e-5)) / 2e-5; }

static void gelu_and_its_slope(void **state) {
    (void)state;
    FOR_EACH_LEVEL(kernels) {
        struct numbers numbers = {6};
        for (size_t n = 0; n < 4000; n = n < 70 ? n + 1 : n == 70 ? 129 : 2 * n - 1) {
            float *x = random_device_floats(&numbers, n, n % 2 ? -13 : -2, n % 2 ? 13 : 2), *y = device_floats(n),
                  *dy = random_device_floats(&numbers, n, -1, 1), *slope = device_floats(n), *dx = device_floats(n);
            for (size_t i = 0; i < n; i++) slope[i] = 1.0f;
            kernels->gelu_forward(n, sl_rows_f32(x), NULL, sl_out_f32(y));
            kernels->gelu_backward(n, sl_rows_f32(x), sl_rows_f32(slope), sl_out_f32(slope));
            kernels->gelu_backward(n, sl_rows_f32(x), sl_rows_f32(dy), sl_out_f32(dx));
            for (size_t i = 0; i < n; i++) { /* an error of the exponent is one of the result as many times as large */
                const double relative = 4e-7 * (1 + fmax(0, -gelu_argument(x[i])));
                expect_close(at_level(level, "gelu"), i, y[i], gelu(x[i]), relative, 2e-37);
                expect_close(at_level(level, "gelu slope"), i, slope[i], gelu_slope(x[i]), relative, 3e-7);
                assert_true(dx[i] == dy[i] * slope[i]);
            }
            kernels->gelu_backward(n, sl_rows_f32(x), sl_rows_f32(dy), sl_out_f32(dy));
            assert_memory_equal(dy, dx, n * sizeof *dx);
            memcpy(slope, x, n * sizeof *x);
            kernels->gelu_forward(n, sl_rows_f32(slope), NULL, sl_out_f32(slope));
            assert_memory_equal(slope, y, n * sizeof *y);
            release_array(x);
            release_array(y);
            release_array(dy);
            release_array(slope);
            release_array(dx);
        }
    }
}

/* Between arrays of bf16, with rounding in the same pass: the bits of separate passes. */
static void gelu_rounds_what_is_stored(void **state) {
    (void)state;
    FOR_EACH_LEVEL(kernels) {
        const struct sl_kernels *passes = sl_kernels_available(level);
        struct numbers numbers = {26};
        for (size_t n = 0; n < 4000; n = n < 70 ? n + 1 : n == 70 ? 129 : 2 * n - 1) {
            float *x = random_device_floats(&numbers, n, n % 2 ? -13 : -2, n % 2 ? 13 : 2),
                  *dy = random_device_floats(&numbers, n, -1, 1), *y = device_floats(n + 1), *dx = device_floats(n + 1);
            float *settled = device_copy(x, n * sizeof *x), *want = device_floats(n);
            uint16_t *kept = device_array(n, sizeof *kept), *want_kept = device_array(n, sizeof *kept),
                     *x_kept = device_array(n + 1, sizeof *kept), *y_kept = device_array(n + 1, sizeof *kept);
            x_kept[n] = y_kept[n] = 0x1234;
            y[n] = dx[n] = 3;
            passes->settle_bf16(n, settled, kept);
            kernels->gelu_forward(n, sl_rows_f32(settled), NULL, sl_out_f32(want));
            passes->settle_bf16(n, want, want_kept);
            for (int floats = 0; floats < 2; floats++) {
                memset(x_kept, 0, n * sizeof *kept);
                memset(y_kept, 0, n * sizeof *kept);
                kernels->gelu_forward(n, sl_rows_f32(x), x_kept, sl_out_of(floats ? y : NULL, true, y_kept));
                assert_memory_equal(x_kept, kept, n * sizeof *kept);
                assert_memory_equal(y_kept, want_kept, n * sizeof *kept);
            }
            assert_memory_equal(y, want, n * sizeof *y);
            memset(y_kept, 0, n * sizeof *kept);
            kernels->gelu_forward(n, sl_rows_bf16(kept), NULL, sl_out_bf16(y_kept));
            assert_memory_equal(y_kept, want_kept, n * sizeof *kept);
            memcpy(want, dy, n * sizeof *dy);
            passes->settle_bf16(n, want, NULL);
            kernels->gelu_backward(n, sl_rows_f32(settled), sl_rows_f32(want), sl_out_f32(want));
            passes->settle_bf16(n, want, want_kept);
            kernels->gelu_backward(n, sl_rows_bf16(x_kept), sl_rows_f32(dy), sl_out_bf16(y_kept));
            assert_memory_equal(y_kept, want_kept, n * sizeof *kept);
            passes->round_bf16(n, dy, y_kept);
            kernels->gelu_backward(n, sl_rows_bf16(x_kept), sl_rows_bf16(y_kept), sl_out_bf16(y_kept));
            assert_memory_equal(y_kept, want_kept, n * sizeof *kept);
            memset(y_kept, 0, n * sizeof *kept);
            kernels->gelu_backward(n, sl_rows_bf16(x_kept), sl_rows_f32(dy), sl_out_of(dx, true, y_kept));
            kernels->gelu_backward(n, sl_rows_bf16(x_kept), sl_rows_f32(dy), sl_out_of(dy, true, x_kept));
            assert_memory_equal(dx, want, n * sizeof *dx);
            assert_memory_equal(dy, want, n * sizeof *dx);
            assert_memory_equal(x_kept, want_kept, n * sizeof *kept);
            assert_memory_equal(y_kept, want_kept, n * sizeof *kept);
            assert_true(x_kept[n] == 0x1234 && y_kept[n] == 0x1234 && y[n] == 3 && dx[n] == 3);
            void *const taken[] = {x, dy, y, dx, settled, want, kept, want_kept, x_kept, y_kept};
            for (size_t i = 0; i < sizeof taken / sizeof *taken; i++) release_array(taken[i]);
        }
    }
}

static void gelu_far_out(void **state) {
    (void)state;
    const float values[] = {0.0f, -0.0f, 1e-30f, 11.9f, -11.9f, 12.1f, -12.1f, 1e20f, -1e20f, 3e38f, -3e38f, NAN};
    enum { N = sizeof values / sizeof *values };
    float *x = device_copy(values, sizeof values), *y = device_floats(N), *slope = device_floats(N);
    FOR_EACH_LEVEL(kernels) {
        for (size_t i = 0; i < N; i++) slope[i] = 1.0f;
        kernels->gelu_forward(N, sl_rows_f32(x), NULL, sl_out_f32(y));
        kernels->gelu_backward(N, sl_rows_f32(x), sl_rows_f32(slope), sl_out_f32(slope));
        for (size_t i = 0; i < N - 1; i++) {
            expect_close(at_level(level, "gelu"), i, y[i], x[i] > 1 ? x[i] : x[i] < -1 ? 0 : x[i] / 2, 1e-6, 1e-30);
            expect_close(at_level(level, "gelu slope"), i, slope[i], fabsf(x[i]) < 1 ? 0.5 : x[i] > 0, 1e-6, 1e-30);
        }
        assert_true(isnan(y[N - 1]) && isnan(slope[N - 1]));
    }
    release_array(x);
    release_array(y);
    release_array(slope);
}

/* ---- positions and tokens ---- */

static void expect_rotation(int level, size_t cols, double angle_sign, const float *cosine, const float *sine,
                            const float *x, const float *y) {
    for (size_t i = 0; i < cols / 2; i++) {
        const double c = cosine[i], s = angle_sign * sine[i], even = x[2 * i], odd = x[2 * i + 1];
        expect_close(at_level(level, "rope, even"), i, y[2 * i], even * c - odd * s, 1e-6, 3e-7);
        expect_close(at_level(level, "rope, odd"), i, y[2 * i + 1], odd * c + even * s, 1e-6, 3e-7);
    }
}

static void pairs_are_rotated_and_rotated_back(void **state) {
    (void)state;
    enum { POSITIONS = 12 };
    const size_t cols_of[] = {2, 8, 10, 64, 302}, sequence = 5, rows = 3 * sequence;
    FOR_EACH_LEVEL(kernels) {
        struct numbers numbers = {7};
        for (int k = 0; k < 5; k++) {
            const size_t cols = cols_of[k], pairs = cols / 2;
            float *cosine = device_floats(POSITIONS * pairs), *sine = device_floats(POSITIONS * pairs);
            for (size_t i = 0; i < POSITIONS * pairs; i++) {
                const double angle = next_float(&numbers, -4, 4);
                cosine[i] = (float)cos(angle);
                sine[i] = (float)sin(angle);
            }
            for (size_t position = 0; position <= 7; position += 7) { /* 7: up to the last one */
                float *x = random_device_floats(&numbers, rows * cols, -2, 2), *y = device_floats(rows * cols);
                int32_t *places = (int32_t *)device_floats(rows);
                for (size_t r = 0; r < rows; r++) places[r] = (int32_t)(3 * r % sequence);
                kernels->rope(rows, cols, sequence, position, places, cosine, sine, false, x, sl_out_f32(y));
                for (size_t r = 0; r < rows; r++) {
                    const size_t at = (position + (size_t)places[r]) * pairs;
                    expect_rotation(level, cols, 1, cosine + at, sine + at, x + r * cols, y + r * cols);
                }
                release_array(places);
                for (int back = 0; back < 2; back++) {
                    kernels->rope(rows, cols, sequence, position, NULL, cosine, sine, back, x, sl_out_f32(y));
                    for (size_t r = 0; r < rows; r++) {
                        const size_t at = (position + r % sequence) * pairs;
                        expect_rotation(level, cols, back ? -1 : 1, cosine + at, sine + at, x + r * cols, y + r * cols);
                    }
                }
                kernels->rope(rows, cols, sequence, position, NULL, cosine, sine, false, y, sl_out_f32(y));
                for (size_t i = 0; i < rows * cols; i++)
                    expect_close(at_level(level, "rope"), i, y[i], x[i], 1e-6, 1e-6);
                release_array(x);
                release_array(y);
            }
            release_array(cosine);
            release_array(sine);
        }
    }
}

/* All heads of a row are rotated by the same angles: of its place in the sequence, or of the given places. */
static void heads_are_rotated(void **state) {
    (void)state;
    enum { POSITIONS = 12, HEADS = 3, SEQUENCE = 5, HEAD_ROWS = 3 * SEQUENCE };
    const size_t widths[] = {2, 10, 64};
    for (int level = 0; sl_kernels_available(level); level++) {
        struct numbers numbers = {17};
        for (int k = 0; k < 3 * 16; k++) {
            const size_t width = widths[k / 16], pairs = width / 2, n = HEAD_ROWS * HEADS * width;
            const bool halves = k & 1, back = k & 2, placed = k & 4;
            const size_t position = k & 8 ? 7 : 0;
            float *cosine = random_device_floats(&numbers, POSITIONS * pairs, -1, 1);
            float *sine = random_device_floats(&numbers, POSITIONS * pairs, -1, 1);
            float *before = random_device_floats(&numbers, n, -2, 2), *x = device_copy(before, n * sizeof *before);
            int32_t *places = device_array(HEAD_ROWS, sizeof *places);
            for (int32_t r = 0; r < HEAD_ROWS; r++) places[r] = 3 * r % SEQUENCE;
            sl_kernels_available(level)->published->rotate_heads(HEAD_ROWS, HEADS, width, SEQUENCE, position,
                                                                 placed ? places : NULL, halves, cosine, sine, back,
                                                                 sl_out_f32(x));
            for (size_t i = 0; i < HEAD_ROWS * HEADS * pairs; i++) {
                const size_t head = i / pairs, row = head / HEADS, pair = i % pairs;
                const size_t place = placed ? (size_t)places[row] : row % SEQUENCE;
                const size_t at = head * width + (halves ? pair : 2 * pair), next = at + (halves ? pairs : 1);
                const double c = cosine[(position + place) * pairs + pair],
                             s = (back ? -1 : 1) * sine[(position + place) * pairs + pair];
                expect_close(at_level(level, "head, first"), i, x[at], before[at] * c - before[next] * s, 1e-6, 3e-7);
                expect_close(at_level(level, "head, second"), i, x[next], before[next] * c + before[at] * s, 1e-6,
                             3e-7);
            }
            void *const arrays[] = {cosine, sine, before, x, places};
            for (int a = 0; a < 5; a++) release_array(arrays[a]);
        }
    }
}

/* Places that do not fit 16 bits. */
static void places_may_be_far(void **state) {
    (void)state;
    enum { PLACES = 65540 };
    const int32_t given[] = {65537, 1};
    FOR_EACH_LEVEL(kernels) {
        struct numbers numbers = {18};
        float *cosine = random_device_floats(&numbers, PLACES, -1, 1),
              *sine = random_device_floats(&numbers, PLACES, -1, 1);
        float *before = random_device_floats(&numbers, 4, -2, 2), *x = device_copy(before, 4 * sizeof *before);
        int32_t *places = device_copy(given, sizeof given);
        sl_kernels_available(level)->published->rotate_heads(2, 1, 2, 2, 0, places, true, cosine, sine, false,
                                                             sl_out_f32(x));
        for (size_t r = 0; r < 2; r++) {
            const double c = cosine[given[r]], s = sine[given[r]];
            expect_close("first", r, x[2 * r], before[2 * r] * c - before[2 * r + 1] * s, 1e-6, 3e-7);
            expect_close("second", r, x[2 * r + 1], before[2 * r + 1] * c + before[2 * r] * s, 1e-6, 3e-7);
        }
        void *const arrays[] = {cosine, sine, before, x, places};
        for (int a = 0; a < 5; a++) release_array(arrays[a]);
    }
}

/* A table's rows [FIRST, FIRST + COUNT), each of COLS columns that begin at column 2 of STRIDE. */
enum { FIRST = 100, COUNT = 6, BEFORE = 2, TOKENS = 40, MANY_TOKENS = 4170 };

/* Returns tokens: each row of the table several times, in any order, and other coordinates' rows. */
static int32_t *device_tokens(struct numbers *numbers, int count) {
    const int32_t elsewhere[] = {FIRST - 1, FIRST + COUNT, 0, -1, INT32_MAX, INT32_MIN};
    int32_t *tokens = device_array((size_t)count, sizeof *tokens);
    for (int i = 0; i < count; i++)
        tokens[i] = i % 5 == 2 ? elsewhere[next_word(numbers) % 6] : (int32_t)(FIRST + next_word(numbers) % COUNT);
    return tokens;
}

static bool is_here(int32_t token) { return token >= FIRST && token < FIRST + COUNT; }

static void tokens_are_looked_up(void **state) {
    (void)state;
    FOR_EACH_LEVEL(kernels) {
        struct numbers numbers = {8};
        for (int s = 0; s < SHAPES; s++) {
            const size_t cols = shapes[s][1], stride = cols + 5;
            float *table = random_device_floats(&numbers, COUNT * stride, -2, 2), *y = device_floats(TOKENS * cols);
            int32_t *tokens = device_tokens(&numbers, TOKENS);
            uint16_t *rounded = device_array(COUNT * stride, sizeof *rounded);
            for (size_t i = 0; i < COUNT * stride; i++) rounded[i] = sl_bf16_of_float(table[i]);
            for (int half = 0; half < 2; half++) {
                const struct sl_rows from = half ? sl_rows_bf16(rounded + BEFORE) : sl_rows_f32(table + BEFORE);
                for (size_t i = 0; i < TOKENS * cols; i++) y[i] = 9;
                kernels->lookup(TOKENS, cols, tokens, FIRST, COUNT, from, stride, sl_out_f32(y));
                for (size_t i = 0; i < TOKENS * cols; i++) {
                    const bool here = is_here(tokens[i / cols]);
                    const size_t at = here ? (size_t)(tokens[i / cols] - FIRST) * stride + BEFORE + i % cols : 0;
                    const float row = half ? sl_float_of_bf16(rounded[at]) : table[at];
                    assert_true(y[i] == (here ? row : 0.0f));
                }
            }
            release_array(rounded);
            release_array(table);
            release_array(y);
            release_array(tokens);
        }
    }
}

static void gradients_are_added_to_their_tokens_rows_in_order(void **state) {
    (void)state;
    FOR_EACH_LEVEL(kernels) {
        struct numbers numbers = {9};
        for (int s = 0; s <= SHAPES; s++) {
            const bool many = s == SHAPES; /* more than a device lists at once */
            const size_t cols = many ? 3 : shapes[s][1], stride = cols + 5, n = COUNT * stride;
            const size_t count = many ? MANY_TOKENS : TOKENS;
            float *dtable = random_device_floats(&numbers, n, -2, 2),
                  *expected = device_copy(dtable, n * sizeof *dtable);
            float *dy = random_device_floats(&numbers, count * cols, -2, 2);
            int32_t *tokens = device_tokens(&numbers, (int)count);
            for (size_t i = 0; i < count * cols; i++) {
                const int32_t token = tokens[i / cols];
                if (is_here(token)) expected[(size_t)(token - FIRST) * stride + BEFORE + i % cols] += dy[i];
            }
            kernels->scatter_add(count, cols, tokens, FIRST, COUNT, dy, dtable + BEFORE, stride);
            assert_memory_equal(dtable, expected, n * sizeof *dtable);
            release_array(dtable);
            release_array(expected);
            release_array(dy);
            release_array(tokens);
        }
    }
}

/* Few elements, and more than the threads of a launch. */
static void gates_are_swish(void **state) {
    (void)state;
    static const size_t lengths[] = {1, 129, 1025, 410000};
    FOR_EACH_LEVEL(kernels) {
        const struct sl_published_kernels *published = sl_kernels_available(level)->published;
        struct numbers numbers = {10};
        for (int k = 0; k < 4; k++) {
            const size_t n = lengths[k];
            float *gate = random_device_floats(&numbers, n, -100, 100), *x = random_device_floats(&numbers, n, -2, 2);
            float *dy = random_device_floats(&numbers, n, -2, 2), *y = device_floats(n);
            float *dgate = device_floats(n), *dx = device_floats(n);
            for (size_t i = 0; i < n; i += 2) gate[i] /= 25; /* near zero, in the curved part of the gate */
            published->gate_forward(n, sl_out_f32(gate), sl_out_f32(x), sl_out_f32(y));
            published->gate_backward(n, sl_rows_f32(gate), sl_rows_f32(x), dy, sl_out_f32(dgate), sl_out_f32(dx));
            for (size_t i = 0; i < n; i++) {
                const double g = gate[i], s = 1 / (1 + exp(-g));
                expect_close("y", i, y[i], g * s * x[i], 1e-5, 1e-30);
                expect_close("dx", i, dx[i], g * s * dy[i], 1e-5, 1e-30);
                expect_close("dgate", i, dgate[i], dy[i] * x[i] * s * (1 + g * (1 - s)), 1e-5, 1e-6);
            }
            float *const arrays[] = {gate, x, dy, y, dgate, dx};
            for (int a = 0; a < 6; a++) release_array(arrays[a]);
        }
    }
}

/* The erf form of gelu, against double: also near 0 and near x; one element, and one more than a GPU's team has
 * threads. */
static void gelu_has_its_erf(void **state) {
    (void)state;
    static const size_t lengths[] = {1, 129, 4001};
    FOR_EACH_LEVEL(kernels) {
        const struct sl_published_kernels *published = sl_kernels_available(level)->published;
        for (int k = 0; k < 3; k++) {
            const size_t n = lengths[k];
            float *x = device_floats(n), *y = device_floats(n), *slope = device_floats(n);
            for (size_t i = 0; i < n; i++) x[i] = ((float)i - (float)(n / 2)) / 100, slope[i] = 1;
            published->erf_gelu_forward(n, x, y);
            published->erf_gelu_backward(n, x, slope, slope);
            for (size_t i = 0; i < n; i++) {
                const double at = x[i], rounded = at * at / 2 * 0x1p-23; /* in the exponent */
                const double below = erfc(-at / sqrt(2)) / 2;
                expect_close("y", i, y[i], at * below, 5e-7 + rounded, 1e-36);
                expect_close("slope", i, slope[i], below + at * exp(-at * at / 2) / sqrt(2 * 3.14159265358979323846),
                             1e-6, 3e-7);
            }
            release_array(x);
            release_array(y);
            release_array(slope);
        }
    }
}

/* One column, fewer than a warp has lanes, and more than a team has threads; the mean may be over more columns. */
static void rows_are_centered(void **state) {
    (void)state;
    static const size_t widths[] = {1, 7, 300};
    enum { CENTERED = 21 }; /* a team of a GPU has eight of them */
    FOR_EACH_LEVEL(kernels) {
        const struct sl_published_kernels *published = sl_kernels_available(level)->published;
        struct numbers numbers = {11};
        for (int w = 0; w < 3; w++) {
            const size_t cols = widths[w], whole = 2 * cols;
            float *x = random_device_floats(&numbers, CENTERED * cols, 1, 2), *sums = device_floats(CENTERED);
            float *y = device_floats(CENTERED * cols);
            published->row_sums(CENTERED, cols, x, sums);
            published->center_rows(CENTERED, cols, whole, sums, x, y);
            for (size_t r = 0; r < CENTERED; r++) {
                double sum = 0;
                for (size_t c = 0; c < cols; c++) sum += x[r * cols + c];
                expect_close("sum", r, sums[r], sum, 1e-6, 0);
                for (size_t i = r * cols; i < (r + 1) * cols; i++)
                    expect_close("y", i, y[i], x[i] - sum / (double)whole, 1e-6, 1e-6);
            }
            release_array(x);
            release_array(sums);
            release_array(y);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_are_copied),
        cmocka_unit_test(biases_are_added),
        cmocka_unit_test(rms_norm_and_its_gradients),
        cmocka_unit_test(weight_gradients_add_rows_in_order),
        cmocka_unit_test(rms_norm_of_zeros_is_beta),
        cmocka_unit_test(rms_norm_rounds_what_is_stored),
        cmocka_unit_test(gelu_and_its_slope),
        cmocka_unit_test(gelu_rounds_what_is_stored),
        cmocka_unit_test(gelu_far_out),
        cmocka_unit_test(pairs_are_rotated_and_rotated_back),
        cmocka_unit_test(heads_are_rotated),
        cmocka_unit_test(places_may_be_far),
        cmocka_unit_test(tokens_are_looked_up),
        cmocka_unit_test(gradients_are_added_to_their_tokens_rows_in_order),
        cmocka_unit_test(gates_are_swish),
        cmocka_unit_test(gelu_has_its_erf),
        cmocka_unit_test(rows_are_centered),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
