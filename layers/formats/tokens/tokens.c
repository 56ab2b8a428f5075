/* tokens.c - opens files with tokens and cuts them into samples. Formats are in token_formats.c. */
#include "layers/formats/tokens/token_format.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "layers/formats/files/file_tree.h"
#include "spmd/random.h"

/* ---- files ---- */

static int no_memory(const char *path, struct sl_error *error) {
    return sl_error_set(error, SL_FAILED, "%s: out of memory", path);
}

/* Adds the file at PATH; the list must have room. */
static int add_file(struct sl_tokens *tokens, const char *path, struct sl_error *error) {
    struct sl_token_file *file = &tokens->file[tokens->files++];
    *file = (struct sl_token_file){.path = strdup(path)};
    return file->path ? sl_contents_open(&file->contents, path, error) : no_memory(path, error);
}

static int add_tree(struct sl_tokens *tokens, const struct sl_file_tree *tree, const char *path,
                    struct sl_error *error) {
    tokens->counts = (struct sl_token_counts){.links = tree->links, .hidden = tree->hidden, .others = tree->others};
    if (tree->files == 0 && tree->links)
        return sl_error_set(error, SL_BAD_INPUT,
                            "%s: no regular file is in it, but %d link%s, which are not followed: name a file, or the "
                            "directory that has them",
                            path, tree->links, tree->links == 1 ? "" : "s");
    if (tree->files == 0) return sl_error_set(error, SL_BAD_INPUT, "%s: no regular file is in it", path);
    tokens->file = calloc((size_t)tree->files, sizeof *tokens->file);
    if (!tokens->file) return no_memory(path, error);
    for (int i = 0; i < tree->files; i++) SL_TRY(add_file(tokens, tree->path[i], error));
    return SL_OK;
}

static int add_directory(struct sl_tokens *tokens, const char *path, struct sl_error *error) {
    struct sl_file_tree tree;
    int status = sl_file_tree_open(&tree, path, error);
    if (status == SL_OK) status = add_tree(tokens, &tree, path, error);
    sl_file_tree_close(&tree);
    return status;
}

/* Limit on the unpacked bytes of the next packed file. */
static size_t room_left(const struct sl_tokens *tokens) {
    const size_t half = (size_t)sysconf(_SC_PHYS_PAGES) * (size_t)sysconf(_SC_PAGESIZE) / 2;
    return (half < sl_tokens_most_unpacked ? half : sl_tokens_most_unpacked) - tokens->unpacked;
}

static int unpack(struct sl_tokens *tokens, struct sl_token_file *file, struct sl_error *error) {
    if (!sl_contents_are_packed(&file->contents)) return SL_OK;
    SL_TRY(sl_contents_unpack(&file->contents, file->path, room_left(tokens), error));
    tokens->unpacked += file->contents.count;
    tokens->counts.packed++;
    return SL_OK;
}

static int add_single(struct sl_tokens *tokens, const char *path, struct sl_error *error) {
    tokens->file = calloc(1, sizeof *tokens->file);
    if (!tokens->file) return no_memory(path, error);
    SL_TRY(add_file(tokens, path, error));
    return unpack(tokens, tokens->file, error);
}

static void close_file(struct sl_token_file *file) {
    sl_contents_close(&file->contents);
    free(file->encoded);
    free(file->path);
}

/* ---- formats ---- */

/* Whether a directory's file, or the only file, may have FORMAT, judged by its name. */
static bool may_have(const struct sl_token_format *format, const struct sl_token_file *file, bool directory) {
    if (!directory || !format->suffix) return !directory;
    const size_t length = strlen(file->path), suffix = strlen(format->suffix);
    return length > suffix && !strcmp(file->path + length - suffix, format->suffix);
}

/* Finds *IS, a file recognized by FORMAT, and *IS_NOT, a file with a fitting name that is not; else NULL. */
static void look_for(const struct sl_token_format *format, const struct sl_tokens *tokens, bool directory,
                     const struct sl_token_file **is, const struct sl_token_file **is_not) {
    *is = *is_not = NULL;
    for (int i = 0; i < tokens->files; i++) {
        const struct sl_token_file *file = &tokens->file[i];
        if (may_have(format, file, directory)) *(format->recognize(file) ? is : is_not) = file;
    }
}

/* Whether to read a directory's file. */
static bool is_read(const struct sl_token_format *format, const struct sl_token_file *file) {
    return may_have(format, file, true) && !(format->text && sl_contents_are_binary(&file->contents));
}

static void drop_others(struct sl_tokens *tokens) {
    int kept = 0;
    for (int i = 0; i < tokens->files; i++) {
        if (is_read(tokens->format, &tokens->file[i])) {
            tokens->file[kept++] = tokens->file[i];
        } else {
            close_file(&tokens->file[i]);
            tokens->counts.binary += tokens->format->text;
        }
    }
    tokens->files = kept;
}

/* Drops a directory's unread files, and unpacks the others. */
static int choose_files(struct sl_tokens *tokens, const char *path, struct sl_error *error) {
    drop_others(tokens);
    for (int i = 0; tokens->format->text && i < tokens->files; i++) SL_TRY(unpack(tokens, &tokens->file[i], error));
    if (tokens->files > 0) return SL_OK;
    return sl_error_set(error, SL_BAD_INPUT,
                        tokens->given ? "%s: no file in it is called *.bin"
                                      : "%s: no text is in it: all its files are binary (%d)",
                        path, tokens->counts.binary);
}

static int open_files(struct sl_tokens *tokens, const char *path, int sequence, struct sl_error *error) {
    const struct sl_token_file *is = NULL, *is_not = NULL;
    for (int i = 0; !is && !tokens->given; i++) { /* the last format recognizes every file */
        tokens->format = sl_token_format(i);
        look_for(tokens->format, tokens, tokens->directory, &is, &is_not);
    }
    const struct sl_token_format *format = tokens->format;
    if (is_not)
        return sl_error_set(error, SL_BAD_INPUT, "%s: not a %s, as %s is: the *%s must be all %ss or none",
                            is_not->path, format->name, is->path, format->suffix, format->name);
    if (tokens->directory) SL_TRY(choose_files(tokens, path, error));
    for (int i = 0; i < tokens->files; i++) {
        SL_TRY(format->open(tokens, &tokens->file[i], sequence, error));
        tokens->file[i].first = tokens->count;
        tokens->count += tokens->file[i].count;
    }
    return SL_OK;
}

/* Cuts off the end of the stream for evaluation. */
static int cut_stream(struct sl_tokens *tokens, const char *path, double validation, int sequence,
                      struct sl_error *error) {
    const int64_t evaluation = (int64_t)(validation * (double)tokens->count);
    tokens->training = tokens->count - evaluation;
    const char *unit = tokens->format->unit;
    if (tokens->count == 0) return sl_error_set(error, SL_BAD_INPUT, "%s: empty", path);
    if (validation < 1 && sl_tokens_windows(tokens, false, sequence) == 0)
        return sl_error_set(
            error, SL_BAD_INPUT, "%s: too short: %jd %s, %jd of them to train on, and sequence %d needs %jd", path,
            (intmax_t)tokens->count, unit, (intmax_t)tokens->training, sequence, 2 * (intmax_t)sequence);
    if (validation > 0 && sl_tokens_windows(tokens, true, sequence) == 0)
        return sl_error_set(error, SL_BAD_INPUT,
                            "%s: too short: %jd %s, %jd of them to evaluate on, and sequence %d needs %jd", path,
                            (intmax_t)tokens->count, unit, (intmax_t)evaluation, sequence, (intmax_t)sequence + 1);
    return SL_OK;
}

/* ---- open and close ---- */

static int open_path(struct sl_tokens *tokens, const char *path, int sequence, struct sl_error *error) {
    if (sequence < 1 || sequence == INT_MAX)
        return sl_error_set(error, SL_BAD_INPUT, "%s: sequence %d: 1 to %d are possible", path, sequence, INT_MAX - 1);
    struct stat status;
    if (stat(path, &status))
        return sl_error_set(error, SL_BAD_INPUT, "%s: cannot be opened: %s", path, strerror(errno));
    tokens->directory = S_ISDIR(status.st_mode);
    SL_TRY(tokens->directory ? add_directory(tokens, path, error) : add_single(tokens, path, error));
    SL_TRY(open_files(tokens, path, sequence, error));
    tokens->training = tokens->count;
    return SL_OK;
}

static int open_parts(struct sl_tokens *tokens, const char *path, double validation, int sequence,
                      struct sl_error *error) {
    if (!(validation >= 0 && validation <= 1))
        return sl_error_set(error, SL_BAD_INPUT, "%s: validation %g: a share is from 0 to 1", path, validation);
    SL_TRY(open_path(tokens, path, sequence, error));
    return tokens->format->rows ? SL_OK : cut_stream(tokens, path, validation, sequence, error);
}

int sl_tokens_open(struct sl_tokens *tokens, const char *path, const struct sl_token_format *format, double validation,
                   int sequence, struct sl_error *error) {
    *tokens = (struct sl_tokens){.format = format, .given = format};
    const int status = open_parts(tokens, path, validation, sequence, error);
    if (status != SL_OK) sl_tokens_close(tokens);
    return status;
}

static int check_whole(const struct sl_tokens *tokens, const char *path, struct sl_error *error) {
    if (tokens->count >= 2) return SL_OK;
    return sl_error_set(error, SL_BAD_INPUT, "%s: too short: %jd %s, and the first of them is not scored", path,
                        (intmax_t)tokens->count, tokens->format->unit);
}

int sl_tokens_open_whole(struct sl_tokens *tokens, const char *path, const struct sl_token_format *format, int sequence,
                         struct sl_error *error) {
    *tokens = (struct sl_tokens){.format = format, .given = format, .whole = true};
    int status = open_path(tokens, path, sequence, error);
    tokens->training = 0;
    if (status == SL_OK) status = check_whole(tokens, path, error);
    if (status != SL_OK) sl_tokens_close(tokens);
    return status;
}

int sl_tokens_encode(struct sl_tokens *tokens, const char *path, double validation, int sequence, int vocabulary,
                     sl_encode_file *encode, void *arg, struct sl_error *error) {
    tokens->format = &sl_encoded_text;
    tokens->vocabulary = vocabulary;
    tokens->count = 0;
    for (int i = 0; i < tokens->files; i++) {
        struct sl_token_file *file = &tokens->file[i];
        SL_TRY(encode(arg, file, &file->encoded, &file->count, error));
        file->tokens = file->encoded;
        file->first = tokens->count;
        tokens->count += file->count;
    }
    return tokens->whole ? check_whole(tokens, path, error) : cut_stream(tokens, path, validation, sequence, error);
}

void sl_tokens_close(struct sl_tokens *tokens) {
    for (int i = 0; i < tokens->files; i++) close_file(&tokens->file[i]);
    free(tokens->file);
    sl_store_free(&tokens->store);
    *tokens = (struct sl_tokens){0};
}

/* ---- the order of samples ---- */

/* For whole data, the distance between starts of windows. */
static int stride_of(const struct sl_tokens *tokens, int sequence) {
    return tokens->stride && tokens->stride < sequence ? tokens->stride : sequence;
}

/* Number of windows to cover all labels. */
static int64_t whole_windows(const struct sl_tokens *tokens, int sequence) {
    const int64_t labels = tokens->count - 1, stride = stride_of(tokens, sequence);
    if (labels <= sequence) return labels > 0;
    return 1 + (labels - sequence + stride - 1) / stride;
}

int64_t sl_tokens_windows(const struct sl_tokens *tokens, bool evaluation, int sequence) {
    if (sequence < 1 || !tokens->format) return 0;
    if (tokens->format->rows) return sequence == tokens->columns - 1 ? tokens->count / tokens->columns : 0;
    if (tokens->whole) return evaluation ? whole_windows(tokens, sequence) : 0;
    /* The last input has a label; an epoch that begins at token SEQUENCE - 1 has as many windows as the others. */
    const int64_t part = evaluation ? tokens->count - tokens->training : tokens->training;
    const int64_t spare = evaluation ? 1 : sequence;
    return part > spare ? (part - spare) / sequence : 0;
}

bool sl_tokens_are_bytes(const struct sl_tokens *tokens) {
    return tokens->format && tokens->format->width == sizeof(uint8_t);
}

/* A key that differs from all others derived from SEED. */
static struct sl_key key_of(uint64_t seed, int64_t epoch) {
    const struct sl_key key = {{(uint32_t)(seed >> 32) ^ 0x746f6b65u, (uint32_t)seed}};
    return sl_fold_in(sl_fold_in(key, (uint32_t)(epoch >> 32)), (uint32_t)epoch);
}

/* A Feistel network permutes [0, 4^bits) for any round function. A result outside of [0, WINDOWS) is permuted again
 * until it is inside; this ends, because a permutation consists of cycles. */
static int64_t permute(struct sl_key key, int64_t windows, int64_t i) {
    enum { ROUNDS = 8 };
    int bits = 0;
    while (bits < 31 && (int64_t)1 << 2 * bits < windows) bits++;
    const uint32_t mask = ((uint32_t)1 << bits) - 1;
    do {
        uint32_t high = (uint32_t)(i >> bits), low = (uint32_t)i & mask;
        for (uint32_t round = 0; round < ROUNDS; round++) {
            uint32_t drawn, unused;
            sl_threefry2x32(key, round, low, &drawn, &unused);
            const uint32_t mixed = high ^ (drawn & mask);
            high = low;
            low = mixed;
        }
        i = (int64_t)high << bits | low;
    } while (i >= windows);
    return i;
}

int64_t sl_tokens_shuffle(uint64_t seed, int64_t epoch, int64_t windows, int64_t i) {
    return permute(sl_fold_in(key_of(seed, epoch), 0), windows, i);
}

/* First token of training epoch EPOCH, in [0, SEQUENCE). */
static int64_t offset_of(uint64_t seed, int64_t epoch, int sequence) {
    const uint32_t word = sl_random_word(sl_fold_in(key_of(seed, epoch), 1), 1, 0);
    return (int64_t)((uint64_t)word * (uint64_t)sequence >> 32);
}

/* First token of sample K. */
static int64_t start_of(const struct sl_tokens *tokens, bool evaluation, uint64_t seed, int64_t k, int64_t windows,
                        int sequence) {
    if (tokens->format->rows) return k % windows * tokens->columns;
    if (evaluation) return tokens->training + k % windows * (tokens->whole ? stride_of(tokens, sequence) : sequence);
    const int64_t epoch = k / windows;
    return offset_of(seed, epoch, sequence) + sl_tokens_shuffle(seed, epoch, windows, k % windows) * sequence;
}

/* ---- fetching ---- */

/* Index of the file with the stream's token POSITION: the last that begins there or before. */
static int file_of(const struct sl_tokens *tokens, int64_t position) {
    int low = 0, high = tokens->files;
    while (high - low > 1) {
        const int middle = low + (high - low) / 2;
        *(tokens->file[middle].first <= position ? &low : &high) = middle;
    }
    return low;
}

static int32_t token_at(const struct sl_token_format *format, const void *tokens, int64_t i) {
    return format->width == sizeof(uint8_t)    ? ((const uint8_t *)tokens)[i]
           : format->width == sizeof(uint16_t) ? ((const uint16_t *)tokens)[i]
                                               : ((const int32_t *)tokens)[i];
}

/* Copies tokens [position, position + count) of the stream. */
static int copy_tokens(const struct sl_tokens *tokens, int64_t position, int count, int32_t *out,
                       struct sl_error *error) {
    int f = file_of(tokens, position);
    for (int i = 0; i < count; i++, position++) {
        while (f + 1 < tokens->files && tokens->file[f + 1].first <= position) f++;
        const struct sl_token_file *file = &tokens->file[f];
        const int32_t token = token_at(tokens->format, file->tokens, position - file->first);
        if (token < 0 || token >= tokens->vocabulary)
            return sl_error_set(error, SL_BAD_INPUT, "%s: token number %jd is %d: the vocabulary has 0 to %d",
                                file->path, (intmax_t)(position - file->first), token, tokens->vocabulary - 1);
        out[i] = token;
    }
    return SL_OK;
}

/* Number of labels of sample K, which begins at START: all, except at the end of whole data. */
static int labels_of(const struct sl_tokens *tokens, int64_t k, int64_t start, int64_t windows, int sequence) {
    if (!tokens->whole) return sequence;
    if (k >= windows) return 0;
    const int64_t left = tokens->count - 1 - start;
    return left < sequence ? (int)left : sequence;
}

/* Copies COUNT tokens from POSITION on, and fills the rest of a sample with PADDING. */
static int copy_padded(const struct sl_tokens *tokens, int64_t position, int count, int sequence, int32_t padding,
                       int32_t *out, struct sl_error *error) {
    for (int i = count; i < sequence; i++) out[i] = padding;
    return count ? copy_tokens(tokens, position, count, out, error) : SL_OK;
}

/* Drops labels already in the window before sample K. */
static void drop_scored(const struct sl_tokens *tokens, int64_t k, int sequence, int32_t *labels) {
    if (!tokens->whole || !k) return;
    for (int i = 0; i < sequence - stride_of(tokens, sequence); i++) labels[i] = -1;
}

int sl_tokens_fetch(const struct sl_tokens *tokens, bool evaluation, uint64_t seed, int64_t first, int64_t rows,
                    int sequence, int32_t *inputs, int32_t *labels, struct sl_error *error) {
    const int64_t windows = sl_tokens_windows(tokens, evaluation, sequence);
    if (windows == 0)
        return sl_error_set(error, SL_BAD_INPUT, "%s: no window of sequence %d is in it to %s on",
                            tokens->files ? tokens->file[0].path : "no text", sequence,
                            evaluation ? "evaluate" : "train");
    if (first < 0 || rows < 0 || first > INT64_MAX - rows)
        return sl_error_set(error, SL_BAD_INPUT, "samples %jd and the %jd after it: at least 0 of both are possible",
                            (intmax_t)first, (intmax_t)rows);
    for (int64_t r = 0; r < rows; r++) {
        const int64_t start = start_of(tokens, evaluation, seed, first + r, windows, sequence);
        const int there = labels_of(tokens, first + r, start, windows, sequence);
        if (inputs) SL_TRY(copy_padded(tokens, start, there, sequence, 0, inputs + r * sequence, error));
        if (!labels) continue;
        SL_TRY(copy_padded(tokens, start + 1, there, sequence, -1, labels + r * sequence, error));
        drop_scored(tokens, first + r, sequence, labels + r * sequence);
    }
    return SL_OK;
}

void sl_tokens_places(const int32_t *inputs, int64_t rows, int sequence, int32_t first, int32_t *places) {
    for (int64_t i = 0; i < rows * sequence; i++)
        places[i] = i % sequence && inputs[i] != first ? places[i - 1] + 1 : 0;
}
