/* drawing.c - draws a measured step below the predicted one, and one schedule over another. */
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

void schedule_draw_comparison(const struct schedule_report *report, const struct schedule_measured_step *step,
                              sl_timeline_writer *write) {
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
    write(&timeline, report->output->stream);
}

/* "looped-bfs, 2 loops: 25 ms, bubble 4.0 %" */
static void describe(const struct schedule_study *study, char *text, size_t size) {
    const int loops = study->schedule.loops;
    snprintf(text, size, "%s, %d loop%s: %.6g ms, bubble %.1f %%", study->schedule.name, loops, loops > 1 ? "s" : "",
             study->simulation.step, 100 * study->simulation.bubble);
}

static struct sl_timeline_layer layer_of(const struct schedule_study *study) {
    return (struct sl_timeline_layer){.schedule = &study->schedule,
                                      .idle = study->simulation.span,
                                      .count = study->simulation.count,
                                      .event = study->simulation.event};
}

void schedule_draw_over(const struct schedule_study *study, const struct schedule_study *under,
                        sl_timeline_writer *write, FILE *file) {
    const struct sl_timeline_layer layer[] = {layer_of(study), layer_of(under)};
    char title[96], first[128], second[128], subtitle[384];
    describe(study, first, sizeof first);
    describe(under, second, sizeof second);
    snprintf(title, sizeof title, "%s over %s", study->schedule.name, under->schedule.name);
    snprintf(subtitle, sizeof subtitle, "%d ranks, %d microbatches, the same model; %s; in grey %s",
             study->schedule.ranks, study->schedule.microbatches, first, second);
    const struct sl_timeline timeline = {.title = title,
                                         .subtitle = subtitle,
                                         .end = fmax(study->simulation.step, under->simulation.step),
                                         .layers = 2,
                                         .layer = layer,
                                         .over = true};
    write(&timeline, file);
}
