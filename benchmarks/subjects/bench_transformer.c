/* bench_transformer.c - a training step of the transformer, or its generation, and the least time that this machine
 * needs for it. The two are measured in turns. Prints one JSON object.
 *
 *     bench_transformer --job step --mesh data=2 --steps 20 --rounds 4
 *     bench_transformer --job generate --mesh data=1 --sequences 1 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "benchmarks/rig.h"
#include "layers/models/generate.h"
#include "spmd/schedule/registry.h"

enum { SEED = 42 };

struct run {
    const char *job;
    bool generates, fsdp;
    struct sl_transformer model;
    int sequence, batch, microbatches; /* batch: sequences of a step, or generated at once */
    int prompt, tokens;                /* generation: given; made */
    int threads;                       /* of a coordinate, to generate; 0: as many as it has cores */

    int data, local, rows;    /* replicas; sequences of one; tokens of a microbatch */
    int group;                /* microbatches of a weight gradient's product */
    int32_t *inputs, *labels; /* [batch, sequence] */
};

/* ---- one coordinate ---- */

struct worker {
    const struct sl_rig *rig;
    const struct run *run;
    struct sl_spmd *self;
    struct sl_model model;
    struct sl_trainer *trainer;
    struct sl_generator *generator;
    int32_t *generated; /* [local, prompt + tokens] */
};

static int open_trainer(struct worker *worker) {
    struct sl_spmd *self = worker->self;
    const struct sl_rig *rig = worker->rig;
    const struct run *run = worker->run;
    const int sequence = run->generates ? 1 : run->sequence;
    const struct sl_trainer_options options = {.pipeline = {.rules = sl_transformer_rules(&run->model, self->mesh),
                                                            .axis = sl_pipe_axis,
                                                            .group_axes = sl_transformer_axes(self->mesh),
                                                            .schedule = &rig->schedule,
                                                            .gemm = rig->gemm,
                                                            .precision = rig->precision,
                                                            .storage = rig->storage,
                                                            .rows = run->rows,
                                                            .sequence = sequence,
                                                            .forward_only = run->generates,
                                                            .wgrad_group = run->group},
                                               .data_axis = sl_data_axis,
                                               .optimizer = sl_adamw_defaults(1e-3f),
                                               .zero = true,
                                               .overlap = true,
                                               .seed = SEED};
    SL_TRY(sl_transformer_build(&run->model, self->mesh, &rig->schedule, sl_axis_index(self, sl_pipe_axis),
                                &worker->model, &self->error));
    SL_TRY(sl_trainer_plan(&worker->trainer, self, &options, &worker->model));
    return sl_trainer_open(worker->trainer, NULL);
}

static int open_generator(struct worker *worker) {
    const struct sl_rig *rig = worker->rig;
    const struct run *run = worker->run;
    const struct sl_generation generation = {.transformer = &run->model,
                                             .schedule = &rig->schedule,
                                             .gemm = rig->gemm,
                                             .precision = rig->precision,
                                             .storage = rig->storage,
                                             .sequences = run->local,
                                             .prompt = run->prompt,
                                             .length = run->prompt + run->tokens,
                                             .threads = run->threads,
                                             .sampling = {.top_p = 1},
                                             .seed = SEED};
    const size_t tokens = (size_t)run->local * (size_t)(run->prompt + run->tokens);
    worker->generated = calloc(tokens, sizeof *worker->generated);
    if (!worker->generated) return sl_fail(worker->self, SL_FAILED, "no memory for %zu tokens", tokens);
    sl_random_randint(sl_key_of_seed(SEED), (uint32_t)tokens, 0, run->model.vocabulary, worker->generated);
    return sl_generator_open(&worker->generator, worker->self, &generation, sl_trainer_parameters(worker->trainer));
}

static int take_step(void *arg, struct sl_rig_step *step) {
    struct worker *worker = arg;
    const struct run *run = worker->run;
    const int rows = run->local * run->sequence;
    const size_t own = (size_t)rows * (size_t)sl_axis_index(worker->self, sl_data_axis);
    const struct sl_batch batch = {.rows = rows, .tokens = run->inputs + own, .labels = run->labels + own};
    return sl_rig_train(worker->trainer, &batch, step);
}

/* Generates. The step's time is a decoded token's. */
static int generate(void *arg, struct sl_rig_step *step) {
    struct worker *worker = arg;
    struct sl_generated generated = {.tokens = worker->generated};
    SL_TRY(sl_generator_run(worker->generator, &generated));
    step->ms = generated.decode_ms / (worker->run->tokens - 1);
    step->prefill_ms = generated.prefill_ms;
    return SL_OK;
}

/* ---- the floor ---- */

/* Forward and backward of a dense layer's products in a step. */
static void add_dense(struct sl_floor *floor, const struct run *run, int layers, int in, int out) {
    const int batch = run->batch * run->sequence, local = run->local * run->sequence;
    sl_floor_add_dense(floor, layers, in, out, batch, local, run->rows, run->group * run->rows, true);
}

static void add_layers(struct sl_floor *floor, const struct run *run, int layers, bool rotates) {
    const struct sl_transformer *m = &run->model;
    const int c = m->dimension, l = m->latent;
    add_dense(floor, run, layers, c, 2 * l);
    add_dense(floor, run, layers, l, 2 * c);
    add_dense(floor, run, layers, l, c);
    add_dense(floor, run, layers, c, c);
    add_dense(floor, run, layers, c, 4 * c);
    add_dense(floor, run, layers, 4 * c, c);
    if (!rotates || !m->rope) return;
    add_dense(floor, run, layers, 2 * l, m->rope);
    add_dense(floor, run, layers, 2 * l, m->rope * m->heads);
}

static enum sl_dtype type_of_weights(const struct sl_rig *rig) {
    return rig->storage == SL_BF16 ? SL_BF16 : rig->precision;
}

static void tell_floor(const struct sl_rig *rig, struct sl_floor *floor) {
    const struct run *run = rig->run;
    const struct sl_transformer *m = &run->model;
    add_layers(floor, run, m->blocks * (m->layers_per_block - 1), true);
    add_layers(floor, run, m->blocks, false);
    add_dense(floor, run, 1, m->dimension, m->vocabulary);
    floor->flops =
        (double)run->batch * run->sequence * sl_transformer_flops(m, run->sequence); /* attention's included */
    floor->parameters = (double)sl_transformer_parameters(m);
    if (run->generates) floor->read_bytes = floor->parameters * (double)sl_dtype_size(type_of_weights(rig));
}

static int program(struct sl_spmd *self, void *arg) {
    struct sl_rig *rig = arg;
    struct worker worker = {.rig = rig, .run = rig->run, .self = self};
    const bool generates = worker.run->generates;
    int status = open_trainer(&worker);
    if (status == SL_OK && generates) status = open_generator(&worker);
    if (status == SL_OK)
        status = sl_rig_measure(rig, self, sl_trainer_world(worker.trainer), generates ? generate : take_step,
                                tell_floor, &worker);
    sl_generator_close(worker.generator);
    sl_trainer_close(worker.trainer);
    sl_model_free(&worker.model);
    free(worker.generated);
    return status;
}

/* ---- main ---- */

static int prepare(struct sl_rig *rig, struct sl_error *error) {
    struct run *run = rig->run;
    run->generates = !strcmp(run->job, "generate");
    if (!run->generates && strcmp(run->job, "step") != 0)
        return sl_error_set(error, SL_BAD_INPUT, "--job: \"%.80s\" is not step or generate", run->job);
    if (run->generates && run->tokens < 2)
        return sl_error_set(error, SL_BAD_INPUT, "--tokens: \"%d\" is not a whole number from 2 to 65536", run->tokens);
    run->data = sl_mesh_axis_size(&rig->mesh, sl_data_axis);
    const int pipe = sl_mesh_axis_size(&rig->mesh, sl_pipe_axis);
    const int tensor = sl_mesh_axis_size(&rig->mesh, sl_tensor_axis);
    if (run->data * pipe * tensor != rig->mesh.size)
        return sl_error_set(error, SL_BAD_INPUT, "mesh %s: the axes are data, pipe and tensor", rig->mesh_text);
    if (run->generates) run->microbatches = 1;
    run->model.fsdp = run->fsdp && !run->generates; /* it would gather all kernels for every token */
    if (run->batch % (run->data * run->microbatches))
        return sl_error_set(error, SL_BAD_INPUT, "%d sequences do not divide over data=%d and %d microbatches",
                            run->batch, run->data, run->microbatches);
    if (!run->threads) run->threads = rig->cores.count / rig->mesh.size;
    run->model.positions = run->generates ? run->prompt + run->tokens : run->sequence;
    run->local = run->batch / run->data;
    run->rows = rig->rows = run->generates ? run->local : run->local / run->microbatches * run->sequence;
    run->group = run->group ? run->group : sl_pipeline_wgrad_group(run->microbatches, run->rows);
    SL_TRY(sl_transformer_check(&run->model, &rig->mesh, error));
    const struct sl_schedule_kind *kind = sl_schedule_find(rig->schedule_name, error);
    if (!kind) return SL_BAD_INPUT;
    SL_TRY(sl_schedule_generate(&rig->schedule, kind, pipe, kind->default_loops, run->microbatches, error));
    rig->schedule.sharded = run->model.fsdp && run->data > 1;
    const uint32_t tokens = (uint32_t)run->batch * (uint32_t)run->sequence;
    run->inputs = malloc(tokens * sizeof *run->inputs);
    run->labels = malloc(tokens * sizeof *run->labels);
    if (!run->inputs || !run->labels) return sl_error_set(error, SL_FAILED, "no memory for %u tokens", tokens);
    sl_random_randint(sl_split(sl_key_of_seed(SEED), 3, 1), tokens, 0, run->model.vocabulary, run->inputs);
    sl_random_randint(sl_split(sl_key_of_seed(SEED), 3, 2), tokens, 0, run->model.vocabulary, run->labels);
    return SL_OK;
}

/* Returns the floor of a decoded token: it reads each parameter once for all sequences, from any cache that holds it,
 * and multiplies it by each sequence's row. */
static double decode_floor_ms(const struct sl_rig *rig, struct sl_floor_rates rates) {
    const struct run *run = rig->run;
    const double flops = 2 * rig->floor.parameters * run->batch;
    const double read = rig->floor.read_bytes / rates.read, multiply = flops / rates.flops;
    return 1e3 * (read > multiply ? read : multiply);
}

static double floor_ms(const struct sl_rig *rig, struct sl_floor_rates rates) {
    const struct run *run = rig->run;
    return run->generates ? decode_floor_ms(rig, rates) : sl_floor_step_ms(&rig->floor, rates);
}

/* Returns the same at the rates of multiply-adds and of reading without other work, which a cache may help; or of the
 * step. */
static double theory_ms(const struct sl_rig *rig) {
    const struct sl_floor *floor = &rig->floor;
    const struct run *run = rig->run;
    const bool generates = run->generates;
    const double multiply = sl_floor_theory_ms(floor, generates ? 2 * floor->parameters * run->batch : floor->flops);
    const double read = floor->best.read > 0 ? 1e3 * floor->read_bytes / floor->best.read : 0;
    if (!generates) return multiply > 0 ? multiply + sl_floor_optimizer_ms(floor) : 0;
    return read > multiply ? read : multiply;
}

static void print(struct sl_rig *rig) {
    const struct run *run = rig->run;
    const struct sl_floor *floor = &rig->floor;
    const double products = sl_floor_products_ms(floor), optimizer = sl_floor_optimizer_ms(floor);
    const double median = sl_median(rig->steps, rig->ms), prefill = sl_median(rig->steps, rig->prefill_ms);
    sl_rig_print_name(rig, run->generates ? "generate" : "transformer_step");
    printf("\"engine\":\"%s\",\"steps\":%d,\"batch\":%d,", rig->engine, rig->steps, run->batch);
    sl_rig_print_ms(rig, median, theory_ms(rig));
    if (run->generates) {
        printf("\"prefill_ms\":%.9g,\"tokens_per_second\":%.9g,", prefill, 1e3 * run->batch / median);
        printf("\"prefill_tokens_per_second\":%.9g,", 1e3 * run->batch * run->prompt / prefill);
    } else {
        printf("\"products_ms\":%.9g,\"optimizer_ms\":%.9g,\"gflop\":%.9g,", products, optimizer, 1e-9 * floor->flops);
        printf("\"library_ms\":%.9g,", sl_floor_library_ms(floor));
        printf("\"tokens_per_second\":%.9g,\"first_loss\":%.9g,", 1e3 * run->batch * run->sequence / median,
               rig->first_loss);
    }
    sl_floor_print(floor);
    printf("\"parameters\":%.0f,\"peak_bytes\":%.0f}\n", floor->parameters, rig->peak_bytes);
}

static const char usage[] =
    "usage: bench_transformer [--job step|generate] [--mesh data=N,pipe=N,tensor=N] [--schedule NAME] [--batch N]\n"
    "                         [--microbatches N] [--wgrad-group N] [--sequence N] [--model-dimension N]\n"
    "                         [--n-heads N] [--blocks N] [--layers-per-block N] [--latent-dim N] [--rope-dim N] "
    "[--vocab-size N] [--prompt N]\n"
    "                         [--tokens N] [--threads N] [--steps N] [--warmup N] [--rounds N] [--floor-seconds S]\n"
    "                         [--precision f32|tf32|bf16] [--storage f32|bf16] [--engine NAME] [--fuse N] [--fsdp]\n"
    "Times training steps, or generations of --tokens after --prompt, after --warmup of them, and in turns with them\n"
    "--rounds times the machine itself. Prints one JSON object.\n";

int main(int argc, char **argv) {
    struct run run = {.job = "step",
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
                      .tokens = 128};
    struct sl_transformer *m = &run.model;
    const struct sl_rig_option options[] = {
        {.name = "job", .text = &run.job},
        {.name = "batch", .integer = &run.batch, .max = 1 << 16},
        {.name = "microbatches", .integer = &run.microbatches, .max = 4096},
        {.name = "wgrad-group", .integer = &run.group, .max = 4096},
        {.name = "sequence", .integer = &run.sequence, .max = 65536},
        {.name = "model-dimension", .integer = &m->dimension, .max = 65536},
        {.name = "n-heads", .integer = &m->heads, .max = 1024},
        {.name = "blocks", .integer = &m->blocks, .max = 4096},
        {.name = "layers-per-block", .integer = &m->layers_per_block, .max = 4096},
        {.name = "latent-dim", .integer = &m->latent, .max = 65536},
        {.name = "rope-dim", .integer = &m->rope, .max = 65536},
        {.name = "vocab-size", .integer = &m->vocabulary, .max = 1 << 20},
        {.name = "prompt", .integer = &run.prompt, .max = 65536},
        {.name = "tokens", .integer = &run.tokens, .max = 65536},
        {.name = "threads", .integer = &run.threads, .max = SL_CREW_MOST},
        {.name = "fsdp", .flag = &run.fsdp},
        {0},
    };
    struct sl_rig rig = {.name = "bench_transformer",
                         .usage = usage,
                         .options = options,
                         .run = &run,
                         .prepare = prepare,
                         .program = program,
                         .floor_ms = floor_ms,
                         .print = print,
                         .mesh_text = "data=2",
                         .schedule_name = "1f1b",
                         .precision_name = "f32",
                         .engine = "local",
                         .steps = 20,
                         .warmup = 3,
                         .rounds = 4,
                         .floor_seconds = 0.01};
    const int status = sl_rig_main(&rig, argc, argv);
    free(run.inputs);
    free(run.labels);
    return status;
}
