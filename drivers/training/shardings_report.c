/* shardings_report.c - plans a job, and prints names, shapes and specs of parameters. */
#include "drivers/training/shardings_report.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "drivers/common/metrics.h"

/* Parameters with names that differ only in numbers: "blocks.3.pre_norm.scale" and "blocks.7.pre_norm.scale". */
struct stacked_parameter {
    char name[96]; /* with * for numbers */
    int count;     /* number of parameters */
    int dims;      /* of each parameter */
    size_t shape[SL_MAX_DIMS];
    char spec[128]; /* of each parameter, as printed by sl_spec_print */
};

struct stacked {
    int count, room;
    struct stacked_parameter *parameter; /* in the order of addition */
};

struct report {
    struct sl_job *job;
    bool json;
    struct sl_column column[5];
    struct sl_table table;
    bool stacks;
    struct stacked stacked; /* on coordinate 0 */
};

/* ---- a row for each parameter of each rank ---- */

/* Writes "16, 4" for people, and the numbers to LIST for JSON. */
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

/* ---- a row for all parameters of one name ---- */

enum { ADDED = 3 }; /* possible added axes: ranks, loops, layers of a stage */

/* Writes NAME with * for numbers between dots. */
static void write_pattern(const char *name, char *text, size_t size) {
    size_t used = 0;
    while (*name && used + 1 < size) {
        const bool begins = used == 0 || text[used - 1] == '.';
        const size_t digits = begins ? strspn(name, "0123456789") : 0;
        const bool number = digits && (name[digits] == '.' || !name[digits]);
        text[used++] = number ? '*' : *name;
        name += number ? digits : 1;
    }
    text[used] = 0;
}

/* Adds PARAMETER to the parameters of the same pattern. */
static int add_stacked(struct stacked *stacked, const struct sl_parameter *parameter, struct sl_error *error) {
    struct stacked_parameter added = {.count = 1, .dims = parameter->dims};
    write_pattern(parameter->name, added.name, sizeof added.name);
    for (int i = 0; i < stacked->count; i++) {
        if (strcmp(stacked->parameter[i].name, added.name) != 0) continue;
        stacked->parameter[i].count++;
        return SL_OK;
    }
    memcpy(added.shape, parameter->shape, sizeof added.shape);
    sl_spec_print(&parameter->spec, added.spec, sizeof added.spec);
    if (stacked->count == stacked->room) {
        const int room = stacked->room ? 2 * stacked->room : 32;
        struct stacked_parameter *more = realloc(stacked->parameter, (size_t)room * sizeof *more);
        if (!more) return sl_error_set(error, SL_FAILED, "no memory for parameters' names");
        stacked->parameter = more;
        stacked->room = room;
    }
    stacked->parameter[stacked->count++] = added;
    return SL_OK;
}

/* Computes the axes before the parameter's own; returns their number. */
static int added_axes(const struct stacked_parameter *parameter, const struct sl_job *job, size_t axis[ADDED]) {
    const int stages = job->ranks * job->schedule.loops;
    axis[0] = (size_t)job->ranks;
    if (!strchr(parameter->name, '*')) return 1;
    if (parameter->count % stages) {
        axis[0] = (size_t)parameter->count;
        return 1;
    }
    axis[1] = (size_t)job->schedule.loops;
    axis[2] = (size_t)(parameter->count / stages);
    return ADDED;
}

static int print_array(const struct stacked_parameter *parameter, const struct sl_job *job, bool json,
                       struct sl_table *table, struct sl_error *error) {
    size_t axis[ADDED];
    const int added = added_axes(parameter, job, axis);
    char shape[128] = "", spec[256];
    json_t *dims = json_array();
    snprintf(spec, sizeof spec, "%s", sl_job_axis(job, SL_JOB_PIPE));
    for (int d = 0; d < added + parameter->dims; d++) {
        const size_t size = d < added ? axis[d] : parameter->shape[d - added];
        snprintf(shape + strlen(shape), sizeof shape - strlen(shape), d ? ", %zu" : "%zu", size);
        json_array_append_new(dims, json_integer((json_int_t)size));
        if (d && (d < added || !*parameter->spec)) snprintf(spec + strlen(spec), sizeof spec - strlen(spec), ",-");
    }
    if (*parameter->spec) snprintf(spec + strlen(spec), sizeof spec - strlen(spec), ",%s", parameter->spec);
    json_t *object = json_pack("{ss so ss si}", "parameter", parameter->name, "stacked", dims, "spec", spec, "arrays",
                               parameter->count);
    if (json) return sl_json_print(stdout, "stdout", object, error);
    json_decref(object);
    sl_table_cell(table, "%s", parameter->name);
    sl_table_cell(table, "[%s]", shape);
    sl_table_cell(table, "%s", spec);
    sl_table_cell(table, "%d", parameter->count);
    return SL_OK;
}

/* Prints the parameters with the axes of a library that stacks them: [ranks, loops, layers of a stage, ...] for the
 * parameters of each layer, [ranks, ...] for the parameters of the first and the last layers, which such a library
 * copies to all ranks and masks. If stages differ in their numbers of layers, their parameters have one axis instead
 * of three. */
static int print_stacked(const struct stacked *stacked, const struct sl_job *job, bool json, struct sl_error *error) {
    static const struct sl_column column[] = {{"parameter", -44}, {"stacked", -26}, {"spec", -30}, {"arrays", 7}};
    struct sl_table table;
    if (!json) sl_table_begin(&table, stdout, 4, column);
    for (int i = 0; i < stacked->count; i++) SL_TRY(print_array(&stacked->parameter[i], job, json, &table, error));
    return SL_OK;
}

/* ---- the program ---- */

/* Coordinate FROM, the first one of RANK, sends its parameters to coordinate 0. */
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
        if (self->coordinate != 0 || parameter.second) continue;
        SL_TRY(report->stacks ? add_stacked(&report->stacked, &parameter, &self->error)
                              : print_parameter(report, &parameter, rank, &self->error));
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
    if (status == SL_OK && report->stacks && self->coordinate == 0)
        status = print_stacked(&report->stacked, report->job, report->json, &self->error);
    sl_worker_close(&worker);
    return status;
}

int sl_shardings_report(struct sl_job *job, const struct sl_engine *engine, bool json) {
    struct report report = {.job = job,
                            .json = json,
                            .stacks = job->options->show_shardings == SL_SHARDINGS_STACKED,
                            .column = {{"parameter", -36},
                                       {"shape", -14},
                                       {"sharded over", -16},
                                       {"a coordinate has", -18},
                                       {sl_job_axis(job, SL_JOB_PIPE), 5}}};
    const int status = sl_run(&job->mesh, engine, program, &report);
    free(report.stacked.parameter);
    return status;
}
