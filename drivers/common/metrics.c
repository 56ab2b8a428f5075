/* metrics.c - writes results as JSON lines and as tables; reads JSON files. */
#include "drivers/common/metrics.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "drivers/common/output.h"
#include "spmd/base/file.h"
#include "spmd/ranges.h"

json_t *sl_json_real(double value) { return isfinite(value) ? json_real(value) : json_null(); }

/* Sets the error that NAME could not be written. */
static int refuse(const char *name, struct sl_error *error) {
    return sl_error_set(error, SL_FAILED, "%s: %s", name, errno ? strerror(errno) : "could not be written");
}

int sl_json_print(FILE *stream, const char *name, json_t *object, struct sl_error *error) {
    if (!object) return sl_error_set(error, SL_FAILED, "%s: out of memory", name);
    errno = 0;
    const int failed = json_dumpf(object, stream, JSON_COMPACT | JSON_REAL_PRECISION(9)) ||
                       fputc('\n', stream) == EOF || fflush(stream);
    const int reason = errno;
    json_decref(object);
    errno = reason;
    return failed ? refuse(name, error) : SL_OK;
}

/* Whether OBJECT is about a whole run: its summary, or what a watcher says of its restarts. */
static bool is_end(const json_t *object) {
    return json_object_get(object, "final_loss") || json_object_get(object, "goodput");
}

/* Whether LINE, which holds OBJECT, is from a training run; if not WHOLE, it was cut short. */
static bool is_of_run(const char *line, const json_t *object, bool whole) {
    if (!whole) return *line == '{';
    return json_is_integer(json_object_get(object, "step")) || json_object_get(object, "epoch") || is_end(object);
}

/* Sets END to the end of FILE's lines that stay when the run resumes after FROM steps. Returns SL_BAD_INPUT if a
 * line is not from a training run, so other files are not cut. */
static int find_end(FILE *file, const char *path, int64_t from, off_t *end, struct sl_error *error) {
    char *line = NULL;
    size_t room = 0;
    off_t next = 0;
    bool over = false;
    int status = SL_OK;
    *end = 0;
    for (ssize_t length, n = 1; !status && !over && (length = getline(&line, &room, file)) > 0; n++) {
        const bool whole = line[length - 1] == '\n';
        json_t *object = json_loadb(line, (size_t)length, 0, NULL);
        const json_t *step = json_object_get(object, "step");
        if (!is_of_run(line, object, whole))
            status = sl_error_set(error, SL_BAD_INPUT,
                                  "--metrics %.300s: line %zd is none of a training's, so --resume does not go on with "
                                  "this file: give another one",
                                  path, n);
        over = !whole || (json_is_integer(step) && json_integer_value(step) >= from);
        next += length;
        /* More lines may follow a summary if the run was resumed before. */
        if (!over && !is_end(object)) *end = next;
        json_decref(object);
    }
    free(line);
    return status || over || feof(file) ? status : refuse(path, error);
}

/* Cuts PATH, which STREAM has open for appending; does nothing if it is not a regular file. */
static int cut(FILE *stream, const char *path, int64_t from, struct sl_error *error) {
    const char *reason;
    FILE *file = sl_file_read(path, SL_FILE_REGULAR, &reason);
    off_t end;
    if (!file) return SL_OK;
    const int status = find_end(file, path, from, &end, error);
    fclose(file);
    SL_TRY(status);
    return ftruncate(fileno(stream), end) ? refuse(path, error) : SL_OK;
}

/* A terminal or a pipe is not tried: it would show the empty line. */
int sl_metrics_check(const char *path, struct sl_error *error) {
    struct stat about;
    if (!path || stat(path, &about) || !(S_ISREG(about.st_mode) || S_ISCHR(about.st_mode))) return SL_OK;
    const int file = open(path, O_WRONLY | O_NOCTTY | O_NONBLOCK | O_CLOEXEC);
    const bool device = S_ISCHR(about.st_mode) && !isatty(file);
    const bool full = file >= 0 && (device ? write(file, "\n", 1) < 0
                                           : fallocate(file, FALLOC_FL_KEEP_SIZE, about.st_size, 1) && errno == ENOSPC);
    const int status = full ? refuse(path, error) : SL_OK;
    if (file >= 0) close(file);
    return status;
}

int sl_metrics_open(struct sl_metrics_file *file, const char *path, int64_t from, struct sl_error *error) {
    *file = (struct sl_metrics_file){.path = path};
    if (!path) return SL_OK;
    SL_TRY(sl_output_file("--metrics", path, from >= 0, &file->stream, error));
    return from >= 0 ? cut(file->stream, path, from, error) : SL_OK;
}

int sl_metrics_write(struct sl_metrics_file *file, json_t *object, struct sl_error *error) {
    if (file->stream) return sl_json_print(file->stream, file->path, object, error);
    json_decref(object);
    return SL_OK;
}

int sl_metrics_close(struct sl_metrics_file *file, struct sl_error *error) {
    if (!file->stream) return SL_OK;
    errno = 0;
    const int failed = fclose(file->stream);
    file->stream = NULL;
    return failed ? refuse(file->path, error) : SL_OK;
}

void sl_table_begin(struct sl_table *table, FILE *stream, int columns, const struct sl_column *column) {
    *table = (struct sl_table){.stream = stream, .columns = columns, .column = column};
    for (int i = 0; i < columns; i++) sl_table_cell(table, "%s", column[i].title);
}

void sl_table_cell(struct sl_table *table, const char *format, ...) {
    char text[80];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    const int width = table->column[table->next].width;
    const bool ends_line = table->next == table->columns - 1;
    fprintf(table->stream, "%s%*s", table->next ? "  " : "", ends_line && width < 0 ? 0 : width, text);
    table->next = (table->next + 1) % table->columns;
    if (ends_line) fputc('\n', table->stream);
}

json_t *sl_json_read(const char *what, const char *path, size_t flags, struct sl_error *error) {
    const char *reason;
    FILE *file = sl_file_read(path, SL_FILE_REGULAR | SL_FILE_PIPE, &reason);
    if (!file) {
        sl_error_set(error, SL_BAD_INPUT, "%s%s: %s", what, path, reason);
        return NULL;
    }
    json_error_t wrong;
    json_t *json = json_loadf(file, flags, &wrong);
    fclose(file);
    if (!json) sl_error_set(error, SL_BAD_INPUT, "%s%s:%d:%d: %s", what, path, wrong.line, wrong.column, wrong.text);
    return json;
}

bool sl_row_of(const struct sl_mesh *mesh, int c, bool (*alike)(const void *arg, int a, int b), const void *arg,
               uint64_t *told, char *name, size_t size) {
    uint64_t row[sl_set_words(mesh->size)];
    char ranges[100];
    int count = 0;
    if (mesh->size <= SL_TABLE_ROWS) return sl_mesh_describe(mesh, c, name, size) != NULL;
    if (sl_set_has(told, c)) return false;
    memset(row, 0, sizeof row);
    for (int other = c; other < mesh->size; other++)
        if (!sl_set_has(told, other) && alike(arg, c, other)) count += sl_set_adds(row, other);
    for (int other = c; other < mesh->size; other++)
        if (sl_set_has(row, other)) sl_set_adds(told, other);
    if (count == 1)
        sl_mesh_describe(mesh, c, name, size);
    else
        snprintf(name, size, "%d: %s", count, sl_mesh_describe_set(mesh, row, ranges, sizeof ranges));
    return true;
}
