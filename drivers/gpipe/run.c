/* run.c - the pass of a network over a mesh: pipelined over "pipe", sharded over "tensor". */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "drivers/gpipe/gpipe.h"
#include "layers/training/exchange.h"
#include "layers/training/pipeline.h"
#include "spmd/device/device.h"

/* ---- the run ---- */

static size_t outputs_of(const struct gpipe_network *network) {
    return (size_t)network->batch * (size_t)network->columns[network->layers];
}
static size_t inputs_of(const struct gpipe_network *network) {
    return (size_t)network->batch * (size_t)network->columns[0];
}

static int check_mesh(const struct gpipe_run *run, struct sl_error *error) {
    const struct gpipe_network *network = run->network;
    const int stages = sl_mesh_axis_size(&run->mesh, GPIPE_PIPE_AXIS);
    const int shards = sl_mesh_axis_size(&run->mesh, GPIPE_TENSOR_AXIS);
    for (int axis = 0; axis < run->mesh.axes; axis++) {
        const char *name = run->mesh.axis[axis].name;
        if (strcmp(name, GPIPE_PIPE_AXIS) != 0 && strcmp(name, GPIPE_TENSOR_AXIS) != 0)
            return sl_error_set(error, SL_BAD_INPUT, "--mesh: axis \"%s\" is not one of %s, %s", name, GPIPE_PIPE_AXIS,
                                GPIPE_TENSOR_AXIS);
    }
    if (stages > network->layers)
        return sl_error_set(error, SL_BAD_INPUT, "--mesh: %s=%d is more than the %d linear layers", GPIPE_PIPE_AXIS,
                            stages, network->layers);
    for (int l = 1; l < network->layers; l += 2) {
        if (network->columns[l] % shards)
            return sl_error_set(error, SL_BAD_INPUT, "--mesh: %s=%d does not divide the %d columns that are sharded",
                                GPIPE_TENSOR_AXIS, shards, network->columns[l]);
    }
    return SL_OK;
}

/* Chooses the mesh. With queues each coordinate has all partitions: the mesh has only tensor parallelism. */
static int choose_mesh(struct gpipe_run *run, struct sl_error *error) {
    const int shards = sl_mesh_axis_size(&run->mesh, GPIPE_TENSOR_AXIS);
    char mesh[64];
    run->on = run->mesh;
    if (!run->queues) return SL_OK;
    snprintf(mesh, sizeof mesh, shards > 1 ? GPIPE_TENSOR_AXIS "=%d" : GPIPE_PIPE_AXIS "=%d", shards);
    return sl_mesh_parse(&run->on, mesh, error);
}

static int take_results(struct gpipe_run *run, struct sl_error *error) {
    const size_t tasks = 2 * (size_t)run->partitions * (size_t)run->schedule.microbatches;
    run->outputs = calloc(outputs_of(run->network), sizeof *run->outputs);
    run->batch_gradient = calloc(inputs_of(run->network), sizeof *run->batch_gradient);
    if (run->queues) run->record.order = calloc(tasks, sizeof *run->record.order);
    run->watch = calloc((size_t)run->on.size, sizeof *run->watch);
    if (run->outputs && run->batch_gradient && run->watch && (run->record.order || !run->queues)) return SL_OK;
    return sl_error_set(error, SL_FAILED, "no memory for the results");
}

int gpipe_open(struct gpipe_run *run, const struct gpipe_network *network, int microbatches, struct sl_error *error) {
    run->network = network;
    SL_TRY(check_mesh(run, error));
    SL_TRY(choose_mesh(run, error));
    run->partitions = sl_mesh_axis_size(&run->mesh, GPIPE_PIPE_AXIS);
    SL_TRY(sl_schedule_make(&run->schedule, "gpipe", run->partitions, 1, microbatches, error));
    SL_TRY(sl_schedule_lower(&run->schedule, error));
    return take_results(run, error);
}

void gpipe_free(struct gpipe_run *run) {
    sl_schedule_free(&run->schedule);
    free(run->outputs);
    free(run->batch_gradient);
    free(run->record.order);
    free(run->watch);
    sl_store_free(&run->gradients);
}

bool gpipe_has(const struct gpipe_run *run, const struct gpipe_failure *failure) {
    if (run->queues && !strchr("FB", failure->action)) return false;
    if (run->queues && failure->stage >= 0 && failure->stage != failure->coordinate) return false;
    if (failure->coordinate >= run->mesh.size || failure->microbatch >= run->schedule.microbatches) return false;
    const int axis = sl_mesh_find_axis(&run->mesh, GPIPE_PIPE_AXIS);
    const int stage = axis < 0 ? 0 : sl_mesh_index(&run->mesh, failure->coordinate, axis);
    return failure->stage < 0 || failure->stage == stage;
}

struct sl_trace_run gpipe_about(const struct gpipe_run *run, int cores) {
    return (struct sl_trace_run){.mesh = &run->mesh,
                                 .pipe_axis = GPIPE_PIPE_AXIS,
                                 .data_axis = "data",
                                 .schedule = &run->schedule,
                                 .passes = 1,
                                 .wgrad_group = 1,
                                 .cores = cores};
}

/* ---- one coordinate ---- */

struct worker {
    struct gpipe_run *run;
    struct sl_group world;
    struct sl_module *stage;
    struct sl_model model;
    struct sl_parameters parameters;
    struct sl_pipeline *pipeline;
    float *outputs, *batch_gradient; /* as the run's, in the device's memory */
};

static int build(struct worker *worker, struct sl_spmd *self) {
    const struct gpipe_run *run = worker->run;
    const struct gpipe_network *network = run->network;
    const int rank = sl_axis_index(self, GPIPE_PIPE_AXIS), ranks = sl_axis_size(self, GPIPE_PIPE_AXIS);
    worker->stage = gpipe_stage(network, self->mesh, rank, ranks);
    if (run->failure && run->failure->coordinate == self->coordinate)
        worker->stage = gpipe_failing(worker->stage, run->failure);
    worker->outputs = sl_device.take(outputs_of(network) * sizeof *worker->outputs);
    if (rank == 0) worker->batch_gradient = sl_device.take(inputs_of(network) * sizeof *worker->batch_gradient);
    if (!worker->stage || !worker->outputs || (rank == 0 && !worker->batch_gradient))
        return sl_fail(self, SL_FAILED, "no memory for the model");
    worker->model = (struct sl_model){.loops = 1, .stage = &worker->stage, .layers = 1};
    if (rank < ranks - 1) return SL_OK;
    worker->model.loss = gpipe_sum(worker->stage->out, worker->outputs);
    return worker->model.loss ? SL_OK : sl_fail(self, SL_FAILED, "no memory for the loss");
}

static int plan(struct worker *worker, struct sl_spmd *self) {
    static const char *const module_axes[] = {GPIPE_TENSOR_AXIS, NULL};
    const struct gpipe_run *run = worker->run;
    const struct sl_pipeline_options options = {.axis = GPIPE_PIPE_AXIS,
                                                .group_axes = module_axes,
                                                .schedule = &run->schedule,
                                                .gemm = sl_gemm_find(NULL, &self->error),
                                                .rows = run->network->batch / run->schedule.microbatches,
                                                .wgrad_group = 1,
                                                .batch_gradient = worker->batch_gradient};
    if (sl_parameters_open(&worker->parameters, 1)) return sl_fail(self, SL_FAILED, "no memory for parameters");
    worker->parameters.stage_axis = GPIPE_PIPE_AXIS;
    worker->parameters.held = &self->held;
    SL_TRY(sl_group_axes(self, "*", &worker->world));
    SL_TRY(sl_pipeline_plan(&worker->pipeline, self, &options, &worker->model, &worker->parameters));
    sl_parameters_layout(&worker->parameters, 1, 0, false);
    sl_parameters_plan_bytes(&worker->parameters, &worker->run->watch[self->coordinate].planned);
    sl_pipeline_plan_bytes(worker->pipeline, &worker->run->watch[self->coordinate].planned);
    SL_TRY(sl_parameters_take(&worker->parameters, &self->error));
    SL_TRY(sl_import(self, &worker->world, &worker->parameters, SL_VALUES, &run->network->values));
    return sl_pipeline_open(worker->pipeline);
}

/* Collects the results at coordinate 0, which has the gradient of the batch, and receives the last stage's outputs
 * and all other gradients. */
static int collect(struct worker *worker, struct sl_spmd *self) {
    struct gpipe_run *run = worker->run;
    const int axis = sl_mesh_find_axis(self->mesh, GPIPE_PIPE_AXIS);
    const int last = axis < 0 ? 0 : sl_mesh_neighbour(self->mesh, 0, axis, self->mesh->axis[axis].size - 1);
    const size_t count = outputs_of(run->network);
    SL_TRY(sl_broadcast(self, &worker->world, SL_F32, worker->outputs, worker->outputs, count, last));
    if (self->coordinate == 0) {
        sl_device.copy(run->outputs, worker->outputs, count * sizeof *run->outputs);
        sl_device.copy(run->batch_gradient, worker->batch_gradient,
                       inputs_of(run->network) * sizeof *run->batch_gradient);
    }
    return sl_export(self, &worker->world, &worker->parameters, SL_GRADIENTS, 1.0f, &run->gradients);
}

static int pass(struct worker *worker, struct sl_spmd *self) {
    struct gpipe_run *run = worker->run;
    struct sl_watch *watch = &run->watch[self->coordinate];
    struct sl_pipeline_step step = {.batch = {.rows = run->network->batch, .inputs = run->network->inputs},
                                    .weight = 1.0f, /* the loss is the sum over microbatches, as in the article */
                                    .profile = &watch->profile,
                                    .trace = run->trace ? sl_trace_file_of(run->trace, self) : NULL};
    SL_TRY(build(worker, self));
    SL_TRY(plan(worker, self));
    sl_watch_begin(watch, self, NULL);
    const double began = sl_now();
    SL_TRY(sl_pipeline_train(worker->pipeline, &step));
    sl_watch_end(watch, NULL);
    if (run->trace && self->coordinate == 0) sl_trace_file_step(run->trace, 0, began, sl_now(), NAN);
    return collect(worker, self);
}

static int program(struct sl_spmd *self, void *arg) {
    struct worker worker = {.run = arg};
    int status = pass(&worker, self);
    if (status == SL_OK) status = sl_gather_records(self, worker.run->watch, sizeof *worker.run->watch);
    if (status == SL_OK && worker.run->trace) status = sl_gather_traces(self, worker.run->trace->trace);
    sl_pipeline_close(worker.pipeline);
    sl_parameters_close(&worker.parameters);
    sl_module_free(worker.stage);
    sl_module_free(worker.model.loss);
    sl_device.give(worker.outputs);
    sl_device.give(worker.batch_gradient);
    return status;
}

int gpipe_pass(struct gpipe_run *run, const struct sl_engine *engine) {
    return sl_run(&run->on, engine, run->queues ? gpipe_fit : program, run);
}
