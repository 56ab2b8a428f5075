/* measured.c - one step of a training run as a timeline. */
#include "drivers/schedule/measured.h"

#include <math.h>
#include <stdlib.h>

/* A step: records FIRST to LAST - 1 of a trace. */
struct span {
    int first, last;
    double begin, length;
};

static struct span span_at(const struct schedule_trace *trace, int first) {
    struct span span = {.first = first, .last = first, .begin = INFINITY};
    double end = -INFINITY;
    for (; span.last < trace->count && trace->record[span.last].step == trace->record[first].step; span.last++) {
        span.begin = fmin(span.begin, trace->record[span.last].begin);
        end = fmax(end, trace->record[span.last].end);
    }
    span.length = end - span.begin;
    return span;
}

static int by_length(const void *left, const void *right) {
    const struct span *a = left, *b = right;
    if (a->length != b->length) return a->length < b->length ? -1 : 1;
    return a->first - b->first;
}

/* Finds the step of median length in a trace with at least one step; SL_FAILED without memory. */
static int median_span(const struct schedule_trace *trace, struct span *median) {
    int count = 0;
    struct span *span = malloc(((size_t)trace->count + 1) * sizeof *span);
    if (!span) return SL_FAILED;
    for (int at = 0; at < trace->count; at = span[count++].last) span[count] = span_at(trace, at);
    qsort(span, (size_t)count, sizeof *span, by_length);
    *median = span[(count - 1) / 2];
    free(span);
    return SL_OK;
}

/* Returns false for a record that is drawn as idle time. */
static bool find_kind(const struct schedule_record *record, struct sl_event *event) {
    switch (record->part) {
    case SCHEDULE_PART_COMPUTE:
        event->kind = record->letter == 'F'   ? SL_FORWARD
                      : record->letter == 'I' ? SL_INPUT_GRADIENT
                      : record->letter == 'W' ? SL_WEIGHT_GRADIENT
                                              : SL_BACKWARD;
        return true;
    case SCHEDULE_PART_COMMUNICATION:
        event->kind = record->letter == 't' ? SL_TAKE_ACTIVATION : SL_SEND_ACTIVATION;
        return true;
    case SCHEDULE_PART_REDUCTION:
        event->kind = SL_REDUCE;
        return true;
    case SCHEDULE_PART_GATHERING:
        event->kind = record->letter == 'r' ? SL_RESHARD : SL_UNSHARD;
        return true;
    case SCHEDULE_PART_OPTIMIZER:
        event->kind = SL_EVENT_OPTIMIZER;
        return true;
    default:
        return false;
    }
}

/* Returns the time when the rank of the records from FIRST on begins its second pass. */
static double end_of_pass(const struct schedule_trace *trace, int first, int last, const struct sl_schedule *schedule) {
    long long forwards = (long long)schedule->loops * schedule->microbatches / schedule->copies;
    for (int i = first; i < last && trace->record[i].rank == trace->record[first].rank; i++) {
        const struct schedule_record *record = &trace->record[i];
        if (record->part != SCHEDULE_PART_COMPUTE || record->letter != 'F') continue;
        if (forwards <= 0) return record->begin;
        forwards -= record->count;
    }
    return INFINITY;
}

int schedule_measured_step_find(struct schedule_measured_step *step, const struct schedule_trace *trace,
                                const struct sl_schedule *schedule, struct sl_error *error) {
    struct span span = {0};
    *step = (struct schedule_measured_step){0};
    if (median_span(trace, &span)) return sl_error_set(error, SL_FAILED, "the trace %s: no memory", trace->path);
    step->event = malloc((size_t)(span.last - span.first + 1) * sizeof *step->event);
    if (!step->event) return sl_error_set(error, SL_FAILED, "the trace %s: no memory", trace->path);
    const struct schedule_record *first = &trace->record[span.first];
    double end = INFINITY;
    step->step = first->step;
    for (int i = span.first; i < span.last && trace->record[i].pipeline == first->pipeline; i++) {
        const struct schedule_record *record = &trace->record[i];
        struct sl_event *event = &step->event[step->count];
        if (i == span.first || record->rank != record[-1].rank) end = end_of_pass(trace, i, span.last, schedule);
        if (record->begin >= end || !find_kind(record, event)) continue;
        event->rank = record->rank;
        event->loop = record->loop;
        event->stage =
            schedule_is_beside(record) ? sl_schedule_stage(schedule, record->rank, record->loop) : record->stage;
        event->microbatch = record->microbatch;
        event->microbatches = record->count;
        event->begin = record->begin - span.begin;
        event->end = fmin(record->end, end) - span.begin;
        step->length = fmax(step->length, event->end);
        step->count++;
    }
    return SL_OK;
}

void schedule_measured_step_free(struct schedule_measured_step *step) {
    free(step->event);
    *step = (struct schedule_measured_step){0};
}
