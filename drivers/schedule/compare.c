/* compare.c - reads a training run's trace and takes means. */
#include "drivers/schedule/compare.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "drivers/common/metrics.h"

const char *const schedule_part_name[SCHEDULE_PARTS] = {"compute",   "waiting",   "communication",
                                                        "reduction", "optimizer", "rest"};

/* ---- reading ---- */

struct reader {
    const char *path;
    size_t position; /* in traceEvents */
    struct sl_error *error;
};

static int wrong(const struct reader *reader, const char *what) {
    return sl_error_set(reader->error, SL_BAD_INPUT, "the trace %s: event %zu: %s", reader->path, reader->position,
                        what);
}

/* False: an event of another kind. */
static bool find_part(const char *category, enum schedule_part *part) {
    static const char *const name[SCHEDULE_PARTS] = {"compute", "waiting", "communication", "reduce", "optimizer"};
    for (*part = 0; *part < SCHEDULE_PART_REST; ++*part)
        if (!strcmp(name[*part], category)) return true;
    return false;
}

static char letter_of(const struct schedule_record *record, const char *name) {
    return record->part == SCHEDULE_PART_COMPUTE ? name[strspn(name, "0123456789")] : name[0];
}

/* Microseconds: since whenever, and a day. Sums and means of them are numbers. */
#define MAX_BEGIN 1e18
#define MAX_LENGTH 1e11

static int read_event(const struct reader *reader, json_t *object, struct schedule_trace *trace) {
    const char *name, *category, *phase = "";
    double begin, length;
    json_t *args;
    struct schedule_record record = {.stage = -1, .count = 1};
    json_unpack(object, "{s:s}", "ph", &phase);
    if (strcmp(phase, "X")) return SL_OK;
    if (json_unpack(object, "{s:s,s:s,s:F,s:F,s:o}", "name", &name, "cat", &category, "ts", &begin, "dur", &length,
                    "args", &args))
        return wrong(reader, "has not all of name, cat, ts, dur, args");
    if (!find_part(category, &record.part)) return SL_OK;
    if (!isfinite(begin) || !isfinite(length) || length < 0) return wrong(reader, "its time is none");
    if (fabs(begin) > MAX_BEGIN || length > MAX_LENGTH)
        return wrong(reader, "its time is too large: ts is at most 1e18, dur at most 1e11");
    if (json_unpack(args, "{s:i,s:i,s:i,s:i,s?i,s?i,s?i}", "step", &record.step, "rank", &record.rank, "loop",
                    &record.loop, "data", &record.pipeline, "stage", &record.stage, "microbatch", &record.microbatch,
                    "count", &record.count))
        return wrong(reader, "its args have not all of step, rank, loop, data");
    json_unpack(args, "{s:i}", "pipeline", &record.pipeline); /* where data alone does not tell */
    record.letter = letter_of(&record, name);
    record.begin = begin / 1000;
    record.end = (begin + length) / 1000;
    trace->record[trace->count++] = record;
    return SL_OK;
}

static int read_events(struct schedule_trace *trace, const json_t *root, struct sl_error *error) {
    const json_t *events = json_is_array(root) ? root : json_object_get(root, "traceEvents");
    if (!json_is_array(events))
        return sl_error_set(error, SL_BAD_INPUT, "the trace %s: is no trace: there are no traceEvents", trace->path);
    trace->record = malloc((json_array_size(events) + 1) * sizeof *trace->record);
    if (!trace->record) return sl_error_set(error, SL_FAILED, "the trace %s: no memory", trace->path);
    struct reader reader = {.path = trace->path, .error = error};
    for (; reader.position < json_array_size(events); reader.position++)
        SL_TRY(read_event(&reader, json_array_get(events, reader.position), trace));
    return SL_OK;
}

static void read_description(struct schedule_trace *trace, json_t *root) {
    const char *name;
    int overlap;
    trace->overlap = true;
    trace->passes = 1;
    for (int i = 0; i < trace->count; i++)
        if (trace->record[i].part == SCHEDULE_PART_COMPUTE && trace->record[i].count > trace->group)
            trace->group = trace->record[i].count;
    if (json_unpack(root, "{s:{s:s,s:i,s:i,s:i,s:b}}", "shardloop", "schedule", &name, "ranks", &trace->ranks, "loops",
                    &trace->loops, "microbatches", &trace->microbatches, "overlap", &overlap)) {
        trace->ranks = 0;
        return;
    }
    json_unpack(root, "{s:{s:i}}", "shardloop", "passes", &trace->passes);
    if (trace->passes < 1) trace->passes = 1;
    trace->overlap = overlap;
    snprintf(trace->name, sizeof trace->name, "%s", name);
}

int schedule_trace_read(struct schedule_trace *trace, const char *path, struct sl_error *error) {
    *trace = (struct schedule_trace){.path = path};
    json_t *root = sl_json_read("the trace ", path, 0, error);
    if (!root) return SL_BAD_INPUT;
    const int status = read_events(trace, root, error);
    read_description(trace, root);
    json_decref(root);
    return status;
}

void schedule_trace_free(struct schedule_trace *trace) {
    free(trace->record);
    *trace = (struct schedule_trace){0};
}

/* ---- what a trace must hold ---- */

static bool is_compute(const struct schedule_record *record, char first, char second) {
    return record->part == SCHEDULE_PART_COMPUTE && (record->letter == first || record->letter == second);
}

static int check_record(const struct schedule_trace *trace, const struct sl_schedule *schedule,
                        const struct schedule_record *record, struct sl_error *error) {
    if (record->rank < 0 || record->rank >= schedule->ranks || record->loop < 0 || record->loop >= schedule->loops)
        return sl_error_set(error, SL_BAD_INPUT, "the trace %s: loop %d of rank %d is none of schedule %s's",
                            trace->path, record->loop, record->rank, schedule->name);
    if (record->part != SCHEDULE_PART_COMPUTE) return SL_OK;
    const int stage = sl_schedule_stage(schedule, record->rank, record->loop);
    if (record->stage != stage)
        return sl_error_set(error, SL_BAD_INPUT, "the trace %s: rank %d has stage %d in loop %d, in schedule %s %d",
                            trace->path, record->rank, record->stage, record->loop, schedule->name, stage);
    if (record->microbatch < 0 || record->count < 1 || record->count > schedule->microbatches - record->microbatch)
        return sl_error_set(error, SL_BAD_INPUT, "the trace %s: schedule %s has no %d microbatches from %d on",
                            trace->path, schedule->name, record->count, record->microbatch);
    return SL_OK;
}

/* Steps first, then pipelines, then ranks; of a rank's events the reductions, then all others. */
static int in_order(const void *left, const void *right) {
    const struct schedule_record *a = left, *b = right;
    if (a->step != b->step) return a->step < b->step ? -1 : 1;
    if (a->pipeline != b->pipeline) return a->pipeline < b->pipeline ? -1 : 1;
    if (a->rank != b->rank) return a->rank < b->rank ? -1 : 1;
    const bool reduces = a->part == SCHEDULE_PART_REDUCTION;
    if (reduces != (b->part == SCHEDULE_PART_REDUCTION)) return reduces ? -1 : 1;
    return (a->begin > b->begin) - (a->begin < b->begin);
}

/* Events of one step, pipeline or rank: records BEGIN to END - 1. */
struct range {
    int begin, end;
};

/* The records from BEGIN on, and before END, that are alike as far as KEYS says: step, pipeline, rank. */
static struct range range_at(const struct schedule_trace *trace, int begin, int end, int keys) {
    const struct schedule_record *first = &trace->record[begin];
    struct range range = {begin, begin};
    for (; range.end < end; range.end++) {
        const struct schedule_record *record = &trace->record[range.end];
        if (record->step != first->step || (keys > 1 && record->pipeline != first->pipeline) ||
            (keys > 2 && record->rank != first->rank))
            break;
    }
    return range;
}

/* Whether every pipeline of a step did everything: a trace may end within a step, or lack events. */
static bool is_whole(const struct schedule_trace *trace, const struct sl_schedule *schedule, struct range step) {
    const long long all = (long long)trace->passes * sl_schedule_stages(schedule) * schedule->microbatches;
    struct range pipeline;
    for (int at = step.begin; at < step.end; at = pipeline.end) {
        long long forwards = 0, gradients = 0, weights = 0;
        pipeline = range_at(trace, at, step.end, 2);
        for (int i = pipeline.begin; i < pipeline.end; i++) {
            const struct schedule_record *record = &trace->record[i];
            forwards += is_compute(record, 'F', 'F') ? record->count : 0;
            gradients += is_compute(record, 'I', 'B') ? record->count : 0;
            weights += is_compute(record, 'W', 'B') ? record->count : 0;
        }
        if (forwards != all || gradients != all || weights != all) return false;
    }
    return true;
}

/* Checks, sorts, and leaves whole steps only. */
static int prepare(struct schedule_trace *trace, const struct sl_schedule *schedule, struct sl_error *error) {
    for (int i = 0; i < trace->count; i++) SL_TRY(check_record(trace, schedule, &trace->record[i], error));
    qsort(trace->record, (size_t)trace->count, sizeof *trace->record, in_order);
    int kept = 0;
    struct range step;
    for (int at = 0; at < trace->count; at = step.end) {
        step = range_at(trace, at, trace->count, 1);
        if (!is_whole(trace, schedule, step)) continue;
        for (int i = step.begin; i < step.end; i++) trace->record[kept++] = trace->record[i];
    }
    trace->count = kept;
    if (kept) return SL_OK;
    return sl_error_set(error, SL_BAD_INPUT,
                        "the trace %s: has no step with all forwards and backwards of schedule %s (%d ranks, %d "
                        "loops, %d microbatches)",
                        trace->path, schedule->name, schedule->ranks, schedule->loops, schedule->microbatches);
}

/* ---- costs ---- */

struct mean {
    double sum, count;
};

static void add(struct mean *mean, double value, double count) {
    mean->sum += value;
    mean->count += count;
}
static double mean_of(const struct mean *mean) { return mean->count > 0 ? mean->sum / mean->count : 0; }

/* Of one stage. */
struct stage_means {
    struct mean forward, input_gradient, weight_gradient, reduce;
};

/* By rank and loop; first what computed, then reductions, by step. */
static int by_place(const void *left, const void *right) {
    const struct schedule_record *a = *(struct schedule_record *const *)left;
    const struct schedule_record *b = *(struct schedule_record *const *)right;
    if (a->rank != b->rank) return a->rank < b->rank ? -1 : 1;
    if (a->loop != b->loop) return a->loop < b->loop ? -1 : 1;
    if (a->part != b->part) return a->part == SCHEDULE_PART_REDUCTION ? 1 : -1;
    if (a->part == SCHEDULE_PART_REDUCTION && a->step != b->step) return a->step < b->step ? -1 : 1;
    return (a > b) - (a < b);
}

/* Notes of the reductions LIST[0] to LIST[COUNT - 1], one rank's in one loop, that STAGE is reduced, and when the last
 * pipeline of a step began it. */
static void note_reductions_of(struct schedule_record **list, size_t count, int stage) {
    for (size_t i = 0, end; i < count; i = end) {
        double begin = list[i]->begin;
        for (end = i; end < count && list[end]->step == list[i]->step; end++) begin = fmax(begin, list[end]->begin);
        for (size_t k = i; k < end; k++) {
            list[k]->stage = stage;
            list[k]->together = begin;
        }
    }
}

/* Notes what the event of a reduction does not say itself. The stage is that of the first compute event of its rank and
 * loop; -1: there is none. */
static int note_reductions(struct schedule_trace *trace, struct sl_error *error) {
    struct schedule_record **list = malloc(((size_t)trace->count + 1) * sizeof *list);
    size_t count = 0, computes;
    if (!list) return sl_error_set(error, SL_FAILED, "the trace %s: no memory", trace->path);
    for (int i = 0; i < trace->count; i++) {
        struct schedule_record *record = &trace->record[i];
        if (record->part == SCHEDULE_PART_COMPUTE || record->part == SCHEDULE_PART_REDUCTION) list[count++] = record;
    }
    qsort(list, count, sizeof *list, by_place);
    for (size_t i = 0, end; i < count; i = end) {
        computes = 0;
        for (end = i; end < count && list[end]->rank == list[i]->rank && list[end]->loop == list[i]->loop; end++)
            computes += list[end]->part == SCHEDULE_PART_COMPUTE;
        note_reductions_of(list + i + computes, end - i - computes, computes ? list[i]->stage : -1);
    }
    free(list);
    return SL_OK;
}

/* A compute event's own stage, a reduction's by its rank and loop; -1: neither. */
static int stage_of_record(const struct schedule_record *record) {
    return record->part == SCHEDULE_PART_COMPUTE || record->part == SCHEDULE_PART_REDUCTION ? record->stage : -1;
}

static int check_stages(const struct schedule_trace *trace, int stages, struct sl_error *error) {
    int highest = -1;
    for (int i = 0; i < trace->count; i++) {
        const struct schedule_record *record = &trace->record[i];
        if (record->part == SCHEDULE_PART_COMPUTE && (record->stage < 0 || record->stage > highest))
            highest = record->stage;
        if (highest < 0 && record->part == SCHEDULE_PART_COMPUTE) break;
    }
    if (highest == stages - 1) return SL_OK;
    return sl_error_set(error, SL_BAD_INPUT, "the trace %s is of %d stages, the schedule has %d", trace->path,
                        highest + 1, stages);
}

int schedule_trace_costs(struct schedule_trace *trace, int stages, struct sl_costs *costs, struct sl_stage_costs *stage,
                         struct sl_error *error) {
    SL_TRY(check_stages(trace, stages, error));
    qsort(trace->record, (size_t)trace->count, sizeof *trace->record, in_order);
    SL_TRY(note_reductions(trace, error));
    struct stage_means *means = calloc((size_t)stages, sizeof *means);
    struct mean send = {0}, take = {0};
    if (!means) return sl_error_set(error, SL_FAILED, "the trace %s: no memory", trace->path);
    for (int i = 0; i < trace->count; i++) {
        const struct schedule_record *record = &trace->record[i];
        const double length = record->end - record->begin;
        const int number = stage_of_record(record);
        if (record->part == SCHEDULE_PART_COMMUNICATION && record->stage >= 0)
            add(record->letter == 's' ? &send : &take, length, 1);
        if (number < 0) continue;
        struct stage_means *of = &means[number];
        if (is_compute(record, 'F', 'F')) add(&of->forward, length, record->count);
        if (is_compute(record, 'I', 'B')) add(&of->input_gradient, length, record->count);
        if (is_compute(record, 'W', 'W')) add(&of->weight_gradient, length, record->count);
        if (record->part == SCHEDULE_PART_REDUCTION) add(&of->reduce, fmax(0, record->end - record->together), 1);
    }
    for (int s = 0; s < stages; s++)
        stage[s] = (struct sl_stage_costs){mean_of(&means[s].forward), mean_of(&means[s].input_gradient),
                                           mean_of(&means[s].weight_gradient), mean_of(&means[s].reduce)};
    costs->communication = mean_of(&send) + mean_of(&take);
    free(means);
    return SL_OK;
}

/* ---- where the time went ---- */

/* The time from BEGIN to END in which one of the reductions from record *FIRST on, sorted by when they begin, was under
 * way. Moves *FIRST past those that are over, since no later question goes back before END. */
static double reducing(const struct schedule_trace *trace, int *first, int last, double begin, double end) {
    double sum = 0;
    while (*first < last && trace->record[*first].end <= begin) ++*first;
    for (int i = *first; i < last && begin < end && trace->record[i].begin < end; i++) {
        const double from = fmax(begin, trace->record[i].begin), to = fmin(end, trace->record[i].end);
        if (to <= from) continue;
        sum += to - from;
        begin = to;
    }
    return sum;
}

/* Adds the parts of one rank's step, which took from BEGIN to END, to PART. */
static void add_parts(const struct schedule_trace *trace, struct range rank, double begin, double end, double *part) {
    double covered = begin, named = 0;
    int first = rank.begin, last = rank.begin; /* reductions, which are the rank's first records */
    while (last < rank.end && trace->record[last].part == SCHEDULE_PART_REDUCTION) last++;
    for (int i = last; i < rank.end; i++) {
        const struct schedule_record *record = &trace->record[i];
        const double gap = reducing(trace, &first, last, covered, record->begin);
        part[record->part] += record->end - record->begin;
        part[SCHEDULE_PART_REDUCTION] += gap;
        named += record->end - record->begin + gap;
        covered = fmax(covered, record->end);
    }
    const double gap = reducing(trace, &first, last, covered, end);
    part[SCHEDULE_PART_REDUCTION] += gap;
    part[SCHEDULE_PART_REST] += end - begin - named - gap;
}

static double computing(const struct schedule_trace *trace, struct range range, double *begin, double *end) {
    double busy = 0;
    for (int i = range.begin; i < range.end; i++) {
        const struct schedule_record *record = &trace->record[i];
        if (record->part != SCHEDULE_PART_COMPUTE) continue;
        *begin = fmin(*begin, record->begin);
        *end = fmax(*end, record->end);
        busy += record->end - record->begin;
    }
    return busy;
}

/* Adds one pipeline's step to MEASUREMENT. */
static void add_pipeline(const struct schedule_trace *trace, struct range pipeline, double begin, double end, int ranks,
                         struct schedule_measurement *measurement) {
    double first = INFINITY, last = -INFINITY;
    const double busy = computing(trace, pipeline, &first, &last), span = last - first;
    if (span > 0) measurement->bubble += 1 - busy / (ranks * span);
    struct range rank;
    for (int at = pipeline.begin; at < pipeline.end; at = rank.end) {
        rank = range_at(trace, at, pipeline.end, 3);
        struct schedule_measured_rank *of = &measurement->rank[trace->record[at].rank];
        add_parts(trace, rank, begin, end, of->part);
        if (span > 0) of->bubble += 1 - computing(trace, rank, &first, &last) / span;
    }
}

static int measure_parts(const struct schedule_trace *trace, int ranks, struct schedule_measurement *measurement,
                         struct sl_error *error) {
    int pipelines = 0;
    struct range step, pipeline;
    *measurement = (struct schedule_measurement){.rank = calloc((size_t)ranks, sizeof *measurement->rank)};
    if (!measurement->rank) return sl_error_set(error, SL_FAILED, "the trace %s: no memory", trace->path);
    for (int at = 0; at < trace->count; at = step.end) {
        step = range_at(trace, at, trace->count, 1);
        double begin = INFINITY, end = -INFINITY;
        for (int i = step.begin; i < step.end; i++) {
            begin = fmin(begin, trace->record[i].begin);
            end = fmax(end, trace->record[i].end);
        }
        measurement->steps++;
        measurement->step += end - begin;
        for (int of = step.begin; of < step.end; of = pipeline.end, pipelines++) {
            pipeline = range_at(trace, of, step.end, 2);
            add_pipeline(trace, pipeline, begin, end, ranks, measurement);
        }
    }
    measurement->step /= measurement->steps * trace->passes;
    measurement->bubble /= pipelines;
    for (int r = 0; r < ranks; r++) {
        for (int p = 0; p < SCHEDULE_PARTS; p++) measurement->rank[r].part[p] /= pipelines * trace->passes;
        measurement->rank[r].bubble /= pipelines;
    }
    return SL_OK;
}

int schedule_trace_measure(struct schedule_trace *trace, const struct sl_schedule *schedule, struct sl_costs *costs,
                           struct sl_stage_costs *stage, struct schedule_measurement *measurement,
                           struct sl_error *error) {
    *measurement = (struct schedule_measurement){0};
    SL_TRY(prepare(trace, schedule, error));
    SL_TRY(schedule_trace_costs(trace, sl_schedule_stages(schedule), costs, stage, error));
    return measure_parts(trace, schedule->ranks, measurement, error);
}

void schedule_measurement_free(struct schedule_measurement *measurement) {
    free(measurement->rank);
    *measurement = (struct schedule_measurement){0};
}

void schedule_simulated_parts(const struct sl_simulation *simulation, int rank, double part[SCHEDULE_PARTS]) {
    const struct sl_simulated_rank *of = &simulation->rank[rank];
    memset(part, 0, SCHEDULE_PARTS * sizeof *part);
    part[SCHEDULE_PART_COMPUTE] = of->busy;
    part[SCHEDULE_PART_REDUCTION] = fmax(0, of->reduced - of->end);
    part[SCHEDULE_PART_WAITING] = simulation->step - part[SCHEDULE_PART_COMPUTE] - part[SCHEDULE_PART_REDUCTION];
}
