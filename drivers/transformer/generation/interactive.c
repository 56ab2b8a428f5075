/* interactive.c - generate --interactive: a conversation with the model, line by line.
 *
 * Coordinate 0 reads a line, encodes it, and sends the tokens to all others. All coordinates store the
 * conversation's tokens, and the caches their keys and values, so only new tokens go through the model. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "drivers/common/interrupt.h"
#include "drivers/training/memory_check.h"
#include "drivers/transformer/transformer.h"

/* ---- options ---- */

enum { MOST_CONTEXT = 2048 };

const struct sl_option transformer_interactive_table[] = {
    {"interactive", SL_OPTION_FLAG, offsetof(struct transformer_config, interactive),
     .help =
         "talk with the model: each line of standard input is a message, and its answer is printed as it comes. "
         "Ctrl-C stops an answer, Ctrl-D ends. --length is the most tokens of the whole conversation, by default the "
         "model's context, but at most 2048"},
    {"chat-template", SL_OPTION_CHOICE, offsetof(struct transformer_config, chat_template),
     .value = "auto|chatml|llama3|none", .read = "interactive",
     .help = "with --interactive: format of messages; auto: as the tokenizer's special tokens say, or none if it has "
             "none: lines and answers are one text, which the model continues"},
    {"system", SL_OPTION_TEXT, offsetof(struct transformer_config, system), .value = "TEXT", .read = "interactive",
     .help = "with --interactive: text of a first message, whose role is system; by default there is none"},
    {"answer", SL_OPTION_INTEGER, offsetof(struct transformer_config, answer), .min = 1, .max = 1 << 20,
     .read = "interactive", .help = "with --interactive: the most tokens of an answer"},
    {0},
};

int transformer_context(const struct transformer_config *config) {
    const int context = config->context ? config->context : config->sequence;
    return context < MOST_CONTEXT ? context : MOST_CONTEXT;
}

void transformer_close_talk(struct transformer_job *job) {
    sl_chat_writer_close(&job->talk.writer);
    sl_encoder_close(job->talk.encoder);
    sl_token_list_free(&job->talk.tokens);
    sl_lines_close(job->talk.lines);
}

/* ---- a conversation ---- */

/* A coordinate's state. */
struct conversation {
    struct sl_worker *worker;
    struct sl_generator *generator;
    struct sl_group world; /* size 0: no other coordinates */
    struct transformer_ending ending;
    int32_t *tokens; /* [length] */
    int count, kept; /* number of tokens, and number of them in the caches */
    bool full;
    double prefill_ms, prefill_tokens, decode_ms, decode_tokens;
};

/* Message from coordinate 0 to all: these numbers, followed by ADDED tokens. */
struct said {
    int32_t goes_on; /* 0: the conversation has ended */
    int32_t stays;   /* number of tokens of the conversation that remain */
    int32_t added;
};

static bool talks(const struct conversation *c) { return c->worker->self->coordinate == 0; }

static bool is_to_end(void) { return sl_interrupt_arrived() != 0; }

static int meanwhile(void *arg) {
    const struct conversation *c = arg;
    return sl_progress(c->worker->self);
}

static int send(struct conversation *c, void *data, size_t bytes) {
    if (!c->world.size) return SL_OK;
    return sl_broadcast(c->worker->self, &c->world, SL_I32, data, data, bytes / sizeof(int32_t), 0);
}

/* ---- the user's message ---- */

/* Adds the tokens of plain text to LIST. */
static int encode_text(struct transformer_job *job, const char *text, size_t bytes, struct sl_token_list *list,
                       struct sl_error *error) {
    if (job->talk.encoder) return sl_encode(job->talk.encoder, text, bytes, true, list, error);
    for (size_t i = 0; i < bytes; i++) {
        const unsigned char byte = (unsigned char)text[i];
        if (byte >= job->model.vocabulary)
            return sl_error_set(error, SL_BAD_INPUT, "stdin: byte %d, but the vocabulary has %d tokens", byte,
                                job->model.vocabulary);
        if (!sl_token_list_add(list, byte)) return sl_error_set(error, SL_FAILED, "no memory for a line's tokens");
    }
    return SL_OK;
}

/* Whether the last answer has ended with the template's token; another end-of-text token is removed. */
static bool has_turned(const struct conversation *c, int32_t *stays) {
    const struct transformer_ending *ending = &c->ending;
    const int32_t last = c->tokens[c->count - 1];
    if (ending->ends && last != ending->turn && transformer_ends_text(ending->job, last)) --*stays;
    if (ending->turn >= 0) return last == ending->turn;
    return transformer_ends((void *)ending, c->tokens, 0, c->count);
}

/* Writes the messages since the last answer, up to the beginning of the next answer. */
static int write_messages(struct conversation *c, const char *text, size_t bytes, int32_t *stays,
                          struct sl_error *error) {
    struct transformer_job *job = transformer_job_of(c->worker);
    struct sl_chat_writer *writer = &job->talk.writer;
    const char *system = job->config->system;
    if (c->count) {
        writer->tokens.count = writer->answers.count = 0;
        SL_TRY(sl_chat_end_message(writer, has_turned(c, stays), error));
    } else {
        SL_TRY(sl_chat_begin(writer, error));
        if (system) SL_TRY(sl_chat_add(writer, "system", 6, system, strlen(system), false, error));
    }
    SL_TRY(sl_chat_add(writer, "user", 4, text, bytes, false, error));
    return sl_chat_begin_message(writer, "assistant", error);
}

/* Sets ADDED to the tokens that TEXT adds to the conversation. */
static int make_tokens(struct conversation *c, const char *text, size_t bytes, int32_t *stays,
                       struct sl_token_list **added, struct sl_error *error) {
    struct transformer_job *job = transformer_job_of(c->worker);
    if (job->talk.written) {
        *added = &job->talk.writer.tokens;
        return write_messages(c, text, bytes, stays, error);
    }
    *added = &job->talk.tokens;
    job->talk.tokens.count = 0;
    return encode_text(job, text, bytes, *added, error);
}

static int check_tokens(const struct transformer_job *job, const struct sl_token_list *added, struct sl_error *error) {
    for (size_t i = 0; i < added->count; i++)
        if (added->token[i] >= job->model.vocabulary)
            return sl_error_set(error, SL_BAD_INPUT, "stdin: token %d, but the vocabulary has 0 to %d", added->token[i],
                                job->model.vocabulary - 1);
    return SL_OK;
}

/* Fills in SAID from the next line with any content. */
static int listen(struct conversation *c, struct said *said, struct sl_token_list **added, struct sl_error *error) {
    struct transformer_job *job = transformer_job_of(c->worker);
    const double timeout = c->worker->self->engine->timeout / 4;
    const struct sl_line_watch watch = {timeout < 0.5 ? timeout : 0.5, meanwhile, transformer_stops_talk, c};
    const char *text;
    size_t bytes;
    enum sl_line what;
    do {
        sl_interrupt_take_stop();
        SL_TRY(sl_lines_next(job->talk.lines, &watch, &what, &text, &bytes, error));
        if (what == SL_LINE_LAST || is_to_end()) return SL_OK;
    } while (what == SL_LINE_GIVEN_UP || !bytes);
    said->stays = c->count;
    SL_TRY(make_tokens(c, text, bytes, &said->stays, added, error));
    SL_TRY(check_tokens(job, *added, error));
    c->full = (double)said->stays + (double)(*added)->count >= job->length;
    said->goes_on = !c->full && (*added)->count;
    said->added = (int32_t)(*added)->count;
    return SL_OK;
}

static void say_full(const struct conversation *c) {
    fflush(stdout);
    sl_remark("the conversation has all of its %d tokens (--length): it ends here",
              transformer_job_of(c->worker)->length);
}

/* Sends the next message to all coordinates. GOES_ON: there was one. */
static int exchange(struct conversation *c, bool *goes_on) {
    struct said said = {0};
    struct sl_token_list *added = NULL;
    struct sl_spmd *self = c->worker->self;
    if (talks(c)) SL_TRY(listen(c, &said, &added, &self->error));
    SL_TRY(send(c, &said, sizeof said));
    *goes_on = said.goes_on;
    if (!said.goes_on) {
        if (talks(c) && c->full) say_full(c);
        return SL_OK;
    }
    int32_t *to = c->tokens + said.stays;
    if (talks(c)) memcpy(to, added->token, (size_t)said.added * sizeof *to);
    SL_TRY(send(c, to, (size_t)said.added * sizeof *to));
    c->count = said.stays + said.added;
    c->kept = c->kept < said.stays ? c->kept : said.stays;
    return SL_OK;
}

/* ---- the answer ---- */

static int answer(struct conversation *c) {
    const struct transformer_job *job = transformer_job_of(c->worker);
    const int room = job->length - c->count, most = job->config->answer < room ? job->config->answer : room;
    int length = 0;
    struct sl_generated made = {.tokens = c->tokens,
                                .lengths = &length,
                                .prompt = c->count,
                                .kept = c->kept < c->count ? c->kept : c->count - 1,
                                .most = c->count + most};
    if (talks(c)) transformer_begin_print(&c->ending);
    SL_TRY(sl_generator_run(c->generator, &made));
    c->count = length;
    c->kept = length - 1;
    c->full = length == job->length;
    c->prefill_ms += made.prefill_ms;
    c->prefill_tokens += made.prefill_tokens;
    c->decode_ms += made.decode_ms;
    c->decode_tokens += made.decode_tokens;
    if (!talks(c)) return SL_OK;
    SL_TRY(transformer_end_print(&c->ending, &c->worker->self->error));
    if (c->full) say_full(c);
    return SL_OK;
}

static int converse(struct conversation *c) {
    for (bool goes_on = true; !c->full;) {
        SL_TRY(exchange(c, &goes_on));
        if (!goes_on) return SL_OK;
        SL_TRY(answer(c));
    }
    return SL_OK;
}

/* ---- the run ---- */

static int open_conversation(struct conversation *c, struct sl_worker *worker) {
    struct transformer_job *job = transformer_job_of(worker);
    struct sl_spmd *self = worker->self;
    *c = (struct conversation){.worker = worker};
    c->tokens = calloc((size_t)job->length, sizeof *c->tokens);
    if (!c->tokens) return sl_fail(self, SL_FAILED, "no memory to generate");
    sl_budget_add(&self->held, SL_MEMORY_RUNTIME, (size_t)job->length * sizeof *c->tokens);
    if (self->mesh->size > 1) SL_TRY(sl_group_axes(self, "*", &c->world));
    transformer_open_ending(&c->ending, job);
    if (talks(c)) SL_TRY(transformer_open_printer(&c->ending, NULL, 0, &self->error));
    return transformer_open_generator(&c->generator, worker, &c->ending, false);
}

static void close_conversation(struct conversation *c) {
    sl_generator_close(c->generator);
    if (c->world.size) sl_group_close(c->worker->self, &c->world);
    transformer_close_printer(&c->ending);
    free(c->tokens);
}

static void print_heading(const struct transformer_job *job) {
    transformer_warn_of_source(job);
    fprintf(stderr, "transformer: ");
    transformer_print_source(job, stderr);
    fprintf(stderr, "; a conversation (%s) of up to %d tokens; Ctrl-C stops an answer, Ctrl-D ends\n",
            job->talk.written ? sl_chat_template_names[job->talk.writer.template] : "one text", job->length);
}

static void print_speed(const struct conversation *c) {
    if (c->decode_tokens > 0)
        fprintf(stderr, "prefill %.0f tokens/s, decode %.0f tokens/s\n", 1e3 * c->prefill_tokens / c->prefill_ms,
                1e3 * c->decode_tokens / c->decode_ms);
}

int transformer_talk(struct sl_worker *worker) {
    struct transformer_job *job = transformer_job_of(worker);
    struct conversation c;
    int status = open_conversation(&c, worker);
    if (status == SL_OK) sl_interrupt_catch_stops(); /* before this a signal ends the run at once */
    if (status == SL_OK && talks(&c)) print_heading(job);
    if (status == SL_OK) status = converse(&c);
    if (status == SL_OK) status = sl_memory_gather_held(worker->self, job->training.memory);
    if (status == SL_OK && talks(&c)) {
        print_speed(&c);
        sl_memory_print_end(stderr, job->training.memory, &job->job.mesh, false);
    }
    close_conversation(&c);
    return status;
}

int transformer_open_lines(struct transformer_job *job, struct sl_error *error) {
    if (!job->config->interactive || job->job.sizes_only) return SL_OK;
    return job->speaks ? sl_lines_open(&job->talk.lines, "> ", error) : SL_OK;
}
