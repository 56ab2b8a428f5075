/* store.c - named tensors in host memory. */
#include "layers/storage/store.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "layers/storage/draft.h"
#include "spmd/base/memory.h"

bool sl_array_bytes(enum sl_dtype dtype, int dims, const size_t *shape, size_t *bytes) {
    *bytes = sl_dtype_size(dtype);
    for (int d = 0; d < dims; d++)
        if (__builtin_mul_overflow(*bytes, shape[d], bytes) || *bytes > PTRDIFF_MAX) return false;
    return true;
}

size_t sl_tensor_bytes(const struct sl_tensor *tensor) {
    return sl_array_elements(&tensor->array) * sl_dtype_size(tensor->array.dtype);
}

/* ---- tensors ---- */

struct sl_tensor *sl_store_declare(struct sl_store *store, const char *name, enum sl_dtype dtype, int dims,
                                   const size_t *shape) {
    size_t bytes;
    if (strlen(name) >= sizeof store->tensor->name || dims > SL_MAX_DIMS || !sl_array_bytes(dtype, dims, shape, &bytes))
        return NULL;
    struct sl_tensor *grown = sl_grow(store->tensor, store->count, &store->capacity, 32, sizeof *grown);
    if (!grown) return NULL;
    store->tensor = grown;
    struct sl_tensor *tensor = &store->tensor[store->count++];
    *tensor = (struct sl_tensor){.array = {.dtype = dtype, .dims = dims}};
    snprintf(tensor->name, sizeof tensor->name, "%s", name);
    for (int d = 0; d < dims; d++) tensor->array.shape[d] = shape[d];
    return tensor;
}

struct sl_tensor *sl_store_add(struct sl_store *store, const char *name, enum sl_dtype dtype, int dims,
                               const size_t *shape) {
    struct sl_tensor *tensor = sl_store_declare(store, name, dtype, dims, shape);
    if (!tensor) return NULL;
    const size_t bytes = sl_tensor_bytes(tensor);
    tensor->array.data = calloc(bytes ? bytes : 1, 1);
    if (tensor->array.data) return tensor;
    store->count--;
    return NULL;
}

struct sl_tensor *sl_store_find(const struct sl_store *store, const char *name) {
    for (int i = 0; i < store->count; i++)
        if (!strcmp(store->tensor[i].name, name)) return &store->tensor[i];
    return NULL;
}

/* ---- notes ---- */

static struct sl_note *find_note(const struct sl_store *store, const char *key) {
    for (int i = 0; i < store->notes; i++)
        if (!strcmp(store->note[i].key, key)) return &store->note[i];
    return NULL;
}

static struct sl_note *add_note(struct sl_store *store, const char *key) {
    struct sl_note *grown = realloc(store->note, (size_t)(store->notes + 1) * sizeof *grown);
    if (!grown) return NULL;
    store->note = grown;
    grown[store->notes] = (struct sl_note){.key = strdup(key)};
    return grown[store->notes].key ? &grown[store->notes++] : NULL;
}

int sl_store_set_note(struct sl_store *store, const char *key, const char *text) {
    struct sl_note *note = find_note(store, key);
    char *copy = strdup(text);
    if (copy && !note) note = add_note(store, key);
    if (!copy || !note) {
        free(copy);
        return SL_FAILED;
    }
    free(note->text);
    note->text = copy;
    return SL_OK;
}

const char *sl_store_note(const struct sl_store *store, const char *key) {
    const struct sl_note *note = find_note(store, key);
    return note ? note->text : NULL;
}

/* ---- the end ---- */

static bool lies_in_file(const struct sl_store *store, const void *data) {
    const uintptr_t at = (uintptr_t)data, begin = (uintptr_t)store->mapping;
    return store->mapping && at >= begin && at <= begin + store->mapped;
}

void sl_store_relax(const struct sl_store *store) {
    if (store->mapping) madvise(store->mapping, store->mapped, MADV_DONTNEED);
}

void sl_store_free(struct sl_store *store) {
    for (int i = 0; i < store->count; i++) {
        void *data = store->tensor[i].array.data;
        if (!lies_in_file(store, data)) free(data);
    }
    for (int i = 0; i < store->notes; i++) {
        free(store->note[i].key);
        free(store->note[i].text);
    }
    if (store->mapping) munmap(store->mapping, store->mapped);
    sl_draft_give_up(store->draft);
    free(store->draft);
    free(store->tensor);
    free(store->note);
    *store = (struct sl_store){0};
}
