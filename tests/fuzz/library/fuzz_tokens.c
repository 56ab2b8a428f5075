/* fuzz_tokens.c - files with tokens: text, shards and rows, packed or not, alone and in a directory.
 *
 * The first byte chooses the length of a sample, the second one the share for evaluation, the third one how many files
 * of a directory the rest is, 0: it is a file alone; and whether it is tokens of 16 or 32 bits without a header. */
#include "layers/formats/tokens/token_format.h"
#include "layers/formats/tokens/tokens.h"
#include "tests/fuzz/fuzz.h"

enum { FILES = 3, SEQUENCE = 32, ROWS = 3 };

static char directory[] = "/tmp/fuzz_tokens.XXXXXX";
static const char *const name[FILES] = {"a.bin", "b.bin", "sub/c"};

static void remove_files(void) {
    char path[64];
    for (int i = 0; i < FILES; i++) {
        snprintf(path, sizeof path, "%s/%s", directory, name[i]);
        unlink(path);
    }
}

/* The directory in the directory. */
static const char *below(void) {
    static char path[64];
    snprintf(path, sizeof path, "%s/sub", directory);
    return path;
}

static void remove_directory(void) {
    remove_files();
    rmdir(below());
    rmdir(directory);
}

static const char *write_files(const uint8_t *data, size_t size, int files) {
    static bool made;
    char path[64];
    if (!made) {
        FUZZ_PROMISE(mkdtemp(directory) && !mkdir(below(), 0700), "%s", directory);
        made = true;
        atexit(remove_directory);
    }
    remove_files();
    for (int i = 0; i < files; i++) {
        const size_t begin = size * (size_t)i / (size_t)files, end = size * (size_t)(i + 1) / (size_t)files;
        snprintf(path, sizeof path, "%s/%s", directory, name[i]);
        FILE *file = fopen(path, "wb");
        FUZZ_PROMISE(file && fwrite(data + begin, 1, end - begin, file) == end - begin && !fclose(file), "%s", path);
    }
    return directory;
}

/* Checks that each label of a sample is the next input. */
static void fetch(const struct sl_tokens *tokens, bool evaluation, int64_t first, int sequence) {
    int32_t inputs[ROWS * SEQUENCE], labels[ROWS * SEQUENCE];
    struct sl_error error = {0};
    const int status = sl_tokens_fetch(tokens, evaluation, 7, first, ROWS, sequence, inputs, labels, &error);
    if (status) return fuzz_refused(status, &error);
    for (int r = 0; r < ROWS; r++)
        for (int i = 0; i < sequence; i++) {
            const int32_t input = inputs[r * sequence + i], label = labels[r * sequence + i];
            FUZZ_PROMISE(input >= 0 && input < tokens->vocabulary && label >= 0 && label < tokens->vocabulary, "%d, %d",
                         input, label);
            FUZZ_PROMISE(i == sequence - 1 || label == inputs[r * sequence + i + 1], "row %d, token %d", r, i);
        }
}

/* Checks data without a split: each token of a stream except the first is a label once, in order. */
static void score(const char *path, const struct sl_token_format *format, int sequence) {
    enum { MOST = 1 << 16 };
    struct sl_tokens tokens;
    struct sl_error error = {0};
    const int status = sl_tokens_open_whole(&tokens, path, format, sequence, &error);
    if (status) return fuzz_refused(status, &error);
    int64_t labels = 0;
    const int64_t windows = sl_tokens_windows(&tokens, true, sequence);
    int32_t label[SEQUENCE];
    for (int64_t w = 0; tokens.count < MOST && w < windows + 2; w++) {
        if (sl_tokens_fetch(&tokens, true, 7, w, 1, sequence, NULL, label, &error)) {
            labels = -1; /* a token outside the vocabulary */
            break;
        }
        for (int i = 0; i < sequence; i++) labels += label[i] >= 0;
    }
    FUZZ_PROMISE(tokens.count >= MOST || tokens.columns || labels < 0 || labels == tokens.count - 1, "%jd of %jd",
                 (intmax_t)labels, (intmax_t)tokens.count);
    sl_tokens_close(&tokens);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct sl_tokens tokens;
    struct sl_error error = {0};
    if (size < 3) return 0;
    const int sequence = 1 + data[0] % SEQUENCE, files = data[2] % (FILES + 1), raw = data[2] / (FILES + 1) % 3;
    const struct sl_token_format *format = raw ? sl_token_format_raw(raw == 1 ? 2 : 4) : NULL;
    const double validation = (data[1] - '0') / 10.0; /* 0 to 1, and values outside */
    data += 3;
    size -= 3;
    const char *path = files ? write_files(data, size, files) : fuzz_file(0, data, size);
    score(path, format, sequence);
    const int status = sl_tokens_open(&tokens, path, format, validation, sequence, &error);
    if (status) {
        fuzz_refused(status, &error);
        return 0;
    }
    const int64_t windows = sl_tokens_windows(&tokens, false, sequence);
    for (int evaluation = 0; evaluation < 2; evaluation++) {
        fetch(&tokens, evaluation, 0, sequence);
        fetch(&tokens, evaluation, INT64_MAX - ROWS, sequence);
        if (windows) fetch(&tokens, evaluation, windows - 1, sequence);
    }
    if (windows) {
        const int64_t shuffled = sl_tokens_shuffle(7, 1, windows, windows - 1);
        FUZZ_PROMISE(shuffled >= 0 && shuffled < windows, "%jd of %jd", (intmax_t)shuffled, (intmax_t)windows);
    }
    sl_tokens_close(&tokens);
    return 0;
}
