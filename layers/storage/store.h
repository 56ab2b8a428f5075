/* store.h - named tensors in host memory, and notes that go with them. */
#ifndef SL_LAYERS_STORAGE_STORE_H
#define SL_LAYERS_STORAGE_STORE_H

#include "spmd/spec.h"

SL_BEGIN_C

struct sl_tensor {
    char name[128];
    struct sl_array array; /* data owned by the store; NULL: it is only declared */
};

struct sl_note {
    char *key, *text;
};

/* Zero-initialize; free with sl_store_free. */
struct sl_store {
    int count, capacity;
    struct sl_tensor *tensor;
    int notes;
    struct sl_note *note;
    /* Where the tensors lie in a file (layers/storage/safetensors.h), that file; a draft is one that is not at its path
     * yet. */
    char *mapping;
    size_t mapped;
    struct sl_draft *draft;
};

/* Adds a zeroed tensor; NULL without memory, or where the name or dims do not fit. The pointer lasts until the next
 * add. sl_store_declare adds one without data. */
struct sl_tensor *sl_store_add(struct sl_store *store, const char *name, enum sl_dtype dtype, int dims,
                               const size_t *shape);
struct sl_tensor *sl_store_declare(struct sl_store *store, const char *name, enum sl_dtype dtype, int dims,
                                   const size_t *shape);
struct sl_tensor *sl_store_find(const struct sl_store *store, const char *name);
void sl_store_free(struct sl_store *store);
/* Where tensors lie in a file: gives the memory back that what was touched of it takes here. It stays in the file. */
void sl_store_relax(const struct sl_store *store);

/* Adds a note, or replaces the one under KEY; SL_FAILED without memory. */
int sl_store_set_note(struct sl_store *store, const char *key, const char *text);
/* The note under KEY, or NULL. */
const char *sl_store_note(const struct sl_store *store, const char *key);

/* Bytes of an array; false where they are more than memory can have. */
bool sl_array_bytes(enum sl_dtype dtype, int dims, const size_t *shape, size_t *bytes);
size_t sl_tensor_bytes(const struct sl_tensor *tensor);

SL_END_C
#endif
