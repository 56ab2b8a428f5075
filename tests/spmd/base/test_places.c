/* test_places.c - hashes by places: the formula, sums of parts, and visible changes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "spmd/base/numbers/bf16.h"
#include "spmd/base/places.h"

enum { COUNT = 1500 };

static uint64_t mix(uint64_t n) {
    n += 0x9e3779b97f4a7c15;
    n = (n ^ n >> 30) * 0xbf58476d1ce4e5b9;
    n = (n ^ n >> 27) * 0x94d049bb133111eb;
    return n ^ n >> 31;
}

/* Computes the hash as the header defines it. */
static uint64_t naive(uint64_t first, const uint32_t *word, size_t count) {
    uint64_t sum = 0;
    for (size_t i = 0; i < count; i++) {
        const uint64_t place = first + i, low = mix(~(place % 256)) >> 32 | 1, high = mix(place / 256) | 1;
        sum += low * high * word[i];
    }
    return sum;
}

/* For CPUs with vectors and without: the same numbers. On a CPU without vectors both are the latter. */
static struct sl_places places_of(bool wide) {
    struct sl_places places;
    sl_places_open(&places);
    places.wide = places.wide && wide;
    return places;
}

static void fill(uint32_t *word) {
    for (size_t i = 0; i < COUNT; i++) word[i] = (uint32_t)mix(i);
}

static void it_is_the_formula(void **state) {
    (void)state;
    uint32_t word[COUNT];
    static const uint64_t firsts[] = {0, 1, 255, 256, 1000003, (uint64_t)1 << 40};
    static const size_t counts[] = {0, 1, 7, 16, 31, 255, 256, 257, COUNT};
    fill(word);
    for (int wide = 0; wide < 2; wide++) {
        const struct sl_places places = places_of(wide);
        for (size_t f = 0; f < sizeof firsts / sizeof *firsts; f++)
            for (size_t c = 0; c < sizeof counts / sizeof *counts; c++)
                assert_true(sl_places_hash(&places, firsts[f], word, counts[c]) == naive(firsts[f], word, counts[c]));
    }
}

/* The keys are known to callers that multiply themselves. */
static void keys_are_given(void **state) {
    (void)state;
    const struct sl_places places = places_of(true);
    uint32_t word[COUNT];
    uint64_t hash = 0;
    const uint64_t first = 1000003;
    fill(word);
    for (size_t at = 0, count; at < COUNT; at += count) {
        const uint32_t *keys;
        uint64_t sum = 0;
        count = sl_places_keys(&places, first + at, &keys);
        assert_in_range(count, 1, 256);
        count = count < COUNT - at ? count : COUNT - at;
        for (size_t i = 0; i < count; i++) sum += (uint64_t)keys[i] * word[at + i];
        hash += sl_places_high(first + at) * sum;
    }
    assert_true(hash == naive(first, word, COUNT));
}

static void parts_add_up(void **state) {
    (void)state;
    struct sl_places places;
    uint32_t word[COUNT];
    sl_places_open(&places);
    fill(word);
    const uint64_t whole = sl_places_hash(&places, 5, word, COUNT);
    for (size_t run = 1; run < COUNT; run += 97) {
        uint64_t sum = 0;
        for (size_t i = 0, part; i < COUNT; i += part) {
            part = COUNT - i < run ? COUNT - i : run;
            sum += sl_places_hash(&places, 5 + i, word + i, part);
        }
        assert_true(sum == whole);
    }
}

static void a_word_that_changes_shows(void **state) {
    (void)state;
    struct sl_places places;
    uint32_t word[COUNT];
    sl_places_open(&places);
    fill(word);
    const uint64_t before = sl_places_hash(&places, 0, word, COUNT);
    for (size_t i = 0; i < COUNT; i += 13) {
        for (int bit = 0; bit < 32; bit++) {
            word[i] ^= (uint32_t)1 << bit;
            assert_true(sl_places_hash(&places, 0, word, COUNT) != before);
            word[i] ^= (uint32_t)1 << bit;
        }
    }
}

static void words_that_change_places_show(void **state) {
    (void)state;
    struct sl_places places;
    uint32_t word[COUNT];
    sl_places_open(&places);
    fill(word);
    const uint64_t before = sl_places_hash(&places, 0, word, COUNT);
    for (size_t i = 0; i < COUNT; i += 31) {
        for (size_t j = i + 1; j < COUNT; j += 101) {
            const uint32_t kept[] = {word[i], word[j]};
            word[i] = kept[1];
            word[j] = kept[0];
            assert_true(sl_places_hash(&places, 0, word, COUNT) != before);
            word[i] = kept[0];
            word[j] = kept[1];
        }
    }
}

static void bf16_has_the_hash_of_its_floats(void **state) {
    (void)state;
    uint16_t half[COUNT];
    float value[COUNT];
    for (size_t i = 0; i < COUNT; i++) {
        half[i] = (uint16_t)mix(i);
        value[i] = sl_float_of_bf16(half[i]);
    }
    for (int wide = 0; wide < 2; wide++) {
        const struct sl_places places = places_of(wide);
        for (size_t first = 0; first < 600; first += 199)
            assert_true(sl_places_hash_bf16(&places, first, half, COUNT) ==
                        sl_places_hash(&places, first, value, COUNT));
    }
}

static void sums_have_the_hash_of_what_they_would_be(void **state) {
    (void)state;
    float a[COUNT], b[COUNT], both[COUNT];
    for (size_t i = 0; i < COUNT; i++) {
        a[i] = (float)(mix(i) % 10007) / 97.0f;
        b[i] = (float)(mix(i + COUNT) % 10007) / -89.0f;
        both[i] = a[i] + b[i];
    }
    for (int wide = 0; wide < 2; wide++) {
        const struct sl_places places = places_of(wide);
        for (size_t first = 0; first < 600; first += 199)
            assert_true(sl_places_hash_sum(&places, first, a, b, COUNT) == sl_places_hash(&places, first, both, COUNT));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_is_the_formula),
        cmocka_unit_test(keys_are_given),
        cmocka_unit_test(parts_add_up),
        cmocka_unit_test(a_word_that_changes_shows),
        cmocka_unit_test(words_that_change_places_show),
        cmocka_unit_test(sums_have_the_hash_of_what_they_would_be),
        cmocka_unit_test(bf16_has_the_hash_of_its_floats),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    cmocka_set_test_filter(getenv("SL_TEST_FILTER"));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
