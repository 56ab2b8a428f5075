/* transformer_sizes.c - counts the transformer's parameters and operations. */
#include "layers/models/transformer_internal.h"

#include <stdio.h>

/* A product with a kernel [in, out], and its name in a layer. */
struct product {
    const char *name;
    double in, out;
    bool biased;
};
enum { MOST_PRODUCTS = 12 };

static int list_grouped(const struct sl_transformer *t, struct product *list) {
    const double c = t->dimension, width = sl_transformer_head_width(t), q = t->heads * width,
                 k = sl_transformer_key_heads(t) * width;
    const bool biased = sl_biases_qkv(t->biases);
    list[0] = (struct product){"gqa.q", c, q, biased};
    list[1] = (struct product){"gqa.k", c, k, biased};
    list[2] = (struct product){"gqa.v", c, k, biased};
    list[3] = (struct product){"gqa.out", q, c, sl_biases_out(t->biases)};
    return 4;
}

static int list_latent(const struct sl_transformer *t, bool rotates, struct product *list) {
    const double c = t->dimension, l = t->latent, r = t->rope;
    list[0] = (struct product){"mla.down", c, 2 * l, true};
    list[1] = (struct product){"mla.kv_up", l, 2 * c, true};
    list[2] = (struct product){"mla.q_up", l, c, true};
    list[3] = (struct product){"mla.out", c, c, true};
    list[4] = (struct product){"mla.k_rope", 2 * l, r, true};
    list[5] = (struct product){"mla.q_rope", 2 * l, r * t->heads, true};
    return rotates && t->rope > 0 ? 6 : 4;
}

static int list_mlp(const struct sl_transformer *t, struct product *list) {
    const double c = t->dimension, shared = (double)t->shared_experts * t->expert_dimension;
    const double inside = sl_transformer_inside(t);
    const bool biased = sl_biases_mlp(t->biases);
    if (t->experts > 0) {
        list[0] = (struct product){"moe.shared.up", c, shared, true};
        list[1] = (struct product){"moe.shared.down", shared, c, true};
        return t->shared_experts > 0 ? 2 : 0;
    }
    list[0] = (struct product){"mlp.up", c, inside, biased};
    list[1] = (struct product){"mlp.down", inside, c, biased};
    list[2] = (struct product){"mlp.gate", c, inside, biased};
    return t->mlp == SL_MLP_GATED_SILU ? 3 : 2;
}

/* Lists all products of a layer but those of the experts and their router. */
static int list_products(const struct sl_transformer *t, bool rotates, struct product list[MOST_PRODUCTS]) {
    const int count = is_grouped(t) ? list_grouped(t, list) : list_latent(t, rotates, list);
    return count + list_mlp(t, list + count);
}

/* Elements of kernels and of biases; met: elements of kernels used by a token, which goes to only some of the
 * experts. */
struct size {
    double kernels, biases, met;
};

static struct size experts_size(const struct sl_transformer *t) {
    const double c = t->dimension, inside = t->expert_dimension, router = c * t->experts, each = 2 * c * inside;
    return (struct size){
        .kernels = router + t->experts * each, .biases = t->experts * (inside + c), .met = router + t->choices * each};
}

static double norm_size(const struct sl_transformer *t) { return (shifts(t) ? 2.0 : 1.0) * t->dimension; }

/* Size of a layer; norms count as biases. */
static struct size layer_size(const struct sl_transformer *t, bool rotates) {
    struct product list[MOST_PRODUCTS];
    struct size size = t->experts > 0 ? experts_size(t) : (struct size){0};
    const int count = list_products(t, rotates, list);
    size.biases += 2 * norm_size(t);
    if (is_grouped(t) && t->head_norms) size.biases += 2 * sl_transformer_head_width(t);
    for (int i = 0; i < count; i++) {
        const double kernel = list[i].in * list[i].out;
        size.kernels += kernel;
        size.met += kernel;
        if (list[i].biased) size.biases += list[i].out;
    }
    return size;
}

/* Sums over layers: all parameters, and the kernels used by a token. */
static void sum_layers(const struct sl_transformer *t, double *parameters, double *kernels) {
    *parameters = *kernels = 0;
    for (int layer = 0; layer < t->layers_per_block; layer++) {
        const struct size size = layer_size(t, layer < t->layers_per_block - 1);
        *kernels += t->blocks * size.met;
        *parameters += t->blocks * (size.kernels + size.biases);
    }
}

double sl_transformer_parameters(const struct sl_transformer *t) {
    double parameters, kernels;
    sum_layers(t, &parameters, &kernels);
    const double tables = (t->untied_head ? 2.0 : 1.0) * t->vocabulary + t->learned_positions;
    return parameters + norm_size(t) + tables * t->dimension;
}

/* Elements of the adapters of layer LAYER of block BLOCK. */
static double layer_adapters(const struct sl_transformer *t, const char *patterns, int block, int layer) {
    struct product list[MOST_PRODUCTS];
    const int count = list_products(t, layer < t->layers_per_block - 1, list);
    double elements = 0;
    for (int i = 0; i < count; i++) {
        char name[100];
        snprintf(name, sizeof name, "blocks.%d.layers.%d.%s.lora_a.kernel", block, layer, list[i].name);
        if (!patterns || sl_patterns_match(patterns, name)) elements += t->lora.rank * (list[i].in + list[i].out);
    }
    return elements;
}

double sl_transformer_adapters(const struct sl_transformer *t, const char *patterns) {
    double elements = 0;
    if (t->lora.rank == 0) return 0;
    for (int block = 0; block < t->blocks; block++)
        for (int layer = 0; layer < t->layers_per_block; layer++) elements += layer_adapters(t, patterns, block, layer);
    return elements;
}

double sl_transformer_flops(const struct sl_transformer *t, int sequence) {
    double parameters, kernels;
    sum_layers(t, &parameters, &kernels);
    const double c = t->dimension,
                 rotated = (double)t->rope * t->heads * (t->layers_per_block - 1) / t->layers_per_block;
    const double most = t->window && t->window < sequence ? t->window : sequence;
    const double keys = most - 0.5 * most * (most - 1) / sequence; /* keys per query, on average */
    const double attention =
        layers_of(t) * keys * 2 * (is_grouped(t) ? 2.0 * t->heads * sl_transformer_head_width(t) : 2 * c + rotated);
    const double passes = t->lora.rank > 0 ? 2 : 3; /* without gradients of kernels */
    return passes * 2 * (kernels + (double)t->vocabulary * c) + 3 * attention;
}
