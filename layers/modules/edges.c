/* edges.c - plans the arrays between neighbours in a sequence of modules, and calls the modules with them. */
#include "layers/modules/edges.h"

/* ---- planning ---- */

/* Returns whether child I + 1 may write its dx over its x. A parent may not: two of its children may read x. */
static bool shares_place(const struct sl_module *module, int i) {
    const struct sl_module *after = module->child[i + 1];
    return !after->children && after->x.lasts == SL_UNTIL_DX && sl_is_kept(&module->child[i]->y);
}

/* Plans the saved arrays of edge I, of SIZE elements; its other arrays lie in a buffer. If the storage is float32,
 * saved floats lie in the stash, except for operands. */
static int plan_saved(const struct sl_module *module, struct sl_plan *plan, int i, size_t size, struct sl_edge *edge) {
    static const struct sl_place none = {0};
    const struct sl_use *y = &module->child[i]->y, *x = &module->child[i + 1]->x;
    const bool shares = shares_place(module, i); /* and the gradient lasts until W */
    *edge = (struct sl_edge){0};
    edge->activation.form = edge->gradient.form = plan->storage == SL_F32 ? SL_WHOLE : SL_ROUNDED;
    edge->activation.count = edge->gradient.count = size;
    if (sl_reads_operand(x))
        SL_TRY(sl_plan_operand(plan, size, true, SL_UNTIL_WEIGHT, &edge->activation));
    else if (sl_is_kept(x))
        SL_TRY(sl_plan_kept_at(plan, &none, size, shares ? SL_UNTIL_WEIGHT : x->lasts, &edge->activation));
    if (sl_reads_operand(y)) return sl_plan_operand(plan, size, sl_is_kept(y), SL_FROM_INPUT, &edge->gradient);
    if (shares)
        edge->gradient = edge->activation;
    else if (sl_is_kept(y))
        return sl_plan_kept_at(plan, &none, size, y->lasts, &edge->gradient);
    return SL_OK;
}

/* Returns whether child I reads its dy both as floats and as an operand, and child I + 1 can write both. */
static bool reads_both(const struct sl_module *module, int i) {
    return module->child[i]->y.reads == SL_READS_BOTH && module->child[i + 1]->x.writes == SL_WRITES_BOTH;
}

/* Returns whether child I itself rounds dy, unless child I + 1 writes only bf16. */
static bool may_round(const struct sl_module *module, int i) {
    const enum sl_reading reads = module->child[i]->y.reads;
    return reads == SL_READS_WHOLE || reads == SL_READS_EITHER;
}

/* Returns whether the workspace has a bf16 copy of child I's dy. A child that rounds floats while it reads them needs
 * no such copy. */
static bool stores_gradient_beside(const struct sl_module *module, const struct sl_plan *plan, int i) {
    const struct sl_module *child = module->child[i];
    if (may_round(module, i) && module->child[i + 1]->x.writes < SL_WRITES_BF16) return false;
    return sl_reads_stored_gradient(plan, child) || (sl_reads_operand(&child->y) && !sl_is_kept(&child->y)) ||
           reads_both(module, i);
}

/* Returns whether the workspace has a bf16 copy of child I + 1's x. */
static bool stores_beside(const struct sl_module *module, const struct sl_plan *plan, int i) {
    const struct sl_module *after = module->child[i + 1];
    if (plan->forward_only) return sl_reads_stored(plan, after);
    return plan->storage != SL_F32 && plan->precision == SL_BF16 && sl_reads_copy(&after->x) && !sl_is_kept(&after->x);
}

/* Places the unsaved arrays of the edges in the workspace. */
static void plan_buffers(const struct sl_module *module, struct sl_plan *plan, struct sl_edge *edge) {
    const int count = module->children - 1;
    size_t columns[2] = {0, 0}, stored[2] = {0, 0};
    struct sl_place buffer[2], room[2];
    for (int i = 0; i < count; i++) {
        const size_t width = (size_t)module->child[i]->out;
        const bool stashed = edge[i].activation.values.stashed && edge[i].gradient.values.stashed;
        const bool beside = stores_gradient_beside(module, plan, i) || stores_beside(module, plan, i);
        if (!stashed && width > columns[i % 2]) columns[i % 2] = width;
        if (beside && width > stored[i % 2]) stored[i % 2] = width;
    }
    for (int i = 0; i < 2; i++) {
        sl_plan_workspace(plan, sl_plan_rows(plan) * columns[i] * sizeof(float), &buffer[i]);
        sl_plan_workspace(plan, sl_plan_rows(plan) * stored[i] * sizeof(uint16_t), &room[i]);
    }
    for (int i = 0; i < count; i++) {
        if (!edge[i].activation.values.stashed) edge[i].activation.values = buffer[i % 2];
        if (!edge[i].gradient.values.stashed) edge[i].gradient.values = buffer[i % 2];
        if (stores_gradient_beside(module, plan, i)) sl_plan_kept_beside(&edge[i].gradient, &room[i % 2]);
        if (reads_both(module, i)) edge[i].gradient.form = SL_BESIDE;
        if (stores_beside(module, plan, i)) sl_plan_kept_beside(&edge[i].activation, &room[i % 2]);
    }
}

/* Settles which child rounds each array at the two ends of child I, and which floats have no reader. If the reader
 * rounds, the writer leaves floats unrounded. */
static void settle_child(const struct sl_module *module, const struct sl_plan *plan, struct sl_edge *edge, int i) {
    const struct sl_module *child = module->child[i];
    const bool halves = plan->storage != SL_F32;
    const bool first = i == 0, last = i == module->children - 1;
    struct sl_kept *x = first ? NULL : &edge[i - 1].activation, *dx = first ? NULL : &edge[i - 1].gradient;
    struct sl_kept *y = last ? NULL : &edge[i].activation, *dy = last ? NULL : &edge[i].gradient;
    const bool whole = halves && child->x.reads == SL_READS_WHOLE && child->children == 0 && x && y;
    if (whole && x->stores && y->stores && y->form != SL_OPEN) x->form = SL_OPEN;
    if (whole && sl_kept_outlasts(x) && dx->stores && !dy->stores) dy->form = SL_WHOLE;
    if (dy && may_round(module, i) && !dy->stores) dy->form = SL_WHOLE;
    if (x) sl_plan_reader(x, &child->x);
    if (dy && !reads_both(module, i)) sl_plan_reader(dy, &child->y);
}

int sl_edges_settle(const struct sl_module *module, struct sl_plan *plan, struct sl_edge *edge) {
    for (int i = 0; i < module->children - 1; i++)
        SL_TRY(plan_saved(module, plan, i, (size_t)plan->rows * (size_t)module->child[i]->out, &edge[i]));
    plan_buffers(module, plan, edge);
    for (int i = module->children - 1; i >= 0; i--) settle_child(module, plan, edge, i);
    return SL_OK;
}

/* ---- calls ---- */

static bool is_last(const struct sl_module *module, int i) { return i == module->children - 1; }

int sl_edges_forward(const struct sl_module *module, struct sl_context *context, const struct sl_edge *edge, int i,
                     struct sl_given x, struct sl_result *y) {
    if (i > 0) x = sl_kept_given(context, &edge[i - 1].activation);
    if (is_last(module, i)) return sl_module_forward_last(module->child[i], context, x, y);
    return sl_forward_kept(module->child[i], context, x, &edge[i].activation, NULL);
}

int sl_edges_backward_input(const struct sl_module *module, struct sl_context *context, const struct sl_edge *edge,
                            int i, struct sl_given x, struct sl_given dy, struct sl_result *dx) {
    struct sl_result inner;
    if (!is_last(module, i)) dy = sl_kept_given(context, &edge[i].gradient);
    if (i > 0) {
        x = sl_kept_saved(context, &edge[i - 1].activation);
        inner = sl_kept_result(context, &edge[i - 1].gradient);
        dx = &inner;
    }
    return sl_module_backward_input(module->child[i], context, x, dy, dx);
}

int sl_edges_backward_weight(const struct sl_module *module, struct sl_context *context, const struct sl_edge *edge,
                             int i, struct sl_given x, struct sl_given dy) {
    if (i > 0) x = sl_kept_saved(context, &edge[i - 1].activation);
    if (!is_last(module, i)) dy = sl_kept_saved(context, &edge[i].gradient);
    return sl_backward_weight_groups(module->child[i], context, x, dy);
}

/* ---- readers ---- */

/* Some readers may be frozen. */
void sl_readers_plan(struct sl_module *module, int count) {
    bool operand = true;
    module->x.lasts = SL_UNTIL_RETURN;
    for (int i = 0; i < count; i++) {
        module->x.lasts = sl_longer(module->x.lasts, module->child[i]->x.lasts);
        operand = operand && sl_reads_operand(&module->child[i]->x);
    }
    module->x.reads = operand ? SL_READS_OPERAND : sl_reads_beside(module->child[0]->x.reads);
}

int sl_readers_backward_input(const struct sl_module *module, struct sl_context *context, int count, struct sl_given x,
                              const struct sl_kept *gradient, float *part, struct sl_result *dx) {
    const size_t n = sl_module_elements(module, context);
    for (int i = 0; i < count; i++) {
        const struct sl_given dy = sl_kept_given(context, &gradient[i]);
        SL_TRY(sl_module_backward_input(module->child[i], context, x, dy,
                                        dx ? SL_INTO(i == 0 ? dx->floats : part) : NULL));
        if (dx && i > 0) sl_add_result(context, n, part, i < count - 1 ? SL_INTO(dx->floats) : dx);
    }
    return SL_OK;
}
