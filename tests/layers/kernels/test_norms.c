/* test_norms.c - RMS norms of whole rows, of every level of this CPU, against naive oracles in double; forms of
 * results, against each other. */
#include "tests/rigs/numbers.h"

#include "layers/kernels/kernels.h"

static const double EPSILON = 1e-6;
static const size_t shapes[][3] = {{1, 1, 1},   {1, 3, 2},    {2, 8, 10},   {1, 7, 64},
                                   {3, 21, 33}, {1, 40, 520}, {2, 9, 1100}, {1100, 3, 2}};
enum { SHAPES = sizeof shapes / sizeof *shapes }; /* parts, rows of each, columns */

/* Inputs, and kernels' results. */
struct norm {
    size_t parts, rows, cols, count;
    float *x, *gamma, *beta, *dy, *summand;
    float *rstd, *y, *dx, *dgamma, *dbeta, *room;
};

static struct norm make_norm(const struct sl_norm_kernels *kernels, struct numbers *numbers, const size_t shape[3]) {
    const size_t parts = shape[0], rows = shape[1], cols = shape[2], count = parts * rows * cols;
    return (struct norm){
        .parts = parts,
        .rows = rows,
        .cols = cols,
        .count = count,
        .x = random_device_floats(numbers, count, -1, 3),
        .gamma = random_device_floats(numbers, cols, 0.5f, 1.5f),
        .beta = random_device_floats(numbers, cols, -1, 1),
        .dy = random_device_floats(numbers, count, -1, 1),
        .summand = random_device_floats(numbers, count, -1, 1),
        .rstd = device_floats(parts * rows),
        .y = device_floats(count),
        .dx = device_floats(count),
        .dgamma = random_device_floats(numbers, parts * cols, -1, 1),
        .dbeta = random_device_floats(numbers, parts * cols, -1, 1),
        .room = device_floats(kernels->rms_norm_room(parts, rows, cols)),
    };
}

static void free_norm(struct norm *n) {
    float *const arrays[] = {n->x, n->gamma, n->beta,   n->dy,    n->summand, n->rstd,
                             n->y, n->dx,    n->dgamma, n->dbeta, n->room};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) release_array(arrays[i]);
}

/* Floats Y, rounded or not, with a copy of them at STORED, unless it is NULL. */
static struct sl_out out_of(float *y, bool rounds, uint16_t *stored) {
    return (struct sl_out){sl_rows_f32(y), sl_rows_bf16(stored), rounds};
}

static void forward(const struct sl_norm_kernels *kernels, const struct norm *n, struct sl_out y) {
    kernels->rms_norm_forward(n->parts * n->rows, n->cols, n->cols, sl_rows_f32(n->x), NULL, n->gamma, n->beta,
                              (float)EPSILON, n->rstd, y);
}

static void backward_of(const struct sl_norm_kernels *kernels, const struct norm *n, struct sl_rows dy,
                        struct sl_rows x, struct sl_rows summand, struct sl_out dx) {
    kernels->rms_norm_backward(n->parts, n->rows, n->cols, n->cols, dy, x, n->rstd, n->gamma, NULL, summand, dx,
                               n->dgamma, n->dbeta, n->room);
}

static void backward(const struct sl_norm_kernels *kernels, const struct norm *n, const float *summand,
                     struct sl_out dx) {
    backward_of(kernels, n, sl_rows_f32(n->dy), sl_rows_f32(n->x), sl_rows_f32(summand), dx);
}

/* SUMMAND: dx has it, too. */
static void expect_rows(const struct norm *n, bool summand) {
    for (size_t r = 0; r < n->parts * n->rows; r++) {
        double squares = 0, dot = 0;
        for (size_t c = 0; c < n->cols; c++) {
            const size_t at = r * n->cols + c;
            squares += (double)n->x[at] * n->x[at];
            dot += (double)n->dy[at] * n->gamma[c] * n->x[at];
        }
        const double rstd = 1 / sqrt(squares / (double)n->cols + EPSILON);
        expect_close("rstd", r, n->rstd[r], rstd, 1e-6, 1e-6);
        for (size_t c = 0; c < n->cols; c++) {
            const size_t at = r * n->cols + c;
            const double dx = rstd * (n->dy[at] * n->gamma[c] - n->x[at] * rstd * rstd * dot / (double)n->cols);
            expect_close("y", at, n->y[at], n->x[at] * rstd * n->gamma[c] + n->beta[c], 2e-6, 2e-6);
            expect_close("dx", at, n->dx[at], dx + (summand ? n->summand[at] : 0), 2e-5, 2e-6);
        }
    }
}

static void expect_sums(const struct norm *n) {
    for (size_t i = 0; i < n->parts * n->cols; i++) {
        const size_t first = i / n->cols * n->rows;
        double dgamma = 0, dbeta = 0;
        for (size_t r = first; r < first + n->rows; r++) {
            const size_t at = r * n->cols + i % n->cols;
            dgamma += (double)n->dy[at] * n->x[at] * n->rstd[r];
            dbeta += n->dy[at];
        }
        expect_close("dgamma", i, n->dgamma[i], dgamma, 5e-6, 5e-6);
        expect_close("dbeta", i, n->dbeta[i], dbeta, 5e-6, 5e-6);
    }
}

#define FOR_EACH_NORM(kernels, n)                                                                                      \
    for (int level = 0; sl_kernels_available(level); level++)                                                          \
        for (const struct sl_norm_kernels *kernels = sl_kernels_available(level)->norms; kernels; kernels = NULL)      \
            for (int s = 0; s < SHAPES; s++)                                                                           \
                for (struct norm n = make_norm(kernels, &(struct numbers){(uint64_t)s + 5}, shapes[s]); n.parts;       \
                     free_norm(&n), n.parts = 0)

static void whole_rows_and_their_gradients(void **state) {
    (void)state;
    FOR_EACH_NORM(kernels, n) {
        for (int adds = 0; adds < 2; adds++) {
            forward(kernels, &n, sl_out_f32(n.y));
            backward(kernels, &n, adds ? n.summand : NULL, sl_out_f32(n.dx));
            expect_rows(&n, adds);
            expect_sums(&n);
        }
    }
}

/* Without the sums, dgamma and dbeta are not written. */
static void frozen_parameters_need_no_sums(void **state) {
    (void)state;
    FOR_EACH_NORM(kernels, n) {
        forward(kernels, &n, sl_out_f32(n.y));
        kernels->rms_norm_backward(n.parts, n.rows, n.cols, n.cols, sl_rows_f32(n.dy), sl_rows_f32(n.x), n.rstd,
                                   n.gamma, NULL, sl_rows_f32(NULL), sl_out_f32(n.dx), NULL, NULL, n.room);
        expect_rows(&n, false);
    }
}

/* Compares y or dx in the other forms with their floats. */
static void results_are_left_rounded(void **state) {
    (void)state;
    FOR_EACH_NORM(kernels, n) {
        float *rounded = device_floats(n.count);
        uint16_t *stored = device_array(n.count, sizeof *stored), *alone = device_array(n.count, sizeof *alone);
        forward(kernels, &n, sl_out_f32(n.y));
        forward(kernels, &n, out_of(rounded, true, stored));
        forward(kernels, &n, sl_out_bf16(alone));
        uint16_t *expected = settle(n.y, n.count);
        assert_memory_equal(rounded, n.y, n.count * sizeof *rounded);
        assert_memory_equal(stored, expected, n.count * sizeof *stored);
        assert_memory_equal(alone, expected, n.count * sizeof *alone);
        forward(kernels, &n, out_of(rounded, true, NULL));
        assert_memory_equal(rounded, n.y, n.count * sizeof *rounded);
        release_array(expected);
        backward(kernels, &n, n.summand, sl_out_f32(n.dx));
        float *whole = device_copy(n.dx, n.count * sizeof *whole);
        backward(kernels, &n, n.summand, out_of(rounded, true, stored));
        backward(kernels, &n, n.summand, sl_out_bf16(alone));
        expected = settle(n.dx, n.count);
        assert_memory_equal(rounded, n.dx, n.count * sizeof *rounded);
        assert_memory_equal(stored, expected, n.count * sizeof *stored);
        assert_memory_equal(alone, expected, n.count * sizeof *alone);
        for (size_t i = 0; i < n.count; i++) stored[i] = 0;
        backward(kernels, &n, n.summand, out_of(rounded, false, stored));
        assert_memory_equal(rounded, whole, n.count * sizeof *rounded);
        assert_memory_equal(stored, expected, n.count * sizeof *stored);
        release_array(whole);
        release_array(expected);
        release_array(rounded);
        release_array(stored);
        release_array(alone);
    }
}

/* Forward of a bf16 x is forward of the widened floats, up to the order of a row's sum, which compilers choose for each
 * kernel. */
static void stored_inputs_are_widened(void **state) {
    (void)state;
    FOR_EACH_NORM(kernels, n) {
        const size_t rows = n.parts * n.rows;
        uint16_t *x = settle(n.x, n.count), *stored = device_array(n.count, sizeof *stored);
        uint16_t *alone = device_array(n.count, sizeof *alone);
        float *y = device_floats(n.count);
        for (int rounds = 0; rounds < 2; rounds++) {
            forward(kernels, &n, out_of(n.y, rounds, stored));
            float *rstd = device_copy(n.rstd, rows * sizeof *rstd);
            for (size_t r = 0; r < rows; r++) n.rstd[r] = 0;
            for (size_t i = 0; i < n.count; i++) alone[i] = 0;
            kernels->rms_norm_forward(rows, n.cols, n.cols, sl_rows_bf16(x), NULL, n.gamma, n.beta, (float)EPSILON,
                                      n.rstd, rounds ? sl_out_bf16(alone) : out_of(y, false, alone));
            for (size_t r = 0; r < rows; r++) expect_close("rstd", r, n.rstd[r], rstd[r], 1e-6, 0);
            for (size_t i = 0; i < n.count; i++) {
                expect_close("bf16", i, sl_float_of_bf16(alone[i]), sl_float_of_bf16(stored[i]), 0x1p-7, 0);
                if (!rounds) expect_close("y", i, y[i], n.y[i], 2e-6, 1e-6);
            }
            release_array(rstd);
        }
        void *const arrays[] = {x, stored, alone, y};
        for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) release_array(arrays[i]);
    }
}

/* Backward of a saved bf16 x gives DX rounded, too, if it is left so. */
static void expect_left_rounded(const struct sl_norm_kernels *kernels, const struct norm *n, struct sl_rows dy,
                                const uint16_t *x, struct sl_rows summand, const float *dx) {
    float *rounded = device_floats(n->count);
    uint16_t *stored = device_array(n->count, sizeof *stored);
    backward_of(kernels, n, dy, sl_rows_bf16(x), summand, out_of(rounded, true, stored));
    for (size_t i = 0; i < n->count; i++) {
        const uint16_t half = sl_bf16_of_float(dx[i]);
        const float want = sl_float_of_bf16(half);
        assert_int_equal(stored[i], half);
        assert_memory_equal(&rounded[i], &want, sizeof want);
    }
    release_array(rounded);
    release_array(stored);
}

/* Backward of a saved bf16 x is backward of the widened x and of the rounded dy; also with dy, and with a summand,
 * stored as bf16 only. */
static void expect_widened(const struct sl_norm_kernels *kernels, const struct norm *n, struct sl_rows dy,
                           const uint16_t *x, struct sl_rows summand, bool adds, float *dx) {
    const size_t sums = n->parts * n->cols;
    backward(kernels, n, adds ? n->summand : NULL, sl_out_f32(n->dx));
    float *dgamma = device_copy(n->dgamma, sums * sizeof *dgamma);
    float *dbeta = device_copy(n->dbeta, sums * sizeof *dbeta);
    for (size_t i = 0; i < sums; i++) n->dgamma[i] = n->dbeta[i] = 0;
    for (size_t i = 0; i < n->count; i++) dx[i] = 0;
    backward_of(kernels, n, dy, sl_rows_bf16(x), summand, sl_out_f32(dx));
    assert_memory_equal(dx, n->dx, n->count * sizeof *dx);
    assert_memory_equal(n->dgamma, dgamma, sums * sizeof *dgamma);
    assert_memory_equal(n->dbeta, dbeta, sums * sizeof *dbeta);
    expect_left_rounded(kernels, n, dy, x, summand, dx);
    release_array(dgamma);
    release_array(dbeta);
}

static void stored_rows_are_widened(void **state) {
    (void)state;
    FOR_EACH_NORM(kernels, n) {
        float *dy = device_copy(n.dy, n.count * sizeof *dy), *dx = device_floats(n.count);
        uint16_t *x = settle(n.x, n.count), *rounded = settle(n.dy, n.count), *added = settle(n.summand, n.count);
        forward(kernels, &n, sl_out_f32(n.y));
        const struct sl_rows summands[] = {sl_rows_f32(NULL), sl_rows_f32(n.summand), sl_rows_bf16(added)};
        for (int i = 0; i < 6; i++)
            expect_widened(kernels, &n, i % 2 ? sl_rows_bf16(rounded) : sl_rows_f32(dy), x, summands[i / 2], i / 2 > 0,
                           dx);
        void *const arrays[] = {dy, dx, x, rounded, added};
        for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) release_array(arrays[i]);
    }
}

/* A row has the same bits as alone, and a part its own sums. */
static void parts_are_those_that_are_alone(void **state) {
    (void)state;
    FOR_EACH_NORM(kernels, n) {
        const size_t each = n.rows * n.cols;
        float *dx = device_floats(each), *dgamma = device_floats(n.cols), *dbeta = device_floats(n.cols);
        forward(kernels, &n, sl_out_f32(n.y));
        backward(kernels, &n, NULL, sl_out_f32(n.dx));
        for (size_t p = 0; p < n.parts; p++) {
            kernels->rms_norm_backward(1, n.rows, n.cols, n.cols, sl_rows_f32(n.dy + p * each),
                                       sl_rows_f32(n.x + p * each), n.rstd + p * n.rows, n.gamma, NULL,
                                       sl_rows_f32(NULL), sl_out_f32(dx), dgamma, dbeta, n.room);
            assert_memory_equal(dx, n.dx + p * each, each * sizeof *dx);
            assert_memory_equal(dgamma, n.dgamma + p * n.cols, n.cols * sizeof *dgamma);
            assert_memory_equal(dbeta, n.dbeta + p * n.cols, n.cols * sizeof *dbeta);
        }
        release_array(dx);
        release_array(dgamma);
        release_array(dbeta);
    }
}

int main(void) {
    cmocka_set_message_output(CM_OUTPUT_TAP);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whole_rows_and_their_gradients), cmocka_unit_test(frozen_parameters_need_no_sums),
        cmocka_unit_test(results_are_left_rounded),       cmocka_unit_test(stored_inputs_are_widened),
        cmocka_unit_test(stored_rows_are_widened),        cmocka_unit_test(parts_are_those_that_are_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
