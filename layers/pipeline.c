/* pipeline.c - walks a rank's schedule: the same few steps for every table.
 *
 * forward_step is the looping pipeline's step, index for index:
 *     update  a state that came round is kept in a row of the stage-input buffer      (take_activation)
 *     input   x is a row of that buffer, or the state last received
 *     params  which loop's stage is applied
 *     output  y is a row of the output buffer, or goes on round the ring              (send_activation: ppermute by +1)
 * and backward_step is its transpose: gradients of rows, gradients round the ring by -1. */
#include "layers/pipeline.h"

#include <stdlib.h>
#include <string.h>

#include "layers/memory.h"

/* What W needs of a stage as a whole: the rows of its x and dy, kept over all microbatches. Numbers of stash tensors.
 */
struct kept {
    int x, dy; /* -1: not kept in the stash */
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
    int rank, ranks, microbatches;
    struct sl_stash stash;
    struct kept *kept;                /* [loops] */
    struct weight_gradients *weights; /* [loops] */
    size_t workspace_bytes;
    struct sl_context context;
    /* Buffers of the first rank, if states come round to it, and of the last one. */
    float *inputs, *input_gradients;   /* [microbatches * rows, hidden] */
    float *outputs, *output_gradients; /* [microbatches * rows, classes] */
    struct sl_channel send_activation, take_activation, send_gradient, take_gradient;
    const float *state;          /* activation last received, in its slot; NULL: none */
    const float *state_gradient; /* gradient last received */
    struct sl_pipeline_step *step;
};

static size_t hidden_row(const struct sl_pipeline *p, int microbatch) {
    return (size_t)microbatch * (size_t)p->options.rows * (size_t)p->model->hidden;
}

static size_t class_row(const struct sl_pipeline *p, int microbatch) {
    return (size_t)microbatch * (size_t)p->options.rows * (size_t)p->model->classes;
}

static bool is_first(const struct sl_pipeline *p) { return p->rank == 0; }
static bool is_last(const struct sl_pipeline *p) { return p->rank == p->ranks - 1; }
static bool goes_round(const struct sl_pipeline *p) { return p->model->loops > 1; }

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
    const bool input_stage = is_first(p) && loop == 0, output_stage = is_last(p) && loop == p->model->loops - 1;
    plan->loop = loop;
    plan->layer = plan->dropouts = 0;
    plan->global_layer = (loop * p->ranks + p->rank) * p->model->layers;
    plan->workspace = 0;
    SL_TRY(sl_module_plan(stage, plan));
    SL_TRY(plan_kept(plan, stage->keeps_input, input_stage, stage->in, &p->kept[loop].x));
    return plan_kept(plan, stage->keeps_gradient, output_stage, stage->out, &p->kept[loop].dy);
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
    if (options->group < 1 || schedule->microbatches % options->group)
        return sl_fail(self, SL_BAD_INPUT, "%d microbatches do not divide into weight-gradient groups of %d",
                       schedule->microbatches, options->group);
    for (int l = 0; l < model->loops; l++) {
        const struct sl_module *stage = model->stage[l];
        const int in = rank == 0 && l == 0 ? model->in : model->hidden;
        const int out = rank == ranks - 1 && l == model->loops - 1 ? model->classes : model->hidden;
        if (!stage) return sl_fail(self, SL_BAD_INPUT, "the model has no stage for loop %d", l);
        if (stage->in != in || stage->out != out)
            return sl_fail(self, SL_BAD_INPUT, "the stage of loop %d has %d columns in and %d out, not %d and %d", l,
                           stage->in, stage->out, in, out);
    }
    if (rank == ranks - 1 && !model->loss) return sl_fail(self, SL_BAD_INPUT, "the last rank's model has no loss");
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
    p->ranks = sl_axis_size(self, options->axis);
    p->microbatches = options->schedule->microbatches;
    p->actions = &options->schedule->rank[p->rank];
    p->kept = calloc((size_t)model->loops, sizeof *p->kept);
    p->weights = calloc((size_t)model->loops, sizeof *p->weights);
    if (!p->kept || !p->weights) return sl_fail(self, SL_FAILED, "no memory for a pipeline");
    struct sl_plan plan = {
        .mesh = self->mesh,
        .gemm = options->gemm,
        .rows = options->rows,
        .group = options->group,
        .parameters = parameters,
        .stash = &p->stash,
        .error = &self->error,
    };
    for (int l = 0; l < model->loops; l++) SL_TRY(plan_stage(p, &plan, l));
    if (is_last(p)) SL_TRY(sl_module_plan(model->loss, &plan));
    p->stash.slots = p->microbatches;
    p->workspace_bytes = plan.workspace_peak;
    p->context = (struct sl_context){
        .self = self,
        .kernels = sl_kernels_select(),
        .rows = options->rows,
        .parameters = parameters,
        .stash = &p->stash,
    };
    return SL_OK;
}

static size_t stash_bytes(const struct sl_pipeline *p) {
    return p->stash.elements * (size_t)p->stash.slots * sizeof(float);
}
static size_t input_bytes(const struct sl_pipeline *p) {
    return is_first(p) && goes_round(p) ? hidden_row(p, p->microbatches) * sizeof(float) : 0;
}
static size_t output_bytes(const struct sl_pipeline *p) {
    return is_last(p) ? class_row(p, p->microbatches) * sizeof(float) : 0;
}
static size_t slot_bytes(const struct sl_pipeline *p) {
    return sl_round_up(hidden_row(p, 1) * sizeof(float), SL_CACHE_LINE);
}

static int slots(const struct sl_pipeline *p) {
    if (p->microbatches < SL_PIPELINE_FEWEST_SLOTS) return SL_PIPELINE_FEWEST_SLOTS;
    return p->microbatches < SL_PIPELINE_MOST_SLOTS ? p->microbatches : SL_PIPELINE_MOST_SLOTS;
}

size_t sl_pipeline_bytes(const struct sl_pipeline *p) {
    const int sends = (!is_last(p) || goes_round(p)) + (!is_first(p) || goes_round(p));
    return stash_bytes(p) + p->workspace_bytes + 2 * input_bytes(p) + 2 * output_bytes(p) +
           (size_t)sends * (size_t)slots(p) * slot_bytes(p);
}

/* A persistent ppermute by one along the ring: to TO, from FROM (-1: the ring is cut there). All coordinates open the
 * activations first, so that the ends of a pair agree on which opening is which. */
static int open_ring(struct sl_pipeline *p, struct sl_channel *send, int to, struct sl_channel *take, int from) {
    const int me = p->self->coordinate;
    const size_t bytes = slot_bytes(p);
    if (to >= 0) SL_TRY(sl_channel_open(p->self, send, me, to, bytes, slots(p)));
    if (from == me)
        *take = *send;
    else if (from >= 0)
        SL_TRY(sl_channel_open(p->self, take, from, me, bytes, slots(p)));
    return SL_OK;
}

/* Activations go to the next rank, gradients to the previous one. Without loops the ring is cut behind the last. */
static int open_rings(struct sl_pipeline *p) {
    const struct sl_mesh *mesh = p->self->mesh;
    const int axis = sl_mesh_find_axis(mesh, p->options.axis), me = p->self->coordinate;
    int next = me, previous = me;
    if (axis >= 0) {
        next = sl_mesh_neighbour(mesh, me, axis, sl_schedule_next(p->options.schedule, p->rank));
        previous = sl_mesh_neighbour(mesh, me, axis, sl_schedule_previous(p->options.schedule, p->rank));
    }
    if (is_last(p) && !goes_round(p)) next = -1;
    if (is_first(p) && !goes_round(p)) previous = -1;
    SL_TRY(open_ring(p, &p->send_activation, next, &p->take_activation, previous));
    return open_ring(p, &p->send_gradient, previous, &p->take_gradient, next);
}

int sl_pipeline_open(struct sl_pipeline *p) {
    p->stash.data = sl_memory_take(stash_bytes(p));
    p->context.workspace = sl_memory_take(p->workspace_bytes);
    bool taken = p->stash.data && p->context.workspace;
    if (input_bytes(p)) {
        p->inputs = sl_memory_take(input_bytes(p));
        p->input_gradients = sl_memory_take(input_bytes(p));
        taken = taken && p->inputs && p->input_gradients;
    }
    if (output_bytes(p)) {
        p->outputs = sl_memory_take(output_bytes(p));
        p->output_gradients = sl_memory_take(output_bytes(p));
        taken = taken && p->outputs && p->output_gradients;
    }
    for (int l = 0; l < p->model->loops; l++) {
        p->weights[l].ready = calloc((size_t)p->microbatches, sizeof *p->weights[l].ready);
        taken = taken && p->weights[l].ready;
    }
    if (!taken) return sl_fail(p->self, SL_FAILED, "no memory for %zu bytes of activations", sl_pipeline_bytes(p));
    return open_rings(p);
}

void sl_pipeline_close(struct sl_pipeline *p) {
    if (!p) return;
    sl_memory_give(p->stash.data);
    sl_memory_give(p->context.workspace);
    sl_memory_give(p->inputs);
    sl_memory_give(p->input_gradients);
    sl_memory_give(p->outputs);
    sl_memory_give(p->output_gradients);
    for (int l = 0; p->weights && l < p->model->loops; l++) free(p->weights[l].ready);
    free(p->stash.tensor);
    free(p->kept);
    free(p->weights);
    free(p);
}

/* ---- one action each ---- */

static int take_activation(struct sl_pipeline *p, const struct sl_action *action) {
    const void *slot;
    SL_TRY(sl_channel_take(p->self, &p->take_activation, &slot));
    p->state = slot;
    if (action->update < 0) return SL_OK;
    memcpy(p->inputs + hidden_row(p, action->update), slot, hidden_row(p, 1) * sizeof(float));
    p->state = NULL;
    return sl_channel_release(p->self, &p->take_activation);
}

/* The microbatch's rows of the batch; NULL on ranks that were given none. */
static const float *batch_row(const struct sl_pipeline *p, int microbatch) {
    const float *inputs = p->step->batch.inputs;
    return inputs ? inputs + (size_t)microbatch * (size_t)p->options.rows * (size_t)p->model->in : NULL;
}

static void set_microbatch(struct sl_pipeline *p, const struct sl_action *action) {
    const struct sl_pipeline_step *step = p->step;
    const int first_row = action->microbatch * p->options.rows;
    p->context.microbatch = action->microbatch;
    p->context.batch = (struct sl_batch){
        .inputs = batch_row(p, action->microbatch),
        .labels = step->batch.labels ? step->batch.labels + first_row : NULL,
    };
    p->context.dropout = (struct sl_dropout_source){
        .layer_key = step->layer_key ? step->layer_key + (size_t)action->time * (size_t)p->model->layers : NULL,
        .step_key = step->step_key,
        .first_row = step->first_row + (uint32_t)first_row,
    };
}

static int forward_step(struct sl_pipeline *p, const struct sl_action *action) {
    const struct sl_module *stage = p->model->stage[action->params];
    const float *x = p->state;
    if (action->input >= 0)
        x = action->loop == 0 ? batch_row(p, action->input) : p->inputs + hidden_row(p, action->input);
    float *y = NULL;
    if (action->output >= 0) {
        y = p->outputs + class_row(p, action->output);
    } else {
        void *slot;
        SL_TRY(sl_channel_acquire(p->self, &p->send_activation, &slot));
        y = slot;
    }
    set_microbatch(p, action);
    const int kept = p->kept[action->params].x;
    if (kept >= 0 && p->context.phase == SL_TRAIN) {
        float *keep = sl_stash_of(&p->context, kept);
        memcpy(keep, x, hidden_row(p, 1) * sizeof(float));
        x = keep;
    }
    SL_TRY(stage->type->forward(stage, &p->context, x, y));
    if (action->output >= 0)
        SL_TRY(p->model->loss->type->forward(p->model->loss, &p->context, y,
                                             p->output_gradients + class_row(p, action->output)));
    if (!p->state) return SL_OK;
    p->state = NULL;
    return sl_channel_release(p->self, &p->take_activation);
}

static int send_activation(struct sl_pipeline *p) { return sl_channel_post(p->self, &p->send_activation); }

static int take_gradient(struct sl_pipeline *p, const struct sl_action *action) {
    const void *slot;
    SL_TRY(sl_channel_take(p->self, &p->take_gradient, &slot));
    p->state_gradient = slot;
    const int kept = p->kept[action->params].dy;
    if (kept < 0) return SL_OK;
    set_microbatch(p, action);
    float *keep = sl_stash_of(&p->context, kept);
    memcpy(keep, slot, hidden_row(p, 1) * sizeof(float));
    p->state_gradient = NULL;
    return sl_channel_release(p->self, &p->take_gradient);
}

/* x and dy of MICROBATCH as the stage's first and last module find them again; NULL where they are not kept. */
static const float *kept_x(const struct sl_pipeline *p, int loop, int microbatch) {
    if (p->kept[loop].x >= 0) return sl_stash_of(&p->context, p->kept[loop].x);
    return is_first(p) && loop == 0 ? batch_row(p, microbatch) : NULL;
}

static const float *kept_dy(const struct sl_pipeline *p, int loop, int microbatch) {
    if (p->kept[loop].dy >= 0) return sl_stash_of(&p->context, p->kept[loop].dy);
    return is_last(p) && loop == p->model->loops - 1 ? p->output_gradients + class_row(p, microbatch) : NULL;
}

static int input_gradient_step(struct sl_pipeline *p, const struct sl_action *action) {
    const struct sl_module *stage = p->model->stage[action->params];
    set_microbatch(p, action);
    const float *dy = p->state_gradient ? p->state_gradient : kept_dy(p, action->params, action->microbatch);
    float *dx = NULL; /* nobody needs the gradient of the batch */
    if (action->input < 0) {
        void *slot;
        SL_TRY(sl_channel_acquire(p->self, &p->send_gradient, &slot));
        dx = slot;
    } else if (action->loop > 0) {
        dx = p->input_gradients + hidden_row(p, action->input);
    }
    SL_TRY(stage->type->backward_input(stage, &p->context, kept_x(p, action->params, action->microbatch), dy, dx));
    if (!p->state_gradient) return SL_OK;
    p->state_gradient = NULL;
    return sl_channel_release(p->self, &p->take_gradient);
}

static int send_gradient(struct sl_pipeline *p, const struct sl_action *action) {
    if (action->update >= 0) {
        void *slot;
        SL_TRY(sl_channel_acquire(p->self, &p->send_gradient, &slot));
        memcpy(slot, p->input_gradients + hidden_row(p, action->update), hidden_row(p, 1) * sizeof(float));
    }
    return sl_channel_post(p->self, &p->send_gradient);
}

static void weight_gradient_due(struct sl_pipeline *p, const struct sl_action *action) {
    p->weights[action->params].ready[action->microbatch] = true;
}

/* Runs the groups of a loop's weight gradients that are due. */
static int weight_gradient_step(struct sl_pipeline *p, const struct sl_action *action) {
    const struct sl_module *stage = p->model->stage[action->params];
    struct weight_gradients *weights = &p->weights[action->params];
    while (weights->next < p->microbatches) {
        for (int i = 0; i < p->options.group; i++)
            if (!weights->ready[weights->next + i]) return SL_OK;
        p->context.microbatch = weights->next;
        p->context.group = p->options.group;
        p->context.accumulate = weights->next > 0;
        const enum sl_work before = sl_profile_begin(p->context.profile, SL_WORK_KERNELS);
        SL_TRY(stage->type->backward_weight(stage, &p->context, kept_x(p, action->params, weights->next),
                                            kept_dy(p, action->params, weights->next)));
        sl_profile_end(p->context.profile, before);
        weights->next += p->options.group;
    }
    return SL_OK;
}

/* The kind of work that an action is, products in it apart. */
static enum sl_work work_of(enum sl_action_kind kind) {
    return kind <= SL_WEIGHT_GRADIENT ? SL_WORK_KERNELS : SL_WORK_COMMUNICATION;
}

/* Weight gradients that are due after a backward wait until its gradient has been sent: the previous stage needs that,
 * and nobody needs them before the reduction. */
static int run_action(struct sl_pipeline *p, const struct sl_action *action) {
    switch (action->kind) {
    case SL_FORWARD:
        return forward_step(p, action);
    case SL_TAKE_ACTIVATION:
        return take_activation(p, action);
    case SL_SEND_ACTIVATION:
        return send_activation(p);
    case SL_INPUT_GRADIENT:
        return input_gradient_step(p, action);
    case SL_WEIGHT_GRADIENT:
        weight_gradient_due(p, action);
        return weight_gradient_step(p, action);
    case SL_BACKWARD:
        weight_gradient_due(p, action);
        return input_gradient_step(p, action);
    case SL_TAKE_GRADIENT:
        return take_gradient(p, action);
    case SL_SEND_GRADIENT:
        SL_TRY(send_gradient(p, action));
        return weight_gradient_step(p, action);
    case SL_REDUCE:
        SL_TRY(weight_gradient_step(p, action));
        return p->step->reduce ? p->step->reduce(p->self, action->loop, p->step->reduce_arg) : SL_OK;
    default:
        return sl_fail(p->self, SL_BAD_INPUT, "the schedule has an action of unknown kind %d", action->kind);
    }
}

/* ---- steps ---- */

static void begin_step(struct sl_pipeline *p, struct sl_pipeline_step *step, enum sl_phase phase) {
    p->step = step;
    p->context.phase = phase;
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
        SL_TRY(run_action(p, &p->actions->action[i]));
        sl_profile_end(p->context.profile, before);
    }
    return SL_OK;
}

int sl_pipeline_evaluate(struct sl_pipeline *p, struct sl_pipeline_step *step) {
    begin_step(p, step, SL_EVALUATE);
    for (int i = 0; i < p->actions->count; i++) {
        const enum sl_action_kind kind = p->actions->action[i].kind;
        if (kind != SL_FORWARD && kind != SL_TAKE_ACTIVATION && kind != SL_SEND_ACTIVATION) continue;
        SL_TRY(sl_progress(p->self));
        SL_TRY(run_action(p, &p->actions->action[i]));
    }
    return SL_OK;
}
