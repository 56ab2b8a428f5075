/* data.c - the data that a command reads, and what is said of them and of the parameters. */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "drivers/transformer/transformer.h"
#include "layers/storage/token_format.h"

const char transformer_default_data[] = "/usr/share/common-licenses";

/* ---- a directory's files, for people ---- */

static void print_count(const char **between, int count, const char *one, const char *several) {
    if (count == 0) return;
    fprintf(stderr, "%s%d %s", *between, count, count == 1 ? one : several);
    *between = ", ";
}

/* Where there is none, PATH would not have been opened. */
static void remark_files(const char *option, const char *path, const struct sl_tokens *tokens) {
    const struct sl_token_counts *counts = &tokens->counts;
    const char *between = "; left out: ";
    size_t bytes = 0;
    for (int i = 0; i < tokens->files; i++) bytes += tokens->file[i].contents.count;
    const bool large = bytes >= 1000000;
    fprintf(stderr, "%s: %s %s: %d file%s, %.1f %s", program_invocation_short_name, option, path, tokens->files,
            tokens->files == 1 ? "" : "s", (double)bytes / (large ? 1e6 : 1e3), large ? "MB" : "kB");
    if (counts->packed) fprintf(stderr, " (%d unpacked by gzip)", counts->packed);
    print_count(&between, counts->binary, "binary file", "binary files");
    print_count(&between, counts->links, "link", "links");
    print_count(&between, counts->hidden, "hidden", "hidden");
    print_count(&between, counts->others, "that is no regular file", "that are no regular files");
    fprintf(stderr, "\n");
}

/* ---- opening ---- */

bool transformer_takes_given_tokens(const struct transformer_job *job) {
    const struct transformer_config *config = job->config;
    return config->data == transformer_default_data && config->params && sl_store_find(&job->params, "tokens");
}

/* Says in ERROR where the name of the data is from, if nobody gave it. */
static int tell_origin(const struct transformer_job *job, struct sl_error *error) {
    const struct sl_options *command = job->config->common.command;
    if (!*command->adoption.file || sl_option_given(command, "data")) return error->status;
    return sl_error_set(error, error->status, "%s (the data of the run in %s; --data names others)", error->message,
                        command->adoption.file);
}

static int open_parts(struct transformer_job *job, struct sl_error *error) {
    const struct transformer_config *config = job->config;
    const char *path = config->data;
    const bool named = strcmp(path, transformer_default_data) != 0; /* the user's, perhaps in the run before */
    if (transformer_takes_given_tokens(job)) path = config->params;
    const int status = sl_tokens_open(&job->tokens, path, config->validation, config->sequence, error);
    if (status) return named ? tell_origin(job, error) : status;
    if (named && job->speaks && job->tokens.directory) remark_files("--data", path, &job->tokens);
    return SL_OK;
}

static int open_whole(struct transformer_job *job, struct sl_error *error) {
    const struct transformer_config *config = job->config;
    const struct sl_tokens *data = &job->tokens, *own = &job->eval_tokens;
    SL_TRY(sl_tokens_open_whole(&job->eval_tokens, config->eval_data, config->sequence, error));
    if (job->speaks && own->directory) remark_files("--eval-data", config->eval_data, own);
    if (!data->files || data->format == own->format || data->format->rows || own->format->rows) return SL_OK;
    return sl_error_set(error, SL_BAD_INPUT,
                        "--eval-data %s: a %s, and --data %s is a %s: they have no tokens in common", config->eval_data,
                        own->format->name, config->data, data->format->name);
}

/* Whether there is something for the evaluations that are asked for, and a use for --eval-data. */
static int check_evaluation(const struct transformer_job *job, struct sl_error *error) {
    const struct transformer_config *config = job->config;
    const bool evaluates = job->command == TRANSFORMER_EVALUATE || config->evaluate_every;
    if (config->eval_data && !evaluates)
        return sl_error_set(error, SL_BAD_INPUT, "--eval-data %s: needs --evaluate-every N, which says when",
                            config->eval_data);
    if (!evaluates || config->eval_data || sl_tokens_windows(&job->tokens, true, config->sequence)) return SL_OK;
    return sl_error_set(error, SL_BAD_INPUT,
                        "--validation %g keeps nothing of the data to evaluate on: give another share, or --eval-data",
                        config->validation);
}

/* A published model's tokens are not bytes. */
static int check_bytes(const struct transformer_job *job, const struct sl_tokens *tokens, const char *option,
                       const char *path, struct sl_error *error) {
    if (!job->publishes || !tokens->files || !sl_tokens_are_bytes(tokens)) return SL_OK;
    return sl_error_set(
        error, SL_BAD_INPUT,
        "%s %s: a text, whose tokens would be bytes: --model needs those of its tokenizer, which \"tokens "
        "shards\" makes",
        option, path);
}

/* Whoever evaluates on a text of its own reads no other. */
int transformer_open_data(struct transformer_job *job, struct sl_error *error) {
    const char *own = job->config->eval_data;
    if (!transformer_reads_data(job->command)) return SL_OK;
    if (job->command == TRANSFORMER_TRAIN || !own) SL_TRY(open_parts(job, error));
    if (own) SL_TRY(open_whole(job, error));
    SL_TRY(check_evaluation(job, error));
    SL_TRY(check_bytes(job, &job->tokens, "--data", job->config->data, error));
    SL_TRY(check_bytes(job, &job->eval_tokens, "--eval-data", own, error));
    if (!job->model.vocabulary)
        job->model.vocabulary = (job->tokens.files ? &job->tokens : &job->eval_tokens)->vocabulary;
    job->tokens.vocabulary = job->eval_tokens.vocabulary = job->model.vocabulary;
    return SL_OK;
}

/* ---- what is said of them ---- */

void transformer_print_scored(const struct transformer_job *job, FILE *stream) {
    const struct sl_tokens *data = &job->tokens;
    const struct transformer_config *config = job->config;
    if (job->eval_tokens.files) {
        fprintf(stream, "--eval-data %s, all of its %" PRId64 " tokens", config->eval_data, job->eval_tokens.count);
        return;
    }
    fprintf(stream, "data %s, ", data->files == 1 ? data->file[0].path : config->data);
    if (data->training < data->count)
        fprintf(stream, "the last %" PRId64 " of %" PRId64 " tokens, ", data->count - data->training, data->count);
    fprintf(stream, "%d batches of %d sequences", config->evaluate_batches, config->training.batch);
}

void transformer_print_source(const struct transformer_job *job, FILE *stream) {
    const char *step = sl_store_note(&job->params, "step");
    if (job->publishes) {
        fprintf(stream, "model %s (%s)", job->config->model, sl_published_title(job->published.family));
        return;
    }
    if (!job->config->params) {
        fprintf(stream, "random parameters");
        return;
    }
    fprintf(stream, "parameters %s", job->params.path ? job->params.path : job->config->params);
    if (step) fprintf(stream, " (step %s)", step);
}

void transformer_warn_of_source(const struct transformer_job *job) {
    if (job->config->params || job->publishes) return;
    sl_remark("without --params the parameters are random, as they are before a training");
}
