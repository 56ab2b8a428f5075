/* token_formats.c - the table of formats: rows in safetensors files, llm.c's token shards, bytes. */
#include "layers/formats/tokens/token_format.h"

#include <string.h>

/* Word I of the file as 32 bits; 0 beyond its end. The host is little-endian, as the formats are. */
static int32_t word_of(const struct sl_token_file *file, size_t i) {
    int32_t word = 0;
    if (file->contents.count >= 4 * (i + 1)) memcpy(&word, (const char *)file->contents.bytes + 4 * i, 4);
    return word;
}

/* ---- rows: a safetensors file with an I32 tensor "tokens" [rows, sequence + 1] ---- */

/* A header length below 4 GiB (the format's limit is 100 MB), then a JSON object. No text matches: texts have no
 * zeros. */
static bool recognize_rows(const struct sl_token_file *file) {
    return file->contents.count > 8 && word_of(file, 1) == 0 && ((const char *)file->contents.bytes)[8] == '{';
}

static int open_rows(struct sl_tokens *tokens, struct sl_token_file *file, int sequence, struct sl_error *error) {
    if (tokens->counts.packed)
        return sl_error_set(error, SL_BAD_INPUT, "%s: a safetensors file that gzip has packed: unpack it", file->path);
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
    file->count = (int64_t)sl_array_elements(array);
    for (int64_t i = 0; i < file->count; i++) largest = token[i] > largest ? token[i] : largest;
    tokens->columns = sequence + 1;
    tokens->vocabulary = largest < INT32_MAX ? largest + 1 : INT32_MAX;
    return SL_OK;
}

/* ---- token shards of llm.c ---- */

/* Magic numbers of llm.c's files, their first word; files with questions are not supported. */
enum { SHARD_MAGIC = 20240520, WIDE_SHARD_MAGIC = 20240801, QUESTIONS_MAGIC = 20240522 };
enum { SHARD_VERSION = 1, WIDE_SHARD_VERSION = 7, GPT2_VOCABULARY = 50257, LLAMA3_VOCABULARY = 128256 };

void sl_shard_header(int32_t header[SL_SHARD_HEADER / 4], size_t width, int64_t count) {
    memset(header, 0, SL_SHARD_HEADER);
    header[0] = width == sizeof(uint16_t) ? SHARD_MAGIC : WIDE_SHARD_MAGIC;
    header[1] = width == sizeof(uint16_t) ? SHARD_VERSION : WIDE_SHARD_VERSION;
    header[2] = (int32_t)count;
}

static bool recognize_shard(const struct sl_token_file *file) {
    const int32_t magic = word_of(file, 0);
    return magic == SHARD_MAGIC || magic == QUESTIONS_MAGIC;
}

static bool recognize_wide_shard(const struct sl_token_file *file) { return word_of(file, 0) == WIDE_SHARD_MAGIC; }

/* Checks a shard with tokens of WIDTH bytes. */
static int check_shard(struct sl_token_file *file, int32_t known, size_t width, struct sl_error *error) {
    const int32_t version = word_of(file, 1), count = word_of(file, 2);
    if (file->contents.count < SL_SHARD_HEADER)
        return sl_error_set(error, SL_BAD_INPUT, "%s: a truncated token shard: %zu bytes, and the header takes %d",
                            file->path, file->contents.count, SL_SHARD_HEADER);
    if (version != known)
        return sl_error_set(error, SL_BAD_INPUT, "%s: a token shard of version %d: only version %d can be read",
                            file->path, version, known);
    const size_t bytes = file->contents.count - SL_SHARD_HEADER;
    if (count < 1 || (size_t)count * width != bytes)
        return sl_error_set(error, SL_BAD_INPUT,
                            "%s: the header says %d tokens of %zu bytes, and %zu bytes (%zu tokens) come after it",
                            file->path, count, width, bytes, bytes / width);
    file->tokens = (const char *)file->contents.bytes + SL_SHARD_HEADER;
    file->count = count;
    return SL_OK;
}

static int open_shard(struct sl_tokens *tokens, struct sl_token_file *file, int sequence, struct sl_error *error) {
    (void)sequence;
    const int32_t magic = word_of(file, 0);
    if (magic != SHARD_MAGIC)
        return sl_error_set(error, SL_BAD_INPUT,
                            "%s: a file of llm.c with the magic number %d: %d and %d, shards of tokens, can be read",
                            file->path, magic, SHARD_MAGIC, WIDE_SHARD_MAGIC);
    tokens->vocabulary = GPT2_VOCABULARY;
    return check_shard(file, SHARD_VERSION, sizeof(uint16_t), error);
}

static int open_wide_shard(struct sl_tokens *tokens, struct sl_token_file *file, int sequence, struct sl_error *error) {
    (void)sequence;
    tokens->vocabulary = LLAMA3_VOCABULARY;
    return check_shard(file, WIDE_SHARD_VERSION, sizeof(int32_t), error);
}

/* ---- tokens without a header, as nanoGPT writes them ---- */

static bool recognize_none(const struct sl_token_file *file) {
    (void)file;
    return false;
}

static int open_raw(struct sl_tokens *tokens, struct sl_token_file *file, int sequence, struct sl_error *error) {
    const size_t width = tokens->format->width;
    (void)sequence;
    file->tokens = file->contents.bytes;
    file->count = (int64_t)(file->contents.count / width);
    tokens->vocabulary = width == sizeof(uint16_t) ? GPT2_VOCABULARY : LLAMA3_VOCABULARY;
    if (file->contents.count % width == 0) return SL_OK;
    return sl_error_set(error, SL_BAD_INPUT, "%s: %zu bytes are no whole number of tokens of %zu bytes", file->path,
                        file->contents.count, width);
}

/* ---- bytes ---- */

static bool recognize_any(const struct sl_token_file *file) {
    (void)file;
    return true;
}

static int open_bytes(struct sl_tokens *tokens, struct sl_token_file *file, int sequence, struct sl_error *error) {
    (void)sequence;
    (void)error;
    file->tokens = file->contents.bytes;
    file->count = (int64_t)file->contents.count;
    tokens->vocabulary = 256;
    return SL_OK;
}

/* ---- the table ---- */

static const struct sl_token_format formats[] = {
    {"file of rows", "tokens", NULL, sizeof(int32_t), false, true, recognize_rows, open_rows},
    {"shard", "tokens", ".bin", sizeof(uint16_t), false, false, recognize_shard, open_shard},
    {"wide shard", "tokens", ".bin", sizeof(int32_t), false, false, recognize_wide_shard, open_wide_shard},
    {"text", "bytes", "", sizeof(uint8_t), true, false, recognize_any, open_bytes},
};

static const struct sl_token_format raw[] = {
    {"file of tokens of 16 bits", "tokens", ".bin", sizeof(uint16_t), false, false, recognize_none, open_raw},
    {"file of tokens of 32 bits", "tokens", ".bin", sizeof(int32_t), false, false, recognize_none, open_raw},
};

const struct sl_token_format *sl_token_format_raw(size_t width) { return &raw[width == sizeof(int32_t)]; }

const struct sl_token_format sl_encoded_text = {.name = "text", .unit = "tokens", .width = sizeof(int32_t)};

const struct sl_token_format *sl_token_format(int i) {
    return i >= 0 && i < (int)(sizeof formats / sizeof *formats) ? &formats[i] : NULL;
}
