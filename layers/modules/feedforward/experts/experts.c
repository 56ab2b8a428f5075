/* experts.c - a mixture of experts: routes tokens, sends them to the coordinates of their experts, and back.
 *
 *     x -- router -- gates ---------------------------------------------------------------+
 *     +-- slots -- all_to_all -- taken -- up, gelu, down -- all_to_all -- returned --- combined --+-- y
 *     +-- shared: up, gelu, down -----------------------------------------------------------------+
 *
 * Every coordinate along the channels' axis has all logits of the router, with the same bits. All of them thus choose
 * the same experts, and each routes its own columns. If sums over this axis add leaves (layers/modules/leaves.h), the
 * router's products and the gates' gradients are computed leaf by leaf. Divided sequences: experts_moves.c. */
#include <math.h>

#include "layers/modules/feedforward/experts/experts_internal.h"
#include "layers/modules/leaves.h"
#include "layers/modules/sharded_channels.h"

enum { EXPERTS, SHARED, CHILDREN }; /* SHARED exists only if it has columns */

/* ---- planning ---- */

static int check(const struct sl_experts *shape, const struct sl_plan *plan) {
    const int coordinates = sl_mesh_axis_size(plan->mesh, shape->axes);
    if (shape->experts < 1 || shape->choices < 1 || shape->choices > shape->experts)
        return sl_error_set(plan->error, SL_BAD_INPUT,
                            "%sexperts: %d of %d experts for each token: it must be at least 1 and at most all of them",
                            plan->name, shape->choices, shape->experts);
    if (shape->experts % coordinates)
        return sl_error_set(plan->error, SL_BAD_INPUT,
                            "%sexperts: %d experts do not divide over the %d coordinates along \"%s\"", plan->name,
                            shape->experts, coordinates, shape->axes);
    if (!(shape->capacity >= 0.0) || !(shape->balance >= 0.0))
        return sl_error_set(plan->error, SL_BAD_INPUT,
                            "%sexperts: capacity factor %g, weight %g of balance: both must be at least 0", plan->name,
                            shape->capacity, shape->balance);
    if (plan->sequence < 1 || plan->rows % plan->sequence)
        return sl_error_set(plan->error, SL_BAD_INPUT,
                            "%sexperts: %d rows a microbatch are no whole number of sequences of %d", plan->name,
                            plan->rows, plan->sequence);
    if (!plan->context_axis || !(plan->cut.leaves || plan->leaf_axis)) return SL_OK;
    return sl_error_set(plan->error, SL_BAD_INPUT,
                        "%sexperts: sums over leaves take whole sequences, and these are divided over \"%s\"",
                        plan->name, plan->context_axis);
}

/* Slots of an expert for a sequence of LENGTH tokens; a token needs at most one of them. */
static size_t capacity_of(const struct sl_experts *shape, size_t length, bool generates) {
    const double even = (double)length * shape->choices / shape->experts;
    const double slots = ceil(shape->capacity * even * (1.0 - 1e-12)); /* the factor may be rounded up */
    if (generates || shape->capacity == 0.0 || slots > (double)length) return length;
    return slots < 1.0 ? 1 : (size_t)slots;
}

static int plan_routing(struct experts *experts, struct sl_plan *plan) {
    const struct sl_experts *shape = &experts->shape;
    const size_t length = (size_t)plan->sequence, parts = plan->context_axis ? (size_t)sl_cut_parts(plan->cut) : 1;
    experts->routing = (struct sl_routing){.rows = (size_t)plan->rows,
                                           .sequences = (size_t)plan->rows / length,
                                           .experts = (size_t)shape->experts,
                                           .choices = (size_t)shape->choices,
                                           .capacity = capacity_of(shape, length * parts, plan->caches != NULL)};
    const size_t slots = sl_routing_slots(&experts->routing);
    if (plan->context_axis) experts->routing.cut = plan->cut;
    experts->slots = slots / parts;
    experts->here = (size_t)(shape->experts / sl_mesh_axis_size(plan->mesh, shape->axes));
    if (slots <= INT32_MAX) return SL_OK;
    return sl_error_set(plan->error, SL_BAD_INPUT, "%sexperts: %zu slots a microbatch are more than %d", plan->name,
                        slots, INT32_MAX);
}

/* Always in float32: few digits can decide a choice. */
static int plan_router(struct experts *experts, struct sl_plan *plan) {
    const struct sl_experts *shape = &experts->shape;
    const size_t kernel[] = {(size_t)shape->dimension, (size_t)shape->experts};
    const float scale = sl_lecun_normal(kernel[0]);
    SL_TRY(sl_plan_parameter_by_rule(plan, "router.kernel", SL_INIT_TRUNCATED_NORMAL, scale, 2, kernel));
    SL_TRY(sl_plan_expect_sharded(plan, 0, 0, experts->axis, 1));
    SL_TRY(sl_plan_expect_sharded(plan, 0, 1, NULL, 1));
    SL_TRY(sl_leaf_products_plan(&experts->leaves, plan, sl_plan_leaves(plan, experts->axis), experts->module.in, 1,
                                 shape->experts));
    const struct sl_products_shape products = {.precision = SL_F32,
                                               .in = (int)experts->leaves.width,
                                               .out = shape->experts,
                                               .rows = plan->rows,
                                               .wgrad_rows = plan->rows * plan->wgrad_group,
                                               .float_kernel = true};
    sl_load_repeat(plan, experts->leaves.count);
    const int status = sl_products_plan(&experts->router, plan, &products);
    sl_load_repeat(plan, 1);
    return status;
}

/* Plans memory for a leaf's contiguous columns, and for sums waiting for other leaves. */
static void plan_leaves(struct experts *experts, struct sl_plan *plan) {
    const struct sl_routing *routing = &experts->routing;
    const size_t width = experts->leaves.width, size = sizeof(float);
    if (experts->leaves.count == 1 || plan->forward_only) return;
    sl_plan_workspace(plan, experts->slots * width * size, &experts->place[SLICE]);
    sl_plan_workspace(plan, routing->rows * width * size, &experts->place[ROWS]);
    sl_plan_workspace(plan, sl_tree_levels(experts->leaves.count) * routing->rows * routing->choices * size,
                      &experts->place[GATE_SUMS]);
}

/* Plans the children; the experts' rows are slots. */
static int plan_children(const struct experts *experts, struct sl_plan *plan) {
    const struct sl_module *module = &experts->module;
    const size_t begin = plan->workspace;
    const int rows = plan->rows;
    plan->rows = (int)experts->slots;
    const int status = sl_plan_child(plan, module->child[EXPERTS], begin);
    plan->rows = rows;
    if (status || module->children == SHARED) return status;
    return sl_plan_child(plan, module->child[SHARED], begin);
}

static struct sl_context over_slots(const struct sl_module *module, const struct sl_context *context) {
    struct sl_context slots = *context;
    slots.rows = (int)sl_experts_of(module)->slots;
    return slots;
}

static int plan_tensors(struct experts *experts, struct sl_plan *plan) {
    const struct sl_routing *routing = &experts->routing;
    struct sl_place *place = experts->place;
    const struct sl_module *inner = experts->module.child[EXPERTS];
    const size_t columns = (size_t)experts->module.in, rows = routing->rows, pairs = rows * routing->choices;
    SL_TRY(sl_plan_array(plan, rows * routing->experts, SL_UNTIL_INPUT, &place[PROBABILITIES]));
    SL_TRY(sl_plan_array(plan, pairs, SL_UNTIL_INPUT, &place[CHOSEN]));
    SL_TRY(sl_plan_array(plan, pairs, SL_UNTIL_INPUT, &place[GATES]));
    SL_TRY(sl_plan_array(plan, pairs, SL_UNTIL_INPUT, &place[SLOT_OF]));
    SL_TRY(sl_plan_array(plan, sl_routing_slots(routing), SL_UNTIL_INPUT, &place[PAIR_OF]));
    SL_TRY(sl_plan_array(plan, routing->sequences * routing->experts, SL_UNTIL_INPUT, &place[SHARES]));
    SL_TRY(sl_plan_array(plan, routing->sequences * routing->experts, SL_UNTIL_RETURN, &place[SUMS]));
    SL_TRY(sl_plan_array(plan, experts->slots * columns, inner->x.lasts, &place[TAKEN]));
    SL_TRY(sl_plan_array(plan, experts->slots * columns, SL_UNTIL_INPUT, &place[RETURNED]));
    if (experts->module.children > SHARED) SL_TRY(sl_plan_array(plan, rows * columns, SL_UNTIL_RETURN, &place[PART]));
    if (plan->forward_only) return SL_OK;
    SL_TRY(sl_plan_array(plan, rows * routing->experts, sl_from_input_if(sl_plan_trains(plan, 0)), &place[D_LOGITS]));
    SL_TRY(sl_plan_array(plan, pairs, SL_UNTIL_RETURN, &place[D_GATES]));
    SL_TRY(sl_plan_array(plan, experts->slots * columns, inner->y.lasts, &place[D_MADE]));
    return sl_plan_array(plan, experts->slots * columns, SL_UNTIL_RETURN, &place[D_SENT]);
}

static int plan_experts(struct sl_module *module, struct sl_plan *plan) {
    struct experts *experts = (struct experts *)module;
    SL_TRY(check(&experts->shape, plan));
    SL_TRY(sl_plan_columns(plan, experts->axis, experts->shape.dimension, 1));
    SL_TRY(sl_experts_plan_groups(experts, plan));
    SL_TRY(plan_routing(experts, plan));
    SL_TRY(plan_children(experts, plan));
    SL_TRY(sl_experts_plan_moves(experts, plan));
    SL_TRY(plan_router(experts, plan));
    plan_leaves(experts, plan);
    const struct sl_module *shared = module->children > SHARED ? module->child[SHARED] : NULL;
    module->x.lasts =
        sl_longer(sl_until_weight_if(sl_plan_trains(plan, 0)), shared ? shared->x.lasts : SL_UNTIL_RETURN);
    module->y.lasts = shared ? shared->y.lasts : SL_UNTIL_RETURN;
    return plan_tensors(experts, plan);
}

/* ---- the router ---- */

static bool has_leaves(const struct sl_module *module) { return sl_experts_of(module)->leaves.count > 1; }

/* LOGITS [rows, experts] from this coordinate's columns X. */
static int multiply_router(const struct sl_module *module, struct sl_context *context, const float *x, float *logits) {
    const struct experts *experts = sl_experts_of(module);
    const float *kernel = sl_value(module, context, 0);
    if (has_leaves(module))
        return sl_leaf_products_forward(context, &experts->leaves, &experts->router, sl_given_f32(x), kernel, logits);
    const struct sl_gemm *gemm = &experts->router.forward;
    return sl_products_multiply(context, gemm, sl_gemm_floats(gemm, 1, x, kernel, NULL, false, logits));
}

/* Adds the logits' part of the gradient to DX [rows, columns]. */
static int add_router_dx(const struct sl_module *module, struct sl_context *context, float *dx) {
    const struct experts *experts = sl_experts_of(module);
    const struct sl_gemm *gemm = &experts->router.input_gradient;
    const float *kernel = sl_value(module, context, 0), *dy = sl_experts_at(module, context, D_LOGITS);
    if (!has_leaves(module))
        return sl_products_multiply(context, gemm, sl_gemm_floats(gemm, 1, dy, kernel, NULL, true, dx));
    const struct sl_sequence_kernels *kernels = context->kernels->sequence;
    const size_t width = experts->leaves.width, in = (size_t)module->in, rows = experts->routing.rows;
    float *slice = sl_experts_at(module, context, ROWS);
    for (size_t first = 0; first < in; first += width) {
        kernels->copy_block(rows, width, dx + first, in, slice, width);
        const float *part = kernel + first * experts->routing.experts;
        SL_TRY(sl_products_multiply(context, gemm, sl_gemm_floats(gemm, 1, dy, part, NULL, true, slice)));
        kernels->copy_block(rows, width, slice, width, dx + first, in);
    }
    return SL_OK;
}

/* X is saved as float32. */
static int add_router_gradient(const struct sl_module *module, struct sl_context *context, const float *x) {
    const struct experts *experts = sl_experts_of(module);
    const float *dy = sl_experts_at(module, context, D_LOGITS);
    float *gradient = sl_gradient(module, context, 0);
    if (has_leaves(module))
        return sl_leaf_products_weight_gradient(context, &experts->leaves, &experts->router, sl_given_f32(x), dy,
                                                context->accumulate, gradient);
    const struct sl_gemm *gemm = &experts->router.weight_gradient;
    return sl_products_multiply(context, gemm, sl_gemm_floats(gemm, 1, x, dy, NULL, context->accumulate, gradient));
}

/* GATES [rows, choices]: gates' gradients from this coordinate's columns. */
static int gate_gradients(const struct sl_module *module, struct sl_context *context, const float *dy, float *gates) {
    const struct experts *experts = sl_experts_of(module);
    const struct sl_routing *routing = &experts->routing;
    const struct sl_sequence_kernels *kernels = context->kernels->sequence;
    const size_t width = experts->leaves.width, in = (size_t)module->in;
    const int32_t *slot_of = sl_experts_at(module, context, SLOT_OF);
    const float *returned;
    SL_TRY(sl_experts_gather(module, context, RETURNED, &returned));
    if (!has_leaves(module)) {
        context->kernels->experts->gate_gradients(routing, in, slot_of, dy, returned, gates);
        return SL_OK;
    }
    const struct sl_tree tree = {context->kernels, routing->rows * routing->choices, gates,
                                 sl_experts_at(module, context, GATE_SUMS)};
    float *rows = sl_experts_at(module, context, ROWS), *slots = sl_experts_at(module, context, SLICE);
    for (int i = 0; i < experts->leaves.count; i++) {
        kernels->copy_block(routing->rows, width, dy + (size_t)i * width, in, rows, width);
        kernels->copy_block(experts->slots, width, returned + (size_t)i * width, in, slots, width);
        context->kernels->experts->gate_gradients(routing, width, slot_of, rows, slots, sl_tree_summand(&tree, i));
        sl_tree_add(&tree, i);
    }
    return SL_OK;
}

/* ---- forward ---- */

static int route(const struct sl_module *module, struct sl_context *context, const float *x) {
    const struct experts *experts = sl_experts_of(module);
    const struct sl_routing *routing = &experts->routing;
    const struct sl_expert_kernels *kernels = context->kernels->experts;
    float *logits = sl_experts_at(module, context, PROBABILITIES);
    float *shares = sl_experts_at(module, context, SHARES), *sums = sl_experts_at(module, context, SUMS);
    int32_t *chosen = sl_experts_at(module, context, CHOSEN);
    const bool balances = context->phase != SL_PREFILL && context->phase != SL_DECODE;
    const int32_t *first;
    SL_TRY(multiply_router(module, context, x, logits));
    SL_TRY(sl_sum_over(context, experts->group, routing->rows * routing->experts, logits));
    kernels->route(routing, logits, logits, chosen, sl_experts_at(module, context, GATES));
    if (balances) kernels->balance(routing, logits, chosen, shares, sums);
    SL_TRY(sl_experts_count(module, context, &first));
    kernels->assign(routing, first, chosen, sl_experts_at(module, context, SLOT_OF),
                    sl_experts_at(module, context, PAIR_OF));
    if (balances && context->sums)
        kernels->add_balance(routing, shares, sums, (double)(routing->rows / routing->sequences),
                             &context->sums->auxiliary);
    return SL_OK;
}

static int experts_forward(const struct sl_module *module, struct sl_context *context) {
    struct sl_context slots = over_slots(module, context);
    return sl_module_forward(module->child[EXPERTS], &slots, sl_given_f32(sl_experts_at(module, context, TAKEN)),
                             SL_INTO(sl_experts_made(module, context, RETURNED)));
}

/* Adds the shared MLP's result for X to Y. */
static int add_shared(const struct sl_module *module, struct sl_context *context, struct sl_given x, float *y) {
    if (module->children == SHARED) return SL_OK;
    float *part = sl_experts_at(module, context, PART);
    SL_TRY(sl_module_forward_last(module->child[SHARED], context, x, SL_INTO(part)));
    if (!context->unread) context->kernels->add(sl_module_elements(module, context), part, y);
    return SL_OK;
}

static int forward(const struct sl_module *module, struct sl_context *context, struct sl_given x, struct sl_result *y) {
    const struct sl_routing *routing = &sl_experts_of(module)->routing;
    const struct sl_expert_kernels *kernels = context->kernels->experts;
    const size_t columns = (size_t)module->in;
    const float *returned;
    SL_TRY(route(module, context, x.floats));
    kernels->dispatch(routing, columns, sl_experts_at(module, context, PAIR_OF), NULL, x.floats,
                      sl_experts_sent(module, context, TAKEN));
    SL_TRY(sl_experts_send(module, context, TAKEN));
    SL_TRY(experts_forward(module, context));
    SL_TRY(sl_experts_return(module, context, RETURNED));
    if (!context->unread) {
        SL_TRY(sl_experts_gather(module, context, RETURNED, &returned));
        kernels->combine(routing, columns, sl_experts_at(module, context, SLOT_OF),
                         sl_experts_at(module, context, GATES), returned, y->floats);
    }
    return add_shared(module, context, x, y->floats);
}

/* ---- backward ---- */

/* Writes the logits' gradient. */
static int route_backward(const struct sl_module *module, struct sl_context *context, const float *dy) {
    const struct experts *experts = sl_experts_of(module);
    const struct sl_routing *routing = &experts->routing;
    const struct sl_expert_kernels *kernels = context->kernels->experts;
    const size_t length = routing->rows / routing->sequences;
    const float factor = (float)(experts->shape.balance * (double)context->weight * (double)length);
    float *gates = sl_experts_at(module, context, D_GATES);
    SL_TRY(gate_gradients(module, context, dy, gates));
    SL_TRY(sl_sum_over(context, experts->group, routing->rows * routing->choices, gates));
    kernels->route_backward(routing, sl_experts_at(module, context, PROBABILITIES),
                            sl_experts_at(module, context, CHOSEN), sl_experts_at(module, context, GATES), gates,
                            sl_experts_at(module, context, SHARES), factor, sl_experts_at(module, context, D_LOGITS));
    return SL_OK;
}

static int experts_backward_input(const struct sl_module *module, struct sl_context *context, bool dx) {
    struct sl_context slots = over_slots(module, context);
    return sl_module_backward_input(module->child[EXPERTS], &slots, sl_given_f32(sl_experts_at(module, context, TAKEN)),
                                    sl_given_f32(sl_experts_at(module, context, D_MADE)),
                                    dx ? SL_INTO(sl_experts_made(module, context, D_SENT)) : NULL);
}

/* Adds the shared MLP's part to DX, which may be NULL. */
static int shared_backward_input(const struct sl_module *module, struct sl_context *context, struct sl_given x,
                                 struct sl_given dy, float *dx) {
    if (module->children == SHARED) return SL_OK;
    float *part = sl_experts_at(module, context, PART);
    SL_TRY(sl_module_backward_input(module->child[SHARED], context, x, dy, dx ? SL_INTO(part) : NULL));
    if (dx) context->kernels->add(sl_module_elements(module, context), part, dx);
    return SL_OK;
}

static int backward_input(const struct sl_module *module, struct sl_context *context, struct sl_given x,
                          struct sl_given dy, struct sl_result *dx) {
    const struct sl_routing *routing = &sl_experts_of(module)->routing;
    const struct sl_expert_kernels *kernels = context->kernels->experts;
    const size_t columns = (size_t)module->in;
    const float *sent;
    SL_TRY(route_backward(module, context, dy.floats));
    kernels->dispatch(routing, columns, sl_experts_at(module, context, PAIR_OF), sl_experts_at(module, context, GATES),
                      dy.floats, sl_experts_sent(module, context, D_MADE));
    SL_TRY(sl_experts_send(module, context, D_MADE));
    SL_TRY(experts_backward_input(module, context, dx != NULL));
    if (!dx) return shared_backward_input(module, context, x, dy, NULL);
    SL_TRY(sl_experts_return(module, context, D_SENT));
    SL_TRY(sl_experts_gather(module, context, D_SENT, &sent));
    kernels->combine(routing, columns, sl_experts_at(module, context, SLOT_OF), NULL, sent, dx->floats);
    SL_TRY(add_router_dx(module, context, dx->floats));
    return shared_backward_input(module, context, x, dy, dx->floats);
}

static int backward_weight(const struct sl_module *module, struct sl_context *context, struct sl_given x,
                           struct sl_given dy) {
    struct sl_context slots = over_slots(module, context);
    if (!sl_is_frozen(module, context, 0)) SL_TRY(add_router_gradient(module, context, x.floats));
    SL_TRY(sl_module_backward_weight(module->child[EXPERTS], &slots,
                                     sl_given_f32(sl_experts_at(module, context, TAKEN)),
                                     sl_given_f32(sl_experts_at(module, context, D_MADE))));
    return module->children == SHARED ? SL_OK : sl_module_backward_weight(module->child[SHARED], context, x, dy);
}

static void release(struct sl_module *module) { sl_products_release(&((struct experts *)module)->router); }

static const struct sl_module_type type = {.name = "experts",
                                           .plan = plan_experts,
                                           .forward = forward,
                                           .backward_input = backward_input,
                                           .backward_weight = backward_weight,
                                           .spares = true,
                                           .bytes = sizeof(struct experts),
                                           .release = release};

/* ---- construction ---- */

static struct sl_module *new_experts(const struct sl_experts *shape, const struct sl_channels *channels) {
    const int inside = shape->inside, columns = shape->dimension;
    struct sl_module *const part[] = {
        sl_expert_dense("up", shape->experts, shape->axes, columns, inside, channels),
        sl_gelu(inside / sl_mesh_axis_size(channels->mesh, channels->axis)),
        sl_expert_dense("down", shape->experts, shape->axes, inside, columns, channels),
    };
    return sl_sequential("experts", 3, part);
}

static struct sl_module *new_shared(const struct sl_experts *shape, const struct sl_channels *channels) {
    struct sl_module *const part[] = {
        sl_sharded_dense("up", shape->dimension, shape->shared, 1, 1, channels),
        sl_gelu(shape->shared / sl_mesh_axis_size(channels->mesh, channels->axis)),
        sl_sharded_dense("down", shape->shared, shape->dimension, 1, 1, channels),
    };
    return sl_sequential("shared", 3, part);
}

struct sl_module *sl_experts(const char *name, const struct sl_experts *shape, const struct sl_channels *channels) {
    const int columns = shape->dimension / sl_mesh_axis_size(channels->mesh, channels->axis);
    struct sl_module *const child[CHILDREN] = {
        [EXPERTS] = new_experts(shape, channels), [SHARED] = shape->shared > 0 ? new_shared(shape, channels) : NULL};
    struct sl_module *module =
        sl_module_new_parent(&type, name, columns, columns, shape->shared > 0 ? CHILDREN : SHARED, child);
    if (!module) return NULL;
    ((struct experts *)module)->shape = *shape;
    ((struct experts *)module)->axis = channels->axis;
    return module;
}
