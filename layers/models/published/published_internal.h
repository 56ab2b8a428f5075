/* published_internal.h - reading published models, shared by: published_names.c, families and tensor names;
 * published_keys.c, keys and their checks; published_rotary.c, rotations; published_sizes.c, sizes; published.c,
 * values. */
#ifndef SL_LAYERS_MODELS_PUBLISHED_PUBLISHED_INTERNAL_H
#define SL_LAYERS_MODELS_PUBLISHED_PUBLISHED_INTERNAL_H

#include "layers/models/published/published.h"

/* A parameter's name, and its tensor's names in the two kinds of files. */
struct sl_published_name {
    const char *own, *folder, *gguf;
    /* Layout in the file: as the parameter, or a kernel transposed, [out, in]. IN_HEADS: as TURNED, and GGUF files may
     * have the rows, those of q and k, in another order. */
    enum sl_lie { SL_LIES_STRAIGHT, SL_LIES_TURNED, SL_LIES_TURNED_IN_GGUF, SL_LIES_IN_HEADS } lie;
    int part; /* which of three parts side by side in the tensor, from 1; 0: the parameter is the whole tensor */
};

struct sl_published_family {
    const char *name, *architecture; /* "llama", "LlamaForCausalLM" */
    struct sl_transformer model;     /* properties of all models of the family; its window is the longest possible */
    bool turned_rows;                /* whether adjacent columns of heads of q and k rotate together in GGUF files */
    bool ties;                       /* whether the head is the token table if config.json does not say so */
    bool attention_bias, mlp_bias;   /* whether config.json may have these flags: products with biases in a model */
    /* Lists end with a NULL. A layer's names follow "blocks.N.layers.0.", the prefix and the number, and "blk.N.". */
    const struct sl_published_name *ends, *layers;
    const char *prefix;        /* prefix of a folder's layers: "model.layers" */
    const char *const *others; /* pairs: other families' key of config.json or a GGUF file, and this family's */
};

/* The family called NAME; NULL: there is none. */
const struct sl_published_family *sl_published_find_family(const char *name);
/* The family's key for NAME, the key of most families. */
const char *sl_published_key(const struct sl_published_family *family, const char *name);
/* Whether config.json of the family, or a GGUF file, can express BIASES (enum sl_biases). */
bool sl_published_has_biases(const struct sl_published_family *family, int biases, bool gguf);
/* List of all families; an entry without a name follows the last. */
const struct sl_published_family *sl_published_family_list(void);
/* Writes the name of NAME's tensor in a folder or a GGUF file to TEXT: LAYER's, or with LAYER -1 one outside the
 * layers. */
void sl_published_tensor_name(const struct sl_published_family *family, const struct sl_published_name *name, bool gguf,
                              int layer, char text[128]);
/* Names of all families, separated by commas. */
const char *sl_published_families(char text[128]);

/* The tensor called NAME; NULL: there is none. Folders may leave out a prefix, such as "transformer.". */
const struct sl_weight *sl_published_tensor(const struct sl_published *published, const char *name);

/* Sets all fields but the weights. */
int sl_read_published_sizes(struct sl_published *published, struct sl_error *error);

/* ---- reading keys ---- */

struct sl_published_reading {
    struct sl_published *published;
    const char *architecture; /* of a GGUF file; NULL: there is a config.json */
    const struct sl_published_family *family;
    struct sl_error *error;
};

static inline const char *sl_published_path(const struct sl_published_reading *r) { return r->published->weights.path; }
static inline const json_t *sl_published_config(const struct sl_published_reading *r) {
    return r->published->weights.config;
}

/* The family's key for NAME, the key of most families. */
static inline const char *sl_published_own_key(const struct sl_published_reading *r, const char *name) {
    return sl_published_key(r->family, name);
}

/* The value of "ARCHITECTURE.KEY" in a GGUF file; NULL: there is none. */
const struct sl_gguf_value *sl_published_gguf(const struct sl_published_reading *reading, const char *key);
/* Reads *SIZE, 1 to MOST, by its key in the two kinds of files. If the key is missing, FALLBACK; if FALLBACK is 0, that
 * is an error. NAME NULL: only GGUF files have it. A GGUF file may list an equal number for each layer. */
int sl_published_size(const struct sl_published_reading *reading, const char *name, const char *gguf, int64_t most,
                      int fallback, int *size);
/* Reads a number above 0 into *REAL: key NAME of OBJECT, or key GGUF of a GGUF file (NULL: these files have no such
 * key). If the key is missing, *REAL is FALLBACK; if FALLBACK is 0, a missing key is an error. */
int sl_published_real(const struct sl_published_reading *reading, const json_t *object, const char *name,
                      const char *gguf, double fallback, double *real);
/* Reads TEXT of a GGUF file; unchanged if the key is missing. */
int sl_published_text(const struct sl_published_reading *reading, const char *key, char text[32]);
/* Reads *FLAG of config.json; FALLBACK if it is missing. */
int sl_published_flag(const struct sl_published_reading *reading, const char *key, bool fallback, bool *flag);
/* Returns SL_BAD_INPUT with the error: KEY is VALUE, which is not supported. */
int sl_published_refuse(const struct sl_published_reading *reading, const char *key, const char *value);

/* SL_BAD_INPUT if a key describes another model than the sizes. */
int sl_published_check_config(const struct sl_published_reading *reading);
int sl_published_check_gguf(const struct sl_published_reading *reading);
/* Reads the rotations, after the sizes. Divisors belong to the published model. */
int sl_read_published_rotary(const struct sl_published_reading *reading, struct sl_rotary *rotary);
/* Tensor of a GGUF file with the divisors of rotation rates. */
extern const char sl_published_divisors[]; /* "rope_freqs.weight" */

#endif
