/* weights.h - the tensors of a published model in its own files: a Hugging Face folder (config.json, and
 * model.safetensors or the shards in model.safetensors.index.json) or a GGUF file. Files are mapped, and values are
 * converted to float as they are read.
 *
 * Shapes are Hugging Face's: elements of the last dim are adjacent. GGML's quantized types have blocks of 32 or 256
 * elements along it (layers/formats/quantized/quantized.h). */
#ifndef SL_LAYERS_FORMATS_MODELS_WEIGHTS_H
#define SL_LAYERS_FORMATS_MODELS_WEIGHTS_H

#include <jansson.h>

#include "layers/formats/files/contents.h"
#include "layers/formats/models/gguf.h"
#include "layers/formats/quantized/blocks.h"
#include "layers/formats/stores/store.h"

SL_BEGIN_C

/* Types from Q8_0 on are quantized, in the order of sl_quantized_types. */
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
    SL_WEIGHT_OTHER /* an unsupported type */
};

struct sl_weight {
    char name[128];
    int dims;
    size_t shape[SL_MAX_DIMS]; /* 1 beyond dims */
    enum sl_weight_type type;
    char other[16];   /* name of an unsupported type */
    const void *data; /* in the mapped file, at any address; NULL: the type cannot be read */
};

/* Another part of a split GGUF file. */
struct sl_weights_part {
    struct sl_contents contents;
    struct sl_gguf gguf;
};

struct sl_weights {
    const char *path; /* the caller's */
    int count, capacity;
    struct sl_weight *weight;
    struct sl_names names;
    json_t *config;      /* of a folder; NULL: this is a GGUF file */
    struct sl_gguf gguf; /* of a split file: its first part */
    struct sl_contents contents;
    int parts; /* further parts of a split file */
    struct sl_weights_part *part;
    int files;
    struct sl_store *file; /* files of a folder */
};

/* Opens PATH, a string that must outlive it; for a split GGUF file, the first part. SL_BAD_INPUT if a file is missing,
 * malformed or cut short, or if tensors overlap. Tensors of unsupported types are listed, too. Once open, WEIGHTS are
 * constant, and threads may share them. Free with sl_weights_close, also after a failure. */
int sl_weights_open(struct sl_weights *weights, const char *path, struct sl_error *error);
void sl_weights_close(struct sl_weights *weights);

/* Releases the memory of the files' pages touched so far; later reads load them again. */
void sl_weights_relax(const struct sl_weights *weights);

/* The tensor called NAME; NULL: there is none. */
const struct sl_weight *sl_weights_find(const struct sl_weights *weights, const char *name);
static inline size_t sl_weight_elements(const struct sl_weight *weight) {
    size_t elements = 1;
    for (int d = 0; d < weight->dims; d++) elements *= weight->shape[d];
    return elements;
}
/* SL_BAD_INPUT, with an error listing the supported types, if WEIGHT has another type. */
int sl_weight_check_type(const struct sl_weights *weights, const struct sl_weight *weight, struct sl_error *error);
/* WEIGHT's blocks in the file; none if it does not have two dims or is not quantized. */
struct sl_blocks sl_weight_blocks(const struct sl_weight *weight);
/* Reads elements from FIRST on, in the file's order, into TO [count]. WEIGHT must have a supported type. */
void sl_weight_read(const struct sl_weight *weight, size_t first, size_t count, float *to);

/* ---- writing: F32, F16, BF16 and Q8_0 ---- */

/* Elements per block: rows have a whole number of blocks. */
size_t sl_weight_block(enum sl_weight_type type);
/* Bytes of COUNT elements, whole blocks. */
size_t sl_weight_bytes(enum sl_weight_type type, size_t count);
/* GGML's number of TYPE. */
uint32_t sl_weight_gguf_type(enum sl_weight_type type);
/* Converts FROM [COUNT], whole blocks, to TYPE in TO. */
void sl_weight_write(enum sl_weight_type type, const float *from, size_t count, void *to);

SL_END_C
#endif
