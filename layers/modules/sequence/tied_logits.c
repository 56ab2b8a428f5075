/* tied_logits.c - logits = x table^T: the other end of the table of tokens.
 *
 * Each product needs all channels of a coordinate's tokens: by tokens, they come by an all_to_all; otherwise all
 * channels of all tokens are gathered. A microbatch's logits are a coordinate's tokens times its classes, one row after
 * another from the microbatch's beginning on, though there may be room behind them: they need not be ROWS times OUT. */
#include "layers/modules/feedforward/affine.h"
#include "layers/modules/sequence/token_table.h"

enum { LAST = SL_AFFINE_INPUT_GRADIENT }; /* product: of sequences' last tokens, where there is no backward */

/* Workspace beside that of affine.h. */
enum {
    WHOLE = SL_AFFINE_DY + 1, /* all channels of a coordinate's tokens: of x where nothing is stashed, else of dx */
    OWN_LAST,                 /* [sequences, in]: of the last tokens, */
    WHOLE_LAST,               /* [sequences, dimension] */
    LOGITS_LAST,              /* [sequences, classes] */
};

static bool alone(const struct sl_module *module) { return sl_token_table_of(module)->parts == 1; }

/* Microbatches of a group whose logits one product can take: those that follow one another without a gap. */
static int together(const struct sl_module *module, int rows, int group) {
    const struct sl_token_table *table = module->user;
    const bool gaps =
        sl_token_rows(table, (size_t)rows) * sl_token_classes(table) != (size_t)rows * (size_t)module->out;
    return gaps ? 1 : group;
}

/* ---- planning ---- */

static void plan_last(struct sl_module *module, struct sl_plan *plan) {
    const struct sl_token_table *table = module->user;
    const size_t sequences = (size_t)(plan->rows / plan->sequence), columns = (size_t)table->vocabulary.dimension;
    module->workspace[OWN_LAST] = sl_plan_workspace(plan, sequences * (size_t)module->in * sizeof(float));
    module->workspace[WHOLE_LAST] = sl_plan_workspace(plan, sequences * columns * sizeof(float));
    module->workspace[LOGITS_LAST] = sl_plan_workspace(plan, sequences * sl_token_classes(table) * sizeof(float));
}

static int plan_room(struct sl_module *module, struct sl_plan *plan) {
    const struct sl_token_table *table = module->user;
    const size_t rows = sl_token_rows(table, (size_t)plan->rows), columns = (size_t)table->vocabulary.dimension;
    const size_t most = rows * (size_t)(plan->forward_only ? 1 : together(module, plan->rows, plan->wgrad_group));
    module->keeps_gradient = !plan->forward_only;
    module->keeps_input = !plan->forward_only && alone(module);
    if (plan->precision == SL_BF16) {
        sl_plan_rounded_values(plan);
        module->workspace[SL_AFFINE_X] = sl_plan_workspace(plan, most * columns * sizeof(uint16_t));
        if (!plan->forward_only)
            module->workspace[SL_AFFINE_DY] =
                sl_plan_workspace(plan, most * sl_token_classes(table) * sizeof(uint16_t));
    }
    if (plan->caches) plan_last(module, plan);
    if (alone(module)) return SL_OK;
    module->workspace[WHOLE] = sl_plan_workspace(plan, rows * columns * sizeof(float));
    module->stash[0] = plan->forward_only ? -1 : sl_plan_stash_flat(plan, rows * columns);
    return module->stash[0] < 0 && !plan->forward_only ? plan->error->status : SL_OK;
}

static int plan_products(struct sl_module *module, struct sl_plan *plan) {
    const struct sl_token_table *table = module->user;
    const int rows = (int)sl_token_rows(table, (size_t)plan->rows), classes = (int)sl_token_classes(table);
    const int columns = table->vocabulary.dimension, most = rows * together(module, plan->rows, plan->wgrad_group);
    SL_TRY(sl_gemm_plan(&module->gemm[SL_AFFINE_FORWARD], plan->gemm, plan->precision, rows, classes, columns, false,
                        true, SL_EPILOGUE_NONE, plan->error));
    if (plan->caches)
        SL_TRY(sl_gemm_plan(&module->gemm[LAST], plan->gemm, plan->precision, plan->rows / plan->sequence, classes,
                            columns, false, true, SL_EPILOGUE_NONE, plan->error));
    if (plan->forward_only) return SL_OK;
    SL_TRY(sl_gemm_plan(&module->gemm[SL_AFFINE_INPUT_GRADIENT], plan->gemm, plan->precision, rows, columns, classes,
                        false, false, SL_EPILOGUE_NONE, plan->error));
    return sl_gemm_plan(&module->gemm[SL_AFFINE_WEIGHT_GRADIENT], plan->gemm, plan->precision, classes, columns, most,
                        true, false, SL_EPILOGUE_NONE, plan->error);
}

static int plan(struct sl_module *module, struct sl_plan *plan) {
    if (plan->caches && !plan->forward_only)
        return sl_error_set(plan->error, SL_BAD_INPUT, "%stied_logits: what generates has no backward", plan->name);
    SL_TRY(sl_token_plan_logits(module, plan, module->out));
    SL_TRY(sl_token_plan_table(module, plan, sl_token_table_of(module)->division == SL_BY_TOKENS));
    SL_TRY(plan_room(module, plan));
    return plan_products(module, plan);
}

/* ---- forward ---- */

/* *WHOLE [own rows, dimension]: all channels of X [rows, in]. */
static int gather_channels(const struct sl_module *module, struct sl_context *context, const float *x,
                           const float **whole) {
    const size_t rows = (size_t)context->rows;
    *whole = x;
    if (alone(module)) return SL_OK;
    float *to = module->stash[0] < 0 ? sl_token_room(module, context, WHOLE) : sl_stash_of(context, module->stash[0]);
    *whole = to;
    if (sl_token_table_of(module)->division == SL_BY_TOKENS) return sl_channels_to_tokens(module, context, rows, x, to);
    return sl_token_gather(module, context, rows, (size_t)module->in, x, to);
}

/* y = X [rows, dimension] table^T */
static int multiply(const struct sl_module *module, struct sl_context *context, int product, size_t rows,
                    const float *x, float *y) {
    const size_t columns = (size_t)sl_token_table_of(module)->vocabulary.dimension;
    const void *a = sl_affine_operand(module, context, SL_AFFINE_X, rows * columns, x);
    return sl_affine_multiply(module, context, product, a, sl_affine_kernel(module, context), NULL, false, y);
}

/* Y [sequences, size] of each sequence's last token, the same on all coordinates. */
static int last_logits(const struct sl_module *module, struct sl_context *context, const float *x, float *y) {
    const struct sl_token_table *table = module->user;
    const size_t in = (size_t)module->in, sequence = (size_t)table->sequence, classes = sl_token_classes(table);
    const size_t sequences = (size_t)context->rows / sequence;
    float *own = sl_token_room(module, context, OWN_LAST), *whole = own;
    context->kernels->sequence->copy_block(sequences, in, x + (sequence - 1) * in, sequence * in, own, in);
    if (!alone(module)) {
        whole = sl_token_room(module, context, WHOLE_LAST);
        SL_TRY(sl_token_gather(module, context, sequences, in, own, whole));
    }
    if (table->division != SL_BY_CLASSES) return multiply(module, context, LAST, sequences, whole, y);
    float *logits = sl_token_room(module, context, LOGITS_LAST);
    SL_TRY(multiply(module, context, LAST, sequences, whole, logits));
    return sl_token_gather(module, context, sequences, classes, logits, y);
}

static int forward(const struct sl_module *module, struct sl_context *context, const float *x, float *y) {
    const float *whole;
    if (context->phase == SL_PREFILL || context->phase == SL_DECODE) return last_logits(module, context, x, y);
    SL_TRY(gather_channels(module, context, x, &whole));
    const size_t rows = sl_token_rows(sl_token_table_of(module), (size_t)context->rows);
    return multiply(module, context, SL_AFFINE_FORWARD, rows, whole, y);
}

/* ---- backward ---- */

/* DX [rows, in] of what this coordinate makes of its logits, WHOLE [own rows, dimension]. */
static int own_channels(const struct sl_module *module, struct sl_context *context, const float *whole, float *dx) {
    const struct sl_token_table *table = module->user;
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
    const struct sl_token_table *table = module->user;
    const size_t logits = sl_token_rows(table, (size_t)context->rows) * sl_token_classes(table);
    (void)x;
    if (!dx) return SL_OK;
    float *whole = alone(module) ? dx : sl_token_room(module, context, WHOLE);
    const void *a = sl_affine_operand(module, context, SL_AFFINE_DY, logits, dy);
    SL_TRY(sl_affine_multiply(module, context, SL_AFFINE_INPUT_GRADIENT, a, sl_affine_kernel(module, context), NULL,
                              false, whole));
    return alone(module) ? SL_OK : own_channels(module, context, whole, dx);
}

/* DTABLE (+)= dy^T x, over the group's tokens that are this coordinate's. */
static int table_gradient(const struct sl_module *module, struct sl_context *context, const float *x, const float *dy,
                          bool accumulate, float *dtable) {
    const struct sl_token_table *table = module->user;
    const int at_once = together(module, context->rows, context->wgrad_group);
    const size_t rows = sl_token_rows(table, (size_t)context->rows), columns = (size_t)table->vocabulary.dimension;
    const size_t classes = sl_token_classes(table), room = (size_t)context->rows * (size_t)module->out;
    for (int m = 0; m < context->wgrad_group; m += at_once) {
        const size_t at = (size_t)m, taken = rows * (size_t)at_once;
        const void *a = sl_affine_operand(module, context, SL_AFFINE_DY, taken * classes, dy + at * room);
        const void *b = sl_affine_operand(module, context, SL_AFFINE_X, taken * columns, x + at * rows * columns);
        SL_TRY(sl_affine_multiply(module, context, SL_AFFINE_WEIGHT_GRADIENT, a, b, NULL, accumulate || m > 0, dtable));
    }
    return SL_OK;
}

/* Undivided, all coordinates make the same; by classes, each all of its rows. */
static int backward_weight(const struct sl_module *module, struct sl_context *context, const float *x,
                           const float *dy) {
    const float *whole = alone(module) ? x : sl_stash_of(context, module->stash[0]);
    if (sl_token_table_of(module)->division != SL_BY_TOKENS)
        return table_gradient(module, context, whole, dy, context->accumulate, sl_gradient(module, context, 0));
    float *part = sl_token_part(module, context);
    SL_TRY(table_gradient(module, context, whole, dy, false, part));
    return sl_token_sum_parts(module, context, part);
}

static const struct sl_module_type type = {"tied_logits", plan, forward, backward_input, backward_weight};

struct sl_module *sl_tied_logits(const struct sl_vocabulary *vocabulary, int sequence,
                                 const struct sl_channels *channels) {
    const int parts = sl_mesh_axis_size(channels->mesh, channels->axis);
    return sl_token_module(&type, vocabulary->dimension / parts, sl_token_logits(vocabulary, sequence, channels),
                           vocabulary, channels);
}
