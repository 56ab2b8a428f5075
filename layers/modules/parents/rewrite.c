/* rewrite.c - the rules of fusions, and the modules that they make. */
#include "layers/modules/parents/rewrite.h"

#include <string.h>

#include "layers/modules/feedforward/sharded_dense_internal.h"
#include "layers/modules/kept.h"
#include "layers/modules/modules.h"

/* ---- a gelu between two products, which compute it ---- */

enum { UP, GELU, DOWN };

/* The gelu module is not called. Its x, its y and the gradient of its x exist only as bf16; its dy is never stored. */
struct gelu_products {
    struct sl_module module;
    struct sl_kept x, y, dx; /* of the gelu, [rows, columns] */
};

static const struct gelu_products *fused(const struct sl_module *module) {
    return (const struct gelu_products *)module;
}

/* Returns whether three conditions hold: the product before the gelu can also compute the gelu; the input gradient of
 * the product behind it can also compute the gelu's gradient; and no other reader needs floats. In a forward-only plan
 * the second condition is any reader of bf16 behind the gelu. */
static bool are_gelu_products(struct sl_module *const *child, const struct sl_plan *plan) {
    const struct sl_products *up = sl_sharded_dense_products(child[UP]), *down = sl_sharded_dense_products(child[DOWN]);
    if (!sl_is_gelu(child[GELU]) || !up || !sl_products_fuse_gelus(up, plan)) return false;
    if (plan->forward_only) return sl_reads_copy(&child[DOWN]->x);
    if (!down || !sl_products_fuse_gelus(down, plan) || !sl_is_kept(&child[DOWN]->x)) return false;
    if (plan->storage == SL_F32) return sl_reads_operand(&child[DOWN]->x) && sl_reads_operand(&child[UP]->y);
    return sl_is_kept(&child[UP]->y) || sl_reads_stored_gradient(plan, child[UP]);
}

/* Plans an array that exists only as bf16. The address of its floats is the same, and floats are not written. */
static int plan_halves(struct sl_module *module, struct sl_plan *plan, bool outlasts, enum sl_lifetime lifetime,
                       struct sl_kept *kept) {
    const size_t count = (size_t)plan->rows * (size_t)module->child[UP]->out;
    SL_TRY(sl_plan_operand(plan, count, outlasts, lifetime, kept));
    if (!outlasts) sl_plan_kept_room(plan, kept);
    kept->values = kept->stored;
    kept->form = SL_ALONE;
    return SL_OK;
}

static int plan_gelu_products(struct sl_module *module, struct sl_plan *plan) {
    struct gelu_products *made = (struct gelu_products *)module;
    const bool saves = !plan->forward_only;
    SL_TRY(plan_halves(module, plan, saves, SL_UNTIL_INPUT, &made->x));
    SL_TRY(plan_halves(module, plan, saves, SL_UNTIL_WEIGHT, &made->y));
    SL_TRY(sl_products_plan_gelu(sl_sharded_dense_products(module->child[UP]), plan));
    if (!saves) return SL_OK;
    SL_TRY(plan_halves(module, plan, sl_is_kept(&module->child[UP]->y), SL_FROM_INPUT, &made->dx));
    return sl_products_plan_slope(sl_sharded_dense_products(module->child[DOWN]), plan);
}

/* KEPT as a product's result; forward writes the gelu's x, and I reads it. */
static struct sl_result ask(const struct sl_module *module, const struct sl_context *context,
                            const struct sl_kept *kept) {
    struct sl_result result = sl_kept_result(context, kept);
    result.gelu = sl_kept_halves(context, &fused(module)->x);
    return result;
}

static int gelu_forward(const struct sl_module *module, struct sl_context *context, struct sl_given x,
                        struct sl_result *y) {
    struct sl_result inner = ask(module, context, &fused(module)->y);
    SL_TRY(sl_module_forward(module->child[UP], context, x, &inner));
    return sl_module_forward_last(module->child[DOWN], context, sl_kept_given(context, &fused(module)->y), y);
}

static int gelu_backward_input(const struct sl_module *module, struct sl_context *context, struct sl_given x,
                               struct sl_given dy, struct sl_result *dx) {
    struct sl_result inner = ask(module, context, &fused(module)->dx);
    SL_TRY(
        sl_module_backward_input(module->child[DOWN], context, sl_kept_saved(context, &fused(module)->y), dy, &inner));
    return sl_module_backward_input(module->child[UP], context, x, sl_kept_given(context, &fused(module)->dx), dx);
}

static int gelu_backward_weight(const struct sl_module *module, struct sl_context *context, struct sl_given x,
                                struct sl_given dy) {
    SL_TRY(sl_backward_weight_groups(module->child[UP], context, x, sl_kept_saved(context, &fused(module)->dx)));
    return sl_backward_weight_groups(module->child[DOWN], context, sl_kept_saved(context, &fused(module)->y), dy);
}

static const struct sl_module_type gelu_products = {.name = "gelu_products",
                                                    .forward = gelu_forward,
                                                    .backward_input = gelu_backward_input,
                                                    .backward_weight = gelu_backward_weight,
                                                    .stores = true,
                                                    .fuses = true,
                                                    .bytes = sizeof(struct gelu_products)};

/* ---- residual connections ---- */

/* A product adds x before its bias; a separate pass adds it after the bias. With leaves, bits must not depend on the
 * number of leaves per coordinate, so separate passes add. */
bool sl_rewrite_sums(const struct sl_plan *plan) {
    return !plan->no_rewrite && sl_gemm_adds(plan->gemm) && !plan->leaf_axis;
}

/* ---- the rules ---- */

static const struct rule {
    const struct sl_module_type *made;
    int children; /* neighbours that it replaces */
    bool (*holds)(struct sl_module *const *child, const struct sl_plan *plan);
    int (*plan)(struct sl_module *made, struct sl_plan *plan);
} rules[] = {{&gelu_products, 3, are_gelu_products, plan_gelu_products}};

enum { RULES = sizeof rules / sizeof *rules };

/* Replaces the children from FIRST on by one module that owns them. */
static int replace(struct sl_module *module, struct sl_plan *plan, const struct rule *rule, int first) {
    struct sl_module **child = module->child + first;
    const int rest = module->children - first - rule->children;
    const struct sl_module *head = child[0], *last = child[rule->children - 1];
    struct sl_module *made = sl_module_new_parent(rule->made, "", head->in, last->out, rule->children, child);
    if (made) {
        memcpy(made->called, head->called, sizeof made->called);
        made->x = head->x;
        made->y = last->y;
        made->follower_dy = SL_F32;
    }
    *child = made;
    memmove(child + (made != NULL), child + rule->children, (size_t)rest * sizeof *child);
    module->children = first + (made != NULL) + rest;
    return made ? rule->plan(made, plan) : sl_error_set(plan->error, SL_FAILED, "no memory to fuse modules");
}

/* Models look for layers among the children of sequences (is_layer), so these stay there. */
static bool applies(const struct rule *rule, struct sl_module *const *child, const struct sl_plan *plan) {
    for (int i = 0; i < rule->children; i++)
        if (child[i]->is_layer) return false;
    return rule->holds(child, plan);
}

int sl_rewrite(struct sl_module *module, struct sl_plan *plan) {
    for (int r = 0; r < RULES && !plan->no_rewrite; r++)
        for (int i = 0; i + rules[r].children <= module->children; i++)
            if (applies(&rules[r], module->child + i, plan)) SL_TRY(replace(module, plan, &rules[r], i));
    return SL_OK;
}

static bool is_made(const struct sl_module *module) {
    for (int r = 0; r < RULES; r++)
        if (module->type == rules[r].made) return true;
    return false;
}

void sl_rewrite_undo(struct sl_module *module) {
    for (int i = 0; i < module->children; i++) {
        struct sl_module *made = module->child[i], **child = module->child + i;
        if (!is_made(made)) continue;
        memmove(child + made->children, child + 1, (size_t)(module->children - i - 1) * sizeof *child);
        memcpy(child, made->child, (size_t)made->children * sizeof *child);
        module->children += made->children - 1;
        made->children = 0;
        sl_module_free(made);
    }
}
