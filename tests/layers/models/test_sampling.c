/* test_sampling.c - the next token, against a naive choice and against probabilities; bytes as text. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "layers/models/sampling.h"

enum { MOST_CLASSES = 64 };

static struct sl_sampling_room room;

static int open_room(void **state) {
    (void)state;
    return sl_sampling_room_open(&room, MOST_CLASSES) ? 0 : -1;
}

static int close_room(void **state) {
    (void)state;
    sl_sampling_room_close(&room);
    return 0;
}

static struct sl_key key_of(uint32_t i) { return sl_fold_in(sl_key_of_seed(42), i); }

static double uniform_of(struct sl_key key) { return (double)sl_uniform_of_word(sl_random_word(key, 1, 0)); }

/* ---- the naive choice ---- */

/* Writes the probabilities [classes] of the tokens: counts ranks, and sums over all tokens of lower rank. */
static void find_probabilities(const struct sl_sampling *sampling, int classes, const float *logits,
                               double *probability) {
    double weight[MOST_CLASSES], largest = -INFINITY, top_k_sum = 0, sum = 0;
    int rank[MOST_CLASSES];
    for (int i = 0; i < classes; i++) {
        largest = fmax(largest, logits[i]);
        rank[i] = 0;
        for (int j = 0; j < classes; j++) rank[i] += logits[j] > logits[i] || (logits[j] == logits[i] && j < i);
    }
    for (int i = 0; i < classes; i++) {
        weight[i] = exp((logits[i] - largest) / sampling->temperature);
        if (sampling->top_k > 0 && rank[i] >= sampling->top_k) weight[i] = 0;
        top_k_sum += weight[i];
    }
    for (int i = 0; i < classes; i++) {
        double before = 0;
        for (int j = 0; j < classes; j++)
            if (rank[j] < rank[i]) before += weight[j];
        probability[i] = before < sampling->top_p * top_k_sum ? weight[i] : 0;
        sum += probability[i];
    }
    for (int i = 0; i < classes; i++) probability[i] /= sum;
}

/* Returns whether U falls on TOKEN, up to rounding. */
static bool is_right(const double *probability, int32_t token, double u) {
    double before = 0;
    for (int i = 0; i < token; i++) before += probability[i];
    return probability[token] > 0 && u >= before - 1e-12 && u < before + probability[token] + 1e-12;
}

static uint32_t next(uint64_t *random) {
    *random = *random * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*random >> 33);
}

/* Random logits, many of them equal; settings of all kinds. */
static void test_against_naive_choice(void **state) {
    (void)state;
    uint64_t random = 3;
    int changed = 0;
    for (uint32_t round = 0; round < 20000; round++) {
        float logits[MOST_CLASSES];
        double probability[MOST_CLASSES];
        const int classes = 1 + (int)(next(&random) % MOST_CLASSES);
        const struct sl_sampling sampling = {
            .temperature = (double[]){0.25, 1, 0.8, 3}[next(&random) % 4],
            .top_k = next(&random) % 2 ? 0 : (int)(1 + next(&random) % (MOST_CLASSES + 8)),
            .top_p = next(&random) % 2 ? 1 : 0.013 + 0.97 * (next(&random) % 1000) / 1000,
        };
        const uint32_t steps = next(&random) % 2 ? 7 : 100000;
        for (int i = 0; i < classes; i++) logits[i] = 4 * (float)(next(&random) % steps) / (float)steps - 1;
        find_probabilities(&sampling, classes, logits, probability);
        const struct sl_key key = key_of(round);
        const int32_t token = sl_sample_token(&sampling, classes, logits, key, &room);
        assert_in_range(token, 0, classes - 1);
        if (!is_right(probability, token, uniform_of(key)))
            fail_msg("round %u: token %d of %d, top-k %d, top-p %g", round, token, classes, sampling.top_k,
                     sampling.top_p);
        assert_int_equal(sl_sample_token(&sampling, classes, logits, key, &room), token);
        changed += token != sl_sample_token(&sampling, classes, logits, key_of(~round), &room);
    }
    assert_true(changed > 5000);
}

/* All of them is the same as no choice, token by token. */
static void test_all_is_no_choice(void **state) {
    (void)state;
    float logits[20];
    for (int i = 0; i < 20; i++) logits[i] = (float)(i * 7 % 20) / 4;
    const struct sl_sampling none = {1, 0, 1},
                             all[] = {{1, 20, 1}, {1, 1000, 1}, {1, 0, 1 - 1e-15}, {1, 20, 1 - 1e-15}};
    for (uint32_t i = 0; i < 2000; i++) {
        const int32_t token = sl_sample_token(&none, 20, logits, key_of(i), &room);
        for (int a = 0; a < 4; a++) assert_int_equal(sl_sample_token(&all[a], 20, logits, key_of(i), &room), token);
    }
}

static void test_frequencies(void **state) {
    (void)state;
    enum { CLASSES = 8, DRAWS = 20000 };
    static const float logits[CLASSES] = {0.5f, 2.0f, -1.0f, 2.0f, 0.0f, 1.0f, -3.0f, 1.5f};
    static const struct {
        struct sl_sampling sampling;
        int kept;
    } cases[] = {
        {{1, 0, 1}, 8},      {{0.7, 0, 1}, 8}, {{2, 0, 1}, 8},    {{1, 3, 1}, 3},      {{1, 1, 1}, 1},
        {{1, 0, 0.6}, 3},    {{1, 0, 0.5}, 2}, {{1, 4, 0.9}, 4},  {{0.5, 5, 0.95}, 4}, {{1, 0, 1e-9}, 1},
        {{1, 2, 0.4999}, 1}, {{1, 2, 0.5}, 1}, {{1, 2, 0.51}, 2},
    };
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        int count[CLASSES] = {0}, kept = 0;
        double probability[CLASSES], chi2 = 0;
        for (uint32_t i = 0; i < DRAWS; i++)
            count[sl_sample_token(&cases[c].sampling, CLASSES, logits, key_of(i), &room)]++;
        find_probabilities(&cases[c].sampling, CLASSES, logits, probability);
        for (int i = 0; i < CLASSES; i++) {
            if (probability[i] == 0) {
                assert_int_equal(count[i], 0);
                continue;
            }
            const double expected = probability[i] * DRAWS;
            chi2 += (count[i] - expected) * (count[i] - expected) / expected;
            kept++;
        }
        assert_int_equal(kept, cases[c].kept);
        const double freedom = kept - 1;
        if (chi2 > freedom + 4 * sqrt(2 * freedom)) fail_msg("case %zu: chi-square %g of %g", c, chi2, freedom);
    }
}

static void test_greedy(void **state) {
    (void)state;
    const struct sl_sampling greedy = {0, 0, 1}, other = {0, 2, 0.1};
    static const float ties[] = {-1, 3, 2, 3, 3}, negative[] = {-1e30f, -2e30f}, zeros[] = {-0.0f, 0.0f};
    for (uint32_t i = 0; i < 10; i++) {
        assert_int_equal(sl_sample_token(&greedy, 5, ties, key_of(i), NULL), 1);
        assert_int_equal(sl_sample_token(&other, 5, ties, key_of(i), NULL), 1);
        assert_int_equal(sl_sample_token(&greedy, 2, negative, key_of(i), NULL), 0);
        assert_int_equal(sl_sample_token(&greedy, 2, zeros, key_of(i), NULL), 0);
        assert_int_equal(sl_sample_token(&greedy, 1, ties, key_of(i), NULL), 0);
    }
}

/* If logits are equal, those with lower numbers remain. */
static void test_ties(void **state) {
    (void)state;
    static const float logits[] = {1, 5, 5, 5, 5, 1};
    static const struct {
        struct sl_sampling sampling;
        int first, last;
    } cases[] = {
        {{1, 1, 1}, 1, 1},   {{1, 2, 1}, 1, 2},    {{1, 3, 1}, 1, 3},    {{1, 4, 1}, 1, 4},    {{1, 4, 0.25}, 1, 1},
        {{1, 4, 0.5}, 1, 2}, {{1, 4, 0.75}, 1, 3}, {{1, 4, 0.51}, 1, 3}, {{1, 4, 0.76}, 1, 4}, {{0.01, 0, 0.9}, 1, 4},
    };
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        int count[6] = {0};
        for (uint32_t i = 0; i < 500; i++) count[sl_sample_token(&cases[c].sampling, 6, logits, key_of(i), &room)]++;
        for (int i = 0; i < 6; i++) assert_int_equal(count[i] > 0, i >= cases[c].first && i <= cases[c].last);
    }
}

static void test_extreme_logits(void **state) {
    (void)state;
    static const struct sl_sampling settings[] = {{1, 0, 1}, {1, 4, 1}, {1, 0, 0.9}, {1e-300, 0, 1}, {1e300, 0, 1}};
    static const float large[] = {-3e38f, 3e38f, 3e38f, -3e38f}, infinite[] = {0, INFINITY, 3e38f, INFINITY};
    static const float masked[] = {-INFINITY, 1, -INFINITY, 2}, one[] = {-INFINITY, -INFINITY, -3e38f, -INFINITY};
    static const float none[] = {-INFINITY, -INFINITY};
    for (size_t s = 0; s < sizeof settings / sizeof *settings; s++) {
        int count[4][4] = {{0}};
        for (uint32_t i = 0; i < 500; i++) {
            count[0][sl_sample_token(&settings[s], 4, large, key_of(i), &room)]++;
            count[1][sl_sample_token(&settings[s], 4, infinite, key_of(i), &room)]++;
            count[2][sl_sample_token(&settings[s], 4, masked, key_of(i), &room)]++;
            count[3][sl_sample_token(&settings[s], 4, one, key_of(i), &room)]++;
        }
        if (settings[s].temperature < 1e299) assert_int_equal(count[0][1] + count[0][2], 500);
        assert_in_range(count[0][1], 100, 300);
        assert_int_equal(count[1][1] + count[1][3], 500);
        assert_in_range(count[1][1], 200, 300);
        assert_int_equal(count[2][1] + count[2][3], 500);
        assert_int_equal(count[3][2], 500);
        assert_int_equal(sl_sample_token(&settings[s], 2, none, key_of(0), &room), -1);
    }
    float nan[5] = {1, 2, 3, 4, 5};
    for (int i = 0; i < 5; i++) {
        nan[i] = NAN;
        for (size_t s = 0; s < sizeof settings / sizeof *settings; s++)
            assert_int_equal(sl_sample_token(&settings[s], 5, nan, key_of(0), &room), -1);
        assert_int_equal(sl_sample_token(&(struct sl_sampling){0, 0, 1}, 5, nan, key_of(0), NULL), -1);
        nan[i] = (float)i;
    }
    assert_int_equal(sl_sample_token(&(struct sl_sampling){0, 0, 1}, 2, none, key_of(0), NULL), -1);
}

/* The first and the last of the uniform numbers: a token without probability is not chosen at either end. */
static void test_ends(void **state) {
    (void)state;
    static const float logits[] = {-INFINITY, 1, 0, 1, -INFINITY};
    const struct sl_key zero = sl_key_of_seed(14620119), one = sl_key_of_seed(10082300);
    assert_true(uniform_of(zero) == 0);
    assert_true(uniform_of(one) == 1 - 0x1p-23);
    static const struct sl_sampling settings[] = {{1, 0, 1}, {1, 2, 1}, {1, 5, 1}, {1, 0, 0.7}};
    for (size_t s = 0; s < sizeof settings / sizeof *settings; s++) {
        assert_int_equal(sl_sample_token(&settings[s], 5, logits, zero, &room), 1);
        assert_int_equal(sl_sample_token(&settings[s], 5, logits, one, &room), 3);
    }
}

static void test_settings(void **state) {
    (void)state;
    static const struct {
        struct sl_sampling sampling;
        const char *line; /* NULL: accepted */
    } cases[] = {
        {{0, 0, 1}, NULL},
        {{0.7, 40, 0.95}, NULL},
        {{-0.1, 0, 1}, "temperature -0.1: at least 0 is possible"},
        {{NAN, 0, 1}, "temperature nan: at least 0 is possible"},
        {{INFINITY, 0, 1}, "temperature inf: at least 0 is possible"},
        {{1, -1, 1}, "top-k -1: at least 1 is possible, or 0 for all"},
        {{1, 0, 0}, "top-p 0: more than 0 and at most 1 is possible"},
        {{1, 0, 1.5}, "top-p 1.5: more than 0 and at most 1 is possible"},
        {{1, 0, NAN}, "top-p nan: more than 0 and at most 1 is possible"},
    };
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        struct sl_error error = {0};
        assert_int_equal(sl_sampling_check(&cases[c].sampling, &error), cases[c].line ? SL_BAD_INPUT : SL_OK);
        assert_string_equal(error.message, cases[c].line ? cases[c].line : "");
    }
}

static void test_bytes(void **state) {
    (void)state;
    static const struct {
        const char *bytes, *text;
    } cases[] = {
        {"", ""},
        {"plain ~ text\nsecond line", "plain ~ text\nsecond line"},
        {"\t\r\x1b[0m\x7f", "\t\\x0d\\x1b[0m\\x7f"},
        {"\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80", "\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80"},
        {"\x80\xff\xfe", "\\x80\\xff\\xfe"},
        {"\xc3", "\\xc3"},
        {"\xe2\x82", "\\xe2\\x82"},
        {"\xe2\x82x", "\\xe2\\x82x"},
        {"\xf0\x9f\x98", "\\xf0\\x9f\\x98"},
        {"\xc0\x80\xc1\xbf", "\\xc0\\x80\\xc1\\xbf"},                /* overlong */
        {"\xe0\x9f\xbf\xe0\xa0\x80", "\\xe0\\x9f\\xbf\xe0\xa0\x80"}, /* and not */
        {"\xf0\x8f\xbf\xbf\xf0\x90\x80\x80", "\\xf0\\x8f\\xbf\\xbf\xf0\x90\x80\x80"},
        {"\xed\xa0\x80\xed\x9f\xbf", "\\xed\\xa0\\x80\xed\x9f\xbf"}, /* a surrogate, and the last before them */
        {"\xf4\x8f\xbf\xbf\xf4\x90\x80\x80", "\xf4\x8f\xbf\xbf\\xf4\\x90\\x80\\x80"},
        {"\xf8\x88\x80\x80\x80", "\\xf8\\x88\\x80\\x80\\x80"},
        {"\xc2\x9b\x31m\xc2\xa0", "\\xc2\\x9b1m\xc2\xa0"}, /* moves cursors */
        {"\xc3\xc3\xa9", "\\xc3\xc3\xa9"},
    };
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        char *text;
        size_t size;
        FILE *stream = open_memstream(&text, &size);
        const size_t count = strlen(cases[c].bytes);
        uint8_t *bytes = malloc(count + 1); /* of the exact size, for sanitizers */
        memcpy(bytes, cases[c].bytes, count);
        bytes = realloc(bytes, count ? count : 1);
        assert_non_null(bytes);
        sl_print_bytes(stream, bytes, count);
        fclose(stream);
        assert_string_equal(text, cases[c].text);
        free(text);
        free(bytes);
    }
    char *text;
    size_t size;
    FILE *stream = open_memstream(&text, &size);
    sl_print_bytes(stream, (const uint8_t *)"a\0b", 3);
    fclose(stream);
    assert_string_equal(text, "a\\x00b");
    free(text);
}

static void test_utf8(void **state) {
    (void)state;
    static const struct {
        const char *bytes, *text;
    } cases[] = {
        {"", ""},
        {"caf\xc3\xa9\n\t\x1b", "caf\xc3\xa9\n\t\x1b"}, /* JSON escapes control characters itself */
        {"\xf0\x9f\x98\x80", "\xf0\x9f\x98\x80"},
        {"\xf0\x9f\x98", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"}, /* cut short */
        {"\xffx\xc3", "\xef\xbf\xbdx\xef\xbf\xbd"},
        {"\xed\xa0\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"}, /* a surrogate */
    };
    char text[64];
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        const size_t count = strlen(cases[c].bytes);
        const size_t length = sl_utf8_of_bytes((const uint8_t *)cases[c].bytes, count, text);
        assert_in_range(length, 0, 3 * count);
        assert_int_equal(length, strlen(cases[c].text));
        assert_memory_equal(text, cases[c].text, length);
    }
    assert_int_equal(sl_utf8_of_bytes((const uint8_t *)"a\0b", 3, text), 3);
    assert_memory_equal(text, "a\0b", 3);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_against_naive_choice),
        cmocka_unit_test(test_all_is_no_choice),
        cmocka_unit_test(test_frequencies),
        cmocka_unit_test(test_greedy),
        cmocka_unit_test(test_ties),
        cmocka_unit_test(test_extreme_logits),
        cmocka_unit_test(test_ends),
        cmocka_unit_test(test_settings),
        cmocka_unit_test(test_bytes),
        cmocka_unit_test(test_utf8),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, open_room, close_room);
}
