/* pipeline.c - walks a rank's schedule: the same few steps for every table.
 *
 * forward_step is the looping pipeline's step, index for index:
 *     update  a received state is copied to a row of the stage-input buffer           (take_activation)
 *     input   x is a row of that buffer, or the state last received
 *     params  the loop of the stage that is called
 *     output  y is a row of the output buffer, or is sent on round the ring           (send_activation: ppermute by +1)
 * input_gradient_step is its transpose: rows become gradients of rows, which are sent round the ring by -1.
 * drivers/examples/looping_step.c is the same step without schedules, channels and bf16 storage. */
#include <string.h>

#include "layers/modules/modules.h"
#include "layers/training/pipeline_internal.h"
#include "spmd/device/device.h"

/* ---- one action each ---- */

static int take_activation(struct sl_pipeline *p, const struct sl_action *action) {
    const void *slot;
    struct sl_channel *channel = p->ends[action->loop].take_activation;
    SL_TRY(sl_channel_take(p->self, channel, &slot));
    p->state = slot;
    if (!action->has_update) return SL_OK;
    sl_device.copy(p->inputs + hidden_bytes(p, action->microbatch), slot, hidden_bytes(p, p->run));
    p->state = NULL;
    return sl_channel_release(p->self, channel);
}

/* The microbatch's rows of the batch; NULL on ranks without inputs. */
static const float *batch_row(const struct sl_pipeline *p, int microbatch) {
    const float *inputs = p->batch.inputs;
    return inputs ? inputs + input_row(p, microbatch) : NULL;
}

/* Sets the context for a call over COUNT microbatches from MICROBATCH on. */
static void set_batch(struct sl_pipeline *p, int microbatch, int count) {
    const int first_row = microbatch * p->options.rows;
    p->context.microbatch = microbatch * sl_pipeline_blocks(p);
    p->context.microbatches = count * sl_pipeline_blocks(p);
    p->context.rows = count * p->options.rows;
    p->context.batch = sl_batch_rows(&p->batch, first_row, p->context.rows, p->in, p->out);
    p->context.positions = p->step->positions ? p->step->positions + first_row / p->options.sequence : NULL;
}

/* Sets the microbatches and dropout keys of ACTION. Every schedule uses the keys of the breadth-first pass, so a
 * recomputing backward draws the dropout of its forward. */
static void set_microbatches(struct sl_pipeline *p, const struct sl_action *action) {
    const struct sl_pipeline_step *step = p->step;
    const size_t keys = (size_t)p->model->layers;
    const struct sl_key *key = step->layer_key;
    if (key)
        key += keys * (size_t)sl_schedule_iteration(p->options.schedule, p->rank, action->loop, action->microbatch);
    set_batch(p, action->microbatch, p->run);
    p->context.dropout = (struct sl_dropout_source){
        .layer_key = key,
        .step_key = step->step_key,
        .first_row = step->first_row + (uint32_t)(action->microbatch * p->options.rows),
        .next_keys = keys,
    };
}

/* ---- rows saved and sent ---- */

/* Whether stages send rows of COLUMNS columns as bf16. */
static bool rounds(const struct sl_pipeline *p, int columns) { return sl_pipeline_dtype(p, columns) != SL_F32; }

static size_t elements(const struct sl_pipeline *p, int columns) { return (size_t)p->context.rows * (size_t)columns; }

/* Notes for the call's module that its ROWS also exist as bf16, at STORED; returns ROWS. */
static const float *note_rows(struct sl_pipeline *p, int columns, const float *rows, const void *stored) {
    p->context.rounded = (struct sl_rounded){rows, stored, elements(p, columns)};
    return rows;
}

/* The call's received rows at FROM as floats; a module that reads copies (sl_reads_copy) needs no floats. */
static const float *take_rows(struct sl_pipeline *p, int columns, bool reads_stored, const void *from) {
    if (!from || !rounds(p, columns)) return from;
    float *rows = sl_at(&p->context, &p->taken);
    if (!reads_stored) p->context.kernels->widen_bf16(elements(p, columns), from, rows);
    return note_rows(p, columns, rows, from);
}

/* rows_for returns the buffer for a stage's rows, which are to be sent from TO; give_rows rounds them to TO. */
static float *rows_for(const struct sl_pipeline *p, int columns, void *to) {
    return rounds(p, columns) ? sl_at(&p->context, &p->given) : to;
}
static void give_rows(const struct sl_pipeline *p, int columns, const float *rows, void *to) {
    if (rounds(p, columns)) p->context.kernels->round_bf16(elements(p, columns), rows, to);
}

/* If stages send bf16, requests that the stage's module round its result: as bf16 alone at TO or, if TO is NULL because
 * the result is not sent, as floats. */
static void ask(struct sl_pipeline *p, int columns, void *to, struct sl_result *result) {
    *result = (struct sl_result){.stored = to, .unread = to != NULL};
    p->context.result = rounds(p, columns) ? result : NULL;
}
/* Ends the request, after the module has returned. Returns whether the module has obeyed it. */
static bool is_done(struct sl_pipeline *p, const struct sl_result *result) {
    p->context.result = NULL;
    return result->done;
}

/* Rounds float rows that are not sent, as if they were, and saves them if PLACE is in the stash. */
static void settle(const struct sl_pipeline *p, int columns, float *rows, const struct sl_place *place) {
    const bool keeps = place->stashed && p->context.phase == SL_TRAIN;
    if (rounds(p, columns))
        p->context.kernels->settle_bf16(elements(p, columns), rows, keeps ? sl_at(&p->context, place) : NULL);
}

/* The call's x, which is also saved for backward if there is a place. FROM lies in the batch, or has been received. */
static const float *take_x(struct sl_pipeline *p, const struct sl_action *action, const void *from) {
    const struct sl_module *stage = p->model->stage[action->loop];
    const int columns = stage->in;
    const struct sl_place *place = &p->kept[action->loop].x;
    const bool keeps = place->stashed && p->context.phase == SL_TRAIN;
    if (from && rounds(p, columns) && is_first(p, action->loop)) {
        float *x = sl_at(&p->context, &p->taken);
        sl_device.copy(x, from, elements(p, columns) * sizeof *x);
        settle(p, columns, x, place);
        return keeps ? note_rows(p, columns, x, sl_at(&p->context, place)) : x;
    }
    if (keeps) {
        void *keep = sl_at(&p->context, place);
        sl_device.copy(keep, from, sl_pipeline_row_bytes(p, p->context.rows, columns));
        from = keep;
    }
    return take_rows(p, columns, sl_reads_copy(&stage->x), from);
}

/* Records ROWS of KIND, sent by ACTION's stage, in the step's journal. */
static void record(const struct sl_pipeline *p, enum sl_journal_kind kind, const struct sl_action *action, int columns,
                   enum sl_dtype dtype, const void *rows) {
    if (p->step->journal && p->context.phase == SL_TRAIN)
        sl_journal_rows(p->step->journal, kind, stage_of(p, action->loop), action->microbatch, p->run, p->options.rows,
                        columns, dtype, rows);
}

/* ---- forward and backward ---- */

/* Runs the loss on Y, the output of the last stage. SETTLED: Y is rounded. */
static int loss_step(struct sl_pipeline *p, const struct sl_action *action, float *y, bool settled) {
    static const struct sl_place nowhere = {0};
    const int columns = p->model->stage[action->loop]->out;
    float *dy = p->output_gradients + loss_row(p, action->microbatch);
    if (!settled) settle(p, columns, y, &nowhere);
    record(p, SL_JOURNAL_ROWS, action, columns, SL_F32, y);
    const struct sl_place *kept = &p->kept[action->loop].dy;
    struct sl_result result = {.stored = kept->stashed ? sl_at(&p->context, kept) : NULL};
    p->context.result = rounds(p, columns) && p->context.phase == SL_TRAIN ? &result : NULL;
    SL_TRY(sl_module_forward(p->model->loss, &p->context, y, dy));
    if (!is_done(p, &result) && p->context.phase == SL_TRAIN) settle(p, columns, dy, kept);
    return SL_OK;
}

static int forward_step(struct sl_pipeline *p, const struct sl_action *action) {
    const struct sl_module *stage = p->model->stage[action->loop];
    const void *from = p->state;
    if (action->has_input)
        from = is_first(p, action->loop) ? (const void *)batch_row(p, action->microbatch)
                                         : p->inputs + hidden_bytes(p, action->microbatch);
    void *slot = NULL;
    if (!action->has_output) SL_TRY(sl_channel_acquire(p->self, p->ends[action->loop].send_activation, &slot));
    set_microbatches(p, action);
    float *y = slot ? rows_for(p, stage->out, slot) : p->outputs + output_row(p, action->microbatch);
    struct sl_result result;
    const float *x = take_x(p, action, from);
    ask(p, stage->out, slot, &result);
    SL_TRY(sl_module_forward(stage, &p->context, x, y));
    p->context.rounded = (struct sl_rounded){0};
    const bool done = is_done(p, &result);
    if (!slot)
        SL_TRY(loss_step(p, action, y, done));
    else if (!done)
        give_rows(p, stage->out, y, slot);
    if (slot) record(p, SL_JOURNAL_ROWS, action, stage->out, sl_pipeline_dtype(p, stage->out), slot);
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
    const struct sl_place *kept = &p->kept[action->loop].dy;
    if (!kept->stashed) return SL_OK;
    set_microbatches(p, action);
    const int columns = p->model->stage[action->loop]->out;
    sl_device.copy(sl_at(&p->context, kept), slot, sl_pipeline_row_bytes(p, p->context.rows, columns));
    p->state_gradient = NULL;
    return sl_channel_release(p->self, channel);
}

/* The saved x and dy of MICROBATCH, for the stage's first and last module; NULL: not saved. */
static const float *kept_x(const struct sl_pipeline *p, int loop, int microbatch) {
    if (p->kept[loop].x.stashed) return sl_at(&p->context, &p->kept[loop].x);
    return is_first(p, loop) ? batch_row(p, microbatch) : NULL;
}

static const float *kept_dy(const struct sl_pipeline *p, int loop, int microbatch) {
    if (p->kept[loop].dy.stashed) return sl_at(&p->context, &p->kept[loop].dy);
    return is_last(p, loop) ? p->output_gradients + loss_row(p, microbatch) : NULL;
}

/* The dy of the action, with its bf16 copy, if there is one, noted for modules. */
static const float *gradient_of(struct sl_pipeline *p, const struct sl_action *action) {
    const struct sl_module *stage = p->model->stage[action->loop];
    const struct sl_place *kept = &p->kept[action->loop].dy;
    const void *from = p->state_gradient;
    if (!from && kept->stashed) from = sl_at(&p->context, kept);
    if (!is_last(p, action->loop)) return take_rows(p, stage->out, sl_reads_copy(&stage->y), from);
    const float *dy = p->output_gradients + loss_row(p, action->microbatch);
    return from && rounds(p, stage->out) ? note_rows(p, stage->out, dy, from) : dy;
}

/* Calls the step's begin before gradients of LOOP's parameters are written. */
static int begin_weight_gradients(struct sl_pipeline *p, int loop) {
    struct weight_gradients *weights = &p->weights[loop];
    if ((weights->begun && p->options.layer_sums < 2) || !p->step->begin) return SL_OK;
    weights->begun = true;
    return p->step->begin(p->self, loop, p->step->callback_arg);
}

static int input_gradient_step(struct sl_pipeline *p, const struct sl_action *action) {
    const struct sl_module *stage = p->model->stage[action->loop];
    set_microbatches(p, action);
    p->context.accumulate = p->step->accumulate;
    if (p->weights_follow) SL_TRY(begin_weight_gradients(p, action->loop));
    float *wanted = p->options.batch_gradient, *dx = wanted ? wanted + input_row(p, action->microbatch) : NULL;
    void *to = NULL;
    if (!action->has_input)
        SL_TRY(sl_channel_acquire(p->self, p->ends[action->loop].send_gradient, &to));
    else if (!is_first(p, action->loop))
        to = p->input_gradients + hidden_bytes(p, action->microbatch);
    if (to) dx = rows_for(p, stage->in, to);
    struct sl_result result;
    const float *x = kept_x(p, action->loop, action->microbatch), *dy = gradient_of(p, action);
    ask(p, stage->in, to, &result);
    SL_TRY(sl_module_backward_input(stage, &p->context, x, dy, dx));
    p->context.rounded = (struct sl_rounded){0};
    if (!is_done(p, &result) && to) give_rows(p, stage->in, dx, to);
    if (to) record(p, SL_JOURNAL_ROW_GRADIENT, action, stage->in, sl_pipeline_dtype(p, stage->in), to);
    if (!p->state_gradient) return SL_OK;
    p->state_gradient = NULL;
    return sl_channel_release(p->self, p->ends[action->loop].take_gradient);
}

static int send_gradient(struct sl_pipeline *p, const struct sl_action *action) {
    struct sl_channel *channel = p->ends[action->loop].send_gradient;
    if (action->has_update) {
        void *slot;
        SL_TRY(sl_channel_acquire(p->self, channel, &slot));
        sl_device.copy(slot, p->input_gradients + hidden_bytes(p, action->microbatch), hidden_bytes(p, p->run));
    }
    return sl_channel_post(p->self, channel);
}

static struct sl_trace_event event_of(const struct sl_pipeline *p, enum sl_action_kind kind, int loop, int microbatch,
                                      int count) {
    static const char *const name[SL_ACTION_KINDS] = {
        "F",      "I",       "I",      "W", "send activation", "take activation", "send gradient", "take gradient",
        "reduce", "unshard", "reshard"};
    struct sl_trace_event event = {.work = kind <= SL_WEIGHT_GRADIENT ? SL_TRACE_COMPUTE : SL_TRACE_COMMUNICATION,
                                   .stage = stage_of(p, loop),
                                   .loop = loop,
                                   .microbatch = microbatch,
                                   .count = count};
    strcpy(event.name, name[kind]);
    return event;
}

/* Calls W of the stage, and of a loss with parameters, for the groups from microbatch FIRST on. In a sequence, each
 * child computes all groups before the next child begins; other stages, and losses, compute one group after another. */
static int weight_gradient_groups(struct sl_pipeline *p, int loop, int first) {
    const struct sl_module *stage = p->model->stage[loop], *loss = is_last(p, loop) ? p->model->loss : NULL;
    const float *x = kept_x(p, loop, first), *dy = kept_dy(p, loop, first);
    if (p->context.microbatches > 1 && !sl_is_sequential(stage))
        SL_TRY(sl_module_backward_weight_each(stage, &p->context, x, dy));
    else
        SL_TRY(sl_module_backward_weight(stage, &p->context, x, dy));
    if (!loss) return SL_OK;
    struct sl_context whole = p->context; /* the last stage's output is saved as floats */
    whole.storage = whole.saved.x = SL_F32;
    return sl_module_backward_weight_each(loss, &whole, p->outputs + output_row(p, first), NULL);
}

/* Runs the due groups of a loop's weight gradients. If layers are parts of the parameters, runs all groups of a sum
 * together. */
static int weight_gradient_step(struct sl_pipeline *p, const struct sl_action *action) {
    struct weight_gradients *weights = &p->weights[action->loop];
    const int sums = p->options.layer_sums, count = sums ? p->microbatches / sums : p->options.wgrad_group;
    while (sl_pipeline_group_is_due(p, weights)) {
        SL_TRY(sl_pipeline_use_stash(p, action->loop, weights->next));
        SL_TRY(begin_weight_gradients(p, action->loop));
        set_batch(p, weights->next, count > p->context.wgrad_group ? count : 1);
        p->context.accumulate = weights->next > weights->first || p->step->accumulate;
        const enum sl_work before = sl_profile_begin(p->context.profile, SL_WORK_KERNELS);
        const struct sl_trace_mark mark = sl_trace_begin(p->step->trace);
        const double began = sl_now();
        SL_TRY(weight_gradient_groups(p, action->loop, weights->next));
        sl_profile_compute(p->context.profile, began);
        sl_trace_end(p->step->trace, mark, event_of(p, SL_WEIGHT_GRADIENT, action->loop, weights->next, count));
        sl_profile_end(p->context.profile, before);
        weights->next += count;
        sl_pipeline_drop_stash(p, action->loop, weights->next);
    }
    return SL_OK;
}

/* Kind of work of an action, except for its products. */
static enum sl_work work_of(enum sl_action_kind kind) {
    return kind <= SL_WEIGHT_GRADIENT ? SL_WORK_KERNELS : SL_WORK_COMMUNICATION;
}

/* Runs the action, except its weight gradients. */
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
    case SL_WEIGHT_GRADIENT:
    case SL_REDUCE:
    case SL_UNSHARD:
    case SL_RESHARD:
    case SL_ACTION_KINDS:
        break;
    }
    return sl_fail(p->self, SL_BAD_INPUT, "the schedule has an action of unknown kind %d", action->kind);
}

/* Records the current action in sl_doing, for verdicts. */
static void tell(struct sl_pipeline *p, const struct sl_action *action) {
    static const char *const what[SL_ACTION_KINDS] = {"forward",
                                                      "backward",
                                                      "input gradient",
                                                      "weight gradient",
                                                      "sending of the activation",
                                                      "taking of the activation",
                                                      "sending of the gradient",
                                                      "taking of the gradient",
                                                      "reduction",
                                                      "gathering of parameters",
                                                      "dropping of parameters"};
    struct sl_doing *doing = &p->self->doing;
    doing->what = what[action->kind];
    doing->stage = stage_of(p, action->loop);
    doing->microbatch = action->microbatch;
    doing->action = (int)(action - p->actions->action);
    doing->module = NULL;
}

static int run_action(struct sl_pipeline *p, const struct sl_action *action) {
    tell(p, action);
    p->context.first_microbatch = p->weights[action->loop].first * sl_pipeline_blocks(p);
    SL_TRY(sl_pipeline_use_parameters(p, action));
    if (sl_has_weight_gradient(action->kind)) sl_pipeline_weights_due(p, action);
    if (sl_pipeline_uses_stash(p, action)) SL_TRY(sl_pipeline_use_stash(p, action->loop, action->microbatch));
    if (action->kind == SL_UNSHARD || action->kind == SL_RESHARD) return sl_pipeline_shard_step(p, action);
    SL_TRY(sl_pipeline_use_shards(p, action));
    if (action->kind != SL_WEIGHT_GRADIENT && action->kind != SL_REDUCE) {
        const struct sl_trace_event event = event_of(p, action->kind, action->loop, action->microbatch,
                                                     sl_schedule_run(p->options.schedule, action->kind));
        if (p->step->trace) p->step->trace->action = event;
        const struct sl_trace_mark mark = sl_trace_begin(p->step->trace);
        const double began = sl_now();
        SL_TRY(do_action(p, action));
        if (action->kind <= SL_WEIGHT_GRADIENT) sl_profile_compute(p->context.profile, began);
        sl_trace_end(p->step->trace, mark, event);
    }
    if (sl_pipeline_runs_weights(p, action)) SL_TRY(weight_gradient_step(p, action));
    if (action->kind != SL_REDUCE || !p->step->reduce) return SL_OK;
    SL_TRY(sl_pipeline_end_scatters(p));
    return p->step->reduce(p->self, action->loop, p->step->callback_arg);
}

/* ---- steps ---- */

static int begin_step(struct sl_pipeline *p, struct sl_pipeline_step *step, enum sl_phase phase) {
    SL_TRY(sl_pipeline_check_batch(p, &step->batch, phase));
    p->step = step;
    p->batch = sl_batch_bring(&p->room, &step->batch, (size_t)step->pass);
    p->context.phase = phase;
    p->context.position = step->position;
    p->context.first_sequence = step->first_sequence;
    p->context.begins = step->begins;
    p->context.weight = step->weight;
    p->context.metrics = &step->metrics;
    p->context.profile = step->profile;
    p->context.trace = step->trace;
    p->context.inspector = step->inspector;
    p->context.begin = step->begin;
    p->context.begin_arg = step->callback_arg;
    step->metrics = (struct sl_metrics){0};
    if (phase == SL_TRAIN || phase == SL_EVALUATE) sl_sums_clear(p->context.sums);
    if (phase == SL_TRAIN && !step->accumulate) sl_parameters_drop_gradients(p->context.parameters);
    for (int l = 0; l < p->model->loops; l++) {
        memset(p->weights[l].ready, 0, (size_t)p->microbatches * sizeof *p->weights[l].ready);
        p->weights[l].next = p->weights[l].first;
        p->weights[l].begun = false;
    }
    SL_TRY(sl_pipeline_begin_shards(p));
    return sl_groups_meet(&p->groups, p->self);
}

/* Between two actions. */
static int advance(struct sl_pipeline *p) {
    SL_TRY(sl_progress(p->self));
    return sl_pipeline_advance_shards(p);
}

struct sl_sums *sl_pipeline_sums(const struct sl_pipeline *p) { return p->context.sums; }

void sl_pipeline_read(struct sl_pipeline *p, struct sl_pipeline_step *step) {
    sl_sums_read(p->context.sums, &step->metrics);
}

int sl_pipeline_train(struct sl_pipeline *p, struct sl_pipeline_step *step) {
    if (step->weight == 0.0f)
        return sl_fail(p->self, SL_BAD_INPUT,
                       "the step's weight is 0 (its field weight), and so would be all gradients: it must be the "
                       "factor of each row's loss, such as 1 / rows");
    SL_TRY(begin_step(p, step, SL_TRAIN));
    for (int i = 0; i < p->actions->count; i++) {
        SL_TRY(advance(p));
        const enum sl_work before = sl_profile_begin(p->context.profile, work_of(p->actions->action[i].kind));
        if (step->between) SL_TRY(step->between(step->callback_arg));
        SL_TRY(run_action(p, &p->actions->action[i]));
        sl_profile_end(p->context.profile, before);
    }
    p->self->doing.what = NULL;
    sl_channels_rest(p->self);
    SL_TRY(sl_pipeline_end_scatters(p));
    if (!step->unread) sl_pipeline_read(p, step);
    return SL_OK;
}

static int run_forward(struct sl_pipeline *p, struct sl_pipeline_step *step, enum sl_phase phase) {
    int end = p->actions->count; /* after the last forward action */
    while (end > 0 && !sl_goes_forward(p->actions->action[end - 1].kind)) end--;
    SL_TRY(begin_step(p, step, phase));
    for (int i = 0; i < end; i++) {
        const enum sl_action_kind kind = p->actions->action[i].kind;
        if (!sl_goes_forward(kind) && kind != SL_UNSHARD && kind != SL_RESHARD) continue;
        SL_TRY(advance(p));
        SL_TRY(run_action(p, &p->actions->action[i]));
    }
    p->self->doing.what = NULL;
    sl_channels_rest(p->self);
    SL_TRY(sl_pipeline_end_shards(p));
    if (phase == SL_EVALUATE) sl_pipeline_read(p, step);
    return sl_groups_meet(&p->groups, p->self);
}

int sl_pipeline_evaluate(struct sl_pipeline *p, struct sl_pipeline_step *step) {
    return run_forward(p, step, SL_EVALUATE);
}

int sl_pipeline_generate(struct sl_pipeline *p, struct sl_pipeline_step *step, enum sl_phase phase) {
    return run_forward(p, step, phase);
}

static bool keeps_outputs(const struct sl_pipeline *p) { return p->options.keeps_outputs || p->options.forward_only; }

const float *sl_pipeline_outputs(const struct sl_pipeline *p) { return keeps_outputs(p) ? p->output_gradients : NULL; }

const float *sl_pipeline_predictions(const struct sl_pipeline *p) { return keeps_outputs(p) ? p->outputs : NULL; }
