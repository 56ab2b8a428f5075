/* journal_file.c - reads journals; files may have any bytes. */
#include "layers/records/journal/journal_file.h"

#include <errno.h>
#include <jansson.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "spmd/base/file.h"
#include "spmd/base/hash.h"

/* Limits of numbers in a file: stages, microbatches, bytes of the head. */
enum { MOST_NUMBER = 1 << 20, MOST_HEAD = 1 << 30 };

_Static_assert(sizeof(struct sl_journal_record) == SL_JOURNAL_RECORD, "records lie in files as in memory");

/* ---- records and names ---- */

static uint32_t check_of(const struct sl_journal_record *record) {
    return (uint32_t)sl_hash(record, offsetof(struct sl_journal_record, check));
}

void sl_journal_seal(struct sl_journal_record *record) { record->check = check_of(record); }
bool sl_journal_is_sound(const struct sl_journal_record *record) { return record->check == check_of(record); }

int sl_journal_name(const char *directory, int coordinate, char path[SL_MAX_PATH], struct sl_error *error) {
    if (snprintf(path, SL_MAX_PATH, "%s/coordinate-%02d.journal", directory, coordinate) < SL_MAX_PATH) return SL_OK;
    return sl_error_set(error, SL_BAD_INPUT, "%.100s...: the path is too long", directory);
}

bool sl_journal_is_there(const char *directory) {
    char path[SL_MAX_PATH];
    return !sl_journal_name(directory, 0, path, NULL) && access(path, F_OK) == 0;
}

/* ---- the head ---- */

static int refuse(const struct sl_journal_file *file, const char *what, struct sl_error *error) {
    return sl_error_set(error, SL_BAD_INPUT, "%s: not a journal's file: %s", file->path, what);
}

/* Reads the first line, which the caller frees. */
static int read_line(struct sl_journal_file *file, char **line, size_t *length, struct sl_error *error) {
    size_t room = 0;
    *line = NULL;
    errno = 0;
    const int first = getc(file->stream);
    if (first == EOF && ferror(file->stream))
        return sl_error_set(error, SL_BAD_INPUT, "%s: %s", file->path, strerror(errno));
    if (first != '{') return refuse(file, "it does not begin with {", error);
    ungetc(first, file->stream);
    const ssize_t got = getline(line, &room, file->stream);
    if (got < 0) return sl_error_set(error, SL_FAILED, "%s: cannot be read: %s", file->path, strerror(errno));
    if (got > MOST_HEAD || (*line)[got - 1] != '\n') return refuse(file, "its head is cut off", error);
    *length = (size_t)got;
    return SL_OK;
}

/* Reads an integer from LEAST to MOST under KEY of OBJECT. */
static bool read_number(const json_t *object, const char *key, json_int_t least, json_int_t most, int *number) {
    const json_t *value = json_object_get(object, key);
    const json_int_t found = json_is_integer(value) ? json_integer_value(value) : least - 1;
    *number = (int)found;
    return found >= least && found <= most;
}

static bool read_layout(struct sl_journal_file *file) {
    const json_t *layout = json_object_get(file->head, "layout"), *layers = json_object_get(layout, "layers");
    file->layer_sums = 1; /* older files have none */
    file->mesh = json_string_value(json_object_get(layout, "mesh"));
    file->data_axis = json_string_value(json_object_get(layout, "data_axis"));
    file->stage_axis = json_string_value(json_object_get(layout, "stage_axis"));
    if (!file->mesh || !file->data_axis || !file->stage_axis) return false;
    if (!read_number(file->head, "coordinate", 0, SL_MOST_COORDINATES - 1, &file->coordinate) ||
        !read_number(layout, "stages", 1, MOST_NUMBER, &file->stages) ||
        !read_number(layout, "microbatches", 1, MOST_NUMBER, &file->microbatches) ||
        !read_number(layout, "rows", 1, INT32_MAX, &file->rows) ||
        !read_number(layout, "passes", 1, MOST_NUMBER, &file->passes) ||
        !read_number(layout, "wgrad_group", 1, MOST_NUMBER, &file->wgrad_group) ||
        (json_object_get(layout, "layer_sums") &&
         !read_number(layout, "layer_sums", 1, MOST_NUMBER, &file->layer_sums)))
        return false;
    if (json_array_size(layers) != (size_t)file->stages) return false;
    file->half = calloc((size_t)file->stages, sizeof *file->half);
    for (int s = 0; file->half && s < file->stages; s++) {
        const double halves = 2 * json_number_value(json_array_get(layers, (size_t)s));
        if (!json_is_number(json_array_get(layers, (size_t)s)) || !(fabs(halves) <= INT_MAX) || halves != floor(halves))
            return false;
        file->half[s] = (int)halves;
    }
    return file->half != NULL;
}

static bool read_tensor(const struct sl_journal_file *file, const json_t *object, struct sl_journal_tensor *tensor) {
    const json_t *shape = json_object_get(object, "shape"), *elements = json_object_get(object, "elements");
    tensor->name = json_string_value(json_object_get(object, "name"));
    tensor->dims = (int)json_array_size(shape);
    tensor->counts = json_is_true(json_object_get(object, "counts"));
    if (!tensor->name || !json_is_array(shape) || json_array_size(shape) > SL_MAX_DIMS) return false;
    for (int d = 0; d < tensor->dims; d++) {
        const json_int_t size = json_integer_value(json_array_get(shape, (size_t)d));
        if (size < 0) return false;
        tensor->shape[d] = (size_t)size;
    }
    if (!json_is_integer(elements) || json_integer_value(elements) < 0) return false;
    tensor->elements = (uint64_t)json_integer_value(elements);
    return read_number(object, "stage", 0, file->stages - 1, &tensor->stage);
}

static bool read_tensors(struct sl_journal_file *file) {
    const json_t *tensors = json_object_get(file->head, "tensors");
    if (!json_is_array(tensors) || json_array_size(tensors) > INT32_MAX) return false;
    file->tensors = (int)json_array_size(tensors);
    file->tensor = calloc((size_t)file->tensors + 1, sizeof *file->tensor);
    for (int i = 0; file->tensor && i < file->tensors; i++)
        if (!read_tensor(file, json_array_get(tensors, (size_t)i), &file->tensor[i])) return false;
    return file->tensor != NULL;
}

static int read_head(struct sl_journal_file *file, struct sl_error *error) {
    char *line;
    size_t length = 0;
    int version = 0;
    const int status = read_line(file, &line, &length, error);
    if (status == SL_OK) file->head = json_loadb(line, length, JSON_REJECT_DUPLICATES, NULL);
    free(line);
    SL_TRY(status);
    if (!json_is_object((json_t *)file->head)) return refuse(file, "its first line is no JSON object", error);
    if (!read_number(file->head, "shardloop.journal", 1, INT32_MAX, &version))
        return refuse(file, "its head has no version", error);
    if (version != SL_JOURNAL_VERSION)
        return sl_error_set(error, SL_BAD_INPUT, "%s: a journal of version %d: this program reads version %d",
                            file->path, version, SL_JOURNAL_VERSION);
    if (!read_layout(file)) return refuse(file, "its head has no sound layout", error);
    if (!read_tensors(file)) return refuse(file, "its head has no sound list of tensors", error);
    file->whole = (long long)length;
    return SL_OK;
}

/* ---- records ---- */

static int damaged(const struct sl_journal_file *file, const char *what, struct sl_error *error) {
    return sl_error_set(error, SL_BAD_INPUT, "%s: damaged: %s", file->path, what);
}

static bool is_known(const struct sl_journal_file *file, const struct sl_journal_record *record) {
    const bool tensor = record->kind == SL_JOURNAL_GRADIENT || record->kind == SL_JOURNAL_VALUE;
    const bool rows = record->kind == SL_JOURNAL_ROWS || record->kind == SL_JOURNAL_ROW_GRADIENT;
    if (record->kind < 1 || record->kind >= SL_JOURNAL_KINDS || record->step < -1 || record->item < 0) return false;
    if (record->item >= (tensor ? file->tensors : rows ? file->stages : 1)) return false;
    return record->microbatch >= 0 && (record->microbatch < MOST_NUMBER);
}

/* Reads the next record; an incomplete one at the end is ignored. */
static int look_ahead(struct sl_journal_file *file, struct sl_error *error) {
    const size_t got = fread(&file->next, 1, sizeof file->next, file->stream);
    file->has_next = got == sizeof file->next;
    if (!file->has_next && ferror(file->stream))
        return sl_error_set(error, SL_FAILED, "%s: cannot be read: %s", file->path, strerror(errno));
    if (!file->has_next) return SL_OK;
    if (!sl_journal_is_sound(&file->next)) return damaged(file, "a record's checksum is another one", error);
    return is_known(file, &file->next) ? SL_OK : damaged(file, "a record of nothing that is known", error);
}

int sl_journal_file_open(struct sl_journal_file *file, const char *path, struct sl_error *error) {
    const char *reason;
    *file = (struct sl_journal_file){.step = INT64_MIN};
    if (snprintf(file->path, sizeof file->path, "%s", path) >= SL_MAX_PATH)
        return sl_error_set(error, SL_BAD_INPUT, "%.100s...: the path is too long", path);
    file->stream = sl_file_read(path, SL_FILE_REGULAR, &reason);
    if (!file->stream) return sl_error_set(error, SL_BAD_INPUT, "%s: %s", path, reason);
    SL_TRY(read_head(file, error));
    return look_ahead(file, error);
}

void sl_journal_file_close(struct sl_journal_file *file) {
    if (file->stream) fclose(file->stream);
    json_decref(file->head);
    free(file->half);
    free(file->tensor);
    free(file->record);
    *file = (struct sl_journal_file){0};
}

static int keep(struct sl_journal_file *file, int count, struct sl_error *error) {
    if (count == file->capacity) {
        const int capacity = file->capacity ? 2 * file->capacity : 64;
        struct sl_journal_record *grown = realloc(file->record, (size_t)capacity * sizeof *grown);
        if (!grown || capacity > INT32_MAX / 2)
            return sl_error_set(error, SL_FAILED, "%s: no memory for a step", file->path);
        file->record = grown;
        file->capacity = capacity;
    }
    file->record[count] = file->next;
    return SL_OK;
}

/* Reads the rest of a block of STEP, beginning with file->next, and appends it to *COUNT records. *WHOLE is false if
 * the file ends before the block. */
static int read_block(struct sl_journal_file *file, int64_t step, int *count, bool *whole, struct sl_error *error) {
    long long bytes = 0;
    *whole = false;
    for (int to = *count; file->has_next && !*whole;) {
        if (file->next.step != step) return damaged(file, "a step without an end", error);
        *whole = sl_journal_ends_block(&file->next);
        if (!*whole) SL_TRY(keep(file, to++, error));
        bytes += SL_JOURNAL_RECORD;
        SL_TRY(look_ahead(file, error));
        if (!*whole) continue;
        *count = to;
        file->whole += bytes;
    }
    return SL_OK;
}

/* Removes values among the first COUNT records; *TOTAL is the number of all records. */
static void drop_values(struct sl_journal_file *file, int count, int *total) {
    int kept = 0;
    for (int i = 0; i < *total; i++)
        if (i >= count || file->record[i].kind != SL_JOURNAL_VALUE) file->record[kept++] = file->record[i];
    *total = kept;
}

int sl_journal_next(struct sl_journal_file *file, bool *more, struct sl_error *error) {
    const int64_t step = file->next.step;
    int count = 0;
    bool whole;
    *more = file->has_next;
    if (!*more) return SL_OK;
    if (step <= file->step) return damaged(file, "steps do not ascend", error);
    SL_TRY(read_block(file, step, &count, more, error));
    if (!*more) return SL_OK;
    file->step = step;
    while (file->has_next && file->next.step == step) {
        const int before = count;
        SL_TRY(read_block(file, step, &count, &whole, error));
        if (whole) drop_values(file, before, &count);
    }
    file->count = count;
    return SL_OK;
}
