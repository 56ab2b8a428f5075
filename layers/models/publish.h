/* publish.h - the way back from layers/models/published.h: a transformer's values, or gradients, as the tensors of a
 * published family, under the names and in the order that its files have. */
#ifndef SL_LAYERS_MODELS_PUBLISH_H
#define SL_LAYERS_MODELS_PUBLISH_H

#include "layers/models/published.h"

SL_BEGIN_C

enum { SL_PUBLISHED_PARTS = 3 }; /* q, k and v, which may be one tensor */

struct sl_published_tensor {
    char name[128];
    int dims;
    size_t shape[2]; /* 1 beyond the dims */
    const struct sl_published_name *about;
    const struct sl_tensor *part[SL_PUBLISHED_PARTS]; /* what it is made of; NULL beyond that */
};

struct sl_publication {
    /* Given; they must last. */
    const struct sl_published_family *family;
    const struct sl_transformer *transformer;
    const struct sl_store *values; /* whole float32 tensors by the parameters' names; others are left out */
    bool gguf;                     /* as a GGUF file has them, not a folder */
    bool partial; /* tensors of which the values lack a part are left out; otherwise they are an error */
    /* Filled in. */
    int count, capacity;
    struct sl_published_tensor *tensor;
};

/* The family of which TRANSFORMER is one. NULL: there is none, and *WHY says what none of them has. */
const struct sl_published_family *sl_published_family_of(const struct sl_transformer *transformer, const char **why);

/* Lists the tensors. SL_BAD_INPUT names a parameter that is missing or has another shape. Free with
 * sl_publication_close, also after a failure. */
int sl_publication_open(struct sl_publication *publication, struct sl_error *error);
void sl_publication_close(struct sl_publication *publication);

/* TO [rows, shape[1]]: those of tensor NUMBER from row FIRST on; a vector is a row. */
void sl_publication_read(const struct sl_publication *publication, int number, size_t first, size_t rows, float *to);

/* Bytes of TENSOR as TYPE; and TO = these of tensor NUMBER. SL_FAILED if there is no memory. */
size_t sl_published_bytes(const struct sl_published_tensor *tensor, enum sl_weight_type type);
int sl_publication_encode(const struct sl_publication *publication, int number, enum sl_weight_type type, void *to,
                          struct sl_error *error);

/* Adds all tensors to STORE, as float32. SL_FAILED if there is no memory. */
int sl_publication_copy(const struct sl_publication *publication, struct sl_store *store, struct sl_error *error);

SL_END_C
#endif
