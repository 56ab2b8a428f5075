/* evaluate.c - the mean loss over data, per token and per byte. */
#include <math.h>

#include "drivers/common/metrics.h"
#include "drivers/training/memory_check.h"
#include "drivers/transformer/transformer.h"

/* ---- every coordinate ---- */

/* Scores a batch, the sequences of each pass in turn. */
static int add_batch(struct sl_worker *worker, const struct sl_batch *batch, struct transformer_watch *watch,
                     struct sl_metrics *own) {
    const int rows = worker->job->pass * worker->job->sequence;
    for (int p = 0; p < worker->job->passes; p++) {
        const struct sl_batch part = sl_batch_rows(batch, p * rows, rows, 0, 0);
        SL_TRY(sl_trainer_stream(worker->trainer, &part, transformer_trace_of(watch), own));
        transformer_watch_pass(watch);
    }
    return SL_OK;
}

int transformer_evaluate(struct sl_worker *worker, struct transformer_watch *watch, struct transformer_score *score) {
    const struct transformer_job *job = transformer_job_of(worker);
    const int64_t batch = worker->job->options->batch, batches = (transformer_scored(job) + batch - 1) / batch;
    struct sl_metrics own = {0}, sums;
    for (int64_t b = 0; b < batches; b++) {
        struct sl_batch samples;
        SL_TRY(transformer_fetch(worker, true, b * batch, &samples));
        SL_TRY(add_batch(worker, &samples, watch, &own));
    }
    SL_TRY(sl_trainer_sum(worker->trainer, 1, &own, &sums));
    *score = (struct transformer_score){sums.loss / sums.rows, sums.rows};
    return SL_OK;
}

static int watch_and_evaluate(struct sl_worker *worker, struct transformer_score *score) {
    struct transformer_job *job = transformer_job_of(worker);
    struct transformer_watch *watch = NULL;
    int status = transformer_open_watch(&watch, worker);
    const bool chooses = transformer_job_of(worker)->choices.count;
    if (status == SL_OK)
        status = chooses ? transformer_score_choices(worker, watch) : transformer_evaluate(worker, watch, score);
    if (status == SL_OK) status = transformer_gather_watches(watch);
    transformer_close_watch(watch);
    return status == SL_OK ? sl_memory_gather_held(worker->self, job->training.memory) : status;
}

static int program(struct sl_spmd *self, void *arg) {
    struct transformer_job *job = arg;
    struct sl_worker worker;
    struct transformer_score score = {NAN, 0};
    bool opened;
    int status = transformer_open_worker(&worker, self, job, &opened);
    if (status == SL_OK && opened) status = watch_and_evaluate(&worker, &score);
    if (self->coordinate == 0) job->score = score;
    sl_worker_close(&worker);
    return status;
}

/* ---- report ---- */

/* Returns the loss in bits per byte; NaN if the tokens' bytes are unknown. */
static double bits_per_byte(const struct transformer_job *job) {
    return job->score.loss / log(2) * (job->score.tokens / job->scored_bytes);
}

static void print_table(const struct transformer_job *job) {
    static const struct sl_column column[] = {
        {"loss (nats)", 12}, {"perplexity", 12}, {"bits per byte", 13}, {"tokens", 10}};
    struct sl_table table;
    const double bits = bits_per_byte(job);
    transformer_print_source(job, stdout);
    printf("; ");
    transformer_print_scored(job, stdout);
    printf("\n");
    transformer_print_stream(job);
    sl_memory_print_end(stdout, job->training.memory, &job->job.mesh, false);
    sl_table_begin(&table, stdout, sizeof column / sizeof *column, column);
    sl_table_cell(&table, "%.9g", job->score.loss);
    sl_table_cell(&table, "%.6g", exp(job->score.loss));
    if (isnan(bits))
        sl_table_cell(&table, "-");
    else
        sl_table_cell(&table, "%.6f", bits);
    sl_table_cell(&table, "%.0f", job->score.tokens);
}

int transformer_print_plan(struct transformer_job *job, const struct sl_engine *engine, struct sl_error *error) {
    if (!sl_speaks(engine)) return SL_OK;
    return sl_memory_print(job->training.memory, &job->job.mesh, NULL, job->config->common.json, error);
}

static int print_json(const struct transformer_job *job, struct sl_error *error) {
    const double loss = job->score.loss;
    return sl_json_print(stdout, "stdout",
                         json_pack("{so so so sI so sI so so so so so}", "loss", sl_json_real(loss), "perplexity",
                                   sl_json_real(exp(loss)), "bits_per_byte", sl_json_real(bits_per_byte(job)), "tokens",
                                   (json_int_t)job->score.tokens, "evaluation_loss", sl_json_real(loss), "parameters",
                                   (json_int_t)sl_transformer_parameters(&job->model), "sequences_per_second",
                                   sl_json_real(transformer_sequences_per_second(job)), "measured",
                                   transformer_json_times(&job->stream.measured), "simulated",
                                   transformer_json_times(&job->stream.simulated), "memory",
                                   sl_memory_json(job->training.memory, &job->job.mesh), "processes",
                                   sl_memory_json_processes(job->training.memory, &job->job.mesh)),
                         error);
}

static int report(struct transformer_job *job, struct sl_error *error) {
    SL_TRY(transformer_judge_stream(job, error));
    if (job->choices.count) return transformer_report_choices(job, error);
    SL_TRY(transformer_count_bytes(job, error));
    if (job->config->common.json) return print_json(job, error);
    print_table(job);
    return SL_OK;
}

int transformer_run_evaluation(struct transformer_job *job, const struct sl_engine *engine, struct sl_error *error) {
    SL_TRY(transformer_open_stream(job, error));
    if (sl_run(&job->job.mesh, engine, program, job))
        return sl_memory_explain(&job->job, engine, job->training.memory, error);
    if (job->job.sizes_only) return transformer_print_plan(job, engine, error);
    SL_TRY(sl_memory_refuse(&job->job, engine, job->training.memory, error));
    if (!sl_speaks(engine)) return SL_OK;
    job->evaluated = true;
    return report(job, error);
}
