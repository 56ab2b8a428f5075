/* bench_transformer.c - a training step of the transformer, or its generation, and the least time that this machine
 * needs for it. The two are measured in turns. Prints one JSON object.
 *
 *     bench_transformer --job step --mesh data=2 --steps 20 --rounds 4
 *     bench_transformer --job generate --mesh data=1 --sequences 1 */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "benchmarks/floor.h"
#include "collectives/engines.h"
#include "layers/models/generate.h"
#include "layers/training/trainer.h"
#include "spmd/schedule/registry.h"

enum { SEED = 42 };

struct run {
    bool generates, fsdp;
    const char *mesh_text, *schedule_name, *precision_name, *engine;
    struct sl_transformer model;
    int sequence, batch, microbatches; /* batch: sequences of a step, or generated at once */
    int prompt, tokens;                /* generation: given; made */
    int steps, warmup, rounds;         /* steps, or generations */
    double floor_seconds;

    enum sl_dtype precision;
    const struct sl_gemm_backend *gemm;
    struct sl_cores cores;
    struct sl_mesh mesh;
    struct sl_schedule schedule;
    int data, local, rows;    /* replicas; sequences of one; tokens of a microbatch */
    int32_t *inputs, *labels; /* [batch, sequence] */

    /* Written by coordinate 0. */
    struct sl_floor floor;
    double *ms, *prefill_ms; /* [steps] of a step, or of a decoded token */
    int measured;
    double peak_bytes, first_loss;
};

/* ---- one coordinate ---- */

struct worker {
    struct run *run;
    struct sl_spmd *self;
    struct sl_model model;
    struct sl_trainer *trainer;
    struct sl_generator *generator;
    int32_t *generated; /* [local, prompt + tokens] */
};

static int open_trainer(struct worker *worker) {
    struct sl_spmd *self = worker->self;
    const struct run *run = worker->run;
    const int sequence = run->generates ? 1 : run->sequence;
    const struct sl_trainer_options options = {.pipeline = {.rules = sl_transformer_rules(&run->model),
                                                            .axis = sl_pipe_axis,
                                                            .group_axes = sl_transformer_axes,
                                                            .schedule = &run->schedule,
                                                            .gemm = run->gemm,
                                                            .precision = run->precision,
                                                            .rows = run->rows,
                                                            .sequence = sequence,
                                                            .forward_only = run->generates,
                                                            .wgrad_group = run->microbatches},
                                               .data_axis = sl_data_axis,
                                               .optimizer = sl_adamw_defaults(1e-3f),
                                               .zero = true,
                                               .overlap = true,
                                               .seed = SEED};
    SL_TRY(sl_transformer_build(&run->model, self->mesh, &run->schedule, sl_axis_index(self, sl_pipe_axis), sequence,
                                &worker->model, &self->error));
    SL_TRY(sl_trainer_plan(&worker->trainer, self, &options, &worker->model));
    return sl_trainer_open(worker->trainer, NULL);
}

static int open_generator(struct worker *worker) {
    const struct run *run = worker->run;
    const struct sl_generation generation = {.transformer = &run->model,
                                             .schedule = &run->schedule,
                                             .gemm = run->gemm,
                                             .precision = run->precision,
                                             .sequences = run->local,
                                             .prompt = run->prompt,
                                             .length = run->prompt + run->tokens,
                                             .sampling = {.top_p = 1},
                                             .seed = SEED};
    const size_t tokens = (size_t)run->local * (size_t)(run->prompt + run->tokens);
    worker->generated = calloc(tokens, sizeof *worker->generated);
    if (!worker->generated) return sl_fail(worker->self, SL_FAILED, "no memory for %zu tokens", tokens);
    sl_random_randint(sl_key_of_seed(SEED), (uint32_t)tokens, 0, run->model.vocabulary, worker->generated);
    return sl_generator_open(&worker->generator, worker->self, &generation, sl_trainer_parameters(worker->trainer));
}

/* Coordinate 0 writes the times to the run's from FIRST on; nobody does where FIRST is negative. */
static int take_steps(struct worker *worker, int first, int steps) {
    struct run *run = worker->run;
    const size_t own = (size_t)run->local * (size_t)run->sequence * (size_t)sl_axis_index(worker->self, sl_data_axis);
    const struct sl_batch batch = {.tokens = run->inputs + own, .labels = run->labels + own};
    const bool writes = worker->self->coordinate == 0;
    for (int i = 0; i < steps; i++) {
        struct sl_generated generated = {.tokens = worker->generated};
        struct sl_metrics metrics = {0};
        bool stop = false;
        const double began = sl_now();
        if (run->generates)
            SL_TRY(sl_generator_run(worker->generator, &generated));
        else
            SL_TRY(sl_trainer_step(worker->trainer, &batch, &metrics, &stop));
        if (writes && run->first_loss == 0 && !run->generates) run->first_loss = metrics.loss / metrics.rows;
        if (!writes || first < 0) continue;
        run->ms[first + i] = run->generates ? generated.decode_ms / (run->tokens - 1) : 1e3 * (sl_now() - began);
        run->prefill_ms[first + i] = generated.prefill_ms;
    }
    return SL_OK;
}

/* ---- the floor ---- */

/* Forward and backward of a step's products. Weight gradients are products over a replica's rows. */
static void add_layers(struct sl_floor *floor, const struct run *run, int layers, bool rotates, int batch, int local,
                       int rows) {
    const struct sl_transformer *m = &run->model;
    const int c = m->dimension, l = m->latent;
    sl_floor_add_dense(floor, layers, c, 2 * l, batch, local, rows, true);
    sl_floor_add_dense(floor, layers, l, 2 * c, batch, local, rows, true);
    sl_floor_add_dense(floor, layers, l, c, batch, local, rows, true);
    sl_floor_add_dense(floor, layers, c, c, batch, local, rows, true);
    sl_floor_add_dense(floor, layers, c, 4 * c, batch, local, rows, true);
    sl_floor_add_dense(floor, layers, 4 * c, c, batch, local, rows, true);
    if (!rotates || !m->rope) return;
    sl_floor_add_dense(floor, layers, 2 * l, m->rope, batch, local, rows, true);
    sl_floor_add_dense(floor, layers, 2 * l, m->rope * m->heads, batch, local, rows, true);
}

static void tell_job(struct sl_floor *floor, const struct run *run) {
    const struct sl_transformer *m = &run->model;
    const int batch = run->batch * run->sequence, local = run->local * run->sequence;
    add_layers(floor, run, m->blocks * (m->layers_per_block - 1), true, batch, local, run->rows);
    add_layers(floor, run, m->blocks, false, batch, local, run->rows);
    sl_floor_add_dense(floor, 1, m->dimension, m->vocabulary, batch, local, run->rows, true);
    floor->flops = batch * sl_transformer_flops(m, run->sequence); /* attention's included */
    floor->parameters = (double)sl_transformer_parameters(m);
}

/* The others sleep in the barrier meanwhile. */
static int measure_floor(struct worker *worker) {
    struct sl_spmd *self = worker->self;
    struct run *run = worker->run;
    SL_TRY(sl_barrier(self, sl_trainer_world(worker->trainer)));
    if (self->coordinate == 0) {
        if (run->measured == 0) {
            run->peak_bytes = sl_peak_bytes(); /* the job's own: the floor takes memory, too */
            run->floor.cores = &run->cores;
            run->floor.precision = run->precision;
            run->floor.backend = run->gemm;
            run->floor.seconds = run->floor_seconds;
            tell_job(&run->floor, run);
            SL_TRY(sl_floor_open(&run->floor, &self->error));
        }
        SL_TRY(sl_floor_measure(&run->floor, &self->error));
    }
    return sl_barrier(self, sl_trainer_world(worker->trainer));
}

static int measure(struct worker *worker) {
    struct run *run = worker->run;
    SL_TRY(take_steps(worker, -1, run->warmup));
    for (int round = 0; round < run->rounds; round++) {
        const int begin = run->steps * round / run->rounds, end = run->steps * (round + 1) / run->rounds;
        SL_TRY(measure_floor(worker));
        SL_TRY(take_steps(worker, begin, end - begin));
        if (worker->self->coordinate == 0) run->measured = end;
    }
    return SL_OK;
}

static int program(struct sl_spmd *self, void *arg) {
    struct worker worker = {.run = arg, .self = self};
    int status = open_trainer(&worker);
    if (status == SL_OK && worker.run->generates) status = open_generator(&worker);
    if (status == SL_OK) status = measure(&worker);
    sl_generator_close(worker.generator);
    sl_trainer_close(worker.trainer);
    sl_model_free(&worker.model);
    free(worker.generated);
    return status;
}

/* ---- main ---- */

static int prepare(struct run *run, struct sl_error *error) {
    SL_TRY(sl_mesh_parse(&run->mesh, run->mesh_text, error));
    run->data = sl_mesh_axis_size(&run->mesh, sl_data_axis);
    const int pipe = sl_mesh_axis_size(&run->mesh, sl_pipe_axis);
    const int tensor = sl_mesh_axis_size(&run->mesh, sl_tensor_axis);
    if (run->data * pipe * tensor != run->mesh.size)
        return sl_error_set(error, SL_BAD_INPUT, "mesh %s: the axes are data, pipe and tensor", run->mesh_text);
    if (run->generates) run->microbatches = 1;
    run->model.fsdp = run->fsdp && !run->generates; /* it would gather all kernels for every token */
    if (run->batch % (run->data * run->microbatches))
        return sl_error_set(error, SL_BAD_INPUT, "%d sequences do not divide over data=%d and %d microbatches",
                            run->batch, run->data, run->microbatches);
    run->model.positions = run->generates ? run->prompt + run->tokens : run->sequence;
    run->local = run->batch / run->data;
    run->rows = run->generates ? run->local : run->local / run->microbatches * run->sequence;
    SL_TRY(sl_transformer_check(&run->model, &run->mesh, error));
    const struct sl_schedule_kind *kind = sl_schedule_find(run->schedule_name, error);
    if (!kind) return SL_BAD_INPUT;
    SL_TRY(sl_schedule_generate(&run->schedule, kind, pipe, kind->default_loops, run->microbatches, error));
    SL_TRY(sl_schedule_lower(&run->schedule, error));
    run->gemm = sl_gemm_find(NULL, error);
    if (!run->gemm) return error->status;
    const uint32_t tokens = (uint32_t)run->batch * (uint32_t)run->sequence;
    run->inputs = malloc(tokens * sizeof *run->inputs);
    run->labels = malloc(tokens * sizeof *run->labels);
    run->ms = calloc((size_t)run->steps, sizeof *run->ms);
    run->prefill_ms = calloc((size_t)run->steps, sizeof *run->prefill_ms);
    if (!run->inputs || !run->labels || !run->ms || !run->prefill_ms)
        return sl_error_set(error, SL_FAILED, "no memory for %u tokens", tokens);
    sl_random_randint(sl_split(sl_key_of_seed(SEED), 3, 1), tokens, 0, run->model.vocabulary, run->inputs);
    sl_random_randint(sl_split(sl_key_of_seed(SEED), 3, 2), tokens, 0, run->model.vocabulary, run->labels);
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

/* A decoded token reads each parameter once for all sequences, and multiplies it with each one's row. */
static double decode_floor_ms(const struct run *run) {
    const double bytes = run->floor.parameters * (double)sl_dtype_size(run->precision);
    const double flops = 2 * run->floor.parameters * run->batch;
    const double read = bytes / run->floor.bytes_per_second, multiply = flops / run->floor.flops_per_second;
    return 1e3 * (read > multiply ? read : multiply);
}

static void print(struct run *run) {
    const struct sl_floor *floor = &run->floor;
    const double products = sl_floor_products_ms(floor), optimizer = sl_floor_optimizer_ms(floor);
    const double median = sl_median(run->steps, run->ms), prefill = sl_median(run->steps, run->prefill_ms);
    const double floor_ms = run->generates ? decode_floor_ms(run) : products + optimizer;
    printf("{\"benchmark\":\"%s\",\"schedule\":\"%s\",\"precision\":\"%s\",\"mesh\":\"%s\",",
           run->generates ? "generate" : "transformer_step", run->schedule_name, run->precision_name, run->mesh_text);
    printf("\"threads\":%d,\"engine\":\"%s\",\"steps\":%d,\"batch\":%d,", run->mesh.size, run->engine, run->steps,
           run->batch);
    printf("\"ms\":%.9g,\"ms_min\":%.9g,\"ms_max\":%.9g,\"floor_ms\":%.9g,\"ratio\":%.9g,", median, run->ms[0],
           run->ms[run->steps - 1], floor_ms, median / floor_ms);
    if (run->generates) {
        printf("\"prefill_ms\":%.9g,\"tokens_per_second\":%.9g,", prefill, 1e3 * run->batch / median);
        printf("\"prefill_tokens_per_second\":%.9g,", 1e3 * run->batch * run->prompt / prefill);
    } else {
        printf("\"products_ms\":%.9g,\"optimizer_ms\":%.9g,\"gflop\":%.9g,", products, optimizer, 1e-9 * floor->flops);
        printf("\"library_ms\":%.9g,", sl_floor_library_ms(floor));
        printf("\"tokens_per_second\":%.9g,\"first_loss\":%.9g,", 1e3 * run->batch * run->sequence / median,
               run->first_loss);
    }
    printf("\"gflops_peak\":%.9g,\"bandwidth_gbs\":%.9g,\"parameters\":%.0f,\"peak_bytes\":%.0f}\n",
           1e-9 * floor->flops_per_second, 1e-9 * floor->bytes_per_second, floor->parameters, run->peak_bytes);
}

static const char usage[] =
    "usage: bench_transformer [--job step|generate] [--mesh data=N,pipe=N,tensor=N] [--schedule NAME] [--batch N]\n"
    "                         [--microbatches N] [--sequence N] [--model-dimension N] [--n-heads N] [--blocks N]\n"
    "                         [--layers-per-block N] [--latent-dim N] [--rope-dim N] [--vocab-size N] [--prompt N]\n"
    "                         [--tokens N] [--steps N] [--warmup N] [--rounds N] [--floor-seconds S]\n"
    "                         [--precision f32|bf16] [--engine NAME] [--fsdp]\n"
    "Times training steps, or generations of --tokens after --prompt, after --warmup of them, and in turns with them\n"
    "--rounds times the machine itself. Prints one JSON object.\n";

static int set_job(struct run *run, const char *name) {
    run->generates = !strcmp(name, "generate");
    if (run->generates || !strcmp(name, "step")) return SL_OK;
    fprintf(stderr, "--job: \"%.80s\" is not step or generate\n", name);
    return SL_BAD_INPUT;
}

static int set_precision(struct run *run, const char *name) {
    run->precision_name = name;
    run->precision = strcmp(name, "bf16") ? SL_F32 : SL_BF16;
    if (run->precision == SL_BF16 || !strcmp(name, "f32")) return SL_OK;
    fprintf(stderr, "--precision: \"%.80s\" is not f32 or bf16\n", name);
    return SL_BAD_INPUT;
}

static int read_options(struct run *run, int argc, char **argv, bool *answered) {
    enum { JOB, MESH, SCHEDULE, PRECISION, ENGINE, FLOOR_SECONDS, FSDP, HELP, NUMBERS };
    struct sl_transformer *m = &run->model;
    const struct {
        const char *name;
        int *value, max;
    } number[] = {
        {"batch", &run->batch, 1 << 16},
        {"microbatches", &run->microbatches, 4096},
        {"sequence", &run->sequence, 65536},
        {"model-dimension", &m->dimension, 65536},
        {"n-heads", &m->heads, 1024},
        {"blocks", &m->blocks, 4096},
        {"layers-per-block", &m->layers_per_block, 4096},
        {"latent-dim", &m->latent, 65536},
        {"rope-dim", &m->rope, 65536},
        {"vocab-size", &m->vocabulary, 1 << 20},
        {"prompt", &run->prompt, 65536},
        {"tokens", &run->tokens, 65536},
        {"steps", &run->steps, 1000000},
        {"warmup", &run->warmup, 1000000},
        {"rounds", &run->rounds, 1000},
    };
    enum { COUNT = sizeof number / sizeof *number };
    struct option option[NUMBERS + COUNT + 1] = {
        {"job", required_argument, NULL, JOB},
        {"mesh", required_argument, NULL, MESH},
        {"schedule", required_argument, NULL, SCHEDULE},
        {"precision", required_argument, NULL, PRECISION},
        {"engine", required_argument, NULL, ENGINE},
        {"floor-seconds", required_argument, NULL, FLOOR_SECONDS},
        {"fsdp", no_argument, NULL, FSDP},
        {"help", no_argument, NULL, HELP},
    };
    for (int i = 0; i < COUNT; i++)
        option[NUMBERS + i] = (struct option){number[i].name, required_argument, NULL, NUMBERS + i};
    for (int code; (code = getopt_long(argc, argv, "", option, NULL)) != -1;) {
        switch (code) {
        case JOB:
            SL_TRY(set_job(run, optarg));
            break;
        case MESH:
            run->mesh_text = optarg;
            break;
        case SCHEDULE:
            run->schedule_name = optarg;
            break;
        case PRECISION:
            SL_TRY(set_precision(run, optarg));
            break;
        case ENGINE:
            run->engine = optarg;
            break;
        case FLOOR_SECONDS:
            SL_TRY(sl_read_real("floor-seconds", optarg, 0, 60, &run->floor_seconds));
            break;
        case FSDP:
            run->fsdp = true;
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
    if (run->generates && run->tokens < 2) return sl_read_integer("tokens", "1", 2, 65536, &run->tokens);
    if (optind == argc) return SL_OK;
    fprintf(stderr, "bench_transformer: \"%.80s\" is no option\n", argv[optind]);
    return SL_BAD_INPUT;
}

int main(int argc, char **argv) {
    struct run run = {.mesh_text = "data=2",
                      .schedule_name = "1f1b",
                      .precision_name = "f32",
                      .engine = "local",
                      .model = {.vocabulary = 256,
                                .dimension = 256,
                                .heads = 8,
                                .blocks = 2,
                                .layers_per_block = 3,
                                .latent = 64,
                                .rope = 16},
                      .sequence = 256,
                      .batch = 8,
                      .microbatches = 4,
                      .prompt = 64,
                      .tokens = 128,
                      .steps = 20,
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
        fprintf(stderr, "bench_transformer: %s\n", error.message);
    sl_floor_close(&run.floor);
    sl_schedule_free(&run.schedule);
    free(run.inputs);
    free(run.labels);
    free(run.ms);
    free(run.prefill_ms);
    return status;
}
