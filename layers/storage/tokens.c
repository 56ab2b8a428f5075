/* tokens.c - maps files with tokens and cuts them into samples.
 * What their formats are is in token_formats.c. */
#include "layers/storage/token_format.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "spmd/random.h"

/* ---- mapped files ---- */

static int no_memory(const char *path, struct sl_error *error) {
    return sl_error_set(error, SL_FAILED, "%s: out of memory", path);
}

static int map_descriptor(struct sl_token_file *file, int descriptor, struct sl_error *error) {
    struct stat status;
    if (fstat(descriptor, &status) || !S_ISREG(status.st_mode))
        return sl_error_set(error, SL_BAD_INPUT, "%s: neither a regular file nor a directory", file->path);
    file->bytes = (size_t)status.st_size;
    if (file->bytes == 0) return SL_OK; /* nothing can be mapped */
    void *map = mmap(NULL, file->bytes, PROT_READ, MAP_PRIVATE, descriptor, 0);
    if (map == MAP_FAILED)
        return sl_error_set(error, SL_BAD_INPUT, "%s: cannot be mapped: %s", file->path, strerror(errno));
    file->map = map;
    madvise(map, file->bytes, MADV_RANDOM); /* what follows a window is not read next */
    return SL_OK;
}

static int map_file(struct sl_token_file *file, struct sl_error *error) {
    const int descriptor = open(file->path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK); /* a FIFO does not block */
    if (descriptor < 0)
        return sl_error_set(error, SL_BAD_INPUT, "%s: cannot be opened: %s", file->path, strerror(errno));
    const int status = map_descriptor(file, descriptor, error);
    close(descriptor);
    return status;
}

static void unmap_file(struct sl_token_file *file) {
    if (file->map) munmap(file->map, file->bytes);
    file->map = NULL;
}

/* Adds the file at PATH, which is the list's from now on; files[capacity] has room. */
static int add_file(struct sl_tokens *tokens, char *path, struct sl_error *error) {
    struct sl_token_file *file = &tokens->file[tokens->files++];
    *file = (struct sl_token_file){.path = path};
    return map_file(file, error);
}

/* strcmp rather than alphasort, whose order is the locale's. */
static int by_name(const struct dirent **a, const struct dirent **b) { return strcmp((*a)->d_name, (*b)->d_name); }

static int add_entries(struct sl_tokens *tokens, const char *directory, struct dirent *const *entry, int entries,
                       struct sl_error *error) {
    tokens->file = calloc((size_t)entries + 1, sizeof *tokens->file);
    if (!tokens->file) return no_memory(directory, error);
    for (int i = 0; i < entries; i++) {
        char *path;
        if (asprintf(&path, "%s/%s", directory, entry[i]->d_name) < 0) return no_memory(directory, error);
        struct stat status;
        if (lstat(path, &status) || !S_ISREG(status.st_mode)) {
            free(path);
            continue;
        }
        SL_TRY(add_file(tokens, path, error));
    }
    if (tokens->files == 0) return sl_error_set(error, SL_BAD_INPUT, "%s: no regular file is in it", directory);
    return SL_OK;
}

static int add_directory(struct sl_tokens *tokens, const char *path, struct sl_error *error) {
    struct dirent **entry;
    const int entries = scandir(path, &entry, NULL, by_name);
    if (entries < 0) return sl_error_set(error, SL_BAD_INPUT, "%s: cannot be read: %s", path, strerror(errno));
    const int status = add_entries(tokens, path, entry, entries, error);
    for (int i = 0; i < entries; i++) free(entry[i]);
    free(entry);
    return status;
}

static int add_single(struct sl_tokens *tokens, const char *path, struct sl_error *error) {
    char *copy = strdup(path);
    tokens->file = calloc(1, sizeof *tokens->file);
    if (copy && tokens->file) return add_file(tokens, copy, error);
    free(copy);
    return no_memory(path, error);
}

/* ---- formats ---- */

/* Whether a file of a directory, or the only file, may have FORMAT, as far as its name can tell. */
static bool may_have(const struct sl_token_format *format, const struct sl_token_file *file, bool directory) {
    if (!directory || !format->suffix) return !directory;
    const size_t length = strlen(file->path), suffix = strlen(format->suffix);
    return length > suffix && !strcmp(file->path + length - suffix, format->suffix);
}

/* *IS and *IS_NOT become a file that FORMAT recognizes, and one that it does not but whose name promises it, or NULL.
 */
static void look_for(const struct sl_token_format *format, const struct sl_tokens *tokens, bool directory,
                     const struct sl_token_file **is, const struct sl_token_file **is_not) {
    *is = *is_not = NULL;
    for (int i = 0; i < tokens->files; i++) {
        const struct sl_token_file *file = &tokens->file[i];
        if (may_have(format, file, directory)) *(format->recognize(file) ? is : is_not) = file;
    }
}

static void drop_others(struct sl_tokens *tokens, bool directory) {
    int kept = 0;
    for (int i = 0; i < tokens->files; i++) {
        if (may_have(tokens->format, &tokens->file[i], directory)) {
            tokens->file[kept++] = tokens->file[i];
        } else {
            unmap_file(&tokens->file[i]);
            free(tokens->file[i].path);
        }
    }
    tokens->files = kept;
}

static int open_files(struct sl_tokens *tokens, bool directory, int sequence, struct sl_error *error) {
    const struct sl_token_file *is = NULL, *is_not = NULL;
    for (int i = 0; !is; i++) { /* the last format recognizes every file */
        tokens->format = sl_token_format(i);
        look_for(tokens->format, tokens, directory, &is, &is_not);
    }
    const struct sl_token_format *format = tokens->format;
    if (is_not)
        return sl_error_set(error, SL_BAD_INPUT, "%s: not a %s, as %s is: the *%s must be all %ss or none",
                            is_not->path, format->name, is->path, format->suffix, format->name);
    drop_others(tokens, directory);
    for (int i = 0; i < tokens->files; i++) {
        SL_TRY(format->open(tokens, &tokens->file[i], sequence, error));
        tokens->file[i].first = tokens->count;
        tokens->count += tokens->file[i].count;
    }
    return SL_OK;
}

/* Cuts the end of the stream off for evaluation. */
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

static int open_path(struct sl_tokens *tokens, const char *path, double validation, int sequence,
                     struct sl_error *error) {
    if (sequence < 1 || sequence == INT_MAX)
        return sl_error_set(error, SL_BAD_INPUT, "%s: sequence %d: 1 to %d are possible", path, sequence, INT_MAX - 1);
    if (!(validation >= 0 && validation <= 1))
        return sl_error_set(error, SL_BAD_INPUT, "%s: validation %g: a share is from 0 to 1", path, validation);
    struct stat status;
    if (stat(path, &status))
        return sl_error_set(error, SL_BAD_INPUT, "%s: cannot be opened: %s", path, strerror(errno));
    const bool directory = S_ISDIR(status.st_mode);
    SL_TRY(directory ? add_directory(tokens, path, error) : add_single(tokens, path, error));
    SL_TRY(open_files(tokens, directory, sequence, error));
    tokens->training = tokens->count;
    return tokens->format->rows ? SL_OK : cut_stream(tokens, path, validation, sequence, error);
}

int sl_tokens_open(struct sl_tokens *tokens, const char *path, double validation, int sequence,
                   struct sl_error *error) {
    *tokens = (struct sl_tokens){0};
    const int status = open_path(tokens, path, validation, sequence, error);
    if (status != SL_OK) sl_tokens_close(tokens);
    return status;
}

void sl_tokens_close(struct sl_tokens *tokens) {
    for (int i = 0; i < tokens->files; i++) {
        unmap_file(&tokens->file[i]);
        free(tokens->file[i].path);
    }
    free(tokens->file);
    sl_store_free(&tokens->store);
    *tokens = (struct sl_tokens){0};
}

/* ---- the order of samples ---- */

int64_t sl_tokens_windows(const struct sl_tokens *tokens, bool evaluation, int sequence) {
    if (sequence < 1 || !tokens->format) return 0;
    if (tokens->format->rows) return sequence == tokens->columns - 1 ? tokens->count / tokens->columns : 0;
    /* The last input has a label; an epoch that begins at token SEQUENCE - 1 has as many windows as the others. */
    const int64_t part = evaluation ? tokens->count - tokens->training : tokens->training;
    const int64_t spare = evaluation ? 1 : sequence;
    return part > spare ? (part - spare) / sequence : 0;
}

/* Not the key of anything else that is drawn from SEED. */
static struct sl_key key_of(uint64_t seed, int64_t epoch) {
    const struct sl_key key = {{(uint32_t)(seed >> 32) ^ 0x746f6b65u, (uint32_t)seed}};
    return sl_fold_in(sl_fold_in(key, (uint32_t)(epoch >> 32)), (uint32_t)epoch);
}

/* A Feistel network permutes [0, 4^bits), whatever its rounds draw; who lands outside of [0, WINDOWS) goes on from
 * there, and comes back into it, for a permutation is made of cycles. */
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

/* Where training epoch EPOCH begins, in [0, SEQUENCE). */
static int64_t offset_of(uint64_t seed, int64_t epoch, int sequence) {
    const uint32_t word = sl_random_word(sl_fold_in(key_of(seed, epoch), 1), 1, 0);
    return (int64_t)((uint64_t)word * (uint64_t)sequence >> 32);
}

/* The token that sample K begins with. */
static int64_t start_of(const struct sl_tokens *tokens, bool evaluation, uint64_t seed, int64_t k, int64_t windows,
                        int sequence) {
    if (tokens->format->rows) return k % windows * tokens->columns;
    if (evaluation) return tokens->training + k % windows * sequence;
    const int64_t epoch = k / windows;
    return offset_of(seed, epoch, sequence) + sl_tokens_shuffle(seed, epoch, windows, k % windows) * sequence;
}

/* ---- fetching ---- */

/* The file that the stream's token POSITION is in: the last that begins there or before. */
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

/* Tokens [position, position + count) of the stream. */
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
        if (inputs) SL_TRY(copy_tokens(tokens, start, sequence, inputs + r * sequence, error));
        if (labels) SL_TRY(copy_tokens(tokens, start + 1, sequence, labels + r * sequence, error));
    }
    return SL_OK;
}
