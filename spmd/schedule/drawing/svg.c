/* svg.c - a simulated schedule as a timeline. */
#include "spmd/schedule/drawing/draw.h"
#include "spmd/schedule/drawing/page.h"

static void write_with(sl_timeline_writer *writer, const struct sl_schedule *schedule,
                       const struct sl_simulation *simulation, FILE *file) {
    const struct sl_timeline_layer layer = {
        .schedule = schedule, .idle = simulation->span, .count = simulation->count, .event = simulation->event};
    char subtitle[256], compute[64] = "";
    if (simulation->step > simulation->span) snprintf(compute, sizeof compute, ", compute %.6g ms", simulation->span);
    snprintf(subtitle, sizeof subtitle, "%d rank%s, %d loop%s, %d microbatch%s: step %.6g ms%s, bubble %.1f %%",
             schedule->ranks, schedule->ranks > 1 ? "s" : "", schedule->loops, schedule->loops > 1 ? "s" : "",
             schedule->microbatches, schedule->microbatches > 1 ? "es" : "", simulation->step, compute,
             100 * simulation->bubble);
    const struct sl_timeline timeline = {
        .title = schedule->name, .subtitle = subtitle, .end = simulation->step, .layers = 1, .layer = &layer};
    writer(&timeline, file);
}

void sl_schedule_write_svg(const struct sl_schedule *schedule, const struct sl_simulation *simulation, FILE *file) {
    write_with(sl_timeline_write, schedule, simulation, file);
}

void sl_schedule_write_page(const struct sl_schedule *schedule, const struct sl_simulation *simulation, FILE *file) {
    write_with(sl_page_write, schedule, simulation, file);
}
