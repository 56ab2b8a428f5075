/* fuzz_csv.c - pipeline schedules as CSV: read, proven, simulated, drawn, written and read again.
 *
 * The first byte chooses the microbatches in a weight-gradient group; the table begins after the second one. */
#include <math.h>

#include "spmd/schedule/csv.h"
#include "spmd/schedule/drawing/draw.h"
#include "tests/fuzz/fuzz.h"

enum { DRAWN_CELLS = 1 << 16 }; /* of larger tables a drawing takes too long here */

static void write_and_read_again(const struct sl_schedule *schedule) {
    char *first = NULL, *second = NULL;
    size_t sizes[2];
    struct sl_schedule again;
    struct sl_error error = {0};
    FILE *file = open_memstream(&first, &sizes[0]);
    FUZZ_PROMISE(file && !sl_schedule_write_csv(schedule, file), "memory");
    fclose(file);
    const int status = sl_schedule_read_csv(&again, fuzz_file(1, first, sizes[0]), &error);
    FUZZ_PROMISE(status == SL_OK, "%s", error.message);
    file = open_memstream(&second, &sizes[1]);
    FUZZ_PROMISE(file && !sl_schedule_write_csv(&again, file), "memory");
    fclose(file);
    FUZZ_PROMISE(sizes[0] == sizes[1] && !memcmp(first, second, sizes[0]), "%s, then %s", first, second);
    sl_schedule_free(&again);
    free(first);
    free(second);
}

static void draw(const struct sl_schedule *schedule, const struct sl_simulation *simulation) {
    FILE *nowhere = fuzz_nowhere();
    long long cells = 0; /* of the printed table */
    for (int r = 0; r < schedule->ranks; r++)
        if (schedule->rank[r].count) cells += schedule->rank[r].action[schedule->rank[r].count - 1].time + 1;
    if (cells > DRAWN_CELLS) return;
    FUZZ_PROMISE(!sl_schedule_print_table(schedule, nowhere), "memory");
    FUZZ_PROMISE(!sl_schedule_print_folded(schedule, 80, true, nowhere), "memory");
    sl_schedule_print_legend(schedule, true, nowhere);
    FUZZ_PROMISE(!sl_schedule_print_indices(schedule, nowhere), "memory");
    sl_schedule_write_svg(schedule, simulation, nowhere);
    sl_schedule_write_page(schedule, simulation, nowhere);
}

static void simulate(const struct sl_schedule *schedule, int group) {
    const struct sl_stage_costs cost = {1, 2, 3, 4, 5, 0};
    const struct sl_costs costs = {.count = 1, .stage = &cost, .communication = 0.5, .overlap = true, .group = group};
    struct sl_simulation simulation;
    struct sl_error error = {0};
    FUZZ_PROMISE(!sl_schedule_simulate(schedule, &costs, &simulation, &error), "%s", error.message);
    for (int r = 0; r < simulation.ranks; r++)
        FUZZ_PROMISE(simulation.rank[r].busy <= simulation.span * (1 + 1e-9), "rank %d", r);
    FUZZ_PROMISE(isfinite(simulation.step) && simulation.step >= simulation.span, "%g", simulation.step);
    draw(schedule, &simulation);
    sl_simulation_free(&simulation);
}

/* The fewest slots are enough, and fewer are not. */
static void prove(const struct sl_schedule *schedule, int group) {
    int slots;
    struct sl_error error = {0};
    const int status = sl_schedule_slots(schedule, 1, &slots, &error);
    if (status) return fuzz_refused(status, &error);
    FUZZ_PROMISE(!sl_schedule_check(schedule, slots, 1, NULL, &error), "%d slots: %s", slots, error.message);
    FUZZ_PROMISE(slots == 1 || sl_schedule_check(schedule, slots - 1, 1, NULL, &error), "%d slots are enough", slots);
    if (schedule->microbatches % group) group = 1;
    for (int r = 0; r < schedule->ranks && r < 4; r++) {
        const int window = sl_schedule_window(schedule, r, group),
                  again = sl_schedule_backward_window(schedule, r, group);
        FUZZ_PROMISE(window <= schedule->microbatches && again <= window, "%d and %d", window, again);
    }
    simulate(schedule, group);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct sl_schedule schedule;
    struct sl_error error = {0};
    if (size < 2) return 0;
    const int status = sl_schedule_read_csv(&schedule, fuzz_file(0, data + 2, size - 2), &error);
    if (status) {
        fuzz_refused(status, &error);
        return 0;
    }
    write_and_read_again(&schedule);
    FUZZ_PROMISE(!sl_schedule_lower(&schedule, &error), "%s", error.message);
    prove(&schedule, 1 + data[0] % 4);
    sl_schedule_free(&schedule);
    return 0;
}
