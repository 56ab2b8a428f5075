/* gated_mlp.c - y = (silu(x gate) * (x up)) down (Shazeer, "GLU variants improve transformer", 2020); its inner columns
 * are sharded over an axis. */
#include "layers/modules/edges.h"
#include "layers/modules/share.h"
#include "layers/modules/transformer_modules.h"

enum { GATE, UP, DOWN, CHILDREN, READERS = DOWN };

/* Arrays [rows, columns] between the children. */
enum tensor {
    GATES, /* y of child GATE */
    UPS,   /* y of child UP */
    INSIDE,
    D_GATES,
    D_UPS,
    PART, /* gradient of INSIDE, then UP's part of dx */
    TENSORS
};

struct gated_mlp {
    struct sl_module module;
    size_t columns; /* inner columns on this coordinate */
    struct sl_kept kept[TENSORS];
};

static const struct sl_kept *kept_of(const struct sl_module *module, enum tensor tensor) {
    return &((const struct gated_mlp *)module)->kept[tensor];
}

static float *at(const struct sl_module *module, const struct sl_context *context, enum tensor tensor) {
    return sl_kept_values(context, kept_of(module, tensor));
}

static size_t elements(const struct sl_module *module, const struct sl_context *context) {
    return (size_t)context->rows * ((const struct gated_mlp *)module)->columns;
}

/* ---- planning ---- */

static int plan_tensor(struct sl_module *module, struct sl_plan *plan, enum tensor tensor, size_t columns,
                       enum sl_lifetime lifetime) {
    return sl_plan_kept(plan, (size_t)plan->rows * columns, lifetime, &((struct gated_mlp *)module)->kept[tensor]);
}

static int plan_backward(struct sl_module *module, struct sl_plan *plan) {
    const size_t columns = ((struct gated_mlp *)module)->columns, in = (size_t)module->in;
    for (int i = GATE; i <= UP; i++) {
        SL_TRY(sl_plan_kept_gradient(plan, module->child[i], (size_t)plan->rows * columns,
                                     sl_gemm_leaves_bf16(plan->gemm) ? SL_ALONE : SL_ROUNDED,
                                     &((struct gated_mlp *)module)->kept[D_GATES + i]));
    }
    struct sl_kept *gates = &((struct gated_mlp *)module)->kept[D_GATES], *ups = gates + 1;
    if ((gates->form == SL_ALONE) != (ups->form == SL_ALONE)) /* one kernel writes both */
        (gates->form == SL_ALONE ? gates : ups)->form = SL_ROUNDED;
    return plan_tensor(module, plan, PART, in > columns ? in : columns, SL_UNTIL_RETURN);
}

static int plan(struct sl_module *module, struct sl_plan *plan) {
    const size_t begin = plan->workspace, columns = ((struct gated_mlp *)module)->columns;
    for (int i = 0; i < CHILDREN; i++) SL_TRY(sl_plan_child(plan, module->child[i], begin));
    sl_readers_plan(module, READERS);
    module->x.writes = SL_WRITES_ASKED;
    module->y = module->child[DOWN]->y;
    const double count = (double)plan->rows * (double)columns;
    sl_load_floats(plan, SL_LOAD_FORWARD, SL_LOAD_GELU, count);
    if (!plan->forward_only) sl_load_floats(plan, SL_LOAD_INPUT, SL_LOAD_GELU, 2 * count);
    SL_TRY(plan_tensor(module, plan, GATES, columns, SL_UNTIL_INPUT));
    SL_TRY(plan_tensor(module, plan, UPS, columns, SL_UNTIL_INPUT));
    struct sl_kept *inside = &((struct gated_mlp *)module)->kept[INSIDE];
    SL_TRY(sl_plan_kept_input(plan, module->child[DOWN], (size_t)plan->rows * columns, module->child[DOWN]->x.lasts,
                              SL_ROUNDED, inside));
    if (sl_reads_stored(plan, module->child[DOWN])) sl_plan_kept_room(plan, inside);
    if (sl_gemm_leaves_bf16(plan->gemm)) sl_plan_reader(inside, &module->child[DOWN]->x);
    return plan->forward_only ? SL_OK : plan_backward(module, plan);
}

/* ---- forward and backward ---- */

struct gates {
    const struct sl_published_kernels *kernels;
    struct sl_out tensor[INSIDE + 1];
};

static void gate(const void *arg, size_t first, size_t end) {
    const struct gates *g = arg;
    g->kernels->gate_forward(end - first, sl_out_from(g->tensor[GATES], first), sl_out_from(g->tensor[UPS], first),
                             sl_out_from(g->tensor[INSIDE], first));
}

static int forward(const struct sl_module *module, struct sl_context *context, struct sl_given x, struct sl_result *y) {
    struct gates gates = {.kernels = context->kernels->published};
    for (int i = GATE; i <= UP; i++)
        SL_TRY(sl_forward_kept(module->child[i], context, x, kept_of(module, (enum tensor)i), &gates.tensor[i]));
    gates.tensor[INSIDE] = sl_kept_out(context, kept_of(module, INSIDE));
    sl_share(context, elements(module, context), 1, gate, &gates);
    return sl_module_forward_last(module->child[DOWN], context, sl_kept_given(context, kept_of(module, INSIDE)), y);
}

/* TENSOR as an earlier call has saved it. */
static struct sl_given saved(const struct sl_module *module, const struct sl_context *context, enum tensor tensor) {
    return sl_kept_saved(context, kept_of(module, tensor));
}

static int backward_input(const struct sl_module *module, struct sl_context *context, struct sl_given x,
                          struct sl_given dy, struct sl_result *dx) {
    float *part = at(module, context, PART);
    SL_TRY(sl_module_backward_input(module->child[DOWN], context, saved(module, context, INSIDE), dy, SL_INTO(part)));
    context->kernels->published->gate_backward(elements(module, context), sl_given_rows(saved(module, context, GATES)),
                                               sl_given_rows(saved(module, context, UPS)), part,
                                               sl_kept_out(context, kept_of(module, D_GATES)),
                                               sl_kept_out(context, kept_of(module, D_UPS)));
    return sl_readers_backward_input(module, context, READERS, x, kept_of(module, D_GATES), part, dx);
}

static int backward_weight(const struct sl_module *module, struct sl_context *context, struct sl_given x,
                           struct sl_given dy) {
    for (int i = GATE; i <= UP; i++)
        SL_TRY(sl_backward_weight_groups(module->child[i], context, x,
                                         saved(module, context, (enum tensor)(D_GATES + i))));
    return sl_backward_weight_groups(module->child[DOWN], context, saved(module, context, INSIDE), dy);
}

static const struct sl_module_type type = {.name = "gated_mlp",
                                           .plan = plan,
                                           .forward = forward,
                                           .backward_input = backward_input,
                                           .backward_weight = backward_weight,
                                           .stores = true,
                                           .fuses = true,
                                           .bytes = sizeof(struct gated_mlp)};

/* ---- construction ---- */

struct sl_module *sl_gated_mlp(const char *name, int dimension, int inside, bool biases,
                               const struct sl_channels *channels) {
    const int size = sl_mesh_axis_size(channels->mesh, channels->axis), share = dimension / size;
    const int in = sl_channels_by_rows(channels) ? dimension : share;
    struct sl_module *const child[CHILDREN] = {[GATE] = sl_first_dense("gate", dimension, inside, 1, biases, channels),
                                               [UP] = sl_first_dense("up", dimension, inside, 1, biases, channels),
                                               [DOWN] = sl_last_dense("down", inside, dimension, biases, channels)};
    struct sl_module *module = sl_module_new_parent(&type, name, in, share, CHILDREN, child);
    if (module) ((struct gated_mlp *)module)->columns = (size_t)(inside / size);
    return sl_gathered_rows(module, channels);
}
