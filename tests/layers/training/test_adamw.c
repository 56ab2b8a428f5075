/* test_adamw.c - AdamW against optax's numbers, against the paper's formulas in double, and over shards of flat
 * storage. */
#include <stdio.h>

#include "tests/rigs/optimizer_rig.h"

/* ---- optax ---- */

static void expect_floats(const struct sl_kernels *kernels, const json_t *step, const char *key, size_t count,
                          const float *got) {
    float *want = floats(count);
    read_floats(step, key, count, want);
    char what[80];
    snprintf(what, sizeof what, "%s %s", kernels->name, key);
    for (size_t i = 0; i < count; i++) expect_close(what, i, got[i], want[i], 2.5e-7, 0.0); /* 2 ulp */
    free(want);
}

static void gives_optax_numbers(void **state) {
    (void)state;
    json_t *facts = load_facts("adamw.json");
    const size_t count = json_array_size(json_object_get(facts, "value"));
    const size_t decaying = (size_t)json_integer_value(json_object_get(facts, "decaying"));
    struct sl_optimizer_options adamw =
        sl_adamw_defaults((float)json_number_value(json_object_get(facts, "learning_rate")));
    adamw.decay = (float)json_number_value(json_object_get(facts, "decay"));
    const json_t *steps = json_object_get(facts, "steps");
    for (int level = 0; sl_kernels_available(level); level++) {
        const struct sl_kernels *kernels = sl_kernels_available(level);
        struct storage storage;
        make_storage(&storage, 2, (size_t[]){decaying, count - decaying}, (bool[]){true, false}, 0);
        read_floats(facts, "value", count, storage.loop.value);
        for (size_t s = 0; s < json_array_size(steps); s++) {
            const json_t *step = json_array_get(steps, s);
            read_floats(step, "gradient", count, storage.loop.gradient);
            update(&storage, 2, &adamw, kernels, (int64_t)s + 1, 1.0f);
            expect_floats(kernels, step, "first_moment", count, storage.loop.state[0]);
            expect_floats(kernels, step, "second_moment", count, storage.loop.state[1]);
            expect_floats(kernels, step, "value", count, storage.loop.value);
        }
        free_storage(&storage);
    }
    json_decref(facts);
}

static void defaults_are_optax_defaults(void **state) {
    (void)state;
    const struct sl_optimizer_options adamw = sl_adamw_defaults(0.5f);
    assert_true(adamw.learning_rate == 0.5f && adamw.beta1 == 0.9 && adamw.beta2 == 0.999);
    assert_true(adamw.epsilon == 1e-8f && adamw.decay == 1e-4f);
}

/* ---- the paper's formulas ---- */

struct element {
    double value, m, v;
};

static void step_in_double(const struct sl_optimizer_options *adamw, double decay, double gradient, int64_t step,
                           struct element *e) {
    e->m = adamw->beta1 * e->m + (1 - adamw->beta1) * gradient;
    e->v = adamw->beta2 * e->v + (1 - adamw->beta2) * gradient * gradient;
    const double m = e->m / (1 - pow(adamw->beta1, (double)step)), v = e->v / (1 - pow(adamw->beta2, (double)step));
    e->value -= adamw->learning_rate * (m / (sqrt(v) + adamw->epsilon) + decay * e->value);
}

enum { PARAMETERS = 6, STEPS = 4 };
static const size_t sizes[PARAMETERS] = {33, 1, 100, 17, 64, 5};
static const bool decays[PARAMETERS] = {true, true, false, true, false, false};

static bool decays_at(size_t element) {
    int i = 0;
    while (i < PARAMETERS - 1 && element >= sizes[i]) element -= sizes[i++];
    return decays[i];
}

/* Trains the shard [first, end) for some steps; the rest must stay as it is. */
static void check_shard(const struct sl_kernels *kernels, size_t padding, size_t first, size_t end) {
    struct sl_optimizer_options adamw = sl_adamw_defaults(0.03125f);
    adamw.beta1 = 0.75;
    adamw.beta2 = 0.875;
    adamw.epsilon = 0.0078125f;
    adamw.decay = 0.25f;
    struct numbers numbers = {20};
    struct storage storage;
    make_storage(&storage, PARAMETERS, sizes, decays, padding);
    struct sl_range *loop = &storage.loop;
    loop->shard = first;
    loop->shard_count = end - first;
    struct element *expected = array_of(loop->count, sizeof *expected);
    for (size_t i = 0; i < loop->used; i++) expected[i].value = loop->value[i] = next_float(&numbers, -1, 1);
    for (int64_t step = 1; step <= STEPS; step++) {
        for (size_t i = 0; i < loop->used; i++) {
            loop->gradient[i] = next_float(&numbers, -2, 2);
            if (i >= first && i < end)
                step_in_double(&adamw, decays_at(i) ? adamw.decay : 0, 0.5 * loop->gradient[i], step, &expected[i]);
        }
        update(&storage, PARAMETERS, &adamw, kernels, step, 0.5f);
    }
    for (size_t i = 0; i < loop->count; i++) {
        expect_close(kernels->name, i, loop->value[i], expected[i].value, 2e-6, 1e-6);
        if (i < first || i >= end) continue;
        expect_close("first moment", i, loop->state[0][i - first], expected[i].m, 1e-6, 1e-7);
        expect_close("second moment", i, loop->state[1][i - first], expected[i].v, 1e-6, 0.0);
    }
    for (size_t i = end - first; i < loop->count; i++) /* moments beyond the shard have no storage in earnest */
        assert_true(loop->state[0][i] == 0 && loop->state[1][i] == 0);
    free(expected);
    free_storage(&storage);
}

/* In float, 1 - 0.999^1 loses digits, and the error of the first update exceeds the tolerance. */
static void can_correct_in_double(void **state) {
    (void)state;
    const size_t size = 1;
    const bool decay = false;
    for (int exact = 0; exact < 2; exact++) {
        struct sl_optimizer_options adamw = sl_adamw_defaults(1.0f);
        struct storage storage;
        struct element expected = {.value = 0};
        adamw.exact = exact;
        make_storage(&storage, 1, &size, &decay, 0);
        storage.loop.gradient[0] = 0.3f;
        step_in_double(&adamw, 0, 0.3f, 1, &expected);
        update(&storage, 1, &adamw, sl_kernels_available(0), 1, 1.0f);
        const double off = fabs(storage.loop.value[0] / expected.value - 1);
        assert_true(exact ? off < 2e-7 : off > 2e-6);
        free_storage(&storage);
    }
}

static void updates_its_shard_alone(void **state) {
    (void)state;
    const size_t used = 220, padding = 36, all = used + padding;
    const size_t shards[][2] = {{0, 256},   {0, 64},   {64, 128},  {128, 192},
                                {192, 256}, {34, 134}, {133, 135}, {220, 256}};
    for (int level = 0; sl_kernels_available(level); level++) {
        check_shard(sl_kernels_available(level), 0, 0, used);
        for (size_t s = 0; s < sizeof shards / sizeof *shards; s++) {
            assert_true(shards[s][1] <= all);
            check_shard(sl_kernels_available(level), padding, shards[s][0], shards[s][1]);
        }
    }
}

/* The members' gradients are added up in the order of the members, by the update or by a pass before it, in pieces of
 * any length. */
static void adds_up_members_gradients(void **state) {
    (void)state;
    enum { MEMBERS = 5, SIZE = 5003, FIRST = 17, END = 4990 };
    float *member[MEMBERS];
    for (int m = 0; m < MEMBERS; m++) member[m] = device_floats(SIZE);
    struct sl_optimizer_options options[] = {sl_adamw_defaults(0.03125f), sl_sgd_defaults(0.03125f)};
    options[1].momentum = 0.5f;
    options[1].decay = 0.25f;
    const int most = sl_device.shares_memory ? MEMBERS : 1; /* several are of host memory */
    for (int i = 0; i < 2 * most; i++) {
        struct numbers numbers = {21};
        struct storage sum, apart;
        const size_t halves[] = {SIZE / 2, SIZE - SIZE / 2};
        const int members = 1 + i / 2;
        make_storage(&sum, 2, halves, (bool[]){true, false}, 0);
        make_storage(&apart, 2, halves, (bool[]){true, false}, 0);
        sum.loop.shard = apart.loop.shard = FIRST;
        sum.loop.shard_count = apart.loop.shard_count = END - FIRST;
        for (size_t e = 0; e < SIZE; e++) sum.loop.value[e] = apart.loop.value[e] = next_float(&numbers, -1, 1);
        for (int64_t step = 1; step <= 2; step++) {
            for (int m = 0; m < members; m++) {
                for (size_t e = 0; e < SIZE; e++) {
                    member[m][e] = next_float(&numbers, -2, 2);
                    sum.loop.gradient[e] = m ? sum.loop.gradient[e] + member[m][e] : member[m][e];
                }
            }
            update(&sum, 2, &options[i % 2], sl_kernels_available(0), step, 0.5f);
            update_sum(&apart, 2, &options[i % 2], sl_kernels_available(0), step, 0.5f, members,
                       (const float *const *)member);
        }
        assert_memory_equal(sum.loop.value, apart.loop.value, SIZE * sizeof(float));
        for (int s = 0; s < 2; s++) assert_memory_equal(sum.loop.state[s], apart.loop.state[s], SIZE * sizeof(float));
        free_storage(&sum);
        free_storage(&apart);
    }
    for (int m = 0; m < MEMBERS; m++) release_array(member[m]);
}

/* ---- values read by other cores ---- */

enum { MOST = 700, GUARD = 32 };

/* The first value's place in a cache line, and the number of values, do not matter. */
static void shared_values_have_the_same_bits(void **state) {
    (void)state;
    struct sl_adamw_step step = {0.01f, 0.9f, 0.999f, 1e-8f, 0.1f, 0.1f, 0.001f, 0.1f, 0.001f, 0.5f, false, NULL};
    static const size_t counts[] = {0, 1, 15, 16, 17, 127, 128, 129, 256, 300, MOST};
    float *all = sl_device.take(6 * (MOST + GUARD) * sizeof *all), *gradient = all, *addend = gradient + MOST;
    for (size_t i = 0; i < 2 * MOST; i++) all[i] = (float)i / 100.0f - 3.0f;
    for (int level = 0; sl_kernels_available(level); level++) {
        const struct sl_kernels *kernels = sl_kernels_available(level);
        for (size_t c = 0; c < sizeof counts / sizeof *counts * GUARD; c++) {
            const size_t n = counts[c / GUARD], at = c % GUARD;
            float *values[2] = {addend + MOST, addend + 2 * MOST + GUARD}, *moments = values[1] + MOST + GUARD;
            for (int shared = 0; shared < 2; shared++) {
                for (size_t i = 0; i < MOST + GUARD; i++) values[shared][i] = (float)i / 50.0f - 5.0f;
                for (size_t i = 0; i < 2 * MOST; i++) moments[i] = (float)(i % 9) / 8.0f;
                step.shared = shared;
                kernels->adamw(n, &step, gradient, c % 2 ? addend : NULL, values[shared] + at, NULL, moments,
                               moments + MOST);
                assert_int_equal(sl_device.settle(NULL), SL_OK);
            }
            assert_memory_equal(values[0], values[1], (MOST + GUARD) * sizeof *all);
        }
    }
    sl_device.give(all);
}

/* Expects values with the same bits as without bf16 copies, copies that are these values rounded, and no write behind
 * the copies. */
static void values_are_rounded_as_they_are_made(void **state) {
    (void)state;
    const struct sl_adamw_step step = {0.01f, 0.9f, 0.999f, 1e-8f, 0.1f, 0.1f, 0.001f, 0.1f, 0.001f, 0.5f, false, NULL};
    static const size_t counts[] = {0, 1, 15, 127, 129, 300, MOST};
    enum { BEHIND = 0xabcd };
    float *all = sl_device.take(7 * (MOST + GUARD) * sizeof *all), *gradient = all, *addend = gradient + MOST;
    float *values[2] = {addend + MOST, addend + 2 * MOST + GUARD}, *moments = values[1] + MOST + GUARD;
    uint16_t *rounded = (uint16_t *)(void *)(moments + 2 * MOST);
    for (size_t i = 0; i < 2 * MOST; i++) all[i] = (float)i / 100.0f - 3.0f;
    for (int level = 0; sl_kernels_available(level); level++) {
        const struct sl_kernels *kernels = sl_kernels_available(level);
        for (size_t c = 0; c < 2 * sizeof counts / sizeof *counts; c++) {
            const size_t n = counts[c / 2];
            for (size_t i = 0; i < MOST + GUARD; i++) rounded[i] = BEHIND;
            for (int rounds = 0; rounds < 2; rounds++) {
                for (size_t i = 0; i < MOST + GUARD; i++) values[rounds][i] = (float)i / 50.0f - 5.0f;
                for (size_t i = 0; i < 2 * MOST; i++) moments[i] = (float)(i % 9) / 8.0f;
                kernels->adamw(n, &step, gradient, c % 2 ? addend : NULL, values[rounds], rounds ? rounded : NULL,
                               moments, moments + MOST);
                assert_int_equal(sl_device.settle(NULL), SL_OK);
            }
            assert_memory_equal(values[0], values[1], (MOST + GUARD) * sizeof *all);
            for (size_t i = 0; i < MOST + GUARD; i++)
                assert_int_equal(rounded[i], i < n ? sl_bf16_of_float(values[1][i]) : BEHIND);
        }
    }
    sl_device.give(all);
}

/* ---- hashes ---- */

/* Gives a few keys at a time, as places do at the end of a block, and takes the sums. */
struct taker {
    struct sl_pass_hash hash;
    const uint32_t *keys;
    size_t at_once, *seen; /* elements so far */
    uint64_t *gradients, *values;
};

static size_t give_keys(const struct sl_pass_hash *hash, size_t first, const uint32_t **keys) {
    const struct taker *taker = (const struct taker *)hash;
    *keys = taker->keys + first;
    return taker->at_once - first % taker->at_once;
}

static void take_sums(const struct sl_pass_hash *hash, size_t first, size_t count, uint64_t gradients,
                      uint64_t values) {
    const struct taker *taker = (const struct taker *)hash;
    assert_int_equal(first, *taker->seen);
    assert_in_range(count, 1, taker->at_once - first % taker->at_once);
    *taker->seen += count;
    *taker->gradients += gradients;
    *taker->values += values;
}

static uint64_t key_times_word(uint32_t key, float number) {
    uint32_t word;
    memcpy(&word, &number, sizeof word);
    return (uint64_t)key * word;
}

/* Hashes of inputs and results; the pass has the same bits as without hashes. */
static void a_pass_hashes_what_it_reads_and_makes(void **state) {
    (void)state;
    struct sl_adamw_step step = {0.01f, 0.9f, 0.999f, 1e-8f, 0.1f, 0.1f, 0.001f, 0.1f, 0.001f, 0.5f, false, NULL};
    static const size_t counts[] = {0, 1, 31, 33, 129, 300, MOST}, at_once[] = {1, 7, 100, 256};
    float gradient[MOST], addend[MOST], values[2][MOST], moments[2][2 * MOST];
    uint16_t rounded[2][MOST];
    uint32_t keys[MOST];
    for (size_t i = 0; i < MOST; i++) keys[i] = (uint32_t)(i + 1) * 2654435761u;
    for (size_t i = 0; i < MOST; i++) gradient[i] = (float)i / 100.0f - 3.0f, addend[i] = 1.0f / (float)(i + 3);
    for (int level = 0; sl_kernels_available(level); level++) {
        const struct sl_kernels *kernels = sl_kernels_available(level);
        if (!kernels->hashes) continue; /* a device's */
        for (size_t c = 0; c < 4 * 3 * 2 * sizeof counts / sizeof *counts; c++) {
            const size_t n = counts[c / 24];
            const bool adds = c & 1, rounds = c / 2 % 3 == 2;
            uint64_t gradients = 0, made = 0;
            size_t seen = 0;
            const struct taker taker = {{give_keys, take_sums}, keys, at_once[c / 6 % 4], &seen, &gradients, &made};
            step.shared = c / 2 % 3 == 1;
            for (int hashed = 0; hashed < 2; hashed++) {
                for (size_t i = 0; i < MOST; i++) values[hashed][i] = (float)i / 50.0f - 5.0f, rounded[hashed][i] = 1;
                for (size_t i = 0; i < 2 * MOST; i++) moments[hashed][i] = (float)(i % 9) / 8.0f;
                step.hash = hashed ? &taker.hash : NULL;
                kernels->adamw(n, &step, gradient, adds ? addend : NULL, values[hashed],
                               rounds ? rounded[hashed] : NULL, moments[hashed], moments[hashed] + MOST);
            }
            assert_memory_equal(values[0], values[1], sizeof values[0]);
            assert_memory_equal(moments[0], moments[1], sizeof moments[0]);
            assert_memory_equal(rounded[0], rounded[1], sizeof rounded[0]);
            assert_int_equal(seen, n);
            for (size_t i = 0; i < n; i++) {
                gradients -= key_times_word(keys[i], adds ? gradient[i] + addend[i] : gradient[i]);
                made -= key_times_word(keys[i], values[0][i]);
            }
            assert_true(gradients == 0 && made == 0);
        }
    }
}

int main(void) {
    cmocka_set_message_output(CM_OUTPUT_TAP);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gives_optax_numbers),
        cmocka_unit_test(defaults_are_optax_defaults),
        cmocka_unit_test(updates_its_shard_alone),
        cmocka_unit_test(adds_up_members_gradients),
        cmocka_unit_test(can_correct_in_double),
        cmocka_unit_test(shared_values_have_the_same_bits),
        cmocka_unit_test(values_are_rounded_as_they_are_made),
        cmocka_unit_test(a_pass_hashes_what_it_reads_and_makes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
