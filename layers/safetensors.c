/* safetensors.c - writes and reads named tensors. The host is little-endian, as the format is. */
#include "layers/safetensors.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LENGTH = 8, ALIGNMENT = 8, MOST_HEADER = 100000000 }; /* bytes; the format's own limit of a header */

static const char metadata[] = "__metadata__";
static const char *const dtype_name[] = {[SL_F32] = "F32", [SL_BF16] = "BF16", [SL_I32] = "I32"};
enum { DTYPES = sizeof dtype_name / sizeof *dtype_name };

/* ---- the store ---- */

/* Bytes of an array; false where they are more than memory can have. */
static bool array_bytes(enum sl_dtype dtype, int dims, const size_t *shape, size_t *bytes) {
    *bytes = sl_dtype_size(dtype);
    for (int d = 0; d < dims; d++)
        if (__builtin_mul_overflow(*bytes, shape[d], bytes) || *bytes > PTRDIFF_MAX) return false;
    return true;
}

static size_t tensor_bytes(const struct sl_tensor *tensor) {
    return sl_array_elements(&tensor->array) * sl_dtype_size(tensor->array.dtype);
}

struct sl_tensor *sl_store_add(struct sl_store *store, const char *name, enum sl_dtype dtype, int dims,
                               const size_t *shape) {
    size_t bytes;
    if (strlen(name) >= sizeof store->tensor->name || dims > SL_MAX_DIMS || !array_bytes(dtype, dims, shape, &bytes))
        return NULL;
    if (store->count == store->capacity) {
        const int capacity = store->capacity ? 2 * store->capacity : 32;
        struct sl_tensor *grown = realloc(store->tensor, (size_t)capacity * sizeof *grown);
        if (!grown) return NULL;
        store->tensor = grown;
        store->capacity = capacity;
    }
    void *data = calloc(bytes ? bytes : 1, 1);
    if (!data) return NULL;
    struct sl_tensor *tensor = &store->tensor[store->count++];
    *tensor = (struct sl_tensor){.array = {.dtype = dtype, .dims = dims, .data = data}};
    snprintf(tensor->name, sizeof tensor->name, "%s", name);
    for (int d = 0; d < dims; d++) tensor->array.shape[d] = shape[d];
    return tensor;
}

struct sl_tensor *sl_store_find(const struct sl_store *store, const char *name) {
    for (int i = 0; i < store->count; i++)
        if (!strcmp(store->tensor[i].name, name)) return &store->tensor[i];
    return NULL;
}

void sl_store_free(struct sl_store *store) {
    for (int i = 0; i < store->count; i++) free(store->tensor[i].array.data);
    free(store->tensor);
    *store = (struct sl_store){0};
}

/* ---- writing ---- */

static int by_name(const void *a, const void *b) {
    return strcmp((*(const struct sl_tensor *const *)a)->name, (*(const struct sl_tensor *const *)b)->name);
}

static json_t *describe(const struct sl_tensor *tensor, size_t begin) {
    json_t *shape = json_array();
    for (int d = 0; d < tensor->array.dims; d++)
        json_array_append_new(shape, json_integer((json_int_t)tensor->array.shape[d]));
    return json_pack("{s:s, s:o, s:[I, I]}", "dtype", dtype_name[tensor->array.dtype], "shape", shape, "data_offsets",
                     (json_int_t)begin, (json_int_t)(begin + tensor_bytes(tensor)));
}

/* The header of the sorted tensors, padded with spaces so that the data begins aligned; the caller frees it. */
static char *make_header(struct sl_tensor *const *tensor, int count, size_t *length) {
    json_t *object = json_object();
    size_t begin = 0;
    for (int i = 0; i < count; i++) {
        json_object_set_new(object, tensor[i]->name, describe(tensor[i], begin));
        begin += tensor_bytes(tensor[i]);
    }
    char *text = object && json_object_size(object) == (size_t)count ? json_dumps(object, JSON_COMPACT) : NULL;
    json_decref(object);
    if (!text) return NULL;
    const size_t used = strlen(text);
    *length = (used + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    char *padded = malloc(*length);
    if (padded) {
        memset(padded, ' ', *length);
        memcpy(padded, text, used);
    }
    free(text);
    return padded;
}

/* 0, or the number of the error. */
static int write_contents(FILE *file, const char *header, size_t length, struct sl_tensor *const *tensor, int count) {
    unsigned char prefix[LENGTH];
    for (int i = 0; i < LENGTH; i++) prefix[i] = (unsigned char)((uint64_t)length >> 8 * i);
    if (fwrite(prefix, 1, LENGTH, file) != LENGTH || fwrite(header, 1, length, file) != length) return errno;
    for (int i = 0; i < count; i++) {
        const size_t bytes = tensor_bytes(tensor[i]);
        if (fwrite(tensor[i]->array.data, 1, bytes, file) != bytes) return errno;
    }
    return fflush(file) || fsync(fileno(file)) ? errno : 0;
}

/* Writes the directory that PATH is in to DIRECTORY[PATH_MAX]. */
static void directory_of(const char *path, char *directory) {
    snprintf(directory, PATH_MAX, "%s", path);
    char *slash = strrchr(directory, '/');
    if (slash) {
        slash[slash == directory] = '\0'; /* "/" stays */
    } else {
        strcpy(directory, ".");
    }
}

/* Makes the renaming last: an entry of a directory is the directory's data. */
static int sync_directory_of(const char *path) {
    char directory[PATH_MAX];
    directory_of(path, directory);
    const int descriptor = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (descriptor < 0) return errno;
    const int number = fsync(descriptor) ? errno : 0;
    close(descriptor);
    return number;
}

int sl_safetensors_can_write(const char *path, struct sl_error *error) {
    struct stat file;
    char directory[PATH_MAX];
    if (strlen(path) + 32 > PATH_MAX) return sl_error_set(error, SL_BAD_INPUT, "%.100s...: the path is too long", path);
    if (!stat(path, &file) && !S_ISREG(file.st_mode))
        return sl_error_set(error, SL_BAD_INPUT, "%s: not a regular file: only those are replaced", path);
    directory_of(path, directory);
    if (access(directory, W_OK | X_OK))
        return sl_error_set(error, SL_BAD_INPUT, "%s: cannot be written: %s", path, strerror(errno));
    return SL_OK;
}

static int replace_file(const char *path, const char *header, size_t length, struct sl_tensor *const *tensor, int count,
                        struct sl_error *error) {
    char temporary[PATH_MAX], target[PATH_MAX];
    SL_TRY(sl_safetensors_can_write(path, error));
    if (realpath(path, target)) path = target; /* a link stays one */
    if (snprintf(temporary, sizeof temporary, "%s.%ld.tmp", path, (long)getpid()) >= (int)sizeof temporary)
        return sl_error_set(error, SL_BAD_INPUT, "%.100s...: the path is too long", path);
    FILE *file = fopen(temporary, "wbxe");
    if (!file) return sl_error_set(error, SL_FAILED, "%s: cannot be written: %s", temporary, strerror(errno));
    int number = write_contents(file, header, length, tensor, count);
    if (fclose(file) && !number) number = errno;
    if (!number && rename(temporary, path)) number = errno;
    if (number) {
        unlink(temporary);
    } else {
        number = sync_directory_of(path);
    }
    if (number) return sl_error_set(error, SL_FAILED, "%s: cannot be written: %s", path, strerror(number));
    return SL_OK;
}

static int write_sorted(struct sl_tensor *const *tensor, int count, const char *path, struct sl_error *error) {
    for (int i = 0; i < count; i++) {
        const char *name = tensor[i]->name;
        if (!strcmp(name, metadata))
            return sl_error_set(error, SL_BAD_INPUT, "%s: a tensor cannot be called %s", path, name);
        if (i > 0 && !strcmp(name, tensor[i - 1]->name))
            return sl_error_set(error, SL_BAD_INPUT, "%s: two tensors are called \"%s\"", path, name);
    }
    size_t length;
    char *header = make_header(tensor, count, &length);
    if (!header) return sl_error_set(error, SL_FAILED, "%s: no memory for the header, or a name is not UTF-8", path);
    const int status = replace_file(path, header, length, tensor, count, error);
    free(header);
    return status;
}

int sl_safetensors_write(const struct sl_store *store, const char *path, struct sl_error *error) {
    struct sl_tensor **sorted = calloc((size_t)store->count + 1, sizeof *sorted);
    if (!sorted) return sl_error_set(error, SL_FAILED, "%s: no memory to sort %d tensors", path, store->count);
    for (int i = 0; i < store->count; i++) sorted[i] = &store->tensor[i];
    qsort(sorted, (size_t)store->count, sizeof *sorted, by_name);
    const int status = write_sorted(sorted, store->count, path, error);
    free(sorted);
    return status;
}

/* ---- reading ---- */

/* A tensor as the header has it. */
struct entry {
    const char *name; /* the header's */
    enum sl_dtype dtype;
    int dims;
    size_t shape[SL_MAX_DIMS];
    size_t begin, end; /* bytes into the data */
};

/* A file being read. */
struct source {
    const char *path;
    FILE *file;
    size_t data; /* bytes after the header */
    json_t *header;
    int count;
    struct entry *entry;
    struct sl_error *error;
};

static int no_memory(const struct source *source) {
    return sl_error_set(source->error, SL_FAILED, "%s: no memory to read it", source->path);
}

static int read_bytes(const struct source *source, void *data, size_t bytes) {
    if (fread(data, 1, bytes, source->file) == bytes) return SL_OK;
    if (ferror(source->file))
        return sl_error_set(source->error, SL_FAILED, "%s: cannot be read: %s", source->path, strerror(errno));
    return sl_error_set(source->error, SL_BAD_INPUT, "%s: the file ended while it was read", source->path);
}

static int read_header(struct source *source) {
    struct stat file;
    if (fstat(fileno(source->file), &file) || !S_ISREG(file.st_mode))
        return sl_error_set(source->error, SL_BAD_INPUT, "%s: not a regular file", source->path);
    if (file.st_size < LENGTH)
        return sl_error_set(source->error, SL_BAD_INPUT, "%s: too short: %jd bytes, and the header's length takes %d",
                            source->path, (intmax_t)file.st_size, LENGTH);
    unsigned char prefix[LENGTH];
    SL_TRY(read_bytes(source, prefix, LENGTH));
    uint64_t length = 0;
    for (int i = 0; i < LENGTH; i++) length |= (uint64_t)prefix[i] << 8 * i;
    const uint64_t rest = (uint64_t)file.st_size - LENGTH, most = rest < MOST_HEADER ? rest : MOST_HEADER;
    if (length > most)
        return sl_error_set(source->error, SL_BAD_INPUT,
                            "%s: the header should have %ju bytes, at most %ju are possible: not a safetensors file, "
                            "or truncated",
                            source->path, (uintmax_t)length, (uintmax_t)most);
    source->data = (size_t)(rest - length);

    char *text = malloc((size_t)length + 1);
    if (!text) return no_memory(source);
    int status = read_bytes(source, text, (size_t)length);
    if (status == SL_OK) {
        json_error_t reason = {.text = "it does not begin with '{'"};
        if (length > 0 && text[0] == '{')
            source->header = json_loadb(text, (size_t)length, JSON_REJECT_DUPLICATES, &reason);
        if (!source->header)
            status = sl_error_set(source->error, SL_BAD_INPUT, "%s: the header is not a JSON object: %s", source->path,
                                  reason.text);
    }
    free(text);
    return status;
}

/* Size number I of a JSON array; false where it is none. */
static bool size_at(const json_t *array, size_t i, size_t *size) {
    const json_t *value = json_array_get(array, i);
    if (!json_is_integer(value) || json_integer_value(value) < 0) return false;
    *size = (size_t)json_integer_value(value);
    return true;
}

static int parse_dtype(const struct source *source, const json_t *value, struct entry *entry) {
    const char *name = json_string_value(json_object_get(value, "dtype"));
    for (int i = 0; name && i < DTYPES; i++) {
        if (strcmp(name, dtype_name[i])) continue;
        entry->dtype = (enum sl_dtype)i;
        return SL_OK;
    }
    return sl_error_set(source->error, SL_BAD_INPUT, "%s: tensor %s: dtype %s: only F32, BF16 and I32 can be read",
                        source->path, entry->name, name ? name : "is missing");
}

static int parse_shape(const struct source *source, const json_t *value, struct entry *entry) {
    const json_t *shape = json_object_get(value, "shape");
    bool valid = json_is_array(shape) && json_array_size(shape) <= SL_MAX_DIMS;
    for (size_t d = 0; valid && d < json_array_size(shape); d++) valid = size_at(shape, d, &entry->shape[d]);
    if (!valid)
        return sl_error_set(source->error, SL_BAD_INPUT, "%s: tensor %s: shape is not a list of at most %d sizes",
                            source->path, entry->name, SL_MAX_DIMS);
    entry->dims = (int)json_array_size(shape);
    return SL_OK;
}

static int parse_entry(const struct source *source, const char *name, const json_t *value, struct entry *entry) {
    entry->name = name;
    const size_t longest = sizeof((struct sl_tensor){0}).name - 1;
    if (strlen(name) > longest)
        return sl_error_set(source->error, SL_BAD_INPUT, "%s: tensor %.100s: the name is longer than %zu bytes",
                            source->path, name, longest);
    SL_TRY(parse_dtype(source, value, entry));
    SL_TRY(parse_shape(source, value, entry));
    const json_t *offsets = json_object_get(value, "data_offsets");
    if (json_array_size(offsets) != 2 || !size_at(offsets, 0, &entry->begin) || !size_at(offsets, 1, &entry->end) ||
        entry->begin > entry->end)
        return sl_error_set(source->error, SL_BAD_INPUT, "%s: tensor %s: data_offsets are not [begin, end]",
                            source->path, name);
    if (entry->end > source->data)
        return sl_error_set(source->error, SL_BAD_INPUT,
                            "%s: tensor %s ends at byte %zu of the data, of which the file has %zu: truncated",
                            source->path, name, entry->end, source->data);
    size_t bytes;
    if (!array_bytes(entry->dtype, entry->dims, entry->shape, &bytes) || bytes != entry->end - entry->begin)
        return sl_error_set(source->error, SL_BAD_INPUT,
                            "%s: tensor %s has %zu bytes, which is not what its shape takes", source->path, name,
                            entry->end - entry->begin);
    return SL_OK;
}

static int check_metadata(const struct source *source, json_t *value) {
    const char *key;
    json_t *text;
    bool valid = json_is_object(value);
    json_object_foreach(value, key, text) valid = valid && json_is_string(text);
    if (valid) return SL_OK;
    return sl_error_set(source->error, SL_BAD_INPUT, "%s: %s is not an object of strings", source->path, metadata);
}

static int parse_entries(struct source *source) {
    source->entry = calloc(json_object_size(source->header) + 1, sizeof *source->entry);
    if (!source->entry) return no_memory(source);
    const char *name;
    json_t *value;
    json_object_foreach(source->header, name, value) {
        if (!strcmp(name, metadata)) {
            SL_TRY(check_metadata(source, value));
        } else {
            SL_TRY(parse_entry(source, name, value, &source->entry[source->count++]));
        }
    }
    return SL_OK;
}

static int by_place(const void *a, const void *b) {
    const struct entry *x = a, *y = b;
    if (x->begin != y->begin) return x->begin < y->begin ? -1 : 1;
    return (x->end > y->end) - (x->end < y->end);
}

/* Sorts the entries by their place in the data, which they must fill without holes. */
static int check_places(struct source *source) {
    qsort(source->entry, (size_t)source->count, sizeof *source->entry, by_place);
    size_t place = 0;
    for (int i = 0; i < source->count; i++) {
        const struct entry *entry = &source->entry[i];
        if (entry->begin < place)
            return sl_error_set(source->error, SL_BAD_INPUT, "%s: tensors %s and %s overlap", source->path,
                                source->entry[i - 1].name, entry->name);
        if (entry->begin > place)
            return sl_error_set(source->error, SL_BAD_INPUT, "%s: bytes %zu to %zu of the data belong to no tensor",
                                source->path, place, entry->begin);
        place = entry->end;
    }
    if (place == source->data) return SL_OK;
    return sl_error_set(source->error, SL_BAD_INPUT, "%s: bytes %zu to %zu of the data belong to no tensor",
                        source->path, place, source->data);
}

static int read_tensors(const struct source *source, struct sl_store *store) {
    for (int i = 0; i < source->count; i++) {
        const struct entry *entry = &source->entry[i];
        struct sl_tensor *tensor = sl_store_add(store, entry->name, entry->dtype, entry->dims, entry->shape);
        if (!tensor) return no_memory(source);
        SL_TRY(read_bytes(source, tensor->array.data, entry->end - entry->begin));
    }
    return SL_OK;
}

static int read_source(struct source *source, struct sl_store *store) {
    SL_TRY(read_header(source));
    SL_TRY(parse_entries(source));
    SL_TRY(check_places(source));
    return read_tensors(source, store);
}

int sl_safetensors_read(struct sl_store *store, const char *path, struct sl_error *error) {
    struct source source = {.path = path, .file = fopen(path, "rbe"), .error = error};
    if (!source.file) return sl_error_set(error, SL_BAD_INPUT, "%s: cannot be opened: %s", path, strerror(errno));
    struct sl_store read = {0};
    const int status = read_source(&source, &read);
    json_decref(source.header);
    free(source.entry);
    fclose(source.file);
    sl_store_free(status == SL_OK ? store : &read);
    if (status == SL_OK) *store = read;
    return status;
}
