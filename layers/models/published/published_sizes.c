/* published_sizes.c - the sizes of a published model, from a folder's config.json or a GGUF file's metadata. */
#include <string.h>

#include "layers/models/published/published_internal.h"

/* ---- families ---- */

static int find_family(struct sl_published_reading *r, const char *name) {
    char known[128];
    r->family = sl_published_find_family(name);
    if (r->family) return SL_OK;
    return sl_error_set(r->error, SL_BAD_INPUT, "%s: %s is \"%.60s\", which is not supported: %s are",
                        sl_published_path(r), r->architecture ? "general.architecture" : "config.json: model_type",
                        name, sl_published_families(known));
}

/* Reads the activation of the MLP: gated, or one of gelu's two forms. */
static int read_activation(const struct sl_published_reading *r, struct sl_transformer *t) {
    static const char *const tanh_forms[] = {"gelu_new", "gelu_pytorch_tanh", "gelu_fast"};
    const char *key = sl_published_own_key(r, "hidden_act"), *act;
    const json_t *value = json_object_get(sl_published_config(r), key);
    if (!value) return SL_OK;
    act = json_string_value(value);
    if (!act) return sl_published_refuse(r, key, "no name");
    if (t->mlp == SL_MLP_GATED_SILU)
        return strcmp(act, "silu") && strcmp(act, "swish") ? sl_published_refuse(r, key, act) : SL_OK;
    for (int i = 0; i < 3; i++)
        if (!strcmp(act, tanh_forms[i])) return SL_OK;
    t->mlp = SL_MLP_ERF_GELU;
    return strcmp(act, "gelu") ? sl_published_refuse(r, key, act) : SL_OK;
}

/* Reads which products have biases. Flags of config.json decide if it has them; otherwise, and in GGUF files, a product
 * has a bias if its tensor exists. */
static int read_biases(const struct sl_published_reading *r, struct sl_transformer *t) {
    static const struct {
        const char *flag, *folder, *gguf;
    } kinds[] = {{"attention_bias", "self_attn.q_proj.bias", "attn_q.bias"},
                 {"attention_bias", "self_attn.o_proj.bias", "attn_output.bias"},
                 {"mlp_bias", "mlp.up_proj.bias", "ffn_up.bias"}};
    const bool flagged[] = {r->family->attention_bias, r->family->attention_bias, r->family->mlp_bias};
    bool has[3];
    if (t->biases == SL_BIASES_ALL) return SL_OK;
    for (int i = 0; i < 3; i++) {
        const struct sl_published_name name = {.folder = kinds[i].folder, .gguf = kinds[i].gguf};
        char text[128];
        sl_published_tensor_name(r->family, &name, r->architecture, 0, text);
        has[i] = sl_published_tensor(r->published, text);
        if (!r->architecture && flagged[i]) SL_TRY(sl_published_flag(r, kinds[i].flag, has[i], &has[i]));
    }
    t->biases = sl_biases_of(has[0] || t->biases == SL_BIASES_QKV, has[1], has[2]);
    return SL_OK;
}

/* Whether the model has no window, by its file. */
static bool has_no_window(const struct sl_published_reading *r) {
    const struct sl_gguf_value *value = r->architecture ? sl_published_gguf(r, "attention.sliding_window") : NULL;
    if (r->architecture) return !value || sl_gguf_integer(value, -1) == 0;
    return !r->family->model.window || json_is_null(json_object_get(sl_published_config(r), "sliding_window"));
}

/* Reads context and window. A window as long as the context is none. */
static int read_context(const struct sl_published_reading *r) {
    enum { MISTRAL = 4096 }; /* the window if config.json does not have it */
    struct sl_transformer *t = &r->published->transformer;
    int *context = &r->published->context;
    SL_TRY(sl_published_size(r, "max_position_embeddings", "context_length", 1 << 24, 0, context));
    t->window = 0;
    if (has_no_window(r)) return SL_OK;
    SL_TRY(sl_published_size(r, "sliding_window", "attention.sliding_window", 1 << 24, MISTRAL, &t->window));
    if (t->window >= *context) t->window = 0;
    return SL_OK;
}

static int read_family_name(const struct sl_published_reading *r, const char **name) {
    const struct sl_published *p = r->published;
    *name = json_string_value(json_object_get(p->weights.config, "model_type"));
    if (!*name) return sl_error_set(r->error, SL_BAD_INPUT, "%s: config.json: no model_type", p->weights.path);
    return SL_OK;
}

static int check_value_width(const struct sl_published_reading *r, int width) {
    int values = width;
    if (r->architecture) SL_TRY(sl_published_size(r, NULL, "attention.value_length", 1 << 20, width, &values));
    return values == width ? SL_OK : sl_published_refuse(r, "attention.value_length", "not that of keys");
}

static int read_sizes(const struct sl_published_reading *r) {
    enum { MOST = 1 << 20, MOST_HEADS = 1024, MOST_LAYERS = 4096 };
    struct sl_transformer *t = &r->published->transformer;
    const bool gated = r->family->model.mlp == SL_MLP_GATED_SILU;
    *t = r->family->model;
    SL_TRY(sl_published_size(r, "hidden_size", "embedding_length", MOST, 0, &t->dimension));
    SL_TRY(sl_published_size(r, "num_hidden_layers", "block_count", MOST_LAYERS, 0, &t->blocks));
    SL_TRY(sl_published_size(r, "num_attention_heads", "attention.head_count", MOST_HEADS, 0, &t->heads));
    SL_TRY(sl_published_size(r, "num_key_value_heads", "attention.head_count_kv", MOST_HEADS, t->heads, &t->key_heads));
    SL_TRY(sl_published_size(r, "head_dim", "attention.key_length", MOST,
                             t->dimension / t->heads ? t->dimension / t->heads : 1, &t->head_width));
    SL_TRY(check_value_width(r, t->head_width));
    SL_TRY(sl_published_size(r, "intermediate_size", "feed_forward_length", 16 * MOST, gated ? 0 : 4 * t->dimension,
                             &t->inside));
    SL_TRY(sl_published_real(r, sl_published_config(r), "rms_norm_eps", "attention.layer_norm_rms_epsilon", t->epsilon,
                             &t->epsilon));
    SL_TRY(read_activation(r, t));
    SL_TRY(read_context(r));
    SL_TRY(read_biases(r, t));
    if (t->rope) return sl_read_published_rotary(r, &t->rotary);
    return sl_published_size(r, "max_position_embeddings", "context_length", 1 << 20, 0, &t->learned_positions);
}

/* Reads the size of the vocabulary: the rows of the token table. */
static int read_vocabulary(const struct sl_published_reading *r) {
    const struct sl_weights *weights = &r->published->weights;
    const char *name = r->architecture ? r->family->ends->gguf : r->family->ends->folder;
    const struct sl_weight *table = sl_published_tensor(r->published, name);
    if (!table || table->dims != 2 || table->shape[0] < 1 || table->shape[0] > 1 << 24)
        return sl_error_set(r->error, SL_BAD_INPUT, "%s: tensor %s is missing, or no table of at most %d rows",
                            sl_published_path(r), name, 1 << 24);
    r->published->transformer.vocabulary = (int)table->shape[0];
    int said;
    SL_TRY(sl_published_size(r, "vocab_size", "vocab_size", 1 << 24, (int)table->shape[0], &said));
    if ((size_t)said != table->shape[0])
        return sl_error_set(r->error, SL_BAD_INPUT, "%s: tensor %s has %zu rows, and vocab_size is %d",
                            sl_published_path(r), name, table->shape[0], said);
    bool tied = !sl_weights_find(weights, "output.weight");
    if (!r->architecture) SL_TRY(sl_published_flag(r, "tie_word_embeddings", r->family->ties, &tied));
    r->published->transformer.untied_head = !tied;
    return SL_OK;
}

static int read_all(struct sl_published_reading *r, const char *name) {
    SL_TRY(find_family(r, name));
    r->published->family = r->family;
    SL_TRY(r->architecture ? sl_published_check_gguf(r) : sl_published_check_config(r));
    SL_TRY(read_sizes(r));
    return read_vocabulary(r);
}

int sl_read_published_sizes(struct sl_published *published, struct sl_error *error) {
    char architecture[32] = "";
    struct sl_published_reading r = {.published = published, .error = error};
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
