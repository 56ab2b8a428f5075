/* test_contents.c - whole files in memory, mapped, or unpacked: sizes around every limit. */
#include "tests/rigs/changes.h"
#include "tests/rigs/one_file.h"

#include <zlib.h>
#include <zstd.h>

#include "layers/formats/files/contents.h"

/* Returns byte I of a text with a long period. */
static char byte_of(size_t i) { return (char)('a' + (i * 7 + i / 26 * 3 + i / 1000) % 26); }

static void write_packed(size_t bytes) {
    gzFile file = gzopen(path, "wb");
    assert_non_null(file);
    for (size_t i = 0; i < bytes; i++) assert_int_equal(gzputc(file, byte_of(i)), (unsigned char)byte_of(i));
    assert_int_equal(gzclose(file), Z_OK);
}

/* Writes two frames with checksums; the second has half of the bytes. */
static void write_frames(size_t bytes) {
    const size_t parts[] = {bytes - bytes / 2, bytes / 2}, room = ZSTD_compressBound(bytes) + 100;
    char *text = malloc(bytes + 1), *packed = malloc(room);
    size_t used = 0, done = 0;
    ZSTD_CCtx *context = ZSTD_createCCtx();
    assert_true(text && packed && context);
    ZSTD_CCtx_setParameter(context, ZSTD_c_checksumFlag, 1);
    for (size_t i = 0; i < bytes; i++) text[i] = byte_of(i);
    for (int i = 0; i < 2; done += parts[i++]) {
        const size_t more = ZSTD_compress2(context, packed + used, room - used, text + done, parts[i]);
        assert_false(ZSTD_isError(more));
        used += more;
    }
    write_file(path, packed, used);
    ZSTD_freeCCtx(context);
    free(text);
    free(packed);
}

static void (*const writers[])(size_t bytes) = {write_packed, write_frames};

static int unpack(struct sl_contents *contents, size_t most, struct sl_error *error) {
    *contents = (struct sl_contents){0};
    assert_int_equal(sl_contents_open(contents, path, error), SL_OK);
    assert_true(sl_contents_are_packed(contents));
    const int status = sl_contents_unpack(contents, path, most, error);
    return status;
}

/* Small files, which are copied; mapped ones; several doublings of the buffer; and exactly the largest size. */
static void packed_files_of_all_sizes(void **state) {
    (void)state;
    static const size_t sizes[] = {0, 1, SL_MOST_COPIED, SL_MOST_COPIED + 1, 65535, 65536, 65537, 300000};
    for (size_t s = 0; s < 2 * sizeof sizes / sizeof *sizes; s++) {
        const size_t bytes = sizes[s / 2], mosts[] = {1 << 20, bytes};
        writers[s % 2](bytes);
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
    for (size_t m = 0; m < 2 * sizeof mosts / sizeof *mosts; m++) {
        writers[m % 2](300000);
        struct sl_contents contents;
        struct sl_error error = {0};
        assert_int_equal(unpack(&contents, mosts[m / 2], &error), SL_BAD_INPUT);
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

static void frames_that_are_wrong(void **state) {
    (void)state;
    enum { MOST = 8192 };
    unsigned char bytes[2 * MOST];
    write_frames(5000);
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    const size_t count = fread(bytes, 1, MOST, file);
    fclose(file);
    assert_in_range(count, 100, MOST - 1);
    for (size_t cut = 4; cut < count / 3; cut += 7) expect_unpacked(bytes, cut, "is cut short");
    expect_unpacked(bytes, count - 1, "what zstd has packed is cut short");
    memcpy(bytes + count, bytes, count);
    expect_unpacked(bytes, 2 * count, NULL);
    memcpy(bytes + count, "other", 5);
    expect_unpacked(bytes, count + 5, "something else comes after what zstd has packed");
    bytes[count - 1] ^= 0xff; /* of a checksum */
    expect_unpacked(bytes, count, "what zstd has packed is damaged");
    expect_unpacked("\x28\xb5\x2f\xfd\x00\xf8", 6, "a window of more than 128 MB");
}

/* ---- other kinds of files ---- */

static void kinds_of_files(void **state) {
    (void)state;
    static const struct {
        const char *path, *bytes;
        size_t count;
        const char *kind; /* NULL: a text */
    } row[] = {{"a", "PAR1....", 8, "a Parquet file"},
               {"a.PARQUET", "x", 1, "a Parquet file"},
               {"a", "\x93NUMPY\1", 7, "an array of NumPy's"},
               {"a.npy", "x", 1, "an array of NumPy's"},
               {"a", "PK\3\4", 4, "a zip archive"},
               {"a.npz", "x", 1, "a zip archive"},
               {"a", "\x80\4\x95", 3, "a pickle of Python's"},
               {"a.pkl", "x", 1, "a pickle of Python's"},
               {"a.json", "x", 1, "JSON"},
               {"a.ndjson", "x", 1, "JSON"},
               {"a.JSONL.gz", "x", 1, "JSON"},
               {"a", "{\"a\": 1}", 8, "JSON"},
               {"a.bin", "a\0b\0", 4, "tokens of 16 bits without a header, which --data-format uint16 reads"},
               {"a.bin", "a\0b", 3, NULL},
               {"a.bin", "text", 4, NULL},
               {"a", "a\0b\0", 4, NULL},
               {"a.txt", "text", 4, NULL},
               {"", "", 0, NULL},
               {"json", "text", 4, NULL}};
    for (size_t r = 0; r < sizeof row / sizeof *row; r++) {
        char copy[16];
        memcpy(copy, row[r].bytes, row[r].count);
        const char *kind = sl_contents_kind(&(struct sl_contents){copy, row[r].count, false}, row[r].path);
        if (!kind != !row[r].kind || (kind && strcmp(kind, row[r].kind) != 0))
            fail_msg("%s, row %zu: %s", row[r].path, r, kind ? kind : "a text");
    }
}

static void names_of_lines(void **state) {
    (void)state;
    static const char *const lines[] = {"a.jsonl",    "b/a.JSONL",    "a.ndjson",
                                        "a.jsonl.gz", "a.ndjson.zst", "a.Jsonl.ZSTD"};
    static const char *const others[] = {"a.json", "jsonl", ".jsonl", "a.jsonl.xz", "a.gz", "", "a.jsonl.gz.gz"};
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
        if (!sl_contents_are_lines(lines[i])) fail_msg("%s", lines[i]);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (sl_contents_are_lines(others[i])) fail_msg("%s", others[i]);
}

/* Stored blocks fill the buffer to its last byte, and the next block is of no kind. */
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

/* For packed files, the unpacked bytes count. */
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
        cmocka_unit_test(frames_that_are_wrong),
        cmocka_unit_test(kinds_of_files),
        cmocka_unit_test(names_of_lines),
        cmocka_unit_test(packed_files_that_are_wrong),
        cmocka_unit_test(damage_behind_a_full_room),
        cmocka_unit_test(binary_files),
        cmocka_unit_test(what_is_no_file),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, make_files, remove_one_file);
}
