/* test_random.c - random numbers against those of JAX and flax, in tests/data/random.json.
 *
 * The file is a list of cases. "first" and "last" hold up to eight elements of the result as bit patterns, "xor" the
 * exclusive or of all of them, "sum" their sum (of words: modulo 2^32). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "spmd/flax.h"

static json_t *cases;

static int load_cases(void **state) {
    (void)state;
    json_error_t error;
    cases = json_load_file(SL_TEST_DATA "/random.json", 0, &error);
    if (!cases) print_error("%s:%d: %s\n", error.source, error.line, error.text);
    return cases ? 0 : -1;
}

static int free_cases(void **state) {
    (void)state;
    json_decref(cases);
    return 0;
}

static uint32_t word_of(const json_t *list, size_t i) {
    const json_t *value = json_array_get(list, i);
    assert_true(json_is_integer(value));
    return (uint32_t)json_integer_value(value);
}

static struct sl_key key_of(const json_t *one) {
    const json_t *key = json_object_get(one, "key");
    return (struct sl_key){{word_of(key, 0), word_of(key, 1)}};
}

static double number_of(const json_t *one, const char *name) {
    const json_t *value = json_object_get(one, name);
    assert_true(json_is_number(value));
    return json_number_value(value);
}

/* The case's "out" is the COUNT words at WORDS. */
static void expect_words(const json_t *one, const uint32_t *words, size_t count) {
    const json_t *out = json_object_get(one, "out");
    assert_int_equal(json_array_size(out), count);
    for (size_t i = 0; i < count; i++) assert_int_equal(words[i], word_of(out, i));
}

static void check_key(const char *operation, const json_t *one) {
    struct sl_key key;
    if (!strcmp(operation, "threefry2x32")) {
        const json_t *count = json_object_get(one, "count");
        sl_threefry2x32(key_of(one), word_of(count, 0), word_of(count, 1), &key.word[0], &key.word[1]);
    } else if (!strcmp(operation, "seed")) {
        key = sl_key_of_seed((uint64_t)number_of(one, "seed"));
    } else if (!strcmp(operation, "fold_in")) {
        key = sl_fold_in(key_of(one), (uint32_t)number_of(one, "data"));
    } else {
        const json_t *path = json_object_get(one, "path");
        const char *names[17] = {NULL};
        assert_in_range(json_array_size(path), 0, 16);
        for (size_t i = 0; i < json_array_size(path); i++) names[i] = json_string_value(json_array_get(path, i));
        key = sl_flax_fold(key_of(one), names, (uint32_t)number_of(one, "n"));
    }
    expect_words(one, key.word, 2);
}

static void check_split(const json_t *one) {
    const uint32_t n = (uint32_t)number_of(one, "n");
    uint32_t *words = malloc(2 * sizeof *words * n);
    for (uint32_t i = 0; i < n; i++) {
        const struct sl_key key = sl_split(key_of(one), n, i);
        memcpy(words + 2 * i, key.word, sizeof key.word);
    }
    expect_words(one, words, 2 * n);
    free(words);
}

/* Makes the case's array, one word an element. */
static void make_array(const char *operation, const json_t *one, uint32_t n, uint32_t *words) {
    const struct sl_key key = key_of(one);
    if (!strcmp(operation, "bits")) {
        sl_random_bits(key, n, words);
    } else if (!strcmp(operation, "randint")) {
        sl_random_randint(key, n, (int32_t)number_of(one, "low"), (int32_t)number_of(one, "high"), (int32_t *)words);
    } else if (!strcmp(operation, "bernoulli")) {
        uint8_t *kept = malloc(n);
        sl_random_bernoulli(key, n, (float)number_of(one, "p"), kept);
        for (uint32_t i = 0; i < n; i++) words[i] = kept[i];
        free(kept);
    } else {
        float *values = malloc(n * sizeof *values);
        if (!strcmp(operation, "uniform")) {
            sl_random_uniform(key, n, (float)number_of(one, "low"), (float)number_of(one, "high"), values);
        } else if (!strcmp(operation, "normal")) {
            sl_random_normal(key, n, values);
        } else {
            assert_string_equal(operation, "truncated_normal");
            sl_random_truncated_normal(key, n, values);
        }
        memcpy(words, values, n * sizeof *values);
        free(values);
    }
}

static double sum_of(const char *operation, const uint32_t *words, uint32_t n) {
    double sum = 0;
    const bool integers = !strcmp(operation, "randint") || !strcmp(operation, "bernoulli");
    for (uint32_t i = 0; i < n; i++) sum += integers ? (int32_t)words[i] : (double)sl_float_of_bits(words[i]);
    if (strcmp(operation, "bits") != 0) return sum;
    uint32_t wrapped = 0;
    for (uint32_t i = 0; i < n; i++) wrapped += words[i];
    return wrapped;
}

/* Compares bits, for floats too: the operations and their rounding are the same on all CPUs. */
static void check_array(const char *operation, const json_t *one) {
    const uint32_t n = (uint32_t)number_of(one, "n");
    const json_t *first = json_object_get(one, "first"), *last = json_object_get(one, "last");
    uint32_t *words = malloc((n + 1) * sizeof *words), all = 0;
    words[n] = 0xc0ffee;
    make_array(operation, one, n, words);
    assert_int_equal(words[n], 0xc0ffee);
    for (uint32_t i = 0; i < n; i++) all ^= words[i];
    const size_t shown = json_array_size(last);
    assert_true(shown > 0);
    for (size_t i = 0; i < json_array_size(first); i++) assert_int_equal(words[i], word_of(first, i));
    for (size_t i = 0; i < shown; i++) assert_int_equal(words[n - shown + i], word_of(last, i));
    assert_int_equal(all, (uint32_t)number_of(one, "xor"));
    const double difference = sum_of(operation, words, n) - number_of(one, "sum");
    assert_true(fabs(difference) < 1e-7 * n);
    free(words);
}

/* flax's lecun_normal: a truncated normal with variance 1 / fan in. */
static void check_lecun(const json_t *one) {
    const uint32_t n = (uint32_t)number_of(one, "n");
    const json_t *first = json_object_get(one, "first");
    float *values = malloc(n * sizeof *values);
    sl_random_truncated_normal(key_of(one), n, values);
    const float scale = sqrtf(1.0f / (float)word_of(json_object_get(one, "shape"), 0)) / 0.87962566103423978f;
    for (size_t i = 0; i < json_array_size(first); i++) {
        const int64_t ulp = (int64_t)sl_bits_of_float(values[i] * scale) - (int64_t)word_of(first, i);
        assert_in_range(ulp + 2, 0, 4);
    }
    free(values);
}

static void check_cases(const char *operation, size_t at_least) {
    size_t i, done = 0;
    json_t *one;
    json_array_foreach(cases, i, one) {
        if (strcmp(json_string_value(json_object_get(one, "op")), operation) != 0) continue;
        if (!strcmp(operation, "split")) {
            check_split(one);
        } else if (!strcmp(operation, "lecun_normal")) {
            check_lecun(one);
        } else if (json_object_get(one, "out")) {
            check_key(operation, one);
        } else {
            check_array(operation, one);
        }
        done++;
    }
    assert_in_range(done, at_least, 1000);
}

static void test_keys(void **state) {
    (void)state;
    check_cases("threefry2x32", 5);
    check_cases("seed", 5);
    check_cases("fold_in", 5);
    check_cases("split", 5);
}

static void test_flax(void **state) {
    (void)state;
    check_cases("fold_static", 20);
    check_cases("lecun_normal", 3);
}

static void test_arrays(void **state) {
    (void)state;
    check_cases("bits", 5);
    check_cases("uniform", 5);
    check_cases("bernoulli", 5);
    check_cases("randint", 5);
    check_cases("normal", 5);
    check_cases("truncated_normal", 5);
}

/* Arrays of any length consist of the single words, and no element beyond them is written. */
static void test_words(void **state) {
    (void)state;
    static uint32_t words[3000];
    for (uint32_t n = 0; n < 2990; n += n < 40 || (n > 500 && n < 530) || (n > 1010 && n < 1030) ? 1 : 97) {
        const struct sl_key key = sl_key_of_seed(1000 + n);
        memset(words, 0, sizeof words);
        sl_random_bits(key, n, words);
        for (uint32_t i = 0; i < n; i++) assert_int_equal(words[i], sl_random_word(key, n, i));
        for (uint32_t i = n; i < 3000; i++) assert_int_equal(words[i], 0);
    }
}

static void test_randint(void **state) {
    (void)state;
    enum { N = 1001 };
    static const int32_t range[][2] = {{0, 1}, {0, 7}, {-5, 1000}, {-40000, 25000}, {0, 65535}, {-65536, -1}};
    static int32_t values[N];
    static uint32_t upper[N], lower[N];
    const struct sl_key key = sl_key_of_seed(5);
    sl_random_bits(sl_split(key, 2, 0), N, upper);
    sl_random_bits(sl_split(key, 2, 1), N, lower);
    for (size_t r = 0; r < sizeof range / sizeof *range; r++) {
        const uint64_t span = (uint64_t)(range[r][1] - range[r][0]);
        sl_random_randint(key, N, range[r][0], range[r][1], values);
        for (int i = 0; i < N; i++) {
            const uint64_t wide = (uint64_t)upper[i] << 32 | lower[i];
            assert_int_equal(values[i], range[r][0] + (int64_t)(wide % span));
        }
    }
    sl_random_randint(key, N, INT32_MIN, INT32_MAX, values);
    bool negative = false, positive = false;
    for (int i = 0; i < N; i++) negative |= values[i] < -(1 << 30), positive |= values[i] > 1 << 30;
    assert_true(negative && positive);
    sl_random_randint(key, N, 9, 9, values);
    for (int i = 0; i < N; i++) assert_int_equal(values[i], 9);
    sl_random_randint(key, N, 9, -9, values);
    for (int i = 0; i < N; i++) assert_int_equal(values[i], 9);
}

static void test_ranges(void **state) {
    (void)state;
    assert_true(sl_uniform_of_word(0) == 0.0f && sl_uniform_of_word(UINT32_MAX) == 0x1.fffffcp-1f);
    assert_true(sl_uniform_between_of_word(0, -3.0f, 5.0f) == -3.0f);
    assert_true(sl_uniform_between_of_word(UINT32_MAX, 5.0f, 3.0f) == 5.0f);
    assert_true(sl_truncated_normal_of_word(0) > -2.0f && sl_truncated_normal_of_word(UINT32_MAX) < 2.0f);
    assert_true(sl_erfinv(1.0f) == INFINITY && sl_erfinv(-1.0f) == -INFINITY && sl_erfinv(0.0f) == 0.0f);
    assert_true(isfinite(sl_normal_of_word(0)) && isfinite(sl_normal_of_word(UINT32_MAX)));
}

static void test_bernoulli(void **state) {
    (void)state;
    enum { N = 301 };
    uint8_t kept[N];
    const struct sl_key key = sl_key_of_seed(6);
    for (uint32_t i = 0; i < N; i++) { /* u < p; not if they are equal */
        const float p = sl_uniform_of_word(sl_random_word(key, N, i));
        sl_random_bernoulli(key, N, p, kept);
        for (uint32_t j = 0; j < N; j++) {
            assert_int_equal(kept[j], sl_uniform_of_word(sl_random_word(key, N, j)) < p);
        }
    }
}

/* erf(erfinv(x)) is x, up to the effect of a relative error of 1e-5 (1 - x^2 has few digits left near 1). */
static void test_erfinv(void **state) {
    (void)state;
    for (int i = -99999; i < 100000; i++) {
        const float x = (float)i / 100000;
        const double y = sl_erfinv(x), slope = 1.1283791670955126 * exp(-y * y);
        assert_true(fabs(erf(y) - x) <= slope * fabs(y) * 1e-5 + 1e-12);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_keys),      cmocka_unit_test(test_flax),    cmocka_unit_test(test_arrays),
        cmocka_unit_test(test_words),     cmocka_unit_test(test_randint), cmocka_unit_test(test_ranges),
        cmocka_unit_test(test_bernoulli), cmocka_unit_test(test_erfinv),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, load_cases, free_cases);
}
