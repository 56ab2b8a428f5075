/* output.c - a driver's output, on stdout or into a file. */
#include "drivers/common/output.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "drivers/common/identity.h"
#include "drivers/common/options.h"
#include "layers/formats/files/draft.h"
#include "spmd/base/file.h"

static int width_of_stdout(void) {
    struct winsize size;
    if (!isatty(STDOUT_FILENO)) return 0;
    return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

static bool shows_colours(void) {
    const char *terminal = getenv("TERM");
    return !getenv("NO_COLOR") && terminal && strcmp(terminal, "dumb") != 0;
}

/* ---- text in memory ---- */

static ssize_t keep(void *cookie, const char *data, size_t size) {
    struct sl_text *text = cookie;
    size_t capacity = text->capacity ? text->capacity : 4096;
    while (capacity - text->size <= size) capacity *= 2;
    if (capacity > text->capacity) {
        char *grown = realloc(text->bytes, capacity);
        if (!grown) return 0; /* the stream reports the error */
        text->bytes = grown, text->capacity = capacity;
    }
    memcpy(text->bytes + text->size, data, size);
    text->size += size;
    text->bytes[text->size] = 0;
    return (ssize_t)size;
}

FILE *sl_text_open(struct sl_text *text) {
    *text = (struct sl_text){0};
    return fopencookie(text, "w", (cookie_io_functions_t){.write = keep});
}

bool sl_text_close(FILE *stream) {
    if (!stream) return false;
    const bool whole = !fflush(stream) && !ferror(stream);
    return fclose(stream) == 0 && whole;
}

/* ---- destination ---- */

int sl_output_open(struct sl_output *output, const char *path, struct sl_error *error) {
    const int width = path ? 0 : width_of_stdout();
    *output = (struct sl_output){.name = path ? path : "stdout",
                                 .path = path,
                                 .option = "--output",
                                 .columns = shows_colours() ? width : 0,
                                 .width = width};
    output->stream = sl_text_open(&output->text);
    return output->stream ? SL_OK : sl_error_set(error, SL_FAILED, "no memory to print");
}

int sl_output_file(const char *option, const char *path, bool appends, FILE **file, struct sl_error *error) {
    const char *reason;
    *file = sl_file_write(path, appends, SL_FILE_REGULAR | SL_FILE_PIPE | SL_FILE_DEVICE, &reason);
    return *file ? SL_OK : sl_error_set(error, SL_BAD_INPUT, "%s: %s: %s", option, path, reason);
}

/* Replaces the file; an existing file stays unchanged until all is written. */
static int replace_file(const struct sl_output *output, struct sl_error *error) {
    struct sl_draft draft = {0};
    SL_TRY(sl_draft_open(&draft, output->path, SL_LINKS_FOLLOWED, error));
    const int number = sl_draft_write(&draft, output->text.bytes, output->text.size);
    if (!number) return sl_draft_finish(&draft, 0, error);
    sl_draft_give_up(&draft);
    return sl_error_set(error, SL_FAILED, "%s: %s", output->name, strerror(number));
}

/* Whether PATH is replaced: a regular file, or a missing one, in a directory that allows new files; other files are
 * written in place. */
static bool is_replaced(const char *path) {
    struct stat file;
    return (stat(path, &file) || S_ISREG(file.st_mode)) && !sl_draft_check(path, SL_LINKS_FOLLOWED, NULL);
}

static int write_all(const struct sl_output *output, struct sl_error *error) {
    FILE *file = stdout;
    if (output->path && is_replaced(output->path)) return replace_file(output, error);
    if (output->path) SL_TRY(sl_output_file(output->option, output->path, false, &file, error));
    errno = 0;
    bool failed = fwrite(output->text.bytes, 1, output->text.size, file) < output->text.size;
    failed |= fflush(file) || ferror(file);
    const int reason = errno;
    if (output->path) failed |= fclose(file) != 0;
    if (!failed) return SL_OK;
    return sl_error_set(error, SL_FAILED, "%s: %s", output->name, reason ? strerror(reason) : "could not be written");
}

int sl_output_close(struct sl_output *output, int status, struct sl_error *error) {
    if (!output->stream) return status;
    const bool whole = sl_text_close(output->stream);
    output->stream = NULL;
    if (status == SL_OK && !whole) status = sl_error_set(error, SL_FAILED, "no memory to print");
    if (status == SL_OK) status = write_all(output, error);
    free(output->text.bytes);
    output->text = (struct sl_text){0};
    return status;
}

/* ---- format ---- */

/* Returns PATH's ending if it is the name of a format, without the dot; otherwise NULL. */
static const char *ending_of(const char *path) {
    static const char *const ending[] = {".svg", ".html", ".csv", ".json"};
    const char *dot = strrchr(path, '.');
    for (size_t i = 0; dot && i < sizeof ending / sizeof *ending; i++)
        if (!strcmp(dot, ending[i])) return dot + 1;
    return NULL;
}

int sl_output_format(const struct sl_options *options, struct sl_error *error) {
    const char *const path = sl_option_file(options, "output"), *const ending = path ? ending_of(path) : NULL;
    const bool json = sl_option_given(options, "json");
    if (!json && (!ending || sl_option_given(options, "format"))) return SL_OK;
    for (const struct sl_option_section *section = options->section; section->table; section++) {
        for (const struct sl_option *option = section->table; option->name; option++) {
            if (strcmp(option->name, "format") != 0) continue;
            char given[SL_OPTION_TEXT_SIZE];
            const void *format = (const char *)section->target + option->target;
            if (json && sl_option_given(options, "format") &&
                strcmp(sl_option_print(option, format, given), "json") != 0)
                return sl_error_set(error, SL_BAD_INPUT, "--json and --format %s: choose one of them", given);
            if (sl_option_read(option, json ? "json" : ending, (char *)section->target + option->target) || json)
                return SL_OK;
            return sl_error_set(error, SL_BAD_INPUT,
                                "--output: %s: there is no format %s: --format says which of %s it shall hold", path,
                                ending, option->value);
        }
    }
    return SL_OK;
}
