/* data.c - opens a command's data, and reports on data and parameters. */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "drivers/transformer/transformer.h"
#include "layers/formats/tokens/token_format.h"

enum { MOST_BATCH = 1 << 20 };
#define FIELD(name) offsetof(struct transformer_config, name)

const struct sl_option transformer_data_table[] = {
    {"data", SL_OPTION_TEXT, FIELD(data), .value = "PATH", .path = SL_PATH_DATA, .keep = SL_KEPT_DATA,
     .read = "!chat&!choices",
     .help =
         "the text, or its tokens: a text file, or a directory of them and of directories (files of gzip and zstd are "
         "unpacked, "
         "binary ones left out), where each byte is a token, or which --tokenizer makes into tokens; a token shard of "
         "llm.c, "
         "or a directory of them (*.bin); or a safetensors file with an i32 tensor \"tokens\" [rows, sequence + 1]. "
         "If it is not given, the tokens in --params are taken if there are any, else the licenses that Debian "
         "installs"},
    {"validation", SL_OPTION_REAL, FIELD(validation), .min = 0, .max = 1, .below = true, .keep = SL_KEPT_DATA,
     .read = "!choices&!chat&!eval-data|@train", .help = "share of the text, at its end, that is kept for evaluation"},
    {"eval-data", SL_OPTION_TEXT, FIELD(eval_data), .value = "PATH", .path = SL_PATH_DATA, .keep = SL_KEPT_DATA,
     .read = "evaluate-every&!chat|@evaluate&!chat&!choices",
     .help = "data to evaluate on, read as --data are: every token but the first is scored, once. If it is not given, "
             "batches of the part kept for evaluation are"},
    {"stride", SL_OPTION_INTEGER, FIELD(stride), .min = 0, .max = 1 << 20, .keep = SL_KEPT_FREE,
     .read = "eval-data&!chat&!choices",
     .help = "with --eval-data: tokens from where a window of --sequence begins to where the next one does; fewer let "
             "more tokens before it predict a token, and each is still scored once; 0: --sequence"},
    {"data-format", SL_OPTION_CHOICE, FIELD(data_format), .value = "auto|uint16|uint32", .keep = SL_KEPT_DATA,
     .read = "!chat&!choices",
     .help =
         "format of --data and --eval-data: auto: by the files' contents; otherwise tokens of 16 or 32 bits without "
         "a header, as nanoGPT writes them (in a directory *.bin)"},
    {"text-key", SL_OPTION_TEXT, FIELD(text_key), .value = "KEY", .keep = SL_KEPT_DATA,
     .read = "tokenizer&!chat&!choices|model&!chat&!choices",
     .help = "with --tokenizer: key of the text in each line of *.jsonl, which is a document"},
    {"special", SL_OPTION_SWITCH, FIELD(special), .keep = SL_KEPT_DATA, .read = "tokenizer&!chat|model&!chat",
     .help = "with --tokenizer: a special token that the data spell out, such as <|endoftext|>, is read as that token; "
             "otherwise it is text"},
    {"document-mask", SL_OPTION_SWITCH, FIELD(document_mask), .keep = SL_KEPT_DATA, .read = "!chat&!choices",
     .help = "documents that share a sequence do not see each other, and positions begin anew in each"},
    {"document-token", SL_OPTION_INTEGER, FIELD(document_token), .min = -1, .max = 1 << 24, .keep = SL_KEPT_DATA,
     .read = "document-mask|tokenizer&!chat&!choices|model&!chat&!choices",
     .help = "the token with which a document begins, for --document-mask and where a tokenizer makes a text into "
             "tokens; -1: the one that ends a text, by --tokenizer, which stands before each document"},
    {"epochs", SL_OPTION_INTEGER, FIELD(epochs), .min = 0, .max = 1e6, .keep = SL_KEPT_RUN, .read = "@train",
     .unless = "steps", .help = "passes over the training data, in place of --steps; 0: train for --steps"},
    {"batch", SL_OPTION_INTEGER, FIELD(training.batch), .min = 1, .max = MOST_BATCH, .alias = "batch-size",
     .keep = SL_KEPT_RUN, .read = "!choices", .help = "sequences of a step, over all replicas"},
    {"evaluate-batches", SL_OPTION_INTEGER, FIELD(evaluate_batches), .min = 1, .max = 1e6, .keep = SL_KEPT_FREE,
     .read = "evaluate-every&!eval-data&!chat|@evaluate&!eval-data&!chat&!choices",
     .help = "batches of an evaluation without --eval-data"},
    {0},
};

const char transformer_default_data[] = "/usr/share/common-licenses";

/* ---- a directory's files, for people ---- */

static void print_count(const char **between, int count, const char *one, const char *several) {
    if (count == 0) return;
    fprintf(stderr, "%s%d %s", *between, count, count == 1 ? one : several);
    *between = ", ";
}

/* Reports shards with names for training and for validation: they are read as one. */
static void remark_parts(const char *option, const char *path, const struct sl_tokens *tokens) {
    int train = 0, other = 0;
    for (int i = 0; !tokens->format->text && i < tokens->files; i++) {
        const char *slash = strrchr(tokens->file[i].path, '/'), *name = slash ? slash + 1 : tokens->file[i].path;
        train += strstr(name, "train") != NULL;
        other += strstr(name, "val") != NULL && !strstr(name, "train");
    }
    if (train && other)
        sl_remark("%s %s: %d shards are called train and %d val, and all are read: name the directory or the file of "
                  "one kind, and the other by --eval-data",
                  option, path, train, other);
}

/* Reports the files of a directory, at least one of which is read. */
static void remark_files(const char *option, const char *path, const struct sl_tokens *tokens) {
    const struct sl_token_counts *counts = &tokens->counts;
    const char *between = "; left out: ";
    size_t bytes = 0;
    for (int i = 0; i < tokens->files; i++) bytes += tokens->file[i].contents.count;
    const bool large = bytes >= 1000000;
    fprintf(stderr, "%s: %s %s: %d file%s, %.1f %s", program_invocation_short_name, option, path, tokens->files,
            tokens->files == 1 ? "" : "s", (double)bytes / (large ? 1e6 : 1e3), large ? "MB" : "kB");
    if (counts->packed) fprintf(stderr, " (%d unpacked)", counts->packed);
    print_count(&between, counts->binary, "binary file", "binary files");
    print_count(&between, counts->links, "link", "links");
    print_count(&between, counts->hidden, "hidden", "hidden");
    print_count(&between, counts->others, "that is no regular file", "that are no regular files");
    fprintf(stderr, "\n");
    remark_parts(option, path, tokens);
}

static void remark_kind(const struct transformer_job *job, const char *option, const struct sl_tokens *tokens) {
    if (job->speaks) sl_text_tell_kind(option, tokens, job->config->tokenizer);
}

static const struct sl_token_format *format_of(const struct transformer_config *config) {
    return config->data_format ? sl_token_format_raw(config->data_format == 1 ? 2 : 4) : NULL;
}

/* ---- opening ---- */

bool transformer_takes_given_tokens(const struct transformer_job *job) {
    const struct transformer_config *config = job->config;
    return !config->chat && config->data == transformer_default_data && config->params &&
           sl_store_find(&job->params, "tokens");
}

/* Adds to ERROR that the data's name is from the checkpoint, if the user did not give it. */
static int tell_origin(const struct transformer_job *job, struct sl_error *error) {
    const struct sl_options *command = job->config->common.command;
    if (!*command->adoption.file || sl_option_given(command, "data")) return error->status;
    return sl_error_set(error, error->status, "%s (the data of the run in %s; --data names others)", error->message,
                        command->adoption.file);
}

static int open_parts(struct transformer_job *job, struct sl_error *error) {
    const struct transformer_config *config = job->config;
    const char *path = config->data;
    const bool named = strcmp(path, transformer_default_data) != 0; /* by the user, perhaps in an earlier run */
    if (transformer_takes_given_tokens(job)) path = config->params;
    const int status =
        sl_tokens_open(&job->tokens, path, format_of(config), config->validation, config->sequence, error);
    if (status && named) sl_text_tell_line(path, error);
    if (status) return named ? tell_origin(job, error) : status;
    if (named && job->speaks && job->tokens.directory) remark_files("--data", path, &job->tokens);
    return SL_OK;
}

static int open_whole(struct transformer_job *job, struct sl_error *error) {
    const struct transformer_config *config = job->config;
    struct sl_tokens *own = &job->eval_tokens;
    const int status = sl_tokens_open_whole(own, config->eval_data, format_of(config), config->sequence, error);
    if (status) return sl_text_tell_line(config->eval_data, error);
    if (job->speaks && own->directory) remark_files("--eval-data", config->eval_data, own);
    return SL_OK;
}

/* Checks that there are data for the evaluations, and that --eval-data is used. */
static int check_evaluation(const struct transformer_job *job, struct sl_error *error) {
    const struct transformer_config *config = job->config;
    const bool evaluates = job->command == TRANSFORMER_EVALUATE || config->evaluate_every;
    if (!evaluates || config->eval_data || sl_tokens_windows(&job->tokens, true, config->sequence)) return SL_OK;
    return sl_error_set(error, SL_BAD_INPUT,
                        "--validation %g keeps nothing of the data to evaluate on: give another share, or --eval-data",
                        config->validation);
}

/* ---- encoding ---- */

/* Encodes TOKENS, opened with VALIDATION, with the tokenizer if they are a text. */
static int encode(struct transformer_job *job, struct sl_tokens *tokens, const char *option, const char *path,
                  double validation, struct sl_error *error) {
    const struct transformer_config *config = job->config;
    int64_t documents = 0;
    const bool encodes = config->tokenizer && tokens->files && sl_tokens_are_bytes(tokens);
    if (encodes) SL_TRY(transformer_open_tokenizer(job, true, error));
    if (tokens->files) remark_kind(job, option, tokens);
    if (!encodes) return SL_OK;
    struct sl_text_encoding encoding = {job->tokenizer, config->text_key, config->special, -1};
    SL_TRY(sl_text_find_end(job->tokenizer, config->document_token, &encoding.end, error));
    SL_TRY(sl_text_encode(tokens, &encoding, path, validation, config->sequence, &documents, error));
    if (job->speaks)
        sl_remark("%s %s: %" PRId64 " document%s, %" PRId64 " tokens", option, path, documents,
                  documents == 1 ? "" : "s", tokens->count);
    return SL_OK;
}

/* Checks that both kinds of data use the same tokens, if both are numbers of one vocabulary. */
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

/* Finds the token that begins a document, for document masks. */
static int find_document(struct transformer_job *job, struct sl_error *error) {
    const struct transformer_config *config = job->config;
    const bool encoded = job->tokens.format == &sl_encoded_text || job->eval_tokens.format == &sl_encoded_text;
    if (!config->document_mask && !encoded && config->document_token >= 0 &&
        sl_option_given(config->common.command, "document-token"))
        return sl_error_set(error, SL_BAD_INPUT,
                            "--document-token %d: needs --document-mask, or a text whose tokens a tokenizer makes",
                            config->document_token);
    if (!config->document_mask) return SL_OK;
    job->document = config->document_token;
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

/* Finds the vocabulary, unless an option or a model sets it: a tokenizer may have more tokens than these data. */
static int find_vocabulary(struct transformer_job *job, struct sl_error *error) {
    if (job->model.vocabulary) return SL_OK;
    SL_TRY(transformer_open_tokenizer(job, true, error));
    job->model.vocabulary = job->tokenizer ? sl_tokenizer_vocabulary(job->tokenizer)
                                           : (job->tokens.files ? &job->tokens : &job->eval_tokens)->vocabulary;
    return SL_OK;
}

/* Opens the data. An evaluation on a text of its own opens no other. */
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

/* Counts the bytes of a window's labels. The end-of-text token has no bytes. */
static double bytes_of(const struct transformer_job *job, const int32_t *labels, int count) {
    const int given = job->config->document_token;
    const int32_t end = given < 0 ? sl_token_end(job->tokenizer) : given;
    double sum = 0;
    for (int i = 0; i < count; i++) {
        size_t bytes = 0;
        if (labels[i] >= 0 && labels[i] != end) sl_token_bytes(job->tokenizer, labels[i], &bytes);
        sum += (double)bytes;
    }
    return sum;
}

int transformer_count_bytes(struct transformer_job *job, struct sl_error *error) {
    const struct sl_tokens *scored = job->eval_tokens.files ? &job->eval_tokens : &job->tokens;
    const int sequence = job->config->sequence;
    job->scored_bytes = NAN;
    if (job->chats.samples.count) return SL_OK; /* answers are parts of texts, and have tokens without text */
    job->scored_bytes = sl_tokens_are_bytes(scored) ? job->score.tokens : NAN;
    if (!job->tokenizer || sl_tokens_are_bytes(scored)) return SL_OK;
    int32_t *labels = malloc((size_t)sequence * sizeof *labels);
    int status = labels ? SL_OK : sl_error_set(error, SL_FAILED, "no memory for a window's tokens");
    job->scored_bytes = 0;
    for (int64_t window = 0; status == SL_OK && window < transformer_scored(job); window++) {
        status = sl_tokens_fetch(scored, true, job->job.seed, window, 1, sequence, NULL, labels, error);
        if (status == SL_OK) job->scored_bytes += bytes_of(job, labels, sequence);
    }
    free(labels);
    return status;
}

/* ---- messages ---- */

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

int64_t transformer_scored(const struct transformer_job *job) {
    if (job->choices.count) return job->choices.samples.count;
    if (job->chats.samples.count) return transformer_chats_scored(job);
    if (job->eval_tokens.files) return sl_tokens_windows(&job->eval_tokens, true, job->config->sequence);
    return (int64_t)job->config->evaluate_batches * job->job.options->batch;
}

/* Writes whole sequences to the worker's arrays. */
static int fetch_whole(struct sl_worker *worker, bool evaluation, int64_t first, struct sl_batch *batch) {
    const struct transformer_job *job = transformer_job_of(worker);
    const struct transformer_worker *own = worker->own;
    const int local = worker->job->local, sequence = worker->job->sequence * worker->job->parts;
    const int64_t mine = first + (int64_t)sl_axis_index(worker->self, sl_data_axis) * local;
    const struct sl_tokens *tokens = evaluation && job->eval_tokens.files ? &job->eval_tokens : &job->tokens;
    if (job->chats.samples.count) {
        transformer_fetch_chats(worker, evaluation, first, mine, batch);
        return SL_OK;
    }
    if (job->choices.count)
        sl_samples_fetch(&job->choices.samples, mine, local, sequence, own->inputs, own->labels, NULL);
    else
        SL_TRY(sl_tokens_fetch(tokens, evaluation, worker->job->seed, mine, local, sequence, own->inputs, own->labels,
                               &worker->self->error));
    if (own->places) sl_tokens_places(own->inputs, local, sequence, job->document, own->places);
    return SL_OK;
}

int transformer_fetch(struct sl_worker *worker, bool evaluation, int64_t first, struct sl_batch *batch) {
    const struct transformer_worker *own = worker->own;
    *batch = (struct sl_batch){.rows = worker->job->local * worker->job->sequence,
                               .tokens = own->inputs,
                               .labels = own->labels,
                               .places = own->places};
    SL_TRY(fetch_whole(worker, evaluation, first, batch));
    transformer_divide(worker);
    return SL_OK;
}
