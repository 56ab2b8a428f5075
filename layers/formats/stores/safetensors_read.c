/* safetensors_read.c - reads and maps named tensors. The host is little-endian, as the format is. */
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "layers/formats/stores/checksums.h"
#include "layers/formats/files/contents.h"
#include "layers/formats/stores/safetensors.h"
#include "spmd/base/file.h"
#include "spmd/base/memory.h"

/* In bytes; MOST_HEADER is the format's own limit. */
enum { LENGTH = 8, MOST_HEADER = 100000000 };

static const char metadata[] = "__metadata__";

/* A tensor's entry in the header. */
struct entry {
    const char *name; /* in the header's memory */
    enum sl_dtype dtype;
    const char *other; /* name of an unsupported type; else NULL */
    int dims;
    size_t shape[SL_MAX_DIMS];
    size_t begin, end; /* bytes into the data */
};

/* A file being read. */
struct source {
    const char *path;
    FILE *file;
    size_t start, data; /* bytes up to the end of the header, and after it */
    bool cut;           /* whether the file is shorter than its header says */
    bool lists_others;  /* whether tensors of other types are allowed */
    json_t *header;
    const char *checksums; /* their note, in the header's memory; NULL: none */
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
    source->cut = file.st_size < LENGTH;
    if (source->cut)
        return sl_error_set(source->error, SL_BAD_INPUT, "%s: too short: %jd bytes, and the header's length takes %d",
                            source->path, (intmax_t)file.st_size, LENGTH);
    unsigned char prefix[LENGTH];
    char begin[32];
    const ssize_t some = pread(fileno(source->file), begin, sizeof begin, 0);
    SL_TRY(sl_contents_refuse_pointer(begin, some > 0 ? (size_t)some : 0, source->path, source->error));
    SL_TRY(read_bytes(source, prefix, LENGTH));
    uint64_t length = 0;
    for (int i = 0; i < LENGTH; i++) length |= (uint64_t)prefix[i] << 8 * i;
    const uint64_t rest = (uint64_t)file.st_size - LENGTH, most = rest < MOST_HEADER ? rest : MOST_HEADER;
    source->cut = length > rest && length <= MOST_HEADER;
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

/* Reads size number I of a JSON array; false if there is none. */
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
    entry->other = source->lists_others ? name : NULL;
    if (entry->other) return SL_OK;
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

static int parse_entry(struct source *source, const char *name, const json_t *value, struct entry *entry) {
    entry->name = name;
    const size_t longest = sizeof((struct sl_tensor){0}).name - 1;
    if (strlen(name) > longest)
        return sl_error_set(source->error, SL_BAD_INPUT, "%s: tensor %.100s: the name is longer than %zu bytes",
                            source->path, name, longest);
    SL_TRY(parse_dtype(source, value, entry));
    if (!entry->other) SL_TRY(parse_shape(source, value, entry));
    const json_t *offsets = json_object_get(value, "data_offsets");
    if (json_array_size(offsets) != 2 || !size_at(offsets, 0, &entry->begin) || !size_at(offsets, 1, &entry->end) ||
        entry->begin > entry->end)
        return sl_error_set(source->error, SL_BAD_INPUT, "%s: tensor %s: data_offsets are not [begin, end]",
                            source->path, name);
    size_t bytes;
    const bool fits = entry->other || (sl_array_bytes(entry->dtype, entry->dims, entry->shape, &bytes) &&
                                       bytes == entry->end - entry->begin);
    source->cut = fits && entry->end > source->data;
    if (entry->end > source->data)
        return sl_error_set(source->error, SL_BAD_INPUT,
                            "%s: tensor %s ends at byte %zu of the data, of which the file has %zu: truncated",
                            source->path, name, entry->end, source->data);
    if (!fits)
        return sl_error_set(source->error, SL_BAD_INPUT, "%s: tensor %s has %zu bytes, which does not match its shape",
                            source->path, name, entry->end - entry->begin);
    return SL_OK;
}

static int read_notes(struct source *source, json_t *value, struct sl_store *store) {
    const char *key;
    json_t *text;
    bool valid = json_is_object(value);
    json_object_foreach(value, key, text) valid = valid && json_is_string(text);
    if (!valid)
        return sl_error_set(source->error, SL_BAD_INPUT, "%s: %s is not an object of strings", source->path, metadata);
    source->checksums = json_string_value(json_object_get(value, SL_CHECKSUMS_KEY));
    json_object_foreach(value, key, text) {
        if (!strcmp(key, SL_CHECKSUMS_KEY)) continue;
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

/* Sorts the entries by their places in the data, which they must fill without holes. */
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

static int list_other(const struct source *source, const struct entry *entry, struct sl_store *store) {
    struct sl_other_tensor *wider = sl_grow(store->other, store->others, &store->most_others, 16, sizeof *wider);
    if (!wider) return no_memory(source);
    store->other = wider;
    struct sl_other_tensor *other = &store->other[store->others++];
    snprintf(other->name, sizeof other->name, "%s", entry->name);
    snprintf(other->type, sizeof other->type, "%s", entry->other);
    return SL_OK;
}

/* Maps the tensors. In files of other writers, data may be at any address: unaligned tensors are copied. */
static int map_tensors(const struct source *source, struct sl_store *store) {
    const size_t bytes = source->start + source->data;
    void *mapping = mmap(NULL, bytes, PROT_READ, MAP_PRIVATE, fileno(source->file), 0);
    if (mapping == MAP_FAILED)
        return sl_error_set(source->error, SL_FAILED, "%s: cannot be mapped: %s", source->path, strerror(errno));
    store->mapping = mapping;
    store->mapped = bytes;
    for (int i = 0; i < source->count; i++) {
        const struct entry *entry = &source->entry[i];
        if (entry->other) {
            SL_TRY(list_other(source, entry, store));
            continue;
        }
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
    store->path = strdup(source->path);
    if (!store->path) return no_memory(source);
    SL_TRY(read_header(source));
    SL_TRY(parse_entries(source, store));
    SL_TRY(check_places(source));
    SL_TRY(maps ? map_tensors(source, store) : read_tensors(source, store));
    sl_store_sort(store);
    return source->checksums ? sl_checksums_parse(store, source->checksums, source->error) : SL_OK;
}

/* Reads or maps PATH. *CUT (may be NULL): the file is refused because it is shorter than its header says. */
static int read_file(struct sl_store *store, const char *path, bool maps, bool *cut, struct sl_error *error) {
    const char *reason;
    struct source source = {.path = path, .file = sl_file_read(path, SL_FILE_REGULAR, &reason), .error = error};
    if (!source.file) return sl_error_set(error, SL_BAD_INPUT, "%s: cannot be opened: %s", path, reason);
    struct sl_store read = {.lists_others = maps && store->lists_others};
    source.lists_others = read.lists_others;
    int status = read_source(&source, maps, &read);
    json_decref(source.header);
    free(source.entry);
    fclose(source.file);
    if (cut) *cut = source.cut;
    if (status == SL_OK && read.checksums && !maps) status = sl_checksums_verify(&read, NULL, NULL, error);
    sl_store_free(status == SL_OK ? store : &read);
    if (status == SL_OK) *store = read;
    return status;
}

int sl_safetensors_read(struct sl_store *store, const char *path, struct sl_error *error) {
    return read_file(store, path, false, NULL, error);
}

int sl_safetensors_map(struct sl_store *store, const char *path, struct sl_error *error) {
    return read_file(store, path, true, NULL, error);
}

bool sl_safetensors_is_cut(const char *path, struct sl_error *error) {
    struct sl_store store = {0};
    bool cut = false;
    read_file(&store, path, true, &cut, error);
    sl_store_free(&store);
    return cut;
}

int sl_safetensors_verify(const struct sl_store *store, int (*between)(void *arg), void *arg, struct sl_error *error) {
    for (int i = 0; i < store->parts; i++) SL_TRY(sl_checksums_verify(&store->part[i], between, arg, error));
    if (store->parts) return SL_OK;
    return store->path ? sl_checksums_verify(store, between, arg, error) : SL_OK;
}
