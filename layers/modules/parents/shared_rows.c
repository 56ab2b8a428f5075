/* shared_rows.c - modules of tensor layout rows, in which coordinates along an axis have shares of the rows of each
 * sequence (sequence parallelism: Korthikanti et al. 2022). own_rows calls its child for a coordinate's share, and sums
 * gradients over the coordinates; gathered_rows calls it for the rows of all; all_rows passes these on.
 *
 * A coordinate's share has as many elements as all rows of a share of the columns: module->in and out count these. */
#include "layers/modules/kept.h"
#include "layers/modules/sharded_channels.h"
#include "layers/modules/transformer_modules.h"

struct rows {
    struct sl_module module;
    const char *axis;
    int group, size;
    int parts;             /* of own_rows: parts of each sequence's rows, of which the child gets one; 1: all rows,
                            * of which it knows a summand of dy */
    bool weights_follow;   /* some W inside follows its I */
    bool halves;           /* of gathered_rows: forward gathers x as bf16, as the products read it */
    struct sl_place x, dx; /* of gathered_rows, of all coordinates' rows: x in its saved type, and the summand of dx */
};

static const struct rows *own(const struct sl_module *module) { return (const struct rows *)module; }

static int plan_rows(struct rows *rows, struct sl_plan *plan) {
    rows->size = sl_mesh_axis_size(plan->mesh, rows->axis);
    SL_TRY(sl_plan_share_rows(plan, rows->axis));
    return sl_plan_group(plan, rows->axis, &rows->group);
}

static int rank_of(const struct sl_module *module, const struct sl_context *context) {
    return sl_group_of(context, own(module)->group)->rank;
}

static bool any_follows(const struct sl_module *module) {
    bool follows = module->weights_follow;
    for (int i = 0; i < module->children; i++) follows = follows || any_follows(module->child[i]);
    return follows;
}

/* ---- a coordinate's own rows ---- */

/* Counts the sums of MODULE's gradients. */
static void count_sums(const struct sl_module *module, const char *axis, const struct sl_plan *plan) {
    const double each = 1.0 / plan->wgrad_group;
    for (int i = 0; i < module->parameters && !plan->forward_only; i++) {
        const struct sl_parameter *parameter = &plan->parameters->list[module->parameter[i]];
        if (parameter->frozen) continue;
        sl_load_call(plan, SL_LOAD_WEIGHT, SL_PSUM, axis, sizeof(float) * (double)parameter->count * each, each);
    }
    for (int i = 0; i < module->children; i++) count_sums(module->child[i], axis, plan);
}

static int plan_own(struct sl_module *module, struct sl_plan *plan) {
    const int rows = plan->rows, sequence = plan->sequence;
    struct rows *own_rows = (struct rows *)module;
    SL_TRY(plan_rows(own_rows, plan));
    plan->rows /= own_rows->parts;
    plan->sequence /= own_rows->parts;
    const int status = sl_module_plan(module->child[0], plan);
    plan->rows = rows;
    plan->sequence = sequence;
    module->x = module->child[0]->x;
    module->y = module->child[0]->y;
    own_rows->weights_follow = any_follows(module->child[0]);
    if (status == SL_OK && plan->load) count_sums(module->child[0], own_rows->axis, plan);
    return status;
}

/* The fields of a context that a call for a coordinate's rows changes, as they were before. */
struct before {
    int rows, sequence, first_microbatch;
    bool accumulate;
    struct sl_dropout_source dropout;
};

/* Only one coordinate's W adds to the gradient, which is summed over all of them afterwards. */
static struct before enter(const struct sl_module *module, struct sl_context *context, bool accumulates) {
    const struct before before = {context->rows, context->sequence, context->first_microbatch, context->accumulate,
                                  context->dropout};
    const int parts = own(module)->parts;
    context->rows /= parts;
    context->sequence /= parts;
    context->dropout.parts = parts;
    if (parts > 1) context->dropout.first_row += (uint32_t)(context->sequence * rank_of(module, context));
    context->accumulate = accumulates && rank_of(module, context) == 0;
    return before;
}

static int leave(struct sl_context *context, struct before before, int status) {
    context->rows = before.rows;
    context->sequence = before.sequence;
    context->first_microbatch = before.first_microbatch;
    context->accumulate = before.accumulate;
    context->dropout = before.dropout;
    return status;
}

/* Sums the gradients of MODULE and its children over the group. */
static int sum_gradients(const struct sl_module *module, struct sl_context *context, int group) {
    for (int i = 0; i < module->parameters; i++)
        if (!sl_is_frozen(module, context, i))
            SL_TRY(sl_sum_over(context, group, context->parameters->list[module->parameter[i]].count,
                               sl_gradient(module, context, i)));
    for (int i = 0; i < module->children; i++) SL_TRY(sum_gradients(module->child[i], context, group));
    return SL_OK;
}

static int own_forward(const struct sl_module *module, struct sl_context *context, struct sl_given x,
                       struct sl_result *y) {
    const struct before before = enter(module, context, false);
    return leave(context, before, sl_module_forward_last(module->child[0], context, x, y));
}

static int own_backward_input(const struct sl_module *module, struct sl_context *context, struct sl_given x,
                              struct sl_given dy, struct sl_result *dx) {
    const struct before before =
        enter(module, context, context->accumulate || context->microbatch > context->first_microbatch);
    if (own(module)->weights_follow) context->first_microbatch = context->microbatch; /* accumulate says all */
    int status = sl_module_backward_input(module->child[0], context, x, dy, dx);
    if (status == SL_OK && own(module)->weights_follow)
        status = sum_gradients(module->child[0], context, own(module)->group);
    return leave(context, before, status);
}

static int own_backward_weight(const struct sl_module *module, struct sl_context *context, struct sl_given x,
                               struct sl_given dy) {
    const struct before before = enter(module, context, context->accumulate);
    int status = sl_module_backward_weight(module->child[0], context, x, dy);
    if (status == SL_OK && !own(module)->weights_follow)
        status = sum_gradients(module->child[0], context, own(module)->group);
    return leave(context, before, status);
}

static const struct sl_module_type own_rows = {.name = "own_rows",
                                               .plan = plan_own,
                                               .forward = own_forward,
                                               .backward_input = own_backward_input,
                                               .backward_weight = own_backward_weight,
                                               .stores = true,
                                               .fuses = true,
                                               .bytes = sizeof(struct rows)};

/* ---- the rows of all coordinates ---- */

/* Counts moves of whole rows of COLUMNS columns; calls have the plan's run of microbatches. */
static void count_moves(const struct rows *rows, int columns, const struct sl_plan *plan) {
    const double numbers = (double)plan->rows * columns, each = 1.0 / (double)sl_plan_run(plan);
    const size_t size = rows->halves ? sizeof(uint16_t) : sizeof(float);
    sl_load_call(plan, SL_LOAD_FORWARD, SL_ALL_GATHER, rows->axis, (double)size * numbers, each);
    if (!plan->forward_only && plan->has_dx)
        sl_load_call(plan, SL_LOAD_INPUT, SL_PSUM_SCATTER, rows->axis, sizeof(float) * numbers, each);
}

/* W gathers a group's x again. */
static void count_again(const struct rows *rows, int columns, const struct sl_plan *plan) {
    const enum sl_dtype saved = sl_reads_operand(&rows->module.x) ? SL_BF16 : plan->storage;
    const double bytes = (double)sl_dtype_size(saved) * (double)plan->rows * columns;
    if (sl_is_kept_for_weight(&rows->module.x))
        sl_load_call(plan, SL_LOAD_WEIGHT, SL_ALL_GATHER, rows->axis, bytes, 1.0 / plan->wgrad_group);
}

static int plan_gathered(struct sl_module *module, struct sl_plan *plan) {
    struct rows *rows = (struct rows *)module;
    const struct sl_module *inner = module->child[0];
    const size_t run = sl_plan_rows(plan), group = (size_t)plan->rows * (size_t)plan->wgrad_group;
    const size_t in = (size_t)inner->in;
    SL_TRY(plan_rows(rows, plan));
    sl_plan_workspace(plan, (run > group ? run : group) * in * sizeof(float), &rows->x);
    if (!plan->forward_only) sl_plan_workspace(plan, run * in * sizeof(float), &rows->dx);
    const int status = sl_module_plan(module->child[0], plan);
    rows->weights_follow = any_follows(inner);
    module->x.lasts = inner->x.lasts;
    module->x.reads = inner->x.reads;
    module->y = inner->y;
    rows->halves = sl_reads_operand(&inner->x) || (plan->storage == SL_BF16 && sl_reads_copy(&inner->x));
    if (status == SL_OK && plan->load) count_moves(rows, inner->in, plan);
    if (status == SL_OK && plan->load) count_again(rows, inner->in, plan);
    return status;
}

/* ALL = the rows of all coordinates, ROWS of COLUMNS columns, from X, in its type. */
static int gather(const struct sl_module *module, struct sl_context *context, int rows, int columns, struct sl_rows x,
                  void *all) {
    const size_t sequence = (size_t)context->sequence, sequences = (size_t)rows / sequence;
    const size_t shape[] = {sequences, sequence / (size_t)own(module)->size, (size_t)columns};
    const struct sl_group *peers = sl_group_of(context, own(module)->group);
    return sl_communicate(context, sl_describe_all_gather_dim(peers, x.type, x.at, all, 3, shape, 1));
}

/* DX = this coordinate's rows of the sum of all coordinates' ALL. */
static int scatter(const struct sl_module *module, struct sl_context *context, int columns, const float *all,
                   float *dx) {
    const size_t sequence = (size_t)context->sequence;
    const size_t shape[] = {(size_t)context->rows / sequence, sequence, (size_t)columns};
    const struct sl_group *peers = sl_group_of(context, own(module)->group);
    return sl_communicate(context, sl_describe_shares_of_sum(false, peers, all, dx, 3, shape, 1));
}

static int gathered_forward(const struct sl_module *module, struct sl_context *context, struct sl_given x,
                            struct sl_result *y) {
    const struct sl_rows read = own(module)->halves ? sl_rows_bf16(x.halves) : sl_rows_f32(x.floats);
    void *all = sl_at(context, &own(module)->x);
    SL_TRY(gather(module, context, context->rows, module->child[0]->in, read, all));
    return sl_module_forward_last(module->child[0], context, sl_given_of(sl_rows_of(read.type, all)), y);
}

/* Sets *X, ROWS saved rows of this coordinate, to those of all, which are gathered only if GATHERS. */
static int all_of(const struct sl_module *module, struct sl_context *context, bool gathers, int rows,
                  struct sl_given *x) {
    const struct sl_rows saved = sl_given_rows(*x);
    void *all = sl_at(context, &own(module)->x);
    if (!sl_given_exists(*x)) return SL_OK;
    *x = sl_given_of(sl_rows_of(saved.type, all));
    return gathers ? gather(module, context, rows, module->child[0]->in, saved, all) : SL_OK;
}

static int gathered_backward_input(const struct sl_module *module, struct sl_context *context, struct sl_given x,
                                   struct sl_given dy, struct sl_result *dx) {
    struct sl_result whole = {.floats = dx ? sl_at(context, &own(module)->dx) : NULL};
    SL_TRY(all_of(module, context, own(module)->weights_follow, context->rows, &x));
    SL_TRY(sl_module_backward_input(module->child[0], context, x, dy, dx ? &whole : NULL));
    return dx ? scatter(module, context, module->child[0]->in, whole.floats, dx->floats) : SL_OK;
}

static int gathered_backward_weight(const struct sl_module *module, struct sl_context *context, struct sl_given x,
                                    struct sl_given dy) {
    SL_TRY(all_of(module, context, !own(module)->weights_follow, context->rows * context->wgrad_group, &x));
    return sl_module_backward_weight(module->child[0], context, x, dy);
}

static const struct sl_module_type gathered_rows = {.name = "gathered_rows",
                                                    .plan = plan_gathered,
                                                    .forward = gathered_forward,
                                                    .backward_input = gathered_backward_input,
                                                    .backward_weight = gathered_backward_weight,
                                                    .stores = true,
                                                    .fuses = true,
                                                    .bytes = sizeof(struct rows)};

/* ---- from a coordinate's rows to those of all ---- */

static int plan_all(struct sl_module *module, struct sl_plan *plan) {
    SL_TRY(plan_rows((struct rows *)module, plan));
    if (plan->load) count_moves(own(module), module->out, plan);
    return sl_plan_keeps_nothing(module, plan);
}

static int all_forward(const struct sl_module *module, struct sl_context *context, struct sl_given x,
                       struct sl_result *y) {
    return gather(module, context, context->rows, module->out, sl_rows_f32(x.floats), y->floats);
}

static int all_backward_input(const struct sl_module *module, struct sl_context *context, struct sl_given x,
                              struct sl_given dy, struct sl_result *dx) {
    (void)x;
    return dx ? scatter(module, context, module->out, dy.floats, dx->floats) : SL_OK;
}

static const struct sl_module_type all_rows = {.name = "all_rows",
                                               .plan = plan_all,
                                               .forward = all_forward,
                                               .backward_input = all_backward_input,
                                               .stores = true,
                                               .fuses = true,
                                               .bytes = sizeof(struct rows)};

/* ---- construction ---- */

/* INNER in a parent of TYPE; by columns INNER itself. */
static struct sl_module *new_parent(const struct sl_module_type *type, int in, int out, struct sl_module *inner,
                                    const struct sl_channels *channels, int parts) {
    if (!inner || !sl_channels_by_rows(channels)) return inner;
    struct sl_module *module = sl_module_new_parent(type, "", in, out, 1, &inner);
    if (!module) return NULL;
    ((struct rows *)module)->axis = channels->axis;
    ((struct rows *)module)->parts = parts;
    return module;
}

struct sl_module *sl_own_rows(struct sl_module *inner, const struct sl_channels *channels) {
    const int size = sl_mesh_axis_size(channels->mesh, channels->axis);
    return inner ? new_parent(&own_rows, inner->in / size, inner->out / size, inner, channels, size) : NULL;
}

struct sl_module *sl_summed_gradients(struct sl_module *inner, const struct sl_channels *channels) {
    return inner ? new_parent(&own_rows, inner->in, inner->out, inner, channels, 1) : NULL;
}

struct sl_module *sl_gathered_rows(struct sl_module *inner, const struct sl_channels *channels) {
    const int size = sl_mesh_axis_size(channels->mesh, channels->axis);
    return inner ? new_parent(&gathered_rows, inner->in / size, inner->out, inner, channels, size) : NULL;
}

struct sl_module *sl_all_rows(int columns, const struct sl_channels *channels) {
    struct sl_module *module =
        sl_module_new(&all_rows, "", columns / sl_mesh_axis_size(channels->mesh, channels->axis), columns);
    if (module) ((struct rows *)module)->axis = channels->axis;
    return module;
}
