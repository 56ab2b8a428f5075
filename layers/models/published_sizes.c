/* published_sizes.c - the sizes of a published model, from a folder's config.json or a GGUF file's metadata. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "layers/models/published_internal.h"

/* What is asked for, by its names in the two kinds of files. */
struct reading {
    struct sl_published *published;
    const char *architecture; /* a GGUF file's; NULL: there is a config.json */
    const struct sl_published_family *family;
    struct sl_error *error;
};

/* ---- values ---- */

static const char *path_of(const struct reading *r) { return r->published->weights.path; }
static const json_t *config_of(const struct reading *r) { return r->published->weights.config; }

/* What the family calls NAME, which is most families' key. */
static const char *key_of(const struct reading *r, const char *name) { return sl_published_key(r->family, name); }

/* "llama.block_count" */
static const struct sl_gguf_value *find_gguf(const struct reading *r, const char *key) {
    char name[96];
    snprintf(name, sizeof name, "%s.%s", r->architecture, key);
    return sl_gguf_find(&r->published->weights.gguf, name);
}

static int refuse(const struct reading *r, const char *key, const char *value) {
    return sl_error_set(r->error, SL_BAD_INPUT, "%s: %s%s%s is %.60s, which is not supported", path_of(r),
                        r->architecture ? r->architecture : "config.json: ", r->architecture ? "." : "", key, value);
}

/* *SIZE from 1 to MOST; FALLBACK (0: there must be one) where there is none. A NAME of NULL: only GGUF
 * files have it. */
static int read_size(const struct reading *r, const char *name, const char *gguf, int64_t most, int fallback,
                     int *size) {
    const json_t *value = name ? json_object_get(config_of(r), key_of(r, name)) : NULL;
    const char *key = r->architecture ? gguf : key_of(r, name);
    int64_t number = fallback;
    if (r->architecture) {
        const struct sl_gguf_value *found = find_gguf(r, gguf);
        number = sl_gguf_integer(found, found ? -1 : fallback);
    } else if (value && !json_is_null(value)) {
        number = json_is_integer(value) ? (int64_t)json_integer_value(value) : -1;
    }
    *size = (int)number;
    if (number >= 1 && number <= most) return SL_OK;
    return sl_error_set(r->error, SL_BAD_INPUT, "%s: %s%s: there must be a number from 1 to %jd", path_of(r),
                        r->architecture ? "" : "config.json: ", key, (intmax_t)most);
}

static int read_real(const struct reading *r, const json_t *object, const char *name, const char *gguf, double fallback,
                     double *real) {
    const json_t *value = json_object_get(object, key_of(r, name));
    const struct sl_gguf_value *found = r->architecture && gguf ? find_gguf(r, key_of(r, gguf)) : NULL;
    *real = found                           ? sl_gguf_real(found, NAN)
            : !value || json_is_null(value) ? fallback
            : json_is_number(value)         ? json_number_value(value)
                                            : NAN;
    if (*real > 0 && *real < 1e12) return SL_OK;
    return sl_error_set(r->error, SL_BAD_INPUT, "%s: %s%s: there must be a number above 0", path_of(r),
                        r->architecture ? "" : "config.json: ", key_of(r, found ? gguf : name));
}

/* ---- positions ---- */

static int read_llama3(const struct reading *r, const json_t *scaling, struct sl_rotary *rotary) {
    SL_TRY(read_real(r, scaling, "factor", NULL, 0, &rotary->factor));
    SL_TRY(read_real(r, scaling, "low_freq_factor", NULL, 0, &rotary->low));
    SL_TRY(read_real(r, scaling, "high_freq_factor", NULL, 0, &rotary->high));
    SL_TRY(read_real(r, scaling, "original_max_position_embeddings", NULL, 0, &rotary->original));
    if (!(rotary->factor >= 1)) return refuse(r, "rope_scaling.factor", "below 1");
    return rotary->high > rotary->low ? SL_OK : refuse(r, "rope_scaling.high_freq_factor", "not above low_freq_factor");
}

/* GGUF files of Llama 3 have what the rates are divided by, as a tensor. */
static int read_divisors(const struct reading *r, struct sl_rotary *rotary) {
    static const char name[] = "rope_freqs.weight";
    struct sl_published *p = r->published;
    const struct sl_weight *tensor = sl_weights_find(&p->weights, name);
    const size_t pairs = (size_t)p->transformer.head_width / 2;
    if (!tensor) return SL_OK;
    if (tensor->dims != 1 || tensor->shape[0] != pairs)
        return sl_error_set(r->error, SL_BAD_INPUT, "%s: tensor %s: there must be %zu numbers, one for each pair",
                            path_of(r), name, pairs);
    p->divisors = malloc(pairs * sizeof *p->divisors);
    if (!p->divisors) return sl_error_set(r->error, SL_FAILED, "%s: no memory for %s", path_of(r), name);
    sl_weight_read(tensor, 0, pairs, p->divisors);
    for (size_t i = 0; i < pairs; i++)
        if (!(p->divisors[i] > 0 && p->divisors[i] < 1e12f))
            return sl_error_set(r->error, SL_BAD_INPUT, "%s: tensor %s: number %zu is %g: it must be above 0",
                                path_of(r), name, i, (double)p->divisors[i]);
    rotary->divisors = p->divisors;
    return SL_OK;
}

static int read_gguf_rotary(const struct reading *r, struct sl_rotary *rotary) {
    const int width = r->published->transformer.head_width;
    int rotated;
    if (find_gguf(r, "rope.scaling.type")) return refuse(r, "rope.scaling.type", "there");
    SL_TRY(read_size(r, NULL, "rope.dimension_count", 1 << 20, width, &rotated));
    if (rotated != width) return refuse(r, "rope.dimension_count", "not the columns of a head");
    return read_divisors(r, rotary);
}

/* Newer files have rope_parameters in place of rope_theta and rope_scaling. */
static int read_rotary(const struct reading *r, struct sl_rotary *rotary) {
    const json_t *config = config_of(r), *parameters = json_object_get(config, "rope_parameters");
    const json_t *scaling = json_is_object(parameters) ? parameters : json_object_get(config, "rope_scaling");
    const json_t *type = json_object_get(scaling, "rope_type");
    if (!type) type = json_object_get(scaling, "type");
    double base;
    SL_TRY(read_real(r, parameters, "rope_theta", NULL, 10000, &base));
    SL_TRY(read_real(r, config, "rope_theta", "rope.freq_base", base, &rotary->base));
    if (r->architecture) return read_gguf_rotary(r, rotary);
    if (!json_is_object(scaling) ||
        (type && !strcmp(json_string_value(type) ? json_string_value(type) : "", "default")))
        return SL_OK;
    const char *name = json_string_value(type);
    if (!name && scaling == parameters) return SL_OK;
    if (name && !strcmp(name, "llama3")) return read_llama3(r, scaling, rotary);
    return refuse(r, scaling == parameters ? "rope_parameters.rope_type" : "rope_scaling.rope_type",
                  name ? name : "missing");
}

/* ---- families ---- */

static int find_family(struct reading *r, const char *name) {
    char known[128];
    r->family = sl_published_find_family(name);
    if (r->family) return SL_OK;
    return sl_error_set(r->error, SL_BAD_INPUT, "%s: %s is \"%.60s\", which is not supported: %s are", path_of(r),
                        r->architecture ? "general.architecture" : "config.json: model_type", name,
                        sl_published_families(known));
}

/* What is inside an MLP: gated, or one of gelu's two forms. */
static int read_activation(const struct reading *r, struct sl_transformer *t) {
    static const char *const tanh_forms[] = {"gelu_new", "gelu_pytorch_tanh", "gelu_fast"};
    const char *key = key_of(r, "hidden_act"), *act = json_string_value(json_object_get(config_of(r), key));
    if (!act) return SL_OK;
    if (t->mlp == SL_MLP_GATED_SILU) return strcmp(act, "silu") ? refuse(r, key, act) : SL_OK;
    for (int i = 0; i < 3; i++)
        if (!strcmp(act, tanh_forms[i])) return SL_OK;
    t->mlp = SL_MLP_ERF_GELU;
    return strcmp(act, "gelu") ? refuse(r, key, act) : SL_OK;
}

/* What config.json may say that these modules are not. */
static int check_config(const struct reading *r) {
    static const struct {
        const char *key;
        bool allowed;
    } flags[] = {{"mlp_bias", false},
                 {"use_sliding_window", false},
                 {"attention_bias", false},
                 {"add_cross_attention", false},
                 {"scale_attn_by_inverse_layer_idx", false},
                 {"scale_attn_weights", true}};
    const json_t *partial = json_object_get(config_of(r), "partial_rotary_factor");
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) {
        const json_t *value = json_object_get(config_of(r), flags[i].key);
        if (json_is_boolean(value) && json_is_true(value) != flags[i].allowed)
            return refuse(r, flags[i].key, flags[i].allowed ? "false" : "true");
    }
    if (json_is_number(partial) && json_number_value(partial) != 1) return refuse(r, "partial_rotary_factor", "not 1");
    return json_is_object(json_object_get(config_of(r), "quantization_config"))
               ? refuse(r, "quantization_config", "there")
               : SL_OK;
}

/* Of the families that have a window; one beyond which nothing lies is none. */
static int read_context(const struct reading *r) {
    const json_t *window = json_object_get(config_of(r), "sliding_window");
    struct sl_transformer *t = &r->published->transformer;
    int *context = &r->published->context;
    SL_TRY(read_size(r, "max_position_embeddings", "context_length", 1 << 24, 0, context));
    t->window = 0;
    if (r->architecture || !r->family->model.window || !window || json_is_null(window)) return SL_OK;
    SL_TRY(read_size(r, "sliding_window", "attention.sliding_window", 1 << 24, 0, &t->window));
    if (t->window >= *context) t->window = 0;
    return SL_OK;
}

static int read_family_name(const struct reading *r, const char **name) {
    const struct sl_published *p = r->published;
    *name = json_string_value(json_object_get(p->weights.config, "model_type"));
    if (!*name) return sl_error_set(r->error, SL_BAD_INPUT, "%s: config.json: no model_type", p->weights.path);
    return SL_OK;
}

static int read_sizes(const struct reading *r) {
    enum { MOST = 1 << 20, MOST_HEADS = 1024, MOST_LAYERS = 4096 };
    struct sl_transformer *t = &r->published->transformer;
    const bool gated = r->family->model.mlp == SL_MLP_GATED_SILU;
    *t = r->family->model;
    SL_TRY(read_size(r, "hidden_size", "embedding_length", MOST, 0, &t->dimension));
    SL_TRY(read_size(r, "num_hidden_layers", "block_count", MOST_LAYERS, 0, &t->blocks));
    SL_TRY(read_size(r, "num_attention_heads", "attention.head_count", MOST_HEADS, 0, &t->heads));
    SL_TRY(read_size(r, "num_key_value_heads", "attention.head_count_kv", MOST_HEADS, t->heads, &t->key_heads));
    SL_TRY(read_size(r, "head_dim", "attention.key_length", MOST, t->dimension / t->heads ? t->dimension / t->heads : 1,
                     &t->head_width));
    SL_TRY(
        read_size(r, "intermediate_size", "feed_forward_length", 16 * MOST, gated ? 0 : 4 * t->dimension, &t->inside));
    SL_TRY(read_real(r, config_of(r), "rms_norm_eps", "attention.layer_norm_rms_epsilon", t->epsilon, &t->epsilon));
    SL_TRY(read_activation(r, t));
    SL_TRY(read_context(r));
    if (t->rope) return read_rotary(r, &t->rotary);
    return read_size(r, "max_position_embeddings", "context_length", 1 << 20, 0, &t->learned_positions);
}

/* The table's rows tell its size. */
static int read_vocabulary(const struct reading *r) {
    const struct sl_weights *weights = &r->published->weights;
    const char *name = r->architecture ? r->family->ends->gguf : r->family->ends->folder;
    const struct sl_weight *table = sl_published_tensor(r->published, name);
    if (!table || table->dims != 2 || table->shape[0] < 1 || table->shape[0] > 1 << 24)
        return sl_error_set(r->error, SL_BAD_INPUT, "%s: tensor %s is missing, or no table of at most %d rows",
                            path_of(r), name, 1 << 24);
    r->published->transformer.vocabulary = (int)table->shape[0];
    const json_t *tied = json_object_get(weights->config, "tie_word_embeddings");
    r->published->transformer.untied_head = r->architecture ? sl_weights_find(weights, "output.weight") != NULL
                                            : tied          ? !json_is_true(tied)
                                                            : !r->family->ties;
    return SL_OK;
}

static int read_all(struct reading *r, const char *name) {
    SL_TRY(find_family(r, name));
    r->published->family = r->family;
    if (!r->architecture) SL_TRY(check_config(r));
    SL_TRY(read_sizes(r));
    return read_vocabulary(r);
}

int sl_read_published_sizes(struct sl_published *published, struct sl_error *error) {
    char architecture[32] = "";
    struct reading r = {.published = published, .error = error};
    const char *name;
    if (published->weights.config) {
        SL_TRY(read_family_name(&r, &name));
        return read_all(&r, name);
    }
    const struct sl_gguf_value *value = sl_gguf_find(&published->weights.gguf, "general.architecture");
    if (value && !value->array && value->type == SL_GGUF_STRING) {
        struct sl_gguf_cursor cursor = sl_gguf_begin(value);
        const struct sl_gguf_text text = sl_gguf_next_text(&cursor);
        snprintf(architecture, sizeof architecture, "%.*s", text.count < 31 ? (int)text.count : 31, text.bytes);
    }
    r.architecture = architecture;
    return read_all(&r, architecture);
}
