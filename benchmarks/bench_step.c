/* bench_step.c - a training step of the looping pipeline's classifier, and the least time that this machine needs for
 * it. The two are measured in turns, so that a machine that slows down slows both. Prints one JSON object.
 *
 *     bench_step --job notebook_step --schedule looping --steps 40 --rounds 4 */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "benchmarks/floor.h"
#include "collectives/engines.h"
#include "layers/training/trainer.h"
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
     0.1}, /* what the article profiles; its batch is not told */
};
enum { JOBS = sizeof jobs / sizeof *jobs };

struct run {
    struct job job;
    bool looping;
    const char *precision_name;
    enum sl_dtype precision; /* of products' operands */
    const struct sl_gemm_backend *gemm;
    const char *engine;
    int steps, warmup, rounds;
    double floor_seconds;

    struct sl_cores cores;
    struct sl_mesh mesh;
    struct sl_schedule schedule;
    struct sl_classifier classifier;
    int data, rows; /* replicas; rows of a microbatch */
    float *inputs;  /* [batch, INPUTS] */
    int32_t *labels;

    /* Written by coordinate 0. */
    struct sl_floor floor;
    double *ms; /* [steps] */
    int measured;
    double peak_bytes, first_loss;
};

/* ---- one coordinate ---- */

struct worker {
    const struct run *run;
    struct sl_model model;
    struct sl_classifier_keys keys;
    struct sl_key *layer_key; /* this step's, in flax's order */
    struct sl_trainer *trainer;
    struct sl_group world;
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

static int open_worker(struct worker *worker, struct sl_spmd *self, const struct run *run) {
    const int rank = sl_axis_index(self, "model"), iterations = sl_schedule_iterations(&run->schedule);
    worker->run = run;
    SL_TRY(sl_classifier_build(&run->classifier, &run->schedule, rank, &worker->model, &self->error));
    worker->keys = (struct sl_classifier_keys){.looping = run->looping,
                                               .data = run->data,
                                               .model = run->schedule.ranks,
                                               .data_index = sl_axis_index(self, "data"),
                                               .rank = rank,
                                               .layers = worker->model.layers,
                                               .iterations = iterations};
    sl_classifier_flax_open(&worker->keys, SEED);
    worker->layer_key = calloc((size_t)iterations * (size_t)worker->model.layers, sizeof *worker->layer_key);
    if (!worker->layer_key) return sl_fail(self, SL_FAILED, "no memory for random keys");
    const struct sl_trainer_options options = {.pipeline = {.axis = "model",
                                                            .schedule = &run->schedule,
                                                            .gemm = run->gemm,
                                                            .precision = run->precision,
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
    SL_TRY(sl_group_axes(self, "*", &worker->world));
    return sl_trainer_open(worker->trainer, NULL);
}

/* Coordinate 0 writes the steps' times to MS (NULL: nobody does) and the last one's loss to *LOSS (likewise). */
static int take_steps(struct worker *worker, struct sl_spmd *self, int steps, double *ms, double *loss) {
    const struct run *run = worker->run;
    const int first = run->job.batch / run->data * sl_axis_index(self, "data");
    const struct sl_batch batch = {.inputs = run->inputs + (size_t)first * INPUTS, .labels = run->labels + first};
    for (int i = 0; i < steps; i++) {
        struct sl_metrics metrics;
        bool stop = false;
        const double began = sl_now();
        SL_TRY(sl_trainer_step(worker->trainer, &batch, &metrics, &stop));
        if (ms && self->coordinate == 0) ms[i] = 1e3 * (sl_now() - began);
        if (loss && self->coordinate == 0) *loss = metrics.loss / metrics.rows;
    }
    return SL_OK;
}

/* Those with memory of their own that the mesh computes on; cores are counted apart. */
static int devices_of(const struct run *run) {
    const int count = sl_device.shares_memory ? 0 : sl_device.count();
    return count < run->mesh.size ? count : run->mesh.size;
}

/* The others sleep in the barrier meanwhile. */
static int measure_floor(struct worker *worker, struct sl_spmd *self, struct run *run) {
    SL_TRY(sl_barrier(self, &worker->world));
    if (self->coordinate == 0) {
        if (run->measured == 0) {
            run->peak_bytes = sl_peak_bytes(); /* training's own: the floor takes memory, too */
            run->floor.cores = &run->cores;
            run->floor.devices = devices_of(run);
            run->floor.precision = run->precision;
            run->floor.backend = run->gemm;
            run->floor.seconds = run->floor_seconds;
            sl_floor_add_classifier(&run->floor, &run->classifier, run->job.batch, run->data, run->rows);
            SL_TRY(sl_floor_open(&run->floor, &self->error));
        }
        SL_TRY(sl_floor_measure(&run->floor, &self->error));
    }
    return sl_barrier(self, &worker->world);
}

static int measure(struct worker *worker, struct sl_spmd *self, struct run *run) {
    SL_TRY(take_steps(worker, self, 1, NULL, &run->first_loss));
    SL_TRY(take_steps(worker, self, run->warmup - 1, NULL, NULL));
    for (int round = 0; round < run->rounds; round++) {
        const int begin = run->steps * round / run->rounds, end = run->steps * (round + 1) / run->rounds;
        SL_TRY(measure_floor(worker, self, run));
        SL_TRY(take_steps(worker, self, end - begin, run->ms + begin, NULL));
        if (self->coordinate == 0) run->measured = end;
    }
    return SL_OK;
}

static int program(struct sl_spmd *self, void *arg) {
    struct worker worker = {0};
    int status = open_worker(&worker, self, arg);
    if (status == SL_OK) status = measure(&worker, self, arg);
    sl_trainer_close(worker.trainer);
    sl_model_free(&worker.model);
    free(worker.layer_key);
    return status;
}

/* ---- main ---- */

static int prepare(struct run *run, struct sl_error *error) {
    const struct job *job = &run->job;
    SL_TRY(sl_mesh_parse(&run->mesh, job->mesh, error));
    if (run->mesh.axes != 2 || sl_mesh_find_axis(&run->mesh, "data") < 0 || sl_mesh_find_axis(&run->mesh, "model") < 0)
        return sl_error_set(error, SL_BAD_INPUT, "mesh %s: the axes of this benchmark are data and model", job->mesh);
    const int stages = sl_mesh_axis_size(&run->mesh, "model"), layers = job->layers / stages;
    run->data = sl_mesh_axis_size(&run->mesh, "data");
    if (job->batch % (run->data * job->microbatches))
        return sl_error_set(error, SL_BAD_INPUT, "%d rows do not divide over data=%d and %d microbatches", job->batch,
                            run->data, job->microbatches);
    if (job->layers % stages)
        return sl_error_set(error, SL_BAD_INPUT, "%d layers do not divide over model=%d", job->layers, stages);
    run->rows = job->batch / run->data / job->microbatches;
    run->classifier = (struct sl_classifier){.inputs = INPUTS,
                                             .hidden = job->hidden,
                                             .expansion = job->expansion,
                                             .classes = CLASSES,
                                             .layers = job->layers,
                                             .dropout = job->dropout};
    SL_TRY(sl_schedule_make(&run->schedule, run->looping ? "looped-bfs" : "gpipe", stages, run->looping ? layers : 1,
                            job->microbatches, error));
    SL_TRY(sl_schedule_lower(&run->schedule, error));
    run->gemm = sl_gemm_find(!strcmp(run->precision_name, "tf32") ? "cublas-tf32" : NULL, error);
    if (!run->gemm) return error->status;
    const uint32_t rows = (uint32_t)job->batch;
    run->inputs = malloc((size_t)rows * INPUTS * sizeof *run->inputs);
    run->labels = malloc(rows * sizeof *run->labels);
    run->ms = calloc((size_t)run->steps, sizeof *run->ms);
    if (!run->inputs || !run->labels || !run->ms) return sl_error_set(error, SL_FAILED, "no memory for a batch");
    sl_random_normal(sl_split(sl_key_of_seed(SEED), 3, 1), rows * INPUTS, run->inputs);
    sl_random_randint(sl_split(sl_key_of_seed(SEED), 3, 2), rows, 0, CLASSES, run->labels);
    return SL_OK;
}

static int run_job(struct run *run, struct sl_error *error) {
    struct sl_engine engine;
    SL_TRY(prepare(run, error));
    SL_TRY(sl_engine_open(&engine, run->engine, error));
    engine.timeout = 3600; /* while the floor is measured, coordinate 0 gives no sign */
    engine.error = error;
    return sl_run(&run->mesh, &engine, program, run);
}

static void print(struct run *run) {
    const struct sl_floor *floor = &run->floor;
    const double products = sl_floor_products_ms(floor), optimizer = sl_floor_optimizer_ms(floor);
    const double median = sl_median(run->steps, run->ms), floor_ms = products + optimizer;
    printf("{\"benchmark\":\"%s\",\"schedule\":\"%s\",\"precision\":\"%s\",\"mesh\":\"%s\",", run->job.name,
           run->looping ? "looping" : "plain", run->precision_name, run->job.mesh);
    printf("\"threads\":%d,\"devices\":%d,\"device\":\"%s\",\"engine\":\"%s\",\"steps\":%d,", run->mesh.size,
           floor->devices, sl_device.name, run->engine, run->steps);
    printf("\"ms\":%.9g,\"ms_min\":%.9g,\"ms_max\":%.9g,\"floor_ms\":%.9g,\"ratio\":%.9g,", median, run->ms[0],
           run->ms[run->steps - 1], floor_ms, median / floor_ms);
    printf("\"products_ms\":%.9g,\"optimizer_ms\":%.9g,\"gflop\":%.9g,\"gflops_peak\":%.9g,\"bandwidth_gbs\":%.9g,",
           products, optimizer, 1e-9 * floor->flops, 1e-9 * floor->flops_per_second, 1e-9 * floor->bytes_per_second);
    printf("\"library_ms\":%.9g,", sl_floor_library_ms(floor));
    printf("\"parameters\":%.0f,\"peak_bytes\":%.0f,\"first_loss\":%.9g}\n", floor->parameters, run->peak_bytes,
           run->first_loss);
}

static const char usage[] =
    "usage: bench_step [--job notebook_step|wide_step|article_step] [--schedule looping|plain] [--steps N] [--warmup "
    "N]\n"
    "                  [--rounds N] [--floor-seconds S] [--mesh data=N,model=N] [--layers N] [--hidden N]\n"
    "                  [--expansion N] [--batch N] [--microbatches N] [--dropout RATE] [--precision f32|tf32|bf16]\n"
    "                  [--engine NAME]\n"
    "Times training steps, after --warmup steps, and in turns with them --rounds times the machine itself, each\n"
    "measurement at least --floor-seconds long. Prints one JSON object. --job comes first: it sets the model.\n";

static int set_job(struct run *run, const char *name) {
    for (int i = 0; i < JOBS; i++) {
        if (strcmp(jobs[i].name, name) != 0) continue;
        run->job = jobs[i];
        return SL_OK;
    }
    fprintf(stderr, "--job: \"%.80s\" is not notebook_step, wide_step or article_step\n", name);
    return SL_BAD_INPUT;
}

static int set_schedule(struct run *run, const char *name) {
    run->looping = !strcmp(name, "looping");
    if (run->looping || !strcmp(name, "plain")) return SL_OK;
    fprintf(stderr, "--schedule: \"%.80s\" is not looping or plain\n", name);
    return SL_BAD_INPUT;
}

static int set_precision(struct run *run, const char *name) {
    run->precision_name = name;
    run->precision = strcmp(name, "bf16") ? SL_F32 : SL_BF16;
    if (run->precision == SL_BF16 || !strcmp(name, "f32") || !strcmp(name, "tf32")) return SL_OK;
    fprintf(stderr, "--precision: \"%.80s\" is not f32, tf32 or bf16\n", name);
    return SL_BAD_INPUT;
}

static int read_options(struct run *run, int argc, char **argv, bool *answered) {
    enum { JOB, SCHEDULE, PRECISION, MESH, ENGINE, DROPOUT, FLOOR_SECONDS, HELP, NUMBERS };
    const struct {
        const char *name;
        int *value, max;
    } number[] = {
        {"steps", &run->steps, 1000000},     {"warmup", &run->warmup, 1000000},
        {"rounds", &run->rounds, 1000},      {"layers", &run->job.layers, 4096},
        {"hidden", &run->job.hidden, 65536}, {"expansion", &run->job.expansion, 64},
        {"batch", &run->job.batch, 1 << 20}, {"microbatches", &run->job.microbatches, 4096},
    };
    enum { COUNT = sizeof number / sizeof *number };
    struct option option[NUMBERS + COUNT + 1] = {
        {"job", required_argument, NULL, JOB},
        {"schedule", required_argument, NULL, SCHEDULE},
        {"mesh", required_argument, NULL, MESH},
        {"engine", required_argument, NULL, ENGINE},
        {"dropout", required_argument, NULL, DROPOUT},
        {"help", no_argument, NULL, HELP},
        {"floor-seconds", required_argument, NULL, FLOOR_SECONDS},
        {"precision", required_argument, NULL, PRECISION},
    };
    for (int i = 0; i < COUNT; i++)
        option[NUMBERS + i] = (struct option){number[i].name, required_argument, NULL, NUMBERS + i};
    for (int code; (code = getopt_long(argc, argv, "", option, NULL)) != -1;) {
        switch (code) {
        case JOB:
            SL_TRY(set_job(run, optarg));
            break;
        case SCHEDULE:
            SL_TRY(set_schedule(run, optarg));
            break;
        case PRECISION:
            SL_TRY(set_precision(run, optarg));
            break;
        case MESH:
            run->job.mesh = optarg;
            break;
        case ENGINE:
            run->engine = optarg;
            break;
        case DROPOUT:
            SL_TRY(sl_read_real("dropout", optarg, 0, 0.99, &run->job.dropout));
            break;
        case FLOOR_SECONDS:
            SL_TRY(sl_read_real("floor-seconds", optarg, 0, 60, &run->floor_seconds));
            break;
        case HELP:
            fputs(usage, stdout);
            *answered = true;
            return SL_OK;
        case '?':
            return SL_BAD_INPUT;
        default:
            SL_TRY(sl_read_integer(number[code - NUMBERS].name, optarg, 1, number[code - NUMBERS].max,
                                   number[code - NUMBERS].value));
        }
    }
    if (optind == argc) return SL_OK;
    fprintf(stderr, "bench_step: \"%.80s\" is no option\n", argv[optind]);
    return SL_BAD_INPUT;
}

int main(int argc, char **argv) {
    struct run run = {.job = jobs[0],
                      .precision_name = "f32",
                      .engine = "local",
                      .looping = true,
                      .steps = 40,
                      .warmup = 3,
                      .rounds = 4,
                      .floor_seconds = 0.01};
    struct sl_error error = {0};
    bool answered = false;
    sl_cores_find(&run.cores);
    int status = read_options(&run, argc, argv, &answered);
    if (status || answered) return status;
    if (run.rounds > run.steps) run.rounds = run.steps;
    status = run_job(&run, &error);
    if (status == SL_OK)
        print(&run);
    else
        fprintf(stderr, "bench_step: %s\n", error.message);
    sl_floor_close(&run.floor);
    sl_schedule_free(&run.schedule);
    free(run.inputs);
    free(run.labels);
    free(run.ms);
    return status;
}
