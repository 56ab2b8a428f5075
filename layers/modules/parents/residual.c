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

/* Prepares the call of the inner module. The call has no result request, because its result is only a part of the sum.
 * An inner module that has added the summand sets the summand's done. */
static void hand_over(const struct sl_module *module, struct sl_context *context, struct sl_summand *summand) {
    context->result = NULL;
    context->summand = ((const struct residual *)module)->hands ? summand : NULL;
}

/* The summand X, with its bf16 copy if the parent has stored one that is not an operand. UNREAD: only the copy
 * exists. */
static struct sl_summand summand_of(const struct sl_module *module, const struct sl_context *context, const float *x,
                                    bool unread) {
    const size_t n = sl_module_elements(module, context);
    const uint16_t *stored = context->storage != SL_F32 ? sl_rounded_rows(context, n, x) : NULL;
    return (struct sl_summand){.x = stored && unread ? NULL : x, .stored = stored, .result = context->result};
}

static int forward(const struct sl_module *module, struct sl_context *context, const float *x, float *y) {
    struct sl_result *const result = context->result;
    struct sl_summand summand = summand_of(module, context, x, sl_reads_copy(&module->x));
    hand_over(module, context, &summand);
    SL_TRY(sl_module_forward_last(module->child[0], context, x, y));
    if (!context->unread && !summand.done) sl_add_result(context, result, sl_module_elements(module, context), x, y);
    return SL_OK;
}

static int backward_input(const struct sl_module *module, struct sl_context *context, const float *x, const float *dy,
                          float *dx) {
    struct sl_result *const result = context->result;
    struct sl_summand summand = summand_of(module, context, dy, sl_reads_copy(&module->y));
    hand_over(module, context, dx ? &summand : NULL);
    SL_TRY(sl_module_backward_input(module->child[0], context, x, dy, dx));
    if (dx && !summand.done) sl_add_result(context, result, sl_module_elements(module, context), dy, dx);
    return SL_OK;
}

static int backward_weight(const struct sl_module *module, struct sl_context *context, const float *x,
                           const float *dy) {
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
