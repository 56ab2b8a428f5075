/* stream.c - an evaluation as a stream through the pipeline: the coordinates' times, measured and simulated. */
#include <math.h>
#include <stdlib.h>

#include "collectives/collectives.h"
#include "drivers/transformer/transformer.h"
#include "layers/training/exchange.h"
#include "spmd/schedule/simulate.h"

/* Numbers of a record, in ms from the common beginning; then, per loop, the mean time of a microbatch. */
enum {
    FIRST,
    LAST,
    BUSY,
    MESSAGE,
    NUMBERS
}; /* begin of the first forward, end of the last; sum of all; mean message */

struct transformer_watch {
    struct sl_worker *worker;
    struct sl_trace trace;           /* of a pass */
    double began, first, last, busy; /* on sl_now's clock; seconds */
    double messages, sent;           /* total seconds of messages, and their number */
    double *forwards, *computed;     /* [loops]: seconds, and number of microbatches */
};

static int loops_of(const struct transformer_job *job) { return job->job.schedule.loops; }

static double *record_of(const struct transformer_job *job, int coordinate) {
    return job->stream.record + (size_t)coordinate * (size_t)(NUMBERS + loops_of(job));
}

/* ---- the job's records ---- */

int transformer_open_stream(struct transformer_job *job, struct sl_error *error) {
    const size_t numbers = (size_t)(NUMBERS + loops_of(job)), coordinates = (size_t)job->job.mesh.size;
    const int64_t batch = job->job.options->batch, batches = (transformer_scored(job) + batch - 1) / batch;
    job->stream.passes = (double)batches * job->job.passes;
    job->stream.record = calloc(coordinates * numbers, sizeof *job->stream.record);
    return job->stream.record ? SL_OK : sl_error_set(error, SL_FAILED, "no memory for %zu records", coordinates);
}

void transformer_close_stream(struct transformer_job *job) { free(job->stream.record); }

/* ---- every coordinate ---- */

int transformer_open_watch(struct transformer_watch **watch, struct sl_worker *worker) {
    const struct transformer_job *job = transformer_job_of(worker);
    const size_t loops = (size_t)loops_of(job);
    struct sl_spmd *self = worker->self;
    struct transformer_watch *w = *watch = calloc(1, sizeof *w);
    if (!w) return sl_fail(self, SL_FAILED, "no memory for a trace");
    const int rank = sl_axis_index(self, sl_pipe_axis);
    w->worker = worker;
    w->trace.self = self;
    w->trace.whole = true;
    w->trace.capacity = 2 * job->job.schedule.rank[rank].count; /* an action, and the wait before it */
    w->trace.event = calloc((size_t)w->trace.capacity, sizeof *w->trace.event);
    w->forwards = calloc(2 * loops, sizeof *w->forwards);
    if (!w->trace.event || !w->forwards) return sl_fail(self, SL_FAILED, "no memory for a trace");
    w->computed = w->forwards + loops;
    self->timed = true;
    SL_TRY(sl_barrier(self, sl_trainer_world(worker->trainer)));
    w->began = sl_now();
    return SL_OK;
}

void transformer_close_watch(struct transformer_watch *w) {
    if (!w) return;
    w->worker->self->timed = false;
    free(w->trace.event);
    free(w->forwards);
    free(w);
}

struct sl_trace *transformer_trace_of(struct transformer_watch *watch) { return watch ? &watch->trace : NULL; }

/* Adds a forward; only time with a core counts. */
static void add_forward(struct transformer_watch *w, const struct sl_trace_event *event) {
    const double time = event->end - event->begin - event->no_core;
    if (w->busy == 0) w->first = event->begin;
    w->last = event->end;
    w->busy += time;
    w->forwards[event->loop] += time;
    w->computed[event->loop] += event->count;
}

void transformer_watch_pass(struct transformer_watch *w) {
    if (!w) return;
    for (int i = 0; i < w->trace.count; i++) {
        const struct sl_trace_event *event = &w->trace.event[i];
        if (event->work == SL_TRACE_COMPUTE) add_forward(w, event);
        if (event->work != SL_TRACE_COMMUNICATION) continue;
        w->messages += event->end - event->begin - event->no_core;
        w->sent += 0.5; /* counted by sender and receiver */
    }
    w->trace.count = 0;
}

int transformer_gather_watches(const struct transformer_watch *w) {
    const struct transformer_job *job = transformer_job_of(w->worker);
    struct sl_spmd *self = w->worker->self;
    double *record = record_of(job, self->coordinate);
    record[FIRST] = 1e3 * (w->first - w->began);
    record[LAST] = 1e3 * (w->last - w->began);
    record[BUSY] = 1e3 * w->busy;
    record[MESSAGE] = w->sent > 0 ? 1e3 * w->messages / w->sent : 0;
    for (int l = 0; l < loops_of(job); l++) record[NUMBERS + l] = 1e3 * w->forwards[l] / w->computed[l];
    return sl_gather_records(self, job->stream.record, (size_t)(NUMBERS + loops_of(job)) * sizeof *record);
}

/* ---- results ---- */

/* Computes the measured times, from the begin of the first forward. */
static void measure(struct transformer_job *job) {
    const int coordinates = job->job.mesh.size;
    double begin = INFINITY, end = 0, all_begun = 0, first_end = INFINITY, busy = 0;
    for (int c = 0; c < coordinates; c++) {
        const double *record = record_of(job, c);
        begin = fmin(begin, record[FIRST]);
        end = fmax(end, record[LAST]);
        all_begun = fmax(all_begun, record[FIRST]);
        first_end = fmin(first_end, record[LAST]);
        busy += record[BUSY];
    }
    job->stream.measured = (struct transformer_times){.all = end - begin,
                                                      .ramp_up = all_begun - begin,
                                                      .ramp_down = end - first_end,
                                                      .utilization = busy / coordinates / (end - begin)};
}

/* Fills in COSTS: a stage's cost is its mean over the coordinates that have it. */
static void find_costs(const struct transformer_job *job, struct sl_costs *costs, struct sl_stage_costs *stage) {
    const struct sl_schedule *schedule = &job->job.schedule;
    const struct sl_mesh *mesh = &job->job.mesh;
    const int axis = sl_mesh_find_axis(mesh, sl_pipe_axis);
    const double copies = (double)mesh->size / schedule->ranks;
    *costs = (struct sl_costs){.count = sl_schedule_stages(schedule), .stage = stage};
    for (int c = 0; c < mesh->size; c++) {
        const double *record = record_of(job, c);
        const int rank = axis < 0 ? 0 : sl_mesh_index(mesh, c, axis);
        for (int l = 0; l < schedule->loops; l++)
            stage[sl_schedule_stage(schedule, rank, l)].forward += record[NUMBERS + l] / copies;
        costs->communication += record[MESSAGE] / mesh->size;
    }
    if (job->job.sharing.cores == 0 || job->job.sharing.coordinates < schedule->ranks) return;
    costs->cores = job->job.sharing.cores;
    costs->coordinates = job->job.sharing.coordinates;
}

/* Returns the busy time of the busiest rank per pass. */
static double busiest(const struct sl_simulation *simulation, int passes) {
    double most = 0;
    for (int r = 0; r < simulation->ranks; r++)
        most = fmax(most, simulation->rank[r].busy + simulation->rank[r].starved);
    return most / passes;
}

/* Returns the times of a simulation of PASSES passes. The remaining passes are added in the middle, at the pace of
 * the busiest rank. */
static struct transformer_times times_of(const struct sl_simulation *simulation, int passes, double all) {
    double all_begun = 0, first_end = INFINITY, busy = 0;
    for (int r = 0; r < simulation->ranks; r++) {
        double begin = INFINITY;
        for (int i = 0; i < simulation->count; i++)
            if (simulation->event[i].rank == r) begin = fmin(begin, simulation->event[i].begin);
        all_begun = fmax(all_begun, begin);
        first_end = fmin(first_end, simulation->rank[r].end);
        busy += simulation->rank[r].busy * all / passes;
    }
    const double span = simulation->span + (all - passes) * busiest(simulation, passes);
    return (struct transformer_times){.all = span,
                                      .ramp_up = all_begun,
                                      .ramp_down = simulation->span - first_end,
                                      .utilization = busy / simulation->ranks / span};
}

static int simulate(struct transformer_job *job, const struct sl_costs *costs, int passes, struct sl_error *error) {
    struct sl_schedule stream;
    struct sl_simulation simulation;
    SL_TRY(sl_schedule_stream(&stream, &job->job.schedule, passes, error));
    int status = sl_schedule_check(&stream, job->job.slots, 1, NULL, error);
    if (status == SL_OK) status = sl_schedule_simulate(&stream, costs, &simulation, error);
    sl_schedule_free(&stream);
    if (status) return status;
    job->stream.simulated = times_of(&simulation, passes, job->stream.passes);
    sl_simulation_free(&simulation);
    return SL_OK;
}

int transformer_judge_stream(struct transformer_job *job, struct sl_error *error) {
    enum { MOST_CELLS = 1 << 14 }; /* limit of simulated forwards */
    const int stages = sl_schedule_stages(&job->job.schedule);
    const double most = MOST_CELLS / stages / job->job.schedule.microbatches;
    struct sl_stage_costs *stage = calloc((size_t)stages, sizeof *stage);
    struct sl_costs costs;
    if (!stage) return sl_error_set(error, SL_FAILED, "no memory for the costs of %d stages", stages);
    measure(job);
    find_costs(job, &costs, stage);
    const int status = simulate(job, &costs, (int)fmax(1, fmin(most, job->stream.passes)), error);
    free(stage);
    return status;
}

/* ---- report ---- */

double transformer_sequences_per_second(const struct transformer_job *job) {
    return 1e3 * (double)transformer_scored(job) / job->stream.measured.all;
}

static void print_times(const struct transformer_times *times) {
    printf("%.1f ms, ramp-up %.1f, ramp-down %.1f, utilization %.0f %%", times->all, times->ramp_up, times->ramp_down,
           100 * times->utilization);
}

void transformer_print_stream(const struct transformer_job *job) {
    printf("%.3g sequences/s: ", transformer_sequences_per_second(job));
    print_times(&job->stream.measured);
    printf("; simulated: ");
    print_times(&job->stream.simulated);
    putchar('\n');
}

json_t *transformer_json_times(const struct transformer_times *times) {
    return json_pack("{so so so so}", "ms", sl_json_real(times->all), "ramp_up_ms", sl_json_real(times->ramp_up),
                     "ramp_down_ms", sl_json_real(times->ramp_down), "utilization", sl_json_real(times->utilization));
}
