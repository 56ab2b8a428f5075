/* bench_schedule_overhead.c - the executor's own time per action: one coordinate, stages without work.
 *
 * Without communication: one loop, forward and backward of each microbatch. With communication: a coordinate of
 * several loops passes every microbatch on to itself through a channel, so takes and sends are actions too. The
 * floor, measured in turns with the first: a loop over the same actions that only calls the stage's functions.
 * Prints one JSON object. */
#include <getopt.h>
#include <stdio.h>

#include "benchmarks/measure.h"
#include "collectives/engines.h"
#include "layers/training/pipeline.h"

enum { MICROBATCHES = 8, MAX_LOOPS = 8, BATCHES = 15 };

/* ---- a module without work ---- */

static int forward(const struct sl_module *module, struct sl_context *context, struct sl_given x, struct sl_result *y) {
    (void)module, (void)context, (void)x, (void)y;
    return SL_OK;
}

static int backward_input(const struct sl_module *module, struct sl_context *context, struct sl_given x,
                          struct sl_given dy, struct sl_result *dx) {
    (void)module, (void)context, (void)x, (void)dy, (void)dx;
    return SL_OK;
}

static int backward_weight(const struct sl_module *module, struct sl_context *context, struct sl_given x,
                           struct sl_given dy) {
    (void)module, (void)context, (void)x, (void)dy;
    return SL_OK;
}

static const struct sl_module_type empty = {.name = "empty",
                                            .plan = sl_plan_keeps_nothing,
                                            .forward = forward,
                                            .backward_input = backward_input,
                                            .backward_weight = backward_weight};

/* ---- the run ---- */

struct run {
    int steps, loops;
    struct sl_schedule schedule;
    double ns[BATCHES], floor_ns[BATCHES]; /* an action */
};

static int call_stage(const struct run *run, const struct sl_model *model, struct sl_context *context) {
    const struct sl_rank_schedule *rank = &run->schedule.rank[0];
    for (int i = 0; i < rank->count; i++) {
        const struct sl_action *action = &rank->action[i];
        const struct sl_module *stage = model->stage[action->loop];
        if (action->kind == SL_FORWARD) SL_TRY(stage->type->forward(stage, context, sl_given_f32(NULL), NULL));
        if (sl_has_input_gradient(action->kind))
            SL_TRY(stage->type->backward_input(stage, context, sl_given_f32(NULL), sl_given_f32(NULL), NULL));
        if (sl_has_weight_gradient(action->kind))
            SL_TRY(stage->type->backward_weight(stage, context, sl_given_f32(NULL), sl_given_f32(NULL)));
    }
    return SL_OK;
}

static int measure(struct run *run, const struct sl_model *model, struct sl_pipeline *pipeline) {
    const float inputs[MICROBATCHES] = {0};
    struct sl_pipeline_step step = {.batch = {.rows = MICROBATCHES, .inputs = inputs}, .weight = 1};
    struct sl_context context = {0};
    const double actions = (double)run->steps * run->schedule.rank[0].count;
    for (int b = -1; b < BATCHES; b++) { /* the first is not counted */
        const double began = sl_now();
        for (int i = 0; i < run->steps; i++) SL_TRY(sl_pipeline_train(pipeline, &step));
        const double trained = sl_now();
        for (int i = 0; i < run->steps; i++) SL_TRY(call_stage(run, model, &context));
        if (b < 0) continue;
        run->ns[b] = 1e9 * (trained - began) / actions;
        run->floor_ns[b] = 1e9 * (sl_now() - trained) / actions;
    }
    return SL_OK;
}

static int open_and_measure(struct sl_spmd *self, struct run *run, struct sl_model *model,
                            struct sl_parameters *parameters, struct sl_pipeline **pipeline) {
    const struct sl_pipeline_options options = {.axis = "model",
                                                .schedule = &run->schedule,
                                                .gemm = sl_gemm_find(NULL, &self->error),
                                                .rows = 1,
                                                .wgrad_group = MICROBATCHES};
    for (int l = 0; l < run->loops; l++) {
        model->stage[l] = sl_module_new(&empty, "empty", 1, 1);
        if (!model->stage[l]) return sl_fail(self, SL_FAILED, "no memory for a module");
    }
    model->loss = sl_module_new(&empty, "loss", 1, 1);
    if (!model->loss || sl_parameters_open(parameters, run->loops)) return sl_fail(self, SL_FAILED, "no memory");
    SL_TRY(sl_pipeline_plan(pipeline, self, &options, model, parameters));
    SL_TRY(sl_pipeline_open(*pipeline));
    return measure(run, model, *pipeline);
}

static int program(struct sl_spmd *self, void *arg) {
    struct run *run = arg;
    struct sl_module *stage[MAX_LOOPS] = {NULL};
    struct sl_model model = {.stage = stage, .loops = run->loops, .layers = 1};
    struct sl_parameters parameters = {0};
    struct sl_pipeline *pipeline = NULL;
    const int status = open_and_measure(self, run, &model, &parameters, &pipeline);
    sl_pipeline_close(pipeline);
    sl_parameters_close(&parameters);
    for (int l = 0; l < run->loops; l++) sl_module_free(stage[l]);
    sl_module_free(model.loss);
    return status;
}

static int run_loops(struct run *run, int loops, struct sl_error *error) {
    struct sl_mesh mesh;
    struct sl_engine engine;
    run->loops = loops;
    SL_TRY(sl_mesh_parse(&mesh, "model=1", error));
    SL_TRY(sl_engine_open(&engine, "local", error));
    engine.error = error;
    SL_TRY(sl_schedule_make(&run->schedule, loops > 1 ? "looped-bfs" : "gpipe", 1, loops, MICROBATCHES, error));
    SL_TRY(sl_schedule_lower(&run->schedule, error));
    return sl_run(&mesh, &engine, program, run);
}

/* ---- main ---- */

static const char usage[] = "usage: bench_schedule_overhead [--steps N]\n"
                            "Times the executor's actions over stages that do nothing, in batches of --steps steps.\n";

static int read_options(struct run *run, int argc, char **argv, bool *answered) {
    static const struct option option[] = {
        {"steps", required_argument, NULL, 's'}, {"help", no_argument, NULL, 'h'}, {0}};
    for (int code; (code = getopt_long(argc, argv, "", option, NULL)) != -1;) {
        if (code == '?') return SL_BAD_INPUT;
        if (code == 's') SL_TRY(sl_read_integer("steps", optarg, 1, 1000000, &run->steps));
        if (code == 'h') {
            fputs(usage, stdout);
            *answered = true;
            return SL_OK;
        }
    }
    if (optind == argc) return SL_OK;
    fprintf(stderr, "bench_schedule_overhead: \"%.80s\" is no option\n", argv[optind]);
    return SL_BAD_INPUT;
}

int main(int argc, char **argv) {
    struct run silent = {.steps = 1000}, looping;
    struct sl_error error = {0};
    bool answered = false;
    int status = read_options(&silent, argc, argv, &answered);
    if (status || answered) return status;
    looping = silent;
    status = run_loops(&silent, 1, &error);
    if (status == SL_OK) status = run_loops(&looping, MAX_LOOPS, &error);
    if (status == SL_OK) {
        const double ns = sl_median(BATCHES, silent.ns);
        printf("{\"benchmark\":\"schedule_overhead\",\"ms\":%.9g,\"actions\":%d,\"ns_per_action\":%.9g,\"ns_min\":%.9g,"
               "\"ns_max\":%.9g,\"floor_ns\":%.9g,",
               1e-6 * ns, silent.schedule.rank[0].count, ns, silent.ns[0], silent.ns[BATCHES - 1],
               sl_median(BATCHES, silent.floor_ns));
        printf("\"actions_looping\":%d,\"ns_per_action_looping\":%.9g}\n", looping.schedule.rank[0].count,
               sl_median(BATCHES, looping.ns));
    } else {
        fprintf(stderr, "bench_schedule_overhead: %s\n", error.message);
    }
    sl_schedule_free(&silent.schedule);
    sl_schedule_free(&looping.schedule);
    return status;
}
