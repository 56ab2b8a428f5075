/* shared_rows.c - parents for tensor layout rows, in which coordinates along an axis have shares of the rows of each
 * sequence (sequence parallelism: Korthikanti et al. 2022): own_rows calls its child for a coordinate's share,
 * gathered_rows for the rows of all coordinates.
 *
 * Both ends of either parent have the elements of plan->rows rows of module->in columns, as by columns. */
#include "layers/modules/kept.h"
#include "layers/modules/sharded_channels.h"
#include "layers/modules/transformer_modules.h"

struct rows {
    struct sl_module module;
    const char *axis;
    int group, size;
    bool weights_follow;   /* some W inside follows its I */
    struct sl_place x, dx; /* of gathered_rows, of all coordinates' rows: x in its saved type, and the summand of dx */
};

static const struct rows *own(const struct sl_module *module) { return (const struct rows *)module; }

static int plan_rows(struct rows *rows, struct sl_plan *plan) {
    rows->size = sl_mesh_axis_size(plan->mesh, rows->axis);
    SL_TRY(sl_plan_share_rows(plan, rows->axis));
    return sl_plan_group(plan, rows->axis, &rows->group);
}

static void copy_uses(struct sl_module *module) {
    module->x = module->child[0]->x;
    module->y = module->child[0]->y;
}

/* ---- a coordinate's own rows ---- */

static int plan_own(struct sl_module *module, struct sl_plan *plan) {
    const int rows = plan->rows, sequence = plan->sequence;
    SL_TRY(plan_rows((struct rows *)module, plan));
    plan->rows /= own(module)->size;
    plan->sequence /= own(module)->size;
    const int status = sl_module_plan(module->child[0], plan);
    plan->rows = rows;
    plan->sequence = sequence;
    copy_uses(module);
    return status;
}

/* What a call for a coordinate's rows changes in the context, before and after it. */
struct whole {
    int rows, sequence;
    struct sl_dropout_source dropout;
};

static struct whole enter(const struct sl_module *module, struct sl_context *context) {
    const struct whole whole = {context->rows, context->sequence, context->dropout};
    context->rows /= own(module)->size;
    context->sequence /= own(module)->size;
    context->dropout.parts = own(module)->size;
    context->dropout.first_row += (uint32_t)(context->sequence * sl_group_of(context, own(module)->group)->rank);
    return whole;
}

static int leave(struct sl_context *context, struct whole whole, int status) {
    context->rows = whole.rows;
    context->sequence = whole.sequence;
    context->dropout = whole.dropout;
    return status;
}

static int own_forward(const struct sl_module *module, struct sl_context *context, const float *x, float *y) {
    const struct whole whole = enter(module, context);
    return leave(context, whole, sl_module_forward_last(module->child[0], context, x, y));
}

static int own_backward_input(const struct sl_module *module, struct sl_context *context, const float *x,
                              const float *dy, float *dx) {
    const struct whole whole = enter(module, context);
    return leave(context, whole, sl_module_backward_input(module->child[0], context, x, dy, dx));
}

static int own_backward_weight(const struct sl_module *module, struct sl_context *context, const float *x,
                               const float *dy) {
    const struct whole whole = enter(module, context);
    return leave(context, whole, sl_module_backward_weight(module->child[0], context, x, dy));
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

static bool any_follows(const struct sl_module *module) {
    bool follows = module->weights_follow;
    for (int i = 0; i < module->children; i++) follows = follows || any_follows(module->child[i]);
    return follows;
}

/* Bytes of whole rows of a microbatch; calls have RUN of them, or a group of weight gradients. */
static void count(const struct rows *rows, const struct sl_plan *plan) {
    const double floats = (double)plan->rows * rows->module.child[0]->in, each = 1.0 / (double)sl_plan_run(plan);
    const double saved = floats * (double)sl_dtype_size(plan->storage), group = plan->wgrad_group;
    sl_load_call(plan, SL_LOAD_FORWARD, SL_ALL_GATHER, rows->axis, sizeof(float) * floats, each);
    if (plan->forward_only) return;
    if (plan->has_dx) sl_load_call(plan, SL_LOAD_INPUT, SL_PSUM_SCATTER, rows->axis, sizeof(float) * floats, each);
    if (sl_is_kept_for_weight(&rows->module.x))
        sl_load_call(plan, SL_LOAD_WEIGHT, SL_ALL_GATHER, rows->axis, saved, 1 / group);
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
    module->y = inner->y;
    if (status == SL_OK && plan->load) count(rows, plan);
    return status;
}

/* Sets *ALL to the rows of all coordinates, ROWS in all, from X, which is of TYPE. */
static int gather(const struct sl_module *module, struct sl_context *context, int rows, enum sl_dtype type,
                  const void *x, void **all) {
    const size_t sequence = (size_t)context->sequence;
    const size_t shape[] = {(size_t)rows / sequence, sequence / (size_t)own(module)->size,
                            (size_t)module->child[0]->in};
    const struct sl_group *peers = sl_group_of(context, own(module)->group);
    *all = sl_at(context, &own(module)->x);
    return sl_communicate(context, sl_describe_all_gather_dim(peers, type, x, *all, 3, shape, 1));
}

static int scatter(const struct sl_module *module, struct sl_context *context, const float *all, float *dx) {
    const size_t rows = (size_t)context->rows, sequence = (size_t)context->sequence;
    const size_t shape[] = {rows / sequence, sequence, (size_t)module->child[0]->in};
    const struct sl_group *peers = sl_group_of(context, own(module)->group);
    return sl_communicate(context, sl_describe_shares_of_sum(false, peers, all, dx, 3, shape, 1));
}

static int gathered_forward(const struct sl_module *module, struct sl_context *context, const float *x, float *y) {
    const struct sl_rounded rounded = context->rounded;
    void *all;
    SL_TRY(gather(module, context, context->rows, SL_F32, x, &all));
    context->rounded = (struct sl_rounded){0};
    const int status = sl_module_forward_last(module->child[0], context, all, y);
    context->rounded = rounded;
    return status;
}

static int gathered_backward_input(const struct sl_module *module, struct sl_context *context, const float *x,
                                   const float *dy, float *dx) {
    float *whole = dx ? sl_at(context, &own(module)->dx) : NULL;
    void *all = x ? sl_at(context, &own(module)->x) : NULL;
    if (x && own(module)->weights_follow) SL_TRY(gather(module, context, context->rows, context->saved.x, x, &all));
    SL_TRY(sl_module_backward_input(module->child[0], context, all, dy, whole));
    return dx ? scatter(module, context, whole, dx) : SL_OK;
}

static int gathered_backward_weight(const struct sl_module *module, struct sl_context *context, const float *x,
                                    const float *dy) {
    void *all = x ? sl_at(context, &own(module)->x) : NULL;
    if (x && !own(module)->weights_follow)
        SL_TRY(gather(module, context, context->rows * context->wgrad_group, context->saved.x, x, &all));
    return sl_module_backward_weight(module->child[0], context, all, dy);
}

static const struct sl_module_type gathered_rows = {.name = "gathered_rows",
                                                    .plan = plan_gathered,
                                                    .forward = gathered_forward,
                                                    .backward_input = gathered_backward_input,
                                                    .backward_weight = gathered_backward_weight,
                                                    .stores = true,
                                                    .fuses = true,
                                                    .bytes = sizeof(struct rows)};

/* ---- construction ---- */

static struct sl_module *new_rows(const struct sl_module_type *type, int in, int out, struct sl_module *inner,
                                  const struct sl_channels *channels) {
    if (!inner || !sl_channels_by_rows(channels)) return inner;
    struct sl_module *module = sl_module_new_parent(type, "", in, out, 1, &inner);
    if (module) ((struct rows *)module)->axis = channels->axis;
    return module;
}

struct sl_module *sl_own_rows(struct sl_module *inner, const struct sl_channels *channels) {
    const int size = sl_mesh_axis_size(channels->mesh, channels->axis);
    return inner ? new_rows(&own_rows, inner->in / size, inner->out / size, inner, channels) : NULL;
}

struct sl_module *sl_gathered_rows(struct sl_module *inner, const struct sl_channels *channels) {
    const int size = sl_mesh_axis_size(channels->mesh, channels->axis);
    return inner ? new_rows(&gathered_rows, inner->in / size, inner->out, inner, channels) : NULL;
}
