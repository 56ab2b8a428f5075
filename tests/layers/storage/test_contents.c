/* test_contents.c - whole files in memory, mapped, or unpacked: sizes around every limit. */
#include "tests/rigs/changes.h"
#include "tests/rigs/one_file.h"

#include <zlib.h>

#include "layers/storage/contents.h"

/* Byte I of a text that does not repeat soon. */
static char byte_of(size_t i) { return (char)('a' + (i * 7 + i / 26 * 3 + i / 1000) % 26); }

static void write_packed(size_t bytes) {
    gzFile file = gzopen(path, "wb");
    assert_non_null(file);
    for (size_t i = 0; i < bytes; i++) assert_int_equal(gzputc(file, byte_of(i)), (unsigned char)byte_of(i));
    assert_int_equal(gzclose(file), Z_OK);
}

static int unpack(struct sl_contents *contents, size_t most, struct sl_error *error) {
    *contents = (struct sl_contents){0};
    assert_int_equal(sl_contents_open(contents, path, error), SL_OK);
    assert_true(sl_contents_are_packed(contents));
    const int status = sl_contents_unpack(contents, path, most, error);
    return status;
}

/* In memory, where it is copied; mapped; over several doublings of the room; and to the last byte of the most. */
static void packed_files_of_all_sizes(void **state) {
    (void)state;
    static const size_t sizes[] = {0, 1, SL_MOST_COPIED, SL_MOST_COPIED + 1, 65535, 65536, 65537, 300000};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        const size_t bytes = sizes[s], mosts[] = {1 << 20, bytes};
        write_packed(bytes);
        for (int m = 0; m < 2; m++) {
            struct sl_contents contents;
            struct sl_error error = {0};
            if (unpack(&contents, mosts[m], &error)) fail_msg("%zu bytes: %s", bytes, error.message);
            assert_int_equal(contents.count, bytes);
            assert_true(contents.mapped == (bytes > SL_MOST_COPIED));
            for (size_t i = 0; i < bytes; i++)
                if (((char *)contents.bytes)[i] != byte_of(i)) fail_msg("byte %zu of %zu", i, bytes);
            assert_false(sl_contents_are_binary(&contents));
            sl_contents_close(&contents);
        }
    }
}

static void what_becomes_too_large_is_refused(void **state) {
    (void)state;
    static const size_t mosts[] = {0, 100, 65535, 65536, 150000, 299999};
    write_packed(300000);
    for (size_t m = 0; m < sizeof mosts / sizeof *mosts; m++) {
        struct sl_contents contents;
        struct sl_error error = {0};
        assert_int_equal(unpack(&contents, mosts[m], &error), SL_BAD_INPUT);
        assert_non_null(strstr(error.message, "MB when unpacked, which is all that there is room for"));
        sl_contents_close(&contents);
    }
}

static void expect_unpacked(const void *bytes, size_t count, const char *line) {
    struct sl_contents contents;
    struct sl_error error = {0};
    write_file(path, bytes, count);
    const int status = unpack(&contents, 1 << 20, &error);
    expect_line("a packed file", status, &error, line);
    sl_contents_close(&contents);
}

/* Cut off anywhere, damaged, members one after another, zeros behind them, and something else. */
static void packed_files_that_are_wrong(void **state) {
    (void)state;
    enum { MOST = 4096 };
    unsigned char bytes[2 * MOST];
    write_packed(5000);
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    const size_t count = fread(bytes, 1, MOST, file);
    fclose(file);
    assert_in_range(count, 100, MOST - 1);
    for (size_t cut = 3; cut < count; cut += 97) expect_unpacked(bytes, cut, "is cut short");
    memcpy(bytes + count, bytes, count);
    expect_unpacked(bytes, 2 * count, NULL);
    memset(bytes + count, 0, 100);
    expect_unpacked(bytes, count + 100, NULL);
    bytes[count + 50] = 'x';
    expect_unpacked(bytes, count + 100, "something else comes after what gzip has packed");
    memcpy(bytes + count, "\x1f\x8b\x07", 3); /* another method */
    expect_unpacked(bytes, count + 3, "something else comes after");
    bytes[count / 2] ^= 0xff;
    expect_unpacked(bytes, count, "is damaged");
}

/* Blocks that are stored as they are fill the room to its last byte, and the next one is of no kind. */
static void damage_behind_a_full_room(void **state) {
    (void)state;
    enum { ROOM = 1 << 16, STORED = ROOM - 1 };
    static const unsigned char head[] = {0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3}, first[] = {0, 0xff, 0xff, 0, 0},
                               second[] = {0, 1, 0, 0xfe, 0xff, 'a', 6};
    unsigned char *bytes = malloc(ROOM + 100), *to = bytes;
    assert_non_null(bytes);
    to = mempcpy(to, head, sizeof head);
    to = mempcpy(to, first, sizeof first);
    memset(to, 'a', STORED);
    to = mempcpy(to + STORED, second, sizeof second);
    memset(to, 0, 8);
    expect_unpacked(bytes, (size_t)(to + 8 - bytes), "is damaged");
    free(bytes);
}

/* Of packed ones, what they unpack to counts. */
static void binary_files(void **state) {
    (void)state;
    static const struct {
        const char *bytes;
        size_t count;
        bool binary;
    } row[] = {{"", 0, false}, {"text", 4, false}, {"a\0b", 3, true}};
    for (int r = 0; r < 3; r++) {
        for (int packed = 0; packed < 2; packed++) {
            struct sl_contents contents = {0};
            gzFile file = gzopen(path, packed ? "wb" : "wbT");
            assert_non_null(file);
            if (row[r].count) assert_true(gzwrite(file, row[r].bytes, (unsigned)row[r].count) > 0);
            gzclose(file);
            assert_int_equal(sl_contents_open(&contents, path, NULL), SL_OK);
            assert_true(sl_contents_are_binary(&contents) == row[r].binary);
            sl_contents_close(&contents);
        }
    }
}

static void what_is_no_file(void **state) {
    (void)state;
    struct sl_contents contents = {0};
    struct sl_error error;
    assert_int_equal(sl_contents_open(&contents, folder, &error), SL_BAD_INPUT);
    assert_non_null(strstr(error.message, "neither a regular file nor a directory"));
    assert_int_equal(sl_contents_open(&contents, "/dev/null", &error), SL_BAD_INPUT);
    assert_int_equal(sl_contents_open(&contents, "/nowhere", &error), SL_BAD_INPUT);
}

static int make_files(void **state) {
    (void)state;
    return make_one_file("test_contents");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(packed_files_of_all_sizes),
        cmocka_unit_test(what_becomes_too_large_is_refused),
        cmocka_unit_test(packed_files_that_are_wrong),
        cmocka_unit_test(damage_behind_a_full_room),
        cmocka_unit_test(binary_files),
        cmocka_unit_test(what_is_no_file),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, make_files, remove_one_file);
}
