/* choices.c - reads questions as samples. */
#include "drivers/tools/text/choices.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "drivers/tools/text/documents.h"

/* A question, as parsed from its line. */
struct line {
    const struct sl_document *document;
    json_t *object;
    const json_t *prompt, *choices;
    int answer;
};

struct reader {
    struct sl_choices *choices;
    const struct sl_choice_text *text;
    struct sl_encoder *encoder; /* NULL: a token is a byte */
    struct sl_token_list prompt, whole;
    char *joined; /* [room]: prompt, text between, choice */
    size_t room;
};

/* ---- a line ---- */

/* Returns SL_BAD_INPUT with the mistake in the line. */
static int refuse(const struct sl_document *document, struct sl_error *error, const char *what, const char *which) {
    return sl_error_set(error, SL_BAD_INPUT, "%s: line %lld: %s%s", document->path, document->line, what, which);
}

static int parse_answer(struct line *line, struct sl_error *error) {
    const json_t *answer = json_object_get(line->object, "answer");
    const size_t choices = json_array_size(line->choices);
    const json_int_t value = json_integer_value(answer);
    if (!json_is_integer(answer) || value < 0 || (size_t)value >= choices)
        return sl_error_set(error, SL_BAD_INPUT, "%s: line %lld: no integer from 0 to %zu under the key \"answer\"",
                            line->document->path, line->document->line, choices - 1);
    line->answer = (int)value;
    return SL_OK;
}

static int parse_choices(struct line *line, struct sl_error *error) {
    enum { MOST = 1 << 16 };
    const json_t *choice;
    size_t i;
    line->choices = json_object_get(line->object, "choices");
    if (!json_is_array(line->choices) || json_array_size(line->choices) < 2 || json_array_size(line->choices) > MOST)
        return refuse(line->document, error, "no array of 2 to 65536 texts under the key ", "\"choices\"");
    json_array_foreach(line->choices, i, choice) if (!json_string_length(choice)) return sl_error_set(
        error, SL_BAD_INPUT, "%s: line %lld: choice %zu is no text, or an empty one", line->document->path,
        line->document->line, i);
    return SL_OK;
}

/* Parses the line; the caller frees the object, also after a failure. */
static int parse(struct line *line, struct sl_error *error) {
    const struct sl_document *document = line->document;
    SL_TRY(sl_document_object(document, &line->object, error));
    line->prompt = json_object_get(line->object, "prompt");
    if (!line->prompt) line->prompt = json_object_get(line->object, "context");
    if (!json_is_string(line->prompt))
        return refuse(document, error, "no text under the key ", "\"prompt\" or \"context\"");
    SL_TRY(parse_choices(line, error));
    return parse_answer(line, error);
}

/* ---- tokens ---- */

static int encode(struct reader *r, const char *bytes, size_t count, struct sl_token_list *list,
                  struct sl_error *error) {
    list->count = 0;
    if (r->encoder) return sl_encode(r->encoder, bytes, count, r->text->special, list, error);
    for (size_t i = 0; i < count; i++)
        if (!sl_token_list_add(list, (uint8_t)bytes[i]))
            return sl_error_set(error, SL_FAILED, "no memory for a question's tokens");
    return SL_OK;
}

/* Puts a token before LIST that can predict the first token of a text. */
static int add_begin(const struct reader *r, struct sl_token_list *list, struct sl_error *error) {
    int32_t begin = '\n';
    if (r->text->tokenizer) {
        begin = sl_token_end(r->text->tokenizer);
        if (begin < 0) begin = sl_token_begin(r->text->tokenizer);
        if (begin < 0) begin = sl_token_find(r->text->tokenizer, "\n", 1);
        if (begin < 0) begin = 0;
    }
    if (!sl_token_list_add(list, 0)) return sl_error_set(error, SL_FAILED, "no memory for a question's tokens");
    memmove(list->token + 1, list->token, (list->count - 1) * sizeof *list->token);
    list->token[0] = begin;
    return SL_OK;
}

/* Writes prompt, text between, and CHOICE to JOINED. */
static int join(struct reader *r, const struct line *line, const json_t *choice, size_t *count,
                struct sl_error *error) {
    const size_t prompt = json_string_length(line->prompt), bytes = json_string_length(choice);
    const size_t between = strlen(r->text->between), all = prompt + between + bytes;
    if (all > sl_most_text) return refuse(line->document, error, "more than a gigabyte of text", "");
    if (all > r->room) {
        char *joined = realloc(r->joined, all);
        if (!joined) return sl_error_set(error, SL_FAILED, "no memory for a question");
        r->joined = joined;
        r->room = all;
    }
    memcpy(r->joined, json_string_value(line->prompt), prompt);
    memcpy(r->joined + prompt, r->text->between, between);
    memcpy(r->joined + prompt + between, json_string_value(choice), bytes);
    *count = all;
    return SL_OK;
}

/* Returns the length of the lists' common beginning. */
static size_t count_common(const struct sl_token_list *a, const struct sl_token_list *b) {
    size_t i = 0;
    while (i < a->count && i < b->count && a->token[i] == b->token[i]) i++;
    return i;
}

static int check_tokens(const struct reader *r, const struct line *line, size_t from, size_t number,
                        struct sl_error *error) {
    const struct sl_document *document = line->document;
    const int vocabulary = r->text->vocabulary, sequence = r->text->sequence;
    if (from == r->whole.count)
        return sl_error_set(error, SL_BAD_INPUT, "%s: line %lld: choice %zu adds no token to the prompt",
                            document->path, document->line, number);
    if (r->whole.count - from > (size_t)sequence)
        return sl_error_set(error, SL_BAD_INPUT, "%s: line %lld: choice %zu has %zu tokens, and --sequence is %d",
                            document->path, document->line, number, r->whole.count - from, sequence);
    for (size_t i = 0; vocabulary && i < r->whole.count; i++)
        if (r->whole.token[i] >= vocabulary)
            return sl_error_set(error, SL_BAD_INPUT, "%s: line %lld: token %d, but the vocabulary has 0 to %d",
                                document->path, document->line, r->whole.token[i], vocabulary - 1);
    return SL_OK;
}

static int add_choice(struct reader *r, const struct line *line, size_t number, struct sl_error *error) {
    struct sl_choices *choices = r->choices;
    const json_t *choice = json_array_get(line->choices, number);
    const int sequence = r->text->sequence;
    size_t count = 0;
    SL_TRY(join(r, line, choice, &count, error));
    SL_TRY(encode(r, r->joined, count, &r->whole, error));
    size_t from = count_common(&r->prompt, &r->whole);
    if (from == 0) SL_TRY(add_begin(r, &r->whole, error));
    from += from == 0;
    SL_TRY(check_tokens(r, line, from, number, error));
    choices->shortened += r->whole.count > (size_t)sequence + 1;
    SL_TRY(sl_samples_add(&choices->samples, r->whole.token, r->whole.count, from, sequence, error));
    double *bytes = realloc(choices->bytes, choices->samples.room * sizeof *bytes);
    if (!bytes) return sl_error_set(error, SL_FAILED, "no memory for a question");
    choices->bytes = bytes;
    bytes[choices->samples.count - 1] = (double)json_string_length(choice);
    return SL_OK;
}

/* ---- questions ---- */

static bool make_room(struct sl_choices *choices) {
    if ((size_t)choices->count < choices->room) return true;
    const size_t room = choices->room ? 2 * choices->room : 64;
    struct sl_question *question = realloc(choices->question, room * sizeof *question);
    if (!question) return false;
    choices->question = question;
    choices->room = room;
    return true;
}

static int add_question(struct reader *r, const struct line *line, struct sl_error *error) {
    struct sl_choices *choices = r->choices;
    const char *prompt = json_string_value(line->prompt);
    const size_t count = json_array_size(line->choices);
    size_t bytes = json_string_length(line->prompt);
    if (!make_room(choices)) return sl_error_set(error, SL_FAILED, "no memory for a question");
    choices->question[choices->count++] =
        (struct sl_question){line->document->line, (int)count, line->answer, choices->samples.count};
    while (bytes && prompt[bytes - 1] && strchr(" \t\r\n\v\f", prompt[bytes - 1])) bytes--;
    SL_TRY(encode(r, prompt, bytes, &r->prompt, error));
    for (size_t i = 0; i < count; i++) SL_TRY(add_choice(r, line, i, error));
    return SL_OK;
}

static int read_lines(struct reader *r, const struct sl_token_file *file, struct sl_error *error) {
    struct sl_document_lines lines = {.file = file};
    struct sl_document document;
    while (sl_document_next_line(&lines, &document)) {
        struct line line = {.document = &document};
        int status = parse(&line, error);
        if (status == SL_OK) status = add_question(r, &line, error);
        json_decref(line.object);
        SL_TRY(status);
    }
    if (r->choices->count) return SL_OK;
    return sl_error_set(error, SL_BAD_INPUT, "%s: no questions: a line of JSON is one", file->path);
}

int sl_choices_read(struct sl_choices *choices, const char *path, const struct sl_choice_text *text,
                    struct sl_error *error) {
    struct sl_token_file file = {.path = (char *)path};
    struct reader reader = {.choices = choices, .text = text};
    int status = sl_document_lines_open(&file, error);
    if (status == SL_OK && text->tokenizer) status = sl_encoder_open(&reader.encoder, text->tokenizer, error);
    if (status == SL_OK) status = read_lines(&reader, &file, error);
    sl_encoder_close(reader.encoder);
    sl_token_list_free(&reader.prompt);
    sl_token_list_free(&reader.whole);
    free(reader.joined);
    sl_contents_close(&file.contents);
    return status;
}

void sl_choices_free(struct sl_choices *choices) {
    sl_samples_free(&choices->samples);
    free(choices->question);
    free(choices->bytes);
    *choices = (struct sl_choices){0};
}
