/* bench_step.c - a training step of the looping pipeline's classifier, and the least time that this machine needs for
 * it. The two are measured in turns, so a machine that slows down slows both. Prints one JSON object.
 *
 *     bench_step --job notebook_step --schedule looping --steps 40 --rounds 4 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "benchmarks/rig.h"
#include "spmd/device/device.h"

enum { INPUTS = 784, CLASSES = 10, SEED = 42 };

struct job {
    const char *name, *mesh;
    int layers, hidden, expansion, batch, microbatches;
    double dropout;
};

static const struct job jobs[] = {
    {"notebook_step", "data=2,model=4", 8, 512, 1, 128, 8, 0.1},
    {"wide_step", "data=1,model=2", 16, 1024, 4, 512, 8, 0.1},
    {"article_step", "data=1,model=2", 16, 2048, 4, 2048, 8,
     0.1}, /* the article's profiled job; the article does not state its batch */
};
enum { JOBS = sizeof jobs / sizeof *jobs };

struct run {
    struct job job;
    bool looping;
    struct sl_classifier classifier;
    int data, rows; /* replicas; rows of a microbatch */
    float *inputs;  /* [batch, INPUTS] */
    int32_t *labels;
};

/* ---- one coordinate ---- */

struct worker {
    struct sl_spmd *self;
    const struct run *run;
    struct sl_model model;
    struct sl_classifier_keys keys;
    struct sl_key *layer_key; /* this step's, in flax's order */
    struct sl_trainer *trainer;
};

static void assign_keys(struct sl_parameters *parameters, void *arg) {
    const struct worker *worker = arg;
    sl_classifier_flax_parameters(parameters, SEED, worker->run->looping, worker->keys.rank, worker->model.loops,
                                  worker->model.layers);
}

static const struct sl_key *step_keys(void *arg) {
    struct worker *worker = arg;
    sl_classifier_flax_step(&worker->keys, worker->layer_key);
    return worker->layer_key;
}

static int open_worker(struct worker *worker, const struct sl_rig *rig) {
    struct sl_spmd *self = worker->self;
    const struct run *run = worker->run;
    const struct sl_schedule *schedule = &rig->schedule;
    const int rank = sl_axis_index(self, "model"), iterations = sl_schedule_iterations(schedule);
    SL_TRY(sl_classifier_build(&run->classifier, schedule, rank, &worker->model, &self->error));
    worker->keys = (struct sl_classifier_keys){.looping = run->looping,
                                               .data = run->data,
                                               .model = schedule->ranks,
                                               .data_index = sl_axis_index(self, "data"),
                                               .rank = rank,
                                               .layers = worker->model.layers,
                                               .iterations = iterations};
    sl_classifier_flax_open(&worker->keys, SEED);
    worker->layer_key = calloc((size_t)iterations * (size_t)worker->model.layers, sizeof *worker->layer_key);
    if (!worker->layer_key) return sl_fail(self, SL_FAILED, "no memory for random keys");
    const struct sl_trainer_options options = {.pipeline = {.axis = "model",
                                                            .schedule = schedule,
                                                            .gemm = rig->gemm,
                                                            .precision = rig->precision,
                                                            .storage = rig->storage,
                                                            .rows = run->rows,
                                                            .wgrad_group = run->job.microbatches},
                                               .data_axis = "data",
                                               .optimizer = sl_adamw_defaults(1e-3f),
                                               .zero = true,
                                               .overlap = true,
                                               .seed = SEED,
                                               .assign_keys = assign_keys,
                                               .step_keys = step_keys,
                                               .arg = worker};
    SL_TRY(sl_trainer_plan(&worker->trainer, self, &options, &worker->model));
    return sl_trainer_open(worker->trainer, NULL);
}

static int take_step(void *arg, struct sl_rig_step *step) {
    struct worker *worker = arg;
    const struct run *run = worker->run;
    const int rows = run->job.batch / run->data, first = rows * sl_axis_index(worker->self, "data");
    const struct sl_batch batch = {
        .rows = rows, .inputs = run->inputs + (size_t)first * INPUTS, .labels = run->labels + first};
    return sl_rig_train(worker->trainer, &batch, step);
}

static void tell_floor(const struct sl_rig *rig, struct sl_floor *floor) {
    const struct run *run = rig->run;
    sl_floor_add_classifier(floor, &run->classifier, run->job.batch, run->data, run->rows);
}

static int program(struct sl_spmd *self, void *arg) {
    struct sl_rig *rig = arg;
    struct worker worker = {.self = self, .run = rig->run};
    int status = open_worker(&worker, rig);
    if (status == SL_OK)
        status = sl_rig_measure(rig, self, sl_trainer_world(worker.trainer), take_step, tell_floor, &worker);
    sl_trainer_close(worker.trainer);
    sl_model_free(&worker.model);
    free(worker.layer_key);
    return status;
}

/* ---- main ---- */

static int prepare(struct sl_rig *rig, struct sl_error *error) {
    struct run *run = rig->run;
    const struct job *job = &run->job;
    run->looping = !strcmp(rig->schedule_name, "looping");
    if (!run->looping && strcmp(rig->schedule_name, "plain") != 0)
        return sl_error_set(error, SL_BAD_INPUT, "--schedule: \"%.80s\" is not looping or plain", rig->schedule_name);
    if (rig->mesh.axes != 2 || sl_mesh_find_axis(&rig->mesh, "data") < 0 || sl_mesh_find_axis(&rig->mesh, "model") < 0)
        return sl_error_set(error, SL_BAD_INPUT, "mesh %s: the axes of this benchmark are data and model",
                            rig->mesh_text);
    const int stages = sl_mesh_axis_size(&rig->mesh, "model"), layers = job->layers / stages;
    run->data = sl_mesh_axis_size(&rig->mesh, "data");
    if (job->batch % (run->data * job->microbatches))
        return sl_error_set(error, SL_BAD_INPUT, "%d rows do not divide over data=%d and %d microbatches", job->batch,
                            run->data, job->microbatches);
    if (job->layers % stages)
        return sl_error_set(error, SL_BAD_INPUT, "%d layers do not divide over model=%d", job->layers, stages);
    run->rows = rig->rows = job->batch / run->data / job->microbatches;
    run->classifier = (struct sl_classifier){.inputs = INPUTS,
                                             .hidden = job->hidden,
                                             .expansion = job->expansion,
                                             .classes = CLASSES,
                                             .layers = job->layers,
                                             .dropout = job->dropout};
    SL_TRY(sl_schedule_make(&rig->schedule, run->looping ? "looped-bfs" : "gpipe", stages, run->looping ? layers : 1,
                            job->microbatches, error));
    const uint32_t rows = (uint32_t)job->batch;
    run->inputs = malloc((size_t)rows * INPUTS * sizeof *run->inputs);
    run->labels = malloc(rows * sizeof *run->labels);
    if (!run->inputs || !run->labels) return sl_error_set(error, SL_FAILED, "no memory for a batch");
    sl_random_normal(sl_split(sl_key_of_seed(SEED), 3, 1), rows * INPUTS, run->inputs);
    sl_random_randint(sl_split(sl_key_of_seed(SEED), 3, 2), rows, 0, CLASSES, run->labels);
    return SL_OK;
}

static double floor_ms(const struct sl_rig *rig, struct sl_floor_rates rates) {
    return sl_floor_step_ms(&rig->floor, rates);
}

static void print(struct sl_rig *rig) {
    const struct sl_floor *floor = &rig->floor;
    const struct run *run = rig->run;
    const double products = sl_floor_products_ms(floor), optimizer = sl_floor_optimizer_ms(floor);
    sl_rig_print_name(rig, run->job.name);
    printf("\"devices\":%d,\"device\":\"%s\",\"engine\":\"%s\",\"steps\":%d,", floor->devices, sl_device.name,
           rig->engine, rig->steps);
    const double theory = sl_floor_theory_ms(floor, floor->flops);
    sl_rig_print_ms(rig, sl_median(rig->steps, rig->ms), theory > 0 ? theory + optimizer : 0);
    printf("\"products_ms\":%.9g,\"optimizer_ms\":%.9g,\"gflop\":%.9g,", products, optimizer, 1e-9 * floor->flops);
    sl_floor_print(floor);
    printf("\"library_ms\":%.9g,", sl_floor_library_ms(floor));
    printf("\"parameters\":%.0f,\"peak_bytes\":%.0f,\"first_loss\":%.9g}\n", floor->parameters, rig->peak_bytes,
           rig->first_loss);
}

static const char usage[] =
    "usage: bench_step [--job notebook_step|wide_step|article_step] [--schedule looping|plain] [--steps N] [--warmup "
    "N]\n"
    "                  [--rounds N] [--floor-seconds S] [--mesh data=N,model=N] [--layers N] [--hidden N]\n"
    "                  [--expansion N] [--batch N] [--microbatches N] [--dropout RATE] [--precision f32|tf32|bf16]\n"
    "                  [--storage f32|bf16] [--engine NAME] [--fuse N]\n"
    "Times training steps, after --warmup steps, and in turns with them --rounds times the machine itself, each\n"
    "measurement at least --floor-seconds long. Prints one JSON object. --job comes first: it sets the model.\n";

static int set_job(struct sl_rig *rig, const char *name) {
    struct run *run = rig->run;
    for (int i = 0; i < JOBS; i++) {
        if (strcmp(jobs[i].name, name) != 0) continue;
        run->job = jobs[i];
        rig->mesh_text = jobs[i].mesh;
        return SL_OK;
    }
    fprintf(stderr, "--job: \"%.80s\" is not notebook_step, wide_step or article_step\n", name);
    return SL_BAD_INPUT;
}

int main(int argc, char **argv) {
    struct run run = {.job = jobs[0]};
    const struct sl_rig_option options[] = {
        {.name = "job", .set = set_job},
        {.name = "layers", .integer = &run.job.layers, .max = 4096},
        {.name = "hidden", .integer = &run.job.hidden, .max = 65536},
        {.name = "expansion", .integer = &run.job.expansion, .max = 64},
        {.name = "batch", .integer = &run.job.batch, .max = 1 << 20},
        {.name = "microbatches", .integer = &run.job.microbatches, .max = 4096},
        {.name = "dropout", .real = &run.job.dropout, .most = 0.99},
        {0},
    };
    struct sl_rig rig = {.name = "bench_step",
                         .usage = usage,
                         .options = options,
                         .run = &run,
                         .prepare = prepare,
                         .program = program,
                         .floor_ms = floor_ms,
                         .print = print,
                         .mesh_text = jobs[0].mesh,
                         .schedule_name = "looping",
                         .precision_name = "f32",
                         .engine = "local",
                         .steps = 40,
                         .warmup = 3,
                         .rounds = 4,
                         .floor_seconds = 0.01};
    const int status = sl_rig_main(&rig, argc, argv);
    free(run.inputs);
    free(run.labels);
    return status;
}
