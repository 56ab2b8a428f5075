/* safetensors.c - writes, reads and maps named tensors. The host is little-endian, as the format is. */
#include "layers/storage/safetensors.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "layers/storage/draft.h"
#include "spmd/base/file.h"

/* Bytes; the format's own limit of a header. Parts of a file that are synced at once: whole pages. */
enum { LENGTH = 8, ALIGNMENT = 8, MOST_HEADER = 100000000, SYNCED = 32 << 20 };

static const char metadata[] = "__metadata__";

/* ---- the header ---- */

static int by_name(const void *a, const void *b) {
    return strcmp(((const struct sl_tensor *)a)->name, ((const struct sl_tensor *)b)->name);
}

static json_t *describe(const struct sl_tensor *tensor, size_t begin) {
    json_t *shape = json_array();
    for (int d = 0; d < tensor->array.dims; d++)
        json_array_append_new(shape, json_integer((json_int_t)tensor->array.shape[d]));
    return json_pack("{s:s, s:o, s:[I, I]}", "dtype", sl_dtypes[tensor->array.dtype].label, "shape", shape,
                     "data_offsets", (json_int_t)begin, (json_int_t)(begin + sl_tensor_bytes(tensor)));
}

/* NULL where a text is not UTF-8. */
static json_t *describe_notes(const struct sl_store *store) {
    json_t *object = json_object();
    bool valid = true;
    for (int i = 0; i < store->notes; i++)
        valid = !json_object_set_new(object, store->note[i].key, json_string(store->note[i].text)) && valid;
    if (valid) return object;
    json_decref(object);
    return NULL;
}

/* The file up to the data: the length, and the header of the notes and the sorted TENSORS, padded with spaces so that
 * the data begins aligned. The caller frees it. NULL without memory, or where a text is not UTF-8. */
static char *make_header(const struct sl_store *store, const struct sl_tensor *tensor, size_t *length) {
    json_t *object = json_object();
    size_t begin = 0;
    if (store->notes) json_object_set_new(object, metadata, describe_notes(store));
    for (int i = 0; i < store->count; i++) {
        json_object_set_new(object, tensor[i].name, describe(&tensor[i], begin));
        begin += sl_tensor_bytes(&tensor[i]);
    }
    const size_t entries = (size_t)store->count + (store->notes > 0);
    char *text = json_object_size(object) == entries ? json_dumps(object, JSON_COMPACT) : NULL;
    json_decref(object);
    if (!text) return NULL;
    const size_t used = strlen(text), padded = (used + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    char *header = malloc(LENGTH + padded);
    if (header) {
        for (int i = 0; i < LENGTH; i++) header[i] = (char)((uint64_t)padded >> 8 * i);
        memset(header + LENGTH, ' ', padded);
        memcpy(header + LENGTH, text, used);
        *length = LENGTH + padded;
    }
    free(text);
    return header;
}

/* Makes the header of the sorted TENSORS; NULL with the error set. */
static char *check_and_describe(const struct sl_store *store, const struct sl_tensor *tensor, const char *path,
                                size_t *length, struct sl_error *error) {
    for (int i = 0; i < store->count; i++) {
        const char *name = tensor[i].name;
        const bool again = i > 0 && !strcmp(name, tensor[i - 1].name);
        if (strcmp(name, metadata) != 0 && !again) continue;
        sl_error_set(error, SL_BAD_INPUT,
                     again ? "%s: two tensors are called \"%s\"" : "%s: a tensor cannot be called %s", path, name);
        return NULL;
    }
    char *header = make_header(store, tensor, length);
    if (!header) sl_error_set(error, SL_FAILED, "%s: no memory for the header, or a name is not UTF-8", path);
    return header;
}

/* ---- writing at once ---- */

int sl_safetensors_can_write(const char *path, struct sl_error *error) { return sl_draft_check(path, error); }

/* Returns 0, or the number of the error. */
static int put(int descriptor, const char *data, size_t bytes) {
    while (bytes > 0) {
        const ssize_t written = write(descriptor, data, bytes);
        if (written < 0 && errno == EINTR) continue;
        if (written < 0) return errno;
        data += written;
        bytes -= (size_t)written;
    }
    return 0;
}

static int write_sorted(const struct sl_store *store, const struct sl_tensor *tensor, const char *path,
                        struct sl_error *error) {
    struct sl_draft draft;
    size_t length;
    char *header = check_and_describe(store, tensor, path, &length, error);
    if (!header) return error->status;
    int status = sl_draft_open(&draft, path, error);
    if (status == SL_OK) {
        int number = put(draft.descriptor, header, length);
        for (int i = 0; i < store->count && !number; i++)
            number = put(draft.descriptor, tensor[i].array.data, sl_tensor_bytes(&tensor[i]));
        status = sl_draft_finish(&draft, number, error);
    }
    free(header);
    return status;
}

int sl_safetensors_write(const struct sl_store *store, const char *path, struct sl_error *error) {
    struct sl_tensor *sorted = malloc(((size_t)store->count + 1) * sizeof *sorted);
    struct sl_error own;
    if (!error) error = &own;
    if (!sorted) return sl_error_set(error, SL_FAILED, "%s: no memory to sort %d tensors", path, store->count);
    if (store->count) memcpy(sorted, store->tensor, (size_t)store->count * sizeof *sorted);
    qsort(sorted, (size_t)store->count, sizeof *sorted, by_name);
    const int status = write_sorted(store, sorted, path, error);
    free(sorted);
    return status;
}

/* ---- writing in place ---- */

/* Gives the draft its length, of which the disk has all, and maps it. Returns 0, or the number of the error. */
static int reserve(struct sl_store *store, size_t bytes) {
    int number;
    do number = posix_fallocate(store->draft->descriptor, 0, (off_t)bytes);
    while (number == EINTR);
    if (number) return number;
    void *mapping = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, store->draft->descriptor, 0);
    if (mapping == MAP_FAILED) return errno;
    store->mapping = mapping;
    store->mapped = bytes;
    return 0;
}

static int lay_out(struct sl_store *store, const char *header, size_t length, struct sl_error *error) {
    size_t bytes = length;
    for (int i = 0; i < store->count; i++) bytes += sl_tensor_bytes(&store->tensor[i]);
    const int number = reserve(store, bytes);
    if (number) return sl_draft_finish(store->draft, number, error);
    memcpy(store->mapping, header, length);
    char *place = store->mapping + length;
    for (int i = 0; i < store->count; i++) {
        store->tensor[i].array.data = place;
        place += sl_tensor_bytes(&store->tensor[i]);
    }
    return SL_OK;
}

int sl_safetensors_create(struct sl_store *store, const char *path, struct sl_error *error) {
    size_t length;
    struct sl_error own;
    if (!error) error = &own;
    qsort(store->tensor, (size_t)store->count, sizeof *store->tensor, by_name);
    char *header = check_and_describe(store, store->tensor, path, &length, error);
    if (!header) return error->status;
    store->draft = malloc(sizeof *store->draft);
    int status = store->draft ? sl_draft_open(store->draft, path, error)
                              : sl_error_set(error, SL_FAILED, "%s: no memory to write it", path);
    if (status == SL_OK) status = lay_out(store, header, length, error);
    free(header);
    return status;
}

int sl_safetensors_commit(struct sl_store *store, int (*between)(void *arg), void *arg, struct sl_error *error) {
    int number = 0, status = SL_OK;
    for (size_t at = 0; at < store->mapped && !number && status == SL_OK; at += SYNCED) {
        const size_t left = store->mapped - at;
        if (msync(store->mapping + at, left < SYNCED ? left : SYNCED, MS_SYNC)) number = errno;
        if (between) status = between(arg);
    }
    if (status == SL_OK) status = sl_draft_finish(store->draft, number, error);
    sl_store_free(store);
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
    size_t start, data; /* bytes up to and with the header, and after it */
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
    source->start = LENGTH + (size_t)length;
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
    char known[100] = "";
    for (int i = 0; i < sl_dtype_count; i++) {
        entry->dtype = (enum sl_dtype)i;
        if (name && !strcmp(name, sl_dtypes[i].label)) return SL_OK;
        const size_t used = strlen(known);
        const char *separator = i == 0 ? "" : i + 1 < sl_dtype_count ? ", " : " and ";
        snprintf(known + used, sizeof known - used, "%s%s", separator, sl_dtypes[i].label);
    }
    return sl_error_set(source->error, SL_BAD_INPUT, "%s: tensor %s: dtype %s: only %s can be read", source->path,
                        entry->name, name ? name : "is missing", known);
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
    if (!sl_array_bytes(entry->dtype, entry->dims, entry->shape, &bytes) || bytes != entry->end - entry->begin)
        return sl_error_set(source->error, SL_BAD_INPUT,
                            "%s: tensor %s has %zu bytes, which is not what its shape takes", source->path, name,
                            entry->end - entry->begin);
    return SL_OK;
}

static int read_notes(const struct source *source, json_t *value, struct sl_store *store) {
    const char *key;
    json_t *text;
    bool valid = json_is_object(value);
    json_object_foreach(value, key, text) valid = valid && json_is_string(text);
    if (!valid)
        return sl_error_set(source->error, SL_BAD_INPUT, "%s: %s is not an object of strings", source->path, metadata);
    json_object_foreach(value, key, text) {
        if (sl_store_set_note(store, key, json_string_value(text))) return no_memory(source);
    }
    return SL_OK;
}

static int parse_entries(struct source *source, struct sl_store *store) {
    source->entry = calloc(json_object_size(source->header) + 1, sizeof *source->entry);
    if (!source->entry) return no_memory(source);
    const char *name;
    json_t *value;
    json_object_foreach(source->header, name, value) {
        if (!strcmp(name, metadata)) {
            SL_TRY(read_notes(source, value, store));
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

/* Other writers' headers may leave the data anywhere: what does not lie as its elements should is copied. */
static int map_tensors(const struct source *source, struct sl_store *store) {
    const size_t bytes = source->start + source->data;
    void *mapping = mmap(NULL, bytes, PROT_READ, MAP_PRIVATE, fileno(source->file), 0);
    if (mapping == MAP_FAILED)
        return sl_error_set(source->error, SL_FAILED, "%s: cannot be mapped: %s", source->path, strerror(errno));
    store->mapping = mapping;
    store->mapped = bytes;
    for (int i = 0; i < source->count; i++) {
        const struct entry *entry = &source->entry[i];
        char *data = store->mapping + source->start + entry->begin;
        const bool aligned = (uintptr_t)data % sl_dtype_size(entry->dtype) == 0;
        struct sl_tensor *tensor =
            (aligned ? sl_store_declare : sl_store_add)(store, entry->name, entry->dtype, entry->dims, entry->shape);
        if (!tensor) return no_memory(source);
        if (aligned)
            tensor->array.data = data;
        else
            memcpy(tensor->array.data, data, entry->end - entry->begin);
    }
    return SL_OK;
}

static int read_source(struct source *source, bool maps, struct sl_store *store) {
    SL_TRY(read_header(source));
    SL_TRY(parse_entries(source, store));
    SL_TRY(check_places(source));
    return maps ? map_tensors(source, store) : read_tensors(source, store);
}

static int read_file(struct sl_store *store, const char *path, bool maps, struct sl_error *error) {
    const char *reason;
    struct source source = {.path = path, .file = sl_file_read(path, SL_FILE_REGULAR, &reason), .error = error};
    if (!source.file) return sl_error_set(error, SL_BAD_INPUT, "%s: cannot be opened: %s", path, reason);
    struct sl_store read = {0};
    const int status = read_source(&source, maps, &read);
    json_decref(source.header);
    free(source.entry);
    fclose(source.file);
    sl_store_free(status == SL_OK ? store : &read);
    if (status == SL_OK) *store = read;
    return status;
}

int sl_safetensors_read(struct sl_store *store, const char *path, struct sl_error *error) {
    return read_file(store, path, false, error);
}

int sl_safetensors_map(struct sl_store *store, const char *path, struct sl_error *error) {
    return read_file(store, path, true, error);
}
