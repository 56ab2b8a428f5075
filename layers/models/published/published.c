/* published.c - the tensors of published models as parameters: their names and layouts.
 *
 * Kernels are [out, in] in most files, and [in, out] as parameters. q, k and v may be one tensor. GGUF files of Llama
 * have the rows of q and k in another order: row 2i + j of a head is row j * width / 2 + i of Hugging Face's. */
#include "layers/models/published/published.h"

#include <stdlib.h>
#include <string.h>

#include "layers/models/published/published_internal.h"
#include "spmd/device/device.h"

/* ---- names ---- */

enum { PARTS = 3 }; /* parts of a tensor with q, k and v */

static bool is_folder(const struct sl_published *p) { return p->weights.config; }

/* Finds the name of parameter OWN, and writes its tensor's name in the file to TEXT; NULL: there is no such
 * parameter. */
static const struct sl_published_name *find_name(const struct sl_published *p, const char *own, char text[128]) {
    const struct sl_published_name *names = p->family->ends;
    const char *rest = own;
    int layer = -1, used = 0;
    if (sscanf(own, "blocks.%d.layers.0.%n", &layer, &used) == 1 && used) names = p->family->layers, rest = own + used;
    for (; names->own && strcmp(names->own, rest) != 0; names++) {
    }
    if (!names->own) return NULL;
    sl_published_tensor_name(p->family, names, !is_folder(p), used ? layer : -1, text);
    return names;
}

/* ---- sizes ---- */

/* Whether the parameter of NAME with DIMS dims is [out, in] in the file. */
static bool is_turned(const struct sl_published *p, const struct sl_published_name *name, int dims) {
    if (dims != 2 || name->lie == SL_LIES_STRAIGHT) return false;
    return name->lie != SL_LIES_TURNED_IN_GGUF || !is_folder(p);
}

/* Finds the tensor of parameter OWN, whose own shape is SHAPE [DIMS]. */
static int find_tensor(const struct sl_published *p, const char *own, int dims, const size_t *shape,
                       const struct sl_published_name **name, const struct sl_weight **weight, struct sl_error *error) {
    char text[128];
    *name = find_name(p, own, text);
    if (!*name) return sl_error_set(error, SL_BAD_INPUT, "%s: it has no parameter %s", p->weights.path, own);
    *weight = sl_published_tensor(p, text);
    if (!*weight) return sl_error_set(error, SL_BAD_INPUT, "%s: tensor %s is missing", p->weights.path, text);
    SL_TRY(sl_weight_check_type(&p->weights, *weight, error));
    size_t want[] = {shape[0], dims == 2 ? shape[1] : 1};
    want[dims - 1] *= (*name)->part ? PARTS : 1;
    if (is_turned(p, *name, dims)) {
        const size_t rows = want[0];
        want[0] = want[1];
        want[1] = rows;
    }
    if ((*weight)->dims == dims && (*weight)->shape[0] == want[0] && (*weight)->shape[1] == want[1]) return SL_OK;
    return sl_error_set(error, SL_BAD_INPUT, "%s: tensor %s is [%zu, %zu], and its sizes say [%zu, %zu]",
                        p->weights.path, text, (*weight)->shape[0], (*weight)->shape[1], want[0], want[1]);
}

/* ---- values ---- */

/* A coordinate's shard of a parameter [rows, columns], seen as a matrix, and its source. */
struct source {
    const struct sl_published *published;
    const struct sl_published_name *name;
    const struct sl_weight *weight;
    const struct sl_parameter *parameter;
    struct sl_shard shard;
    size_t rows, columns; /* of the shard */
    size_t all_columns;   /* of the parameter */
    size_t stride, first; /* columns of the tensor; its column that is the parameter's first */
};

/* The tensor's column for the parameter's column I; a head's columns may be in another order. */
static size_t column_of(const struct source *s, size_t i) {
    const size_t width = (size_t)s->published->transformer.head_width;
    const bool turned = !is_folder(s->published) && s->published->family->turned_rows;
    if (!turned || s->name->lie != SL_LIES_IN_HEADS) return s->first + i;
    const size_t at = i % width, half = width / 2;
    return s->first + i - at + 2 * (at % half) + at / half;
}

/* Reads VALUES [rows, columns] of a tensor with the parameter's rows: run by run, but columns of heads one by one. */
static void read_straight(const struct source *s, float *values) {
    const size_t run = sl_shard_run(&s->shard) < s->columns ? sl_shard_run(&s->shard) : s->columns;
    const size_t step = s->name->lie == SL_LIES_IN_HEADS ? 1 : run;
    for (size_t i = 0; i < s->rows * s->columns; i += step) {
        const size_t global = sl_shard_global_index(&s->shard, i);
        const size_t row = global / s->all_columns, column = column_of(s, global % s->all_columns);
        sl_weight_read(s->weight, row * s->stride + column, step, values + i);
    }
}

/* Reads VALUES [rows, columns] of a tensor [all columns, all rows]: several columns at a time, through ROOM
 * [COLUMNS_AT_ONCE, all rows]. */
enum { COLUMNS_AT_ONCE = 16 };
static void read_turned(const struct source *s, float *room, float *values) {
    const size_t all = s->parameter->shape[0], columns = s->all_columns;
    const size_t first = sl_shard_global_index(&s->shard, 0) / columns;
    const size_t last = sl_shard_global_index(&s->shard, (s->rows - 1) * s->columns) / columns,
                 count = last - first + 1;
    for (size_t from = 0; from < s->columns; from += COLUMNS_AT_ONCE) {
        const size_t some = s->columns - from < COLUMNS_AT_ONCE ? s->columns - from : COLUMNS_AT_ONCE;
        for (size_t c = 0; c < some; c++) {
            const size_t column = sl_shard_global_index(&s->shard, from + c) % columns;
            sl_weight_read(s->weight, column_of(s, column) * all + first, count, room + c * count);
        }
        for (size_t r = 0; r < s->rows; r++) {
            const size_t row = sl_shard_global_index(&s->shard, r * s->columns) / columns - first;
            for (size_t c = 0; c < some; c++) values[r * s->columns + from + c] = room[c * count + row];
        }
    }
}

/* ---- values in the file ---- */

/* Whether SHARD consists of whole rows of PARAMETER, seen as a matrix: *ROWS of them, from *FIRST on. */
static bool has_whole_rows(const struct sl_shard *shard, const struct sl_parameter *parameter, size_t *first,
                           size_t *rows) {
    const size_t columns = parameter->shape[1], count = parameter->count;
    if (count == 0 || count % columns) return false;
    *first = sl_shard_global_index(shard, 0) / columns;
    *rows = count / columns;
    return sl_shard_global_index(shard, 0) % columns == 0 &&
           sl_shard_global_index(shard, count - 1) == (*first + *rows) * columns - 1;
}

/* The rows of a kernel's shard, columns of the tensor, must be whole blocks of it. */
void sl_published_find_blocks(const void *arg, const struct sl_shard *shard, struct sl_parameter *parameter) {
    const struct sl_published *p = arg;
    struct source s = {.published = p, .parameter = parameter, .all_columns = parameter->shape[parameter->dims - 1]};
    struct sl_error ignored = {0};
    size_t first, rows;
    if (parameter->dims != 2 || !has_whole_rows(shard, parameter, &first, &rows)) return;
    if (find_tensor(p, parameter->name, 2, parameter->shape, &s.name, &s.weight, &ignored)) return;
    struct sl_blocks blocks = sl_weight_blocks(s.weight);
    if (!blocks.at) return;
    if (!is_turned(p, s.name, 2)) {
        parameter->blocks = sl_blocks_rows(&blocks, first, rows);
        return;
    }
    const size_t block = blocks.type->elements;
    if (first % block || rows % block) return;
    blocks = sl_blocks_rows(&blocks, s.name->part ? (size_t)(s.name->part - 1) * s.all_columns : 0, s.all_columns);
    blocks.at += first / block * blocks.type->bytes;
    blocks.columns = rows;
    if (!is_folder(p) && p->family->turned_rows && s.name->lie == SL_LIES_IN_HEADS)
        blocks.head = (size_t)p->transformer.head_width;
    parameter->blocks = blocks;
}

/* ---- values that are read ---- */

/* Host memory for reading a parameter. */
struct room {
    float *values, *columns;
};

static void read_values(const struct source *s, const struct room *room, float *values) {
    if (is_turned(s->published, s->name, s->parameter->dims))
        read_turned(s, room->columns, values);
    else
        read_straight(s, values);
}

/* Fills in a parameter. Floats are read in place if the host can write there and they are contiguous. */
static void fill(const struct source *s, struct sl_parameters *parameters, int number, const struct room *room) {
    const struct sl_parameter *parameter = s->parameter;
    const struct sl_range *range = &parameters->range[parameter->range];
    const bool as_floats = !range->own_floats && !sl_parameter_is_bf16_alone(parameters, number);
    const bool whole = sl_range_is_whole(parameters, parameter->range);
    if (as_floats && sl_device.shares_memory && !whole) {
        read_values(s, room, sl_parameter_value(parameters, number));
        return;
    }
    read_values(s, room, room->values);
    if (range->own_floats) {
        size_t first, count;
        sl_parameter_share(parameters, number, &first, &count);
        if (count)
            sl_device.copy(sl_range_values(range, parameter->offset + first), room->values + first,
                           count * sizeof *room->values);
    } else if (as_floats) {
        sl_parameters_copy_values(parameters, parameter->range, parameter->offset, parameter->count, room->values,
                                  true);
        return;
    }
    if (sl_device.shares_memory) {
        sl_kernels_select()->round_bf16(parameter->count, room->values, sl_parameter_rounded(parameters, number));
        return;
    }
    for (size_t i = 0; i < parameter->count; i++) { /* each bf16 value lies before the floats not converted yet */
        const uint16_t half = sl_bf16_of_float(room->values[i]);
        memcpy((char *)room->values + i * sizeof half, &half, sizeof half);
    }
    sl_device.copy(sl_parameter_rounded(parameters, number), room->values, parameter->count * sizeof(uint16_t));
}

static int load_one(const struct sl_published *p, struct sl_spmd *self, struct sl_parameters *parameters, int number,
                    const struct room *room) {
    const struct sl_parameter *parameter = &parameters->list[number];
    struct source s = {.published = p, .parameter = parameter};
    SL_TRY(find_tensor(p, parameter->name, parameter->dims, parameter->shape, &s.name, &s.weight, &self->error));
    s.shard = sl_spec_shard(&parameter->spec, self->mesh, self->coordinate, parameter->dims, parameter->shape);
    size_t local[SL_MAX_DIMS];
    SL_TRY(sl_spec_local_shape(&parameter->spec, self->mesh, parameter->dims, parameter->shape, local, &self->error));
    s.columns = local[parameter->dims - 1];
    s.rows = parameter->count / s.columns;
    s.all_columns = parameter->shape[parameter->dims - 1];
    s.stride = s.name->part ? PARTS * s.all_columns : s.all_columns;
    s.first = s.name->part ? (size_t)(s.name->part - 1) * s.all_columns : 0;
    SL_TRY(sl_parameters_use_values(parameters, parameter->range, true, &self->error));
    fill(&s, parameters, number, room);
    sl_weights_relax(&p->weights); /* or the process would hold the model twice in the end */
    return sl_device.settle(&self->error);
}

/* Whether this coordinate reads parameter NUMBER; not if it belongs to an adapter. If coordinates hold values together,
 * only the first one reads. */
static bool reads(const struct sl_parameters *parameters, int number) {
    const struct sl_parameter *parameter = &parameters->list[number];
    const bool common = sl_range_is_common(parameters, parameter->range);
    return !parameter->second && !parameter->adapter && !parameter->blocks.at &&
           (!common || parameters->range[parameter->range].shard == 0);
}

static int load(const struct sl_published *p, struct sl_spmd *self, struct sl_parameters *parameters) {
    size_t most = 1, rows = 1;
    for (int i = 0; i < parameters->count; i++) {
        const struct sl_parameter *parameter = &parameters->list[i];
        if (parameter->count > most) most = parameter->count;
        if (parameter->dims == 2 && parameter->shape[0] > rows) rows = parameter->shape[0];
    }
    struct room room = {malloc(most * sizeof(float)), malloc(COLUMNS_AT_ONCE * rows * sizeof(float))};
    int status = room.values && room.columns ? SL_OK : sl_fail(self, SL_FAILED, "no memory to read %zu values", most);
    for (int i = 0; i < parameters->count && status == SL_OK; i++) {
        if (reads(parameters, i)) status = load_one(p, self, parameters, i, &room);
        if (status == SL_OK) status = sl_progress(self);
    }
    free(room.values);
    free(room.columns);
    return status;
}

int sl_published_load(const struct sl_published *p, struct sl_spmd *self, const struct sl_group *world,
                      struct sl_parameters *parameters) {
    SL_TRY(load(p, self, parameters));
    if (parameters->one_copy) SL_TRY(sl_barrier(self, world)); /* other members' values are rounded, and then read */
    SL_TRY(sl_parameters_round_all(parameters, &self->error));
    return parameters->one_copy ? sl_barrier(self, world) : SL_OK;
}

/* ---- opening ---- */

/* A file being checked, and its tensors used by parameters. */
struct check {
    const struct sl_published *published;
    bool *taken; /* [tensors] */
    struct sl_error *error;
};

static int check_one(const struct check *check, const char *own, int dims, size_t rows, size_t columns) {
    const size_t shape[] = {rows, columns};
    const struct sl_published_name *name;
    const struct sl_weight *weight = NULL;
    SL_TRY(find_tensor(check->published, own, dims, shape, &name, &weight, check->error));
    check->taken[weight - check->published->weights.weight] = true;
    return SL_OK;
}

static int check_layer(const struct check *check, int layer) {
    const struct sl_published *p = check->published;
    const struct sl_transformer *t = &p->transformer;
    const size_t c = (size_t)t->dimension, inside = (size_t)t->inside, width = (size_t)t->head_width;
    const size_t q = (size_t)t->heads * width, k = (size_t)t->key_heads * width;
    const bool shifts = t->norm == SL_NORM_LAYER, qkv = sl_biases_qkv(t->biases), out = sl_biases_out(t->biases),
               mlp = sl_biases_mlp(t->biases), gated = t->mlp == SL_MLP_GATED_SILU;
    const struct {
        const char *name;
        int dims;
        size_t rows, columns;
        bool there;
    } list[] = {
        {"norm1.gamma", 1, c, 1, true},
        {"norm1.beta", 1, c, 1, shifts},
        {"norm2.gamma", 1, c, 1, true},
        {"norm2.beta", 1, c, 1, shifts},
        {"gqa.q.kernel", 2, c, q, true},
        {"gqa.k.kernel", 2, c, k, true},
        {"gqa.v.kernel", 2, c, k, true},
        {"gqa.out.kernel", 2, q, c, true},
        {"gqa.q.bias", 1, q, 1, qkv},
        {"gqa.k.bias", 1, k, 1, qkv},
        {"gqa.v.bias", 1, k, 1, qkv},
        {"gqa.out.bias", 1, c, 1, out},
        {"gqa.q_norm.scale", 1, width, 1, t->head_norms},
        {"gqa.k_norm.scale", 1, width, 1, t->head_norms},
        {"mlp.gate.kernel", 2, c, inside, gated},
        {"mlp.gate.bias", 1, inside, 1, gated && mlp},
        {"mlp.up.kernel", 2, c, inside, true},
        {"mlp.up.bias", 1, inside, 1, mlp},
        {"mlp.down.kernel", 2, inside, c, true},
        {"mlp.down.bias", 1, c, 1, mlp},
    };
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        char name[96];
        snprintf(name, sizeof name, "blocks.%d.layers.0.%s", layer, list[i].name);
        if (list[i].there) SL_TRY(check_one(check, name, list[i].dims, list[i].rows, list[i].columns));
    }
    return SL_OK;
}

/* Whether the file's head repeats the values of the token table. */
static bool repeats_table(const struct sl_published *p, const struct sl_weight *head) {
    enum { SOME = 4096 };
    char text[128];
    find_name(p, "embedding", text);
    const struct sl_weight *table = sl_published_tensor(p, text);
    const size_t elements = sl_weight_elements(head);
    if (head->type == SL_WEIGHT_OTHER || head->dims != 2 || head->shape[0] != table->shape[0] ||
        elements != sl_weight_elements(table))
        return false;
    for (size_t first = 0, count; first < elements; first += count) {
        float here[SOME], there[SOME];
        count = elements - first < SOME ? elements - first : SOME;
        sl_weight_read(head, first, count, here);
        sl_weight_read(table, first, count, there);
        if (memcmp(here, there, count * sizeof *here) != 0) return false;
    }
    return true;
}

static bool ends_with(const char *name, const char *end) {
    const size_t count = strlen(name), tail = strlen(end);
    return count >= tail && !strcmp(name + count - tail, end);
}

/* Whether an unused tensor can be ignored: constants of a module, angles of rotations, a tied head. */
static bool is_harmless(const struct sl_published *p, const struct sl_weight *weight) {
    static const char *const folder[] = {".rotary_emb.inv_freq", "position_ids", NULL};
    static const char *const gpt2[] = {".attn.bias", ".attn.masked_bias", NULL};
    char head[128];
    find_name(p, "head", head);
    if (weight == sl_published_tensor(p, head)) return is_folder(p) && repeats_table(p, weight);
    if (!is_folder(p)) return p->transformer.rope && !strcmp(weight->name, sl_published_divisors);
    for (int i = 0; folder[i]; i++)
        if (ends_with(weight->name, folder[i])) return true;
    for (int i = 0; !p->transformer.rope && gpt2[i]; i++)
        if (ends_with(weight->name, gpt2[i])) return true;
    return false;
}

static int check_tensors(const struct check *check) {
    const struct sl_published *p = check->published;
    const struct sl_transformer *t = &p->transformer;
    const size_t c = (size_t)t->dimension, vocabulary = (size_t)t->vocabulary;
    SL_TRY(check_one(check, "embedding", 2, vocabulary, c));
    if (t->learned_positions) SL_TRY(check_one(check, "positions", 2, (size_t)t->learned_positions, c));
    if (t->untied_head) SL_TRY(check_one(check, "head", 2, vocabulary, c));
    SL_TRY(check_one(check, "norm.gamma", 1, c, 1));
    if (t->norm == SL_NORM_LAYER) SL_TRY(check_one(check, "norm.beta", 1, c, 1));
    for (int layer = 0; layer < t->blocks; layer++) SL_TRY(check_layer(check, layer));
    for (int i = 0; i < p->weights.count; i++)
        if (!check->taken[i] && !is_harmless(p, &p->weights.weight[i]))
            return sl_error_set(check->error, SL_BAD_INPUT,
                                "%s: tensor %s: no parameter of a %s with these sizes takes it: the model would not be "
                                "the file's",
                                p->weights.path, p->weights.weight[i].name, p->family->name);
    return SL_OK;
}

int sl_published_open(struct sl_published *p, const char *path, struct sl_error *error) {
    *p = (struct sl_published){0};
    SL_TRY(sl_weights_open(&p->weights, path, error));
    SL_TRY(sl_read_published_sizes(p, error));
    const struct check check = {p, calloc((size_t)p->weights.count + 1, sizeof(bool)), error};
    const int status =
        check.taken ? check_tensors(&check) : sl_error_set(error, SL_FAILED, "%s: no memory for its tensors", path);
    free(check.taken);
    return status;
}

void sl_published_close(struct sl_published *p) {
    free(p->divisors);
    sl_weights_close(&p->weights);
}
