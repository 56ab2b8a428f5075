/* export.c - writes a model in other programs' formats: a Hugging Face folder, or a GGUF file, with its tokenizer. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "drivers/training/memory_check.h"
#include "drivers/transformer/transformer.h"
#include "layers/models/adapters.h"
#include "layers/models/published/publish_files.h"

#define FIELD(name) offsetof(struct transformer_config, name)
const struct sl_option transformer_export_table[] = {
    {"format", SL_OPTION_CHOICE, FIELD(format), .value = "hf|gguf",
     .help = "the form to write: a folder of Hugging Face's, or model.gguf"},
    {"to", SL_OPTION_TEXT, FIELD(to), .value = "DIR", .path = SL_PATH_DATA, .help = "the folder to write into"},
    {"type", SL_OPTION_CHOICE, FIELD(type), .value = "f32|f16|bf16|q8_0",
     .help = "of the tensors' elements; q8_0, in GGUF files: blocks of 32 with a scale. Vectors stay f32 there"},
    {"file-megabytes", SL_OPTION_REAL, FIELD(file_megabytes), .min = 1e-3, .max = 1e9, .read = "format=hf",
     .help = "most of the tensors' bytes in a file of the folder"},
    {0},
};
enum { HF, GGUF };

/* ---- the only coordinate ---- */

static int program(struct sl_spmd *self, void *arg) {
    struct transformer_job *job = arg;
    struct sl_worker worker;
    bool opened;
    int status = transformer_open_worker(&worker, self, job, &opened);
    if (status == SL_OK && opened) status = sl_trainer_export(worker.trainer, false, &job->exported);
    sl_worker_close(&worker);
    return status;
}

/* ---- the tokenizer ---- */

/* Files of a folder with the tokenizer, or with settings of generation. */
static const char *const copied[] = {"tokenizer.json",
                                     "tokenizer_config.json",
                                     "tokenizer.model",
                                     "vocab.json",
                                     "special_tokens_map.json",
                                     "added_tokens.json",
                                     "merges.txt",
                                     "chat_template.jinja",
                                     "generation_config.json",
                                     NULL};

static int copy_file(const char *from, const char *to, const char *name, struct sl_error *error) {
    char source[SL_MAX_PATH], place[SL_MAX_PATH];
    struct sl_contents contents = {0};
    struct sl_draft draft = {0};
    if (snprintf(source, sizeof source, "%s/%s", from, name) >= SL_MAX_PATH ||
        snprintf(place, sizeof place, "%s/%s", to, name) >= SL_MAX_PATH)
        return sl_error_set(error, SL_BAD_INPUT, "%.100s...: the path is too long", from);
    if (access(source, F_OK)) return SL_OK;
    SL_TRY(sl_contents_open(&contents, source, error));
    int status = sl_draft_open(&draft, place, SL_LINKS_REPLACED, error);
    if (status == SL_OK)
        status = sl_draft_finish(&draft, sl_draft_write(&draft, contents.bytes, contents.count), error);
    sl_contents_close(&contents);
    return status;
}

static bool is_folder(const char *path) {
    struct stat file;
    return path && !stat(path, &file) && S_ISDIR(file.st_mode);
}

static void remark_on_none(void) {
    sl_remark(
        "no tokenizer is written: a folder has any that --tokenizer takes, a GGUF file that of another one, or one "
        "of bytes that merge");
}

/* A tokenizer's file, and its metadata if it is a GGUF file. */
struct source {
    struct sl_contents contents;
    struct sl_gguf gguf;
    const struct sl_gguf *vocabulary; /* of a GGUF file with a tokenizer; NULL: not such a file */
};

static bool is_gguf(const struct sl_contents *contents) {
    return contents->count >= 4 && !memcmp(contents->bytes, "GGUF", 4);
}

/* Opens PATH, a file; NULL: none. */
static int open_source(struct source *source, const char *path, struct sl_error *error) {
    *source = (struct source){0};
    if (!path || is_folder(path)) return SL_OK;
    SL_TRY(sl_contents_open(&source->contents, path, error));
    if (!is_gguf(&source->contents)) return SL_OK;
    SL_TRY(sl_gguf_open(&source->gguf, &source->contents, path, error));
    if (sl_gguf_find(&source->gguf, "tokenizer.ggml.tokens")) source->vocabulary = &source->gguf;
    return SL_OK;
}

static void close_source(struct source *source) {
    sl_gguf_close(&source->gguf);
    sl_contents_close(&source->contents);
}

/* Returns the chat template of a GGUF file; the caller frees it; NULL: none. */
static char *template_of(const struct sl_gguf *vocabulary) {
    const struct sl_gguf_value *value = vocabulary ? sl_gguf_find(vocabulary, "tokenizer.chat_template") : NULL;
    if (!value || value->array || value->type != SL_GGUF_STRING) return NULL;
    struct sl_gguf_cursor cursor = sl_gguf_begin(value);
    const struct sl_gguf_text text = sl_gguf_next_text(&cursor);
    return strndup(text.bytes, text.count);
}

/* Writes the files of a folder from a tokenizer file of any kind. */
static int rewrite_tokenizer(const struct transformer_job *job, const struct source *source, struct sl_error *error) {
    struct sl_tokenizer *tokenizer;
    SL_TRY(sl_tokenizer_open(&tokenizer, job->config->tokenizer, NULL, error));
    char *chat = template_of(source->vocabulary);
    const int status = sl_tokenizer_publish(tokenizer, job->config->to, chat, error);
    free(chat);
    sl_tokenizer_close(tokenizer);
    return status;
}

static int copy_tokenizer(const struct transformer_job *job, const struct source *source, struct sl_error *error) {
    const char *from = job->config->tokenizer, *slash = from ? strrchr(from, '/') : NULL;
    const char *name = slash ? slash + 1 : from;
    char folder[SL_MAX_PATH];
    if (is_folder(from)) {
        for (int i = 0; copied[i]; i++) SL_TRY(copy_file(from, job->config->to, copied[i], error));
        return SL_OK;
    }
    snprintf(folder, sizeof folder, "%.*s", slash ? (int)(slash - from + 1) : 1, slash ? from : ".");
    if (from && (!strcmp(name, "tokenizer.json") || !strcmp(name, "tokenizer.model")))
        return copy_file(folder, job->config->to, name, error);
    if (from && (source->vocabulary || !is_gguf(&source->contents))) return rewrite_tokenizer(job, source, error);
    remark_on_none();
    return SL_OK;
}

/* ---- files ---- */

static int write_folder(const struct transformer_job *job, struct sl_publishing *publishing, struct sl_error *error) {
    struct source source;
    int status = open_source(&source, job->config->tokenizer, error);
    publishing->vocabulary = source.vocabulary;
    if (status == SL_OK) status = copy_tokenizer(job, &source, error);
    if (status == SL_OK) status = sl_publish_folder(publishing, job->config->to, error);
    close_source(&source);
    return status;
}

/* Returns the chat template of a folder; the caller frees it; NULL: none. */
static char *template_in(const char *folder) {
    char path[SL_MAX_PATH], *chat = NULL;
    struct sl_contents contents = {0};
    if (snprintf(path, sizeof path, "%s/chat_template.jinja", folder) < SL_MAX_PATH &&
        sl_contents_open(&contents, path, NULL) == SL_OK)
        chat = strndup(contents.bytes ? contents.bytes : "", contents.count);
    sl_contents_close(&contents);
    if (chat || snprintf(path, sizeof path, "%s/tokenizer_config.json", folder) >= SL_MAX_PATH) return chat;
    json_t *config = json_load_file(path, 0, NULL);
    const char *text = json_string_value(json_object_get(config, "chat_template"));
    chat = text ? strdup(text) : NULL;
    json_decref(config);
    return chat;
}

/* Writes a tokenizer that is not from a GGUF file to METADATA, if GGUF has such a kind. */
static int describe_tokenizer(const struct transformer_job *job, struct sl_gguf_metadata *metadata,
                              struct sl_error *error) {
    struct sl_tokenizer *tokenizer;
    const char *path = job->config->tokenizer;
    struct sl_error unread;
    if (!path || sl_tokenizer_open(&tokenizer, path, NULL, &unread)) return SL_OK;
    char *chat = is_folder(path) ? template_in(path) : NULL;
    int status = SL_OK;
    if (sl_tokenizer_has_gguf(tokenizer))
        status = sl_tokenizer_put_gguf(tokenizer, job->model.vocabulary, chat, metadata, error);
    free(chat);
    sl_tokenizer_close(tokenizer);
    return status;
}

static int write_gguf(const struct transformer_job *job, struct sl_publishing *publishing, struct sl_error *error) {
    struct source source;
    struct sl_gguf_metadata metadata = {0};
    char path[SL_MAX_PATH];
    if (snprintf(path, sizeof path, "%s/model.gguf", job->config->to) >= SL_MAX_PATH)
        return sl_error_set(error, SL_BAD_INPUT, "--to %.100s...: the path is too long", job->config->to);
    int status = open_source(&source, job->config->tokenizer, error);
    publishing->vocabulary = source.vocabulary;
    if (status == SL_OK && !source.vocabulary) status = describe_tokenizer(job, &metadata, error);
    publishing->metadata = metadata.values ? &metadata : NULL;
    if (status == SL_OK && !source.vocabulary && !publishing->metadata) remark_on_none();
    if (status == SL_OK) status = sl_publish_gguf(publishing, path, error);
    close_source(&source);
    free(metadata.bytes);
    return status;
}

/* Adds the adapters of --adapters to their kernels. */
static int merge_adapters(struct transformer_job *job, struct sl_error *error) {
    enum { SOME = 4096 };
    float values[SOME];
    if (!job->adapters) return SL_OK;
    SL_TRY(sl_adapters_merge(&job->exported, job->config->lora_alpha, error));
    for (int i = 0; i < job->exported.count; i++) {
        struct sl_tensor *tensor = &job->exported.tensor[i];
        const size_t count = tensor->adapter.rank ? sl_array_elements(&tensor->array) : 0;
        for (size_t first = 0, some; first < count; first += some) {
            some = count - first < SOME ? count - first : SOME;
            sl_tensor_read(tensor, first, some, values);
            memcpy((float *)tensor->array.data + first, values, some * sizeof *values);
        }
        tensor->adapter = (struct sl_low_rank){0};
    }
    return SL_OK;
}

/* ---- checks, and the whole export ---- */

/* Checks all that can be checked before values are read. */
static int check(const struct transformer_job *job, const struct sl_publishing *publishing, struct sl_error *error) {
    const struct transformer_config *config = job->config;
    const char *why = "";
    if (!config->model && !config->params)
        return sl_error_set(error, SL_BAD_INPUT, "--model or --params must say which model is to be written");
    if (!config->to) return sl_error_set(error, SL_BAD_INPUT, "--to DIR must say where the model is to be written");
    if (config->format == HF && publishing->type == SL_WEIGHT_Q8_0)
        return sl_error_set(error, SL_BAD_INPUT, "--type q8_0: only --format gguf has it");
    if (!job->publishes && !sl_published_family_of(&job->model, &why))
        return sl_error_set(
            error, SL_BAD_INPUT,
            "no published family has %s: the model cannot be written for others; one that is trained with "
            "--attention gqa --mlp silu --biases none --layers-per-block 1 is a Llama",
            why);
    return sl_publish_check(publishing, error);
}

/* Makes the directory; other files in an existing directory stay. */
static int make_directory(const char *path, struct sl_error *error) {
    if (!mkdir(path, 0777) || (errno == EEXIST && is_folder(path))) return SL_OK;
    return sl_error_set(error, SL_BAD_INPUT, "--to %s: cannot be made: %s", path,
                        errno == EEXIST ? "it is no directory" : strerror(errno));
}

/* Names the tokens that begin and end a text, if the tokenizer has them. */
static void name_tokens(const struct transformer_job *job, struct sl_publishing *publishing) {
    struct sl_tokenizer *tokenizer;
    struct sl_error unread;
    if (!job->config->tokenizer || sl_tokenizer_open(&tokenizer, job->config->tokenizer, NULL, &unread)) return;
    publishing->begin = sl_token_begin(tokenizer);
    publishing->end = sl_token_end(tokenizer);
    sl_tokenizer_close(tokenizer);
}

static int write_model(struct transformer_job *job, struct sl_publishing *publishing,
                       struct sl_publication *publication, struct sl_error *error) {
    SL_TRY(sl_publication_open(publication, error));
    name_tokens(job, publishing);
    return (job->config->format == HF ? write_folder : write_gguf)(job, publishing, error);
}

int transformer_run_export(struct transformer_job *job, const struct sl_engine *engine, struct sl_error *error) {
    static const enum sl_weight_type types[] = {SL_WEIGHT_F32, SL_WEIGHT_F16, SL_WEIGHT_BF16, SL_WEIGHT_Q8_0};
    const struct transformer_config *config = job->config;
    const char *why;
    struct sl_publication publication = {.family = job->publishes ? job->published.family
                                                                  : sl_published_family_of(&job->model, &why),
                                         .transformer = &job->model,
                                         .values = &job->exported,
                                         .gguf = config->format == GGUF};
    struct sl_publishing publishing = {.publication = &publication,
                                       .type = types[config->type],
                                       .most = (size_t)(config->file_megabytes * 1e6),
                                       .context = config->context ? config->context : config->sequence,
                                       .begin = -1,
                                       .end = -1};
    if (job->published.family == publication.family) publishing.config = job->published.weights.config;
    SL_TRY(check(job, &publishing, error));
    SL_TRY(make_directory(config->to, error));
    SL_TRY(sl_run(&job->job.mesh, engine, program, job));
    SL_TRY(sl_memory_refuse(&job->job, engine, job->training.memory, error));
    if (!sl_speaks(engine)) return SL_OK;
    SL_TRY(merge_adapters(job, error));
    const int status = write_model(job, &publishing, &publication, error);
    if (status == SL_OK)
        printf("%s: %d tensors of a %s, %.0f parameters\n", config->to, publication.count,
               sl_published_title(publication.family), sl_transformer_parameters(&job->model));
    sl_publication_close(&publication);
    return status;
}
