/* test_attention_forms.c - attention's results have the same bits from operands of each type at each address, and in
 * each form, as far as kernels have these: in heads of each size with kernels for GPUs. test_attention_kernels.c
 * compares the values with an oracle. */
#include "tests/layers/kernels/attention/attention_cases.h"

/* Elements of an array from element BY on: operands and results need not lie at the beginning of an array. */
struct operand {
    void *room;
    const void *at;
};

static struct operand operand_of(const float *x, size_t count, enum sl_dtype type, size_t by) {
    const size_t size = sl_dtype_size(type);
    char *room = device_array(by + count, size);
    for (size_t i = 0; i < count; i++) {
        if (type == SL_BF16)
            ((uint16_t *)(void *)room)[by + i] = sl_bf16_of_float(x[i]);
        else
            ((float *)(void *)room)[by + i] = x[i];
    }
    return (struct operand){room, room + by * size};
}

/* All operands. */
struct operands {
    enum sl_dtype type;
    struct operand q, q_rope, kv, rope, o, d_o;
};

static struct operands operands_of(const struct example *e, enum sl_dtype type, size_t by) {
    const struct sl_attention *s = &e->shape;
    const size_t wide = e->rows * s->heads * s->width;
    return (struct operands){.type = type,
                             .q = operand_of(e->q, wide, type, by),
                             .q_rope = operand_of(e->q_rope, e->rows * s->heads * s->rope, type, by),
                             .kv = operand_of(e->kv, e->key_rows * s->key_stride, type, by),
                             .rope = operand_of(e->rope, e->key_rows * s->rope, type, by),
                             .o = operand_of(e->o, wide, type, by),
                             .d_o = operand_of(e->d_o, wide, type, by)};
}

static void release_operands(struct operands *operands) {
    const struct operand all[] = {operands->q,    operands->q_rope, operands->kv,
                                  operands->rope, operands->o,      operands->d_o};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) release_array(all[i].room);
}

/* An array of results in a form: floats, if FLOATS, rounded, if ROUNDS; and bf16, if STORED, behind BY elements. */
struct form {
    bool floats, rounds, stored;
    size_t by;
};

struct result {
    struct form form;
    float *floats;
    uint16_t *room;
};

static struct result result_of(struct form form, size_t count) {
    struct result result = {.form = form};
    if (form.floats) result.floats = device_floats(count);
    if (form.stored) result.room = device_array(form.by + count, sizeof *result.room);
    for (size_t i = 0; i < count && form.floats; i++) result.floats[i] = UNTOUCHED;
    for (size_t i = 0; i < form.by + count && form.stored; i++) result.room[i] = sl_bf16_of_float(UNTOUCHED);
    return result;
}

static struct sl_out out_of(const struct result *result) {
    return sl_out_of(result->floats, result->form.rounds, result->room ? result->room + result->form.by : NULL);
}

/* WANT [COUNT]: the floats, not rounded. */
static void expect_result(struct result *result, const float *want, size_t count) {
    for (size_t i = 0; i < count; i++) {
        const bool rounds = result->form.rounds && want[i] != UNTOUCHED;
        const uint16_t rounded = sl_bf16_of_float(want[i]);
        const float wanted = rounds ? sl_float_of_bf16(rounded) : want[i];
        if (result->floats) assert_memory_equal(&result->floats[i], &wanted, sizeof wanted);
        if (result->room) assert_int_equal(result->room[result->form.by + i], rounded);
    }
    if (result->floats) release_array(result->floats);
    if (result->room) release_array(result->room);
}

/* Forward and backward from FROM, with results in FORM, give E's bits. */
static void check_form(const struct sl_kernels *kernels, const struct example *e, const struct operands *from,
                       struct form form) {
    struct sl_attention s = e->shape;
    const size_t wide = e->rows * s.heads * s.width, keys = e->key_rows * s.key_stride, half = half_of(&s);
    const size_t sums = e->rows * s.heads, roped = e->rows * s.heads * s.rope, shared = e->key_rows * s.rope;
    const char *k = from->kv.at, *v = k + half * sl_dtype_size(from->type);
    struct result o = result_of(form, wide), dq = result_of(form, wide), dkv = result_of(form, keys);
    float *logsum = device_floats(sums), *dq_rope = device_floats(roped), *drope = device_floats(shared);
    s.stored_q = s.keys = s.stored = s.stored_o = s.stored_d_o = from->type;
    kernels->attention->forward(&s, from->q.at, from->q_rope.at, k, v, from->rope.at, out_of(&o), logsum);
    kernels->attention->backward(&s, from->q.at, from->q_rope.at, k, v, from->rope.at, from->o.at, e->logsum,
                                 from->d_o.at, out_of(&dq), dq_rope, out_of(&dkv), sl_out_from(out_of(&dkv), half),
                                 drope, e->scratch);
    assert_memory_equal(logsum, e->logsum, sums * sizeof *logsum);
    assert_memory_equal(dq_rope, e->dq_rope, roped * sizeof *dq_rope);
    assert_memory_equal(drope, e->drope, shared * sizeof *drope);
    expect_result(&dq, e->dq, wide);
    expect_result(&dkv, e->dkv, keys);
    expect_result(&o, e->o, wide);
    float *const arrays[] = {logsum, dq_rope, drope};
    for (size_t i = 0; i < 3; i++) release_array(arrays[i]);
}

static const struct form plain = {.floats = true};
static const struct form forms[] = {
    {true, true, false, 0}, {true, true, true, 0},  {true, true, true, 1},  {true, false, true, 0},
    {true, false, true, 1}, {false, true, true, 0}, {false, true, true, 1}, {false, false, true, 1},
};

/* E's o, which backward reads as bf16, too, is bf16 in all values. */
static void run_example(const struct sl_kernels *kernels, struct example *e) {
    const size_t keys = e->key_rows * e->shape.key_stride;
    run_forward(kernels, e);
    for (size_t i = 0; i < keys; i++) e->dkv[i] = UNTOUCHED;
    run_backward(kernels, e);
}

/* BY: elements before unaligned operands; 0 for whole rows, as others would go to other kernels. SPARE: bf16
 * only, as the shape is large. */
static void check(struct numbers *numbers, struct sl_attention shape, size_t by, bool spare) {
    shape.products = SL_BF16;
    FOR_EACH_LEVEL(kernels) {
        struct example e = make(numbers, shape, 1.0f);
        const bool alone = kernels->attention->stores_alone(&shape);
        run_example(kernels, &e);
        const size_t wide = e.rows * shape.heads * shape.width;
        float *o = device_copy(e.o, wide * sizeof *o);
        release_array(settle(e.o, wide));
        run_backward(kernels, &e); /* from a rounded o */
        for (int type = 0; type < (alone ? 2 : 1); type++) {
            for (size_t before = 0; before < (by ? 2 : 1); before++) {
                struct operands from = operands_of(&e, type ? SL_BF16 : SL_F32, before * by);
                struct example want = e;
                want.o = o;
                for (size_t i = 0; i < sizeof forms / sizeof *forms && !spare && before == 0; i++)
                    if (alone || (forms[i].floats && forms[i].rounds)) check_form(kernels, &want, &from, forms[i]);
                if (type || !spare) check_form(kernels, &want, &from, plain);
                release_operands(&from);
            }
        }
        release_array(o);
        release(&e);
    }
}

/* Odd numbers of sequences have keys in rows of which 16 bytes can be read at once, even ones have not. */
static void rotary_heads_have_the_same_bits(void **state) {
    (void)state;
    struct numbers numbers = {31};
    const size_t widths[][2] = {{32, 16}, {64, 16}};
    for (size_t i = 0; i < 4; i++) {
        check(&numbers,
              (struct sl_attention){.sequences = 1 + i % 2,
                                    .queries = 21,
                                    .key_rows = 21,
                                    .heads = 2,
                                    .width = widths[i / 2][0],
                                    .rope = widths[i / 2][1]},
              1, false);
    }
}

static void shared_heads_have_the_same_bits(void **state) {
    (void)state;
    struct numbers numbers = {32};
    const size_t widths[] = {48, 112};
    for (size_t i = 0; i < 4; i++) {
        check(
            &numbers,
            (struct sl_attention){
                .sequences = 1 + i % 2, .queries = 18, .key_rows = 18, .heads = 4, .group = 2, .width = widths[i / 2]},
            1, false);
    }
}

/* A block of keys is not whole: the last one, or the only one. */
static void whole_rows_have_the_same_bits(void **state) {
    (void)state;
    struct numbers numbers = {33};
    const size_t widths[] = {64, 128}, queries[] = {70, 20};
    for (size_t i = 0; i < 4; i++) {
        const size_t rows = queries[i % 2];
        check(&numbers,
              (struct sl_attention){
                  .sequences = 1, .queries = rows, .key_rows = rows, .heads = 2, .width = widths[i / 2]},
              0, false);
    }
}

/* The argument "emulated": no GPU. */
static bool emulated;

/* As many blocks of queries as a GPU's kernels for many need. */
static void many_blocks_have_the_same_bits(void **state) {
    (void)state;
    struct numbers numbers = {34};
    const size_t queries[] = {131, 40}, heads[] = {132, 264};
    for (size_t i = 0; i < 2; i++) {
        const size_t rows = queries[i], all = emulated ? 4 : heads[i];
        check(&numbers,
              (struct sl_attention){
                  .sequences = 1, .queries = rows, .key_rows = rows, .heads = all, .group = all / 2, .width = 64},
              0, true);
    }
}

/* Few queries read keys of both types, and see the same. */
static void few_queries_see_the_same(void **state) {
    (void)state;
    struct numbers numbers = {35};
    for (size_t i = 0; i < 4; i++) {
        const struct sl_attention shape = {.sequences = 2,
                                           .queries = 1 + i,
                                           .position = 40,
                                           .key_rows = 50,
                                           .heads = 4,
                                           .group = i % 2 ? 2 : 0,
                                           .width = 20,
                                           .rope = i / 2 ? 6 : 0,
                                           .products = SL_BF16};
        FOR_EACH_LEVEL(kernels) {
            struct example e = make(&numbers, shape, 1.0f), other = e;
            const size_t wide = e.rows * shape.heads * shape.width;
            e.shape.products = SL_F32; /* it was for operands that are bf16 in all values */
            other.shape = e.shape;
            other.shape.keys = SL_BF16;
            other.stored_kv = settle(e.kv, e.key_rows * e.shape.key_stride);
            other.stored_rope = settle(e.rope, e.key_rows * shape.rope);
            other.o = device_floats(wide);
            run_forward(kernels, &e);
            run_forward(kernels, &other);
            for (size_t c = 0; c < wide; c++) expect_close("o", c, other.o[c], e.o[c], 2e-6, 2e-6);
            release_array(other.o);
            release_array(other.stored_kv);
            release_array(other.stored_rope);
            release(&e);
        }
    }
}

int main(int argc, char **argv) {
    emulated = !strcmp(argv[argc - 1], "emulated");
    cmocka_set_message_output(CM_OUTPUT_TAP);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rotary_heads_have_the_same_bits), cmocka_unit_test(shared_heads_have_the_same_bits),
        cmocka_unit_test(whole_rows_have_the_same_bits),   cmocka_unit_test(many_blocks_have_the_same_bits),
        cmocka_unit_test(few_queries_see_the_same),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
