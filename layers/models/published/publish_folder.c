/* publish_folder.c - config.json and safetensors files in Hugging Face's format. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "layers/models/published/publish_files.h"
#include "layers/models/published/published_internal.h"
#include "layers/formats/files/draft.h"
#include "layers/formats/files/json_file_internal.h"
#include "layers/formats/stores/safetensors.h"

static const enum sl_dtype dtypes[] = {[SL_WEIGHT_F32] = SL_F32, [SL_WEIGHT_F16] = SL_F16, [SL_WEIGHT_BF16] = SL_BF16};
static const char *const torch_names[] = {
    [SL_WEIGHT_F32] = "float32", [SL_WEIGHT_F16] = "float16", [SL_WEIGHT_BF16] = "bfloat16"};

/* ---- config.json ---- */

/* Sets NAME, by the family's own name if it has one. */
static void set(json_t *config, const struct sl_published_family *family, const char *name, json_t *value) {
    json_object_set_new(config, sl_published_key(family, name), value);
}

double sl_publish_divisor(const struct sl_publishing *p) {
    const struct sl_transformer *t = p->publication->transformer;
    const float *divisors = t->rotary.divisors;
    for (int i = 1; divisors && i < sl_transformer_head_width(t) / 2; i++)
        if (divisors[i] != divisors[0]) return 0;
    return divisors ? (double)divisors[0] : 1;
}

static json_t *rotary_of(const struct sl_publishing *p) {
    const struct sl_rotary *rotary = &p->publication->transformer->rotary;
    const double divisor = sl_publish_divisor(p);
    if (divisor != 1.0)
        return json_pack("{sf ss sf}", "rope_theta", rotary->base, "rope_type", "linear", "factor", divisor);
    if (!rotary->factor) return json_pack("{sf ss}", "rope_theta", rotary->base, "rope_type", "default");
    return json_pack("{sf ss sf sf sf sI}", "rope_theta", rotary->base, "rope_type", "llama3", "factor", rotary->factor,
                     "low_freq_factor", rotary->low, "high_freq_factor", rotary->high,
                     "original_max_position_embeddings", (json_int_t)rotary->original);
}

/* Sets the family's bias flags in config.json. */
static void set_biases(json_t *config, const struct sl_publishing *p) {
    const struct sl_published_family *family = p->publication->family;
    const int biases = p->publication->transformer->biases;
    if (family->attention_bias) json_object_set_new(config, "attention_bias", json_boolean(sl_biases_qkv(biases)));
    if (family->mlp_bias) json_object_set_new(config, "mlp_bias", json_boolean(sl_biases_mlp(biases)));
}

static void set_sizes(json_t *config, const struct sl_publishing *p) {
    const struct sl_transformer *t = p->publication->transformer;
    const struct sl_published_family *family = p->publication->family;
    set(config, family, "vocab_size", json_integer(t->vocabulary));
    set(config, family, "hidden_size", json_integer(t->dimension));
    set(config, family, "num_hidden_layers", json_integer(t->blocks));
    set(config, family, "num_attention_heads", json_integer(t->heads));
    set(config, family, "intermediate_size", json_integer(sl_transformer_inside(t)));
    set(config, family, "max_position_embeddings", json_integer(p->context));
    set(config, family, "rms_norm_eps", json_real(sl_transformer_epsilon(t)));
    set(config, family, "hidden_act",
        json_string(t->mlp == SL_MLP_GATED_SILU ? "silu"
                    : t->mlp == SL_MLP_ERF_GELU ? "gelu"
                                                : "gelu_new"));
    if (!t->rope) return;
    set(config, family, "num_key_value_heads", json_integer(sl_transformer_key_heads(t)));
    set(config, family, "head_dim", json_integer(sl_transformer_head_width(t)));
    set(config, family, "rope_theta", json_real(t->rotary.base));
    set(config, family, "rope_parameters", rotary_of(p));
    set_biases(config, p);
    if (family->model.window) set(config, family, "sliding_window", t->window ? json_integer(t->window) : json_null());
}

/* Sets begin and end tokens. Tokens in a given config.json stay. */
static void set_tokens(json_t *config, const struct sl_publishing *p) {
    static const char *const names[] = {"bos_token_id", "eos_token_id"};
    const int32_t tokens[] = {p->begin, p->end};
    for (int i = 0; i < 2; i++) {
        const json_t *given = json_object_get(config, names[i]);
        if ((given && !json_is_null(given)) || (p->config && tokens[i] < 0)) continue;
        json_object_set_new(config, names[i], tokens[i] < 0 ? json_null() : json_integer(tokens[i]));
    }
}

json_t *sl_publish_config(const struct sl_publishing *p) {
    const struct sl_published_family *family = p->publication->family;
    json_t *config = p->config ? json_deep_copy(p->config) : json_object();
    if (!config) return NULL;
    json_object_set_new(config, "torch_dtype", json_string(torch_names[p->type]));
    if (p->config) {
        json_object_del(config, "dtype"); /* the same key in newer files */
        set_biases(config, p);
        set_tokens(config, p);
        return config;
    }
    json_object_set_new(config, "model_type", json_string(family->name));
    json_object_set_new(config, "architectures", json_pack("[s]", family->architecture));
    json_object_set_new(config, "tie_word_embeddings", json_boolean(!p->publication->transformer->untied_head));
    set_sizes(config, p);
    set_tokens(config, p);
    return config;
}

int sl_publish_check(const struct sl_publishing *p, struct sl_error *error) {
    if (p->publication->gguf && p->publication->transformer->window)
        return sl_error_set(error, SL_BAD_INPUT,
                            "a GGUF file of a %s cannot say that attention has a window of %d "
                            "tokens: --format hf can",
                            p->publication->family->name, p->publication->transformer->window);
    const struct sl_transformer *t = p->publication->transformer;
    const struct sl_published_family *family = p->publication->family;
    const bool amplified = t->rotary.amplitude > 0 && t->rotary.amplitude != 1.0;
    const bool differs =
        t->rope && (!(sl_publish_divisor(p) > 0) || (sl_publish_divisor(p) != 1.0 && t->rotary.factor > 0));
    if (!sl_published_has_biases(family, t->biases, p->publication->gguf))
        return sl_error_set(error, SL_BAD_INPUT,
                            "a config.json of a %s cannot say which products have biases: "
                            "--format gguf can",
                            family->name);
    if (p->publication->gguf && !family->turned_rows && t->rope && (differs || amplified || t->rotary.factor > 0))
        return sl_error_set(error, SL_BAD_INPUT,
                            "a GGUF file of a %s cannot hold divisors of the rotations' rates: --format hf can",
                            family->name);
    if (p->publication->gguf || p->config || (!differs && !amplified)) return SL_OK;
    return sl_error_set(error, SL_BAD_INPUT,
                        "a config.json cannot hold divisors of the rotations' rates: --format gguf can");
}

/* ---- files ---- */

static int place(const char *to, const char *name, char path[SL_MAX_PATH], struct sl_error *error) {
    if (snprintf(path, SL_MAX_PATH, "%s/%s", to, name) < SL_MAX_PATH) return SL_OK;
    return sl_error_set(error, SL_BAD_INPUT, "%.100s...: the path is too long", to);
}

/* Writes tensors [FIRST, END) to the file NAME. */
static int write_tensors(const struct sl_publishing *p, const char *to, const char *name, int first, int end,
                         struct sl_error *error) {
    struct sl_store store = {0};
    char path[SL_MAX_PATH];
    int status = place(to, name, path, error);
    for (int i = first; i < end && status == SL_OK; i++) {
        const struct sl_published_tensor *tensor = &p->publication->tensor[i];
        if (!sl_store_declare(&store, tensor->name, dtypes[p->type], tensor->dims, tensor->shape))
            status = sl_error_set(error, SL_FAILED, "no memory for tensor %s", tensor->name);
    }
    if (status == SL_OK && sl_store_set_note(&store, "format", "pt"))
        status = sl_error_set(error, SL_FAILED, "no memory for %s", path);
    store.replaces_links = true;
    if (status == SL_OK) status = sl_safetensors_create(&store, path, error);
    for (int i = first; i < end && status == SL_OK; i++)
        status = sl_publication_encode(p->publication, i, p->type,
                                       sl_store_find(&store, p->publication->tensor[i].name)->array.data, error);
    if (status == SL_OK) return sl_safetensors_commit(&store, NULL, NULL, error);
    sl_store_free(&store);
    return status;
}

/* End of the file's tensors, if they begin with FIRST. */
static int end_of_file(const struct sl_publishing *p, int first) {
    int end = first;
    for (size_t bytes = 0; end < p->publication->count; end++) {
        bytes += sl_published_bytes(&p->publication->tensor[end], p->type);
        if (bytes > p->most && end > first) break;
    }
    return end;
}

/* Writes the tensors to FILES files, and the index of tensors and files. */
static int write_shards(const struct sl_publishing *p, const char *to, int files, struct sl_error *error) {
    json_t *map = json_object();
    double total = 0;
    int status = SL_OK;
    for (int file = 0, first = 0, end; file < files && status == SL_OK; file++, first = end) {
        char name[64];
        snprintf(name, sizeof name, "model-%05d-of-%05d.safetensors", file + 1, files);
        end = end_of_file(p, first);
        for (int i = first; i < end; i++) {
            json_object_set_new(map, p->publication->tensor[i].name, json_string(name));
            total += (double)sl_published_bytes(&p->publication->tensor[i], p->type);
        }
        status = write_tensors(p, to, name, first, end, error);
    }
    json_t *index = json_pack("{s{sI} so}", "metadata", "total_size", (json_int_t)total, "weight_map", map);
    if (status == SL_OK) return sl_json_write(index, to, "model.safetensors.index.json", error);
    json_decref(index);
    return status;
}

int sl_publish_folder(const struct sl_publishing *p, const char *to, struct sl_error *error) {
    int files = 0;
    for (int first = 0; first < p->publication->count; first = end_of_file(p, first)) files++;
    if (files > 1)
        SL_TRY(write_shards(p, to, files, error));
    else
        SL_TRY(write_tensors(p, to, "model.safetensors", 0, p->publication->count, error));
    return sl_json_write(sl_publish_config(p), to, "config.json", error);
}
