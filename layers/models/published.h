/* published.h - models that others have trained: what their files say of them, and their values as parameters of
 * layers/models/transformer.h.
 *
 * Known are Llama, Mistral, Qwen 2 and Qwen 3 (dense), GPT-2, and what is built like them: by model_type in config.json
 * of Hugging Face, or general.architecture in a GGUF file. Layer n becomes block n. */
#ifndef SL_LAYERS_MODELS_PUBLISHED_H
#define SL_LAYERS_MODELS_PUBLISHED_H

#include "layers/models/transformer.h"
#include "layers/storage/weights.h"

SL_BEGIN_C

/* Never changes once it is open: threads may share it. */
struct sl_published {
    struct sl_weights weights;
    struct sl_transformer transformer; /* what the files say: sizes and families; all else is zero */
    int context;                       /* the longest sequence that the model was made for */
    const struct sl_published_family *family;
    float *divisors; /* of the transformer's rotary; NULL: it has none */
};

/* Its name: "llama". */
const char *sl_published_title(const struct sl_published_family *family);

/* Opens PATH, which must last. SL_BAD_INPUT names what is not supported by its key in the file, or the tensor that is
 * missing or has another shape than these sizes say. Free with sl_published_close, also after a failure. */
int sl_published_open(struct sl_published *published, const char *path, struct sl_error *error);
void sl_published_close(struct sl_published *published);

/* For struct sl_block_source, with a struct sl_published: kernels and tables that a GGUF file has quantized stay in the
 * file, where this coordinate's shard has whole blocks of them. */
void sl_published_find_blocks(const void *arg, const struct sl_shard *shard, struct sl_parameter *parameter);
/* Fills PARAMETERS of the transformer, but for what stays in the file, this coordinate's shards alone, and rounds them
 * as sl_parameters_round does. Collective over WORLD. */
int sl_published_load(const struct sl_published *published, struct sl_spmd *self, const struct sl_group *world,
                      struct sl_parameters *parameters);

SL_END_C
#endif
