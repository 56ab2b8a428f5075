/* residual.c - y = x + inner(x). */
#include "layers/modules/kept.h"
#include "layers/modules/modules.h"
#include "layers/modules/parents/rewrite.h"

/* A residual connection. If HANDS, on a device, it passes its summand to the inner module: in forward the last product
 * inside, in backward the first norm may add the summand in its own pass. */
struct residual {
    struct sl_module module;
    bool hands;
};

static int plan(struct sl_module *module, struct sl_plan *plan) {
    struct sl_module *inner = module->child[0];
    if (inner->in != inner->out)
        return sl_error_set(plan->error, SL_BAD_INPUT,
                            "%sresidual: the inner module (%s) takes %d columns and gives %d, which cannot be added",
                            plan->name, inner->type->name, inner->in, inner->out);
    SL_TRY(sl_module_plan(inner, plan));
    sl_load_floats(plan, SL_LOAD_FORWARD, SL_LOAD_MOVES, 3.0 * plan->rows * module->in);
    if (!plan->forward_only) sl_load_floats(plan, SL_LOAD_INPUT, SL_LOAD_MOVES, 3.0 * plan->rows * module->in);
    module->x.lasts = inner->x.lasts;
    module->y.lasts = inner->y.lasts;
    const bool hands = sl_rewrite_sums(plan);
    ((struct residual *)module)->hands = hands;
    module->x.writes = module->y.writes = SL_WRITES_ASKED;
    if (hands && inner->y.adds == SL_ADDS_BF16) module->x.reads = sl_reads_beside(inner->x.reads);
    if (hands && inner->x.adds == SL_ADDS_BF16) {
        module->y.reads = sl_reads_beside(inner->y.reads);
        module->x.writes = inner->x.writes;
    }
    if (inner->y.reads >= SL_READS_BOTH) module->y.reads = SL_READS_BOTH;
    return SL_OK;
}

/* The result of the inner module: the sum of Y and summand X if it may add X, otherwise floats. */
static struct sl_result part_of(const struct sl_module *module, struct sl_given x, const struct sl_result *y) {
    struct sl_result sum = {.floats = y->floats};
    if (!((const struct residual *)module)->hands) return sum;
    sum = *y;
    sum.made = SL_ASKED;
    sum.adds = x;
    return sum;
}

/* Adds X to Y unless the inner module, which has written PART, has added it. */
static void add(const struct sl_module *module, const struct sl_context *context, struct sl_given x,
                const struct sl_result *part, struct sl_result *y) {
    if (part->made == SL_MADE)
        y->made = SL_MADE;
    else if (part->made != SL_ADDED)
        sl_add_result(context, sl_module_elements(module, context), x.floats, y);
}

static int forward(const struct sl_module *module, struct sl_context *context, struct sl_given x, struct sl_result *y) {
    struct sl_result part = part_of(module, x, y);
    SL_TRY(sl_module_forward_last(module->child[0], context, x, &part));
    if (!context->unread) add(module, context, x, &part, y);
    return SL_OK;
}

static int backward_input(const struct sl_module *module, struct sl_context *context, struct sl_given x,
                          struct sl_given dy, struct sl_result *dx) {
    if (!dx) return sl_module_backward_input(module->child[0], context, x, dy, NULL);
    struct sl_result part = part_of(module, dy, dx);
    SL_TRY(sl_module_backward_input(module->child[0], context, x, dy, &part));
    add(module, context, dy, &part, dx);
    return SL_OK;
}

static int backward_weight(const struct sl_module *module, struct sl_context *context, struct sl_given x,
                           struct sl_given dy) {
    return sl_module_backward_weight(module->child[0], context, x, dy);
}

static const struct sl_module_type residual = {.name = "residual",
                                               .plan = plan,
                                               .forward = forward,
                                               .backward_input = backward_input,
                                               .backward_weight = backward_weight,
                                               .stores = true,
                                               .fuses = true,
                                               .bytes = sizeof(struct residual)};

struct sl_module *sl_residual(struct sl_module *inner) {
    return sl_module_new_parent(&residual, "", inner ? inner->in : 0, inner ? inner->out : 0, 1, &inner);
}
