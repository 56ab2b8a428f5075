/* token_spread.c - the head of a language model, spread over the ranks of a pipeline (cf. Yeung et al., "Balancing
 * pipeline parallelism with vocabulary parallelism", 2024).
 *
 * Each rank has a share of the table's rows, and these shares are stages: the state of a row's softmax travels from
 * rank to rank, and each adds its chunks of classes. Chunks are thus added in the same order as on a single rank.
 * Stages send, one after another,
 *
 *     forward   dx so far [own rows, dimension], maxima, argmaxima, sums, targets [own rows] (token_chunks.h), x [own
 *               rows, dimension], the label's row of the table so far: the same shape
 *     back      dx [own rows, dimension], maxima, sums [own rows]
 *
 * A coordinate's own rows have all channels: see token_head.c. If the storage is bf16, x and the table's rows are bf16
 * already, and are sent as bf16: vocabulary.halves. The first stage begins after sl_spread_begin has gathered the
 * channels, and sl_spread_loss follows the last one. */
#include "layers/modules/sequence/token_chunks.h"
#include "spmd/device/device.h"

/* Each field is used by some of the types. */
struct spread {
    struct sl_token_table table;
    struct sl_token_chunks chunks;
    struct sl_place kept_x;       /* [own rows, dimension], in the type of messages */
    struct sl_place wide_x;       /* the same as floats: at the begin, and for products of floats */
    bool widens;                  /* products read floats */
    struct sl_place maxima, sums; /* [own rows], over all classes */
    struct sl_place labels;       /* by tokens: labels of this coordinate's tokens */
    struct sl_place places, ones; /* [own rows] */
};

/* Arrays sent between stages. Rows of X, DX and ROW have all channels; a coordinate's own rows have as many elements as
 * its own channels of all rows. */
struct forward_rows {
    size_t rows, elements; /* own rows; elements of each of X, DX and ROW */
    size_t words;          /* size of each of X and ROW in floats: elements, or half of them for bf16 */
    float *dx, *maxima, *argmaxima, *sums, *targets, *x, *row;
};
struct backward_rows {
    size_t rows, elements;
    float *dx, *maxima, *sums;
};

enum { NUMBERS = 4 /* per row, forward */, NUMBERS_BACK = 2 };

static const struct spread *own(const struct sl_module *module) { return (const struct spread *)module; }

static size_t own_elements(const struct sl_module *module, const struct sl_context *context) {
    const struct sl_token_table *table = sl_token_table_of(module);
    return (size_t)context->rows * (size_t)(table->vocabulary.dimension / table->parts);
}

static bool halves(const struct sl_module *module) { return sl_token_table_of(module)->vocabulary.halves; }

/* Size of ELEMENTS of x or of the table, in floats. */
static size_t words_of(const struct sl_module *module, size_t elements) {
    return halves(module) ? elements / 2 : elements;
}

/* The arrays at AT, which are only read if AT is x or dy. */
static struct forward_rows forward_rows(const struct sl_module *module, const struct sl_context *context,
                                        const float *at) {
    const size_t rows = sl_token_rows(sl_token_table_of(module), (size_t)context->rows);
    const size_t elements = own_elements(module, context), words = words_of(module, elements);
    float *dx = (float *)(uintptr_t)at, *numbers = dx + elements, *x = numbers + NUMBERS * rows;
    return (struct forward_rows){
        rows, elements, words, dx, numbers, numbers + rows, numbers + 2 * rows, numbers + 3 * rows, x, x + words};
}

static struct backward_rows backward_rows(const struct sl_module *module, const struct sl_context *context,
                                          const float *at) {
    const size_t rows = sl_token_rows(sl_token_table_of(module), (size_t)context->rows);
    const size_t elements = own_elements(module, context);
    float *dx = (float *)(uintptr_t)at;
    return (struct backward_rows){rows, elements, dx, dx + elements, dx + elements + rows};
}

static void copy_floats(float *to, const float *from, size_t n) { sl_device.copy(to, from, n * sizeof(float)); }

static struct sl_softmax softmax_of(const struct sl_module *module, const struct sl_context *context,
                                    const struct forward_rows *at) {
    return (struct sl_softmax){.rows = at->rows,
                               .first = sl_token_first(module, context),
                               .labels = sl_token_labels(module, context, &own(module)->labels, (size_t)context->rows),
                               .maxima = at->maxima,
                               .argmaxima = at->argmaxima,
                               .sums = at->sums,
                               .targets = at->targets,
                               .begins = sl_token_table_of(module)->vocabulary.shard == 0};
}

int sl_spread_columns(const struct sl_vocabulary *vocabulary, const struct sl_channels *channels) {
    const int own = vocabulary->dimension / sl_mesh_axis_size(channels->mesh, channels->axis);
    return (vocabulary->halves ? 2 : 3) * own + NUMBERS;
}

/* ---- begin ---- */

static int plan_begin(struct sl_module *module, struct sl_plan *plan) {
    struct spread *spread = (struct spread *)module;
    module->x.lasts = SL_UNTIL_RETURN;
    SL_TRY(sl_token_plan(&spread->table, plan));
    if (halves(module) && spread->table.parts > 1)
        sl_plan_workspace(plan, (size_t)plan->rows * (size_t)module->in * sizeof(float), &spread->wide_x);
    return SL_OK;
}

static int begin(const struct sl_module *module, struct sl_context *context, struct sl_given given,
                 struct sl_result *result) {
    const float *x = given.floats;
    float *y = result->floats;
    const struct forward_rows to = forward_rows(module, context, y);
    if (sl_token_table_of(module)->parts > 1) {
        float *all = halves(module) ? sl_at(context, &own(module)->wide_x) : to.x;
        SL_TRY(sl_channels_to_tokens(module, context, (size_t)context->rows, x, all));
        x = all;
    }
    if (halves(module))
        context->kernels->round_bf16(to.elements, x, (uint16_t *)(void *)to.x);
    else if (x != to.x)
        copy_floats(to.x, x, to.elements);
    return SL_OK;
}

static int begin_back(const struct sl_module *module, struct sl_context *context, struct sl_given saved,
                      struct sl_given given, struct sl_result *result) {
    const float *dy = given.floats;
    float *dx = sl_result_floats(result);
    const struct backward_rows from = backward_rows(module, context, dy);
    (void)saved;
    if (!dx) return SL_OK;
    if (sl_token_table_of(module)->parts > 1) return sl_token_own_channels(module, context, from.dx, dx);
    copy_floats(dx, from.dx, from.elements);
    return SL_OK;
}

/* ---- a share of the classes ---- */

/* Plans x as floats for float32 products: for a call, or for a group of weight gradients. */
static void plan_wide(struct spread *spread, struct sl_plan *plan, size_t rows) {
    const size_t group = sl_plan_trains(plan, 0) ? (size_t)plan->wgrad_group : 1;
    spread->widens = spread->table.vocabulary.halves && plan->precision == SL_F32;
    if (!spread->widens) return;
    sl_plan_workspace(plan, rows * group * (size_t)spread->table.vocabulary.dimension * sizeof(float), &spread->wide_x);
}

static int plan_share(struct sl_module *module, struct sl_plan *plan) {
    struct spread *spread = (struct spread *)module;
    struct sl_token_table *table = &spread->table;
    module->x.lasts = module->y.lasts = SL_UNTIL_RETURN;
    if (halves(module) && module->in % 2)
        return sl_error_set(plan->error, SL_BAD_INPUT, "%s%s: %d columns: bf16 need an even number", plan->name,
                            module->type->name, module->in);
    if (halves(module) && !plan->forward_only && sl_plan_kernel_type(plan) != SL_BF16)
        return sl_error_set(plan->error, SL_BAD_INPUT,
                            "%s%s: the vocabulary's field halves is set, but the pipeline's storage is f32", plan->name,
                            module->type->name);
    SL_TRY(sl_token_plan(table, plan));
    SL_TRY(sl_token_plan_table(table, plan, SL_TABLE_HEAD, table->division == SL_BY_TOKENS));
    const size_t rows = sl_token_rows(table, (size_t)plan->rows);
    SL_TRY(sl_token_chunks_plan(&spread->chunks, plan, table, rows));
    sl_token_plan_labels(table, plan, &spread->labels);
    plan_wide(spread, plan, rows);
    if (!sl_plan_trains(plan, 0)) return SL_OK;
    SL_TRY(sl_plan_stash(plan, words_of(module, rows * (size_t)table->vocabulary.dimension), &spread->kept_x));
    SL_TRY(sl_plan_stash(plan, rows, &spread->maxima));
    return sl_plan_stash(plan, rows, &spread->sums);
}

/* Returns whether products read x as the received bf16. */
static bool reads_halves(const struct spread *spread) { return spread->table.vocabulary.halves && !spread->widens; }

/* The COUNT elements at X, received or saved, in the type read by products. */
static const void *read_x(const struct sl_module *module, const struct sl_context *context, size_t count,
                          const float *x) {
    if (!own(module)->widens) return x;
    float *wide = sl_at(context, &own(module)->wide_x);
    context->kernels->widen_bf16(count, (const uint16_t *)(const void *)x, wide);
    return wide;
}

/* Copies bf16 rows of labels two elements at a time. */
static void add_label_rows(const struct sl_module *module, struct sl_context *context, const struct sl_softmax *s,
                           float *row) {
    const struct sl_token_chunks *chunks = &own(module)->chunks;
    const bool half = halves(module);
    struct sl_rows table = sl_token_chunks_rows(module, chunks, context);
    if (half) table.type = SL_F32;
    context->kernels->sequence->label_rows(s->rows, half ? chunks->columns / 2 : chunks->columns, s->labels, s->first,
                                           (int32_t)chunks->classes, table, s->begins, row);
}

static int share(const struct sl_module *module, struct sl_context *context, struct sl_given given,
                 struct sl_result *result) {
    const float *x = given.floats;
    float *y = result->floats;
    const struct spread *spread = own(module);
    const struct forward_rows from = forward_rows(module, context, x), to = forward_rows(module, context, y);
    const struct sl_softmax s = softmax_of(module, context, &to);
    const bool trains = context->phase == SL_TRAIN;
    copy_floats(to.x, from.x, trains && !s.begins ? 2 * from.words : from.words);
    if (trains && !s.begins) copy_floats(to.dx, from.dx, from.elements);
    if (!s.begins) copy_floats(to.maxima, from.maxima, NUMBERS * from.rows);
    SL_TRY(sl_token_chunks_forward(module, &spread->chunks, context, &s, read_x(module, context, to.elements, to.x),
                                   reads_halves(spread), trains ? to.dx : NULL));
    if (!trains) return SL_OK;
    if (!sl_is_frozen(module, context, 0)) copy_floats(sl_at(context, &spread->kept_x), from.x, from.words);
    add_label_rows(module, context, &s, to.row);
    return SL_OK;
}

/* dx is complete already. */
static int share_back(const struct sl_module *module, struct sl_context *context, struct sl_given x, struct sl_given dy,
                      struct sl_result *dx) {
    const struct backward_rows from = backward_rows(module, context, dy.floats);
    (void)x;
    if (!sl_is_frozen(module, context, 0)) {
        copy_floats(sl_at(context, &own(module)->maxima), from.maxima, from.rows);
        copy_floats(sl_at(context, &own(module)->sums), from.sums, from.rows);
    }
    if (dx) copy_floats(dx->floats, dy.floats, from.elements + NUMBERS_BACK * from.rows);
    return SL_OK;
}

static int share_weight(const struct sl_module *module, struct sl_context *context, struct sl_given x,
                        struct sl_given dy) {
    const struct spread *spread = own(module);
    const size_t count = (size_t)context->wgrad_group * own_elements(module, context);
    (void)x, (void)dy;
    return sl_token_chunks_weight(module, &spread->chunks, context, &spread->labels, sl_at(context, &spread->maxima),
                                  sl_at(context, &spread->sums),
                                  read_x(module, context, count, sl_at(context, &spread->kept_x)),
                                  reads_halves(spread));
}

static void release_share(struct sl_module *module) { sl_token_chunks_release(&((struct spread *)module)->chunks); }

/* ---- end ---- */

static int plan_loss(struct sl_module *module, struct sl_plan *plan) {
    struct spread *spread = (struct spread *)module;
    SL_TRY(sl_token_plan(&spread->table, plan));
    const size_t bytes = sl_token_rows(&spread->table, (size_t)plan->rows) * sizeof(float);
    sl_token_plan_labels(&spread->table, plan, &spread->labels);
    sl_plan_workspace(plan, bytes, &spread->places);
    sl_plan_workspace(plan, bytes, &spread->ones);
    return SL_OK;
}

/* The labels' rows lie one after another: row r has label r, unless its label is -1. */
static int loss(const struct sl_module *module, struct sl_context *context, struct sl_given x, struct sl_result *y) {
    const struct sl_kernels *kernels = context->kernels;
    const struct forward_rows from = forward_rows(module, context, x.floats);
    const struct backward_rows to = backward_rows(module, context, y->floats);
    const struct sl_softmax s = softmax_of(module, context, &from);
    int32_t *places = sl_at(context, &own(module)->places);
    float *ones = sl_at(context, &own(module)->ones);
    sl_token_count(module, context, &s, false);
    if (context->phase != SL_TRAIN) return SL_OK;
    copy_floats(to.dx, from.dx, from.elements);
    copy_floats(to.maxima, from.maxima, from.rows);
    copy_floats(to.sums, from.sums, from.rows);
    kernels->fill(from.rows, 1.0f, ones);
    kernels->sequence->label_places(from.rows, s.labels, places);
    kernels->sequence->softmax_gradient(from.rows, (size_t)sl_token_table_of(module)->vocabulary.dimension, places, 0,
                                        (int32_t)from.rows, from.sums, ones, context->weight,
                                        sl_rows_of(halves(module) ? SL_BF16 : SL_F32, from.row), sl_out_f32(to.dx));
    return SL_OK;
}

/* ---- types ---- */

static const struct sl_module_type begin_type = {.name = "spread_begin",
                                                 .plan = plan_begin,
                                                 .forward = begin,
                                                 .backward_input = begin_back,
                                                 .bytes = sizeof(struct spread)};

static const struct sl_module_type share_type = {.name = "spread_head",
                                                 .plan = plan_share,
                                                 .forward = share,
                                                 .backward_input = share_back,
                                                 .backward_weight = share_weight,
                                                 .reads = SL_READS_LABELS,
                                                 .bytes = sizeof(struct spread),
                                                 .release = release_share};

static const struct sl_module_type loss_type = {.name = "spread_loss",
                                                .plan = plan_loss,
                                                .forward = loss,
                                                .reads = SL_READS_LABELS,
                                                .bytes = sizeof(struct spread)};

struct sl_module *sl_spread_begin(const struct sl_vocabulary *vocabulary, const struct sl_channels *channels) {
    const int in = vocabulary->dimension / sl_mesh_axis_size(channels->mesh, channels->axis);
    return sl_token_module(&begin_type, in, sl_spread_columns(vocabulary, channels), vocabulary, channels);
}

struct sl_module *sl_spread_head(const struct sl_vocabulary *vocabulary, const struct sl_channels *channels) {
    const int columns = sl_spread_columns(vocabulary, channels);
    return sl_token_module(&share_type, columns, columns, vocabulary, channels);
}

struct sl_module *sl_spread_loss(const struct sl_vocabulary *vocabulary, const struct sl_channels *channels) {
    const int out = vocabulary->dimension / sl_mesh_axis_size(channels->mesh, channels->axis) + NUMBERS_BACK;
    return sl_token_module(&loss_type, sl_spread_columns(vocabulary, channels), out, vocabulary, channels);
}
