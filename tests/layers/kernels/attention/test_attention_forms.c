/* test_attention_forms.c - attention's results have the same bits from operands of each type at each address, in each
 * supported form, and beside other heads and sequences that are NaN, in heads of each size with kernels for GPUs. The
 * combined result of two parts of the keys is tested, too. test_attention_kernels.c compares the values with an oracle.
 * */
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

/* All operands. The arrays of k and of v end behind the last element of their last row. */
struct operands {
    enum sl_dtype type;
    struct operand q, q_rope, k, v, rope, o, d_o;
};

static struct operands operands_of(const struct example *e, enum sl_dtype type, size_t by) {
    const struct sl_attention *s = &e->shape;
    const size_t wide = e->rows * s->heads * s->width, keys = (e->key_rows - 1) * s->key_stride + half_of(s);
    return (struct operands){.type = type,
                             .q = operand_of(e->q, wide, type, by),
                             .q_rope = operand_of(e->q_rope, e->rows * s->heads * s->rope, type, by),
                             .k = operand_of(e->kv, keys, type, by),
                             .v = operand_of(e->kv + half_of(s), keys, type, by),
                             .rope = operand_of(e->rope, e->key_rows * s->rope, type, by),
                             .o = operand_of(e->o, wide, type, by),
                             .d_o = operand_of(e->d_o, wide, type, by)};
}

static void release_operands(struct operands *operands) {
    const struct operand all[] = {operands->q,    operands->q_rope, operands->k,  operands->v,
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

struct results {
    struct result o, dq, dkv;
    float *logsum, *dq_rope, *drope;
};

/* Forward, and if it TRAINS backward, of E from FROM, with results in FORM. */
static struct results run_form(const struct sl_kernels *kernels, const struct example *e, const struct operands *from,
                               struct form form, bool trains) {
    struct sl_attention s = e->shape;
    const size_t wide = e->rows * s.heads * s.width, keys = e->key_rows * s.key_stride, half = half_of(&s);
    const void *k = from->k.at, *v = from->v.at;
    struct results to = {.o = result_of(form, wide),
                         .dq = result_of(form, wide),
                         .dkv = result_of(form, keys),
                         .logsum = device_floats(e->rows * s.heads),
                         .dq_rope = device_floats(e->rows * s.heads * s.rope),
                         .drope = device_floats(e->key_rows * s.rope)};
    s.stored_q = s.keys = s.stored = s.stored_o = s.stored_d_o = from->type;
    kernels->attention->forward(&s, from->q.at, from->q_rope.at, k, v, from->rope.at, out_of(&to.o), to.logsum);
    if (trains)
        kernels->attention->backward(&s, from->q.at, from->q_rope.at, k, v, from->rope.at, from->o.at, e->logsum,
                                     from->d_o.at, out_of(&to.dq), to.dq_rope, out_of(&to.dkv),
                                     sl_out_from(out_of(&to.dkv), half), to.drope, e->scratch);
    return to;
}

static void release_sums(struct results *results) {
    float *const arrays[] = {results->logsum, results->dq_rope, results->drope};
    for (size_t i = 0; i < 3; i++) release_array(arrays[i]);
}

/* Forward and backward from FROM, with results in FORM, give E's bits. */
static void check_form(const struct sl_kernels *kernels, const struct example *e, const struct operands *from,
                       struct form form) {
    const struct sl_attention *s = &e->shape;
    const size_t wide = e->rows * s->heads * s->width;
    struct results got = run_form(kernels, e, from, form, true);
    assert_memory_equal(got.logsum, e->logsum, e->rows * s->heads * sizeof(float));
    assert_memory_equal(got.dq_rope, e->dq_rope, e->rows * s->heads * s->rope * sizeof(float));
    assert_memory_equal(got.drope, e->drope, e->key_rows * s->rope * sizeof(float));
    expect_result(&got.dq, e->dq, wide);
    expect_result(&got.dkv, e->dkv, e->key_rows * s->key_stride);
    expect_result(&got.o, e->o, wide);
    release_sums(&got);
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
    const size_t widths[][2] = {{32, 16}, {64, 16}, {16, 48}, {16, 112}};
    for (size_t i = 0; i < 8; i++) {
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

/* Heads with all of a team's columns, in rows of which 4 bytes can be read at once, but not 16. */
static void narrow_rows_have_the_same_bits(void **state) {
    (void)state;
    struct numbers numbers = {38};
    for (size_t width = 64; width <= 128; width += 64)
        check(&numbers,
              (struct sl_attention){.sequences = 4, .queries = 18, .key_rows = 18, .heads = 1, .width = width}, 1,
              false);
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

/* One query, of a single column or more, and rows that are longer than a GPU's team, in each form with floats. */
static void few_queries_leave_each_form(void **state) {
    (void)state;
    struct numbers numbers = {39};
    static const size_t sizes[][4] = {{1, 1, 1, 1}, {1, 1, 2, 70}, {3, 3, 3, 50}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        const struct sl_attention shape = {.sequences = sizes[i][0],
                                           .queries = sizes[i][1],
                                           .position = 9,
                                           .key_rows = 9 + sizes[i][1],
                                           .heads = sizes[i][2],
                                           .width = sizes[i][3]};
        FOR_EACH_LEVEL(kernels) {
            struct example e = make(&numbers, shape, 1.0f);
            run_forward(kernels, &e);
            for (size_t f = 0; f < sizeof forms / sizeof *forms; f++) {
                if (!forms[f].floats) continue;
                struct result o = result_of(forms[f], e.rows * shape.heads * shape.width);
                kernels->attention->forward(&e.shape, e.q, e.q_rope, e.kv, e.kv + half_of(&e.shape), e.rope, out_of(&o),
                                            e.logsum);
                expect_result(&o, e.o, e.rows * shape.heads * shape.width);
            }
            release(&e);
        }
    }
}

/* ---- others that are NaN ---- */

/* A sequence, and one of its heads, or all of them. */
struct kept {
    size_t sequence, first, end;
};

static bool keeps(const struct kept *kept, size_t sequence, size_t head) {
    return sequence == kept->sequence && head >= kept->first && head < kept->end;
}

static void spoil(float *x, size_t count) {
    for (size_t i = 0; i < count; i++) x[i] = NAN;
}

/* Returns E with copies of attention's inputs, in which all elements that are not KEPT are NaN. */
static struct example spoiled(const struct example *e, const struct kept *kept) {
    const struct sl_attention *s = &e->shape;
    const size_t wide = s->heads * s->width, roped = s->heads * s->rope, size = sizeof(float);
    struct example x = *e;
    x.q = device_copy(e->q, e->rows * wide * size), x.o = device_copy(e->o, e->rows * wide * size);
    x.d_o = device_copy(e->d_o, e->rows * wide * size), x.q_rope = device_copy(e->q_rope, e->rows * roped * size);
    x.kv = device_copy(e->kv, e->key_rows * s->key_stride * size);
    x.rope = device_copy(e->rope, e->key_rows * s->rope * size);
    x.logsum = device_copy(e->logsum, e->rows * s->heads * size);
    for (size_t row = 0; row < e->rows; row++) {
        for (size_t head = 0; head < s->heads; head++) {
            if (keeps(kept, row / s->queries, head)) continue;
            const size_t at = row * s->heads + head;
            spoil(x.q + at * s->width, s->width);
            spoil(x.o + at * s->width, s->width);
            spoil(x.d_o + at * s->width, s->width);
            spoil(x.q_rope + at * s->rope, s->rope);
            spoil(x.logsum + head * e->rows + row, 1);
        }
    }
    for (size_t key = 0; key < e->key_rows; key++) {
        float *row = x.kv + key * s->key_stride;
        for (size_t head = 0; head < sl_attention_key_heads(s); head++) {
            if (keeps(kept, key / s->key_rows, s->group > 1 ? 0 : head)) continue;
            spoil(row + head * s->width, s->width);
            spoil(row + half_of(s) + head * s->width, s->width);
        }
        spoil(row + 2 * half_of(s), s->key_stride - 2 * half_of(s));
        if (key / s->key_rows != kept->sequence) spoil(x.rope + key * s->rope, s->rope);
    }
    return x;
}

static void release_spoiled(struct example *e) {
    float *const arrays[] = {e->q, e->o, e->d_o, e->q_rope, e->kv, e->rope, e->logsum};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) release_array(arrays[i]);
}

/* Expects the same bits in the results of the heads and sequences that are KEPT. */
static void expect_kept(const struct example *e, const struct kept *kept, const struct results *want,
                        const struct results *got) {
    const struct sl_attention *s = &e->shape;
    const size_t size = sizeof(float), all = s->key_rows, half = half_of(s);
    for (size_t head = kept->first; head < kept->end; head++) {
        for (size_t row = kept->sequence * s->queries; row < (kept->sequence + 1) * s->queries; row++) {
            const size_t at = (row * s->heads + head) * s->width, turned = (row * s->heads + head) * s->rope;
            assert_memory_equal(got->o.floats + at, want->o.floats + at, s->width * size);
            assert_memory_equal(got->dq.floats + at, want->dq.floats + at, s->width * size);
            assert_memory_equal(got->dq_rope + turned, want->dq_rope + turned, s->rope * size);
            assert_memory_equal(got->logsum + head * e->rows + row, want->logsum + head * e->rows + row, size);
        }
        for (size_t key = kept->sequence * all; key < (kept->sequence + 1) * all; key++) {
            const size_t at = key * s->key_stride + sl_attention_key_head(s, head) * s->width;
            assert_memory_equal(got->dkv.floats + at, want->dkv.floats + at, s->width * size);
            assert_memory_equal(got->dkv.floats + at + half, want->dkv.floats + at + half, s->width * size);
        }
    }
    if (kept->end - kept->first == s->heads)
        assert_memory_equal(got->drope + kept->sequence * all * s->rope, want->drope + kept->sequence * all * s->rope,
                            all * s->rope * size);
}

static void release_results(struct results *results) {
    float *const arrays[] = {results->o.floats, results->dq.floats, results->dkv.floats};
    for (size_t i = 0; i < 3; i++) release_array(arrays[i]);
    release_sums(results);
}

/* Three sequences: the last two of them, and one head of each, beside others that are NaN. Odd numbers of sequences
 * have whole rows of keys (attention_cases.h). LONGEST: of documents, or 0. */
static void check_beside_others(struct numbers *numbers, struct sl_attention shape, size_t longest) {
    shape.sequences = 3;
    FOR_EACH_LEVEL(kernels) {
        struct example e = make(numbers, shape, 1.0f);
        const bool trains = shape.position == 0 && shape.key_rows == shape.queries;
        if (longest) e.shape.places = e.places = make_places(numbers, &e.shape, longest);
        run_forward(kernels, &e);
        for (int type = 0; type < (kernels->attention->stores_alone(&shape) ? 2 : 1); type++) {
            struct operands clean = operands_of(&e, type ? SL_BF16 : SL_F32, 0);
            struct results want = run_form(kernels, &e, &clean, plain, trains);
            for (size_t i = 0; i < (shape.heads > 3 ? 1 : 4); i++) {
                const size_t head = i % 2 ? shape.heads - 1 : 0;
                const bool one = i / 2 && shape.group < 2;
                const struct kept kept = {1 + i % 2, one ? head : 0, one ? head + 1 : shape.heads};
                struct example x = spoiled(&e, &kept);
                struct operands from = operands_of(&x, clean.type, 0);
                struct results got = run_form(kernels, &x, &from, plain, trains);
                expect_kept(&e, &kept, &want, &got);
                release_results(&got);
                release_operands(&from);
                release_spoiled(&x);
            }
            release_results(&want);
            release_operands(&clean);
        }
        release(&e);
    }
}

/* Whole rows of both sizes, others, and kernels for many blocks; the last block is not whole. */
static void others_may_be_nan(void **state) {
    (void)state;
    struct numbers numbers = {36};
    const size_t shapes[][4] = {{70, 2, 64, 0},  {37, 2, 128, 0}, {70, 2, 32, 16}, {21, 3, 64, 16},
                                {37, 2, 48, 0},  {40, 88, 64, 0}, {70, 2, 20, 6},  {3, 2, 20, 6},
                                {20, 1, 64, 16}, {26, 1, 64, 16}, {31, 1, 64, 16}}; /* ends in each kind of column */
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        struct sl_attention shape = {.queries = shapes[i][0],
                                     .key_rows = shapes[i][0],
                                     .heads = shapes[i][1],
                                     .width = shapes[i][2],
                                     .rope = shapes[i][3],
                                     .products = shapes[i][2] == 20 ? SL_F32 : SL_BF16};
        if (i == 5 && emulated) shape.heads = 2;
        check_beside_others(&numbers, shape, 0);
        if (shape.heads > 3) continue;
        shape.window = 25;
        check_beside_others(&numbers, shape, i % 2 || i > 7 ? 30 : 0);
        shape.position = 20, shape.key_rows = shape.queries + 23;
        check_beside_others(&numbers, shape, 0);
    }
}

/* ---- two parts of the keys ---- */

/* Results of two parts in proportion to the exponentials of their logsums, some of which overflow. */
static void parts_are_merged(void **state) {
    (void)state;
    struct numbers numbers = {37};
    const size_t shapes[][3] = {{1, 1, 1}, {3, 2, 20}, {7, 5, 131}}, sequences = 2;
    for (size_t i = 0; i < 3; i++) {
        const struct sl_attention s = {
            .sequences = sequences, .queries = shapes[i][0], .heads = shapes[i][1], .width = shapes[i][2]};
        const size_t rows = sequences * s.queries, sums = rows * s.heads, wide = sums * s.width;
        FOR_EACH_LEVEL(kernels) {
            float *first = random_device_floats(&numbers, wide, -1.0f, 1.0f);
            float *rest = random_device_floats(&numbers, wide, -1.0f, 1.0f), *o = device_copy(rest, wide * sizeof *o);
            float *logsum = random_device_floats(&numbers, sums, -100.0f, 100.0f), *merged = device_floats(sums);
            float *other = random_device_floats(&numbers, sums, -1.0f, 1.0f);
            for (size_t n = 0; n < sums; n++) other[n] = n % 3 ? logsum[n] + other[n] : 200.0f * other[n];
            memcpy(merged, logsum, sums * sizeof *merged);
            kernels->attention->merge(&s, first, other, o, merged);
            for (size_t n = 0; n < sums; n++) {
                const double high = fmax(logsum[n], other[n]), row = exp(logsum[n] - high);
                expect_close("logsum", n, merged[n], high + log(row + exp(other[n] - high)), 1e-6, 1e-6);
            }
            for (size_t c = 0; c < wide; c++) {
                const size_t at = c / s.width % s.heads * rows + c / s.width / s.heads;
                const double share = 1.0 / (1.0 + exp((double)other[at] - logsum[at]));
                expect_close("o", c, o[c], share * rest[c] + (1.0 - share) * first[c], 2e-6, 2e-6);
            }
            float *const arrays[] = {first, rest, o, logsum, merged, other};
            for (size_t a = 0; a < sizeof arrays / sizeof *arrays; a++) release_array(arrays[a]);
        }
    }
}

int main(int argc, char **argv) {
    emulated = !strcmp(argv[argc - 1], "emulated");
    cmocka_set_message_output(CM_OUTPUT_TAP);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rotary_heads_have_the_same_bits),
        cmocka_unit_test(shared_heads_have_the_same_bits),
        cmocka_unit_test(whole_rows_have_the_same_bits),
        cmocka_unit_test(narrow_rows_have_the_same_bits),
        cmocka_unit_test(many_blocks_have_the_same_bits),
        cmocka_unit_test(few_queries_see_the_same),
        cmocka_unit_test(few_queries_leave_each_form),
        cmocka_unit_test(others_may_be_nan),
        cmocka_unit_test(parts_are_merged),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
