/* experts_moves.c - sends rows to the coordinates of their experts, and back.
 *
 * If sequences are divided, their coordinates share the slots of a sequence: each has written the rows of its own
 * tokens to its slots, and zeros to the others. psum_scatter puts them together, and leaves each coordinate the slots
 * of a share of the experts; all_gather returns the results. So an expert computes the same rows as if sequences were
 * whole. Which slots are whose follows from the numbers of choices in all blocks, which are gathered first. */
#include "layers/modules/feedforward/experts/experts_internal.h"

/* ---- planning ---- */

int sl_experts_plan_groups(struct experts *experts, const struct sl_plan *plan) {
    const struct sl_experts *shape = &experts->shape;
    experts->context_group = -1;
    SL_TRY(sl_plan_group(plan, experts->axis, &experts->group));
    if (plan->context_axis) SL_TRY(sl_plan_group(plan, plan->context_axis, &experts->context_group));
    return sl_plan_group(plan, plan->context_axis ? shape->axis : shape->axes, &experts->data_group);
}

/* Rows, and their gradients, are sent to their experts and back; the results are gathered again for backward. */
static void count(const struct experts *experts, const struct sl_plan *plan) {
    const double floats = (double)experts->slots * experts->module.in;
    const double all = (double)sl_routing_slots(&experts->routing) * experts->module.in;
    const char *const axis = plan->context_axis ? experts->shape.axis : experts->shape.axes;
    for (int part = SL_LOAD_FORWARD; part < (plan->forward_only ? SL_LOAD_INPUT : SL_LOAD_WEIGHT); part++) {
        const enum sl_load_part of = (enum sl_load_part)part;
        const int gathers = part == SL_LOAD_FORWARD ? 1 : 2;
        sl_load_call(plan, of, SL_ALL_TO_ALL, axis, 2 * sizeof(float) * floats, 2);
        sl_load_floats(plan, of, SL_LOAD_MOVES, 4 * all);
        if (experts->context_group < 0) continue;
        sl_load_call(plan, of, SL_PSUM_SCATTER, plan->context_axis, sizeof(float) * all, 1);
        sl_load_call(plan, of, SL_ALL_GATHER, plan->context_axis, sizeof(float) * all * gathers, gathers);
    }
}

int sl_experts_plan_moves(struct experts *experts, struct sl_plan *plan) {
    const struct sl_routing *routing = &experts->routing;
    const size_t parts = (size_t)sl_cut_parts(routing->cut), columns = (size_t)experts->module.in;
    const size_t counts = routing->sequences * (size_t)sl_cut_blocks(routing->cut) * routing->experts;
    if (experts->data_group >= 0)
        SL_TRY(sl_plan_array(plan, experts->slots * columns, SL_UNTIL_RETURN, &experts->place[WAY]));
    count(experts, plan);
    if (experts->context_group < 0) return SL_OK;
    sl_plan_workspace(plan, sl_routing_slots(routing) * columns * sizeof(float), &experts->place[WHOLE]);
    sl_plan_workspace(plan, counts * sizeof(int32_t), &experts->place[COUNTS]);
    sl_plan_workspace(plan, parts * counts * sizeof(int32_t), &experts->place[ALL_COUNTS]);
    sl_plan_workspace(plan, counts * sizeof(int32_t), &experts->place[FIRST]);
    sl_load_call(plan, SL_LOAD_FORWARD, SL_ALL_GATHER, plan->context_axis, (double)(parts * counts) * sizeof(int32_t),
                 1);
    return SL_OK;
}

/* ---- choices ---- */

int sl_experts_count(const struct sl_module *module, struct sl_context *context, const int32_t **first) {
    const struct experts *experts = sl_experts_of(module);
    const struct sl_routing *routing = &experts->routing;
    const struct sl_group *peers = sl_group_of(context, experts->context_group);
    const size_t counts = routing->sequences * (size_t)sl_cut_blocks(routing->cut) * routing->experts;
    int32_t *const own = sl_experts_at(module, context, COUNTS), *const all =
                                                                     sl_experts_at(module, context, ALL_COUNTS);
    int32_t *const to = sl_experts_at(module, context, FIRST);
    *first = peers ? to : NULL;
    if (!peers) return SL_OK;
    context->kernels->experts->count(routing, sl_experts_at(module, context, CHOSEN), own);
    SL_TRY(sl_communicate(context, sl_describe_all_gather(peers, SL_I32, own, all, counts)));
    context->kernels->experts->places(routing, all, to, sl_experts_at(module, context, SHARES));
    return SL_OK;
}

/* ---- rows ---- */

/* Sends the rows in WAY to TENSOR: [experts, slots of each, columns] is split along one dim and joined along
 * another. */
static int travel(const struct sl_module *module, struct sl_context *context, enum tensor tensor, size_t experts,
                  int split, int join) {
    const struct sl_group *data = sl_group_of(context, sl_experts_of(module)->data_group);
    const size_t shape[] = {experts, sl_experts_of(module)->slots / experts, (size_t)module->in};
    if (!data) return SL_OK;
    return sl_communicate(context,
                          sl_describe_all_to_all(data, SL_F32, sl_experts_at(module, context, WAY),
                                                 sl_experts_at(module, context, tensor), 3, shape, split, join));
}

float *sl_experts_made(const struct sl_module *module, const struct sl_context *context, enum tensor tensor) {
    return sl_experts_at(module, context, sl_experts_of(module)->data_group < 0 ? tensor : WAY);
}

float *sl_experts_sent(const struct sl_module *module, const struct sl_context *context, enum tensor tensor) {
    return sl_experts_of(module)->context_group < 0 ? sl_experts_made(module, context, tensor)
                                                    : sl_experts_at(module, context, WHOLE);
}

/* Slots of a coordinate's own tokens [experts, own slots, columns] become its experts' [here, all slots, columns]. */
int sl_experts_send(const struct sl_module *module, struct sl_context *context, enum tensor tensor) {
    const struct experts *experts = sl_experts_of(module);
    const struct sl_group *peers = sl_group_of(context, experts->context_group);
    const size_t parts = peers ? (size_t)peers->size : 1, travelling = experts->routing.experts / parts;
    const size_t here = experts->here * parts;
    const size_t shape[] = {experts->routing.experts / here, here, experts->slots / travelling * (size_t)module->in};
    if (peers)
        SL_TRY(sl_communicate(context,
                              sl_describe_psum_scatter_dim(peers, SL_F32, sl_experts_at(module, context, WHOLE),
                                                           sl_experts_made(module, context, tensor), 3, shape, 1)));
    return travel(module, context, tensor, travelling, 0, 1);
}

int sl_experts_return(const struct sl_module *module, struct sl_context *context, enum tensor tensor) {
    return travel(module, context, tensor, sl_experts_of(module)->here, 1, 0);
}

int sl_experts_gather(const struct sl_module *module, struct sl_context *context, enum tensor tensor,
                      const float **slots) {
    const struct experts *experts = sl_experts_of(module);
    const struct sl_group *peers = sl_group_of(context, experts->context_group);
    float *const own = sl_experts_at(module, context, tensor);
    *slots = own;
    if (!peers) return SL_OK;
    const size_t travelling = experts->routing.experts / (size_t)peers->size, here = experts->here;
    const size_t shape[] = {travelling / here, here, experts->slots / travelling * (size_t)module->in};
    float *const whole = sl_experts_at(module, context, WHOLE);
    *slots = whole;
    return sl_communicate(context, sl_describe_all_gather_dim(peers, SL_F32, own, whole, 3, shape, 1));
}
