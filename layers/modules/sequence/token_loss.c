/* token_loss.c - softmax cross entropy of the logits that tied_logits.c leaves.
 *
 * Trainers divide the sums of metrics by the number of coordinates along the axis, as if each of them had counted the
 * same rows. So a token that only one coordinate counts is counted once for each of them. */
#include "layers/modules/sequence/token_table.h"
#include "spmd/device/device.h"

/* All but the table are by classes alone. */
struct token_loss {
    struct sl_token_table table;
    struct sl_place maxima, argmaxima; /* [rows] */
    struct sl_place sums;              /* [2, rows]: sums and targets */
    struct sl_place all;               /* [rows, parts]: all coordinates' maxima */
    struct sl_place places;            /* [rows]: which of them is the first of the largest */
};

static int plan(struct sl_module *module, struct sl_plan *plan) {
    struct token_loss *loss = (struct token_loss *)module;
    struct sl_token_table *table = &loss->table;
    SL_TRY(sl_token_plan_logits(table, plan, module->in));
    const size_t rows = (size_t)plan->rows * sizeof(float);
    if (table->division != SL_BY_CLASSES) return SL_OK;
    sl_plan_workspace(plan, rows, &loss->maxima);
    sl_plan_workspace(plan, rows, &loss->argmaxima);
    sl_plan_workspace(plan, 2 * rows, &loss->sums);
    sl_plan_workspace(plan, rows * (size_t)table->parts, &loss->all);
    sl_plan_workspace(plan, rows, &loss->places);
    return SL_OK;
}

/* A coordinate has all logits of its tokens: RESULT gets loss, correct and rows. */
static void whole_rows(const struct sl_module *module, struct sl_context *context, const float *x, float *y,
                       double result[3]) {
    const struct sl_token_table *table = sl_token_table_of(module);
    const bool shared = table->division == SL_BY_TOKENS;
    const size_t classes = sl_token_classes(table), rows = (size_t)context->rows;
    const size_t stride = shared ? (size_t)table->sequence : rows, run = sl_token_rows(table, stride);
    const int32_t *labels = context->batch.labels + (shared ? run * sl_token_rank(module, context) : 0);
    for (size_t i = 0; i < rows / stride; i++)
        context->kernels->softmax_cross_entropy(run, classes, x + i * run * classes, labels + i * stride,
                                                context->weight, y + i * run * classes, result);
    for (int i = 0; shared && i < 3; i++) result[i] *= table->parts;
}

/* Makes MAXIMA those of the whole rows. ARGMAXIMA stay those of the coordinate's own classes where it is the first
 * along the axis that reaches the maximum; elsewhere they leave the range of all classes, so that no label is hit. */
static int whole_maxima(const struct sl_module *module, struct sl_context *context, float *maxima, float *argmaxima) {
    const struct sl_kernels *kernels = context->kernels;
    const struct token_loss *loss = (const struct token_loss *)module;
    const struct sl_token_table *table = &loss->table;
    const size_t rows = (size_t)context->rows;
    float *all = sl_at(context, &loss->all), *places = sl_at(context, &loss->places);
    SL_TRY(sl_token_gather(module, context, rows, 1, maxima, all));
    /* counted from this coordinate on: 0 is itself */
    kernels->sequence->row_maxima(rows, (size_t)table->parts, -(int32_t)sl_token_rank(module, context), all, maxima,
                                  places);
    kernels->fill(rows, (float)table->vocabulary.size, all);
    kernels->multiply(rows, places, all, places);
    kernels->add(rows, places, argmaxima);
    return SL_OK;
}

/* A coordinate has some logits of all tokens. All count the losses; hits, whoever has the label's. */
static int whole_classes(const struct sl_module *module, struct sl_context *context, const float *x, float *y,
                         double result[3]) {
    const struct sl_sequence_kernels *kernels = context->kernels->sequence;
    const struct token_loss *loss = (const struct token_loss *)module;
    const struct sl_token_table *table = &loss->table;
    const size_t rows = (size_t)context->rows, classes = sl_token_classes(table);
    const int32_t first = (int32_t)(classes * sl_token_rank(module, context)), *labels = context->batch.labels;
    float *maxima = sl_at(context, &loss->maxima), *argmaxima = sl_at(context, &loss->argmaxima);
    float *sums = sl_at(context, &loss->sums), *targets = sums + rows;
    kernels->row_maxima(rows, classes, first, x, maxima, argmaxima);
    SL_TRY(whole_maxima(module, context, maxima, argmaxima));
    kernels->row_sums(rows, classes, first, x, labels, maxima, sums, targets);
    SL_TRY(sl_token_sum(module, context, 2 * rows, sums));
    kernels->row_losses(rows, classes, first, x, labels, maxima, argmaxima, sums, targets, context->weight, y, result);
    result[1] *= table->parts;
    return SL_OK;
}

static int forward(const struct sl_module *module, struct sl_context *context, const float *x, float *y) {
    const struct sl_token_table *table = sl_token_table_of(module);
    double result[3] = {0};
    if (context->phase == SL_PREFILL || context->phase == SL_DECODE) {
        const size_t sequences = (size_t)(context->rows / table->sequence);
        sl_device.copy(y, x, sequences * (size_t)table->vocabulary.size * sizeof(float));
        return SL_OK;
    }
    if (table->division == SL_BY_CLASSES)
        SL_TRY(whole_classes(module, context, x, y, result));
    else
        whole_rows(module, context, x, y, result);
    sl_metrics_add(context->metrics, result);
    return SL_OK;
}

static const struct sl_module_type type = {.name = "token_loss",
                                           .plan = plan,
                                           .forward = forward,
                                           .reads = SL_READS_LABELS,
                                           .bytes = sizeof(struct token_loss)};

struct sl_module *sl_token_loss(const struct sl_vocabulary *vocabulary, int sequence,
                                const struct sl_channels *channels) {
    const int columns = sl_token_logits(vocabulary, sequence, channels);
    return sl_token_module(&type, columns, columns, vocabulary, channels);
}
