/* test_attend.c - attention to cached tokens has the same bits with a crew as without, at every level of this CPU. */
#include "tests/rigs/kernel_levels.h"
#include "tests/rigs/numbers.h"

#include "layers/modules/sequence/cached.h"
#include "spmd/base/crew.h"

#include <string.h>

struct example {
    struct sl_attention shape;
    size_t columns, rotated; /* of all queries */
    float *q, *q_rope, *o, *logsum;
    void *k, *v, *k_rope;
};

static struct example make(struct numbers *numbers, struct sl_attention shape) {
    const size_t rows = shape.sequences * shape.queries, keys = shape.sequences * shape.key_rows;
    shape.key_stride = sl_attention_key_heads(&shape) * shape.width + 3;
    struct example e = {
        .shape = shape, .columns = rows * shape.heads * shape.width, .rotated = rows * shape.heads * shape.rope};
    e.q = random_floats(numbers, e.columns, -1.0f, 1.0f);
    e.q_rope = random_floats(numbers, e.rotated + 1, -1.0f, 1.0f);
    e.k = random_operand(numbers, shape.keys, keys * shape.key_stride);
    e.v = random_operand(numbers, shape.keys, keys * shape.key_stride);
    e.k_rope = random_operand(numbers, shape.keys, keys * shape.rope + 1);
    e.o = floats(e.columns);
    e.logsum = floats(rows * shape.heads);
    return e;
}

static void release(struct example *e) {
    free(e->q);
    free(e->q_rope);
    free(e->k);
    free(e->v);
    free(e->k_rope);
    free(e->o);
    free(e->logsum);
}

static void run(const struct sl_kernels *kernels, struct sl_crew *crew, struct example *e, float *o) {
    const struct sl_context context = {.kernels = kernels, .crew = crew};
    memset(o, 0xff, e->columns * sizeof *o);
    sl_attend(&context, &e->shape, e->q, e->q_rope, e->k, e->v, e->k_rope, sl_out_f32(o), e->logsum);
}

static void check(struct numbers *numbers, struct sl_attention shape, enum sl_dtype keys) {
    static const int threads[] = {2, 3, 5};
    shape.keys = keys;
    struct example e = make(numbers, shape);
    float *shared = floats(e.columns);
    FOR_EACH_LEVEL(kernels) {
        run(kernels, NULL, &e, e.o);
        for (size_t t = 0; t < sizeof threads / sizeof *threads; t++) {
            struct sl_crew *crew = sl_crew_open(threads[t]);
            assert_non_null(crew);
            run(kernels, crew, &e, shared);
            sl_crew_close(crew);
            if (memcmp(shared, e.o, e.columns * sizeof *shared))
                fail_msg(
                    "%s, %d threads: %zu sequences of %zu from %zu, %zu heads in groups of %zu behind %zu: other bits",
                    kernels->name, threads[t], shape.sequences, shape.queries, shape.position, shape.heads, shape.group,
                    shape.lead);
        }
    }
    free(shared);
    release(&e);
}

/* Queries around the ends of blocks, and behind cached tokens; heads with shared keys, also beside heads of another
 * coordinate; one query, or few, of one sequence or of several. */
static void a_crew_changes_no_bit(void **state) {
    (void)state;
    struct numbers numbers = {1};
    static const size_t queries[] = {1, 2, 4, 5, 63, 64, 68, 69, 130, 197};
    for (size_t i = 0; i < 2 * sizeof queries / sizeof *queries; i++) {
        const size_t count = queries[i / 2], position = count < 5 ? 150 : i % 3 * 37;
        const enum sl_dtype keys = i % 2 ? SL_BF16 : SL_F32;
        struct sl_attention shape = {.sequences = 1 + i % 3 / 2,
                                     .queries = count,
                                     .position = position,
                                     .key_rows = position + count + 2,
                                     .heads = 9,
                                     .width = 32,
                                     .group = 3};
        check(&numbers, shape, keys);
        shape.heads = 5;
        shape.lead = 2;
        shape.width = 40;
        check(&numbers, shape, keys);
        shape.group = shape.lead = 0;
        shape.rope = 6;
        check(&numbers, shape, keys);
    }
}

int main(void) {
    cmocka_set_message_output(CM_OUTPUT_TAP);
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_crew_changes_no_bit)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
