/* published_rotary.c - rotation rates of a published model's positions: Llama 3's rule, linear scaling and YaRN (Peng
 * et al., "YaRN", 2023), as in config.json or a GGUF file's metadata. The last two become divisors of the rates. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "layers/models/published/published_internal.h"

/* ---- divisors ---- */

/* Allocates the divisors [pairs], all 1. */
static int open_divisors(const struct sl_published_reading *r, struct sl_rotary *rotary) {
    struct sl_published *p = r->published;
    const int pairs = p->transformer.head_width / 2;
    p->divisors = malloc(((size_t)pairs + 1) * sizeof *p->divisors);
    if (!p->divisors) return sl_error_set(r->error, SL_FAILED, "%s: no memory for its rotations", p->weights.path);
    for (int i = 0; i < pairs; i++) p->divisors[i] = 1;
    rotary->divisors = p->divisors;
    return SL_OK;
}

static int scale_linearly(const struct sl_published_reading *r, double factor, struct sl_rotary *rotary) {
    SL_TRY(open_divisors(r, rotary));
    for (int i = 0; i < r->published->transformer.head_width / 2; i++) r->published->divisors[i] = (float)factor;
    return SL_OK;
}

struct yarn {
    double factor, original, fast, slow;
    bool truncate; /* bounds are rounded to whole pairs */
};

/* The pair that turns TURNS times within the original positions. */
static double pair_of(const struct yarn *yarn, double turns, double base, int width) {
    return width * log(yarn->original / (turns * 2 * 3.14159265358979323846)) / (2 * log(base));
}

/* Fast pairs keep their rate, slow ones turn FACTOR times as slowly; pairs in between are interpolated. */
static int scale_by_yarn(const struct sl_published_reading *r, const struct yarn *yarn, struct sl_rotary *rotary) {
    const int width = r->published->transformer.head_width;
    double low = pair_of(yarn, yarn->fast, rotary->base, width), high = pair_of(yarn, yarn->slow, rotary->base, width);
    SL_TRY(open_divisors(r, rotary));
    if (yarn->truncate) low = floor(low), high = ceil(high);
    low = fmax(low, 0);
    high = fmin(high, width - 1);
    if (low == high) high += 0.001;
    for (int i = 0; i < width / 2; i++) {
        const double slow = fmin(fmax((i - low) / (high - low), 0), 1);
        r->published->divisors[i] = (float)(1 / (slow / yarn->factor + 1 - slow));
    }
    return SL_OK;
}

static double magnitude(double factor, double of) { return factor <= 1 ? 1 : 0.1 * of * log(factor) + 1; }

/* ---- a GGUF file ---- */

/* Reads the divisors in GGUF files of Llama 3, a tensor; they multiply those of any other scaling. */
static int read_tensor(const struct sl_published_reading *r, struct sl_rotary *rotary) {
    struct sl_published *p = r->published;
    const struct sl_weight *tensor = sl_weights_find(&p->weights, sl_published_divisors);
    const size_t pairs = (size_t)p->transformer.head_width / 2;
    if (!tensor) return SL_OK;
    SL_TRY(sl_weight_check_type(&p->weights, tensor, r->error));
    if (tensor->dims != 1 || tensor->shape[0] != pairs)
        return sl_error_set(r->error, SL_BAD_INPUT, "%s: tensor %s: there must be %zu numbers, one for each pair",
                            p->weights.path, sl_published_divisors, pairs);
    if (!rotary->divisors) SL_TRY(open_divisors(r, rotary));
    for (size_t i = 0; i < pairs; i++) {
        float divisor;
        sl_weight_read(tensor, i, 1, &divisor);
        if (!(divisor > 0 && divisor < 1e12f))
            return sl_error_set(r->error, SL_BAD_INPUT, "%s: tensor %s: number %zu is %g: it must be above 0",
                                p->weights.path, sl_published_divisors, i, (double)divisor);
        p->divisors[i] *= divisor;
    }
    return SL_OK;
}

static int read_gguf_yarn(const struct sl_published_reading *r, double factor, struct sl_rotary *rotary) {
    static const char *const ones[] = {"rope.scaling.yarn_ext_factor", "rope.scaling.yarn_attn_factor"};
    struct yarn yarn = {.factor = factor, .truncate = true};
    double one;
    for (int i = 0; i < 2; i++) {
        SL_TRY(sl_published_real(r, NULL, NULL, ones[i], 1, &one));
        if (one != 1.0) return sl_published_refuse(r, ones[i], "not 1");
    }
    SL_TRY(
        sl_published_size(r, NULL, "rope.scaling.original_context_length", 1 << 24, r->published->context, &(int){0}));
    yarn.original =
        (double)sl_gguf_integer(sl_published_gguf(r, "rope.scaling.original_context_length"), r->published->context);
    SL_TRY(sl_published_real(r, NULL, NULL, "rope.scaling.yarn_beta_fast", 32, &yarn.fast));
    SL_TRY(sl_published_real(r, NULL, NULL, "rope.scaling.yarn_beta_slow", 1, &yarn.slow));
    rotary->amplitude *= magnitude(factor, 1);
    return scale_by_yarn(r, &yarn, rotary);
}

static int read_gguf(const struct sl_published_reading *r, struct sl_rotary *rotary) {
    static const char type_key[] = "rope.scaling.type", factor_key[] = "rope.scaling.factor";
    const int width = r->published->transformer.head_width;
    const struct sl_gguf_value *factor_value = sl_published_gguf(r, factor_key);
    char type[32] = "linear";
    int rotated;
    double factor;
    SL_TRY(sl_published_text(r, type_key, type));
    SL_TRY(sl_published_size(r, NULL, "rope.dimension_count", 1 << 20, width, &rotated));
    if (rotated != width) return sl_published_refuse(r, "rope.dimension_count", "not the columns of a head");
    SL_TRY(sl_published_real(r, NULL, NULL, factor_value ? factor_key : "rope.scale_linear", 1, &factor));
    SL_TRY(sl_published_real(r, NULL, NULL, "rope.scaling.attn_factor", 1, &rotary->amplitude));
    if (!strcmp(type, "yarn"))
        SL_TRY(read_gguf_yarn(r, factor, rotary));
    else if (strcmp(type, "linear") != 0 && strcmp(type, "none") != 0)
        return sl_published_refuse(r, type_key, type);
    else if (strcmp(type, "none") != 0 && factor != 1.0)
        SL_TRY(scale_linearly(r, factor, rotary));
    return read_tensor(r, rotary);
}

/* ---- config.json ---- */

/* The scaling object, and its key in config.json. */
struct scaling {
    const json_t *object;
    const char *key;
};

static int refuse(const struct sl_published_reading *r, const struct scaling *s, const char *key, const char *value) {
    char name[64];
    snprintf(name, sizeof name, "%s.%s", s->key, key);
    return sl_published_refuse(r, name, value);
}

static int read_llama3(const struct sl_published_reading *r, const struct scaling *s, struct sl_rotary *rotary) {
    SL_TRY(sl_published_real(r, s->object, "factor", NULL, 0, &rotary->factor));
    SL_TRY(sl_published_real(r, s->object, "low_freq_factor", NULL, 0, &rotary->low));
    SL_TRY(sl_published_real(r, s->object, "high_freq_factor", NULL, 0, &rotary->high));
    SL_TRY(sl_published_real(r, s->object, "original_max_position_embeddings", NULL, 0, &rotary->original));
    if (!(rotary->factor >= 1)) return refuse(r, s, "factor", "below 1");
    return rotary->high > rotary->low ? SL_OK : refuse(r, s, "high_freq_factor", "not above low_freq_factor");
}

static int read_linear(const struct sl_published_reading *r, const struct scaling *s, struct sl_rotary *rotary) {
    double factor;
    SL_TRY(sl_published_real(r, s->object, "factor", NULL, 0, &factor));
    return factor >= 1 ? scale_linearly(r, factor, rotary) : refuse(r, s, "factor", "below 1");
}

static int read_yarn(const struct sl_published_reading *r, const struct scaling *s, struct sl_rotary *rotary) {
    const json_t *truncate = json_object_get(s->object, "truncate");
    struct yarn yarn = {.truncate = !json_is_false(truncate)};
    double above, below; /* mscale and mscale_all_dim; used only if both are present */
    const double none = -1;
    if (truncate && !json_is_boolean(truncate)) return refuse(r, s, "truncate", "neither true nor false");
    SL_TRY(sl_published_real(r, s->object, "original_max_position_embeddings", NULL, r->published->context,
                             &yarn.original));
    const double ratio = r->published->context / yarn.original; /* used if factor is null; it must be present */
    SL_TRY(sl_published_real(r, s->object, "factor", NULL, json_object_get(s->object, "factor") ? ratio : 0,
                             &yarn.factor));
    SL_TRY(sl_published_real(r, s->object, "beta_fast", NULL, 32, &yarn.fast));
    SL_TRY(sl_published_real(r, s->object, "beta_slow", NULL, 1, &yarn.slow));
    SL_TRY(sl_published_real(r, s->object, "mscale", NULL, none, &above));
    SL_TRY(sl_published_real(r, s->object, "mscale_all_dim", NULL, none, &below));
    if (!(yarn.factor >= 1)) return refuse(r, s, "factor", "below 1");
    const double amplitude = above > 0 && below > 0 ? magnitude(yarn.factor, above) / magnitude(yarn.factor, below)
                                                    : magnitude(yarn.factor, 1);
    SL_TRY(sl_published_real(r, s->object, "attention_factor", NULL, amplitude, &rotary->amplitude));
    return scale_by_yarn(r, &yarn, rotary);
}

/* A scaling without a type is none; it must not have numbers of a type then. */
static int check_untyped(const struct sl_published_reading *r, const struct scaling *s) {
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)s->object, key, value) {
        if (!strcmp(key, "rope_theta") || !strcmp(key, "partial_rotary_factor") || json_is_null(value)) continue;
        return refuse(r, s, "rope_type", "missing");
    }
    return SL_OK;
}

/* The scaling: rope_scaling, or, if it says nothing, rope_parameters, its name in newer files. */
static struct scaling find_scaling(const json_t *config) {
    const struct scaling old = {json_object_get(config, "rope_scaling"), "rope_scaling"};
    if (old.object && !json_is_null(old.object) && !(json_is_object(old.object) && !json_object_size(old.object)))
        return old;
    return (struct scaling){json_object_get(config, "rope_parameters"), "rope_parameters"};
}

static int read_config(const struct sl_published_reading *r, const struct scaling *s, struct sl_rotary *rotary) {
    static const struct {
        const char *name;
        int (*read)(const struct sl_published_reading *r, const struct scaling *s, struct sl_rotary *rotary);
    } types[] = {{"llama3", read_llama3}, {"linear", read_linear}, {"yarn", read_yarn}};
    const json_t *type = json_object_get(s->object, "rope_type"), *partial;
    const char *name;
    if (!s->object || json_is_null(s->object)) return SL_OK;
    if (!json_is_object(s->object)) return sl_published_refuse(r, s->key, "no object");
    partial = json_object_get(s->object, "partial_rotary_factor");
    if (partial && !(json_is_number(partial) && json_number_value(partial) == 1.0))
        return refuse(r, s, "partial_rotary_factor", "not 1");
    if (json_object_get(s->object, "mrope_section")) return refuse(r, s, "mrope_section", "there");
    if (!type) type = json_object_get(s->object, "type");
    if (!type) return check_untyped(r, s);
    name = json_string_value(type);
    if (name && !strcmp(name, "default")) return SL_OK;
    for (size_t i = 0; name && i < sizeof types / sizeof *types; i++)
        if (!strcmp(name, types[i].name)) return types[i].read(r, s, rotary);
    return refuse(r, s, "rope_type", name ? name : "no name");
}

int sl_read_published_rotary(const struct sl_published_reading *r, struct sl_rotary *rotary) {
    const json_t *config = r->published->weights.config;
    const struct scaling scaling = find_scaling(config);
    double base;
    SL_TRY(sl_published_real(r, config, "rope_theta", "rope.freq_base", 10000, &base));
    SL_TRY(sl_published_real(r, scaling.object, "rope_theta", NULL, base, &rotary->base));
    return r->architecture ? read_gguf(r, rotary) : read_config(r, &scaling, rotary);
}
