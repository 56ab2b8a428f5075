/* experiment.c - from options to schedule, model and trainer. */
#include "drivers/experiment.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_COLUMNS = 65536, MAX_BATCH = 1 << 20, MAX_LAYERS = 4096 };

#define FIELD(name) offsetof(struct sl_model_options, name)

const struct sl_option sl_model_table[] = {
    {"layers", SL_OPTION_INTEGER, FIELD(layers), .min = 1, .max = MAX_LAYERS, .help = "residual MLP blocks"},
    {"loops", SL_OPTION_INTEGER, FIELD(loops), .min = 0, .max = MAX_LAYERS,
     .help = "stages a coordinate of the model axis; 0: one layer a stage"},
    {"hidden", SL_OPTION_INTEGER, FIELD(hidden), .min = 1, .max = MAX_COLUMNS, .help = "columns between blocks"},
    {"expansion", SL_OPTION_INTEGER, FIELD(expansion), .min = 1, .max = 64,
     .help = "columns inside a block, as a multiple of hidden"},
    {"microbatches", SL_OPTION_INTEGER, FIELD(microbatches), .min = 1, .max = 4096,
     .help = "parts of a coordinate's rows"},
    {"batch", SL_OPTION_INTEGER, FIELD(batch), .min = 1, .max = MAX_BATCH, .help = "rows of the whole batch"},
    {"dropout", SL_OPTION_REAL, FIELD(dropout), .min = 0, .max = 1, .below = true, .help = "rate inside blocks"},
    {"lr", SL_OPTION_REAL, FIELD(learning_rate), .min = 0, .max = 1e6, .help = "learning rate of AdamW"},
    {"rng", SL_OPTION_CHOICE, FIELD(rng), .value = "flax|global",
     .help =
         "random numbers: in the notebook's order, which is defined for single, plain, and looping with one layer a "
         "stage, and the default there; or by global position, the same in every layout"},
    {"wgrad-group", SL_OPTION_INTEGER, FIELD(wgrad_group), .min = 0, .max = 4096,
     .help = "microbatches of one weight-gradient product; 0: all"},
    {"zero", SL_OPTION_INTEGER, FIELD(zero), .min = 0, .max = 1,
     .help = "1: shard the optimizer's state over the data axis"},
    {"overlap", SL_OPTION_SWITCH, FIELD(overlap),
     .help = "sum a loop's gradients over the data axis while other loops compute"},
    {0},
};

struct sl_model_options sl_model_defaults(void) {
    return (struct sl_model_options){
        .layers = 8,
        .hidden = 512,
        .expansion = 1,
        .microbatches = 8,
        .batch = 128,
        .dropout = 0.1,
        .learning_rate = 1e-3,
        .rng = SL_RNG_DEFAULT,
        .zero = 1,
        .overlap = true,
    };
}

/* An axis that the user left out is one of size 1. */
static void complete_axis(struct sl_mesh *mesh, const char *name) {
    if (sl_mesh_find_axis(mesh, name) >= 0) return;
    struct sl_axis *axis = &mesh->axis[mesh->axes++];
    *axis = (struct sl_axis){.size = 1};
    strncpy(axis->name, name, sizeof axis->name - 1);
}

/* Only the axes that the classifier knows. */
static int read_axes(struct sl_experiment *experiment, struct sl_error *error) {
    struct sl_mesh *mesh = &experiment->mesh;
    for (int a = 0; a < mesh->axes; a++) {
        const char *name = mesh->axis[a].name;
        if (strcmp(name, "data") != 0 && strcmp(name, "model") != 0)
            return sl_error_set(error, SL_BAD_INPUT, "mesh axis \"%s\": the axes of this experiment are data and model",
                                name);
    }
    complete_axis(mesh, "data"); /* there is room: at most two axes came through */
    complete_axis(mesh, "model");
    experiment->data = sl_mesh_axis_size(mesh, "data");
    experiment->model = sl_mesh_axis_size(mesh, "model");
    return SL_OK;
}

/* The largest divisor of NUMBER that is at most MOST: without a pipeline a coordinate's rows are cut as well as they
 * can be, for they differ in number from the pipelined coordinates'. */
static int largest_divisor(int number, int most) {
    int divisor = most < number ? most : number;
    while (number % divisor) divisor--;
    return divisor;
}

static int split_batch(struct sl_experiment *experiment, int batch, int *microbatches, bool single,
                       struct sl_error *error) {
    if (batch % experiment->data)
        return sl_error_set(error, SL_BAD_INPUT, "--batch %d does not divide over the data axis of %d", batch,
                            experiment->data);
    experiment->batch = batch;
    experiment->local_rows = batch / experiment->data;
    if (single) *microbatches = largest_divisor(experiment->local_rows, *microbatches);
    if (experiment->local_rows % *microbatches)
        return sl_error_set(
            error, SL_BAD_INPUT,
            "--microbatches %d: a coordinate's %d rows (--batch %d over data=%d) do not divide into so many",
            *microbatches, experiment->local_rows, batch, experiment->data);
    experiment->rows = experiment->local_rows / *microbatches;
    return SL_OK;
}

/* Positions in an array are 32-bit numbers. */
static int check_arrays(const struct sl_experiment *experiment, struct sl_error *error) {
    const struct sl_classifier *classifier = &experiment->classifier;
    const double inside = (double)classifier->hidden * classifier->expansion;
    const double rows = fmax(fmax(classifier->inputs, classifier->hidden), experiment->local_rows);
    const double largest = rows * fmax(inside, classifier->hidden);
    if (largest <= INT32_MAX) return SL_OK;
    return sl_error_set(
        error, SL_BAD_INPUT,
        "hidden %d, expansion %d, %d rows a coordinate: an array of %.0f elements, at most %d are possible",
        classifier->hidden, classifier->expansion, experiment->local_rows, largest, INT32_MAX);
}

/* Parameters, gradients and optimizer state of all coordinates, and what is kept between forward and backward. */
static double bytes_needed(const struct sl_experiment *experiment) {
    const struct sl_classifier *classifier = &experiment->classifier;
    const double inside = (double)classifier->hidden * classifier->expansion;
    const double parameters = (double)sl_classifier_parameters(classifier);
    const double replicas = experiment->data, states = experiment->zero ? 1 : experiment->data;
    const double kept = experiment->batch * (double)classifier->layers * (4.0 * classifier->hidden + 3.0 * inside);
    return 4 * (parameters * (2 * replicas + 2 * states) + kept);
}

int sl_experiment_check_memory(const struct sl_experiment *experiment, struct sl_error *error) {
    const double bytes = bytes_needed(experiment);
    const double memory = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
    if (bytes <= memory) return SL_OK;
    return sl_error_set(error, SL_BAD_INPUT, "the model needs %.1f GB on data=%d, this machine has %.1f GB",
                        bytes / 1e9, experiment->data, memory / 1e9);
}

/* The schedule's name, and its loops, for what the user asked for. */
static int choose_schedule(struct sl_experiment *experiment, const struct sl_model_options *options, const char **name,
                           struct sl_error *error) {
    const bool single = !strcmp(*name, "single"), plain = !strcmp(*name, "plain") || !strcmp(*name, "gpipe");
    if (!single && !plain && strcmp(*name, "looping") && strcmp(*name, "looped-bfs"))
        return sl_error_set(
            error, SL_BAD_INPUT,
            "--schedule: there is no \"%.60s\": choose one of single, plain, looping, gpipe, looped-bfs", *name);
    struct sl_classifier *classifier = &experiment->classifier;
    if (single && experiment->model != 1)
        return sl_error_set(error, SL_BAD_INPUT, "schedule single has no pipeline: the model axis is %d, must be 1",
                            experiment->model);
    if ((single || plain) && options->loops > 1)
        return sl_error_set(error, SL_BAD_INPUT, "schedule %s: %d loops, must be 1", *name, options->loops);
    if (options->layers % experiment->model)
        return sl_error_set(error, SL_BAD_INPUT, "--layers %d do not divide over the model axis of %d", options->layers,
                            experiment->model);
    const int layers = options->layers / experiment->model;
    classifier->stages = experiment->model;
    classifier->loops = single || plain ? 1 : options->loops ? options->loops : layers;
    if (layers % classifier->loops)
        return sl_error_set(
            error, SL_BAD_INPUT,
            "--loops %d: a coordinate's %d layers (--layers %d over model=%d) do not divide into so many",
            classifier->loops, layers, options->layers, experiment->model);
    experiment->looping = !single && !plain;
    if (single || plain)
        *name = "gpipe";
    else if (!strcmp(*name, "looping"))
        *name = "looped-bfs";
    return SL_OK;
}

/* Flax's order is defined where the notebook's modules are: one layer a stage in the looping pipeline. */
static int choose_rng(struct sl_experiment *experiment, const char *asked, int rng, struct sl_error *error) {
    const bool notebook = !strcmp(asked, "single") || !strcmp(asked, "plain") || !strcmp(asked, "looping");
    const int stage_layers =
        experiment->classifier.layers / (experiment->classifier.stages * experiment->classifier.loops);
    const bool defined = notebook && (!experiment->looping || stage_layers == 1);
    if (rng == SL_RNG_FLAX && !notebook)
        return sl_error_set(error, SL_BAD_INPUT, "--rng flax: schedule %s is none of single, plain, looping", asked);
    if (rng == SL_RNG_FLAX && !defined)
        return sl_error_set(error, SL_BAD_INPUT, "--rng flax: %d layers a stage, the notebook's looping pipeline has 1",
                            stage_layers);
    experiment->flax = rng == SL_RNG_DEFAULT ? defined : rng == SL_RNG_FLAX;
    return SL_OK;
}

static int make_schedule(struct sl_experiment *experiment, const char *name, int microbatches, int group, bool single,
                         struct sl_error *error) {
    SL_TRY(sl_schedule_make(&experiment->schedule, name, experiment->classifier.stages, experiment->classifier.loops,
                            microbatches, error));
    SL_TRY(sl_schedule_lower(&experiment->schedule, error));
    SL_TRY(sl_schedule_check(&experiment->schedule, SL_PIPELINE_FEWEST_SLOTS, NULL, error));
    experiment->group = group && group < microbatches ? group : microbatches;
    if (single) experiment->group = largest_divisor(microbatches, experiment->group);
    if (microbatches % experiment->group)
        return sl_error_set(error, SL_BAD_INPUT,
                            "--wgrad-group %d: %d microbatches do not divide into groups of so many", experiment->group,
                            microbatches);
    return SL_OK;
}

int sl_experiment_prepare(struct sl_experiment *experiment, const struct sl_mesh *mesh,
                          const struct sl_model_options *options, const char *schedule, int inputs, int classes,
                          uint64_t seed, struct sl_error *error) {
    *experiment = (struct sl_experiment){
        .mesh = *mesh,
        .classifier = {.inputs = inputs,
                       .hidden = options->hidden,
                       .expansion = options->expansion,
                       .classes = classes,
                       .layers = options->layers,
                       .dropout = options->dropout},
        .zero = options->zero == 1,
        .overlap = options->overlap,
        .learning_rate = options->learning_rate,
        .seed = seed,
    };
    const char *name = schedule;
    int microbatches = options->microbatches;
    const bool single = !strcmp(schedule, "single");
    SL_TRY(read_axes(experiment, error));
    SL_TRY(choose_schedule(experiment, options, &name, error));
    SL_TRY(choose_rng(experiment, schedule, options->rng, error));
    SL_TRY(split_batch(experiment, options->batch, &microbatches, single, error));
    SL_TRY(check_arrays(experiment, error));
    const int status = make_schedule(experiment, name, microbatches, options->wgrad_group, single, error);
    if (status) sl_experiment_free(experiment);
    return status;
}

void sl_experiment_free(struct sl_experiment *experiment) { sl_schedule_free(&experiment->schedule); }

/* ---- one coordinate ---- */

static void assign_keys(struct sl_parameters *parameters, void *arg) {
    const struct sl_worker *worker = arg;
    const struct sl_experiment *experiment = worker->experiment;
    sl_classifier_flax_parameters(parameters, experiment->seed, experiment->looping, worker->keys.rank,
                                  worker->model.loops, worker->model.layers);
}

static const struct sl_key *step_keys(void *arg) {
    struct sl_worker *worker = arg;
    sl_classifier_flax_step(&worker->keys, worker->layer_key);
    return worker->layer_key;
}

static int open_keys(struct sl_worker *worker, struct sl_spmd *self) {
    const struct sl_experiment *experiment = worker->experiment;
    worker->keys = (struct sl_classifier_keys){
        .looping = experiment->looping,
        .data = experiment->data,
        .model = experiment->model,
        .data_index = sl_axis_index(self, "data"),
        .rank = sl_axis_index(self, "model"),
        .layers = worker->model.layers,
        .iterations = sl_schedule_iterations(&experiment->schedule),
    };
    sl_classifier_flax_open(&worker->keys, experiment->seed);
    worker->layer_key =
        calloc((size_t)worker->keys.iterations * (size_t)worker->keys.layers, sizeof *worker->layer_key);
    return worker->layer_key ? SL_OK : sl_fail(self, SL_FAILED, "no memory for random keys");
}

int sl_worker_plan(struct sl_worker *worker, struct sl_spmd *self, const struct sl_experiment *experiment) {
    const int rank = sl_axis_index(self, "model");
    *worker = (struct sl_worker){
        .experiment = experiment,
        .rows = experiment->local_rows,
        .first_row = sl_axis_index(self, "data") * experiment->local_rows,
    };
    SL_TRY(sl_classifier_build(&experiment->classifier, rank, &worker->model, &self->error));
    SL_TRY(open_keys(worker, self));
    const struct sl_trainer_options options = {
        .pipeline = {.axis = "model",
                     .schedule = &experiment->schedule,
                     .gemm = sl_gemm_find(NULL, &self->error),
                     .rows = experiment->rows,
                     .group = experiment->group},
        .data_axis = "data",
        .adamw = sl_adamw_defaults((float)experiment->learning_rate),
        .zero = experiment->zero,
        .overlap = experiment->overlap,
        .seed = experiment->seed,
        .assign_keys = experiment->flax ? assign_keys : NULL,
        .step_keys = experiment->flax ? step_keys : NULL,
        .arg = worker,
    };
    if (!options.pipeline.gemm) return self->error.status;
    return sl_trainer_plan(&worker->trainer, self, &options, &worker->model);
}

int sl_worker_open(struct sl_worker *worker, struct sl_spmd *self, const struct sl_store *from) {
    const size_t rows = (size_t)worker->rows;
    const bool first = worker->keys.rank == 0, last = worker->keys.rank == worker->experiment->model - 1;
    if (first) worker->inputs = malloc(rows * (size_t)worker->model.in * sizeof *worker->inputs);
    if (last) worker->labels = malloc(rows * sizeof *worker->labels);
    if ((first && !worker->inputs) || (last && !worker->labels))
        return sl_fail(self, SL_FAILED, "no memory for a batch of %zu rows", rows);
    return sl_trainer_open(worker->trainer, from);
}

struct sl_batch sl_worker_fetch(struct sl_worker *worker, const struct sl_dataset *dataset,
                                const struct sl_examples *examples, const uint32_t *order, int64_t batch) {
    const uint32_t first = (uint32_t)(batch * worker->experiment->batch + worker->first_row);
    sl_dataset_fetch(dataset, examples, order, first, (uint32_t)worker->rows, worker->inputs, worker->labels);
    return (struct sl_batch){worker->inputs, worker->labels};
}

void sl_worker_close(struct sl_worker *worker) {
    sl_trainer_close(worker->trainer);
    sl_classifier_free(&worker->model);
    free(worker->layer_key);
    free(worker->inputs);
    free(worker->labels);
}
