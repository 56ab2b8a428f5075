/* experiment.c - from options to schedule, model and trainer. */
#include "drivers/classifier/experiment.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "drivers/common/schedule_choice.h"
#include "spmd/schedule/csv.h"

enum { MAX_COLUMNS = 65536, MAX_BATCH = 1 << 20, MAX_LAYERS = 4096 };

#define FIELD(name) offsetof(struct classifier_options, name)

const struct sl_option classifier_table[] = {
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
    {"precision", SL_OPTION_CHOICE, FIELD(precision), .value = "f32|bf16|tf32",
     .help = "operands of matrix products: floats, or rounded to bf16, or to tf32 in multiplying (on NVIDIA's GPUs); "
             "sums, parameters and all else are floats"},
    {"overlap", SL_OPTION_SWITCH, FIELD(overlap),
     .help = "sum a loop's gradients over the data axis while other loops compute"},
    {0},
};

struct classifier_options classifier_defaults(void) {
    return (struct classifier_options){
        .layers = 8,
        .hidden = 512,
        .expansion = 1,
        .microbatches = 8,
        .batch = 128,
        .dropout = 0.1,
        .learning_rate = 1e-3,
        .rng = CLASSIFIER_RNG_DEFAULT,
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
static int read_axes(struct classifier_experiment *experiment, struct sl_error *error) {
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

static int split_batch(struct classifier_experiment *experiment, int batch, int *microbatches, bool single,
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
static int check_arrays(const struct classifier_experiment *experiment, struct sl_error *error) {
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

/* Parameters (also rounded ones), gradients and optimizer state of all coordinates, and what is kept between forward
 * and backward. */
static double bytes_needed(const struct classifier_experiment *experiment) {
    const struct sl_classifier *classifier = &experiment->classifier;
    const double inside = (double)classifier->hidden * classifier->expansion;
    const double parameters = (double)sl_classifier_parameters(classifier);
    const double replicas = experiment->data, states = experiment->zero ? 1 : experiment->data;
    const double kept = experiment->batch * (double)classifier->layers * (4.0 * classifier->hidden + 3.0 * inside);
    const double rounded = experiment->precision == SL_BF16 ? replicas / 2 : 0;
    return 4 * (parameters * (2 * replicas + 2 * states + rounded) + kept);
}

int classifier_experiment_check_memory(const struct classifier_experiment *experiment, struct sl_error *error) {
    const double bytes = bytes_needed(experiment);
    const double memory = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
    if (bytes <= memory) return SL_OK;
    return sl_error_set(error, SL_BAD_INPUT, "the model needs %.1f GB on data=%d, this machine has %.1f GB",
                        bytes / 1e9, experiment->data, memory / 1e9);
}

/* Makes the schedule that the user asked for by name. For whoever asks for no loops: one layer a stage, as far as the
 * schedule can have so many. */
static int name_schedule(struct classifier_experiment *experiment, const char *asked, int loops, int microbatches,
                         struct sl_error *error) {
    struct sl_schedule_choice choice;
    SL_TRY(sl_schedule_choose(&choice, asked, error));
    if (choice.alias && choice.alias->single && experiment->model != 1)
        return sl_error_set(error, SL_BAD_INPUT, "schedule %s has no pipeline: the model axis is %d, must be 1", asked,
                            experiment->model);
    if (choice.alias && loops > choice.kind->most_loops)
        return sl_error_set(error, SL_BAD_INPUT, "schedule %s: %d loops, must be %d", asked, loops,
                            choice.kind->most_loops);
    if (!loops) loops = sl_schedule_fit_loops(choice.kind, experiment->classifier.layers / experiment->model);
    return sl_schedule_generate(&experiment->schedule, choice.kind, experiment->model, loops, microbatches, error);
}

/* Flax's order is defined where the notebook's modules are: one layer a stage in the looping pipeline. */
static int choose_rng(struct classifier_experiment *experiment, const char *asked, int rng, struct sl_error *error) {
    const struct sl_schedule_alias *alias = sl_schedule_find_alias(asked);
    const bool looping = alias && alias->looping, flat = alias && !looping;
    const int layers = experiment->classifier.layers, stages = sl_schedule_stages(&experiment->schedule);
    const bool defined = (flat && layers % stages == 0) || (looping && layers == stages);
    if (rng == CLASSIFIER_RNG_FLAX && !flat && !looping)
        return sl_error_set(error, SL_BAD_INPUT, "--rng flax: schedule %s is none of single, plain, looping", asked);
    if (rng == CLASSIFIER_RNG_FLAX && flat && !defined)
        return sl_error_set(error, SL_BAD_INPUT, "--rng flax: %d layers do not divide over %d stages", layers, stages);
    if (rng == CLASSIFIER_RNG_FLAX && !defined)
        return sl_error_set(error, SL_BAD_INPUT,
                            "--rng flax: %d layers on %d stages, the notebook's looping pipeline has one layer a stage",
                            layers, stages);
    experiment->looping = looping;
    experiment->flax = rng == CLASSIFIER_RNG_DEFAULT ? defined : rng == CLASSIFIER_RNG_FLAX;
    return SL_OK;
}

/* The table, from a file or by name, lowered and proven. */
static int make_schedule(struct classifier_experiment *experiment, const struct classifier_options *options,
                         const char *name, const char *file, int microbatches, struct sl_error *error) {
    struct sl_schedule *schedule = &experiment->schedule;
    if (file)
        SL_TRY(sl_schedule_read_csv(schedule, file, error));
    else
        SL_TRY(name_schedule(experiment, name, options->loops, microbatches, error));
    const int stages = sl_schedule_stages(schedule);
    if (schedule->ranks != experiment->model)
        return sl_error_set(error, SL_BAD_INPUT, "%s has %d ranks, the model axis %d", file, schedule->ranks,
                            experiment->model);
    if (options->layers < stages)
        return sl_error_set(error, SL_BAD_INPUT,
                            "--layers %d: each of the %d stages (model=%d, loops %d) needs at least one",
                            options->layers, stages, schedule->ranks, schedule->loops);
    SL_TRY(sl_schedule_lower(schedule, error));
    return sl_schedule_slots(schedule, SL_PIPELINE_FEWEST_SLOTS, &experiment->slots, error);
}

static int choose_group(struct classifier_experiment *experiment, int asked, bool single, struct sl_error *error) {
    const int microbatches = experiment->schedule.microbatches;
    experiment->wgrad_group = asked && asked < microbatches ? asked : microbatches;
    if (single) experiment->wgrad_group = largest_divisor(microbatches, experiment->wgrad_group);
    if (microbatches % experiment->wgrad_group == 0) return SL_OK;
    return sl_error_set(error, SL_BAD_INPUT, "--wgrad-group %d: %d microbatches do not divide into groups of so many",
                        experiment->wgrad_group, microbatches);
}

static int fit(struct classifier_experiment *experiment, const struct classifier_options *options, const char *schedule,
               const char *file, struct sl_error *error) {
    const struct sl_schedule_alias *alias = sl_schedule_find_alias(schedule);
    const bool single = !file && alias && alias->single;
    int microbatches = options->microbatches;
    SL_TRY(read_axes(experiment, error));
    if (!file) SL_TRY(split_batch(experiment, options->batch, &microbatches, single, error));
    SL_TRY(make_schedule(experiment, options, schedule, file, microbatches, error));
    SL_TRY(choose_rng(experiment, file ? "of a file" : schedule, options->rng, error));
    if (file) SL_TRY(split_batch(experiment, options->batch, &experiment->schedule.microbatches, false, error));
    SL_TRY(choose_group(experiment, options->wgrad_group, single, error));
    return check_arrays(experiment, error);
}

int classifier_experiment_prepare(struct classifier_experiment *experiment, const struct sl_mesh *mesh,
                                  const struct classifier_options *options, const char *schedule, const char *file,
                                  int inputs, int classes, uint64_t seed, struct sl_error *error) {
    *experiment = (struct classifier_experiment){
        .mesh = *mesh,
        .classifier = {.inputs = inputs,
                       .hidden = options->hidden,
                       .expansion = options->expansion,
                       .classes = classes,
                       .layers = options->layers,
                       .dropout = options->dropout},
        .zero = options->zero == 1,
        .overlap = options->overlap,
        .precision = options->precision == SL_PRODUCTS_BF16 ? SL_BF16 : SL_F32,
        .gemm = sl_gemm_find(options->precision == SL_PRODUCTS_TF32 ? "cublas-tf32" : NULL, error),
        .learning_rate = options->learning_rate,
        .seed = seed,
    };
    if (!experiment->gemm) return error->status;
    const int status = fit(experiment, options, schedule, file, error);
    if (status) classifier_experiment_free(experiment);
    return status;
}

void classifier_experiment_free(struct classifier_experiment *experiment) { sl_schedule_free(&experiment->schedule); }

/* ---- one coordinate ---- */

static void assign_keys(struct sl_parameters *parameters, void *arg) {
    const struct classifier_worker *worker = arg;
    const struct classifier_experiment *experiment = worker->experiment;
    sl_classifier_flax_parameters(parameters, experiment->seed, experiment->looping, worker->keys.rank,
                                  worker->model.loops, worker->model.layers);
}

static const struct sl_key *step_keys(void *arg) {
    struct classifier_worker *worker = arg;
    sl_classifier_flax_step(&worker->keys, worker->layer_key);
    return worker->layer_key;
}

static int open_keys(struct classifier_worker *worker, struct sl_spmd *self) {
    const struct classifier_experiment *experiment = worker->experiment;
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

int classifier_worker_plan(struct classifier_worker *worker, struct sl_spmd *self,
                           const struct classifier_experiment *experiment) {
    const int rank = sl_axis_index(self, "model");
    *worker = (struct classifier_worker){
        .experiment = experiment,
        .rows = experiment->local_rows,
        .first_row = sl_axis_index(self, "data") * experiment->local_rows,
    };
    SL_TRY(sl_classifier_build(&experiment->classifier, &experiment->schedule, rank, &worker->model, &self->error));
    SL_TRY(open_keys(worker, self));
    const struct sl_trainer_options options = {
        .pipeline = {.axis = "model",
                     .schedule = &experiment->schedule,
                     .gemm = experiment->gemm,
                     .precision = experiment->precision,
                     .slots = experiment->slots,
                     .rows = experiment->rows,
                     .wgrad_group = experiment->wgrad_group},
        .data_axis = "data",
        .adamw = sl_adamw_defaults((float)experiment->learning_rate),
        .zero = experiment->zero,
        .overlap = experiment->overlap,
        .seed = experiment->seed,
        .assign_keys = experiment->flax ? assign_keys : NULL,
        .step_keys = experiment->flax ? step_keys : NULL,
        .arg = worker,
    };
    return sl_trainer_plan(&worker->trainer, self, &options, &worker->model);
}

int classifier_worker_open(struct classifier_worker *worker, struct sl_spmd *self, const struct sl_store *from) {
    const size_t rows = (size_t)worker->rows;
    const struct sl_schedule *schedule = &worker->experiment->schedule;
    const bool first = worker->keys.rank == sl_schedule_rank_of(schedule, 0);
    const bool last = worker->keys.rank == sl_schedule_rank_of(schedule, sl_schedule_stages(schedule) - 1);
    if (first) worker->inputs = malloc(rows * (size_t)worker->model.in * sizeof *worker->inputs);
    if (last) worker->labels = malloc(rows * sizeof *worker->labels);
    if ((first && !worker->inputs) || (last && !worker->labels))
        return sl_fail(self, SL_FAILED, "no memory for a batch of %zu rows", rows);
    return sl_trainer_open(worker->trainer, from);
}

struct sl_batch classifier_worker_fetch(struct classifier_worker *worker, const struct classifier_dataset *dataset,
                                        const struct classifier_examples *examples, const uint32_t *order,
                                        int64_t batch) {
    const uint32_t first = (uint32_t)(batch * worker->experiment->batch + worker->first_row);
    classifier_dataset_fetch(dataset, examples, order, first, (uint32_t)worker->rows, worker->inputs, worker->labels);
    return (struct sl_batch){.inputs = worker->inputs, .labels = worker->labels};
}

void classifier_worker_close(struct classifier_worker *worker) {
    sl_trainer_close(worker->trainer);
    sl_classifier_free(&worker->model);
    free(worker->layer_key);
    free(worker->inputs);
    free(worker->labels);
}
