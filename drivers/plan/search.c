/* search.c - all ways to lay a job out on its devices, the fastest first.
 *
 * An estimate to compare layouts by: nothing overlaps, a token costs two operations a parameter forward and four
 * backward (recomputation: two more), and devices reach the rate that the job says. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "drivers/plan/plan.h"
#include "spmd/base/memory.h"

struct candidate {
    const char *pipeline;
    struct plan_layout layout;
    int microbatches;
    double memory, bubble, compute, communication;
    bool fits;
};

struct search {
    const struct plan_job *job;
    int devices;
    double batch; /* samples */
    int count, capacity;
    struct candidate *candidate;
};

static double update_seconds(const struct candidate *candidate) {
    return candidate->compute + candidate->communication;
}

/* What fits comes first, then the faster one. */
static int by_merit(const void *left, const void *right) {
    const struct candidate *a = left, *b = right;
    if (a->fits != b->fits) return a->fits ? -1 : 1;
    const double difference = update_seconds(a) - update_seconds(b);
    return (difference > 0) - (difference < 0);
}

static double compute_seconds(const struct search *search, const struct plan_layout *layout) {
    const double passes = layout->trains ? (layout->recompute ? 4 : 3) : 1;
    const double operations =
        2 * passes * plan_count_parameters(search->job, 1, 1) * search->batch * search->job->sequence;
    return operations / (1e12 * search->job->teraflops * search->devices);
}

static double communication_seconds(const struct plan_job *job, const struct candidate *candidate) {
    static const enum plan_along order[] = {PLAN_ALONG_DATA, PLAN_ALONG_STAGES, PLAN_ALONG_TENSOR};
    double seconds = 0;
    for (enum plan_along axis = 0; axis < PLAN_ALONGS; axis++) {
        const struct plan_traffic traffic = plan_traffic_of(job, &candidate->layout, axis, candidate->microbatches);
        const double rate = plan_crosses_nodes(job, &candidate->layout, order, axis) ? job->slow : job->fast;
        seconds += traffic.times * traffic.bytes / (1e9 * rate);
    }
    return seconds;
}

static int add_candidate(struct search *search, const struct candidate *candidate, struct sl_error *error) {
    struct candidate *grown = sl_grow(search->candidate, search->count, &search->capacity, 64, sizeof *grown);
    if (!grown) return sl_error_set(error, SL_FAILED, "no memory to search");
    search->candidate = grown;
    search->candidate[search->count++] = *candidate;
    return SL_OK;
}

/* A layout whose pipeline cannot be made (loops that do not suit it) is none. */
static int try_pipeline(struct search *search, const char *name, struct candidate candidate, struct sl_error *error) {
    struct plan_job job = *search->job;
    struct plan_pipeline pipeline = {0};
    job.stages = candidate.layout.stages;
    job.microbatches = candidate.microbatches;
    job.stage_times = NULL;
    const int status = plan_pipeline_make(&pipeline, &job, name, error);
    if (status == SL_OK) {
        candidate.pipeline = name;
        candidate.layout.trains = pipeline.trains;
        candidate.layout.kept = (double)pipeline.kept / pipeline.schedule.loops;
        candidate.bubble = pipeline.bubble;
    }
    plan_pipeline_free(&pipeline);
    if (status) return status == SL_BAD_INPUT ? SL_OK : status;
    const struct plan_memory memory = plan_memory_of(&job, &candidate.layout);
    candidate.memory = plan_memory_total(&memory);
    candidate.fits = job.capacity == 0 || candidate.memory <= job.capacity * 1024 * 1024 * 1024;
    candidate.compute = compute_seconds(search, &candidate.layout) / (1 - candidate.bubble);
    candidate.communication = communication_seconds(&job, &candidate);
    return add_candidate(search, &candidate, error);
}

static int try_layout(struct search *search, int data, int stages, int tensor, struct sl_error *error) {
    static const char *const training[] = {"grouped", "interleaved"};
    const struct plan_job *job = search->job;
    struct candidate candidate = {.layout = plan_layout_of(job)};
    const double microbatches = search->batch / job->microbatch_size / data;
    if (job->heads % tensor || job->vocabulary % tensor || job->expansion * job->hidden % tensor) return SL_OK;
    if (stages > job->layers || microbatches != floor(microbatches)) return SL_OK;
    candidate.layout.data = data;
    candidate.layout.stages = stages;
    candidate.layout.tensor = tensor;
    candidate.microbatches = (int)microbatches;
    if (job->pipeline) return try_pipeline(search, job->pipeline, candidate, error);
    for (int i = 0; i < 2; i++) SL_TRY(try_pipeline(search, training[i], candidate, error));
    return SL_OK;
}

static const struct plan_field field[] = {{"data", "data", 5, PLAN_FIELD_COUNT},
                                          {"stages", "stages", 6, PLAN_FIELD_COUNT},
                                          {"tensor", "tensor", 6, PLAN_FIELD_COUNT},
                                          {"pipeline", "pipeline", -16, PLAN_FIELD_TEXT},
                                          {"microbatches", "microbatches", 12, PLAN_FIELD_COUNT},
                                          {"memory", "memory", 13, PLAN_FIELD_BYTES},
                                          {"fits", "fits", 4, PLAN_FIELD_TEXT},
                                          {"bubble", "bubble", 7, PLAN_FIELD_SHARE},
                                          {"compute_s", "compute s", 10, PLAN_FIELD_REAL},
                                          {"communication_s", "send s", 10, PLAN_FIELD_REAL},
                                          {"update_s", "update s", 10, PLAN_FIELD_REAL},
                                          {0}};

static int add_row(struct plan_rows *rows, const struct candidate *candidate, struct sl_error *error) {
    const union plan_value value[] = {{.number = candidate->layout.data},       {.number = candidate->layout.stages},
                                      {.number = candidate->layout.tensor},     {.text = candidate->pipeline},
                                      {.number = candidate->microbatches},      {.number = candidate->memory},
                                      {.text = candidate->fits ? "yes" : "no"}, {.number = candidate->bubble},
                                      {.number = candidate->compute},           {.number = candidate->communication},
                                      {.number = update_seconds(candidate)}};
    return plan_rows_add(rows, value, error);
}

int plan_print_search(struct plan_rows *rows, const struct plan_job *job, struct sl_error *error) {
    enum { SHOWN = 16 };
    struct search search = {.job = job,
                            .devices = job->data * job->stages * job->tensor,
                            .batch = (double)job->microbatch_size * job->microbatches * job->data};
    int status = SL_OK;
    for (int data = 1; data <= search.devices && status == SL_OK; data++) {
        if (search.devices % data) continue;
        const int rest = search.devices / data;
        for (int stages = 1; stages <= rest && status == SL_OK; stages++) {
            if (rest % stages == 0) status = try_layout(&search, data, stages, rest / stages, error);
        }
    }
    if (search.count) qsort(search.candidate, (size_t)search.count, sizeof *search.candidate, by_merit);
    if (status == SL_OK) {
        plan_rows_note(rows, "Search: %d layouts of %d devices for a batch of %.0f samples, the best %d\n",
                       search.count, search.devices, search.batch, search.count < SHOWN ? search.count : SHOWN);
        plan_rows_begin(rows, "search", "(those that fit first; an estimate in which nothing overlaps)", field);
    }
    for (int i = 0; i < search.count && i < SHOWN && status == SL_OK; i++)
        status = add_row(rows, &search.candidate[i], error);
    free(search.candidate);
    return status;
}
