/* token_embedding.c - y = the table's rows of the tokens.
 *
 * A coordinate looks up its part of the work, and communication brings each coordinate its channels of all tokens. By
 * tokens, it looks up all columns of its share of each sequence. By classes, it looks up all columns of the tokens in
 * its rows of the table and writes zeros for the others, so the sum over coordinates is the lookup. Undivided, it looks
 * up its own columns of all tokens. If stages share the table, each adds its own rows to those of the stages before
 * it. If they share the microbatches, each passes the rows of others' on. */
#include "layers/modules/sequence/token_table.h"
#include "spmd/device/device.h"

#include <string.h>

struct embedding {
    struct sl_token_table table;
    struct sl_place whole; /* all columns of a coordinate's tokens, for the rows of a group */
};

static float *whole_of(const struct sl_module *module, const struct sl_context *context) {
    return sl_at(context, &((const struct embedding *)module)->whole);
}

/* Returns whether the table's gradient is the sum of the coordinates' parts. With leaves even a single coordinate
 * computes a separate part, so that it is added to the gradient in one piece. */
static bool is_summed(const struct sl_token_table *table) {
    return (table->parts > 1 || table->leaves) && table->division != SL_BY_CLASSES;
}

/* Returns whether earlier stages have looked up other tokens. */
static bool adds(const struct sl_module *module) { return sl_token_table_of(module)->vocabulary.shard > 0; }

/* Returns whether an earlier stage has written x. */
static bool follows(const struct sl_vocabulary *vocabulary) { return vocabulary->shard > 0 || vocabulary->looker > 0; }

/* Returns whether this rank looks up the call's microbatches. */
static bool is_own(const struct sl_module *module, const struct sl_context *context) {
    const struct sl_vocabulary *vocabulary = &sl_token_table_of(module)->vocabulary;
    const int all = vocabulary->microbatches, lookers = vocabulary->lookers;
    return lookers < 2 || context->microbatch % all / (all / lookers) == vocabulary->looker; /* of several passes */
}

/* Y of another rank's microbatch, which the first rank has not received yet. */
static int pass_on(const struct sl_module *module, struct sl_context *context, const float *x, float *y) {
    const size_t elements = (size_t)context->rows * (size_t)module->out;
    if (follows(&sl_token_table_of(module)->vocabulary))
        sl_device.copy(y, x, elements * sizeof *y);
    else
        context->kernels->fill(elements, 0.0f, y);
    return SL_OK;
}

/* ---- planning ---- */

/* Reads rows of the table, and adds to rows of its gradient. Its parts are summed once a group. */
static void count(const struct sl_token_table *table, const struct sl_plan *plan) {
    const double floats = (double)plan->rows * table->vocabulary.dimension / table->parts, bytes = sizeof(float);
    const double part = (double)sl_token_classes(table) * table->vocabulary.dimension, group = plan->wgrad_group;
    const enum sl_operation there = table->division == SL_BY_CLASSES ? SL_PSUM_SCATTER : SL_ALL_TO_ALL;
    const bool travels = table->division == SL_BY_CLASSES || (table->division == SL_BY_TOKENS && !table->by_rows);
    sl_load_floats(plan, SL_LOAD_FORWARD, SL_LOAD_MOVES, 2 * floats);
    if (travels) sl_load_call(plan, SL_LOAD_FORWARD, there, table->axis, bytes * floats, 1);
    if (!sl_plan_trains(plan, 0)) return;
    sl_load_floats(plan, SL_LOAD_WEIGHT, SL_LOAD_MOVES, 3 * floats);
    if (travels) sl_load_call(plan, SL_LOAD_WEIGHT, there, table->axis, bytes * floats, 1);
    if (is_summed(table)) sl_load_call(plan, SL_LOAD_WEIGHT, SL_PSUM, table->axis, bytes * part / group, 1 / group);
}

static int plan(struct sl_module *module, struct sl_plan *plan) {
    struct embedding *embedding = (struct embedding *)module;
    struct sl_token_table *table = &embedding->table;
    SL_TRY(sl_token_plan(table, plan));
    if (table->leaves)
        table->division =
            SL_UNDIVIDED; /* a column's gradient is the sum of all tokens: other coordinates would add zeros */
    if (table->slices && table->parts == 1) table->division = SL_UNDIVIDED;
    SL_TRY(sl_token_plan_table(table, plan, SL_TABLE_LOOKUP, is_summed(table)));
    const bool trains = sl_plan_trains(plan, 0);
    const size_t group = (size_t)plan->rows * (size_t)(trains ? plan->wgrad_group : 1);
    const size_t rows = sl_plan_rows(plan) > group ? sl_plan_rows(plan) : group;
    const size_t elements = sl_token_rows(table, rows) * (size_t)table->vocabulary.dimension;
    module->x.lasts = SL_UNTIL_RETURN;
    module->y.writes = SL_WRITES_ASKED;
    module->y.lasts = sl_from_input_if(trains);
    if (plan->load) count(table, plan);
    if (table->division != SL_UNDIVIDED) sl_plan_workspace(plan, elements * sizeof(float), &embedding->whole);
    return SL_OK;
}

/* ---- the three divisions, and their backward functions ---- */

/* As look_up, for a table in blocks. */
static void look_up_blocks(const struct sl_module *module, const struct sl_context *context,
                           const struct sl_blocks *blocks, size_t rows, size_t columns, size_t first,
                           const int32_t *tokens, float *y) {
    const int32_t begin = sl_token_first(module, context);
    for (size_t r = 0; r < rows; r++, y += columns) {
        const size_t row = (size_t)(tokens[r] - begin);
        if (tokens[r] >= begin && row < blocks->rows)
            sl_quantized_read(blocks->type, sl_blocks_row(blocks, row), first, columns, y);
        else
            memset(y, 0, columns * sizeof *y);
    }
}

/* Y [rows, columns]: columns from FIRST on of the tokens' rows of the table. */
static void look_up(const struct sl_module *module, struct sl_context *context, size_t rows, size_t columns,
                    size_t first, const int32_t *tokens, struct sl_out y) {
    const struct sl_token_table *table = sl_token_table_of(module);
    const struct sl_blocks *blocks = sl_blocks_value(module, context, 0);
    if (blocks) {
        look_up_blocks(module, context, blocks, rows, columns, first, tokens, sl_out_floats(y));
        return;
    }
    const struct sl_rows values = context->parameters->working_bf16 ? sl_rows_bf16(sl_rounded_value(module, context, 0))
                                                                    : sl_rows_f32(sl_value(module, context, 0));
    context->kernels->sequence->lookup(rows, columns, tokens, sl_token_first(module, context),
                                       (int32_t)sl_token_classes(table), sl_rows_from(values, first),
                                       (size_t)table->vocabulary.dimension, y);
}

/* Writes Y in the form that the caller needs, unless x is added to it, or it comes from blocks. */
static int undivided(const struct sl_module *module, struct sl_context *context, struct sl_result *y) {
    const size_t own = (size_t)module->out;
    const bool whole = adds(module) || sl_blocks_value(module, context, 0);
    look_up(module, context, (size_t)context->rows, own, own * sl_token_rank(module, context), context->batch.tokens,
            whole ? sl_out_f32(y->floats) : sl_result_out(y));
    return SL_OK;
}

static int undivided_back(const struct sl_module *module, struct sl_context *context, size_t rows, const float *dy,
                          float *dtable) {
    const struct sl_vocabulary *vocabulary = &sl_token_table_of(module)->vocabulary;
    const size_t own = (size_t)module->out, first = own * sl_token_rank(module, context);
    context->kernels->sequence->scatter_add(rows, own, context->batch.tokens, sl_token_first(module, context),
                                            (int32_t)sl_token_classes(sl_token_table_of(module)), dy, dtable + first,
                                            (size_t)vocabulary->dimension);
    return SL_OK;
}

static int by_tokens(const struct sl_module *module, struct sl_context *context, struct sl_result *y) {
    const struct sl_token_table *table = sl_token_table_of(module);
    const size_t rows = (size_t)context->rows, sequence = (size_t)table->sequence;
    const size_t tokens = sl_token_rows(table, sequence), columns = (size_t)table->vocabulary.dimension;
    const int32_t *own = context->batch.tokens + tokens * sl_token_rank(module, context);
    float *whole = whole_of(module, context);
    for (size_t s = 0; s < rows / sequence; s++)
        look_up(module, context, tokens, columns, 0, own + s * sequence, sl_out_f32(whole + s * tokens * columns));
    return sl_tokens_to_channels(module, context, rows, whole, y->floats);
}

static int by_tokens_back(const struct sl_module *module, struct sl_context *context, size_t rows, const float *dy,
                          float *dtable) {
    const struct sl_token_table *table = sl_token_table_of(module);
    const size_t sequence = (size_t)table->sequence;
    const size_t tokens = sl_token_rows(table, sequence), columns = (size_t)table->vocabulary.dimension;
    const int32_t *own = context->batch.tokens + tokens * sl_token_rank(module, context);
    float *whole = whole_of(module, context);
    SL_TRY(sl_channels_to_tokens(module, context, rows, dy, whole));
    for (size_t s = 0; s < rows / sequence; s++)
        context->kernels->sequence->scatter_add(tokens, columns, own + s * sequence, sl_token_first(module, context),
                                                (int32_t)sl_token_classes(table), whole + s * tokens * columns, dtable,
                                                columns);
    return SL_OK;
}

static int by_classes(const struct sl_module *module, struct sl_context *context, struct sl_result *y) {
    const struct sl_token_table *table = sl_token_table_of(module);
    const size_t rows = (size_t)context->rows, columns = (size_t)table->vocabulary.dimension;
    float *whole = whole_of(module, context);
    look_up(module, context, rows, columns, 0, context->batch.tokens, sl_out_f32(whole));
    return sl_token_scatter(module, context, rows, whole, y->floats);
}

static int by_classes_back(const struct sl_module *module, struct sl_context *context, size_t rows, const float *dy,
                           float *dtable) {
    const struct sl_token_table *table = sl_token_table_of(module);
    const size_t columns = (size_t)table->vocabulary.dimension;
    const int32_t classes = (int32_t)sl_token_classes(table);
    float *whole = whole_of(module, context);
    SL_TRY(sl_token_gather_channels(module, context, rows, dy, whole));
    context->kernels->sequence->scatter_add(rows, columns, context->batch.tokens, sl_token_first(module, context),
                                            classes, whole, dtable, columns);
    return SL_OK;
}

/* ---- forward and backward ---- */

static int forward(const struct sl_module *module, struct sl_context *context, struct sl_given x, struct sl_result *y) {
    static int (*const look_up[])(const struct sl_module *, struct sl_context *, struct sl_result *) = {
        [SL_UNDIVIDED] = undivided, [SL_BY_TOKENS] = by_tokens, [SL_BY_CLASSES] = by_classes};
    if (!is_own(module, context)) return pass_on(module, context, x.floats, y->floats);
    SL_TRY(look_up[sl_token_table_of(module)->division](module, context, y));
    if (adds(module)) context->kernels->add((size_t)context->rows * (size_t)module->out, x.floats, y->floats);
    return SL_OK;
}

/* Tokens have no gradient. */
static int backward_input(const struct sl_module *module, struct sl_context *context, struct sl_given x,
                          struct sl_given dy, struct sl_result *dx) {
    const size_t bytes = (size_t)context->rows * (size_t)module->out * sizeof(float);
    (void)x;
    if (dx && follows(&sl_token_table_of(module)->vocabulary))
        sl_device.copy(dx->floats, dy.floats, bytes);
    else if (dx)
        context->kernels->fill((size_t)context->rows * (size_t)module->in, 0.0f, dx->floats);
    return SL_OK;
}

static int backward_weight(const struct sl_module *module, struct sl_context *context, struct sl_given x,
                           struct sl_given dy) {
    static int (*const scatter[])(const struct sl_module *, struct sl_context *, size_t, const float *, float *) = {
        [SL_UNDIVIDED] = undivided_back, [SL_BY_TOKENS] = by_tokens_back, [SL_BY_CLASSES] = by_classes_back};
    const struct sl_token_table *table = sl_token_table_of(module);
    const bool summed = is_summed(table);
    float *gradient = sl_gradient(module, context, 0);
    float *part = summed ? sl_token_part(module, context) : gradient;
    (void)x;
    if (!is_own(module, context)) {
        if (!context->accumulate)
            context->kernels->fill(context->parameters->list[module->parameter[0]].count, 0.0f, gradient);
        return SL_OK;
    }
    if (!context->accumulate || part != gradient)
        context->kernels->fill(context->parameters->list[module->parameter[0]].count, 0.0f, part);
    SL_TRY(scatter[table->division](module, context, (size_t)context->rows * (size_t)context->wgrad_group, dy.floats,
                                    part));
    return summed ? sl_token_sum_parts(module, context, part) : SL_OK;
}

static const struct sl_module_type type = {.name = "token_embedding",
                                           .plan = plan,
                                           .forward = forward,
                                           .backward_input = backward_input,
                                           .reads = SL_READS_TOKENS,
                                           .backward_weight = backward_weight,
                                           .fuses = true,
                                           .bytes = sizeof(struct embedding)};

struct sl_module *sl_token_embedding(const struct sl_vocabulary *vocabulary, const struct sl_channels *channels) {
    const int parts = sl_mesh_axis_size(channels->mesh, channels->axis);
    const int own = vocabulary->dimension / parts;
    return sl_token_module(&type, follows(vocabulary) ? own : 1, own, vocabulary, channels);
}
