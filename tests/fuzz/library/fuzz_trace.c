/* fuzz_trace.c - input files of the driver schedule's --costs and --compare: costs as JSON, and traces of training
 * runs.
 *
 * The first byte chooses between them, and the schedule; the file begins after the second byte. */
#include <math.h>

#include "drivers/schedule/trace_means.h"
#include "drivers/schedule/costs.h"
#include "drivers/schedule/drawing.h"
#include "spmd/schedule/drawing/draw.h"
#include "spmd/schedule/drawing/page.h"
#include "tests/fuzz/fuzz.h"

enum { STAGES = 16 };

static void simulate(const struct sl_schedule *schedule, struct sl_costs *costs) {
    struct sl_simulation simulation;
    struct sl_error error = {0};
    char *drawing = NULL;
    size_t size;
    FUZZ_PROMISE(!sl_schedule_simulate(schedule, costs, &simulation, &error), "%s", error.message);
    FUZZ_PROMISE(isfinite(simulation.step) && isfinite(simulation.bubble) && simulation.bubble <= 1, "%g, %g",
                 simulation.step, simulation.bubble);
    FILE *file = open_memstream(&drawing, &size);
    FUZZ_PROMISE(file, "memory");
    sl_schedule_write_svg(schedule, &simulation, file);
    fclose(file);
    FUZZ_PROMISE(!strstr(drawing, "nan") && !strstr(drawing, "\"inf") && !strstr(drawing, "-inf"), "%s", drawing);
    free(drawing);
    sl_simulation_free(&simulation);
}

static int read_costs(const struct sl_schedule *schedule, const char *path, struct sl_error *error) {
    struct sl_stage_costs stage[STAGES];
    double kept[STAGES];
    for (int s = 0; s < STAGES; s++) stage[s] = (struct sl_stage_costs){1, 1, 1, 0, 1, 0};
    struct sl_costs costs = {.count = sl_schedule_stages(schedule), .stage = stage, .overlap = true};
    SL_TRY(schedule_costs_read(&costs, stage, kept, costs.count, path, error));
    simulate(schedule, &costs);
    return SL_OK;
}

static void check_measurement(const struct schedule_measurement *measurement, int ranks) {
    FUZZ_PROMISE(measurement->steps > 0 && isfinite(measurement->step) && isfinite(measurement->bubble), "%g, %g",
                 measurement->step, measurement->bubble);
    for (int r = 0; r < ranks; r++)
        for (int p = 0; p < SCHEDULE_PARTS; p++)
            FUZZ_PROMISE(isfinite(measurement->rank[r].part[p]), "rank %d, part %d", r, p);
}

/* Draws a measured step below the step that COSTS predict. */
static void draw(const struct schedule_trace *trace, const struct sl_schedule *schedule, const struct sl_costs *costs,
                 const struct schedule_measurement *measurement) {
    struct schedule_measured_step step;
    struct sl_simulation simulation;
    struct sl_error error = {0};
    struct sl_output output;
    FUZZ_PROMISE(!schedule_measured_step_find(&step, trace, schedule, &error), "%s", error.message);
    FUZZ_PROMISE(!sl_schedule_simulate(schedule, costs, &simulation, &error), "%s", error.message);
    FUZZ_PROMISE(!sl_output_open(&output, NULL, &error), "%s", error.message);
    for (int i = 0; i < step.count; i++)
        FUZZ_PROMISE(step.event[i].begin >= 0 && step.event[i].end <= step.length, "event %d", i);
    const struct schedule_report report = {
        .output = &output, .schedule = schedule, .simulation = &simulation, .measurement = measurement};
    schedule_draw_comparison(&report, &step, sl_timeline_write);
    schedule_draw_comparison(&report, &step, sl_page_write);
    fflush(output.stream);
    const char *text = output.text.bytes;
    FUZZ_PROMISE(!strstr(text, "nan") && !strstr(text, "\"inf") && !strstr(text, "-inf"), "%s", text);
    sl_output_close(&output, SL_BAD_INPUT, &error);
    schedule_measured_step_free(&step);
    sl_simulation_free(&simulation);
}

static int compare(const struct sl_schedule *schedule, const char *path, struct sl_error *error) {
    struct schedule_trace trace;
    struct schedule_measurement measurement = {0};
    struct sl_stage_costs stage[STAGES] = {{0}};
    struct sl_costs costs = {.count = sl_schedule_stages(schedule), .stage = stage, .overlap = true};
    int status = schedule_trace_read(&trace, path, error);
    if (status == SL_OK) status = schedule_trace_measure(&trace, schedule, &costs, stage, &measurement, error);
    if (status == SL_OK) {
        check_measurement(&measurement, schedule->ranks);
        simulate(schedule, &costs);
        draw(&trace, schedule, &costs, &measurement);
    }
    schedule_measurement_free(&measurement);
    schedule_trace_free(&trace);
    return status;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const struct {
        const char *name;
        int ranks, loops, microbatches;
    } kind[] = {{"gpipe", 2, 1, 1}, {"looped-bfs", 2, 2, 4}, {"pipedream-flush", 4, 1, 8}, {"zbv", 2, 2, 3}};
    struct sl_schedule schedule;
    struct sl_error error = {0};
    if (size < 2) return 0;
    const int i = data[0] / 2 % 4;
    FUZZ_PROMISE(
        !sl_schedule_make(&schedule, kind[i].name, kind[i].ranks, kind[i].loops, kind[i].microbatches, &error) &&
            !sl_schedule_lower(&schedule, &error),
        "%s", error.message);
    const char *path = fuzz_file(0, data + 2, size - 2);
    const int status = (data[0] % 2 ? compare : read_costs)(&schedule, path, &error);
    if (status) fuzz_refused(status, &error);
    sl_schedule_free(&schedule);
    return 0;
}
