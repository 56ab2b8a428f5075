/* safetensors.c - writes named tensors. The host is little-endian, as the format is. */
#include "layers/formats/stores/safetensors.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "layers/formats/stores/checksums.h"
#include "layers/formats/files/draft.h"

/* In bytes. SYNCED: parts of a file synced at a time, whole pages. */
enum { LENGTH = 8, ALIGNMENT = 8, SYNCED = 32 << 20 };

static const char metadata[] = "__metadata__";
/* Start of a header with checksums, which are written there once the data are known. */
static const char before_checksums[] = "{\"__metadata__\":{\"" SL_CHECKSUMS_KEY "\":\"";

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

/* Notes as JSON, CHECKSUMS (NULL: none) first. NULL if a text is not UTF-8. */
static json_t *describe_notes(const struct sl_store *store, const char *checksums) {
    json_t *object = json_object();
    bool valid = !checksums || !json_object_set_new(object, SL_CHECKSUMS_KEY, json_string(checksums));
    for (int i = 0; i < store->notes; i++)
        valid = !json_object_set_new(object, store->note[i].key, json_string(store->note[i].text)) && valid;
    if (valid) return object;
    json_decref(object);
    return NULL;
}

/* The file up to the data: the length, and the header of the notes and the sorted TENSORS, padded with spaces so that
 * the data begin aligned. The caller frees it. NULL if memory is short, or if a text is not UTF-8. */
static char *make_header(const struct sl_store *store, const struct sl_tensor *tensor, const char *checksums,
                         size_t *length) {
    json_t *object = json_object();
    const bool noted = store->notes > 0 || checksums;
    size_t begin = 0;
    if (noted) json_object_set_new(object, metadata, describe_notes(store, checksums));
    for (int i = 0; i < store->count; i++) {
        json_object_set_new(object, tensor[i].name, describe(&tensor[i], begin));
        begin += sl_tensor_bytes(&tensor[i]);
    }
    const size_t entries = (size_t)store->count + noted;
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

/* Checks the names of the sorted TENSORS and the notes. */
static int check_names(const struct sl_store *store, const struct sl_tensor *tensor, const char *path,
                       struct sl_error *error) {
    for (int i = 0; i < store->count; i++) {
        const char *name = tensor[i].name;
        if (!strcmp(name, metadata))
            return sl_error_set(error, SL_BAD_INPUT, "%s: a tensor cannot be called %s", path, name);
        if (i > 0 && !strcmp(name, tensor[i - 1].name))
            return sl_error_set(error, SL_BAD_INPUT, "%s: two tensors are called \"%s\"", path, name);
    }
    if (!sl_store_note(store, SL_CHECKSUMS_KEY)) return SL_OK;
    return sl_error_set(error, SL_BAD_INPUT, "%s: the note %s is computed, not given", path, SL_CHECKSUMS_KEY);
}

/* Makes the header of the sorted TENSORS, with checksums if requested; NULL with the error set. */
static char *check_and_describe(const struct sl_store *store, const struct sl_tensor *tensor, const char *path,
                                size_t *length, struct sl_error *error) {
    if (check_names(store, tensor, path, error)) return NULL;
    char *checksums = store->checksums ? calloc(1, sl_checksums_length(store->count) + 1) : NULL, *header = NULL;
    if (!store->checksums || (checksums && !sl_checksums_print(store, tensor, checksums)))
        header = make_header(store, tensor, checksums, length);
    if (!header) sl_error_set(error, SL_FAILED, "%s: no memory for the header, or a name is not UTF-8", path);
    free(checksums);
    return header;
}

static enum sl_links links_of(const struct sl_store *store) {
    return store->replaces_links ? SL_LINKS_REPLACED : SL_LINKS_FOLLOWED;
}

/* ---- writing at once ---- */

int sl_safetensors_can_write(const char *path, struct sl_error *error) {
    return sl_draft_check(path, SL_LINKS_FOLLOWED, error);
}

static int write_sorted(const struct sl_store *store, struct sl_tensor *tensor, const char *path,
                        struct sl_error *error) {
    struct sl_draft draft = {0};
    size_t length;
    if (store->checksums) SL_TRY(sl_checksums_make(store, tensor, path, NULL, NULL, error));
    char *header = check_and_describe(store, tensor, path, &length, error);
    if (!header) return error->status;
    int status = sl_draft_open(&draft, path, links_of(store), error);
    if (status == SL_OK) {
        int number = sl_draft_write(&draft, header, length);
        for (int i = 0; i < store->count && !number; i++)
            number = sl_draft_write(&draft, tensor[i].array.data, sl_tensor_bytes(&tensor[i]));
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

/* Reserves the full length of the file DESCRIPTOR, and maps it with FLAGS. Returns 0, or an errno. */
static int reserve(struct sl_store *store, int descriptor, size_t bytes, int flags) {
    int number;
    do number = posix_fallocate(descriptor, 0, (off_t)bytes);
    while (number == EINTR);
    if (number) return number;
    void *mapping = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | flags, descriptor, 0);
    if (mapping == MAP_FAILED) return errno;
    store->mapping = mapping;
    store->mapped = bytes;
    return 0;
}

/* Bytes of a file whose header has LENGTH. */
static size_t bytes_with(const struct sl_store *store, size_t length) {
    for (int i = 0; i < store->count; i++) length += sl_tensor_bytes(&store->tensor[i]);
    return length;
}

/* Places the tensors in the mapping, after LENGTH bytes. */
static void place_tensors(struct sl_store *store, size_t length) {
    char *place = store->mapping + length;
    for (int i = 0; i < store->count; i++) {
        store->tensor[i].array.data = place;
        place += sl_tensor_bytes(&store->tensor[i]);
    }
}

static int lay_out(struct sl_store *store, const char *header, size_t length, struct sl_error *error) {
    const int number = reserve(store, store->draft->descriptor, bytes_with(store, length), 0);
    if (number) return sl_draft_finish(store->draft, number, error);
    memcpy(store->mapping, header, length);
    place_tensors(store, length);
    return SL_OK;
}

int sl_safetensors_create(struct sl_store *store, const char *path, struct sl_error *error) {
    size_t length;
    struct sl_error own;
    if (!error) error = &own;
    sl_store_sort(store);
    char *header = check_and_describe(store, store->tensor, path, &length, error);
    if (!header) return error->status;
    store->draft = calloc(1, sizeof *store->draft);
    int status = store->draft ? sl_draft_open(store->draft, path, links_of(store), error)
                              : sl_error_set(error, SL_FAILED, "%s: no memory to write it", path);
    if (status == SL_OK) status = lay_out(store, header, length, error);
    free(header);
    return status;
}

/* Computes the checksums, once the tensors have their data. */
static int fill_in_checksums(struct sl_store *store, int (*between)(void *arg), void *arg, struct sl_error *error) {
    SL_TRY(sl_checksums_make(store, store->tensor, store->draft->path, between, arg, error));
    if (!sl_checksums_print(store, store->tensor, store->mapping + LENGTH + strlen(before_checksums))) return SL_OK;
    return sl_error_set(error, SL_FAILED, "%s: no memory for its checksums", store->draft->path);
}

int sl_safetensors_commit(struct sl_store *store, int (*between)(void *arg), void *arg, struct sl_error *error) {
    int number = 0, status = store->checksums ? fill_in_checksums(store, between, arg, error) : SL_OK;
    for (size_t at = 0; at < store->mapped && !number && status == SL_OK; at += SYNCED) {
        const size_t left = store->mapped - at;
        if (msync(store->mapping + at, left < SYNCED ? left : SYNCED, MS_SYNC)) number = errno;
        if (between) status = between(arg);
    }
    if (status == SL_OK) status = sl_draft_finish(store->draft, number, error);
    sl_store_free(store);
    return status;
}

/* ---- memory that outlives the process ---- */

/* Makes the new file PATH, of BYTES, and maps it. *NUMBER becomes 0, or an errno. */
static int make_file(struct sl_store *store, const char *path, size_t bytes, int *number, struct sl_error *error) {
    const int descriptor = open(path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    *number = descriptor < 0 ? errno : reserve(store, descriptor, bytes, MAP_POPULATE);
    if (descriptor >= 0) close(descriptor);
    if (!*number) return SL_OK;
    return sl_error_set(error, SL_FAILED, "%s: cannot be made: %s", path, strerror(*number));
}

int sl_safetensors_place(struct sl_store *store, const char *path, int *number, struct sl_error *error) {
    size_t length;
    sl_store_sort(store);
    sl_store_sort_notes(store); /* sealing needs no memory then */
    char *header = check_and_describe(store, store->tensor, path, &length, error);
    *number = ENOMEM;
    if (!header) return SL_FAILED;
    const int status = make_file(store, path, bytes_with(store, length), number, error);
    if (status == SL_OK) {
        memcpy(store->mapping + LENGTH, header + LENGTH, length - LENGTH);
        place_tensors(store, length);
    }
    free(header);
    return status;
}

int sl_safetensors_place_copy(struct sl_store *copy, size_t bytes, const char *path, int *number,
                              struct sl_error *error) {
    return make_file(copy, path, bytes, number, error);
}

/* Stores the header's length, the file's first bytes; 0: the file is invalid. Earlier stores come first. */
static void set_length(struct sl_store *store, uint64_t length) {
    __atomic_store_n((uint64_t *)(void *)store->mapping, length, __ATOMIC_SEQ_CST);
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
}

void sl_safetensors_unseal(struct sl_store *store) { set_length(store, 0); }

uint64_t sl_safetensors_sealed(const struct sl_store *store) {
    return __atomic_load_n((const uint64_t *)(const void *)store->mapping, __ATOMIC_SEQ_CST);
}

void sl_safetensors_seal_copy(struct sl_store *copy, uint64_t length) { set_length(copy, length); }

/* Writes the note's text over the one in the HEADER of LENGTH bytes. */
static bool renew_note(char *header, size_t length, const struct sl_note *note) {
    char before[64];
    const int size = snprintf(before, sizeof before, "\"%.50s\":\"", note->key);
    char *at = memmem(header, length, before, (size_t)size);
    const size_t text = strlen(note->text);
    if (!at || at + size + text >= header + length || at[(size_t)size + text] != '"') return false;
    memcpy(at + size, note->text, text);
    return true;
}

bool sl_safetensors_seal(struct sl_store *store) {
    const size_t length = store->mapped - bytes_with(store, LENGTH);
    bool fits = !sl_checksums_print(store, store->tensor, store->mapping + LENGTH + strlen(before_checksums));
    for (int i = 0; i < store->notes && fits; i++) fits = renew_note(store->mapping + LENGTH, length, &store->note[i]);
    if (fits) set_length(store, length);
    return fits;
}
