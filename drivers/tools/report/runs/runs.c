/* runs.c - finds the runs of a command line's arguments. */
#include "drivers/tools/report/runs/runs.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "spmd/base/file.h"

const char *report_path_of(const char *word) {
    struct stat file;
    const char *equals = strchr(word, '='), *slash = strchr(word, '/');
    if (!equals || equals == word || (slash && slash < equals) || !stat(word, &file)) return word;
    return equals + 1;
}

/* ---- names ---- */

/* Returns the length of the UTF-8 character at TEXT; 0: invalid. */
static size_t character_at(const unsigned char *text) {
    const size_t length = *text < 0x80   ? 1
                          : *text < 0xc2 ? 0
                          : *text < 0xe0 ? 2
                          : *text < 0xf0 ? 3
                          : *text < 0xf5 ? 4
                                         : 0;
    for (size_t i = 1; i < length; i++)
        if ((text[i] & 0xc0) != 0x80) return 0;
    const bool is_long = (*text == 0xe0 && text[1] < 0xa0) || (*text == 0xf0 && text[1] < 0x90);
    const bool is_none = (*text == 0xed && text[1] > 0x9f) || (*text == 0xf4 && text[1] > 0x8f);
    return is_long || is_none ? 0 : length;
}

/* Returns a copy of TEXT as printable UTF-8: names of files may have any bytes. NULL without memory. */
static char *printable(const char *text, size_t length) {
    char *copy = malloc(length + 1), *to = copy;
    for (const char *from = text; copy && from < text + length;) {
        const size_t bytes = character_at((const unsigned char *)from);
        if (bytes == 0 || bytes > (size_t)(text + length - from) || (unsigned char)*from < ' ' || *from == 0x7f) {
            *to++ = '?';
            from++;
            continue;
        }
        memcpy(to, from, bytes);
        to += bytes;
        from += bytes;
    }
    if (copy) *to = 0;
    return copy;
}

/* Returns the last part of PATH, up to the first dot in it. */
static char *name_from(const char *path) {
    size_t end = strlen(path);
    while (end > 1 && path[end - 1] == '/') end--;
    size_t begin = end;
    while (begin > 0 && path[begin - 1] != '/') begin--;
    const char *dot = memrchr(path + begin, '.', end - begin);
    return printable(path + begin, dot && dot > path + begin ? (size_t)(dot - path) - begin : end - begin);
}

static struct report_run *find(struct report_runs *runs, const char *name) {
    for (int i = 0; i < runs->count; i++)
        if (!strcmp(runs->run[i].name, name)) return &runs->run[i];
    return NULL;
}

/* ---- files ---- */

static int no_memory(struct sl_error *error) { return sl_error_set(error, SL_FAILED, "no memory for the runs"); }

/* Whether PATH begins like a trace, which is one JSON value. Does not read from a pipe, since the bytes would be
 * lost. */
static bool is_trace(const char *path) {
    const char *reason;
    char head[512];
    struct stat about;
    if (stat(path, &about) || !S_ISREG(about.st_mode)) return false;
    FILE *file = sl_file_read(path, SL_FILE_REGULAR, &reason);
    if (!file) return false;
    const size_t size = fread(head, 1, sizeof head - 1, file);
    fclose(file);
    head[size] = 0;
    return head[strspn(head, " \t\r\n")] == '[' || strstr(head, "\"traceEvents\"");
}

static int set_path(char **to, char *path, const char *what, const struct report_run *run, struct sl_error *error) {
    if (!path) return no_memory(error);
    if (*to) {
        free(path);
        return sl_error_set(error, SL_BAD_INPUT, "the run %.200s: has two %s, %.150s is one of them", run->name, what,
                            *to);
    }
    *to = path;
    return SL_OK;
}

/* Returns the first of DIRECTORY's files, by name, with a name that begins with PREFIX; NULL: none, or no memory. */
static char *find_file(const char *directory, const char *prefix) {
    char *path = NULL;
    struct dirent **entry;
    const int count = scandir(directory, &entry, NULL, alphasort);
    for (int i = 0; i < count; i++) {
        if (!path && !strncmp(entry[i]->d_name, prefix, strlen(prefix)) &&
            asprintf(&path, "%s/%s", directory, entry[i]->d_name) < 0)
            path = NULL;
        free(entry[i]);
    }
    if (count >= 0) free(entry);
    return path;
}

static int take_directory(struct report_run *run, const char *path, struct sl_error *error) {
    char *metrics = find_file(path, "metrics"), *trace = find_file(path, "trace");
    if (!metrics && !trace)
        return sl_error_set(error, SL_BAD_INPUT, "%.300s: a directory without a file that is called metrics or trace",
                            path);
    int status = metrics ? set_path(&run->metrics, metrics, "files of metrics", run, error) : SL_OK;
    if (status == SL_OK && trace)
        status = set_path(&run->trace, trace, "traces", run, error);
    else
        free(trace);
    return status;
}

/* ---- arguments ---- */

static int append(struct report_runs *runs, char *name, struct report_run **run, struct sl_error *error) {
    if (!name) return no_memory(error);
    if (runs->count == REPORT_MOST_RUNS) {
        free(name);
        return sl_error_set(error, SL_BAD_INPUT, "at most %d runs are shown together", REPORT_MOST_RUNS);
    }
    *run = &runs->run[runs->count++];
    **run = (struct report_run){.name = name};
    return SL_OK;
}

/* Chooses the run of the file PATH in the argument WORD: the run with its name; for a trace without a name the last
 * run; otherwise a new one. */
static int choose(struct report_runs *runs, const char *word, const char *path, bool trace, struct report_run **run,
                  struct sl_error *error) {
    struct report_run *last = runs->count ? &runs->run[runs->count - 1] : NULL;
    const bool named = path > word;
    char *name = named ? printable(word, (size_t)(path - word) - 1) : name_from(path);
    if (!name) return no_memory(error);
    *run = named ? find(runs, name) : trace && last && !last->trace ? last : NULL;
    if (*run) {
        free(name);
        return SL_OK;
    }
    if (!named && find(runs, name)) { /* two runs have the same name: use their paths */
        free(name);
        name = printable(path, strlen(path));
    }
    return append(runs, name, run, error);
}

static int take_word(struct report_runs *runs, const char *word, struct sl_error *error) {
    const char *path = report_path_of(word);
    struct report_run *run;
    struct stat about;
    if (stat(path, &about)) /* opening it reports the error */
        memset(&about, 0, sizeof about);
    const bool trace = is_trace(path);
    SL_TRY(choose(runs, word, path, trace, &run, error));
    if (S_ISDIR(about.st_mode)) return take_directory(run, path, error);
    return set_path(trace ? &run->trace : &run->metrics, strdup(path), trace ? "traces" : "files of metrics", run,
                    error);
}

int report_runs_open(struct report_runs *runs, const char *const *word, int count, struct sl_error *error) {
    for (int i = 0; i < count; i++) SL_TRY(take_word(runs, word[i], error));
    for (int i = 0; i < runs->count; i++)
        if (runs->run[i].metrics) SL_TRY(report_run_read(&runs->run[i], error));
    return SL_OK;
}

void report_runs_free(struct report_runs *runs) {
    for (int i = 0; i < runs->count; i++) report_run_free(&runs->run[i]);
    runs->count = 0;
}
