/* weights.h - the tensors of a published model, in the file or files that it is published in: a folder of Hugging
 * Face's (config.json, model.safetensors or the shards that model.safetensors.index.json names) or a GGUF file. Files
 * are mapped, and values become floats as they are read.
 *
 * Shapes are Hugging Face's: the last dim's elements lie side by side. What GGML quantizes lies in blocks of 32 or
 * 256 elements along it (layers/storage/quantized/quantized.h). */
#ifndef SL_LAYERS_STORAGE_WEIGHTS_H
#define SL_LAYERS_STORAGE_WEIGHTS_H

#include <jansson.h>

#include "layers/storage/contents.h"
#include "layers/storage/gguf.h"
#include "layers/storage/quantized/blocks.h"
#include "layers/storage/store.h"

SL_BEGIN_C

/* From Q8_0 on, quantized: in the order of sl_quantized_types. */
enum sl_weight_type {
    SL_WEIGHT_F32,
    SL_WEIGHT_F16,
    SL_WEIGHT_BF16,
    SL_WEIGHT_Q8_0,
    SL_WEIGHT_Q4_0,
    SL_WEIGHT_Q4_1,
    SL_WEIGHT_Q5_0,
    SL_WEIGHT_Q5_1,
    SL_WEIGHT_Q2_K,
    SL_WEIGHT_Q3_K,
    SL_WEIGHT_Q4_K,
    SL_WEIGHT_Q5_K,
    SL_WEIGHT_Q6_K,
    SL_WEIGHT_OTHER /* a type that cannot be read */
};

struct sl_weight {
    char name[128];
    int dims;
    size_t shape[SL_MAX_DIMS]; /* 1 beyond the dims */
    enum sl_weight_type type;
    char other[16];   /* the name of a type that cannot be read */
    const void *data; /* in the mapped file, at any address; NULL: the type cannot be read */
};

/* Never changes once it is open: threads may share it. */
/* Another part of a GGUF file that is split. */
struct sl_weights_part {
    struct sl_contents contents;
    struct sl_gguf gguf;
};

struct sl_weights {
    const char *path; /* the caller's */
    int count, capacity;
    struct sl_weight *weight;
    struct sl_names names;
    json_t *config;      /* a folder's config.json; NULL: a GGUF file, */
    struct sl_gguf gguf; /* of a file that is split: its first part, */
    struct sl_contents contents;
    int parts; /* and the others */
    struct sl_weights_part *part;
    int files;
    struct sl_store *file; /* a folder's */
};

/* Opens PATH, which must last; of a GGUF file that is split, the first part. SL_BAD_INPUT in one line where a file is
 * missing, malformed or cut short, or where tensors overlap. Tensors of types that cannot be read are listed as well.
 * Free with sl_weights_close, also after a failure. */
int sl_weights_open(struct sl_weights *weights, const char *path, struct sl_error *error);
void sl_weights_close(struct sl_weights *weights);

/* Releases the memory of the files' pages that were touched so far, which the system may keep: whoever reads them again
 * finds them. */
void sl_weights_relax(const struct sl_weights *weights);

/* NULL: there is none. */
const struct sl_weight *sl_weights_find(const struct sl_weights *weights, const char *name);
static inline size_t sl_weight_elements(const struct sl_weight *weight) {
    size_t elements = 1;
    for (int d = 0; d < weight->dims; d++) elements *= weight->shape[d];
    return elements;
}
/* SL_BAD_INPUT, in one line with the types that can be read, if WEIGHT has another type. */
int sl_weight_check_type(const struct sl_weights *weights, const struct sl_weight *weight, struct sl_error *error);
/* WEIGHT's blocks as they lie; none if it has not two dims or is not quantized. */
struct sl_blocks sl_weight_blocks(const struct sl_weight *weight);
/* to [count] = the elements from FIRST on, in the order in which they lie. WEIGHT has a type that can be read. */
void sl_weight_read(const struct sl_weight *weight, size_t first, size_t count, float *to);

/* ---- the way back: F32, F16, BF16 and Q8_0 ---- */

/* Elements that lie together: rows have a whole number of them. */
size_t sl_weight_block(enum sl_weight_type type);
/* Bytes of COUNT elements, whole blocks. */
size_t sl_weight_bytes(enum sl_weight_type type, size_t count);
/* GGML's number. */
uint32_t sl_weight_gguf_type(enum sl_weight_type type);
/* TO = FROM [COUNT], whole blocks. */
void sl_weight_write(enum sl_weight_type type, const float *from, size_t count, void *to);

SL_END_C
#endif
