/* peft.c - reads and writes PEFT folders. */
#include "layers/models/peft/peft.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "layers/models/published/published_internal.h"
#include "layers/formats/files/draft.h"
#include "layers/formats/files/json_file_internal.h"
#include "layers/formats/stores/safetensors.h"

static const char prefix[] = "base_model.model.", end_of_kernel[] = ".kernel", end_of_weight[] = ".weight";
static const char tensors_file[] = "adapter_model.safetensors", config_file[] = "adapter_config.json";

/* The two matrices of an adapter: names in a folder, and ours. */
static const struct side {
    const char *folder, *own;
} sides[] = {{".lora_A.weight", ".lora_a.kernel"}, {".lora_B.weight", ".lora_b.kernel"}};

/* PEFT has one adapter per tensor. In GPT-2's folders q, k and v are one tensor; here they have adapters of their own,
 * and follow each other in the list of names. The folder's A is shared by all three; or, with three times the rank, it
 * has their As below each other, and B is zero except for each one's own rows and columns. */
enum { PARTS = 3 };

/* ---- names ---- */

static bool is_kernel(const struct sl_published_name *name) {
    const size_t length = strlen(name->own), tail = strlen(end_of_kernel);
    return length > tail && !strcmp(name->own + length - tail, end_of_kernel);
}

/* Names of one side of NAME's adapter in LAYER, in a folder and here. */
static void name_side(const struct sl_published_family *family, const struct sl_published_name *name, int layer,
                      const struct side *side, char folder[160], char own[160]) {
    char tensor[128];
    sl_published_tensor_name(family, name, false, layer, tensor);
    snprintf(folder, 160, "%s%.*s%s", prefix, (int)(strlen(tensor) - strlen(end_of_weight)), tensor, side->folder);
    snprintf(own, 160, "blocks.%d.layers.0.%.*s%s", layer, (int)(strlen(name->own) - strlen(end_of_kernel)), name->own,
             side->own);
}

/* Whether kernels in a folder are [in, out] as here; PEFT's config must then say so. */
static bool lies_straight(const struct sl_published_family *family) {
    for (const struct sl_published_name *name = family->layers; name->own; name++)
        if (is_kernel(name)) return name->lie == SL_LIES_TURNED_IN_GGUF;
    return false;
}

/* A part of a matrix of any floating-point type. */
struct block {
    const struct sl_array *array;
    size_t row, rows, column, columns;
};

static struct block all_of(const struct sl_array *array) {
    return (struct block){array, 0, array->shape[0], 0, array->shape[1]};
}

static float element_of(const struct block *b, size_t row, size_t column) {
    return sl_load_float(b->array->dtype, b->array->data, (b->row + row) * b->array->shape[1] + b->column + column);
}

static bool is_zero(const struct block *b) {
    for (size_t r = 0; r < b->rows; r++)
        for (size_t c = 0; c < b->columns; c++)
            if (element_of(b, r, c) != 0.0f) return false;
    return true;
}

/* Transposes FROM [rows, columns] to TO [columns, rows], whose rows have STRIDE elements. */
static void turn(const struct block *from, float *to, size_t stride) {
    for (size_t r = 0; r < from->rows; r++)
        for (size_t c = 0; c < from->columns; c++) to[c * stride + r] = element_of(from, r, c);
}

/* ---- reading: the configuration ---- */

static int refuse(const char *folder, const char *key, const char *value, struct sl_error *error) {
    return sl_error_set(error, SL_BAD_INPUT, "%s/%s: %s is %s, which is not supported", folder, config_file, key,
                        value);
}

static bool is_empty(const json_t *value) {
    return !value || json_is_null(value) || json_is_false(value) ||
           ((json_is_object(value) || json_is_array(value)) && !json_object_size(value) && !json_array_size(value));
}

/* Whether layers with their own rank have the same scale as all others. */
static bool keeps_scale(const json_t *config) {
    const json_t *ranks = json_object_get(config, "rank_pattern"), *alphas = json_object_get(config, "alpha_pattern");
    const double r = json_number_value(json_object_get(config, "r"));
    const double alpha = json_number_value(json_object_get(config, "lora_alpha"));
    const char *name;
    json_t *rank;
    if (json_object_size(ranks) != json_object_size(alphas)) return false;
    json_object_foreach((json_t *)(uintptr_t)ranks, name, rank) /* only read */
        if (json_number_value(json_object_get(alphas, name)) * r != json_number_value(rank) * alpha) return false;
    return true;
}

/* Refuses keys that change the meaning of the tensors. */
static int check_config(const char *folder, const struct sl_published_family *family, const json_t *config,
                        struct sl_error *error) {
    static const char *const straight[] = {"fan_in_fan_out", "rank_pattern", "alpha_pattern"};
    static const char *const absent[] = {
        "use_rslora",        "use_dora",          "modules_to_save",         "lora_bias",
        "use_bdlora",        "use_qalora",        "alora_invocation_tokens", "trainable_token_indices",
        "target_parameters", "layer_replication", "megatron_config"};
    const char *kind = json_string_value(json_object_get(config, "peft_type"));
    const char *bias = json_string_value(json_object_get(config, "bias"));
    const json_t *begin = json_object_get(config, "init_lora_weights");
    if (!kind || strcmp(kind, "LORA") != 0) return refuse(folder, "peft_type", kind ? kind : "missing", error);
    if (bias && strcmp(bias, "none") != 0) return refuse(folder, "bias", bias, error);
    for (size_t i = 0; i < sizeof absent / sizeof *absent; i++)
        if (!is_empty(json_object_get(config, absent[i]))) return refuse(folder, absent[i], "there", error);
    for (int i = lies_straight(family) ? keeps_scale(config) ? 3 : 1 : 0; i < 3; i++)
        if (!is_empty(json_object_get(config, straight[i]))) return refuse(folder, straight[i], "there", error);
    if (json_is_string(begin) && strcmp(json_string_value(begin), "gaussian") != 0)
        return refuse(folder, "init_lora_weights", json_string_value(begin),
                      error); /* such adapters belong to kernels other than the model's */
    return SL_OK;
}

static int read_numbers(struct sl_peft *peft, const char *folder, const json_t *config, struct sl_error *error) {
    enum { MOST_RANK = 65536, MOST_ALPHA = 1000000 };
    const json_t *rank = json_object_get(config, "r"), *alpha = json_object_get(config, "lora_alpha");
    const json_int_t r = json_is_integer(rank) ? json_integer_value(rank) : 0;
    peft->rank = (int)r;
    peft->alpha = json_is_number(alpha) ? json_number_value(alpha) : 0;
    if (r < 1 || r > MOST_RANK)
        return sl_error_set(error, SL_BAD_INPUT, "%s/%s: r: there must be a number from 1 to %d", folder, config_file,
                            MOST_RANK);
    if (peft->alpha > 0 && peft->alpha <= MOST_ALPHA) return SL_OK;
    return sl_error_set(error, SL_BAD_INPUT, "%s/%s: lora_alpha: there must be a number above 0, up to %d", folder,
                        config_file, MOST_ALPHA);
}

static int read_config(struct sl_peft *peft, const char *folder, const struct sl_published_family *family,
                       struct sl_error *error) {
    char path[SL_MAX_PATH];
    struct sl_contents contents = {0};
    json_error_t wrong = {.text = "it is empty"};
    if (snprintf(path, sizeof path, "%s/%s", folder, config_file) >= SL_MAX_PATH)
        return sl_error_set(error, SL_BAD_INPUT, "%.100s...: the path is too long", folder);
    SL_TRY(sl_contents_open(&contents, path, error));
    const size_t mark = sl_contents_mark(&contents);
    json_t *config =
        contents.bytes ? json_loadb((char *)contents.bytes + mark, contents.count - mark, 0, &wrong) : NULL;
    sl_contents_close(&contents);
    int status = json_is_object(config)
                     ? check_config(folder, family, config, error)
                     : sl_error_set(error, SL_BAD_INPUT, "%s: not a JSON object: %.80s", path, wrong.text);
    if (status == SL_OK) status = read_numbers(peft, folder, config, error);
    json_decref(config);
    return status;
}

/* ---- reading: the tensors ---- */

/* A file, and which of its tensors are used. */
struct taking {
    struct sl_peft *peft;
    const struct sl_store *file;
    bool *taken; /* [tensors] */
    struct sl_error *error;
};

static int take_side(struct taking *t, const struct block *from, const char *own) {
    const size_t shape[] = {from->columns, from->rows};
    struct sl_tensor *added = sl_store_add(&t->peft->values, own, SL_F32, 2, shape);
    if (!added) return sl_error_set(t->error, SL_FAILED, "no memory for adapters");
    turn(from, added->array.data, from->rows);
    return SL_OK;
}

static int refuse_side(const struct taking *t, const char *folder) {
    return sl_error_set(t->error, SL_BAD_INPUT, "%s: tensor %s is no matrix of floats of rank %d", t->file->path,
                        folder, t->peft->rank);
}

/* Reads both sides in the file: those of PART, from 1, of three, or with PART 0 all of them. *FOUND: whether there is
 * an adapter. */
static int take_part(struct taking *t, char folder[2][160], char own[2][160], int part, bool *found) {
    const size_t rank = (size_t)t->peft->rank, at = part ? (size_t)part - 1 : 0;
    struct block side[2];
    for (int s = 0; s < 2; s++) {
        side[s] = all_of(&sl_store_find(t->file, folder[s])->array);
        if (side[s].array->dtype == SL_I32 || side[s].array->dims != 2) return refuse_side(t, folder[s]);
    }
    struct block *a = &side[0], *b = &side[1];
    const size_t apart = part && a->rows == PARTS * rank ? PARTS : 1, outputs = part ? b->rows / PARTS : b->rows;
    if (a->rows != apart * rank) return refuse_side(t, folder[0]);
    if (b->columns != apart * rank || (part && b->rows % PARTS)) return refuse_side(t, folder[1]);
    const bool fresh = is_zero(b);
    *b = (struct block){b->array, at * outputs, outputs, 0, b->columns};
    const bool beside = is_zero(b); /* this part's outputs are not changed */
    *found = apart > 1 || !part || fresh || !beside;
    if (apart > 1) {
        for (size_t p = 0; p < PARTS; p++)
            if (p != at && !is_zero(&(struct block){b->array, b->row, b->rows, p * rank, rank}))
                return sl_error_set(t->error, SL_BAD_INPUT,
                                    "%s: tensor %s: of rank %zu, q, k and v must have adapters of their own",
                                    t->file->path, folder[1], PARTS * rank);
        *a = (struct block){a->array, at * rank, rank, 0, a->columns};
        b->column = at * rank;
        b->columns = rank;
        *found = !is_zero(a);
    }
    if (*found) SL_TRY(take_side(t, a, own[0]));
    return *found ? take_side(t, b, own[1]) : SL_OK;
}

/* Reads both sides of NAME's adapter in LAYER, or none. *FOUND: there are both. */
static int take_adapter(struct taking *t, const struct sl_published_family *family,
                        const struct sl_published_name *name, int layer, bool *found) {
    char folder[2][160], own[2][160];
    bool there[2];
    for (int s = 0; s < 2; s++) {
        name_side(family, name, layer, &sides[s], folder[s], own[s]);
        there[s] = sl_store_find(t->file, folder[s]);
    }
    *found = there[0] && there[1];
    if (there[0] != there[1])
        return sl_error_set(t->error, SL_BAD_INPUT, "%s: there is %s, but no %s", t->file->path, folder[there[1]],
                            folder[there[0]]);
    if (!*found) return SL_OK;
    for (int s = 0; s < 2; s++) t->taken[sl_store_find(t->file, folder[s]) - t->file->tensor] = true;
    return take_part(t, folder, own, name->part, found);
}

/* Appends a pattern to LIST, of ROOM bytes. */
static void add_pattern(char *list, size_t room, const char *begin, const struct sl_published_name *name) {
    const size_t used = strlen(list);
    snprintf(list + used, room - used, "%s%s%.*s", used ? "," : "", begin,
             (int)(strlen(name->own) - strlen(end_of_kernel)), name->own);
}

/* Reads NAME's adapters of all layers, and appends patterns for them. */
static int take_name(struct taking *t, const struct sl_published_family *family, const struct sl_published_name *name,
                     int layers, size_t room) {
    bool *found = calloc((size_t)layers, sizeof *found);
    int count = 0, status = found ? SL_OK : sl_error_set(t->error, SL_FAILED, "no memory for adapters");
    for (int layer = 0; layer < layers && status == SL_OK; layer++) {
        status = take_adapter(t, family, name, layer, &found[layer]);
        count += found[layer];
    }
    if (status == SL_OK && count == layers) add_pattern(t->peft->modules, room, "*.", name);
    for (int layer = 0; status == SL_OK && count < layers && layer < layers; layer++) {
        char begin[40];
        snprintf(begin, sizeof begin, "blocks.%d.layers.0.", layer);
        if (found[layer]) add_pattern(t->peft->modules, room, begin, name);
    }
    free(found);
    return status;
}

/* Refuses unused tensors, and files without adapters. */
static int check_taken(const struct taking *t, const struct sl_published_family *family) {
    for (int i = 0; i < t->file->count; i++)
        if (!t->taken[i])
            return sl_error_set(t->error, SL_BAD_INPUT, "%s: tensor %s: no layer of a %s with these sizes takes it",
                                t->file->path, t->file->tensor[i].name, family->name);
    if (t->peft->values.count) return SL_OK;
    return sl_error_set(t->error, SL_BAD_INPUT, "%s: no adapter is in it", t->file->path);
}

static int take_all(struct taking *t, const struct sl_published_family *family, int layers) {
    const size_t room = ((size_t)t->file->count + 1) * 64;
    t->peft->modules = calloc(room, 1);
    t->taken = calloc((size_t)t->file->count + 1, sizeof *t->taken);
    if (!t->peft->modules || !t->taken) return sl_error_set(t->error, SL_FAILED, "no memory for adapters");
    for (const struct sl_published_name *name = family->layers; name->own; name++)
        if (is_kernel(name)) SL_TRY(take_name(t, family, name, layers, room));
    return check_taken(t, family);
}

int sl_peft_read(struct sl_peft *peft, const char *folder, const struct sl_published_family *family,
                 const struct sl_transformer *transformer, struct sl_error *error) {
    char path[SL_MAX_PATH];
    struct sl_store file = {0};
    struct taking taking = {.peft = peft, .file = &file, .error = error};
    *peft = (struct sl_peft){0};
    SL_TRY(read_config(peft, folder, family, error));
    if (snprintf(path, sizeof path, "%s/%s", folder, tensors_file) >= SL_MAX_PATH)
        return sl_error_set(error, SL_BAD_INPUT, "%.100s...: the path is too long", folder);
    SL_TRY(sl_safetensors_map(&file, path, error));
    const int status = take_all(&taking, family, transformer->blocks);
    free(taking.taken);
    sl_store_free(&file);
    return status;
}

void sl_peft_free(struct sl_peft *peft) {
    free(peft->modules);
    sl_store_free(&peft->values);
    *peft = (struct sl_peft){0};
}

/* ---- writing ---- */

/* The adapter of one tensor in LAYER: of NAME, or of the three parts from NAME on. */
struct adapter {
    const struct sl_tensor *side[PARTS][2]; /* tensors here; NULL: the part has no adapter */
    int parts, count;                       /* parts: 1 or PARTS; count: parts with an adapter */
    bool shared;                            /* whether they have the same A, and B shows which parts have adapters */
    char folder[2][160];
};

static struct adapter adapter_of(const struct sl_peft *peft, const struct sl_published_family *family,
                                 const struct sl_published_name *name, int layer) {
    struct adapter adapter = {.parts = name->part ? PARTS : 1, .shared = true};
    char folder[160], own[160];
    for (int s = 0; s < 2; s++) name_side(family, name, layer, &sides[s], adapter.folder[s], own);
    const struct sl_tensor *first = NULL;
    bool zero = false; /* whether a B is zero */
    for (int p = 0; p < adapter.parts; p++) {
        for (int s = 0; s < 2; s++) {
            name_side(family, name + p, layer, &sides[s], folder, own);
            adapter.side[p][s] = sl_store_find(&peft->values, own);
        }
        const struct sl_tensor *a = adapter.side[p][0];
        if (!a) continue;
        first = first ? first : a;
        adapter.count++;
        adapter.shared &= !memcmp(a->array.data, first->array.data, sl_tensor_bytes(a));
        const struct block b = all_of(&adapter.side[p][1]->array);
        zero |= adapter.parts > 1 && is_zero(&b);
    }
    adapter.shared &= adapter.count == adapter.parts || !zero;
    return adapter;
}

/* Whether NAME stands for its tensor: it is the first part. */
static bool begins(const struct sl_published_name *name) { return is_kernel(name) && name->part <= 1; }

/* Name for target_modules: "q_proj", or more of the name if another layer's name ends with this, too. */
static const char *end_of(const struct sl_published_family *family, const struct sl_published_name *name,
                          const char *folder) {
    const char *dot = strrchr(name->folder, '.'), *last = dot;
    while (last > name->folder && last[-1] != '.') last--;
    for (const struct sl_published_name *other = family->layers; other->own; other++) {
        const size_t length = strlen(other->folder), tail = strlen(last);
        if (begins(other) && other != name && length > tail && !strcmp(other->folder + length - tail, last))
            last = name->folder;
    }
    return folder + strlen(folder) - (size_t)(dot - last);
}

/* Names the layers for PEFT: by the ends of their names if all layers of the model have the adapter, else in full.
 * Layers with their own rank are named in full in RANKS and ALPHAS. */
static int name_targets(json_t *targets, json_t *ranks, json_t *alphas, const struct sl_peft *peft,
                        const struct sl_published_family *family, int layers) {
    int failed = 0;
    for (const struct sl_published_name *name = family->layers; name->own; name++) {
        int count = 0;
        for (int layer = 0; begins(name) && layer < layers; layer++)
            count += adapter_of(peft, family, name, layer).count > 0;
        for (int layer = 0; count && layer < layers; layer++) {
            struct adapter adapter = adapter_of(peft, family, name, layer);
            char *folder = adapter.folder[0];
            if (!adapter.count) continue;
            folder[strlen(folder) - strlen(sides[0].folder)] = 0;
            const char *whole = folder + strlen(prefix);
            if (count < layers || layer == 0)
                failed |=
                    json_array_append_new(targets, json_string(count == layers ? end_of(family, name, folder) : whole));
            if (adapter.shared) continue;
            failed |= json_object_set_new(ranks, whole, json_integer(PARTS * peft->rank));
            failed |= json_object_set_new(alphas, whole, json_real(PARTS * peft->alpha));
        }
    }
    return failed;
}

static json_t *config_of(const struct sl_peft *peft, const struct sl_published_family *family, int layers,
                         const char *base) {
    json_t *targets = json_array(), *ranks = json_object(), *alphas = json_object();
    if (!targets || !ranks || !alphas || name_targets(targets, ranks, alphas, peft, family, layers)) {
        json_decref(targets);
        json_decref(ranks);
        json_decref(alphas);
        return NULL;
    }
    return json_pack("{ss ss ss? sb si sf sf so ss sb sn sb sb so so}", "peft_type", "LORA", "task_type", "CAUSAL_LM",
                     "base_model_name_or_path", base, "inference_mode", 1, "r", peft->rank, "lora_alpha", peft->alpha,
                     "lora_dropout", 0.0, "target_modules", targets, "bias", "none", "fan_in_fan_out",
                     lies_straight(family), "modules_to_save", "use_rslora", 0, "use_dora", 0, "rank_pattern", ranks,
                     "alpha_pattern", alphas);
}

static int add_adapter(struct sl_store *file, const struct adapter *adapter, struct sl_error *error) {
    const struct sl_tensor *a = NULL, *b = NULL;
    for (int p = 0; p < adapter->parts; p++) {
        a = adapter->side[p][0] ? adapter->side[p][0] : a;
        b = adapter->side[p][1] ? adapter->side[p][1] : b;
    }
    if (!a || !b) return SL_OK;
    const size_t rank = a->array.shape[1], in = a->array.shape[0], out = b->array.shape[1];
    const size_t step = adapter->shared ? 0 : rank, ranks = step ? PARTS * rank : rank;
    const size_t shape[][2] = {{ranks, in}, {(size_t)adapter->parts * out, ranks}};
    for (int s = 0; s < 2; s++) {
        struct sl_tensor *added = sl_store_add(file, adapter->folder[s], SL_F32, 2, shape[s]);
        if (!added) return sl_error_set(error, SL_FAILED, "no memory for adapters");
        float *to = memset(added->array.data, 0, sl_tensor_bytes(added));
        for (size_t p = 0; p < (size_t)adapter->parts; p++) {
            if (!adapter->side[p][s]) continue;
            const struct block from = all_of(&adapter->side[p][s]->array);
            turn(&from, to + (s ? p * out * ranks + p * step : p * step * in), shape[s][1]);
        }
    }
    return SL_OK;
}

int sl_peft_write(const struct sl_peft *peft, const char *folder, const struct sl_published_family *family,
                  const struct sl_transformer *transformer, const char *base, struct sl_error *error) {
    char path[SL_MAX_PATH];
    struct sl_store file = {.replaces_links = true};
    int status = SL_OK;
    if (snprintf(path, sizeof path, "%s/%s", folder, tensors_file) >= SL_MAX_PATH)
        return sl_error_set(error, SL_BAD_INPUT, "%.100s...: the path is too long", folder);
    for (const struct sl_published_name *name = family->layers; name->own; name++)
        for (int layer = 0; begins(name) && layer < transformer->blocks && status == SL_OK; layer++) {
            const struct adapter adapter = adapter_of(peft, family, name, layer);
            status = add_adapter(&file, &adapter, error);
        }
    if (status == SL_OK && sl_store_set_note(&file, "format", "pt"))
        status = sl_error_set(error, SL_FAILED, "no memory for %s", path);
    if (status == SL_OK) status = sl_safetensors_write(&file, path, error);
    sl_store_free(&file);
    if (status) return status;
    return sl_json_write(config_of(peft, family, transformer->blocks, base), folder, config_file, error);
}
