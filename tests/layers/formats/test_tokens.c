/* test_tokens.c - the tokens of texts, shards and rows; the order of samples; malformed files are refused with a
 * reason, without a crash. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "layers/formats/tokens/token_format.h"

enum { MAGIC = 20240520, HEADER = 1024 };

static char directory[256], path[300];

static int make_directory(void **state) {
    (void)state;
    const char *parent = getenv("TMPDIR");
    snprintf(directory, sizeof directory, "%.200s/test_tokens.XXXXXX", parent ? parent : "/tmp");
    return mkdtemp(directory) ? 0 : -1;
}

static int empty_directory(void **state) {
    (void)state;
    DIR *stream = opendir(directory);
    if (!stream) return -1;
    for (struct dirent *entry; (entry = readdir(stream));)
        if (unlinkat(dirfd(stream), entry->d_name, 0) && entry->d_name[0] != '.')
            unlinkat(dirfd(stream), entry->d_name, AT_REMOVEDIR);
    return closedir(stream);
}

static int remove_directory(void **state) { return empty_directory(state) || rmdir(directory); }

/* ---- files ---- */

/* Returns the path of NAME, valid until the next call. */
static const char *at(const char *name) {
    snprintf(path, sizeof path, "%s/%.40s", directory, name);
    return path;
}

static void put(const char *name, const void *data, size_t bytes) {
    unlink(at(name)); /* overwriting a file makes file systems flush it, which takes milliseconds */
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, bytes, file), bytes);
    assert_int_equal(fclose(file), 0);
}

/* Returns token I of the streams made here. No token is 0, which would make a text binary. */
static int token_of(int64_t i) {
    const int token = (int)((uint64_t)i * 2654435761u >> 7) & 0xff;
    return token ? token : 1;
}

/* Tokens [first, first + count) of the stream as text. */
static void put_text(const char *name, int first, int count) {
    unsigned char text[20000];
    assert_true(count <= (int)sizeof text);
    for (int i = 0; i < count; i++) text[i] = (unsigned char)token_of(first + i);
    put(name, text, (size_t)count);
}

/* A shard of the stream's tokens, each 197 times as large; CLAIMED tokens in its header. */
static size_t make_shard(unsigned char *file, int magic, int version, int claimed, int first, int count) {
    const int32_t header[3] = {magic, version, claimed};
    memset(file, 0, HEADER);
    memcpy(file, header, sizeof header);
    for (int i = 0; i < count; i++) {
        const uint16_t token = (uint16_t)(token_of(first + i) * 197);
        memcpy(file + HEADER + 2 * i, &token, 2);
    }
    return (size_t)(HEADER + 2 * count);
}

static void put_shard(const char *name, int first, int count) {
    unsigned char file[HEADER + 2 * 1000];
    assert_true(count <= 1000);
    put(name, file, make_shard(file, MAGIC, 1, count, first, count));
}

/* Rows [rows, columns] of tokens, token I of them I + FIRST. */
static void put_rows(const char *name, size_t rows, size_t columns, int first) {
    struct sl_store store = {0};
    struct sl_error error = {0};
    const size_t shape[] = {rows, columns};
    assert_non_null(sl_store_add(&store, "other", SL_F32, 0, NULL));
    struct sl_tensor *tensor = sl_store_add(&store, "tokens", SL_I32, 2, shape);
    assert_non_null(tensor);
    for (size_t i = 0; i < rows * columns; i++) ((int32_t *)tensor->array.data)[i] = first + (int32_t)i;
    assert_int_equal(sl_safetensors_write(&store, at(name), &error), SL_OK);
    sl_store_free(&store);
}

static struct sl_tokens open_tokens(const char *name, double validation, int sequence) {
    struct sl_tokens tokens;
    struct sl_error error = {0};
    const int status = sl_tokens_open(&tokens, name, NULL, validation, sequence, &error);
    if (status != SL_OK) fail_msg("%s", error.message);
    return tokens;
}

static void fetch(const struct sl_tokens *tokens, bool evaluation, uint64_t seed, int64_t first, int64_t rows,
                  int sequence, int32_t *inputs, int32_t *labels) {
    struct sl_error error = {0};
    if (sl_tokens_fetch(tokens, evaluation, seed, first, rows, sequence, inputs, labels, &error))
        fail_msg("%s", error.message);
}

/* Expects NAME to be refused with one line that begins with the path and contains REASON. */
static void expect_refusal(const char *name, double validation, int sequence, const char *reason) {
    struct sl_tokens tokens;
    struct sl_error error = {0};
    const int status = sl_tokens_open(&tokens, name, NULL, validation, sequence, &error);
    if (status != SL_BAD_INPUT) fail_msg("status %d instead of \"%s\"", status, reason);
    assert_int_equal(error.status, SL_BAD_INPUT);
    assert_memory_equal(error.message, name, strlen(name));
    if (!strstr(error.message, reason)) fail_msg("\"%s\" is not in: %s", reason, error.message);
    assert_null(tokens.file);
    assert_int_equal(sl_tokens_windows(&tokens, false, sequence), 0); /* nothing is open */
    sl_tokens_close(&tokens);
}

/* Expects the stream token_of(i) * FACTOR, read as one window from each of several places. */
static void expect_stream(const struct sl_tokens *tokens, int factor) {
    int32_t *inputs = malloc((size_t)tokens->count * 4), *labels = malloc((size_t)tokens->count * 4);
    const int sequence = (int)tokens->count - 1;
    fetch(tokens, true, 0, 0, 1, sequence, inputs, labels);
    for (int i = 0; i < sequence; i++) {
        assert_int_equal(inputs[i], token_of(i) * factor);
        assert_int_equal(labels[i], token_of(i + 1) * factor);
    }
    for (int part = 1; part < 40 && part < sequence; part++)
        for (int64_t w = 0; w < sl_tokens_windows(tokens, true, part); w++) {
            fetch(tokens, true, 0, w, 1, part, inputs, NULL);
            for (int i = 0; i < part; i++) assert_int_equal(inputs[i], token_of(w * part + i) * factor);
        }
    free(inputs);
    free(labels);
}

/* ---- kinds ---- */

static void test_text(void **state) {
    (void)state;
    put_text("text", 0, 1000);
    struct sl_tokens tokens = open_tokens(at("text"), 1, 10);
    assert_string_equal(tokens.format->name, "text");
    assert_int_equal(tokens.vocabulary, 256);
    assert_int_equal(tokens.count, 1000);
    assert_int_equal(tokens.training, 0);
    expect_stream(&tokens, 1);
    sl_tokens_close(&tokens);
    assert_int_equal(tokens.files, 0);
    sl_tokens_close(&tokens);
}

static void test_directory(void **state) {
    (void)state;
    put_text("b", 300, 1);
    put_text("B", 0, 300); /* bytes are compared, not letters of some language */
    put_text("c.bin", 301, 0);
    put_text("d", 301, 99);
    assert_int_equal(symlink("b", at("a-link")), 0);
    assert_int_equal(mkdir(at("bb"), 0700), 0);
    struct sl_tokens tokens = open_tokens(directory, 1, 10);
    assert_string_equal(tokens.format->name, "text");
    assert_int_equal(tokens.count, 400);
    assert_int_equal(tokens.files, 4);
    expect_stream(&tokens, 1);
    sl_tokens_close(&tokens);
    assert_int_equal(symlink(directory, at("z-link")), 0);
    tokens = open_tokens(at("z-link"), 1, 10); /* the path itself may be one */
    assert_int_equal(tokens.count, 400);
    sl_tokens_close(&tokens);
}

static void test_shards(void **state) {
    (void)state;
    put_shard("train_2.bin", 700, 1);
    put_shard("train_1.bin", 0, 700);
    put_shard("train_3.bin", 701, 200);
    put_text("README", 5, 50);
    struct sl_tokens tokens = open_tokens(directory, 1, 10);
    assert_string_equal(tokens.format->name, "shard");
    assert_int_equal(tokens.vocabulary, 50257);
    assert_int_equal(tokens.files, 3);
    assert_int_equal(tokens.count, 901);
    expect_stream(&tokens, 197);

    int32_t inputs[901];
    struct sl_error error = {0};
    tokens.vocabulary = 255 * 197; /* below the largest one in the text */
    int found = 0;
    while (token_of(found) != 255) found++;
    assert_true(found < 700);
    assert_int_equal(sl_tokens_fetch(&tokens, true, 0, 0, 1, 900, inputs, NULL, &error), SL_BAD_INPUT);
    char line[500];
    snprintf(line, sizeof line, "%s: token number %d is 50235: the vocabulary has 0 to 50234", at("train_1.bin"),
             found);
    assert_string_equal(error.message, line);
    sl_tokens_close(&tokens);

    put_shard("any name", 0, 50); /* only the header identifies a file */
    tokens = open_tokens(at("any name"), 1, 10);
    expect_stream(&tokens, 197);
    sl_tokens_close(&tokens);
}

static void test_place_in_second_file(void **state) {
    (void)state;
    put_shard("1.bin", 0, 20);
    put_shard("2.bin", 20, 180);
    struct sl_tokens tokens = open_tokens(directory, 1, 10);
    int32_t inputs[199];
    struct sl_error error = {0};
    int place = 20, largest = 0;
    for (int i = 0; i < 20; i++) largest = token_of(i) > largest ? token_of(i) : largest;
    tokens.vocabulary = largest * 197 + 1;
    while (token_of(place) <= largest) place++;
    assert_true(place < 200);
    assert_int_equal(sl_tokens_fetch(&tokens, true, 0, 0, 1, 198, NULL, inputs, &error), SL_BAD_INPUT);
    char line[500];
    snprintf(line, sizeof line, "%s: token number %d is", at("2.bin"), place - 20);
    assert_memory_equal(error.message, line, strlen(line));
    sl_tokens_close(&tokens);
}

static void test_rows(void **state) {
    (void)state;
    put_rows("rows", 3, 5, 0);
    struct sl_tokens tokens = open_tokens(at("rows"), 0.1, 4);
    assert_string_equal(tokens.format->name, "file of rows");
    assert_int_equal(tokens.vocabulary, 15);
    for (int evaluation = 0; evaluation < 2; evaluation++) {
        assert_int_equal(sl_tokens_windows(&tokens, evaluation, 4), 3);
        assert_int_equal(sl_tokens_windows(&tokens, evaluation, 3), 0);
        int32_t inputs[4][4], labels[4][4];
        fetch(&tokens, evaluation, 7, 301, 4, 4, *inputs, *labels);
        for (int r = 0; r < 4; r++)
            for (int i = 0; i < 4; i++) {
                assert_int_equal(inputs[r][i], (301 + r) % 3 * 5 + i);
                assert_int_equal(labels[r][i], (301 + r) % 3 * 5 + i + 1);
            }
    }
    tokens.vocabulary = 14;
    struct sl_error error = {0};
    int32_t out[3][4];
    assert_int_equal(sl_tokens_fetch(&tokens, false, 0, 0, 3, 4, *out, NULL, &error), SL_OK);
    assert_int_equal(sl_tokens_fetch(&tokens, false, 0, 0, 3, 4, NULL, *out, &error), SL_BAD_INPUT);
    assert_non_null(strstr(error.message, "token number 14 is 14: the vocabulary has 0 to 13"));
    assert_int_equal(sl_tokens_fetch(&tokens, false, 0, 0, 1, 3, *out, NULL, &error), SL_BAD_INPUT);
    assert_non_null(strstr(error.message, "no window of sequence 3"));
    sl_tokens_close(&tokens);

    put_rows("rows", 3, 5, -2);
    tokens = open_tokens(at("rows"), 0, 4);
    assert_int_equal(sl_tokens_fetch(&tokens, false, 0, 0, 1, 4, *out, NULL, &error), SL_BAD_INPUT);
    assert_non_null(strstr(error.message, "token number 0 is -2"));
    sl_tokens_close(&tokens);
}

/* ---- the order ---- */

static void test_shuffle_is_a_bijection(void **state) {
    (void)state;
    static bool seen[5000];
    static const int64_t sizes[] = {1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 64, 65, 255, 256, 257, 1000, 4096, 5000};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
        for (uint64_t seed = 0; seed < 4; seed++)
            for (int64_t epoch = 0; epoch < 4; epoch++) {
                memset(seen, 0, sizeof seen);
                for (int64_t i = 0; i < sizes[s]; i++) {
                    const int64_t window = sl_tokens_shuffle(seed << 31, epoch << 31, sizes[s], i);
                    assert_true(window >= 0 && window < sizes[s] && !seen[window]);
                    seen[window] = true;
                }
            }
    const int64_t huge = ((int64_t)1 << 62) - 12345;
    for (int64_t i = 0; i < 1000; i++) assert_in_range(sl_tokens_shuffle(1, 2, huge, huge - 1 - i), 0, huge - 1);
}

/* Each window is in each place about equally often over the epochs, and next to each other window. */
static void test_shuffle_is_fair(void **state) {
    (void)state;
    enum { WINDOWS = 6, EPOCHS = 6000 };
    int at_place[WINDOWS][WINDOWS] = {{0}}, after[WINDOWS][WINDOWS] = {{0}};
    for (int64_t epoch = 0; epoch < EPOCHS; epoch++)
        for (int64_t i = 0, last = 0; i < WINDOWS; i++) {
            const int64_t window = sl_tokens_shuffle(42, epoch, WINDOWS, i);
            at_place[i][window]++;
            if (i > 0) after[last][window]++;
            last = window;
        }
    for (int a = 0; a < WINDOWS; a++)
        for (int b = 0; b < WINDOWS; b++) { /* 1000 each, standard deviation 29 */
            assert_in_range(at_place[a][b], 850, 1150);
            if (a != b) assert_in_range(after[a][b], 850, 1150);
        }
}

/* Returns the place of a window in the stream. All windows of the text differ. */
static int64_t place_of(const int32_t *inputs, int sequence, int64_t count) {
    int64_t place = -1;
    for (int64_t p = 0; p + sequence <= count; p++) {
        int i = 0;
        while (i < sequence && inputs[i] == token_of(p + i)) i++;
        if (i < sequence) continue;
        assert_int_equal(place, -1);
        place = p;
    }
    assert_int_not_equal(place, -1);
    return place;
}

/* An epoch takes adjacent windows of the training part, each once; the next epoch takes others. */
static void test_epochs(void **state) {
    (void)state;
    enum { COUNT = 995, SEQUENCE = 16, TRAINING = 896, WINDOWS = (TRAINING - SEQUENCE) / SEQUENCE };
    put_text("text", 0, COUNT);
    struct sl_tokens tokens = open_tokens(at("text"), 0.1, SEQUENCE);
    assert_int_equal(tokens.training, TRAINING);
    assert_int_equal(sl_tokens_windows(&tokens, false, SEQUENCE), WINDOWS);
    int different_offsets = 0, offset_before = -1;
    for (int64_t epoch = 0; epoch < 100; epoch++) {
        bool seen[WINDOWS] = {false};
        int offset = -1;
        int64_t in_order = 0;
        for (int64_t k = 0; k < WINDOWS; k++) {
            int32_t inputs[SEQUENCE], labels[SEQUENCE];
            fetch(&tokens, false, 9, epoch * WINDOWS + k, 1, SEQUENCE, inputs, labels);
            const int64_t place = place_of(inputs, SEQUENCE, COUNT), window = place / SEQUENCE;
            assert_true(place + SEQUENCE + 1 <= TRAINING);
            for (int i = 0; i < SEQUENCE; i++) assert_int_equal(labels[i], token_of(place + i + 1));
            if (offset < 0) offset = (int)(place % SEQUENCE);
            assert_int_equal(place % SEQUENCE, offset);
            assert_false(seen[window]);
            seen[window] = true;
            in_order += window == k;
        }
        assert_true(in_order < WINDOWS / 4);
        different_offsets += offset != offset_before;
        offset_before = offset;
    }
    assert_true(different_offsets > 80);
    sl_tokens_close(&tokens);
}

/* Rows are the same however they are asked for. */
static void test_layouts(void **state) {
    (void)state;
    enum { SEQUENCE = 7, ROWS = 400 };
    static int32_t all[ROWS][SEQUENCE], some[ROWS][SEQUENCE], other[ROWS][SEQUENCE];
    put_text("text", 0, 1000);
    struct sl_tokens tokens = open_tokens(at("text"), 0.25, SEQUENCE);
    for (int evaluation = 0; evaluation < 2; evaluation++) {
        fetch(&tokens, evaluation, 3, 50, ROWS, SEQUENCE, *all, NULL);
        for (int rows = 1; rows <= ROWS; rows = 3 * rows + 1)
            for (int first = 0; first + rows <= ROWS; first += rows) {
                fetch(&tokens, evaluation, 3, 50 + first, rows, SEQUENCE, *some, NULL);
                assert_memory_equal(some, all[first], (size_t)rows * sizeof *all);
            }
        fetch(&tokens, evaluation, 4, 50, ROWS, SEQUENCE, *other, NULL);
        assert_int_equal(memcmp(other, all, sizeof all) == 0, evaluation); /* the seed is for training */
        fetch(&tokens, evaluation, (uint64_t)1 << 32 | 3, 50, ROWS, SEQUENCE, *other, NULL);
        assert_int_equal(memcmp(other, all, sizeof all) == 0, evaluation); /* all of it */
    }
    fetch(&tokens, false, 0, INT64_MAX - 3, 3, SEQUENCE, *some, NULL);
    struct sl_error error = {0};
    assert_int_equal(sl_tokens_fetch(&tokens, false, 0, INT64_MAX - 3, 4, SEQUENCE, *some, NULL, &error), SL_BAD_INPUT);
    assert_int_equal(sl_tokens_fetch(&tokens, false, 0, -1, 4, SEQUENCE, *some, NULL, &error), SL_BAD_INPUT);
    assert_int_equal(sl_tokens_fetch(&tokens, true, 0, 0, 1, 250, *some, NULL, &error), SL_BAD_INPUT);
    assert_non_null(strstr(error.message, "no window of sequence 250 is in it to evaluate on"));
    sl_tokens_close(&tokens);
}

static void test_evaluation(void **state) {
    (void)state;
    enum { SEQUENCE = 10 };
    put_text("text", 0, 500);
    struct sl_tokens tokens = open_tokens(at("text"), 0.1, SEQUENCE);
    assert_int_equal(sl_tokens_windows(&tokens, true, SEQUENCE), 4); /* 50 tokens: the fifth has no last label */
    for (int64_t k = 0; k < 10; k++) {
        int32_t inputs[SEQUENCE], labels[SEQUENCE];
        fetch(&tokens, true, 9, k, 1, SEQUENCE, inputs, labels);
        for (int i = 0; i < SEQUENCE; i++) {
            assert_int_equal(inputs[i], token_of(450 + k % 4 * SEQUENCE + i));
            assert_int_equal(labels[i], token_of(450 + k % 4 * SEQUENCE + i + 1));
        }
    }
    sl_tokens_close(&tokens);
}

/* Checks data without a split: samples 0 to ROWS - 1 have each token of the stream except the first as a label once, in
 * order; later samples have no labels. */
static void expect_whole(const struct sl_tokens *tokens, int sequence, int64_t rows, const int32_t *stream) {
    int32_t inputs[64], labels[64];
    assert_in_range(sequence, 1, 64);
    int64_t place = 0;
    for (int64_t r = 0; r < rows; r++) {
        fetch(tokens, true, 5, r, 1, sequence, inputs, labels);
        for (int i = 0; i < sequence; i++) {
            const bool there = place + 1 < tokens->count;
            assert_int_equal(inputs[i], there ? stream[place] : 0);
            assert_int_equal(labels[i], there ? stream[place + 1] : -1);
            place += there;
        }
        if (tokens->columns) place++; /* a row does not go on in the next one */
    }
    assert_true(place + 1 >= tokens->count);
}

/* Windows with a stride shorter than their length: each token except the first is a label once, in its first window. */
static void test_strides(void **state) {
    (void)state;
    int32_t inputs[16], labels[16];
    for (int count = 2; count < 50; count++)
        for (int sequence = 1; sequence <= 16; sequence++)
            for (int stride = 1; stride <= sequence; stride++) {
                struct sl_tokens tokens;
                struct sl_error error = {0};
                put_text("text", 0, count);
                assert_int_equal(sl_tokens_open_whole(&tokens, at("text"), NULL, sequence, &error), SL_OK);
                tokens.stride = stride;
                int64_t scored = 0;
                for (int64_t k = 0; k < sl_tokens_windows(&tokens, true, sequence); k++) {
                    fetch(&tokens, true, 5, k, 1, sequence, inputs, labels);
                    assert_int_equal(inputs[0], token_of(k * stride));
                    for (int i = 0; i < sequence; i++)
                        if (labels[i] >= 0) assert_int_equal(labels[i], token_of(++scored));
                    assert_true(k == 0 || scored > 0);
                }
                assert_int_equal(scored, count - 1);
                sl_tokens_close(&tokens);
            }
}

/* A file's bytes as tokens of two bytes each. */
static int encode_pairs(void *arg, const struct sl_token_file *file, int32_t **encoded, int64_t *count,
                        struct sl_error *error) {
    const unsigned char *bytes = file->contents.bytes;
    if (arg) return sl_error_set(error, SL_BAD_INPUT, "%s: refused", file->path);
    *count = (int64_t)file->contents.count / 2;
    *encoded = malloc(file->contents.count * 2 + 1);
    for (int64_t i = 0; i < *count; i++) (*encoded)[i] = bytes[2 * i] * 256 + bytes[2 * i + 1];
    return SL_OK;
}

static void test_encoded(void **state) {
    (void)state;
    struct sl_tokens tokens;
    struct sl_error error = {0};
    int32_t inputs[4], labels[4];
    put_text("a", 0, 40);
    put_text("b", 40, 60);
    assert_int_equal(sl_tokens_open(&tokens, directory, NULL, 0.2, 4, &error), SL_OK);
    assert_int_equal(sl_tokens_encode(&tokens, directory, 0.2, 4, 1 << 16, encode_pairs, NULL, &error), SL_OK);
    assert_int_equal(tokens.count, 50);
    assert_int_equal(tokens.training, 40);
    assert_false(sl_tokens_are_bytes(&tokens));
    assert_int_equal(sl_tokens_fetch(&tokens, true, 0, 0, 1, 4, inputs, labels, &error), SL_OK);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(inputs[i], token_of(80 + 2 * i) * 256 + token_of(81 + 2 * i));
        assert_int_equal(labels[i], token_of(82 + 2 * i) * 256 + token_of(83 + 2 * i));
    }
    sl_tokens_close(&tokens);
    assert_int_equal(sl_tokens_open(&tokens, at("a"), NULL, 0, 4, &error), SL_OK);
    assert_int_equal(sl_tokens_encode(&tokens, path, 0, 11, 1 << 16, encode_pairs, NULL, &error), SL_BAD_INPUT);
    assert_non_null(strstr(error.message, "too short: 20 tokens"));
    sl_tokens_close(&tokens);
    assert_int_equal(sl_tokens_open_whole(&tokens, at("a"), NULL, 4, &error), SL_OK);
    assert_int_equal(sl_tokens_encode(&tokens, path, 0, 4, 1 << 16, encode_pairs, &error, &error), SL_BAD_INPUT);
    assert_non_null(strstr(error.message, "refused"));
    sl_tokens_close(&tokens);
}

static void test_whole(void **state) {
    (void)state;
    static int32_t stream[400];
    for (int i = 0; i < 400; i++) stream[i] = token_of(i);
    for (int count = 2; count < 60; count++)
        for (int sequence = 1; sequence <= 64; sequence++) {
            put_text("text", 0, count);
            struct sl_tokens tokens;
            struct sl_error error = {0};
            assert_int_equal(sl_tokens_open_whole(&tokens, at("text"), NULL, sequence, &error), SL_OK);
            const int64_t windows = sl_tokens_windows(&tokens, true, sequence);
            assert_int_equal(windows, (count - 1 + sequence - 1) / sequence);
            assert_int_equal(sl_tokens_windows(&tokens, false, sequence), 0);
            expect_whole(&tokens, sequence, windows, stream);
            expect_whole(&tokens, sequence, windows + 3, stream);
            sl_tokens_close(&tokens);
        }
    put_rows("rows", 3, 5, 7);
    for (int i = 0; i < 15; i++) stream[i] = 7 + i;
    struct sl_tokens tokens;
    struct sl_error error = {0};
    assert_int_equal(sl_tokens_open_whole(&tokens, at("rows"), NULL, 4, &error), SL_OK);
    assert_int_equal(sl_tokens_windows(&tokens, true, 4), 3);
    expect_whole(&tokens, 4, 3, stream);
    expect_whole(&tokens, 4, 5, stream);
    sl_tokens_close(&tokens);
    for (int count = 0; count < 2; count++) {
        put_text("text", 0, count);
        assert_int_equal(sl_tokens_open_whole(&tokens, at("text"), NULL, 4, &error), SL_BAD_INPUT);
        assert_non_null(strstr(error.message, "too short: "));
    }
}

/* ---- refusals ---- */

static void test_lengths(void **state) {
    (void)state;
    put_text("text", 0, 0);
    expect_refusal(at("text"), 0, 1, "empty");
    for (int sequence = 1; sequence < 5; sequence++)
        for (int count = 1; count < 30; count++) {
            put_text("text", 0, count);
            const int evaluation = count / 4, training = count - evaluation;
            if (training < 2 * sequence) {
                char reason[100];
                snprintf(reason, sizeof reason, "too short: %d bytes, %d of them to train on, and sequence %d needs %d",
                         count, training, sequence, 2 * sequence);
                expect_refusal(at("text"), 0.25, sequence, reason);
            } else if (evaluation < sequence + 1) {
                char reason[100];
                snprintf(reason, sizeof reason, "%d of them to evaluate on, and sequence %d needs %d", evaluation,
                         sequence, sequence + 1);
                expect_refusal(at("text"), 0.25, sequence, reason);
            } else {
                struct sl_tokens tokens = open_tokens(at("text"), 0.25, sequence);
                int32_t inputs[50][4], labels[50][4];
                fetch(&tokens, false, 1, 0, 50, sequence, *inputs, *labels);
                fetch(&tokens, true, 1, 0, 50, sequence, *inputs, *labels);
                sl_tokens_close(&tokens);
            }
        }
    expect_refusal(at("text"), 0.25, 0, "sequence 0: 1 to");
    expect_refusal(at("text"), 0.25, INT32_MAX, "sequence 2147483647: 1 to");
    expect_refusal(at("text"), 0.25, INT32_MAX - 1, "needs 4294967292");
    expect_refusal(at("text"), -0.1, 1, "validation -0.1: a share is from 0 to 1");
    expect_refusal(at("text"), 1.1, 1, "validation 1.1: a share");
    expect_refusal(at("text"), NAN, 1, "validation nan: a share");
}

static void test_no_file(void **state) {
    (void)state;
    expect_refusal(at("missing"), 0, 1, "cannot be opened: No such file");
    expect_refusal("", 0, 1, "cannot be opened: No such file");
    expect_refusal(directory, 0, 1, "no regular file is in it");
    assert_int_equal(mkfifo(at("fifo"), 0600), 0);
    expect_refusal(at("fifo"), 0, 1, "neither a regular file nor a directory");
    expect_refusal(directory, 0, 1, "no regular file is in it");
    expect_refusal("/dev/zero", 0, 1, "neither a regular file nor a directory");
    put_text("text", 0, 0);
    expect_refusal(directory, 0, 1, "empty");
    put_text("text", 0, 10);
    assert_int_equal(chmod(at("text"), 0), 0);
    if (access(path, R_OK)) { /* root reads all */
        expect_refusal(at("text"), 0, 1, "cannot be opened: Permission denied");
        struct sl_tokens tokens;
        struct sl_error error = {0};
        assert_int_equal(sl_tokens_open(&tokens, directory, NULL, 0, 1, &error), SL_BAD_INPUT);
        assert_non_null(strstr(error.message, "/text: cannot be opened"));
    }
}

static void test_bad_shards(void **state) {
    (void)state;
    unsigned char file[HEADER + 200];
    const struct {
        int magic, version, claimed;
        size_t bytes; /* of the file; 0: the right size for 50 tokens */
        const char *reason;
    } cases[] = {
        {MAGIC, 2, 50, 0, "a token shard of version 2: only version 1 can be read"},
        {MAGIC, 0, 50, 0, "a token shard of version 0"},
        {20240801, 1, 25, 0, "a token shard of version 1: only version 7 can be read"},
        {20240801, 7, 50, 0, "the header says 50 tokens of 4 bytes, and 100 bytes (25 tokens) come after it"},
        {20240522, 1, 50, 0, "a file of llm.c with the magic number 20240522: 20240520 and 20240801, shards of tokens"},
        {MAGIC, 1, 51, 0, "the header says 51 tokens of 2 bytes, and 100 bytes (50 tokens) come after it"},
        {MAGIC, 1, 49, 0, "the header says 49 tokens"},
        {MAGIC, 1, 50, HEADER + 99, "the header says 50 tokens of 2 bytes, and 99 bytes (49 tokens)"},
        {MAGIC, 1, 50, HEADER + 101, "the header says 50 tokens of 2 bytes, and 101 bytes (50 tokens)"},
        {MAGIC, 1, 0, HEADER, "the header says 0 tokens"},
        {MAGIC, 1, -1, 0, "the header says -1 tokens"},
        {MAGIC, 1, INT32_MIN, 0, "the header says -2147483648 tokens"},
        {MAGIC, 1, 50, HEADER - 1, "a truncated token shard: 1023 bytes, and the header takes 1024"},
        {MAGIC, 1, 50, 4, "a truncated token shard: 4 bytes"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const size_t bytes = make_shard(file, cases[i].magic, cases[i].version, cases[i].claimed, 0, 50);
        file[bytes] = 0;
        put("x.bin", file, cases[i].bytes ? cases[i].bytes : bytes);
        expect_refusal(at("x.bin"), 0, 1, cases[i].reason);
    }
    put_shard("x.bin", 0, 3);
    expect_refusal(at("x.bin"), 0, 2, "too short: 3 tokens, 3 of them to train on, and sequence 2 needs 4");
    put_text("y.bin", 0, 30);
    struct sl_tokens tokens;
    struct sl_error error = {0};
    assert_int_equal(sl_tokens_open(&tokens, directory, NULL, 0, 1, &error), SL_BAD_INPUT);
    assert_memory_equal(error.message, at("y.bin"), strlen(at("y.bin")));
    assert_non_null(strstr(error.message, "/x.bin is: the *.bin must be all shards or none"));
}

/* 32-bit tokens, of vocabularies too large for 16 bits. */
static void test_wide_shard(void **state) {
    (void)state;
    int32_t file[HEADER / 4 + 5] = {0}, inputs[4], labels[4];
    for (int i = 0; i < 5; i++) file[HEADER / 4 + i] = 100000 + i;
    sl_shard_header(file, sizeof *file, 5);
    put("x.bin", file, sizeof file);
    struct sl_tokens tokens = open_tokens(directory, 1, 4);
    assert_int_equal(tokens.vocabulary, 128256);
    assert_int_equal(tokens.count, 5);
    fetch(&tokens, true, 0, 0, 1, 4, inputs, labels);
    for (int i = 0; i < 4; i++) assert_true(inputs[i] == 100000 + i && labels[i] == inputs[i] + 1);
    sl_tokens_close(&tokens);
    put_shard("y.bin", 0, 3); /* both kinds */
    expect_refusal(directory, 1, 4, "the *.bin must be all");
}

static void test_bad_rows(void **state) {
    (void)state;
    put_rows("rows", 3, 5, 0);
    expect_refusal(at("rows"), 0, 5, "tensor tokens is [3, 5]: sequence 5 needs [rows, 6], at least one row");
    put_rows("rows", 0, 6, 0);
    expect_refusal(at("rows"), 0, 5, "tensor tokens is [0, 6]: sequence 5 needs [rows, 6], at least one row");
    struct sl_store store = {0};
    struct sl_error error = {0};
    const size_t shape[] = {4, 5};
    sl_store_add(&store, "token", SL_I32, 2, shape);
    assert_int_equal(sl_safetensors_write(&store, at("rows"), &error), SL_OK);
    expect_refusal(at("rows"), 0, 4, "no tensor called tokens is among the 1");
    sl_store_add(&store, "tokens", SL_F32, 2, shape);
    assert_int_equal(sl_safetensors_write(&store, at("rows"), &error), SL_OK);
    expect_refusal(at("rows"), 0, 4, "tensor tokens is not I32 with 2 dims");
    assert_int_equal(truncate(at("rows"), 200), 0);
    expect_refusal(at("rows"), 0, 4, "truncated");
    sl_store_free(&store);
}

/* ---- random files ---- */

static uint32_t next(uint64_t *random) {
    *random = *random * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*random >> 33);
}

/* Tries a file: if it can be opened, its tokens are in the vocabulary; otherwise it is refused with one line. Returns
 * whether it was opened. */
static bool try_file(const char *name, int sequence) {
    struct sl_tokens tokens;
    struct sl_error error = {0};
    int status = sl_tokens_open(&tokens, name, NULL, 0.2, sequence, &error);
    if (status == SL_OK) {
        static int32_t inputs[8 * 16], labels[8 * 16];
        for (int evaluation = 0; evaluation < 2 && status == SL_OK; evaluation++)
            status = sl_tokens_fetch(&tokens, evaluation, 1, 1000, 8, sequence, inputs, labels, &error);
        for (int i = 0; status == SL_OK && i < 8 * sequence; i++)
            assert_true(inputs[i] >= 0 && inputs[i] < tokens.vocabulary && labels[i] >= 0 &&
                        labels[i] < tokens.vocabulary);
    }
    if (status != SL_OK) {
        assert_int_equal(status, SL_BAD_INPUT);
        assert_memory_equal(error.message, name, strlen(name));
        assert_null(strchr(error.message, '\n'));
    }
    sl_tokens_close(&tokens);
    return status == SL_OK;
}

/* Changes up to four bytes, mostly in the header, and now and then the length; then tries the file. */
static int try_mutations(const unsigned char *file, size_t bytes, size_t telling, int sequence, int rounds) {
    static unsigned char changed[4096];
    static const unsigned char values[] = {0, 1, 2, 0x7f, 0x80, 0xff, '{', '"', '0'};
    uint64_t random = 1;
    int accepted = 0;
    for (int round = 0; round < rounds; round++) {
        size_t length = bytes;
        memcpy(changed, file, bytes);
        for (uint32_t n = next(&random) % 5; n > 0; n--) {
            const size_t place = next(&random) % (next(&random) % 4 ? telling : bytes);
            changed[place] = (unsigned char)(next(&random) % 2 ? values[next(&random) % sizeof values] : next(&random));
        }
        if (next(&random) % 4 == 0) length = next(&random) % (bytes + 1);
        put("x.bin", changed, length);
        accepted += try_file(at("x.bin"), sequence);
    }
    return accepted;
}

/* An empty struct sl_tokens; samples that do not exist; an invalid format number. */
static void test_nothing(void **state) {
    (void)state;
    const struct sl_tokens nothing = {0};
    struct sl_tokens tokens;
    struct sl_error error = {0};
    int32_t inputs[4];
    assert_false(sl_tokens_are_bytes(&nothing));
    assert_int_equal(sl_tokens_fetch(&nothing, false, 1, 0, 1, 4, inputs, NULL, &error), SL_BAD_INPUT);
    assert_non_null(strstr(error.message, "no text: no window of sequence 4 is in it to train on"));
    put_text("text", 0, 100);
    assert_int_equal(sl_tokens_open(&tokens, at("text"), NULL, 0.1, 4, &error), SL_OK);
    static const int64_t pairs[][2] = {{-1, 1}, {0, -1}, {INT64_MAX, 1}};
    for (int i = 0; i < 3; i++) {
        assert_int_equal(sl_tokens_fetch(&tokens, false, 1, pairs[i][0], pairs[i][1], 4, inputs, NULL, &error),
                         SL_BAD_INPUT);
        assert_non_null(strstr(error.message, "at least 0 of both are possible"));
    }
    sl_tokens_close(&tokens);
    int formats = 0;
    while (sl_token_format(formats)) formats++;
    assert_int_equal(formats, 4);
    assert_null(sl_token_format(-1));
}

static void test_random_files(void **state) {
    (void)state;
    unsigned char file[4096];
    uint64_t random = 7;
    const size_t bytes = make_shard(file, MAGIC, 1, 100, 0, 100);
    assert_in_range(try_mutations(file, bytes, 12, 4, 2000), 100, 1900);

    put_rows("x.bin", 5, 5, 100);
    FILE *stream = fopen(at("x.bin"), "rb");
    assert_non_null(stream);
    const size_t row_bytes = fread(file, 1, sizeof file, stream);
    fclose(stream);
    assert_in_range(try_mutations(file, row_bytes, 140, 4, 2000), 100, 1900);

    for (int round = 0; round < 1000; round++) {
        const size_t length = next(&random) % 200;
        for (size_t i = 0; i < length; i++) file[i] = (unsigned char)next(&random);
        put("x.bin", file, length);
        assert_int_equal(try_file(at("x.bin"), 4), length - length / 5 >= 8 && length / 5 >= 5);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_text, empty_directory),
        cmocka_unit_test_teardown(test_directory, empty_directory),
        cmocka_unit_test_teardown(test_shards, empty_directory),
        cmocka_unit_test_teardown(test_place_in_second_file, empty_directory),
        cmocka_unit_test_teardown(test_rows, empty_directory),
        cmocka_unit_test_teardown(test_shuffle_is_a_bijection, empty_directory),
        cmocka_unit_test_teardown(test_shuffle_is_fair, empty_directory),
        cmocka_unit_test_teardown(test_epochs, empty_directory),
        cmocka_unit_test_teardown(test_layouts, empty_directory),
        cmocka_unit_test_teardown(test_evaluation, empty_directory),
        cmocka_unit_test_teardown(test_whole, empty_directory),
        cmocka_unit_test_teardown(test_strides, empty_directory),
        cmocka_unit_test_teardown(test_encoded, empty_directory),
        cmocka_unit_test_teardown(test_lengths, empty_directory),
        cmocka_unit_test_teardown(test_no_file, empty_directory),
        cmocka_unit_test_teardown(test_bad_shards, empty_directory),
        cmocka_unit_test_teardown(test_wide_shard, empty_directory),
        cmocka_unit_test_teardown(test_bad_rows, empty_directory),
        cmocka_unit_test_teardown(test_nothing, empty_directory),
        cmocka_unit_test_teardown(test_random_files, empty_directory),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, make_directory, remove_directory);
}
