/* worker.c - one coordinate's part of the transformer: trainer, batches, evaluation; and how parameters are
 * sharded. */
#include <stdlib.h>
#include <string.h>

#include "drivers/transformer/transformer.h"

int transformer_open_worker(struct transformer_worker *worker, struct sl_spmd *self, struct transformer_job *job) {
    const struct transformer_config *config = job->config;
    const bool generates = job->command == TRANSFORMER_GENERATE;
    const int sequence = generates ? 1 : config->sequence;
    const size_t tokens = (size_t)job->local * (size_t)sequence;
    struct sl_trainer_options options = {
        .pipeline = {.rules = sl_transformer_rules(&job->model),
                     .axis = sl_pipe_axis,
                     .group_axes = sl_transformer_axes,
                     .schedule = &job->schedule,
                     .gemm = job->gemm,
                     .precision = job->precision,
                     .slots = job->slots,
                     .rows = job->rows,
                     .sequence = sequence,
                     .forward_only = job->command != TRANSFORMER_TRAIN,
                     .wgrad_group = job->wgrad_group},
        .data_axis = sl_data_axis,
        .adamw = sl_adamw_defaults((float)config->learning_rate),
        .clip = (float)config->clip,
        .accumulate = config->accumulate,
        .zero = config->zero,
        .overlap = config->overlap,
        .seed = config->common.seed,
    };
    *worker = (struct transformer_worker){.job = job, .self = self};
    options.adamw.decay = (float)config->decay;
    options.adamw.exact = true;
    worker->inputs = calloc(tokens, sizeof *worker->inputs);
    worker->labels = calloc(tokens, sizeof *worker->labels);
    if (!worker->inputs || !worker->labels) return sl_fail(self, SL_FAILED, "no memory for %zu tokens", tokens);
    SL_TRY(sl_transformer_build(&job->model, self->mesh, &job->schedule, sl_axis_index(self, sl_pipe_axis), sequence,
                                &worker->model, &self->error));
    SL_TRY(sl_trainer_plan(&worker->trainer, self, &options, &worker->model));
    if (config->dry_run || config->show_shardings) return SL_OK;
    return sl_trainer_open(worker->trainer, config->params ? &job->params : NULL);
}

void transformer_close_worker(struct transformer_worker *worker) {
    sl_trainer_close(worker->trainer);
    sl_transformer_free(&worker->model);
    free(worker->inputs);
    free(worker->labels);
}

int transformer_fetch(struct transformer_worker *worker, bool evaluation, int64_t first, struct sl_batch *batch) {
    const struct transformer_job *job = worker->job;
    const int64_t own = first + (int64_t)sl_axis_index(worker->self, sl_data_axis) * job->local;
    const int status = sl_tokens_fetch(&job->tokens, evaluation, job->config->common.seed, own, job->local,
                                       job->config->sequence, worker->inputs, worker->labels, &worker->self->error);
    *batch = (struct sl_batch){.tokens = worker->inputs, .labels = worker->labels};
    return status;
}

int transformer_mean_loss(struct transformer_worker *worker, int count, double *loss) {
    double sum = 0, rows = 0;
    for (int b = 0; b < count; b++) {
        struct sl_batch batch;
        struct sl_metrics metrics;
        SL_TRY(transformer_fetch(worker, true, (int64_t)b * worker->job->config->batch, &batch));
        SL_TRY(sl_trainer_evaluate(worker->trainer, &batch, &metrics));
        sum += metrics.loss;
        rows += metrics.rows;
    }
    *loss = sum / rows;
    return SL_OK;
}

int transformer_evaluate_program(struct sl_spmd *self, void *arg) {
    struct transformer_job *job = arg;
    struct transformer_worker worker;
    double loss = 0;
    int status = transformer_open_worker(&worker, self, job);
    if (status == SL_OK) status = transformer_mean_loss(&worker, job->config->evaluate_batches, &loss);
    if (self->coordinate == 0) job->evaluation_loss = loss;
    transformer_close_worker(&worker);
    return status;
}

/* ---- how parameters are sharded ---- */

static int print_sharding(struct transformer_job *job, const struct sl_parameter *parameter, int stage_rank,
                          struct sl_error *error) {
    static const struct sl_column column[] = {
        {"parameter", -36}, {"shape", -14}, {"sharded over", -16}, {"a coordinate has", -18}, {"pipe", 5}};
    char shape[64] = "", shard[64] = "", spec[128];
    size_t local[SL_MAX_DIMS];
    json_t *global_dims = json_array(), *local_dims = json_array();
    SL_TRY(sl_spec_local_shape(&parameter->spec, &job->mesh, parameter->dims, parameter->shape, local, error));
    for (int d = 0; d < parameter->dims; d++) {
        snprintf(shape + strlen(shape), sizeof shape - strlen(shape), d ? ", %zu" : "%zu", parameter->shape[d]);
        snprintf(shard + strlen(shard), sizeof shard - strlen(shard), d ? ", %zu" : "%zu", local[d]);
        json_array_append_new(global_dims, json_integer((json_int_t)parameter->shape[d]));
        json_array_append_new(local_dims, json_integer((json_int_t)local[d]));
    }
    sl_spec_print(&parameter->spec, spec, sizeof spec);
    json_t *object = json_pack("{ss so so ss si}", "parameter", parameter->name, "shape", global_dims, "shard",
                               local_dims, "spec", spec, "pipe", stage_rank);
    if (job->config->common.json) return sl_json_print(stdout, "stdout", object, error);
    json_decref(object);
    if (!job->table.stream) sl_table_begin(&job->table, stdout, 5, column);
    sl_table_cell(&job->table, "%s", parameter->name);
    sl_table_cell(&job->table, "[%s]", shape);
    sl_table_cell(&job->table, "%s", *spec ? spec : "-");
    sl_table_cell(&job->table, "[%s]", shard);
    sl_table_cell(&job->table, "%d", stage_rank);
    return SL_OK;
}

/* The first coordinate of each rank tells coordinate 0 what it has. */
int transformer_shardings_program(struct sl_spmd *self, void *arg) {
    struct transformer_job *job = arg;
    struct transformer_worker worker;
    int status = transformer_open_worker(&worker, self, job);
    const int axis = sl_mesh_find_axis(self->mesh, sl_pipe_axis);
    for (int rank = 0; status == SL_OK && rank < job->pipe; rank++) {
        const struct sl_parameters *parameters = sl_trainer_parameters(worker.trainer);
        const struct sl_group *world = sl_trainer_world(worker.trainer);
        const int from = sl_mesh_neighbour(self->mesh, 0, axis, rank);
        int32_t count = parameters->count;
        status = sl_broadcast(self, world, SL_I32, &count, &count, 1, from);
        for (int i = 0; status == SL_OK && i < count; i++) {
            struct sl_parameter parameter = {0};
            if (self->coordinate == from) parameter = parameters->list[i];
            status =
                sl_broadcast(self, world, SL_I32, &parameter, &parameter, sizeof parameter / sizeof(int32_t), from);
            if (status == SL_OK && self->coordinate == 0 && !parameter.second)
                status = print_sharding(job, &parameter, rank, &self->error);
        }
    }
    transformer_close_worker(&worker);
    return status;
}
