/* gguf.h - the metadata of a GGUF file, and where its tensors lie: what GGML's programs keep a model in.
 *
 * Source: the specification of GGUF, versions 2 and 3 (docs/gguf.md of GGML). */
#ifndef SL_LAYERS_STORAGE_GGUF_H
#define SL_LAYERS_STORAGE_GGUF_H

#include "layers/storage/contents.h"

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

/* A value, or an array of values, which lie in the file from FIRST on. */
struct sl_gguf_value {
    struct sl_gguf_text key;
    bool array;
    enum sl_gguf_type type; /* of an array: of its elements, which are no arrays */
    uint64_t count;         /* of an array's elements; 1 otherwise */
    const char *first;
};

/* A tensor as the file has it: the first dim's elements lie side by side. TYPE is GGML's number. */
struct sl_gguf_tensor {
    struct sl_gguf_text name;
    int dims;
    uint64_t shape[4];
    uint32_t type;
    uint64_t offset; /* bytes from where the data begin */
};

struct sl_gguf {
    int count, capacity;
    struct sl_gguf_value *value;
    uint64_t promised; /* tensors, as the head of the file says */
    const char *end;   /* of the metadata */
    /* From sl_gguf_list_tensors on: */
    int tensors, tensor_capacity;
    struct sl_gguf_tensor *tensor;
    const char *data; /* where they begin */
};

/* Reads the metadata of CONTENTS, which must last as long as GGUF. All of it is checked, so that reading values cannot
 * fail. SL_BAD_INPUT where it is malformed or cut short; PATH is for messages. Free with sl_gguf_close, also after a
 * failure. */
int sl_gguf_open(struct sl_gguf *gguf, const struct sl_contents *contents, const char *path, struct sl_error *error);
void sl_gguf_close(struct sl_gguf *gguf);
/* Lists the tensors, after sl_gguf_open of the same CONTENTS. SL_BAD_INPUT where the list is malformed or cut short, or
 * a tensor begins beyond the file's end or not at a multiple of general.alignment; how long they are is not looked at,
 * as that depends on their types. */
int sl_gguf_list_tensors(struct sl_gguf *gguf, const struct sl_contents *contents, const char *path,
                         struct sl_error *error);
/* Bytes from TENSOR's first one to the end of CONTENTS. */
size_t sl_gguf_rest(const struct sl_gguf *gguf, const struct sl_contents *contents,
                    const struct sl_gguf_tensor *tensor);

/* NULL: no value has this key. */
const struct sl_gguf_value *sl_gguf_find(const struct sl_gguf *gguf, const char *key);
/* Whether TYPE is one of integers, or bool. */
bool sl_gguf_is_integer(enum sl_gguf_type type);
/* Of a value that is no array: the number of a type of integers or bool. FALLBACK where VALUE is NULL, of another type,
 * or beyond int64_t. */
int64_t sl_gguf_integer(const struct sl_gguf_value *value, int64_t fallback);

/* Of a value that is a floating-point number; FALLBACK for all others. */
double sl_gguf_real(const struct sl_gguf_value *value, double fallback);

/* Walks an array of numbers or texts. */
struct sl_gguf_cursor {
    const struct sl_gguf_value *value;
    const char *at;
};
struct sl_gguf_cursor sl_gguf_begin(const struct sl_gguf_value *value);
/* Of elements of SL_GGUF_STRING. */
struct sl_gguf_text sl_gguf_next_text(struct sl_gguf_cursor *cursor);
/* Of SL_GGUF_F32. */
float sl_gguf_next_float(struct sl_gguf_cursor *cursor);
/* Of integers. */
int64_t sl_gguf_next_integer(struct sl_gguf_cursor *cursor);

SL_END_C
#endif
