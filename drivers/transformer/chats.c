/* chats.c - conversations instead of data: batches of them, in training and in evaluation.
 *
 * The loss is the mean over all scored tokens of a step's batch. So a token counts the same in any conversation,
 * microbatch, pass and replica. Each coordinate counts the scored tokens of the whole batch, which it knows from the
 * samples' numbers. */
#include <inttypes.h>
#include <string.h>

#include "drivers/transformer/transformer.h"
#include "layers/formats/tokens/tokens.h"

/* ---- options ---- */

const struct sl_option transformer_chat_table[] = {
    {"chat", SL_OPTION_TEXT, offsetof(struct transformer_config, chat), .value = "FILE", .path = SL_PATH_TEXT,
     .keep = SL_KEPT_RUN, .read = "!choices",
     .help = "in place of data, conversations, whose assistant messages are learned or scored: each line of FILE is a "
             "JSON object with \"messages\", which have \"role\" and \"content\". --validation keeps the last of "
             "them for --evaluate-every; evaluate takes all"},
    {"chat-template", SL_OPTION_CHOICE, offsetof(struct transformer_config, chat_template),
     .value = "auto|chatml|llama3", .keep = SL_KEPT_RUN, .read = "chat",
     .help = "with --chat: how messages are written; auto: as the tokenizer's special tokens say"},
    {"pack", SL_OPTION_SWITCH, offsetof(struct transformer_config, pack), .keep = SL_KEPT_RUN, .read = "chat",
     .help =
         "with --chat: conversations that follow each other share a sequence where it has room for them, and do not "
         "see each other; otherwise each has a sequence of its own"},
    {0},
};

/* ---- before the run ---- */

static void remark(const struct transformer_job *job, int64_t conversations) {
    const struct sl_chats *chats = &job->chats;
    sl_remark("--chat %s: %" PRId64 " conversations (%s) in %" PRId64 " sequence%s, %" PRId64
              " tokens of answers; longer than --sequence: %" PRId64 " shortened, %" PRId64 " left out",
              job->config->chat, conversations, sl_chat_template_names[chats->template], chats->samples.count,
              chats->samples.count == 1 ? "" : "s", chats->samples.scored, chats->shortened, chats->left_out);
}

/* Divides the conversations: the last ones are for evaluation. */
static int divide(struct transformer_job *job, const struct transformer_config *config,
                  enum transformer_command command, struct sl_error *error) {
    const int64_t count = job->chats.samples.count;
    if (command != TRANSFORMER_EVALUATE)
        job->chat_conversations = count - (int64_t)((double)count * config->validation);
    job->chat_training = job->chat_conversations;
    job->chat_others = count - job->chat_conversations;
    if (command == TRANSFORMER_EVALUATE || !config->evaluate_every || job->chat_others) return SL_OK;
    return sl_error_set(error, SL_BAD_INPUT,
                        "--validation %g keeps none of %" PRId64 " conversations to evaluate on: give a larger share",
                        config->validation, count);
}

/* Packs the training and evaluation samples separately: they share no sequence. */
static void pack(struct transformer_job *job, int sequence) {
    struct sl_samples *samples = &job->chats.samples;
    job->chat_training = sl_samples_pack(samples, 0, job->chat_training, sequence);
    sl_samples_pack(samples, job->chat_training, samples->count, sequence);
}

int transformer_read_chats(struct transformer_job *job, struct transformer_config *config,
                           enum transformer_command command, bool speaks, struct sl_error *error) {
    if (config->experts)
        return sl_error_set(error, SL_BAD_INPUT,
                            "--chat and --experts: experts are balanced over all tokens, not over answers");
    job->config = config;
    job->model.vocabulary = config->vocabulary;
    SL_TRY(transformer_open_tokenizer(job, true, error));
    if (!config->vocabulary) config->vocabulary = job->tokenizer ? sl_tokenizer_vocabulary(job->tokenizer) : 256;
    const struct sl_chat_text text = {.tokenizer = job->tokenizer,
                                      .template = (enum sl_chat_template)config->chat_template,
                                      .sequence = config->sequence,
                                      .vocabulary = config->vocabulary};
    SL_TRY(sl_chats_read(&job->chats, config->chat, &text, error));
    SL_TRY(divide(job, config, command, error));
    const int64_t conversations = job->chats.samples.count;
    if (config->pack) pack(job, config->sequence);
    if (speaks) remark(job, conversations);
    return SL_OK;
}

int64_t transformer_chats_scored(const struct transformer_job *job) {
    return job->chats.samples.count - job->chat_training;
}

/* ---- batches ---- */

/* Returns the index of training sample NUMBER: each epoch takes every sample once, in an order of its own. */
static int64_t sample(const struct transformer_job *job, int64_t number) {
    const int64_t count = job->chat_training, epoch = number / count;
    return sl_tokens_shuffle(job->job.seed, epoch, count, number % count);
}

void transformer_fetch_chats(struct sl_worker *worker, bool evaluation, int64_t first, int64_t mine,
                             struct sl_batch *batch) {
    const struct transformer_job *job = transformer_job_of(worker);
    const struct transformer_worker *own = worker->own;
    const struct sl_samples *samples = &job->chats.samples;
    const int64_t local = worker->job->local, all = local * worker->job->data;
    const int sequence = worker->job->sequence * worker->job->parts;
    int64_t counted = 0;
    if (evaluation) {
        sl_samples_fetch(samples, job->chat_training + mine, local, sequence, own->inputs, own->labels, own->places);
        return;
    }
    for (int64_t i = 0; i < local; i++)
        sl_samples_fetch(samples, sample(job, mine + i), 1, sequence, own->inputs + i * sequence,
                         own->labels + i * sequence, own->places ? own->places + i * sequence : NULL);
    for (int64_t i = 0; i < all; i++) counted += sl_samples_scored(samples, sample(job, first + i));
    batch->counted = (double)counted;
}

/* ---- messages ---- */

void transformer_print_chats(const struct transformer_job *job, FILE *stream) {
    fprintf(stream, "--chat %s, %" PRId64 " conversations in %" PRId64 " sequence%s", job->config->chat,
            job->chat_others, transformer_chats_scored(job), transformer_chats_scored(job) == 1 ? "" : "s");
}
