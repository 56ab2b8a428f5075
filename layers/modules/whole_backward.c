/* whole_backward.c - lets W follow I module by module, where it may, not stage by stage: then x and dy are still near.
 *
 * What I leaves for W alone lasts until I returns. So it is not in the stash, but in room that one such module takes
 * after another. In a stage whose dx another rank waits for, W comes after that has been sent, as everywhere else. */
#include "layers/modules/transformer_modules.h"

struct whole_backward {
    struct sl_module module;
    bool follows; /* I computes W, too */
};

static const struct whole_backward *own(const struct sl_module *module) {
    return (const struct whole_backward *)module;
}

/* Inside a module that follows itself, or that is computed again, W is up to that one. */
static bool may_follow(const struct sl_plan *plan) {
    return plan->weights_follow && plan->nobody_waits && sl_plan_run(plan) == 1 && !plan->forward_only &&
           !plan->follows && plan->stash != plan->again;
}

static int plan(struct sl_module *module, struct sl_plan *plan) {
    struct sl_module *inner = module->child[0];
    const bool follows = ((struct whole_backward *)module)->follows = may_follow(plan);
    if (follows) {
        plan->follows = true;
        plan->room = 0;
    }
    const int status = sl_module_plan(inner, plan);
    if (follows) plan->follows = false;
    module->keeps_input = inner->keeps_input;
    module->keeps_gradient = inner->keeps_gradient && !follows;
    return status;
}

static int forward(const struct sl_module *module, struct sl_context *context, const float *x, float *y) {
    return sl_module_forward(module->child[0], context, x, y);
}

static int backward_input(const struct sl_module *module, struct sl_context *context, const float *x, const float *dy,
                          float *dx) {
    SL_TRY(sl_module_backward_input(module->child[0], context, x, dy, dx));
    return own(module)->follows ? sl_module_backward_weight_each(module->child[0], context, x, dy) : SL_OK;
}

static int backward_weight(const struct sl_module *module, struct sl_context *context, const float *x,
                           const float *dy) {
    return own(module)->follows ? SL_OK : sl_module_backward_weight(module->child[0], context, x, dy);
}

static const struct sl_module_type type = {.name = "whole_backward",
                                           .plan = plan,
                                           .forward = forward,
                                           .backward_input = backward_input,
                                           .backward_weight = backward_weight,
                                           .fuses = true,
                                           .bytes = sizeof(struct whole_backward)};

struct sl_module *sl_whole_backward(struct sl_module *inner) {
    return sl_module_new_parent(&type, "", inner ? inner->in : 0, inner ? inner->out : 0, 1, &inner);
}
