/* shardings_report.c - plans, and tells names, shapes and specs. */
#include "drivers/training/shardings_report.h"

#include <stdio.h>
#include <string.h>

#include "drivers/common/metrics.h"

struct report {
    struct sl_job *job;
    bool json;
    struct sl_column column[5];
    struct sl_table table;
};

/* Writes "16, 4" for people, and the list for JSON. */
static void write_shape(int dims, const size_t *shape, char *text, size_t size, json_t *list) {
    text[0] = 0;
    for (int d = 0; d < dims; d++) {
        snprintf(text + strlen(text), size - strlen(text), d ? ", %zu" : "%zu", shape[d]);
        json_array_append_new(list, json_integer((json_int_t)shape[d]));
    }
}

static int print_parameter(struct report *report, const struct sl_parameter *parameter, int rank,
                           struct sl_error *error) {
    char shape[64], shard[64], spec[128];
    size_t local[SL_MAX_DIMS];
    SL_TRY(sl_spec_local_shape(&parameter->spec, &report->job->mesh, parameter->dims, parameter->shape, local, error));
    json_t *global_dims = json_array(), *local_dims = json_array();
    write_shape(parameter->dims, parameter->shape, shape, sizeof shape, global_dims);
    write_shape(parameter->dims, local, shard, sizeof shard, local_dims);
    sl_spec_print(&parameter->spec, spec, sizeof spec);
    json_t *object = json_pack("{ss so so ss si}", "parameter", parameter->name, "shape", global_dims, "shard",
                               local_dims, "spec", spec, sl_job_axis(report->job, SL_JOB_PIPE), rank);
    if (report->json) return sl_json_print(stdout, "stdout", object, error);
    json_decref(object);
    if (!report->table.stream) sl_table_begin(&report->table, stdout, 5, report->column);
    sl_table_cell(&report->table, "%s", parameter->name);
    sl_table_cell(&report->table, "[%s]", shape);
    sl_table_cell(&report->table, "%s", *spec ? spec : "-");
    sl_table_cell(&report->table, "[%s]", shard);
    sl_table_cell(&report->table, "%d", rank);
    return SL_OK;
}

/* Coordinate FROM, the first one of RANK, tells coordinate 0 what it has. */
static int tell(struct sl_worker *worker, struct report *report, int rank, int from) {
    struct sl_spmd *self = worker->self;
    const struct sl_parameters *parameters = sl_trainer_parameters(worker->trainer);
    const struct sl_group *world = sl_trainer_world(worker->trainer);
    int32_t count = parameters->count;
    SL_TRY(sl_broadcast(self, world, SL_I32, &count, &count, 1, from));
    for (int i = 0; i < count; i++) {
        struct sl_parameter parameter = {0};
        if (self->coordinate == from) parameter = parameters->list[i];
        SL_TRY(sl_broadcast(self, world, SL_I32, &parameter, &parameter, sizeof parameter / sizeof(int32_t), from));
        if (self->coordinate == 0 && !parameter.second) SL_TRY(print_parameter(report, &parameter, rank, &self->error));
    }
    return SL_OK;
}

static int program(struct sl_spmd *self, void *arg) {
    struct report *report = arg;
    struct sl_worker worker;
    int status = sl_worker_plan(&worker, self, report->job);
    const int axis = sl_mesh_find_axis(self->mesh, sl_job_axis(report->job, SL_JOB_PIPE));
    for (int rank = 0; status == SL_OK && rank < report->job->ranks; rank++)
        status = tell(&worker, report, rank, sl_mesh_neighbour(self->mesh, 0, axis, rank));
    sl_worker_close(&worker);
    return status;
}

int sl_shardings_report(struct sl_job *job, const struct sl_engine *engine, bool json) {
    struct report report = {.job = job,
                            .json = json,
                            .column = {{"parameter", -36},
                                       {"shape", -14},
                                       {"sharded over", -16},
                                       {"a coordinate has", -18},
                                       {sl_job_axis(job, SL_JOB_PIPE), 5}}};
    return sl_run(&job->mesh, engine, program, &report);
}
