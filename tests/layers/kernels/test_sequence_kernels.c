/* test_sequence_kernels.c - the kernels for token sequences of every level that this CPU has, against naive oracles in
 * double; what is sharded, in one part and in two. */
#include "tests/rigs/numbers.h"

#include "layers/kernels/kernels.h"
#include "spmd/base/bf16.h"

#include <stdio.h>

static const size_t shapes[][2] = {{1, 1}, {3, 2}, {2, 10}, {5, 33}, {7, 64}, {3, 512}, {4, 1100}};
enum { SHAPES = sizeof shapes / sizeof *shapes };

/* KERNELS is every level's table for sequences in turn. */
#define FOR_EACH_LEVEL(kernels)                                                                                        \
    for (int level = 0; level >= 0; level = -1)                                                                        \
        for (const struct sl_sequence_kernels *kernels; (kernels = table_of(level)); level++)

static const struct sl_sequence_kernels *table_of(int level) {
    const struct sl_kernels *kernels = sl_kernels_available(level);
    return kernels ? kernels->sequence : NULL;
}

static const char *at_level(int level, const char *what) {
    static char name[80];
    snprintf(name, sizeof name, "%s %s", sl_kernels_available(level)->name, what);
    return name;
}

/* ---- copies and biases ---- */

static void blocks_are_copied(void **state) {
    (void)state;
    FOR_EACH_LEVEL(kernels) {
        struct numbers numbers = {1};
        for (int s = 0; s < SHAPES; s++) {
            const size_t rows = shapes[s][0], cols = shapes[s][1], x_stride = cols + 3, y_stride = cols + 7;
            float *x = random_device_floats(&numbers, rows * x_stride, -2, 2), *y = device_floats(rows * y_stride);
            for (size_t i = 0; i < rows * y_stride; i++) y[i] = 9;
            kernels->copy_block(rows, cols, x + 2, x_stride, y + 5, y_stride);
            for (size_t i = 0; i < rows * y_stride; i++) {
                const size_t r = i / y_stride, c = i % y_stride;
                assert_true(y[i] == (c < 5 || c >= 5 + cols ? 9 : x[r * x_stride + 2 + c - 5]));
            }
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
            kernels->add_bias(rows, cols, bias, y + 1, stride);
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

/* A share of the columns, from FIRST on, and what the kernels make of it. */
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

/* All parts have what they summed together, as after a psum. */
static void psum(int parts, size_t n, float *const *values) {
    for (size_t i = 0; i < n; i++) {
        float sum = 0;
        for (int p = 0; p < parts; p++) sum += values[p][i];
        for (int p = 0; p < parts; p++) values[p][i] = sum;
    }
}

static void run_rms_norm(const struct sl_sequence_kernels *kernels, size_t rows, size_t whole, int parts,
                         struct norm_part *part) {
    float *sums[2], *dots[2];
    for (int i = 0; i < parts; i++) {
        struct norm_part *p = &part[i];
        kernels->square_sums(rows, p->cols, p->x, sums[i] = p->sums);
        kernels->rms_norm_dots(rows, p->cols, p->dy, p->x, p->gamma, dots[i] = p->dots);
    }
    psum(parts, rows, sums);
    psum(parts, rows, dots);
    for (int i = 0; i < parts; i++) {
        struct norm_part *p = &part[i];
        kernels->rms_norm_forward(rows, p->cols, whole, p->x, p->sums, p->gamma, p->beta, (float)EPSILON, p->rstd,
                                  p->y);
        kernels->rms_norm_backward_input(rows, p->cols, whole, p->dy, p->x, p->rstd, p->gamma, p->dots, p->dx);
        kernels->rms_norm_backward_weight(rows, p->cols, p->dy, p->x, p->rstd, p->dgamma, p->dbeta);
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
    FOR_EACH_LEVEL(kernels) {
        struct numbers numbers = {3};
        for (int s = 0; s < SHAPES; s++) {
            const size_t rows = shapes[s][0], whole = shapes[s][1];
            for (int parts = 1; parts <= 2; parts++) {
                const size_t head = parts == 1 ? whole : whole / 3;
                struct norm_part part[2] = {make_norm_part(&numbers, rows, 0, head),
                                            make_norm_part(&numbers, rows, head, whole - head)};
                run_rms_norm(kernels, rows, whole, parts, part);
                expect_rms_norm(level, rows, whole, parts, part);
                free_norm_part(&part[0]);
                free_norm_part(&part[1]);
            }
        }
    }
}

/* Rows are added in ascending order: there is one right result, to the last bit, where products are exact. */
static void weight_gradients_add_rows_in_order(void **state) {
    (void)state;
    enum { ROWS = 9, COLS = 70 };
    FOR_EACH_LEVEL(kernels) {
        struct numbers numbers = {4};
        struct norm_part p = make_norm_part(&numbers, ROWS, 0, COLS);
        for (int i = 0; i < ROWS * COLS; i++) p.x[i] = 2.0f;
        for (int r = 0; r < ROWS; r++) p.rstd[r] = r % 2 ? 0.5f : 0.25f;
        kernels->rms_norm_backward_weight(ROWS, COLS, p.dy, p.x, p.rstd, p.dgamma, p.dbeta);
        for (int c = 0; c < COLS; c++) {
            float dgamma = 0, dbeta = 0;
            for (int r = 0; r < ROWS; r++) {
                dgamma += p.dy[r * COLS + c] * (r % 2 ? 1.0f : 0.5f);
                dbeta += p.dy[r * COLS + c];
            }
            assert_true(p.dgamma[c] == dgamma && p.dbeta[c] == dbeta);
        }
        free_norm_part(&p);
    }
}

static void rms_norm_of_zeros_is_beta(void **state) {
    (void)state;
    FOR_EACH_LEVEL(kernels) {
        struct numbers numbers = {5};
        struct norm_part p = make_norm_part(&numbers, 1, 0, 33);
        memset(p.x, 0, 33 * sizeof *p.x);
        run_rms_norm(kernels, 1, 33, 1, &p);
        for (int c = 0; c < 33; c++) assert_true(p.y[c] == p.beta[c] && isfinite(p.dx[c]));
        expect_close(at_level(level, "rstd"), 0, p.rstd[0], 1000, 1e-6, 0);
        free_norm_part(&p);
    }
}

/* ---- activation ---- */

/* Of 2 z, z = sqrt(2 / pi) (x + 0.044715 x^3). */
static double gelu_argument(double x) { return 2 * sqrt(2 / 3.14159265358979323846) * (x + 0.044715 * x * x * x); }
static double gelu(double x) { return x / (1 + exp(-gelu_argument(x))); }
static double gelu_slope(double x) { return (gelu(x + 1e-5) - gelu(x - 1e-5)) / 2e-5; }

static void gelu_and_its_slope(void **state) {
    (void)state;
    FOR_EACH_LEVEL(kernels) {
        struct numbers numbers = {6};
        for (size_t n = 0; n < 4000; n = n < 70 ? n + 1 : 3 * n) {
            float *x = random_device_floats(&numbers, n, n % 2 ? -13 : -2, n % 2 ? 13 : 2), *y = device_floats(n),
                  *dy = random_device_floats(&numbers, n, -1, 1), *slope = device_floats(n), *dx = device_floats(n);
            for (size_t i = 0; i < n; i++) slope[i] = 1.0f;
            kernels->gelu_forward(n, x, y);
            kernels->gelu_backward(n, x, slope, slope);
            kernels->gelu_backward(n, x, dy, dx);
            for (size_t i = 0; i < n; i++) { /* an error of the exponent is one of the result as many times as large */
                const double relative = 4e-7 * (1 + fmax(0, -gelu_argument(x[i])));
                expect_close(at_level(level, "gelu"), i, y[i], gelu(x[i]), relative, 2e-37);
                expect_close(at_level(level, "gelu slope"), i, slope[i], gelu_slope(x[i]), relative, 3e-7);
                assert_true(dx[i] == dy[i] * slope[i]);
            }
            kernels->gelu_backward(n, x, dy, dy);
            assert_memory_equal(dy, dx, n * sizeof *dx);
            memcpy(slope, x, n * sizeof *x);
            kernels->gelu_forward(n, slope, slope);
            assert_memory_equal(slope, y, n * sizeof *y);
            release_array(x);
            release_array(y);
            release_array(dy);
            release_array(slope);
            release_array(dx);
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
        kernels->gelu_forward(N, x, y);
        kernels->gelu_backward(N, x, slope, slope);
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
    const size_t cols_of[] = {2, 8, 10, 64, 130}, sequence = 5, rows = 3 * sequence;
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
                for (int back = 0; back < 2; back++) {
                    kernels->rope(rows, cols, sequence, position, cosine, sine, back, x, y);
                    for (size_t r = 0; r < rows; r++) {
                        const size_t at = (position + r % sequence) * pairs;
                        expect_rotation(level, cols, back ? -1 : 1, cosine + at, sine + at, x + r * cols, y + r * cols);
                    }
                }
                kernels->rope(rows, cols, sequence, position, cosine, sine, false, y, y); /* what went back returns */
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

/* A table's rows [FIRST, FIRST + COUNT), each of COLS columns that begin at column 2 of STRIDE. */
enum { FIRST = 100, COUNT = 6, BEFORE = 2, TOKENS = 40 };

/* Each row several times, in any order, and what is somebody else's. */
static int32_t *device_tokens(struct numbers *numbers) {
    const int32_t elsewhere[] = {FIRST - 1, FIRST + COUNT, 0, -1, INT32_MAX, INT32_MIN};
    int32_t *tokens = device_array(TOKENS, sizeof *tokens);
    for (int i = 0; i < TOKENS; i++)
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
            int32_t *tokens = device_tokens(&numbers);
            for (size_t i = 0; i < TOKENS * cols; i++) y[i] = 9;
            kernels->lookup(TOKENS, cols, tokens, FIRST, COUNT, table + BEFORE, stride, y);
            for (size_t i = 0; i < TOKENS * cols; i++) {
                const int32_t token = tokens[i / cols];
                assert_true(y[i] ==
                            (is_here(token) ? table[(size_t)(token - FIRST) * stride + BEFORE + i % cols] : 0.0f));
            }
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
        for (int s = 0; s < SHAPES; s++) {
            const size_t cols = shapes[s][1], stride = cols + 5, n = COUNT * stride;
            float *dtable = random_device_floats(&numbers, n, -2, 2),
                  *expected = device_copy(dtable, n * sizeof *dtable);
            float *dy = random_device_floats(&numbers, TOKENS * cols, -2, 2);
            int32_t *tokens = device_tokens(&numbers);
            for (size_t i = 0; i < TOKENS * cols; i++) {
                const int32_t token = tokens[i / cols];
                if (is_here(token)) expected[(size_t)(token - FIRST) * stride + BEFORE + i % cols] += dy[i];
            }
            kernels->scatter_add(TOKENS, cols, tokens, FIRST, COUNT, dy, dtable + BEFORE, stride);
            assert_memory_equal(dtable, expected, n * sizeof *dtable);
            release_array(dtable);
            release_array(expected);
            release_array(dy);
            release_array(tokens);
        }
    }
}

/* ---- loss ---- */

/* A share of the classes, from FIRST on: of a chunk, or of a coordinate, which owns the rows' numbers. */
struct loss_part {
    size_t first, cols;
    float *logits, *p;
    float *maxima, *argmaxima, *sums, *targets, *scales; /* [rows] */
    double result[3];
};

enum division { WHOLE, CHUNKS, COORDINATES, DIVISIONS };

static struct loss_part make_loss_part(size_t rows, size_t classes, const float *logits, size_t first, size_t cols) {
    struct loss_part part = {
        .first = first,
        .cols = cols,
        .logits = device_floats(rows * cols),
        .p = device_floats(rows * cols),
        .maxima = device_floats(rows),
        .argmaxima = device_floats(rows),
        .sums = device_floats(rows),
        .targets = device_floats(rows),
        .scales = device_floats(rows),
        .result = {100, 200, 300},
    };
    for (size_t r = 0; r < rows && cols; r++)
        memcpy(part.logits + r * cols, logits + r * classes + first, cols * sizeof *logits);
    float *const unset[] = {part.maxima, part.argmaxima, part.sums, part.targets, part.scales};
    for (size_t i = 0; i < 5 * rows; i++) unset[i / rows][i % rows] = NAN;
    return part;
}

static void free_loss_part(struct loss_part *p) {
    float *const arrays[] = {p->logits, p->p, p->maxima, p->argmaxima, p->sums, p->targets, p->scales};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) release_array(arrays[i]);
}

/* PART's classes come to the numbers of OWNER; in place of the logits, too. */
static void take_chunk(const struct sl_sequence_kernels *kernels, size_t rows, const struct loss_part *part,
                       const struct loss_part *owner, const int32_t *labels) {
    const bool begins = part == owner;
    float *logits = device_copy(part->logits, rows * part->cols * sizeof *logits), *numbers[5];
    float *const own[] = {owner->maxima, owner->argmaxima, owner->sums, owner->targets, owner->scales};
    for (int i = 0; i < 5; i++) numbers[i] = device_copy(own[i], rows * sizeof **numbers);
    kernels->softmax_chunk(rows, part->cols, (int32_t)part->first, logits, labels, begins, numbers[0], numbers[1],
                           numbers[2], numbers[3], numbers[4], logits);
    kernels->softmax_chunk(rows, part->cols, (int32_t)part->first, part->logits, labels, begins, owner->maxima,
                           owner->argmaxima, owner->sums, owner->targets, owner->scales, part->p);
    assert_memory_equal(logits, part->p, rows * part->cols * sizeof *logits);
    for (int i = 0; i < 5; i++) assert_memory_equal(numbers[i], own[i], rows * sizeof **numbers);
    for (int i = 0; i < 5; i++) release_array(numbers[i]);
    release_array(logits);
}

/* As after the coordinates' communication. */
static void join(const struct sl_sequence_kernels *kernels, size_t rows, struct loss_part *part) {
    float *sums[2] = {part[0].sums, part[1].sums}, *targets[2] = {part[0].targets, part[1].targets};
    for (size_t r = 0; r < rows; r++) {
        struct loss_part *one = &part[0], *other = &part[1];
        const struct loss_part *best = other->maxima[r] > one->maxima[r] ? other : one;
        one->scales[r] = one->maxima[r];
        other->scales[r] = other->maxima[r];
        one->argmaxima[r] = other->argmaxima[r] = best->argmaxima[r];
        one->maxima[r] = other->maxima[r] = best->maxima[r];
    }
    for (int i = 0; i < 2; i++) {
        kernels->softmax_join(rows, part[i].maxima, part[i].scales, part[i].sums);
        if (part[i].cols) kernels->scale_rows(rows, part[i].cols, part[i].scales, part[i].p);
    }
    psum(2, rows, sums);
    psum(2, rows, targets);
}

/* Leaves the gradients in the parts' logits. */
static void run_loss(const struct sl_sequence_kernels *kernels, enum division division, size_t rows,
                     struct loss_part *part, const int32_t *labels, float weight) {
    const int parts = division == WHOLE ? 1 : 2;
    for (int i = 0; i < parts; i++) {
        const struct loss_part *owner = &part[division == COORDINATES ? i : 0];
        take_chunk(kernels, rows, &part[i], owner, labels);
        if (division == CHUNKS && i == 1) kernels->scale_rows(rows, part[0].cols, part[0].scales, part[0].p);
    }
    if (division == COORDINATES) join(kernels, rows, part);
    for (int i = 0; i < parts; i++) {
        const struct loss_part *owner = &part[division == COORDINATES ? i : 0];
        kernels->softmax_dlogits(rows, part[i].cols, (int32_t)part[i].first, labels, owner->maxima, owner->sums, weight,
                                 part[i].logits);
        if (owner == &part[i])
            kernels->softmax_losses(rows, labels, owner->maxima, owner->argmaxima, owner->sums, owner->targets,
                                    part[i].result);
    }
}

/* Adds one row to RESULT and gives its gradient and its p. */
static size_t cross_entropy_row(size_t classes, const float *x, int label, double weight, double *dx, double *p,
                                double *result) {
    double sum = 0;
    size_t best = 0;
    for (size_t c = 0; c < classes; c++) best = x[c] > x[best] ? c : best;
    for (size_t c = 0; c < classes; c++) sum += p[c] = exp((double)x[c] - x[best]);
    for (size_t c = 0; c < classes; c++) dx[c] = label < 0 ? 0 : weight * (p[c] / sum - ((int)c == label));
    if (label < 0) return best;
    result[0] += log(sum) - ((double)x[label] - x[best]);
    result[1] += (int)best == label;
    result[2] += 1;
    return best;
}

static void expect_row(int level, const struct loss_part *part, size_t row, float weight, const double *dx,
                       const double *p) {
    for (size_t c = 0; c < part->cols; c++) {
        const size_t at = row * part->cols + c;
        expect_close(at_level(level, "dlogits"), at, part->logits[at], dx[part->first + c], 5e-6, 1e-6 * weight);
        expect_close(at_level(level, "p"), at, part->p[at], p[part->first + c], 5e-6, 1e-6);
    }
}

/* Whole, and in two parts that meet before class SPLIT. */
static void expect_loss(int level, size_t rows, size_t classes, size_t split, const float *logits,
                        const int32_t *labels) {
    const float weight = 0.125f;
    double *dx = array_of(classes, sizeof *dx), *p = array_of(classes, sizeof *p);
    for (enum division division = WHOLE; division < DIVISIONS; division++) {
        const size_t head = division == WHOLE ? classes : split;
        struct loss_part part[2] = {make_loss_part(rows, classes, logits, 0, head),
                                    make_loss_part(rows, classes, logits, head, classes - head)};
        const int parts = division == WHOLE ? 1 : 2, owners = division == COORDINATES ? 2 : 1;
        run_loss(table_of(level), division, rows, part, labels, weight);
        double expected[3] = {100, 200, 300};
        for (size_t r = 0; r < rows; r++) {
            const float *x = logits + r * classes;
            const size_t best = cross_entropy_row(classes, x, labels[r], weight, dx, p, expected);
            for (int i = 0; i < parts; i++) expect_row(level, &part[i], r, weight, dx, p);
            for (int i = 0; i < owners; i++) {
                assert_true(part[i].maxima[r] == x[best] && part[i].argmaxima[r] == (float)best);
                assert_true(part[i].targets[r] == (labels[r] < 0 ? 0 : x[labels[r]]));
            }
        }
        for (int i = 0; i < owners; i++) {
            expect_close(at_level(level, "loss"), 0, part[i].result[0], expected[0], 1e-6, 1e-6 * (double)rows);
            assert_true(part[i].result[1] == expected[1] && part[i].result[2] == expected[2]);
        }
        free_loss_part(&part[0]);
        free_loss_part(&part[1]);
    }
    free(dx);
    free(p);
}

static void losses_of_random_rows(void **state) {
    (void)state;
    FOR_EACH_LEVEL(kernels) {
        struct numbers numbers = {10};
        for (int s = 0; s < SHAPES; s++) {
            for (int scale = 1; scale <= 100; scale *= 10) {
                const size_t rows = 4 * shapes[s][0], classes = shapes[s][1];
                int32_t *labels;
                float *logits = random_logits(&numbers, rows, classes, (float)scale, &labels);
                expect_loss(level, rows, classes, next_word(&numbers) % (classes + 1), logits, labels);
                release_array(logits);
                release_array(labels);
            }
        }
    }
}

static void the_first_of_equal_logits_is_the_guess(void **state) {
    (void)state;
    enum { ROWS = 6, CLASSES = 37 };
    struct numbers numbers = {11};
    FOR_EACH_LEVEL(kernels) {
        for (int i = 0; i < 50; i++) {
            float *logits = device_floats(ROWS * CLASSES);
            int32_t *labels = device_array(ROWS, sizeof *labels);
            for (int c = 0; c < ROWS * CLASSES; c++) /* few values; in half of the rows the largest is 0, or -0 */
                logits[c] = (float)(int)(next_word(&numbers) % 4) - (c / CLASSES % 2 ? 3.0f : 1.0f);
            for (int c = 0; c < ROWS * CLASSES; c++)
                if (logits[c] == 0.0f && next_word(&numbers) % 2) logits[c] = -0.0f;
            for (int r = 0; r < ROWS; r++) labels[r] = (int32_t)(next_word(&numbers) % 10);
            expect_loss(level, ROWS, CLASSES, next_word(&numbers) % CLASSES, logits, labels);
            release_array(logits);
            release_array(labels);
        }
    }
}

/* The same of logits in one piece, in which a row's largest may be among the last ones. */
static void maxima_name_the_first_of_equals(void **state) {
    (void)state;
    enum { ROWS = 40, CLASSES = 37, FIRST = -11 };
    struct numbers numbers = {13};
    FOR_EACH_LEVEL(kernels) {
        float *logits = device_floats(ROWS * CLASSES), *maxima = device_floats(ROWS), *argmaxima = device_floats(ROWS);
        for (int i = 0; i < ROWS * CLASSES; i++) logits[i] = (float)(next_word(&numbers) % 23) - 17.0f;
        kernels->row_maxima(ROWS, CLASSES, FIRST, logits, maxima, argmaxima);
        for (int r = 0; r < ROWS; r++) {
            int highest = 0;
            for (int c = 1; c < CLASSES; c++)
                if (logits[r * CLASSES + c] > logits[r * CLASSES + highest]) highest = c;
            assert_true(maxima[r] == logits[r * CLASSES + highest]);
            assert_true(argmaxima[r] == (float)(FIRST + highest));
        }
        release_array(logits);
        release_array(maxima);
        release_array(argmaxima);
    }
}

/* Many classes whose terms are alike: where a sum loses digits. */
static void large_vocabularies_lose_no_digits(void **state) {
    (void)state;
    enum { CLASSES = 20011 };
    struct numbers numbers = {12};
    float *logits = random_device_floats(&numbers, CLASSES, -0.01f, 0.01f);
    int32_t *labels = device_copy(&(int32_t){CLASSES - 1}, sizeof *labels);
    FOR_EACH_LEVEL(kernels) expect_loss(level, 1, CLASSES, 10000, logits, labels);
    release_array(logits);
    release_array(labels);
}

static void losses_are_large_without_overflow(void **state) {
    (void)state;
    float *logits = device_copy((float[]){-1e4f, 1e4f, 0, 3e38f, -3e38f, 0}, 6 * sizeof *logits);
    int32_t *labels = device_array(2, sizeof *labels);
    FOR_EACH_LEVEL(kernels) expect_loss(level, 2, 3, 1, logits, labels);
    release_array(logits);
    release_array(labels);
}

static void nan_surfaces_in_the_loss(void **state) {
    (void)state;
    enum { CLASSES = 35 };
    const float poisons[] = {NAN, -NAN, INFINITY};
    float *logits = device_floats(CLASSES);
    int32_t *label = device_copy(&(int32_t){17}, sizeof *label);
    FOR_EACH_LEVEL(kernels) {
        for (int p = 0; p < 3; p++) {
            for (size_t at = 0; at < CLASSES; at++) {
                logits[at] = poisons[p];
                struct loss_part part[2] = {make_loss_part(1, CLASSES, logits, 0, CLASSES)};
                run_loss(kernels, WHOLE, 1, part, label, 1.0f);
                assert_true(isnan(part->result[0]) && part->result[2] == 301);
                assert_true(part->argmaxima[0] >= 0 && part->argmaxima[0] < CLASSES);
                free_loss_part(part);
                logits[at] = 0.0f;
            }
        }
    }
    release_array(logits);
    release_array(label);
}

/* dx = (dx scales / sums - the label's row) weight, of a table in floats and in bf16. */
static void gradients_take_the_labels_rows_off(void **state) {
    (void)state;
    enum { FIRST_CLASS = 5, OWN_CLASSES = 7, ROWS = 20 };
    const float weight = 0.25f;
    FOR_EACH_LEVEL(kernels) {
        struct numbers numbers = {13};
        for (int s = 0; s < SHAPES; s++) {
            const size_t cols = shapes[s][1], n = ROWS * cols, entries = OWN_CLASSES * cols;
            float *table = random_device_floats(&numbers, entries, -2, 2), *sums = device_floats(ROWS);
            float *scales = random_device_floats(&numbers, ROWS, 0, 1);
            uint16_t *rounded = device_array(entries, sizeof *rounded);
            int32_t *labels = device_array(ROWS, sizeof *labels);
            for (size_t i = 0; i < entries; i++) rounded[i] = sl_bf16_of_float(table[i]);
            for (int r = 0; r < ROWS; r++) sums[r] = next_float(&numbers, 1, 9);
            for (int r = 0; r < ROWS; r++) labels[r] = r ? r % 16 : -1; /* before, among and behind the own ones */
            for (int half = 0; half < 2; half++) {
                float *dx = random_device_floats(&numbers, n, -3, 3), *before = device_copy(dx, n * sizeof *dx);
                kernels->softmax_gradient(ROWS, cols, labels, FIRST_CLASS, OWN_CLASSES, sums, scales, weight,
                                          half ? (const void *)rounded : table, half, dx);
                for (size_t i = 0; i < n; i++) {
                    const size_t r = i / cols, at = (size_t)(labels[r] - FIRST_CLASS) * cols + i % cols;
                    const bool here = labels[r] >= FIRST_CLASS && labels[r] < FIRST_CLASS + OWN_CLASSES;
                    const double row = !here ? 0 : half ? (double)sl_float_of_bf16(rounded[at]) : (double)table[at];
                    const double scaled = (double)before[i] * scales[r] / sums[r];
                    expect_close(at_level(level, "dx"), i, dx[i], labels[r] < 0 ? 0 : weight * (scaled - row), 1e-6,
                                 1e-6);
                }
                release_array(dx);
                release_array(before);
            }
            void *const arrays[] = {table, sums, scales, rounded, labels};
            for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) release_array(arrays[i]);
        }
    }
}

static void labels_find_their_rows(void **state) {
    (void)state;
    enum { ROWS = 9, COLS = 37, FIRST_CLASS = 2, OWN_CLASSES = 3 };
    FOR_EACH_LEVEL(kernels) {
        struct numbers numbers = {14};
        float *table = random_device_floats(&numbers, OWN_CLASSES * COLS, -2, 2);
        uint16_t *rounded = device_array(OWN_CLASSES * COLS, sizeof *rounded);
        int32_t *labels = device_array(ROWS, sizeof *labels), *places = device_array(ROWS, sizeof *places);
        for (int i = 0; i < OWN_CLASSES * COLS; i++) rounded[i] = sl_bf16_of_float(table[i]);
        for (int r = 0; r < ROWS; r++) labels[r] = r - 1;
        kernels->label_places(ROWS, labels, places);
        for (int way = 0; way < 4; way++) {
            const bool half = way & 1, begins = way & 2;
            float *y = random_device_floats(&numbers, ROWS * COLS, -3, 3), *before = device_copy(y, ROWS * COLS * 4);
            kernels->label_rows(ROWS, COLS, labels, FIRST_CLASS, OWN_CLASSES, half ? (const void *)rounded : table,
                                half, begins, y);
            for (int i = 0; i < ROWS * COLS; i++) {
                const int place = labels[i / COLS] - FIRST_CLASS, at = place * COLS + i % COLS;
                const bool here = place >= 0 && place < OWN_CLASSES;
                const float other = begins ? 0.0f : before[i];
                assert_true(y[i] == (!here ? other : half ? sl_float_of_bf16(rounded[at]) : table[at]));
                assert_int_equal(places[i / COLS], i / COLS ? i / COLS : -1);
            }
            release_array(y);
            release_array(before);
        }
        void *const arrays[] = {table, rounded, labels, places};
        for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) release_array(arrays[i]);
    }
}

static void labels_are_copied(void **state) {
    (void)state;
    FOR_EACH_LEVEL(kernels) {
        int32_t *from = device_array(4 * 9, sizeof *from), *to = device_array(4 * 3, sizeof *to);
        for (int i = 0; i < 4 * 9; i++) from[i] = i % 5 ? i : -1;
        kernels->copy_labels(4, 3, from + 2, 9, to);
        for (int i = 0; i < 4 * 3; i++) assert_int_equal(to[i], from[i / 3 * 9 + 2 + i % 3]);
        release_array(from);
        release_array(to);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_are_copied),
        cmocka_unit_test(biases_are_added),
        cmocka_unit_test(rms_norm_and_its_gradients),
        cmocka_unit_test(weight_gradients_add_rows_in_order),
        cmocka_unit_test(rms_norm_of_zeros_is_beta),
        cmocka_unit_test(gelu_and_its_slope),
        cmocka_unit_test(gelu_far_out),
        cmocka_unit_test(pairs_are_rotated_and_rotated_back),
        cmocka_unit_test(tokens_are_looked_up),
        cmocka_unit_test(gradients_are_added_to_their_tokens_rows_in_order),
        cmocka_unit_test(losses_of_random_rows),
        cmocka_unit_test(the_first_of_equal_logits_is_the_guess),
        cmocka_unit_test(maxima_name_the_first_of_equals),
        cmocka_unit_test(large_vocabularies_lose_no_digits),
        cmocka_unit_test(losses_are_large_without_overflow),
        cmocka_unit_test(nan_surfaces_in_the_loss),
        cmocka_unit_test(gradients_take_the_labels_rows_off),
        cmocka_unit_test(labels_are_copied),
        cmocka_unit_test(labels_find_their_rows),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
