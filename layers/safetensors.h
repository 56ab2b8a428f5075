/* safetensors.h - named tensors in the safetensors format: 8 bytes little-endian header length, a JSON header, the
 * data. Source of the format: the safetensors project's README. */
#ifndef SL_LAYERS_SAFETENSORS_H
#define SL_LAYERS_SAFETENSORS_H

#include "spmd/error.h"
#include "spmd/spec.h"

SL_BEGIN_C

struct sl_tensor {
    char name[96];
    struct sl_array array; /* data owned by the store */
};

/* Named tensors in host memory. Zero-initialize; free with sl_store_free. */
struct sl_store {
    int count, capacity;
    struct sl_tensor *tensor;
};

/* Adds a zeroed tensor; NULL without memory, or where the name or dims do not fit. The pointer lasts until the next
 * add. */
struct sl_tensor *sl_store_add(struct sl_store *store, const char *name, enum sl_dtype dtype, int dims,
                               const size_t *shape);
struct sl_tensor *sl_store_find(const struct sl_store *store, const char *name);
void sl_store_free(struct sl_store *store);

/* SL_BAD_INPUT where PATH could not be written: something other than a regular file, or in no directory of ours. */
int sl_safetensors_can_write(const char *path, struct sl_error *error);
/* Writes STORE, sorted by name, to PATH.tmp, syncs it and renames it to PATH: a crash leaves either the old file or the
 * new. SL_FAILED where the file system fails (disk full); the old file then stays. */
int sl_safetensors_write(const struct sl_store *store, const char *path, struct sl_error *error);
/* Replaces STORE by what PATH holds. SL_BAD_INPUT, STORE untouched, for a file that is not there, malformed, truncated,
 * overlapping or with holes; the line names the path, the tensor and the reason. */
int sl_safetensors_read(struct sl_store *store, const char *path, struct sl_error *error);

SL_END_C
#endif
