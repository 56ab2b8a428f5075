/* test_token_directories.c - files of a directory that are read as text, their order, and gzip files. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "layers/formats/tokens/token_format.h"
#include "tests/rigs/folder.h"

static char folder[FOLDER], data[FOLDER + 8];

static int make_data(void **state) {
    (void)state;
    if (!make_folder(folder, "test_token_directories")) return -1;
    snprintf(data, sizeof data, "%s/data", folder);
    return mkdir(data, 0700);
}

static int remove_entry(const char *path, const struct stat *about, int kind, struct FTW *walk) {
    (void)about, (void)kind, (void)walk;
    return remove(path);
}

static int remove_data(void **state) {
    (void)state;
    return nftw(folder, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

/* ---- files ---- */

/* Returns the path of NAME in the data, valid until the next call. Makes the directories on the way. */
static const char *at(const char *name) {
    static char path[FOLDER + 400];
    snprintf(path, sizeof path, "%s/%s", data, name);
    for (char *slash = path + strlen(data) + 1; (slash = strchr(slash, '/')); slash++) {
        *slash = 0;
        assert_true(!mkdir(path, 0700) || errno == EEXIST);
        *slash = '/';
    }
    return path;
}

static void put(const char *name, const void *bytes, size_t count) {
    FILE *file = fopen(at(name), "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, count, file), count);
    assert_int_equal(fclose(file), 0);
}

static void put_text(const char *name, const char *text) { put(name, text, strlen(text)); }

/* Appends a member to NAME, or begins the file. */
static void put_packed(const char *name, const char *mode, const void *bytes, size_t count) {
    gzFile file = gzopen(at(name), mode);
    assert_non_null(file);
    assert_int_equal(gzwrite(file, bytes, (unsigned)count), (int)count);
    assert_int_equal(gzclose(file), Z_OK);
}

static size_t read_back(const char *name, unsigned char *bytes, size_t room) {
    FILE *file = fopen(at(name), "rb");
    assert_non_null(file);
    const size_t count = fread(bytes, 1, room, file);
    fclose(file);
    return count;
}

/* Returns COUNT letters that gzip compresses badly. */
static char *letters(size_t count) {
    char *text = malloc(count);
    uint32_t random = 1;
    assert_non_null(text);
    for (size_t i = 0; i < count; i++) text[i] = (char)('A' + ((random = random * 1664525u + 1013904223u) >> 24) % 50);
    return text;
}

/* The stream of PATH is the COUNT bytes of TEXT. */
static struct sl_tokens expect_bytes(const char *path, const char *text, size_t count) {
    struct sl_tokens tokens;
    struct sl_error error = {0};
    if (sl_tokens_open(&tokens, path, NULL, 1, 1, &error)) fail_msg("%s", error.message);
    assert_string_equal(tokens.format->name, "text");
    assert_int_equal(tokens.count, count);
    int32_t *read = malloc(count * sizeof *read);
    assert_non_null(read);
    assert_int_equal(sl_tokens_fetch(&tokens, true, 0, 0, 1, (int)count - 1, read, NULL, &error), SL_OK);
    for (size_t i = 0; i + 1 < count; i++) assert_int_equal(read[i], (unsigned char)text[i]);
    free(read);
    return tokens;
}

static struct sl_token_counts expect_text(const char *path, const char *text) {
    struct sl_tokens tokens = expect_bytes(path, text, strlen(text));
    const struct sl_token_counts counts = tokens.counts;
    sl_tokens_close(&tokens);
    return counts;
}

static void expect_refusal(const char *path, const char *reason) {
    struct sl_tokens tokens;
    struct sl_error error = {0};
    assert_int_equal(sl_tokens_open(&tokens, path, NULL, 0, 1, &error), SL_BAD_INPUT);
    if (!strstr(error.message, reason)) fail_msg("\"%s\" is not in: %s", reason, error.message);
    assert_null(tokens.file);
}

/* ---- files and their order ---- */

static void test_order(void **state) {
    (void)state;
    put_text("b/z", "7");
    put_text("b/a/x", "6");
    put_text("b.txt", "5"); /* a dot comes before a slash */
    put_text("b-c", "4");
    put_text("a", "3");
    put_text("B/1", "2");
    put_text("c", "8");
    put_text("A", "1");
    const struct sl_token_counts counts = expect_text(data, "12345678");
    assert_int_equal(counts.binary + counts.links + counts.hidden + counts.others + counts.packed, 0);
}

/* A name shorter than the ending of shards' names. */
static void test_short_names(void **state) {
    (void)state;
    char here[400];
    assert_non_null(getcwd(here, sizeof here));
    put_text("a", "short");
    assert_int_equal(chdir(data), 0);
    expect_text(".", "short");
    assert_int_equal(chdir(here), 0);
}

static void test_left_out(void **state) {
    (void)state;
    char late[9000];
    memset(late, 'x', sizeof late);
    put_text("text", "text");
    put("zero", "a\0b", 3);
    late[8191] = 0;
    put("sub/zero", late, sizeof late);
    put_text("sub/more", "more");
    put_text(".hidden", "hidden");
    put_text(".git/objects/1/file", "hidden, and so is all that is below");
    assert_int_equal(symlink("../text", at("sub/link")), 0);
    assert_int_equal(symlink("../..", at("sub/loop")), 0);
    assert_int_equal(symlink("nowhere", at("sub/dangling")), 0);
    assert_int_equal(mkfifo(at("fifo"), 0600), 0);
    const struct sl_token_counts counts = expect_text(data, "moretext");
    assert_int_equal(counts.binary, 2);
    assert_int_equal(counts.links, 3);
    assert_int_equal(counts.hidden, 2);
    assert_int_equal(counts.others, 1);
    expect_text(at("sub/loop"), "moretext"); /* the path itself may be a link, and its names hidden */
    expect_text(at(".hidden"), "hidden");
    expect_text(at(".git/objects"), "hidden, and so is all that is below");
    struct sl_tokens tokens = expect_bytes(at("zero"), "a\0b", 3); /* a file alone is read whatever it holds */
    sl_tokens_close(&tokens);
}

/* A zero behind the first 8 KiB does not make a text binary. */
static void test_late_zero(void **state) {
    (void)state;
    char text[20000];
    memset(text, 'x', sizeof text);
    text[8192] = 0;
    put("text", text, sizeof text);
    struct sl_tokens tokens = expect_bytes(data, text, sizeof text);
    assert_int_equal(tokens.counts.binary, 0);
    sl_tokens_close(&tokens);
    put("sub/binary", "\0", 1);
    assert_int_equal(remove(at("text")), 0);
    expect_refusal(data, "no text is in it: all its files are binary (1)");
}

/* Directories as deep as a path can be, and then deeper. */
static void test_depth(void **state) {
    (void)state;
    char here[4096];
    assert_non_null(getcwd(here, sizeof here));
    put_text("text", "text");
    assert_int_equal(chdir(data), 0);
    for (int depth = 0; depth < 1500; depth++) assert_true(!mkdir("d", 0700) && !chdir("d"));
    assert_int_equal(chdir(here), 0);
    expect_text(data, "text");
    assert_int_equal(chdir(data), 0);
    for (int depth = 0; depth < 1500; depth++) assert_int_equal(chdir("d"), 0);
    for (int depth = 0; depth < 1000; depth++) assert_true(!mkdir("d", 0700) && !chdir("d"));
    assert_int_equal(chdir(here), 0);
    expect_refusal(data, "File name too long");
    assert_int_equal(chdir(data), 0);
    for (int depth = 0; depth < 2500; depth++) assert_int_equal(chdir("d"), 0);
    for (int depth = 0; depth < 2500; depth++) assert_true(!chdir("..") && !rmdir("d"));
    assert_int_equal(chdir(here), 0);
}

static void test_shards_below(void **state) {
    (void)state;
    static int32_t shard[256 + 2] = {20240520, 1, 4};
    memcpy(shard + 256, (const uint16_t[]){1, 2, 3, 50000}, 8);
    put("b/1.bin", shard, sizeof shard);
    put("a.bin", shard, sizeof shard);
    put_text("README", "no shard");
    put_text("broken.gz", "\x1f\x8b\x08 is not read");
    struct sl_tokens tokens;
    struct sl_error error = {0};
    assert_int_equal(sl_tokens_open(&tokens, data, NULL, 0, 1, &error), SL_OK);
    assert_string_equal(tokens.format->name, "shard");
    assert_int_equal(tokens.files, 2);
    assert_int_equal(tokens.count, 8);
    sl_tokens_close(&tokens);
    put_packed("c/shard.gz", "wb", shard, sizeof shard); /* alone, a file is unpacked before it is looked at */
    assert_int_equal(sl_tokens_open(&tokens, at("c/shard.gz"), NULL, 0, 1, &error), SL_OK);
    assert_string_equal(tokens.format->name, "shard");
    sl_tokens_close(&tokens);
}

/* ---- gzip ---- */

static void test_packed(void **state) {
    (void)state;
    enum { COUNT = 300000 };
    char *text = letters(COUNT);
    static const size_t cuts[] = {0, 100, 16384, 32769, 100000, 200000, COUNT};
    put("0", text, cuts[1]);
    put_packed("1.gz", "wb", text + cuts[1], cuts[2] - cuts[1]);
    put_packed("2", "wb", text + cuts[2], cuts[3] - cuts[2]); /* contents decide, not names */
    put_packed("3/x.txt.gz", "wb", text + cuts[3], cuts[4] - cuts[3]);
    put_packed("4.gz", "wb", text + cuts[4], cuts[5] - cuts[4]);
    put_packed("4.gz", "ab", "", 0);
    put_packed("4.gz", "ab", text + cuts[5], cuts[6] - cuts[5]); /* members are one after another */
    put_text("5.gz", "");
    put_packed("6.gz", "wb", "", 0);
    put_packed("7.tar.gz", "wb", "name\0\0\0", 7);
    struct sl_tokens tokens = expect_bytes(data, text, COUNT);
    assert_int_equal(tokens.counts.packed, 5);
    assert_int_equal(tokens.counts.binary, 1);
    assert_int_equal(tokens.unpacked, COUNT - 100);
    sl_tokens_close(&tokens);
    tokens = expect_bytes(at("4.gz"), text + cuts[4], COUNT - cuts[4]);
    assert_int_equal(tokens.counts.packed, 1);
    sl_tokens_close(&tokens);
    tokens = expect_bytes(at("7.tar.gz"), "name\0\0\0", 7);
    sl_tokens_close(&tokens);
    free(text);
}

static void test_damaged(void **state) {
    (void)state;
    static unsigned char packed[70000], changed[70000];
    char *text = letters(60000);
    put_packed("x.gz", "wb", text, 60000);
    const size_t count = read_back("x.gz", packed, sizeof packed);
    for (size_t length = 3; length < count; length += length < 40 || length + 20 > count ? 1 : 499) {
        put("x.gz", packed, length);
        expect_refusal(at("x.gz"), "what gzip has packed is cut short");
        expect_refusal(data, "what gzip has packed is cut short");
    }
    memcpy(changed, packed, count);
    changed[count - 5] ^= 1; /* of the checksum */
    put("x.gz", changed, count);
    expect_refusal(data, "/x.gz: what gzip has packed is damaged");
    memcpy(changed, packed, count);
    memcpy(changed + count, "rest", 4);
    put("x.gz", changed, count + 4);
    expect_refusal(data, "something else comes after");
    memset(changed + count, 0, 1000);
    put("x.gz", changed, count + 1000); /* a padded block */
    struct sl_tokens tokens = expect_bytes(data, text, 60000);
    sl_tokens_close(&tokens);
    free(text);

    struct sl_store store = {0};
    struct sl_error error = {0};
    const size_t shape[] = {3, 2};
    sl_store_add(&store, "tokens", SL_I32, 2, shape);
    assert_int_equal(sl_safetensors_write(&store, at("rows"), &error), SL_OK);
    sl_store_free(&store);
    const size_t bytes = read_back("rows", packed, sizeof packed);
    put_packed("rows", "wb", packed, bytes);
    expect_refusal(at("rows"), "a safetensors file that gzip has packed: unpack it");
}

/* A small file that unpacks to more than the limit is refused before that much memory is used. */
static void test_room(void **state) {
    (void)state;
    enum { COUNT = 1 << 20 };
    char *text = calloc(1, COUNT);
    put_packed("zeros.gz", "wb", text, COUNT);
    free(text);
    static const size_t refused[] = {0, 1, 65535, 65536, 131073, COUNT - 1}, fits[] = {COUNT, COUNT + 1, SIZE_MAX / 2};
    struct sl_contents contents = {0};
    struct sl_error error = {0};
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        assert_int_equal(sl_contents_open(&contents, at("zeros.gz"), &error), SL_OK);
        assert_in_range(contents.count, 500, 5000);
        assert_int_equal(sl_contents_unpack(&contents, at("zeros.gz"), refused[i], &error), SL_BAD_INPUT);
        assert_non_null(strstr(error.message, "MB when unpacked, which is all that there is room for: unpack it"));
        assert_true(sl_contents_are_packed(&contents)); /* unchanged */
        sl_contents_close(&contents);
    }
    for (size_t i = 0; i < sizeof fits / sizeof *fits; i++) {
        assert_int_equal(sl_contents_open(&contents, at("zeros.gz"), &error), SL_OK);
        assert_int_equal(sl_contents_unpack(&contents, at("zeros.gz"), fits[i], &error), SL_OK);
        assert_int_equal(contents.count, COUNT);
        sl_contents_close(&contents);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_order, make_data, remove_data),
        cmocka_unit_test_setup_teardown(test_short_names, make_data, remove_data),
        cmocka_unit_test_setup_teardown(test_left_out, make_data, remove_data),
        cmocka_unit_test_setup_teardown(test_late_zero, make_data, remove_data),
        cmocka_unit_test_setup_teardown(test_depth, make_data, remove_data),
        cmocka_unit_test_setup_teardown(test_shards_below, make_data, remove_data),
        cmocka_unit_test_setup_teardown(test_packed, make_data, remove_data),
        cmocka_unit_test_setup_teardown(test_damaged, make_data, remove_data),
        cmocka_unit_test_setup_teardown(test_room, make_data, remove_data),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
