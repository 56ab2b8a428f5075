/* test_hashes.c - the kernels' hashes by places, of every level of this CPU, against the host's. */
#include "tests/rigs/kernel_levels.h"
#include "tests/rigs/numbers.h"

#include <string.h>

#include "spmd/base/numbers/bf16.h"
#include "spmd/base/places.h"
#include "spmd/device/device.h"

static const uint32_t counts[] = {0, 1, 2, 3, 15, 31, 32, 33, 63, 65, 128, 129, 257, 1000, 1001, 2100};
enum { COUNTS = sizeof counts / sizeof *counts };

/* Computes the hash as the header defines it by PLACES, element by element: of X [n], or of HALVES if it is not
 * NULL. */
static uint64_t expected_hash(size_t n, const float *x, const uint16_t *halves, const struct sl_hash_places *places,
                              const struct sl_places *keys) {
    uint64_t hash = 0;
    for (uint64_t i = 0; i < n; i++) {
        const uint64_t e = i + places->skipped, row = e / ((uint64_t)places->run * places->group);
        const uint64_t place =
            places->first + row * places->stride + e / places->run % places->group * places->step + e % places->run;
        hash += halves ? sl_places_hash_bf16(keys, place, halves + i, 1) : sl_places_hash(keys, place, x + i, 1);
    }
    return hash;
}

/* Whole arrays, columns of a matrix, several matrices beside each other, large places, any first elements; more
 * elements than threads take in one turn. */
static void hashes_are_those_of_places(void **state) {
    (void)state;
    enum { MOST = 100003 };
    static const struct sl_hash_places places[] = {
        {.first = 0, .run = UINT32_MAX, .group = 1},
        {.first = ((uint64_t)1 << 40) + 254, .run = UINT32_MAX, .group = 1},
        {.first = 12, .run = 4, .group = 1, .stride = 12},
        {.first = 1000, .run = 64, .group = 3, .step = 128, .stride = 384, .skipped = 71},
        {.first = 3, .run = 5, .group = 2, .step = 100, .stride = (uint64_t)1 << 33, .skipped = 9},
    };
    struct numbers numbers = {13};
    struct sl_places own;
    sl_places_open(&own);
    uint32_t *keys = device_copy(own.low, sizeof own.low);
    float *x = random_device_floats(&numbers, MOST + 1, -2, 2);
    uint16_t *halves = device_array(MOST + 1, sizeof *halves);
    uint64_t *sums = device_array(2 * SL_HASH_SUMS, sizeof *sums), *hashes = device_array(2, sizeof *hashes);
    for (size_t e = 0; e <= MOST; e++) halves[e] = sl_bf16_of_float(x[e]);
    FOR_EACH_LEVEL(kernels) {
        for (int c = 0; c <= COUNTS; c++) {
            for (size_t p = 0; p < sizeof places / sizeof *places; p++) {
                const size_t n = c < COUNTS ? counts[c] : MOST, off = p == 1;
                for (int half = 0; half < 2; half++) {
                    const void *from = half ? (const void *)(halves + off) : x + off;
                    memset(sums, 0, 2 * SL_HASH_SUMS * sizeof *sums);
                    sums[5] = 3; /* stays, and counts */
                    kernels->add_hash(n, from, half, &places[p], keys, sums);
                    kernels->add_hash(n, from, half, &places[p], keys, sums + SL_HASH_SUMS);
                    kernels->add_up_hashes(2, sums, hashes);
                    assert_true(hashes[1] == expected_hash(n, x + off, half ? halves + off : NULL, &places[p], &own));
                    assert_true(hashes[0] == hashes[1] + 3);
                }
            }
        }
    }
    release_array(hashes);
    release_array(sums);
    release_array(halves);
    release_array(x);
    release_array(keys);
}

int main(void) {
    cmocka_set_message_output(CM_OUTPUT_TAP);
    const struct CMUnitTest tests[] = {cmocka_unit_test(hashes_are_those_of_places)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
