/* pipeline.c - walks a rank's schedule: the same few steps for every table.
 *
 * forward_step is the looping pipeline's step, index for index:
 *     update  a state that came round is kept in a row of the stage-input buffer      (take_activation)
 *     input   x is a row of that buffer, or the state last received
 *     params  which loop's stage is applied
 *     output  y is a row of the output buffer, or goes on round the ring              (send_activation: ppermute by +1)
 * and backward_step is its transpose: gradients of rows, gradients round the ring by -1. */
#include "layers/training/pipeline.h"

#include <stdlib.h>
#include <string.h>

#include "spmd/device/device.h"
#include "spmd/base/memory.h"

/* What W needs of a stage as a whole: the rows of its x and dy, kept over all microbatches. Numbers of stash tensors.
 */
struct kept {
    int x, dy; /* -1: not kept in the stash */
};

/* The channels of one loop's stage: to and from the stages after and before it. NULL at the ends of the pipeline. */
struct ends {
    struct sl_channel *take_activation, *send_activation, *take_gradient, *send_gradient;
};

/* One for each ordered pair of ranks and direction: stages of several loops may share it. */
struct link {
    int from, to; /* ranks */
    bool gradients;
    struct sl_channel channel;
};

/* Weight gradients wait until all microbatches of their group are there, and groups go in ascending order. */
struct weight_gradients {
    bool *ready; /* [microbatches] */
    int next;    /* first microbatch of the next group */
};

struct sl_pipeline {
    struct sl_spmd *self;
    struct sl_pipeline_options options;
    struct sl_model *model;
    const struct sl_rank_schedule *actions;
    int rank, microbatches;
    struct sl_stash stash;
    struct sl_stash again, once; /* of what is recomputed: for backward, and for a forward whose results go */
    struct sl_groups peers;
    struct kept *kept;                /* [loops] */
    struct weight_gradients *weights; /* [loops] */
    int *forward_time;                /* [loops][microbatches]: backward that recomputes draws the same dropout */
    size_t workspace_bytes;
    struct sl_context context;
    /* Where the schedule keeps states that come round; and where the last stage is. */
    float *inputs, *input_gradients;   /* [microbatches * rows, hidden] */
    float *outputs, *output_gradients; /* [microbatches * rows, classes] */
    struct ends *ends;                 /* [loops] */
    struct link *link;                 /* [links], at most 4 a loop */
    int links;
    const float *state;          /* activation last received, in its slot; NULL: none */
    const float *state_gradient; /* gradient last received */
    struct sl_batch_room room;
    struct sl_batch batch; /* the step's, where the device reaches it */
    struct sl_pipeline_step *step;
};

static size_t hidden_row(const struct sl_pipeline *p, int microbatch) {
    return (size_t)microbatch * (size_t)p->options.rows * (size_t)p->model->hidden;
}

static size_t class_row(const struct sl_pipeline *p, int microbatch) {
    return (size_t)microbatch * (size_t)p->options.rows * (size_t)p->model->classes;
}

static size_t batch_rows(const struct sl_pipeline *p) { return (size_t)p->microbatches * (size_t)p->options.rows; }

static int stage_of(const struct sl_pipeline *p, int loop) {
    return sl_schedule_stage(p->options.schedule, p->rank, loop);
}
static bool is_first(const struct sl_pipeline *p, int loop) { return stage_of(p, loop) == 0; }
static bool is_last(const struct sl_pipeline *p, int loop) {
    return stage_of(p, loop) == sl_schedule_stages(p->options.schedule) - 1;
}
/* The last stage, and with it logits and labels, is this rank's highest. */
static bool has_loss(const struct sl_pipeline *p) { return is_last(p, p->model->loops - 1); }

/* ---- planning and memory ---- */

/* The stash tensor for rows that a stage's first or last module wants kept; what lies in the batch or in the output
 * gradients need not be copied. */
static int plan_kept(struct sl_plan *plan, bool wanted, bool elsewhere, int columns, int *number) {
    *number = -1;
    if (!wanted || elsewhere) return SL_OK;
    *number = sl_plan_stash(plan, (size_t)columns);
    return *number < 0 ? SL_FAILED : SL_OK;
}

static int plan_stage(struct sl_pipeline *p, struct sl_plan *plan, int loop) {
    struct sl_module *stage = p->model->stage[loop];
    plan->loop = loop;
    plan->layer = plan->dropouts = 0;
    plan->global_layer = p->model->first_layer ? p->model->first_layer[loop] : stage_of(p, loop) * p->model->layers;
    plan->workspace = 0;
    SL_TRY(sl_module_plan(stage, plan));
    SL_TRY(plan_kept(plan, stage->keeps_input, is_first(p, loop), stage->in, &p->kept[loop].x));
    return plan_kept(plan, stage->keeps_gradient, is_last(p, loop), stage->out, &p->kept[loop].dy);
}

/* What the executor relies on. */
static int check_model(struct sl_spmd *self, const struct sl_pipeline_options *options, const struct sl_model *model) {
    const struct sl_schedule *schedule = options->schedule;
    const int rank = sl_axis_index(self, options->axis), ranks = sl_axis_size(self, options->axis);
    if (!options->gemm) return sl_fail(self, SL_BAD_INPUT, "the pipeline has no matrix products (gemm is NULL)");
    if (!schedule->lowered) return sl_fail(self, SL_BAD_INPUT, "schedule %s has not been lowered", schedule->name);
    if (ranks != schedule->ranks)
        return sl_fail(self, SL_BAD_INPUT, "schedule %s is for %d ranks, axis \"%s\" has %d", schedule->name,
                       schedule->ranks, options->axis, ranks);
    if (model->loops != schedule->loops)
        return sl_fail(self, SL_BAD_INPUT, "schedule %s has %d loops, the model has %d", schedule->name,
                       schedule->loops, model->loops);
    if (options->wgrad_group < 1 || schedule->microbatches % options->wgrad_group)
        return sl_fail(self, SL_BAD_INPUT, "%d microbatches do not divide into weight-gradient groups of %d",
                       schedule->microbatches, options->wgrad_group);
    for (int l = 0; l < model->loops; l++) {
        const struct sl_module *stage = model->stage[l];
        const int number = sl_schedule_stage(schedule, rank, l), last = sl_schedule_stages(schedule) - 1;
        const int in = number == 0 ? model->in : model->hidden;
        const int out = number == last ? model->classes : model->hidden;
        if (!stage) return sl_fail(self, SL_BAD_INPUT, "the model has no stage for loop %d", l);
        if (stage->in != in || stage->out != out)
            return sl_fail(self, SL_BAD_INPUT, "the stage of loop %d has %d columns in and %d out, not %d and %d", l,
                           stage->in, stage->out, in, out);
        if (number == last && !model->loss)
            return sl_fail(self, SL_BAD_INPUT, "the model with the last stage has no loss");
    }
    return SL_OK;
}

int sl_pipeline_plan(struct sl_pipeline **pipeline, struct sl_spmd *self, const struct sl_pipeline_options *options,
                     struct sl_model *model, struct sl_parameters *parameters) {
    struct sl_pipeline *p = calloc(1, sizeof *p);
    *pipeline = p;
    if (!p) return sl_fail(self, SL_FAILED, "no memory for a pipeline");
    SL_TRY(check_model(self, options, model));
    p->self = self;
    p->options = *options;
    p->model = model;
    p->rank = sl_axis_index(self, options->axis);
    p->microbatches = options->schedule->microbatches;
    p->actions = &options->schedule->rank[p->rank];
    if (!p->options.slots)
        SL_TRY(sl_schedule_slots(options->schedule, SL_PIPELINE_FEWEST_SLOTS, &p->options.slots, &self->error));
    p->kept = calloc((size_t)model->loops, sizeof *p->kept);
    p->weights = calloc((size_t)model->loops, sizeof *p->weights);
    p->forward_time = calloc((size_t)model->loops * (size_t)p->microbatches, sizeof *p->forward_time);
    p->ends = calloc((size_t)model->loops, sizeof *p->ends);
    p->link = calloc(4 * (size_t)model->loops, sizeof *p->link);
    if (!p->kept || !p->weights || !p->forward_time || !p->ends || !p->link)
        return sl_fail(self, SL_FAILED, "no memory for a pipeline");
    SL_TRY(sl_groups_open(&p->peers, self, options->group_axes));
    struct sl_plan plan = {
        .mesh = self->mesh,
        .rules = options->rules,
        .gemm = options->gemm,
        .precision = options->precision,
        .rows = options->rows,
        .sequence = options->sequence,
        .wgrad_group = options->wgrad_group,
        .parameters = parameters,
        .stash = &p->stash,
        .again = &p->again,
        .caches = options->caches,
        .forward_only = options->forward_only,
        .groups = &p->peers,
        .error = &self->error,
    };
    if (options->caches) sl_caches_begin(options->caches);
    for (int l = 0; l < model->loops; l++) SL_TRY(plan_stage(p, &plan, l));
    if (has_loss(p)) SL_TRY(sl_module_plan(model->loss, &plan));
    p->once = p->again;
    p->stash.slots = p->again.slots = p->once.slots = 1;
    if (!options->forward_only) {
        p->stash.slots = sl_schedule_window(options->schedule, p->rank, options->wgrad_group);
        p->again.slots = sl_schedule_backward_window(options->schedule, p->rank, options->wgrad_group);
    }
    p->workspace_bytes = plan.workspace_peak;
    p->context = (struct sl_context){
        .self = self,
        .kernels = sl_kernels_select(),
        .queue = self->queue,
        .rows = options->rows,
        .sequence = options->sequence,
        .parameters = parameters,
        .stash = &p->stash,
        .again = &p->again,
        .once = &p->once,
        .groups = &p->peers,
        .caches = options->caches,
    };
    return SL_OK;
}

static size_t stash_bytes(const struct sl_stash *stash) {
    return stash->elements * (size_t)stash->slots * sizeof(float);
}
static size_t input_bytes(const struct sl_pipeline *p) {
    bool keeps = false;
    for (int i = 0; i < p->actions->count; i++) keeps = keeps || p->actions->action[i].update >= 0;
    return keeps ? hidden_row(p, p->microbatches) * sizeof(float) : 0;
}
static size_t output_bytes(const struct sl_pipeline *p) {
    return has_loss(p) ? class_row(p, p->microbatches) * sizeof(float) : 0;
}
static size_t slot_bytes(const struct sl_pipeline *p) {
    return sl_round_up(hidden_row(p, 1) * sizeof(float), SL_CACHE_LINE);
}

static int slots(const struct sl_pipeline *p) {
    const int ahead = p->microbatches < SL_PIPELINE_MOST_SLOTS ? p->microbatches : SL_PIPELINE_MOST_SLOTS;
    return ahead > p->options.slots ? ahead : p->options.slots;
}

size_t sl_pipeline_bytes(const struct sl_pipeline *p) {
    size_t sends = 0;
    for (int l = 0; l < p->model->loops; l++) sends += (size_t)!is_last(p, l) + (size_t)!is_first(p, l);
    return sl_batch_room_bytes(batch_rows(p), (size_t)p->model->in) + stash_bytes(&p->stash) + stash_bytes(&p->again) +
           stash_bytes(&p->once) + p->workspace_bytes + 2 * input_bytes(p) + 2 * output_bytes(p) +
           sends * (size_t)slots(p) * slot_bytes(p);
}

/* The channel by which FROM's stage reaches its neighbour on TO; opened where no other stage has needed it. */
static int open_link(struct sl_pipeline *p, int from, int to, bool gradients, struct sl_channel **channel) {
    const struct sl_mesh *mesh = p->self->mesh;
    const int axis = sl_mesh_find_axis(mesh, p->options.axis), me = p->self->coordinate;
    for (int i = 0; i < p->links; i++) {
        *channel = &p->link[i].channel;
        if (p->link[i].from == from && p->link[i].to == to && p->link[i].gradients == gradients) return SL_OK;
    }
    struct link *link = &p->link[p->links++];
    *link = (struct link){.from = from, .to = to, .gradients = gradients};
    *channel = &link->channel;
    return sl_channel_open(p->self, &link->channel, axis < 0 ? me : sl_mesh_neighbour(mesh, me, axis, from),
                           axis < 0 ? me : sl_mesh_neighbour(mesh, me, axis, to), slot_bytes(p), slots(p));
}

/* All coordinates go through the stages in the same order, so that the ends of a pair agree on which opening is which.
 */
static int open_links(struct sl_pipeline *p) {
    const struct sl_schedule *schedule = p->options.schedule;
    for (int gradients = 0; gradients < 2; gradients++) {
        for (int s = 0; s + 1 < sl_schedule_stages(schedule); s++) {
            const int from = sl_schedule_rank_of(schedule, s + gradients);
            const int to = sl_schedule_rank_of(schedule, s + 1 - gradients);
            struct sl_channel *channel;
            if (from != p->rank && to != p->rank) continue;
            SL_TRY(open_link(p, from, to, gradients, &channel));
            struct ends *sender = &p->ends[sl_schedule_loop_of(schedule, s + gradients)];
            struct ends *taker = &p->ends[sl_schedule_loop_of(schedule, s + 1 - gradients)];
            if (from == p->rank) *(gradients ? &sender->send_gradient : &sender->send_activation) = channel;
            if (to == p->rank) *(gradients ? &taker->take_gradient : &taker->take_activation) = channel;
        }
    }
    return SL_OK;
}

int sl_pipeline_open(struct sl_pipeline *p) {
    p->stash.data = sl_device.take(stash_bytes(&p->stash));
    p->again.data = sl_device.take(stash_bytes(&p->again));
    p->once.data = sl_device.take(stash_bytes(&p->once));
    p->context.workspace = sl_device.take(p->workspace_bytes);
    bool taken = p->stash.data && p->again.data && p->once.data && p->context.workspace;
    if (input_bytes(p)) {
        p->inputs = sl_device.take(input_bytes(p));
        p->input_gradients = sl_device.take(input_bytes(p));
        taken = taken && p->inputs && p->input_gradients;
    }
    if (output_bytes(p)) {
        p->outputs = sl_device.take(output_bytes(p));
        p->output_gradients = sl_device.take(output_bytes(p));
        taken = taken && p->outputs && p->output_gradients;
    }
    for (int l = 0; l < p->model->loops; l++) {
        p->weights[l].ready = calloc((size_t)p->microbatches, sizeof *p->weights[l].ready);
        taken = taken && p->weights[l].ready;
    }
    taken = sl_batch_room_open(&p->room, batch_rows(p), (size_t)p->model->in) && taken;
    if (!taken) return sl_fail(p->self, SL_FAILED, "no memory for %zu bytes of activations", sl_pipeline_bytes(p));
    return open_links(p);
}

void sl_pipeline_close(struct sl_pipeline *p) {
    if (!p) return;
    sl_device.give(p->stash.data);
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
    free(p->again.tensor); /* which p->once shares */
    free(p->kept);
    free(p->weights);
    free(p->forward_time);
    free(p->ends);
    free(p->link);
    free(p);
}

/* ---- one action each ---- */

static int take_activation(struct sl_pipeline *p, const struct sl_action *action) {
    const void *slot;
    struct sl_channel *channel = p->ends[action->loop].take_activation;
    SL_TRY(sl_channel_take(p->self, channel, &slot));
    p->state = slot;
    if (action->update < 0) return SL_OK;
    sl_device.copy(p->inputs + hidden_row(p, action->update), slot, hidden_row(p, 1) * sizeof(float));
    p->state = NULL;
    return sl_channel_release(p->self, channel);
}

/* The microbatch's rows of the batch; NULL on ranks that were given none. */
static const float *batch_row(const struct sl_pipeline *p, int microbatch) {
    const float *inputs = p->batch.inputs;
    return inputs ? inputs + (size_t)microbatch * (size_t)p->options.rows * (size_t)p->model->in : NULL;
}

/* Of a group of microbatches it is the first: the others' rows follow. */
static void set_batch(struct sl_pipeline *p, int microbatch) {
    const int first_row = microbatch * p->options.rows;
    p->context.microbatch = microbatch;
    p->context.batch = (struct sl_batch){
        .inputs = batch_row(p, microbatch),
        .labels = p->batch.labels ? p->batch.labels + first_row : NULL,
        .tokens = p->batch.tokens ? p->batch.tokens + first_row : NULL,
    };
}

/* Of ACTION's loop and microbatch. */
static int *forward_time(struct sl_pipeline *p, const struct sl_action *action) {
    return &p->forward_time[action->params * p->microbatches + action->microbatch];
}

static void set_microbatch(struct sl_pipeline *p, const struct sl_action *action) {
    const struct sl_pipeline_step *step = p->step;
    const int first_row = action->microbatch * p->options.rows;
    const size_t time = (size_t)*forward_time(p, action);
    set_batch(p, action->microbatch);
    p->context.dropout = (struct sl_dropout_source){
        .layer_key = step->layer_key ? step->layer_key + time * (size_t)p->model->layers : NULL,
        .step_key = step->step_key,
        .first_row = step->first_row + (uint32_t)first_row,
    };
}

static int forward_step(struct sl_pipeline *p, const struct sl_action *action) {
    const struct sl_module *stage = p->model->stage[action->params];
    const float *x = p->state;
    if (action->input >= 0)
        x = is_first(p, action->loop) ? batch_row(p, action->input) : p->inputs + hidden_row(p, action->input);
    float *y = NULL;
    if (action->output >= 0) {
        y = p->outputs + class_row(p, action->output);
    } else {
        void *slot;
        SL_TRY(sl_channel_acquire(p->self, p->ends[action->loop].send_activation, &slot));
        y = slot;
    }
    *forward_time(p, action) = action->time;
    set_microbatch(p, action);
    const int kept = p->kept[action->params].x;
    if (kept >= 0 && p->context.phase == SL_TRAIN) {
        float *keep = sl_stash_of(&p->context, kept);
        sl_device.copy(keep, x, hidden_row(p, 1) * sizeof(float));
        x = keep;
    }
    SL_TRY(stage->type->forward(stage, &p->context, x, y));
    if (action->output >= 0)
        SL_TRY(p->model->loss->type->forward(p->model->loss, &p->context, y,
                                             p->output_gradients + class_row(p, action->output)));
    if (!p->state) return SL_OK;
    p->state = NULL;
    return sl_channel_release(p->self, p->ends[action->loop].take_activation);
}

static int send_activation(struct sl_pipeline *p, const struct sl_action *action) {
    return sl_channel_post(p->self, p->ends[action->loop].send_activation);
}

static int take_gradient(struct sl_pipeline *p, const struct sl_action *action) {
    const void *slot;
    struct sl_channel *channel = p->ends[action->loop].take_gradient;
    SL_TRY(sl_channel_take(p->self, channel, &slot));
    p->state_gradient = slot;
    const int kept = p->kept[action->params].dy;
    if (kept < 0) return SL_OK;
    set_microbatch(p, action);
    float *keep = sl_stash_of(&p->context, kept);
    sl_device.copy(keep, slot, hidden_row(p, 1) * sizeof(float));
    p->state_gradient = NULL;
    return sl_channel_release(p->self, channel);
}

/* x and dy of MICROBATCH as the stage's first and last module find them again; NULL where they are not kept. */
static const float *kept_x(const struct sl_pipeline *p, int loop, int microbatch) {
    if (p->kept[loop].x >= 0) return sl_stash_of(&p->context, p->kept[loop].x);
    return is_first(p, loop) ? batch_row(p, microbatch) : NULL;
}

static const float *kept_dy(const struct sl_pipeline *p, int loop, int microbatch) {
    if (p->kept[loop].dy >= 0) return sl_stash_of(&p->context, p->kept[loop].dy);
    return is_last(p, loop) ? p->output_gradients + class_row(p, microbatch) : NULL;
}

static int input_gradient_step(struct sl_pipeline *p, const struct sl_action *action) {
    const struct sl_module *stage = p->model->stage[action->params];
    set_microbatch(p, action);
    const float *dy = p->state_gradient ? p->state_gradient : kept_dy(p, action->params, action->microbatch);
    float *dx = NULL; /* nobody needs the gradient of the batch */
    if (action->input < 0) {
        void *slot;
        SL_TRY(sl_channel_acquire(p->self, p->ends[action->loop].send_gradient, &slot));
        dx = slot;
    } else if (!is_first(p, action->loop)) {
        dx = p->input_gradients + hidden_row(p, action->input);
    }
    SL_TRY(stage->type->backward_input(stage, &p->context, kept_x(p, action->params, action->microbatch), dy, dx));
    if (!p->state_gradient) return SL_OK;
    p->state_gradient = NULL;
    return sl_channel_release(p->self, p->ends[action->loop].take_gradient);
}

static int send_gradient(struct sl_pipeline *p, const struct sl_action *action) {
    struct sl_channel *channel = p->ends[action->loop].send_gradient;
    if (action->update >= 0) {
        void *slot;
        SL_TRY(sl_channel_acquire(p->self, channel, &slot));
        sl_device.copy(slot, p->input_gradients + hidden_row(p, action->update), hidden_row(p, 1) * sizeof(float));
    }
    return sl_channel_post(p->self, channel);
}

static void weight_gradient_due(struct sl_pipeline *p, const struct sl_action *action) {
    p->weights[action->params].ready[action->microbatch] = true;
}

static struct sl_trace_event event_of(const struct sl_pipeline *p, enum sl_action_kind kind, int loop, int microbatch,
                                      int count) {
    static const char *const name[SL_ACTION_KINDS] = {
        "F", "I", "I", "W", "send activation", "take activation", "send gradient", "take gradient", "reduce"};
    struct sl_trace_event event = {.work = kind <= SL_WEIGHT_GRADIENT ? SL_TRACE_COMPUTE : SL_TRACE_COMMUNICATION,
                                   .stage = stage_of(p, loop),
                                   .loop = loop,
                                   .microbatch = microbatch,
                                   .count = count};
    strcpy(event.name, name[kind]);
    return event;
}

/* Runs the groups of a loop's weight gradients that are due. */
static int weight_gradient_step(struct sl_pipeline *p, const struct sl_action *action) {
    const struct sl_module *stage = p->model->stage[action->params];
    struct weight_gradients *weights = &p->weights[action->params];
    while (weights->next < p->microbatches) {
        for (int i = 0; i < p->options.wgrad_group; i++)
            if (!weights->ready[weights->next + i]) return SL_OK;
        set_batch(p, weights->next);
        p->context.wgrad_group = p->options.wgrad_group;
        p->context.accumulate = weights->next > 0 || p->step->accumulate;
        const enum sl_work before = sl_profile_begin(p->context.profile, SL_WORK_KERNELS);
        const struct sl_trace_mark mark = sl_trace_begin(p->step->trace);
        SL_TRY(stage->type->backward_weight(stage, &p->context, kept_x(p, action->params, weights->next),
                                            kept_dy(p, action->params, weights->next)));
        sl_trace_end(p->step->trace, mark,
                     event_of(p, SL_WEIGHT_GRADIENT, action->loop, weights->next, p->options.wgrad_group));
        sl_profile_end(p->context.profile, before);
        weights->next += p->options.wgrad_group;
    }
    return SL_OK;
}

/* The kind of work that an action is, products in it apart. */
static enum sl_work work_of(enum sl_action_kind kind) {
    return kind <= SL_WEIGHT_GRADIENT ? SL_WORK_KERNELS : SL_WORK_COMMUNICATION;
}

/* The action's own work; weight gradients apart. */
static int do_action(struct sl_pipeline *p, const struct sl_action *action) {
    switch (action->kind) {
    case SL_FORWARD:
        return forward_step(p, action);
    case SL_BACKWARD:
    case SL_INPUT_GRADIENT:
        return input_gradient_step(p, action);
    case SL_SEND_ACTIVATION:
        return send_activation(p, action);
    case SL_TAKE_ACTIVATION:
        return take_activation(p, action);
    case SL_SEND_GRADIENT:
        return send_gradient(p, action);
    case SL_TAKE_GRADIENT:
        return take_gradient(p, action);
    default:
        return sl_fail(p->self, SL_BAD_INPUT, "the schedule has an action of unknown kind %d", action->kind);
    }
}

/* Weight gradients that are due after a backward wait until its gradient has been sent: the previous stage needs that,
 * and nobody needs them before the reduction. */
static int run_action(struct sl_pipeline *p, const struct sl_action *action) {
    const bool weights = sl_has_weight_gradient(action->kind), sends = !is_first(p, action->loop);
    if (weights) weight_gradient_due(p, action);
    if (action->kind != SL_WEIGHT_GRADIENT && action->kind != SL_REDUCE) {
        const struct sl_trace_mark mark = sl_trace_begin(p->step->trace);
        SL_TRY(do_action(p, action));
        sl_trace_end(p->step->trace, mark, event_of(p, action->kind, action->loop, action->microbatch, 1));
    }
    if (action->kind == SL_WEIGHT_GRADIENT || action->kind == SL_SEND_GRADIENT || action->kind == SL_REDUCE ||
        (weights && !sends))
        SL_TRY(weight_gradient_step(p, action));
    if (action->kind != SL_REDUCE || !p->step->reduce) return SL_OK;
    return p->step->reduce(p->self, action->loop, p->step->callback_arg);
}

/* ---- steps ---- */

static void begin_step(struct sl_pipeline *p, struct sl_pipeline_step *step, enum sl_phase phase) {
    p->step = step;
    p->batch = sl_batch_bring(&p->room, &step->batch);
    p->context.phase = phase;
    p->context.position = step->position;
    p->context.weight = step->weight;
    p->context.metrics = &step->metrics;
    p->context.profile = step->profile;
    step->metrics = (struct sl_metrics){0};
    for (int l = 0; l < p->model->loops; l++) {
        memset(p->weights[l].ready, 0, (size_t)p->microbatches * sizeof *p->weights[l].ready);
        p->weights[l].next = 0;
    }
}

int sl_pipeline_train(struct sl_pipeline *p, struct sl_pipeline_step *step) {
    begin_step(p, step, SL_TRAIN);
    for (int i = 0; i < p->actions->count; i++) {
        SL_TRY(sl_progress(p->self));
        const enum sl_work before = sl_profile_begin(p->context.profile, work_of(p->actions->action[i].kind));
        if (step->between) SL_TRY(step->between(step->callback_arg));
        SL_TRY(run_action(p, &p->actions->action[i]));
        sl_profile_end(p->context.profile, before);
    }
    return SL_OK;
}

static int run_forward(struct sl_pipeline *p, struct sl_pipeline_step *step, enum sl_phase phase) {
    begin_step(p, step, phase);
    for (int i = 0; i < p->actions->count; i++) {
        const enum sl_action_kind kind = p->actions->action[i].kind;
        if (kind != SL_FORWARD && kind != SL_TAKE_ACTIVATION && kind != SL_SEND_ACTIVATION) continue;
        SL_TRY(sl_progress(p->self));
        SL_TRY(run_action(p, &p->actions->action[i]));
    }
    return SL_OK;
}

int sl_pipeline_evaluate(struct sl_pipeline *p, struct sl_pipeline_step *step) {
    return run_forward(p, step, SL_EVALUATE);
}

int sl_pipeline_generate(struct sl_pipeline *p, struct sl_pipeline_step *step, enum sl_phase phase) {
    return run_forward(p, step, phase);
}

const float *sl_pipeline_outputs(const struct sl_pipeline *p) { return p->output_gradients; }
