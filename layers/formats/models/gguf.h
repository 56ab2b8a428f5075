/* gguf.h - the metadata of a GGUF file, GGML's format for models, and the places of its tensors.
 *
 * Source: the specification of GGUF, versions 2 and 3 (docs/gguf.md of GGML). */
#ifndef SL_LAYERS_FORMATS_MODELS_GGUF_H
#define SL_LAYERS_FORMATS_MODELS_GGUF_H

#include "layers/formats/files/contents.h"

SL_BEGIN_C

enum sl_gguf_type {
    SL_GGUF_U8,
    SL_GGUF_I8,
    SL_GGUF_U16,
    SL_GGUF_I16,
    SL_GGUF_U32,
    SL_GGUF_I32,
    SL_GGUF_F32,
    SL_GGUF_BOOL,
    SL_GGUF_STRING,
    SL_GGUF_ARRAY,
    SL_GGUF_U64,
    SL_GGUF_I64,
    SL_GGUF_F64,
    SL_GGUF_TYPES
};

struct sl_gguf_text {
    const char *bytes; /* in the file, without a zero at the end */
    size_t count;
};

/* A value, or an array of values, in the file from FIRST on. */
struct sl_gguf_value {
    struct sl_gguf_text key;
    bool array;
    enum sl_gguf_type type; /* of an array: of its elements, which are not arrays */
    uint64_t count;         /* number of an array's elements; else 1 */
    const char *first;
};

/* A tensor as in the file: elements of the first dim are adjacent. TYPE is GGML's number. */
struct sl_gguf_tensor {
    struct sl_gguf_text name;
    int dims;
    uint64_t shape[4];
    uint32_t type;
    uint64_t offset; /* in bytes from the start of the data */
};

struct sl_gguf {
    int count, capacity;
    struct sl_gguf_value *value;
    uint64_t promised; /* number of tensors in the file's header */
    const char *end;   /* end of the metadata */
    /* Set by sl_gguf_list_tensors: */
    int tensors, tensor_capacity;
    struct sl_gguf_tensor *tensor;
    const char *data; /* start of the data */
};

/* Reads and checks all metadata of CONTENTS, which must outlive GGUF; reading values then cannot fail. SL_BAD_INPUT if
 * they are malformed or cut short; PATH is for messages. Free with sl_gguf_close, also after a failure. */
int sl_gguf_open(struct sl_gguf *gguf, const struct sl_contents *contents, const char *path, struct sl_error *error);
void sl_gguf_close(struct sl_gguf *gguf);
/* Lists the tensors; call it after sl_gguf_open, with the same CONTENTS. SL_BAD_INPUT if the list is malformed or cut
 * short, or if a tensor begins beyond the file's end or not at a multiple of general.alignment. Lengths are not
 * checked, because they depend on the types. */
int sl_gguf_list_tensors(struct sl_gguf *gguf, const struct sl_contents *contents, const char *path,
                         struct sl_error *error);
/* Bytes from TENSOR's start to the end of CONTENTS. */
size_t sl_gguf_rest(const struct sl_gguf *gguf, const struct sl_contents *contents,
                    const struct sl_gguf_tensor *tensor);

/* The value with KEY; NULL: there is none. */
const struct sl_gguf_value *sl_gguf_find(const struct sl_gguf *gguf, const char *key);
/* Whether TYPE is an integer type or bool. */
bool sl_gguf_is_integer(enum sl_gguf_type type);
/* The number of an integer or bool value; FALLBACK if VALUE is NULL, an array, of another type, or beyond int64_t. */
int64_t sl_gguf_integer(const struct sl_gguf_value *value, int64_t fallback);

/* The number of a floating-point value; FALLBACK for all others. */
double sl_gguf_real(const struct sl_gguf_value *value, double fallback);

/* Walks an array of numbers or texts. */
struct sl_gguf_cursor {
    const struct sl_gguf_value *value;
    const char *at;
};
struct sl_gguf_cursor sl_gguf_begin(const struct sl_gguf_value *value);
/* The next element of an array of SL_GGUF_STRING. */
struct sl_gguf_text sl_gguf_next_text(struct sl_gguf_cursor *cursor);
/* The next element of an array of SL_GGUF_F32. */
float sl_gguf_next_float(struct sl_gguf_cursor *cursor);
/* The next element of an array of integers. */
int64_t sl_gguf_next_integer(struct sl_gguf_cursor *cursor);

SL_END_C
#endif
