/* loss_equality.c - the notebook's closing test: a model trained as a plain pipeline is trained for three more steps
 * on a single device, as a pipeline and as a looping pipeline, with equal losses. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "collectives/engines.h"
#include "drivers/classifier/experiment.h"
#include "drivers/common/identity.h"
#include "drivers/common/interrupt.h"
#include "drivers/common/metrics.h"
#include "drivers/speed/placement_report.h"
#include "drivers/training/choices/schedule_choice.h"
#include "drivers/command_line/streams.h"
#include "drivers/tools/search/forecast.h"
#include "drivers/speed/cores.h"
#include "drivers/speed/profile_report.h"
#include "drivers/training/memory_check.h"
#include "drivers/training/shardings_report.h"
#include "drivers/training/training.h"
#include "layers/training/exchange.h"

enum { COMPARED_STEPS = 3, MAX_STEPS = 1000000 };

struct config {
    struct sl_common_options common;
    struct classifier_options model;
    const char *single_mesh;
};

static const struct sl_option comparison_table[] = {
    {"single-mesh", SL_OPTION_TEXT, offsetof(struct config, single_mesh), .value = "MESH",
     .help = "mesh of the run without a pipeline (default: all coordinates along data)"},
    {0},
};
static const struct sl_option schedule_table[] = {
    {"schedule", SL_OPTION_TEXT, offsetof(struct config, model.training.schedule), .value = "NAME",
     .read = "!schedule-file", .word = sl_schedule_or_alias_word,
     .help = "schedule of the third run: one of those below; --schedule-file is for the third run, too"},
    CLASSIFIER_LOOPS(offsetof(struct config, model)),
    CLASSIFIER_MICROBATCHES(offsetof(struct config, model)),
    {0},
};
static const struct sl_option record_table[] = {
    {"log-every", SL_OPTION_INTEGER, offsetof(struct config, model.training.log_every), .min = 0, .max = MAX_STEPS,
     .read = "!json", .help = "print the loss after every N steps of the training before the comparison; 0: never"},
    {"trace", SL_OPTION_TEXT, offsetof(struct config, model.training.trace), .value = "FILE", .path = SL_PATH_STREAM,
     .help = "write the times of each coordinate's work in the third run, from its second step on, to FILE (Chrome "
             "trace events, for Perfetto)"},
    {0},
};

static const struct sl_brief brief = {
    "mesh engine seed steps json batch layers hidden dropout precision storage fsdp single-mesh schedule loops "
    "microbatches accumulate recompute optimizer lr log-every trace",
    (const char *const[]){"", "--mesh data=1,model=2 --hidden 64 --steps 4",
                          "--schedule interleaved-zb --loops 1 --microbatches 4 --hidden 64 --steps 4", NULL}};

/* One run of one schedule. */
struct trial {
    const char *name;     /* in JSON */
    const char *schedule; /* name for people: in the table and in messages; set by prepare */
    struct classifier_experiment experiment;
    int steps;
    int log_every;               /* steps between printed lines; 0: none */
    const struct sl_store *from; /* initial values, or NULL */
    struct sl_store *to;         /* receives the trained values, or NULL */
    struct sl_memory *memory;    /* [coordinates] */
    struct sl_trace_file *trace; /* of all steps but the first; NULL: none */
    struct sl_profile *profile;  /* [coordinates], of all steps but the first; NULL: none */
    struct sl_forecast forecast;
    struct sl_step_times times;
    /* Set by coordinate 0: losses per step, and over all rows of all steps. */
    double *loss;
    double accumulated, accuracy;
};

enum { TRAIN, SINGLE, PIPELINE, LOOPING, TRIALS };

/* ---- work of every coordinate ---- */

static int log_step(const struct trial *trial, int step, struct sl_error *error) {
    if (!trial->log_every || ((step + 1) % trial->log_every && step + 1 < trial->steps)) return SL_OK;
    printf("step %d: loss %.9g\n", step, trial->loss[step]);
    return sl_stdout_finish(error); /* so readers of a log see each line at once */
}

/* Starts records at the second step: the first one touches memory and generates code. */
static void start_records(struct trial *trial, struct sl_worker *worker) {
    struct sl_spmd *self = worker->self;
    if (trial->trace) sl_trainer_set_trace(worker->trainer, sl_trace_file_of(trial->trace, self));
    if (!trial->profile) return;
    sl_profile_start(&trial->profile[self->coordinate], self);
    sl_trainer_set_profile(worker->trainer, &trial->profile[self->coordinate]);
}

static int gather_records(struct trial *trial, struct sl_spmd *self) {
    if (trial->profile) {
        sl_profile_end(&trial->profile[self->coordinate], SL_WORK_OTHER);
        SL_TRY(sl_gather_records(self, trial->profile, sizeof *trial->profile));
    }
    return trial->trace ? sl_gather_traces(self, trial->trace->trace) : SL_OK;
}

static int take_steps(struct trial *trial, struct sl_worker *worker) {
    struct sl_spmd *self = worker->self;
    const struct classifier_examples *examples = &trial->experiment.dataset->train;
    const struct sl_batch batch = classifier_fetch(worker, examples, NULL, 0);
    const struct sl_learning_rate rate = sl_training_rate(worker->job->options, trial->steps);
    double loss = 0, correct = 0, rows = 0;
    for (int step = 0; step < trial->steps; step++) {
        const double began = sl_now();
        struct sl_metrics metrics;
        bool stop = sl_interrupt_arrived() != 0;
        sl_trainer_set_learning_rate(worker->trainer, (float)sl_learning_rate_at(&rate, step));
        SL_TRY(sl_trainer_step(worker->trainer, &batch, &metrics, &stop));
        if (stop) return sl_fail(self, SL_FAILED, "interrupted in step %d of %s", step, trial->name);
        if (self->coordinate == 0) {
            trial->loss[step] = metrics.loss / metrics.rows;
            sl_step_times_add(&trial->times, 1e3 * (sl_now() - began));
            if (trial->trace && step) sl_trace_file_step(trial->trace, step, began, sl_now(), trial->loss[step]);
            SL_TRY(log_step(trial, step, &self->error));
        }
        loss += metrics.loss;
        correct += metrics.correct;
        rows += metrics.rows;
        if (!step) start_records(trial, worker);
    }
    if (trial->steps) SL_TRY(gather_records(trial, self));
    if (self->coordinate == 0) {
        trial->accumulated = loss / rows;
        trial->accuracy = correct / rows;
    }
    return trial->to ? sl_trainer_export(worker->trainer, false, trial->to) : SL_OK;
}

static int program(struct sl_spmd *self, void *arg) {
    struct trial *trial = arg;
    struct sl_worker worker;
    int status = sl_worker_plan(&worker, self, &trial->experiment.job);
    if (status == SL_OK) status = sl_worker_open(&worker, trial->from);
    if (status == SL_OK) status = take_steps(trial, &worker);
    if (status == SL_OK) status = sl_memory_gather_held(self, trial->memory);
    sl_worker_close(&worker);
    return status;
}

static int plan_program(struct sl_spmd *self, void *arg) {
    struct trial *trial = arg;
    struct sl_worker worker;
    bool fits;
    int status = sl_worker_plan(&worker, self, &trial->experiment.job);
    if (status == SL_OK) status = sl_memory_plan(&worker, trial->memory, &fits);
    sl_worker_close(&worker);
    return status;
}

/* ---- comparison and report ---- */

/* Returns the tolerance for a step's loss, relative. Sums in another order differ in their last digits, and bf16
 * magnifies this: a float between two bf16 numbers may round to either, so both operands of a product may differ by
 * 2^-9 of their size. The errors of consecutive products are independent: their squares add up. tf32 has two more
 * bits. */
static double tolerance_of(const struct classifier_options *model) {
    const double products = 2.0 * model->layers + 2.0;
    const int precision = model->training.precision;
    const double between = 4.0 * model->layers + 3.0; /* modules: their outputs are rounded with --storage bf16 */
    if (model->training.storage && precision == SL_PRODUCTS_F32)
        return 0x1p-8 * sqrt(between + products / 3.0); /* of a product's operands only the kernel is rounded */
    if (model->training.storage) return 0x1p-8 * sqrt(between + products);
    if (precision == SL_PRODUCTS_F32) return 1e-4;
    return (precision == SL_PRODUCTS_TF32 ? 0x1p-10 : 0x1p-8) * sqrt(products);
}

/* Returns the largest difference of a step's loss between two of the three layouts, relative to the smaller one. */
static double largest_difference(const struct trial *trial, bool *identical) {
    double largest = 0;
    *identical = true;
    for (int step = 0; step < COMPARED_STEPS; step++) {
        for (int a = SINGLE; a < TRIALS; a++) {
            for (int b = a + 1; b < TRIALS; b++) {
                const double x = trial[a].loss[step], y = trial[b].loss[step];
                const double difference = fabs(x - y) / fmax(fmin(fabs(x), fabs(y)), 1e-30);
                if (x != y) *identical = false;
                if (difference > largest) largest = difference;
            }
        }
    }
    return largest;
}

static json_t *losses(const struct trial *trial) {
    json_t *list = json_array();
    for (int step = 0; step < trial->steps; step++) json_array_append_new(list, sl_json_real(trial->loss[step]));
    return list;
}

/* Returns the measurements of one of the compared runs. */
static struct sl_training_measured measured_of(struct trial *trial) {
    return sl_training_measure(&trial->experiment.job, &trial->times, trial->profile, COMPARED_STEPS - 1,
                               trial->memory);
}

/* Makes predictions from the runs' profiles. */
static void forecast(struct trial *trial, const struct sl_engine *engine) {
    for (int i = SINGLE; i < TRIALS; i++) {
        trial[i].forecast.job = &trial[i].experiment.job;
        trial[i].forecast.engine = engine;
        sl_forecast_settle(&trial[i].forecast, trial[i].profile, COMPARED_STEPS - 1, 0);
    }
}

static void add_forecast(json_t *object, struct trial *trial) {
    const struct sl_training_measured measured = measured_of(trial);
    json_object_set_new(object, "median_ms", sl_json_real(measured.median));
    json_object_set_new(object, "held_bytes", json_integer((json_int_t)measured.bytes));
    if (!trial->forecast.told.made) return;
    json_object_set_new(object, "predicted", sl_forecast_json(&trial->forecast));
    if (!isnan(measured.bubble)) json_object_set_new(object, "measured_bubble", sl_json_real(measured.bubble));
}

static void print_forecasts(struct trial *trial) {
    for (int i = SINGLE; i < TRIALS; i++) {
        const struct sl_training_measured measured = measured_of(&trial[i]);
        if (!trial[i].forecast.told.made) continue;
        printf("%s: ", trial[i].schedule);
        sl_forecast_print(&trial[i].forecast, stdout, &measured);
    }
}

static int report_json(struct trial *trial, double difference, bool identical, bool equal, struct sl_error *error) {
    json_t *object = json_pack("{s{so}}", "train", "loss", losses(&trial[TRAIN]));
    for (int i = SINGLE; i < TRIALS; i++) {
        json_object_set_new(object, trial[i].name,
                            json_pack("{so so so}", "loss", losses(&trial[i]), "accumulated",
                                      sl_json_real(trial[i].accumulated), "accuracy", sl_json_real(trial[i].accuracy)));
        add_forecast(json_object_get(object, trial[i].name), &trial[i]);
    }
    json_object_set_new(json_object_get(object, trial[LOOPING].name), "schedule", json_string(trial[LOOPING].schedule));
    json_object_set_new(object, "max_relative_difference", sl_json_real(difference));
    json_object_set_new(object, "bit_identical", json_boolean(identical));
    json_object_set_new(object, "equal", json_boolean(equal));
    return sl_json_print(stdout, "stdout", object, error);
}

static void report_table(struct trial *trial, double difference, bool identical, bool equal) {
    struct sl_column column[] = {{"layout", -10}, {"mesh", -22},    {"step 0", 16}, {"step 1", 16},
                                 {"step 2", 16},  {"accuracy", 10}, {"loss", 10}};
    struct sl_table table;
    const int steps = trial[TRAIN].steps;
    printf("trained as a plain pipeline for %d steps", steps);
    if (steps > 0) printf(", loss %.9g", trial[TRAIN].loss[steps - 1]);
    printf("\n\n");
    for (int i = SINGLE; i < TRIALS; i++)
        if ((int)strlen(trial[i].schedule) > -column[0].width) column[0].width = -(int)strlen(trial[i].schedule);
    sl_table_begin(&table, stdout, 7, column);
    for (int i = SINGLE; i < TRIALS; i++) {
        char mesh[128];
        sl_table_cell(&table, "%s", trial[i].schedule);
        sl_table_cell(&table, "%s", sl_mesh_print(&trial[i].experiment.job.mesh, mesh, sizeof mesh));
        for (int step = 0; step < COMPARED_STEPS; step++) sl_table_cell(&table, "%.9g", trial[i].loss[step]);
        sl_table_cell(&table, "%.6f", trial[i].accuracy);
        sl_table_cell(&table, "%.6f", trial[i].accumulated);
    }
    printf("\nlargest relative difference %.3g%s: %s\n", difference, identical ? ", the same bits" : "",
           equal ? "equal" : "NOT equal");
    sl_cores_print(stdout, trial[LOOPING].experiment.job.sharing.coordinates,
                   trial[LOOPING].experiment.job.sharing.cores);
    print_forecasts(trial);
    sl_memory_print_end(stdout, trial[LOOPING].memory, &trial[LOOPING].experiment.job.mesh, false);
}

/* ---- main ---- */

/* Prepares all runs; all input errors are found before the first run. */
static int prepare(struct trial *trial, const struct config *config, const struct sl_mesh *mesh,
                   const struct sl_mesh *single_mesh, const struct classifier_dataset *dataset,
                   const struct sl_engine *engine, struct sl_error *error) {
    static const char *const schedule[] = {[TRAIN] = "plain", [SINGLE] = "single", [PIPELINE] = "plain"};
    static const char *const called[] = {[TRAIN] = "train", [SINGLE] = "single", [PIPELINE] = "pipeline"};
    const struct sl_training_options *third = &config->model.training;
    const struct sl_schedule *last = &trial[LOOPING].experiment.job.schedule;
    for (int i = TRIALS - 1; i >= 0; i--) { /* the last first: its table determines the number of microbatches */
        struct classifier_options model = config->model;
        trial[i].schedule = i != LOOPING ? called[i] : third->schedule_file ? third->schedule_file : third->schedule;
        if (i != TRAIN) model.dropout = 0;
        if (i != LOOPING) {
            model.training.schedule = schedule[i];
            model.training.schedule_file = NULL;
            model.training.loops = 0;
            if (config->model.training.schedule_file) model.training.microbatches = last->microbatches;
        }
        trial[i].loss = calloc((size_t)trial[i].steps + 1, sizeof *trial[i].loss);
        if (!trial[i].loss) return sl_error_set(error, SL_FAILED, "no memory");
        const struct sl_mesh *on = i == SINGLE ? single_mesh : mesh;
        struct sl_error reason;
        const int status = classifier_experiment_prepare(&trial[i].experiment, on, engine, &model, dataset,
                                                         config->common.seed, &reason);
        if (status) {
            char name[128];
            return sl_error_set(error, status, "the %s run on %s: %s", trial[i].schedule,
                                sl_mesh_print(on, name, sizeof name), reason.message);
        }
        trial[i].memory = calloc((size_t)on->size, sizeof *trial[i].memory);
        if (i != TRAIN) trial[i].profile = calloc((size_t)on->size, sizeof *trial[i].profile);
        if (!trial[i].memory || (i != TRAIN && !trial[i].profile)) return sl_error_set(error, SL_FAILED, "no memory");
        if (i == LOOPING && third->schedule_file) trial[i].schedule = last->name;
        if (engine->table == &sl_engine_local && !model.training.dry_run)
            SL_TRY(classifier_experiment_check_memory(&trial[i].experiment, engine, error));
    }
    return SL_OK;
}

static int open_meshes(const struct config *config, struct sl_mesh *mesh, struct sl_mesh *single,
                       struct sl_engine *engine, struct sl_error *error) {
    SL_TRY(sl_common_open(&config->common, mesh, engine, error));
    if (config->single_mesh) return sl_mesh_parse(single, config->single_mesh, error);
    char all[32];
    snprintf(all, sizeof all, "data=%d,model=1", mesh->size);
    return sl_mesh_parse(single, all, error);
}

/* Plans all runs before the first one: each has to fit. */
static int plan_runs(struct trial *trial, const struct config *config, struct sl_engine *engine,
                     struct sl_error *error) {
    const bool prints = config->model.training.dry_run && sl_speaks(engine);
    for (int i = 0; i < TRIALS; i++) {
        struct sl_job *job = &trial[i].experiment.job;
        const bool sizes_only = job->sizes_only;
        job->sizes_only = true;
        engine->spare = i == SINGLE;
        const int status = sl_run(&job->mesh, engine, plan_program, &trial[i]);
        job->sizes_only = sizes_only;
        SL_TRY(status);
        if (prints)
            SL_TRY(sl_memory_print(trial[i].memory, &job->mesh, trial[i].name, config->common.json, error));
        else if (!sizes_only)
            SL_TRY(sl_memory_refuse(job, engine, trial[i].memory, error));
    }
    return SL_OK;
}

/* Opens the trace of the third run. The file is emptied only after all input was checked. */
static int open_trace(struct trial *trial, struct sl_trace_file *trace, const char *path,
                      const struct sl_engine *engine, struct sl_error *error) {
    if (!path) return SL_OK;
    const struct sl_trace_run run = sl_job_trace(&trial[LOOPING].experiment.job);
    trial[LOOPING].trace = trace;
    SL_TRY(sl_trace_file_open(trace, &run, COMPARED_STEPS - 1, error));
    return sl_speaks(engine) ? sl_trace_file_create(trace, "--trace", path, error) : SL_OK;
}

static int compare(const struct config *config, struct trial *trial, struct classifier_dataset *dataset,
                   struct sl_store *trained, struct sl_trace_file *trace, struct sl_error *error) {
    struct sl_mesh mesh, single_mesh;
    struct sl_engine engine;
    bool identical;
    if (config->common.steps > MAX_STEPS)
        return sl_error_set(error, SL_BAD_INPUT, "--steps %d: at most %d losses are kept", config->common.steps,
                            MAX_STEPS);
    SL_TRY(open_meshes(config, &mesh, &single_mesh, &engine, error));
    if (config->common.show_placement) return sl_placement_report(&mesh, &engine, config->common.json, error);
    SL_TRY(classifier_dataset_open(dataset, "random", (uint32_t)config->model.training.batch, error));
    SL_TRY(prepare(trial, config, &mesh, &single_mesh, dataset, &engine, error));
    if (engine.table->apart) {
        struct sl_signature *signature = &config->common.command->signature;
        SL_TRY(sl_sign_file(signature, "--schedule-file", config->model.training.schedule_file, error));
        SL_TRY(sl_job_sign(&trial[LOOPING].experiment.job, signature, error));
    }
    engine.error = error;
    SL_TRY(sl_training_delay(&config->model.training, &engine, error));
    if (config->model.training.show_shardings)
        return sl_shardings_report(&trial[LOOPING].experiment.job, &engine, config->common.json);
    SL_TRY(plan_runs(trial, config, &engine, error));
    if (config->model.training.dry_run) return SL_OK;
    SL_TRY(classifier_dataset_draw(dataset, config->common.seed, error));
    SL_TRY(open_trace(trial, trace, config->model.training.trace, &engine, error));
    sl_interrupt_catch(sl_speaks(&engine) ? "this step" : NULL, false);
    for (int i = 0; i < TRIALS; i++) {
        trial[i].from = i == TRAIN ? NULL : trained;
        trial[i].to = i == TRAIN ? trained : NULL;
        engine.spare = i == SINGLE;
        SL_TRY(sl_run(&trial[i].experiment.job.mesh, &engine, program, &trial[i]));
    }
    if (!sl_speaks(&engine)) return SL_OK;
    const double difference = largest_difference(trial, &identical), tolerance = tolerance_of(&config->model);
    forecast(trial, &engine);
    if (config->common.json)
        SL_TRY(report_json(trial, difference, identical, difference <= tolerance, error));
    else
        report_table(trial, difference, identical, difference <= tolerance);
    if (trial[LOOPING].trace) SL_TRY(sl_trace_file_write(trace, error));
    if (difference <= tolerance) return SL_OK;
    return sl_error_set(error, SL_CHECK_FAILED, "the losses differ by %.3g, allowed is %.3g", difference, tolerance);
}

static void settle(const struct sl_options *options) {
    struct config *config = options->own;
    classifier_settle(&config->model, options);
}

int main(int argc, char **argv) {
    struct config config = {.common = sl_common_defaults(15), .model = classifier_defaults()};
    struct sl_training_options *training = &config.model.training;
    struct sl_options options = {
        .program = "loss_equality",
        .summary = "Shows that a single device, a pipeline and a looping pipeline compute the same losses.",
        .engine = &config.common.engine,
        .section = SL_SECTIONS({"Mesh", sl_mesh_table, &config.common}, {"Run", sl_common_table, &config.common},
                               {"Model", classifier_table, &config.model}, {"Layout", sl_layout_table, training},
                               {"Comparison", comparison_table, &config}, {"Schedule", schedule_table, &config},
                               {"Pipeline", sl_pipeline_table, training}, sl_optimizer_section(&training->optimizer),
                               {"Learning rate", sl_rate_table, training}, {"Records", record_table, &config}),
        .words = {"Schedules", sl_schedule_or_alias_word},
        .brief = brief,
        .own = &config,
        .settle = settle,
    };
    struct sl_error error = {0};
    struct classifier_dataset dataset = {0};
    struct sl_store trained = {0};
    struct sl_trace_file trace = {0};
    config.common.command = &options;
    int status = sl_options_parse(&options, argc, argv);
    struct trial trial[TRIALS] = {
        [TRAIN] = {.name = "train",
                   .steps = config.common.steps,
                   .log_every = config.common.json ? 0 : training->log_every},
        [SINGLE] = {.name = "single", .steps = COMPARED_STEPS},
        [PIPELINE] = {.name = "pipeline", .steps = COMPARED_STEPS},
        [LOOPING] = {.name = "looping", .steps = COMPARED_STEPS},
    };
    if (status == SL_OK && !options.answered) {
        status = sl_options_finish(&options, compare(&config, trial, &dataset, &trained, &trace, &error), &error);
    }
    for (int i = 0; i < TRIALS; i++) {
        classifier_experiment_free(&trial[i].experiment);
        free(trial[i].loss);
        free(trial[i].memory);
        free(trial[i].profile);
    }
    sl_store_free(&trained);
    sl_trace_file_free(&trace);
    classifier_dataset_close(&dataset);
    sl_options_free(&options);
    return status;
}
