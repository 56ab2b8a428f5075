/* trainer.c - one coordinate's training run: pipeline, reduction over data, optimizer, metrics. */
#include "layers/trainer.h"

#include <stdlib.h>

#include "layers/exchange.h"

/* Gradient reductions under way; fewer than SL_MAX_IN_FLIGHT, for values are gathered over the same group. */
enum { REDUCTIONS = 4 };

struct sl_trainer {
    struct sl_spmd *self;
    struct sl_trainer_options options;
    struct sl_parameters parameters;
    struct sl_pipeline *pipeline;
    const struct sl_kernels *kernels;
    struct sl_group data, world;
    int64_t step;
    struct sl_profile *profile;
    struct sl_key dropout; /* root of the keys of dropout by global position */
    /* Loops whose reduction has been started and not yet been used, oldest first; all loops in order of completion. */
    struct sl_request reduction[REDUCTIONS];
    int *completed; /* [loops] */
    int completions, started, finished;
};

int sl_trainer_plan(struct sl_trainer **trainer, struct sl_spmd *self, const struct sl_trainer_options *options,
                    struct sl_model *model) {
    struct sl_trainer *t = calloc(1, sizeof *t);
    *trainer = t;
    if (!t || sl_parameters_open(&t->parameters, model->loops)) return sl_fail(self, SL_FAILED, "no memory to train");
    t->self = self;
    t->options = *options;
    t->kernels = sl_kernels_select();
    t->completed = calloc((size_t)model->loops, sizeof *t->completed);
    if (!t->completed) return sl_fail(self, SL_FAILED, "no memory to train");
    SL_TRY(sl_group_axes(self, options->data_axis, &t->data));
    SL_TRY(sl_group_axes(self, "*", &t->world));
    SL_TRY(sl_pipeline_plan(&t->pipeline, self, &options->pipeline, model, &t->parameters));
    sl_parameters_layout(&t->parameters, t->data.size, t->data.rank, options->zero);
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
    SL_TRY(from ? sl_import(t->self, &t->parameters, from)
                : sl_parameters_initialize(&t->parameters, t->self, &t->data));
    return sl_pipeline_open(t->pipeline);
}

void sl_trainer_close(struct sl_trainer *t) {
    if (!t) return;
    /* After a failure: peers may still read the gradients of a reduction under way. */
    for (; t->data.size > 1 && t->finished < t->started; t->finished++)
        sl_wait(t->self, &t->reduction[t->finished % REDUCTIONS]);
    sl_pipeline_close(t->pipeline);
    sl_parameters_close(&t->parameters);
    free(t->completed);
    free(t);
}

/* ---- a loop's gradients: summed over data, used, values gathered ---- */

static int start_reduction(struct sl_trainer *t) {
    struct sl_loop_storage *loop = &t->parameters.loop[t->completed[t->started]];
    struct sl_request *request = &t->reduction[t->started % REDUCTIONS];
    if (t->options.zero)
        SL_TRY(sl_psum_scatter_start(t->self, request, &t->data, SL_F32, loop->gradient, loop->gradient + loop->shard,
                                     1, loop->shard_count));
    else
        SL_TRY(sl_psum_start(t->self, request, &t->data, SL_F32, loop->gradient, loop->gradient, loop->count));
    t->started++;
    return SL_OK;
}

/* Waits for the oldest reduction, updates the loop (its share of it), and gathers the new values. */
static int finish_reduction(struct sl_trainer *t) {
    const int number = t->completed[t->finished];
    struct sl_loop_storage *loop = &t->parameters.loop[number];
    if (t->data.size > 1) SL_TRY(sl_wait(t->self, &t->reduction[t->finished % REDUCTIONS]));
    t->finished++;
    const enum sl_work before = sl_profile_begin(t->profile, SL_WORK_OPTIMIZER);
    sl_adamw_update(&t->options.adamw, t->kernels, &t->parameters, number, t->step, 1.0f / (float)t->data.size);
    sl_profile_end(t->profile, before);
    if (t->data.size == 1 || !t->options.zero) return SL_OK;
    return sl_all_gather(t->self, &t->data, SL_F32, loop->value + loop->shard, loop->value, 1, loop->shard_count);
}

/* The pipeline's callback: LOOP's gradients are complete. */
static int loop_completed(struct sl_spmd *self, int loop, void *arg) {
    struct sl_trainer *t = arg;
    (void)self;
    t->completed[t->completions++] = loop;
    if (!t->options.overlap || t->data.size == 1) return SL_OK;
    if (t->started - t->finished == REDUCTIONS) SL_TRY(finish_reduction(t));
    return start_reduction(t);
}

static int finish_reductions(struct sl_trainer *t) {
    while (t->finished < t->completions) {
        while (t->data.size > 1 && t->started < t->completions && t->started - t->finished < REDUCTIONS)
            SL_TRY(start_reduction(t));
        SL_TRY(finish_reduction(t));
    }
    t->completions = t->started = t->finished = 0;
    return SL_OK;
}

/* ---- steps ---- */

static int sum_metrics(struct sl_trainer *t, const struct sl_metrics *own, struct sl_metrics *metrics, bool *stop) {
    float sums[4] = {(float)own->loss, (float)own->correct, (float)own->rows, *stop ? 1.0f : 0.0f};
    SL_TRY(sl_psum(t->self, &t->world, SL_F32, sums, sums, 4));
    *metrics = (struct sl_metrics){sums[0], sums[1], sums[2]};
    *stop = sums[3] > 0;
    return SL_OK;
}

static uint32_t local_rows(const struct sl_trainer *t) {
    return (uint32_t)(t->options.pipeline.schedule->microbatches * t->options.pipeline.rows);
}

void sl_trainer_set_profile(struct sl_trainer *t, struct sl_profile *profile) { t->profile = profile; }

void sl_trainer_set_learning_rate(struct sl_trainer *t, float learning_rate) {
    t->options.adamw.learning_rate = learning_rate;
}

static int take_step(struct sl_trainer *t, const struct sl_batch *batch, struct sl_metrics *metrics, bool *stop) {
    t->step++;
    struct sl_pipeline_step step = {
        .batch = *batch,
        .first_row = (uint32_t)t->data.rank * local_rows(t),
        .step_key = sl_fold_in(t->dropout, (uint32_t)t->step),
        .layer_key = t->options.step_keys ? t->options.step_keys(t->options.arg) : NULL,
        .weight = 1.0f / (float)local_rows(t),
        .reduce = loop_completed,
        .reduce_arg = t,
        .profile = t->profile,
    };
    SL_TRY(sl_pipeline_train(t->pipeline, &step));
    const enum sl_work before = sl_profile_begin(t->profile, SL_WORK_COMMUNICATION);
    SL_TRY(finish_reductions(t));
    SL_TRY(sum_metrics(t, &step.metrics, metrics, stop));
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
    struct sl_pipeline_step step = {.batch = *batch, .first_row = (uint32_t)t->data.rank * local_rows(t)};
    bool stop = false;
    SL_TRY(sl_pipeline_evaluate(t->pipeline, &step));
    return sum_metrics(t, &step.metrics, metrics, &stop);
}

int sl_trainer_export(struct sl_trainer *t, bool gradients, struct sl_store *store) {
    /* Under ZeRO a member has the sums of its own share of the gradients alone. */
    for (int l = 0; gradients && t->options.zero && t->data.size > 1 && l < t->parameters.loops; l++) {
        struct sl_loop_storage *loop = &t->parameters.loop[l];
        SL_TRY(sl_all_gather(t->self, &t->data, SL_F32, loop->gradient + loop->shard, loop->gradient, 1,
                             loop->shard_count));
    }
    const float scale = gradients ? 1.0f / (float)t->data.size : 1.0f;
    return sl_export(t->self, &t->world, &t->parameters, t->data.rank == 0, gradients, scale, store);
}
