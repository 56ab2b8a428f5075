/* test_block_rows.c - products with quantized weights have the bits of products with the dequantized floats, and
 * integer products have the values of products with rounded rows, at every level of this CPU, for every type. */
#include "tests/rigs/numbers.h"

#include "layers/kernels/gemm/blocks/block_dots.h"
#include "layers/kernels/gemm/blocks/block_rows.h"
#include "layers/kernels/gemm/rows/few_rows.h"
#include "spmd/base/memory.h"

enum { LONGEST = 2048, MOST_ROWS = 9 };

struct weights {
    struct sl_blocks blocks;
    uint8_t *bytes;
    float *floats; /* [rows, columns], as the matrix has its rows */
};

/* Writes random bytes of a block with finite values and without a large scale. */
static void draw_block(struct numbers *numbers, const struct sl_quantized *type, uint8_t *at) {
    for (bool fits = false; !fits;) {
        float values[SL_LARGEST_BLOCK];
        for (size_t i = 0; i < type->bytes; i++) at[i] = (uint8_t)next_word(numbers);
        type->read(at, values);
        fits = true;
        for (size_t i = 0; i < type->elements; i++) fits = fits && fabsf(values[i]) < 100.0f;
    }
}

/* Rows begin at odd addresses. HEAD: as in struct sl_blocks. */
static struct weights make(struct numbers *numbers, const struct sl_quantized *type, size_t rows, size_t columns,
                           size_t head) {
    const size_t row = columns / type->elements * type->bytes, stride = row + type->bytes;
    struct weights w = {.bytes = array_of(rows * stride + 1, 1), .floats = floats(rows * columns)};
    w.blocks = (struct sl_blocks){
        .type = type, .at = w.bytes + 1, .stride = stride, .rows = rows, .columns = columns, .head = head};
    for (size_t r = 0; r < rows; r++) {
        const size_t in_head = head ? r % head : 0, half = head / 2;
        const size_t there = head ? r - in_head + 2 * (in_head % half) + in_head / half : r;
        for (size_t b = 0; b < columns / type->elements; b++) {
            uint8_t *at = w.bytes + 1 + there * stride + b * type->bytes;
            draw_block(numbers, type, at);
            type->read(at, w.floats + r * columns + b * type->elements);
        }
    }
    return w;
}

static void release(struct weights *w) {
    free(w->bytes);
    free(w->floats);
}

static void expect_bits(const char *what, size_t count, const float *got, const float *want) {
    for (size_t i = 0; i < count; i++) expect_close(what, i, got[i], want[i], 0, 0);
}

/* Products of M rows, at level number I; the columns are made in two calls. */
static void check(int i, const struct weights *w, size_t m, const float *a, const float *bias, const char *what) {
    const struct sl_few_rows *few = sl_few_rows_available(i);
    const size_t n = w->blocks.rows, k = w->blocks.columns, middle = n / 2;
    float *want = floats(m * n), *got = floats(m * n);
    few->multiply_transposed(m, n, k, a, w->floats, false, want);
    for (size_t e = 0; bias && e < m * n; e++) want[e] += bias[e % n];
    sl_block_rows_available(i)->multiply(&w->blocks, 0, middle, m, a, bias, got);
    sl_block_rows_available(i)->multiply(&w->blocks, middle, n, m, a, bias, got);
    expect_bits(what, m * n, got, want);
    free(want);
    free(got);
}

static void products_are_those_of_floats(void **state) {
    struct numbers numbers = {41};
    float *a = random_floats(&numbers, MOST_ROWS * LONGEST, -1.0f, 1.0f);
    float *bias = random_floats(&numbers, 64, -1.0f, 1.0f);
    static const size_t shape[][3] = {{1, 1, 0}, {8, 2, 8}, {37, 4, 0}, {48, 1, 12}};
    (void)state;
    for (const struct sl_quantized *type = sl_quantized_types; type->name; type++) {
        for (size_t s = 0; s < sizeof shape / sizeof *shape; s++) {
            const size_t k = shape[s][1] * (type->elements > 32 ? 256 : s % 2 ? 160 : 32);
            struct weights w = make(&numbers, type, shape[s][0], k, shape[s][2]);
            for (int i = 0; sl_block_rows_available(i); i++) {
                for (size_t m = 1; m <= MOST_ROWS; m += m < 3 ? 1 : 3) {
                    char what[80];
                    snprintf(what, sizeof what, "%s [%zu, %zu], %zu rows, level %d", type->name, shape[s][0], k, m, i);
                    check(i, &w, m, a, m % 2 ? bias : NULL, what);
                }
                float *wide = floats(w.blocks.rows * k);
                sl_block_rows_available(i)->widen(&w.blocks, 0, w.blocks.rows, wide);
                expect_bits(type->name, w.blocks.rows * k, wide, w.floats);
                free(wide);
            }
            release(&w);
        }
    }
    free(a);
    free(bias);
}

/* Shares of threads, of more weights than one thread takes, and more rows than are multiplied together. */
static void crews_change_no_bit(void **state) {
    enum { ROWS = 500, COLUMNS = 1024, COUNT = 99 };
    struct numbers numbers = {42};
    struct sl_crew *crew = sl_crew_open(3);
    struct weights w = make(&numbers, &sl_quantized_types[1], ROWS, COLUMNS, 0);
    float *a = random_floats(&numbers, COUNT * COLUMNS, -1.0f, 1.0f), *wide = floats(ROWS * COLUMNS);
    float *alone = floats(COUNT * ROWS), *together = floats(COUNT * ROWS);
    (void)state;
    for (size_t r = 0; r < COUNT; r++)
        sl_block_rows_multiply(&w.blocks, 1, a + r * COLUMNS, NULL, alone + r * ROWS, r % 2 ? crew : NULL);
    sl_block_rows_multiply(&w.blocks, COUNT, a, NULL, together, crew);
    expect_bits("a crew's", COUNT * ROWS, together, alone);
    sl_block_rows_widen(&w.blocks, wide, crew);
    expect_bits("widened", ROWS * COLUMNS, wide, w.floats);
    free(a);
    free(wide);
    free(alone);
    free(together);
    release(&w);
    sl_crew_close(crew);
}

/* ---- by integers ---- */

static float rounded_at(const struct sl_dot_rows *x, size_t at) { return (float)x->number[at] * x->scale[at / 32]; }

static void expect_rounded(const struct sl_dot_rows *x, const float *a, const char *what) {
    for (size_t i = 0; i < x->rows * x->terms; i++)
        expect_close(what, i, rounded_at(x, i), a[i], 0, 0.501f * x->scale[i / 32]);
}

/* C [x->rows, n] = X W^T + BIAS in double precision. EPSILON: the allowed difference of sums in floats. */
static void multiply_plainly(const struct weights *w, const struct sl_dot_rows *x, const float *bias, double *c,
                             double *epsilon) {
    const size_t n = w->blocks.rows, k = w->blocks.columns;
    for (size_t i = 0; i < x->rows * n; i++) {
        double sizes = c[i] = bias ? bias[i % n] : 0;
        for (size_t l = 0; l < k; l++) {
            const double term = (double)rounded_at(x, i / n * k + l) * w->floats[i % n * k + l];
            c[i] += term;
            sizes += fabs(term);
        }
        epsilon[i] = 2e-6 * (sizes + 1);
    }
}

/* Tests integer products of table I with M rows of A, with the columns in two calls; and each row alone. */
static void check_dots(int i, const struct weights *w, size_t m, const float *a, const float *bias, const char *what) {
    const struct sl_block_dots *dots = sl_block_dots_available(i);
    const size_t n = w->blocks.rows, k = w->blocks.columns, middle = n / 2;
    void *room = array_of(sl_dot_rows_room(m, k), 1), *room_of_one = array_of(sl_dot_rows_room(1, k), 1);
    const struct sl_dot_rows x = sl_dot_rows_in(room, m, k), one = sl_dot_rows_in(room_of_one, 1, k);
    double *want = array_of(m * n, sizeof *want), *epsilon = array_of(m * n, sizeof *epsilon);
    float *got = floats(m * n), *alone = floats(n);
    dots->round(w->blocks.type, a, &x);
    expect_rounded(&x, a, what);
    multiply_plainly(w, &x, bias, want, epsilon);
    dots->multiply(&w->blocks, 0, middle, &x, bias, got);
    dots->multiply(&w->blocks, middle, n, &x, bias, got);
    for (size_t e = 0; e < m * n; e++) expect_close(what, e, got[e], (float)want[e], 0, (float)epsilon[e]);
    for (size_t r = 0; r < m; r++) {
        dots->round(w->blocks.type, a + r * k, &one);
        dots->multiply(&w->blocks, 0, n, &one, bias, alone);
        expect_bits(what, n, alone, got + r * n);
    }
    free(room);
    free(room_of_one);
    free(want);
    free(epsilon);
    free(got);
    free(alone);
}

static void dots_are_those_of_rounded_rows(void **state) {
    static const size_t shape[][3] = {{1, 1, 0}, {8, 2, 8}, {37, 4, 0}};
    struct numbers numbers = {43};
    float *a = random_floats(&numbers, MOST_ROWS * LONGEST, -1.0f, 1.0f);
    float *bias = random_floats(&numbers, 64, -1.0f, 1.0f);
    (void)state;
    memset(a, 0, 40 * sizeof *a); /* a group of zeros */
    for (const struct sl_quantized *type = sl_quantized_types; type->name; type++) {
        for (size_t s = 0; s < sizeof shape / sizeof *shape; s++) {
            const size_t k = shape[s][1] * (type->elements > 32 ? 256 : s % 2 ? 160 : 32);
            struct weights w = make(&numbers, type, shape[s][0], k, shape[s][2]);
            for (int i = 0; sl_block_dots_available(i); i++) {
                for (size_t m = 1; m <= MOST_ROWS; m += 4) {
                    char what[80];
                    snprintf(what, sizeof what, "dots %s [%zu, %zu], %zu rows, level %d", type->name, shape[s][0], k, m,
                             i);
                    check_dots(i, &w, m, a, s % 2 ? bias : NULL, what);
                }
            }
            release(&w);
        }
    }
    free(a);
    free(bias);
}

/* Long rows, more of them than a share has at most, and as many for each thread as have room
 * before shares become whole tiles: a row has the same bits alone and with other rows, with a crew and without. */
static void dots_have_their_bits_in_company(void **state) {
    enum { COUNT = 96, FEW = 35, WEIGHTS = 70, COLUMNS = 4608 };
    struct numbers numbers = {44};
    struct sl_crew *crew = sl_crew_open(3);
    float *a = random_floats(&numbers, COUNT * COLUMNS, -1.0f, 1.0f), *bias = random_floats(&numbers, WEIGHTS, -1, 1);
    float *alone = floats(COUNT * WEIGHTS), *together = floats(COUNT * WEIGHTS), *wide = floats(COUNT * WEIGHTS);
    void *room = array_of(sl_dot_rows_room(COUNT, COLUMNS), 1);
    (void)state;
    for (const struct sl_quantized *type = sl_quantized_types; type->name; type++) {
        struct weights w = make(&numbers, type, WEIGHTS, COLUMNS, 0);
        for (size_t r = 0; r < COUNT; r++)
            sl_block_dots_multiply(&w.blocks, 1, a + r * COLUMNS, bias, alone + r * WEIGHTS, room, NULL);
        sl_block_dots_multiply(&w.blocks, COUNT, a, bias, together, room, crew);
        expect_bits(type->name, COUNT * WEIGHTS, together, alone);
        memset(together, 0, COUNT * WEIGHTS * sizeof *together);
        sl_block_dots_multiply(&w.blocks, FEW, a, bias, together, room, crew);
        expect_bits(type->name, FEW * WEIGHTS, together, alone);
        sl_block_rows_multiply(&w.blocks, COUNT, a, bias, wide, NULL);
        double differ = 0, all = 0;
        for (size_t i = 0; i < COUNT * WEIGHTS; i++) {
            differ += ((double)wide[i] - alone[i]) * ((double)wide[i] - alone[i]);
            all += (double)wide[i] * wide[i];
        }
        expect_close(type->name, 0, (float)sqrt(differ / all), 0, 0, 0.01f);
        release(&w);
    }
    free(a);
    free(bias);
    free(alone);
    free(together);
    free(wide);
    free(room);
    sl_crew_close(crew);
}

static void dots_with_nan_are_nan(void **state) {
    struct numbers numbers = {45};
    struct weights w = make(&numbers, &sl_quantized_types[0], 3, 64, 0);
    float *a = random_floats(&numbers, 64, -1.0f, 1.0f), c[3];
    void *room = array_of(sl_dot_rows_room(1, 64), 1);
    (void)state;
    for (int i = 0; i < 2; i++) {
        a[40] = i ? NAN : INFINITY;
        sl_block_dots_multiply(&w.blocks, 1, a, NULL, c, room, NULL);
        for (size_t j = 0; j < 3; j++) assert_false(isfinite(c[j]));
    }
    free(a);
    free(room);
    release(&w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_are_those_of_floats),   cmocka_unit_test(crews_change_no_bit),
        cmocka_unit_test(dots_are_those_of_rounded_rows), cmocka_unit_test(dots_have_their_bits_in_company),
        cmocka_unit_test(dots_with_nan_are_nan),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
