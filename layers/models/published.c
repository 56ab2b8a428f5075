/* published.c - the tensors of published models as parameters: which is which, and how they lie.
 *
 * Files have kernels as [out, in], parameters are [in, out]. GGUF files of Llama have the rows of q and k in another
 * order: row 2i + j of a head is row j * width / 2 + i of Hugging Face's. */
#include "layers/models/published.h"

#include <stdlib.h>
#include <string.h>

#include "layers/models/published_internal.h"
#include "spmd/device/device.h"

/* ---- names ---- */

/* Of a parameter, its tensor in the two kinds of files. A layer's follow "blocks.N.layers.0.", "model.layers.N." and
 * "blk.N.". */
struct name {
    const char *own, *folder, *gguf;
    enum { NO_HEADS, QUERY_HEADS, KEY_HEADS } turned; /* whose rows GGUF files of Llama have in another order */
};
static const struct name ends[] = {
    {"embedding", "model.embed_tokens.weight", "token_embd.weight", NO_HEADS},
    {"head", "lm_head.weight", "output.weight", NO_HEADS},
    {"norm.gamma", "model.norm.weight", "output_norm.weight", NO_HEADS},
    {NULL, NULL, NULL, NO_HEADS},
};
static const struct name layer_names[] = {
    {"norm1.gamma", "input_layernorm.weight", "attn_norm.weight", NO_HEADS},
    {"norm2.gamma", "post_attention_layernorm.weight", "ffn_norm.weight", NO_HEADS},
    {"gqa.q.kernel", "self_attn.q_proj.weight", "attn_q.weight", QUERY_HEADS},
    {"gqa.k.kernel", "self_attn.k_proj.weight", "attn_k.weight", KEY_HEADS},
    {"gqa.v.kernel", "self_attn.v_proj.weight", "attn_v.weight", NO_HEADS},
    {"gqa.q.bias", "self_attn.q_proj.bias", "attn_q.bias", QUERY_HEADS},
    {"gqa.k.bias", "self_attn.k_proj.bias", "attn_k.bias", KEY_HEADS},
    {"gqa.v.bias", "self_attn.v_proj.bias", "attn_v.bias", NO_HEADS},
    {"gqa.q_norm.scale", "self_attn.q_norm.weight", "attn_q_norm.weight", NO_HEADS},
    {"gqa.k_norm.scale", "self_attn.k_norm.weight", "attn_k_norm.weight", NO_HEADS},
    {"gqa.out.kernel", "self_attn.o_proj.weight", "attn_output.weight", NO_HEADS},
    {"mlp.gate.kernel", "mlp.gate_proj.weight", "ffn_gate.weight", NO_HEADS},
    {"mlp.up.kernel", "mlp.up_proj.weight", "ffn_up.weight", NO_HEADS},
    {"mlp.down.kernel", "mlp.down_proj.weight", "ffn_down.weight", NO_HEADS},
    {NULL, NULL, NULL, NO_HEADS},
};

/* The tensor of the parameter OWN, as the file calls it in TEXT; NULL: there is no such parameter. */
static const struct name *find_name(const struct sl_published *p, const char *own, char text[128]) {
    const bool folder = p->weights.config;
    const struct name *names = ends;
    const char *rest = own;
    int layer = -1, used = 0;
    if (sscanf(own, "blocks.%d.layers.0.%n", &layer, &used) == 1 && used) names = layer_names, rest = own + used;
    for (; names->own; names++) {
        if (strcmp(names->own, rest) != 0) continue;
        const char *name = folder ? names->folder : names->gguf;
        if (used)
            snprintf(text, 128, folder ? "model.layers.%d.%s" : "blk.%d.%s", layer, name);
        else
            snprintf(text, 128, "%s", name);
        return names;
    }
    return NULL;
}

/* ---- sizes ---- */

/* The tensor of the parameter OWN with DIMS and SHAPE as parameters have them. */
static int find_tensor(const struct sl_published *p, const char *own, int dims, const size_t *shape,
                       const struct name **name, const struct sl_weight **weight, struct sl_error *error) {
    char text[128];
    *name = find_name(p, own, text);
    if (!*name) return sl_error_set(error, SL_BAD_INPUT, "%s: it has no parameter %s", p->weights.path, own);
    const bool turns = dims == 2 && *name != &ends[0];
    *weight = sl_weights_find(&p->weights, text);
    if (!*weight) return sl_error_set(error, SL_BAD_INPUT, "%s: tensor %s is missing", p->weights.path, text);
    const size_t want[] = {shape[turns ? 1 : 0], dims == 2 ? shape[turns ? 0 : 1] : 1};
    if ((*weight)->dims == dims && (*weight)->shape[0] == want[0] && (*weight)->shape[1] == want[1]) return SL_OK;
    return sl_error_set(error, SL_BAD_INPUT, "%s: tensor %s is [%zu, %zu], and its sizes say [%zu, %zu]",
                        p->weights.path, text, (*weight)->shape[0], (*weight)->shape[1], want[0], want[1]);
}

/* ---- values ---- */

/* What a coordinate has of a parameter [rows, columns] seen as a matrix, and where it is from. */
struct source {
    const struct sl_published *published;
    const struct name *name;
    const struct sl_weight *weight;
    const struct sl_parameter *parameter;
    struct sl_shard shard;
    size_t rows, columns; /* of the shard */
};

/* The row of the file's tensor that is element I of a head's columns, or of a bias. */
static size_t row_of(const struct source *s, size_t i) {
    const size_t width = (size_t)s->published->transformer.head_width;
    if (!s->published->turned_rows || s->name->turned == NO_HEADS) return i;
    const size_t at = i % width, half = width / 2;
    return i - at + 2 * (at % half) + at / half;
}

/* VALUES [rows, columns] of a tensor that lies as they do: a vector, or a table. */
static void read_straight(const struct source *s, float *values) {
    for (size_t i = 0, run = sl_shard_run(&s->shard); i < s->rows * s->columns; i += run) {
        const size_t first = sl_shard_global_index(&s->shard, i);
        if (s->name->turned == NO_HEADS) {
            sl_weight_read(s->weight, first, run, values + i);
            continue;
        }
        for (size_t e = 0; e < run; e++) sl_weight_read(s->weight, row_of(s, first + e), 1, values + i + e);
    }
}

/* VALUES [rows, columns] of a tensor [all columns, all rows]: a few columns at a time, in ROOM [COLUMNS_AT_ONCE, all
 * rows]. */
enum { COLUMNS_AT_ONCE = 16 };
static void read_turned(const struct source *s, float *room, float *values) {
    const size_t all = s->parameter->shape[0], columns = s->parameter->shape[1];
    const size_t first = sl_shard_global_index(&s->shard, 0) / columns;
    const size_t last = sl_shard_global_index(&s->shard, (s->rows - 1) * s->columns) / columns,
                 count = last - first + 1;
    for (size_t from = 0; from < s->columns; from += COLUMNS_AT_ONCE) {
        const size_t some = s->columns - from < COLUMNS_AT_ONCE ? s->columns - from : COLUMNS_AT_ONCE;
        for (size_t c = 0; c < some; c++) {
            const size_t column = sl_shard_global_index(&s->shard, from + c) % columns;
            sl_weight_read(s->weight, row_of(s, column) * all + first, count, room + c * count);
        }
        for (size_t r = 0; r < s->rows; r++) {
            const size_t row = sl_shard_global_index(&s->shard, r * s->columns) / columns - first;
            for (size_t c = 0; c < some; c++) values[r * s->columns + from + c] = room[c * count + row];
        }
    }
}

/* Memory of the host's for what is read of a parameter. */
struct room {
    float *values, *columns;
};

static int fill(const struct source *s, struct sl_parameters *parameters, int number, const struct room *room) {
    const struct sl_parameter *parameter = s->parameter;
    if (parameter->dims == 2 && s->name != &ends[0])
        read_turned(s, room->columns, room->values);
    else
        read_straight(s, room->values);
    if (!sl_parameter_is_bf16_alone(parameters, number)) {
        sl_device.copy(sl_parameter_value(parameters, number), room->values, parameter->count * sizeof(float));
        return SL_OK;
    }
    for (size_t i = 0; i < parameter->count; i++) { /* each lies before what it is made of */
        const uint16_t half = sl_bf16_of_float(room->values[i]);
        memcpy((char *)room->values + i * sizeof half, &half, sizeof half);
    }
    sl_device.copy(sl_parameter_rounded(parameters, number), room->values, parameter->count * sizeof(uint16_t));
    return SL_OK;
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
    SL_TRY(sl_parameters_use_values(parameters, parameter->range, true, &self->error));
    SL_TRY(fill(&s, parameters, number, room));
    return sl_device.settle(&self->error);
}

/* Whether this coordinate reads parameter NUMBER: of those that hold values together the first one does. */
static bool reads(const struct sl_parameters *parameters, int number) {
    const struct sl_parameter *parameter = &parameters->list[number];
    const bool common = sl_range_is_common(parameters, parameter->range);
    return !parameter->second && parameter->count > 0 && (!common || parameters->range[parameter->range].shard == 0);
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
    if (parameters->one_copy) SL_TRY(sl_barrier(self, world)); /* what others have written is rounded, and then read */
    SL_TRY(sl_parameters_round_all(parameters, &self->error));
    return parameters->one_copy ? sl_barrier(self, world) : SL_OK;
}

/* ---- opening ---- */

static int check_one(const struct sl_published *p, const char *own, int dims, size_t rows, size_t columns,
                     struct sl_error *error) {
    const size_t shape[] = {rows, columns};
    const struct name *name;
    const struct sl_weight *weight;
    return find_tensor(p, own, dims, shape, &name, &weight, error);
}

static int check_layer(const struct sl_published *p, int layer, struct sl_error *error) {
    const struct sl_transformer *t = &p->transformer;
    const size_t c = (size_t)t->dimension, inside = (size_t)t->inside, width = (size_t)t->head_width;
    const size_t q = (size_t)t->heads * width, k = (size_t)t->key_heads * width;
    const struct {
        const char *name;
        int dims;
        size_t rows, columns;
        bool there;
    } all[] = {
        {"norm1.gamma", 1, c, 1, true},
        {"norm2.gamma", 1, c, 1, true},
        {"gqa.q.kernel", 2, c, q, true},
        {"gqa.k.kernel", 2, c, k, true},
        {"gqa.v.kernel", 2, c, k, true},
        {"gqa.out.kernel", 2, q, c, true},
        {"gqa.q.bias", 1, q, 1, t->biases != SL_BIASES_NONE},
        {"gqa.k.bias", 1, k, 1, t->biases != SL_BIASES_NONE},
        {"gqa.v.bias", 1, k, 1, t->biases != SL_BIASES_NONE},
        {"gqa.q_norm.scale", 1, width, 1, t->head_norms},
        {"gqa.k_norm.scale", 1, width, 1, t->head_norms},
        {"mlp.gate.kernel", 2, c, inside, true},
        {"mlp.up.kernel", 2, c, inside, true},
        {"mlp.down.kernel", 2, inside, c, true},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        char name[96];
        snprintf(name, sizeof name, "blocks.%d.layers.0.%s", layer, all[i].name);
        if (all[i].there) SL_TRY(check_one(p, name, all[i].dims, all[i].rows, all[i].columns, error));
    }
    return SL_OK;
}

static int check_tensors(const struct sl_published *p, struct sl_error *error) {
    const size_t c = (size_t)p->transformer.dimension;
    SL_TRY(check_one(p, "embedding", 2, (size_t)p->transformer.vocabulary, c, error));
    SL_TRY(check_one(p, "norm.gamma", 1, c, 1, error));
    for (int layer = 0; layer < p->transformer.blocks; layer++) SL_TRY(check_layer(p, layer, error));
    return SL_OK;
}

int sl_published_open(struct sl_published *p, const char *path, struct sl_error *error) {
    *p = (struct sl_published){.family = ""};
    SL_TRY(sl_weights_open(&p->weights, path, error));
    SL_TRY(sl_read_published_sizes(p, error));
    return check_tensors(p, error);
}

void sl_published_close(struct sl_published *p) { sl_weights_close(&p->weights); }
