/* transformer.c - builds each rank's part of the transformer. */
#include "layers/models/transformer_internal.h"

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

/* ---- partition rules ---- */

/* Rows of kernels are sharded as the columns of their input. The rotations' kernels multiply both latents, and a
 * coordinate has a share of each. Experts are sharded over replicas even if other kernels are not. */
#define NORMS {"*.gamma", "tensor"}, {"*.beta", "tensor"}, {"positions", "-,tensor"}
#define EXPERTS(REPLICAS)                                                                                              \
    {"*.router.kernel", "tensor"}, {"*.experts.*.kernel", REPLICAS ",tensor"}, { "*.experts.*.bias", REPLICAS }
#define KERNELS {"*.k_rope.kernel", "tensor*2"}, {"*.q_rope.kernel", "tensor*2"}, {"*.kernel", "tensor"}
#define KERNELS_OVER(REPLICAS)                                                                                         \
    {"*.k_rope.kernel", "tensor*2," REPLICAS}, {"*.q_rope.kernel", "tensor*2," REPLICAS}, {                            \
        "*.kernel", "tensor," REPLICAS                                                                                 \
    }

#define TABLES(AXIS)                                                                                                   \
    {"embedding", AXIS}, { "head", AXIS }

#define BY_COLUMNS(REPLICAS, KERNELS)                                                                                  \
    {                                                                                                                  \
        {NORMS, EXPERTS(REPLICAS), KERNELS, {0}}, {NORMS, EXPERTS(REPLICAS), KERNELS, TABLES("tensor"), {0}}, {        \
            NORMS, EXPERTS(REPLICAS), KERNELS, TABLES("pipe"), {0}                                                     \
        }                                                                                                              \
    }

/* By rows, each coordinate has whole norms, whole kernels that yield what all heads share, and shards of the columns of
 * a block's other first kernels. */
#define FIRST(NAME, REPLICAS, SHARES)                                                                                  \
    {NAME ".kernel", REPLICAS "," SHARES}, { NAME ".bias", SHARES }
#define FIRSTS(REPLICAS)                                                                                               \
    FIRST("*.gqa.[qkv]", REPLICAS, "tensor"), FIRST("*.mlp.up", REPLICAS, "tensor"),                                   \
        FIRST("*.mlp.gate", REPLICAS, "tensor"), FIRST("*.mla.q_*", REPLICAS, "tensor"),                               \
        FIRST("*.mla.kv_up", REPLICAS, "tensor*2"), {"*.mla.down.kernel", ""}, {"*.mla.k_rope.kernel", ""}
#define BY_ROWS(REPLICAS, KERNELS)                                                                                     \
    {                                                                                                                  \
        {FIRSTS(REPLICAS), KERNELS, {0}}, { FIRSTS(REPLICAS), KERNELS, TABLES("tensor"), {0} }                         \
    }

static const struct sl_rule rules[4][3][12] = {BY_COLUMNS("data", KERNELS), BY_COLUMNS("data", KERNELS_OVER("data")),
                                               BY_COLUMNS("data+context", KERNELS_OVER("data+context")),
                                               BY_COLUMNS("data+context", KERNELS)};
static const struct sl_rule rules_by_rows[3][2][20] = {BY_ROWS("-", KERNELS), BY_ROWS("data", KERNELS_OVER("data")),
                                                       BY_ROWS("data+context", KERNELS_OVER("data+context"))};

const struct sl_rule *sl_transformer_rules(const struct sl_transformer *t, const struct sl_mesh *mesh) {
    const bool divides = sl_transformer_divides(mesh);
    const int over = t->fsdp ? 1 + divides : 0;
    if (sl_transformer_by_rows(t, mesh)) return rules_by_rows[over][t->vocabulary_parallel];
    return rules[divides && !t->fsdp ? 3 : over][t->spread_head == SL_SPREAD_VOCABULARY ? 2 : t->vocabulary_parallel];
}

/* ---- checks ---- */

static int check_split(const char *what, int number, int parts, const char *axis, struct sl_error *error) {
    if (number % parts == 0) return SL_OK;
    return sl_error_set(error, SL_BAD_INPUT, "%s %d does not divide over the %d coordinates along \"%s\"", what, number,
                        parts, axis);
}

static int check_experts(const struct sl_transformer *t, const struct sl_mesh *mesh, struct sl_error *error) {
    const char *const replicas = sl_transformer_replicas(mesh);
    const int tensor = sl_mesh_axis_size(mesh, sl_tensor_axis), copies = sl_mesh_axis_size(mesh, replicas);
    if (t->choices < 1 || t->choices > t->experts)
        return sl_error_set(error, SL_BAD_INPUT, "a token goes to %d of the %d experts: choose from 1 to %d",
                            t->choices, t->experts, t->experts);
    SL_TRY(check_split("the number of experts", t->experts, copies, replicas, error));
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

/* Checks that this model, and all that is asked of it, has tensor layout rows. */
static int check_rows(const struct sl_transformer *t, const struct sl_mesh *mesh, struct sl_error *error) {
    const bool drops = t->dropout > 0;
    const char *refused = t->experts                                    ? "experts"
                          : t->lora.rank                                ? "adapters"
                          : t->learned_positions                        ? "learned positions"
                          : t->spread_head                              ? "a spread head"
                          : t->tensor_pieces > 1                        ? "pieces of rows"
                          : drops && sl_transformer_divides(mesh)       ? "dropout of divided sequences"
                          : drops && sl_kernels_select()->draws_dropout ? "dropout on this device"
                                                                        : NULL;
    if (refused) return sl_error_set(error, SL_BAD_INPUT, "tensor layout rows does not take %s: take columns", refused);
    if (!is_grouped(t)) return SL_OK;
    return check_split("the number of heads of keys and values (tensor layout rows)", sl_transformer_key_heads(t),
                       sl_mesh_axis_size(mesh, sl_tensor_axis), sl_tensor_axis, error);
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
    if (sl_transformer_by_rows(t, mesh)) SL_TRY(check_rows(t, mesh, error));
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

#define FUNCTION(kind, name, module) [SL_MLP_##kind] = module,
static struct sl_module *(*const functions[])(int columns) = {SL_MLPS(FUNCTION)};

static struct sl_module *build_dense_mlp(const struct sl_transformer *t, const struct sl_channels *channels) {
    const int inside = sl_transformer_inside(t);
    const bool biased = sl_biases_mlp(t->biases);
    const int own = inside / sl_mesh_axis_size(channels->mesh, channels->axis);
    if (t->mlp == SL_MLP_GATED_SILU) return sl_gated_mlp("mlp", t->dimension, inside, biased, channels);
    struct sl_module *const layer[] = {
        sl_first_dense("up", t->dimension, inside, 1, biased, channels),
        functions[t->mlp](own),
        sl_last_dense("down", inside, t->dimension, biased, channels),
    };
    return sl_gathered_rows(sl_sequential("mlp", 3, layer), channels);
}

static struct sl_module *build_experts(const struct sl_transformer *t, const struct sl_channels *channels) {
    const struct sl_experts shape = {.dimension = t->dimension,
                                     .inside = t->expert_dimension,
                                     .experts = t->experts,
                                     .choices = t->choices,
                                     .shared = t->shared_experts * t->expert_dimension,
                                     .capacity = t->capacity,
                                     .balance = t->balance,
                                     .axes = sl_transformer_replicas(channels->mesh),
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
    const struct sl_channels channels = {mesh, sl_tensor_axis, &t->lora, t->tensor_pieces, t->tensor_layout};
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
