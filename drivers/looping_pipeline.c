/* looping_pipeline.c - trains the notebook's classifier on a mesh, under any schedule. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "collectives/engines.h"
#include "drivers/classifier/experiment.h"
#include "drivers/common/identity.h"
#include "drivers/speed/placement_report.h"
#include "drivers/training/choices/schedule_choice.h"
#include "drivers/tools/search/forecast.h"
#include "drivers/training/restart/restart.h"

struct config {
    struct sl_common_options common;
    struct classifier_options model;
    struct sl_search_options search;
    const char *data;
    int epochs;
};

static const struct sl_option schedule_table[] = {
    {"schedule", SL_OPTION_TEXT, offsetof(struct config, model.training.schedule), .value = "NAME",
     .keep = SL_KEPT_FREE, .read = "!schedule-file", .word = sl_schedule_or_alias_word,
     .help = "order of the pipeline's work: one of the schedules below"},
    CLASSIFIER_LOOPS(offsetof(struct config, model)),
    {"stage-layers", SL_OPTION_TEXT, offsetof(struct config, model.training.stage_layers), .value = "N,N,...",
     .keep = SL_KEPT_FREE, .unless = "schedule|schedule-file|mesh|loops",
     .help = "layers of each stage, in the pipeline's order (default: numbers that differ by at most one)"},
    CLASSIFIER_MICROBATCHES(offsetof(struct config, model)),
    {0},
};

static const struct sl_option data_table[] = {
    {"data", SL_OPTION_TEXT, offsetof(struct config, data), .value = "DATA", .path = SL_PATH_DATA,
     .prefix = "fashion-mnist:", .keep = SL_KEPT_DATA,
     .help = "training data: random; fashion-mnist: Debian's package dataset-fashion-mnist; fashion-mnist:DIR: the IDX "
             "files in DIR"},
    {"epochs", SL_OPTION_INTEGER, offsetof(struct config, epochs), .min = 0, .max = 1e6, .keep = SL_KEPT_RUN,
     .unless = "steps", .help = "passes over the training data, instead of --steps; 0: train for --steps"},
    {0},
};

static const struct sl_brief brief = {
    "mesh engine seed steps data epochs batch layers hidden dropout rng precision dry-run schedule loops microbatches "
    "accumulate recompute optimizer lr warmup metrics profile save resume",
    (const char *const[]){"--rng global --mesh data=2,model=2 --hidden 64 --save classifier",
                          "--resume classifier --mesh data=1,model=4 --steps 34",
                          "--schedule interleaved-zb --loops 2 --profile", NULL}};

struct run {
    const struct config *config;
    struct classifier_experiment experiment;
    struct classifier_dataset dataset;
    struct sl_training training;
    struct sl_forecast forecast;
    int64_t steps_per_epoch;
    /* Set by coordinate 0. */
    struct sl_table epochs;
    struct sl_metrics epoch; /* sums over the epoch's steps so far */
    double test_accuracy;
};

/* Returns the run that contains the job's experiment. */
static struct run *run_of(const struct sl_job *job) {
    return (struct run *)((char *)job->own - offsetof(struct run, experiment));
}

/* ---- epochs ---- */

static int report_epoch(struct run *run, int64_t epoch, const struct sl_metrics *test, struct sl_error *error) {
    static const struct sl_column column[] = {{"epoch", 5}, {"loss", 10}, {"test loss", 10}, {"test accuracy", 14}};
    struct sl_report *report = &run->training.report;
    const double loss = test->loss / test->rows, mean_loss = run->epoch.loss / run->epoch.rows;
    run->epoch = (struct sl_metrics){0};
    run->test_accuracy = test->correct / test->rows;
    sl_progress_clear(&report->progress);
    if (!report->json && run->config->model.training.log_every) { /* between lines of steps */
        printf("after epoch %lld: loss %.6f, test loss %.6f, test accuracy %.4f\n", (long long)epoch, mean_loss, loss,
               run->test_accuracy);
    } else if (!report->json) {
        if (!run->epochs.stream) sl_table_begin(&run->epochs, stdout, 4, column);
        sl_table_cell(&run->epochs, "%lld", (long long)epoch);
        sl_table_cell(&run->epochs, "%.6f", mean_loss);
        sl_table_cell(&run->epochs, "%.6f", loss);
        sl_table_cell(&run->epochs, "%.4f", run->test_accuracy);
    }
    if (!sl_report_wants_json(report)) return SL_OK;
    return sl_report_print(report,
                           json_pack("{sI so so so}", "epoch", (json_int_t)epoch, "train_loss", sl_json_real(mean_loss),
                                     "test_loss", sl_json_real(loss), "test_accuracy",
                                     sl_json_real(run->test_accuracy)),
                           error);
}

static int after_step(struct sl_worker *worker, const struct sl_step *step, bool last) {
    struct run *run = run_of(worker->job);
    const bool speaks = worker->self->coordinate == 0;
    struct sl_metrics test;
    if (!run->dataset.shuffled) return SL_OK;
    if (speaks) {
        run->epoch.loss += step->metrics.loss;
        run->epoch.rows += step->metrics.rows;
    }
    if (!last && (step->number + 1) % run->steps_per_epoch) return SL_OK;
    SL_TRY(classifier_test(worker, &test));
    if (!speaks) return SL_OK;
    SL_TRY(report_epoch(run, step->number / run->steps_per_epoch, &test, &worker->self->error));
    return sl_checkpoints_evaluated(&run->training.checkpoints, step->number + 1, test.loss / test.rows,
                                    &worker->self->error);
}

/* For data with epochs, people see epochs instead of steps. */
static bool shows_step(const struct sl_training *training, int64_t number) {
    (void)number;
    return !run_of(training->job)->dataset.shuffled;
}

/* ---- steps ---- */

static int begin_epoch(struct sl_worker *worker, int64_t epoch) {
    const struct run *run = run_of(worker->job);
    struct classifier_worker *own = worker->own;
    if (!own->order) own->order = malloc((size_t)run->dataset.train.count * sizeof *own->order);
    if (!own->order) return sl_fail(worker->self, SL_FAILED, "no memory for an epoch's order");
    classifier_dataset_epoch_order(&run->dataset, worker->job->seed, (uint32_t)epoch, own->order);
    return SL_OK;
}

static int fetch(struct sl_worker *worker, int64_t step, struct sl_batch *batch) {
    const struct run *run = run_of(worker->job);
    const struct classifier_worker *own = worker->own;
    const int64_t in_epoch = step % run->steps_per_epoch;
    if (in_epoch == 0 || step == worker->first) SL_TRY(begin_epoch(worker, step / run->steps_per_epoch));
    *batch = classifier_fetch(worker, &run->dataset.train, own->order, in_epoch);
    return SL_OK;
}

/* In a resumed run, dropout keys in flax's order continue; an epoch's loss is the mean of the steps from here on. */
static int begin(struct sl_worker *worker) {
    const struct classifier_experiment *experiment = worker->job->own;
    struct classifier_worker *own = worker->own;
    if (worker->self->coordinate == 0) run_of(worker->job)->epoch = (struct sl_metrics){0};
    for (int64_t step = 0; experiment->flax && step < worker->first; step++)
        sl_classifier_flax_step(&own->keys, own->layer_key);
    return SL_OK;
}

static json_t *end(struct sl_training *training) {
    const struct run *run = run_of(training->job);
    const struct sl_classifier *classifier = &run->experiment.classifier;
    struct sl_report *report = &training->report;
    const double parameters = (double)sl_classifier_parameters(classifier);
    const double stacked = (double)sl_classifier_parameters_stacked(classifier, training->job->ranks);
    const double median = sl_step_times_median(&report->times);
    if (!report->json) {
        const struct sl_time_unit unit = sl_time_unit_of(median);
        printf("parameters %.0f (%.0f with every stage's copy), ", parameters, stacked);
        if (sl_training_done(training) > 0)
            printf("first step after %.0f ms, median %.2f %s, ", report->first_step_ms, median / unit.ms, unit.name);
        printf("peak %.1f MB\n", sl_peak_bytes() / 1e6);
    }
    json_t *object = json_pack("{sI sI so so so sI}", "parameters", (json_int_t)parameters, "parameters_stacked",
                               (json_int_t)stacked, "final_loss", sl_json_real(report->final_loss), "first_step_ms",
                               sl_json_real(report->first_step_ms), "median_ms", sl_json_real(median), "peak_bytes",
                               (json_int_t)sl_peak_bytes());
    if (run->dataset.shuffled) json_object_set_new(object, "test_accuracy", sl_json_real(run->test_accuracy));
    return object;
}

static const struct sl_report_field fields[] = {
    {"step", "step", 5, 'd', 0, false, sl_step_number},
    {"loss", "loss", 16, 'g', 9, false, sl_step_loss},
    {"accuracy", "accuracy", 10, 'f', 6, false, sl_step_accuracy},
    {"norm", "norm", 10, 'g', 4, true, sl_step_norm},
    {"ms", "ms", 9, 'f', 2, false, sl_step_ms},
    {"lr", NULL, 0, 'g', 0, false, sl_step_rate},
    {0},
};

static const struct sl_training_type classifier_training = {
    .fetch = fetch, .begin = begin, .after = after_step, .field = fields, .shows = shows_step, .end = end};

/* ---- main ---- */

static int count_steps(struct run *run, struct sl_error *error) {
    const struct config *config = run->config;
    const int batch = config->model.training.batch;
    run->steps_per_epoch = run->dataset.train.count / (uint32_t)batch;
    if (run->steps_per_epoch == 0)
        return sl_error_set(error, SL_BAD_INPUT, "a batch of %d rows is more than the data's %u", batch,
                            run->dataset.train.count);
    if (run->dataset.shuffled) run->training.checkpoints.evaluate_every = run->steps_per_epoch;
    run->training.steps = config->epochs ? config->epochs * run->steps_per_epoch : config->common.steps;
    return SL_OK;
}

/* Sets the values that must stay the same in a resumed run: the model, and the order of its examples. */
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
        sl_setting_number("batch", run->config->model.training.batch),
    };
    _Static_assert(sizeof settings / sizeof *settings <= SL_MOST_SETTINGS, "room for all");
    memcpy(run->training.setting, settings, sizeof settings);
}

/* Describes the run for people. */
static void describe_heading(const struct run *run, struct sl_heading *heading) {
    const struct classifier_experiment *experiment = &run->experiment;
    heading->parameters = (double)sl_classifier_parameters(&experiment->classifier);
    snprintf(heading->data, sizeof heading->data, "%s, %u examples", run->config->data, run->dataset.train.count);
    snprintf(heading->numbers, sizeof heading->numbers, "%s%s%s%s",
             experiment->flax ? "flax, another model on each mesh (--rng global: one on all)" : "global",
             *experiment->no_flax ? " (" : "", experiment->no_flax, *experiment->no_flax ? ")" : "");
}

static void plan_training(struct run *run) {
    const struct sl_training_options *options = &run->experiment.options.training;
    struct sl_training *training = &run->training;
    training->type = &classifier_training;
    training->job = &run->experiment.job;
    training->json = run->config->common.json;
    training->rate = sl_training_rate(options, training->steps);
    describe_run(run);
    describe_heading(run, &training->heading);
}

/* Writes the notes for checkpoints, with defaults that the run has determined. */
static int note_run(struct run *run, const struct sl_common_options *common, struct sl_error *error) {
    struct sl_training *training = &run->training;
    struct sl_store *notes = &training->notes;
    struct sl_signature data = {0};
    const int given = run->config->model.training.microbatches;
    char steps[24], microbatches[16];
    snprintf(microbatches, sizeof microbatches, "%d", given ? given : run->experiment.job.schedule.microbatches);
    SL_TRY(sl_describe_option(notes, "microbatches", microbatches, error));
    snprintf(steps, sizeof steps, "%lld", (long long)training->steps);
    SL_TRY(sl_describe_option(notes, "mesh", common->mesh, error));
    SL_TRY(sl_describe_option(notes, "steps", steps, error));
    SL_TRY(sl_describe_option(notes, "rng", run->experiment.flax ? "flax" : "global", error));
    int status = classifier_dataset_sign(&run->dataset, &data, error);
    if (status == SL_OK) status = sl_training_describe(training, common->command, &data, error);
    sl_signature_free(&data);
    return status;
}

/* Adds the run's inputs to its signature. */
static int sign(const struct run *run, struct sl_error *error) {
    const struct config *config = run->config;
    struct sl_signature *signature = &config->common.command->signature;
    SL_TRY(sl_sign_file(signature, "--schedule-file", config->model.training.schedule_file, error));
    SL_TRY(sl_job_sign(&run->experiment.job, signature, error));
    return classifier_dataset_sign(&run->dataset, signature, error);
}

static int start(struct run *run, struct sl_error *error) {
    const struct config *config = run->config;
    const struct sl_training_options *options = &config->model.training;
    struct sl_common_options common = config->common;
    struct sl_mesh mesh;
    struct sl_engine engine;
    /* Without a pipeline, and without --mesh, all coordinates are along data. */
    const struct sl_schedule_alias *alias = sl_schedule_find_alias(options->schedule);
    if (alias && alias->single && !options->schedule_file && common.mesh == sl_default_mesh)
        common.mesh = "data=8,model=1";
    SL_TRY(sl_common_open(&common, &mesh, &engine, error));
    if (common.show_placement) return sl_placement_report(&mesh, &engine, common.json, error);
    SL_TRY(classifier_dataset_open(&run->dataset, config->data, (uint32_t)options->batch, error));
    SL_TRY(classifier_experiment_prepare(&run->experiment, &mesh, &engine, &config->model, &run->dataset, common.seed,
                                         error));
    SL_TRY(count_steps(run, error));
    plan_training(run);
    SL_TRY(note_run(run, &common, error));
    if (engine.table->apart) SL_TRY(sign(run, error));
    if (config->search.plan)
        return sl_search(&run->experiment.job, &engine, common.command, &config->search, common.json, error);
    if (run->experiment.job.sizes_only) return sl_training_run(&run->training, &engine, error);
    /* With other engines the coordinates may be on several machines. */
    if (engine.table == &sl_engine_local) SL_TRY(classifier_experiment_check_memory(&run->experiment, &engine, error));
    SL_TRY(classifier_dataset_draw(&run->dataset, common.seed, error));
    SL_TRY(sl_forecast_make(&run->forecast, &run->training, &engine, &config->search, error));
    return sl_training_run(&run->training, &engine, error);
}

/* Sets defaults: real data are repeated many times, with a falling learning rate. */
static void settle(const struct sl_options *options) {
    struct config *config = options->own;
    struct sl_training_options *training = &config->model.training;
    classifier_settle(&config->model, options);
    if (training->lr_schedule == SL_RATE_DEFAULT)
        training->lr_schedule = strcmp(config->data, "random") ? SL_RATE_COSINE : SL_RATE_CONSTANT;
}

int main(int argc, char **argv) {
    struct config config = {.common = sl_common_defaults(17), .model = classifier_defaults(), .data = "random"};
    struct sl_training_options *training = &config.model.training;
    struct sl_options options = {
        .program = "looping_pipeline",
        .summary = "Trains a residual MLP classifier over a mesh of data and pipeline coordinates.",
        .engine = &config.common.engine,
        .section = SL_SECTIONS({"Mesh", sl_mesh_table, &config.common}, {"Run", sl_common_table, &config.common},
                               {"Data", data_table, &config}, {"Model", classifier_table, &config.model},
                               {"Layout", sl_layout_table, training}, {"Schedule", schedule_table, &config},
                               {"Pipeline", sl_pipeline_table, training}, {"Plan", sl_search_table, &config.search},
                               sl_optimizer_section(&training->optimizer), {"Learning rate", sl_rate_table, training},
                               {"Records", sl_record_table, training},
                               {"Checkpoints", sl_checkpoint_table, &training->checkpoints}),
        .words = {"Schedules", sl_schedule_or_alias_word},
        .brief = brief,
        .own = &config,
        .settle = settle,
    };
    struct sl_error error = {0};
    struct run run = {.config = &config};
    training->lr_schedule = SL_RATE_DEFAULT;
    config.common.command = &options;
    int status = sl_options_parse(&options, argc, argv);
    if (status == SL_OK && sl_restart_asked(&options, &training->checkpoints)) {
        status = sl_restart(&options, NULL, &training->checkpoints, &config.common);
    } else if (status == SL_OK && !options.answered) {
        status = sl_search_prepare(&config.search, &config.common, &options, &error);
        training->plans = config.search.plan != SL_PLAN_NO;
        if (status == SL_OK) status = start(&run, &error);
        status = sl_options_finish(&options, status, &error);
    }
    sl_training_close(&run.training);
    classifier_experiment_free(&run.experiment);
    classifier_dataset_close(&run.dataset);
    sl_options_free(&options);
    return status;
}
