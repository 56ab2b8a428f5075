/* test_published_sizes.c - a published model's sizes, from config.json or a GGUF file's metadata: unsupported ones are
 * refused by name. */
#include "tests/rigs/changes.h"
#include "tests/rigs/folder.h"
#include "tests/rigs/gguf_file.h"

#include <math.h>

#include "layers/models/published/published.h"

static char folder[FOLDER], path[FOLDER + 30], model[FOLDER + 30], grown[FOLDER + 30];

/* ---- config.json ---- */

static int try(const char *name, void *arg, struct sl_error *error) {
    static struct sl_published published;
    (void)name;
    (void)arg;
    const int status = sl_published_open(&published, folder, error);
    sl_published_close(&published);
    return status;
}

/* Tries CHANGES to the config.json of FAMILY, with the family's tensors. */
static void expect_configs(const char *family, const struct change *change, size_t count) {
    char from[300], to[300];
    snprintf(from, sizeof from, SL_TEST_DATA "/published/%s/config.json", family);
    assert_non_null(realpath(SL_TEST_DATA, to));
    char *config = read_text(from), target[4400];
    snprintf(target, sizeof target, "%s/published/%s/model.safetensors", to, family);
    unlink(model);
    assert_int_equal(symlink(target, model), 0);
    expect_changes(path, config, change, count, try, NULL);
    free(config);
}
#define EXPECT_CONFIGS(family, changes) expect_configs(family, changes, sizeof(changes) / sizeof *(changes))

#define PARAMETERS "\"rope_parameters\""
#define SCALING "\"rope_scaling\": {\"rope_type\": \"llama3\"}, \"other\""

static const struct change llama[] = {
    {"{", "{", NULL},
    {"\"model_type\": \"llama\",", "", "config.json: no model_type"},
    {"\"model_type\": \"llama\"", "\"model_type\": 7", "config.json: no model_type"},
    {"\"model_type\": \"llama\"", "\"model_type\": \"bloom\"",
     "config.json: model_type is \"bloom\", which is not supported"},
    {"\"hidden_size\": 24", "\"hidden_size\": 24.5",
     "config.json: hidden_size: there must be a number from 1 to 1048576"},
    {"\"hidden_size\": 24", "\"hidden_size\": 0", "hidden_size: there must be a number"},
    {"\"hidden_size\": 24", "\"hidden_size\": 1048577", "hidden_size: there must be a number"},
    {"\"hidden_size\": 24,", "", "hidden_size: there must be a number"},
    {"\"hidden_size\": 24", "\"hidden_size\": null", "hidden_size: there must be a number"},
    {"\"hidden_size\": 24", "\"hidden_size\": 48", "and its sizes say"},
    {"\"head_dim\": 4,", "", NULL},
    {"\"head_dim\": 4", "\"head_dim\": 0", "head_dim: there must be a number from 1 to 1048576"},
    {"\"num_key_value_heads\": 2", "\"num_key_value_heads\": 1025", "num_key_value_heads: there must be a number"},
    {"\"num_attention_heads\": 6,\n \"num_key_value_heads\": 2,\n \"head_dim\": 4", "\"num_attention_heads\": 48",
     "and its sizes say"},
    {"\"rms_norm_eps\": 1e-05", "\"rms_norm_eps\": \"1\"", "rms_norm_eps: there must be a number above 0"},
    {"\"rms_norm_eps\": 1e-05", "\"rms_norm_eps\": 1e13", "rms_norm_eps: there must be a number above 0"},
    {"\"rms_norm_eps\": 1e-05", "\"rms_norm_eps\": null", NULL},
    {"\"rms_norm_eps\": 1e-05,", "", NULL},
    /* rotations */
    {"\"factor\": 4.0", "\"factor\": 0.5", "rope_parameters.factor is below 1"},
    {"\"factor\": 4.0,", "", "factor: there must be a number"},
    {"\"low_freq_factor\": 1.0,", "", "low_freq_factor: there must be a number"},
    {"\"high_freq_factor\": 4.0,", "", "high_freq_factor: there must be a number"},
    {"\"high_freq_factor\": 4.0", "\"high_freq_factor\": 1.0", "high_freq_factor is not above low_freq_factor"},
    {"\"original_max_position_embeddings\": 16,", "", "original_max_position_embeddings: there must be"},
    {"\"rope_theta\": 500.0", "\"rope_theta\": -1", "rope_theta: there must be a number"},
    {PARAMETERS, "\"rope_theta\": -1, \"rope_parameters\"", "rope_theta: there must be a number"},
    {PARAMETERS, "\"rope_scaling\": 7, \"rope_parameters\"", "rope_scaling is no object"},
    {"\"rope_theta\": 500.0", "\"partial_rotary_factor\": 0.5", "rope_parameters.partial_rotary_factor is not 1"},
    {"\"rope_theta\": 500.0", "\"mrope_section\": [1, 1]", "rope_parameters.mrope_section is there"},
    {"\"rope_type\": \"llama3\"", "\"rope_type\": \"default\"", NULL},
    {"\"rope_type\": \"llama3\"", "\"rope_type\": \"yarn\"", NULL},
    {"\"rope_type\": \"llama3\"", "\"rope_type\": \"yarn\", \"truncate\": 1", "truncate is neither true nor false"},
    {PARAMETERS, "\"rope_scaling\": {\"type\": \"yarn\"}, \"other\"", "factor: there must be a number"},
    {"\"rope_type\": \"llama3\"", "\"rope_type\": \"linear\"", NULL},
    {"\"rope_type\": \"llama3\"", "\"rope_type\": \"longrope\"", "rope_parameters.rope_type is longrope"},
    {"\"rope_type\": \"llama3\"", "\"rope_type\": 7", "rope_parameters.rope_type is no name"},
    {"\"rope_theta\": 500.0,\n  \"rope_type\": \"llama3\"", "\"rope_theta\": 500.0",
     "rope_parameters.rope_type is missing"},
    {PARAMETERS, SCALING, "factor: there must be a number"},
    {PARAMETERS, "\"rope_scaling\": {\"type\": \"linear\"}, \"other\"", "factor: there must be a number"},
    {PARAMETERS, "\"rope_scaling\": {}, \"other\"", NULL},
    {PARAMETERS, "\"rope_scaling\": {\"factor\": 4}, \"other\"", "rope_scaling.rope_type is missing"},
    {PARAMETERS, "\"rope_scaling\": {\"type\": 7}, \"other\"", "rope_scaling.rope_type is no name"},
    {PARAMETERS, "\"rope_scaling\": {\"type\": \"default\"}, \"other\"", NULL},
    {PARAMETERS, "\"rope_scaling\": null, \"other\"", NULL},
    /* missing or different entries */
    {"\"hidden_act\": \"silu\"", "\"hidden_act\": \"gelu\"", "hidden_act is gelu"},
    {"\"hidden_act\": \"silu\"", "\"hidden_act\": 7", "hidden_act is no name"},
    {"\"hidden_act\": \"silu\"", "\"hidden_act\": \"swish\"", NULL},
    {"\"attention_bias\": false", "\"attention_bias\": true", "tensor model.layers.0.self_attn.q_proj.bias is missing"},
    {"\"attention_bias\": false", "\"attention_bias\": 1", "attention_bias: there must be true or false"},
    {"\"attention_bias\": false", "\"attention_bias\": null", NULL},
    {"\"attention_bias\": false", "\"scale_attn_weights\": false", NULL}, /* not in this family */
    {"\"attention_bias\": false", "\"layer_types\": [\"full_attention\", \"full_attention\"]", NULL},
    {"\"attention_bias\": false", "\"layer_types\": [\"sliding_attention\"]", "layer_types is sliding_attention"},
    {"\"attention_bias\": false", "\"layer_types\": [7]", "layer_types is no name"},
    {"\"attention_bias\": false", "\"layer_types\": 7", "layer_types is no list"},
    {"\"attention_bias\": false", "\"per_layer_config\": {\"0\": {}}", "per_layer_config is there"},
    {"\"vocab_size\": 64", "\"vocab_size\": 65", "has 64 rows, and vocab_size is 65"},
    {"\"attention_bias\": false", "\"partial_rotary_factor\": 0.5", "partial_rotary_factor is not 1"},
    {"\"attention_bias\": false", "\"partial_rotary_factor\": 1", NULL},
    {"\"attention_bias\": false", "\"quantization_config\": {}", "quantization_config is there"},
    {"\"attention_bias\": false", "\"sliding_window\": 4", NULL}, /* not in this family */
    {"\"tie_word_embeddings\": true", "\"tie_word_embeddings\": false", "tensor lm_head.weight is missing"},
    {"\"tie_word_embeddings\": true,", "", "tensor lm_head.weight is missing"},
    {"\"max_position_embeddings\": 64,", "", "max_position_embeddings: there must be a number"},
    {"\"num_hidden_layers\": 2", "\"num_hidden_layers\": 3", "tensor model.layers.2.input_layernorm.weight is missing"},
    {"\"intermediate_size\": 36,", "", "intermediate_size: there must be a number"},
};

static const struct change mistral[] = {
    {"\"model_type\": \"llama\"", "\"model_type\": \"mistral\"", NULL},
    {"\"model_type\": \"llama\"", "\"model_type\": \"mistral\", \"sliding_window\": null", NULL},
    {"\"model_type\": \"llama\"", "\"model_type\": \"mistral\", \"sliding_window\": 4", NULL},
    {"\"model_type\": \"llama\"", "\"model_type\": \"mistral\", \"sliding_window\": 64", NULL},
    {"\"model_type\": \"llama\"", "\"model_type\": \"mistral\", \"sliding_window\": 0",
     "sliding_window: there must be"},
};

static const struct change gpt2[] = {
    {"{", "{", NULL},
    {"\"gelu_new\"", "\"gelu\"", NULL},
    {"\"gelu_new\"", "\"gelu_fast\"", NULL},
    {"\"gelu_new\"", "\"relu\"", "activation_function is relu"},
    {"\"n_inner\": 36,", "", "and its sizes say"},
    {"\"n_positions\": 64", "\"n_positions\": 65", "and its sizes say"},
    {"\"n_positions\": 64", "\"n_positions\": 2000000", "n_positions: there must be a number from 1 to 1048576"},
    {"\"tie_word_embeddings\": true,", "", NULL},
    {"\"tie_word_embeddings\": true", "\"scale_attn_weights\": false", "scale_attn_weights is false"},
    {"\"tie_word_embeddings\": true", "\"add_cross_attention\": true", "add_cross_attention is true"},
    {"\"n_layer\": 2", "\"n_layer\": 5000", "n_layer: there must be a number from 1 to 4096"},
};

static void configs(void **state) {
    (void)state;
    EXPECT_CONFIGS("llama", llama);
    EXPECT_CONFIGS("llama", mistral);
    EXPECT_CONFIGS("gpt2", gpt2);
    EXPECT_CONFIGS("qwen2", ((const struct change[]){{"{", "{", NULL}}));
    EXPECT_CONFIGS("qwen3", ((const struct change[]){{"{", "{", NULL}}));
    EXPECT_CONFIGS("llama-untied", ((const struct change[]){{"{", "{", NULL}}));
}

/* ---- GGUF ---- */

static void expect_grown(const char *line) {
    static struct sl_published published;
    struct sl_error error = {0};
    write_file(grown, file.bytes, file.count);
    const int status = sl_published_open(&published, grown, &error);
    sl_published_close(&published);
    expect_line("a GGUF file", status, &error, line);
}

/* Writes eight values of a model with heads of 4 columns. OTHERS more come next. */
static void put_model(uint64_t tensors, uint64_t others) {
    put_head(tensors, 8 + others);
    put_string("general.architecture", "llama");
    put_integer("llama.embedding_length", 8);
    put_integer("llama.block_count", 1);
    put_integer("llama.attention.head_count", 2);
    put_integer("llama.feed_forward_length", 8);
    put_integer("llama.context_length", 16);
    put_integer("llama.attention.key_length", 4);
    put_real("llama.attention.layer_norm_rms_epsilon", 1e-5f);
}

/* Writes rope_freqs.weight, COUNT numbers with NUMBER as the last; DIMS 2: as a table. */
static void put_divisors(int count, int dims, float number) {
    put_text("rope_freqs.weight");
    put_number((uint64_t)dims, 4);
    for (int d = 0; d < dims; d++) put_number(d ? 1 : (uint64_t)count, 8);
    put_number(0, 4);
    put_number(0, 8);
    align();
    for (int i = 0; i + 1 < count; i++) put(&(float){1}, sizeof(float));
    put(&number, sizeof number);
}

static void sizes_of_gguf_files(void **state) {
    (void)state;
    put_head(0, 0);
    expect_grown("general.architecture is \"\", which is not supported");
    put_head(0, 1);
    put_integer("general.architecture", 7);
    expect_grown("general.architecture is \"\"");
    put_head(0, 1);
    put_array("general.architecture", SL_GGUF_STRING, 1);
    put_text("llama");
    expect_grown("general.architecture is \"\"");
    put_head(0, 1);
    put_string("general.architecture", "an architecture of more than thirty-one characters");
    expect_grown("general.architecture is \"an architecture of more than th\"");
    put_model(0, 0);
    expect_grown("tensor token_embd.weight is missing");
    put_head(0, 2);
    put_string("general.architecture", "llama");
    put_string("llama.embedding_length", "8");
    expect_grown("embedding_length: there must be a number from 1");
    put_model(0, 1);
    put_string("llama.rope.freq_base", "8");
    expect_grown("rope.freq_base: there must be a number above 0");
    put_model(0, 1);
    put_string("llama.rope.scaling.type", "longrope");
    expect_grown("llama.rope.scaling.type is longrope");
    put_model(0, 1);
    put_integer("llama.rope.scaling.type", 1);
    expect_grown("llama.rope.scaling.type is no text");
    put_model(0, 2);
    put_string("llama.rope.scaling.type", "yarn");
    put_real("llama.rope.scaling.yarn_ext_factor", 0.5f);
    expect_grown("llama.rope.scaling.yarn_ext_factor is not 1");
    put_model(0, 1);
    put_integer("llama.rope.scaling.unknown", 1);
    expect_grown("llama.rope.scaling.unknown is there");
    put_model(0, 1);
    put_integer("llama.expert_count", 1);
    expect_grown("llama.expert_count is not 0");
    put_model(0, 1);
    put_integer("llama.attention.value_length", 8);
    expect_grown("llama.attention.value_length is not that of keys");
    put_model(0, 1);
    put_array("llama.attention.head_count_kv", SL_GGUF_U32, 2);
    put_number(1, 4);
    put_number(2, 4);
    expect_grown("attention.head_count_kv: there must be a number");
    put_model(0, 1);
    put_array("llama.attention.head_count_kv", SL_GGUF_U32, 1);
    put_number(1, 4);
    expect_grown("tensor token_embd.weight is missing");
    put_model(0, 1);
    put_integer("llama.rope.dimension_count", 2);
    expect_grown("llama.rope.dimension_count is not the columns of a head");
    put_model(0, 1);
    put_integer("llama.rope.dimension_count", 0);
    expect_grown("rope.dimension_count: there must be a number");
}

static void tensors_of_gguf_files(void **state) {
    (void)state;
    put_model(1, 0);
    put_divisors(3, 1, 1);
    expect_grown("tensor rope_freqs.weight: there must be 2 numbers");
    put_model(1, 0);
    put_divisors(2, 2, 1);
    expect_grown("tensor rope_freqs.weight: there must be 2 numbers");
    put_model(1, 0);
    put_divisors(2, 1, 0);
    expect_grown("rope_freqs.weight: number 1 is 0: it must be above 0");
    put_model(1, 0);
    put_divisors(2, 1, INFINITY);
    expect_grown("rope_freqs.weight: number 1 is inf");
    put_model(1, 0);
    put_divisors(2, 1, 1);
    expect_grown("tensor token_embd.weight is missing");
    put_model(1, 0);
    put_text("token_embd.weight"); /* a list, no table */
    put_number(1, 4);
    put_number(8, 8);
    put_number(0, 4);
    put_number(0, 8);
    align();
    for (int i = 0; i < 4; i++) put_number(0, 8);
    expect_grown("tensor token_embd.weight is missing, or no table");
    put_model(1, 0);
    put_tensor("token_embd.weight", 0, 8, 0, 0);
    align();
    put_number(0, 8);
    expect_grown("token_embd.weight");
}

static int make_files(void **state) {
    (void)state;
    if (!make_folder(folder, "test_published_sizes")) return -1;
    snprintf(path, sizeof path, "%s/config.json", folder);
    snprintf(model, sizeof model, "%s/model.safetensors", folder);
    snprintf(grown, sizeof grown, "%s/model.gguf", folder);
    return 0;
}

static int remove_files(void **state) {
    (void)state;
    unlink(path);
    unlink(model);
    unlink(grown);
    return rmdir(folder);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(configs),
        cmocka_unit_test(sizes_of_gguf_files),
        cmocka_unit_test(tensors_of_gguf_files),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, make_files, remove_files);
}
