/* regression.c - an example to copy: a regression with its own training loop and optimizer. It teaches the calls of a
 * training step.
 *
 * A small network learns z = sin(3 x) cos(2 y). It is pipelined over "model" and replicated over "data". The trainer's
 * work in custom_module.c is written out here: the order of calls is the one in layers/training/pipeline.h. At the end
 * the program prints the predicted and the measured time of a step (layers/models/forecast.h). With --trace FILE it
 * records the coordinates' activities, for Perfetto and shardloop-schedule --compare. */
#include <errno.h>
#include <math.h>
#include <shardloop/shardloop.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

enum { INPUTS = 2, HIDDEN = 32, POINTS = 256, MICROBATCHES = 4, STEPS = 600, WATCHED = 20 };
enum { COORDINATES = 4 };

/* ---- the optimizer: m = 0.9 m + 0.1 gradient, value = value - rate sign(m) ---- */

enum { MOMENTUM }; /* its state per value */

static void follow_signs(const struct sl_optimizer_options *options, const struct sl_kernels *kernels,
                         const struct sl_optimizer_run *run) {
    const float rate = options->learning_rate, scale = run->gradient_scale;
    const float *gradient = run->gradient;
    float *value = run->value, *momentum = run->state[MOMENTUM];
    const size_t n = run->count;
    (void)kernels;
    SL_ELEMENTWISE(is_device_ptr(gradient, value, momentum))
    for (size_t i = 0; i < n; i++) {
        const float m = momentum[i] = 0.9f * momentum[i] + 0.1f * scale * gradient[i];
        value[i] -= rate * ((float)(m > 0.0f) - (float)(m < 0.0f));
    }
}

static const struct sl_optimizer signs = {.name = "signs", .state = {[MOMENTUM] = "momentum"}, .update = follow_signs};

/* ---- data of every coordinate ---- */

struct run {
    struct sl_schedule schedule;
    float inputs[POINTS * INPUTS], targets[POINTS];
    const char *traced; /* name of the trace file; NULL: no trace */
    struct sl_trace_file trace;
    struct sl_watch watch[COORDINATES]; /* of WATCHED steps after the first, which touches memory */
};

struct worker {
    struct run *run;
    struct sl_group data, stages, world;
    struct sl_module *stage;
    struct sl_model model;
    struct sl_parameters parameters;
    struct sl_pipeline *pipeline;
    struct sl_optimizer_options optimizer;
    struct sl_batch batch;     /* this coordinate's rows */
    float predictions[POINTS]; /* all coordinates' rows */
};

static void build(struct worker *w, int rank, int ranks) {
    const int in = rank ? HIDDEN : INPUTS, last = rank == ranks - 1, out = last ? 1 : HIDDEN;
    struct sl_module *part[] = {sl_dense("first", in, HIDDEN), sl_gelu(HIDDEN), sl_dense("second", HIDDEN, out)};
    w->stage = sl_sequential(rank ? "back" : "front", 3, part);
    w->model = (struct sl_model){.loops = 1, .stage = &w->stage, .loss = last ? sl_mean_squared_error(1) : NULL};
}

static int open_worker(struct worker *w, struct sl_spmd *self) {
    const struct run *run = w->run;
    const int rows = POINTS / sl_axis_size(self, "data"), first = rows * sl_axis_index(self, "data");
    const struct sl_pipeline_options options = {.axis = "model",
                                                .schedule = &run->schedule,
                                                .gemm = sl_gemm_find(NULL, &self->error),
                                                .rows = rows / MICROBATCHES,
                                                .keeps_outputs = true,
                                                .wgrad_group = MICROBATCHES};
    w->batch = (struct sl_batch){.rows = rows, .inputs = run->inputs + first * INPUTS, .targets = run->targets + first};
    SL_TRY(sl_group_axes(self, "data", &w->data));    /* coordinates with the same stage, */
    SL_TRY(sl_group_axes(self, "model", &w->stages)); /* with the same rows, */
    SL_TRY(sl_group_axes(self, "*", &w->world));      /* and all coordinates */
    w->optimizer = sl_optimizer_defaults(&signs, 0);
    SL_TRY(sl_optimizer_check(&w->optimizer, &self->error));
    if (sl_parameters_open(&w->parameters, 1)) return sl_fail(self, SL_FAILED, "no memory for parameters");
    w->parameters.data_axis = "data";
    w->parameters.stage_axis = "model";
    w->parameters.states = sl_optimizer_states(&w->optimizer);
    w->parameters.state_name = signs.state;
    w->parameters.held = &self->held; /* counts the parameters' memory, in bytes */
    SL_TRY(sl_pipeline_plan(&w->pipeline, self, &options, &w->model, &w->parameters));
    sl_parameters_layout(&w->parameters, w->data.size, w->data.rank, false);
    sl_parameters_seed(&w->parameters, 42);
    SL_TRY(sl_parameters_take(&w->parameters, &self->error));
    SL_TRY(sl_parameters_initialize(&w->parameters, self, &w->data));
    return sl_pipeline_open(w->pipeline);
}

static void close_worker(struct worker *w) {
    sl_pipeline_close(w->pipeline);
    sl_parameters_close(&w->parameters);
    sl_module_free(w->stage);
    sl_module_free(w->model.loss);
}

/* ---- the loop ---- */

/* Returns the profile of step NUMBER; NULL: the step is not measured. */
static struct sl_profile *watch(struct worker *w, struct sl_spmd *self, int number) {
    struct sl_watch *own = &w->run->watch[self->coordinate];
    if (number == 1) sl_watch_begin(own, self, NULL);
    if (number >= 1 && number <= WATCHED) return &own->profile;
    if (number != WATCHED + 1) return NULL;
    sl_watch_end(own, NULL);
    sl_parameters_plan_bytes(&w->parameters, &own->planned);
    sl_pipeline_plan_bytes(w->pipeline, &own->planned);
    return NULL;
}

/* The gradient for all rows of the mesh is the mean of the gradients along the data axis. */
static int update(struct worker *w, struct sl_spmd *self, int r, int number, struct sl_profile *profile,
                  struct sl_trace *trace) {
    struct sl_range *range = &w->parameters.range[r];
    const struct sl_trace_event reduce = {.name = "reduce", .work = SL_TRACE_REDUCE, .stage = -1};
    const struct sl_trace_event optimizer = {.name = "optimizer", .work = SL_TRACE_OPTIMIZER, .stage = -1};
    struct sl_trace_mark mark = sl_trace_begin(trace);
    const enum sl_work before = sl_profile_begin(profile, SL_WORK_COMMUNICATION);
    SL_TRY(sl_pmean(self, &w->data, SL_F32, range->gradient, range->gradient, range->count));
    sl_trace_end(trace, mark, reduce);
    mark = sl_trace_begin(trace);
    sl_profile_begin(profile, SL_WORK_OPTIMIZER);
    SL_TRY(sl_optimizer_update(&w->optimizer, sl_kernels_select(), &w->parameters, r, number + 1, 1.0f, &self->error));
    sl_parameters_round(&w->parameters, sl_kernels_select(), r); /* only if options.precision is SL_BF16 */
    sl_profile_end(profile, before);
    sl_trace_end(trace, mark, optimizer);
    return SL_OK;
}

static int take_step(struct worker *w, struct sl_spmd *self, int number) {
    struct run *run = w->run;
    const bool traced = run->traced && number >= 1 && number <= WATCHED;
    struct sl_trace *trace = traced ? sl_trace_file_of(&run->trace, self) : NULL;
    struct sl_profile *profile = watch(w, self, number);
    struct sl_pipeline_step step = {
        .batch = w->batch, .weight = 1.0f / (float)w->batch.rows, .profile = profile, .trace = trace};
    const double began = sl_now();
    if (trace) trace->step = number;
    w->optimizer.learning_rate = 2e-3f * (1.0f - (float)number / STEPS);
    SL_TRY(sl_pipeline_train(w->pipeline, &step));
    for (int r = 0; r < w->parameters.ranges; r++)
        if (w->parameters.range[r].count) SL_TRY(update(w, self, r, number, profile, trace));
    /* Only coordinates with the last stage have metrics; the others add zeros. */
    float sums[] = {(float)step.metrics.loss, (float)step.metrics.rows};
    const enum sl_work before = sl_profile_begin(profile, SL_WORK_COMMUNICATION);
    SL_TRY(sl_psum(self, &w->world, SL_F32, sums, sums, 2));
    sl_profile_end(profile, before);
    if (!isfinite(sums[0])) return sl_fail(self, SL_FAILED, "the loss of step %d is not finite", number);
    if (self->coordinate == 0 && traced) sl_trace_file_step(&run->trace, number, began, sl_now(), sums[0] / sums[1]);
    if (self->coordinate == 0 && number % 100 == 0) printf("step %3d  loss %.6f\n", number, sums[0] / sums[1]);
    return SL_OK;
}

/* Every coordinate gets all predictions: coordinates with the last stage gather theirs, then each broadcasts them along
 * its pipeline. */
static int predict(struct worker *w, struct sl_spmd *self) {
    struct sl_pipeline_step step = {.batch = w->batch};
    const int last = w->stages.size - 1;
    SL_TRY(sl_pipeline_evaluate(w->pipeline, &step));
    if (w->stages.rank == last)
        SL_TRY(sl_all_gather(self, &w->data, SL_F32, sl_pipeline_predictions(w->pipeline), w->predictions,
                             (size_t)w->batch.rows));
    return sl_broadcast(self, &w->stages, SL_F32, w->predictions, w->predictions, POINTS, last);
}

static int program(struct sl_spmd *self, void *arg) {
    struct run *run = arg;
    struct worker w = {.run = run};
    build(&w, sl_axis_index(self, "model"), sl_axis_size(self, "model"));
    int status = open_worker(&w, self);
    for (int step = 0; status == SL_OK && step < STEPS; step++) status = take_step(&w, self, step);
    if (status == SL_OK) status = sl_gather_records(self, run->watch, sizeof *run->watch);
    if (status == SL_OK && run->traced) status = sl_gather_traces(self, run->trace.trace);
    if (status == SL_OK) status = predict(&w, self);
    for (int i = 0; status == SL_OK && self->coordinate == 0 && i < POINTS; i += POINTS / 4)
        printf("x %5.2f  y %5.2f  z %6.3f  predicted %6.3f\n", run->inputs[2 * i], run->inputs[2 * i + 1],
               run->targets[i], w.predictions[i]);
    close_worker(&w);
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
                                 .cores = sl_topology_usable()};
}

static int open_trace(struct run *run, const struct sl_mesh *mesh, struct sl_error *error) {
    const struct sl_trace_run told = about(run, mesh);
    SL_TRY(sl_trace_file_open(&run->trace, &told, WATCHED, error));
    return sl_trace_file_create(&run->trace, "--trace", run->traced, error);
}

static int print_forecast(const struct run *run, const struct sl_mesh *mesh, struct sl_error *error) {
    const struct sl_trace_run told = about(run, mesh);
    struct sl_step_forecast forecast;
    SL_TRY(sl_step_forecast_make(&forecast, &told, run->watch, WATCHED, error));
    sl_step_forecast_print(&forecast, stdout);
    return SL_OK;
}

/* Reports errors of stdout, such as a full disk. */
static int finish(int status, const struct sl_error *error) {
    errno = 0;
    if (status) {
        fprintf(stderr, "regression: %s\n", error->message);
    } else if (fflush(stdout) || ferror(stdout)) {
        fprintf(stderr, "regression: stdout: %s\n", errno ? strerror(errno) : "could not be written");
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
                "regression: an example of a training loop of one's own;%sit takes no arguments, or --trace FILE\n",
                help ? "\n" : " ");
        return help ? finish(SL_OK, NULL) : SL_BAD_INPUT;
    }
    sl_random_normal(sl_key_of_seed(7), POINTS * INPUTS, run.inputs);
    for (int i = 0; i < POINTS; i++) run.targets[i] = sinf(3 * run.inputs[2 * i]) * cosf(2 * run.inputs[2 * i + 1]);
    int status = sl_cpu_level_check(&error); /* checks SHARDLOOP_CPU_LEVEL */
    if (status == SL_OK) status = sl_mesh_parse(&mesh, "data=2,model=2", &error);
    if (status == SL_OK) status = sl_engine_open(&engine, "local", &error);
    engine.checked = true; /* a wrong call of the program ends with a verdict (docs/engines.md) */
    engine.error = &error;
    if (status == SL_OK) status = sl_schedule_make(&run.schedule, "1f1b", 2, 1, MICROBATCHES, &error);
    if (status == SL_OK) status = sl_schedule_lower(&run.schedule, &error);
    if (status == SL_OK && run.traced) status = open_trace(&run, &mesh, &error);
    if (status == SL_OK) status = sl_run(&mesh, &engine, program, &run);
    if (status == SL_OK) status = print_forecast(&run, &mesh, &error);
    if (status == SL_OK && run.traced) status = sl_trace_file_write(&run.trace, &error);
    sl_trace_file_free(&run.trace);
    sl_schedule_free(&run.schedule);
    return finish(status, &error);
}
