/* metrics.c - results as JSON lines and as tables; JSON files that are read. */
#include "drivers/common/metrics.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "drivers/common/output.h"
#include "spmd/base/file.h"

json_t *sl_json_real(double value) { return isfinite(value) ? json_real(value) : json_null(); }

/* Says that NAME could not be written. */
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

/* Where the lines of FILE end that a run keeps when it goes on after FROM steps; -1: they cannot all be read. */
static off_t find_end(FILE *file, int64_t from) {
    char *line = NULL;
    size_t room = 0;
    off_t end = 0, next = 0;
    bool over = false;
    for (ssize_t length; !over && (length = getline(&line, &room, file)) > 0;) {
        json_t *object = json_loadb(line, (size_t)length, 0, NULL);
        const json_t *step = json_object_get(object, "step");
        over = line[length - 1] != '\n' || (json_is_integer(step) && json_integer_value(step) >= from);
        next += length;
        /* Behind a summary there may be more, where a run has gone on before. */
        if (!over && !json_object_get(object, "final_loss")) end = next;
        json_decref(object);
    }
    free(line);
    return over || feof(file) ? end : -1;
}

/* Cuts PATH, which STREAM has open to append to it; nothing where it is no regular file. */
static int cut(FILE *stream, const char *path, int64_t from, struct sl_error *error) {
    const char *reason;
    FILE *file = sl_file_read(path, SL_FILE_REGULAR, &reason);
    if (!file) return SL_OK;
    const off_t end = find_end(file, from);
    fclose(file);
    return end < 0 || ftruncate(fileno(stream), end) ? refuse(path, error) : SL_OK;
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
