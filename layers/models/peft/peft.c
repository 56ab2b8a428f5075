/* peft.c - reads and writes folders of PEFT. */
#include "layers/models/peft/peft.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "layers/models/published_internal.h"
#include "layers/storage/draft.h"
#include "layers/storage/json_file_internal.h"
#include "layers/storage/safetensors.h"

static const char prefix[] = "base_model.model.", end_of_kernel[] = ".kernel", end_of_weight[] = ".weight";
static const char tensors_file[] = "adapter_model.safetensors", config_file[] = "adapter_config.json";

/* The two matrices of an adapter, in a folder and here. */
static const struct side {
    const char *folder, *own;
} sides[] = {{".lora_A.weight", ".lora_a.kernel"}, {".lora_B.weight", ".lora_b.kernel"}};

int sl_peft_check(const struct sl_published_family *family, struct sl_error *error) {
    for (const struct sl_published_name *name = family->layers; name->own; name++)
        if (name->part)
            return sl_error_set(error, SL_BAD_INPUT,
                                "adapters of a %s: PEFT has one for q, k and v, and here each has its own",
                                family->name);
    return SL_OK;
}

/* ---- names ---- */

static bool is_kernel(const struct sl_published_name *name) {
    const size_t length = strlen(name->own), tail = strlen(end_of_kernel);
    return length > tail && !strcmp(name->own + length - tail, end_of_kernel);
}

/* One side of the adapter of NAME in LAYER, as a folder calls it and as we do. */
static void name_side(const struct sl_published_family *family, const struct sl_published_name *name, int layer,
                      const struct side *side, char folder[160], char own[160]) {
    char tensor[128];
    sl_published_tensor_name(family, name, false, layer, tensor);
    snprintf(folder, 160, "%s%.*s%s", prefix, (int)(strlen(tensor) - strlen(end_of_weight)), tensor, side->folder);
    snprintf(own, 160, "blocks.%d.layers.0.%.*s%s", layer, (int)(strlen(name->own) - strlen(end_of_kernel)), name->own,
             side->own);
}

/* TO [columns, rows] = FROM [rows, columns], of any type of floats. */
static void turn(const struct sl_array *from, float *to) {
    const size_t rows = from->shape[0], columns = from->shape[1];
    for (size_t r = 0; r < rows; r++)
        for (size_t c = 0; c < columns; c++) to[c * rows + r] = sl_load_float(from->dtype, from->data, r * columns + c);
}

/* ---- reading: what the configuration says ---- */

static int refuse(const char *folder, const char *key, const char *value, struct sl_error *error) {
    return sl_error_set(error, SL_BAD_INPUT, "%s/%s: %s is %s, which is not supported", folder, config_file, key,
                        value);
}

static bool is_empty(const json_t *value) {
    return !value || json_is_null(value) || json_is_false(value) ||
           ((json_is_object(value) || json_is_array(value)) && !json_object_size(value) && !json_array_size(value));
}

/* Keys that would make something else of the same tensors. */
static int check_config(const char *folder, const json_t *config, struct sl_error *error) {
    static const char *const absent[] = {"use_rslora",
                                         "use_dora",
                                         "rank_pattern",
                                         "alpha_pattern",
                                         "modules_to_save",
                                         "fan_in_fan_out",
                                         "lora_bias",
                                         "use_bdlora",
                                         "use_qalora",
                                         "alora_invocation_tokens",
                                         "trainable_token_indices",
                                         "target_parameters",
                                         "layer_replication",
                                         "megatron_config"};
    const char *kind = json_string_value(json_object_get(config, "peft_type"));
    const char *bias = json_string_value(json_object_get(config, "bias"));
    const json_t *begin = json_object_get(config, "init_lora_weights");
    if (!kind || strcmp(kind, "LORA") != 0) return refuse(folder, "peft_type", kind ? kind : "missing", error);
    if (bias && strcmp(bias, "none") != 0) return refuse(folder, "bias", bias, error);
    for (size_t i = 0; i < sizeof absent / sizeof *absent; i++)
        if (!is_empty(json_object_get(config, absent[i]))) return refuse(folder, absent[i], "there", error);
    if (json_is_string(begin) && strcmp(json_string_value(begin), "gaussian") != 0)
        return refuse(folder, "init_lora_weights", json_string_value(begin),
                      error); /* other kernels than the model's */
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

static int read_config(struct sl_peft *peft, const char *folder, struct sl_error *error) {
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
                     ? check_config(folder, config, error)
                     : sl_error_set(error, SL_BAD_INPUT, "%s: not a JSON object: %.80s", path, wrong.text);
    if (status == SL_OK) status = read_numbers(peft, folder, config, error);
    json_decref(config);
    return status;
}

/* ---- reading: the tensors ---- */

/* A file, and which of its tensors are taken. */
struct taking {
    struct sl_peft *peft;
    const struct sl_store *file;
    int taken;
    struct sl_error *error;
};

static int take_side(struct taking *t, const char *folder, const char *own, bool is_b) {
    const struct sl_tensor *tensor = sl_store_find(t->file, folder);
    const struct sl_array *array = &tensor->array;
    const size_t rank = (size_t)t->peft->rank;
    if (array->dtype == SL_I32 || array->dims != 2 || array->shape[is_b] != rank)
        return sl_error_set(t->error, SL_BAD_INPUT, "%s: tensor %s is no matrix of floats of rank %zu", t->file->path,
                            folder, rank);
    const size_t shape[] = {array->shape[1], array->shape[0]};
    struct sl_tensor *added = sl_store_add(&t->peft->values, own, SL_F32, 2, shape);
    if (!added) return sl_error_set(t->error, SL_FAILED, "no memory for adapters");
    turn(array, added->array.data);
    t->taken++;
    return SL_OK;
}

/* Of NAME in LAYER, both sides or none. *FOUND: both. */
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
    for (int s = 0; *found && s < 2; s++) SL_TRY(take_side(t, folder[s], own[s], s));
    return SL_OK;
}

/* Adds a pattern to the list, which has ROOM. */
static void add_pattern(char *list, size_t room, const char *begin, const struct sl_published_name *name) {
    const size_t used = strlen(list);
    snprintf(list + used, room - used, "%s%s%.*s", used ? "," : "", begin,
             (int)(strlen(name->own) - strlen(end_of_kernel)), name->own);
}

/* All layers' adapters of NAME, and the patterns that name them. */
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

/* A tensor of the file that was not taken. */
static int refuse_untaken(const struct taking *t, const struct sl_published_family *family, int layers) {
    char folder[160], own[160];
    for (int i = 0; i < t->file->count; i++) {
        bool known = false;
        for (const struct sl_published_name *name = family->layers; name->own && !known; name++)
            for (int s = 0; is_kernel(name) && s < 2 * layers && !known; s++) {
                name_side(family, name, s / 2, &sides[s % 2], folder, own);
                known = !strcmp(folder, t->file->tensor[i].name);
            }
        if (!known)
            return sl_error_set(t->error, SL_BAD_INPUT, "%s: tensor %s: no layer of a %s with these sizes takes it",
                                t->file->path, t->file->tensor[i].name, family->name);
    }
    return sl_error_set(t->error, SL_BAD_INPUT, "%s: no adapter is in it", t->file->path);
}

static int take_all(struct taking *t, const struct sl_published_family *family, int layers) {
    const size_t room = ((size_t)t->file->count + 1) * 64;
    t->peft->modules = calloc(room, 1);
    if (!t->peft->modules) return sl_error_set(t->error, SL_FAILED, "no memory for adapters");
    for (const struct sl_published_name *name = family->layers; name->own; name++)
        if (is_kernel(name)) SL_TRY(take_name(t, family, name, layers, room));
    return t->taken && t->taken == t->file->count ? SL_OK : refuse_untaken(t, family, layers);
}

int sl_peft_read(struct sl_peft *peft, const char *folder, const struct sl_published_family *family,
                 const struct sl_transformer *transformer, struct sl_error *error) {
    char path[SL_MAX_PATH];
    struct sl_store file = {0};
    struct taking taking = {.peft = peft, .file = &file, .error = error};
    *peft = (struct sl_peft){0};
    SL_TRY(sl_peft_check(family, error));
    SL_TRY(read_config(peft, folder, error));
    if (snprintf(path, sizeof path, "%s/%s", folder, tensors_file) >= SL_MAX_PATH)
        return sl_error_set(error, SL_BAD_INPUT, "%.100s...: the path is too long", folder);
    SL_TRY(sl_safetensors_map(&file, path, error));
    const int status = take_all(&taking, family, transformer->blocks);
    sl_store_free(&file);
    return status;
}

void sl_peft_free(struct sl_peft *peft) {
    free(peft->modules);
    sl_store_free(&peft->values);
    *peft = (struct sl_peft){0};
}

/* ---- writing ---- */

/* What PEFT calls the layers: by the ends of their names, if all layers of the model have them. */
static int name_targets(json_t *targets, const struct sl_peft *peft, const struct sl_published_family *family,
                        int layers) {
    char folder[160], own[160];
    int failed = 0;
    for (const struct sl_published_name *name = family->layers; name->own; name++) {
        int count = 0;
        for (int layer = 0; is_kernel(name) && layer < layers; layer++) {
            name_side(family, name, layer, &sides[0], folder, own);
            count += sl_store_find(&peft->values, own) != NULL;
        }
        for (int layer = 0; count && layer < (count == layers ? 1 : layers); layer++) {
            name_side(family, name, layer, &sides[0], folder, own);
            if (!sl_store_find(&peft->values, own)) continue;
            folder[strlen(folder) - strlen(sides[0].folder)] = 0;
            const char *dot = strrchr(folder, '.');
            failed |=
                json_array_append_new(targets, json_string(count == layers && dot ? dot + 1 : folder + strlen(prefix)));
        }
    }
    return failed;
}

static json_t *config_of(const struct sl_peft *peft, const struct sl_published_family *family, int layers,
                         const char *base) {
    json_t *targets = json_array();
    if (!targets || name_targets(targets, peft, family, layers)) {
        json_decref(targets);
        return NULL;
    }
    return json_pack("{ss ss ss? sb si sf sf so ss sb sn sb sb s{} s{}}", "peft_type", "LORA", "task_type", "CAUSAL_LM",
                     "base_model_name_or_path", base, "inference_mode", 1, "r", peft->rank, "lora_alpha", peft->alpha,
                     "lora_dropout", 0.0, "target_modules", targets, "bias", "none", "fan_in_fan_out", 0,
                     "modules_to_save", "use_rslora", 0, "use_dora", 0, "rank_pattern", "alpha_pattern");
}

static int add_side(struct sl_store *file, const struct sl_peft *peft, const char *folder, const char *own,
                    struct sl_error *error) {
    const struct sl_tensor *tensor = sl_store_find(&peft->values, own);
    if (!tensor) return SL_OK;
    const size_t shape[] = {tensor->array.shape[1], tensor->array.shape[0]};
    struct sl_tensor *added = sl_store_add(file, folder, SL_F32, 2, shape);
    if (!added) return sl_error_set(error, SL_FAILED, "no memory for adapters");
    turn(&tensor->array, added->array.data);
    return SL_OK;
}

int sl_peft_write(const struct sl_peft *peft, const char *folder, const struct sl_published_family *family,
                  const struct sl_transformer *transformer, const char *base, struct sl_error *error) {
    char path[SL_MAX_PATH], name_there[160], name_here[160];
    struct sl_store file = {.replaces_links = true};
    int status = SL_OK;
    if (snprintf(path, sizeof path, "%s/%s", folder, tensors_file) >= SL_MAX_PATH)
        return sl_error_set(error, SL_BAD_INPUT, "%.100s...: the path is too long", folder);
    for (const struct sl_published_name *name = family->layers; name->own; name++)
        for (int s = 0; is_kernel(name) && s < 2 * transformer->blocks && status == SL_OK; s++) {
            name_side(family, name, s / 2, &sides[s % 2], name_there, name_here);
            status = add_side(&file, peft, name_there, name_here, error);
        }
    if (status == SL_OK && sl_store_set_note(&file, "format", "pt"))
        status = sl_error_set(error, SL_FAILED, "no memory for %s", path);
    if (status == SL_OK) status = sl_safetensors_write(&file, path, error);
    sl_store_free(&file);
    if (status) return status;
    return sl_json_write(config_of(peft, family, transformer->blocks, base), folder, config_file, error);
}
