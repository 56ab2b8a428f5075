/* test_hash.c - checksums. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "spmd/base/hash.h"

/* Numbers by another program: python3 -c 'import xxhash; print(xxhash.xxh3_64_hexdigest(b"shardloop"))'. */
static void hashes_are_xxh3(void **state) {
    (void)state;
    unsigned char bytes[1000];
    for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = (unsigned char)(7 * i);
    assert_true(sl_hash("", 0) == UINT64_C(0x2d06800538d394c2));
    assert_true(sl_hash("shardloop", 9) == UINT64_C(0x6c0c65880f4759b7));
    assert_true(sl_hash(bytes, sizeof bytes) == UINT64_C(0x10ad30264426c830));
}

static void parts_give_the_hash_of_the_whole(void **state) {
    (void)state;
    char text[5000];
    for (size_t i = 0; i < sizeof text; i++) text[i] = (char)(i * i);
    struct sl_hasher hasher;
    sl_hasher_begin(&hasher);
    for (size_t part = 1; part < 3000; part = 3 * part + 1) {
        for (size_t at = 0; at < sizeof text; at += part)
            sl_hasher_add(&hasher, text + at, sizeof text - at < part ? sizeof text - at : part);
        assert_true(sl_hasher_end(&hasher) == sl_hash(text, sizeof text));
    }
    sl_hasher_add_text(&hasher, "key");
    sl_hasher_add_text(&hasher, "");
    assert_true(sl_hasher_end(&hasher) == sl_hash("key\0", 5));
}

static void prints_all_digits(void **state) {
    (void)state;
    char text[SL_HASH_DIGITS + 1];
    assert_string_equal(sl_hash_print(UINT64_C(0x12ab), text), "00000000000012ab");
    assert_string_equal(sl_hash_print(UINT64_MAX, text), "ffffffffffffffff");
}

int main(void) {
    cmocka_set_message_output(CM_OUTPUT_TAP);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hashes_are_xxh3),
        cmocka_unit_test(parts_give_the_hash_of_the_whole),
        cmocka_unit_test(prints_all_digits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
