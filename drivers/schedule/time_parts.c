/* time_parts.c - divides the time of a run, and of a simulated one, into parts. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "drivers/schedule/trace_means.h"

const char *const schedule_part_name[SCHEDULE_PARTS] = {
    "compute", "not ready", "transfer", "no core", "communication", "reduction", "optimizer", "gathering", "rest"};

double schedule_waiting(const double part[SCHEDULE_PARTS]) {
    return part[SCHEDULE_PART_NOT_READY] + part[SCHEDULE_PART_TRANSFER] + part[SCHEDULE_PART_NO_CORE];
}

struct schedule_range schedule_range_at(const struct schedule_trace *trace, int begin, int end, int keys) {
    const struct schedule_record *first = &trace->record[begin];
    struct schedule_range range = {begin, begin};
    for (; range.end < end; range.end++) {
        const struct schedule_record *record = &trace->record[range.end];
        if (record->step != first->step || (keys > 1 && record->pipeline != first->pipeline) ||
            (keys > 2 && record->rank != first->rank))
            break;
    }
    return range;
}

/* ---- measured ---- */

/* Returns the time from BEGIN to END covered by records from *FIRST on, sorted by begin, and adds it to their PARTs.
 * Moves *FIRST past the records that are over: later calls do not go back before END. */
static double add_beside(const struct schedule_trace *trace, int *first, int last, double begin, double end,
                         double *part) {
    double sum = 0;
    while (*first < last && trace->record[*first].end <= begin) ++*first;
    for (int i = *first; i < last && begin < end && trace->record[i].begin < end; i++) {
        const double from = fmax(begin, trace->record[i].begin), to = fmin(end, trace->record[i].end);
        if (to <= from) continue;
        sum += to - from;
        part[trace->record[i].part] += to - from;
        begin = to;
    }
    return sum;
}

/* Adds the parts of one rank's step, from BEGIN to END, to PART. */
static void add_parts(const struct schedule_trace *trace, struct schedule_range rank, double begin, double end,
                      double *part) {
    double covered = begin, named = 0;
    int first = rank.begin, last = rank.begin; /* reductions and gathers: the rank's first records */
    while (last < rank.end && schedule_is_beside(&trace->record[last])) last++;
    for (int i = last; i < rank.end; i++) {
        const struct schedule_record *record = &trace->record[i];
        const double gap = add_beside(trace, &first, last, covered, record->begin, part);
        part[record->part] += record->end - record->begin - record->transfer - record->no_core;
        part[SCHEDULE_PART_TRANSFER] += record->transfer;
        part[SCHEDULE_PART_NO_CORE] += record->no_core;
        named += record->end - record->begin + gap;
        covered = fmax(covered, record->end);
    }
    const double gap = add_beside(trace, &first, last, covered, end, part);
    part[SCHEDULE_PART_REST] += end - begin - named - gap;
}

/* Returns the time of gathers before the first action of RANK, over all its passes. */
static double gathers_before(const struct schedule_trace *trace, struct schedule_range rank) {
    double sum = 0;
    for (int i = rank.begin; i < rank.end && schedule_is_beside(&trace->record[i]); i++)
        if (trace->record[i].letter == 'g') sum += trace->record[i].end - trace->record[i].begin;
    return sum;
}

static double computing(const struct schedule_trace *trace, struct schedule_range range, double *begin, double *end) {
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
static void add_pipeline(const struct schedule_trace *trace, struct schedule_range pipeline, double begin, double end,
                         int ranks, struct schedule_measurement *measurement) {
    double first = INFINITY, last = -INFINITY;
    const double busy = computing(trace, pipeline, &first, &last), span = last - first;
    if (span > 0) measurement->bubble += 1 - busy / (ranks * span);
    struct schedule_range rank;
    for (int at = pipeline.begin; at < pipeline.end; at = rank.end) {
        rank = schedule_range_at(trace, at, pipeline.end, 3);
        struct schedule_measured_rank *of = &measurement->rank[trace->record[at].rank];
        add_parts(trace, rank, begin, end, of->part);
        measurement->gather += gathers_before(trace, rank) / ranks;
        if (span > 0) of->bubble += 1 - computing(trace, rank, &first, &last) / span;
    }
}

int schedule_trace_parts(const struct schedule_trace *trace, int ranks, struct schedule_measurement *measurement,
                         struct sl_error *error) {
    int pipelines = 0;
    struct schedule_range step, pipeline;
    *measurement = (struct schedule_measurement){.rank = calloc((size_t)ranks, sizeof *measurement->rank)};
    if (!measurement->rank) return sl_error_set(error, SL_FAILED, "the trace %s: no memory", trace->path);
    for (int at = 0; at < trace->count; at = step.end) {
        step = schedule_range_at(trace, at, trace->count, 1);
        double begin = INFINITY, end = -INFINITY;
        for (int i = step.begin; i < step.end; i++) {
            begin = fmin(begin, trace->record[i].begin);
            end = fmax(end, trace->record[i].end);
        }
        measurement->steps++;
        measurement->step += end - begin;
        for (int of = step.begin; of < step.end; of = pipeline.end, pipelines++) {
            pipeline = schedule_range_at(trace, of, step.end, 2);
            add_pipeline(trace, pipeline, begin, end, ranks, measurement);
        }
    }
    measurement->step /= measurement->steps * trace->passes;
    measurement->bubble /= pipelines;
    measurement->gather /= pipelines * trace->passes;
    for (int r = 0; r < ranks; r++) {
        for (int p = 0; p < SCHEDULE_PARTS; p++) measurement->rank[r].part[p] /= pipelines * trace->passes;
        measurement->rank[r].bubble /= pipelines;
    }
    return SL_OK;
}

void schedule_measurement_free(struct schedule_measurement *measurement) {
    free(measurement->rank);
    *measurement = (struct schedule_measurement){0};
}

/* ---- simulated ---- */

void schedule_simulation_gathers(struct sl_simulation *simulation, double ms) {
    for (int i = 0; simulation->event && i < simulation->count; i++) {
        simulation->event[i].begin += ms;
        simulation->event[i].end += ms;
    }
    for (int r = 0; r < simulation->ranks; r++) {
        struct sl_simulated_rank *rank = &simulation->rank[r];
        rank->gathering += ms;
        rank->end += ms;
        rank->reduced += ms;
        rank->updated += ms;
    }
    simulation->step += ms;
}

void schedule_simulated_parts(const struct sl_simulation *simulation, int rank, double part[SCHEDULE_PARTS]) {
    const struct sl_simulated_rank *of = &simulation->rank[rank];
    memset(part, 0, SCHEDULE_PARTS * sizeof *part);
    part[SCHEDULE_PART_COMPUTE] = of->busy;
    part[SCHEDULE_PART_REDUCTION] = fmax(0, of->reducing);
    part[SCHEDULE_PART_OPTIMIZER] = of->optimizer;
    part[SCHEDULE_PART_TRANSFER] = of->transfer;
    part[SCHEDULE_PART_GATHERING] = of->gathering;
    part[SCHEDULE_PART_NOT_READY] = simulation->step - part[SCHEDULE_PART_COMPUTE] - part[SCHEDULE_PART_REDUCTION] -
                                    part[SCHEDULE_PART_OPTIMIZER] - part[SCHEDULE_PART_TRANSFER] -
                                    part[SCHEDULE_PART_GATHERING];
}
