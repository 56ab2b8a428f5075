/* test_complexity_schedules.c - tables are made, proven, simulated and printed in a time that grows as they do,
 * whatever grows: microbatches, ranks or loops. */
#include "tests/rigs/complexity.h"

#include "spmd/schedule/drawing/draw.h"
#include "spmd/schedule/csv.h"
#include "spmd/schedule/registry.h"

enum axis { MICROBATCHES, RANKS, LOOPS, AXES };
static const char *const axis_name[AXES] = {"microbatches", "ranks", "loops"};

/* The one of the last preparation, lowered. */
static struct sl_schedule table;
static struct sl_simulation drawn;
static FILE *nowhere;

/* Two microbatches a rank: with fewer there is no dualpipe, and zbv leaves out most of its counted actions. */
static bool needs_many(const struct sl_schedule_kind *kind) {
    return kind->placement == SL_V || kind->placement == SL_MIRRORED;
}

static void make(struct sl_schedule *schedule, const struct complexity_row *row, int n) {
    const struct sl_schedule_kind *kind = row->about;
    struct sl_error error = {0};
    const bool many = needs_many(kind);
    int ranks = row->argument == RANKS ? n : 8, loops = kind->default_loops;
    int microbatches = row->argument == MICROBATCHES ? n : many ? 32 * row->n : 8;
    if (row->argument == LOOPS) loops = n;
    const int status = sl_schedule_generate(schedule, kind, ranks, loops, microbatches, &error);
    if (status) fail_msg("%s", error.message);
    assert_int_equal(sl_schedule_lower(schedule, &error), SL_OK);
}

static void make_and_free(const struct complexity_row *row, int n) {
    struct sl_schedule schedule;
    make(&schedule, row, n);
    sl_schedule_free(&schedule);
}

static void prepare(const struct complexity_row *row, int n) {
    sl_schedule_free(&table);
    make(&table, row, n);
}

static void prove(const struct complexity_row *row, int n) {
    (void)row, (void)n;
    int slots;
    struct sl_error error = {0};
    assert_int_equal(sl_schedule_slots(&table, 1, &slots, &error), SL_OK);
    assert_int_equal(sl_schedule_check(&table, slots, 1, NULL, &error), SL_OK);
}

/* All weight gradients of a loop in one group, and channels with room for all. */
static void prove_one_group(const struct complexity_row *row, int n) {
    (void)row, (void)n;
    struct sl_error error = {0};
    assert_int_equal(
        sl_schedule_check(&table, table.loops * table.microbatches, table.microbatches / table.copies, NULL, &error),
        SL_OK);
}

static void simulate(const struct complexity_row *row, int n) {
    (void)row, (void)n;
    const struct sl_stage_costs cost = {1, 1, 1, 1, 1, 0};
    const struct sl_costs costs = {
        .count = 1, .stage = &cost, .communication = 1, .group = table.microbatches / table.copies};
    struct sl_simulation simulation;
    struct sl_error error = {0};
    assert_int_equal(sl_schedule_simulate(&table, &costs, &simulation, &error), SL_OK);
    sl_simulation_free(&simulation);
}

/* Stages that take different times: ranks end their work one by one. */
static void simulate_on_cores(const struct complexity_row *row, int n) {
    (void)row, (void)n;
    const int stages = sl_schedule_stages(&table);
    struct sl_stage_costs *cost = calloc((size_t)stages, sizeof *cost);
    assert_non_null(cost);
    for (int s = 0; s < stages; s++) cost[s] = (struct sl_stage_costs){1 + s % 7 / 7.1, 1 + s % 11 / 11.1, 1, 0, 0, 0};
    const struct sl_costs costs = {.count = stages, .stage = cost, .communication = 0.1, .cores = 8};
    struct sl_simulation simulation;
    struct sl_error error = {0};
    assert_int_equal(sl_schedule_time(&table, &costs, &simulation, &error), SL_OK);
    sl_simulation_free(&simulation);
    free(cost);
}

/* Tables that no cache holds, at any of the sizes: if a doubling moved one out of a cache, time would grow by more than
 * that. Made, proven and simulated by one call. */
static void do_all(const struct complexity_row *row, int n) {
    const struct sl_schedule_kind *kind = row->about;
    const struct sl_stage_costs cost = {1, 1, 1, 1, 1, 0};
    const struct sl_costs costs = {.count = 1, .stage = &cost, .communication = 1};
    const int ranks = row->argument == RANKS ? n : 16384, microbatches = row->argument == RANKS ? 64 : n;
    struct sl_schedule schedule;
    struct sl_simulation simulation;
    struct sl_error error = {0};
    int slots;
    assert_int_equal(sl_schedule_generate(&schedule, kind, ranks, kind->default_loops, microbatches, &error), SL_OK);
    assert_int_equal(sl_schedule_lower(&schedule, &error), SL_OK);
    assert_int_equal(sl_schedule_slots(&schedule, 1, &slots, &error), SL_OK);
    assert_int_equal(sl_schedule_time(&schedule, &costs, &simulation, &error), SL_OK);
    sl_simulation_free(&simulation);
    sl_schedule_free(&schedule);
}

static void windows(const struct complexity_row *row, int n) {
    (void)row, (void)n;
    for (int r = 0; r < table.ranks; r++) {
        assert_in_range(sl_schedule_window(&table, r, 1), 1, table.microbatches);
        assert_in_range(sl_schedule_backward_window(&table, r, table.microbatches), 1, table.microbatches);
    }
}

/* The first rank does nothing, so all others wait: for it, or for one that waits. */
static void prepare_deadlock(const struct complexity_row *row, int n) {
    prepare(row, n);
    table.rank[0].count = 0;
}

static void refuse(const struct complexity_row *row, int n) {
    (void)row, (void)n;
    struct sl_error error = {0};
    assert_int_equal(sl_schedule_check(&table, 1, 1, NULL, &error), SL_BAD_INPUT);
    assert_non_null(strstr(error.message, "deadlock"));
}

/* ---- on paper ---- */

static void prepare_drawing(const struct complexity_row *row, int n) {
    const struct sl_stage_costs cost = {1, 1, 1, 1, 1, 0};
    const struct sl_costs costs = {.count = 1, .stage = &cost, .communication = 1};
    struct sl_error error = {0};
    prepare(row, n);
    sl_simulation_free(&drawn);
    assert_int_equal(sl_schedule_simulate(&table, &costs, &drawn, &error), SL_OK);
}

static void print_table(const struct complexity_row *row, int n) {
    (void)row, (void)n;
    assert_int_equal(sl_schedule_print_table(&table, nowhere), SL_OK);
}
static void print_folded(const struct complexity_row *row, int n) {
    (void)row, (void)n;
    assert_int_equal(sl_schedule_print_folded(&table, 80, true, nowhere), SL_OK);
    sl_schedule_print_legend(&table, true, nowhere);
}
static void print_indices(const struct complexity_row *row, int n) {
    (void)row, (void)n;
    assert_int_equal(sl_schedule_print_indices(&table, nowhere), SL_OK);
}
static void print_csv(const struct complexity_row *row, int n) {
    (void)row, (void)n;
    assert_int_equal(sl_schedule_write_csv(&table, nowhere), SL_OK);
}
static void print_svg(const struct complexity_row *row, int n) {
    (void)row, (void)n;
    sl_schedule_write_svg(&table, &drawn, nowhere);
}
static void print_page(const struct complexity_row *row, int n) {
    (void)row, (void)n;
    sl_schedule_write_page(&table, &drawn, nowhere);
}

/* ---- rows ---- */

enum { MOST_ROWS = 200 };
static struct complexity_row rows[MOST_ROWS];
static int count;

static void add(const char *what, const char *kind, enum axis axis, int n,
                void (*prepares)(const struct complexity_row *row, int n),
                void (*runs)(const struct complexity_row *row, int n)) {
    struct complexity_row *row = &rows[count++];
    snprintf(row->name, sizeof row->name, "%s, %s: %s", kind, axis_name[axis], what);
    row->n = n;
    row->about = sl_schedule_find(kind, NULL);
    row->argument = axis;
    row->prepare = prepares;
    row->run = runs;
}

static void add_kind(const struct sl_schedule_kind *kind) {
    const int axes = kind->most_loops == SL_ANY_LOOPS ? AXES : LOOPS;
    for (int axis = 0; axis < axes; axis++) {
        const int n = axis != RANKS ? 128 : needs_many(kind) ? 8 : 256;
        add("made", kind->name, axis, n, NULL, make_and_free);
        add("proven", kind->name, axis, n, prepare, prove);
        add("simulated", kind->name, axis, n, prepare, simulate);
    }
    add("proven, one group", kind->name, MICROBATCHES, 128, prepare, prove_one_group);
}

static void add_large(void) {
    static const char *const names[] = {"gpipe", "1f1b", "interleaved-1f1b", "looped-bfs", "zbv"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        add("all of a large one", names[i], MICROBATCHES, 2, NULL, do_all);
    add("all of a large one", "1f1b", RANKS, 1024, NULL, do_all);
}

int main(void) {
    nowhere = fopen("/dev/null", "w");
    if (!nowhere) return 1;
    for (int i = 0; sl_schedule_kind_at(i); i++) add_kind(sl_schedule_kind_at(i));
    add_large();
    add("simulated on shared cores", "1f1b", RANKS, 512, prepare, simulate_on_cores);
    add("simulated on shared cores", "1f1b", MICROBATCHES, 512, prepare, simulate_on_cores);
    add("ranks that wait for each other", "1f1b", RANKS, 256, prepare_deadlock, refuse);
    add("windows", "looped-bfs", LOOPS, 64, prepare, windows);
    add("windows", "looped-bfs", MICROBATCHES, 256, prepare, windows);
    add("table", "1f1b", MICROBATCHES, 128, prepare, print_table);
    add("table on a terminal", "1f1b", MICROBATCHES, 128, prepare, print_folded);
    add("indices", "looped-bfs", MICROBATCHES, 128, prepare, print_indices);
    add("CSV", "dualpipev", MICROBATCHES, 128, prepare, print_csv);
    add("drawing", "zbv", MICROBATCHES, 128, prepare_drawing, print_svg);
    add("print a page", "zbv", MICROBATCHES, 128, prepare_drawing, print_page);
    const int failed = complexity_run("schedules", rows, count);
    sl_schedule_free(&table);
    sl_simulation_free(&drawn);
    fclose(nowhere);
    return failed;
}
