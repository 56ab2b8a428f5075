/* looping_pipeline.c - trains the notebook's classifier on a mesh, under any schedule. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "collectives/engines.h"
#include "drivers/common/checkpoints.h"
#include "drivers/classifier/data.h"
#include "drivers/classifier/experiment.h"
#include "drivers/common/interrupt.h"
#include "drivers/common/metrics.h"
#include "drivers/common/placement_report.h"
#include "drivers/common/profile_report.h"
#include "drivers/common/progress.h"
#include "drivers/common/schedule_choice.h"
#include "drivers/common/trace_file.h"
#include "layers/training/exchange.h"

enum { RECORDED = 4096 }; /* step times that the median is taken of */

struct config {
    struct sl_common_options common;
    struct classifier_options model;
    struct sl_checkpoint_options checkpoints;
    const char *schedule, *schedule_file, *data, *metrics, *gradients, *trace;
    int epochs, lr_schedule;
    double delay_ms;
    bool dry_run, profile;
};

enum lr_schedule { LR_DEFAULT = -1, LR_CONSTANT, LR_COSINE };

static const struct sl_option driver_table[] = {
    {"schedule", SL_OPTION_TEXT, offsetof(struct config, schedule), .value = "NAME",
     .help = "one of the schedules below"},
    {"schedule-file", SL_OPTION_TEXT, offsetof(struct config, schedule_file), .value = "FILE",
     .help = "a table of actions (CSV, one line a rank, as PyTorch writes it) instead of --schedule"},
    {"data", SL_OPTION_TEXT, offsetof(struct config, data), .value = "DATA",
     .help = "random, or fashion-mnist:DIR, the directory of its IDX files"},
    {"epochs", SL_OPTION_INTEGER, offsetof(struct config, epochs), .min = 0, .max = 1e6,
     .help = "passes over the training data, whatever --steps says; 0: as many steps as --steps says"},
    {"lr-schedule", SL_OPTION_CHOICE, offsetof(struct config, lr_schedule), .value = "constant|cosine",
     .help = "the learning rate stays, or falls to 0 along half a cosine over the run; by default it stays for random "
             "data and falls for real data"},
    {"metrics", SL_OPTION_TEXT, offsetof(struct config, metrics), .value = "FILE", .help = "write JSON lines to FILE"},
    {"gradients", SL_OPTION_TEXT, offsetof(struct config, gradients), .value = "FILE",
     .help = "write the last step's gradients to FILE (safetensors)"},
    {"trace", SL_OPTION_TEXT, offsetof(struct config, trace), .value = "FILE",
     .help = "write what each coordinate did when to FILE (Chrome trace events: for Perfetto, or schedule --compare)"},
    {"delay-ms", SL_OPTION_REAL, offsetof(struct config, delay_ms), .min = 0, .max = 10000,
     .help = "let every message and sum take so much longer, as on a slow network (engine local)"},
    {"profile", SL_OPTION_FLAG, offsetof(struct config, profile),
     .help = "tell where each coordinate's time went in the steps after the first"},
    {"dry-run", SL_OPTION_FLAG, offsetof(struct config, dry_run),
     .help = "tell each coordinate's memory, train nothing"},
    {0},
};

struct bytes {
    size_t state, activations;
};

struct run {
    const struct config *config;
    struct classifier_experiment experiment;
    struct classifier_dataset dataset;
    struct sl_metrics_file metrics;
    struct sl_progress progress;
    struct sl_table table;
    int64_t steps, steps_per_epoch;
    struct bytes bytes[SL_MAX_COORDINATES]; /* of a dry run */
    struct sl_profile profile[SL_MAX_COORDINATES];
    struct sl_trace_file trace;
    struct sl_checkpoints checkpoints;
    /* Written by coordinate 0. */
    int64_t first, done; /* steps before this run, and in it */
    double *ms;          /* [RECORDED] the steps' times, the first apart, later ones replacing the oldest */
    double only_ms;      /* of the first step, where no other follows */
    double first_step_ms, final_loss, test_accuracy, samples;
    struct sl_metrics epoch; /* sums over the epoch's steps so far */
    bool interrupted;
    struct sl_store gradients;
};

/* Milliseconds since the process was executed, from the kernel's record of its start (10 ms ticks). */
static double ms_since_exec(void) {
    unsigned long long ticks = 0;
    FILE *stat = fopen("/proc/self/stat", "r");
    if (stat) {
        if (fscanf(stat,
                   "%*d (%*[^)]) %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %llu",
                   &ticks) != 1)
            ticks = 0;
        fclose(stat);
    }
    struct timespec now;
    clock_gettime(CLOCK_BOOTTIME, &now);
    return 1e3 * ((double)now.tv_sec + 1e-9 * (double)now.tv_nsec - (double)ticks / (double)sysconf(_SC_CLK_TCK));
}

static double peak_bytes(void) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return 1024.0 * (double)usage.ru_maxrss;
}

/* ---- what coordinate 0 says ---- */

static int print_line(struct run *run, json_t *object, struct sl_error *error) {
    int status = SL_OK;
    if (run->config->common.json) status = sl_json_print(stdout, "stdout", json_incref(object), error);
    const int written = sl_metrics_write(&run->metrics, object, status ? NULL : error);
    return status ? status : written;
}

static void begin_table(struct run *run) {
    static const struct sl_column steps[] = {{"step", 5}, {"loss", 16}, {"accuracy", 10}, {"ms", 9}};
    static const struct sl_column epochs[] = {{"epoch", 5}, {"loss", 10}, {"test loss", 10}, {"test accuracy", 14}};
    sl_table_begin(&run->table, stdout, 4, run->dataset.shuffled ? epochs : steps);
}

static int report_step(struct run *run, const struct sl_metrics *metrics, double ms, struct sl_error *error) {
    const double loss = metrics->loss / metrics->rows, accuracy = metrics->correct / metrics->rows;
    const int64_t before = run->done++, step = run->first + before;
    if (before > 0)
        run->ms[(before - 1) % RECORDED] = ms;
    else
        run->only_ms = ms;
    run->final_loss = loss;
    run->samples += metrics->rows;
    run->epoch.loss += metrics->loss;
    run->epoch.rows += metrics->rows;
    if (before == 0) run->first_step_ms = ms_since_exec();
    if (before == 0 && !run->config->common.json) begin_table(run);
    if (!run->config->common.json && !run->dataset.shuffled) {
        sl_progress_clear(&run->progress);
        sl_table_cell(&run->table, "%lld", (long long)step);
        sl_table_cell(&run->table, "%.9g", loss);
        sl_table_cell(&run->table, "%.6f", accuracy);
        sl_table_cell(&run->table, "%.2f", ms);
        if (ferror(stdout)) return sl_stdout_finish(error);
    }
    sl_progress_update(&run->progress, run->done, run->samples, loss, accuracy);
    if (!run->config->common.json && !run->metrics.path) return SL_OK;
    return print_line(run,
                      json_pack("{sI so so so}", "step", (json_int_t)step, "loss", sl_json_real(loss), "accuracy",
                                sl_json_real(accuracy), "ms", sl_json_real(ms)),
                      error);
}

static int report_epoch(struct run *run, int64_t epoch, const struct sl_metrics *test, struct sl_error *error) {
    const double loss = test->loss / test->rows, mean_loss = run->epoch.loss / run->epoch.rows;
    run->epoch = (struct sl_metrics){0};
    run->test_accuracy = test->correct / test->rows;
    sl_progress_clear(&run->progress);
    if (!run->config->common.json) {
        sl_table_cell(&run->table, "%lld", (long long)epoch);
        sl_table_cell(&run->table, "%.6f", mean_loss);
        sl_table_cell(&run->table, "%.6f", loss);
        sl_table_cell(&run->table, "%.4f", run->test_accuracy);
        fflush(stdout);
    }
    if (!run->config->common.json && !run->metrics.path) return SL_OK;
    return print_line(run,
                      json_pack("{sI so so so}", "epoch", (json_int_t)epoch, "train_loss", sl_json_real(mean_loss),
                                "test_loss", sl_json_real(loss), "test_accuracy", sl_json_real(run->test_accuracy)),
                      error);
}

static int by_value(const void *left, const void *right) {
    const double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

/* Of the steps after the first, as far as they are on record; of the first where it is the only one. */
static double median_ms(const struct run *run) {
    const int64_t count = run->done - 1 < RECORDED ? run->done - 1 : RECORDED;
    if (count < 1) return run->done ? run->only_ms : NAN;
    qsort(run->ms, (size_t)count, sizeof *run->ms, by_value);
    return 0.5 * (run->ms[(count - 1) / 2] + run->ms[count / 2]);
}

static int report_end(struct run *run, struct sl_error *error) {
    const struct sl_classifier *classifier = &run->experiment.classifier;
    const double parameters = (double)sl_classifier_parameters(classifier);
    const double stacked = (double)sl_classifier_parameters_stacked(classifier, run->experiment.model),
                 median = median_ms(run);
    sl_progress_clear(&run->progress);
    if (!run->config->common.json) {
        printf("parameters %.0f (%.0f with every stage's copy), ", parameters, stacked);
        if (run->done > 0) printf("first step after %.0f ms, median %.2f ms, ", run->first_step_ms, median);
        printf("peak %.1f MB\n", peak_bytes() / 1e6);
        if (!run->metrics.path) return SL_OK;
    }
    json_t *object = json_pack("{sI sI so so so sI}", "parameters", (json_int_t)parameters, "parameters_stacked",
                               (json_int_t)stacked, "final_loss", sl_json_real(run->final_loss), "first_step_ms",
                               sl_json_real(run->first_step_ms), "median_ms", sl_json_real(median), "peak_bytes",
                               (json_int_t)peak_bytes());
    if (run->dataset.shuffled) json_object_set_new(object, "test_accuracy", sl_json_real(run->test_accuracy));
    if (run->interrupted) json_object_set_new(object, "interrupted", json_true());
    return print_line(run, object, error);
}

/* ---- what every coordinate does ---- */

static int evaluate(struct run *run, struct classifier_worker *worker, struct sl_metrics *sums) {
    const int64_t rows = run->experiment.batch, count = run->dataset.test.count;
    *sums = (struct sl_metrics){0};
    for (int64_t b = 0; b * rows < count; b++) {
        const struct sl_batch batch = classifier_worker_fetch(worker, &run->dataset, &run->dataset.test, NULL, b);
        struct sl_metrics metrics;
        SL_TRY(sl_trainer_evaluate(worker->trainer, &batch, &metrics));
        sums->loss += metrics.loss;
        sums->correct += metrics.correct;
        sums->rows += metrics.rows;
    }
    return SL_OK;
}

static float learning_rate(const struct run *run, int64_t step) {
    const double rate = run->config->model.learning_rate;
    const int schedule = run->config->lr_schedule;
    const bool falls = schedule == LR_DEFAULT ? run->dataset.shuffled : schedule == LR_COSINE;
    return (float)(falls ? 0.5 * rate * (1 + cos(M_PI * (double)step / (double)run->steps)) : rate);
}

static int train_step(struct sl_spmd *self, struct run *run, struct classifier_worker *worker, uint32_t *order,
                      int64_t step, bool first, bool *stop) {
    const double began = sl_now();
    const int64_t in_epoch = step % run->steps_per_epoch;
    if (in_epoch == 0 || first)
        classifier_dataset_epoch_order(&run->dataset, run->config->common.seed, (uint32_t)(step / run->steps_per_epoch),
                                       order);
    const struct sl_batch batch = classifier_worker_fetch(worker, &run->dataset, &run->dataset.train, order, in_epoch);
    struct sl_metrics metrics;
    *stop = sl_interrupt_arrived() != 0;
    sl_trainer_set_learning_rate(worker->trainer, learning_rate(run, step));
    SL_TRY(sl_trainer_step(worker->trainer, &batch, &metrics, stop));
    if (!isfinite(metrics.loss))
        return sl_fail(self, SL_FAILED, "the loss of step %lld is not finite", (long long)step);
    if (self->coordinate != 0) return SL_OK;
    return report_step(run, &metrics, 1e3 * (sl_now() - began), &self->error);
}

/* Dropout keys in flax's order go on where they were, too. */
static int resume(struct sl_spmd *self, struct run *run, struct classifier_worker *worker, int64_t *first) {
    struct sl_checkpoint about;
    SL_TRY(sl_checkpoints_resume(&run->checkpoints, self, worker->trainer, &about));
    *first = about.step;
    for (int64_t step = 0; run->experiment.flax && step < *first; step++)
        sl_classifier_flax_step(&worker->keys, worker->layer_key);
    if (self->coordinate == 0) run->first = *first;
    return SL_OK;
}

/* From the second step on: the first one touches memory and generates code. */
static void start_records(struct sl_spmd *self, struct run *run, struct classifier_worker *worker) {
    if (run->config->trace) sl_trainer_set_trace(worker->trainer, sl_trace_file_of(&run->trace, self));
    if (!run->config->profile) return;
    sl_profile_start(&run->profile[self->coordinate], self);
    sl_trainer_set_profile(worker->trainer, &run->profile[self->coordinate]);
}

static int train(struct sl_spmd *self, struct run *run, struct classifier_worker *worker, uint32_t *order) {
    bool stop = false;
    int64_t first;
    SL_TRY(resume(self, run, worker, &first));
    for (int64_t step = first; step < run->steps && !stop; step++) {
        SL_TRY(train_step(self, run, worker, order, step, step == first, &stop));
        if (step == first) start_records(self, run, worker);
        SL_TRY(sl_checkpoints_save(&run->checkpoints, self, worker->trainer, (step + 1) * run->experiment.batch,
                                   stop || step + 1 == run->steps));
        if (stop && self->coordinate == 0) run->interrupted = step + 1 < run->steps;
        const bool epoch_ends = (step + 1) % run->steps_per_epoch == 0 || step + 1 == run->steps || stop;
        if (!run->dataset.shuffled || !epoch_ends) continue;
        struct sl_metrics test;
        SL_TRY(evaluate(run, worker, &test));
        if (self->coordinate == 0) SL_TRY(report_epoch(run, step / run->steps_per_epoch, &test, &self->error));
    }
    if (run->profile[self->coordinate].self) sl_profile_end(&run->profile[self->coordinate], SL_WORK_OTHER);
    if (run->config->profile) SL_TRY(sl_gather_records(self, run->profile, sizeof *run->profile));
    if (run->config->trace) SL_TRY(sl_gather_traces(self, run->trace.trace));
    return run->config->gradients ? sl_trainer_export(worker->trainer, true, &run->gradients) : SL_OK;
}

static int open_and_train(struct sl_spmd *self, struct run *run, struct classifier_worker *worker) {
    SL_TRY(classifier_worker_open(worker, self, NULL));
    uint32_t *order = malloc((size_t)run->dataset.train.count * sizeof *order); /* of this epoch */
    const int status =
        order ? train(self, run, worker, order) : sl_fail(self, SL_FAILED, "no memory for an epoch's order");
    free(order);
    return status;
}

static int program(struct sl_spmd *self, void *arg) {
    struct run *run = arg;
    struct classifier_worker worker = {0};
    int status = classifier_worker_plan(&worker, self, &run->experiment);
    if (status == SL_OK && run->config->dry_run) {
        struct bytes *bytes = &run->bytes[self->coordinate];
        sl_trainer_bytes(worker.trainer, &bytes->state, &bytes->activations);
        status = sl_gather_records(self, run->bytes, sizeof *run->bytes);
    } else if (status == SL_OK) {
        status = open_and_train(self, run, &worker);
    }
    classifier_worker_close(&worker);
    return status;
}

/* ---- main ---- */

static int report_bytes(struct run *run, struct sl_error *error) {
    static const struct sl_column column[] = {{"coordinate", -28}, {"parameters, optimizer", 22}, {"activations", 14}};
    if (!run->config->common.json) sl_table_begin(&run->table, stdout, 3, column);
    for (int c = 0; c < run->experiment.mesh.size; c++) {
        const struct bytes *bytes = &run->bytes[c];
        if (run->config->common.json) {
            SL_TRY(sl_json_print(stdout, "stdout",
                                 json_pack("{si sI sI}", "coordinate", c, "state_bytes", (json_int_t)bytes->state,
                                           "activation_bytes", (json_int_t)bytes->activations),
                                 error));
            continue;
        }
        char name[128];
        sl_table_cell(&run->table, "%s", sl_mesh_describe(&run->experiment.mesh, c, name, sizeof name));
        sl_table_cell(&run->table, "%.2f MB", (double)bytes->state / 1e6);
        sl_table_cell(&run->table, "%.2f MB", (double)bytes->activations / 1e6);
    }
    return SL_OK;
}

static int count_steps(struct run *run, struct sl_error *error) {
    const struct config *config = run->config;
    run->steps_per_epoch = run->dataset.train.count / (uint32_t)config->model.batch;
    if (run->steps_per_epoch == 0)
        return sl_error_set(error, SL_BAD_INPUT, "a batch of %d rows is more than the data's %u", config->model.batch,
                            run->dataset.train.count);
    run->steps = config->epochs ? config->epochs * run->steps_per_epoch : config->common.steps;
    run->ms = calloc(RECORDED, sizeof *run->ms);
    return run->ms ? SL_OK : sl_error_set(error, SL_FAILED, "no memory");
}

/* What cannot be written should be known before the training, not after it. */
static int check_outputs(struct run *run, struct sl_error *error) {
    const struct config *config = run->config;
    const int64_t steps = run->steps - run->checkpoints.first;
    if (config->trace) {
        if (steps < 2)
            return sl_error_set(error, SL_BAD_INPUT,
                                "--trace records from the second step on: --steps must be 2 at least%s",
                                run->checkpoints.first ? " after the checkpoint" : "");
        SL_TRY(sl_trace_file_open(&run->trace, config->trace, &run->experiment, run->steps - 1, error));
    }
    if (!config->gradients) return SL_OK;
    if (steps <= 0) return sl_error_set(error, SL_BAD_INPUT, "--gradients: no steps, so no gradients");
    if (config->metrics && !strcmp(config->gradients, config->metrics))
        return sl_error_set(error, SL_BAD_INPUT, "--gradients and --metrics name the same file, %s", config->metrics);
    return sl_safetensors_can_write(config->gradients, error);
}

/* What a process does that neither prints nor writes. */
static int take_part(struct run *run, const struct sl_engine *engine, struct sl_error *error) {
    if (run->config->trace && run->steps > 1)
        SL_TRY(sl_trace_file_open(&run->trace, NULL, &run->experiment, run->steps - 1, error));
    return sl_run(&run->experiment.mesh, engine, program, run);
}

static int train_on_mesh(struct run *run, const struct sl_engine *engine, struct sl_error *error) {
    const struct config *config = run->config;
    if (config->dry_run) {
        SL_TRY(sl_run(&run->experiment.mesh, engine, program, run));
        return sl_speaks(engine) ? report_bytes(run, error) : SL_OK;
    }
    sl_interrupt_catch();
    if (!sl_speaks(engine)) return take_part(run, engine, error);
    /* Other engines' coordinates may share several machines. */
    if (engine->table == &sl_engine_local) SL_TRY(classifier_experiment_check_memory(&run->experiment, error));
    SL_TRY(sl_checkpoints_open(&run->checkpoints, error));
    SL_TRY(check_outputs(run, error));
    SL_TRY(sl_metrics_open(&run->metrics, config->metrics, error));
    sl_progress_begin(&run->progress, "step", run->steps - run->checkpoints.first);
    int status = sl_run(&run->experiment.mesh, engine, program, run);
    sl_progress_clear(&run->progress);
    if (status == SL_OK && config->profile)
        status = sl_profile_report(run->profile, &run->experiment.mesh, run->done - 1, config->common.json, error);
    if (status == SL_OK) status = report_end(run, error);
    if (status == SL_OK && config->gradients) status = sl_safetensors_write(&run->gradients, config->gradients, error);
    if (status == SL_OK && config->trace) status = sl_trace_file_write(&run->trace, &run->experiment, error);
    const int closed = sl_metrics_close(&run->metrics, status ? NULL : error);
    return status ? status : closed;
}

/* What stays the same where a run is resumed: the model, and the order of its examples. */
static void describe_run(struct run *run) {
    const struct sl_classifier *classifier = &run->experiment.classifier;
    const struct sl_setting settings[] = {
        sl_setting_text("model", "classifier"),
        sl_setting_number("inputs", classifier->inputs),
        sl_setting_number("layers", classifier->layers),
        sl_setting_number("hidden", classifier->hidden),
        sl_setting_number("expansion", classifier->expansion),
        sl_setting_number("classes", classifier->classes),
        sl_setting_text("data", run->dataset.shuffled ? "fashion-mnist" : "random"),
        sl_setting_number("batch", run->experiment.batch),
    };
    _Static_assert(sizeof settings / sizeof *settings <= SL_MOST_SETTINGS, "room for all");
    run->checkpoints.options = run->config->checkpoints;
    run->checkpoints.seed = run->config->common.seed;
    memcpy(run->checkpoints.setting, settings, sizeof settings);
}

static int start(struct run *run, struct sl_error *error) {
    const struct config *config = run->config;
    struct sl_common_options common = config->common;
    struct sl_mesh mesh;
    struct sl_engine engine;
    /* Without a pipeline, and without a mesh that the user asked for, all coordinates lie along data. */
    const struct sl_schedule_alias *alias = sl_schedule_find_alias(config->schedule);
    if (alias && alias->single && common.mesh == sl_default_mesh) common.mesh = "data=8,model=1";
    SL_TRY(sl_common_open(&common, &mesh, &engine, error));
    if (common.show_placement) return sl_placement_report(&mesh, &engine, common.json, error);
    SL_TRY(classifier_dataset_open(&run->dataset, config->data, config->common.seed, (uint32_t)config->model.batch,
                                   error));
    SL_TRY(classifier_experiment_prepare(&run->experiment, &mesh, &config->model, config->schedule,
                                         config->schedule_file, (int)run->dataset.columns, (int)run->dataset.classes,
                                         config->common.seed, error));
    SL_TRY(count_steps(run, error));
    SL_TRY(sl_checkpoints_check(&config->checkpoints, error));
    describe_run(run);
    if (config->delay_ms > 0 && engine.table != &sl_engine_local)
        return sl_error_set(error, SL_BAD_INPUT, "--delay-ms: only engine local has delays, not %s", common.engine);
    engine.error = error;
    engine.delay = 1e-3 * config->delay_ms;
    return train_on_mesh(run, &engine, error);
}

int main(int argc, char **argv) {
    struct config config = {.common = sl_common_defaults(17),
                            .model = classifier_defaults(),
                            .schedule = "looping",
                            .data = "random",
                            .lr_schedule = LR_DEFAULT};
    struct sl_options options = {
        .program = "looping_pipeline",
        .summary = "Trains a residual MLP classifier over a mesh of data and pipeline coordinates.",
        .engine = &config.common.engine,
        .section = {{"Mesh", sl_mesh_table, &config.common},
                    {"Run", sl_common_table, &config.common},
                    {"Model and optimizer", classifier_table, &config.model},
                    {"Training", driver_table, &config},
                    {"Checkpoints", sl_checkpoint_table, &config.checkpoints}},
        .words = {"Schedules", sl_schedule_or_alias_word},
    };
    struct sl_error error = {0};
    struct run run = {.config = &config, .final_loss = NAN, .first_step_ms = NAN};
    int status = sl_options_parse(&options, argc, argv);
    if (status == SL_OK && !options.answered) {
        status = start(&run, &error);
        if (status == SL_OK) status = sl_stdout_finish(&error);
        if (status) sl_options_report(&options, &error);
    }
    sl_store_free(&run.gradients);
    sl_trace_file_free(&run.trace);
    sl_checkpoints_close(&run.checkpoints);
    classifier_experiment_free(&run.experiment);
    classifier_dataset_close(&run.dataset);
    free(run.ms);
    sl_options_free(&options);
    return status;
}
