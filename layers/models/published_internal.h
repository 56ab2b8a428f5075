/* published_internal.h - what the files of published models share: published_names.c has the families and how they call
 * their tensors, published_sizes.c reads what files say of sizes, published.c the values. */
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

#endif
