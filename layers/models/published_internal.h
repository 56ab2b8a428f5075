/* published_internal.h - what the files of published models share: published_names.c has the families and how they call
 * their tensors, published_sizes.c reads what files say of sizes, published_rotary.c of rotations, published_keys.c
 * looks at all other keys, published.c reads the values. */
#ifndef SL_LAYERS_MODELS_PUBLISHED_INTERNAL_H
#define SL_LAYERS_MODELS_PUBLISHED_INTERNAL_H

#include "layers/models/published.h"

/* Of a parameter, its tensor in the two kinds of files. */
struct sl_published_name {
    const char *own, *folder, *gguf;
    /* How it lies there: as parameters do, or its kernel [out, in]. The rows of GGUF files' q and k may have another
     * order. */
    enum sl_lie { SL_LIES_STRAIGHT, SL_LIES_TURNED, SL_LIES_TURNED_IN_GGUF, SL_LIES_IN_HEADS } lie;
    int part; /* of three that the tensor has side by side, counted from 1; 0: all of it is the parameter */
};

struct sl_published_family {
    const char *name, *architecture; /* "llama", "LlamaForCausalLM" */
    struct sl_transformer model;     /* what all of the family have in common; its window is the longest one */
    bool turned_rows;                /* of q and k, in GGUF files: adjacent columns of a head turn together */
    bool ties;                       /* the head is the token table, where config.json does not say it */
    bool attention_bias, mlp_bias;   /* flags that config.json may have: products that have biases in this model */
    /* Lists end with a NULL. A layer's names follow "blocks.N.layers.0.", the prefix and the number, and "blk.N.". */
    const struct sl_published_name *ends, *layers;
    const char *prefix; /* of a folder's layers: "model.layers" */
    const char *const
        *others; /* pairs: what other families call a key of config.json or of a GGUF file, and this one */
};

/* NULL: there is none of that name. */
const struct sl_published_family *sl_published_find_family(const char *name);
/* What it calls NAME, which is most families' key. */
const char *sl_published_key(const struct sl_published_family *family, const char *name);
/* Whether config.json of the family, or a GGUF file, can say that products have BIASES (enum sl_biases). */
bool sl_published_has_biases(const struct sl_published_family *family, int biases, bool gguf);
/* All of them; one without a name is behind the last. */
const struct sl_published_family *sl_published_family_list(void);
/* What a folder or a GGUF file calls the tensor of NAME: LAYER's, or one of the ends. */
void sl_published_tensor_name(const struct sl_published_family *family, const struct sl_published_name *name, bool gguf,
                              int layer, char text[128]);
/* The names of all, with commas between them. */
const char *sl_published_families(char text[128]);

/* NULL: there is none. Folders may leave out what names begin with, "transformer.". */
const struct sl_weight *sl_published_tensor(const struct sl_published *published, const char *name);

/* Fills in all but the weights. */
int sl_read_published_sizes(struct sl_published *published, struct sl_error *error);

/* ---- how files are asked ---- */

struct sl_published_reading {
    struct sl_published *published;
    const char *architecture; /* a GGUF file's; NULL: there is a config.json */
    const struct sl_published_family *family;
    struct sl_error *error;
};

/* The value of "ARCHITECTURE.KEY" in a GGUF file; NULL: there is none. */
const struct sl_gguf_value *sl_published_gguf(const struct sl_published_reading *reading, const char *key);
/* *SIZE from 1 to MOST, by its names in the two kinds of files; FALLBACK (0: there must be one) where there is none. A
 * NAME of NULL: only GGUF files have it. A GGUF file may list an equal number for each layer. */
int sl_published_size(const struct sl_published_reading *reading, const char *name, const char *gguf, int64_t most,
                      int fallback, int *size);
/* *REAL above 0: NAME of OBJECT, or GGUF of a GGUF file (NULL: no such file has it); FALLBACK (0: there must be one)
 * where there is none. */
int sl_published_real(const struct sl_published_reading *reading, const json_t *object, const char *name,
                      const char *gguf, double fallback, double *real);
/* TEXT of a GGUF file; where there is none it stays as it is. */
int sl_published_text(const struct sl_published_reading *reading, const char *key, char text[32]);
/* *FLAG of config.json; FALLBACK where there is none. */
int sl_published_flag(const struct sl_published_reading *reading, const char *key, bool fallback, bool *flag);
/* SL_BAD_INPUT: KEY is VALUE, which is not supported. */
int sl_published_refuse(const struct sl_published_reading *reading, const char *key, const char *value);

/* SL_BAD_INPUT if a key says that the model is another one than these sizes tell. */
int sl_published_check_config(const struct sl_published_reading *reading);
int sl_published_check_gguf(const struct sl_published_reading *reading);
/* After the sizes. Divisors are the published model's. */
int sl_read_published_rotary(const struct sl_published_reading *reading, struct sl_rotary *rotary);
/* The tensor of a GGUF file that has what rates of rotations are divided by. */
extern const char sl_published_divisors[]; /* "rope_freqs.weight" */

#endif
