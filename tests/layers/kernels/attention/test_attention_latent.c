/* test_attention_latent.c - attention over latents against plain attention: an oracle in double computes every head's
 * keys and values from the latents; at every level of this CPU. */
#include "tests/rigs/kernel_levels.h"
#include "tests/rigs/numbers.h"

#include "layers/kernels/kernels.h"
#include "spmd/base/crew.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

struct example {
    struct sl_latent_attention shape;
    size_t rows, columns;                      /* of all queries; of all heads */
    float *q, *q_rope, *cache, *kernel, *bias; /* kernel [latent, k | v], bias [k | v] */
    float *table, *o, *logsum;
    uint16_t *stored; /* the cache as bf16, if it is stored so */
    char name[160];
};

static struct example make(struct numbers *numbers, struct sl_latent_attention shape, float size) {
    const struct sl_latent_attention *s = &shape;
    struct example e = {.shape = shape, .rows = s->sequences * s->queries, .columns = s->heads * s->width};
    const size_t depth = s->latent + s->rope, keys = s->sequences * s->key_rows;
    const float range = sqrtf(3.0f / (float)s->latent);
    e.q = random_device_floats(numbers, e.rows * e.columns, -size, size);
    e.q_rope = random_device_floats(numbers, e.rows * s->heads * s->rope, -size, size);
    e.cache = random_device_floats(numbers, keys * depth, -size, size);
    e.kernel = random_device_floats(numbers, s->latent * 2 * e.columns, -range, range);
    e.bias = random_device_floats(numbers, 2 * e.columns, -1.0f, 1.0f);
    e.table = random_device_floats(numbers, s->latent * 2 * e.columns, -1.0f, 1.0f); /* results are overwritten */
    e.o = random_device_floats(numbers, e.rows * e.columns, -1.0f, 1.0f);
    e.logsum = random_device_floats(numbers, e.rows * s->heads, -1.0f, 1.0f);
    for (size_t key = 0; key < keys; key++) { /* unseen keys are NaN */
        if (key % s->key_rows < s->position + s->queries) continue;
        for (size_t c = 0; c < depth; c++) e.cache[key * depth + c] = NAN;
    }
    if (s->cached == SL_BF16) { /* the oracle reads the stored values */
        release_array(settle(e.kernel, s->latent * 2 * e.columns));
        e.stored = settle(e.cache, keys * depth);
    }
    snprintf(e.name, sizeof e.name, "%zu sequences of %zu from %zu in %zu, %zu heads %zu + %zu, latents of %zu",
             s->sequences, s->queries, s->position, s->key_rows, s->heads, s->width, s->rope, s->latent);
    return e;
}

static void release(struct example *e) {
    float *const arrays[] = {e->q, e->q_rope, e->cache, e->kernel, e->bias, e->table, e->o, e->logsum};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) release_array(arrays[i]);
    release_array(e->stored);
}

static void run_by(const struct sl_kernels *kernels, struct example *e, struct sl_crew *crew) {
    float *scratch = device_floats(kernels->latent->scratch(&e->shape) / sizeof(float));
    kernels->latent->absorb(e->shape.latent, e->columns, e->kernel, e->shape.cached, e->table);
    kernels->latent->forward(&e->shape, e->q, e->q_rope, e->stored ? (const void *)e->stored : e->cache, e->table,
                             e->bias + e->columns, e->o, e->logsum, scratch, crew);
    release_array(scratch);
}

static void run(const struct sl_kernels *kernels, struct example *e) { run_by(kernels, e, NULL); }

/* ---- the oracle ---- */

/* A sum, and the sum of its terms' magnitudes. */
struct sum {
    double value, magnitude;
};

/* COLUMN of [k | v] of a row of the cache. */
static struct sum expand(const struct example *e, size_t key, size_t column, bool biased) {
    const size_t latent = e->shape.latent, depth = latent + e->shape.rope;
    struct sum sum = {biased ? e->bias[column] : 0.0, biased ? fabs(e->bias[column]) : 0.0};
    for (size_t l = 0; l < latent; l++) {
        const double term = (double)e->cache[key * depth + l] * e->kernel[l * 2 * e->columns + column];
        sum.value += term;
        sum.magnitude += fabs(term);
    }
    return sum;
}

/* Returns a score with the bias of the keys, which the kernel leaves out. The magnitude is without it. */
static struct sum score(const struct example *e, size_t row, size_t head, size_t key) {
    const struct sl_latent_attention *s = &e->shape;
    const double scale = 1.0 / sqrt((double)(s->width + s->rope));
    struct sum sum = {0, 0};
    for (size_t c = 0; c < s->width; c++) {
        const size_t column = head * s->width + c;
        const double q = e->q[row * e->columns + column];
        sum.value += q * expand(e, key, column, true).value;
        sum.magnitude += fabs(q) * expand(e, key, column, false).magnitude;
    }
    for (size_t c = 0; c < s->rope; c++) {
        const double term = (double)e->q_rope[(row * s->heads + head) * s->rope + c] *
                            e->cache[key * (s->latent + s->rope) + s->latent + c];
        sum.value += term;
        sum.magnitude += fabs(term);
    }
    return (struct sum){scale * sum.value, scale * sum.magnitude};
}

/* Returns the error bound of floats, relative to the sum of magnitudes, with u = 2^-24. A score is a sum of width
 * products in a sum of depth products, and is scaled: its error is at most (width + depth + 6) u S, with S its terms'
 * magnitudes. The error of its difference from the largest score is twice that, and so is the relative error of its
 * weight and of the sum of weights; the exponential adds 4 u to these, the sum keys u. The mean of the latents is a sum
 * of keys products, rescaled once a block, and o is one of latent products of these. */
static double tolerance(const struct sl_latent_attention *s, size_t keys, double magnitude) {
    const double weight = 2.0 * (double)(s->width + s->latent + s->rope + 6) * magnitude + 4.0;
    return (2.0 * weight + 2.0 * (double)keys + (double)keys / 32.0 + (double)s->latent + 4.0) * 0x1p-24;
}

/* Returns the part of a score from the bias of the keys. */
static double score_of_bias(const struct example *e, size_t row, size_t head) {
    const struct sl_latent_attention *s = &e->shape;
    double sum = 0;
    for (size_t c = head * s->width; c < (head + 1) * s->width; c++)
        sum += (double)e->q[row * e->columns + c] * e->bias[c];
    return sum / sqrt((double)(s->width + s->rope));
}

static void check_head(const char *level, const struct example *e, size_t row, size_t head) {
    const struct sl_latent_attention *s = &e->shape;
    const size_t all = s->position + row % s->queries + 1, first = row / s->queries * s->key_rows;
    const size_t seen = all < s->key_rows ? all : s->key_rows;
    double *weight = array_of(seen, sizeof *weight), largest = -INFINITY, total = 0, magnitude = 0;
    for (size_t j = 0; j < seen; j++) {
        const struct sum one = score(e, row, head, first + j);
        weight[j] = one.value;
        largest = fmax(largest, one.value);
        magnitude = fmax(magnitude, one.magnitude);
    }
    for (size_t j = 0; j < seen; j++) total += weight[j] = exp(weight[j] - largest);
    const double logsum = largest + log(total) - score_of_bias(e, row, head);
    expect_close("logsum", row, e->logsum[head * e->rows + row], logsum, 0.0,
                 tolerance(s, seen, magnitude) * fmax(1.0, fabs(logsum)));
    for (size_t c = 0; c < s->width; c++) {
        const size_t at = row * e->columns + head * s->width + c;
        struct sum o = {0, 0};
        for (size_t j = 0; j < seen; j++) {
            const struct sum value = expand(e, first + j, e->columns + head * s->width + c, true);
            o.value += weight[j] / total * value.value;
            o.magnitude += weight[j] / total * value.magnitude;
        }
        char name[240];
        snprintf(name, sizeof name, "%s, %s, o", level, e->name);
        expect_close(name, at, e->o[at], o.value, 0.0, tolerance(s, seen, magnitude) * o.magnitude);
    }
    free(weight);
}

static void check_as(enum sl_dtype cached, struct numbers *numbers, struct sl_latent_attention shape, float size) {
    shape.cached = cached;
    struct example e = make(numbers, shape, size);
    FOR_EACH_LEVEL(kernels) {
        run(kernels, &e);
        for (size_t row = 0; row < e.rows; row++) {
            for (size_t head = 0; head < shape.heads; head++) check_head(kernels->name, &e, row, head);
        }
    }
    release(&e);
}

static void check(struct numbers *numbers, struct sl_latent_attention shape, float size) {
    check_as(SL_F32, numbers, shape, size);
    check_as(SL_BF16, numbers, shape, size);
}

/* ---- tests ---- */

/* Numbers of heads that fill a quarter of a vector, half of one, one, and more; columns that do not fill a vector. */
static void equals_the_oracle(void **state) {
    (void)state;
    struct numbers numbers = {1};
    const size_t heads[] = {1, 2, 3, 4, 6, 8, 16, 17, 40};
    const size_t columns[][3] = {{32, 16, 64}, {4, 2, 6}, {5, 0, 20}, {8, 6, 7}}; /* width, rope, latent */
    for (size_t h = 0; h < sizeof heads / sizeof *heads; h++) {
        for (size_t c = 0; c < sizeof columns / sizeof *columns; c++) {
            const size_t position = next_word(&numbers) % 40, queries = 1 + h % 2;
            check(&numbers,
                  (struct sl_latent_attention){1 + c % 2, queries, position, position + queries + c, heads[h],
                                               columns[c][0], columns[c][1], columns[c][2], SL_F32},
                  1.0f);
        }
    }
}

/* Numbers around the ends of blocks of 64 keys and of groups of 8; and many, for several teams of a GPU. */
static void any_number_of_keys_is_seen(void **state) {
    (void)state;
    struct numbers numbers = {2};
    const size_t positions[] = {0, 6, 7, 8, 62, 63, 64, 65, 127, 128, 200, 700, 1023};
    for (size_t i = 0; i < sizeof positions / sizeof *positions; i++) {
        const size_t queries = i % 3 ? 1 : 3, heads = i % 2 ? 8 : 4;
        check(&numbers,
              (struct sl_latent_attention){2, queries, positions[i], positions[i] + queries, heads, 8, 4, 16, SL_F32},
              1.0f);
    }
}

/* Queries beyond the last row see all rows: of one block, and of several. */
static void rows_may_end_before_the_queries(void **state) {
    (void)state;
    struct numbers numbers = {8};
    check(&numbers, (struct sl_latent_attention){1, 5, 20, 20, 8, 8, 4, 16, SL_F32}, 1.0f);
    check(&numbers, (struct sl_latent_attention){2, 3, 700, 701, 4, 8, 4, 16, SL_F32}, 1.0f);
    check(&numbers, (struct sl_latent_attention){2, 140, 60, 64, 3, 5, 2, 7, SL_F32}, 1.0f);
}

/* Products too wide for one piece: more than 64 heads; widths and latents that do not fill a vector. */
static void wide_shapes_equal_the_oracle(void **state) {
    (void)state;
    struct numbers numbers = {3};
    check(&numbers, (struct sl_latent_attention){1, 1, 20, 21, 130, 3, 2, 9, SL_F32}, 1.0f);
    check(&numbers, (struct sl_latent_attention){1, 1, 70, 80, 2, 150, 10, 101, SL_F32}, 1.0f);
    check(&numbers, (struct sl_latent_attention){1, 1, 9, 10, 8, 64, 32, 512, SL_F32}, 1.0f);
}

/* So many rows that each has a team of a GPU to itself: heads and columns that fill vectors, and others. */
static void many_rows_equal_the_oracle(void **state) {
    (void)state;
    struct numbers numbers = {7};
    check(&numbers, (struct sl_latent_attention){132, 2, 3, 6, 3, 5, 2, 7, SL_F32}, 1.0f);
    check(&numbers, (struct sl_latent_attention){264, 1, 1, 2, 2, 36, 4, 44, SL_F32}, 1.0f);
    check(&numbers, (struct sl_latent_attention){4, 66, 4, 72, 1, 20, 0, 37, SL_F32}, 1.0f);
    check(&numbers, (struct sl_latent_attention){264, 1, 1, 2, 5, 7, 2, 10, SL_F32}, 1.0f);
}

/* Scores beyond +-100, for which exp overflows; and equal keys. */
static void large_scores_do_not_overflow(void **state) {
    (void)state;
    struct numbers numbers = {4};
    check(&numbers, (struct sl_latent_attention){1, 2, 90, 92, 8, 16, 8, 32, SL_F32}, 12.0f);
    check(&numbers, (struct sl_latent_attention){1, 2, 90, 92, 8, 16, 8, 32, SL_F32}, 0.0f);
}

/* A sequence's queries have the same bits as alone. */
static void a_query_alone_has_the_same_bits(void **state) {
    (void)state;
    struct numbers numbers = {5};
    struct example all = make(&numbers, (struct sl_latent_attention){2, 70, 3, 80, 8, 16, 8, 32, SL_F32}, 1.0f),
                   one = all;
    FOR_EACH_LEVEL(kernels) {
        run(kernels, &all);
        for (size_t row = 0; row < all.rows; row++) {
            one.shape = (struct sl_latent_attention){1, 1, 3 + row % 70, 80, 8, 16, 8, 32, SL_F32};
            one.q = all.q + row * all.columns;
            one.q_rope = all.q_rope + row * 8 * 8;
            one.cache = all.cache + row / 70 * 80 * 40;
            one.o = device_floats(all.columns);
            run(kernels, &one);
            assert_memory_equal(one.o, all.o + row * all.columns, all.columns * sizeof *one.o);
            release_array(one.o);
        }
    }
    release(&all);
}

/* Shapes that a crew divides: heads that fill half a vector, a quarter, more than one, and numbers that the threads do
 * not divide; keys of one block, of several, and of several spans. */
static void a_crew_changes_no_bit(void **state) {
    (void)state;
    struct numbers numbers = {6};
    const size_t shapes[][5] = {
        {8, 32, 16, 64, 190}, {4, 64, 16, 64, 9}, {17, 32, 0, 64, 64}, {3, 80, 6, 64, 130}, {40, 7, 2, 70, 1100}};
    const int threads[] = {2, 3, 5, 12};
    for (size_t i = 0; i < 2 * sizeof shapes / sizeof *shapes; i++) {
        const size_t *s = shapes[i / 2];
        const enum sl_dtype cached = i % 2 ? SL_BF16 : SL_F32;
        struct example e =
            make(&numbers, (struct sl_latent_attention){2, 2, s[4], s[4] + 2, s[0], s[1], s[2], s[3], cached}, 1.0f);
        float *alone = e.o, *shared = device_floats(e.rows * e.columns);
        float *logsum = e.logsum, *shared_logsum = device_floats(e.rows * s[0]);
        FOR_EACH_LEVEL(kernels) {
            e.o = alone;
            e.logsum = logsum;
            run(kernels, &e);
            e.o = shared;
            e.logsum = shared_logsum;
            for (size_t t = 0; t < sizeof threads / sizeof *threads; t++) {
                struct sl_crew *crew = sl_crew_open(threads[t]);
                memset(shared, 0, e.rows * e.columns * sizeof *shared);
                memset(shared_logsum, 0, e.rows * s[0] * sizeof *shared_logsum);
                run_by(kernels, &e, crew);
                sl_crew_close(crew);
                assert_memory_equal(shared, alone, e.rows * e.columns * sizeof *shared);
                assert_memory_equal(shared_logsum, logsum, e.rows * s[0] * sizeof *logsum);
            }
        }
        e.o = alone;
        e.logsum = logsum;
        release_array(shared);
        release_array(shared_logsum);
        release(&e);
    }
}

int main(void) {
    cmocka_set_message_output(CM_OUTPUT_TAP);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equals_the_oracle),
        cmocka_unit_test(any_number_of_keys_is_seen),
        cmocka_unit_test(rows_may_end_before_the_queries),
        cmocka_unit_test(wide_shapes_equal_the_oracle),
        cmocka_unit_test(many_rows_equal_the_oracle),
        cmocka_unit_test(large_scores_do_not_overflow),
        cmocka_unit_test(a_query_alone_has_the_same_bits),
        cmocka_unit_test(a_crew_changes_no_bit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
