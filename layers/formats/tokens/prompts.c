/* prompts.c - reads prompts: bytes are tokens, and a line of a file is a prompt. */
#include "layers/formats/tokens/prompts.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "spmd/base/file.h"

enum { MOST_TOKENS = 1 << 28 }; /* of all prompts together */

/* ---- memory, which doubles ---- */

static bool make_room_for_prompt(struct sl_prompts *p) {
    if (p->count < p->room) return true;
    const int room = p->room ? 2 * p->room : 1;
    int *end = realloc(p->end, (size_t)room * sizeof *end);
    if (!end) return false;
    p->end = end;
    p->room = room;
    return true;
}

static bool make_room_for_tokens(struct sl_prompts *p, size_t count) {
    if (count <= p->tokens_room) return true;
    const size_t room = count > 2 * p->tokens_room ? count : 2 * p->tokens_room;
    int32_t *tokens = realloc(p->tokens, room * sizeof *tokens);
    if (!tokens) return false;
    p->tokens = tokens;
    p->tokens_room = room;
    return true;
}

/* Adds a prompt of COUNT tokens, which the caller then writes. */
static int add(struct sl_prompts *p, size_t count, int32_t **tokens, struct sl_error *error) {
    const size_t before = (size_t)sl_prompt_first(p, p->count);
    if (p->count == SL_MOST_PROMPTS || count > MOST_TOKENS - before)
        return sl_error_set(error, SL_BAD_INPUT, "at most %d prompts of %d tokens together are possible",
                            SL_MOST_PROMPTS, MOST_TOKENS);
    if (!make_room_for_prompt(p) || !make_room_for_tokens(p, before + count))
        return sl_error_set(error, SL_FAILED, "no memory for the prompts");
    *tokens = p->tokens + before;
    p->end[p->count++] = (int)(before + count);
    return SL_OK;
}

int sl_prompts_add(struct sl_prompts *p, const int32_t *tokens, size_t count, struct sl_error *error) {
    int32_t *to = NULL;
    SL_TRY(add(p, count, &to, error));
    memcpy(to, tokens, count * sizeof *to);
    return SL_OK;
}

int sl_prompts_add_text(struct sl_prompts *p, const char *where, const char *text, size_t count, int vocabulary,
                        struct sl_error *error) {
    int32_t *to = NULL;
    SL_TRY(add(p, count, &to, error));
    for (size_t i = 0; i < count; i++) {
        to[i] = (unsigned char)text[i];
        if (to[i] >= vocabulary)
            return sl_error_set(error, SL_BAD_INPUT, "%s: byte %d at place %zu, the vocabulary has %d tokens", where,
                                to[i], i, vocabulary);
    }
    return SL_OK;
}

/* ---- files ---- */

/* Adds a line. EMPTY: number of empty lines before it; they are allowed only at the end of a file. */
static int add_line(struct sl_prompts *p, const char *path, const char *line, size_t length, int empty, int vocabulary,
                    struct sl_error *error) {
    char where[96]; /* of a long path, only its end */
    const size_t shown = strlen(path) < 64 ? 0 : strlen(path) - 64;
    snprintf(where, sizeof where, "%s, line %d", path + shown, p->count + 1);
    if (empty) return sl_error_set(error, SL_BAD_INPUT, "%s is empty: a prompt has a byte at least", where);
    return sl_prompts_add_text(p, where, line, length, vocabulary, error);
}

int sl_prompts_read(struct sl_prompts *p, const char *path, int vocabulary, struct sl_error *error) {
    char *line = NULL;
    size_t room = 0;
    int status = SL_OK, empty = 0;
    const int before = p->count;
    const char *reason;
    FILE *file = sl_file_read(path, SL_FILE_REGULAR | SL_FILE_PIPE, &reason);
    if (!file) return sl_error_set(error, SL_BAD_INPUT, "%s: %s", path, reason);
    errno = 0;
    for (ssize_t length; status == SL_OK && (length = getline(&line, &room, file)) > 0;) {
        const size_t mark = p->count == before && length >= 3 && !memcmp(line, "\xef\xbb\xbf", 3) ? 3 : 0;
        if (line[length - 1] == '\n') length--;
        if ((size_t)length > mark && line[length - 1] == '\r') length--;
        if ((size_t)length == mark)
            empty++;
        else
            status = add_line(p, path, line + mark, (size_t)length - mark, empty, vocabulary, error);
    }
    if (status == SL_OK && (ferror(file) || !feof(file)))
        status = sl_error_set(error, SL_BAD_INPUT, "%s: %s", path, strerror(errno));
    if (status == SL_OK && p->count == before)
        status = sl_error_set(error, SL_BAD_INPUT, "%s: no prompts: each line is one", path);
    free(line);
    fclose(file);
    return status;
}

void sl_prompts_free(struct sl_prompts *p) {
    free(p->end);
    free(p->tokens);
    *p = (struct sl_prompts){0};
}
