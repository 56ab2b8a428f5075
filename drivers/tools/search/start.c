/* start.c - the words of a command line without planning options, followed by a layout's: later options override
 * earlier ones. */
#include "drivers/tools/search/start.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "drivers/command_line/called.h"
#include "drivers/common/output.h"
#include "drivers/tools/search/search_options.h"

/* Returns how many words from WORD on belong to a planning option, which may be abbreviated: "--devices=8" is one,
 * "--dev" and "8" are two. */
static int words_of_plan(const char *word) {
    enum { SHORTEST = 3 };
    const size_t length = strncmp(word, "--", 2) ? 0 : strcspn(word + 2, "=");
    const bool other = length == 4 && !strncmp(word + 2, "save", 4);
    for (const struct sl_option *option = sl_search_table; option->name; option++)
        if (length >= SHORTEST && !other && !strncmp(word + 2, option->name, length)) return word[2 + length] ? 1 : 2;
    return 0;
}

/* Prints a word, in quotes of the kind it does not contain if it needs any. */
static void print_word(FILE *stream, const char *word) {
    const char *quote = strpbrk(word, " \t\n'\"#") ? (strchr(word, '"') ? "'" : "\"") : "";
    fprintf(stream, "%s%s%s\n", quote, word, quote);
}

int sl_start_save(const struct sl_options *command, const char *layout, const char *path, struct sl_error *error) {
    const struct sl_arguments *arguments = &command->arguments;
    struct sl_output output;
    SL_TRY(sl_output_open(&output, path, error));
    char program[SL_MAX_PATH], file[SL_MAX_PATH];
    fprintf(output.stream, "# %s @%s\n", sl_program_called(command->program, program, sizeof program),
            sl_shell_word(path, file, sizeof file));
    for (int i = 1, skipped; i < arguments->count; i += skipped ? skipped : 1)
        if (!(skipped = words_of_plan(arguments->word[i]))) print_word(output.stream, arguments->word[i]);
    fprintf(output.stream, "%s\n", layout);
    return sl_output_close(&output, SL_OK, error);
}

int sl_start_again(const struct sl_options *command, const char *layout, struct sl_error *error) {
    enum { MOST_LAYOUT_WORDS = 32 };
    const struct sl_arguments *arguments = &command->arguments;
    char **word = calloc((size_t)arguments->count + MOST_LAYOUT_WORDS + 2, sizeof *word);
    char *options = strdup(layout), *rest = NULL;
    int count = 0;
    if (!word || !options) {
        free(word);
        free(options);
        return sl_error_set(error, SL_FAILED, "no memory to start the run");
    }
    word[count++] = program_invocation_name;
    if (strcmp(arguments->word[0], program_invocation_name) != 0) word[count++] = arguments->word[0]; /* a command */
    for (int i = 1, skipped; i < arguments->count; i += skipped ? skipped : 1)
        if (!(skipped = words_of_plan(arguments->word[i]))) word[count++] = arguments->word[i];
    const int last = count + MOST_LAYOUT_WORDS;
    for (char *each = strtok_r(options, " ", &rest); each && count < last; each = strtok_r(NULL, " ", &rest))
        word[count++] = each;
    fflush(stdout);
    execv("/proc/self/exe", word);
    sl_error_set(error, SL_FAILED, "/proc/self/exe: %s", strerror(errno));
    free(word);
    free(options);
    return error->status;
}
