/* weights.c - lists the tensors of a published model in either kind of files, and reads their elements. The host is
 * little-endian, as the formats are. */
#include "layers/formats/models/weights.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "layers/formats/files/draft.h"
#include "layers/formats/quantized/quantized.h"
#include "layers/formats/stores/safetensors.h"
#include "spmd/base/memory.h"

/* ---- types ---- */

static const struct kind {
    uint32_t gguf;          /* GGML's number */
    size_t elements, bytes; /* of a block */
} plain[] = {[SL_WEIGHT_F32] = {0, 1, 4}, [SL_WEIGHT_F16] = {1, 1, 2}, [SL_WEIGHT_BF16] = {30, 1, 2}};

static const struct sl_quantized *quantized_of(enum sl_weight_type type) {
    return type < SL_WEIGHT_Q8_0 ? NULL : &sl_quantized_types[type - SL_WEIGHT_Q8_0];
}

static struct kind kind_of(enum sl_weight_type type) {
    const struct sl_quantized *q = quantized_of(type);
    return q ? (struct kind){q->number, q->elements, q->bytes} : plain[type];
}

/* Names of GGML's other types. */
static const char *const other_types[] = {
    [9] = "Q8_1",    [15] = "Q8_K",  [16] = "IQ2_XXS", [17] = "IQ2_XS", [18] = "IQ3_XXS", [19] = "IQ1_S",
    [20] = "IQ4_NL", [21] = "IQ3_S", [22] = "IQ2_S",   [23] = "IQ4_XS", [24] = "I8",      [25] = "I16",
    [26] = "I32",    [27] = "I64",   [28] = "F64",     [29] = "IQ1_M"};

/* ---- the list ---- */

static const char *name_at(const void *list, int place) { return ((const struct sl_weight *)list)[place].name; }

static int no_memory(const struct sl_weights *w, struct sl_error *error) {
    return sl_error_set(error, SL_FAILED, "%s: no memory for its tensors", w->path);
}

static int add(struct sl_weights *w, const struct sl_weight *weight, struct sl_error *error) {
    struct sl_weight *wider = sl_grow(w->weight, w->count, &w->capacity, 64, sizeof *wider);
    if (!wider) return no_memory(w, error);
    w->weight = wider;
    w->weight[w->count] = *weight;
    if (sl_names_find(&w->names, w->weight, name_at, weight->name) >= 0)
        return sl_error_set(error, SL_BAD_INPUT, "%s: tensor %s is there twice", w->path, weight->name);
    if (sl_names_add(&w->names, w->weight, name_at)) return no_memory(w, error);
    w->count++;
    return SL_OK;
}

const struct sl_weight *sl_weights_find(const struct sl_weights *w, const char *name) {
    const int place = sl_names_find(&w->names, w->weight, name_at, name);
    return place < 0 ? NULL : &w->weight[place];
}

/* ---- GGUF ---- */

struct extent {
    uint64_t begin, end;
    const struct sl_gguf_tensor *tensor;
};

static int by_place(const void *a, const void *b) {
    const struct extent *x = a, *y = b;
    return (x->begin > y->begin) - (x->begin < y->begin);
}

int sl_weight_check_type(const struct sl_weights *w, const struct sl_weight *weight, struct sl_error *error) {
    char known[120] = " and BF16";
    size_t used = 0;
    if (weight->type != SL_WEIGHT_OTHER) return SL_OK;
    if (!w->config) used = (size_t)snprintf(known, sizeof known, ", BF16");
    for (const struct sl_quantized *q = sl_quantized_types; !w->config && q->name; q++)
        used += (size_t)snprintf(known + used, sizeof known - used, "%s%s", q[1].name ? ", " : " and ", q->name);
    return sl_error_set(error, SL_BAD_INPUT, "%s: tensor %s: its type, %s, is not supported: F32, F16%s are", w->path,
                        weight->name, weight->other, known);
}

static void set_other_type(struct sl_weight *weight, uint32_t type) {
    const size_t known = sizeof other_types / sizeof *other_types;
    if (type < known && other_types[type])
        snprintf(weight->other, sizeof weight->other, "%s", other_types[type]);
    else
        snprintf(weight->other, sizeof weight->other, "%u", type);
}

/* Sets WEIGHT, except its data, and *BYTES. */
static int describe(const struct sl_weights *w, const struct sl_gguf_tensor *tensor, struct sl_weight *weight,
                    size_t *bytes, struct sl_error *error) {
    enum sl_weight_type type = SL_WEIGHT_F32;
    if (tensor->name.count >= sizeof weight->name || memchr(tensor->name.bytes, 0, tensor->name.count))
        return sl_error_set(error, SL_BAD_INPUT,
                            "%s: a tensor's name has %zu bytes, or a zero: at most %zu are allowed", w->path,
                            tensor->name.count, sizeof weight->name - 1);
    *weight = (struct sl_weight){.dims = tensor->dims};
    memcpy(weight->name, tensor->name.bytes, tensor->name.count);
    while (type < SL_WEIGHT_OTHER && kind_of(type).gguf != tensor->type) type++;
    weight->type = type;
    if (type == SL_WEIGHT_OTHER) set_other_type(weight, tensor->type);
    size_t elements = 1;
    for (int d = 0; d < SL_MAX_DIMS; d++) weight->shape[d] = 1;
    for (int d = 0; d < tensor->dims; d++) {
        const uint64_t size = tensor->shape[tensor->dims - 1 - d];
        weight->shape[d] = (size_t)size;
        if (__builtin_mul_overflow(elements, (size_t)size, &elements) || elements > (size_t)1 << 48)
            return sl_error_set(error, SL_BAD_INPUT, "%s: tensor %s is too large", w->path, weight->name);
    }
    if (type == SL_WEIGHT_OTHER) return SL_OK; /* its size is unknown */
    const struct kind kind = kind_of(type);
    if (tensor->dims == 0 || tensor->shape[0] % kind.elements)
        return sl_error_set(error, SL_BAD_INPUT, "%s: tensor %s: rows of %ju elements are no blocks of %zu", w->path,
                            weight->name, (uintmax_t)tensor->shape[0], kind.elements);
    *bytes = elements / kind.elements * kind.bytes;
    return SL_OK;
}

static int check_overlap(const struct sl_weights *w, const struct sl_gguf *gguf, struct extent *extent,
                         struct sl_error *error) {
    qsort(extent, (size_t)gguf->tensors, sizeof *extent, by_place);
    for (int i = 1; i < gguf->tensors; i++) {
        if (extent[i].begin >= extent[i - 1].end) continue;
        const struct sl_gguf_text *a = &extent[i - 1].tensor->name, *b = &extent[i].tensor->name;
        return sl_error_set(error, SL_BAD_INPUT, "%s: tensors %.*s and %.*s overlap", w->path, (int)a->count, a->bytes,
                            (int)b->count, b->bytes);
    }
    return SL_OK;
}

static int list_gguf(struct sl_weights *w, const struct sl_gguf *gguf, const struct sl_contents *contents,
                     struct extent *extent, struct sl_error *error) {
    for (int i = 0; i < gguf->tensors; i++) {
        const struct sl_gguf_tensor *tensor = &gguf->tensor[i];
        const size_t rest = sl_gguf_rest(gguf, contents, tensor);
        struct sl_weight weight;
        size_t bytes = 0;
        SL_TRY(describe(w, tensor, &weight, &bytes, error));
        if (bytes > rest)
            return sl_error_set(error, SL_BAD_INPUT, "%s: truncated: tensor %s has %zu bytes, and %zu are left",
                                w->path, weight.name, bytes, rest);
        if (weight.type != SL_WEIGHT_OTHER) weight.data = gguf->data + tensor->offset;
        extent[i] = (struct extent){tensor->offset, tensor->offset + bytes, tensor};
        SL_TRY(add(w, &weight, error));
    }
    return check_overlap(w, gguf, extent, error);
}

/* Adds one file, which may be a part. */
static int add_gguf(struct sl_weights *w, const char *path, struct sl_gguf *gguf, struct sl_contents *contents,
                    struct sl_error *error) {
    SL_TRY(sl_contents_open(contents, path, error));
    SL_TRY(sl_gguf_open(gguf, contents, path, error));
    SL_TRY(sl_gguf_list_tensors(gguf, contents, path, error));
    struct extent *extent = calloc((size_t)gguf->tensors + 1, sizeof *extent);
    const int status = extent ? list_gguf(w, gguf, contents, extent, error) : no_memory(w, error);
    free(extent);
    return status;
}

/* ---- parts of a GGUF file ---- */

static int64_t number_of(const struct sl_gguf *gguf, const char *key, int64_t fallback) {
    return sl_gguf_integer(sl_gguf_find(gguf, key), fallback);
}

/* Changes PATH, the name of the first part, to that of part NUMBER, from 0, of COUNT. False: it does not end like a
 * part's name. */
static bool name_part(char path[SL_MAX_PATH], int64_t number, int64_t count) {
    char end[32], first[32];
    const size_t length = strlen(path);
    snprintf(first, sizeof first, "-00001-of-%05d.gguf", (int)count);
    snprintf(end, sizeof end, "-%05d-of-%05d.gguf", (int)number + 1, (int)count);
    if (length < strlen(first) || strcmp(path + length - strlen(first), first) != 0) return false;
    memcpy(path + length - strlen(first), end, strlen(first));
    return true;
}

static int add_part(struct sl_weights *w, int64_t number, int64_t count, struct sl_error *error) {
    char path[SL_MAX_PATH];
    struct sl_weights_part *part = &w->part[w->parts++];
    if (snprintf(path, sizeof path, "%s", w->path) >= SL_MAX_PATH || !name_part(path, number, count))
        return sl_error_set(error, SL_BAD_INPUT,
                            "%s: the first of %jd parts, whose names must end with -00001-of-%05jd.gguf, and so on",
                            w->path, (intmax_t)count, (intmax_t)count);
    SL_TRY(add_gguf(w, path, &part->gguf, &part->contents, error));
    if (number_of(&part->gguf, "split.no", -1) == number && number_of(&part->gguf, "split.count", -1) == count)
        return SL_OK;
    return sl_error_set(error, SL_BAD_INPUT, "%s: split.no and split.count are not those of part %jd of %jd", path,
                        (intmax_t)number + 1, (intmax_t)count);
}

static int open_gguf(struct sl_weights *w, struct sl_error *error) {
    enum { MOST_PARTS = 1024 };
    SL_TRY(add_gguf(w, w->path, &w->gguf, &w->contents, error));
    const int64_t count = number_of(&w->gguf, "split.count", 0), number = number_of(&w->gguf, "split.no", 0);
    const int64_t tensors = number_of(&w->gguf, "split.tensors.count", -1);
    if (count <= 1) return SL_OK;
    if (count > MOST_PARTS || number != 0)
        return sl_error_set(error, SL_BAD_INPUT, "%s: part %jd of %jd: name the first one, of at most %d", w->path,
                            (intmax_t)number + 1, (intmax_t)count, MOST_PARTS);
    w->part = calloc((size_t)count, sizeof *w->part);
    if (!w->part) return no_memory(w, error);
    for (int64_t i = 1; i < count; i++) SL_TRY(add_part(w, i, count, error));
    if (tensors < 0 || tensors == w->count) return SL_OK;
    return sl_error_set(error, SL_BAD_INPUT, "%s: its parts have %d tensors, and split.tensors.count is %jd", w->path,
                        w->count, (intmax_t)tensors);
}

/* ---- a folder ---- */

/* Adds the tensors of one file. */
static int add_file(struct sl_weights *w, const char *path, struct sl_error *error) {
    struct sl_store *more = realloc(w->file, ((size_t)w->files + 1) * sizeof *more);
    if (!more) return no_memory(w, error);
    w->file = more;
    struct sl_store *store = &w->file[w->files++];
    *store = (struct sl_store){.lists_others = true};
    SL_TRY(sl_safetensors_map(store, path, error));
    for (int i = 0; i < store->count; i++) {
        const struct sl_tensor *tensor = &store->tensor[i];
        const enum sl_dtype dtype = tensor->array.dtype;
        struct sl_weight weight = {.dims = tensor->array.dims,
                                   .type = dtype == SL_F16    ? SL_WEIGHT_F16
                                           : dtype == SL_BF16 ? SL_WEIGHT_BF16
                                                              : SL_WEIGHT_F32,
                                   .data = tensor->array.data};
        if (dtype == SL_I32) {
            weight.type = SL_WEIGHT_OTHER;
            snprintf(weight.other, sizeof weight.other, "%s", sl_dtypes[dtype].label);
        }
        snprintf(weight.name, sizeof weight.name, "%s", tensor->name);
        for (int d = 0; d < SL_MAX_DIMS; d++) weight.shape[d] = d < weight.dims ? tensor->array.shape[d] : 1;
        SL_TRY(add(w, &weight, error));
    }
    for (int i = 0; i < store->others; i++) {
        struct sl_weight weight = {.type = SL_WEIGHT_OTHER, .shape = {1, 1, 1, 1}};
        snprintf(weight.name, sizeof weight.name, "%s", store->other[i].name);
        snprintf(weight.other, sizeof weight.other, "%s", store->other[i].type);
        SL_TRY(add(w, &weight, error));
    }
    return SL_OK;
}

static int read_json(const char *path, json_t **json, struct sl_error *error) {
    struct sl_contents contents = {0};
    json_error_t reason;
    SL_TRY(sl_contents_open(&contents, path, error));
    const size_t mark = sl_contents_mark(&contents);
    *json = contents.bytes ? json_loadb((const char *)contents.bytes + mark, contents.count - mark,
                                        JSON_REJECT_DUPLICATES, &reason)
                           : NULL;
    if (!contents.bytes) snprintf(reason.text, sizeof reason.text, "it is empty");
    sl_contents_close(&contents);
    if (json_is_object(*json)) return SL_OK;
    return sl_error_set(error, SL_BAD_INPUT, "%s: not a JSON object: %.80s", path,
                        *json ? "another value" : reason.text);
}

/* Whether the file is open. */
static bool is_open(const struct sl_weights *w, const char *path) {
    for (int i = 0; i < w->files; i++)
        if (!strcmp(w->file[i].path, path)) return true;
    return false;
}

static int add_shards(struct sl_weights *w, const char *path, const json_t *index, struct sl_error *error) {
    enum { MOST_SHARDS = 1024 };
    const json_t *map = json_object_get(index, "weight_map");
    const char *name;
    json_t *value;
    if (!json_is_object(map)) return sl_error_set(error, SL_BAD_INPUT, "%s: no weight_map", path);
    json_object_foreach((json_t *)(uintptr_t)map, name, value) {
        const char *file = json_string_value(value);
        if (!file || !*file || strchr(file, '/'))
            return sl_error_set(error, SL_BAD_INPUT, "%s: weight_map: the file of %.100s is none of the folder's", path,
                                name);
    }
    json_object_foreach((json_t *)(uintptr_t)map, name, value) {
        const char *file = json_string_value(value);
        char shard[SL_MAX_PATH];
        if (snprintf(shard, sizeof shard, "%s/%s", w->path, file) >= (int)sizeof shard)
            return sl_error_set(error, SL_BAD_INPUT, "%s: weight_map: a name is too long", path);
        if (is_open(w, shard)) continue;
        if (w->files == MOST_SHARDS)
            return sl_error_set(error, SL_BAD_INPUT, "%s: more than %d files", path, MOST_SHARDS);
        SL_TRY(add_file(w, shard, error));
    }
    json_object_foreach((json_t *)(uintptr_t)map, name, value) {
        if (!sl_weights_find(w, name))
            return sl_error_set(error, SL_BAD_INPUT, "%s: weight_map: %.100s is not in its file", path, name);
    }
    return SL_OK;
}

static bool has(const struct sl_weights *w, const char *name) {
    char path[SL_MAX_PATH];
    return snprintf(path, sizeof path, "%s/%s", w->path, name) < SL_MAX_PATH && !access(path, F_OK);
}

/* Refuses a folder with a model in another format only, or without a model. */
static int refuse_others(const struct sl_weights *w, struct sl_error *error) {
    static const char *const ours[] = {"model.safetensors", "model.safetensors.index.json"};
    static const char *const pickles[] = {"pytorch_model.bin", "pytorch_model.bin.index.json"};
    for (int i = 0; i < 2; i++)
        if (has(w, ours[i])) return SL_OK;
    for (int i = 0; i < 2; i++)
        if (has(w, pickles[i]))
            return sl_error_set(error, SL_BAD_INPUT,
                                "%s: it has the tensors as %s, a pickle, which is not read: save them as "
                                "model.safetensors",
                                w->path, pickles[i]);
    if (!has(w, "adapter_config.json")) return SL_OK;
    return sl_error_set(error, SL_BAD_INPUT, "%s: it has adapters of PEFT's alone, and no model", w->path);
}

static int open_folder(struct sl_weights *w, struct sl_error *error) {
    char config[SL_MAX_PATH], index[SL_MAX_PATH], single[SL_MAX_PATH];
    struct stat file;
    json_t *shards = NULL;
    if (snprintf(config, sizeof config, "%s/config.json", w->path) >= (int)sizeof config ||
        snprintf(index, sizeof index, "%s/model.safetensors.index.json", w->path) >= (int)sizeof index)
        return sl_error_set(error, SL_BAD_INPUT, "%.100s...: the name is too long", w->path);
    snprintf(single, sizeof single, "%s/model.safetensors", w->path);
    SL_TRY(refuse_others(w, error));
    SL_TRY(read_json(config, &w->config, error));
    if (stat(index, &file)) return add_file(w, single, error);
    int status = read_json(index, &shards, error);
    if (status == SL_OK) status = add_shards(w, index, shards, error);
    json_decref(shards);
    return status;
}

/* Refuses a file of a folder in place of the folder. */
static int refuse_part(const char *path, struct sl_error *error) {
    static const char *const ends[] = {".safetensors", ".json", ".bin"};
    const size_t count = strlen(path);
    for (int i = 0; i < 3; i++)
        if (count > strlen(ends[i]) && !strcmp(path + count - strlen(ends[i]), ends[i]))
            return sl_error_set(error, SL_BAD_INPUT,
                                "%s: neither a GGUF file nor a folder: name the folder that has this file and "
                                "config.json",
                                path);
    return SL_OK;
}

int sl_weights_open(struct sl_weights *w, const char *path, struct sl_error *error) {
    struct stat file;
    *w = (struct sl_weights){.path = path};
    if (!stat(path, &file) && S_ISREG(file.st_mode)) SL_TRY(refuse_part(path, error));
    return !stat(path, &file) && S_ISDIR(file.st_mode) ? open_folder(w, error) : open_gguf(w, error);
}

void sl_weights_close(struct sl_weights *w) {
    for (int i = 0; i < w->files; i++) sl_store_free(&w->file[i]);
    free(w->file);
    free(w->weight);
    sl_names_free(&w->names);
    json_decref(w->config);
    sl_gguf_close(&w->gguf);
    sl_contents_close(&w->contents);
    for (int i = 0; i < w->parts; i++) {
        sl_gguf_close(&w->part[i].gguf);
        sl_contents_close(&w->part[i].contents);
    }
    free(w->part);
    *w = (struct sl_weights){0};
}

static void relax(const struct sl_contents *contents) {
    if (contents->mapped) madvise(contents->bytes, contents->count, MADV_DONTNEED);
}

void sl_weights_relax(const struct sl_weights *w) {
    for (int i = 0; i < w->files; i++) sl_store_relax(&w->file[i]);
    relax(&w->contents);
    for (int i = 0; i < w->parts; i++) relax(&w->part[i].contents);
}

/* ---- elements ---- */

struct sl_blocks sl_weight_blocks(const struct sl_weight *weight) {
    const struct sl_quantized *type = weight->type == SL_WEIGHT_OTHER ? NULL : quantized_of(weight->type);
    if (!type || weight->dims != 2) return (struct sl_blocks){0};
    return (struct sl_blocks){.type = type,
                              .at = weight->data,
                              .stride = weight->shape[1] / type->elements * type->bytes,
                              .rows = weight->shape[0],
                              .columns = weight->shape[1]};
}

static void read_halves(bool bf16, const char *data, size_t count, float *to) {
    for (size_t i = 0; i < count; i++) {
        uint16_t half;
        memcpy(&half, data + i * sizeof half, sizeof half);
        to[i] = bf16 ? sl_float_of_bf16(half) : sl_float_of_f16(half);
    }
}

void sl_weight_read(const struct sl_weight *weight, size_t first, size_t count, float *to) {
    const char *data = weight->data;
    switch (weight->type) {
    case SL_WEIGHT_F32:
        memcpy(to, data + first * sizeof *to, count * sizeof *to);
        return;
    case SL_WEIGHT_F16:
    case SL_WEIGHT_BF16:
        read_halves(weight->type == SL_WEIGHT_BF16, data + first * sizeof(uint16_t), count, to);
        return;
    default:
        sl_quantized_read(quantized_of(weight->type), weight->data, first, count, to);
    }
}

/* ---- writing ---- */

size_t sl_weight_block(enum sl_weight_type type) { return kind_of(type).elements; }
size_t sl_weight_bytes(enum sl_weight_type type, size_t count) {
    return count / kind_of(type).elements * kind_of(type).bytes;
}
uint32_t sl_weight_gguf_type(enum sl_weight_type type) { return kind_of(type).gguf; }

enum { BLOCK = 32 };
struct q8_0 {
    uint16_t scale;
    int8_t value[BLOCK];
};

/* Writes a block; its largest magnitude becomes 127. */
static void write_q8_0(const float *from, char *to) {
    struct q8_0 block;
    float most = 0;
    for (int i = 0; i < BLOCK; i++) most = fabsf(from[i]) > most ? fabsf(from[i]) : most;
    const float scale = most / 127;
    block.scale = sl_f16_of_float(scale);
    for (int i = 0; i < BLOCK; i++) block.value[i] = (int8_t)(scale > 0 ? roundf(from[i] / scale) : 0);
    memcpy(to, &block, sizeof block);
}

void sl_weight_write(enum sl_weight_type type, const float *from, size_t count, void *to) {
    if (type == SL_WEIGHT_F32) memcpy(to, from, count * sizeof *from);
    for (size_t i = 0; (type == SL_WEIGHT_F16 || type == SL_WEIGHT_BF16) && i < count; i++) {
        const uint16_t half = type == SL_WEIGHT_F16 ? sl_f16_of_float(from[i]) : sl_bf16_of_float(from[i]);
        memcpy((char *)to + i * sizeof half, &half, sizeof half);
    }
    for (size_t i = 0; type == SL_WEIGHT_Q8_0 && i < count; i += BLOCK)
        write_q8_0(from + i, (char *)to + i / BLOCK * sizeof(struct q8_0));
}
