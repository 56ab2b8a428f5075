/* token_table.c - plans the token table and the division of its work, and moves the parts between coordinates. */
#include "layers/modules/sequence/token_table.h"

#include "layers/modules/sequence/token_chunks.h"
#include "layers/modules/sharded_channels.h"
#include "spmd/base/memory.h"
#include "spmd/device/device.h"

enum { MOST = 4096 /* classes of a chunk */, FEWEST = 8 /* chunks, if there are several */, ALIGNED = 64 };

/* ---- construction ---- */

struct sl_module *sl_token_module(const struct sl_module_type *type, int in, int out,
                                  const struct sl_vocabulary *vocabulary, const struct sl_channels *channels) {
    struct sl_module *module = sl_module_new(type, "", in, out);
    struct sl_token_table *table = (struct sl_token_table *)module;
    if (!module) return NULL;
    table->vocabulary = *vocabulary;
    table->axis = channels->axis;
    table->parts = sl_mesh_axis_size(channels->mesh, channels->axis);
    table->by_rows = sl_channels_by_rows(channels);
    return module;
}

static enum sl_division divide(const struct sl_vocabulary *vocabulary, int sequence, int parts) {
    if (parts == 1) return SL_UNDIVIDED;
    if (vocabulary->parallel) return SL_BY_CLASSES;
    return sequence % parts == 0 ? SL_BY_TOKENS : SL_UNDIVIDED;
}

/* ---- planning ---- */

/* A large vocabulary has 8 chunks, or 16, 32, ...: pipeline ranks can share them. */
size_t sl_token_chunk(const struct sl_vocabulary *vocabulary) {
    const size_t size = (size_t)vocabulary->size;
    size_t chunks = FEWEST;
    if (vocabulary->chunk > 0) return (size_t)vocabulary->chunk < size ? (size_t)vocabulary->chunk : size;
    if (size <= MOST) return size;
    while (chunks * MOST < size) chunks *= 2;
    return size % chunks == 0 ? size / chunks : sl_round_up((size + chunks - 1) / chunks, ALIGNED);
}

bool sl_vocabulary_divides(const struct sl_vocabulary *vocabulary) {
    const size_t size = (size_t)vocabulary->size, shards = vocabulary->shards > 1 ? (size_t)vocabulary->shards : 1;
    return shards == 1 || (size % shards == 0 && size / shards % sl_token_chunk(vocabulary) == 0);
}

static int check_shards(const struct sl_token_table *table, struct sl_plan *plan) {
    const struct sl_vocabulary *vocabulary = &table->vocabulary;
    const int shards = sl_token_shards(table);
    const size_t chunk = sl_token_chunk(vocabulary);
    if (shards == 1) return SL_OK;
    if (!sl_vocabulary_divides(vocabulary))
        return sl_error_set(plan->error, SL_BAD_INPUT,
                            "%s%s: a vocabulary of %d tokens in chunks of %zu does not divide over %d stages",
                            plan->name, table->module.type->name, vocabulary->size, chunk, shards);
    if (table->parts == 1 || table->division == SL_BY_TOKENS) return SL_OK;
    return sl_error_set(plan->error, SL_BAD_INPUT,
                        "%s%s: sequences of %d tokens do not divide by the %d coordinates along \"%s\", which a table "
                        "that stages share needs",
                        plan->name, table->module.type->name, plan->sequence, table->parts, table->axis);
}

/* Checks the leaves: shares of the tokens or of the classes. If a table has leaves, stages cannot share it. */
static int check_leaves(const struct sl_token_table *table, struct sl_plan *plan) {
    const int leaves = sl_plan_parts(plan, table->axis);
    if (!table->leaves && !table->slices) return SL_OK;
    if (sl_token_shards(table) > 1) return sl_plan_without_leaves(plan, table->axis);
    if (table->slices || plan->sequence % leaves == 0) return SL_OK;
    return sl_error_set(plan->error, SL_BAD_INPUT,
                        "%s%s: sequences of %d tokens do not divide by the %d leaves along \"%s\"", plan->name,
                        table->module.type->name, plan->sequence, leaves, table->axis);
}

/* Classes of a leaf or, without leaves, of a coordinate. */
static int share_of(const struct sl_token_table *table, const struct sl_plan *plan) {
    const int parts = sl_plan_parts(plan, table->axis);
    return table->vocabulary.size / parts + (table->vocabulary.size % parts > 0);
}

/* Checks that each share has at least one class: the softmax of a share of padding alone would be undefined. */
static int check_classes(const struct sl_token_table *table, const struct sl_plan *plan) {
    const int parts = sl_plan_parts(plan, table->axis), share = share_of(table, plan);
    if (!table->vocabulary.parallel || (parts - 1) * share < table->vocabulary.size) return SL_OK;
    return sl_error_set(plan->error, SL_BAD_INPUT,
                        "%s%s: of a vocabulary of %d tokens, in shares of %d, the last of the %d %s along \"%s\" has "
                        "none",
                        plan->name, table->module.type->name, table->vocabulary.size, share, parts,
                        sl_plan_parts_name(plan, table->axis), table->axis);
}

/* Chooses the division; for generation there are no sums over leaves. */
static void choose_division(struct sl_token_table *table, const struct sl_plan *plan) {
    const int leaves = sl_plan_leaves(plan, table->axis);
    const bool parallel = table->vocabulary.parallel;
    table->leaves = parallel ? 0 : leaves;
    table->slices = parallel && !plan->caches ? leaves : 0;
    table->division = divide(&table->vocabulary, plan->sequence, table->parts);
    if (table->leaves) table->division = SL_BY_TOKENS;
    if (table->slices) table->division = SL_BY_CLASSES;
}

/* Checks that each rank looks up as many microbatches, in whole groups. */
static int check_lookers(const struct sl_token_table *table, struct sl_plan *plan) {
    const struct sl_vocabulary *vocabulary = &table->vocabulary;
    const int lookers = vocabulary->lookers > 1 ? vocabulary->lookers : 1;
    if (lookers == 1 || vocabulary->microbatches % (lookers * plan->wgrad_group) == 0) return SL_OK;
    return sl_error_set(plan->error, SL_BAD_INPUT,
                        "%s%s: %d microbatches in groups of %d do not divide over %d ranks that share them", plan->name,
                        table->module.type->name, vocabulary->microbatches, plan->wgrad_group, lookers);
}

int sl_token_plan(struct sl_token_table *table, struct sl_plan *plan) {
    const struct sl_vocabulary *vocabulary = &table->vocabulary;
    const char *name = table->module.type->name;
    if (vocabulary->size < 1)
        return sl_error_set(plan->error, SL_BAD_INPUT, "%s%s: a vocabulary of %d tokens: there must be at least 1",
                            plan->name, name, vocabulary->size);
    if (plan->sequence < 1 || plan->rows % plan->sequence)
        return sl_error_set(plan->error, SL_BAD_INPUT,
                            "%s%s: %d rows a microbatch are no whole number of sequences of %d", plan->name, name,
                            plan->rows, plan->sequence);
    sl_plan_bound(plan, table->module.type->reads, vocabulary->size);
    SL_TRY(sl_plan_columns(plan, table->axis, vocabulary->dimension, 1));
    if (table->by_rows) SL_TRY(sl_plan_share_rows(plan, table->axis));
    table->parts = sl_mesh_axis_size(plan->mesh, table->axis);
    table->sequence = plan->sequence;
    choose_division(table, plan);
    SL_TRY(check_leaves(table, plan));
    SL_TRY(check_classes(table, plan));
    SL_TRY(check_shards(table, plan));
    SL_TRY(check_lookers(table, plan));
    return sl_plan_group(plan, table->axis, &table->group);
}

void sl_token_plan_labels(const struct sl_token_table *table, struct sl_plan *plan, struct sl_place *place) {
    const bool trains = sl_plan_trains(plan, 0);
    const size_t group = (size_t)plan->rows * (size_t)(trains ? plan->wgrad_group : 1);
    const size_t rows = sl_plan_rows(plan) > group ? sl_plan_rows(plan) : group;
    if (table->division == SL_BY_TOKENS) sl_plan_workspace(plan, sl_token_rows(table, rows) * sizeof(int32_t), place);
}

/* Returns whether other stages have a parameter of the same name: the same values, or other shards. */
static bool is_tied(const struct sl_token_table *table, enum sl_table_end end) {
    const struct sl_vocabulary *vocabulary = &table->vocabulary;
    const bool copied = end == SL_TABLE_HEAD ? vocabulary->copied : vocabulary->lookers > 1;
    return !vocabulary->own_head || sl_token_shards(table) > 1 || copied;
}

int sl_token_plan_table(struct sl_token_table *table, struct sl_plan *plan, enum sl_table_end end, bool summed) {
    const size_t shape[] = {(size_t)table->vocabulary.size, (size_t)table->vocabulary.dimension};
    const float scale = sl_lecun_normal(shape[1]);
    const char *name = end == SL_TABLE_HEAD && table->vocabulary.own_head ? "head" : "embedding";
    if (table->vocabulary.parallel && sl_token_shards(table) == 1)
        plan->padded_rows = (size_t)share_of(table, plan) * (size_t)sl_plan_parts(plan, table->axis);
    if (is_tied(table, end))
        SL_TRY(sl_plan_parameter_tied(plan, name, SL_INIT_TRUNCATED_NORMAL, scale, 2, shape));
    else
        SL_TRY(sl_plan_parameter_by_rule(plan, name, SL_INIT_TRUNCATED_NORMAL, scale, 2, shape));
    sl_plan_kernel(plan, 0);
    const char *rows = table->vocabulary.parallel ? table->axis : NULL;
    if (sl_token_shards(table) > 1) rows = table->vocabulary.stages;
    SL_TRY(sl_plan_expect_sharded(plan, 0, 0, rows, 1));
    SL_TRY(sl_plan_expect_sharded(plan, 0, 1, NULL, 1));
    table->rows = plan->parameters->list[plan->module->parameter[0]].room / shape[1];
    const size_t part = sl_token_classes(table) * shape[1];
    if (summed && sl_plan_trains(plan, 0)) sl_plan_workspace(plan, part * sizeof(float), &table->gradient);
    return SL_OK;
}

/* ---- labels ---- */

const int32_t *sl_token_labels(const struct sl_module *module, const struct sl_context *context,
                               const struct sl_place *place, size_t rows) {
    const struct sl_token_table *table = sl_token_table_of(module);
    if (table->division != SL_BY_TOKENS) return context->batch.labels;
    const size_t sequence = (size_t)table->sequence, run = sl_token_rows(table, sequence);
    int32_t *labels = sl_at(context, place);
    context->kernels->sequence->copy_labels(
        rows / sequence, run, context->batch.labels + run * sl_token_rank(module, context), sequence, labels);
    return labels;
}

/* By tokens, only one coordinate counts a token; by classes, only one can hit a label. */
void sl_token_count(const struct sl_module *module, struct sl_context *context, const struct sl_softmax *s,
                    bool hits_alone) {
    const struct sl_token_table *table = sl_token_table_of(module);
    const int many = table->division == SL_BY_TOKENS ? table->parts : 1;
    if (!context->sums) return;
    context->kernels->sequence->softmax_losses(
        s->rows, s->labels, s->maxima, s->argmaxima, s->sums, s->targets, hits_alone ? 0 : many,
        table->division == SL_UNDIVIDED ? 1 : table->parts, context->sums->losses);
}

/* ---- the table's gradient ---- */

/* In place, unless the gradient already holds a sum. */
float *sl_token_part(const struct sl_module *module, const struct sl_context *context) {
    if (!context->accumulate) return sl_gradient(module, context, 0);
    return sl_at(context, &sl_token_table_of(module)->gradient);
}

int sl_token_sum_parts(const struct sl_module *module, struct sl_context *context, float *part) {
    const size_t count = context->parameters->list[module->parameter[0]].count;
    SL_TRY(sl_token_sum(module, context, count, part));
    if (context->accumulate) context->kernels->add(count, part, sl_gradient(module, context, 0));
    return SL_OK;
}

/* ---- communication ---- */

static const struct sl_group *peers_of(const struct sl_module *module, const struct sl_context *context) {
    return sl_group_of(context, sl_token_table_of(module)->group);
}

/* By rows a coordinate's tokens are its rows. */
static int copy_rows(const struct sl_module *module, size_t rows, const float *x, float *y) {
    const struct sl_token_table *table = sl_token_table_of(module);
    sl_device.copy(y, x, rows * (size_t)(table->vocabulary.dimension / table->parts) * sizeof *y);
    return SL_OK;
}

int sl_channels_to_tokens(const struct sl_module *module, struct sl_context *context, size_t rows, const float *x,
                          float *y) {
    const struct sl_token_table *table = sl_token_table_of(module);
    if (table->by_rows) return copy_rows(module, rows, x, y);
    const size_t sequence = (size_t)table->sequence, channels = (size_t)(table->vocabulary.dimension / table->parts);
    const size_t shape[] = {rows / sequence, sequence, channels};
    return sl_communicate(context, sl_describe_all_to_all(peers_of(module, context), SL_F32, x, y, 3, shape, 1, 2));
}

int sl_tokens_to_channels(const struct sl_module *module, struct sl_context *context, size_t rows, const float *x,
                          float *y) {
    const struct sl_token_table *table = sl_token_table_of(module);
    if (table->by_rows) return copy_rows(module, rows, x, y);
    const size_t sequence = (size_t)table->sequence, tokens = sequence / (size_t)table->parts;
    const size_t shape[] = {rows / sequence, tokens, (size_t)table->vocabulary.dimension};
    return sl_communicate(context, sl_describe_all_to_all(peers_of(module, context), SL_F32, x, y, 3, shape, 2, 1));
}

int sl_token_gather(const struct sl_module *module, struct sl_context *context, size_t rows, size_t columns,
                    const float *x, float *y) {
    const size_t shape[] = {rows, columns};
    return sl_communicate(context, sl_describe_all_gather_dim(peers_of(module, context), SL_F32, x, y, 2, shape, 1));
}

/* Whole channels of ROWS rows, and the dim that coordinates share: columns, or rows of a sequence. */
struct whole {
    size_t shape[3];
    int dim;
};

static struct whole whole_of(const struct sl_module *module, size_t rows) {
    const struct sl_token_table *table = sl_token_table_of(module);
    const size_t sequence = (size_t)table->sequence, columns = (size_t)table->vocabulary.dimension;
    return (struct whole){{rows / sequence, sequence, columns}, table->by_rows ? 1 : 2};
}

int sl_token_gather_channels(const struct sl_module *module, struct sl_context *context, size_t rows, const float *x,
                             float *y) {
    const struct sl_group *peers = peers_of(module, context);
    struct whole whole = whole_of(module, rows);
    whole.shape[whole.dim] /= (size_t)peers->size;
    return sl_communicate(context, sl_describe_all_gather_dim(peers, SL_F32, x, y, 3, whole.shape, whole.dim));
}

int sl_token_scatter(const struct sl_module *module, struct sl_context *context, size_t rows, const float *x,
                     float *y) {
    const struct whole whole = whole_of(module, rows);
    const bool by_tree = context->groups->by_tree[sl_token_table_of(module)->group];
    return sl_communicate(
        context, sl_describe_shares_of_sum(by_tree, peers_of(module, context), x, y, 3, whole.shape, whole.dim));
}

int sl_token_own_channels(const struct sl_module *module, struct sl_context *context, const float *whole, float *dx) {
    const struct sl_token_table *table = sl_token_table_of(module);
    const size_t rows = (size_t)context->rows, in = (size_t)(table->vocabulary.dimension / table->parts);
    if (table->division == SL_BY_TOKENS) return sl_tokens_to_channels(module, context, rows, whole, dx);
    if (table->division == SL_BY_CLASSES) return sl_token_scatter(module, context, rows, whole, dx);
    context->kernels->sequence->copy_block(rows, in, whole + in * sl_token_rank(module, context),
                                           (size_t)table->vocabulary.dimension, dx, in);
    return SL_OK;
}

int sl_token_sum(const struct sl_module *module, struct sl_context *context, size_t n, float *x) {
    return sl_sum_over(context, sl_token_table_of(module)->group, n, x);
}
