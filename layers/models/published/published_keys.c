/* published_keys.c - reads the keys of a published model's files, and checks all of them beside its sizes. A key that
 * would make it another model is refused by name. Checked are the keys of config.json known to the family's config
 * class in transformers 5.24, because the library ignores all others; in a GGUF file all keys that begin with the
 * architecture's name. */
#include <math.h>
#include <string.h>

#include "layers/models/published/published_internal.h"

/* ---- values of keys ---- */

const struct sl_gguf_value *sl_published_gguf(const struct sl_published_reading *r, const char *key) {
    char name[96];
    snprintf(name, sizeof name, "%s.%s", r->architecture, key);
    return sl_gguf_find(&r->published->weights.gguf, name);
}

int sl_published_refuse(const struct sl_published_reading *r, const char *key, const char *value) {
    return sl_error_set(r->error, SL_BAD_INPUT, "%s: %s%s%s is %.60s, which is not supported", sl_published_path(r),
                        r->architecture ? r->architecture : "config.json: ", r->architecture ? "." : "", key, value);
}

/* The integer of VALUE, or the common one if VALUE lists an equal number for each layer; FALLBACK if VALUE is NULL,
 * else -1. */
static int64_t integer_of(const struct sl_gguf_value *value, int fallback) {
    if (!value) return fallback;
    if (!value->array || !value->count || !sl_gguf_is_integer(value->type)) return sl_gguf_integer(value, -1);
    struct sl_gguf_cursor cursor = sl_gguf_begin(value);
    const int64_t first = sl_gguf_next_integer(&cursor);
    for (uint64_t i = 1; i < value->count; i++)
        if (sl_gguf_next_integer(&cursor) != first) return -1;
    return first;
}

int sl_published_size(const struct sl_published_reading *r, const char *name, const char *gguf, int64_t most,
                      int fallback, int *size) {
    const json_t *value = name ? json_object_get(sl_published_config(r), sl_published_own_key(r, name)) : NULL;
    const char *key = r->architecture ? gguf : sl_published_own_key(r, name);
    int64_t number = fallback;
    if (r->architecture)
        number = integer_of(sl_published_gguf(r, gguf), fallback);
    else if (value && !json_is_null(value))
        number = json_is_integer(value) ? (int64_t)json_integer_value(value) : -1;
    *size = (int)number;
    if (number >= 1 && number <= most) return SL_OK;
    return sl_error_set(r->error, SL_BAD_INPUT, "%s: %s%s: there must be a number from 1 to %jd", sl_published_path(r),
                        r->architecture ? "" : "config.json: ", key, (intmax_t)most);
}

int sl_published_real(const struct sl_published_reading *r, const json_t *object, const char *name, const char *gguf,
                      double fallback, double *real) {
    const json_t *value = name ? json_object_get(object, sl_published_own_key(r, name)) : NULL;
    const struct sl_gguf_value *found =
        r->architecture && gguf ? sl_published_gguf(r, sl_published_own_key(r, gguf)) : NULL;
    const bool given = found || (value && !json_is_null(value));
    *real = found                   ? sl_gguf_real(found, NAN)
            : json_is_number(value) ? json_number_value(value)
            : given                 ? NAN
                                    : fallback;
    if ((*real > 0 && *real < 1e12) || (!given && fallback != 0)) return SL_OK;
    return sl_error_set(r->error, SL_BAD_INPUT, "%s: %s%s: there must be a number above 0", sl_published_path(r),
                        r->architecture ? "" : "config.json: ", sl_published_own_key(r, found ? gguf : name));
}

int sl_published_text(const struct sl_published_reading *r, const char *key, char text[32]) {
    const struct sl_gguf_value *value = sl_published_gguf(r, key);
    if (!value) return SL_OK;
    if (value->array || value->type != SL_GGUF_STRING) return sl_published_refuse(r, key, "no text");
    struct sl_gguf_cursor cursor = sl_gguf_begin(value);
    const struct sl_gguf_text found = sl_gguf_next_text(&cursor);
    snprintf(text, 32, "%.*s", found.count < 31 ? (int)found.count : 31, found.bytes);
    return SL_OK;
}

int sl_published_flag(const struct sl_published_reading *r, const char *key, bool fallback, bool *flag) {
    const json_t *value = json_object_get(r->published->weights.config, key);
    *flag = value && !json_is_null(value) ? json_is_true(value) : fallback;
    if (!value || json_is_null(value) || json_is_boolean(value)) return SL_OK;
    return sl_error_set(r->error, SL_BAD_INPUT, "%s: config.json: %s: there must be true or false",
                        r->published->weights.path, key);
}

/* ---- config.json ---- */

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
