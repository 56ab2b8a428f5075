/* special_tokens.c - end-of-text tokens, by the model's files and its tokenizer, and tokens without a text, with which
 * vocabularies are padded. */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "drivers/transformer/transformer.h"

/* ---- ending tokens ---- */

bool transformer_ends_text(const struct transformer_job *job, int32_t token) {
    for (size_t i = 0; i < job->ends.count; i++)
        if (job->ends.token[i] == token) return true;
    return false;
}

static int add_end(struct transformer_job *job, int64_t token, struct sl_error *error) {
    if (token < 0 || token > INT32_MAX || transformer_ends_text(job, (int32_t)token)) return SL_OK;
    return sl_token_list_add(&job->ends, (int32_t)token) ? SL_OK
                                                         : sl_error_set(error, SL_FAILED, "no memory for tokens");
}

/* Adds a number, or a list of them. */
static int add_ends(struct transformer_job *job, const char *path, const json_t *value, struct sl_error *error) {
    const size_t count = json_is_array(value) ? json_array_size(value) : 1;
    for (size_t i = 0; i < count; i++) {
        const json_t *token = json_is_array(value) ? json_array_get(value, i) : value;
        if (!json_is_integer(token))
            return sl_error_set(error, SL_BAD_INPUT,
                                "%s: eos_token_id: there must be a token's number, or a list of them", path);
        SL_TRY(add_end(job, json_integer_value(token), error));
    }
    return SL_OK;
}

/* Reads the ending tokens from file NAME of FOLDER. FOUND: the file names some. A missing file is not an error. */
static int read_ends(struct transformer_job *job, const char *folder, const char *name, bool *found,
                     struct sl_error *error) {
    char path[SL_MAX_PATH];
    struct stat file;
    struct sl_contents contents = {0};
    json_error_t wrong = {.text = "it is empty"};
    *found = false;
    if (snprintf(path, sizeof path, "%s/%s", folder, name) >= SL_MAX_PATH || stat(path, &file)) return SL_OK;
    SL_TRY(sl_contents_open(&contents, path, error));
    const size_t mark = sl_contents_mark(&contents);
    json_t *object =
        contents.bytes ? json_loadb((char *)contents.bytes + mark, contents.count - mark, 0, &wrong) : NULL;
    sl_contents_close(&contents);
    if (!object) return sl_error_set(error, SL_BAD_INPUT, "%s: line %d: %s", path, wrong.line, wrong.text);
    const json_t *value = json_object_get(object, "eos_token_id");
    *found = value && !json_is_null(value);
    const int status = *found ? add_ends(job, path, value, error) : SL_OK;
    json_decref(object);
    return status;
}

/* Returns the folder of the model, or of its tokenizer, which a saved run notes. NULL: none. */
static const char *folder_of(const struct transformer_config *config) {
    const char *const paths[] = {config->model, config->tokenizer};
    for (int i = 0; i < 2; i++) {
        struct stat file;
        if (paths[i] && !stat(paths[i], &file) && S_ISDIR(file.st_mode)) return paths[i];
    }
    return NULL;
}

static int find_ends(struct transformer_job *job, struct sl_error *error) {
    const char *folder = folder_of(job->config);
    const struct sl_gguf *gguf = job->publishes && !job->published.weights.config ? &job->published.weights.gguf : NULL;
    bool found = false;
    if (job->tokenizer) SL_TRY(add_end(job, sl_token_end(job->tokenizer), error));
    if (gguf) SL_TRY(add_end(job, sl_gguf_integer(sl_gguf_find(gguf, "tokenizer.ggml.eot_token_id"), -1), error));
    if (folder) SL_TRY(read_ends(job, folder, "generation_config.json", &found, error));
    return folder && !found ? read_ends(job, folder, "config.json", &found, error) : SL_OK;
}

/* ---- tokens without a text ---- */

bool transformer_has_text(const struct transformer_job *job, int32_t token) {
    size_t bytes;
    return !job->tokenizer || sl_token_bytes(job->tokenizer, token, &bytes);
}

int transformer_know_tokens(struct transformer_job *job, struct sl_error *error) {
    for (int32_t token = 0; token < job->model.vocabulary; token++)
        if (!transformer_has_text(job, token) && !sl_token_list_add(&job->textless, token))
            return sl_error_set(error, SL_FAILED, "no memory for tokens");
    return job->config->ends ? find_ends(job, error) : SL_OK;
}

void transformer_forget_tokens(struct transformer_job *job) {
    sl_token_list_free(&job->ends);
    sl_token_list_free(&job->textless);
}
