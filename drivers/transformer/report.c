/* report.c - what a training says: a line a step, evaluations, the end. */
#include <math.h>
#include <stdlib.h>
#include <sys/resource.h>

#include "drivers/transformer/transformer.h"

int transformer_print(struct transformer_job *job, json_t *object, struct sl_error *error) {
    int status = SL_OK;
    if (job->config->common.json) status = sl_json_print(stdout, "stdout", json_incref(object), error);
    const int written = sl_metrics_write(&job->metrics, object, status ? NULL : error);
    return status ? status : written;
}

static double tokens_a_step(const struct transformer_job *job) {
    return (double)job->config->batch * job->config->sequence;
}

/* The model's operations a second as a share of what products alone reach here. */
static double utilization(const struct transformer_job *job, double ms) {
    const double flops = sl_transformer_flops(&job->model, job->config->sequence) * tokens_a_step(job);
    return flops / (1e-3 * ms) / job->rate;
}

/* The load-balance loss, the layers' mean: 1 where experts get even shares. */
static double balance(const struct transformer_job *job, const struct sl_metrics *metrics) {
    return metrics->auxiliary / tokens_a_step(job) / (job->model.blocks * job->model.layers_per_block);
}

static void print_row(struct transformer_job *job, int64_t step, const struct sl_metrics *metrics, double rate,
                      double norm, double ms) {
    static const struct sl_column column[] = {{"step", 6},      {"loss", 13}, {"lr", 10}, {"norm", 10},
                                              {"tokens/s", 10}, {"mfu", 6},   {"ms", 9},  {"balance", 9}};
    const bool experts = job->model.experts > 0;
    sl_progress_clear(&job->progress);
    if (!job->table.stream) sl_table_begin(&job->table, stdout, experts ? 8 : 7, column);
    sl_table_cell(&job->table, "%lld", (long long)step);
    sl_table_cell(&job->table, "%.9g", metrics->loss / metrics->rows);
    sl_table_cell(&job->table, "%.3g", rate);
    if (job->config->clip > 0)
        sl_table_cell(&job->table, "%.4g", norm);
    else
        sl_table_cell(&job->table, "-");
    sl_table_cell(&job->table, "%.0f", 1e3 * tokens_a_step(job) / ms);
    sl_table_cell(&job->table, "%.2f", utilization(job, ms));
    sl_table_cell(&job->table, "%.2f", ms);
    if (experts) sl_table_cell(&job->table, "%.4f", balance(job, metrics));
    fflush(stdout);
}

/* For people, in long runs: every hundredth of it, and the first steps. */
static bool is_shown(const struct transformer_job *job, int64_t step) {
    const int64_t steps = job->config->common.steps, every = steps > 200 ? steps / 100 : 1;
    return job->done <= 3 || (step + 1) % every == 0;
}

int transformer_report_step(struct transformer_job *job, const struct sl_metrics *metrics, double rate, double norm,
                            double ms, struct sl_error *error) {
    const double loss = metrics->loss / metrics->rows;
    const int64_t done = job->done++, step = job->first + done;
    job->ms[done] = ms;
    job->final_loss = loss;
    if (!job->config->common.json && is_shown(job, step)) print_row(job, step, metrics, rate, norm, ms);
    if (ferror(stdout)) return sl_stdout_finish(error);
    sl_progress_update(&job->progress, job->done, (double)job->done * tokens_a_step(job), loss,
                       metrics->correct / metrics->rows);
    if (!job->config->common.json && !job->metrics.path) return SL_OK;
    json_t *object = json_pack("{sI so so so so so}", "step", (json_int_t)step, "loss", sl_json_real(loss), "lr",
                               sl_json_real(rate), "tokens_per_second", sl_json_real(1e3 * tokens_a_step(job) / ms),
                               "mfu", sl_json_real(utilization(job, ms)), "ms", sl_json_real(ms));
    if (job->config->clip > 0) json_object_set_new(object, "norm", sl_json_real(norm));
    if (job->model.experts > 0) json_object_set_new(object, "balance", sl_json_real(balance(job, metrics)));
    return transformer_print(job, object, error);
}

int transformer_report_evaluation(struct transformer_job *job, int64_t step, double loss, struct sl_error *error) {
    job->evaluation_loss = loss;
    sl_progress_clear(&job->progress);
    if (!job->config->common.json) printf("after step %lld: evaluation loss %.6f\n", (long long)step, loss);
    if (!job->config->common.json && !job->metrics.path) return SL_OK;
    return transformer_print(job, json_pack("{sI so}", "step", (json_int_t)step, "evaluation_loss", sl_json_real(loss)),
                             error);
}

static int by_value(const void *left, const void *right) {
    const double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

/* Of the steps after the first; of the first where it is the only one. */
static double median_ms(struct transformer_job *job) {
    const int64_t count = job->done - 1;
    if (count < 1) return job->done ? job->ms[0] : NAN;
    qsort(job->ms + 1, (size_t)count, sizeof *job->ms, by_value);
    return 0.5 * (job->ms[1 + (count - 1) / 2] + job->ms[1 + count / 2]);
}

static double most_bytes(const struct transformer_job *job) {
    double most = 0;
    for (int c = 0; c < job->mesh.size; c++) most = fmax(most, job->state_bytes[c] + job->activation_bytes[c]);
    return most;
}

int transformer_report_end(struct transformer_job *job, struct sl_error *error) {
    const double median = median_ms(job);
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    sl_progress_clear(&job->progress);
    if (!job->config->common.json) {
        printf("parameters %zu, median %.2f ms, %.0f tokens/s, mfu %.2f of %.1f GFLOP/s, ",
               sl_transformer_parameters(&job->model), median, 1e3 * tokens_a_step(job) / median,
               utilization(job, median), job->rate / 1e9);
        printf("%.1f MB a coordinate\n", most_bytes(job) / 1e6);
        if (!job->metrics.path) return SL_OK;
    }
    json_t *object =
        json_pack("{sI so so so so so sI sI}", "parameters", (json_int_t)sl_transformer_parameters(&job->model),
                  "final_loss", sl_json_real(job->final_loss), "median_ms", sl_json_real(median), "tokens_per_second",
                  sl_json_real(1e3 * tokens_a_step(job) / median), "mfu", sl_json_real(utilization(job, median)),
                  "products_flops_per_second", sl_json_real(job->rate), "coordinate_bytes", (json_int_t)most_bytes(job),
                  "peak_bytes", (json_int_t)usage.ru_maxrss * 1024);
    if (job->interrupted) json_object_set_new(object, "interrupted", json_true());
    return transformer_print(job, object, error);
}
