/* published.h - published models: reads their sizes from files, and their values as parameters of
 * layers/models/transformer.h.
 *
 * Supported are Llama, Mistral, Qwen 2 and Qwen 3 (dense), GPT-2, and models built like them, by model_type in Hugging
 * Face's config.json, or general.architecture in a GGUF file. Layer n becomes block n. */
#ifndef SL_LAYERS_MODELS_PUBLISHED_PUBLISHED_H
#define SL_LAYERS_MODELS_PUBLISHED_PUBLISHED_H

#include "layers/models/transformer.h"
#include "layers/formats/models/weights.h"

SL_BEGIN_C

/* Constant once it is open: threads may share it. */
struct sl_published {
    struct sl_weights weights;
    struct sl_transformer transformer; /* sizes and kinds of modules as in the files; all other fields are zero */
    int context;                       /* longest sequence of the model */
    const struct sl_published_family *family;
    float *divisors; /* memory of the transformer's rotary divisors; NULL: none */
};

/* The family's name: "llama". */
const char *sl_published_title(const struct sl_published_family *family);

/* Opens PATH, a string that must outlive it. SL_BAD_INPUT names an unsupported key of the file, or a tensor missing or
 * not matching the sizes. Free with sl_published_close, also after a failure. */
int sl_published_open(struct sl_published *published, const char *path, struct sl_error *error);
void sl_published_close(struct sl_published *published);

/* Callback for struct sl_block_source, with ARG a struct sl_published: keeps quantized kernels and tables in the GGUF
 * file if this coordinate's shard consists of whole blocks. */
void sl_published_find_blocks(const void *arg, const struct sl_shard *shard, struct sl_parameter *parameter);
/* Reads this coordinate's shards of the transformer's PARAMETERS, except blocks left in the file, and rounds them as
 * sl_parameters_round does. Collective over WORLD. */
int sl_published_load(const struct sl_published *published, struct sl_spmd *self, const struct sl_group *world,
                      struct sl_parameters *parameters);

SL_END_C
#endif
