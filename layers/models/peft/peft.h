/* peft.h - adapters of low rank as PEFT keeps them: a folder with adapter_config.json and adapter_model.safetensors,
 * beside the model that it is for.
 *
 * NAME.lora_A.weight [rank, in] and NAME.lora_B.weight [out, rank] are A and B of struct sl_lora turned around; NAME is
 * base_model.model. and the kernel's name in a folder of the family. Of GPT-2 q, k and v are one kernel there, and so
 * have one adapter: with the same A, or with one below the other. */
#ifndef SL_LAYERS_MODELS_PEFT_PEFT_H
#define SL_LAYERS_MODELS_PEFT_PEFT_H

#include "layers/models/published.h"
#include "layers/storage/store.h"

SL_BEGIN_C

struct sl_peft {
    int rank;
    double alpha;           /* the scale is alpha / rank */
    char *modules;          /* patterns of the layers that have adapters: "*.gqa.q,*.gqa.v" */
    struct sl_store values; /* NAME.lora_a.kernel [in, rank], NAME.lora_b.kernel [rank, out], float32 */
};

/* Reads FOLDER, adapters for a model of FAMILY with the sizes of TRANSFORMER. SL_BAD_INPUT names what is missing, or is
 * not supported: other kinds of adapters, other ranks of some layers, biases, whole modules. Free with sl_peft_free,
 * also after a failure. */
int sl_peft_read(struct sl_peft *peft, const char *folder, const struct sl_published_family *family,
                 const struct sl_transformer *transformer, struct sl_error *error);
void sl_peft_free(struct sl_peft *peft);

/* Writes the adapters of TRANSFORMER, whose values are in PEFT, into FOLDER, which is there; BASE: the path of the
 * model that they are for; NULL: nobody knows it. adapter_config.json is written last. SL_FAILED if the file system
 * fails. */
int sl_peft_write(const struct sl_peft *peft, const char *folder, const struct sl_published_family *family,
                  const struct sl_transformer *transformer, const char *base, struct sl_error *error);

SL_END_C
#endif
