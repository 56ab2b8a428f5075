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

/* Releases the slot of *STATE, the rows last received from CHANNEL, if it has not been released. */
static int release(struct sl_pipeline *p, struct sl_channel *channel, const void **state) {
    if (!*state) return SL_OK;
    *state = NULL;
    return sl_channel_release(p->self, channel);
}

static int take_activation(struct sl_pipeline *p, const struct sl_action *action) {
    struct sl_channel *channel = p->ends[action->loop].take_activation;
    SL_TRY(sl_channel_take(p->self, channel, &p->state));
    if (!action->has_update) return SL_OK;
    sl_device.copy(p->inputs + hidden_bytes(p, action->microbatch), p->state, hidden_bytes(p, p->run));
    return release(p, channel, &p->state);
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

/* The call's received rows at FROM; a module that reads copies needs no floats. */
static struct sl_given take_rows(struct sl_pipeline *p, int columns, const struct sl_use *use, const void *from) {
    if (!from || !rounds(p, columns)) return sl_given_f32(from);
    struct sl_given rows = sl_given_bf16(from);
    if (sl_reads_copy(use)) return rows;
    float *floats = sl_at(&p->context, &p->taken);
    p->context.kernels->widen_bf16(elements(p, columns), from, floats);
    return (struct sl_given){floats, rows.halves, SL_ROUNDED};
}

/* The call's x, which is also saved for backward if there is a place. FROM lies in the batch, or has been received. */
static struct sl_given take_x(struct sl_pipeline *p, const struct sl_action *action, const void *from) {
    const struct sl_module *stage = p->model->stage[action->loop];
    const struct sl_place *place = &p->kept[action->loop].x;
    void *keep = place->stashed && p->context.phase == SL_TRAIN ? sl_at(&p->context, place) : NULL;
    if (from && is_first(p, action->loop) && rounds(p, stage->in)) {
        float *x = sl_at(&p->context, &p->taken);
        sl_device.copy(x, from, elements(p, stage->in) * sizeof *x);
        p->context.kernels->settle_bf16(elements(p, stage->in), x, keep);
        return (struct sl_given){x, keep, SL_ROUNDED};
    }
    if (keep) sl_device.copy(keep, from, sl_pipeline_row_bytes(p, p->context.rows, stage->in));
    return take_rows(p, stage->in, &stage->x, keep ? keep : from);
}

/* The coming call's result at TO. If stages send bf16, TO, which may be NULL, is for bf16 alone if it is to be SENT;
 * otherwise the floats, at FLOATS unless it is NULL, are rounded. */
static struct sl_result ask(struct sl_pipeline *p, int columns, void *to, bool sent, float *floats) {
    if (!rounds(p, columns)) return (struct sl_result){.floats = sent ? to : floats};
    return (struct sl_result){
        .floats = floats ? floats : sl_at(&p->context, &p->given), .halves = to, .form = sent ? SL_ALONE : SL_ROUNDED};
}

/* Records ROWS of KIND, sent by ACTION's stage, in the step's journal. */
static void record(const struct sl_pipeline *p, enum sl_journal_kind kind, const struct sl_action *action, int columns,
                   enum sl_dtype dtype, const void *rows) {
    if (p->step->journal && p->context.phase == SL_TRAIN)
        sl_journal_rows(p->step->journal, kind, stage_of(p, action->loop), action->microbatch, p->run, p->options.rows,
                        columns, dtype, rows);
}

/* ---- forward and backward ---- */

/* Runs the loss on Y, the output of the last stage. */
static int loss_step(struct sl_pipeline *p, const struct sl_action *action, const float *y) {
    const int columns = p->model->stage[action->loop]->out;
    const struct sl_place *kept = &p->kept[action->loop].dy;
    float *to = p->output_gradients + loss_row(p, action->microbatch);
    record(p, SL_JOURNAL_ROWS, action, columns, SL_F32, y);
    struct sl_result dy = ask(p, columns, kept->stashed ? sl_at(&p->context, kept) : NULL, false, to);
    return sl_module_forward(p->model->loss, &p->context, sl_given_f32(y),
                             p->context.phase == SL_TRAIN ? &dy : SL_INTO(to));
}

static int forward_step(struct sl_pipeline *p, const struct sl_action *action) {
    const struct sl_module *stage = p->model->stage[action->loop];
    const struct ends *ends = &p->ends[action->loop];
    const void *from = p->state;
    if (action->has_input)
        from = is_first(p, action->loop) ? (const void *)batch_row(p, action->microbatch)
                                         : p->inputs + hidden_bytes(p, action->microbatch);
    void *slot = NULL;
    if (!action->has_output) SL_TRY(sl_channel_acquire(p->self, ends->send_activation, &slot));
    set_microbatches(p, action);
    float *output = slot ? NULL : p->outputs + output_row(p, action->microbatch);
    struct sl_result y = ask(p, stage->out, slot, slot != NULL, output);
    SL_TRY(sl_module_forward(stage, &p->context, take_x(p, action, from), &y));
    if (slot)
        record(p, SL_JOURNAL_ROWS, action, stage->out, sl_pipeline_dtype(p, stage->out), slot);
    else
        SL_TRY(loss_step(p, action, output));
    return release(p, ends->take_activation, &p->state);
}

static int send_activation(struct sl_pipeline *p, const struct sl_action *action) {
    return sl_channel_post(p->self, p->ends[action->loop].send_activation);
}

static int take_gradient(struct sl_pipeline *p, const struct sl_action *action) {
    struct sl_channel *channel = p->ends[action->loop].take_gradient;
    const struct sl_place *kept = &p->kept[action->loop].dy;
    SL_TRY(sl_channel_take(p->self, channel, &p->state_gradient));
    if (!kept->stashed) return SL_OK;
    set_microbatches(p, action);
    const int columns = p->model->stage[action->loop]->out;
    sl_device.copy(sl_at(&p->context, kept), p->state_gradient, sl_pipeline_row_bytes(p, p->context.rows, columns));
    return release(p, channel, &p->state_gradient);
}

/* Rows of COLUMNS columns saved at KEPT or, if it is unused, in ELSEWHERE; NULL: not saved. */
static struct sl_given saved(const struct sl_pipeline *p, const struct sl_place *kept, int columns,
                             const float *elsewhere) {
    if (!kept->stashed) return sl_given_f32(elsewhere);
    return sl_given_of(sl_rows_of(sl_pipeline_dtype(p, columns), sl_at(&p->context, kept)));
}

/* The saved x and dy of MICROBATCH, for the stage's first and last module. */
static struct sl_given kept_x(const struct sl_pipeline *p, int loop, int microbatch) {
    return saved(p, &p->kept[loop].x, p->model->stage[loop]->in, is_first(p, loop) ? batch_row(p, microbatch) : NULL);
}

static struct sl_given kept_dy(const struct sl_pipeline *p, int loop, int microbatch) {
    return saved(p, &p->kept[loop].dy, p->model->stage[loop]->out,
                 is_last(p, loop) ? p->output_gradients + loss_row(p, microbatch) : NULL);
}

/* The dy of the action, as bf16, too, if it is saved so. */
static struct sl_given gradient_of(struct sl_pipeline *p, const struct sl_action *action) {
    const struct sl_module *stage = p->model->stage[action->loop];
    const struct sl_place *kept = &p->kept[action->loop].dy;
    void *from = kept->stashed ? sl_at(&p->context, kept) : NULL;
    if (is_last(p, action->loop))
        return (struct sl_given){p->output_gradients + loss_row(p, action->microbatch), from, SL_ROUNDED};
    return take_rows(p, stage->out, &stage->y, p->state_gradient ? p->state_gradient : from);
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
    const struct ends *ends = &p->ends[action->loop];
    set_microbatches(p, action);
    p->context.accumulate = p->step->accumulate;
    if (p->weights_follow) SL_TRY(begin_weight_gradients(p, action->loop));
    float *wanted = p->options.batch_gradient, *dx = wanted ? wanted + input_row(p, action->microbatch) : NULL;
    void *to = NULL;
    if (!action->has_input)
        SL_TRY(sl_channel_acquire(p->self, ends->send_gradient, &to));
    else if (!is_first(p, action->loop))
        to = p->input_gradients + hidden_bytes(p, action->microbatch);
    struct sl_result sent = ask(p, stage->in, to, true, NULL); /* the batch's gradient is not rounded */
    SL_TRY(sl_module_backward_input(stage, &p->context, kept_x(p, action->loop, action->microbatch),
                                    gradient_of(p, action),
                                    to   ? &sent
                                    : dx ? SL_INTO(dx)
                                         : NULL));
    if (to) record(p, SL_JOURNAL_ROW_GRADIENT, action, stage->in, sl_pipeline_dtype(p, stage->in), to);
    return release(p, ends->take_gradient, &p->state_gradient);
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

/* Calls W of the stage, and of a loss with parameters, for the groups from ACTION's microbatch on. In a sequence, each
 * child computes all groups before the next child begins; other stages, and losses, compute one group after another. */
static int weight_gradient_groups(struct sl_pipeline *p, const struct sl_action *action) {
    const int loop = action->loop, first = action->microbatch;
    const struct sl_module *stage = p->model->stage[loop], *loss = is_last(p, loop) ? p->model->loss : NULL;
    const bool each = p->context.microbatches > 1 && !sl_is_sequential(stage);
    const struct sl_given x = kept_x(p, loop, first), dy = kept_dy(p, loop, first);
    SL_TRY(each ? sl_module_backward_weight_each(stage, &p->context, x, dy)
                : sl_module_backward_weight(stage, &p->context, x, dy));
    if (!loss) return SL_OK;
    struct sl_context whole = p->context; /* the last stage's output is saved as floats */
    whole.storage = SL_F32;
    return sl_module_backward_weight_each(loss, &whole, sl_given_f32(p->outputs + output_row(p, first)),
                                          sl_given_f32(NULL));
}

/* Called once all gradients of the loop are computed. */
static int reduce(struct sl_pipeline *p, const struct sl_action *action) {
    if (!p->step->reduce) return SL_OK;
    SL_TRY(sl_pipeline_end_scatters(p));
    return p->step->reduce(p->self, action->loop, p->step->callback_arg);
}

/* ---- actions ---- */

/* An action's name in the trace, and its work. */
static const struct work {
    const char *name;
    int (*run)(struct sl_pipeline *p, const struct sl_action *action);
} works[SL_ACTION_KINDS] = {
    [SL_FORWARD] = {"F", forward_step},
    [SL_BACKWARD] = {"I", input_gradient_step},
    [SL_INPUT_GRADIENT] = {"I", input_gradient_step},
    [SL_WEIGHT_GRADIENT] = {"W", weight_gradient_groups},
    [SL_SEND_ACTIVATION] = {"send activation", send_activation},
    [SL_TAKE_ACTIVATION] = {"take activation", take_activation},
    [SL_SEND_GRADIENT] = {"send gradient", send_gradient},
    [SL_TAKE_GRADIENT] = {"take gradient", take_gradient},
    [SL_REDUCE] = {"reduce", reduce},
    [SL_UNSHARD] = {"unshard", sl_pipeline_shard_step},
    [SL_RESHARD] = {"reshard", sl_pipeline_shard_step},
};

static bool computes(const struct sl_action *action) { return action->kind <= SL_WEIGHT_GRADIENT; }

/* Kind of work of an action, except for its products. */
static enum sl_work work_of(const struct sl_action *action) {
    return computes(action) ? SL_WORK_KERNELS : SL_WORK_COMMUNICATION;
}

/* ACTION, for COUNT microbatches, as an event without times. */
static struct sl_trace_event event_of(const struct sl_pipeline *p, const struct sl_action *action, int count) {
    struct sl_trace_event event = {.work = computes(action) ? SL_TRACE_COMPUTE : SL_TRACE_COMMUNICATION,
                                   .stage = stage_of(p, action->loop),
                                   .loop = action->loop,
                                   .microbatch = action->microbatch,
                                   .count = count};
    strcpy(event.name, works[action->kind].name);
    return event;
}

/* Runs the work of ACTION, for COUNT microbatches, and adds it to the trace and to the profile. */
static int run_work(struct sl_pipeline *p, const struct sl_action *action, int count) {
    struct sl_trace *const trace = p->step->trace;
    if (trace) trace->action = event_of(p, action, count);
    const enum sl_work before = sl_profile_begin(p->context.profile, work_of(action));
    const struct sl_trace_mark mark = sl_trace_begin(trace);
    const double began = sl_profile_now(p->context.profile);
    SL_TRY(works[action->kind].run(p, action));
    if (computes(action)) sl_profile_compute(p->context.profile, began);
    if (trace) sl_trace_end(trace, mark, trace->action);
    sl_profile_end(p->context.profile, before);
    return SL_OK;
}

/* Runs the due groups of a loop's weight gradients. If layers are parts of the parameters, runs all groups of a sum
 * together. */
static int weight_gradient_step(struct sl_pipeline *p, int loop) {
    struct weight_gradients *weights = &p->weights[loop];
    const int sums = p->options.layer_sums, count = sums ? p->microbatches / sums : p->options.wgrad_group;
    while (sl_pipeline_group_is_due(p, weights)) {
        const struct sl_action action = {.kind = SL_WEIGHT_GRADIENT, .loop = loop, .microbatch = weights->next};
        SL_TRY(sl_pipeline_use_stash(p, loop, weights->next));
        SL_TRY(begin_weight_gradients(p, loop));
        set_batch(p, weights->next, count > p->context.wgrad_group ? count : 1);
        p->context.accumulate = weights->next > weights->first || p->step->accumulate;
        SL_TRY(run_work(p, &action, count));
        weights->next += count;
        sl_pipeline_drop_stash(p, loop, weights->next);
    }
    return SL_OK;
}

/* Runs ACTION, once all that it uses is in memory, and then the weight gradients that are due. */
static int run_action(struct sl_pipeline *p, const struct sl_action *action) {
    struct sl_doing *doing = &p->self->doing; /* for verdicts */
    doing->what = sl_action_name(action->kind);
    doing->stage = stage_of(p, action->loop);
    doing->microbatch = action->microbatch;
    doing->action = (int)(action - p->actions->action);
    doing->module = NULL;
    p->context.first_microbatch = p->weights[action->loop].first * sl_pipeline_blocks(p);
    SL_TRY(sl_pipeline_bring(p, action));
    if (action->kind < SL_REDUCE && action->kind != SL_WEIGHT_GRADIENT)
        SL_TRY(run_work(p, action, sl_schedule_run(p->options.schedule, action->kind)));
    if (sl_has_weight_gradient(action->kind)) sl_pipeline_weights_due(p, action);
    if (sl_pipeline_runs_weights(p, action)) SL_TRY(weight_gradient_step(p, action->loop));
    return action->kind < SL_REDUCE ? SL_OK : works[action->kind].run(p, action);
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

/* Runs the step's actions in PHASE. Without training these are the forwards, with the messages and gathers up to the
 * last of them. */
static int walk(struct sl_pipeline *p, struct sl_pipeline_step *step, enum sl_phase phase) {
    const struct sl_action *action = p->actions->action, *end = action + p->actions->count;
    while (phase != SL_TRAIN && end > action && !sl_goes_forward(end[-1].kind)) end--;
    SL_TRY(begin_step(p, step, phase));
    for (; action < end; action++) {
        const bool gathers = action->kind == SL_UNSHARD || action->kind == SL_RESHARD;
        if (phase != SL_TRAIN && !gathers && !sl_goes_forward(action->kind)) continue;
        SL_TRY(sl_progress(p->self));
        SL_TRY(sl_pipeline_advance_shards(p));
        const enum sl_work before = sl_profile_begin(p->context.profile, work_of(action));
        if (step->between) SL_TRY(step->between(step->callback_arg));
        SL_TRY(run_action(p, action));
        sl_profile_end(p->context.profile, before);
    }
    p->self->doing.what = NULL;
    sl_channels_rest(p->self);
    return SL_OK;
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
    SL_TRY(walk(p, step, SL_TRAIN));
    SL_TRY(sl_pipeline_end_scatters(p));
    if (!step->unread) sl_pipeline_read(p, step);
    return SL_OK;
}

int sl_pipeline_generate(struct sl_pipeline *p, struct sl_pipeline_step *step, enum sl_phase phase) {
    SL_TRY(walk(p, step, phase));
    SL_TRY(sl_pipeline_end_shards(p));
    if (phase == SL_EVALUATE) sl_pipeline_read(p, step);
    return sl_groups_meet(&p->groups, p->self);
}

int sl_pipeline_evaluate(struct sl_pipeline *p, struct sl_pipeline_step *step) {
    return sl_pipeline_generate(p, step, SL_EVALUATE);
}

static bool keeps_outputs(const struct sl_pipeline *p) { return p->options.keeps_outputs || p->options.forward_only; }

const float *sl_pipeline_outputs(const struct sl_pipeline *p) { return keeps_outputs(p) ? p->output_gradients : NULL; }

const float *sl_pipeline_predictions(const struct sl_pipeline *p) { return keeps_outputs(p) ? p->outputs : NULL; }
