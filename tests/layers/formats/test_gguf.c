/* test_gguf.c - the metadata of GGUF files and their lists of tensors: every type, cut files and excessive lengths. */
#include "tests/rigs/changes.h"
#include "tests/rigs/gguf_file.h"

#include <math.h>

static struct sl_gguf gguf;

/* Opens the built file, with its list of tensors, and closes it; expects the error LINE. */
static void expect(const char *line) {
    struct sl_error error = {0};
    const struct sl_contents contents = {.bytes = file.bytes, .count = file.count};
    int status = sl_gguf_open(&gguf, &contents, "file", &error);
    if (status == SL_OK) status = sl_gguf_list_tensors(&gguf, &contents, "file", &error);
    expect_line("a GGUF file", status, &error, line);
    sl_gguf_close(&gguf);
}

/* ---- cut files: every length except the whole is refused ---- */

static void put_all(void) {
    put_head(1, 4);
    put_string("general.architecture", "llama");
    put_array("list", SL_GGUF_I16, 3);
    for (int i = 0; i < 3; i++) put_number((uint64_t)i, 2);
    put_array("texts", SL_GGUF_STRING, 2);
    put_text("a");
    put_text("bc");
    put_real("real", 0.5f);
    put_tensor("tensor", 2, 8, 0, 0);
    align();
    for (int i = 0; i < 8; i++) put_number(0, 8);
}

static void every_beginning_is_refused(void **state) {
    (void)state;
    put_all();
    const size_t whole = file.count;
    expect(NULL);
    for (size_t cut = 0; cut < whole - 64; cut++) { /* the reader does not check the data themselves */
        struct sl_error error = {0};
        const struct sl_contents contents = {.bytes = cut ? file.bytes : NULL, .count = cut};
        int status = sl_gguf_open(&gguf, &contents, "file", &error);
        if (status == SL_OK) status = sl_gguf_list_tensors(&gguf, &contents, "file", &error);
        if (status != SL_BAD_INPUT) fail_msg("%zu of %zu bytes: status %d", cut, whole, status);
        sl_gguf_close(&gguf);
    }
}

static void malformed_files_are_refused(void **state) {
    (void)state;
    put_head(0, 0);
    file.bytes[4] = 1;
    expect("another version than 2 and 3");
    file.bytes[4] = 4;
    expect("another version than 2 and 3");
    put_head(0, 1);
    put_key("a", SL_GGUF_TYPES);
    expect("value 0 of the metadata is malformed or truncated");
    put_head(0, 1);
    put_array("a", SL_GGUF_ARRAY, 1);
    expect("value 0 of the metadata is malformed or truncated");
    put_head(0, 1);
    put_array("a", SL_GGUF_U64, (uint64_t)1 << 61);
    expect("value 0 of the metadata is malformed or truncated");
    put_head(0, 1);
    put_array("a", SL_GGUF_STRING, (uint64_t)1 << 61);
    expect("value 0 of the metadata is malformed or truncated");
    put_head(0, 1);
    put_number(UINT64_MAX, 8);
    expect("value 0 of the metadata is malformed or truncated");
    put_head(1, 0);
    put_text("tensor");
    put_number(5, 4);
    for (int i = 0; i < 8; i++) put_number(1, 8);
    expect("number 0 in the list of tensors is malformed or truncated");
    put_head(0, 1);
    put_integer("general.alignment", 0);
    expect("general.alignment is 0");
    put_head(0, 1);
    put_integer("general.alignment", 1 << 21);
    expect("general.alignment is 2097152");
    put_head(1, 0);
    put_tensor("tensor", 1, 1, 0, 0);
    expect("truncated: it ends before its tensors");
    put_head(0, 0); /* without tensors the data need not begin */
    expect(NULL);
}

static void places_are_checked(void **state) {
    (void)state;
    char name[130];
    memset(name, 'n', sizeof name - 1);
    name[sizeof name - 1] = 0;
    put_head(1, 0);
    put_tensor(name, 1, 1, 0, 7);
    align();
    put_number(0, 8);
    expect("which the alignment forbids");
    put_head(1, 0);
    put_tensor("short", 1, 1, 0, 64);
    align();
    put_number(0, 8);
    expect("tensor short begins at byte 64 of the data, behind their end");
}

/* More than a million values, or tensors, are refused, and not for want of memory. */
static void lists_have_limits(void **state) {
    (void)state;
    enum { MOST = 1 << 20, VALUE = 8 + 4 + 1, TENSOR = 8 + 4 + 4 + 8 };
    struct sl_contents contents = {.bytes = calloc(MOST + 1, TENSOR + 8), .count = (size_t)(MOST + 1) * TENSOR};
    assert_non_null(contents.bytes);
    for (int tensors = 0; tensors < 2; tensors++) { /* zeros are an empty key, of a U8; or a tensor without a name */
        struct sl_error error = {0};
        put_head(tensors ? MOST + 1 : 0, tensors ? 0 : MOST + 1);
        memcpy(contents.bytes, file.bytes, file.count);
        int status = sl_gguf_open(&gguf, &contents, "file", &error);
        if (status == SL_OK) status = sl_gguf_list_tensors(&gguf, &contents, "file", &error);
        expect_line("a long list", status, &error, tensors ? "more than 1048576 tensors" : "more than 1048576 values");
        sl_gguf_close(&gguf);
    }
    free(contents.bytes);
}

/* ---- values ---- */

static void expect_integer(enum sl_gguf_type type, uint64_t bits, size_t bytes, int64_t wanted) {
    struct sl_error error = {0};
    put_head(0, 1);
    put_key("n", type);
    put_number(bits, bytes);
    const struct sl_contents contents = {.bytes = file.bytes, .count = file.count};
    assert_int_equal(sl_gguf_open(&gguf, &contents, "file", &error), SL_OK);
    assert_int_equal(sl_gguf_integer(sl_gguf_find(&gguf, "n"), -77), wanted);
    assert_null(sl_gguf_find(&gguf, "m"));
    sl_gguf_close(&gguf);
}

static void integers_of_every_type(void **state) {
    (void)state;
    expect_integer(SL_GGUF_U8, 200, 1, 200);
    expect_integer(SL_GGUF_I8, 200, 1, 200 - 256);
    expect_integer(SL_GGUF_U16, 60000, 2, 60000);
    expect_integer(SL_GGUF_I16, 60000, 2, 60000 - 65536);
    expect_integer(SL_GGUF_U32, 4000000000u, 4, 4000000000u);
    expect_integer(SL_GGUF_I32, 4000000000u, 4, (int64_t)4000000000u - ((int64_t)1 << 32));
    expect_integer(SL_GGUF_BOOL, 1, 1, 1);
    expect_integer(SL_GGUF_U64, 5, 8, 5);
    expect_integer(SL_GGUF_U64, UINT64_MAX, 8, -77); /* too large for the requested type */
    expect_integer(SL_GGUF_I64, UINT64_MAX, 8, -1);
    expect_integer(SL_GGUF_F32, 5, 4, -77);
    expect_integer(SL_GGUF_F64, 5, 8, -77);
    expect_integer(SL_GGUF_STRING, 0, 8, -77);
    assert_int_equal(sl_gguf_integer(NULL, -77), -77);
}

static void reals(void **state) {
    (void)state;
    struct sl_error error = {0};
    const double real = 0.25;
    put_head(0, 4);
    put_real("single", 0.5f);
    put_key("double", SL_GGUF_F64);
    put(&real, sizeof real);
    put_integer("integer", 3);
    put_array("array", SL_GGUF_F32, 1);
    put_number(0, 4);
    const struct sl_contents contents = {.bytes = file.bytes, .count = file.count};
    assert_int_equal(sl_gguf_open(&gguf, &contents, "file", &error), SL_OK);
    assert_true(sl_gguf_real(sl_gguf_find(&gguf, "single"), 9) == 0.5);
    assert_true(sl_gguf_real(sl_gguf_find(&gguf, "double"), 9) == 0.25);
    assert_true(sl_gguf_real(sl_gguf_find(&gguf, "integer"), 9) == 9);
    assert_true(sl_gguf_real(sl_gguf_find(&gguf, "array"), 9) == 9);
    assert_true(sl_gguf_real(NULL, 9) == 9);
    assert_int_equal(sl_gguf_integer(sl_gguf_find(&gguf, "array"), -77), -77);
    sl_gguf_close(&gguf);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_beginning_is_refused), cmocka_unit_test(malformed_files_are_refused),
        cmocka_unit_test(places_are_checked),         cmocka_unit_test(lists_have_limits),
        cmocka_unit_test(integers_of_every_type),     cmocka_unit_test(reals),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
