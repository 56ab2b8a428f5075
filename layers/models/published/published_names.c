/* published_names.c - the families of published models, and their tensor names. To add a family, add a line here, and a
 * list of names if it has its own. */
#include <limits.h>
#include <string.h>

#include "layers/models/published/published_internal.h"

/* ---- Llama, and families built like it ---- */

static const struct sl_published_name llama_ends[] = {
    {"embedding", "model.embed_tokens.weight", "token_embd.weight", SL_LIES_STRAIGHT, 0},
    {"head", "lm_head.weight", "output.weight", SL_LIES_STRAIGHT, 0},
    {"norm.gamma", "model.norm.weight", "output_norm.weight", SL_LIES_STRAIGHT, 0},
    {0},
};

static const struct sl_published_name llama_layers[] = {
    {"norm1.gamma", "input_layernorm.weight", "attn_norm.weight", SL_LIES_STRAIGHT, 0},
    {"norm2.gamma", "post_attention_layernorm.weight", "ffn_norm.weight", SL_LIES_STRAIGHT, 0},
    {"gqa.q.kernel", "self_attn.q_proj.weight", "attn_q.weight", SL_LIES_IN_HEADS, 0},
    {"gqa.k.kernel", "self_attn.k_proj.weight", "attn_k.weight", SL_LIES_IN_HEADS, 0},
    {"gqa.v.kernel", "self_attn.v_proj.weight", "attn_v.weight", SL_LIES_TURNED, 0},
    {"gqa.q.bias", "self_attn.q_proj.bias", "attn_q.bias", SL_LIES_IN_HEADS, 0},
    {"gqa.k.bias", "self_attn.k_proj.bias", "attn_k.bias", SL_LIES_IN_HEADS, 0},
    {"gqa.v.bias", "self_attn.v_proj.bias", "attn_v.bias", SL_LIES_STRAIGHT, 0},
    {"gqa.q_norm.scale", "self_attn.q_norm.weight", "attn_q_norm.weight", SL_LIES_STRAIGHT, 0},
    {"gqa.k_norm.scale", "self_attn.k_norm.weight", "attn_k_norm.weight", SL_LIES_STRAIGHT, 0},
    {"gqa.out.kernel", "self_attn.o_proj.weight", "attn_output.weight", SL_LIES_TURNED, 0},
    {"gqa.out.bias", "self_attn.o_proj.bias", "attn_output.bias", SL_LIES_STRAIGHT, 0},
    {"mlp.gate.kernel", "mlp.gate_proj.weight", "ffn_gate.weight", SL_LIES_TURNED, 0},
    {"mlp.up.kernel", "mlp.up_proj.weight", "ffn_up.weight", SL_LIES_TURNED, 0},
    {"mlp.down.kernel", "mlp.down_proj.weight", "ffn_down.weight", SL_LIES_TURNED, 0},
    {"mlp.gate.bias", "mlp.gate_proj.bias", "ffn_gate.bias", SL_LIES_STRAIGHT, 0},
    {"mlp.up.bias", "mlp.up_proj.bias", "ffn_up.bias", SL_LIES_STRAIGHT, 0},
    {"mlp.down.bias", "mlp.down_proj.bias", "ffn_down.bias", SL_LIES_STRAIGHT, 0},
    {0},
};

/* ---- GPT-2 ---- */

static const struct sl_published_name gpt2_ends[] = {
    {"embedding", "transformer.wte.weight", "token_embd.weight", SL_LIES_STRAIGHT, 0},
    {"positions", "transformer.wpe.weight", "position_embd.weight", SL_LIES_STRAIGHT, 0},
    {"head", "lm_head.weight", "output.weight", SL_LIES_STRAIGHT, 0},
    {"norm.gamma", "transformer.ln_f.weight", "output_norm.weight", SL_LIES_STRAIGHT, 0},
    {"norm.beta", "transformer.ln_f.bias", "output_norm.bias", SL_LIES_STRAIGHT, 0},
    {0},
};

/* Kernels are as parameters in folders, and transposed in GGUF files. */
static const struct sl_published_name gpt2_layers[] = {
    {"norm1.gamma", "ln_1.weight", "attn_norm.weight", SL_LIES_STRAIGHT, 0},
    {"norm1.beta", "ln_1.bias", "attn_norm.bias", SL_LIES_STRAIGHT, 0},
    {"norm2.gamma", "ln_2.weight", "ffn_norm.weight", SL_LIES_STRAIGHT, 0},
    {"norm2.beta", "ln_2.bias", "ffn_norm.bias", SL_LIES_STRAIGHT, 0},
    {"gqa.q.kernel", "attn.c_attn.weight", "attn_qkv.weight", SL_LIES_TURNED_IN_GGUF, 1},
    {"gqa.k.kernel", "attn.c_attn.weight", "attn_qkv.weight", SL_LIES_TURNED_IN_GGUF, 2},
    {"gqa.v.kernel", "attn.c_attn.weight", "attn_qkv.weight", SL_LIES_TURNED_IN_GGUF, 3},
    {"gqa.q.bias", "attn.c_attn.bias", "attn_qkv.bias", SL_LIES_STRAIGHT, 1},
    {"gqa.k.bias", "attn.c_attn.bias", "attn_qkv.bias", SL_LIES_STRAIGHT, 2},
    {"gqa.v.bias", "attn.c_attn.bias", "attn_qkv.bias", SL_LIES_STRAIGHT, 3},
    {"gqa.out.kernel", "attn.c_proj.weight", "attn_output.weight", SL_LIES_TURNED_IN_GGUF, 0},
    {"gqa.out.bias", "attn.c_proj.bias", "attn_output.bias", SL_LIES_STRAIGHT, 0},
    {"mlp.up.kernel", "mlp.c_fc.weight", "ffn_up.weight", SL_LIES_TURNED_IN_GGUF, 0},
    {"mlp.up.bias", "mlp.c_fc.bias", "ffn_up.bias", SL_LIES_STRAIGHT, 0},
    {"mlp.down.kernel", "mlp.c_proj.weight", "ffn_down.weight", SL_LIES_TURNED_IN_GGUF, 0},
    {"mlp.down.bias", "mlp.c_proj.bias", "ffn_down.bias", SL_LIES_STRAIGHT, 0},
    {0},
};

static const char *const gpt2_keys[] = {"hidden_size",
                                        "n_embd",
                                        "num_hidden_layers",
                                        "n_layer",
                                        "num_attention_heads",
                                        "n_head",
                                        "intermediate_size",
                                        "n_inner",
                                        "hidden_act",
                                        "activation_function",
                                        "rms_norm_eps",
                                        "layer_norm_epsilon",

                                        "max_position_embeddings",
                                        "n_positions",
                                        "attention.layer_norm_rms_epsilon",
                                        "attention.layer_norm_epsilon",
                                        NULL};

/* ---- all families ---- */

#define LLAMA                                                                                                          \
    .layers_per_block = 1, .attention = SL_ATTENTION_GROUPED, .rope = 2, .mlp = SL_MLP_GATED_SILU, .epsilon = 1e-6
#define LLAMA_NAMES llama_ends, llama_layers, "model.layers", NULL

static const struct sl_published_family families[] = {
    {"llama", "LlamaForCausalLM", {LLAMA, .biases = SL_BIASES_NONE}, true, false, true, true, LLAMA_NAMES},
    {"mistral",
     "MistralForCausalLM",
     {LLAMA, .biases = SL_BIASES_NONE, .window = INT_MAX},
     true,
     false,
     false,
     false,
     LLAMA_NAMES},
    {"qwen2", "Qwen2ForCausalLM", {LLAMA, .biases = SL_BIASES_QKV}, false, false, false, false, LLAMA_NAMES},
    {"qwen3",
     "Qwen3ForCausalLM",
     {LLAMA, .biases = SL_BIASES_NONE, .head_norms = true},
     false,
     false,
     true,
     false,
     LLAMA_NAMES},
    {"gpt2",
     "GPT2LMHeadModel",
     {.layers_per_block = 1,
      .attention = SL_ATTENTION_GROUPED,
      .mlp = SL_MLP_GELU,
      .norm = SL_NORM_LAYER,
      .epsilon = 1e-5,
      .biases = SL_BIASES_ALL},
     false,
     true,
     false,
     false,
     gpt2_ends,
     gpt2_layers,
     "transformer.h",
     gpt2_keys},
    {0},
};

const char sl_published_divisors[] = "rope_freqs.weight";

const struct sl_published_family *sl_published_family_list(void) { return families; }

const struct sl_published_family *sl_published_find_family(const char *name) {
    for (const struct sl_published_family *family = families; family->name; family++)
        if (!strcmp(name, family->name)) return family;
    return NULL;
}

bool sl_published_has_biases(const struct sl_published_family *family, int biases, bool gguf) {
    const bool qkv = sl_biases_qkv(biases);
    if (family->model.biases == biases) return true;
    if (family->model.biases == SL_BIASES_ALL || biases == SL_BIASES_ALL) return false;
    if (gguf) return qkv || family->model.biases != SL_BIASES_QKV;
    return family->model.biases == SL_BIASES_NONE && qkv == sl_biases_out(biases) && (family->attention_bias || !qkv) &&
           (family->mlp_bias || !sl_biases_mlp(biases));
}

const char *sl_published_families(char text[128]) {
    int used = 0;
    for (int i = 0; families[i].name; i++)
        used += snprintf(text + used, 128 - (size_t)used, "%s%s", i ? ", " : "", families[i].name);
    return text;
}

void sl_published_tensor_name(const struct sl_published_family *family, const struct sl_published_name *name, bool gguf,
                              int layer, char text[128]) {
    const char *rest = gguf ? name->gguf : name->folder;
    if (layer < 0)
        snprintf(text, 128, "%s", rest);
    else if (gguf)
        snprintf(text, 128, "blk.%d.%s", layer, rest);
    else
        snprintf(text, 128, "%s.%d.%s", family->prefix, layer, rest);
}

const char *sl_published_key(const struct sl_published_family *family, const char *name) {
    const char *const *pair = family->others;
    for (; pair && *pair; pair += 2)
        if (!strcmp(*pair, name)) return pair[1];
    return name;
}

const char *sl_published_title(const struct sl_published_family *family) { return family->name; }

/* ---- tensors ---- */

/* Optional prefixes of names in folders, and the prefix of a compiled module's names. */
static const char *const optional[] = {"transformer.", "model."};
static const char compiled[] = "_orig_mod.";

static const struct sl_weight *find_compiled(const struct sl_published *p, const char *name) {
    const struct sl_weight *weight = sl_weights_find(&p->weights, name);
    char longer[160];
    if (weight || !p->weights.config) return weight;
    snprintf(longer, sizeof longer, "%s%s", compiled, name);
    return sl_weights_find(&p->weights, longer);
}

const struct sl_weight *sl_published_tensor(const struct sl_published *p, const char *name) {
    const struct sl_weight *weight = find_compiled(p, name);
    for (int i = 0; !weight && p->weights.config && i < 2; i++) {
        const size_t count = strlen(optional[i]);
        if (!strncmp(name, optional[i], count)) weight = find_compiled(p, name + count);
    }
    return weight;
}
