/* publish_files.h - writes a publication in the formats of other programs: a Hugging Face folder, or a GGUF file. */
#ifndef SL_LAYERS_MODELS_PUBLISHED_PUBLISH_FILES_H
#define SL_LAYERS_MODELS_PUBLISHED_PUBLISH_FILES_H

#include <jansson.h>

#include "layers/models/published/publish.h"
#include "layers/formats/tokenizers/tokenizer.h"

SL_BEGIN_C

struct sl_publishing {
    const struct sl_publication *publication;
    enum sl_weight_type type;                /* F32, F16, BF16; in GGUF files also Q8_0, if rows are whole blocks */
    size_t most;                             /* limit on the bytes of tensors per file of a folder */
    int context;                             /* longest sequence of the model */
    const json_t *config;                    /* a folder's config.json to copy and adapt; NULL: write a new one */
    const struct sl_gguf *vocabulary;        /* metadata of a GGUF file with a tokenizer to copy; NULL: none */
    const struct sl_gguf_metadata *metadata; /* of a tokenizer, instead of VOCABULARY; NULL: none */
    int32_t begin, end;                      /* begin and end tokens of a text, for a folder; -1: none */
};

/* SL_BAD_INPUT if the file format cannot describe the model. */
int sl_publish_check(const struct sl_publishing *publishing, struct sl_error *error);
/* Returns the common divisor of all rotation rates, without Llama 3's rule; 1: there are none; 0: divisors differ. */
double sl_publish_divisor(const struct sl_publishing *publishing);
/* The model's config.json, freed by the caller; NULL if memory is short. */
json_t *sl_publish_config(const struct sl_publishing *publishing);

/* Writes model.safetensors, or its shards and their index, and config.json last, to the folder TO. SL_FAILED if the
 * file system fails; the unfinished file is removed. */
int sl_publish_folder(const struct sl_publishing *publishing, const char *to, struct sl_error *error);
/* Writes the file TO completely, or not at all. */
int sl_publish_gguf(const struct sl_publishing *publishing, const char *to, struct sl_error *error);

SL_END_C
#endif
