/* published_keys.c - checks all keys of a published model's files beside its sizes. A key that would make it another
 * model is refused by name. Checked are the keys of config.json known to the family's config class in transformers
 * 5.24, because the library ignores all others; in a GGUF file all keys that begin with the architecture's name. */
#include <string.h>

#include "layers/models/published_internal.h"

/* ---- config.json ---- */

int sl_published_flag(const struct sl_published_reading *r, const char *key, bool fallback, bool *flag) {
    const json_t *value = json_object_get(r->published->weights.config, key);
    *flag = value && !json_is_null(value) ? json_is_true(value) : fallback;
    if (!value || json_is_null(value) || json_is_boolean(value)) return SL_OK;
    return sl_error_set(r->error, SL_BAD_INPUT, "%s: config.json: %s: there must be true or false",
                        r->published->weights.path, key);
}

/* Checks that each layer attends to all tokens before it. */
static int check_layer_types(const struct sl_published_reading *r, const json_t *types) {
    size_t i;
    json_t *value;
    if (!types || json_is_null(types)) return SL_OK;
    if (!json_is_array(types)) return sl_published_refuse(r, "layer_types", "no list");
    json_array_foreach(types, i, value) {
        const char *type = json_string_value(value);
        if (!type || strcmp(type, "full_attention") != 0)
            return sl_published_refuse(r, "layer_types", type ? type : "no name");
    }
    return SL_OK;
}

/* Checks flags with only one supported value; FAMILIES: families with this key, NULL: all. */
static int check_flags(const struct sl_published_reading *r) {
    static const struct {
        const char *key, *families;
        bool allowed;
    } flags[] = {{"is_encoder_decoder", NULL, false},
                 {"use_sliding_window", "qwen2 qwen3", false},
                 {"add_cross_attention", "gpt2", false},
                 {"scale_attn_by_inverse_layer_idx", "gpt2", false},
                 {"scale_attn_weights", "gpt2", true}};
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) {
        bool flag;
        if (flags[i].families && !strstr(flags[i].families, r->family->name)) continue;
        SL_TRY(sl_published_flag(r, flags[i].key, flags[i].allowed, &flag));
        if (flag != flags[i].allowed) return sl_published_refuse(r, flags[i].key, flag ? "true" : "false");
    }
    return SL_OK;
}

int sl_published_check_config(const struct sl_published_reading *r) {
    const json_t *config = r->published->weights.config;
    const json_t *partial = json_object_get(config, "partial_rotary_factor");
    const json_t *layers = json_object_get(config, "per_layer_config");
    SL_TRY(check_flags(r));
    if (r->family->model.rope) SL_TRY(check_layer_types(r, json_object_get(config, "layer_types")));
    if (json_is_number(partial) && json_number_value(partial) != 1)
        return sl_published_refuse(r, "partial_rotary_factor", "not 1");
    if (json_object_size(layers)) return sl_published_refuse(r, "per_layer_config", "there");
    return json_is_object(json_object_get(config, "quantization_config"))
               ? sl_published_refuse(r, "quantization_config", "there")
               : SL_OK;
}

/* ---- a GGUF file ---- */

/* READ: other code reads the key. HARMLESS: it has no effect. EXPECTED: it must be this integer or truth value, or be
 * missing. */
enum rule { READ, HARMLESS, EXPECTED };
static const struct {
    const char *key;
    enum rule rule;
    int64_t expected;
} gguf_keys[] = {
    {"context_length", READ, 0},
    {"embedding_length", READ, 0},
    {"block_count", READ, 0},
    {"feed_forward_length", READ, 0},
    {"vocab_size", READ, 0},
    {"attention.head_count", READ, 0},
    {"attention.head_count_kv", READ, 0},
    {"attention.key_length", READ, 0},
    {"attention.value_length", READ, 0},
    {"attention.layer_norm_rms_epsilon", READ, 0},
    {"attention.layer_norm_epsilon", READ, 0},
    {"attention.sliding_window", READ, 0},
    {"rope.dimension_count", READ, 0},
    {"rope.freq_base", READ, 0},
    {"rope.scale_linear", READ, 0},
    {"rope.scaling.type", READ, 0},
    {"rope.scaling.factor", READ, 0},
    {"rope.scaling.attn_factor", READ, 0},
    {"rope.scaling.original_context_length", READ, 0},
    {"rope.scaling.yarn_ext_factor", READ, 0},
    {"rope.scaling.yarn_attn_factor", READ, 0},
    {"rope.scaling.yarn_beta_fast", READ, 0},
    {"rope.scaling.yarn_beta_slow", READ, 0},
    {"rope.scaling.finetuned", HARMLESS, 0},
    {"tensor_data_layout", HARMLESS, 0}, /* order of rows of q and k, known from the architecture */
    {"attention.causal", EXPECTED, 1},
    {"use_parallel_residual", EXPECTED, 0},
    {"expert_count", EXPECTED, 0},
    {"expert_used_count", EXPECTED, 0},
};

static int check_key(const struct sl_published_reading *r, const struct sl_gguf_value *value, const char *key) {
    const size_t count = sizeof gguf_keys / sizeof *gguf_keys;
    size_t i = 0;
    while (i < count && strcmp(gguf_keys[i].key, key) != 0) i++;
    if (i == count) return sl_published_refuse(r, key, "there");
    if (gguf_keys[i].rule != EXPECTED || sl_gguf_integer(value, -1) == gguf_keys[i].expected) return SL_OK;
    return sl_published_refuse(r, key, gguf_keys[i].expected ? "not true" : "not 0");
}

int sl_published_check_gguf(const struct sl_published_reading *r) {
    const struct sl_gguf *gguf = &r->published->weights.gguf;
    const size_t prefix = strlen(r->architecture);
    for (int i = 0; i < gguf->count; i++) {
        const struct sl_gguf_text *key = &gguf->value[i].key;
        char rest[64];
        if (key->count <= prefix || memcmp(key->bytes, r->architecture, prefix) != 0 || key->bytes[prefix] != '.')
            continue;
        snprintf(rest, sizeof rest, "%.*s", (int)(key->count - prefix - 1 < 63 ? key->count - prefix - 1 : 63),
                 key->bytes + prefix + 1);
        SL_TRY(check_key(r, &gguf->value[i], rest));
    }
    return SL_OK;
}
