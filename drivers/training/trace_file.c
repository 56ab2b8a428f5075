/* trace_file.c - collects traces and writes them as Chrome trace events. */
#include "drivers/training/trace_file.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "drivers/common/metrics.h"
#include "drivers/common/output.h"

enum { MAX_EVENTS = 1 << 19 }; /* of a coordinate */

static int index_along(const struct sl_job *job, int coordinate, int axis) {
    return sl_mesh_index(&job->mesh, coordinate, sl_mesh_find_axis(&job->mesh, sl_job_axis(job, axis)));
}

/* Pipelines are counted along all axes but their own, the last one fastest. */
static int pipeline_of(const struct sl_job *job, int coordinate) {
    const struct sl_mesh *mesh = &job->mesh;
    int pipeline = 0;
    for (int a = 0; a < mesh->axes; a++)
        if (strcmp(mesh->axis[a].name, sl_job_axis(job, SL_JOB_PIPE)) != 0)
            pipeline = pipeline * mesh->axis[a].size + sl_mesh_index(mesh, coordinate, a);
    return pipeline;
}

/* What a step leaves: each action may wait and work, a loop is weighed, reduced, used. */
static int64_t events_a_step(const struct sl_job *job, int rank) {
    const struct sl_schedule *schedule = &job->schedule;
    const int64_t weights = 2 * (int64_t)schedule->loops * (schedule->microbatches + 4);
    return job->options->accumulate * (2 * (int64_t)schedule->rank[rank].count + weights) + 8;
}

int sl_trace_file_open(struct sl_trace_file *file, const struct sl_job *job, int64_t steps, struct sl_error *error) {
    const struct sl_mesh *mesh = &job->mesh;
    *file = (struct sl_trace_file){0};
    for (int c = 0; c < mesh->size; c++) {
        const int rank = index_along(job, c, SL_JOB_PIPE);
        const int64_t wanted = steps * events_a_step(job, rank);
        struct sl_trace *trace = &file->trace[c];
        trace->capacity = (int)(wanted < MAX_EVENTS ? wanted : MAX_EVENTS);
        trace->event = calloc((size_t)trace->capacity, sizeof *trace->event);
        if (!trace->event) return sl_error_set(error, SL_FAILED, "no memory for a trace of %d events", trace->capacity);
    }
    return SL_OK;
}

int sl_trace_file_create(struct sl_trace_file *file, const char *path, struct sl_error *error) {
    file->path = path;
    return sl_output_file("--trace", path, false, &file->stream, error);
}

struct sl_trace *sl_trace_file_of(struct sl_trace_file *file, struct sl_spmd *self) {
    struct sl_trace *trace = &file->trace[self->coordinate];
    trace->self = self;
    if (self->coordinate == 0) file->divided = self->divides;
    return trace;
}

/* ---- writing ---- */

static const char *const category[SL_TRACE_WORKS] = {"compute", "communication", "reduce", "waiting", "optimizer"};

static double first_time(const struct sl_trace_file *file, int coordinates) {
    double first = 0;
    for (int c = 0; c < coordinates; c++) {
        const struct sl_trace *trace = &file->trace[c];
        if (trace->count && (first == 0 || trace->event[0].begin < first)) first = trace->event[0].begin;
    }
    return first;
}

/* "4F0", "4W0-7" for compute; what the executor calls it for the rest. */
static void name_event(const struct sl_trace_event *event, char *name, size_t size) {
    if (event->work == SL_TRACE_WAITING)
        snprintf(name, size, "waiting");
    else if (event->work != SL_TRACE_COMPUTE)
        snprintf(name, size, "%s", event->name);
    else if (event->count == 1)
        snprintf(name, size, "%d%s%d", event->stage, event->name, event->microbatch);
    else
        snprintf(name, size, "%d%s%d-%d", event->stage, event->name, event->microbatch,
                 event->microbatch + event->count - 1);
}

static json_t *object_of(const struct sl_trace_event *event, const struct sl_job *job, int coordinate, double first) {
    char name[64];
    name_event(event, name, sizeof name);
    const int row = event->work == SL_TRACE_REDUCE ? job->mesh.size + coordinate : coordinate;
    json_t *args = json_pack("{si si si si}", "step", event->step, "rank", index_along(job, coordinate, SL_JOB_PIPE),
                             "loop", event->loop, "data", index_along(job, coordinate, SL_JOB_DATA));
    if (args && job->mesh.axes > 2) json_object_set_new(args, "pipeline", json_integer(pipeline_of(job, coordinate)));
    if (args && event->stage >= 0) {
        json_object_set_new(args, "stage", json_integer(event->stage));
        json_object_set_new(args, "microbatch", json_integer(event->microbatch));
        json_object_set_new(args, "count", json_integer(event->count));
    }
    if (args && event->transfer > 0) json_object_set_new(args, "transfer", json_real(1e6 * event->transfer));
    if (args && event->no_core > 0) json_object_set_new(args, "no_core", json_real(1e6 * event->no_core));
    return json_pack("{ss ss ss sf sf si si so*}", "name", name, "cat", category[event->work], "ph", "X", "ts",
                     1e6 * (event->begin - first), "dur", 1e6 * (event->end - event->begin), "pid", 0, "tid", row,
                     "args", args);
}

static json_t *row_name(const char *name, int row) {
    return json_pack("{ss ss si si s{ss}}", "name", "thread_name", "ph", "M", "pid", 0, "tid", row, "args", "name",
                     name);
}

static int write_object(struct sl_trace_file *file, json_t *object, const char *after, struct sl_error *error) {
    const bool written = object && !json_dumpf(object, file->stream, JSON_COMPACT | JSON_REAL_PRECISION(12)) &&
                         fputs(after, file->stream) >= 0;
    json_decref(object);
    return written ? SL_OK : sl_error_set(error, SL_FAILED, "cannot write %s: %s", file->path, strerror(errno));
}

static int write_rows(struct sl_trace_file *file, const struct sl_job *job, struct sl_error *error) {
    const struct sl_mesh *mesh = &job->mesh;
    for (int c = 0; c < mesh->size; c++) {
        char name[160], both[200];
        sl_mesh_describe(mesh, c, name, sizeof name);
        SL_TRY(write_object(file, row_name(name, c), ",\n", error));
        snprintf(both, sizeof both, "reductions of %s", name);
        if (job->data > 1) SL_TRY(write_object(file, row_name(both, mesh->size + c), ",\n", error));
    }
    return SL_OK;
}

static json_t *schedule_of(const struct sl_job *job, int64_t dropped, bool divided) {
    const struct sl_schedule *schedule = &job->schedule;
    return json_pack("{ss si si si si sb si sI sf si si sb}", "schedule", schedule->name, "ranks", schedule->ranks,
                     "loops", schedule->loops, "microbatches", schedule->microbatches, "wgrad_group", job->wgrad_group,
                     "overlap", job->options->overlap, "passes", job->options->accumulate, "dropped_events",
                     (json_int_t)dropped, "delay_ms", job->options->delay_ms, "coordinates", job->mesh.size, "cores",
                     job->cores, "divided", divided);
}

int sl_trace_file_write(struct sl_trace_file *file, const struct sl_job *job, struct sl_error *error) {
    const struct sl_mesh *mesh = &job->mesh;
    const double first = first_time(file, mesh->size);
    int64_t dropped = 0;
    fputs("{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n", file->stream);
    SL_TRY(write_rows(file, job, error));
    for (int c = 0; c < mesh->size; c++) {
        const struct sl_trace *trace = &file->trace[c];
        for (int i = 0; i < trace->count; i++)
            SL_TRY(write_object(file, object_of(&trace->event[i], job, c, first), ",\n", error));
        dropped += trace->dropped;
    }
    SL_TRY(
        write_object(file, json_pack("{ss ss si}", "name", "end", "ph", "M", "pid", 0), "\n],\"shardloop\":", error));
    SL_TRY(write_object(file, schedule_of(job, dropped, file->divided), "}\n", error));
    FILE *stream = file->stream;
    file->stream = NULL;
    if (fclose(stream)) return sl_error_set(error, SL_FAILED, "cannot write %s: %s", file->path, strerror(errno));
    return SL_OK;
}

void sl_trace_file_free(struct sl_trace_file *file) {
    if (file->stream) fclose(file->stream);
    for (int c = 0; c < SL_MAX_COORDINATES; c++) free(file->trace[c].event);
}
