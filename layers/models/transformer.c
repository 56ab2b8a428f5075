/* transformer.c - builds each rank's part of the transformer. */
#include "layers/models/transformer.h"

#include <stdio.h>
#include <stdlib.h>

#include "layers/modules/transformer_modules.h"

const char sl_data_axis[] = "data", sl_pipe_axis[] = "pipe", sl_tensor_axis[] = "tensor";
const char sl_context_axis[] = "context", sl_replica_axes[] = "data,context";

enum { EXPANSION = 4 }; /* columns inside an MLP, as a multiple of the model's */

/* ---- defaults ---- */

int sl_transformer_key_heads(const struct sl_transformer *t) { return t->key_heads ? t->key_heads : t->heads; }
int sl_transformer_head_width(const struct sl_transformer *t) {
    return t->head_width ? t->head_width : t->dimension / t->heads;
}
int sl_transformer_inside(const struct sl_transformer *t) { return t->inside ? t->inside : EXPANSION * t->dimension; }
double sl_transformer_epsilon(const struct sl_transformer *t) { return t->epsilon > 0 ? t->epsilon : 1e-6; }

/* ---- biases ---- */

static const struct bias_kind {
    bool qkv, out, mlp;
} bias_kinds[] = {
    [SL_BIASES_ALL] = {true, true, true},        [SL_BIASES_QKV] = {true, false, false},
    [SL_BIASES_NONE] = {false, false, false},    [SL_BIASES_OUT] = {false, true, false},
    [SL_BIASES_ATTENTION] = {true, true, false}, [SL_BIASES_MLP] = {false, false, true},
    [SL_BIASES_QKV_MLP] = {true, false, true},   [SL_BIASES_OUT_MLP] = {false, true, true},
    [SL_BIASES_PRODUCTS] = {true, true, true},
};

bool sl_biases_qkv(int biases) { return bias_kinds[biases].qkv; }
bool sl_biases_out(int biases) { return bias_kinds[biases].out; }
bool sl_biases_mlp(int biases) { return bias_kinds[biases].mlp; }

int sl_biases_of(bool qkv, bool out, bool mlp) {
    int biases = SL_BIASES_PRODUCTS;
    while (sl_biases_qkv(biases) != qkv || sl_biases_out(biases) != out || sl_biases_mlp(biases) != mlp) biases--;
    return biases;
}

static bool is_grouped(const struct sl_transformer *t) { return t->attention == SL_ATTENTION_GROUPED; }
/* Whether norms have shifts. */
static bool shifts(const struct sl_transformer *t) { return t->norm == SL_NORM_LAYER || t->biases == SL_BIASES_ALL; }

/* ---- partition rules ---- */

/* Rows of kernels are sharded as the columns of their input. The rotations' kernels multiply both latents, and a
 * coordinate has a share of each. Experts are sharded over data even if other kernels are not. */
#define NORMS {"*.gamma", "tensor"}, {"*.beta", "tensor"}, {"positions", "-,tensor"}
#define EXPERTS {"*.router.kernel", "tensor"}, {"*.experts.*.kernel", "data,tensor"}, {"*.experts.*.bias", "data"}
#define KERNELS {"*.k_rope.kernel", "tensor*2"}, {"*.q_rope.kernel", "tensor*2"}, {"*.kernel", "tensor"}
#define KERNELS_OVER(REPLICAS)                                                                                         \
    {"*.k_rope.kernel", "tensor*2," REPLICAS}, {"*.q_rope.kernel", "tensor*2," REPLICAS}, {                            \
        "*.kernel", "tensor," REPLICAS                                                                                 \
    }

#define TABLES(AXIS)                                                                                                   \
    {"embedding", AXIS}, { "head", AXIS }

static const struct sl_rule rules[3][3][12] = {
    {{NORMS, EXPERTS, KERNELS, {0}},
     {NORMS, EXPERTS, KERNELS, TABLES("tensor"), {0}},
     {NORMS, EXPERTS, KERNELS, TABLES("pipe"), {0}}},
    {{NORMS, EXPERTS, KERNELS_OVER("data"), {0}},
     {NORMS, EXPERTS, KERNELS_OVER("data"), TABLES("tensor"), {0}},
     {NORMS, EXPERTS, KERNELS_OVER("data"), TABLES("pipe"), {0}}},
    {{NORMS, EXPERTS, KERNELS_OVER("data+context"), {0}},
     {NORMS, EXPERTS, KERNELS_OVER("data+context"), TABLES("tensor"), {0}},
     {NORMS, EXPERTS, KERNELS_OVER("data+context"), TABLES("pipe"), {0}}},
};

const struct sl_rule *sl_transformer_rules(const struct sl_transformer *t, const struct sl_mesh *mesh) {
    return rules[t->fsdp ? 1 + sl_transformer_divides(mesh) : 0]
                [t->spread_head == SL_SPREAD_VOCABULARY ? 2 : t->vocabulary_parallel];
}

/* ---- checks ---- */

static int layers_of(const struct sl_transformer *t) { return t->blocks * t->layers_per_block; }

static int check_split(const char *what, int number, int parts, const char *axis, struct sl_error *error) {
    if (number % parts == 0) return SL_OK;
    return sl_error_set(error, SL_BAD_INPUT, "%s %d does not divide over the %d coordinates along \"%s\"", what, number,
                        parts, axis);
}

static int check_experts(const struct sl_transformer *t, const struct sl_mesh *mesh, struct sl_error *error) {
    const int tensor = sl_mesh_axis_size(mesh, sl_tensor_axis), data = sl_mesh_axis_size(mesh, sl_data_axis);
    if (t->choices < 1 || t->choices > t->experts)
        return sl_error_set(error, SL_BAD_INPUT, "a token goes to %d of the %d experts: choose from 1 to %d",
                            t->choices, t->experts, t->experts);
    SL_TRY(check_split("the number of experts", t->experts, data, sl_data_axis, error));
    return check_split("expert dimension", t->expert_dimension, tensor, sl_tensor_axis, error);
}

/* Checks options for this model's own modules only. */
static int check_families(const struct sl_transformer *t, struct sl_error *error) {
    if (!is_grouped(t) && t->biases != SL_BIASES_ALL)
        return sl_error_set(error, SL_BAD_INPUT,
                            "latent attention has biases: leave out --biases, or take --attention "
                            "gqa");
    if (!is_grouped(t) && t->window)
        return sl_error_set(
            error, SL_BAD_INPUT,
            "a window of %d tokens: latent attention has none: leave out --window, or take --attention gqa", t->window);
    if (t->experts > 0 && (t->mlp != SL_MLP_GELU || (t->biases != SL_BIASES_ALL && t->biases != SL_BIASES_QKV)))
        return sl_error_set(error, SL_BAD_INPUT, "experts are MLPs of gelu with biases: leave out --mlp and --biases");
    return SL_OK;
}

static int check_grouped(const struct sl_transformer *t, struct sl_error *error) {
    if (t->heads % sl_transformer_key_heads(t))
        return sl_error_set(error, SL_BAD_INPUT, "%d heads of queries do not divide by the %d heads of keys and values",
                            t->heads, sl_transformer_key_heads(t));
    if (t->rope > 0 && sl_transformer_head_width(t) % 2)
        return sl_error_set(error, SL_BAD_INPUT, "heads of %d columns: rotations turn pairs, so it must be even",
                            sl_transformer_head_width(t));
    return SL_OK;
}

int sl_transformer_check(const struct sl_transformer *t, const struct sl_mesh *mesh, struct sl_error *error) {
    const int tensor = sl_mesh_axis_size(mesh, sl_tensor_axis);
    if (!t->head_width && t->dimension % t->heads)
        return sl_error_set(error, SL_BAD_INPUT, "model dimension %d does not divide into %d heads", t->dimension,
                            t->heads);
    if (t->rope % 2)
        return sl_error_set(error, SL_BAD_INPUT, "rope dimension %d: rotations turn pairs, so it must be even",
                            t->rope);
    if (t->learned_positions && t->positions > t->learned_positions)
        return sl_error_set(error, SL_BAD_INPUT, "sequences of %d tokens: the table of positions has %d rows",
                            t->positions, t->learned_positions);
    SL_TRY(check_families(t, error));
    if (is_grouped(t)) SL_TRY(check_grouped(t, error));
    SL_TRY(check_split("the number of heads", t->heads, tensor, sl_tensor_axis, error));
    SL_TRY(check_split("model dimension", t->dimension, tensor, sl_tensor_axis, error));
    if (!is_grouped(t)) SL_TRY(check_split("latent dimension", t->latent, tensor, sl_tensor_axis, error));
    if (!t->experts) SL_TRY(check_split("MLP dimension", sl_transformer_inside(t), tensor, sl_tensor_axis, error));
    return t->experts > 0 ? check_experts(t, mesh, error) : SL_OK;
}

/* ---- building ---- */

static struct sl_module *build_norm(const char *name, const struct sl_transformer *t,
                                    const struct sl_channels *channels) {
    const struct sl_norm_kind kind = {t->norm == SL_NORM_LAYER, shifts(t), sl_transformer_epsilon(t)};
    return sl_sharded_norm(name, t->dimension, &kind, channels);
}

static struct sl_module *build_grouped(const struct sl_transformer *t, const struct sl_channels *channels) {
    struct sl_gqa shape = {.dimension = t->dimension,
                           .heads = t->heads,
                           .key_heads = sl_transformer_key_heads(t),
                           .width = sl_transformer_head_width(t),
                           .biases = sl_biases_qkv(t->biases),
                           .out_bias = sl_biases_out(t->biases),
                           .head_norms = t->head_norms,
                           .epsilon = sl_transformer_epsilon(t),
                           .rotates = t->rope > 0,
                           .rotary = t->rotary,
                           .window = t->window,
                           .positions = t->positions,
                           .dropout = t->dropout};
    if (!(shape.rotary.base > 0)) shape.rotary.base = 10000;
    return sl_gqa("gqa", &shape, channels);
}

static struct sl_module *build_latent(const struct sl_transformer *t, bool rotates,
                                      const struct sl_channels *channels) {
    const struct sl_mla shape = {.dimension = t->dimension,
                                 .heads = t->heads,
                                 .latent = t->latent,
                                 .rope = rotates ? t->rope : 0,
                                 .positions = t->positions,
                                 .dropout = t->dropout};
    return sl_mla("mla", &shape, channels);
}

static struct sl_module *build_attention(const struct sl_transformer *t, bool rotates,
                                         const struct sl_channels *channels) {
    struct sl_module *const part[] = {build_norm("norm1", t, channels),
                                      is_grouped(t) ? build_grouped(t, channels) : build_latent(t, rotates, channels)};
    struct sl_module *both = sl_sequential("", 2, part);
    return sl_residual(t->recomputation == SL_RECOMPUTE_SELECTIVE ? sl_recompute(both) : both);
}

static struct sl_module *build_product(const char *name, int in, int out, bool biased,
                                       const struct sl_channels *channels) {
    return biased ? sl_sharded_dense(name, in, out, 1, 1, channels) : sl_sharded_product(name, in, out, channels);
}

#define FUNCTION(kind, name, module) [SL_MLP_##kind] = module,
static struct sl_module *(*const functions[])(int columns) = {SL_MLPS(FUNCTION)};

static struct sl_module *build_dense_mlp(const struct sl_transformer *t, const struct sl_channels *channels) {
    const int inside = sl_transformer_inside(t);
    const bool biased = sl_biases_mlp(t->biases);
    const int own = inside / sl_mesh_axis_size(channels->mesh, channels->axis);
    if (t->mlp == SL_MLP_GATED_SILU) return sl_gated_mlp("mlp", t->dimension, inside, biased, channels);
    struct sl_module *const layer[] = {
        build_product("up", t->dimension, inside, biased, channels),
        functions[t->mlp](own),
        build_product("down", inside, t->dimension, biased, channels),
    };
    return sl_sequential("mlp", 3, layer);
}

static struct sl_module *build_experts(const struct sl_transformer *t, const struct sl_channels *channels) {
    const struct sl_experts shape = {.dimension = t->dimension,
                                     .inside = t->expert_dimension,
                                     .experts = t->experts,
                                     .choices = t->choices,
                                     .shared = t->shared_experts * t->expert_dimension,
                                     .capacity = t->capacity,
                                     .balance = t->balance,
                                     .axis = sl_data_axis};
    return sl_experts("moe", &shape, channels);
}

static struct sl_module *build_mlp(const struct sl_transformer *t, const struct sl_channels *channels) {
    struct sl_module *const part[] = {
        build_norm("norm2", t, channels),
        t->experts > 0 ? build_experts(t, channels) : build_dense_mlp(t, channels),
        sl_sharded_dropout(t->dimension, t->dropout, channels),
    };
    if (t->dropout == 0) sl_module_free(part[2]);
    return sl_residual(sl_sequential("", t->dropout > 0 ? 3 : 2, part));
}

/* Halves [FIRST, END) of layer NUMBER: 0 is attention, 1 the MLP. */
static struct sl_module *build_layer(const struct sl_transformer *t, int number, int first, int end,
                                     const struct sl_channels *channels) {
    const int block = number / t->layers_per_block, layer = number % t->layers_per_block;
    char name[40]; /* long enough for any numbers */
    snprintf(name, sizeof name, "blocks.%d.layers.%d", block, layer);
    struct sl_module *part[2];
    int parts = 0;
    if (first == 0) part[parts++] = build_attention(t, layer < t->layers_per_block - 1 && t->rope > 0, channels);
    if (end == 2) part[parts++] = build_mlp(t, channels);
    struct sl_module *all = sl_sequential(name, parts, part);
    if (all) all->is_layer = true;
    return t->recomputation == SL_RECOMPUTE_FULL ? sl_recompute(all) : all;
}

/* Ways in which the ranks of a pipeline share the head, by enum sl_spread_head. */
typedef struct sl_module *make_end(const struct sl_vocabulary *vocabulary, const struct sl_channels *channels);
static const struct head {
    bool embeds;  /* whether each rank looks up its share in a stage of its own, before the layers */
    bool divides; /* whether the table is divided over the ranks */
    enum sl_tied tied;
    make_end *begin; /* after the last layer; NULL: the loss alone is the head */
    make_end *loss;
    int (*columns)(const struct sl_vocabulary *vocabulary, const struct sl_channels *channels); /* of messages */
} heads[] = {
    [SL_SPREAD_NOTHING] = {false, false, SL_TIED_ENDS, NULL, sl_token_head, NULL},
    [SL_SPREAD_VOCABULARY] = {true, true, SL_TIED_SHARDS, sl_spread_begin, sl_spread_loss, sl_spread_columns},
    [SL_SPREAD_ROWS] = {false, false, SL_TIED_RANKS, sl_rows_begin, sl_rows_loss, sl_rows_columns},
    [SL_SPREAD_BATCH] = {true, false, SL_TIED_RANKS, sl_rows_begin, sl_rows_loss, sl_rows_columns},
};

static const struct head *head_of(const struct sl_transformer *t) { return &heads[t->spread_head]; }

/* RANK's share of the table, for the modules at the ends of the model. */
static struct sl_vocabulary vocabulary_of(const struct sl_transformer *t, const struct sl_schedule *schedule,
                                          int rank) {
    const struct head *head = head_of(t);
    const bool looks = head->embeds && !head->divides;
    return (struct sl_vocabulary){.size = t->vocabulary,
                                  .dimension = t->dimension,
                                  .own_head = t->untied_head,
                                  .copied = head->tied == SL_TIED_RANKS,
                                  .halves = t->halves,
                                  .parallel = t->vocabulary_parallel,
                                  .chunk = t->chunk,
                                  .keeps_logits = t->keep_logits,
                                  .shards = head->divides ? schedule->ranks : 0,
                                  .shard = head->divides ? rank : 0,
                                  .lookers = looks ? schedule->ranks : 0,
                                  .looker = looks ? rank : 0,
                                  .microbatches = schedule->microbatches,
                                  .stages = sl_pipe_axis};
}

static struct sl_layers spread_of(const struct sl_transformer *t) {
    return (struct sl_layers){layers_of(t), t->stage_layers, t->stage_halves};
}

/* Joins the modules from FIRST to COUNT into a recomputing one, with only its input saved; returns the new number of
 * modules. */
static int join_block(struct sl_module **part, int first, int count) {
    part[first] = sl_recompute(sl_sequential("", count - first, part + first));
    return first + 1;
}

/* A stage of layers, number STAGE of STAGES, with the embedding before the first layer and the norm after the last. */
static struct sl_module *build_stage(const struct sl_transformer *t, int stages, int stage,
                                     const struct sl_vocabulary *vocabulary, const struct sl_channels *channels) {
    const int first = sl_model_first_half(spread_of(t), stages, stage);
    const int end = sl_model_first_half(spread_of(t), stages, stage + 1);
    struct sl_module **part = calloc((size_t)(end - first) + 4, sizeof *part), *whole = NULL;
    int parts = 0;
    if (!part) return NULL;
    if (stage == 0 && !head_of(t)->embeds) part[parts++] = sl_token_embedding(vocabulary, channels);
    if (stage == 0 && t->learned_positions)
        part[parts++] = sl_learned_positions(t->learned_positions, t->dimension, channels);
    for (int half = first, next, block = parts; half < end; half = next) {
        next = half / 2 * 2 + 2 < end ? half / 2 * 2 + 2 : end;
        part[parts++] = build_layer(t, half / 2, half % 2, next - half / 2 * 2, channels);
        const bool ends = next == end || next % (2 * t->layers_per_block) == 0;
        if (ends && t->recomputation == SL_RECOMPUTE_BLOCK) block = parts = join_block(part, block, parts);
    }
    if (stage == stages - 1) part[parts++] = build_norm("norm", t, channels);
    if (stage == stages - 1 && head_of(t)->begin) part[parts++] = head_of(t)->begin(vocabulary, channels);
    whole = sl_sequential("", parts, part); /* takes ownership of the parts, even if one is NULL */
    free(part);
    return whole;
}

/* Numbers of stages without layers, before and after the others. */
struct ends {
    int first, last;
};

static struct ends ends_of(const struct sl_transformer *t, const struct sl_schedule *schedule) {
    return (struct ends){head_of(t)->embeds ? schedule->ranks : 0, head_of(t)->begin ? schedule->ranks : 0};
}

/* Stage number STAGE of the pipeline, one of RANK's. */
static struct sl_module *build_any(const struct sl_transformer *t, const struct sl_schedule *schedule, int rank,
                                   int stage, const struct sl_vocabulary *vocabulary,
                                   const struct sl_channels *channels) {
    const struct ends ends = ends_of(t, schedule);
    const int stages = sl_schedule_depth(schedule) - ends.first - ends.last;
    if (stage < ends.first) return sl_token_embedding(vocabulary, channels);
    if (stage < ends.first + stages) return build_stage(t, stages, stage - ends.first, vocabulary, channels);
    return vocabulary->copied ? sl_rows_head(vocabulary, channels, schedule->ranks, rank)
                              : sl_spread_head(vocabulary, channels);
}

int sl_transformer_build(const struct sl_transformer *t, const struct sl_mesh *mesh, const struct sl_schedule *schedule,
                         int rank, struct sl_model *model, struct sl_error *error) {
    const struct sl_vocabulary vocabulary = vocabulary_of(t, schedule, rank);
    const struct sl_channels channels = {mesh, sl_tensor_axis, &t->lora, t->tensor_pieces};
    const struct ends ends = ends_of(t, schedule);
    const int stages = sl_schedule_depth(schedule), least = 1 + sl_spread_loops(t->spread_head);
    const int loops = schedule->loops / schedule->copies;
    if (loops < least)
        return sl_error_set(error, SL_BAD_INPUT, "a spread head needs a schedule of %d loops or more; %s has %d", least,
                            schedule->name, loops);
    SL_TRY(sl_model_check_ends(schedule, ends.first, ends.last, error));
    SL_TRY(sl_model_open(model, schedule, rank, spread_of(t), ends.first, ends.last, error));
    model->tied = head_of(t)->tied;
    if (head_of(t)->columns) model->handed = head_of(t)->columns(&vocabulary, &channels);
    for (int l = 0; l < model->loops; l++) {
        const int stage = sl_schedule_position(schedule, sl_schedule_stage(schedule, rank, l));
        model->stage[l] = build_any(t, schedule, rank, stage, &vocabulary, &channels);
        if (stage == stages - 1) model->loss = head_of(t)->loss(&vocabulary, &channels);
        if (!model->stage[l] || (stage == stages - 1 && !model->loss))
            return sl_error_set(error, SL_FAILED, "no memory for the model");
    }
    return SL_OK;
}

/* ---- sizes ---- */

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
