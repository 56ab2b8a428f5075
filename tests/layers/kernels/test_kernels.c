/* test_kernels.c - the kernels of every level of this CPU, against naive oracles in double. For AdamW's see
 * test_adamw.c. */
#include "tests/rigs/kernel_levels.h"
#include "tests/rigs/numbers.h"

#include "layers/kernels/kernels.h"
#include "spmd/device/device.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const size_t shapes[][2] = {{1, 1}, {3, 1}, {2, 10}, {5, 33}, {7, 64}, {3, 300}, {3, 512}, {2, 1100}};
enum { SHAPES = sizeof shapes / sizeof *shapes };
static const uint32_t counts[] = {0, 1, 2, 3, 15, 31, 32, 33, 63, 65, 128, 129, 257, 1000, 1001, 2100};
enum { COUNTS = sizeof counts / sizeof *counts };

static const char *name_of(const struct sl_kernels *kernels, const char *what) {
    static char name[80];
    snprintf(name, sizeof name, "%s %s", kernels->name, what);
    return name;
}

static void levels_are_ordered(void **state) {
    (void)state;
    if (KERNELS(0) != sl_kernels_available(0)) printf("# SKIP this program tests another list of kernels\n"), skip();
    assert_ptr_equal(sl_kernels_select(), sl_kernels_available(0));
    assert_null(sl_kernels_available(-1));
    int levels = 0;
    FOR_EACH_LEVEL(kernels) {
        if (levels) assert_true(strcmp(sl_kernels_available(levels - 1)->name, kernels->name) > 0);
        levels++;
    }
    assert_null(sl_kernels_available(levels + 1));
    assert_string_equal(sl_kernels_available(levels - 1)->name,
                        strcmp(sl_device.name, "cpu") ? sl_device.name : "x86-64-v2");
}

/* ---- random numbers ---- */

static void words_are_jax_words(void **state) {
    (void)state;
    const struct sl_key key = {{0x13198a2eu, 0x03707344u}};
    FOR_EACH_LEVEL(kernels) {
        for (int i = 0; i < COUNTS; i++) {
            uint32_t *words = device_array(counts[i], sizeof *words);
            kernels->draws->words(key, counts[i], words);
            for (uint32_t w = 0; w < counts[i]; w++) assert_int_equal(words[w], sl_random_word(key, counts[i], w));
            release_array(words);
        }
    }
}

static void global_words_depend_on_position_alone(void **state) {
    (void)state;
    const struct sl_key key = {{7, 0xffffffffu}};
    const uint32_t first_cols[] = {0, 1, 2, 33, 1000}, cols[] = {0, 1, 2, 3, 10, 33, 64, 65, 512};
    FOR_EACH_LEVEL(kernels) {
        for (int f = 0; f < 5; f++) {
            for (int c = 0; c < 9; c++) {
                const uint32_t rows = 3, first_row = 0xfffffffeu; /* row numbers are modulo 2^32 */
                const uint32_t stride = cols[c] + (uint32_t)f;
                uint32_t *words = device_array((size_t)rows * stride, sizeof *words);
                kernels->draws->words_global(key, first_row, rows, first_cols[f], cols[c], stride, words);
                for (uint32_t i = 0; i < rows * stride; i++) {
                    const uint32_t column = first_cols[f] + i % stride;
                    uint32_t y[2];
                    sl_threefry2x32(key, first_row + i / stride, column / 2, &y[0], &y[1]);
                    assert_int_equal(words[i], i % stride < cols[c] ? y[column & 1] : 0);
                }
                release_array(words);
            }
        }
    }
}

static void truncated_normals_are_the_scalar_ones(void **state) {
    (void)state;
    FOR_EACH_LEVEL(kernels) {
        struct numbers numbers = {5};
        for (int i = 0; i < COUNTS; i++) {
            const uint32_t n = counts[i];
            uint32_t *words = random_device_words(&numbers, n);
            if (n > 2) words[0] = 0, words[n - 1] = 0xffffffffu; /* both ends */
            float *values = device_floats(n);
            kernels->draws->truncated_normal(n, words, 0.25f, values);
            for (uint32_t w = 0; w < n; w++) {
                expect_close(name_of(kernels, "truncated_normal"), w, values[w],
                             0.25 * sl_truncated_normal_of_word(words[w]), 2e-6, 0.0);
                assert_true(fabsf(values[w]) < 0.5f);
            }
            kernels->draws->truncated_normal(n, words, 0.25f, (float *)(void *)words);
            assert_memory_equal(words, values, n * sizeof *values);
            release_array(words);
            release_array(values);
        }
    }
}

static void normals_are_the_scalar_ones(void **state) {
    (void)state;
    FOR_EACH_LEVEL(kernels) {
        struct numbers numbers = {6};
        for (int i = 0; i < COUNTS; i++) {
            const uint32_t n = counts[i];
            uint32_t *words = random_device_words(&numbers, n);
            if (n > 2) words[0] = 0, words[n - 1] = 0xffffffffu; /* both ends */
            float *values = device_floats(n);
            kernels->draws->normal(n, words, values);
            for (uint32_t w = 0; w < n; w++)
                expect_close(name_of(kernels, "normal"), w, values[w], sl_normal_of_word(words[w]), 2e-6, 2e-6);
            kernels->draws->normal(n, words, (float *)(void *)words);
            assert_memory_equal(words, values, n * sizeof *values);
            release_array(words);
            release_array(values);
        }
    }
}

/* ---- sums and products ---- */

static void sums_and_products_are_exact(void **state) {
    (void)state;
    FOR_EACH_LEVEL(kernels) {
        struct numbers numbers = {6};
        for (int i = 0; i < COUNTS; i++) {
            const size_t n = counts[i];
            float *a = random_device_floats(&numbers, n, -2, 2), *b = random_device_floats(&numbers, n, -2, 2),
                  *y = device_floats(n);
            memcpy(y, b, n * sizeof *y);
            kernels->add(n, a, y);
            for (size_t e = 0; e < n; e++) assert_true(y[e] == a[e] + b[e]);
            kernels->operands->multiply(n, sl_rows_f32(a), sl_rows_f32(b), sl_out_f32(y));
            for (size_t e = 0; e < n; e++) assert_true(y[e] == a[e] * b[e]);
            kernels->operands->multiply(n, sl_rows_f32(a), sl_rows_f32(b), sl_out_f32(b)); /* in place, either way */
            assert_memory_equal(b, y, n * sizeof *y);
            kernels->operands->multiply(n, sl_rows_f32(b), sl_rows_f32(a), sl_out_f32(b));
            for (size_t e = 0; e < n; e++) assert_true(b[e] == y[e] * a[e]);
            kernels->fill(n, -0.75f, y);
            for (size_t e = 0; e < n; e++) assert_true(y[e] == -0.75f);
            release_array(a);
            release_array(b);
            release_array(y);
        }
    }
}

/* SUMS began as BIAS. */
static void expect_column_sums(const struct sl_kernels *kernels, size_t rows, size_t cols, const float *x,
                               const float *bias, bool accumulate, const float *sums) {
    const size_t slice = (rows + (size_t)kernels->slices - 1) / (size_t)kernels->slices;
    for (size_t c = 0; c < cols; c++) {
        float sum = accumulate ? bias[c] : 0.0f, other = 0.0f;
        for (size_t r = 0; r < rows; r++) { /* in the documented order */
            if (r >= slice && r % slice == 0) other = 0.0f;
            *(r < slice ? &sum : &other) += x[r * cols + c];
            if (r >= slice && (r % slice == slice - 1 || r == rows - 1)) sum += other;
        }
        assert_true(sums[c] == sum);
    }
}

static void rows_are_filled_and_summed(void **state) {
    (void)state;
    FOR_EACH_LEVEL(kernels) {
        struct numbers numbers = {7};
        for (int s = 0; s < SHAPES; s++) {
            const size_t rows = shapes[s][0], cols = shapes[s][1];
            float *x = random_device_floats(&numbers, rows * cols, -2, 2),
                  *bias = random_device_floats(&numbers, cols, -2, 2), *sums = device_floats(cols);
            uint16_t *rounded = device_array(rows * cols, sizeof *rounded);
            for (int accumulate = 0; accumulate < 2; accumulate++) {
                memcpy(sums, bias, cols * sizeof *sums);
                kernels->column_sums(rows, cols, x, accumulate, sums);
                expect_column_sums(kernels, rows, cols, x, bias, accumulate, sums);
            }
            kernels->settle_bf16(rows * cols, x, rounded);
            for (int accumulate = 0; accumulate < 2; accumulate++) {
                memcpy(sums, bias, cols * sizeof *sums);
                kernels->part_sums(1, rows, cols, rounded, true, accumulate, sums);
                expect_column_sums(kernels, rows, cols, x, bias, accumulate, sums);
            }
            release_array(x), release_array(bias), release_array(sums), release_array(rounded);
        }
    }
}

static void squares_are_summed_in_double(void **state) {
    (void)state;
    FOR_EACH_LEVEL(kernels) {
        struct numbers numbers = {9};
        for (int i = 0; i < COUNTS; i++) {
            const size_t n = counts[i];
            float *x = random_device_floats(&numbers, n, -2, 2);
            double sum = 0, *found = device_array(1 + SL_SUM_ROOM, sizeof *found);
            for (size_t e = 0; e < n; e++) sum += (double)x[e] * x[e];
            found[0] = 1;
            kernels->sum_of_squares(n, x, found + 1, found);
            assert_true(fabs(found[0] - (1 + sum)) <= 1e-13 * (1 + sum));
            release_array(found);
            release_array(x);
        }
    }
}

/* Sums are added to earlier ones. They are whole numbers, so one after another gives the same as all at once. */
static void squares_are_summed_as_whole_numbers(void **state) {
    (void)state;
    FOR_EACH_LEVEL(kernels) {
        struct numbers numbers = {11};
        for (int i = 0; i < COUNTS; i++) {
            const size_t n = counts[i];
            float *x = random_device_floats(&numbers, n, -2, 2);
            double *room = device_array(SL_SUM_ROOM, sizeof *room);
            uint64_t *sums = device_array(2, sizeof *sums), high = 3, low = 5;
            for (size_t e = 0; e < n; e++) {
                const uint64_t multiple = (uint64_t)((double)x[e] / 2 * ((double)x[e] / 2) * 0x1p63);
                high += (multiple >> 32) + ((low + (multiple & UINT32_MAX)) >> 32);
                low = (low + multiple) & UINT32_MAX;
            }
            sums[0] = 3;
            sums[1] = 5;
            kernels->add_squares(n, x, 0.5, room, sums);
            assert_true(sums[0] == high && sums[1] == low);
            release_array(sums);
            release_array(room);
            release_array(x);
        }
    }
}

static int32_t bits_of(float x) {
    int32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static void the_largest_is_found_by_its_bits(void **state) {
    (void)state;
    FOR_EACH_LEVEL(kernels) {
        struct numbers numbers = {12};
        for (int i = 0; i < COUNTS; i++) {
            const size_t n = counts[i];
            float *x = random_device_floats(&numbers, n, -2, 2), largest = 0;
            double *room = device_array(SL_SUM_ROOM, sizeof *room);
            int32_t *bits = device_array(1, sizeof *bits);
            for (size_t e = 0; e < n; e++) largest = fmaxf(largest, fabsf(x[e]));
            *bits = 0;
            kernels->largest_bits(n, x, room, bits);
            assert_int_equal(*bits, bits_of(largest));
            *bits = bits_of(4);
            kernels->largest_bits(n, x, room, bits);
            assert_int_equal(*bits, bits_of(4));
            for (int e = 0; e < 2 && n; e++) {
                x[e ? n / 2 : n - 1] = e ? NAN : -INFINITY;
                kernels->largest_bits(n, x, room, bits);
                assert_true(e ? *bits > bits_of(INFINITY) : *bits == bits_of(INFINITY));
            }
            release_array(bits);
            release_array(room);
            release_array(x);
        }
    }
}

/* Threads of a GPU share the elements of a part: its largest may be anywhere, and all are added. */
static void parts_may_have_many_elements(void **state) {
    (void)state;
    enum { PART = 130 };
    const size_t n = PART * SL_SUM_ROOM,
                 places[] = {0,  1,   2,   4,   7,   8,         16,        31,         32,       40,   64,
                             95, 100, 127, 128, 129, 37 * PART, 70 * PART, 100 * PART, n - PART, n - 1};
    FOR_EACH_LEVEL(kernels) {
        float *x = random_device_floats(&(struct numbers){19}, n, -1, 1);
        double *room = device_array(SL_SUM_ROOM, sizeof *room);
        int32_t *bits = device_array(1, sizeof *bits);
        double squares = 0, *sum = device_array(1, sizeof *sum);
        for (size_t i = 0; i < n; i++) squares += (double)x[i] * x[i];
        *sum = 0;
        kernels->sum_of_squares(n, x, room, sum);
        expect_close("squares", 0, *sum, squares, 1e-12, 0);
        for (size_t p = 0; p < sizeof places / sizeof *places; p++) {
            *bits = 0;
            x[places[p]] = -3.0f;
            kernels->largest_bits(n, x, room, bits);
            assert_int_equal(*bits, bits_of(3.0f));
            x[places[p]] = 0;
        }
        release_array(x), release_array(room), release_array(bits), release_array(sum);
    }
}

/* ---- rounding to bf16 ---- */

/* Returns the rounded float with these two halves: the upper half, or the next bf16 away from zero, which after the
 * largest is infinity. */
static uint16_t nearest_bf16(uint16_t upper, uint16_t lower) {
    const bool nan = (upper & 0x7f80) == 0x7f80 && ((upper & 0x7f) || lower);
    if (nan) return upper | 0x40;
    if (lower == 0x8000) return upper % 2 ? upper + 1 : upper;
    return lower < 0x8000 ? upper : upper + 1;
}

/* All upper halves (zeros, subnormal numbers, infinities, NaNs, both signs), with lower halves about the ties. GPUs may
 * make one NaN of all. */
static void rounds_to_the_nearest_bf16(void **state) {
    (void)state;
    enum { N = 65536 };
    const uint16_t lower[] = {0, 1, 0x7fff, 0x8000, 0x8001, 0xffff};
    float *x = device_floats(N);
    uint16_t *y = device_array(N, sizeof *y);
    FOR_EACH_LEVEL(kernels) {
        for (size_t l = 0; l < sizeof lower / sizeof *lower; l++) {
            for (uint32_t upper = 0; upper < N; upper++) {
                const uint32_t bits = upper << 16 | lower[l];
                memcpy(&x[upper], &bits, sizeof bits); /* an assignment may turn a signaling NaN into a quiet one */
            }
            kernels->round_bf16(N, x, y);
            for (uint32_t upper = 0; upper < N; upper++) {
                const uint16_t nearest = nearest_bf16((uint16_t)upper, lower[l]);
                if (y[upper] == 0x7fff && (nearest & 0x7fff) > 0x7f80 && !strcmp(kernels->name, "cuda")) continue;
                if (y[upper] != nearest)
                    fail_msg("%s: 0x%04x%04x becomes 0x%04x", kernels->name, upper, lower[l], y[upper]);
            }
        }
    }
    release_array(x), release_array(y);
}

static void rounds_as_many_as_it_is_given(void **state) {
    (void)state;
    FOR_EACH_LEVEL(kernels) {
        struct numbers numbers = {15};
        for (int i = 0; i < 2 * COUNTS; i++) {
            const size_t n = counts[i / 2];
            float *x = random_device_floats(&numbers, n + 1, -2, 2);
            uint16_t *y = device_array(n + 2, sizeof *y);
            y[n + 1] = 0x1234;
            (i % 2 ? kernels->share_bf16 : kernels->round_bf16)(n, x + 1, y + 1);
            for (size_t e = 0; e < n; e++) {
                uint32_t bits;
                memcpy(&bits, &x[e + 1], sizeof bits);
                assert_int_equal(y[e + 1], nearest_bf16((uint16_t)(bits >> 16), (uint16_t)bits));
            }
            assert_int_equal(y[0], 0);
            assert_int_equal(y[n + 1], 0x1234);
            release_array(x), release_array(y);
        }
    }
}

static void widens_and_settles(void **state) {
    (void)state;
    FOR_EACH_LEVEL(kernels) {
        struct numbers numbers = {16};
        for (int i = 0; i < COUNTS; i++) {
            const size_t n = counts[i];
            float *x = random_device_floats(&numbers, n + 1, -2, 2), *alone = device_array(n + 1, sizeof *alone);
            float *wide = device_array(n + 2, sizeof *wide);
            uint16_t *y = device_array(n + 2, sizeof *y), *rounded = device_array(n + 1, sizeof *rounded);
            memcpy(alone, x, (n + 1) * sizeof *x);
            y[n + 1] = 0x1234;
            wide[n + 1] = 3;
            kernels->round_bf16(n, x + 1, rounded + 1);
            kernels->settle_bf16(n, x + 1, y + 1);
            kernels->settle_bf16(n, alone + 1, NULL);
            kernels->widen_bf16(n, y + 1, wide + 1);
            assert_memory_equal(y + 1, rounded + 1, n * sizeof *y);
            for (size_t e = 1; e <= n; e++) {
                const uint32_t bits = (uint32_t)y[e] << 16;
                assert_memory_equal(&wide[e], &bits, sizeof bits);
            }
            assert_memory_equal(x + 1, wide + 1, n * sizeof *x);
            assert_memory_equal(alone, x, (n + 1) * sizeof *x);
            assert_true(y[0] == 0 && y[n + 1] == 0x1234 && wide[0] == 0 && wide[n + 1] == 3);
            release_array(x);
            release_array(alone);
            release_array(wide);
            release_array(y);
            release_array(rounded);
        }
    }
}

static void a_sum_is_settled_in_one_pass(void **state) {
    (void)state;
    FOR_EACH_LEVEL(kernels) {
        struct numbers numbers = {17};
        for (int i = 0; i < COUNTS; i++) {
            const size_t n = counts[i];
            float *x = random_device_floats(&numbers, n, -2, 2), *y = random_device_floats(&numbers, n + 1, -2, 2);
            float *want = device_copy(y, (n + 1) * sizeof *y), *alone = device_copy(y, (n + 1) * sizeof *y);
            uint16_t *stored = device_array(n + 1, sizeof *stored), *kept = device_array(n + 1, sizeof *kept);
            stored[n] = kept[n] = 0x1234;
            kernels->add(n, x, want);
            kernels->settle_bf16(n, want, kept);
            kernels->add_settled(n, x, y, stored);
            kernels->add_settled(n, x, alone, NULL);
            assert_memory_equal(y, want, (n + 1) * sizeof *y);
            assert_memory_equal(alone, want, (n + 1) * sizeof *y);
            assert_memory_equal(stored, kept, (n + 1) * sizeof *kept);
            void *const taken[] = {x, y, want, alone, stored, kept};
            for (size_t a = 0; a < sizeof taken / sizeof *taken; a++) release_array(taken[a]);
        }
    }
}

/* ---- layer norm ---- */

static const double EPSILON = 1e-6;

/* A row's layer norm in double; returns 1 / standard deviation. */
static double normalize(size_t cols, const double *x, double *normalized) {
    double mean = 0, variance = 0;
    for (size_t c = 0; c < cols; c++) mean += x[c] / (double)cols;
    for (size_t c = 0; c < cols; c++) variance += (x[c] - mean) * (x[c] - mean) / (double)cols;
    const double rstd = 1 / sqrt(variance + EPSILON);
    for (size_t c = 0; c < cols; c++) normalized[c] = (x[c] - mean) * rstd;
    return rstd;
}

struct norm_case {
    size_t rows, cols;
    float *x, *scale, *bias, *dy;                       /* inputs */
    float *normalized, *rstd, *y, *dx, *dscale, *dbias; /* results */
};

static struct norm_case make_norm_case(struct numbers *numbers, size_t rows, size_t cols) {
    return (struct norm_case){
        .rows = rows,
        .cols = cols,
        .x = random_device_floats(numbers, rows * cols, -1, 3),
        .scale = random_device_floats(numbers, cols, 0.5f, 1.5f),
        .bias = random_device_floats(numbers, cols, -1, 1),
        .dy = random_device_floats(numbers, rows * cols, -1, 1),
        .normalized = device_floats(rows * cols),
        .rstd = device_floats(rows),
        .y = device_floats(rows * cols),
        .dx = device_floats(rows * cols),
        .dscale = random_device_floats(numbers, cols, -1, 1),
        .dbias = random_device_floats(numbers, cols, -1, 1),
    };
}

static void free_norm_case(struct norm_case *n) {
    float *const arrays[] = {n->x, n->scale, n->bias, n->dy, n->normalized, n->rstd, n->y, n->dx, n->dscale, n->dbias};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) release_array(arrays[i]);
}

/* How much sum(dy y) of a row grows with x[at], by a difference in double. */
static double row_slope(const struct norm_case *n, size_t row, double *x, size_t at, double *scratch) {
    const double h = 1e-5, saved = x[at];
    double sum[2] = {0, 0};
    for (int side = 0; side < 2; side++) {
        x[at] = saved + (side ? h : -h);
        normalize(n->cols, x, scratch);
        for (size_t c = 0; c < n->cols; c++) sum[side] += n->dy[row * n->cols + c] * scratch[c] * n->scale[c];
    }
    x[at] = saved;
    return (sum[1] - sum[0]) / (2 * h);
}

static void expect_layer_norm(const struct sl_kernels *kernels, const struct norm_case *n) {
    const size_t cols = n->cols;
    double *x = array_of(cols, sizeof *x), *normalized = array_of(cols, sizeof *normalized);
    double *dscale = array_of(cols, sizeof *dscale), *dbias = array_of(cols, sizeof *dbias);
    for (size_t r = 0; r < n->rows; r++) {
        for (size_t c = 0; c < cols; c++) x[c] = n->x[r * cols + c];
        expect_close(name_of(kernels, "layer_norm rstd"), r, n->rstd[r], normalize(cols, x, normalized), 2e-5, 0);
        for (size_t c = 0; c < cols; c++) {
            const size_t at = r * cols + c;
            expect_close(name_of(kernels, "layer_norm normalized"), at, n->normalized[at], normalized[c], 3e-5, 1e-6);
            expect_close(name_of(kernels, "layer_norm y"), at, n->y[at], normalized[c] * n->scale[c] + n->bias[c], 3e-5,
                         3e-6);
            dscale[c] += n->dy[at] * normalized[c];
            dbias[c] += n->dy[at];
        }
        for (size_t c = 0; c < cols; c++)
            expect_close(name_of(kernels, "layer_norm dx"), r * cols + c, n->dx[r * cols + c],
                         row_slope(n, r, x, c, normalized), 1e-4, 1e-5);
    }
    for (size_t c = 0; c < cols; c++) {
        expect_close(name_of(kernels, "layer_norm dscale"), c, n->dscale[c], dscale[c], 1e-4, 1e-5);
        expect_close(name_of(kernels, "layer_norm dbias"), c, n->dbias[c], dbias[c], 1e-5, 1e-6);
    }
    double *const taken[] = {x, normalized, dscale, dbias};
    for (int i = 0; i < 4; i++) free(taken[i]);
}

static void forward_norm(const struct sl_kernels *kernels, const struct norm_case *n) {
    kernels->norms->layer_norm_forward(n->rows, n->cols, sl_rows_f32(n->x), n->scale, n->bias, (float)EPSILON,
                                       sl_rows_f32(n->normalized), n->rstd, sl_out_f32(n->y));
}

static void layer_norm_and_its_gradients(void **state) {
    (void)state;
    FOR_EACH_LEVEL(kernels) {
        struct numbers numbers = {8};
        for (int s = 1; s < SHAPES; s++) {
            if (shapes[s][1] == 1) continue; /* one column is always constant: the next test's */
            struct norm_case n = make_norm_case(&numbers, shapes[s][0], shapes[s][1]);
            forward_norm(kernels, &n);
            kernels->norms->layer_norm_backward(1, n.rows, n.cols, sl_rows_f32(n.dy), sl_rows_f32(n.normalized), n.rstd,
                                                n.scale, sl_rows_f32(NULL), sl_out_f32(n.dx), n.dscale, n.dbias);
            expect_layer_norm(kernels, &n);
            free_norm_case(&n);
        }
    }
}

/* E[x^2] - E[x]^2 of equal numbers rounds to a little less than 0 as often as to a little more. */
static void layer_norm_of_constant_rows_is_finite(void **state) {
    (void)state;
    FOR_EACH_LEVEL(kernels) {
        struct numbers numbers = {9};
        int clamped = 0;
        for (int i = 0; i < 200; i++) {
            struct norm_case n = make_norm_case(&numbers, 1, 1 + next_word(&numbers) % 40);
            n.x[0] = next_float(&numbers, -1000, 1000);
            for (size_t c = 1; c < n.cols; c++) n.x[c] = n.x[0];
            forward_norm(kernels, &n);
            assert_true(n.rstd[0] > 0 && n.rstd[0] <= 1001);
            clamped += n.rstd[0] >= 999;
            for (size_t c = 0; c < n.cols; c++) assert_true(isfinite(n.y[c]));
            free_norm_case(&n);
        }
        assert_true(clamped > 100);
    }
}

static void layer_norm_lets_nan_through(void **state) {
    (void)state;
    FOR_EACH_LEVEL(kernels) {
        struct norm_case n = make_norm_case(&(struct numbers){10}, 2, 33);
        n.x[5] = NAN;
        forward_norm(kernels, &n);
        for (size_t i = 0; i < 66; i++) assert_int_equal(!isnan(n.y[i]), i >= 33);
        assert_true(isnan(n.rstd[0]));
        free_norm_case(&n);
    }
}

/* ---- activation and dropout ---- */

static double silu(double x) { return x / (1 + exp(-x)); }
static double silu_slope(double x) { return (silu(x + 1e-5) - silu(x - 1e-5)) / 2e-5; }

static void drop(const struct sl_kernels *kernels, size_t n, bool silu, float *x, const uint32_t *words, uint32_t below,
                 float keep, float *y, float *slope) {
    const struct sl_rows from = sl_rows_f32(x), to = sl_rows_f32(slope);
    const struct sl_dropout_arrays arrays = {n, silu, from, below, keep, sl_out_f32(y), to};
    kernels->operands->dropout(&(struct sl_dropout_words){.at = words}, &arrays);
}

static void silu_with_and_without_dropout(void **state) {
    (void)state;
    const float keep = 0.7f;
    const uint32_t threshold = 5872026; /* of 2^23 */
    FOR_EACH_LEVEL(kernels) {
        struct numbers numbers = {11};
        for (int i = 0; i < COUNTS; i++) {
            const size_t n = counts[i];
            float *x = random_device_floats(&numbers, n, -20, 20), *y = device_floats(n), *slope = device_floats(n);
            uint32_t *words = random_device_words(&numbers, n);
            if (n > 2) words[1] = threshold << 9, words[2] = words[1] - 1; /* the first dropped, the last kept */
            for (int masked = 0; masked < 2; masked++) {
                kernels->operands->silu(n, sl_rows_f32(x), sl_out_f32(y), sl_rows_f32(slope));
                if (masked) drop(kernels, n, true, x, words, threshold, keep, y, slope);
                for (size_t e = 0; e < n; e++) {
                    const double factor = !masked ? 1 : words[e] >> 9 < threshold ? 1 / (double)keep : 0;
                    expect_close(name_of(kernels, "silu"), e, y[e], factor * silu(x[e]), 2e-6, 1e-30);
                    expect_close(name_of(kernels, "silu slope"), e, slope[e], factor * silu_slope(x[e]), 2e-6, 1e-6);
                }
            }
            drop(kernels, n, true, x, words, threshold, keep, x, slope);
            assert_memory_equal(x, y, n * sizeof *y);
            release_array(x), release_array(y), release_array(slope), release_array(words);
        }
    }
}

static void silu_far_out(void **state) {
    (void)state;
    const float values[] = {0.0f, -0.0f, 1e-30f, 88.0f, -88.0f, 100.0f, -100.0f, 1e30f, -1e30f, NAN};
    enum { N = sizeof values / sizeof *values };
    float *x = device_copy(values, sizeof values), *y = device_floats(N), *slope = device_floats(N);
    FOR_EACH_LEVEL(kernels) {
        kernels->operands->silu(N, sl_rows_f32(x), sl_out_f32(y), sl_rows_f32(slope));
        for (int i = 0; i < N - 1; i++) {
            expect_close(name_of(kernels, "silu"), (size_t)i, y[i], x[i] > 0 ? silu(x[i]) : 0, 1e-6, 1e-30);
            expect_close(name_of(kernels, "silu slope"), (size_t)i, slope[i], fabsf(x[i]) < 1 ? 0.5 : x[i] > 0, 1e-6,
                         1e-30);
        }
        assert_true(isnan(y[N - 1]) && isnan(slope[N - 1]));
    }
    release_array(x), release_array(y), release_array(slope);
}

static void dropout_keeps_what_the_words_say(void **state) {
    (void)state;
    const float keep = 0.9f;
    const uint32_t threshold = 7549747;
    FOR_EACH_LEVEL(kernels) {
        struct numbers numbers = {12};
        for (int i = 0; i < COUNTS; i++) {
            const size_t n = counts[i];
            float *x = random_device_floats(&numbers, n, -2, 2), *y = device_floats(n), *slope = device_floats(n);
            uint32_t *words = random_device_words(&numbers, n);
            if (n > 2) words[1] = threshold << 9, words[2] = (threshold << 9) - 1;
            drop(kernels, n, false, x, words, threshold, keep, y, slope);
            for (size_t e = 0; e < n; e++) {
                const double factor = words[e] >> 9 < threshold ? 1 / (double)keep : 0;
                expect_close(name_of(kernels, "dropout"), e, y[e], factor * x[e], 2e-7, 0);
                expect_close(name_of(kernels, "dropout slope"), e, slope[e], factor, 1e-7, 0);
            }
            release_array(x), release_array(y), release_array(slope), release_array(words);
        }
    }
}

/* ---- loss ---- */

/* Adds one row to RESULT and gives its gradient. */
static void cross_entropy_row(size_t classes, const float *x, int label, double weight, double *dx, double *result) {
    double sum = 0;
    size_t best = 0;
    for (size_t c = 0; c < classes; c++) {
        if (x[c] > x[best]) best = c;
    }
    for (size_t c = 0; c < classes; c++) sum += exp((double)x[c] - x[best]);
    for (size_t c = 0; c < classes; c++)
        dx[c] = label < 0 ? 0 : weight * (exp((double)x[c] - x[best]) / sum - ((int)c == label));
    if (label < 0) return;
    result[0] += log(sum) - ((double)x[label] - x[best]);
    result[1] += (int)best == label;
    result[2] += 1;
}

/* Adds the cross entropy as the loss at the end of a classifier does. */
static void add_cross_entropy(const struct sl_kernels *kernels, size_t rows, size_t classes, const float *logits,
                              const int32_t *labels, float weight, float *dlogits, double *sums) {
    float *losses = device_floats(2 * rows);
    kernels->softmax_cross_entropy(rows, classes, logits, labels, weight, dlogits, losses);
    kernels->add_losses(rows, labels, losses, sums);
    release_array(losses);
}

static void expect_cross_entropy(const struct sl_kernels *kernels, size_t rows, size_t classes, const float *logits,
                                 const int32_t *labels) {
    const float weight = 0.125f;
    float *dlogits = device_floats(rows * classes);
    double *dx = array_of(classes, sizeof *dx), expected[3] = {100, 200, 300};
    double *result = device_copy(expected, sizeof expected);
    add_cross_entropy(kernels, rows, classes, logits, labels, weight, dlogits, result);
    for (size_t r = 0; r < rows; r++) {
        cross_entropy_row(classes, logits + r * classes, labels[r], weight, dx, expected);
        for (size_t c = 0; c < classes; c++)
            expect_close(name_of(kernels, "dlogits"), r * classes + c, dlogits[r * classes + c], dx[c], 5e-6,
                         1e-6 * weight);
    }
    expect_close(name_of(kernels, "loss"), 0, result[0], expected[0], 1e-6, 1e-6 * (double)rows);
    assert_true(result[1] == expected[1]);
    assert_true(result[2] == expected[2]);
    release_array(dlogits);
    release_array(result);
    free(dx);
}

static void mean_squared_error_of_rows(void **state) {
    (void)state;
    enum { ROWS = 7, COLUMNS = 37 };
    static const float known[] = {1, 2, 3, 4}, zeros[] = {1, 0, 0, 0}; /* torch.nn.MSELoss gives 7.25 */
    const struct sl_kernels *kernels;
    float *outputs = device_floats(ROWS * COLUMNS), *targets = device_floats(ROWS * COLUMNS);
    float *gradient = device_floats(ROWS * COLUMNS);
    for (int k = 0; (kernels = sl_kernels_available(k)); k++) {
        double *result = device_array(3 + SL_SUM_ROOM, sizeof *result), loss = 0;
        for (int i = 0; i < 3; i++) result[i] = 100 * (i + 1);
        memcpy(outputs, known, sizeof known);
        memcpy(targets, zeros, sizeof zeros);
        kernels->mean_squared_error(2, 2, outputs, targets, 0.5f, gradient, result + 3, result);
        assert_true(result[0] == 100 + 2 * 7.25 && result[1] == 200 && result[2] == 302);
        for (int i = 0; i < 4; i++) assert_true(gradient[i] == 0.5f * (outputs[i] - targets[i]));
        sl_random_normal(sl_key_of_seed(1), ROWS * COLUMNS, outputs);
        sl_random_normal(sl_key_of_seed(2), ROWS * COLUMNS, targets);
        kernels->mean_squared_error(ROWS, COLUMNS, outputs, targets, 0.25f, gradient, result + 3, result);
        for (size_t i = 0; i < ROWS * COLUMNS; i++) {
            const double error = (double)outputs[i] - targets[i];
            loss += error * error / COLUMNS;
            expect_close(name_of(kernels, "gradient"), i, gradient[i], 2 * error / COLUMNS * 0.25, 1e-6, 1e-8);
        }
        expect_close(name_of(kernels, "loss"), 0, result[0], 100 + 2 * 7.25 + loss, 1e-7, 0);
        assert_true(result[1] == 200 && result[2] == 302 + ROWS);
        release_array(result);
    }
    release_array(outputs);
    release_array(targets);
    release_array(gradient);
}

static void softmax_cross_entropy_of_random_rows(void **state) {
    (void)state;
    FOR_EACH_LEVEL(kernels) {
        struct numbers numbers = {13};
        for (int s = 0; s < SHAPES; s++) {
            for (int scale = 1; scale <= 100; scale *= 10) {
                const size_t rows = 4 * shapes[s][0], classes = shapes[s][1];
                int32_t *labels;
                float *logits = random_logits(&numbers, rows, classes, (float)scale, &labels);
                expect_cross_entropy(kernels, rows, classes, logits, labels);
                release_array(logits);
                release_array(labels);
            }
        }
    }
}

static void the_first_of_equal_logits_is_the_guess(void **state) {
    (void)state;
    float *logits = device_copy((float[]){1, 5, 5, 5, 2, 1, 5, 5, 5, 2, -1, -3, -1, -2, -9}, 15 * sizeof *logits);
    int32_t *labels = device_copy((int32_t[]){1, 2, 2}, 3 * sizeof *labels);
    float *dlogits = device_floats(15);
    FOR_EACH_LEVEL(kernels) {
        double *result = device_array(3, sizeof *result);
        add_cross_entropy(kernels, 3, 5, logits, labels, 1.0f, dlogits, result);
        assert_true(result[1] == 1 && result[2] == 3);
        release_array(result);
        expect_cross_entropy(kernels, 3, 5, logits, labels);
    }
    release_array(logits);
    release_array(labels);
    release_array(dlogits);
}

static void the_loss_is_large_without_overflow(void **state) {
    (void)state;
    float *logits = device_copy((float[]){-1e4f, 1e4f, 0, 3e38f, -3e38f, 0}, 6 * sizeof *logits);
    int32_t *labels = device_array(2, sizeof *labels);
    FOR_EACH_LEVEL(kernels) expect_cross_entropy(kernels, 2, 3, logits, labels);
    release_array(logits);
    release_array(labels);
}

static void nan_surfaces_in_the_loss(void **state) {
    (void)state;
    const float poisons[] = {NAN, -NAN, INFINITY};
    float *logits = device_floats(35), *dlogits = device_floats(35);
    int32_t *label = device_copy(&(int32_t){17}, sizeof *label);
    FOR_EACH_LEVEL(kernels) {
        for (int p = 0; p < 3; p++) {
            for (int at = 0; at < 35; at++) {
                double *result = device_array(3, sizeof *result);
                logits[at] = poisons[p];
                add_cross_entropy(kernels, 1, 35, logits, label, 1.0f, dlogits, result);
                assert_true(isnan(result[0]));
                release_array(result);
                logits[at] = 0;
            }
        }
    }
    release_array(logits);
    release_array(dlogits);
    release_array(label);
}

int main(void) {
    cmocka_set_message_output(CM_OUTPUT_TAP);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(levels_are_ordered),
        cmocka_unit_test(words_are_jax_words),
        cmocka_unit_test(global_words_depend_on_position_alone),
        cmocka_unit_test(truncated_normals_are_the_scalar_ones),
        cmocka_unit_test(normals_are_the_scalar_ones),
        cmocka_unit_test(sums_and_products_are_exact),
        cmocka_unit_test(rows_are_filled_and_summed),
        cmocka_unit_test(squares_are_summed_in_double),
        cmocka_unit_test(squares_are_summed_as_whole_numbers),
        cmocka_unit_test(the_largest_is_found_by_its_bits),
        cmocka_unit_test(parts_may_have_many_elements),
        cmocka_unit_test(rounds_to_the_nearest_bf16),
        cmocka_unit_test(rounds_as_many_as_it_is_given),
        cmocka_unit_test(widens_and_settles),
        cmocka_unit_test(a_sum_is_settled_in_one_pass),
        cmocka_unit_test(layer_norm_and_its_gradients),
        cmocka_unit_test(layer_norm_of_constant_rows_is_finite),
        cmocka_unit_test(layer_norm_lets_nan_through),
        cmocka_unit_test(silu_with_and_without_dropout),
        cmocka_unit_test(silu_far_out),
        cmocka_unit_test(dropout_keeps_what_the_words_say),
        cmocka_unit_test(mean_squared_error_of_rows),
        cmocka_unit_test(softmax_cross_entropy_of_random_rows),
        cmocka_unit_test(the_first_of_equal_logits_is_the_guess),
        cmocka_unit_test(the_loss_is_large_without_overflow),
        cmocka_unit_test(nan_surfaces_in_the_loss),
    };
    printf("# levels that this CPU has:");
    for (int i = 0; sl_kernels_available(i); i++) printf(" %s", sl_kernels_available(i)->name);
    printf("\n");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
