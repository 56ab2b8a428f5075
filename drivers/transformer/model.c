/* model.c - a published model: its sizes instead of options, its values, and its tokenizer. */
#include <stdlib.h>
#include <string.h>

#include "drivers/transformer/transformer.h"

/* ---- options ---- */

/* Options set by the model's files, and refused from the user. */
static const char *const given_by_model[] = {"model-dimension", "n-heads",
                                             "blocks",          "layers-per-block",
                                             "latent-dim",      "rope-dim",
                                             "vocab-size",      "attention",
                                             "kv-heads",        "head-dim",
                                             "window",          "qk-norm",
                                             "rope-base",       "rope-pairs",
                                             "rope-scaling",    "mlp",
                                             "mlp-dim",         "norm",
                                             "norm-epsilon",    "biases",
                                             "experts",         "params",
                                             "resume",          "shared-experts",
                                             "untied-head",     "learned-positions",
                                             "rope-divisors",   "rope-amplitude",
                                             "context",         NULL};

static void take_sizes(struct transformer_config *config, const struct sl_transformer *t) {
    config->model_dimension = t->dimension;
    config->heads = t->heads;
    config->blocks = t->blocks;
    config->layers_per_block = t->layers_per_block;
    config->vocabulary = t->vocabulary;
    config->rope = t->rope;
    config->attention = t->attention;
    config->key_heads = t->key_heads;
    config->head_width = t->head_width;
    config->head_norms = t->head_norms;
    config->window = t->window;
    config->mlp = t->mlp;
    config->mlp_dimension = t->inside;
    config->norm = t->norm;
    config->norm_epsilon = t->epsilon;
    config->biases = t->biases;
    config->learned_positions = t->learned_positions;
    config->untied_head = t->untied_head;
}

int transformer_take_model(struct transformer_job *job, struct transformer_config *config,
                           const struct sl_options *options, bool exports, struct sl_error *error) {
    if (!config->model) return SL_OK;
    for (int i = 0; given_by_model[i] && !job->base; i++)
        if (sl_option_given(options, given_by_model[i]) && !(exports && !strcmp(given_by_model[i], "params")))
            return sl_error_set(error, SL_BAD_INPUT, "--model and --%s: the model's files say it: leave --%s out",
                                given_by_model[i], given_by_model[i]);
    job->publishes = true;
    if (!sl_option_given(options, "tokenizer")) config->tokenizer = config->model;
    SL_TRY(sl_published_open(&job->published, config->model, error));
    take_sizes(config, &job->published.transformer);
    SL_TRY(transformer_write_rotary(job, config, &job->published.transformer, error));
    const int most = config->context = job->published.context;
    if (config->sequence > most && sl_option_given(options, "sequence"))
        return sl_error_set(error, SL_BAD_INPUT, "--sequence %d: the model was made for at most %d tokens",
                            config->sequence, most);
    if (config->sequence > most) config->sequence = most;
    if (config->length > most)
        return sl_error_set(error, SL_BAD_INPUT, "--length %d: the model was made for at most %d tokens",
                            config->length, most);
    return SL_OK;
}

/* ---- values ---- */

bool transformer_gives_values(const struct sl_worker *worker) {
    const struct transformer_job *job = transformer_job_of(worker);
    return job->publishes && !job->config->params;
}

int transformer_load_model(struct sl_worker *worker) {
    const struct transformer_job *job = transformer_job_of(worker);
    struct sl_group world;
    if (!transformer_gives_values(worker)) return SL_OK;
    SL_TRY(sl_group_axes(worker->self, "*", &world));
    SL_TRY(sl_published_load(&job->published, worker->self, &world, sl_trainer_parameters(worker->trainer)));
    return sl_group_close(worker->self, &world);
}

int transformer_publish(const struct transformer_job *job, struct sl_store *store, struct sl_error *error) {
    struct sl_publication publication = {
        .family = job->published.family, .transformer = &job->model, .values = store, .partial = true};
    struct sl_store named = {0};
    int status = sl_publication_open(&publication, error);
    if (status == SL_OK) status = sl_publication_copy(&publication, &named, error);
    sl_publication_close(&publication);
    sl_store_free(status == SL_OK ? store : &named);
    if (status == SL_OK) *store = named;
    return status;
}

/* ---- text ---- */

int transformer_open_tokenizer(struct transformer_job *job, bool needed, struct sl_error *error) {
    const char *path = job->config->tokenizer;
    struct sl_error reason = {0};
    if (!path || job->tokenizer) return SL_OK;
    if (sl_tokenizer_open(&job->tokenizer, path, NULL, &reason)) {
        const bool model = job->config->model && !strcmp(path, job->config->model);
        const char *hint = model ? "; --tokenizer PATH names one elsewhere" : "";
        return needed ? sl_error_set(error, reason.status, "%s%s", reason.message, hint) : SL_OK;
    }
    const int tokens = sl_tokenizer_vocabulary(job->tokenizer);
    if (!job->model.vocabulary || tokens <= job->model.vocabulary) return SL_OK;
    return sl_error_set(error, SL_BAD_INPUT, "%s: its tokenizer has %d tokens, and the model %d", path, tokens,
                        job->model.vocabulary);
}

/* Encodes prompt I, given as bytes, and adds the tokens to LIST. */
static int encode(struct sl_encoder *encoder, const struct sl_prompts *prompts, int i, struct sl_token_list *list,
                  struct sl_error *error) {
    const int32_t *tokens = sl_prompt_tokens(prompts, i);
    const size_t count = (size_t)sl_prompt_length(prompts, i);
    char *text = malloc(count + 1);
    if (!text) return sl_error_set(error, SL_FAILED, "no memory for a prompt");
    for (size_t c = 0; c < count; c++) text[c] = (char)tokens[c];
    const int status = sl_encode(encoder, text, count, true, list, error);
    free(text);
    return status;
}

static int encode_all(struct transformer_job *job, struct sl_encoder *encoder, struct sl_prompts *made,
                      struct sl_error *error) {
    for (int i = 0; i < job->prompts.count; i++) {
        struct sl_token_list list = {0};
        int status = encode(encoder, &job->prompts, i, &list, error);
        if (status == SL_OK) status = sl_prompts_add(made, list.token, list.count, error);
        sl_token_list_free(&list);
        SL_TRY(status);
    }
    return SL_OK;
}

int transformer_encode_prompts(struct transformer_job *job, struct sl_error *error) {
    struct sl_encoder *encoder;
    struct sl_prompts made = {0};
    if (!job->tokenizer || job->config->prompt_tokens) return SL_OK;
    SL_TRY(sl_encoder_open(&encoder, job->tokenizer, error));
    const int status = encode_all(job, encoder, &made, error);
    sl_encoder_close(encoder);
    sl_prompts_free(status == SL_OK ? &job->prompts : &made);
    if (status == SL_OK) job->prompts = made;
    return status;
}

/* Decodes the tokens, except tokens without a text. */
static char *decode(const struct transformer_job *job, const int32_t *tokens, int length, size_t *count) {
    int32_t *known = malloc(((size_t)length + 1) * sizeof *known);
    char *text = NULL;
    size_t kept = 0;
    for (int i = 0; known && i < length; i++)
        if (transformer_has_text(job, tokens[i])) known[kept++] = tokens[i];
    if (known && sl_decode(job->tokenizer, known, kept, &text, count, NULL)) text = NULL;
    free(known);
    return text;
}

char *transformer_text_of(const struct transformer_job *job, const int32_t *tokens, int length, size_t *count) {
    char *text = NULL;
    if (job->tokenizer) return decode(job, tokens, length, count);
    text = malloc((size_t)length + 1);
    for (int i = 0; text && i < length; i++) text[i] = (char)tokens[i];
    *count = (size_t)length;
    return text;
}

bool transformer_shows_text(const struct transformer_job *job) {
    return job->tokenizer || job->model.vocabulary <= 256;
}

void transformer_close_model(struct transformer_job *job) {
    transformer_forget_tokens(job);
    sl_tokenizer_close(job->tokenizer);
    sl_published_close(&job->published);
}
