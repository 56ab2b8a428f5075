/* train.c - the training loop that every coordinate runs. */
#include <math.h>
#include <stdlib.h>

#include "drivers/common/interrupt.h"
#include "drivers/transformer/transformer.h"
#include "layers/training/exchange.h"
#include "layers/training/replicas.h"
#include "spmd/device/device.h"

/* ---- what the machine can do ---- */

static const double measured_seconds = 0.05;

/* How many floating-point operations a second products reach with all coordinates at work, on the model's own shape:
 * a microbatch's rows times the MLP's kernel. */
static int measure_rate(struct transformer_worker *worker, double *rate) {
    struct sl_spmd *self = worker->self;
    const struct transformer_job *job = worker->job;
    const int m = job->rows, k = job->model.dimension, n = 4 * k;
    const size_t size = sl_dtype_size(job->precision);
    struct sl_gemm gemm = {0};
    SL_TRY(sl_gemm_plan(&gemm, job->gemm, job->precision, m, n, k, false, false, SL_EPILOGUE_NONE, &self->error));
    char *room = sl_device.take(((size_t)m + (size_t)n) * (size_t)k * size + (size_t)m * (size_t)n * sizeof(float));
    int status = room ? SL_OK : sl_fail(self, SL_FAILED, "no memory to measure products");
    float done = 0;
    if (status == SL_OK) {
        const char *a = room + (size_t)m * (size_t)n * sizeof(float), *b = a + (size_t)m * (size_t)k * size;
        sl_gemm_execute(&gemm, a, b, NULL, false, (float *)(void *)room, self->queue);
        sl_device.settle(NULL);
        status = sl_barrier(self, sl_trainer_world(worker->trainer));
        const double began = sl_now();
        double products = 0;
        while (status == SL_OK && sl_now() - began < measured_seconds) {
            status = sl_gemm_execute(&gemm, a, b, NULL, false, (float *)(void *)room, self->queue);
            if (status == SL_OK) status = sl_device.settle(&self->error);
            products++;
        }
        done = (float)(products * 2 * m * (double)n * k / (sl_now() - began));
    }
    sl_device.give(room);
    sl_gemm_release(&gemm);
    if (status == SL_OK) status = sl_psum(self, sl_trainer_world(worker->trainer), SL_F32, &done, &done, 1);
    if (self->coordinate == 0) *rate = done;
    return status;
}

/* ---- steps ---- */

enum { CONSTANT, COSINE }; /* --lr-schedule */

/* Rises linearly over the warm-up, then stays or falls. */
static double learning_rate(const struct transformer_config *config, int64_t step) {
    const double highest = config->learning_rate, least = config->least_rate;
    if (step < config->warmup) return highest * (double)(step + 1) / config->warmup;
    if (config->lr_schedule == CONSTANT) return highest;
    const double left = config->common.steps - config->warmup;
    const double share = left > 0 ? fmin(1.0, (double)(step - config->warmup) / left) : 1.0;
    return least + 0.5 * (highest - least) * (1 + cos(M_PI * share));
}

/* Taken from the data before STEP: steps of the run that goes on here may have had other batches. */
static int64_t samples_before(const struct transformer_worker *worker, int64_t step) {
    return worker->samples + (step - worker->first) * worker->job->config->batch;
}

static int train_step(struct transformer_worker *worker, int64_t step, bool *stop) {
    struct transformer_job *job = worker->job;
    struct sl_spmd *self = worker->self;
    const double began = sl_now(), rate = learning_rate(job->config, step);
    struct sl_batch batch;
    struct sl_metrics metrics;
    SL_TRY(transformer_fetch(worker, false, samples_before(worker, step), &batch));
    *stop = sl_interrupt_arrived() != 0;
    sl_trainer_set_learning_rate(worker->trainer, (float)rate);
    SL_TRY(sl_trainer_step(worker->trainer, &batch, &metrics, stop));
    if (!isfinite(metrics.loss))
        return sl_fail(self, SL_FAILED, "the loss of step %lld is not finite", (long long)step);
    if (job->config->check_replicas) SL_TRY(sl_check_replicas(self, worker->trainer));
    if (self->coordinate != 0) return SL_OK;
    return transformer_report_step(job, &metrics, rate, sl_trainer_norm(worker->trainer), 1e3 * (sl_now() - began),
                                   &self->error);
}

static bool is_due(int every, int64_t step) { return every > 0 && (step + 1) % every == 0; }

static int evaluate(struct transformer_worker *worker, int64_t step) {
    double loss;
    SL_TRY(transformer_mean_loss(worker, worker->job->config->evaluate_batches, &loss));
    if (worker->self->coordinate != 0) return SL_OK;
    return transformer_report_evaluation(worker->job, step, loss, &worker->self->error);
}

static int resume(struct transformer_worker *worker) {
    struct transformer_job *job = worker->job;
    struct sl_checkpoint about;
    SL_TRY(sl_checkpoints_resume(&job->checkpoints, worker->self, worker->trainer, &about));
    worker->first = about.step;
    worker->samples = about.samples;
    if (worker->self->coordinate == 0) job->first = about.step;
    return SL_OK;
}

static int train(struct transformer_worker *worker, struct transformer_sampler *sampler) {
    struct transformer_job *job = worker->job;
    const struct transformer_config *config = job->config;
    struct sl_profile *profile = &job->profile[worker->self->coordinate];
    bool stop = false;
    SL_TRY(measure_rate(worker, &job->rate));
    SL_TRY(resume(worker));
    for (int64_t step = sl_trainer_steps(worker->trainer); step < config->common.steps && !stop; step++) {
        SL_TRY(train_step(worker, step, &stop));
        if (config->profile && !profile->self) { /* from the second step on: the first one generates code */
            sl_profile_start(profile, worker->self);
            sl_trainer_set_profile(worker->trainer, profile);
        }
        if (stop && worker->self->coordinate == 0) job->interrupted = step + 1 < config->common.steps;
        if (is_due(config->evaluate_every, step)) SL_TRY(evaluate(worker, step));
        SL_TRY(sl_checkpoints_save(&job->checkpoints, worker->self, worker->trainer, samples_before(worker, step + 1),
                                   stop || step + 1 == config->common.steps));
        if (is_due(config->sample_every, step)) SL_TRY(transformer_sample(sampler));
    }
    if (profile->self) sl_profile_end(profile, SL_WORK_OTHER);
    if (config->profile) SL_TRY(sl_gather_records(worker->self, job->profile, sizeof *job->profile));
    return config->gradients ? sl_trainer_export(worker->trainer, true, &job->gradients) : SL_OK;
}

int transformer_train_program(struct sl_spmd *self, void *arg) {
    struct transformer_job *job = arg;
    struct transformer_worker worker;
    struct transformer_sampler *sampler = NULL;
    int status = transformer_open_worker(&worker, self, job);
    if (status == SL_OK) {
        size_t state, activations;
        sl_trainer_bytes(worker.trainer, &state, &activations);
        job->state_bytes[self->coordinate] = (double)state;
        job->activation_bytes[self->coordinate] = (double)activations;
        status = sl_gather_records(self, job->state_bytes, sizeof *job->state_bytes);
        if (status == SL_OK) status = sl_gather_records(self, job->activation_bytes, sizeof *job->activation_bytes);
    }
    if (status == SL_OK && !job->config->dry_run) {
        if (job->config->sample_every) status = transformer_open_sampler(&sampler, &worker);
        if (status == SL_OK) status = train(&worker, sampler);
    }
    transformer_close_sampler(sampler);
    transformer_close_worker(&worker);
    return status;
}
