/* train.c - additions of the transformer to a training: its data, evaluations and samples, and fields of the report. */
#include <math.h>
#include <string.h>

#include "drivers/transformer/transformer.h"

/* ---- speed ---- */

static double tokens_a_step(const struct transformer_job *job) {
    return (double)job->job.options->batch * job->config->sequence;
}

static double tokens_per_second(const struct sl_step *step, const void *own) {
    return 1e3 * tokens_a_step(own) / step->ms;
}

/* Returns the model's operations per second, as a share of the peak of products on this machine. */
static double utilization(const struct sl_step *step, const void *own) {
    const struct transformer_job *job = own;
    const double each = sl_transformer_flops(&job->model, job->config->sequence) +
                        6 * sl_transformer_adapters(&job->model, job->adapters);
    return (each - 2 * job->frozen) * tokens_a_step(job) / (1e-3 * step->ms) / job->peak.flops;
}

/* ---- steps ---- */

static int fetch(struct sl_worker *worker, int64_t step, struct sl_batch *batch) {
    return transformer_fetch(worker, false, sl_training_samples(worker, step), batch);
}

/* Whether a table is a factor of a product: with a head of its own, the embedding is only looked up. */
static bool is_multiplied(const struct sl_transformer *model, const struct sl_parameter *parameter) {
    return parameter->dims == 2 && (!strstr(parameter->name, "embedding") || !model->untied_head) &&
           !strstr(parameter->name, "positions");
}

/* Counts the frozen weights, except in models with experts, since a token uses only some of these. */
static int count_frozen(struct sl_worker *worker) {
    struct transformer_job *job = transformer_job_of(worker);
    const struct sl_parameters *parameters = sl_trainer_parameters(worker->trainer);
    double frozen = 0;
    for (int i = 0; i < parameters->count && !job->adapters && !job->model.experts; i++)
        if (parameters->list[i].frozen && is_multiplied(&job->model, &parameters->list[i]) &&
            sl_parameter_is_first(parameters, worker->self, i, false))
            frozen += (double)parameters->list[i].count;
    float sum = (float)frozen;
    SL_TRY(sl_psum(worker->self, sl_trainer_world(worker->trainer), SL_F32, &sum, &sum, 1));
    if (worker->self->coordinate == 0) job->frozen = (double)sum;
    return SL_OK;
}

static int begin(struct sl_worker *worker) {
    struct transformer_job *job = transformer_job_of(worker);
    struct transformer_worker *own = worker->own;
    if (job->config->sample_every) SL_TRY(transformer_open_sampler(&own->sampler, worker));
    SL_TRY(count_frozen(worker));
    return sl_peak_find(worker, job->config->measure_peak, &job->peak);
}

static bool is_due(int every, int64_t step) { return every > 0 && (step + 1) % every == 0; }

static int report_evaluation(struct transformer_job *job, int64_t step, double loss, struct sl_error *error) {
    struct sl_report *report = &job->training.report;
    sl_progress_clear(&report->progress);
    if (!report->json) printf("after step %lld: evaluation loss %.6f\n", (long long)step, loss);
    if (!sl_report_wants_json(report)) return SL_OK;
    return sl_report_print(
        report, json_pack("{sI so}", "step", (json_int_t)step, "evaluation_loss", sl_json_real(loss)), error);
}

static int evaluate(struct sl_worker *worker, int64_t step) {
    struct transformer_job *job = transformer_job_of(worker);
    struct transformer_score score;
    SL_TRY(transformer_evaluate(worker, NULL, &score));
    if (worker->self->coordinate != 0) return SL_OK;
    SL_TRY(report_evaluation(job, step, score.loss, &worker->self->error));
    return sl_checkpoints_evaluated(&job->training.checkpoints, step + 1, score.loss, &worker->self->error);
}

/* Measures the peak of products again if the run is faster: other programs must have slowed the first measurement. */
static int check_peak(struct sl_worker *worker, double ms) {
    struct transformer_job *job = transformer_job_of(worker);
    const struct sl_step step = {.ms = ms};
    float exceeded = worker->self->coordinate == 0 && utilization(&step, job) > 1 ? 1 : 0;
    SL_TRY(sl_psum(worker->self, sl_trainer_world(worker->trainer), SL_F32, &exceeded, &exceeded, 1));
    return exceeded > 0 ? sl_peak_raise(worker, &job->peak) : SL_OK;
}

/* Checks the peak after the first steps, so most lines have the right share, and after the last, for the median's
 * share. With --profile, no products are measured: they would be profiled. */
static int check_peak_when_due(struct sl_worker *worker, const struct sl_step *step, bool last) {
    enum { FEW = 3 }; /* number of steps after which the first one no longer counts */
    struct sl_training *training = &transformer_job_of(worker)->training;
    const int64_t number = step->number - worker->first;
    if (training->job->options->profile || (number && number != FEW && !last)) return SL_OK;
    return check_peak(worker, worker->self->coordinate ? 0 : sl_step_times_median(&training->report.times));
}

static int after_step(struct sl_worker *worker, const struct sl_step *step, bool last) {
    const struct transformer_config *config = transformer_job_of(worker)->config;
    const struct transformer_worker *own = worker->own;
    SL_TRY(check_peak_when_due(worker, step, last));
    if (last) SL_TRY(transformer_save_adapters(worker));
    if (is_due(config->evaluate_every, step->number)) SL_TRY(evaluate(worker, step->number));
    return is_due(config->sample_every, step->number) ? transformer_sample(own->sampler, step->number) : SL_OK;
}

/* ---- fields of the report ---- */

/* Returns the load-balance loss, mean of the layers: 1 if experts have equal shares. */
static double balance(const struct sl_step *step, const void *own) {
    const struct transformer_job *job = own;
    if (job->model.experts == 0) return NAN;
    return step->metrics.auxiliary / tokens_a_step(job) / (job->model.blocks * job->model.layers_per_block);
}

/* The norm is NaN unless gradients are clipped, but has its column. */
static const struct sl_report_field fields[] = {
    {"step", "step", 6, 'd', 0, false, sl_step_number},
    {"loss", "loss", 13, 'g', 9, false, sl_step_loss},
    {"lr", "lr", 10, 'g', 3, false, sl_step_rate},
    {NULL, "norm", 10, 'g', 4, false, sl_step_norm},
    {"tokens_per_second", "tokens/s", 10, 'f', 0, false, tokens_per_second},
    {"mfu", "mfu", 6, 'f', 2, false, utilization},
    {"ms", "ms", 9, 'f', 2, false, sl_step_ms},
    {"norm", NULL, 0, 'g', 0, false, sl_step_norm},
    {"balance", "balance", 9, 'f', 4, true, balance},
    {0},
};

/* In long runs people see every hundredth step, and the first ones. */
static bool shows_step(const struct sl_training *training, int64_t number) {
    const int64_t steps = training->steps, every = steps > 200 ? steps / 100 : 1;
    return sl_training_done(training) < 3 || (number + 1) % every == 0;
}

static json_t *end(struct sl_training *training) {
    const struct transformer_job *job = training->job->own;
    struct sl_report *report = &training->report;
    const struct sl_step typical = {.ms = sl_step_times_median(&report->times)};
    const double speed = tokens_per_second(&typical, job), share = utilization(&typical, job);
    const double bytes = sl_memory_most(training->memory, &training->job->mesh);
    const double parameters = sl_transformer_parameters(&job->model);
    if (!report->json) {
        const struct sl_time_unit unit = sl_time_unit_of(typical.ms);
        printf("parameters %.0f, ", parameters);
        if (sl_training_done(training) > 0)
            printf("median %.2f %s, %.0f tokens/s, mfu %.2f of %.1f GFLOP/s, measured %s%s, ", typical.ms / unit.ms,
                   unit.name, speed, share, job->peak.flops / 1e9, job->peak.date,
                   share > 1 ? " with slower cores than the run had" : "");
        printf("%.1f MB a coordinate\n", bytes / 1e6);
    }
    return json_pack("{sI so so so so so sI sI ss}", "parameters", (json_int_t)parameters, "final_loss",
                     sl_json_real(report->final_loss), "median_ms", sl_json_real(typical.ms), "tokens_per_second",
                     sl_json_real(speed), "mfu", sl_json_real(share), "products_flops_per_second",
                     sl_json_real(job->peak.flops), "coordinate_bytes", (json_int_t)bytes, "peak_bytes",
                     (json_int_t)sl_peak_bytes(), "products_measured", job->peak.date);
}

/* Gradients of a published model have the names of its files' values, which do not include adapters. */
static int name_gradients(const struct sl_training *training, struct sl_store *gradients, struct sl_error *error) {
    const struct transformer_job *job = training->job->own;
    return job->publishes && !job->adapters ? transformer_publish(job, gradients, error) : SL_OK;
}

const struct sl_training_type transformer_training = {.fetch = fetch,
                                                      .begin = begin,
                                                      .after = after_step,
                                                      .field = fields,
                                                      .shows = shows_step,
                                                      .end = end,
                                                      .name = name_gradients};
