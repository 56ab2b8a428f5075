/* arguments.c - a command line with its @FILE arguments replaced by the words in the files. */
#include "drivers/command_line/arguments.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "spmd/base/file.h"
#include "spmd/base/memory.h"

/* Limits, reached by a file that includes itself and by a device. */
enum { MAX_WORDS = 4096, MAX_DEPTH = 8, MAX_FILE = 1 << 20 };

/* Files can include files endlessly without adding a word. So each file counts as an argument, and MAX_FILE limits the
 * length of all files together, too. */
struct expansion {
    struct sl_arguments *arguments;
    size_t bytes; /* of all files so far */
    struct sl_error *error;
};

static int count_argument(const struct expansion *expansion) {
    if (expansion->arguments->count + expansion->arguments->files < MAX_WORDS) return SL_OK;
    return sl_error_set(expansion->error, SL_BAD_INPUT, "more than %d arguments", MAX_WORDS);
}

static int append(const struct expansion *expansion, const char *word) {
    struct sl_arguments *arguments = expansion->arguments;
    SL_TRY(count_argument(expansion));
    char *copy = strdup(word);
    if (!copy) return sl_error_set(expansion->error, SL_FAILED, "out of memory");
    arguments->word[arguments->count++] = copy;
    return SL_OK;
}

static int note_file(const struct expansion *expansion, const char *path) {
    struct sl_arguments *arguments = expansion->arguments;
    SL_TRY(count_argument(expansion));
    char **grown = sl_grow(arguments->file, arguments->files, &arguments->capacity, 4, sizeof *grown);
    char *copy = grown ? strdup(path) : NULL;
    if (grown) arguments->file = grown;
    if (!copy) return sl_error_set(expansion->error, SL_FAILED, "out of memory");
    arguments->file[arguments->files++] = copy;
    return SL_OK;
}

/* Reads the file into *TEXT; the caller frees it, also after an error. */
static int read_text(struct expansion *expansion, const char *path, char **text) {
    struct sl_error *error = expansion->error;
    const char *reason;
    FILE *file = sl_file_read(path, SL_FILE_REGULAR | SL_FILE_PIPE | SL_FILE_DEVICE | SL_FILE_DIRECTORY, &reason);
    if (!file) return sl_error_set(error, SL_BAD_INPUT, "@%s: %s", path, reason);
    *text = malloc(MAX_FILE + 1);
    const size_t length = *text ? fread(*text, 1, MAX_FILE + 1, file) : 0;
    const int failure = ferror(file) ? errno : 0;
    fclose(file);
    if (!*text) return sl_error_set(error, SL_FAILED, "out of memory");
    if (failure) return sl_error_set(error, SL_BAD_INPUT, "@%s: %s", path, strerror(failure));
    if (length > MAX_FILE) return sl_error_set(error, SL_BAD_INPUT, "@%s: longer than %d bytes", path, MAX_FILE);
    expansion->bytes += length;
    if (expansion->bytes > MAX_FILE)
        return sl_error_set(error, SL_BAD_INPUT, "@%s: with the files before it longer than %d bytes", path, MAX_FILE);
    if (memchr(*text, 0, length)) return sl_error_set(error, SL_BAD_INPUT, "@%s: is no text: holds a zero byte", path);
    (*text)[length] = 0;
    return SL_OK;
}

/* Returns the start of the next word at or after TEXT, or the end of TEXT. */
static char *skip_blanks(char *text) {
    for (;;) {
        while (isspace((unsigned char)*text)) text++;
        if (*text != '#') return text;
        text += strcspn(text, "\n");
    }
}

/* Removes the quotes of the word at TEXT in place and ends it; returns the text after it, NULL if a quote is not
 * closed. */
static char *cut_word(char *text) {
    char quote = 0, *out = text;
    for (; *text && (quote || !isspace((unsigned char)*text)); text++) {
        if (quote ? *text == quote : *text == '\'' || *text == '"') {
            quote = quote ? 0 : *text;
        } else {
            *out++ = *text;
        }
    }
    if (quote) return NULL;
    char *rest = *text ? text + 1 : text;
    *out = 0;
    return rest;
}

static int expand_file(struct expansion *expansion, const char *path, int depth);

static int expand_word(struct expansion *expansion, const char *word, int depth) {
    return word[0] == '@' ? expand_file(expansion, word + 1, depth + 1) : append(expansion, word);
}

static int expand_file(struct expansion *expansion, const char *path, int depth) {
    if (depth > MAX_DEPTH) {
        return sl_error_set(expansion->error, SL_BAD_INPUT, "@%s: files name files more than %d deep", path, MAX_DEPTH);
    }
    SL_TRY(note_file(expansion, path));
    char *text = NULL;
    int status = read_text(expansion, path, &text);
    for (char *word = text, *rest; !status && *(word = skip_blanks(word)); word = rest) {
        rest = cut_word(word);
        status = rest ? expand_word(expansion, word, depth)
                      : sl_error_set(expansion->error, SL_BAD_INPUT, "@%s: a quote is not closed: %.40s", path, word);
    }
    free(text);
    return status;
}

int sl_arguments_expand(struct sl_arguments *arguments, int argc, char **argv, struct sl_error *error) {
    *arguments = (struct sl_arguments){.word = calloc(MAX_WORDS + 1, sizeof(char *))};
    if (!arguments->word) return sl_error_set(error, SL_FAILED, "out of memory");
    struct expansion expansion = {.arguments = arguments, .error = error};
    for (int i = 0; i < argc; i++) {
        /* argv[0] is the program's name and is not expanded. */
        SL_TRY(i ? expand_word(&expansion, argv[i], 0) : append(&expansion, argv[i]));
    }
    return SL_OK;
}

void sl_arguments_free(struct sl_arguments *arguments) {
    for (int i = 0; i < arguments->count; i++) free(arguments->word[i]);
    free(arguments->word);
    for (int i = 0; i < arguments->files; i++) free(arguments->file[i]);
    free(arguments->file);
    *arguments = (struct sl_arguments){0};
}

const char *sl_program_prefix(void) {
    static const char *const prefixes[] = {"shardloop-", "shardloop "};
    for (int i = 0; i < 2; i++)
        if (!strncmp(program_invocation_short_name, prefixes[i], strlen(prefixes[i]))) return prefixes[i];
    return "";
}
