/* trainer.c - one coordinate's training run: pipeline, reduction over data, optimizer, metrics. */
#include "layers/trainer.h"

#include <stdlib.h>

#include "layers/exchange.h"
#include "spmd/device.h"

struct sl_trainer {
    struct sl_spmd *self;
    struct sl_trainer_options options;
    struct sl_parameters parameters;
    struct sl_pipeline *pipeline;
    const struct sl_kernels *kernels;
    struct sl_updates updates;
    struct sl_group world;
    int64_t step;
    struct sl_profile *profile;
    struct sl_trace *trace;
    struct sl_key dropout; /* root of the keys of dropout by global position */
};

static const struct sl_group *data_of(const struct sl_trainer *t) { return &t->updates.sums; }

int sl_trainer_plan(struct sl_trainer **trainer, struct sl_spmd *self, const struct sl_trainer_options *options,
                    struct sl_model *model) {
    struct sl_trainer *t = calloc(1, sizeof *t);
    *trainer = t;
    if (!t || sl_parameters_open(&t->parameters, model->loops)) return sl_fail(self, SL_FAILED, "no memory to train");
    t->self = self;
    t->options = *options;
    t->kernels = sl_kernels_select();
    t->updates = (struct sl_updates){.self = self,
                                     .parameters = &t->parameters,
                                     .kernels = t->kernels,
                                     .adamw = &t->options.adamw,
                                     .zero = options->zero,
                                     .overlap = options->overlap};
    SL_TRY(sl_updates_open(&t->updates, options->data_axis, model->loops));
    SL_TRY(sl_group_axes(self, "*", &t->world));
    SL_TRY(sl_pipeline_plan(&t->pipeline, self, &options->pipeline, model, &t->parameters));
    sl_parameters_layout(&t->parameters, data_of(t)->size, data_of(t)->rank, options->zero);
    sl_parameters_seed(&t->parameters, options->seed);
    if (options->assign_keys) options->assign_keys(&t->parameters, options->arg);
    t->dropout = sl_fold_in(sl_key_of_seed(options->seed), 1);
    return SL_OK;
}

void sl_trainer_bytes(const struct sl_trainer *t, size_t *state, size_t *activations) {
    *state = sl_parameters_bytes(&t->parameters);
    *activations = sl_pipeline_bytes(t->pipeline);
}

int sl_trainer_open(struct sl_trainer *t, const struct sl_store *from) {
    SL_TRY(sl_parameters_take(&t->parameters, &t->self->error));
    SL_TRY(from ? sl_import(t->self, &t->world, &t->parameters, from)
                : sl_parameters_initialize(&t->parameters, t->self, data_of(t)));
    for (int l = 0; l < t->parameters.loops; l++) sl_parameters_round(&t->parameters, t->kernels, l);
    return sl_pipeline_open(t->pipeline);
}

void sl_trainer_close(struct sl_trainer *t) {
    if (!t) return;
    sl_updates_close(&t->updates);
    sl_pipeline_close(t->pipeline);
    sl_parameters_close(&t->parameters);
    free(t);
}

/* The pipeline's callbacks. */
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

/* Coordinates that differ along other axes than data and the pipeline's count the same rows. */
static int sum_metrics(struct sl_trainer *t, const struct sl_metrics *own, struct sl_metrics *metrics, bool *stop) {
    const double copies = t->world.size / (data_of(t)->size * t->options.pipeline.schedule->ranks);
    float sums[4] = {(float)own->loss, (float)own->correct, (float)own->rows, *stop ? 1.0f : 0.0f};
    SL_TRY(sl_psum(t->self, &t->world, SL_F32, sums, sums, 4));
    *metrics = (struct sl_metrics){sums[0] / copies, sums[1] / copies, sums[2] / copies};
    *stop = sums[3] > 0;
    return SL_OK;
}

static uint32_t local_rows(const struct sl_trainer *t) {
    return (uint32_t)(t->options.pipeline.schedule->microbatches * t->options.pipeline.rows);
}

void sl_trainer_set_profile(struct sl_trainer *t, struct sl_profile *profile) {
    t->profile = t->updates.profile = profile;
}

void sl_trainer_set_trace(struct sl_trainer *t, struct sl_trace *trace) {
    t->trace = t->updates.trace = trace;
    if (trace) t->self->timed = true;
}

void sl_trainer_set_learning_rate(struct sl_trainer *t, float learning_rate) {
    t->options.adamw.learning_rate = learning_rate;
}

static int take_step(struct sl_trainer *t, const struct sl_batch *batch, struct sl_metrics *metrics, bool *stop) {
    t->updates.step = ++t->step;
    if (t->trace) t->trace->step = (int)t->step - 1;
    struct sl_pipeline_step step = {
        .batch = *batch,
        .first_row = (uint32_t)data_of(t)->rank * local_rows(t),
        .step_key = sl_fold_in(t->dropout, (uint32_t)t->step),
        .layer_key = t->options.step_keys ? t->options.step_keys(t->options.arg) : NULL,
        .weight = 1.0f / (float)local_rows(t),
        .reduce = loop_completed,
        .between = between_actions,
        .callback_arg = t,
        .profile = t->profile,
        .trace = t->trace,
    };
    SL_TRY(sl_pipeline_train(t->pipeline, &step));
    const enum sl_work before = sl_profile_begin(t->profile, SL_WORK_COMMUNICATION);
    SL_TRY(sl_updates_finish(&t->updates));
    SL_TRY(sl_device.settle(&t->self->error));
    const struct sl_trace_mark mark = sl_trace_begin(t->trace);
    SL_TRY(sum_metrics(t, &step.metrics, metrics, stop));
    sl_trace_end(t->trace, mark,
                 (struct sl_trace_event){.name = "metrics", .work = SL_TRACE_COMMUNICATION, .stage = -1});
    sl_profile_end(t->profile, before);
    return SL_OK;
}

int sl_trainer_step(struct sl_trainer *t, const struct sl_batch *batch, struct sl_metrics *metrics, bool *stop) {
    const int status = take_step(t, batch, metrics, stop);
    /* sl_trainer_close may have to see reductions off, and peers must know then that this coordinate has failed. */
    if (status && !t->self->error.status) sl_fail(t->self, status, "step %lld failed", (long long)t->step);
    return status;
}

int sl_trainer_evaluate(struct sl_trainer *t, const struct sl_batch *batch, struct sl_metrics *metrics) {
    struct sl_pipeline_step step = {.batch = *batch, .first_row = (uint32_t)data_of(t)->rank * local_rows(t)};
    bool stop = false;
    SL_TRY(sl_pipeline_evaluate(t->pipeline, &step));
    return sum_metrics(t, &step.metrics, metrics, &stop);
}

int sl_trainer_export(struct sl_trainer *t, bool gradients, struct sl_store *store) {
    /* Under ZeRO a member has the sums of its own share of the gradients alone. */
    for (int l = 0; gradients && t->options.zero && data_of(t)->size > 1 && l < t->parameters.loops; l++) {
        struct sl_loop_storage *loop = &t->parameters.loop[l];
        SL_TRY(sl_all_gather(t->self, data_of(t), SL_F32, loop->gradient + loop->shard, loop->gradient, 1,
                             loop->shard_count));
    }
    const float scale = gradients ? 1.0f / (float)data_of(t)->size : 1.0f;
    return sl_export(t->self, &t->world, &t->parameters, data_of(t)->rank == 0, gradients, scale, store);
}
