/* publish.c - lists a family's tensors, and reads their rows from parameters. */
#include "layers/models/published/publish.h"

#include <stdlib.h>
#include <string.h>

#include "layers/models/published/published_internal.h"
#include "spmd/base/memory.h"

enum { PARTS = SL_PUBLISHED_PARTS };

/* ---- the family ---- */

/* Whether FAMILY describes T, biases excluded. */
static bool agrees(const struct sl_transformer *family, const struct sl_transformer *t) {
    return family->mlp == t->mlp && family->norm == t->norm && family->head_norms == t->head_norms &&
           family->window >= t->window && !family->rope == !t->rope && !family->rope == !!t->learned_positions;
}

const struct sl_published_family *sl_published_family_of(const struct sl_transformer *t, const char **why) {
    struct sl_transformer like = *t;
    *why = t->attention != SL_ATTENTION_GROUPED ? "latent attention"
           : t->experts                         ? "experts"
           : t->layers_per_block > 1            ? "blocks of several layers"
           : t->rope && t->rotary.pairs         ? "rotations of adjacent columns"
                                                : NULL;
    if (*why) return NULL;
    if (like.mlp == SL_MLP_ERF_GELU) like.mlp = SL_MLP_GELU; /* config.json says which of the two */
    *why = "this choice of MLP, norm, biases, window and positions";
    for (const struct sl_published_family *family = sl_published_family_list(); family->name; family++)
        if (agrees(&family->model, &like) && sl_published_has_biases(family, t->biases, false)) return family;
    return NULL;
}

/* ---- the list ---- */

/* Whether the tensor of ABOUT, for a parameter of DIMS dims, is transposed. */
static bool is_turned(const struct sl_publication *p, const struct sl_published_name *about, int dims) {
    if (dims != 2 || about->lie == SL_LIES_STRAIGHT) return false;
    return about->lie != SL_LIES_TURNED_IN_GGUF || p->gguf;
}

static int add(struct sl_publication *p, const struct sl_published_name *about, const char *name,
               const struct sl_tensor *from, struct sl_error *error) {
    struct sl_published_tensor *more = sl_grow(p->tensor, p->count, &p->capacity, 64, sizeof *more), *tensor;
    const struct sl_array *array = &from->array;
    if (!more) return sl_error_set(error, SL_FAILED, "no memory for a list of tensors");
    p->tensor = more;
    tensor = &p->tensor[p->count++];
    *tensor = (struct sl_published_tensor){.dims = array->dims, .about = about, .part = {from}};
    snprintf(tensor->name, sizeof tensor->name, "%s", name);
    const bool turned = is_turned(p, about, array->dims);
    const size_t rows = array->shape[0], columns = array->dims == 2 ? array->shape[1] : 1;
    tensor->shape[0] = turned ? columns : rows;
    tensor->shape[1] = turned ? rows : columns;
    const int grows = array->dims == 2 && !turned; /* the dim along which parts lie */
    tensor->shape[grows] *= about->part ? PARTS : 1;
    return SL_OK;
}

/* Lists a parameter OWN if the values have it: as a tensor of its own, or as a part of the last one. */
static int list_one(struct sl_publication *p, const char *own, const char *name, const struct sl_published_name *about,
                    struct sl_error *error) {
    const struct sl_tensor *from = sl_store_find(p->values, own);
    if (!from) return SL_OK;
    if (from->array.dtype != SL_F32 || from->array.dims < 1 || from->array.dims > 2)
        return sl_error_set(error, SL_BAD_INPUT, "%s is no matrix of float32", own);
    if (about->part < 2) return add(p, about, name, from, error);
    struct sl_published_tensor *last = p->count ? &p->tensor[p->count - 1] : NULL;
    const struct sl_array *first = last ? &last->part[0]->array : NULL;
    const bool beside = last && !strcmp(last->name, name);
    if (!beside && p->partial) return SL_OK;
    if (!beside || first->dims != from->array.dims ||
        memcmp(first->shape, from->array.shape, (size_t)first->dims * sizeof *first->shape) != 0)
        return sl_error_set(error, SL_BAD_INPUT, "%s has another shape than what stands beside it", own);
    last->part[about->part - 1] = from;
    return SL_OK;
}

static int list_layer(struct sl_publication *p, int layer, struct sl_error *error) {
    char own[128], name[128];
    for (const struct sl_published_name *about = p->family->layers; about->own; about++) {
        snprintf(own, sizeof own, "blocks.%d.layers.0.%s", layer, about->own);
        sl_published_tensor_name(p->family, about, p->gguf, layer, name);
        SL_TRY(list_one(p, own, name, about, error));
    }
    return SL_OK;
}

static int list_end(struct sl_publication *p, const struct sl_published_name *about, struct sl_error *error) {
    char name[128];
    sl_published_tensor_name(p->family, about, p->gguf, -1, name);
    return list_one(p, about->own, name, about, error);
}

static bool is_whole(const struct sl_published_tensor *tensor) {
    for (int part = 0; tensor->about->part && part < PARTS; part++)
        if (!tensor->part[part]) return false;
    return true;
}

static int keep_whole(struct sl_publication *p, struct sl_error *error) {
    int kept = 0;
    for (int i = 0; i < p->count; i++) {
        if (is_whole(&p->tensor[i]))
            p->tensor[kept++] = p->tensor[i];
        else if (!p->partial)
            return sl_error_set(error, SL_BAD_INPUT, "a part of %s is missing", p->tensor[i].name);
    }
    p->count = kept;
    return SL_OK;
}

/* Lists tables first, norm and head last. */
int sl_publication_open(struct sl_publication *p, struct sl_error *error) {
    const struct sl_published_name *ends = p->family->ends;
    p->count = p->capacity = 0;
    p->tensor = NULL;
    SL_TRY(list_end(p, ends++, error));
    for (int layer = 0; layer < p->transformer->blocks; layer++) SL_TRY(list_layer(p, layer, error));
    for (; ends->own; ends++) SL_TRY(list_end(p, ends, error));
    return keep_whole(p, error);
}

void sl_publication_close(struct sl_publication *p) {
    free(p->tensor);
    p->tensor = NULL;
    p->count = p->capacity = 0;
}

/* ---- values ---- */

/* Own column for the file's column I, within a head. */
static size_t own_column(const struct sl_publication *p, const struct sl_published_name *about, size_t i) {
    const struct sl_transformer *t = p->transformer;
    const size_t width = (size_t)sl_transformer_head_width(t), at = i % width;
    if (!p->gguf || !p->family->turned_rows || about->lie != SL_LIES_IN_HEADS) return i;
    return i - at + at % 2 * (width / 2) + at / 2;
}

/* Reads columns of parameters as rows: several at a time, because columns lie side by side. */
static void read_turned(const struct sl_publication *p, const struct sl_published_tensor *tensor, size_t first,
                        size_t rows, float *to) {
    enum { ABREAST = 16 };
    const struct sl_array *array = &tensor->part[0]->array;
    const size_t depth = array->shape[0], columns = array->shape[1];
    for (size_t r = 0, some; r < rows; r += some) {
        const float *column[ABREAST];
        some = rows - r < ABREAST ? rows - r : ABREAST;
        for (size_t i = 0; i < some; i++) {
            const size_t row = first + r + i;
            const float *values = tensor->part[row / columns]->array.data;
            column[i] = values + own_column(p, tensor->about, row % columns);
        }
        for (size_t k = 0; k < depth; k++)
            for (size_t i = 0; i < some; i++) to[(r + i) * depth + k] = column[i][k * columns];
    }
}

/* Reads rows of parameters side by side; a vector is one row. */
static void read_straight(const struct sl_publication *p, const struct sl_published_tensor *tensor, size_t first,
                          size_t rows, float *to) {
    const struct sl_array *array = &tensor->part[0]->array;
    const size_t columns = array->shape[array->dims - 1];
    for (size_t r = first; r < first + rows; r++) {
        for (int part = 0; part < PARTS && tensor->part[part]; part++, to += columns) {
            const float *from = (const float *)tensor->part[part]->array.data + r * columns;
            for (size_t c = 0; c < columns; c++) to[c] = from[array->dims == 1 ? own_column(p, tensor->about, c) : c];
        }
    }
}

/* Holds the whole tensor in memory if it is in parts of a checkpoint; otherwise each row would be searched for. */
static int hold(const struct sl_publication *p, int number, struct sl_error *error) {
    for (int part = 0; part < PARTS && p->tensor[number].part[part]; part++) {
        struct sl_tensor *tensor = (struct sl_tensor *)(uintptr_t)p->tensor[number].part[part]; /* the values own it */
        if (sl_tensor_hold(tensor)) return sl_error_set(error, SL_FAILED, "no memory for tensor %s", tensor->name);
    }
    return SL_OK;
}

static void let_go(const struct sl_publication *p, int number) {
    for (int part = 0; part < PARTS && p->tensor[number].part[part]; part++)
        sl_tensor_let_go((struct sl_tensor *)(uintptr_t)p->tensor[number].part[part]);
}

void sl_publication_read(const struct sl_publication *p, int number, size_t first, size_t rows, float *to) {
    const struct sl_published_tensor *tensor = &p->tensor[number];
    if (is_turned(p, tensor->about, tensor->dims))
        read_turned(p, tensor, first, rows, to);
    else
        read_straight(p, tensor, first, rows, to);
}

size_t sl_published_bytes(const struct sl_published_tensor *tensor, enum sl_weight_type type) {
    return sl_weight_bytes(type, tensor->shape[0] * tensor->shape[1]);
}

/* Encodes some rows at a time; a vector is one row. */
int sl_publication_encode(const struct sl_publication *p, int number, enum sl_weight_type type, void *to,
                          struct sl_error *error) {
    enum { FLOATS = 1 << 18 };
    const struct sl_published_tensor *tensor = &p->tensor[number];
    const size_t rows = tensor->dims == 1 ? 1 : tensor->shape[0];
    const size_t columns = tensor->dims == 1 ? tensor->shape[0] : tensor->shape[1];
    const size_t abreast = columns < FLOATS ? FLOATS / columns : 1;
    float *values = malloc(abreast * columns * sizeof *values);
    int status =
        values ? hold(p, number, error) : sl_error_set(error, SL_FAILED, "no memory for tensor %s", tensor->name);
    for (size_t r = 0, some; r < rows && status == SL_OK; r += some) {
        some = rows - r < abreast ? rows - r : abreast;
        sl_publication_read(p, number, r, some, values);
        sl_weight_write(type, values, some * columns, (char *)to + sl_weight_bytes(type, r * columns));
    }
    let_go(p, number);
    free(values);
    return status;
}

int sl_publication_copy(const struct sl_publication *p, struct sl_store *store, struct sl_error *error) {
    for (int i = 0; i < p->count; i++) {
        const struct sl_published_tensor *from = &p->tensor[i];
        const struct sl_tensor *to = sl_store_add(store, from->name, SL_F32, from->dims, from->shape);
        if (!to) return sl_error_set(error, SL_FAILED, "no memory for tensor %s", from->name);
        SL_TRY(hold(p, i, error));
        sl_publication_read(p, i, 0, from->dims == 1 ? 1 : from->shape[0], to->array.data);
        let_go(p, i);
    }
    return SL_OK;
}
