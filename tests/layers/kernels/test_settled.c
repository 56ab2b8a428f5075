/* test_settled.c - results of attention, rotations, gates, biases and rows of tables that are rounded to bf16 after
 * they are complete, and results in bf16 only, at every level of this CPU: they equal the unrounded results,
 * rounded. */
#include "tests/rigs/numbers.h"

#include "layers/kernels/kernels.h"

#include <string.h>

static const float UNTOUCHED = 12345.0f;

static uint16_t *halves(size_t n) { return memset(device_floats((n + 1) / 2), 0xab, n * sizeof(uint16_t)); }

static float *copy_of(const float *x, size_t n) { return memcpy(floats(n), x, n * sizeof *x); }

/* The first COLS columns of rows of STRIDE; STORED: or NULL. */
static void expect_settled(size_t rows, size_t cols, size_t stride, const float *plain, const float *settled,
                           const uint16_t *stored) {
    for (size_t i = 0; i < rows * cols; i++) {
        const size_t at = i / cols * stride + i % cols;
        const uint16_t rounded = sl_bf16_of_float(plain[at]);
        assert_true(settled[at] == sl_float_of_bf16(rounded));
        if (stored) assert_int_equal(stored[at], rounded);
    }
}

/* ---- attention ---- */

/* kv [rows, k | v | one unused column] */
struct example {
    struct sl_attention shape;
    size_t rows, cols, keys; /* cols: of q; keys: columns of k, and of v */
    float *q, *q_rope, *kv, *rope, *o, *logsum, *d_o, *dq, *dq_rope, *dkv, *drope, *scratch;
};

static struct example make(struct numbers *numbers, struct sl_attention shape) {
    struct example e = {.shape = shape, .rows = shape.sequences * shape.queries, .cols = shape.heads * shape.width};
    e.keys = sl_attention_key_heads(&shape) * shape.width;
    e.shape.key_stride = 2 * e.keys + 1;
    const size_t roped = e.rows * shape.heads * shape.rope, keys = e.rows * e.shape.key_stride;
    e.q = random_device_floats(numbers, e.rows * e.cols, -1.0f, 1.0f);
    e.q_rope = random_device_floats(numbers, roped, -1.0f, 1.0f);
    e.kv = random_device_floats(numbers, keys, -1.0f, 1.0f);
    e.rope = random_device_floats(numbers, e.rows * shape.rope, -1.0f, 1.0f);
    e.d_o = random_device_floats(numbers, e.rows * e.cols, -1.0f, 1.0f);
    e.o = device_floats(e.rows * e.cols);
    e.logsum = device_floats(e.rows * shape.heads);
    e.dq = device_floats(e.rows * e.cols);
    e.dq_rope = device_floats(roped);
    e.dkv = random_device_floats(numbers, keys, UNTOUCHED, UNTOUCHED);
    e.drope = device_floats(e.rows * shape.rope);
    e.scratch = device_floats(sl_kernels_select()->attention->scratch(&shape) / sizeof(float));
    return e;
}

static void release(struct example *e) {
    float *const arrays[] = {e->q,   e->q_rope, e->kv,      e->rope, e->o,     e->logsum,
                             e->d_o, e->dq,     e->dq_rope, e->dkv,  e->drope, e->scratch};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) release_array(arrays[i]);
}

static void run_forward(const struct sl_kernels *kernels, const struct example *e, struct sl_out o) {
    kernels->attention->forward(&e->shape, e->q, e->q_rope, e->kv, e->kv + e->keys, e->rope, o, e->logsum);
}

/* Rounds the arrays to bf16 and saves the bf16 copies, which backward reads. */
static void store_inputs(struct example *e, uint16_t *stored[4]) {
    const size_t heads = e->shape.heads, rope = e->shape.rope;
    const size_t counts[] = {e->rows * e->cols, e->rows * heads * rope, e->rows * e->shape.key_stride, e->rows * rope};
    float *const arrays[] = {e->q, e->q_rope, e->kv, e->rope};
    for (int i = 0; i < 4; i++) {
        stored[i] = halves(counts[i]);
        for (size_t at = 0; at < counts[i]; at++) sl_settle(arrays[i], stored[i], at);
    }
}

static void run_stored_backward(const struct sl_kernels *kernels, const struct example *e, uint16_t *const stored[4]) {
    struct sl_attention shape = e->shape;
    shape.stored = SL_BF16;
    kernels->attention->backward(&shape, stored[0], stored[1], stored[2], stored[2] + e->keys, stored[3], e->o,
                                 e->logsum, e->d_o, sl_out_f32(e->dq), e->dq_rope, sl_out_f32(e->dkv),
                                 sl_out_f32(e->dkv + e->keys), e->drope, e->scratch);
}

/* DKV: [dk | dv]. */
static void run_backward(const struct sl_kernels *kernels, const struct example *e, struct sl_rows o, struct sl_out dq,
                         struct sl_out dkv) {
    struct sl_attention shape = e->shape;
    shape.stored_o = o.type;
    kernels->attention->backward(&shape, e->q, e->q_rope, e->kv, e->kv + e->keys, e->rope, o.at, e->logsum, e->d_o, dq,
                                 e->dq_rope, dkv, sl_out_from(dkv, e->keys), e->drope, e->scratch);
}

/* Backward with o as bf16 equals backward with the same values as floats. */
static void check_attention(const struct sl_kernels *kernels, struct numbers *numbers, struct sl_attention shape) {
    struct example e = make(numbers, shape);
    const size_t wide = e.rows * e.cols, stride = e.shape.key_stride, keys = e.rows * stride;
    uint16_t *o_stored = halves(wide), *dq_stored = halves(wide), *dkv_stored = halves(keys);
    run_forward(kernels, &e, sl_out_f32(e.o));
    float *o = copy_of(e.o, wide);
    run_forward(kernels, &e, sl_out_of(e.o, true, NULL));
    expect_settled(e.rows, e.cols, e.cols, o, e.o, NULL);
    run_forward(kernels, &e, sl_out_of(e.o, true, o_stored));
    expect_settled(e.rows, e.cols, e.cols, o, e.o, o_stored);
    run_backward(kernels, &e, sl_rows_f32(e.o), sl_out_f32(e.dq), sl_out_f32(e.dkv));
    float *dq = copy_of(e.dq, wide), *dkv = copy_of(e.dkv, keys);
    run_backward(kernels, &e, sl_rows_bf16(o_stored), sl_out_of(e.dq, true, dq_stored),
                 sl_out_of(e.dkv, true, dkv_stored));
    expect_settled(e.rows, e.cols, e.cols, dq, e.dq, dq_stored);
    expect_settled(e.rows, 2 * e.keys, stride, dkv, e.dkv, dkv_stored);
    for (size_t row = 1; row <= e.rows; row++) {
        assert_true(e.dkv[row * stride - 1] == UNTOUCHED);
        assert_int_equal(dkv_stored[row * stride - 1], 0xabab);
    }
    uint16_t *const stored[] = {o_stored, dq_stored, dkv_stored};
    for (int i = 0; i < 3; i++) release_array(stored[i]);
    free(o);
    free(dq);
    free(dkv);
    release(&e);
}

/* A bf16 copy beside unrounded floats equals these, rounded. */
static void check_beside(const struct sl_kernels *kernels, struct numbers *numbers, struct sl_attention shape) {
    struct example e = make(numbers, shape);
    const size_t wide = e.rows * e.cols;
    uint16_t *stored = halves(wide);
    run_forward(kernels, &e, sl_out_f32(e.o));
    float *o = copy_of(e.o, wide);
    run_forward(kernels, &e, sl_out_of(e.o, false, stored));
    assert_memory_equal(e.o, o, wide * sizeof *o);
    for (size_t i = 0; i < wide; i++) assert_int_equal(stored[i], sl_bf16_of_float(o[i]));
    release_array(stored);
    free(o);
    release(&e);
}

/* Gradients of bf16 inputs equal those of the same values as floats, bit for bit. */
static void check_stored(const struct sl_kernels *kernels, struct numbers *numbers, struct sl_attention shape) {
    struct example e = make(numbers, shape);
    const size_t wide = e.rows * e.cols, keys = e.rows * e.shape.key_stride, rope = e.rows * shape.rope;
    uint16_t *stored[4];
    store_inputs(&e, stored);
    run_forward(kernels, &e, sl_out_f32(e.o));
    run_backward(kernels, &e, sl_rows_f32(e.o), sl_out_f32(e.dq), sl_out_f32(e.dkv));
    float *const arrays[] = {e.dq, e.dkv, e.dq_rope, e.drope};
    const size_t counts[] = {wide, keys, rope * shape.heads, rope};
    float *copies[4];
    for (int i = 0; i < 4; i++) {
        copies[i] = copy_of(arrays[i], counts[i]);
        if (i != 1) memset(arrays[i], 0, counts[i] * sizeof(float));
    }
    run_stored_backward(kernels, &e, stored);
    for (int i = 0; i < 4; i++) assert_memory_equal(arrays[i], copies[i], counts[i] * sizeof(float));
    for (int i = 0; i < 4; i++) {
        free(copies[i]);
        release_array(stored[i]);
    }
    release(&e);
}

static void attention_reads_what_is_stored(void **state) {
    (void)state;
    static const size_t widths[] = {20, 64, 128, 33};
    struct numbers numbers = {6};
    const struct sl_kernels *kernels;
    for (int level = 0; (kernels = sl_kernels_available(level)); level++) {
        for (int i = 0; i < 8; i++) {
            struct sl_attention shape = {.sequences = 2,
                                         .queries = i % 2 ? 150 : 40,
                                         .key_rows = i % 2 ? 150 : 40,
                                         .heads = 6,
                                         .width = widths[i / 2],
                                         .rope = i % 3 ? 8 : 0,
                                         .window = i == 5 ? 30 : 0};
            if (i % 4 == 3) shape.group = 3, shape.lead = 1;
            if (kernels->attention->reads_stored(&shape)) check_stored(kernels, &numbers, shape);
        }
        const struct sl_attention wide = {.width = 2000};
        assert_false(kernels->attention->reads_stored(&wide));
    }
}

static void attention_is_rounded(void **state) {
    (void)state;
    const size_t queries[] = {3, 40, 150}; /* few; of one block; of several */
    struct numbers numbers = {1};
    const struct sl_kernels *kernels;
    for (int level = 0; (kernels = sl_kernels_available(level)); level++) {
        for (size_t i = 0; i < 3; i++) {
            struct sl_attention shape = {.sequences = 2,
                                         .queries = queries[i],
                                         .key_rows = queries[i],
                                         .heads = 6,
                                         .width = 20,
                                         .rope = i == 1 ? 8 : 0};
            check_attention(kernels, &numbers, shape);
            check_beside(kernels, &numbers, shape);
            shape.group = 3; /* heads with shared keys, whose gradient is complete after the last head */
            shape.lead = 1;
            check_attention(kernels, &numbers, shape);
            check_beside(kernels, &numbers, shape);
        }
    }
}

/* ---- rotations ---- */

enum { ROWS = 15, SEQUENCE = 5, CLASSES = 7 };

enum {
    ROWS_AS_ONE,
    NEIGHBOURS,
    HALVES,
    WAYS
}; /* rope; rotate_heads with pairs of neighbours, or of halves of a head */

static void rotate(const struct sl_kernels *kernels, int way, size_t cols, const float *angles, struct sl_out x) {
    const float *sine = angles + SEQUENCE * cols / 2;
    if (way != ROWS_AS_ONE)
        kernels->published->rotate_heads(ROWS, 1, cols, SEQUENCE, 0, NULL, way == HALVES, angles, sine, false, x);
    else
        kernels->sequence->rope(ROWS, cols, SEQUENCE, 0, NULL, angles, sine, true, sl_out_floats(x), x);
}

static void rotations_are_rounded(void **state) {
    (void)state;
    const size_t cols_of[] = {2, 10, 64, 260}; /* at last more pairs than a GPU's team has threads */
    struct numbers numbers = {2};
    const struct sl_kernels *kernels;
    for (int level = 0; (kernels = sl_kernels_available(level)); level++) {
        for (size_t i = 0; i < 4 * 2 * WAYS; i++) {
            const size_t cols = cols_of[i / (2 * WAYS)], n = ROWS * cols;
            const int way = (int)(i / 2 % WAYS);
            float *angles = random_device_floats(&numbers, SEQUENCE * cols, -1.0f, 1.0f);
            float *x = random_device_floats(&numbers, n, -2.0f, 2.0f), *plain = device_copy(x, n * sizeof *x);
            uint16_t *stored = halves(n), *copy = i % 2 ? stored : NULL;
            rotate(kernels, way, cols, angles, sl_out_f32(plain));
            rotate(kernels, way, cols, angles, sl_out_of(x, true, copy));
            expect_settled(ROWS, cols, cols, plain, x, copy);
            release_array(plain);
            release_array(angles);
            release_array(x);
            release_array(stored);
        }
    }
}

/* ---- rows of a table ---- */

/* Rows of floats or bf16, and the looked-up rows, some of which do not exist. */
struct table {
    struct sl_rows rows;
    size_t cols;
    int32_t *numbers; /* [ROWS] */
};

static void check_lookup(const struct sl_kernels *kernels, const struct table *t) {
    const size_t n = ROWS * t->cols;
    float *y = device_floats(n), *rounded = device_floats(n);
    uint16_t *stored = halves(n), *alone = halves(n);
    for (int i = 0; i < 2; i++) {
        uint16_t *copy = i ? stored : NULL;
        kernels->sequence->lookup(ROWS, t->cols, t->numbers, 1, CLASSES, t->rows, t->cols, sl_out_f32(y));
        kernels->sequence->lookup(ROWS, t->cols, t->numbers, 1, CLASSES, t->rows, t->cols,
                                  sl_out_of(rounded, true, copy));
        expect_settled(ROWS, t->cols, t->cols, y, rounded, copy);
    }
    kernels->sequence->lookup(ROWS, t->cols, t->numbers, 1, CLASSES, t->rows, t->cols, sl_out_bf16(alone));
    assert_memory_equal(alone, stored, n * sizeof *alone);
    for (int i = 0; i < 4; i++) release_array((void *[]){y, rounded, stored, alone}[i]);
}

static void check_softmax_gradient(const struct sl_kernels *kernels, struct numbers *numbers, const struct table *t) {
    const size_t n = ROWS * t->cols;
    float *sums = random_device_floats(numbers, ROWS, 1, 9), *scales = random_device_floats(numbers, ROWS, 0, 1);
    float *dx = random_device_floats(numbers, n, -3, 3);
    uint16_t *stored = halves(n);
    for (int i = 0; i < 2; i++) {
        uint16_t *copy = i ? stored : NULL;
        float *y[] = {device_copy(dx, n * sizeof *dx), device_copy(dx, n * sizeof *dx)};
        for (int l = 0; l < 2; l++)
            kernels->sequence->softmax_gradient(ROWS, t->cols, t->numbers, 1, CLASSES, sums, scales, 0.25f, t->rows,
                                                l ? sl_out_of(y[l], true, copy) : sl_out_f32(y[l]));
        expect_settled(ROWS, t->cols, t->cols, y[0], y[1], copy);
        for (int l = 0; l < 2; l++) release_array(y[l]);
    }
    for (int i = 0; i < 4; i++) release_array((void *[]){sums, scales, dx, stored}[i]);
}

static void rows_of_tables_are_rounded(void **state) {
    (void)state;
    const size_t cols_of[] = {1, 10, 64, 130};
    struct numbers numbers = {7};
    const struct sl_kernels *kernels;
    int32_t *const rows = device_array(ROWS, sizeof *rows);
    for (int r = 0; r < ROWS; r++) rows[r] = r % (CLASSES + 3) - 1; /* none, before, among and behind the table's */
    for (int level = 0; (kernels = sl_kernels_available(level)); level++) {
        for (size_t i = 0; i < 8; i++) {
            const size_t cols = cols_of[i / 2], n = CLASSES * cols;
            float *table = random_device_floats(&numbers, n, -2, 2);
            uint16_t *rounded = device_array(n, sizeof *rounded);
            for (size_t e = 0; e < n; e++) rounded[e] = sl_bf16_of_float(table[e]);
            const struct table taken = {i % 2 ? sl_rows_bf16(rounded) : sl_rows_f32(table), cols, rows};
            check_lookup(kernels, &taken);
            check_softmax_gradient(kernels, &numbers, &taken);
            release_array(table);
            release_array(rounded);
        }
    }
    release_array(rows);
}

/* ---- gates ---- */

/* Lengths that fill blocks of the CPU's kernels, and others. */
static const size_t lengths[] = {1, 33, 1024, 1025, 2500};
enum { LENGTHS = sizeof lengths / sizeof *lengths };

/* Rounds X to bf16 in place. Returns the bf16 copy. */
static uint16_t *halves_of(float *x, size_t n) {
    uint16_t *stored = halves(n);
    for (size_t i = 0; i < n; i++) sl_settle(x, stored, i);
    return stored;
}

static void gate_results_are_rounded(void **state) {
    (void)state;
    struct numbers numbers = {3};
    const struct sl_kernels *kernels;
    for (int level = 0; (kernels = sl_kernels_available(level)); level++) {
        for (int i = 0; i < 2 * LENGTHS; i++) {
            const size_t n = lengths[i / 2];
            float *gate = random_device_floats(&numbers, n, -9.0f, 9.0f);
            float *x = random_device_floats(&numbers, n, -2.0f, 2.0f);
            float *plain = device_floats(n), *y = device_floats(n);
            uint16_t *stored = halves(n), *copy = i % 2 ? stored : NULL;
            const struct sl_out to = sl_out_of(y, true, copy);
            kernels->published->gate_forward(n, sl_out_f32(gate), sl_out_f32(x), sl_out_f32(plain));
            kernels->published->gate_forward(n, sl_out_f32(gate), sl_out_f32(x), to);
            expect_settled(1, n, n, plain, y, copy);
            if (copy) {
                uint16_t *alone = halves(n);
                kernels->published->gate_forward(n, sl_out_f32(gate), sl_out_f32(x), sl_out_bf16(alone));
                assert_memory_equal(alone, stored, n * sizeof *alone);
                release_array(alone);
            }
            float *gate_plain = copy_of(gate, n), *x_plain = copy_of(x, n);
            uint16_t *gate_stored = halves(n), *x_stored = halves(n);
            uint16_t *gate_copy = i % 2 ? gate_stored : NULL, *x_copy = i % 2 ? NULL : x_stored;
            kernels->published->gate_forward(n, sl_out_of(gate, true, gate_copy), sl_out_of(x, true, x_copy),
                                             to); /* rounds its inputs first */
            expect_settled(1, n, n, gate_plain, gate, gate_copy);
            expect_settled(1, n, n, x_plain, x, x_copy);
            kernels->published->gate_forward(n, sl_out_f32(gate), sl_out_f32(x), sl_out_f32(plain));
            expect_settled(1, n, n, plain, y, copy);
            void *const arrays[] = {gate, x, plain, y, stored, gate_stored, x_stored};
            for (int a = 0; a < 7; a++) release_array(arrays[a]);
            free(gate_plain);
            free(x_plain);
        }
    }
}

/* Gradients of bf16 inputs equal those of the same values as floats; each of the two gradients may have a bf16 copy. */
static void gate_gradients_are_rounded(void **state) {
    (void)state;
    struct numbers numbers = {4};
    const struct sl_kernels *kernels;
    for (int level = 0; (kernels = sl_kernels_available(level)); level++) {
        for (int i = 0; i < 4 * LENGTHS; i++) {
            const size_t n = lengths[i / 4];
            float *gate = random_device_floats(&numbers, n, -9.0f, 9.0f);
            float *x = random_device_floats(&numbers, n, -2.0f, 2.0f);
            float *dy = random_device_floats(&numbers, n, -2.0f, 2.0f);
            float *plain[] = {device_floats(n), device_floats(n)}, *to[] = {device_floats(n), device_floats(n)};
            uint16_t *stored[] = {halves(n), halves(n)}, *gate_stored = halves_of(gate, n), *x_stored = halves_of(x, n);
            uint16_t *const copy[] = {i & 1 ? stored[0] : NULL, i & 2 ? stored[1] : NULL};
            const struct sl_rows from[2][2] = {{sl_rows_f32(gate), sl_rows_f32(x)},
                                               {sl_rows_bf16(gate_stored), sl_rows_bf16(x_stored)}};
            kernels->published->gate_backward(n, from[0][0], from[0][1], dy, sl_out_f32(plain[0]),
                                              sl_out_f32(plain[1]));
            kernels->published->gate_backward(n, from[1][0], from[1][1], dy, sl_out_f32(to[0]), sl_out_f32(to[1]));
            for (int g = 0; g < 2; g++) assert_memory_equal(to[g], plain[g], n * sizeof **to);
            kernels->published->gate_backward(n, from[1][0], from[1][1], dy, sl_out_of(to[0], true, copy[0]),
                                              sl_out_of(to[1], true, copy[1]));
            for (int g = 0; g < 2; g++) expect_settled(1, n, n, plain[g], to[g], copy[g]);
            for (int half = 0; half < 2 && copy[0] && copy[1]; half++) {
                uint16_t *alone[] = {halves(n), halves(n)};
                kernels->published->gate_backward(n, from[half][0], from[half][1], dy, sl_out_bf16(alone[0]),
                                                  sl_out_bf16(alone[1]));
                for (int g = 0; g < 2; g++) assert_memory_equal(alone[g], stored[g], n * sizeof **alone);
                for (int g = 0; g < 2; g++) release_array(alone[g]);
            }
            void *const arrays[] = {gate,  x,         dy,        plain[0],    plain[1], to[0],
                                    to[1], stored[0], stored[1], gate_stored, x_stored};
            for (int a = 0; a < 11; a++) release_array(arrays[a]);
        }
    }
}

/* ---- biases ---- */

static void sums_with_biases_are_rounded(void **state) {
    (void)state;
    enum { COLUMNS = 300, STRIDE = 303 };
    struct numbers numbers = {5};
    const struct sl_kernels *kernels;
    for (int level = 0; (kernels = sl_kernels_available(level)); level++) {
        for (int i = 0; i < 2; i++) {
            float *bias = random_device_floats(&numbers, COLUMNS, -2.0f, 2.0f);
            float *y = random_device_floats(&numbers, ROWS * STRIDE, -2.0f, 2.0f);
            float *plain = device_copy(y, ROWS * STRIDE * sizeof *y);
            uint16_t *stored = halves(ROWS * STRIDE), *copy = i ? stored : NULL;
            kernels->sequence->add_bias(ROWS, COLUMNS, bias, sl_out_f32(plain), STRIDE);
            kernels->sequence->add_bias(ROWS, COLUMNS, bias, sl_out_of(y, true, copy), STRIDE);
            expect_settled(ROWS, COLUMNS, STRIDE, plain, y, copy);
            for (size_t at = 0; at < ROWS * STRIDE; at++) {
                if (at % STRIDE < COLUMNS) continue;
                assert_true(y[at] == plain[at]);
                assert_int_equal(stored[at], 0xabab);
            }
            release_array(bias);
            release_array(y);
            release_array(plain);
            release_array(stored);
        }
    }
}

/* ---- operands ---- */

static void expect_rounded(size_t n, const float *plain, const uint16_t *rounded) {
    for (size_t i = 0; i < n; i++) assert_int_equal(rounded[i], sl_bf16_of_float(plain[i]));
}

/* Slopes are not rounded. */
static void check_silu(const struct sl_kernels *kernels, size_t n, const float *x) {
    float *y = device_floats(n), *slope = device_floats(n), *same = device_floats(n);
    uint16_t *rounded = halves(n);
    kernels->operands->silu(n, sl_rows_f32(x), sl_out_f32(y), sl_rows_f32(slope));
    kernels->operands->silu(n, sl_rows_f32(x), sl_out_bf16(rounded), sl_rows_f32(same));
    sl_device.settle(NULL);
    expect_rounded(n, y, rounded);
    assert_memory_equal(same, slope, n * sizeof *slope);
    void *const arrays[] = {y, slope, same, rounded};
    for (int a = 0; a < 4; a++) release_array(arrays[a]);
}

static void check_operands(const struct sl_kernels *kernels, size_t n, const float *x, const float *dy) {
    float *plain = device_floats(n);
    uint16_t *rounded = halves(n);
    kernels->operands->multiply(n, sl_rows_f32(x), sl_rows_f32(dy), sl_out_f32(plain));
    kernels->operands->multiply(n, sl_rows_f32(x), sl_rows_f32(dy), sl_out_bf16(rounded));
    sl_device.settle(NULL);
    expect_rounded(n, plain, rounded);
    kernels->sequence->gelu_forward(n, sl_rows_f32(x), NULL, sl_out_f32(plain));
    kernels->sequence->gelu_forward(n, sl_rows_f32(x), NULL, sl_out_bf16(rounded));
    sl_device.settle(NULL);
    expect_rounded(n, plain, rounded);
    kernels->sequence->gelu_backward(n, sl_rows_f32(x), sl_rows_f32(dy), sl_out_f32(plain));
    kernels->sequence->gelu_backward(n, sl_rows_f32(x), sl_rows_f32(dy), sl_out_bf16(rounded));
    sl_device.settle(NULL);
    expect_rounded(n, plain, rounded);
    release_array(plain);
    release_array(rounded);
}

static void check_layer_norm(const struct sl_kernels *kernels, size_t rows, size_t cols, const float *x) {
    const size_t n = rows * cols;
    float *scale = device_floats(cols), *unit = device_floats(n), *same = device_floats(n), *y = device_floats(n);
    float *rstd = device_floats(rows), *its = device_floats(rows);
    uint16_t *want = halves(n), *rounded = halves(n);
    for (size_t c = 0; c < cols; c++) scale[c] = 0.5f + x[c];
    kernels->norms->layer_norm_forward(rows, cols, sl_rows_f32(x), scale, x, 1e-6f, sl_rows_f32(unit), rstd,
                                       sl_out_f32(y));
    kernels->round_bf16(n, y, want);
    kernels->norms->layer_norm_forward(rows, cols, sl_rows_f32(x), scale, x, 1e-6f, sl_rows_f32(same), its,
                                       sl_out_bf16(rounded));
    sl_device.settle(NULL);
    assert_memory_equal(same, unit, n * sizeof *same);
    assert_memory_equal(its, rstd, rows * sizeof *its);
    assert_memory_equal(rounded, want, n * sizeof *rounded);
    void *const taken[] = {scale, unit, same, y, rstd, its, want, rounded};
    for (size_t i = 0; i < sizeof taken / sizeof *taken; i++) release_array(taken[i]);
}

static void operands_are_rounded(void **state) {
    (void)state;
    struct numbers numbers = {7};
    const struct sl_kernels *kernels;
    for (int level = 0; (kernels = sl_kernels_available(level)); level++) {
        for (int i = 0; i < LENGTHS; i++) {
            const size_t n = lengths[i];
            float *x = random_device_floats(&numbers, n, -9.0f, 9.0f);
            float *dy = random_device_floats(&numbers, n, -2.0f, 2.0f);
            check_operands(kernels, n, x, dy);
            check_layer_norm(kernels, 1, n, x);
            if (n >= 7) check_layer_norm(kernels, 7, n / 7, x); /* a team may have several rows */
            check_silu(kernels, n, x);
            release_array(x);
            release_array(dy);
        }
    }
}

int main(void) {
    cmocka_set_message_output(CM_OUTPUT_TAP);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(attention_is_rounded),       cmocka_unit_test(attention_reads_what_is_stored),
        cmocka_unit_test(rotations_are_rounded),      cmocka_unit_test(gate_results_are_rounded),
        cmocka_unit_test(gate_gradients_are_rounded), cmocka_unit_test(sums_with_biases_are_rounded),
        cmocka_unit_test(operands_are_rounded),       cmocka_unit_test(rows_of_tables_are_rounded)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
