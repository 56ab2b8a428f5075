/* custom_optimizer.c - an example to copy: your own optimizer. It teaches that an optimizer is a row.
 *
 * The row names the optimizer's state per value, and has a function that updates a run of elements. The trainer shards
 * this state over the replicas, saves and loads it without further code. This optimizer is Lion (Chen et al. 2023):
 * value -= rate sign(beta1 m + (1 - beta1) gradient), then m = beta2 m + (1 - beta2) gradient. A directive of
 * spmd/device/offload.h over the loop makes it run on devices, in builds that have devices.
 *
 * custom_optimizer CHECKPOINT [STEPS] saves the run in that file after STEPS steps. If the file exists, the run first
 * resumes from it, with the same losses as an uninterrupted run. */
#include <shardloop/shardloop.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- the optimizer ---- */

enum { MOMENTUM }; /* its state, in the row's order */

static void update(const struct sl_optimizer_options *options, const struct sl_kernels *kernels,
                   const struct sl_optimizer_run *run) {
    const float rate = options->learning_rate, scale = run->gradient_scale;
    const float beta1 = (float)options->beta1, beta2 = (float)options->beta2;
    const float *gradient = run->gradient;
    float *value = run->value, *momentum = run->state[MOMENTUM];
    const size_t n = run->count;
    (void)kernels; /* the library's own loops, unused here */
    SL_ELEMENTWISE(is_device_ptr(gradient, value, momentum))
    for (size_t i = 0; i < n; i++) {
        const float g = scale * gradient[i], m = momentum[i], mix = beta1 * m + (1 - beta1) * g;
        value[i] -= rate * ((float)(mix > 0.0f) - (float)(mix < 0.0f));
        momentum[i] = beta2 * m + (1 - beta2) * g;
    }
}

static const struct sl_optimizer lion = {.name = "lion",
                                         .state = {[MOMENTUM] = "momentum"},
                                         .settings = {"beta1", "beta2"},
                                         .defaults = {.beta1 = 0.9, .beta2 = 0.99},
                                         .update = update};

/* ---- the run: the same program at every coordinate ---- */

enum { INPUTS = 2, HIDDEN = 32, CLASSES = 2, BATCH = 256, MICROBATCHES = 4, STEPS = 300 };

struct run {
    struct sl_schedule schedule;
    float inputs[BATCH * INPUTS];
    int32_t labels[BATCH];
    const char *checkpoint; /* NULL: not saved */
    bool resumes;           /* the checkpoint exists */
    int steps;              /* including the steps before the checkpoint */
};

static int program(struct sl_spmd *self, void *arg) {
    struct run *run = arg;
    const int rank = sl_axis_index(self, "model"), rows = BATCH / sl_axis_size(self, "data");
    const bool last = rank == sl_axis_size(self, "model") - 1;
    struct sl_module *part[] = {sl_dense("first", rank ? HIDDEN : INPUTS, HIDDEN), sl_gelu(HIDDEN),
                                sl_dense("second", HIDDEN, last ? CLASSES : HIDDEN)};
    struct sl_module *stage = sl_sequential(rank ? "back" : "front", 3, part);
    struct sl_model model = {.loops = 1, .stage = &stage, .loss = last ? sl_softmax_cross_entropy(CLASSES) : NULL};
    const struct sl_trainer_options options = {.pipeline = {.axis = "model",
                                                            .schedule = &run->schedule,
                                                            .gemm = sl_gemm_find(NULL, &self->error),
                                                            .rows = rows / MICROBATCHES,
                                                            .wgrad_group = MICROBATCHES},
                                               .data_axis = "data",
                                               .optimizer = sl_optimizer_defaults(&lion, 1e-3f),
                                               .zero = true, /* each replica has its part of the momentum */
                                               .seed = 42};
    const int first = sl_axis_index(self, "data") * rows;
    const struct sl_batch batch = {.rows = rows, .inputs = run->inputs + first * INPUTS, .labels = run->labels + first};
    struct sl_trainer *trainer = NULL;
    struct sl_metrics metrics = {0};
    struct sl_checkpoint about = {.samples = (int64_t)BATCH * run->steps, .seed = options.seed};
    int first_step = 0;
    bool stop = false;
    int status = sl_trainer_plan(&trainer, self, &options, &model);
    if (status == SL_OK) status = sl_trainer_open(trainer, NULL);
    if (status == SL_OK && run->resumes) {
        struct sl_checkpoint found;
        status = sl_checkpoint_load(self, trainer, run->checkpoint, NULL, &found);
        if (status == SL_OK) first_step = (int)found.step;
    }
    for (int step = first_step; status == SL_OK && step < run->steps; step++) {
        status = sl_trainer_step(trainer, &batch, &metrics, &stop);
        if (self->coordinate == 0 && step % 50 == 0) printf("step %3d  loss %.6f\n", step, metrics.loss / metrics.rows);
    }
    if (status == SL_OK && run->checkpoint)
        status = sl_checkpoint_save(self, trainer, run->checkpoint, &about, NULL, NULL);
    if (status == SL_OK && self->coordinate == 0 && metrics.rows > 0)
        printf("accuracy %.4f\n", metrics.correct / metrics.rows);
    sl_trainer_close(trainer);
    sl_module_free(stage);
    sl_module_free(model.loss);
    return status;
}

int main(int argc, char **argv) {
    static struct run run;
    char *end = "";
    const long steps = argc > 2 ? strtol(argv[2], &end, 10) : STEPS;
    const bool help = argc == 2 && (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h"));
    if (argc > 3 || *end || steps < 1 || steps > 1000000 || (argc > 1 && argv[1][0] == '-')) {
        fprintf(help ? stdout : stderr,
                "custom_optimizer: an example of an optimizer of one's own;%sit takes no arguments, or CHECKPOINT "
                "[STEPS]\n",
                help ? "\n" : " ");
        return help ? SL_OK : SL_BAD_INPUT;
    }
    run.steps = (int)steps;
    run.checkpoint = argc > 1 ? argv[1] : NULL;
    run.resumes = run.checkpoint && access(run.checkpoint, F_OK) == 0;
    struct sl_error error = {0};
    struct sl_mesh mesh;
    struct sl_engine engine = {0};
    sl_random_normal(sl_key_of_seed(7), BATCH * INPUTS, run.inputs);
    for (int i = 0; i < BATCH; i++) run.labels[i] = run.inputs[2 * i] * run.inputs[2 * i + 1] > 0;
    int status = sl_mesh_parse(&mesh, "data=2,model=2", &error);
    if (status == SL_OK) status = sl_engine_open(&engine, "local", &error);
    engine.checked = true; /* a wrong call of the program ends with a verdict (docs/engines.md) */
    engine.error = &error;
    if (status == SL_OK) status = sl_schedule_make(&run.schedule, "1f1b", 2, 1, MICROBATCHES, &error);
    if (status == SL_OK) status = sl_schedule_lower(&run.schedule, &error);
    if (status == SL_OK) status = sl_run(&mesh, &engine, program, &run);
    if (status) fprintf(stderr, "custom_optimizer: %s\n", error.message);
    sl_schedule_free(&run.schedule);
    return status;
}
