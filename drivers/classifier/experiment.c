/* experiment.c - makes a job from options, with the classifier's schedule and random numbers. */
#include "drivers/classifier/experiment.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "drivers/training/choices/schedule_choice.h"
#include "drivers/training/memory_check.h"

enum { MAX_COLUMNS = 65536, MAX_BATCH = 1 << 20, USUAL_MICROBATCHES = 8 };

#define FIELD(name) offsetof(struct classifier_options, name)

const struct sl_option classifier_table[] = {
    {"batch", SL_OPTION_INTEGER, FIELD(training.batch), .min = 1, .max = MAX_BATCH, .alias = "batch-size",
     .keep = SL_KEPT_STATE, .help = "rows of the whole batch, over all replicas"},
    {"layers", SL_OPTION_INTEGER, FIELD(layers), .min = 1, .max = CLASSIFIER_MAX_LAYERS, .alias = "num-layers",
     .keep = SL_KEPT_SIZE, .help = "number of residual MLP blocks"},
    {"hidden", SL_OPTION_INTEGER, FIELD(hidden), .min = 1, .max = MAX_COLUMNS, .keep = SL_KEPT_SIZE,
     .help = "columns between blocks"},
    {"expansion", SL_OPTION_INTEGER, FIELD(expansion), .min = 1, .max = 64, .keep = SL_KEPT_SIZE,
     .help = "columns inside a block, as a multiple of hidden"},
    {"dropout", SL_OPTION_REAL, FIELD(dropout), .min = 0, .max = 1, .below = true, .keep = SL_KEPT_RUN,
     .help = "dropout rate inside blocks"},
    {"rng", SL_OPTION_CHOICE, FIELD(rng), .value = "flax|global", .keep = SL_KEPT_RUN,
     .help = "order of random numbers: flax: the notebook's; global: by position in the model and batch, so that every "
             "layout draws the same. flax is the default where it is defined: single, plain, and looping with one "
             "layer a stage, but not dropout with --accumulate"},
    {0},
};

struct classifier_options classifier_defaults(void) {
    struct classifier_options options = {.layers = 8,
                                         .hidden = 512,
                                         .expansion = 1,
                                         .dropout = 0.1,
                                         .rng = CLASSIFIER_RNG_DEFAULT,
                                         .training = sl_training_defaults()};
    options.training.schedule = "looping";
    options.training.microbatches = USUAL_MICROBATCHES;
    options.training.batch = 128;
    return options;
}

/* ---- checking sizes ---- */

/* Checks that positions in arrays fit 32 bits. */
static int check_arrays(const struct classifier_experiment *experiment, struct sl_error *error) {
    const struct sl_classifier *classifier = &experiment->classifier;
    const int local = experiment->job.local;
    const double inside = (double)classifier->hidden * classifier->expansion;
    const double rows = fmax(fmax(classifier->inputs, classifier->hidden), local);
    const double largest = rows * fmax(inside, classifier->hidden);
    if (largest <= INT32_MAX) return SL_OK;
    return sl_error_set(
        error, SL_BAD_INPUT,
        "hidden %d, expansion %d, %d rows a coordinate: an array of %.0f elements, at most %d are possible",
        classifier->hidden, classifier->expansion, local, largest, INT32_MAX);
}

/* Counts only activations saved between forward and backward: at least one group of microbatches, in all layers. */
int classifier_experiment_check_memory(const struct classifier_experiment *experiment, const struct sl_engine *engine,
                                       struct sl_error *error) {
    const struct sl_classifier *classifier = &experiment->classifier;
    const struct sl_training_options *options = &experiment->options.training;
    const double inside = (double)classifier->hidden * classifier->expansion;
    const double columns = classifier->recomputation ? classifier->hidden : 3.0 * classifier->hidden + 3.0 * inside;
    const double kept = (double)experiment->job.wgrad_group / experiment->job.schedule.microbatches;
    const double rows = kept * options->batch / experiment->job.passes;
    const double batch = sizeof(float) * options->batch * (classifier->inputs + 1.0);
    const double drawn =
        experiment->dataset->shuffled ? 0 : batch; /* all of the data, besides each coordinate's rows */
    const struct sl_memory_need need = {
        .parameters = sl_memory_of_parameters(&experiment->job, (double)sl_classifier_parameters(classifier)),
        .activations = sizeof(float) * rows * classifier->layers * columns,
        .data = batch + drawn,
    };
    return sl_memory_check(&experiment->job, engine, &need, drawn, error);
}

/* ---- schedule and random numbers ---- */

/* Whether the named schedule fits. Without --loops each stage has one layer, as far as the schedule allows so many
 * loops. */
static int fit_schedule(const struct classifier_experiment *experiment, const struct sl_schedule_choice *choice,
                        int *loops, struct sl_error *error) {
    const struct sl_training_options *options = &experiment->options.training;
    const int ranks = experiment->job.ranks;
    if (choice->alias && choice->alias->single && ranks != 1)
        return sl_error_set(error, SL_BAD_INPUT, "schedule %s has no pipeline: the model axis is %d, must be 1",
                            options->schedule, ranks);
    if (choice->alias && options->loops > choice->kind->most_loops)
        return sl_error_set(error, SL_BAD_INPUT, "schedule %s: %d loops, must be %d", options->schedule, options->loops,
                            choice->kind->most_loops);
    *loops =
        options->loops ? options->loops : sl_schedule_fit_loops(choice->kind, experiment->classifier.layers / ranks);
    return SL_OK;
}

void classifier_settle(struct classifier_options *model, const struct sl_options *options) {
    const bool brought = sl_store_note(&options->adoption.notes, "option.microbatches");
    if (!model->training.exact || sl_option_given(options, "microbatches")) return;
    if (!brought || sl_option_given(options, "accumulate")) model->training.microbatches = 0;
}

/* Returns the alias of the options' schedule; NULL: it has a name of its own, or is from a file. */
static const struct sl_schedule_alias *alias_of(const struct classifier_experiment *experiment) {
    const struct sl_training_options *options = &experiment->options.training;
    return options->schedule_file ? NULL : sl_schedule_find_alias(options->schedule);
}

/* Makes the schedule. Without a pipeline a coordinate's rows are divided as evenly as possible, since their number
 * differs from the pipelined coordinates'. */
static int make_schedule(struct classifier_experiment *experiment, struct sl_error *error) {
    const struct sl_training_options *options = &experiment->options.training;
    const struct sl_schedule_alias *alias = alias_of(experiment);
    const bool single = alias && alias->single;
    struct sl_job *job = &experiment->job;
    struct sl_schedule_choice choice = {0};
    int loops = 0, microbatches = sl_job_microbatches(job, USUAL_MICROBATCHES), group = sl_job_wgrad_group(job, 0);
    SL_TRY(sl_schedule_choose(&choice, options->schedule, error)); /* a wrong name is refused with a file, too */
    if (!options->schedule_file) SL_TRY(fit_schedule(experiment, &choice, &loops, error));
    if (single) microbatches = sl_largest_divisor(job->pass, microbatches);
    SL_TRY(sl_job_schedule(job, choice.kind, loops, microbatches, experiment->classifier.layers, error));
    experiment->classifier.stage_layers = job->stage_layers;
    if (single && group) group = sl_largest_divisor(microbatches, group);
    return sl_job_group(job, group, error);
}

/* Explains why flax's order is undefined, if the run did not ask for it. */
static void explain_rng(struct classifier_experiment *experiment, const char *asked, bool known, bool passes) {
    char *why = experiment->no_flax;
    if (!known)
        snprintf(why, sizeof experiment->no_flax, "flax has no order for schedule %.60s", asked);
    else if (experiment->job.exact)
        snprintf(why, sizeof experiment->no_flax, "--exact draws for rows of the batch");
    else if (passes)
        snprintf(why, sizeof experiment->no_flax, "flax has no dropout in several passes a step");
    else
        snprintf(why, sizeof experiment->no_flax, "flax has no order for %d layers on %d stages",
                 experiment->classifier.layers, sl_schedule_stages(&experiment->job.schedule));
}

/* Chooses the order of random numbers. Flax's order is defined for the notebook's modules: one layer per stage in
 * the looping pipeline. Its stream of dropout has one key per step, and none for a second pass. */
static int choose_rng(struct classifier_experiment *experiment, struct sl_error *error) {
    const struct sl_training_options *options = &experiment->options.training;
    const char *asked = options->schedule_file ? "of a file" : options->schedule;
    const int rng = experiment->options.rng;
    const struct sl_schedule_alias *alias = alias_of(experiment);
    const bool looping = alias && alias->looping, flat = alias && !looping;
    const bool passes = options->accumulate > 1 && experiment->options.dropout > 0;
    const int layers = experiment->classifier.layers, stages = sl_schedule_stages(&experiment->job.schedule);
    const bool alike = !options->stage_layers && !passes && !experiment->job.exact;
    const bool defined = alike && ((flat && layers % stages == 0) || (looping && layers == stages));
    if (rng == CLASSIFIER_RNG_FLAX && !flat && !looping)
        return sl_error_set(error, SL_BAD_INPUT, "--rng flax: schedule %s is none of single, plain, looping", asked);
    if (rng == CLASSIFIER_RNG_FLAX && passes)
        return sl_error_set(error, SL_BAD_INPUT,
                            "--rng flax: the notebook has no dropout in %d passes a step: choose --rng global, or "
                            "--dropout 0, or --accumulate 1",
                            options->accumulate);
    if (rng == CLASSIFIER_RNG_FLAX && experiment->job.exact)
        return sl_error_set(error, SL_BAD_INPUT,
                            "--rng flax: flax draws for each replica, and --exact for rows of the batch: choose --rng "
                            "global, or leave --exact out");
    if (rng == CLASSIFIER_RNG_FLAX && options->stage_layers)
        return sl_error_set(error, SL_BAD_INPUT,
                            "--rng flax: the notebook's stages have equally many layers: choose --rng global, or leave "
                            "--stage-layers out");
    if (rng == CLASSIFIER_RNG_FLAX && flat && !defined)
        return sl_error_set(error, SL_BAD_INPUT, "--rng flax: %d layers do not divide over %d stages", layers, stages);
    if (rng == CLASSIFIER_RNG_FLAX && !defined)
        return sl_error_set(error, SL_BAD_INPUT,
                            "--rng flax: %d layers on %d stages, the notebook's looping pipeline has one layer a stage",
                            layers, stages);
    experiment->looping = looping;
    experiment->flax = rng == CLASSIFIER_RNG_DEFAULT ? defined : rng == CLASSIFIER_RNG_FLAX;
    if (rng == CLASSIFIER_RNG_DEFAULT && !defined) explain_rng(experiment, asked, flat || looping, passes);
    return SL_OK;
}

/* ---- the job ---- */

static int fit(struct classifier_experiment *experiment, const struct sl_mesh *mesh, const struct sl_engine *engine,
               struct sl_error *error) {
    SL_TRY(sl_job_open(&experiment->job, mesh, engine, error));
    SL_TRY(sl_job_share(&experiment->job, error));
    SL_TRY(make_schedule(experiment, error));
    SL_TRY(choose_rng(experiment, error));
    return check_arrays(experiment, error);
}

static int plan_bytes(struct sl_worker *worker, struct sl_budget *budget);
static struct sl_job *copy_job(const struct sl_job *from, const struct sl_variant *variant,
                               const struct sl_engine *engine, struct sl_error *error);
static void free_copy(struct sl_job *copy);
static int open_worker(struct sl_worker *worker, struct sl_trainer_options *options);
static void close_worker(struct sl_worker *worker);

/* Reduces the layers of a model without given values. */
static bool fewer_layers(const struct sl_job *job, int attempt, struct sl_variant *variant,
                         char text[SL_ATTEMPT_TEXT]) {
    const struct classifier_experiment *own = job->own;
    variant->layers = own->options.layers >> (attempt + 1);
    snprintf(text, SL_ATTEMPT_TEXT, "--layers %d", variant->layers);
    return variant->layers > 0 && !job->options->checkpoints.resume;
}

static sl_attempt *const smaller_attempts[] = {fewer_layers, NULL};
static const char *const axes[] = {[SL_JOB_DATA] = "data", [SL_JOB_PIPE] = "model", NULL};
static const struct sl_job_type classifier_job = {.model = "the classifier",
                                                  .axes = axes,
                                                  .samples = "rows",
                                                  .open = open_worker,
                                                  .close = close_worker,
                                                  .plan_bytes = plan_bytes,
                                                  .copy = copy_job,
                                                  .free_copy = free_copy,
                                                  .smaller = smaller_attempts};

int classifier_experiment_prepare(struct classifier_experiment *experiment, const struct sl_mesh *mesh,
                                  const struct sl_engine *engine, const struct classifier_options *options,
                                  const struct classifier_dataset *dataset, uint64_t seed, struct sl_error *error) {
    *experiment = (struct classifier_experiment){
        .job = {.type = &classifier_job, .options = &experiment->options.training, .own = experiment, .seed = seed},
        .options = *options,
        .classifier = {.inputs = (int)dataset->columns,
                       .hidden = options->hidden,
                       .expansion = options->expansion,
                       .classes = (int)dataset->classes,
                       .layers = options->layers,
                       .dropout = options->dropout,
                       .recomputation = options->training.recompute,
                       .fsdp = options->training.fsdp,
                       .exact = options->training.exact != NULL},
        .dataset = dataset,
    };
    const int status = fit(experiment, mesh, engine, error);
    if (status) classifier_experiment_free(experiment);
    return status;
}

void classifier_experiment_free(struct classifier_experiment *experiment) { sl_job_close(&experiment->job); }

/* Copies the experiment with other options. */
static struct sl_job *copy_job(const struct sl_job *from, const struct sl_variant *variant,
                               const struct sl_engine *engine, struct sl_error *error) {
    const struct classifier_experiment *old = from->own;
    struct classifier_experiment *copy = calloc(1, sizeof *copy);
    struct classifier_options changed = old->options;
    changed.training = variant->options;
    if (variant->layers) changed.layers = variant->layers;
    if (!copy) return NULL;
    if (classifier_experiment_prepare(copy, &variant->mesh, engine, &changed, old->dataset, from->seed, error)) {
        free(copy);
        return NULL;
    }
    copy->job.sizes_only = true;
    return &copy->job;
}

static void free_copy(struct sl_job *copy) {
    struct classifier_experiment *experiment = copy->own;
    classifier_experiment_free(experiment);
    free(experiment);
}

/* ---- one coordinate ---- */

static void assign_keys(struct sl_parameters *parameters, void *arg) {
    const struct sl_worker *worker = arg;
    const struct classifier_experiment *experiment = worker->job->own;
    const struct classifier_worker *own = worker->own;
    sl_classifier_flax_parameters(parameters, worker->job->seed, experiment->looping, own->keys.rank,
                                  worker->model.loops, worker->model.layers);
}

static const struct sl_key *step_keys(void *arg) {
    const struct sl_worker *worker = arg;
    struct classifier_worker *own = worker->own;
    sl_classifier_flax_step(&own->keys, own->layer_key);
    return own->layer_key;
}

static int open_keys(struct sl_worker *worker) {
    const struct classifier_experiment *experiment = worker->job->own;
    struct classifier_worker *own = worker->own;
    own->keys = (struct sl_classifier_keys){
        .looping = experiment->looping,
        .data = worker->job->data,
        .model = worker->job->ranks,
        .data_index = sl_axis_index(worker->self, "data"),
        .rank = sl_axis_index(worker->self, "model"),
        .layers = worker->model.layers,
        .iterations = sl_schedule_iterations(&worker->job->schedule),
    };
    sl_classifier_flax_open(&own->keys, worker->job->seed);
    own->layer_key = calloc((size_t)own->keys.iterations * (size_t)own->keys.layers, sizeof *own->layer_key);
    return own->layer_key ? SL_OK : sl_fail(worker->self, SL_FAILED, "no memory for random keys");
}

/* Returns a stage of this rank. */
static int stage_of(const struct sl_worker *worker, int loop) {
    return sl_schedule_stage(&worker->job->schedule, sl_axis_index(worker->self, "model"), loop);
}

static bool has_first(const struct sl_worker *worker) {
    const struct sl_schedule *schedule = &worker->job->schedule;
    bool has = false;
    for (int l = 0; l < schedule->loops; l++) has = has || sl_schedule_is_first(schedule, stage_of(worker, l));
    return has;
}

static bool has_last(const struct sl_worker *worker) {
    const struct sl_schedule *schedule = &worker->job->schedule;
    bool has = false;
    for (int l = 0; l < schedule->loops; l++) has = has || sl_schedule_is_last(schedule, stage_of(worker, l));
    return has;
}

static size_t row_bytes(const struct sl_worker *worker) {
    const struct classifier_experiment *experiment = worker->job->own;
    const size_t inputs = has_first(worker) ? (size_t)experiment->classifier.inputs * sizeof(float) : 0;
    return (size_t)worker->job->local * (inputs + (has_last(worker) ? sizeof(int32_t) : 0));
}

static int plan_bytes(struct sl_worker *worker, struct sl_budget *budget) {
    sl_budget_add(budget, SL_MEMORY_BATCH, row_bytes(worker));
    return SL_OK;
}

/* Allocates the rows that stages here read. */
static int open_rows(struct sl_worker *worker) {
    const size_t rows = (size_t)worker->job->local;
    const struct classifier_experiment *experiment = worker->job->own;
    struct classifier_worker *own = worker->own;
    const bool first = has_first(worker), last = has_last(worker);
    own->first_row = own->keys.data_index * worker->job->local;
    if (worker->job->sizes_only) return SL_OK;
    if (first) own->inputs = malloc(rows * (size_t)experiment->classifier.inputs * sizeof *own->inputs);
    if (last) own->labels = malloc(rows * sizeof *own->labels);
    if ((first && !own->inputs) || (last && !own->labels))
        return sl_fail(worker->self, SL_FAILED, "no memory for a batch of %zu rows", rows);
    sl_budget_add(&worker->self->held, SL_MEMORY_BATCH, row_bytes(worker));
    return SL_OK;
}

static int open_worker(struct sl_worker *worker, struct sl_trainer_options *options) {
    const struct classifier_experiment *experiment = worker->job->own;
    const int rank = sl_axis_index(worker->self, "model");
    worker->own = calloc(1, sizeof(struct classifier_worker));
    if (!worker->own) return sl_fail(worker->self, SL_FAILED, "no memory for a coordinate");
    SL_TRY(sl_classifier_build(&experiment->classifier, &worker->job->schedule, rank, &worker->model,
                               &worker->self->error));
    SL_TRY(open_keys(worker));
    SL_TRY(open_rows(worker));
    options->pipeline.rules = sl_classifier_rules(&experiment->classifier);
    options->pipeline.group_axes = sl_classifier_axes(&experiment->classifier);
    options->assign_keys = experiment->flax ? assign_keys : NULL;
    options->step_keys = experiment->flax ? step_keys : NULL;
    return SL_OK;
}

static void close_worker(struct sl_worker *worker) {
    struct classifier_worker *own = worker->own;
    sl_model_free(&worker->model);
    if (!own) return;
    free(own->layer_key);
    free(own->inputs);
    free(own->labels);
    free(own->order);
    free(own);
}

struct sl_batch classifier_fetch(struct sl_worker *worker, const struct classifier_examples *examples,
                                 const uint32_t *order, int64_t batch) {
    const struct classifier_experiment *experiment = worker->job->own;
    const struct classifier_worker *own = worker->own;
    const uint32_t first = (uint32_t)(batch * worker->job->options->batch + own->first_row);
    classifier_dataset_fetch(experiment->dataset, examples, order, first, (uint32_t)worker->job->local, own->inputs,
                             own->labels);
    return (struct sl_batch){.rows = worker->job->local, .inputs = own->inputs, .labels = own->labels};
}

/* Scores a batch, the rows of each pass in turn: an evaluation has one pass. */
static int test_batch(struct sl_worker *worker, const struct sl_batch *batch, struct sl_metrics *sums) {
    const struct classifier_experiment *experiment = worker->job->own;
    const int pass = worker->job->pass;
    for (int p = 0; p < worker->job->passes; p++) {
        const struct sl_batch part = sl_batch_rows(batch, p * pass, pass, experiment->classifier.inputs, 0);
        struct sl_metrics metrics;
        SL_TRY(sl_trainer_evaluate(worker->trainer, &part, &metrics));
        sums->loss += metrics.loss;
        sums->correct += metrics.correct;
        sums->rows += metrics.rows;
    }
    return SL_OK;
}

int classifier_test(struct sl_worker *worker, struct sl_metrics *sums) {
    const struct classifier_experiment *experiment = worker->job->own;
    const struct classifier_examples *test = &experiment->dataset->test;
    *sums = (struct sl_metrics){0};
    for (int64_t b = 0; b * worker->job->options->batch < test->count; b++) {
        const struct sl_batch batch = classifier_fetch(worker, test, NULL, b);
        SL_TRY(test_batch(worker, &batch, sums));
    }
    return SL_OK;
}
