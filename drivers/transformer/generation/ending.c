/* ending.c - samples that end early, and text printed as it is generated. */
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "drivers/common/interrupt.h"
#include "drivers/transformer/transformer.h"

#define FIELD(name) offsetof(struct transformer_config, name)

const struct sl_option transformer_ending_table[] = {
    {"end-of-text", SL_OPTION_SWITCH, FIELD(ends), .keep = SL_KEPT_FREE,
     .help = "a sample ends with a token that ends a text, as generation_config.json or else config.json of the "
             "model's folder "
             "names them, and the tokenizer; if none does, it has all of --length"},
    {"stop", SL_OPTION_TEXT, FIELD(stop), .value = "TEXT", .keep = SL_KEPT_FREE,
     .help = "a sample ends before TEXT, too, where it comes after the prompt"},
    {0},
};

/* ---- end of a sample ---- */

/* An answer of a conversation ends where the template of chats says so. */
static void take_from_talk(const struct transformer_job *job, struct transformer_ending *ending) {
    if (!job->talk.written) return;
    const char *end = sl_chat_end(&job->talk.writer);
    if (job->tokenizer) {
        ending->turn = sl_token_find(job->tokenizer, end, strlen(end));
        return;
    }
    ending->stop = end;
    ending->stop_bytes = strlen(end);
}

void transformer_open_ending(struct transformer_ending *ending, const struct transformer_job *job) {
    const char *stop = job->config->stop;
    *ending = (struct transformer_ending){.job = job,
                                          .ends = job->config->ends,
                                          .turn = -1,
                                          .stop = transformer_shows_text(job) ? stop : NULL,
                                          .stop_bytes = stop ? strlen(stop) : 0};
    if (job->config->interactive) take_from_talk(job, ending);
}

bool transformer_has_ending(const struct transformer_ending *ending) {
    return (ending->ends && ending->job->ends.count) || ending->stop;
}

static bool is_end(const struct transformer_ending *ending, int32_t token) {
    return (ending->ends && transformer_ends_text(ending->job, token)) || token == ending->turn;
}

/* Returns a token's bytes; if tokens are bytes, ROOM holds the byte. */
static const char *bytes_of(const struct transformer_ending *ending, int32_t token, char *room, size_t *count) {
    *count = 0;
    if (ending->job->tokenizer) return sl_token_bytes(ending->job->tokenizer, token, count);
    *room = (char)token;
    *count = 1;
    return room;
}

/* Whether the text of tokens [from, at], without the last LESS bytes of token AT, ends with the stop text. */
static bool stops(const struct transformer_ending *ending, const int32_t *tokens, int from, int at, size_t less) {
    size_t left = ending->stop_bytes, count;
    char room;
    for (; left && at >= from; at--, less = 0) {
        const char *bytes = bytes_of(ending, tokens[at], &room, &count);
        const size_t there = count - less, here = there < left ? there : left;
        if (here && memcmp(bytes + there - here, ending->stop + left - here, here)) return false;
        left -= here;
    }
    return !left;
}

bool transformer_ends(void *arg, const int32_t *tokens, int prompt, int count) {
    const struct transformer_ending *ending = arg;
    const int last = count - 1;
    size_t bytes;
    char room;
    if (is_end(ending, tokens[last])) return true;
    if (!ending->stop) return false;
    bytes_of(ending, tokens[last], &room, &bytes);
    for (size_t less = 0; less < bytes; less++)
        if (stops(ending, tokens, prompt, last, less)) return true;
    return false;
}

char *transformer_shown_text(const struct transformer_ending *ending, const int32_t *tokens, int prompt, int length,
                             size_t *count) {
    const bool ended = length > prompt && ending->ends && transformer_ends_text(ending->job, tokens[length - 1]);
    char *text = transformer_text_of(ending->job, tokens, length - ended, count);
    if (!text || !ending->stop) return text;
    size_t given = 0;
    char *before = transformer_text_of(ending->job, tokens, prompt, &given);
    const char *stop = before ? memmem(text + given, *count - given, ending->stop, ending->stop_bytes) : NULL;
    if (stop) *count = (size_t)(stop - text);
    free(before);
    return text;
}

/* ---- printing during generation ---- */

struct transformer_printer {
    char *text; /* held back: it may become a character, or the stop text */
    size_t count, room;
    size_t given; /* bytes of the prompt in it */
    bool ended;
    int failed; /* errno of the first failed write to stdout */
};

/* Counts the bytes at the end of TEXT that begin an incomplete UTF-8 character. */
static size_t open_bytes(const char *text, size_t count) {
    for (size_t back = 1; back < 4 && back <= count; back++) {
        const unsigned char byte = (unsigned char)text[count - back];
        if ((byte & 0xc0) == 0x80) continue;
        const size_t length = byte >= 0xf0 ? 4 : byte >= 0xe0 ? 3 : byte >= 0xc0 ? 2 : 1;
        return length > back ? back : 0;
    }
    return 0;
}

/* Prints all but the last HELD bytes. */
static void print(struct transformer_printer *p, size_t held) {
    if (held >= p->count) return;
    const size_t now = p->count - held;
    sl_print_bytes(stdout, (uint8_t *)p->text, now);
    if (fflush(stdout) && !p->failed) p->failed = errno;
    memmove(p->text, p->text + now, held);
    p->count = held;
    p->given = p->given > now ? p->given - now : 0;
}

static bool add(struct transformer_printer *p, const char *bytes, size_t count) {
    if (p->count + count > p->room) {
        const size_t room = 2 * (p->count + count);
        char *text = realloc(p->text, room);
        if (!text) return false;
        p->text = text;
        p->room = room;
    }
    memcpy(p->text + p->count, bytes, count);
    p->count += count;
    return true;
}

/* Prints the text that later tokens cannot change. */
static void print_settled(const struct transformer_ending *ending) {
    struct transformer_printer *p = ending->printer;
    const size_t more = ending->stop ? ending->stop_bytes - 1 : 0;
    if (p->count > more) print(p, more + open_bytes(p->text, p->count - more));
}

/* Opens the printer with room for long tokens, which are rare, so printing hardly ever allocates. */
int transformer_open_printer(struct transformer_ending *ending, const int32_t *prompt, int count,
                             struct sl_error *error) {
    struct transformer_printer *p = ending->printer = calloc(1, sizeof *p);
    size_t given = 0;
    char *text = transformer_text_of(ending->job, prompt, count, &given);
    const bool added = p && text && (p->room = given + ending->stop_bytes + 4096) && (p->text = malloc(p->room)) &&
                       add(p, text, given);
    free(text);
    if (!added) return sl_error_set(error, SL_FAILED, "no memory for a sample's text");
    p->given = given;
    return SL_OK;
}

void transformer_begin_print(struct transformer_ending *ending) {
    ending->printer->count = ending->printer->given = 0;
    ending->printer->ended = false;
}

/* Prints a token. Without memory the text has a gap, and the run goes on. */
void transformer_print_token(void *arg, int sequence, const int32_t *tokens, int position) {
    const struct transformer_ending *ending = arg;
    struct transformer_printer *p = ending->printer;
    size_t count;
    char room;
    (void)sequence;
    if (p->ended) return;
    p->ended = is_end(ending, tokens[position]);
    if (p->ended) return;
    const char *bytes = bytes_of(ending, tokens[position], &room, &count);
    if (!bytes || !add(p, bytes, count)) return;
    const char *stop =
        ending->stop ? memmem(p->text + p->given, p->count - p->given, ending->stop, ending->stop_bytes) : NULL;
    if (stop) p->count = (size_t)(stop - p->text);
    p->ended = stop;
    if (!stop) print_settled(ending);
}

int transformer_end_print(struct transformer_ending *ending, struct sl_error *error) {
    struct transformer_printer *p = ending->printer;
    print(p, 0);
    putchar('\n');
    if (fflush(stdout) && !p->failed) p->failed = errno;
    return p->failed ? sl_error_set(error, SL_FAILED, "stdout: %s", strerror(p->failed)) : SL_OK;
}

/* Callback of struct sl_generation. */
bool transformer_stops_talk(void *arg) {
    (void)arg;
    return sl_interrupt_stopped() || sl_interrupt_arrived() != 0;
}

void transformer_close_printer(struct transformer_ending *ending) {
    if (ending->printer) free(ending->printer->text);
    free(ending->printer);
    ending->printer = NULL;
}
