/* store.c - named tensors in host memory. */
#include "layers/formats/stores/store.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "layers/formats/files/draft.h"
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

/* Adds scale A B to TO [count], elements of ROW from COLUMN on, at most ABREAST. Each element is summed separately, in
 * double. */
enum { ABREAST = 256 };
static void add_product(const struct sl_low_rank *adapter, size_t row, size_t column, size_t columns, size_t count,
                        float *to) {
    double sums[ABREAST] = {0};
    for (size_t r = 0; r < adapter->rank; r++) {
        const float a = adapter->a[row * adapter->rank + r], *b = adapter->b + r * columns + column;
        for (size_t c = 0; c < count; c++) sums[c] += (double)a * b[c];
    }
    for (size_t c = 0; c < count; c++) to[c] = (float)(to[c] + adapter->scale * sums[c]);
}

void sl_tensor_read(const struct sl_tensor *tensor, size_t first, size_t count, float *to) {
    const float *data = tensor->array.data;
    if (data)
        memcpy(to, data + first, count * sizeof *to);
    else
        sl_pieces_read(tensor, first, count, to);
    if (!tensor->adapter.rank) return;
    const size_t columns = tensor->array.shape[1];
    for (size_t i = first, some; i < first + count; i += some, to += some) {
        const size_t left = columns - i % columns, rest = first + count - i;
        some = left < rest ? left : rest;
        if (some > ABREAST) some = ABREAST;
        add_product(&tensor->adapter, i / columns, i % columns, columns, some, to);
    }
}

int sl_tensor_hold(struct sl_tensor *tensor) {
    const size_t bytes = sl_tensor_bytes(tensor);
    if (!tensor->pieces || tensor->array.data) return SL_OK;
    tensor->array.data = malloc(bytes);
    if (!tensor->array.data) return SL_FAILED;
    sl_pieces_read(tensor, 0, bytes / sizeof(float), tensor->array.data);
    return SL_OK;
}

void sl_tensor_let_go(struct sl_tensor *tensor) {
    if (!tensor->pieces) return;
    free(tensor->array.data);
    tensor->array.data = NULL;
}

/* ---- tensors ---- */

static const char *tensor_name(const void *list, int place) { return ((const struct sl_tensor *)list)[place].name; }

static bool is_possible(const struct sl_store *store, const char *name, enum sl_dtype dtype, int dims,
                        const size_t *shape, size_t *bytes) {
    return strlen(name) < sizeof store->tensor->name && dims <= SL_MAX_DIMS &&
           sl_array_bytes(dtype, dims, shape, bytes);
}

/* Adds a tensor; the store then owns DATA. */
static struct sl_tensor *add_tensor(struct sl_store *store, const char *name, enum sl_dtype dtype, int dims,
                                    const size_t *shape, void *data) {
    struct sl_tensor *grown = sl_grow(store->tensor, store->count, &store->capacity, 32, sizeof *grown);
    if (!grown) return NULL;
    store->tensor = grown;
    struct sl_tensor *tensor = &store->tensor[store->count];
    *tensor = (struct sl_tensor){.array = {.data = data, .dtype = dtype, .dims = dims}};
    snprintf(tensor->name, sizeof tensor->name, "%s", name);
    for (int d = 0; d < dims; d++) tensor->array.shape[d] = shape[d];
    if (sl_names_add(&store->tensor_names, store->tensor, tensor_name)) return NULL;
    store->count++;
    return tensor;
}

struct sl_tensor *sl_store_declare(struct sl_store *store, const char *name, enum sl_dtype dtype, int dims,
                                   const size_t *shape) {
    size_t bytes;
    if (!is_possible(store, name, dtype, dims, shape, &bytes)) return NULL;
    return add_tensor(store, name, dtype, dims, shape, NULL);
}

struct sl_tensor *sl_store_add(struct sl_store *store, const char *name, enum sl_dtype dtype, int dims,
                               const size_t *shape) {
    size_t bytes;
    if (!is_possible(store, name, dtype, dims, shape, &bytes)) return NULL;
    void *data = calloc(bytes ? bytes : 1, 1);
    struct sl_tensor *tensor = data ? add_tensor(store, name, dtype, dims, shape, data) : NULL;
    if (!tensor) free(data);
    return tensor;
}

struct sl_tensor *sl_store_find(const struct sl_store *store, const char *name) {
    const int place = sl_names_find(&store->tensor_names, store->tensor, tensor_name, name);
    return place < 0 ? NULL : &store->tensor[place];
}

static int by_name(const void *a, const void *b) {
    return strcmp(((const struct sl_tensor *)a)->name, ((const struct sl_tensor *)b)->name);
}

void sl_store_sort(struct sl_store *store) {
    if (store->count) qsort(store->tensor, (size_t)store->count, sizeof *store->tensor, by_name);
    sl_names_renew(&store->tensor_names, store->tensor, tensor_name);
}

/* ---- notes ---- */

static const char *note_key(const void *list, int place) { return ((const struct sl_note *)list)[place].key; }

static struct sl_note *find_note(const struct sl_store *store, const char *key) {
    const int place = sl_names_find(&store->note_names, store->note, note_key, key);
    return place < 0 ? NULL : &store->note[place];
}

static struct sl_note *add_note(struct sl_store *store, const char *key) {
    struct sl_note *grown = sl_grow(store->note, store->notes, &store->most_notes, 16, sizeof *grown);
    if (!grown) return NULL;
    store->note = grown;
    struct sl_note *note = &grown[store->notes];
    *note = (struct sl_note){.key = strdup(key)};
    if (!note->key || sl_names_add(&store->note_names, store->note, note_key)) {
        free(note->key);
        return NULL;
    }
    store->notes++;
    return note;
}

int sl_note_compare(const void *a, const void *b) {
    return strcmp(((const struct sl_note *)a)->key, ((const struct sl_note *)b)->key);
}

void sl_store_sort_notes(struct sl_store *store) {
    if (store->notes) qsort(store->note, (size_t)store->notes, sizeof *store->note, sl_note_compare);
    sl_names_renew(&store->note_names, store->note, note_key);
}

int sl_store_set_note(struct sl_store *store, const char *key, const char *text) {
    struct sl_note *note = find_note(store, key);
    if (note && strlen(note->text) == strlen(text)) {
        memmove(note->text, text, strlen(text));
        return SL_OK;
    }
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

/* ---- freeing ---- */

static bool lies_in_file(const struct sl_store *store, const void *data) {
    const uintptr_t at = (uintptr_t)data, begin = (uintptr_t)store->mapping;
    return store->mapping && at >= begin && at <= begin + store->mapped;
}

void sl_store_relax(const struct sl_store *store) {
    if (store->mapping) madvise(store->mapping, store->mapped, MADV_DONTNEED);
    for (int i = 0; i < store->parts; i++) sl_store_relax(&store->part[i]);
}

void sl_store_free(struct sl_store *store) {
    for (int i = 0; i < store->count; i++) {
        void *data = store->tensor[i].array.data;
        if (!lies_in_file(store, data)) free(data);
        free(store->tensor[i].piece);
    }
    for (int i = 0; i < store->parts; i++) sl_store_free(&store->part[i]);
    for (int i = 0; i < store->notes; i++) {
        free(store->note[i].key);
        free(store->note[i].text);
    }
    if (store->mapping) munmap(store->mapping, store->mapped);
    sl_draft_give_up(store->draft);
    free(store->draft);
    free(store->path);
    free(store->tensor);
    free(store->note);
    free(store->part);
    free(store->other);
    sl_names_free(&store->tensor_names);
    sl_names_free(&store->note_names);
    *store = (struct sl_store){0};
}
