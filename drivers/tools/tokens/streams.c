/* streams.c - converts text to numbers and back, from stdin to stdout. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "drivers/tools/tokens/tokens.h"

/* The present text: all of the input, or a line without its newline. */
struct input {
    FILE *file;
    bool lines;
    char *text;
    size_t bytes, room;
    long long number; /* of the text, from 1 */
};

static int read_whole(struct input *in, struct sl_error *error) {
    in->bytes = 0;
    for (size_t got = 1; got; in->bytes += got) {
        if (in->bytes == in->room) {
            char *wider = realloc(in->text, 2 * in->room + 65536);
            if (!wider) return sl_error_set(error, SL_FAILED, "stdin: no memory for it");
            in->text = wider;
            in->room = 2 * in->room + 65536;
        }
        got = fread(in->text + in->bytes, 1, in->room - in->bytes, in->file);
    }
    return SL_OK;
}

/* Reads the next text. MORE: there was one. */
static int next_text(struct input *in, bool *more, struct sl_error *error) {
    errno = 0;
    *more = false;
    if (!in->lines) {
        if (in->number) return SL_OK;
        SL_TRY(read_whole(in, error));
        *more = true;
    } else {
        const ssize_t got = getline(&in->text, &in->room, in->file);
        *more = got >= 0;
        in->bytes = got < 0 ? 0 : (size_t)got;
        if (in->bytes && in->text[in->bytes - 1] == '\n') in->bytes--;
    }
    in->number++;
    if (!ferror(in->file) && (*more || !in->lines || feof(in->file))) return SL_OK;
    return sl_error_set(error, SL_FAILED, "stdin: %s", errno ? strerror(errno) : "cannot be read");
}

static int check(struct sl_error *error) {
    return ferror(stdout)
               ? sl_error_set(error, SL_FAILED, "stdout: %s", errno ? strerror(errno) : "could not be written")
               : SL_OK;
}

/* ---- encoding ---- */

static void print_numbers(const struct sl_token_list *list) {
    for (size_t i = 0; i < list->count; i++) printf(i ? " %d" : "%d", list->token[i]);
    putchar('\n');
}

static int encode_texts(const struct tokens_config *config, struct sl_encoder *encoder, struct input *in,
                        struct sl_error *error) {
    struct sl_token_list list = {0};
    bool more;
    int status = next_text(in, &more, error);
    while (!status && more) {
        list.count = 0;
        status = sl_encode(encoder, in->text, in->bytes, config->special, &list, error);
        if (!status) print_numbers(&list);
        if (!status) status = check(error);
        if (!status) status = next_text(in, &more, error);
    }
    sl_token_list_free(&list);
    return status;
}

int tokens_encode(const struct tokens_config *config, const struct sl_tokenizer *tokenizer, struct sl_error *error) {
    struct input input = {.file = stdin, .lines = config->lines};
    struct sl_encoder *encoder;
    SL_TRY(sl_encoder_open(&encoder, tokenizer, error));
    const int status = encode_texts(config, encoder, &input, error);
    sl_encoder_close(encoder);
    free(input.text);
    return status;
}

/* ---- decoding ---- */

static bool is_blank(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

/* Reads the next number at *AT, and moves *AT behind it; -1: the word is not a number; -2: there is no word. */
static int32_t next_number(const char *text, size_t bytes, size_t *at) {
    int64_t number = 0;
    while (*at < bytes && is_blank(text[*at])) ++*at;
    const size_t begin = *at;
    if (begin == bytes) return -2;
    for (; *at < bytes && !is_blank(text[*at]); ++*at) {
        const char c = text[*at];
        number = c >= '0' && c <= '9' && number >= 0 && *at - begin < 9 ? 10 * number + (c - '0') : -1;
    }
    if (number < 0) *at = begin;
    return (int32_t)number;
}

static int read_numbers(const struct input *in, struct sl_token_list *list, struct sl_error *error) {
    size_t at = 0;
    for (list->count = 0;;) {
        const int32_t number = next_number(in->text, in->bytes, &at);
        if (number == -2) return SL_OK;
        if (number == -1) {
            size_t end = at;
            while (end < in->bytes && !is_blank(in->text[end]) && end - at < 30) end++;
            return sl_error_set(error, SL_BAD_INPUT, "stdin: \"%.*s\", in text number %lld, is no number of a token",
                                (int)(end - at), in->text + at, in->number);
        }
        if (!sl_token_list_add(list, number)) return sl_error_set(error, SL_FAILED, "stdin: no memory for its tokens");
    }
}

static int decode_text(const struct tokens_config *config, const struct sl_tokenizer *tokenizer, const struct input *in,
                       struct sl_token_list *list, struct sl_error *error) {
    char *text;
    size_t bytes;
    SL_TRY(read_numbers(in, list, error));
    SL_TRY(sl_decode(tokenizer, list->token, list->count, &text, &bytes, error));
    fwrite(text, 1, bytes, stdout);
    if (config->lines) putchar('\n');
    free(text);
    return check(error);
}

int tokens_decode(const struct tokens_config *config, const struct sl_tokenizer *tokenizer, struct sl_error *error) {
    struct input input = {.file = stdin, .lines = config->lines};
    struct sl_token_list list = {0};
    bool more;
    int status = next_text(&input, &more, error);
    while (!status && more) {
        status = decode_text(config, tokenizer, &input, &list, error);
        if (!status) status = next_text(&input, &more, error);
    }
    sl_token_list_free(&list);
    free(input.text);
    return status;
}
