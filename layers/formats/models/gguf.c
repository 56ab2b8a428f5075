/* gguf.c - reads a file's keys and values once, and finds them by key. The host is little-endian, as the format is. */
#include "layers/formats/models/gguf.h"

#include <stdlib.h>
#include <string.h>

#include "spmd/base/memory.h"

static const uint8_t width[SL_GGUF_TYPES] = {
    [SL_GGUF_U8] = 1,  [SL_GGUF_I8] = 1,   [SL_GGUF_U16] = 2, [SL_GGUF_I16] = 2, [SL_GGUF_U32] = 4, [SL_GGUF_I32] = 4,
    [SL_GGUF_F32] = 4, [SL_GGUF_BOOL] = 1, [SL_GGUF_U64] = 8, [SL_GGUF_I64] = 8, [SL_GGUF_F64] = 8};

/* ---- reading ---- */

struct reading {
    const char *at, *end;
};

static bool take(struct reading *r, void *value, size_t bytes) {
    if ((size_t)(r->end - r->at) < bytes) return false;
    memcpy(value, r->at, bytes);
    r->at += bytes;
    return true;
}

static bool take_text(struct reading *r, struct sl_gguf_text *text) {
    uint64_t count;
    if (!take(r, &count, sizeof count) || count > (uint64_t)(r->end - r->at)) return false;
    *text = (struct sl_gguf_text){r->at, (size_t)count};
    r->at += count;
    return true;
}

/* Skips COUNT elements of a type with a width, or texts. */
static bool pass(struct reading *r, enum sl_gguf_type type, uint64_t count) {
    if (type == SL_GGUF_STRING) {
        struct sl_gguf_text text;
        for (; count; count--)
            if (!take_text(r, &text)) return false;
        return true;
    }
    if (count > (uint64_t)(r->end - r->at) / width[type]) return false;
    r->at += count * width[type];
    return true;
}

static bool take_value(struct reading *r, struct sl_gguf_value *value) {
    uint32_t type;
    *value = (struct sl_gguf_value){.count = 1};
    if (!take_text(r, &value->key) || !take(r, &type, sizeof type)) return false;
    value->array = type == SL_GGUF_ARRAY;
    if (value->array && (!take(r, &type, sizeof type) || !take(r, &value->count, sizeof value->count))) return false;
    if (type >= SL_GGUF_TYPES || type == SL_GGUF_ARRAY) return false;
    value->type = (enum sl_gguf_type)type;
    value->first = r->at;
    return pass(r, value->type, value->count);
}

static int read_values(struct sl_gguf *gguf, struct reading *r, uint64_t values, const char *path,
                       struct sl_error *error) {
    enum { MOST = 1 << 20 };
    for (uint64_t i = 0; i < values; i++) {
        if (gguf->count == MOST)
            return sl_error_set(error, SL_BAD_INPUT, "%s: more than %d values in its metadata", path, MOST);
        struct sl_gguf_value *wider = sl_grow(gguf->value, gguf->count, &gguf->capacity, 64, sizeof *wider);
        if (!wider) return sl_error_set(error, SL_FAILED, "%s: no memory for its metadata", path);
        gguf->value = wider;
        if (!take_value(r, &gguf->value[gguf->count]))
            return sl_error_set(error, SL_BAD_INPUT, "%s: value %d of the metadata is malformed or truncated", path,
                                gguf->count);
        gguf->count++;
    }
    return SL_OK;
}

int sl_gguf_open(struct sl_gguf *gguf, const struct sl_contents *contents, const char *path, struct sl_error *error) {
    const char *bytes = contents->bytes; /* NULL if the file is empty */
    struct reading r = {bytes, bytes ? bytes + contents->count : NULL};
    char magic[4];
    uint32_t version;
    uint64_t tensors, values;
    *gguf = (struct sl_gguf){0};
    if (!take(&r, magic, sizeof magic) || memcmp(magic, "GGUF", 4) != 0)
        return sl_error_set(error, SL_BAD_INPUT, "%s: not a GGUF file", path);
    if (!take(&r, &version, sizeof version) || version < 2 || version > 3)
        return sl_error_set(error, SL_BAD_INPUT, "%s: a GGUF file of another version than 2 and 3", path);
    if (!take(&r, &tensors, sizeof tensors) || !take(&r, &values, sizeof values))
        return sl_error_set(error, SL_BAD_INPUT, "%s: a truncated GGUF file", path);
    gguf->promised = tensors;
    SL_TRY(read_values(gguf, &r, values, path, error));
    gguf->end = r.at;
    return SL_OK;
}

void sl_gguf_close(struct sl_gguf *gguf) {
    free(gguf->value);
    free(gguf->tensor);
    *gguf = (struct sl_gguf){0};
}

/* ---- tensors ---- */

static bool take_tensor(struct reading *r, struct sl_gguf_tensor *tensor) {
    uint32_t dims;
    *tensor = (struct sl_gguf_tensor){.shape = {1, 1, 1, 1}};
    if (!take_text(r, &tensor->name) || !take(r, &dims, sizeof dims) || dims > 4) return false;
    tensor->dims = (int)dims;
    for (uint32_t d = 0; d < dims; d++)
        if (!take(r, &tensor->shape[d], sizeof tensor->shape[d])) return false;
    return take(r, &tensor->type, sizeof tensor->type) && take(r, &tensor->offset, sizeof tensor->offset);
}

static int read_list(struct sl_gguf *gguf, struct reading *r, const char *path, struct sl_error *error) {
    enum { MOST = 1 << 20 };
    for (uint64_t i = 0; i < gguf->promised; i++) {
        if (gguf->tensors == MOST)
            return sl_error_set(error, SL_BAD_INPUT, "%s: more than %d tensors in its list", path, MOST);
        struct sl_gguf_tensor *wider = sl_grow(gguf->tensor, gguf->tensors, &gguf->tensor_capacity, 64, sizeof *wider);
        if (!wider) return sl_error_set(error, SL_FAILED, "%s: no memory for its list of tensors", path);
        gguf->tensor = wider;
        if (!take_tensor(r, &gguf->tensor[gguf->tensors]))
            return sl_error_set(error, SL_BAD_INPUT, "%s: number %d in the list of tensors is malformed or truncated",
                                path, gguf->tensors);
        gguf->tensors++;
    }
    return SL_OK;
}

int sl_gguf_list_tensors(struct sl_gguf *gguf, const struct sl_contents *contents, const char *path,
                         struct sl_error *error) {
    const char *first = contents->bytes, *end = first + contents->count;
    const int64_t alignment = sl_gguf_integer(sl_gguf_find(gguf, "general.alignment"), 32);
    struct reading r = {gguf->end, end};
    if (alignment < 1 || alignment > 1 << 20)
        return sl_error_set(error, SL_BAD_INPUT, "%s: general.alignment is %jd", path, (intmax_t)alignment);
    SL_TRY(read_list(gguf, &r, path, error));
    const size_t start = ((size_t)(r.at - first) + (size_t)alignment - 1) / (size_t)alignment * (size_t)alignment;
    if (start > contents->count && gguf->tensors)
        return sl_error_set(error, SL_BAD_INPUT, "%s: truncated: it ends before its tensors", path);
    gguf->data = first + (start < contents->count ? start : contents->count);
    for (int i = 0; i < gguf->tensors; i++) {
        const struct sl_gguf_tensor *tensor = &gguf->tensor[i];
        if (tensor->offset <= (uint64_t)(end - gguf->data) && tensor->offset % (uint64_t)alignment == 0) continue;
        return sl_error_set(error, SL_BAD_INPUT, "%s: tensor %.*s begins at byte %ju of the data, %s", path,
                            (int)(tensor->name.count < 100 ? tensor->name.count : 100), tensor->name.bytes,
                            (uintmax_t)tensor->offset,
                            tensor->offset % (uint64_t)alignment ? "which the alignment forbids" : "behind their end");
    }
    return SL_OK;
}

size_t sl_gguf_rest(const struct sl_gguf *gguf, const struct sl_contents *contents,
                    const struct sl_gguf_tensor *tensor) {
    return (size_t)((const char *)contents->bytes + contents->count - gguf->data) - (size_t)tensor->offset;
}

/* ---- values ---- */

const struct sl_gguf_value *sl_gguf_find(const struct sl_gguf *gguf, const char *key) {
    const size_t count = strlen(key);
    for (int i = 0; i < gguf->count; i++)
        if (gguf->value[i].key.count == count && !memcmp(gguf->value[i].key.bytes, key, count)) return &gguf->value[i];
    return NULL;
}

bool sl_gguf_is_integer(enum sl_gguf_type type) { return width[type] && type != SL_GGUF_F32 && type != SL_GGUF_F64; }

static int64_t integer_at(enum sl_gguf_type type, const char *at) {
    uint64_t value = 0;
    memcpy(&value, at, width[type]);
    switch (type) {
    case SL_GGUF_I8:
        return (int8_t)value;
    case SL_GGUF_I16:
        return (int16_t)value;
    case SL_GGUF_I32:
        return (int32_t)value;
    default:
        return (int64_t)value;
    }
}

int64_t sl_gguf_integer(const struct sl_gguf_value *value, int64_t fallback) {
    if (!value || value->array || !sl_gguf_is_integer(value->type)) return fallback;
    const int64_t integer = integer_at(value->type, value->first);
    return value->type == SL_GGUF_U64 && integer < 0 ? fallback : integer;
}

double sl_gguf_real(const struct sl_gguf_value *value, double fallback) {
    float single;
    double real;
    if (!value || value->array || (value->type != SL_GGUF_F32 && value->type != SL_GGUF_F64)) return fallback;
    memcpy(&single, value->first, sizeof single);
    if (value->type == SL_GGUF_F32) return single;
    memcpy(&real, value->first, sizeof real);
    return real;
}

struct sl_gguf_cursor sl_gguf_begin(const struct sl_gguf_value *value) {
    return (struct sl_gguf_cursor){value, value->first};
}

struct sl_gguf_text sl_gguf_next_text(struct sl_gguf_cursor *cursor) {
    uint64_t count;
    memcpy(&count, cursor->at, sizeof count);
    const struct sl_gguf_text text = {cursor->at + sizeof count, (size_t)count};
    cursor->at = text.bytes + text.count;
    return text;
}

float sl_gguf_next_float(struct sl_gguf_cursor *cursor) {
    float value;
    memcpy(&value, cursor->at, sizeof value);
    cursor->at += sizeof value;
    return value;
}

int64_t sl_gguf_next_integer(struct sl_gguf_cursor *cursor) {
    const int64_t value = integer_at(cursor->value->type, cursor->at);
    cursor->at += width[cursor->value->type];
    return value;
}
