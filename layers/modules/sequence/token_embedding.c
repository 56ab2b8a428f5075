/* token_embedding.c - y = the rows of the table that tokens name.
 *
 * A coordinate reads what belongs to its part of the work, and communication brings each its channels of all tokens: by
 * tokens, all columns of its share of each sequence; by classes, all columns of the tokens in its rows of the table,
 * zeros for the others, so that sums are lookups; undivided, its columns of all tokens. */
#include "layers/modules/sequence/token_table.h"

enum { WHOLE }; /* workspace: of a group's rows, all columns of a coordinate's tokens */

/* ---- planning ---- */

static int plan(struct sl_module *module, struct sl_plan *plan) {
    SL_TRY(sl_token_plan(module, plan));
    const struct sl_token_table *table = module->user;
    const size_t rows = (size_t)plan->rows * (size_t)(plan->forward_only ? 1 : plan->wgrad_group);
    const size_t columns = (size_t)table->vocabulary.dimension;
    module->keeps_gradient = !plan->forward_only;
    if (table->division != SL_UNDIVIDED)
        module->workspace[WHOLE] = sl_plan_workspace(plan, sl_token_rows(table, rows) * columns * sizeof(float));
    return sl_token_plan_table(module, plan, table->parts > 1 && table->division != SL_BY_CLASSES);
}

/* ---- the three divisions, and their transposes ---- */

static int undivided(const struct sl_module *module, struct sl_context *context, float *y) {
    const struct sl_vocabulary *vocabulary = &sl_token_table_of(module)->vocabulary;
    const size_t own = (size_t)module->out, first = own * sl_token_rank(module, context);
    context->kernels->sequence->lookup((size_t)context->rows, own, context->batch.tokens, 0, vocabulary->size,
                                       sl_value(module, context, 0) + first, (size_t)vocabulary->dimension, y);
    return SL_OK;
}

static int undivided_back(const struct sl_module *module, struct sl_context *context, size_t rows, const float *dy,
                          float *dtable) {
    const struct sl_vocabulary *vocabulary = &sl_token_table_of(module)->vocabulary;
    const size_t own = (size_t)module->out, first = own * sl_token_rank(module, context);
    context->kernels->sequence->scatter_add(rows, own, context->batch.tokens, 0, vocabulary->size, dy, dtable + first,
                                            (size_t)vocabulary->dimension);
    return SL_OK;
}

static int by_tokens(const struct sl_module *module, struct sl_context *context, float *y) {
    const struct sl_token_table *table = module->user;
    const size_t rows = (size_t)context->rows, sequence = (size_t)table->sequence;
    const size_t tokens = sl_token_rows(table, sequence), columns = (size_t)table->vocabulary.dimension;
    const int32_t *own = context->batch.tokens + tokens * sl_token_rank(module, context);
    float *whole = sl_token_room(module, context, WHOLE);
    for (size_t s = 0; s < rows / sequence; s++)
        context->kernels->sequence->lookup(tokens, columns, own + s * sequence, 0, table->vocabulary.size,
                                           sl_value(module, context, 0), columns, whole + s * tokens * columns);
    return sl_tokens_to_channels(module, context, rows, whole, y);
}

static int by_tokens_back(const struct sl_module *module, struct sl_context *context, size_t rows, const float *dy,
                          float *dtable) {
    const struct sl_token_table *table = module->user;
    const size_t sequence = (size_t)table->sequence;
    const size_t tokens = sl_token_rows(table, sequence), columns = (size_t)table->vocabulary.dimension;
    const int32_t *own = context->batch.tokens + tokens * sl_token_rank(module, context);
    float *whole = sl_token_room(module, context, WHOLE);
    SL_TRY(sl_channels_to_tokens(module, context, rows, dy, whole));
    for (size_t s = 0; s < rows / sequence; s++)
        context->kernels->sequence->scatter_add(tokens, columns, own + s * sequence, 0, table->vocabulary.size,
                                                whole + s * tokens * columns, dtable, columns);
    return SL_OK;
}

static int by_classes(const struct sl_module *module, struct sl_context *context, float *y) {
    const struct sl_token_table *table = module->user;
    const size_t rows = (size_t)context->rows, columns = (size_t)table->vocabulary.dimension;
    const int32_t classes = (int32_t)sl_token_classes(table);
    float *whole = sl_token_room(module, context, WHOLE);
    context->kernels->sequence->lookup(rows, columns, context->batch.tokens,
                                       classes * (int32_t)sl_token_rank(module, context), classes,
                                       sl_value(module, context, 0), columns, whole);
    return sl_token_scatter(module, context, rows, (size_t)module->out, whole, y);
}

static int by_classes_back(const struct sl_module *module, struct sl_context *context, size_t rows, const float *dy,
                           float *dtable) {
    const struct sl_token_table *table = module->user;
    const size_t columns = (size_t)table->vocabulary.dimension;
    const int32_t classes = (int32_t)sl_token_classes(table);
    float *whole = sl_token_room(module, context, WHOLE);
    SL_TRY(sl_token_gather(module, context, rows, (size_t)module->out, dy, whole));
    context->kernels->sequence->scatter_add(rows, columns, context->batch.tokens,
                                            classes * (int32_t)sl_token_rank(module, context), classes, whole, dtable,
                                            columns);
    return SL_OK;
}

/* ---- forward and backward ---- */

static int forward(const struct sl_module *module, struct sl_context *context, const float *x, float *y) {
    static int (*const look_up[])(const struct sl_module *, struct sl_context *, float *) = {
        [SL_UNDIVIDED] = undivided, [SL_BY_TOKENS] = by_tokens, [SL_BY_CLASSES] = by_classes};
    (void)x;
    return look_up[sl_token_table_of(module)->division](module, context, y);
}

/* Tokens have no gradient. */
static int backward_input(const struct sl_module *module, struct sl_context *context, const float *x, const float *dy,
                          float *dx) {
    (void)x, (void)dy;
    if (dx) context->kernels->fill((size_t)context->rows * (size_t)module->in, 0.0f, dx);
    return SL_OK;
}

static int backward_weight(const struct sl_module *module, struct sl_context *context, const float *x,
                           const float *dy) {
    static int (*const scatter[])(const struct sl_module *, struct sl_context *, size_t, const float *, float *) = {
        [SL_UNDIVIDED] = undivided_back, [SL_BY_TOKENS] = by_tokens_back, [SL_BY_CLASSES] = by_classes_back};
    const struct sl_token_table *table = module->user;
    const bool summed = table->parts > 1 && table->division != SL_BY_CLASSES;
    float *gradient = sl_gradient(module, context, 0);
    float *part = summed ? sl_token_part(module, context) : gradient;
    (void)x;
    if (!context->accumulate || part != gradient)
        context->kernels->fill(context->parameters->list[module->parameter[0]].count, 0.0f, part);
    SL_TRY(scatter[table->division](module, context, (size_t)context->rows * (size_t)context->wgrad_group, dy, part));
    return summed ? sl_token_sum_parts(module, context, part) : SL_OK;
}

static const struct sl_module_type type = {"token_embedding", plan, forward, backward_input, backward_weight};

struct sl_module *sl_token_embedding(const struct sl_vocabulary *vocabulary, const struct sl_channels *channels) {
    const int parts = sl_mesh_axis_size(channels->mesh, channels->axis);
    return sl_token_module(&type, 1, vocabulary->dimension / parts, vocabulary, channels);
}
