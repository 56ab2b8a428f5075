/* evaluate.c - the mean loss over data, and what it amounts to a byte. */
#include <math.h>

#include "drivers/common/metrics.h"
#include "drivers/training/memory_check.h"
#include "drivers/transformer/transformer.h"

/* ---- every coordinate ---- */

/* Of a batch, the sequences of each pass in turn: an evaluation takes one pass. */
static int add_batch(struct sl_worker *worker, const struct sl_batch *batch, struct sl_metrics *sums) {
    const int rows = worker->job->pass * worker->job->sequence;
    for (int p = 0; p < worker->job->options->accumulate; p++) {
        const struct sl_batch part = sl_batch_rows(batch, p * rows, rows, 0, 0);
        struct sl_metrics metrics;
        SL_TRY(sl_trainer_evaluate(worker->trainer, &part, &metrics));
        sums->loss += metrics.loss;
        sums->rows += metrics.rows;
    }
    return SL_OK;
}

int transformer_evaluate(struct sl_worker *worker, struct transformer_score *score) {
    const struct transformer_job *job = transformer_job_of(worker);
    const int64_t batch = worker->job->options->batch;
    int64_t batches = job->config->evaluate_batches;
    struct sl_metrics sums = {0};
    if (job->eval_tokens.files)
        batches = (sl_tokens_windows(&job->eval_tokens, true, worker->job->sequence) + batch - 1) / batch;
    for (int64_t b = 0; b < batches; b++) {
        struct sl_batch samples;
        SL_TRY(transformer_fetch(worker, true, b * batch, &samples));
        SL_TRY(add_batch(worker, &samples, &sums));
    }
    *score = (struct transformer_score){sums.loss / sums.rows, sums.rows};
    return SL_OK;
}

static int program(struct sl_spmd *self, void *arg) {
    struct transformer_job *job = arg;
    struct sl_worker worker;
    struct transformer_score score = {NAN, 0};
    bool opened;
    int status = transformer_open_worker(&worker, self, job, &opened);
    if (status == SL_OK && opened && self->coordinate == 0) transformer_warn_of_source(job);
    if (status == SL_OK && opened) status = transformer_evaluate(&worker, &score);
    if (status == SL_OK && opened) status = sl_memory_gather_held(self, job->training.memory);
    if (self->coordinate == 0) job->score = score;
    sl_worker_close(&worker);
    return status;
}

/* ---- what is said of it ---- */

/* NaN where a token is not a byte: how many bytes it stands for, only its tokenizer knows. */
static double bits_per_byte(const struct transformer_job *job) {
    const struct sl_tokens *scored = job->eval_tokens.files ? &job->eval_tokens : &job->tokens;
    return sl_tokens_are_bytes(scored) ? job->score.loss / log(2) : NAN;
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

int transformer_run_evaluation(struct transformer_job *job, const struct sl_engine *engine, struct sl_error *error) {
    const struct transformer_score *score = &job->score;
    const struct sl_memory *memory = job->training.memory;
    SL_TRY(sl_run(&job->job.mesh, engine, program, job));
    if (job->job.sizes_only) return transformer_print_plan(job, engine, error);
    SL_TRY(sl_memory_refuse(&job->job, engine, memory, error));
    if (job->config->common.json)
        return sl_json_print(stdout, "stdout",
                             json_pack("{so so so sI so sI so so}", "loss", sl_json_real(score->loss), "perplexity",
                                       sl_json_real(exp(score->loss)), "bits_per_byte",
                                       sl_json_real(bits_per_byte(job)), "tokens", (json_int_t)score->tokens,
                                       "evaluation_loss", sl_json_real(score->loss), "parameters",
                                       (json_int_t)sl_transformer_parameters(&job->model), "memory",
                                       sl_memory_json(memory, &job->job.mesh), "processes",
                                       sl_memory_json_processes(memory, &job->job.mesh)),
                             error);
    print_table(job);
    return SL_OK;
}
