/* search.c - lists all layouts of a job on its devices, the fastest first, with and without a shared head if the
 * stages can share it.
 *
 * Times are the search's predictions (predict.c) on devices that reach the job's rate in all products, and do nothing
 * else. */
#include <math.h>
#include <stdlib.h>

#include "drivers/tools/plan/plan.h"
#include "layers/modules/transformer_modules.h"
#include "spmd/base/memory.h"
#include "spmd/schedule/registry.h"

enum { FEWEST_TOKENS = 128 }; /* of a block of a divided sequence, as in drivers/tools/search/layouts.c */

struct candidate {
    const char *pipeline;
    struct plan_layout layout;
    struct plan_prediction prediction;
    double memory;
    bool fits;
};

struct search {
    const struct plan_job *job;
    int devices;
    double batch; /* samples */
    int count, capacity;
    struct candidate *candidate;
};

/* Orders candidates: those that fit first, then the faster, then the smaller. */
static int by_merit(const void *left, const void *right) {
    const struct candidate *a = left, *b = right;
    if (a->fits != b->fits) return a->fits ? -1 : 1;
    double difference = a->prediction.seconds - b->prediction.seconds;
    if (difference == 0) difference = a->memory - b->memory;
    return (difference > 0) - (difference < 0);
}

static int add_candidate(struct search *search, const struct candidate *candidate, struct sl_error *error) {
    struct candidate *grown = sl_grow(search->candidate, search->count, &search->capacity, 64, sizeof *grown);
    if (!grown) return sl_error_set(error, SL_FAILED, "no memory to search");
    search->candidate = grown;
    search->candidate[search->count++] = *candidate;
    return SL_OK;
}

/* Tries a layout; if its pipeline cannot be made (unsuitable loops, or more stages than layers), it is skipped. */
static int try_pipeline(struct search *search, const char *name, struct candidate candidate, struct sl_error *error) {
    const struct plan_job *job = search->job;
    struct plan_layout *layout = &candidate.layout;
    const char *schedule = plan_schedule_name(name, layout->loops);
    candidate.pipeline = name;
    layout->trains = plan_pipeline_trains(name);
    layout->schedule = schedule ? schedule : "gpipe";
    if ((long long)layout->loops * layout->stages > job->layers) return SL_OK;
    const int status = plan_predict(&candidate.prediction, job, layout, error);
    if (status) return status == SL_BAD_INPUT ? SL_OK : status;
    const struct plan_memory memory = plan_memory_in(&candidate.prediction, job);
    candidate.memory = plan_memory_total(&memory);
    candidate.fits = job->capacity == 0 || candidate.memory <= job->capacity * 1024 * 1024 * 1024;
    return add_candidate(search, &candidate, error);
}

/* Returns the schedule with a shared head in place of the pipeline called NAME; NULL: there is no equivalent. */
static const char *spread_schedule(const char *name) {
    const char *schedule = plan_schedule_name(name, 3);
    const struct sl_schedule_kind *kind = schedule ? sl_schedule_find(schedule, NULL) : NULL;
    return kind && kind->most_loops == SL_ANY_LOOPS ? kind->name : NULL;
}

static int try_both(struct search *search, const char *name, struct candidate candidate, struct sl_error *error) {
    const struct plan_job *job = search->job;
    const char *spread = spread_schedule(name);
    const struct sl_schedule_kind *kind = sl_schedule_find(name, NULL);
    const struct sl_vocabulary shared = {
        .size = job->vocabulary, .dimension = job->hidden, .shards = candidate.layout.stages};
    candidate.layout.loops = job->loops ? job->loops : kind ? kind->default_loops : 1;
    SL_TRY(try_pipeline(search, name, candidate, error));
    candidate.layout.spread_head = true;
    if (!spread || candidate.layout.stages == 1 || job->parameters > 0) return SL_OK;
    if (job->sequence % candidate.layout.tensor) return SL_OK; /* tensor members share each sequence's rows */
    return sl_vocabulary_divides(&shared) ? try_pipeline(search, spread, candidate, error) : SL_OK;
}

static int try_layout(struct search *search, int data, int stages, int tensor, int context, struct sl_error *error) {
    static const char *const training[] = {"grouped", "interleaved"};
    const struct plan_job *job = search->job;
    struct candidate candidate = {.layout = plan_layout_of(job)};
    const double microbatches = search->batch / job->microbatch_size / data;
    if (job->heads % tensor || job->expansion * job->hidden % tensor) return SL_OK;
    if (context > 1 && (job->sequence % (2 * context) || job->sequence / (2 * context) < FEWEST_TOKENS)) return SL_OK;
    if (stages > job->layers || microbatches != floor(microbatches)) return SL_OK;
    candidate.layout.data = data;
    candidate.layout.stages = stages;
    candidate.layout.tensor = tensor;
    candidate.layout.context = context;
    candidate.layout.microbatches = (int)microbatches;
    if (job->pipeline) return try_both(search, job->pipeline, candidate, error);
    for (int i = 0; i < 2; i++) SL_TRY(try_both(search, training[i], candidate, error));
    return SL_OK;
}

/* Tries all sizes of the axes. Their product is the number of devices. */
static int try_layouts(struct search *search, struct sl_error *error) {
    const int all = search->devices;
    for (int data = 1; data <= all; data++) {
        for (int stages = 1; all % data == 0 && stages <= all / data; stages++) {
            const int rest = all / data / stages;
            if (all / data % stages) continue;
            for (int context = 1; context <= rest; context++)
                if (rest % context == 0) SL_TRY(try_layout(search, data, stages, rest / context, context, error));
        }
    }
    return SL_OK;
}

static const struct plan_field field[] = {{"data", "data", 5, PLAN_FIELD_COUNT},
                                          {"stages", "stages", 6, PLAN_FIELD_COUNT},
                                          {"tensor", "tensor", 6, PLAN_FIELD_COUNT},
                                          {"context", "context", 7, PLAN_FIELD_COUNT},
                                          {"pipeline", "pipeline", -16, PLAN_FIELD_TEXT},
                                          {"loops", "loops", 5, PLAN_FIELD_COUNT},
                                          {"spread_head", "spread head", 11, PLAN_FIELD_TEXT},
                                          {"microbatches", "microbatches", 12, PLAN_FIELD_COUNT},
                                          {"memory", "memory", 13, PLAN_FIELD_BYTES},
                                          {"fits", "fits", 4, PLAN_FIELD_TEXT},
                                          {"bubble", "bubble", 7, PLAN_FIELD_SHARE},
                                          {"compute_s", "compute s", 10, PLAN_FIELD_REAL},
                                          {"communication_s", "send s", 10, PLAN_FIELD_REAL},
                                          {"update_s", "update s", 10, PLAN_FIELD_REAL},
                                          {0}};

static int add_row(struct plan_rows *rows, const struct candidate *candidate, struct sl_error *error) {
    const union plan_value value[] = {{.number = candidate->layout.data},
                                      {.number = candidate->layout.stages},
                                      {.number = candidate->layout.tensor},
                                      {.number = candidate->layout.context},
                                      {.text = candidate->pipeline},
                                      {.number = candidate->layout.loops},
                                      {.text = candidate->layout.spread_head ? "yes" : "no"},
                                      {.number = candidate->layout.microbatches},
                                      {.number = candidate->memory},
                                      {.text = candidate->fits ? "yes" : "no"},
                                      {.number = candidate->prediction.bubble},
                                      {.number = candidate->prediction.seconds - candidate->prediction.sent},
                                      {.number = candidate->prediction.sent},
                                      {.number = candidate->prediction.seconds}};
    return plan_rows_add(rows, value, error);
}

/* Adds the command of the first shown candidate that the driver can train. */
static int add_command(struct plan_rows *rows, const struct search *search, int shown, struct sl_error *error) {
    static const struct plan_field command_field[] = {{"command", "command", -1, PLAN_FIELD_TEXT}, {0}};
    char text[1024];
    for (int i = 0; i < shown; i++) {
        if (!plan_command(text, sizeof text, search->job, &search->candidate[i].layout)) continue;
        plan_rows_note(rows, "\nThe first of them that transformer can train:\n\n%s\n", text);
        if (!rows->json) return SL_OK;
        plan_rows_begin(rows, "command", NULL, command_field);
        return plan_rows_add(rows, &(union plan_value){.text = text}, error);
    }
    return SL_OK;
}

int plan_print_search(struct plan_rows *rows, const struct plan_job *job, struct sl_error *error) {
    enum { SHOWN = 16 };
    struct search search = {.job = job,
                            .devices = job->data * job->stages * job->tensor * job->context,
                            .batch = (double)job->microbatch_size * job->microbatches * job->data};
    int status = try_layouts(&search, error);
    if (search.count) qsort(search.candidate, (size_t)search.count, sizeof *search.candidate, by_merit);
    if (status == SL_OK) {
        plan_rows_note(rows, "Search: %d layouts of %d devices for a batch of %.0f samples, the best %d\n",
                       search.count, search.devices, search.batch, search.count < SHOWN ? search.count : SHOWN);
        plan_rows_begin(rows, "search", "(those that fit first)", field);
    }
    for (int i = 0; i < search.count && i < SHOWN && status == SL_OK; i++)
        status = add_row(rows, &search.candidate[i], error);
    if (status == SL_OK) status = add_command(rows, &search, search.count < SHOWN ? search.count : SHOWN, error);
    free(search.candidate);
    return status;
}
