/* token_rows.c - the head of a language model, with its tokens divided between the ranks of a pipeline.
 *
 * Each rank has the whole table, and computes its part of every microbatch's tokens with sl_token_head. These shares
 * are stages: the last layers' outputs travel from rank to rank, and each adds its tokens' dx. Stages send
 *
 *     forward   dx so far [rows, own channels], x: the same shape, as bf16 if the storage is bf16
 *     back      dx [rows, own channels]
 *
 * sl_rows_begin writes x there, and sl_rows_loss follows the last share. Each rank counts its tokens' losses. The
 * ranks' gradients of the table are summed like those of tied parameters. */
#include "layers/modules/sequence/token_table.h"
#include "layers/modules/sharded_channels.h"
#include "spmd/device/device.h"

struct share {
    struct sl_module module;
    struct sl_module *head; /* a loss without backward_input, so it cannot be a child */
    int parts, part;
    int sequence;         /* rows of a sequence for the head: a whole one, or a part */
    bool halves;          /* x is sent and saved as bf16 */
    struct sl_place wide; /* the part's rows as floats */
    struct sl_place x;    /* the part's rows in the type of messages, if the head needs them saved */
};

/* A rank's part of a microbatch or of a call. */
struct part {
    size_t rows, first; /* rows of the part; first row in the call */
    size_t columns;     /* own channels */
    size_t elements;    /* own channels of all rows */
};

static const struct share *own(const struct sl_module *module) { return (const struct share *)module; }

static void copy_floats(float *to, const float *from, size_t n) { sl_device.copy(to, from, n * sizeof(float)); }

static struct part part_of(const struct sl_module *module, const struct sl_context *context) {
    const struct share *share = own(module);
    const size_t rows = (size_t)context->rows / (size_t)share->parts, columns = (size_t)share->head->in;
    return (struct part){rows, rows * (size_t)share->part, columns, (size_t)context->rows * columns};
}

/* CONTEXT for the head: labels of the part from ROW of the batch on. */
static struct sl_context with_part(const struct sl_module *module, const struct sl_context *context, size_t row) {
    struct sl_context head = *context;
    head.rows = context->rows / own(module)->parts;
    head.sequence = own(module)->sequence;
    head.batch.rows = head.rows;
    head.batch.labels += row;
    return head;
}

/* ---- begin ---- */

static int begin(const struct sl_module *module, struct sl_context *context, struct sl_given given,
                 struct sl_result *result) {
    const float *x = given.floats;
    float *y = result->floats;
    const size_t elements = (size_t)context->rows * (size_t)module->in;
    if (module->out == 2 * module->in)
        copy_floats(y + elements, x, elements);
    else
        context->kernels->round_bf16(elements, x, (uint16_t *)(void *)(y + elements));
    return SL_OK;
}

static int begin_back(const struct sl_module *module, struct sl_context *context, struct sl_given x, struct sl_given dy,
                      struct sl_result *dx) {
    (void)x;
    if (dx) copy_floats(dx->floats, dy.floats, (size_t)context->rows * (size_t)module->in);
    return SL_OK;
}

/* ---- a share of the tokens ---- */

/* Greatest common divisor: the longest part of a sequence that divides ROWS. */
static int common_divisor(int rows, int sequence) {
    while (sequence) {
        const int rest = rows % sequence;
        rows = sequence;
        sequence = rest;
    }
    return rows;
}

/* Size of ELEMENTS of x, in floats. */
static size_t words_of(const struct share *share, size_t elements) { return share->halves ? elements / 2 : elements; }

/* The part's x as floats, from X, which was received or saved. */
static const float *read_x(const struct sl_module *module, const struct sl_context *context, const float *x) {
    const struct share *share = own(module);
    const struct part part = part_of(module, context);
    if (!share->halves) return x;
    float *wide = sl_at(context, &share->wide);
    context->kernels->widen_bf16(part.rows * part.columns, (const uint16_t *)(const void *)x, wide);
    return wide;
}

static int plan_head(struct share *share, struct sl_plan *plan) {
    const struct sl_plan whole = *plan;
    plan->rows = whole.rows / share->parts;
    plan->sequence = share->sequence;
    plan->wgrad_group = 1;
    plan->weights_follow = false;
    const int status = sl_plan_child(plan, share->head, plan->workspace);
    plan->rows = whole.rows;
    plan->sequence = whole.sequence;
    plan->wgrad_group = whole.wgrad_group;
    plan->weights_follow = whole.weights_follow;
    return status;
}

static int plan_share(struct sl_module *module, struct sl_plan *plan) {
    struct share *share = (struct share *)module;
    SL_TRY(sl_plan_without_leaves(plan, sl_token_table_of(share->head)->axis));
    if (plan->sequence < 1 || plan->rows % share->parts)
        return sl_error_set(plan->error, SL_BAD_INPUT,
                            "%s%s: %d tokens of a microbatch do not divide over the %d ranks that share the head",
                            plan->name, module->type->name, plan->rows, share->parts);
    const int rows = plan->rows / share->parts;
    module->x.lasts = module->y.lasts = SL_UNTIL_RETURN;
    const size_t elements = (size_t)rows * (size_t)share->head->in;
    if (share->halves && share->head->in % 2)
        return sl_error_set(plan->error, SL_BAD_INPUT, "%s%s: %d columns: bf16 need an even number", plan->name,
                            module->type->name, share->head->in);
    if (share->halves) sl_plan_workspace(plan, elements * sizeof(float), &share->wide);
    share->sequence = common_divisor(rows, plan->sequence);
    SL_TRY(plan_head(share, plan));
    if (!sl_is_kept(&share->head->x) || plan->forward_only) return SL_OK;
    return sl_plan_stash(plan, words_of(share, elements), &share->x);
}

/* The dx of later parts is not computed yet. */
static int share_rows(const struct sl_module *module, struct sl_context *context, struct sl_given given,
                      struct sl_result *result) {
    const float *x = given.floats;
    float *y = result->floats;
    const struct share *share = own(module);
    const struct part part = part_of(module, context);
    const size_t before = part.first * part.columns;
    const float *all = x + part.elements, *of_part = all + words_of(share, before);
    const bool trains = context->phase == SL_TRAIN;
    struct sl_context head = with_part(module, context, part.first);
    if (trains) copy_floats(y, x, before);
    copy_floats(y + part.elements, all, words_of(share, part.elements));
    SL_TRY(sl_module_forward(share->head, &head, sl_given_f32(read_x(module, context, of_part)), SL_INTO(y + before)));
    if (trains && sl_is_kept(&share->head->x))
        copy_floats(sl_at(context, &share->x), of_part, words_of(share, part.rows * part.columns));
    return SL_OK;
}

static int share_back(const struct sl_module *module, struct sl_context *context, struct sl_given x, struct sl_given dy,
                      struct sl_result *dx) {
    (void)x;
    if (dx) copy_floats(dx->floats, dy.floats, part_of(module, context).elements);
    return SL_OK;
}

/* One microbatch at a time: a rank's tokens of two microbatches are not contiguous. */
static int share_weight(const struct sl_module *module, struct sl_context *context, struct sl_given x,
                        struct sl_given dy) {
    const struct share *share = own(module);
    const struct part part = part_of(module, context);
    (void)x, (void)dy;
    for (int i = 0; i < context->wgrad_group; i++) {
        struct sl_context head = with_part(module, context, (size_t)i * (size_t)context->rows + part.first);
        head.microbatch += i;
        head.wgrad_group = 1;
        head.accumulate = context->accumulate || i > 0;
        const float *kept = sl_is_kept(&share->head->x) ? read_x(module, context, sl_at(&head, &share->x)) : NULL;
        SL_TRY(sl_module_backward_weight(share->head, &head, sl_given_f32(kept), sl_given_f32(NULL)));
    }
    return SL_OK;
}

static void release_share(struct sl_module *module) { sl_module_free(((struct share *)module)->head); }

/* ---- end ---- */

/* The loss has been counted, and dx is complete. */
static int loss(const struct sl_module *module, struct sl_context *context, struct sl_given x, struct sl_result *y) {
    const size_t elements = (size_t)context->rows * (size_t)module->out;
    if (context->phase == SL_TRAIN) copy_floats(y->floats, x.floats, elements);
    return SL_OK;
}

/* ---- types ---- */

static const struct sl_module_type begin_type = {
    .name = "rows_begin", .plan = sl_plan_keeps_nothing, .forward = begin, .backward_input = begin_back};

static const struct sl_module_type share_type = {.name = "rows_head",
                                                 .plan = plan_share,
                                                 .forward = share_rows,
                                                 .backward_input = share_back,
                                                 .backward_weight = share_weight,
                                                 .reads = SL_READS_LABELS,
                                                 .bytes = sizeof(struct share),
                                                 .release = release_share};

static const struct sl_module_type loss_type = {.name = "rows_loss", .forward = loss};

static int own_channels(const struct sl_vocabulary *vocabulary, const struct sl_channels *channels) {
    return vocabulary->dimension / sl_mesh_axis_size(channels->mesh, channels->axis);
}

int sl_rows_columns(const struct sl_vocabulary *vocabulary, const struct sl_channels *channels) {
    const int own = own_channels(vocabulary, channels);
    return vocabulary->halves ? own + own / 2 : 2 * own;
}

struct sl_module *sl_rows_begin(const struct sl_vocabulary *vocabulary, const struct sl_channels *channels) {
    return sl_module_new(&begin_type, "", own_channels(vocabulary, channels), sl_rows_columns(vocabulary, channels));
}

struct sl_module *sl_rows_head(const struct sl_vocabulary *vocabulary, const struct sl_channels *channels, int parts,
                               int part) {
    const int columns = sl_rows_columns(vocabulary, channels);
    struct sl_module *module = sl_module_new(&share_type, "", columns, columns);
    if (!module) return NULL;
    struct share *share = (struct share *)module;
    share->head = sl_token_head(vocabulary, channels);
    share->parts = parts;
    share->part = part;
    share->halves = vocabulary->halves;
    if (share->head) return module;
    sl_module_free(module);
    return NULL;
}

struct sl_module *sl_rows_loss(const struct sl_vocabulary *vocabulary, const struct sl_channels *channels) {
    return sl_module_new(&loss_type, "", sl_rows_columns(vocabulary, channels), own_channels(vocabulary, channels));
}
