/* trace_means.c - reads a training run's trace and computes means. */
#include "drivers/schedule/trace_means.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "drivers/common/metrics.h"
#include "spmd/schedule/fuse.h"

/* ---- reading ---- */

struct reader {
    const char *path;
    size_t position; /* index in traceEvents */
    struct sl_error *error;
};

static int wrong(const struct reader *reader, const char *what) {
    return sl_error_set(reader->error, SL_BAD_INPUT, "the trace %s: event %zu: %s", reader->path, reader->position,
                        what);
}

/* Returns false for an event of another kind. */
static bool find_part(const char *category, enum schedule_part *part) {
    static const char *const name[SCHEDULE_PART_REST] = {[SCHEDULE_PART_COMPUTE] = "compute",
                                                         [SCHEDULE_PART_NOT_READY] = "waiting",
                                                         [SCHEDULE_PART_COMMUNICATION] = "communication",
                                                         [SCHEDULE_PART_REDUCTION] = "reduce",
                                                         [SCHEDULE_PART_OPTIMIZER] = "optimizer",
                                                         [SCHEDULE_PART_GATHERING] = "gather"};
    for (*part = 0; *part < SCHEDULE_PART_REST; ++*part)
        if (name[*part] && !strcmp(name[*part], category)) return true;
    return false;
}

static char letter_of(const struct schedule_record *record, const char *name) {
    return record->part == SCHEDULE_PART_COMPUTE ? name[strspn(name, "0123456789")] : name[0];
}

/* Limits in microseconds: since any epoch, and a day. Sums and means within them are finite. */
#define MAX_BEGIN 1e18
#define MAX_LENGTH 1e11

/* Returns a part of an event's LENGTH, in ms. */
static double part_of(const json_t *args, const char *name, double length) {
    return fmin(fmax(json_number_value(json_object_get(args, name)) / 1000, 0), length);
}

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
    json_unpack(args, "{s:i}", "pipeline", &record.pipeline); /* if data does not determine it */
    record.letter = letter_of(&record, name);
    record.begin = begin / 1000;
    record.end = (begin + length) / 1000;
    record.no_core = part_of(args, "no_core", record.end - record.begin);
    record.transfer = part_of(args, "transfer", record.end - record.begin - record.no_core);
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

/* Reads fields that older traces may lack. */
static int read_conditions(struct schedule_trace *trace, json_t *root, struct sl_error *error) {
    int divided = true;
    json_unpack(root, "{s:{s:F}}", "shardloop", "delay_ms", &trace->delay);
    json_unpack(root, "{s:{s:i,s:i}}", "shardloop", "coordinates", &trace->coordinates, "cores", &trace->cores);
    json_unpack(root, "{s:{s:b}}", "shardloop", "divided", &divided);
    trace->divided = divided;
    if (trace->delay >= 0 && trace->delay <= MAX_LENGTH / 1000) return SL_OK;
    return sl_error_set(error, SL_BAD_INPUT, "the trace %s: its delay_ms is %g: must be a number from 0 to %g",
                        trace->path, trace->delay, MAX_LENGTH / 1000);
}

static void read_description(struct schedule_trace *trace, json_t *root) {
    const char *name;
    int overlap, ascends = 0, sharded = 0;
    trace->overlap = true;
    trace->passes = trace->run = 1;
    for (int i = 0; i < trace->count; i++)
        if (trace->record[i].part == SCHEDULE_PART_COMPUTE && trace->record[i].letter == 'W' &&
            trace->record[i].count > trace->group)
            trace->group = trace->record[i].count;
    if (json_unpack(root, "{s:{s:s,s:i,s:i,s:i,s:b}}", "shardloop", "schedule", &name, "ranks", &trace->ranks, "loops",
                    &trace->loops, "microbatches", &trace->microbatches, "overlap", &overlap)) {
        trace->ranks = 0;
        return;
    }
    json_unpack(root, "{s:{s:i}}", "shardloop", "passes", &trace->passes);
    if (trace->passes < 1) trace->passes = 1;
    json_unpack(root, "{s:{s:i}}", "shardloop", "run", &trace->run);
    json_unpack(root, "{s:{s:b}}", "shardloop", "ascends", &ascends);
    json_unpack(root, "{s:{s:b}}", "shardloop", "sharded", &sharded);
    trace->ascends = ascends;
    trace->sharded = sharded;
    trace->overlap = overlap;
    snprintf(trace->name, sizeof trace->name, "%s", name);
}

int schedule_trace_read(struct schedule_trace *trace, const char *path, struct sl_error *error) {
    *trace = (struct schedule_trace){.path = path};
    json_t *root = sl_json_read("the trace ", path, 0, error);
    if (!root) return SL_BAD_INPUT;
    int status = read_events(trace, root, error);
    read_description(trace, root);
    if (status == SL_OK) status = read_conditions(trace, root, error);
    json_decref(root);
    return status;
}

void schedule_trace_free(struct schedule_trace *trace) {
    free(trace->record);
    *trace = (struct schedule_trace){0};
}

int schedule_trace_fuse(const struct schedule_trace *trace, struct sl_schedule *schedule, struct sl_error *error) {
    bool fused = true;
    if (trace->ascends) sl_schedule_ascend(schedule);
    if (trace->run != 1) SL_TRY(sl_schedule_fuse(schedule, trace->run, &fused, error));
    if (fused) return SL_OK;
    return sl_error_set(error, SL_BAD_INPUT, "the trace %s: schedule %s has no runs of %d microbatches", trace->path,
                        schedule->name, trace->run);
}

/* ---- checking a trace ---- */

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
        return sl_error_set(error, SL_BAD_INPUT,
                            "the trace %s: rank %d has stage %d in loop %d; in schedule %s it is stage %d", trace->path,
                            record->rank, record->stage, record->loop, schedule->name, stage);
    if (record->microbatch < 0 || record->count < 1 || record->count > schedule->microbatches - record->microbatch)
        return sl_error_set(error, SL_BAD_INPUT,
                            "the trace %s: schedule %s does not have %d microbatches from number %d on", trace->path,
                            schedule->name, record->count, record->microbatch);
    return SL_OK;
}

/* Orders records by steps, pipelines, ranks; for a rank, overlapping records come before all others. */
static int in_order(const void *left, const void *right) {
    const struct schedule_record *a = left, *b = right;
    if (a->step != b->step) return a->step < b->step ? -1 : 1;
    if (a->pipeline != b->pipeline) return a->pipeline < b->pipeline ? -1 : 1;
    if (a->rank != b->rank) return a->rank < b->rank ? -1 : 1;
    const bool beside = schedule_is_beside(a);
    if (beside != schedule_is_beside(b)) return beside ? -1 : 1;
    return (a->begin > b->begin) - (a->begin < b->begin);
}

/* Whether every pipeline of a step is complete: a trace may end within a step, or lack events. */
static bool is_whole(const struct schedule_trace *trace, const struct sl_schedule *schedule,
                     struct schedule_range step) {
    const long long all = (long long)trace->passes * sl_schedule_depth(schedule) * schedule->microbatches;
    struct schedule_range pipeline;
    for (int at = step.begin; at < step.end; at = pipeline.end) {
        long long forwards = 0, gradients = 0, weights = 0;
        pipeline = schedule_range_at(trace, at, step.end, 2);
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

/* Checks and sorts the records, and removes incomplete steps. */
static int prepare(struct schedule_trace *trace, const struct sl_schedule *schedule, struct sl_error *error) {
    for (int i = 0; i < trace->count; i++) SL_TRY(check_record(trace, schedule, &trace->record[i], error));
    qsort(trace->record, (size_t)trace->count, sizeof *trace->record, in_order);
    int kept = 0;
    struct schedule_range step;
    for (int at = 0; at < trace->count; at = step.end) {
        step = schedule_range_at(trace, at, trace->count, 1);
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

/* Means of one stage. */
struct stage_means {
    struct mean forward, input_gradient, weight_gradient, reduce, optimizer, unshard;
    int step, pipeline; /* of the optimizer's last event: all its events of a step count as one */
};

static bool is_unshard(const struct schedule_record *record) {
    return record->part == SCHEDULE_PART_GATHERING && record->letter == 'u';
}

/* Whether a record is of all stages of a rank and loop: its event has no stage. */
static bool is_of_loop(const struct schedule_record *record) {
    return record->part == SCHEDULE_PART_REDUCTION || record->part == SCHEDULE_PART_OPTIMIZER || is_unshard(record);
}

/* Orders records by rank and loop; then compute, reductions, optimizer, gathers; then by step, turn and pipeline. */
static int by_place(const void *left, const void *right) {
    const struct schedule_record *a = *(struct schedule_record *const *)left;
    const struct schedule_record *b = *(struct schedule_record *const *)right;
    if (a->rank != b->rank) return a->rank < b->rank ? -1 : 1;
    if (a->loop != b->loop) return a->loop < b->loop ? -1 : 1;
    if (a->part != b->part) return a->part < b->part ? -1 : 1;
    if (is_of_loop(a) && a->step != b->step) return a->step < b->step ? -1 : 1;
    if (is_of_loop(a) && a->turn != b->turn) return a->turn < b->turn ? -1 : 1;
    if (is_of_loop(a) && a->pipeline != b->pipeline) return a->pipeline < b->pipeline ? -1 : 1;
    return (a > b) - (a < b);
}

/* Sets STAGE, and the time when the last pipeline of a step began, in the reductions or gathers LIST[0] to
 * LIST[COUNT - 1] of one rank and loop. */
static void note_together(struct schedule_record **list, size_t count, int stage) {
    for (size_t i = 0, end; i < count; i = end) {
        double begin = list[i]->begin;
        for (end = i; end < count && list[end]->step == list[i]->step && list[end]->turn == list[i]->turn; end++)
            begin = fmax(begin, list[end]->begin);
        for (size_t k = i; k < end; k++) {
            list[k]->stage = stage;
            list[k]->together = begin;
        }
    }
}

/* Sets the optimizer's time within each reduction, from both lists of one rank and loop, for the steps and pipelines
 * in both. The optimizer's events are of one thread, and do not overlap. */
static void note_updates(struct schedule_record **reduction, size_t reductions, struct schedule_record **update,
                         size_t updates, int stage) {
    size_t first = 0;
    for (size_t i = 0; i < updates; i++) update[i]->stage = stage;
    for (size_t i = 0; i < reductions; i++) {
        struct schedule_record *of = reduction[i];
        const double begin = of->together, end = of->end;
        of->updating = 0;
        while (first < updates && (update[first]->step < of->step ||
                                   (update[first]->step == of->step && update[first]->pipeline < of->pipeline)))
            first++;
        for (size_t u = first;
             u < updates && u < first + 2 && update[u]->step == of->step && update[u]->pipeline == of->pipeline; u++)
            of->updating += fmax(0, fmin(end, update[u]->end) - fmax(begin, update[u]->begin));
    }
}

/* Numbers the gathers of each loop in a step, in the order of their begins. LIST is sorted by by_place, with all
 * numbers 0. */
static void count_turns(struct schedule_record **list, size_t count) {
    for (size_t i = 1; i < count; i++) {
        const struct schedule_record *before = list[i - 1];
        struct schedule_record *record = list[i];
        if (is_unshard(record) && is_unshard(before) && record->rank == before->rank && record->loop == before->loop &&
            record->step == before->step && record->pipeline == before->pipeline)
            record->turn = before->turn + 1;
    }
}

/* Completes the records of reductions, the optimizer and gathers. Their stage is that of the first compute event of
 * their rank and loop; -1: there is none. */
static int note_loops(struct schedule_trace *trace, struct sl_error *error) {
    struct schedule_record **list = malloc(((size_t)trace->count + 1) * sizeof *list);
    size_t count = 0, of[SCHEDULE_PARTS];
    if (!list) return sl_error_set(error, SL_FAILED, "the trace %s: no memory", trace->path);
    for (int i = 0; i < trace->count; i++) {
        struct schedule_record *record = &trace->record[i];
        if (record->part == SCHEDULE_PART_COMPUTE || is_of_loop(record)) list[count++] = record;
    }
    qsort(list, count, sizeof *list, by_place);
    count_turns(list, count);
    qsort(list, count, sizeof *list, by_place);
    for (size_t i = 0, end; i < count; i = end) {
        memset(of, 0, sizeof of);
        for (end = i; end < count && list[end]->rank == list[i]->rank && list[end]->loop == list[i]->loop; end++)
            of[list[end]->part]++;
        struct schedule_record **reduction = list + i + of[SCHEDULE_PART_COMPUTE];
        struct schedule_record **update = reduction + of[SCHEDULE_PART_REDUCTION];
        const int stage = of[SCHEDULE_PART_COMPUTE] ? list[i]->stage : -1;
        note_together(reduction, of[SCHEDULE_PART_REDUCTION], stage);
        note_updates(reduction, of[SCHEDULE_PART_REDUCTION], update, of[SCHEDULE_PART_OPTIMIZER], stage);
        note_together(update + of[SCHEDULE_PART_OPTIMIZER], of[SCHEDULE_PART_GATHERING], stage);
    }
    free(list);
    return SL_OK;
}

/* Returns the stage of a compute event, or of a loop's record; -1: another event. */
static int stage_of_record(const struct schedule_record *record) {
    return record->part == SCHEDULE_PART_COMPUTE || is_of_loop(record) ? record->stage : -1;
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

static void add_costs(struct stage_means *means, const struct schedule_record *record) {
    const double length = record->end - record->begin - record->no_core, whole = record->end - record->together;
    if (is_compute(record, 'F', 'F')) add(&means->forward, length, record->count);
    if (is_compute(record, 'I', 'B')) add(&means->input_gradient, length, record->count);
    if (is_compute(record, 'W', 'W')) add(&means->weight_gradient, length, record->count);
    if (record->part == SCHEDULE_PART_REDUCTION) add(&means->reduce, fmax(0, whole - record->updating), 1);
    if (is_unshard(record)) add(&means->unshard, fmax(0, whole), 1);
    if (record->part != SCHEDULE_PART_OPTIMIZER) return;
    const bool another =
        means->optimizer.count > 0 && means->step == record->step && means->pipeline == record->pipeline;
    add(&means->optimizer, length, another ? 0 : 1);
    means->step = record->step;
    means->pipeline = record->pipeline;
}

int schedule_trace_costs(struct schedule_trace *trace, int stages, struct sl_costs *costs, struct sl_stage_costs *stage,
                         struct sl_error *error) {
    SL_TRY(check_stages(trace, stages, error));
    qsort(trace->record, (size_t)trace->count, sizeof *trace->record, in_order);
    SL_TRY(note_loops(trace, error));
    struct stage_means *means = calloc((size_t)stages, sizeof *means);
    struct mean send = {0}, take = {0};
    if (!means) return sl_error_set(error, SL_FAILED, "the trace %s: no memory", trace->path);
    for (int i = 0; i < trace->count; i++) {
        const struct schedule_record *record = &trace->record[i];
        const int number = stage_of_record(record);
        if (record->part == SCHEDULE_PART_COMMUNICATION && record->stage >= 0)
            add(record->letter == 's' ? &send : &take, record->end - record->begin - record->no_core, 1);
        if (number >= 0) add_costs(&means[number], record);
    }
    for (int s = 0; s < stages; s++)
        stage[s] = (struct sl_stage_costs){mean_of(&means[s].forward),
                                           mean_of(&means[s].input_gradient),
                                           mean_of(&means[s].weight_gradient),
                                           mean_of(&means[s].reduce),
                                           fmin(mean_of(&means[s].optimizer) / trace->passes, SL_MAX_COST),
                                           mean_of(&means[s].unshard)};
    costs->communication = mean_of(&send) + mean_of(&take) + trace->delay;
    free(means);
    return SL_OK;
}

int schedule_trace_measure(struct schedule_trace *trace, const struct sl_schedule *schedule, struct sl_costs *costs,
                           struct sl_stage_costs *stage, struct schedule_measurement *measurement,
                           struct sl_error *error) {
    *measurement = (struct schedule_measurement){0};
    SL_TRY(prepare(trace, schedule, error));
    SL_TRY(schedule_trace_costs(trace, sl_schedule_stages(schedule), costs, stage, error));
    return schedule_trace_parts(trace, schedule->ranks, measurement, error);
}
