/* test_decode_parts.c - attention of few queries to many keys, divided among teams of a GPU: against a loop in double,
 * and against the same sequence among many others, with which each team has a whole head of a query; and equal bits
 * from call to call. */
#include "tests/rigs/kernel_levels.h"
#include "tests/rigs/numbers.h"

/* Enough heads of queries for all teams of a GPU: SL_TEAMS of spmd/device/offload.h. */
enum { TEAMS = 264 };

struct arrays {
    float *q, *q_rope, *o, *logsum, *again;
    void *k, *v, *k_rope;
};

/* Returns COUNT random numbers, the same for each of SEQUENCES. */
static void *repeated(struct numbers numbers, enum sl_dtype dtype, size_t sequences, size_t count) {
    const size_t size = dtype == SL_BF16 ? sizeof(uint16_t) : sizeof(float);
    void *one = random_operand(&numbers, dtype, count);
    char *all = device_array(sequences * count, size);
    for (size_t s = 0; s < sequences; s++) memcpy(all + s * count * size, one, count * size);
    free(one);
    return all;
}

static struct arrays arrays_of(const struct sl_attention *shape) {
    const size_t rows = shape->queries, rope = shape->rope ? shape->rope : 1, n = shape->sequences;
    const size_t columns = shape->heads * shape->width;
    return (struct arrays){
        .q = repeated((struct numbers){1}, SL_F32, n, rows * columns),
        .q_rope = repeated((struct numbers){2}, SL_F32, n, rows * shape->heads * rope),
        .k = repeated((struct numbers){3}, shape->keys, n, shape->key_rows * shape->key_stride),
        .v = repeated((struct numbers){4}, shape->keys, n, shape->key_rows * shape->key_stride),
        .k_rope = repeated((struct numbers){5}, shape->keys, n, shape->key_rows * rope),
        .o = device_floats(n * rows * columns),
        .again = device_floats(n * rows * columns),
        .logsum = device_floats(n * rows * shape->heads),
    };
}

static void attend(const struct sl_kernels *kernels, const struct sl_attention *shape, const struct arrays *a,
                   float *o) {
    kernels->attention->forward(shape, a->q, a->q_rope, a->k, a->v, a->k_rope, sl_out_f32(o), a->logsum);
}

static void release(const struct arrays *a) {
    void *const taken[] = {a->q, a->q_rope, a->k, a->v, a->k_rope, a->o, a->again, a->logsum};
    for (size_t i = 0; i < sizeof taken / sizeof *taken; i++) release_array(taken[i]);
}

/* FEW, of SHAPE, against the first of MANY's sequences. */
static void expect_same(const struct sl_kernels *kernels, const struct sl_attention *shape,
                        const struct sl_attention *many, const struct arrays *few, const struct arrays *all) {
    const size_t rows = shape->queries, n = rows * shape->heads * shape->width;
    attend(kernels, shape, few, few->o);
    attend(kernels, shape, few, few->again);
    assert_memory_equal(few->o, few->again, n * sizeof *few->o);
    attend(kernels, many, all, all->o);
    for (size_t i = 0; i < n; i++) expect_close(kernels->name, i, few->o[i], all->o[i], 1e-5, 1e-6);
    for (size_t i = 0; i < rows * shape->heads; i++) {
        const size_t head = i / rows, row = i % rows;
        expect_close(kernels->name, i, few->logsum[i], all->logsum[head * rows * many->sequences + row], 1e-6, 1e-6);
    }
}

/* Element I of k, v or k_rope */
static double key_element(const struct sl_attention *shape, const void *x, size_t i) {
    return (double)sl_load_float(shape->keys, x, i);
}

/* HEAD of query ROW, of one sequence, by a loop over the keys that it sees. */
static void expect_head(const char *level, const struct sl_attention *shape, const struct arrays *a, size_t row,
                        size_t head) {
    const size_t width = shape->width, rope = shape->rope, end = shape->position + row + 1;
    const size_t first = shape->window && end > shape->window ? end - shape->window : 0;
    const size_t column = sl_attention_key_head(shape, head) * width, at = (row * shape->heads + head) * width;
    double *p = array_of(end, sizeof *p), largest = -INFINITY, sum = 0;
    for (size_t j = first; j < end; j++) {
        for (size_t c = 0; c < width; c++)
            p[j] += (double)a->q[at + c] * key_element(shape, a->k, j * shape->key_stride + column + c);
        for (size_t c = 0; c < rope; c++)
            p[j] +=
                (double)a->q_rope[(row * shape->heads + head) * rope + c] * key_element(shape, a->k_rope, j * rope + c);
        p[j] /= sqrt((double)(width + rope));
        largest = fmax(largest, p[j]);
    }
    for (size_t j = first; j < end; j++) sum += p[j] = exp(p[j] - largest);
    for (size_t c = 0; c < width; c++) {
        double o = 0;
        for (size_t j = first; j < end; j++)
            o += p[j] / sum * key_element(shape, a->v, j * shape->key_stride + column + c);
        expect_close(level, at + c, a->o[at + c], o, 1e-6, 1e-6);
    }
    expect_close(level, row, a->logsum[head * shape->queries + row], largest + log(sum), 1e-6, 1e-6);
    free(p);
}

static void expect_parts(const struct sl_kernels *kernels, struct sl_attention shape) {
    struct sl_attention many = shape;
    many.sequences = TEAMS / (shape.queries * shape.heads) + 1;
    const struct arrays few = arrays_of(&shape), all = arrays_of(&many);
    expect_same(kernels, &shape, &many, &few, &all);
    for (size_t i = 0; i < shape.queries * shape.heads; i++)
        expect_head(kernels->name, &shape, &few, i / shape.heads, i % shape.heads);
    release(&few);
    release(&all);
}

static void teams_share_keys(void **state) {
    (void)state;
    const size_t positions[] = {127, 128, 129, 600, 1023};
    FOR_EACH_LEVEL(kernels) {
        for (size_t i = 0; i < sizeof positions / sizeof *positions; i++) {
            for (size_t queries = 1; queries <= SL_ATTENTION_FEW; queries += 3) {
                const size_t heads = queries == 1 ? 12 : 4, width = i % 2 ? 16 : 21, position = positions[i];
                struct sl_attention shape = {.sequences = 1,
                                             .queries = queries,
                                             .position = position,
                                             .key_rows = position + queries + i,
                                             .heads = heads,
                                             .width = width,
                                             .rope = i % 2 ? 8 : 0,
                                             .key_stride = heads * width};
                expect_parts(kernels, shape);
                shape.window = 300;
                shape.keys = SL_BF16;
                expect_parts(kernels, shape);
                shape.group = 2;
                expect_parts(kernels, shape);
            }
        }
    }
}

/* Rounds to whole numbers, so that products of LARGE queries with keys are exact, whatever the order of sums. */
static void make_whole(float *x, size_t count, float size) {
    for (size_t i = 0; i < count; i++) x[i] = size * roundf(4.0f * x[i]);
}

/* Parts whose largest scores are some hundreds apart, in any order: their weights overflow unless the largest of all is
 * subtracted. */
static void parts_of_large_scores_do_not_overflow(void **state) {
    (void)state;
    FOR_EACH_LEVEL(kernels) {
        for (size_t queries = 1; queries <= SL_ATTENTION_FEW; queries++) {
            const struct sl_attention shape = {.sequences = 1,
                                               .queries = queries,
                                               .position = 700,
                                               .key_rows = 700 + queries,
                                               .heads = 4,
                                               .width = 16,
                                               .key_stride = 64};
            struct sl_attention many = shape;
            many.sequences = TEAMS / (queries * shape.heads) + 1;
            const struct arrays few = arrays_of(&shape), all = arrays_of(&many);
            const size_t n = queries * 64, keys = shape.key_rows * 64;
            make_whole(few.q, n, 16.0f), make_whole(all.q, many.sequences * n, 16.0f);
            make_whole(few.k, keys, 1.0f), make_whole(all.k, many.sequences * keys, 1.0f);
            expect_same(kernels, &shape, &many, &few, &all);
            release(&few);
            release(&all);
        }
    }
}

static void a_nan_surfaces(void **state) {
    (void)state;
    FOR_EACH_LEVEL(kernels) {
        const struct sl_attention shape = {
            .sequences = 1, .queries = 1, .position = 999, .key_rows = 1000, .heads = 1, .width = 16, .key_stride = 16};
        const struct arrays a = arrays_of(&shape);
        ((float *)a.k)[500 * 16] = NAN;
        attend(kernels, &shape, &a, a.o);
        for (int c = 0; c < 16; c++) assert_true(isnan(a.o[c]));
        release(&a);
    }
}

int main(void) {
    setenv("SHARDLOOP_MEMORY", "managed", 1);
    cmocka_set_message_output(CM_OUTPUT_TAP);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(teams_share_keys),
        cmocka_unit_test(parts_of_large_scores_do_not_overflow),
        cmocka_unit_test(a_nan_surfaces),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
