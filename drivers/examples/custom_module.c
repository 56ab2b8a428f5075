/* custom_module.c - an example to copy: your own module, and a training loop around it. It teaches that a module is a
 * forward function, two backward functions, and the values they need of each other.
 *
 * The module is a leaky rectifier with a learned slope below zero, y = x > 0 ? x : slope x. It is part of a small
 * classifier, pipelined over "model" and replicated over "data", that learns whether x0 x1 is above zero. Directives of
 * spmd/device/offload.h over its loops make them run on devices, in builds that have devices. sl_gradient_check
 * (layers/modules/gradient_check.h) tests a module's backward functions against its forward. At the end the program
 * prints the predicted and the measured time of a step (layers/models/forecast.h). With --trace FILE it records the
 * coordinates' activities, for Perfetto and shardloop-schedule --compare. */
#include <errno.h>
#include <signal.h>
#include <shardloop/shardloop.h>
#include <stdio.h>
#include <string.h>

/* ---- the module: its declaration, y of x, dx of dy, and its parameter's gradient ---- */

enum { SLOPE }; /* its parameters, in the order of their declaration in plan */

static int plan(struct sl_module *module, struct sl_plan *plan) {
    const size_t shape[] = {(size_t)module->in};
    return sl_plan_parameter(plan, "slope", SL_INIT_ZEROS, 0, 1, shape);
}

static int forward(const struct sl_module *module, struct sl_context *context, struct sl_given given,
                   struct sl_result *result) {
    const float *x = given.floats;
    float *y = result->floats;
    const float *slope = sl_value(module, context, SLOPE);
    const int cols = module->in, n = context->rows * cols;
    SL_ELEMENTWISE(is_device_ptr(slope, x, y))
    for (int i = 0; i < n; i++) y[i] = x[i] > 0 ? x[i] : slope[i % cols] * x[i];
    return SL_OK;
}

static int backward_input(const struct sl_module *module, struct sl_context *context, struct sl_given saved,
                          struct sl_given given, struct sl_result *result) {
    const float *x = saved.floats, *dy = given.floats;
    float *dx = sl_result_floats(result);
    const float *slope = sl_value(module, context, SLOPE);
    const int cols = module->in, n = dx ? context->rows * cols : 0;
    SL_ELEMENTWISE(is_device_ptr(slope, x, dy, dx))
    for (int i = 0; i < n; i++) dx[i] = x[i] > 0 ? dy[i] : slope[i % cols] * dy[i];
    return SL_OK;
}

static int backward_weight(const struct sl_module *module, struct sl_context *context, struct sl_given saved,
                           struct sl_given given) {
    const float *x = saved.floats, *dy = given.floats;
    float *gradient = sl_gradient(module, context, SLOPE);
    const int cols = module->in, n = context->wgrad_group * context->rows * cols;
    const bool accumulate = context->accumulate;
    SL_ROWS(is_device_ptr(x, dy, gradient))
    for (int c = 0; c < cols; c++) {
        float sum = accumulate ? gradient[c] : 0;
        for (int i = c; i < n; i += cols) sum += x[i] > 0 ? 0 : x[i] * dy[i];
        gradient[c] = sum;
    }
    return SL_OK;
}

static const struct sl_module_type leaky = {.name = "leaky",
                                            .plan = plan,
                                            .forward = forward,
                                            .backward_input = backward_input,
                                            .backward_weight = backward_weight,
                                            .fuses = true}; /* can process the rows of several microbatches at once */

/* ---- the run: the same program at every coordinate ---- */

enum { INPUTS = 2, HIDDEN = 32, CLASSES = 2, BATCH = 256, MICROBATCHES = 4, STEPS = 300, WATCHED = 20 };
enum { COORDINATES = 4 };

struct run {
    struct sl_schedule schedule;
    float inputs[BATCH * INPUTS];
    int32_t labels[BATCH];
    double loss, accuracy;
    const char *traced; /* name of the trace file; NULL: no trace */
    struct sl_trace_file trace;
    struct sl_watch watch[COORDINATES]; /* of WATCHED steps after the first, which touches memory */
};

/* Called before STEP: measures this coordinate for WATCHED steps, from the second one on. */
static void watch(struct run *run, struct sl_spmd *self, struct sl_trainer *trainer, int step) {
    struct sl_watch *own = &run->watch[self->coordinate];
    if (step == 1) sl_watch_begin(own, self, trainer);
    if (step == WATCHED + 1) sl_watch_end(own, trainer);
}

static int program(struct sl_spmd *self, void *arg) {
    struct run *run = arg;
    const int rank = sl_axis_index(self, "model"), rows = BATCH / sl_axis_size(self, "data");
    const bool last = rank == sl_axis_size(self, "model") - 1;
    struct sl_module *part[] = {sl_dense("first", rank ? HIDDEN : INPUTS, HIDDEN),
                                sl_module_new(&leaky, "leaky", HIDDEN, HIDDEN),
                                sl_dense("second", HIDDEN, last ? CLASSES : HIDDEN)};
    struct sl_module *stage = sl_sequential(rank ? "back" : "front", 3, part);
    struct sl_model model = {.loops = 1, .stage = &stage, .loss = last ? sl_softmax_cross_entropy(CLASSES) : NULL};
    const struct sl_trainer_options options = {.pipeline = {.axis = "model",
                                                            .schedule = &run->schedule,
                                                            .gemm = sl_gemm_find(NULL, &self->error),
                                                            .rows = rows / MICROBATCHES,
                                                            .wgrad_group = MICROBATCHES},
                                               .data_axis = "data",
                                               .optimizer = sl_adamw_defaults(1e-2f),
                                               .zero = true,
                                               .overlap = true,
                                               .seed = 42};
    const int first = sl_axis_index(self, "data") * rows;
    const struct sl_batch batch = {.rows = rows, .inputs = run->inputs + first * INPUTS, .labels = run->labels + first};
    struct sl_trainer *trainer = NULL;
    struct sl_metrics metrics = {0};
    bool stop = false;
    int status = sl_trainer_plan(&trainer, self, &options, &model);
    if (status == SL_OK) status = sl_trainer_open(trainer, NULL);
    for (int step = 0; status == SL_OK && step < STEPS; step++) {
        const bool traced = run->traced && step >= 1 && step <= WATCHED;
        const double began = sl_now();
        watch(run, self, trainer, step);
        sl_trainer_set_trace(trainer, traced ? sl_trace_file_of(&run->trace, self) : NULL);
        status = sl_trainer_step(trainer, &batch, &metrics, &stop);
        const double loss = metrics.loss / metrics.rows;
        if (self->coordinate == 0 && traced) sl_trace_file_step(&run->trace, step, began, sl_now(), loss);
        if (self->coordinate == 0 && step % 50 == 0) printf("step %3d  loss %.6f\n", step, loss);
    }
    if (status == SL_OK) status = sl_gather_records(self, run->watch, sizeof *run->watch);
    if (status == SL_OK && run->traced) status = sl_gather_traces(self, run->trace.trace);
    if (self->coordinate == 0) run->accuracy = metrics.correct / metrics.rows;
    sl_trainer_close(trainer);
    sl_module_free(stage);
    sl_module_free(model.loss);
    return status;
}

/* Describes the run, for a trace and a forecast. */
static struct sl_trace_run about(const struct run *run, const struct sl_mesh *mesh) {
    return (struct sl_trace_run){.mesh = mesh,
                                 .pipe_axis = "model",
                                 .data_axis = "data",
                                 .schedule = &run->schedule,
                                 .passes = 1,
                                 .wgrad_group = MICROBATCHES,
                                 .overlap = true,
                                 .cores = sl_topology_usable()};
}

static int open_trace(struct run *run, const struct sl_mesh *mesh, struct sl_error *error) {
    const struct sl_trace_run told = about(run, mesh);
    SL_TRY(sl_trace_file_open(&run->trace, &told, WATCHED, error));
    return sl_trace_file_create(&run->trace, "--trace", run->traced, error);
}

static int print_end(const struct run *run, const struct sl_mesh *mesh, struct sl_error *error) {
    const struct sl_trace_run told = about(run, mesh);
    struct sl_step_forecast forecast;
    printf("accuracy %.4f\n", run->accuracy);
    SL_TRY(sl_step_forecast_make(&forecast, &told, run->watch, WATCHED, error));
    sl_step_forecast_print(&forecast, stdout);
    return SL_OK;
}

/* Reports errors of stdout, such as a full disk. */
static int finish(int status, const struct sl_error *error) {
    errno = 0;
    if (status) {
        fprintf(stderr, "custom_module: %s\n", error->message);
    } else if (fflush(stdout) || ferror(stdout)) {
        fprintf(stderr, "custom_module: stdout: %s\n", errno ? strerror(errno) : "could not be written");
        status = SL_FAILED;
    }
    return status;
}

int main(int argc, char **argv) {
    static struct run run;
    struct sl_error error = {0};
    struct sl_mesh mesh;
    struct sl_engine engine = {0};
    signal(SIGXFSZ, SIG_IGN); /* so that a file size limit is a write error, too */
    const bool help = argc == 2 && (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h"));
    if (argc == 3 && !strcmp(argv[1], "--trace")) run.traced = argv[2];
    if (argc > 1 && !run.traced) {
        fprintf(help ? stdout : stderr,
                "custom_module: an example of a module of one's own;%sit takes no arguments, or --trace FILE\n",
                help ? "\n" : " ");
        return help ? finish(SL_OK, NULL) : SL_BAD_INPUT;
    }
    sl_random_normal(sl_key_of_seed(7), BATCH * INPUTS, run.inputs);
    for (int i = 0; i < BATCH; i++) run.labels[i] = run.inputs[2 * i] * run.inputs[2 * i + 1] > 0;
    int status = sl_cpu_level_check(&error); /* checks SHARDLOOP_CPU_LEVEL */
    if (status == SL_OK) status = sl_mesh_parse(&mesh, "data=2,model=2", &error);
    if (status == SL_OK) status = sl_engine_open(&engine, "local", &error);
    engine.checked = true; /* a wrong call of the program ends with a verdict (docs/engines.md) */
    if (status == SL_OK) status = sl_schedule_make(&run.schedule, "gpipe", 2, 1, MICROBATCHES, &error);
    if (status == SL_OK) status = sl_schedule_lower(&run.schedule, &error);
    if (status == SL_OK && run.traced) status = open_trace(&run, &mesh, &error);
    engine.error = &error;
    if (status == SL_OK) status = sl_run(&mesh, &engine, program, &run);
    if (status == SL_OK) status = print_end(&run, &mesh, &error);
    if (status == SL_OK && run.traced) status = sl_trace_file_write(&run.trace, &error);
    sl_trace_file_free(&run.trace);
    sl_schedule_free(&run.schedule);
    return finish(status, &error);
}
