/* test_schedule_cores.c - simulated ranks that share cores: tables with known times, and bounds. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "spmd/schedule/registry.h"
#include "spmd/schedule/simulate.h"

static unsigned seed = 11;
static int random_below(int end) {
    seed = seed * 1664525u + 1013904223u;
    return (int)((seed >> 8) % (unsigned)end);
}

static void make(struct sl_schedule *schedule, const char *name, int ranks, int loops, int microbatches) {
    struct sl_error error = {0};
    if (sl_schedule_make(schedule, name, ranks, loops, microbatches, &error)) fail_msg("%s", error.message);
    assert_int_equal(sl_schedule_lower(schedule, &error), SL_OK);
}

static void simulate(const struct sl_schedule *schedule, const struct sl_costs *costs, struct sl_simulation *result) {
    struct sl_error error = {0};
    if (sl_schedule_simulate(schedule, costs, result, &error)) fail_msg("%s", error.message);
}

static bool near(double a, double b) { return fabs(a - b) <= 1e-9 * fmax(1, fabs(b)); }

/* The step of schedule NAME with uniform costs. */
static double step_of(const char *name, int ranks, int microbatches, struct sl_stage_costs stage, int cores,
                      int coordinates) {
    const struct sl_costs costs = {
        .count = 1, .stage = &stage, .overlap = true, .group = 1, .cores = cores, .coordinates = coordinates};
    struct sl_schedule schedule;
    struct sl_simulation result;
    make(&schedule, name, ranks, 1, microbatches);
    simulate(&schedule, &costs, &result);
    const double step = result.step;
    sl_simulation_free(&result);
    sl_schedule_free(&schedule);
    return step;
}

static const struct sl_stage_costs stage = {.forward = 1, .input_gradient = 2, .weight_gradient = 3};

/* If messages take no time, one core is never idle; its time is the sum of all work. */
static void one_core_does_all_work(void **state) {
    (void)state;
    for (int ranks = 1; ranks <= 8; ranks *= 2) {
        assert_true(near(step_of("1f1b", ranks, 8, stage, 1, 0), 6.0 * 8 * ranks));
        assert_true(near(step_of("gpipe", ranks, 8, stage, 1, 0), 6.0 * 8 * ranks));
    }
}

/* One microbatch goes from rank to rank, and only one rank has work; but W of all ranks except the first runs at the
 * same time. */
static void who_is_alone_has_a_whole_core(void **state) {
    (void)state;
    const struct sl_stage_costs forward = {.forward = 5};
    assert_true(near(step_of("gpipe", 4, 1, forward, 1, 0), 20));
    assert_true(near(step_of("gpipe", 4, 1, forward, 3, 0), 20));
}

static void copies_of_the_table_share_too(void **state) {
    (void)state;
    assert_true(near(step_of("1f1b", 1, 4, stage, 2, 8), 4 * 6.0 * 4)); /* eight replicas on two cores */
    assert_true(near(step_of("1f1b", 1, 4, stage, 2, 2), 6.0 * 4));     /* two have one each */
    assert_true(near(step_of("1f1b", 4, 4, stage, 2, 8), 6.0 * 4 * 4)); /* two pipelines on two cores: one has one */
}

/* Two ranks and a core: while both have work each takes twice as long. F0 of rank 0 ends at 1; then F1 of rank 0 and F0
 * of rank 1 share the core until 3. */
static void two_ranks_share_equally(void **state) {
    (void)state;
    const struct sl_stage_costs forward = {.forward = 1};
    const struct sl_costs costs = {.count = 1, .stage = &forward, .overlap = true, .cores = 1};
    struct sl_schedule schedule;
    struct sl_simulation result;
    make(&schedule, "gpipe", 2, 1, 2);
    simulate(&schedule, &costs, &result);
    assert_true(near(result.rank[0].busy, 2) && near(result.rank[1].busy, 2));
    assert_true(near(result.rank[0].starved, 1) && near(result.rank[1].starved, 1));
    assert_true(near(result.rank[0].bubble, 0.25) && near(result.bubble, 0.25));
    for (int i = 0; i < result.count; i++) {
        const struct sl_event *event = &result.event[i];
        if (event->kind != SL_FORWARD) continue;
        const double begins[2][2] = {{0, 1}, {1, 3}}, ends[2][2] = {{1, 3}, {3, 4}};
        assert_true(near(event->begin, begins[event->rank][event->microbatch]));
        assert_true(near(event->end, ends[event->rank][event->microbatch]));
    }
    sl_simulation_free(&result);
    sl_schedule_free(&schedule);
}

/* A rank that has waited begins later; on shared cores that is its own work. */
static void waiting_costs(void **state) {
    (void)state;
    const struct sl_stage_costs forward = {.forward = 10};
    struct sl_costs costs = {
        .count = 1, .stage = &forward, .overlap = true, .awake = 5, .wake = 3, .nap = 3, .notify = 1, .turn = 2};
    struct sl_schedule schedule;
    struct sl_simulation result;
    make(&schedule, "gpipe", 2, 1, 1);
    simulate(&schedule, &costs, &result); /* rank 1 sleeps until 10, and rank 0 until rank 1 has its gradient */
    assert_true(near(result.rank[1].transfer, 3) && near(result.span, 26));
    sl_simulation_free(&result);
    costs.awake = 10 / sqrt(SL_LONG_WAIT); /* half of the way from a nap to a long wait; the second one is longer */
    costs.nap = 2;
    simulate(&schedule, &costs, &result);
    assert_true(near(result.rank[1].transfer, 2.5));
    sl_simulation_free(&result);
    costs.awake = 10; /* a wait of just as long ends in sleep every other time, if they differ at all */
    costs.spread = 0.1;
    simulate(&schedule, &costs, &result);
    assert_true(near(result.rank[1].transfer, 1));
    sl_simulation_free(&result);
    costs.awake = 8; /* two deviations below: nearly always */
    costs.nap = costs.wake;
    simulate(&schedule, &costs, &result);
    assert_true(fabs(result.rank[1].transfer - 0.977 * 3) < 0.01);
    sl_simulation_free(&result);
    costs.awake = 100;
    costs.spread = 0;
    simulate(&schedule, &costs, &result);
    assert_true(near(result.span, 20));
    sl_simulation_free(&result);
    costs.cores = 1;
    simulate(&schedule, &costs, &result);
    assert_true(near(result.span, 24));
    sl_simulation_free(&result);
    costs.wake = -1;
    struct sl_error error = {0};
    assert_int_equal(sl_schedule_simulate(&schedule, &costs, &result, &error), SL_BAD_INPUT);
    assert_non_null(strstr(error.message, "waiting costs -1"));
    sl_schedule_free(&schedule);
}

static void draw(struct sl_stage_costs *costs, int stages) {
    for (int s = 0; s < stages; s++)
        costs[s] = (struct sl_stage_costs){.forward = 1 + random_below(9),
                                           .input_gradient = 1 + random_below(9),
                                           .weight_gradient = random_below(9),
                                           .reduce = random_below(5),
                                           .optimizer = random_below(5)};
}

/* With a core for each rank nothing changes; with fewer, a step takes no less than before, no less than the work on
 * these cores, and no more than all work in turn. */
static void bounds_hold(void **state) {
    (void)state;
    static const char *const names[] = {"gpipe", "1f1b", "interleaved-1f1b", "looped-bfs", "zb-h1", "zbv", "dualpipev"};
    for (int i = 0; i < 200; i++) {
        struct sl_stage_costs drawn[64];
        struct sl_schedule schedule;
        struct sl_simulation own, same, fewer;
        struct sl_error error = {0};
        const int ranks = 1 + random_below(6), rounds = 1 + random_below(3);
        const char *name = names[random_below((int)(sizeof names / sizeof *names))];
        const struct sl_schedule_kind *kind = sl_schedule_find(name, &error);
        if (!kind || sl_schedule_make(&schedule, name, ranks, kind->default_loops, 2 * ranks * rounds, &error))
            continue;
        assert_int_equal(sl_schedule_lower(&schedule, &error), SL_OK);
        draw(drawn, sl_schedule_stages(&schedule));
        struct sl_costs costs = {.count = sl_schedule_stages(&schedule),
                                 .stage = drawn,
                                 .communication = random_below(3),
                                 .overlap = random_below(2),
                                 .group = random_below(2) ? 1 : 2};
        if (schedule.microbatches % costs.group) costs.group = 1;
        simulate(&schedule, &costs, &own);
        costs.cores = ranks;
        simulate(&schedule, &costs, &same);
        costs.cores = 1 + random_below(ranks);
        simulate(&schedule, &costs, &fewer);
        double work = 0;
        for (int r = 0; r < ranks; r++) {
            assert_true(near(same.rank[r].busy, own.rank[r].busy) && near(fewer.rank[r].busy, own.rank[r].busy));
            assert_true(near(same.rank[r].end, own.rank[r].end) && near(same.rank[r].updated, own.rank[r].updated));
            work += own.rank[r].busy;
        }
        assert_true(near(same.step, own.step) && near(same.span, own.span));
        if (fewer.span < own.span * (1 - 1e-9) || fewer.span < work / costs.cores * (1 - 1e-9))
            fail_msg("%s: %g on %d cores, %g on %d", name, fewer.span, costs.cores, own.span, ranks);
        sl_simulation_free(&own);
        sl_simulation_free(&same);
        sl_simulation_free(&fewer);
        sl_schedule_free(&schedule);
    }
}

static void bad_input_is_refused(void **state) {
    (void)state;
    struct sl_schedule schedule;
    struct sl_simulation result;
    make(&schedule, "1f1b", 4, 1, 4);
    const struct {
        int cores, coordinates;
    } bad[] = {{-1, 0}, {1, -1}, {2, 3}};
    for (int i = 0; i < 3; i++) {
        struct sl_error error = {0};
        const struct sl_costs costs = {
            .count = 1, .stage = &stage, .cores = bad[i].cores, .coordinates = bad[i].coordinates};
        assert_int_equal(sl_schedule_simulate(&schedule, &costs, &result, &error), SL_BAD_INPUT);
        assert_non_null(strstr(error.message, "cores for"));
    }
    sl_schedule_free(&schedule);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_core_does_all_work),
        cmocka_unit_test(who_is_alone_has_a_whole_core),
        cmocka_unit_test(copies_of_the_table_share_too),
        cmocka_unit_test(two_ranks_share_equally),
        cmocka_unit_test(waiting_costs),
        cmocka_unit_test(bounds_hold),
        cmocka_unit_test(bad_input_is_refused),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests_name("cores", tests, NULL, NULL);
}
