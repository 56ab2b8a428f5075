/* data.c - the data that a command reads, and what is said of them and of the parameters. */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
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
    return !config->chat && config->data == transformer_default_data && config->params &&
           sl_store_find(&job->params, "tokens");
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
    struct sl_tokens *own = &job->eval_tokens;
    SL_TRY(sl_tokens_open_whole(own, config->eval_data, config->sequence, error));
    if (job->speaks && own->directory) remark_files("--eval-data", config->eval_data, own);
    return SL_OK;
}

/* Whether there is something for the evaluations that are asked for, and a use for --eval-data. */
static int check_evaluation(const struct transformer_job *job, struct sl_error *error) {
    const struct transformer_config *config = job->config;
    const bool evaluates = job->command == TRANSFORMER_EVALUATE || config->evaluate_every;
    if (!evaluates || config->eval_data || sl_tokens_windows(&job->tokens, true, config->sequence)) return SL_OK;
    return sl_error_set(error, SL_BAD_INPUT,
                        "--validation %g keeps nothing of the data to evaluate on: give another share, or --eval-data",
                        config->validation);
}

/* ---- texts become tokens ---- */

/* TOKENS, opened with VALIDATION, as the tokenizer has them, if they are a text. */
static int encode(struct transformer_job *job, struct sl_tokens *tokens, const char *option, const char *path,
                  double validation, struct sl_error *error) {
    const struct transformer_config *config = job->config;
    int64_t documents = 0;
    if (!config->tokenizer || !tokens->files || !sl_tokens_are_bytes(tokens)) return SL_OK;
    SL_TRY(transformer_open_tokenizer(job, true, error));
    const struct sl_text_encoding encoding = {job->tokenizer, config->text_key, config->special};
    SL_TRY(sl_text_encode(tokens, &encoding, path, validation, config->sequence, &documents, error));
    if (job->speaks)
        sl_remark("%s %s: %" PRId64 " document%s, %" PRId64 " tokens", option, path, documents,
                  documents == 1 ? "" : "s", tokens->count);
    return SL_OK;
}

/* Those of both kinds of data are the same, where both are numbers of one vocabulary. */
static int check_kinds(const struct transformer_job *job, struct sl_error *error) {
    const struct sl_tokens *data = &job->tokens, *own = &job->eval_tokens;
    const bool encoded = data->format == &sl_encoded_text || own->format == &sl_encoded_text;
    if (!data->files || !own->files || data->format == own->format || data->format->rows || own->format->rows ||
        encoded)
        return SL_OK;
    return sl_error_set(error, SL_BAD_INPUT,
                        "--eval-data %s: a %s, and --data %s is a %s: they have no tokens in common",
                        job->config->eval_data, own->format->name, job->config->data, data->format->name);
}

static int set_stride(struct transformer_job *job, struct sl_error *error) {
    const int stride = job->config->stride, sequence = job->config->sequence;
    if (!stride || !job->eval_tokens.files) return SL_OK;
    if (stride > sequence)
        return sl_error_set(error, SL_BAD_INPUT,
                            "--stride %d: a window has %d tokens (--sequence), and at most as many", stride, sequence);
    if (job->eval_tokens.columns)
        return sl_error_set(error, SL_BAD_INPUT, "--stride %d: needs --eval-data, a text or shards", stride);
    job->eval_tokens.stride = stride;
    return SL_OK;
}

/* Which token begins a document, where documents are not to see each other. */
static int find_document(struct transformer_job *job, struct sl_error *error) {
    const struct transformer_config *config = job->config;
    job->document = config->document_mask ? config->document_token : -1;
    if (!config->document_mask) return SL_OK;
    if (job->document < 0) {
        SL_TRY(transformer_open_tokenizer(job, true, error));
        if (job->tokenizer) job->document = sl_token_end(job->tokenizer);
    }
    if (job->document < 0)
        return sl_error_set(error, SL_BAD_INPUT,
                            "--document-mask: no tokenizer says which token ends a text: give --document-token");
    if (job->document < job->model.vocabulary) return SL_OK;
    return sl_error_set(error, SL_BAD_INPUT, "--document-token %d: the vocabulary has 0 to %d", job->document,
                        job->model.vocabulary - 1);
}

bool transformer_has_documents(const struct transformer_job *job) {
    return job->document >= 0 || (job->chats.samples.count && job->config->pack);
}

/* Unless an option says it, or a model: a tokenizer may know of more tokens than these data have. */
static int find_vocabulary(struct transformer_job *job, struct sl_error *error) {
    if (job->model.vocabulary) return SL_OK;
    SL_TRY(transformer_open_tokenizer(job, true, error));
    job->model.vocabulary = job->tokenizer ? sl_tokenizer_vocabulary(job->tokenizer)
                                           : (job->tokens.files ? &job->tokens : &job->eval_tokens)->vocabulary;
    return SL_OK;
}

/* Whoever evaluates on a text of its own reads no other. */
int transformer_open_data(struct transformer_job *job, struct sl_error *error) {
    const struct transformer_config *config = job->config;
    const char *own = config->eval_data;
    job->document = -1;
    if (!transformer_reads_data(job->command) || config->questions || config->chat) return SL_OK;
    if (job->command == TRANSFORMER_TRAIN || !own) SL_TRY(open_parts(job, error));
    if (own) SL_TRY(open_whole(job, error));
    SL_TRY(encode(job, &job->tokens, "--data", config->data, config->validation, error));
    SL_TRY(encode(job, &job->eval_tokens, "--eval-data", own, 0, error));
    SL_TRY(check_kinds(job, error));
    SL_TRY(check_evaluation(job, error));
    SL_TRY(set_stride(job, error));
    SL_TRY(find_vocabulary(job, error));
    job->tokens.vocabulary = job->eval_tokens.vocabulary = job->model.vocabulary;
    return find_document(job, error);
}

/* ---- bytes ---- */

/* Of a window's labels. The token that ends a text stands for none of its bytes. */
static double bytes_of(const struct sl_tokenizer *tokenizer, const int32_t *labels, int count) {
    const int32_t end = sl_token_end(tokenizer);
    double sum = 0;
    for (int i = 0; i < count; i++) {
        size_t bytes = 0;
        if (labels[i] >= 0 && labels[i] != end) sl_token_bytes(tokenizer, labels[i], &bytes);
        sum += (double)bytes;
    }
    return sum;
}

int transformer_count_bytes(struct transformer_job *job, struct sl_error *error) {
    const struct sl_tokens *scored = job->eval_tokens.files ? &job->eval_tokens : &job->tokens;
    const int sequence = job->config->sequence;
    job->scored_bytes = NAN;
    if (job->chats.samples.count) return SL_OK; /* answers are parts of texts, with tokens that are no text */
    job->scored_bytes = sl_tokens_are_bytes(scored) ? job->score.tokens : NAN;
    if (!job->tokenizer || sl_tokens_are_bytes(scored)) return SL_OK;
    int32_t *labels = malloc((size_t)sequence * sizeof *labels);
    int status = labels ? SL_OK : sl_error_set(error, SL_FAILED, "no memory for a window's tokens");
    job->scored_bytes = 0;
    for (int64_t window = 0; status == SL_OK && window < transformer_scored(job); window++) {
        status = sl_tokens_fetch(scored, true, job->job.seed, window, 1, sequence, NULL, labels, error);
        if (status == SL_OK) job->scored_bytes += bytes_of(job->tokenizer, labels, sequence);
    }
    free(labels);
    return status;
}

/* ---- what is said of them ---- */

void transformer_print_scored(const struct transformer_job *job, FILE *stream) {
    const struct sl_tokens *data = &job->tokens;
    const struct transformer_config *config = job->config;
    if (job->chats.samples.count) {
        transformer_print_chats(job, stream);
        return;
    }
    if (job->eval_tokens.files) {
        fprintf(stream, "--eval-data %s, all of its %" PRId64 " tokens", config->eval_data, job->eval_tokens.count);
        if (config->stride && config->stride < config->sequence)
            fprintf(stream, " but the first from at least %d before them", config->sequence - config->stride);
        return;
    }
    fprintf(stream, "data %s, ", data->files == 1 ? data->file[0].path : config->data);
    if (data->training < data->count)
        fprintf(stream, "the last %" PRId64 " of %" PRId64 " tokens, ", data->count - data->training, data->count);
    fprintf(stream, "%d batch%s of %d sequence%s", config->evaluate_batches, config->evaluate_batches == 1 ? "" : "es",
            config->training.batch, config->training.batch == 1 ? "" : "s");
}

void transformer_print_source(const struct transformer_job *job, FILE *stream) {
    const char *step = sl_store_note(&job->params, "step");
    if (job->publishes && !job->config->params) {
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
