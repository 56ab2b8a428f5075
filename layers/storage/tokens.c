/* tokens.c - maps texts and token shards, and cuts them into samples. The host is little-endian, as the formats are. */
#include "layers/storage/tokens.h"

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

enum { BYTE_VOCABULARY = 256, GPT2_VOCABULARY = 50257 };

/* Files of llm.c, by their first word; only the first kind is read. */
enum { SHARD_MAGIC = 20240520, LLAMA_SHARD_MAGIC = 20240801, QUESTIONS_MAGIC = 20240522 };
enum { SHARD_VERSION = 1, SHARD_HEADER = 256 * 4 /* bytes */ };

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
    file->tokens = map;
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

/* ---- token shards ---- */

/* Word I of the file as 32 bits; 0 where it ends before. */
static int32_t word_of(const struct sl_token_file *file, size_t i) {
    int32_t word = 0;
    if (file->bytes >= 4 * (i + 1)) memcpy(&word, (const char *)file->map + 4 * i, 4);
    return word;
}

static bool is_shard(const struct sl_token_file *file) {
    const int32_t magic = word_of(file, 0);
    return magic == SHARD_MAGIC || magic == LLAMA_SHARD_MAGIC || magic == QUESTIONS_MAGIC;
}

static int check_shard(struct sl_token_file *file, struct sl_error *error) {
    const int32_t magic = word_of(file, 0), version = word_of(file, 1), count = word_of(file, 2);
    if (magic != SHARD_MAGIC)
        return sl_error_set(error, SL_BAD_INPUT,
                            "%s: a file of llm.c with the magic number %d: only %d, GPT-2's tokens, can be read",
                            file->path, magic, SHARD_MAGIC);
    if (file->bytes < SHARD_HEADER)
        return sl_error_set(error, SL_BAD_INPUT, "%s: a truncated token shard: %zu bytes, and the header takes %d",
                            file->path, file->bytes, SHARD_HEADER);
    if (version != SHARD_VERSION)
        return sl_error_set(error, SL_BAD_INPUT, "%s: a token shard of version %d: only version %d can be read",
                            file->path, version, SHARD_VERSION);
    const size_t bytes = file->bytes - SHARD_HEADER;
    if (count < 1 || (size_t)count * 2 != bytes)
        return sl_error_set(error, SL_BAD_INPUT,
                            "%s: the header says %d tokens of 2 bytes, and %zu bytes (%zu tokens) come after it",
                            file->path, count, bytes, bytes / 2);
    file->tokens = (const char *)file->map + SHARD_HEADER;
    return SL_OK;
}

static bool is_bin(const struct sl_token_file *file) {
    const size_t length = strlen(file->path);
    return length > 4 && !strcmp(file->path + length - 4, ".bin");
}

static void keep_bins(struct sl_tokens *tokens) {
    int kept = 0;
    for (int i = 0; i < tokens->files; i++) {
        if (is_bin(&tokens->file[i])) {
            tokens->file[kept++] = tokens->file[i];
        } else {
            unmap_file(&tokens->file[i]);
            free(tokens->file[i].path);
        }
    }
    tokens->files = kept;
}

/* Shards where the file, or one *.bin of the directory, begins as one; bytes otherwise. */
static int choose_kind(struct sl_tokens *tokens, bool directory, struct sl_error *error) {
    const struct sl_token_file *shard = NULL, *other = NULL;
    for (int i = 0; i < tokens->files; i++) {
        const struct sl_token_file *file = &tokens->file[i];
        if (directory && !is_bin(file)) continue;
        *(is_shard(file) ? &shard : &other) = file;
    }
    tokens->kind = shard ? SL_TOKENS_SHARDS : SL_TOKENS_BYTES;
    tokens->vocabulary = shard ? GPT2_VOCABULARY : BYTE_VOCABULARY;
    if (!shard) return SL_OK;
    if (other)
        return sl_error_set(error, SL_BAD_INPUT, "%s: no token shard, as %s is: the *.bin must be all shards or none",
                            other->path, shard->path);
    if (directory) keep_bins(tokens);
    for (int i = 0; i < tokens->files; i++) SL_TRY(check_shard(&tokens->file[i], error));
    return SL_OK;
}

static int64_t tokens_in(const struct sl_tokens *tokens, const struct sl_token_file *file) {
    return (int64_t)(tokens->kind == SL_TOKENS_SHARDS ? (file->bytes - SHARD_HEADER) / 2 : file->bytes);
}

/* Lays the files end to end, and cuts. */
static int cut_stream(struct sl_tokens *tokens, const char *path, double validation, int sequence,
                      struct sl_error *error) {
    for (int i = 0; i < tokens->files; i++) {
        tokens->file[i].first = tokens->count;
        tokens->count += tokens_in(tokens, &tokens->file[i]);
    }
    const int64_t evaluation = (int64_t)(validation * (double)tokens->count);
    tokens->training = tokens->count - evaluation;
    const char *unit = tokens->kind == SL_TOKENS_BYTES ? "bytes" : "tokens";
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

/* ---- rows ---- */

/* A length of less than 4 GiB, of which the format allows 100 MB, and a JSON object: no text begins with zeros. */
static bool is_safetensors(const struct sl_token_file *file) {
    return file->bytes > 8 && word_of(file, 1) == 0 && ((const char *)file->map)[8] == '{';
}

static int read_rows(struct sl_tokens *tokens, int sequence, struct sl_error *error) {
    struct sl_token_file *file = &tokens->file[0];
    unmap_file(file);
    SL_TRY(sl_safetensors_read(&tokens->store, file->path, error));
    const struct sl_tensor *tensor = sl_store_find(&tokens->store, "tokens");
    if (!tensor)
        return sl_error_set(error, SL_BAD_INPUT, "%s: no tensor called tokens is among the %d", file->path,
                            tokens->store.count);
    const struct sl_array *array = &tensor->array;
    if (array->dtype != SL_I32 || array->dims != 2)
        return sl_error_set(error, SL_BAD_INPUT, "%s: tensor tokens is not I32 with 2 dims", file->path);
    if (array->shape[0] < 1 || array->shape[1] != (size_t)sequence + 1)
        return sl_error_set(error, SL_BAD_INPUT,
                            "%s: tensor tokens is [%zu, %zu]: sequence %d needs [rows, %zu], at least one row",
                            file->path, array->shape[0], array->shape[1], sequence, (size_t)sequence + 1);
    const int32_t *token = file->tokens = array->data;
    int32_t largest = 0;
    tokens->kind = SL_TOKENS_ROWS;
    tokens->columns = sequence + 1;
    tokens->count = tokens->training = (int64_t)sl_array_elements(array);
    for (int64_t i = 0; i < tokens->count; i++) largest = token[i] > largest ? token[i] : largest;
    tokens->vocabulary = largest < INT32_MAX ? largest + 1 : INT32_MAX;
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
    if (!directory && is_safetensors(&tokens->file[0])) return read_rows(tokens, sequence, error);
    SL_TRY(choose_kind(tokens, directory, error));
    return cut_stream(tokens, path, validation, sequence, error);
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
    if (sequence < 1) return 0;
    if (tokens->kind == SL_TOKENS_ROWS) return sequence == tokens->columns - 1 ? tokens->count / tokens->columns : 0;
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
    if (tokens->kind == SL_TOKENS_ROWS) return k % windows * tokens->columns;
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

static int32_t token_at(enum sl_token_kind kind, const void *tokens, int64_t i) {
    switch (kind) {
    case SL_TOKENS_BYTES:
        return ((const uint8_t *)tokens)[i];
    case SL_TOKENS_SHARDS:
        return ((const uint16_t *)tokens)[i];
    default:
        return ((const int32_t *)tokens)[i];
    }
}

/* Tokens [position, position + count) of the stream. */
static int copy_tokens(const struct sl_tokens *tokens, int64_t position, int count, int32_t *out,
                       struct sl_error *error) {
    int f = file_of(tokens, position);
    for (int i = 0; i < count; i++, position++) {
        while (f + 1 < tokens->files && tokens->file[f + 1].first <= position) f++;
        const struct sl_token_file *file = &tokens->file[f];
        const int32_t token = token_at(tokens->kind, file->tokens, position - file->first);
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
