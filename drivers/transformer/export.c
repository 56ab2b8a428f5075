/* export.c - writes a model as other programs open it: a folder of Hugging Face's, or a GGUF file, with its tokenizer.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "drivers/training/memory_check.h"
#include "drivers/transformer/transformer.h"
#include "layers/models/publish_files.h"

enum { HF, GGUF };

/* ---- every coordinate: there is one ---- */

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

/* Files of a folder that say what a tokenizer is, or how text is made. */
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
    sl_remark("no tokenizer is written: a folder's, or a tokenizer.json, is copied to a folder, a GGUF file's to a "
              "GGUF file");
}

static int copy_tokenizer(const struct transformer_job *job, struct sl_error *error) {
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
    remark_on_none();
    return SL_OK;
}

/* ---- files ---- */

static int write_folder(const struct transformer_job *job, struct sl_publishing *publishing, struct sl_error *error) {
    const json_t *config = job->published.weights.config;
    const struct sl_published_family *family = publishing->publication->family;
    if (config && job->published.family == family) publishing->config = config;
    SL_TRY(copy_tokenizer(job, error));
    return sl_publish_folder(publishing, job->config->to, error);
}

static bool is_gguf(const struct sl_contents *contents) {
    return contents->count >= 4 && !memcmp(contents->bytes, "GGUF", 4);
}

static int write_gguf(const struct transformer_job *job, struct sl_publishing *publishing, struct sl_error *error) {
    const char *from = job->config->tokenizer;
    struct sl_contents contents = {0};
    struct sl_gguf gguf = {0};
    char path[SL_MAX_PATH];
    int status = SL_OK;
    if (snprintf(path, sizeof path, "%s/model.gguf", job->config->to) >= SL_MAX_PATH)
        return sl_error_set(error, SL_BAD_INPUT, "--to %.100s...: the path is too long", job->config->to);
    if (from && !is_folder(from)) status = sl_contents_open(&contents, from, error);
    if (status == SL_OK && is_gguf(&contents)) {
        status = sl_gguf_open(&gguf, &contents, from, error);
        publishing->vocabulary = &gguf;
    } else if (status == SL_OK) {
        remark_on_none();
    }
    if (status == SL_OK) status = sl_publish_gguf(publishing, path, error);
    sl_gguf_close(&gguf);
    sl_contents_close(&contents);
    return status;
}

/* ---- before, and all of it ---- */

/* What can be known before values are read. */
static int check(const struct transformer_job *job, const struct sl_publishing *publishing, struct sl_error *error) {
    const struct transformer_config *config = job->config;
    const char *why = "";
    if (!config->model && !config->params)
        return sl_error_set(error, SL_BAD_INPUT, "--model or --params must say which model is to be written");
    if (!config->to) return sl_error_set(error, SL_BAD_INPUT, "--to DIR must say where the model is to be written");
    if (config->format == HF && publishing->type == SL_WEIGHT_Q8_0)
        return sl_error_set(error, SL_BAD_INPUT, "--type q8_0: only --format gguf has it");
    if (!job->publishes && !sl_published_family_of(&job->model, &why))
        return sl_error_set(error, SL_BAD_INPUT, "no published family has %s: the model cannot be written for others",
                            why);
    return sl_publish_check(publishing, error);
}

/* A directory that is there already keeps its other files. */
static int make_directory(const char *path, struct sl_error *error) {
    if (!mkdir(path, 0777) || (errno == EEXIST && is_folder(path))) return SL_OK;
    return sl_error_set(error, SL_BAD_INPUT, "--to %s: cannot be made: %s", path,
                        errno == EEXIST ? "it is no directory" : strerror(errno));
}

static int write_model(struct transformer_job *job, struct sl_publishing *publishing,
                       struct sl_publication *publication, struct sl_error *error) {
    SL_TRY(sl_publication_open(publication, error));
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
                                       .context = config->context ? config->context : config->sequence};
    SL_TRY(check(job, &publishing, error));
    SL_TRY(make_directory(config->to, error));
    SL_TRY(sl_run(&job->job.mesh, engine, program, job));
    SL_TRY(sl_memory_refuse(&job->job, engine, job->training.memory, error));
    if (!sl_speaks(engine)) return SL_OK;
    const int status = write_model(job, &publishing, &publication, error);
    if (status == SL_OK)
        printf("%s: %d tensors of a %s, %.0f parameters\n", config->to, publication.count,
               sl_published_title(publication.family), sl_transformer_parameters(&job->model));
    sl_publication_close(&publication);
    return status;
}
