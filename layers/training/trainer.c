/* trainer.c - one coordinate's training run: pipeline, reduction over data, optimizer, metrics. */
#include "layers/training/trainer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "layers/modules/not_finite.h"
#include "layers/modules/parameters/patterns.h"
#include "layers/training/exact/counts.h"
#include "layers/training/exchange.h"
#include "spmd/device/device.h"

struct sl_trainer {
    struct sl_spmd *self;
    struct sl_trainer_options options;
    struct sl_parameters parameters;
    struct sl_pipeline *pipeline;
    const struct sl_kernels *kernels;
    struct sl_updates updates;
    int64_t step;
    struct sl_profile *profile;
    struct sl_trace *trace;
    struct sl_journal *journal, *recording; /* recording: the journal if the current step is recorded, else NULL */
    struct sl_key dropout;                  /* root of the dropout keys by global position */
    struct sl_leaves leaves;                /* used with exact, and so is: */
    struct sl_metrics *counts;              /* metrics: [leaves] of this coordinate, then [coordinates, leaves] */
    struct sl_pass_sums sums;               /* sums of the step's passes */
    bool lost;                              /* whether gradients of the last step were not finite, on any coordinate */
    bool diverged;                          /* whether a step has failed because values were not finite */
};

static const struct sl_group *data_of(const struct sl_trainer *t) { return &t->updates.sums; }

/* Opens the group of coordinates with the same tied parameters; exports, norms and hashes count the first member's. */
static int tie(struct sl_trainer *t, const struct sl_model *model) {
    const struct sl_schedule *schedule = t->options.pipeline.schedule;
    const struct sl_mesh *mesh = t->self->mesh;
    const int axis = sl_mesh_find_axis(mesh, t->options.pipeline.axis), me = t->self->coordinate;
    int ends[2];
    sl_model_ends(schedule, axis < 0 ? 0 : sl_mesh_index(mesh, me, axis), ends);
    const int members = model->tied == SL_TIED_RANKS ? schedule->ranks : ends[0] == ends[1] ? 1 : 2;
    if (model->tied == SL_TIED_SHARDS || members == 1 || axis < 0) return SL_OK;
    int member[members];
    for (int i = 0; i < members; i++)
        member[i] = sl_mesh_neighbour(mesh, me, axis, model->tied == SL_TIED_RANKS ? i : ends[i]);
    for (int i = 1; i < members; i++) t->parameters.tied_elsewhere |= member[i] == me;
    return sl_updates_tie(&t->updates, members, member);
}

/* Adds the optimizer's state tensors to the parameters' storage. */
static int name_states(struct sl_trainer *t) {
    const struct sl_optimizer_options *optimizer = &t->options.optimizer;
    if (t->options.pipeline.forward_only) return SL_OK;
    if (sl_optimizer_check(optimizer, &t->self->error)) return SL_BAD_INPUT;
    t->parameters.decays = optimizer->decays;
    t->parameters.states = sl_optimizer_states(optimizer);
    t->parameters.state_name = optimizer->method->state;
    return SL_OK;
}

/* Number of the model's replicas: coordinates along data, where those along the context axis together count as one. */
static int replicas(const struct sl_trainer *t) { return data_of(t)->size / sl_trainer_sharing(t->self, &t->options); }
/* Leaves of this coordinate; 1 without exact. */
static int leaves(const struct sl_trainer *t) { return t->options.exact ? t->options.exact / replicas(t) : 1; }
/* Passes of a leaf. */
static int parts(const struct sl_trainer *t) { return t->options.accumulate > 0 ? t->options.accumulate : 1; }
static int passes(const struct sl_trainer *t) { return parts(t) * leaves(t); }
int sl_trainer_passes(const struct sl_trainer *t) { return passes(t); }

/* The context axis, if training adds up leaves of sequences. */
static const char *leaves_of_sequences(const struct sl_trainer_options *options) {
    return options->pipeline.context_leaves && !options->pipeline.forward_only ? options->pipeline.context_axis : NULL;
}

/* Whether the members of data hold values together; each of them updates a part. */
static bool holds_together(const struct sl_trainer *t) {
    return t->options.zero && !t->parameters.turns && data_of(t)->size > 1 && sl_device.shares_memory &&
           sl_reads_peers(t->self);
}

/* Whether the members of data hold together the whole kernels that are sharded over data and gathered ahead of use. */
static bool holds_wholes(const struct sl_trainer *t) {
    const struct sl_pipeline_options *options = &t->options.pipeline;
    return options->schedule->sharded && !options->forward_only && !t->parameters.turns && data_of(t)->size > 1 &&
           sl_device.shares_memory && sl_reads_peers(t->self) && options->precision == SL_F32 &&
           options->storage == SL_F32;
}

/* Whether each member holds float kernels only for its own part. Members that do hold no values together. */
static bool shards_floats(const struct sl_trainer *t) {
    return t->options.zero && !t->parameters.turns && !t->parameters.one_copy && !t->parameters.values_only &&
           data_of(t)->size > 1 && t->parameters.working_bf16;
}

int sl_trainer_plan(struct sl_trainer **trainer, struct sl_spmd *self, const struct sl_trainer_options *options,
                    struct sl_model *model) {
    struct sl_trainer *t = calloc(1, sizeof *t);
    *trainer = t;
    if (!t) return sl_fail(self, SL_FAILED, "no memory to train");
    t->self = self;
    t->options = *options;
    t->options.pipeline.offload_directory = options->offload_directory;
    SL_TRY(sl_pipeline_check(self, &options->pipeline, model));
    SL_TRY(sl_trainer_check(self, options));
    SL_TRY(sl_model_open_parameters(self, &t->options, model, &t->parameters));
    SL_TRY(name_states(t));
    t->kernels = sl_kernels_select();
    t->updates = (struct sl_updates){.self = self,
                                     .parameters = &t->parameters,
                                     .kernels = t->kernels,
                                     .optimizer = &t->options.optimizer,
                                     .context_axis = leaves_of_sequences(options),
                                     .clip = options->clip,
                                     .zero = options->zero,
                                     .looks = !options->ignore_nan,
                                     .overlap = options->overlap && !options->offload_weights};
    const int gradients = options->pipeline.schedule->microbatches / options->pipeline.wgrad_group * parts(t);
    SL_TRY(sl_updates_open(&t->updates, options->data_axis));
    SL_TRY(tie(t, model));
    t->parameters.data_axis = options->data_axis;
    sl_leaves_plan(&t->parameters, options->exact, replicas(t), gradients);
    if (t->updates.context_axis)
        t->parameters.apart.count = options->pipeline.context_leaves / sl_trainer_sharing(self, options);
    t->parameters.values_only = options->pipeline.forward_only;
    t->parameters.frozen = options->pipeline.forward_only ? NULL : options->freeze;
    t->parameters.adapters = options->adapters;
    t->parameters.source = options->source;
    t->parameters.alone = options->alone;
    t->parameters.stage_axis = options->pipeline.axis;
    t->parameters.copied = options->pipeline.schedule->copies > 1;
    if (options->offload_weights && !options->pipeline.forward_only)
        SL_TRY(sl_parameters_begin_turns(&t->parameters, &self->error));
    t->parameters.one_copy = holds_together(t);
    t->parameters.wholes = holds_wholes(t);
    t->parameters.held = &self->held;
    t->parameters.far_states = options->offload_optimizer && !options->pipeline.forward_only;
    t->parameters.far_directory = options->offload_directory;
    t->options.pipeline.passes = passes(t);
    SL_TRY(sl_pipeline_plan(&t->pipeline, self, &t->options.pipeline, model, &t->parameters));
    SL_TRY(sl_check_patterns(self, &t->updates.world, &t->parameters));
    if (options->exact) SL_TRY(sl_leaves_check(self, options->exact, replicas(t), gradients, &t->parameters));
    t->parameters.shards_floats = shards_floats(t);
    SL_TRY(sl_model_plan_rooms(self, &t->options, model, &t->parameters));
    sl_parameters_layout(&t->parameters, data_of(t)->size, data_of(t)->rank, options->zero);
    sl_parameters_seed(&t->parameters, options->seed);
    if (options->assign_keys) options->assign_keys(&t->parameters, options->arg);
    t->dropout = sl_fold_in(sl_key_of_seed(options->seed), 1);
    return SL_OK;
}

/* Bytes of sums that wait for other leaves; then of the leaves' metrics. */
static size_t waiting_bytes(const struct sl_trainer *t) {
    if (t->options.pipeline.forward_only) return 0;
    return sl_leaves_bytes(&t->parameters, leaves(t)) + sl_apart_bytes(&t->parameters);
}
static size_t counts_bytes(const struct sl_trainer *t) {
    const size_t coordinates = (size_t)t->updates.world.size + 1;
    return t->options.exact && !t->options.pipeline.forward_only ? coordinates * (size_t)leaves(t) * sizeof *t->counts
                                                                 : 0;
}

static int open_leaves(struct sl_trainer *t) {
    if (!t->options.exact || t->options.pipeline.forward_only) return SL_OK;
    t->counts = malloc(counts_bytes(t));
    if (!t->counts) return sl_fail(t->self, SL_FAILED, "no memory to train");
    sl_budget_add(&t->self->held, SL_MEMORY_RUNTIME, counts_bytes(t));
    SL_TRY(sl_apart_open(&t->parameters, &t->self->held, &t->self->error));
    SL_TRY(sl_leaves_open(&t->leaves, &t->parameters, leaves(t), &t->self->held, &t->self->error));
    t->updates.leaves = &t->leaves;
    return SL_OK;
}

void sl_trainer_bytes(const struct sl_trainer *t, size_t *state, size_t *activations) {
    *state = sl_parameters_bytes(&t->parameters) + waiting_bytes(t);
    *activations = sl_pipeline_bytes(t->pipeline);
}

void sl_trainer_plan_bytes(const struct sl_trainer *t, struct sl_budget *budget) {
    sl_parameters_plan_bytes(&t->parameters, budget);
    sl_pipeline_plan_bytes(t->pipeline, budget);
    sl_budget_add(budget, SL_MEMORY_GRADIENTS, waiting_bytes(t));
    sl_budget_add(budget, SL_MEMORY_RUNTIME, counts_bytes(t) + sl_pass_sums_bytes(passes(t)));
}

int sl_trainer_open(struct sl_trainer *t, const struct sl_store *from) {
    if (!t) return SL_BAD_INPUT;
    SL_TRY(sl_parameters_take_common(&t->parameters, t->self, data_of(t)));
    SL_TRY(sl_parameters_take(&t->parameters, &t->self->error));
    SL_TRY(open_leaves(t));
    SL_TRY(sl_pass_sums_open(&t->sums, passes(t), &t->self->held, &t->self->error));
    SL_TRY(sl_updates_meet(&t->updates));
    if (!from || t->parameters.adapters) SL_TRY(sl_parameters_initialize(&t->parameters, t->self, data_of(t)));
    if (from) SL_TRY(sl_import_base(t->self, &t->updates.world, &t->parameters, from));
    SL_TRY(sl_pipeline_open(t->pipeline));
    t->updates.totals = sl_pipeline_sums(t->pipeline);
    return SL_OK;
}

void sl_trainer_close(struct sl_trainer *t) {
    if (!t) return;
    sl_updates_close(&t->updates);
    sl_pipeline_close(t->pipeline);
    sl_apart_close(&t->parameters);
    sl_parameters_close(&t->parameters);
    sl_leaves_close(&t->leaves);
    free(t->counts);
    sl_pass_sums_close(&t->sums);
    free(t);
}

/* Callbacks of the pipeline. */
static int part_begins(struct sl_spmd *self, int part, void *arg) {
    struct sl_trainer *t = arg;
    (void)self;
    return sl_updates_make_room(&t->updates, part);
}

static int loop_completed(struct sl_spmd *self, int loop, void *arg) {
    struct sl_trainer *t = arg;
    (void)self;
    return sl_updates_complete(&t->updates, loop);
}

static int between_actions(void *arg) {
    struct sl_trainer *t = arg;
    return sl_updates_advance(&t->updates);
}

/* ---- steps ---- */

/* Coordinates that differ only along axes other than data and the pipeline's axis count the same rows. */
static struct sl_counting counting_of(const struct sl_trainer *t) {
    const int copies = t->updates.world.size / (data_of(t)->size * t->options.pipeline.schedule->ranks);
    return (struct sl_counting){&t->updates.world, copies, t->options.data_axis, t->options.pipeline.context_axis};
}

static int sum_metrics(struct sl_trainer *t, const struct sl_metrics *own, struct sl_metrics *metrics, bool *stop) {
    enum { SUMS = 6 };
    const double copies = counting_of(t).copies;
    float sums[SUMS] = {(float)own->loss,    (float)own->correct,   (float)own->rows,
                        *stop ? 1.0f : 0.0f, (float)own->auxiliary, t->updates.lost ? 1.0f : 0.0f};
    SL_TRY(sl_psum(t->self, &t->updates.world, SL_F32, sums, sums, SUMS));
    *metrics = (struct sl_metrics){sums[0] / copies, sums[1] / copies, sums[2] / copies, sums[4] / copies};
    *stop = sums[3] > 0;
    t->lost = sums[5] > 0;
    return SL_OK;
}

static int sum_leaves(struct sl_trainer *t, struct sl_metrics *metrics) {
    const struct sl_counting counting = counting_of(t);
    const size_t count = (size_t)leaves(t);
    return sl_sum_leaves(t->self, &counting, count, t->counts, t->counts + count, metrics);
}

/* Rows of one pass. */
static uint32_t local_rows(const struct sl_trainer *t) {
    return (uint32_t)(t->options.pipeline.schedule->microbatches * t->options.pipeline.rows);
}

void sl_trainer_set_profile(struct sl_trainer *t, struct sl_profile *to) { t->profile = t->updates.profile = to; }

void sl_trainer_set_trace(struct sl_trainer *t, struct sl_trace *trace) {
    t->trace = t->updates.trace = trace;
    if (trace) t->self->timed = true;
}

void sl_trainer_set_journal(struct sl_trainer *t, struct sl_journal *journal) { t->journal = journal; }
void sl_trainer_set_learning_rate(struct sl_trainer *t, float learning_rate) {
    t->options.optimizer.learning_rate = learning_rate;
}

/* Ends the step's passes: all work of the step is queued before the host waits for the sums of all passes. */
static int end_passes(struct sl_trainer *t, int each, struct sl_metrics *sums) {
    SL_TRY(sl_updates_finish(&t->updates));
    if (t->recording) sl_journal_complete(t->recording);
    sl_pass_sums_read(&t->sums, sl_pipeline_sums(t->pipeline), each, sums);
    return sl_device.settle(&t->self->error);
}

/* Weight of a row in the mean loss of this replica or leaf; the mean of their gradients follows. */
static float weight_of(const struct sl_trainer *t, const struct sl_batch *batch) {
    if (batch->counted > 0)
        return (float)(data_of(t)->size * leaves(t) * sl_apart_count(&t->parameters) / batch->counted);
    return (float)sl_apart_count(&t->parameters) / (float)(local_rows(t) * (uint32_t)parts(t));
}

/* Number of the sequences' replica: coordinates along the context axis have rows of the same sequences. */
static uint32_t replica(const struct sl_trainer *t) {
    return (uint32_t)(data_of(t)->rank / sl_trainer_sharing(t->self, &t->options));
}

/* The step's pass number PASS through the pipeline, with its rows of the batch. */
static struct sl_pipeline_step pass_of(struct sl_trainer *t, const struct sl_batch *batch, int pass) {
    const uint32_t rows = local_rows(t), first = (uint32_t)pass * rows;
    return (struct sl_pipeline_step){
        .batch = sl_batch_rows(batch, (int)first, (int)rows, sl_pipeline_inputs(t->pipeline),
                               sl_pipeline_targets(t->pipeline)),
        .first_row = replica(t) * rows * (uint32_t)passes(t) + first,
        .accumulate = pass % parts(t) > 0 || t->parameters.apart.count,
        .pass = pass,
        .unread = true,
        .step_key = sl_fold_in(t->dropout, (uint32_t)t->step),
        .layer_key = t->options.step_keys ? t->options.step_keys(t->options.arg) : NULL,
        .weight = weight_of(t, batch),
    };
}

/* Runs one pass. Gradients are summed over data after the last one. */
static int run_pass(struct sl_trainer *t, const struct sl_batch *batch, int pass, struct sl_metrics *sums) {
    const bool last = pass == passes(t) - 1;
    struct sl_pipeline_step step = pass_of(t, batch, pass);
    step.begin = last ? part_begins : NULL;
    step.reduce = last ? loop_completed : NULL;
    step.between = last ? between_actions : NULL;
    step.callback_arg = t;
    step.profile = t->profile;
    step.trace = t->trace;
    step.journal = t->recording;
    if (t->parameters.apart.count && pass % parts(t) == 0) sl_apart_clear(&t->parameters);
    if (t->recording) sl_journal_pass(t->recording, pass, step.first_row);
    SL_TRY(sl_pipeline_train(t->pipeline, &step));
    sl_pass_sums_keep(&t->sums, pass, sl_pipeline_sums(t->pipeline));
    sl_add_counts(sums, &step.metrics); /* metrics added by modules on the host */
    if (last || !t->updates.leaves || (pass + 1) % parts(t)) return SL_OK;
    return sl_updates_end_leaf(&t->updates, pass / parts(t));
}

double sl_trainer_norm(const struct sl_trainer *t) { return t->updates.norm; }
bool sl_trainer_diverged(const struct sl_trainer *t) { return t->diverged; }
const struct sl_pipeline *sl_trainer_pipeline(const struct sl_trainer *t) { return t->pipeline; }
struct sl_parameters *sl_trainer_parameters(struct sl_trainer *t) { return &t->parameters; }
struct sl_spmd *sl_trainer_self(const struct sl_trainer *t) { return t->self; }
const struct sl_trainer_options *sl_trainer_options_of(const struct sl_trainer *t) { return &t->options; }
const struct sl_optimizer_options *sl_trainer_optimizer(const struct sl_trainer *t) { return &t->options.optimizer; }
const struct sl_group *sl_trainer_world(const struct sl_trainer *t) { return &t->updates.world; }
int64_t sl_trainer_steps(const struct sl_trainer *t) { return t->step; }
void sl_trainer_set_steps(struct sl_trainer *t, int64_t steps) { t->step = steps; }

/* Checks the number of rows of the whole batch; the pipeline sees only a pass's rows. */
static int check_rows(const struct sl_trainer *t, const struct sl_batch *batch) {
    const int rows = sl_pipeline_rows(t->pipeline) * passes(t);
    if (batch->rows == rows) return SL_OK;
    return sl_fail(t->self, SL_BAD_INPUT,
                   "the batch has %d rows (its field rows), but a step takes %d: rows %d x microbatches %d x passes %d",
                   batch->rows, rows, t->options.pipeline.rows, t->options.pipeline.schedule->microbatches, passes(t));
}

/* Runs the step again, without an update, and checks all results; TEXT names the first one that is not finite. If
 * parameters take turns in memory, does nothing, because some are not in memory. Collective over the mesh. */
static int find_first(struct sl_trainer *t, const struct sl_batch *batch, char text[SL_NOT_FINITE_TEXT]) {
    struct sl_not_finite found;
    *text = 0;
    if (t->parameters.turns) return SL_OK;
    sl_not_finite_begin(&found, t->self);
    sl_not_finite_values(&found, &t->parameters);
    for (int pass = 0; pass < passes(t); pass++) {
        struct sl_pipeline_step step = pass_of(t, batch, pass);
        found.pass = pass;
        step.inspector = &found.inspector;
        SL_TRY(sl_pipeline_train(t->pipeline, &step));
        SL_TRY(sl_device.settle(&t->self->error));
    }
    return sl_not_finite_agree(&found, &t->updates.world, text);
}

/* Reports a non-finite loss or gradients. Metrics and norm, and so the decision, are the same on all coordinates. */
static int check_finite(struct sl_trainer *t, const struct sl_batch *batch, const struct sl_metrics *metrics) {
    const long long step = (long long)t->step - 1;
    char first[SL_NOT_FINITE_TEXT];
    if (t->options.ignore_nan) return SL_OK;
    const bool clips = t->options.clip > 0.0f, loss = !isfinite(metrics->loss);
    if (!loss && (clips ? isfinite(t->updates.norm) : !t->lost)) return SL_OK;
    t->diverged = true;
    SL_TRY(find_first(t, batch, first));
    return sl_fail(t->self, SL_FAILED,
                   "%s of step %lld %s not finite: a smaller learning rate may help (a program of one's own may go on "
                   "all the same: ignore_nan)%s%s",
                   loss    ? "the loss"
                   : clips ? "the norm of the gradients"
                           : "the gradients",
                   step, loss || clips ? "is" : "are", *first ? "; the first result that is not: " : "", first);
}

static int take_step(struct sl_trainer *t, const struct sl_batch *batch, struct sl_metrics *metrics, bool *stop) {
    struct sl_metrics sums = {0}, *own = t->counts ? t->counts : &sums;
    const int each = t->counts ? parts(t) : passes(t); /* passes whose metrics are summed together */
    SL_TRY(check_rows(t, batch));
    if (t->counts) memset(t->counts, 0, (size_t)leaves(t) * sizeof *t->counts);
    t->recording = t->journal && sl_journal_begin(t->journal, t->step) ? t->journal : NULL;
    t->updates.prints = t->recording ? sl_journal_prints(t->recording) : NULL;
    t->updates.step = t->self->doing.steps = ++t->step;
    t->updates.lost = false;
    sl_profile_step(t->profile);
    if (t->trace) t->trace->step = (int)t->step - 1;
    for (int pass = 0; pass < passes(t); pass++) SL_TRY(run_pass(t, batch, pass, own + pass / each));
    const enum sl_work before = sl_profile_begin(t->profile, SL_WORK_COMMUNICATION);
    SL_TRY(end_passes(t, each, own));
    const struct sl_trace_mark mark = sl_trace_begin(t->trace);
    SL_TRY(sum_metrics(t, &sums, metrics, stop));
    if (t->counts) SL_TRY(sum_leaves(t, metrics));
    sl_trace_end(t->trace, mark,
                 (struct sl_trace_event){.name = "metrics", .work = SL_TRACE_COMMUNICATION, .stage = -1});
    sl_profile_end(t->profile, before);
    if (t->recording)
        SL_TRY(sl_journal_end(t->recording, metrics->loss / metrics->rows,
                              t->options.clip > 0.0f ? t->updates.norm : (double)NAN));
    return check_finite(t, batch, metrics);
}

int sl_trainer_step(struct sl_trainer *t, const struct sl_batch *batch, struct sl_metrics *metrics, bool *stop) {
    sl_device.begin_step(t, t->options.graphs);
    const int status = take_step(t, batch, metrics, stop);
    sl_device.end_step();
    /* Peers must know of the failure before sl_trainer_close waits for reductions under way. */
    if (status && !t->self->error.status) sl_fail(t->self, status, "step %lld failed", (long long)t->step - 1);
    return status;
}

int sl_trainer_evaluate(struct sl_trainer *t, const struct sl_batch *batch, struct sl_metrics *metrics) {
    struct sl_pipeline_step step = {.batch = *batch, .first_row = replica(t) * local_rows(t)};
    bool stop = false;
    SL_TRY(sl_pipeline_evaluate(t->pipeline, &step));
    return sum_metrics(t, &step.metrics, metrics, &stop);
}

int sl_trainer_stream(struct sl_trainer *t, const struct sl_batch *batch, struct sl_trace *trace,
                      struct sl_metrics *own) {
    struct sl_pipeline_step step = {.batch = *batch, .first_row = replica(t) * local_rows(t), .trace = trace};
    SL_TRY(sl_pipeline_evaluate(t->pipeline, &step));
    sl_add_counts(own, &step.metrics);
    return SL_OK;
}

int sl_trainer_sum(struct sl_trainer *t, size_t count, const struct sl_metrics *own, struct sl_metrics *metrics) {
    const struct sl_group *world = &t->updates.world;
    struct sl_metrics *all = calloc((size_t)world->size * count, sizeof *all);
    if (!all) return sl_fail(t->self, SL_FAILED, "no memory to sum metrics");
    const int status = sl_all_gather(t->self, world, SL_I32, own, all, count * (sizeof *own / sizeof(int32_t)));
    const struct sl_counting counting = counting_of(t);
    for (size_t i = 0; i < count; i++) metrics[i] = sl_sum_counts(&counting, all, count, i);
    free(all);
    return status;
}

int sl_trainer_export(struct sl_trainer *t, bool gradients, struct sl_store *store) {
    const float scale = gradients ? 1.0f / (float)sl_updates_parts(&t->updates) : 1.0f;
    if (gradients) SL_TRY(sl_updates_sum(&t->updates));
    return sl_export(t->self, &t->updates.world, &t->parameters, gradients ? SL_GRADIENTS : SL_VALUES, scale, store);
}
