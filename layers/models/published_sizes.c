/* published_sizes.c - the sizes of a published model, from a folder's config.json or a GGUF file's metadata. */
#include <math.h>
#include <string.h>

#include "layers/models/published_internal.h"

/* What is asked for, by its names in the two kinds of files. */
struct reading {
    struct sl_published *published;
    const char *architecture; /* a GGUF file's; NULL: there is a config.json */
    struct sl_error *error;
};

/* ---- values ---- */

static const char *path_of(const struct reading *r) { return r->published->weights.path; }

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

/* *SIZE from 1 to MOST; FALLBACK (0: there must be one) where there is none. A name of NULL: such files have none. */
static int read_size(const struct reading *r, const char *name, const char *gguf, int64_t most, int fallback,
                     int *size) {
    const json_t *value = name ? json_object_get(r->published->weights.config, name) : NULL;
    const char *key = r->architecture ? gguf : name;
    int64_t number = fallback;
    *size = fallback;
    if (!key) return SL_OK;
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
    const json_t *value = json_object_get(object, name);
    const struct sl_gguf_value *found = r->architecture && gguf ? find_gguf(r, gguf) : NULL;
    *real = found                           ? sl_gguf_real(found, NAN)
            : !value || json_is_null(value) ? fallback
            : json_is_number(value)         ? json_number_value(value)
                                            : NAN;
    if (*real > 0 && *real < 1e12) return SL_OK;
    return sl_error_set(r->error, SL_BAD_INPUT, "%s: %s%s: there must be a number above 0", path_of(r),
                        r->architecture ? "" : "config.json: ", found ? gguf : name);
}

/* ---- positions ---- */

static int read_llama3(const struct reading *r, const json_t *scaling, struct sl_rotary *rotary) {
    SL_TRY(read_real(r, scaling, "factor", NULL, 0, &rotary->factor));
    SL_TRY(read_real(r, scaling, "low_freq_factor", NULL, 0, &rotary->low));
    SL_TRY(read_real(r, scaling, "high_freq_factor", NULL, 0, &rotary->high));
    SL_TRY(read_real(r, scaling, "original_max_position_embeddings", NULL, 0, &rotary->original));
    return rotary->high > rotary->low ? SL_OK : refuse(r, "rope_scaling.high_freq_factor", "not above low_freq_factor");
}

/* Newer files have rope_parameters in place of rope_theta and rope_scaling. */
static int read_rotary(const struct reading *r, struct sl_rotary *rotary) {
    const json_t *config = r->published->weights.config, *parameters = json_object_get(config, "rope_parameters");
    const json_t *scaling = json_is_object(parameters) ? parameters : json_object_get(config, "rope_scaling");
    const json_t *type = json_object_get(scaling, "rope_type");
    if (!type) type = json_object_get(scaling, "type");
    double base;
    SL_TRY(read_real(r, parameters, "rope_theta", NULL, 10000, &base));
    SL_TRY(read_real(r, config, "rope_theta", "rope.freq_base", base, &rotary->base));
    if (r->architecture) {
        const struct sl_gguf_value *kind = find_gguf(r, "rope.scaling.type");
        if (kind) return refuse(r, "rope.scaling.type", "there");
        if (sl_weights_find(&r->published->weights, "rope_freqs.weight"))
            return sl_error_set(r->error, SL_BAD_INPUT, "%s: tensor rope_freqs.weight is not supported", path_of(r));
        return SL_OK;
    }
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

static const struct family {
    const char *name;
    int biases;
    bool head_norms, turned_rows; /* in GGUF files */
} families[] = {
    {"llama", SL_BIASES_NONE, false, true},
    {"mistral", SL_BIASES_NONE, false, true},
    {"qwen2", SL_BIASES_QKV, false, false},
    {"qwen3", SL_BIASES_NONE, true, false},
};
enum { FAMILIES = sizeof families / sizeof *families };

static int find_family(const struct reading *r, const char *name, const struct family **family) {
    for (int i = 0; i < FAMILIES; i++) {
        *family = &families[i];
        if (!strcmp(name, families[i].name)) return SL_OK;
    }
    return sl_error_set(r->error, SL_BAD_INPUT,
                        "%s: %s is \"%.60s\", which is not supported: llama, mistral, qwen2 and qwen3 are", path_of(r),
                        r->architecture ? "general.architecture" : "config.json: model_type", name);
}

/* What config.json may say that these modules are not. */
static int check_config(const struct reading *r) {
    const json_t *config = r->published->weights.config;
    const char *act = json_string_value(json_object_get(config, "hidden_act"));
    if (act && strcmp(act, "silu") != 0) return refuse(r, "hidden_act", act);
    static const char *const forbidden[] = {"mlp_bias", "use_sliding_window", "attention_bias"};
    for (int i = 0; i < 3; i++)
        if (json_is_true(json_object_get(config, forbidden[i]))) return refuse(r, forbidden[i], "true");
    if (json_is_object(json_object_get(config, "quantization_config")))
        return refuse(r, "quantization_config", "there");
    return SL_OK;
}

/* A window is no matter as long as nothing lies beyond it. */
static int read_context(const struct reading *r, const struct family *family) {
    const json_t *window = json_object_get(r->published->weights.config, "sliding_window");
    int *context = &r->published->context;
    SL_TRY(read_size(r, "max_position_embeddings", "context_length", 1 << 24, 0, context));
    const bool slides = !strcmp(family->name, "mistral") && json_is_integer(window);
    if (slides && json_integer_value(window) >= 1 && json_integer_value(window) < *context)
        *context = (int)json_integer_value(window);
    return SL_OK;
}

static int read_family_name(const struct reading *r, const char **name) {
    const struct sl_published *p = r->published;
    *name = json_string_value(json_object_get(p->weights.config, "model_type"));
    if (!*name) return sl_error_set(r->error, SL_BAD_INPUT, "%s: config.json: no model_type", p->weights.path);
    return SL_OK;
}

static int read_sizes(const struct reading *r, const struct family *family) {
    enum { MOST = 1 << 20, MOST_HEADS = 1024, MOST_LAYERS = 4096 };
    struct sl_transformer *t = &r->published->transformer;
    const json_t *config = r->published->weights.config;
    *t = (struct sl_transformer){.layers_per_block = 1,
                                 .attention = SL_ATTENTION_GROUPED,
                                 .rope = 2,
                                 .mlp = SL_MLP_GATED_SILU,
                                 .head_norms = family->head_norms,
                                 .biases = family->biases};
    SL_TRY(read_size(r, "hidden_size", "embedding_length", MOST, 0, &t->dimension));
    SL_TRY(read_size(r, "num_hidden_layers", "block_count", MOST_LAYERS, 0, &t->blocks));
    SL_TRY(read_size(r, "num_attention_heads", "attention.head_count", MOST_HEADS, 0, &t->heads));
    SL_TRY(read_size(r, "num_key_value_heads", "attention.head_count_kv", MOST_HEADS, t->heads, &t->key_heads));
    SL_TRY(read_size(r, "head_dim", "attention.key_length", MOST, t->dimension / t->heads ? t->dimension / t->heads : 1,
                     &t->head_width));
    SL_TRY(read_size(r, "intermediate_size", "feed_forward_length", 16 * MOST, 0, &t->inside));
    SL_TRY(read_real(r, config, "rms_norm_eps", "attention.layer_norm_rms_epsilon", 1e-6, &t->epsilon));
    SL_TRY(read_rotary(r, &t->rotary));
    return read_context(r, family);
}

/* The table's rows tell its size. */
static int read_vocabulary(const struct reading *r) {
    const struct sl_weights *weights = &r->published->weights;
    const char *name = r->architecture ? "token_embd.weight" : "model.embed_tokens.weight";
    const struct sl_weight *table = sl_weights_find(weights, name);
    if (!table || table->dims != 2 || table->shape[0] < 1 || table->shape[0] > 1 << 24)
        return sl_error_set(r->error, SL_BAD_INPUT, "%s: tensor %s is missing, or no table of at most %d rows",
                            path_of(r), name, 1 << 24);
    r->published->transformer.vocabulary = (int)table->shape[0];
    const json_t *tied = json_object_get(weights->config, "tie_word_embeddings");
    r->published->transformer.untied_head =
        r->architecture ? sl_weights_find(weights, "output.weight") != NULL : !json_is_true(tied);
    return SL_OK;
}

static int read_all(const struct reading *r, const char *name) {
    const struct family *family;
    SL_TRY(find_family(r, name, &family));
    r->published->family = family->name;
    r->published->turned_rows = r->architecture && family->turned_rows;
    if (!r->architecture) SL_TRY(check_config(r));
    SL_TRY(read_sizes(r, family));
    return read_vocabulary(r);
}

int sl_read_published_sizes(struct sl_published *published, struct sl_error *error) {
    char architecture[32] = "";
    struct reading r = {published, NULL, error};
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
