/* experts.c - a mixture of experts: routes tokens, brings them to the coordinates that have their experts, and back.
 *
 *     x -- router -- gates ---------------------------------------------------------------+
 *     +-- slots -- all_to_all -- taken -- up, gelu, down -- all_to_all -- returned --- combined --+-- y
 *     +-- shared: up, gelu, down -----------------------------------------------------------------+
 *
 * All coordinates along the channels' axis have all of the router's logits, with the same bits, and so route alike,
 * each its own columns. */
#include <math.h>
#include <stdlib.h>
#include <stdio.h>

#include "layers/modules/feedforward/affine.h"
#include "layers/modules/shards.h"
#include "layers/modules/transformer_modules.h"

enum { EXPERTS, SHARED, CHILDREN }; /* the last only where there are columns for it */

/* What lies between the steps: of tokens [rows, ..], of pairs [rows, choices] and of slots. Integers take the room of
 * floats. */
enum tensor {
    PROBABILITIES, /* [rows, experts] */
    CHOSEN,
    GATES,
    SLOT_OF,
    PAIR_OF,
    SHARES,   /* [sequences, experts] */
    TAKEN,    /* [slots, columns]: what this coordinate's experts are given, of all coordinates' tokens, */
    RETURNED, /* and what all experts have made of its own tokens */
    D_LOGITS,
    D_GATES,
    D_MADE, /* gradients of what its experts make, */
    D_SENT, /* and of what it has sent */
    WAY,    /* what is sent there or back, where it goes elsewhere */
    PART,   /* what the shared MLP adds */
    TENSORS
};

struct place {
    bool stashed;
    int stash;        /* number of the stash tensor, */
    size_t workspace; /* or offset in bytes */
};

struct experts {
    struct sl_experts shape;
    struct sl_routing routing;
    size_t slots, here; /* slots of a microbatch, here and elsewhere alike; experts that this coordinate has */
    struct place place[TENSORS];
};

static float *at(const struct sl_module *module, const struct sl_context *context, enum tensor tensor) {
    const struct place *place = &((const struct experts *)module->user)->place[tensor];
    return place->stashed ? sl_stash_of(context, place->stash)
                          : (float *)(void *)(context->workspace + place->workspace);
}

static int32_t *integers(const struct sl_module *module, const struct sl_context *context, enum tensor tensor) {
    return (int32_t *)(void *)at(module, context, tensor);
}

/* ---- planning ---- */

static int check(const struct sl_module *module, const struct sl_plan *plan) {
    const struct sl_experts *shape = &((const struct experts *)module->user)->shape;
    const int coordinates = sl_mesh_axis_size(plan->mesh, shape->axis);
    if (shape->experts < 1 || shape->choices < 1 || shape->choices > shape->experts)
        return sl_error_set(plan->error, SL_BAD_INPUT,
                            "%sexperts: %d of %d experts for each token: it must be at least 1 and at most all of them",
                            plan->name, shape->choices, shape->experts);
    if (shape->experts % coordinates)
        return sl_error_set(plan->error, SL_BAD_INPUT,
                            "%sexperts: %d experts do not divide over the %d coordinates along \"%s\"", plan->name,
                            shape->experts, coordinates, shape->axis);
    if (!(shape->capacity >= 0.0) || !(shape->balance >= 0.0))
        return sl_error_set(plan->error, SL_BAD_INPUT,
                            "%sexperts: capacity factor %g, weight %g of balance: both must be at least 0", plan->name,
                            shape->capacity, shape->balance);
    if (plan->sequence < 1 || plan->rows % plan->sequence)
        return sl_error_set(plan->error, SL_BAD_INPUT,
                            "%sexperts: %d rows a microbatch are no whole number of sequences of %d", plan->name,
                            plan->rows, plan->sequence);
    return SL_OK;
}

/* Slots of an expert for a sequence of LENGTH tokens, none of which needs two of them. */
static size_t capacity_of(const struct sl_experts *shape, size_t length, bool generates) {
    const double even = (double)length * shape->choices / shape->experts;
    const double slots = ceil(shape->capacity * even * (1.0 - 1e-12)); /* the factor may be rounded up */
    if (generates || shape->capacity == 0.0 || slots > (double)length) return length;
    return slots < 1.0 ? 1 : (size_t)slots;
}

static int plan_routing(struct sl_module *module, struct sl_plan *plan) {
    struct experts *experts = module->user;
    const struct sl_experts *shape = &experts->shape;
    const size_t length = (size_t)plan->sequence;
    experts->routing = (struct sl_routing){.rows = (size_t)plan->rows,
                                           .sequences = (size_t)plan->rows / length,
                                           .experts = (size_t)shape->experts,
                                           .choices = (size_t)shape->choices,
                                           .capacity = capacity_of(shape, length, plan->caches != NULL)};
    experts->slots = sl_routing_slots(&experts->routing);
    experts->here = (size_t)(shape->experts / sl_mesh_axis_size(plan->mesh, shape->axis));
    if (experts->slots <= INT32_MAX) return SL_OK;
    return sl_error_set(plan->error, SL_BAD_INPUT, "%sexperts: %zu slots a microbatch are more than %d", plan->name,
                        experts->slots, INT32_MAX);
}

/* In float whatever other products are in: what is chosen is chosen by few digits. */
static int plan_router(struct sl_module *module, struct sl_plan *plan) {
    const struct sl_experts *shape = &((const struct experts *)module->user)->shape;
    const size_t kernel[] = {(size_t)shape->dimension, (size_t)shape->experts};
    const enum sl_dtype precision = plan->precision;
    const int number = sl_plan_parameter_by_rule(plan, "router.kernel", SL_INIT_TRUNCATED_NORMAL,
                                                 sl_lecun_normal(kernel[0]), 2, kernel);
    if (number < 0) return plan->error->status;
    module->parameter[SL_AFFINE_KERNEL] = number;
    SL_TRY(sl_plan_expect_sharded(plan, number, 0, module->axis, 1));
    SL_TRY(sl_plan_expect_sharded(plan, number, 1, NULL, 1));
    plan->precision = SL_F32;
    const int status = sl_affine_plan_products(module, plan, shape->experts, SL_EPILOGUE_NONE);
    plan->precision = precision;
    return status;
}

/* The experts' rows are slots. */
static int plan_children(struct sl_module *module, struct sl_plan *plan) {
    const struct experts *experts = module->user;
    const size_t begin = plan->workspace;
    const int rows = plan->rows;
    plan->rows = (int)experts->slots;
    const int status = sl_module_plan(module->child[EXPERTS], plan);
    plan->rows = rows;
    if (status || module->children == SHARED) return status;
    const size_t end = plan->workspace;
    plan->workspace = begin;
    SL_TRY(sl_module_plan(module->child[SHARED], plan));
    if (plan->workspace < end) plan->workspace = end;
    return SL_OK;
}

/* STASHED: it must outlive the call, which nothing must where there is no backward. */
static int plan_tensor(const struct sl_module *module, struct sl_plan *plan, enum tensor tensor, size_t count,
                       bool stashed) {
    struct place *place = &((struct experts *)module->user)->place[tensor];
    place->stashed = stashed && !plan->forward_only;
    if (!place->stashed)
        place->workspace = sl_plan_workspace(plan, count * sizeof(float));
    else if ((place->stash = sl_plan_stash_flat(plan, count)) < 0)
        return plan->error->status;
    return SL_OK;
}

static int plan_tensors(const struct sl_module *module, struct sl_plan *plan) {
    const struct experts *experts = module->user;
    const struct sl_routing *routing = &experts->routing;
    const size_t columns = (size_t)module->in, rows = routing->rows, pairs = rows * routing->choices;
    SL_TRY(plan_tensor(module, plan, PROBABILITIES, rows * routing->experts, true));
    SL_TRY(plan_tensor(module, plan, CHOSEN, pairs, true));
    SL_TRY(plan_tensor(module, plan, GATES, pairs, true));
    SL_TRY(plan_tensor(module, plan, SLOT_OF, pairs, true));
    SL_TRY(plan_tensor(module, plan, PAIR_OF, experts->slots, true));
    SL_TRY(plan_tensor(module, plan, SHARES, routing->sequences * routing->experts, true));
    SL_TRY(plan_tensor(module, plan, TAKEN, experts->slots * columns, true));
    SL_TRY(plan_tensor(module, plan, RETURNED, experts->slots * columns, true));
    if (module->data_group >= 0) SL_TRY(plan_tensor(module, plan, WAY, experts->slots * columns, false));
    if (module->children > SHARED) SL_TRY(plan_tensor(module, plan, PART, rows * columns, false));
    if (plan->forward_only) return SL_OK;
    SL_TRY(plan_tensor(module, plan, D_LOGITS, rows * routing->experts, true));
    SL_TRY(plan_tensor(module, plan, D_GATES, pairs, false));
    SL_TRY(plan_tensor(module, plan, D_MADE, experts->slots * columns, true));
    return plan_tensor(module, plan, D_SENT, experts->slots * columns, false);
}

static int plan_experts(struct sl_module *module, struct sl_plan *plan) {
    const struct sl_experts *shape = &((const struct experts *)module->user)->shape;
    SL_TRY(check(module, plan));
    SL_TRY(sl_plan_columns(module, plan, shape->dimension, 1));
    SL_TRY(sl_plan_group(plan, module, module->axis));
    SL_TRY(sl_groups_find(plan->groups, plan->mesh, shape->axis, &module->data_group, plan->error));
    SL_TRY(plan_routing(module, plan));
    SL_TRY(plan_children(module, plan));
    SL_TRY(plan_router(module, plan));
    module->keeps_gradient = module->children > SHARED && module->child[SHARED]->keeps_gradient;
    return plan_tensors(module, plan);
}

/* ---- communication ---- */

static int communicate(struct sl_context *context, const char *site, struct sl_collective call) {
    const enum sl_work before = sl_profile_begin(context->profile, SL_WORK_COMMUNICATION);
    const int status = sl_call(context->self, site, call);
    sl_profile_end(context->profile, before);
    return status;
}

/* All channels' sum. */
static int add_up(const struct sl_module *module, struct sl_context *context, size_t count, float *x) {
    const struct sl_group *peers = sl_group_of(module, context);
    return peers ? communicate(context, SL_HERE, sl_describe_psum(peers, SL_F32, x, x, count)) : SL_OK;
}

/* Where what will come to TENSOR is put before it travels: nothing does where all experts are here. */
static float *before(const struct sl_module *module, const struct sl_context *context, enum tensor tensor) {
    return at(module, context, module->data_group < 0 ? tensor : WAY);
}

/* From a coordinate's own tokens' slots [experts, own slots, columns] to its experts' [here, all slots, columns]. */
static int send_there(const struct sl_module *module, struct sl_context *context, enum tensor tensor) {
    const struct experts *experts = module->user;
    const size_t all = experts->routing.experts, shape[] = {all, experts->slots / all, (size_t)module->in};
    if (module->data_group < 0) return SL_OK;
    const struct sl_group *data = &context->groups->group[module->data_group];
    return communicate(
        context, SL_HERE,
        sl_describe_all_to_all(data, SL_F32, at(module, context, WAY), at(module, context, tensor), 3, shape, 0, 1));
}

static int send_back(const struct sl_module *module, struct sl_context *context, enum tensor tensor) {
    const struct experts *experts = module->user;
    const size_t here = experts->here, shape[] = {here, experts->slots / here, (size_t)module->in};
    if (module->data_group < 0) return SL_OK;
    const struct sl_group *data = &context->groups->group[module->data_group];
    return communicate(
        context, SL_HERE,
        sl_describe_all_to_all(data, SL_F32, at(module, context, WAY), at(module, context, tensor), 3, shape, 1, 0));
}

/* ---- forward ---- */

static int route(const struct sl_module *module, struct sl_context *context, const float *x) {
    const struct experts *experts = module->user;
    const struct sl_routing *routing = &experts->routing;
    const struct sl_expert_kernels *kernels = context->kernels->experts;
    float *logits = at(module, context, PROBABILITIES);
    int32_t *chosen = integers(module, context, CHOSEN);
    SL_TRY(sl_affine_multiply(module, context, SL_AFFINE_FORWARD, x, sl_affine_kernel(module, context), NULL, false,
                              logits));
    SL_TRY(add_up(module, context, routing->rows * routing->experts, logits));
    kernels->route(routing, logits, logits, chosen, at(module, context, GATES));
    kernels->assign(routing, chosen, integers(module, context, SLOT_OF), integers(module, context, PAIR_OF));
    if (context->phase == SL_PREFILL || context->phase == SL_DECODE) return SL_OK;
    const double loss = kernels->balance(routing, logits, chosen, at(module, context, SHARES));
    if (context->metrics) context->metrics->auxiliary += loss * (double)(routing->rows / routing->sequences);
    return SL_OK;
}

static int experts_forward(const struct sl_module *module, struct sl_context *context) {
    const struct sl_module *child = module->child[EXPERTS];
    const int rows = context->rows;
    context->rows = (int)((const struct experts *)module->user)->slots;
    const int status =
        child->type->forward(child, context, at(module, context, TAKEN), before(module, context, RETURNED));
    context->rows = rows;
    return status;
}

/* Adds what the shared MLP makes of X to Y. */
static int add_shared(const struct sl_module *module, struct sl_context *context, const float *x, float *y) {
    if (module->children == SHARED) return SL_OK;
    const struct sl_module *child = module->child[SHARED];
    float *part = at(module, context, PART);
    SL_TRY(child->type->forward(child, context, x, part));
    context->kernels->add((size_t)context->rows * (size_t)module->in, part, y);
    return SL_OK;
}

static int forward(const struct sl_module *module, struct sl_context *context, const float *x, float *y) {
    const struct sl_routing *routing = &((const struct experts *)module->user)->routing;
    const struct sl_expert_kernels *kernels = context->kernels->experts;
    const size_t columns = (size_t)module->in;
    SL_TRY(route(module, context, x));
    kernels->dispatch(routing, columns, integers(module, context, PAIR_OF), NULL, x, before(module, context, TAKEN));
    SL_TRY(send_there(module, context, TAKEN));
    SL_TRY(experts_forward(module, context));
    SL_TRY(send_back(module, context, RETURNED));
    kernels->combine(routing, columns, integers(module, context, SLOT_OF), at(module, context, GATES),
                     at(module, context, RETURNED), y);
    return add_shared(module, context, x, y);
}

/* ---- backward ---- */

/* Leaves the logits' gradient. */
static int route_backward(const struct sl_module *module, struct sl_context *context, const float *dy) {
    const struct experts *experts = module->user;
    const struct sl_routing *routing = &experts->routing;
    const struct sl_expert_kernels *kernels = context->kernels->experts;
    const size_t length = routing->rows / routing->sequences;
    const float factor = (float)(experts->shape.balance * (double)context->weight * (double)length);
    float *gates = at(module, context, D_GATES);
    kernels->gate_gradients(routing, (size_t)module->in, integers(module, context, SLOT_OF), dy,
                            at(module, context, RETURNED), gates);
    SL_TRY(add_up(module, context, routing->rows * routing->choices, gates));
    kernels->route_backward(routing, at(module, context, PROBABILITIES), integers(module, context, CHOSEN),
                            at(module, context, GATES), gates, at(module, context, SHARES), factor,
                            at(module, context, D_LOGITS));
    return SL_OK;
}

static int experts_backward_input(const struct sl_module *module, struct sl_context *context, bool dx) {
    const struct sl_module *child = module->child[EXPERTS];
    const int rows = context->rows;
    context->rows = (int)((const struct experts *)module->user)->slots;
    const int status =
        child->type->backward_input(child, context, at(module, context, TAKEN), at(module, context, D_MADE),
                                    dx ? before(module, context, D_SENT) : NULL);
    context->rows = rows;
    return status;
}

/* Adds the shared MLP's part to DX, which may be NULL. */
static int shared_backward_input(const struct sl_module *module, struct sl_context *context, const float *x,
                                 const float *dy, float *dx) {
    if (module->children == SHARED) return SL_OK;
    const struct sl_module *child = module->child[SHARED];
    float *part = dx ? at(module, context, PART) : NULL;
    SL_TRY(child->type->backward_input(child, context, x, dy, part));
    if (dx) context->kernels->add((size_t)context->rows * (size_t)module->in, part, dx);
    return SL_OK;
}

static int backward_input(const struct sl_module *module, struct sl_context *context, const float *x, const float *dy,
                          float *dx) {
    const struct sl_routing *routing = &((const struct experts *)module->user)->routing;
    const struct sl_expert_kernels *kernels = context->kernels->experts;
    const size_t columns = (size_t)module->in;
    SL_TRY(route_backward(module, context, dy));
    kernels->dispatch(routing, columns, integers(module, context, PAIR_OF), at(module, context, GATES), dy,
                      before(module, context, D_MADE));
    SL_TRY(send_there(module, context, D_MADE));
    SL_TRY(experts_backward_input(module, context, dx != NULL));
    if (!dx) return shared_backward_input(module, context, x, dy, NULL);
    SL_TRY(send_back(module, context, D_SENT));
    kernels->combine(routing, columns, integers(module, context, SLOT_OF), NULL, at(module, context, D_SENT), dx);
    SL_TRY(sl_affine_multiply(module, context, SL_AFFINE_INPUT_GRADIENT, at(module, context, D_LOGITS),
                              sl_affine_kernel(module, context), NULL, true, dx));
    return shared_backward_input(module, context, x, dy, dx);
}

static int experts_backward_weight(const struct sl_module *module, struct sl_context *context) {
    const struct sl_module *child = module->child[EXPERTS];
    const int rows = context->rows;
    context->rows = (int)((const struct experts *)module->user)->slots;
    const int status =
        child->type->backward_weight(child, context, at(module, context, TAKEN), at(module, context, D_MADE));
    context->rows = rows;
    return status;
}

static int backward_weight(const struct sl_module *module, struct sl_context *context, const float *x,
                           const float *dy) {
    const struct sl_module *shared = module->children > SHARED ? module->child[SHARED] : NULL;
    SL_TRY(sl_affine_multiply(module, context, SL_AFFINE_WEIGHT_GRADIENT, x, at(module, context, D_LOGITS), NULL,
                              context->accumulate, sl_gradient(module, context, SL_AFFINE_KERNEL)));
    SL_TRY(experts_backward_weight(module, context));
    return shared ? shared->type->backward_weight(shared, context, x, dy) : SL_OK;
}

static const struct sl_module_type type = {"experts", plan_experts, forward, backward_input, backward_weight};

/* ---- construction ---- */

static void release(struct sl_module *module) { free(module->user); }

static struct sl_module *new_experts(const struct sl_experts *shape, const struct sl_channels *channels) {
    const int inside = shape->inside, columns = shape->dimension;
    struct sl_module *const part[] = {
        sl_expert_dense("up", shape->experts, shape->axis, columns, inside, channels),
        sl_gelu(inside / sl_mesh_axis_size(channels->mesh, channels->axis)),
        sl_expert_dense("down", shape->experts, shape->axis, inside, columns, channels),
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

static bool make_children(struct sl_module *module, const struct sl_experts *shape,
                          const struct sl_channels *channels) {
    module->children = shape->shared > 0 ? CHILDREN : SHARED;
    module->child[EXPERTS] = new_experts(shape, channels);
    if (shape->shared > 0) module->child[SHARED] = new_shared(shape, channels);
    return module->child[EXPERTS] && (shape->shared == 0 || module->child[SHARED]);
}

struct sl_module *sl_experts(const char *name, const struct sl_experts *shape, const struct sl_channels *channels) {
    const int own = shape->dimension / sl_mesh_axis_size(channels->mesh, channels->axis);
    struct sl_module *module = sl_module_new(&type, name, own, own);
    struct experts *experts = module ? module->user = calloc(1, sizeof *experts) : NULL;
    if (module) module->child = calloc(CHILDREN, sizeof *module->child);
    if (experts) {
        experts->shape = *shape;
        module->release = release;
    }
    if (!experts || !module->child || !make_children(module, shape, channels)) {
        sl_module_free(module);
        return NULL;
    }
    snprintf(module->axis, sizeof module->axis, "%s", channels->axis);
    return module;
}
