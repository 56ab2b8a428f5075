/* peft.h - low-rank adapters in PEFT's format: a folder with adapter_config.json and adapter_model.safetensors,
 * separate from the model's files.
 *
 * NAME.lora_A.weight [rank, in] and NAME.lora_B.weight [out, rank] are A and B of struct sl_lora, transposed; NAME is
 * base_model.model. and the kernel's name in a folder of the family. In GPT-2, q, k and v are one kernel in such a
 * folder, and so have one adapter: with a shared A, or with three As below each other. */
#ifndef SL_LAYERS_MODELS_PEFT_PEFT_H
#define SL_LAYERS_MODELS_PEFT_PEFT_H

#include "layers/models/published/published.h"
#include "layers/formats/stores/store.h"

SL_BEGIN_C

struct sl_peft {
    int rank;
    double alpha;           /* the scale is alpha / rank */
    char *modules;          /* patterns of the layers with adapters: "*.gqa.q,*.gqa.v" */
    struct sl_store values; /* NAME.lora_a.kernel [in, rank], NAME.lora_b.kernel [rank, out], float32 */
};

/* Reads FOLDER, adapters for a model of FAMILY with the sizes of TRANSFORMER. SL_BAD_INPUT names a missing or
 * unsupported item: other kinds of adapters, different ranks of layers, biases, whole modules. Free with sl_peft_free,
 * also after a failure. */
int sl_peft_read(struct sl_peft *peft, const char *folder, const struct sl_published_family *family,
                 const struct sl_transformer *transformer, struct sl_error *error);
void sl_peft_free(struct sl_peft *peft);

/* Writes the adapters in PEFT, of a model like TRANSFORMER, to the existing FOLDER. BASE: path of the base model; NULL:
 * unknown. adapter_config.json is written last. SL_FAILED if the file system fails. */
int sl_peft_write(const struct sl_peft *peft, const char *folder, const struct sl_published_family *family,
                  const struct sl_transformer *transformer, const char *base, struct sl_error *error);

SL_END_C
#endif
