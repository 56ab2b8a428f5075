/* test_stripes.c - sums over many rows, which GPUs divide into stripes, with partial sums in a room of the device:
 * against sums in double; of several parts, the bits of each alone; and of more parts than the room has stripes for. */
#include "tests/rigs/kernel_levels.h"
#include "tests/rigs/numbers.h"

/* The sums of some are one more than a GPU's teams have threads. */
static const size_t shapes[][3] = {{1, 300, 10},  {2, 5000, 30},  {1, 20000, 7},  {1, 1024, 129},
                                   {1, 600, 257}, {52, 257, 512}, {1, 1000, 2200}};
enum { SHAPES = sizeof shapes / sizeof *shapes };

struct sums {
    size_t parts, rows, cols;
    float *x, *dy, *rstd, *scale, *one, *other; /* one, other [parts, cols] */
    uint16_t *half;
};

typedef void kernel(const struct sl_kernels *kernels, const struct sums *s, size_t part, size_t parts, float *one,
                    float *other);

static void column_sums(const struct sl_kernels *kernels, const struct sums *s, size_t part, size_t parts, float *one,
                        float *other) {
    const size_t n = s->rows * s->cols;
    kernels->part_sums(parts, s->rows, s->cols, s->x + part * n, false, false, one);
    kernels->part_sums(parts, s->rows, s->cols, s->half + part * n, true, false, other);
}

static void layer_norm(const struct sl_kernels *kernels, const struct sums *s, size_t part, size_t parts, float *one,
                       float *other) {
    const size_t at = part * s->rows * s->cols;
    float *dx = device_floats(parts * s->rows * s->cols);
    kernels->norms->layer_norm_backward(parts, s->rows, s->cols, sl_rows_f32(s->dy + at), sl_rows_f32(s->x + at),
                                        s->rstd + part * s->rows, s->scale, sl_rows_f32(NULL), sl_out_f32(dx), one,
                                        other);
    release_array(dx);
}

static void rms_norm_of(const struct sl_kernels *kernels, const struct sums *s, struct sl_rows x, size_t part,
                        size_t parts, float *one, float *other) {
    const size_t at = part * s->rows * s->cols;
    kernels->norms->rms_norm_backward(parts, s->rows, s->cols, s->cols, sl_rows_f32(s->dy + at), sl_rows_from(x, at),
                                      s->rstd + part * s->rows, NULL, NULL, sl_rows_f32(NULL), sl_out_f32(NULL), one,
                                      other, NULL);
}

static void rms_norm(const struct sl_kernels *kernels, const struct sums *s, size_t part, size_t parts, float *one,
                     float *other) {
    rms_norm_of(kernels, s, sl_rows_f32(s->x), part, parts, one, other);
}

static void rms_norm_of_bf16(const struct sl_kernels *kernels, const struct sums *s, size_t part, size_t parts,
                             float *one, float *other) {
    rms_norm_of(kernels, s, sl_rows_bf16(s->half), part, parts, one, other);
}

/* Computes the terms of element I of row R in both sums. */
static void terms(kernel *call, const struct sums *s, size_t r, size_t i, double *one, double *other) {
    const double x = s->x[i], dy = s->dy[i], half = sl_float_of_bf16(s->half[i]);
    if (call == column_sums) *one = x, *other = half;
    if (call == layer_norm) *one = dy * x, *other = dy;
    if (call == rms_norm) *one = dy * (x * s->rstd[r]), *other = dy;
    if (call == rms_norm_of_bf16) *other = sl_bf16_part(s->dy[i]), *one = *other * (half * s->rstd[r]);
}

static void expect_sums(const struct sl_kernels *kernels, kernel *call, const struct sums *s) {
    const size_t sums = s->parts * s->cols;
    float *again = device_floats(2 * s->cols);
    call(kernels, s, 0, s->parts, s->one, s->other);
    for (size_t part = 0; part < s->parts; part++) {
        call(kernels, s, part, 1, again, again + s->cols);
        assert_memory_equal(again, s->one + part * s->cols, s->cols * sizeof *again);
        assert_memory_equal(again + s->cols, s->other + part * s->cols, s->cols * sizeof *again);
    }
    double *want = array_of(2 * sums, sizeof *want);
    for (size_t i = 0; i < s->parts * s->rows * s->cols; i++) {
        const size_t r = i / s->cols, at = r / s->rows * s->cols + i % s->cols;
        double one = 0, other = 0;
        terms(call, s, r, i, &one, &other);
        want[at] += one;
        want[sums + at] += other;
    }
    for (size_t i = 0; i < sums; i++) {
        expect_close(kernels->name, i, s->one[i], want[i], 1e-4, 2e-3);
        expect_close(kernels->name, i, s->other[i], want[sums + i], 1e-4, 2e-3);
    }
    free(want);
    release_array(again);
}

static void sums_of_many_rows(void **state) {
    (void)state;
    kernel *const calls[] = {column_sums, layer_norm, rms_norm, rms_norm_of_bf16};
    FOR_EACH_LEVEL(kernels) {
        struct numbers numbers = {8};
        for (int i = 0; i < SHAPES; i++) {
            struct sums s = {.parts = shapes[i][0], .rows = shapes[i][1], .cols = shapes[i][2]};
            const size_t n = s.parts * s.rows * s.cols;
            s.x = random_device_floats(&numbers, n, -1, 1);
            s.dy = random_device_floats(&numbers, n, -1, 1);
            s.rstd = random_device_floats(&numbers, s.parts * s.rows, 0.5f, 2);
            s.scale = random_device_floats(&numbers, s.cols, -1, 1);
            s.one = device_floats(s.parts * s.cols);
            s.other = device_floats(s.parts * s.cols);
            s.half = device_array(n, sizeof *s.half);
            for (size_t e = 0; e < n; e++) s.half[e] = sl_bf16_of_float(s.x[e]);
            for (size_t c = 0; c < sizeof calls / sizeof *calls; c++) expect_sums(kernels, calls[c], &s);
            void *const taken[] = {s.x, s.dy, s.rstd, s.scale, s.one, s.other, s.half};
            for (size_t t = 0; t < sizeof taken / sizeof *taken; t++) release_array(taken[t]);
        }
    }
}

/* Sums of whole numbers are exact: columns around the ends of a GPU's teams, to which other sums are added, or not.
 * Elements behind the sums do not change. */
static void expect_exact_sums(const struct sl_kernels *kernels, size_t rows, size_t cols, bool accumulate) {
    enum { BEHIND = 300 };
    struct numbers numbers = {rows + cols};
    float *x = random_device_wholes(&numbers, rows * cols), *sums = device_floats(cols + BEHIND);
    double *want = array_of(cols + BEHIND, sizeof *want);
    for (size_t c = 0; c < cols + BEHIND; c++) {
        sums[c] = (float)(1000 + c);
        want[c] = c < cols && !accumulate ? 0.0 : (double)sums[c];
    }
    for (size_t i = 0; i < rows * cols; i++) want[i % cols] += (double)x[i];
    kernels->column_sums(rows, cols, x, accumulate, sums);
    assert_int_equal(sl_device.settle(NULL), SL_OK);
    for (size_t c = 0; c < cols + BEHIND; c++) assert_true(sums[c] == (float)want[c]);
    free(want);
    release_array(x);
    release_array(sums);
}

static void sums_of_whole_numbers_are_exact(void **state) {
    (void)state;
    static const size_t sizes[][2] = {{9000, 17}, {1100, 127}, {1030, 128}, {1024, 129},
                                      {520, 257}, {3, 17},     {2, 129},    {5, 257}};
    FOR_EACH_LEVEL(kernels)
    for (size_t i = 0; i < 2 * sizeof sizes / sizeof *sizes; i++)
        expect_exact_sums(kernels, sizes[i / 2][0], sizes[i / 2][1], i % 2);
}

int main(void) {
    setenv("SHARDLOOP_MEMORY", "managed", 1);
    cmocka_set_message_output(CM_OUTPUT_TAP);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_of_many_rows),
        cmocka_unit_test(sums_of_whole_numbers_are_exact),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
