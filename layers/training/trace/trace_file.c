/* trace_file.c - collects traces and writes them as Chrome trace events. */
#include "layers/training/trace/trace_file.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "layers/training/trace/trace_arrows.h"
#include "layers/training/update.h"
#include "spmd/base/file.h"

enum { MAX_EVENTS = 1 << 19 }; /* of a coordinate */

/* The coordinate's index along the axis called NAME; 0 if the mesh has no such axis. */
static int index_along(const struct sl_trace_run *run, int coordinate, const char *name) {
    const int axis = sl_mesh_find_axis(run->mesh, name);
    return axis < 0 ? 0 : sl_mesh_index(run->mesh, coordinate, axis);
}

/* Most events of a step: each action may wait and work; a loop computes weight gradients, reduces and updates. */
static int64_t events_a_step(const struct sl_trace_run *run, int rank) {
    const struct sl_schedule *schedule = run->schedule;
    const int64_t weights = 2 * (int64_t)schedule->loops * (schedule->microbatches + 4);
    const int64_t moves = run->moves * schedule->microbatches;
    return run->passes * (2 * (int64_t)schedule->rank[rank].count + weights + moves) + 8;
}

int sl_trace_file_open(struct sl_trace_file *file, const struct sl_trace_run *run, int64_t steps,
                       struct sl_error *error) {
    const struct sl_mesh *mesh = run->mesh;
    const int64_t most_steps = steps < MAX_EVENTS ? steps : MAX_EVENTS;
    *file =
        (struct sl_trace_file){.run = *run, .path = file->path, .stream = file->stream, .capacity = (int)most_steps};
    file->step = calloc((size_t)most_steps, sizeof *file->step);
    file->trace = calloc((size_t)mesh->size, sizeof *file->trace);
    if (!file->step || !file->trace)
        return sl_error_set(error, SL_FAILED, "no memory for a trace of %d steps", file->capacity);
    file->coordinates = mesh->size;
    for (int c = 0; c < mesh->size; c++) {
        const int rank = index_along(run, c, run->pipe_axis);
        const int64_t wanted = steps * events_a_step(run, rank);
        struct sl_trace *trace = &file->trace[c];
        trace->capacity = (int)(wanted < MAX_EVENTS ? wanted : MAX_EVENTS);
        trace->event = calloc((size_t)trace->capacity, sizeof *trace->event);
        if (!trace->event) return sl_error_set(error, SL_FAILED, "no memory for a trace of %d events", trace->capacity);
    }
    return SL_OK;
}

int sl_trace_file_create(struct sl_trace_file *file, const char *option, const char *path, struct sl_error *error) {
    const char *reason;
    file->path = path;
    file->stream = sl_file_write(path, false, SL_FILE_REGULAR | SL_FILE_PIPE | SL_FILE_DEVICE, &reason);
    return file->stream ? SL_OK : sl_error_set(error, SL_BAD_INPUT, "%s: %s: %s", option, path, reason);
}

struct sl_trace *sl_trace_file_of(struct sl_trace_file *file, struct sl_spmd *self) {
    struct sl_trace *trace = &file->trace[self->coordinate];
    trace->self = self;
    self->timed = true;
    if (self->coordinate == 0) file->divided = self->divides;
    return trace;
}

void sl_trace_file_step(struct sl_trace_file *file, int64_t number, double begin, double end, double loss) {
    if (file->steps < file->capacity)
        file->step[file->steps++] = (struct sl_trace_step){.number = number, .begin = begin, .end = end, .loss = loss};
}

/* ---- rows ---- */

/* Chrome's format has processes with threads, which are rows; the kernel uses number 0 of both, so it is not used here.
 * The steps are the first process; each pipeline is one more. Events of a row must not overlap, so concurrent events
 * lie in rows below their coordinate's own. */
enum { STEPS = 1, MAX_ROWS = 1 + 2 * SL_UPDATES_IN_FLIGHT + SL_MOST_UNSHARDED + 1 + SL_MAX_IN_FLIGHT };

static int process_of(const struct sl_trace_run *run, int coordinate) {
    return STEPS + 1 + sl_trace_pipeline_of(run, coordinate);
}

/* Row 0 is the coordinate's own, the others are for reductions, gathers and pieces. */
static int thread_of(const struct sl_trace_run *run, int coordinate, int row) {
    return STEPS + 1 + coordinate + row * run->mesh->size;
}

/* Rows of a coordinate so far. */
struct rows {
    int count;
    double end[MAX_ROWS]; /* end time of the last event in a row below the first */
};

static bool has_row_of_its_own(enum sl_trace_work work) {
    return work == SL_TRACE_REDUCE || work == SL_TRACE_GATHER || work == SL_TRACE_PRODUCT || work == SL_TRACE_MOVE;
}

static int find_row(struct rows *rows, const struct sl_trace_event *event) {
    int row = 1;
    if (!has_row_of_its_own(event->work)) return 0;
    while (row < rows->count && row + 1 < MAX_ROWS && rows->end[row] > event->begin) row++;
    if (row == rows->count) rows->count++;
    rows->end[row] = event->end;
    return row;
}

/* ---- events ---- */

static const char *const category[SL_TRACE_WORKS] = {"compute",   "communication", "reduce",  "waiting",
                                                     "optimizer", "gather",        "product", "move"};

/* Writes the event's name: "4F0", "4W0-7" for compute, "waiting", or the executor's name for other work. */
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

static double microseconds(double time, double first) { return 1e6 * (time - first); }

static json_t *object_of(const struct sl_trace_event *event, const struct sl_trace_run *run, int coordinate, int row,
                         double first) {
    char name[64];
    name_event(event, name, sizeof name);
    json_t *args = json_pack("{si si si si}", "step", event->step, "rank", index_along(run, coordinate, run->pipe_axis),
                             "loop", event->loop, "data", index_along(run, coordinate, run->data_axis));
    if (args && run->mesh->axes > 2)
        json_object_set_new(args, "pipeline", json_integer(sl_trace_pipeline_of(run, coordinate)));
    if (args && event->stage >= 0) {
        json_object_set_new(args, "stage", json_integer(event->stage));
        json_object_set_new(args, "microbatch", json_integer(event->microbatch));
        json_object_set_new(args, "count", json_integer(event->count));
    }
    if (args && event->transfer > 0) json_object_set_new(args, "transfer", json_real(1e6 * event->transfer));
    if (args && event->no_core > 0) json_object_set_new(args, "no_core", json_real(1e6 * event->no_core));
    return json_pack("{ss ss ss sf sf si si so*}", "name", name, "cat", category[event->work], "ph", "X", "ts",
                     microseconds(event->begin, first), "dur", 1e6 * (event->end - event->begin), "pid",
                     process_of(run, coordinate), "tid", thread_of(run, coordinate, row), "args", args);
}

static json_t *object_of_step(const struct sl_trace_step *step, double first) {
    char name[40];
    json_t *loss = isfinite(step->loss) ? json_real(step->loss) : json_null();
    snprintf(name, sizeof name, "step %lld", (long long)step->number);
    return json_pack("{ss ss ss sf sf si si s{sI so}}", "name", name, "cat", "step", "ph", "X", "ts",
                     microseconds(step->begin, first), "dur", 1e6 * (step->end - step->begin), "pid", STEPS, "tid",
                     STEPS, "args", "step", (json_int_t)step->number, "loss", loss);
}

/* One end of arrow number ID: its begin, or the event it points to. */
static json_t *end_of_arrow(const struct sl_trace_arrow *arrow, int id, bool taken, const struct sl_trace_run *run,
                            double first) {
    const int coordinate = taken ? arrow->taker : arrow->sender;
    return json_pack("{ss ss ss ss* si sf si si}", "name", arrow->activation ? "activation" : "gradient", "cat",
                     "message", "ph", taken ? "f" : "s", "bp", taken ? "e" : NULL, "id", id, "ts",
                     microseconds(taken ? arrow->taken : arrow->sent, first), "pid", process_of(run, coordinate), "tid",
                     thread_of(run, coordinate, 0));
}

/* ---- names ---- */

/* Metadata event KIND ("thread_name", "process_sort_index") of a row or process: its NAME, or, if NAME is NULL, its
 * ORDER. */
static json_t *metadata(const char *what, int process, int row, const char *name, int order) {
    json_t *args = name ? json_pack("{ss}", "name", name) : json_pack("{si}", "sort_index", order);
    return json_pack("{ss ss si si so*}", "name", what, "ph", "M", "pid", process, "tid", row, "args", args);
}

/* Writes "pipeline 3 (data=1, tensor=1)": COORDINATE's index along each axis except the pipeline's. */
static void name_pipeline(const struct sl_trace_run *run, int coordinate, char *name, size_t size) {
    const struct sl_mesh *mesh = run->mesh;
    size_t used = (size_t)snprintf(name, size, "pipeline %d", sl_trace_pipeline_of(run, coordinate));
    const char *before = " (";
    for (int a = 0; a < mesh->axes && used < size; a++) {
        if (!strcmp(mesh->axis[a].name, run->pipe_axis)) continue;
        used += (size_t)snprintf(name + used, size - used, "%s%s=%d", before, mesh->axis[a].name,
                                 sl_mesh_index(mesh, coordinate, a));
        before = ", ";
    }
    if (*before == ',' && used < size) snprintf(name + used, size - used, ")");
}

static int write_object(struct sl_trace_file *file, json_t *object, const char *after, struct sl_error *error) {
    const bool written = object && !json_dumpf(object, file->stream, JSON_COMPACT | JSON_REAL_PRECISION(12)) &&
                         fputs(after, file->stream) >= 0;
    json_decref(object);
    return written ? SL_OK : sl_error_set(error, SL_FAILED, "cannot write %s: %s", file->path, strerror(errno));
}

/* Names a row or a process, and sets its position. */
static int write_name(struct sl_trace_file *file, const char *kind, int process, int row, const char *name, int order,
                      struct sl_error *error) {
    char what[40];
    snprintf(what, sizeof what, "%s_name", kind);
    SL_TRY(write_object(file, metadata(what, process, row, name, 0), ",\n", error));
    snprintf(what, sizeof what, "%s_sort_index", kind);
    return write_object(file, metadata(what, process, row, NULL, order), ",\n", error);
}

/* Names the rows of a coordinate; the first rank of a pipeline also names the process. */
static int write_names_of(struct sl_trace_file *file, int c, int rows, struct sl_error *error) {
    const struct sl_trace_run *run = &file->run;
    char own[160], name[200];
    const int process = process_of(run, c);
    if (index_along(run, c, run->pipe_axis) == 0) {
        name_pipeline(run, c, name, sizeof name);
        SL_TRY(write_name(file, "process", process, thread_of(run, c, 0), name, process, error));
    }
    sl_mesh_describe(run->mesh, c, own, sizeof own);
    for (int row = 0; row < rows; row++) {
        if (row)
            snprintf(name, sizeof name, "concurrent work %d of %s", row, own);
        else
            snprintf(name, sizeof name, "%s", own);
        SL_TRY(write_name(file, "thread", process, thread_of(run, c, row), name, c * MAX_ROWS + row, error));
    }
    return SL_OK;
}

/* ---- writing ---- */

static int write_arrows(struct sl_trace_file *file, double first, struct sl_error *error) {
    const struct sl_trace_run *run = &file->run;
    struct sl_trace_arrows arrows;
    int status = sl_trace_arrows_find(&arrows, file->trace, run, error);
    for (int i = 0; i < arrows.count && status == SL_OK; i++) {
        status = write_object(file, end_of_arrow(&arrows.arrow[i], i, false, run, first), ",\n", error);
        if (status == SL_OK)
            status = write_object(file, end_of_arrow(&arrows.arrow[i], i, true, run, first), ",\n", error);
    }
    free(arrows.arrow);
    return status;
}

/* Begin of the earliest event. All events are searched: a gather is listed only when it ends. */
static double first_time(const struct sl_trace_file *file, int coordinates) {
    double first = file->steps ? file->step[0].begin : 0;
    for (int c = 0; c < coordinates; c++) {
        const struct sl_trace *trace = &file->trace[c];
        for (int i = 0; i < trace->count; i++)
            if (first == 0 || trace->event[i].begin < first) first = trace->event[i].begin;
    }
    return first;
}

/* Writes events before arrows: an end of an arrow must find its event. */
static int write_events(struct sl_trace_file *file, struct sl_error *error) {
    const struct sl_trace_run *run = &file->run;
    const double first = first_time(file, run->mesh->size);
    SL_TRY(write_name(file, "process", STEPS, STEPS, "steps", STEPS, error));
    SL_TRY(write_name(file, "thread", STEPS, STEPS, "steps", STEPS, error));
    for (int i = 0; i < file->steps; i++)
        SL_TRY(write_object(file, object_of_step(&file->step[i], first), ",\n", error));
    for (int c = 0; c < run->mesh->size; c++) {
        const struct sl_trace *trace = &file->trace[c];
        struct rows rows = {.count = 1};
        for (int i = 0; i < trace->count; i++) {
            const int row = find_row(&rows, &trace->event[i]);
            SL_TRY(write_object(file, object_of(&trace->event[i], run, c, row, first), ",\n", error));
        }
        SL_TRY(write_names_of(file, c, rows.count, error));
    }
    return write_arrows(file, first, error);
}

static json_t *schedule_of(const struct sl_trace_run *run, int64_t dropped, bool divided) {
    const struct sl_schedule *schedule = run->schedule;
    return json_pack("{ss si si si si sb sb si sb si sI sf si si sb}", "schedule", schedule->name, "ranks",
                     schedule->ranks, "loops", schedule->loops, "microbatches", schedule->microbatches, "run",
                     sl_schedule_run(schedule, SL_FORWARD), "ascends", schedule->ascends, "sharded", schedule->sharded,
                     "wgrad_group", run->wgrad_group, "overlap", run->overlap, "passes", run->passes, "dropped_events",
                     (json_int_t)dropped, "delay_ms", run->delay_ms, "coordinates", run->mesh->size, "cores",
                     run->cores, "divided", divided);
}

int sl_trace_file_write(struct sl_trace_file *file, struct sl_error *error) {
    const struct sl_trace_run *run = &file->run;
    int64_t dropped = 0;
    for (int c = 0; c < run->mesh->size; c++) dropped += file->trace[c].dropped;
    fputs("{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n", file->stream);
    SL_TRY(write_events(file, error));
    SL_TRY(write_object(file, json_pack("{ss ss si}", "name", "end", "ph", "M", "pid", STEPS),
                        "\n],\"shardloop\":", error));
    SL_TRY(write_object(file, schedule_of(run, dropped, file->divided), "}\n", error));
    FILE *stream = file->stream;
    file->stream = NULL;
    if (fclose(stream)) return sl_error_set(error, SL_FAILED, "cannot write %s: %s", file->path, strerror(errno));
    return SL_OK;
}

void sl_trace_file_free(struct sl_trace_file *file) {
    if (file->stream) fclose(file->stream);
    for (int c = 0; c < file->coordinates; c++) free(file->trace[c].event);
    free(file->trace);
    free(file->step);
}
