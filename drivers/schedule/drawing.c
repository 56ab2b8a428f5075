/* drawing.c - a measured step under the predicted one, as SVG. */
#include "drivers/schedule/drawing.h"

#include <math.h>

void schedule_layers(const struct sl_schedule *schedule, const struct sl_simulation *simulation,
                     const struct schedule_measured_step *step, struct sl_timeline_layer layer[2]) {
    layer[0] = (struct sl_timeline_layer){.schedule = schedule,
                                          .row = "predicted",
                                          .idle = simulation->span,
                                          .count = simulation->count,
                                          .event = simulation->event};
    layer[1] = (struct sl_timeline_layer){
        .schedule = schedule, .row = "measured", .idle = step->length, .count = step->count, .event = step->event};
}

void schedule_draw_comparison(const struct schedule_report *report, const struct schedule_measured_step *step) {
    const struct sl_schedule *schedule = report->schedule;
    const struct sl_simulation *simulation = report->simulation;
    struct sl_timeline_layer layer[2];
    schedule_layers(schedule, simulation, step, layer);
    char title[96], subtitle[256];
    snprintf(title, sizeof title, "%s, predicted and measured", schedule->name);
    snprintf(subtitle, sizeof subtitle,
             "%d ranks, %d loops, %d microbatches: step predicted %.2f ms, measured %.2f ms (mean of %d); drawn is "
             "step %d, %.2f ms",
             schedule->ranks, schedule->loops, schedule->microbatches, simulation->step, report->measurement->step,
             report->measurement->steps, step->step, step->length);
    const struct sl_timeline timeline = {.title = title,
                                         .subtitle = subtitle,
                                         .end = fmax(simulation->step, step->length),
                                         .layers = 2,
                                         .layer = layer,
                                         .beside = true};
    sl_timeline_write(&timeline, report->output->stream);
}
