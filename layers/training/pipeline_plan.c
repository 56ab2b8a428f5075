/* pipeline_plan.c - plans a rank's stages, and opens the memory and channels for walking its schedule. */
#include <stdlib.h>
#include <string.h>

#include "layers/modules/sequence/rope.h"
#include "layers/training/pipeline_internal.h"
#include "spmd/base/memory.h"
#include "spmd/device/device.h"

/* ---- planning ---- */

/* Plans the stash tensor for rows saved for a stage's first or last module. Float rows in the batch or in the output
 * gradients (ELSEWHERE) need no copy. */
static int plan_kept(struct sl_pipeline *p, struct sl_plan *plan, bool wanted, bool elsewhere, int columns,
                     struct sl_place *place) {
    const size_t count = (size_t)plan->rows * (size_t)columns;
    const bool whole = sl_pipeline_dtype(p, columns) == SL_F32;
    if (!wanted || (elsewhere && whole)) return SL_OK;
    return whole ? sl_plan_stash(plan, count, place) : sl_plan_stored(plan, count, SL_UNTIL_WEIGHT, place);
}

/* Plans float buffers for bf16 messages, because stages read and write floats. */
static void plan_handed(struct sl_pipeline *p, struct sl_plan *plan) {
    size_t columns = 0;
    for (int l = 0; l < p->model->loops; l++) {
        const size_t in = (size_t)p->model->stage[l]->in, out = (size_t)p->model->stage[l]->out;
        columns = in > columns ? in : columns;
        columns = out > columns ? out : columns;
    }
    if (plan->storage == SL_F32) return;
    sl_plan_workspace(plan, sl_plan_rows(plan) * columns * sizeof(float), &p->taken);
    sl_plan_workspace(plan, sl_plan_rows(plan) * columns * sizeof(float), &p->given);
}

static int plan_stage(struct sl_pipeline *p, struct sl_plan *plan, int loop) {
    struct sl_module *stage = p->model->stage[loop];
    p->kept[loop].begin = p->stash.used;
    plan->loop = plan->part = loop;
    plan->layer = plan->dropouts = 0;
    const int position = sl_schedule_position(p->options.schedule, stage_of(p, loop));
    plan->global_layer = p->model->first_half ? p->model->first_half[loop] / 2 : position * p->model->layers;
    plan->workspace = 0;
    plan_handed(p, plan);
    plan->has_dx = !is_first(p, loop) || p->options.batch_gradient;
    plan->nobody_waits = is_first(p, loop) || p->options.schedule->crowded;
    SL_TRY(sl_module_plan(stage, plan));
    SL_TRY(plan_kept(p, plan, sl_is_kept(&stage->x), is_first(p, loop), stage->in, &p->kept[loop].x));
    return plan_kept(p, plan, sl_is_kept(&stage->y), is_last(p, loop), stage->out, &p->kept[loop].dy);
}

/* Sets the width of rows between stages, which is the same for all: they use the same buffers. */
static int set_hidden(struct sl_pipeline *p, int loop, int columns) {
    if (p->model->handed >= columns) {
        p->hidden = p->model->handed;
        return SL_OK;
    }
    if (p->hidden == 0) p->hidden = columns;
    if (p->hidden == columns) return SL_OK;
    return sl_fail(p->self, SL_BAD_INPUT, "the stage of loop %d hands over %d columns, not %d as elsewhere", loop,
                   columns, p->hidden);
}

/* Sets all widths from the modules. */
static int set_widths(struct sl_pipeline *p) {
    const struct sl_model *model = p->model;
    for (int l = 0; l < model->loops; l++) {
        const struct sl_module *stage = model->stage[l];
        if (is_first(p, l))
            p->in = stage->in;
        else
            SL_TRY(set_hidden(p, l, stage->in));
        if (is_last(p, l))
            p->out = stage->out;
        else
            SL_TRY(set_hidden(p, l, stage->out));
    }
    if (!has_loss(p)) return SL_OK;
    if (model->loss->in == p->out) return SL_OK;
    return sl_fail(p->self, SL_BAD_INPUT, "the loss takes %d columns, but the last stage gives %d", model->loss->in,
                   p->out);
}

/* Plans the numbers of slots. If recomputed tensors have as many slots as all others, the first forward writes the
 * tensors that W reads to the place where the second forward writes them. */
static int plan_slots(struct sl_pipeline *p) {
    const struct sl_pipeline_options *options = &p->options;
    p->again.once = &p->once;
    p->stash.slots = p->again.slots = p->once.slots = p->run;
    p->output_slots = p->microbatches;
    if (options->forward_only) return SL_OK;
    p->stash.slots = sl_schedule_window(options->schedule, p->rank, options->wgrad_group);
    if (!options->keeps_outputs) p->output_slots = p->stash.slots;
    p->again.slots = sl_schedule_backward_window(options->schedule, p->rank, options->wgrad_group);
    if (!p->stash.slots || !p->again.slots ||
        !sl_schedule_weights_follow(options->schedule, p->rank, options->wgrad_group, &p->weights_follow))
        return sl_fail(p->self, SL_FAILED, "no memory to plan the slots of the stash");
    p->forward_keeps = !p->weights_follow && p->again.slots == p->stash.slots;
    return SL_OK;
}

static int plan_stages(struct sl_pipeline *p, struct sl_parameters *parameters) {
    const struct sl_pipeline_options *options = &p->options;
    struct sl_plan plan = {
        .mesh = p->self->mesh,
        .rules = options->rules,
        .gemm = options->gemm,
        .precision = options->precision,
        .storage = options->storage,
        .no_rewrite = options->no_rewrite,
        .rows = options->rows / sl_pipeline_blocks(p),
        .run = p->run * sl_pipeline_blocks(p),
        .sequence = sl_pipeline_sequence(p),
        .cut = sl_pipeline_cut(p),
        .context_axis = sl_pipeline_cut(p).parts > 1 || options->context_leaves ? options->context_axis : NULL,
        .context_by = options->context_by,
        .wgrad_group = options->context_leaves ? 1 : options->wgrad_group,
        .leaf_axis = options->leaf_axis,
        .leaves = options->leaf_axis ? options->leaves : 0,
        .parameters = parameters,
        .stash = &p->stash,
        .again = &p->again,
        .caches = options->caches,
        .forward_only = options->forward_only,
        .sizes_only = options->sizes_only,
        .weights_follow = p->weights_follow,
        .forward_keeps = p->forward_keeps,
        .groups = &p->groups,
        .gathers = p->unshards ? &p->gathers : NULL,
        .scatters = p->unshards ? &p->scatters : NULL,
        .held = &p->self->held,
        .load = options->load,
        .bounds = &p->bounds,
        .error = &p->self->error,
    };
    parameters->coordinate = p->self->coordinate;
    if (options->caches) sl_caches_begin(options->caches);
    for (int l = 0; l < p->model->loops; l++) SL_TRY(plan_stage(p, &plan, l));
    if (options->load) options->load->handed = (double)hidden_bytes(p, 1);
    plan.workspace = 0;        /* the loss begins after the last stage has ended */
    plan.storage = SL_F32;     /* and reads floats */
    plan.nobody_waits = false; /* a loss has no I that its W could follow */
    if (has_loss(p)) SL_TRY(sl_module_plan(p->model->loss, &plan));
    p->sums_at = (plan.workspace_peak + SL_CACHE_LINE - 1) / SL_CACHE_LINE * SL_CACHE_LINE;
    p->workspace_bytes = p->sums_at + sl_sums_bytes();
    p->table_bytes = sl_rope_bytes(plan.ropes);
    return SL_OK;
}

/* Finds the arrays of the batch that the modules read. A first stage that reads tokens reads no inputs. */
static int find_reads(struct sl_pipeline *p) {
    for (int l = 0; l < p->model->loops; l++) {
        const unsigned reads = sl_module_reads(p->model->stage[l]);
        p->reads |= reads;
        if (is_first(p, l)) p->reads_inputs = !(reads & SL_READS_TOKENS);
    }
    if (has_loss(p)) p->reads |= sl_module_reads(p->model->loss);
    if (!p->options.batch_gradient || p->reads_inputs || !sl_pipeline_inputs(p)) return SL_OK;
    return sl_fail(p->self, SL_BAD_INPUT,
                   "the pipeline's batch_gradient: the first stage reads tokens, which have no gradient");
}

static int make_arrays(struct sl_pipeline *p) {
    const size_t loops = (size_t)p->model->loops;
    p->kept = calloc(loops, sizeof *p->kept);
    p->weights = calloc(loops, sizeof *p->weights);
    p->ends = calloc(loops, sizeof *p->ends);
    p->link = calloc(4 * loops, sizeof *p->link);
    bool made = p->kept && p->weights && p->ends && p->link;
    for (size_t l = 0; l < loops && made; l++) {
        p->weights[l].first = sl_schedule_first_microbatch(p->options.schedule, stage_of(p, (int)l));
        p->weights[l].end = sl_schedule_end_microbatch(p->options.schedule, stage_of(p, (int)l));
        p->weights[l].next = p->weights[l].first;
        p->weights[l].ready = calloc((size_t)p->microbatches, sizeof *p->weights[l].ready);
        made = p->weights[l].ready;
    }
    if (made) return SL_OK;
    return sl_fail(p->self, SL_FAILED, "no memory for a pipeline");
}

/* The channel from FROM to TO for activations, or for GRADIENTS. If no other stage has needed it, it is new. */
static struct sl_channel *find_link(struct sl_pipeline *p, int from, int to, bool gradients) {
    for (int i = 0; i < p->links; i++)
        if (p->link[i].from == from && p->link[i].to == to && p->link[i].gradients == gradients)
            return &p->link[i].channel;
    p->link[p->links] = (struct link){.from = from, .to = to, .gradients = gradients};
    return &p->link[p->links++].channel;
}

/* Plans the channels. All coordinates visit the stages in the same order, so both coordinates of a pair open their
 * channels in the same order. */
static void plan_links(struct sl_pipeline *p) {
    const struct sl_schedule *schedule = p->options.schedule;
    for (int gradients = 0; gradients < 2; gradients++) {
        for (int s = 0; s + 1 < sl_schedule_stages(schedule); s++) {
            if (sl_schedule_is_last(schedule, s)) continue;
            const int from = sl_schedule_rank_of(schedule, s + gradients);
            const int to = sl_schedule_rank_of(schedule, s + 1 - gradients);
            if (from != p->rank && to != p->rank) continue;
            struct sl_channel *channel = find_link(p, from, to, gradients);
            struct ends *sender = &p->ends[sl_schedule_loop_of(schedule, s + gradients)];
            struct ends *taker = &p->ends[sl_schedule_loop_of(schedule, s + 1 - gradients)];
            if (from == p->rank) *(gradients ? &sender->send_gradient : &sender->send_activation) = channel;
            if (to == p->rank) *(gradients ? &taker->take_gradient : &taker->take_activation) = channel;
        }
    }
}

static void order_sums(struct sl_pipeline *p) {
    const char *axis = p->options.leaf_axis;
    for (int i = 0; i < p->groups.count; i++)
        p->groups.by_tree[i] = axis && p->options.leaves > 1 && !strcmp(p->groups.group[i].name, axis);
}

int sl_pipeline_plan(struct sl_pipeline **pipeline, struct sl_spmd *self, const struct sl_pipeline_options *options,
                     struct sl_model *model, struct sl_parameters *parameters) {
    struct sl_pipeline *p = *pipeline = calloc(1, sizeof *p);
    if (!p) return sl_fail(self, SL_FAILED, "no memory for a pipeline");
    p->self = self;
    p->options = *options;
    SL_TRY(sl_pipeline_check(self, options, model));
    p->model = model;
    p->rank = sl_axis_index(self, options->axis);
    p->microbatches = options->schedule->microbatches;
    p->run = sl_schedule_run(options->schedule, SL_FORWARD);
    p->actions = &options->schedule->rank[p->rank];
    SL_TRY(set_widths(p));
    SL_TRY(find_reads(p));
    if (!p->options.slots)
        SL_TRY(sl_schedule_slots(options->schedule, SL_PIPELINE_FEWEST_SLOTS, &p->options.slots, &self->error));
    SL_TRY(make_arrays(p));
    SL_TRY(sl_groups_open(&p->groups, self, options->group_axes));
    order_sums(p);
    if (options->storage == SL_BF16 && parameters->laid_out && !parameters->working_bf16 && !parameters->settled_bf16)
        return sl_fail(self, SL_BAD_INPUT,
                       "storage bf16: the model that was planned first has parameters of storage f32");
    if (options->storage == SL_BF16 && !parameters->laid_out) {
        const bool floats = options->forward_only && options->precision == SL_F32 && !options->gemm->widens;
        *(floats ? &parameters->settled_bf16 : &parameters->working_bf16) = true;
    }
    SL_TRY(sl_pipeline_plan_shards(p, parameters));
    SL_TRY(plan_slots(p));
    p->stash.slots *= sl_pipeline_blocks(p);
    p->again.slots *= sl_pipeline_blocks(p);
    p->once.slots *= sl_pipeline_blocks(p);
    plan_links(p);
    SL_TRY(plan_stages(p, parameters));
    SL_TRY(sl_pipeline_plan_offload(p));
    if (!parameters->laid_out) SL_TRY(sl_pipeline_plan_turns(p, parameters));
    if (!parameters->laid_out) SL_TRY(sl_pipeline_check_names(p, parameters));
    struct sl_crew *const crew = options->forward_only ? options->crew : NULL; /* it orders LOGSUM as it likes */
    p->context = (struct sl_context){
        .self = self,
        .kernels = sl_kernels_select(),
        .queue = crew ? (void *)crew : self->queue,
        .crew = crew,
        .inputs = p->in,
        .targets = p->out,
        .sequence = sl_pipeline_sequence(p),
        .cut = sl_pipeline_cut(p),
        .storage = options->storage,
        .parameters = parameters,
        .stash = &p->stash,
        .again = &p->again,
        .once = p->forward_keeps ? &p->again : &p->once,
        .wgrad_group = options->context_leaves ? 1 : options->wgrad_group,
        .groups = &p->groups,
        .gathers = &p->gathers,
        .scatters = &p->scatters,
        .caches = options->caches,
    };
    return SL_OK;
}

int sl_pipeline_wgrad_group(int microbatches, int rows) {
    enum { DEEP = 256 };
    int group = 1;
    while (group < microbatches && (microbatches % group || (long long)group * rows < DEEP)) group++;
    return group;
}

int sl_pipeline_inputs(const struct sl_pipeline *p) { return p->in; }
int sl_pipeline_targets(const struct sl_pipeline *p) { return p->reads & SL_READS_TARGETS ? p->out : 0; }
int sl_pipeline_rows(const struct sl_pipeline *p) { return (int)batch_rows(p); }

/* ---- memory ---- */

static size_t stash_bytes(const struct sl_stash *stash) {
    return stash->elements * (size_t)stash->slots * sizeof(float);
}
/* Bytes of the stash that are not offloaded. */
static size_t near_stash_bytes(const struct sl_pipeline *p) {
    return p->frames ? sl_window_near_bytes(&p->window, p->frames) : stash_bytes(&p->stash);
}
static size_t input_bytes(const struct sl_pipeline *p) {
    bool keeps = false;
    for (int i = 0; i < p->actions->count; i++) keeps = keeps || p->actions->action[i].has_update;
    return keeps ? hidden_bytes(p, p->microbatches) : 0;
}
/* Bytes of the slots for rows of COLUMNS columns, if there is a loss. */
static size_t slots_bytes(const struct sl_pipeline *p, int columns) {
    return (size_t)p->output_slots * (size_t)p->options.rows * (size_t)columns * sizeof(float);
}
static size_t output_bytes(const struct sl_pipeline *p) { return has_loss(p) ? slots_bytes(p, p->out) : 0; }
static size_t loss_bytes(const struct sl_pipeline *p) { return has_loss(p) ? slots_bytes(p, p->model->loss->out) : 0; }
static size_t slot_bytes(const struct sl_pipeline *p) { return sl_round_up(hidden_bytes(p, p->run), SL_CACHE_LINE); }

/* The coordinate on RANK with this coordinate's indices along all other axes. */
static int coordinate_of(const struct sl_pipeline *p, int rank) {
    const struct sl_mesh *mesh = p->self->mesh;
    const int axis = sl_mesh_find_axis(mesh, p->options.axis), me = p->self->coordinate;
    return axis < 0 ? me : sl_mesh_neighbour(mesh, me, axis, rank);
}

static int slots(const struct sl_pipeline *p) {
    const int runs = p->microbatches / p->run;
    const int ahead = runs < SL_PIPELINE_MOST_SLOTS ? runs : SL_PIPELINE_MOST_SLOTS;
    return ahead > p->options.slots ? ahead : p->options.slots;
}

static size_t link_bytes(const struct sl_pipeline *p, const struct link *link) {
    return sl_channel_bytes(p->self, coordinate_of(p, link->from), coordinate_of(p, link->to), slot_bytes(p), slots(p));
}

void sl_pipeline_plan_bytes(const struct sl_pipeline *p, struct sl_budget *budget) {
    sl_budget_add(budget, SL_MEMORY_PARAMETERS, sl_gathers_bytes(&p->gathers));
    sl_budget_add(budget, SL_MEMORY_KEPT, near_stash_bytes(p) + output_bytes(p) + loss_bytes(p));
    sl_budget_add(budget, SL_MEMORY_OFFLOADED, p->frames ? p->window.place : 0);
    sl_budget_add(budget, SL_MEMORY_RECOMPUTED, stash_bytes(&p->again) + stash_bytes(&p->once));
    sl_budget_add(budget, SL_MEMORY_WORKSPACE, p->workspace_bytes + sl_scatters_bytes(&p->scatters));
    sl_budget_add(budget, SL_MEMORY_HANDOVER, 2 * input_bytes(p));
    for (int i = 0; i < p->links; i++) sl_budget_add(budget, SL_MEMORY_HANDOVER, link_bytes(p, &p->link[i]));
    sl_budget_add(budget, SL_MEMORY_BATCH,
                  sl_batch_room_bytes(batch_rows(p), (size_t)p->in, (size_t)sl_pipeline_targets(p)));
    sl_budget_add(budget, SL_MEMORY_RUNTIME, p->table_bytes);
}

size_t sl_pipeline_bytes(const struct sl_pipeline *p) {
    struct sl_budget budget = {0};
    sl_pipeline_plan_bytes(p, &budget);
    return (size_t)sl_budget_total(&budget);
}

/* ---- opening and closing ---- */

static int open_links(struct sl_pipeline *p) {
    for (int i = 0; i < p->links; i++) {
        struct link *link = &p->link[i];
        SL_TRY(sl_channel_open(p->self, &link->channel, coordinate_of(p, link->from), coordinate_of(p, link->to),
                               slot_bytes(p), slots(p)));
    }
    return SL_OK;
}

int sl_pipeline_open(struct sl_pipeline *p) {
    if (!p) return SL_BAD_INPUT;
    if (p->context.parameters->count > 0 && !p->context.parameters->memory)
        return sl_fail(p->self, SL_BAD_INPUT,
                       "the parameters have no memory: sl_parameters_layout and sl_parameters_take come before "
                       "sl_pipeline_open");
    if (!p->context.parameters->turns) /* else they have no fixed address */
        SL_TRY(sl_groups_share(&p->groups, p->self, p->context.parameters->memory));
    struct sl_budget *held = &p->self->held;
    SL_TRY(sl_gathers_open(&p->gathers, p->self, p->context.parameters, held));
    SL_TRY(sl_scatters_open(&p->scatters, p->self, held));
    if (p->frames)
        SL_TRY(sl_pipeline_open_offload(p));
    else
        p->stash.data = sl_device_take(held, SL_MEMORY_KEPT, stash_bytes(&p->stash));
    p->again.data = sl_device_take(held, SL_MEMORY_RECOMPUTED, stash_bytes(&p->again));
    p->once.data = sl_device_take(held, SL_MEMORY_RECOMPUTED, stash_bytes(&p->once));
    p->context.workspace = sl_device_take(held, SL_MEMORY_WORKSPACE, p->workspace_bytes);
    p->context.sums = p->context.workspace ? (struct sl_sums *)(void *)(p->context.workspace + p->sums_at) : NULL;
    bool taken = (p->frames || p->stash.data) && p->again.data && p->once.data && p->context.workspace;
    if (input_bytes(p)) {
        p->inputs = sl_device_take(held, SL_MEMORY_HANDOVER, input_bytes(p));
        p->input_gradients = sl_device_take(held, SL_MEMORY_HANDOVER, input_bytes(p));
        taken = taken && p->inputs && p->input_gradients;
    }
    if (output_bytes(p)) {
        p->outputs = sl_device_take(held, SL_MEMORY_KEPT, output_bytes(p));
        p->output_gradients = sl_device_take(held, SL_MEMORY_KEPT, loss_bytes(p));
        taken = taken && p->outputs && p->output_gradients;
    }
    const size_t times = p->options.passes > 0 ? (size_t)p->options.passes : 1;
    const size_t targets = (size_t)sl_pipeline_targets(p);
    taken = sl_batch_room_open(&p->room, batch_rows(p), (size_t)p->in, targets, times, held) && taken;
    if (!taken) return sl_fail(p->self, SL_FAILED, "no memory for %zu bytes of activations", sl_pipeline_bytes(p));
    return open_links(p);
}

void sl_pipeline_close(struct sl_pipeline *p) {
    if (!p) return;
    sl_gathers_close(&p->gathers, p->self);
    sl_scatters_close(&p->scatters, p->self);
    sl_groups_close(&p->groups, p->self);
    if (!p->frames) sl_device.give(p->stash.data);
    sl_window_close(&p->window);
    sl_device.give(p->again.data);
    sl_device.give(p->once.data);
    sl_device.give(p->context.workspace);
    sl_device.give(p->inputs);
    sl_device.give(p->input_gradients);
    sl_device.give(p->outputs);
    sl_device.give(p->output_gradients);
    sl_batch_room_close(&p->room);
    for (int l = 0; p->weights && l < p->model->loops; l++) free(p->weights[l].ready);
    free(p->stash.tensor);
    free(p->again.tensor);
    free(p->once.tensor);
    free(p->kept);
    free(p->weights);
    free(p->ends);
    free(p->link);
    free(p);
}
