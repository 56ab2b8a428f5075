/* publish_files.h - writes a publication as the files that other programs open: a folder of Hugging Face's, or a GGUF
 * file. */
#ifndef SL_LAYERS_MODELS_PUBLISH_FILES_H
#define SL_LAYERS_MODELS_PUBLISH_FILES_H

#include <jansson.h>

#include "layers/models/publish.h"
#include "layers/tokenizers/tokenizer.h"

SL_BEGIN_C

struct sl_publishing {
    const struct sl_publication *publication;
    enum sl_weight_type type;                /* F32, F16, BF16; in GGUF files also Q8_0, where rows are whole blocks */
    size_t most;                             /* bytes of tensors in a file of a folder */
    int context;                             /* the longest sequence that the model is for */
    const json_t *config;                    /* a folder's, which becomes the new one's; NULL: it is made */
    const struct sl_gguf *vocabulary;        /* metadata of a GGUF file, whose tokenizer is taken over; NULL: none */
    const struct sl_gguf_metadata *metadata; /* of a GGUF file's tokenizer, in place of VOCABULARY; NULL: none */
    int32_t begin, end;                      /* tokens that begin and end a text, for a folder; -1: none */
};

/* SL_BAD_INPUT where the kind of file cannot say what the model is. */
int sl_publish_check(const struct sl_publishing *publishing, struct sl_error *error);
/* The number by which the rates of all rotations are divided, beside Llama 3's rule; 0: they differ. */
double sl_publish_divisor(const struct sl_publishing *publishing);
/* The model's config.json, which the caller frees; NULL without memory. */
json_t *sl_publish_config(const struct sl_publishing *publishing);

/* Writes model.safetensors, or its shards and their index, and config.json last, into the folder TO. SL_FAILED if the
 * file system fails: the file under way is removed. */
int sl_publish_folder(const struct sl_publishing *publishing, const char *to, struct sl_error *error);
/* Writes the file TO whole, or not at all. */
int sl_publish_gguf(const struct sl_publishing *publishing, const char *to, struct sl_error *error);

SL_END_C
#endif
