/* timeline.c - draws a measured step below the predicted one. */
#include "drivers/tools/report/timeline.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "drivers/schedule/drawing.h"

/* Limits: actions of a schedule to make again; boxes of a drawing, so a page stays small. */
enum { MOST_ACTIONS = 1000000, MOST_BOXES = 1500 };

/* ---- reading ---- */

static int make(struct report_timeline *timeline, struct sl_error *error) {
    const struct schedule_trace *trace = &timeline->trace;
    if (!trace->ranks)
        return sl_error_set(error, SL_BAD_INPUT, "the trace %.300s: does not say of which schedule it is", trace->path);
    if ((double)trace->ranks * trace->loops * trace->microbatches > MOST_ACTIONS)
        return sl_error_set(error, SL_BAD_INPUT, "the trace %.300s: its schedule is too large to be drawn",
                            trace->path);
    SL_TRY(sl_schedule_make(&timeline->schedule, trace->name, trace->ranks, trace->loops, trace->microbatches, error));
    SL_TRY(schedule_trace_fuse(trace, &timeline->schedule, error));
    return sl_schedule_lower(&timeline->schedule, error);
}

static int simulate(struct report_timeline *timeline, struct sl_error *error) {
    struct schedule_trace *trace = &timeline->trace;
    const struct sl_schedule *schedule = &timeline->schedule;
    const int stages = sl_schedule_stages(schedule);
    timeline->cost = calloc((size_t)stages, sizeof *timeline->cost);
    if (!timeline->cost) return sl_error_set(error, SL_FAILED, "no memory to simulate");
    struct sl_costs costs = {
        .count = stages, .stage = timeline->cost, .overlap = trace->overlap, .group = trace->group};
    SL_TRY(schedule_trace_measure(trace, schedule, &costs, timeline->cost, &timeline->measurement, error));
    return sl_schedule_simulate(schedule, &costs, &timeline->simulation, error);
}

static bool is_message(const struct sl_event *event) {
    return event->kind >= SL_SEND_ACTIVATION && event->kind <= SL_TAKE_GRADIENT;
}

/* Leaves out messages if there are too many boxes. */
static int thin_out(struct report_timeline *timeline, struct sl_error *error) {
    struct schedule_measured_step *step = &timeline->step;
    int kept = 0;
    if (timeline->simulation.count + step->count <= MOST_BOXES) return SL_OK;
    for (int i = 0; i < step->count; i++)
        if (!is_message(&step->event[i])) step->event[kept++] = step->event[i];
    step->count = kept;
    if (timeline->simulation.count + kept <= MOST_BOXES) return SL_OK;
    return sl_error_set(error, SL_BAD_INPUT,
                        "the trace %.300s: a step has more than %d events; schedule --compare TRACE --format svg draws "
                        "them",
                        timeline->trace.path, MOST_BOXES);
}

static int study(struct report_timeline *timeline, struct sl_error *error) {
    SL_TRY(make(timeline, error));
    SL_TRY(simulate(timeline, error));
    SL_TRY(schedule_measured_step_find(&timeline->step, &timeline->trace, &timeline->schedule, error));
    return thin_out(timeline, error);
}

int report_timeline_open(struct report_timeline *timeline, const char *path, struct sl_error *error) {
    SL_TRY(schedule_trace_read(&timeline->trace, path, error));
    const int status = study(timeline, &timeline->missing);
    if (status != SL_FAILED) return SL_OK;
    *error = timeline->missing;
    return status;
}

void report_timeline_free(struct report_timeline *timeline) {
    schedule_trace_free(&timeline->trace);
    schedule_measurement_free(&timeline->measurement);
    schedule_measured_step_free(&timeline->step);
    sl_simulation_free(&timeline->simulation);
    sl_schedule_free(&timeline->schedule);
    free(timeline->cost);
    *timeline = (struct report_timeline){0};
}

/* ---- drawing ---- */

void report_timeline_write(FILE *file, const struct report_timeline *timeline) {
    const struct sl_schedule *schedule = &timeline->schedule;
    const struct sl_simulation *simulation = &timeline->simulation;
    const struct schedule_measured_step *step = &timeline->step;
    struct sl_timeline_layer layer[2];
    char title[96], subtitle[256], note[160];
    const char *const notes[] = {note};
    schedule_layers(schedule, simulation, step, layer);
    snprintf(title, sizeof title, "%s, step %d predicted and measured", schedule->name, step->step);
    snprintf(subtitle, sizeof subtitle, "measured %.4g ms (mean of %d steps %.4g ms), predicted %.4g ms%s",
             step->length, timeline->measurement.steps, timeline->measurement.step, simulation->step,
             timeline->trace.passes > 1 ? ": the first of its passes" : "");
    snprintf(note, sizeof note, "bubble: measured %.1f %%, predicted %.1f %%", 100 * timeline->measurement.bubble,
             100 * simulation->bubble);
    const struct sl_timeline drawing = {.title = title,
                                        .subtitle = subtitle,
                                        .end = fmax(simulation->step, step->length),
                                        .layers = 2,
                                        .layer = layer,
                                        .beside = true,
                                        .notes = 1,
                                        .note = notes};
    sl_timeline_write(&drawing, file);
}
