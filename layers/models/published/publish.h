/* publish.h - the reverse of layers/models/published/published.h: a transformer's values, or gradients, as the tensors
 * of a published family, with the names and order of its files. */
#ifndef SL_LAYERS_MODELS_PUBLISHED_PUBLISH_H
#define SL_LAYERS_MODELS_PUBLISHED_PUBLISH_H

#include "layers/models/published/published.h"

SL_BEGIN_C

enum { SL_PUBLISHED_PARTS = 3 }; /* q, k and v, which may be one tensor */

struct sl_published_tensor {
    char name[128];
    int dims;
    size_t shape[2]; /* 1 beyond dims */
    const struct sl_published_name *about;
    const struct sl_tensor *part[SL_PUBLISHED_PARTS]; /* its parts; NULL beyond the last */
};

struct sl_publication {
    /* Set by the caller; they must outlive the publication. */
    const struct sl_published_family *family;
    const struct sl_transformer *transformer;
    const struct sl_store *values; /* whole float32 tensors by the parameters' names; others are ignored */
    bool gguf;                     /* tensors as in a GGUF file, not a folder */
    bool partial;                  /* leave out tensors if the values lack a part; otherwise this is an error */
    /* Set by sl_publication_open. */
    int count, capacity;
    struct sl_published_tensor *tensor;
};

/* The family of models like TRANSFORMER. NULL: there is none, and *WHY names a property of no family. */
const struct sl_published_family *sl_published_family_of(const struct sl_transformer *transformer, const char **why);

/* Lists the tensors. SL_BAD_INPUT names a parameter that is missing or has another shape. Free with
 * sl_publication_close, also after a failure. */
int sl_publication_open(struct sl_publication *publication, struct sl_error *error);
void sl_publication_close(struct sl_publication *publication);

/* Reads ROWS rows of tensor NUMBER from FIRST on into TO [rows, shape[1]]; a vector is one row. */
void sl_publication_read(const struct sl_publication *publication, int number, size_t first, size_t rows, float *to);

/* Bytes of TENSOR as TYPE; and encodes tensor NUMBER as TYPE into TO. SL_FAILED if memory is short. */
size_t sl_published_bytes(const struct sl_published_tensor *tensor, enum sl_weight_type type);
int sl_publication_encode(const struct sl_publication *publication, int number, enum sl_weight_type type, void *to,
                          struct sl_error *error);

/* Adds all tensors to STORE, as float32. SL_FAILED if memory is short. */
int sl_publication_copy(const struct sl_publication *publication, struct sl_store *store, struct sl_error *error);

SL_END_C
#endif
