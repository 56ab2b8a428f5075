/* tied_logits.c - logits = x table^T, with the table that token_embedding.c looks tokens up in.
 *
 * A product needs all channels of a coordinate's tokens. If the work is divided by tokens, an all_to_all brings them;
 * otherwise all channels of all tokens are gathered. A microbatch's logits are (the coordinate's tokens) x (its
 * classes), one row after another from the beginning of the microbatch's array. There may be unused room behind them:
 * they need not fill ROWS times OUT. */
#include "layers/modules/feedforward/products.h"
#include "layers/modules/sequence/token_table.h"

struct tied_logits {
    struct sl_token_table table;
    struct sl_products products;
    struct sl_place whole;  /* all channels of a coordinate's tokens: of x where nothing is stashed, else of dx */
    struct sl_place kept_x; /* all channels of x, where others have some of them */
    /* Where tokens are generated: */
    struct sl_gemm last_product; /* of sequences' last tokens */
    struct sl_place own_last;    /* [sequences, in]: of the last tokens, */
    struct sl_place whole_last;  /* [sequences, dimension] */
    struct sl_place logits_last; /* [sequences, classes] */
};

static const struct tied_logits *own(const struct sl_module *module) { return (const struct tied_logits *)module; }

static bool alone(const struct sl_module *module) { return sl_token_table_of(module)->parts == 1; }

/* Microbatches of a group whose logits one product can take: those that follow one another without a gap. */
static int together(const struct sl_module *module, int rows, int group) {
    const struct sl_token_table *table = sl_token_table_of(module);
    const bool gaps =
        sl_token_rows(table, (size_t)rows) * sl_token_classes(table) != (size_t)rows * (size_t)module->out;
    return gaps ? 1 : group;
}

/* Whether the logits of the call's microbatches do not follow one another. */
static bool has_gaps(const struct sl_module *module, const struct sl_context *context) {
    const size_t microbatches = sl_call_microbatches(context);
    return microbatches > 1 && together(module, context->rows / (int)microbatches, 2) == 1;
}

/* ---- planning ---- */

static int plan_products(struct tied_logits *logits, struct sl_plan *plan) {
    const struct sl_token_table *table = &logits->table;
    const int rows = (int)sl_token_rows(table, (size_t)plan->rows);
    const struct sl_products_shape shape = {.precision = plan->precision,
                                            .in = table->vocabulary.dimension,
                                            .out = (int)sl_token_classes(table),
                                            .transposed = true,
                                            .rows = rows,
                                            .wgrad_rows =
                                                rows * together(&table->module, plan->rows, plan->wgrad_group)};
    return sl_products_plan(&logits->products, plan, &shape);
}

static int plan_last(struct tied_logits *logits, struct sl_plan *plan) {
    const struct sl_token_table *table = &logits->table;
    const size_t sequences = (size_t)(plan->rows / plan->sequence), classes = sl_token_classes(table);
    const size_t columns = (size_t)table->vocabulary.dimension;
    sl_plan_workspace(plan, sequences * (size_t)table->module.in * sizeof(float), &logits->own_last);
    sl_plan_workspace(plan, sequences * columns * sizeof(float), &logits->whole_last);
    sl_plan_workspace(plan, sequences * classes * sizeof(float), &logits->logits_last);
    sl_gemm_release(&logits->last_product);
    if (plan->sizes_only) return SL_OK;
    return sl_gemm_plan(&logits->last_product, plan->gemm, plan->precision, (int)sequences, (int)classes, (int)columns,
                        false, true, SL_EPILOGUE_NONE, plan->error);
}

static int plan_whole(struct tied_logits *logits, struct sl_plan *plan) {
    const struct sl_token_table *table = &logits->table;
    const size_t count = sl_token_rows(table, (size_t)plan->rows) * (size_t)table->vocabulary.dimension;
    if (alone(&table->module)) return SL_OK;
    sl_plan_workspace(plan, count * sl_plan_run(plan) * sizeof(float), &logits->whole);
    logits->kept_x = logits->whole;
    return plan->forward_only ? SL_OK : sl_plan_stash(plan, count, &logits->kept_x);
}

static int plan(struct sl_module *module, struct sl_plan *plan) {
    struct tied_logits *logits = (struct tied_logits *)module;
    if (plan->caches && !plan->forward_only)
        return sl_error_set(plan->error, SL_BAD_INPUT, "%stied_logits: what generates has no backward", plan->name);
    SL_TRY(sl_token_plan_logits(&logits->table, plan, module->out));
    SL_TRY(sl_token_plan_table(&logits->table, plan, logits->table.division == SL_BY_TOKENS));
    module->keeps_gradient = !plan->forward_only;
    module->keeps_input = !plan->forward_only && alone(module);
    SL_TRY(plan_products(logits, plan));
    if (plan->caches) SL_TRY(plan_last(logits, plan));
    return plan_whole(logits, plan);
}

/* ---- forward ---- */

/* *WHOLE [own rows, dimension]: all channels of X [rows, in]. */
static int gather_channels(const struct sl_module *module, struct sl_context *context, const float *x,
                           const float **whole) {
    const size_t rows = (size_t)context->rows;
    *whole = x;
    if (alone(module)) return SL_OK;
    float *to = sl_at(context, &own(module)->kept_x);
    *whole = to;
    if (sl_token_table_of(module)->division == SL_BY_TOKENS) return sl_channels_to_tokens(module, context, rows, x, to);
    return sl_token_gather(module, context, rows, (size_t)module->in, x, to);
}

/* y = X [rows, dimension] table^T */
static int multiply(const struct sl_module *module, struct sl_context *context, const struct sl_gemm *gemm, size_t rows,
                    const float *x, float *y) {
    const struct sl_products *products = &own(module)->products;
    const size_t columns = (size_t)sl_token_table_of(module)->vocabulary.dimension;
    const void *a = sl_products_operand(products, context, &products->x, rows * columns, x);
    return sl_products_multiply_rows(context, gemm, a, sl_products_kernel(products, module, context), NULL, y);
}

/* Y [sequences, size] of each sequence's last token, the same on all coordinates. */
static int last_logits(const struct sl_module *module, struct sl_context *context, const float *x, float *y) {
    const struct tied_logits *tied = own(module);
    const struct sl_token_table *table = &tied->table;
    const size_t in = (size_t)module->in, sequence = (size_t)table->sequence, classes = sl_token_classes(table);
    const size_t sequences = (size_t)context->rows / sequence;
    float *own = sl_at(context, &tied->own_last), *whole = own;
    context->kernels->sequence->copy_block(sequences, in, x + (sequence - 1) * in, sequence * in, own, in);
    if (!alone(module)) {
        whole = sl_at(context, &tied->whole_last);
        SL_TRY(sl_token_gather(module, context, sequences, in, own, whole));
    }
    if (table->division != SL_BY_CLASSES) return multiply(module, context, &tied->last_product, sequences, whole, y);
    float *logits = sl_at(context, &tied->logits_last);
    SL_TRY(multiply(module, context, &tied->last_product, sequences, whole, logits));
    return sl_token_gather(module, context, sequences, classes, logits, y);
}

static int forward(const struct sl_module *module, struct sl_context *context, const float *x, float *y) {
    const float *whole;
    if (context->phase == SL_PREFILL || context->phase == SL_DECODE) return last_logits(module, context, x, y);
    if (has_gaps(module, context)) return sl_module_forward_each(module, context, x, y);
    SL_TRY(gather_channels(module, context, x, &whole));
    const size_t rows = sl_token_rows(sl_token_table_of(module), (size_t)context->rows);
    return multiply(module, context, &own(module)->products.forward, rows, whole, y);
}

/* ---- backward ---- */

/* DX [rows, in] of what this coordinate makes of its logits, WHOLE [own rows, dimension]. */
static int own_channels(const struct sl_module *module, struct sl_context *context, const float *whole, float *dx) {
    const struct sl_token_table *table = sl_token_table_of(module);
    const size_t rows = (size_t)context->rows, in = (size_t)module->in;
    if (table->division == SL_BY_TOKENS) return sl_tokens_to_channels(module, context, rows, whole, dx);
    if (table->division == SL_BY_CLASSES) return sl_token_scatter(module, context, rows, in, whole, dx);
    context->kernels->sequence->copy_block(rows, in, whole + in * sl_token_rank(module, context),
                                           (size_t)table->vocabulary.dimension, dx, in);
    return SL_OK;
}

/* Where nobody needs dx, no peer does: they are in the same stage. */
static int backward_input(const struct sl_module *module, struct sl_context *context, const float *x, const float *dy,
                          float *dx) {
    const struct sl_products *products = &own(module)->products;
    const struct sl_token_table *table = sl_token_table_of(module);
    const size_t logits = sl_token_rows(table, (size_t)context->rows) * sl_token_classes(table);
    if (!dx) return SL_OK;
    if (has_gaps(module, context)) return sl_module_backward_input_each(module, context, x, dy, dx);
    float *whole = alone(module) ? dx : sl_at(context, &own(module)->whole);
    const void *a = sl_products_operand(products, context, &products->dy, logits, dy);
    SL_TRY(sl_products_multiply_rows(context, &products->input_gradient, a,
                                     sl_products_kernel(products, module, context), NULL, whole));
    return alone(module) ? SL_OK : own_channels(module, context, whole, dx);
}

/* DTABLE (+)= dy^T x, over the group's tokens that are this coordinate's. */
static int table_gradient(const struct sl_module *module, struct sl_context *context, const float *x, const float *dy,
                          bool accumulate, float *dtable) {
    const struct sl_products *products = &own(module)->products;
    const struct sl_token_table *table = sl_token_table_of(module);
    const int at_once = together(module, context->rows, context->wgrad_group);
    const size_t rows = sl_token_rows(table, (size_t)context->rows), columns = (size_t)table->vocabulary.dimension;
    const size_t classes = sl_token_classes(table), room = (size_t)context->rows * (size_t)module->out;
    for (int m = 0; m < context->wgrad_group; m += at_once) {
        const size_t at = (size_t)m, taken = rows * (size_t)at_once;
        const void *a = sl_products_operand(products, context, &products->dy, taken * classes, dy + at * room);
        const void *b = sl_products_operand(products, context, &products->x, taken * columns, x + at * rows * columns);
        SL_TRY(sl_products_multiply(context, &products->weight_gradient, a, b, NULL, accumulate || m > 0, dtable));
    }
    return SL_OK;
}

/* Undivided, all coordinates make the same; by classes, each all of its rows. */
static int backward_weight(const struct sl_module *module, struct sl_context *context, const float *x,
                           const float *dy) {
    const float *whole = alone(module) ? x : sl_at(context, &own(module)->kept_x);
    if (sl_token_table_of(module)->division != SL_BY_TOKENS)
        return table_gradient(module, context, whole, dy, context->accumulate, sl_gradient(module, context, 0));
    float *part = sl_token_part(module, context);
    SL_TRY(table_gradient(module, context, whole, dy, false, part));
    return sl_token_sum_parts(module, context, part);
}

static void release(struct sl_module *module) {
    struct tied_logits *logits = (struct tied_logits *)module;
    sl_products_release(&logits->products);
    sl_gemm_release(&logits->last_product);
}

static const struct sl_module_type type = {.name = "tied_logits",
                                           .plan = plan,
                                           .forward = forward,
                                           .backward_input = backward_input,
                                           .needs_no_input = true,
                                           .backward_weight = backward_weight,
                                           .fuses = true,
                                           .bytes = sizeof(struct tied_logits),
                                           .release = release};

struct sl_module *sl_tied_logits(const struct sl_vocabulary *vocabulary, int sequence,
                                 const struct sl_channels *channels) {
    const int parts = sl_mesh_axis_size(channels->mesh, channels->axis);
    return sl_token_module(&type, vocabulary->dimension / parts, sl_token_logits(vocabulary, sequence, channels),
                           vocabulary, channels);
}
