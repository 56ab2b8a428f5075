/* test_schedule_fuse.c - runs of neighbouring microbatches: joined and separate actions, and the length of runs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "spmd/schedule/fuse.h"
#include "spmd/schedule/registry.h"

static bool make(struct sl_schedule *schedule, const struct sl_schedule_kind *kind, int ranks, int loops,
                 int microbatches) {
    struct sl_error error;
    return sl_schedule_generate(schedule, kind, ranks, loops, microbatches, &error) == SL_OK;
}

static bool fuse(struct sl_schedule *schedule, int run) {
    struct sl_error error;
    bool fused;
    assert_int_equal(sl_schedule_fuse(schedule, run, &fused, &error), SL_OK);
    return fused;
}

/* All forwards of a rank, in order, as text: "0F0 0F1 ..."; a run is its microbatches. */
static void spell(const struct sl_schedule *schedule, int rank, char *text, size_t size) {
    size_t used = 0;
    *text = '\0';
    for (int i = 0; i < schedule->rank[rank].count; i++) {
        const struct sl_action *action = &schedule->rank[rank].action[i];
        const int run = sl_schedule_run(schedule, action->kind);
        if (action->kind != SL_FORWARD) continue;
        for (int m = 0; m < run && used < size; m++)
            used += (size_t)snprintf(text + used, size - used, "%dF%d ", action->loop, action->microbatch + m);
    }
}

/* A fused table is proven, has the same work in the same order, and room for whole runs. */
static void expect_the_same_work(const struct sl_schedule *plain, struct sl_schedule *fused, int run) {
    static char before[65536], after[65536];
    struct sl_error error;
    int slots;
    for (int r = 0; r < plain->ranks; r++) {
        spell(plain, r, before, sizeof before);
        spell(fused, r, after, sizeof after);
        assert_string_equal(before, after);
    }
    if (sl_schedule_lower(fused, &error) || sl_schedule_slots(fused, 1, &slots, &error)) fail_msg("%s", error.message);
    for (int group = 1; group <= plain->microbatches; group++) {
        if (plain->microbatches % group) continue;
        if (sl_schedule_check(fused, slots, group, NULL, &error)) fail_msg("%s", error.message);
        for (int r = 0; r < plain->ranks; r++) {
            const int window = sl_schedule_window(fused, r, group);
            const int backward = sl_schedule_backward_window(fused, r, group);
            assert_true(window % run == 0 && window % group == 0 && window <= plain->microbatches);
            assert_true(backward % run == 0 && backward % group == 0 && backward <= plain->microbatches);
        }
    }
}

static void fused_tables_do_the_same_work(void **state) {
    (void)state;
    const struct sl_schedule_kind *kind;
    int tables = 0;
    for (int i = 0; (kind = sl_schedule_kind_at(i)); i++) {
        for (int loops = kind->least_loops; loops <= kind->most_loops && loops <= 3; loops++) {
            for (int ranks = 1; ranks <= 5; ranks++) {
                for (int microbatches = 1; microbatches <= 12; microbatches++) {
                    for (int run = 2; run <= microbatches; run++) {
                        struct sl_schedule plain, fused;
                        if (!make(&plain, kind, ranks, loops, microbatches)) continue;
                        assert_true(make(&fused, kind, ranks, loops, microbatches));
                        if (fuse(&fused, run)) {
                            tables++;
                            assert_int_equal(microbatches % run, 0);
                            expect_the_same_work(&plain, &fused, run);
                        } else {
                            assert_int_equal(sl_schedule_run(&fused, SL_FORWARD), 1);
                            assert_int_equal(fused.rank[0].count, plain.rank[0].count);
                        }
                        sl_schedule_free(&plain);
                        sl_schedule_free(&fused);
                    }
                }
            }
        }
    }
    assert_true(tables > 500);
}

static void expect_runs(const char *name, int ranks, int loops, int microbatches, int run, bool expected) {
    struct sl_schedule schedule;
    struct sl_error error;
    assert_int_equal(sl_schedule_make(&schedule, name, ranks, loops, microbatches, &error), SL_OK);
    if (fuse(&schedule, run) != expected) fail_msg("%s, runs of %d: %s", name, run, expected ? "none" : "fused");
    sl_schedule_free(&schedule);
}

/* Forwards and backwards in turns are no neighbours, and nothing is reordered. */
static void only_neighbours_are_joined(void **state) {
    (void)state;
    expect_runs("gpipe", 4, 1, 8, 8, true);
    expect_runs("gpipe", 4, 1, 8, 3, false); /* does not divide */
    expect_runs("looped-bfs", 4, 2, 8, 4, true);
    expect_runs("looped-bfs", 4, 2, 2, 2, true); /* fewer microbatches than ranks */
    expect_runs("looped-dfs", 4, 2, 8, 4, true);
    expect_runs("looped-dfs", 4, 2, 8, 8, false); /* rounds of as many as there are ranks */
    expect_runs("1f1b", 4, 1, 8, 2, false);
    expect_runs("interleaved-1f1b", 4, 2, 8, 4, false);
    expect_runs("zbv", 4, 2, 8, 2, false);
}

static int planned(const char *name, int ranks, int loops, int microbatches, struct sl_fusing fusing) {
    struct sl_schedule schedule;
    struct sl_error error;
    assert_int_equal(sl_schedule_make(&schedule, name, ranks, loops, microbatches, &error), SL_OK);
    assert_int_equal(sl_schedule_fuse_planned(&schedule, &fusing, &error), SL_OK);
    const int run = sl_schedule_run(&schedule, SL_FORWARD);
    sl_schedule_free(&schedule);
    return run;
}

static void runs_are_planned(void **state) {
    (void)state;
    const struct sl_fusing shared = {.rows = 8, .coordinates = 8, .cores = 2}, own = {.rows = 8, .coordinates = 4};
    /* If all ranks share a core there is no bubble to lose: all microbatches at once. */
    assert_int_equal(planned("gpipe", 4, 1, 8, shared), 8);
    assert_int_equal(planned("looped-bfs", 4, 2, 8, shared), 8);
    /* With a core per rank the next rank waits for a run: longer runs win until the bubble costs more. */
    assert_int_equal(planned("gpipe", 4, 1, 8, own), 2);
    assert_int_equal(planned("looped-bfs", 2, 8, 8, (struct sl_fusing){.rows = 64, .coordinates = 2, .cores = 2}), 4);
    assert_int_equal(planned("gpipe", 1, 1, 8, own), 8);
    assert_int_equal(planned("gpipe", 8, 1, 8, (struct sl_fusing){.rows = 512, .coordinates = 8}), 1);
    assert_int_equal(planned("1f1b", 4, 1, 8, shared), 1);
}

static void one_rank_fills_the_cores(void **state) {
    (void)state;
    struct sl_schedule schedule;
    struct sl_error error;
    assert_int_equal(sl_schedule_make(&schedule, "1f1b", 4, 1, 8, &error), SL_OK);
    assert_true(sl_schedule_crowds(&schedule, &(struct sl_fusing){.coordinates = 8, .cores = 2}));
    assert_true(sl_schedule_crowds(&schedule, &(struct sl_fusing){.coordinates = 4, .cores = 1}));
    assert_false(sl_schedule_crowds(&schedule, &(struct sl_fusing){.coordinates = 4, .cores = 2}));
    assert_false(sl_schedule_crowds(&schedule, &(struct sl_fusing){.coordinates = 8}));
    sl_schedule_free(&schedule);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fused_tables_do_the_same_work),
        cmocka_unit_test(only_neighbours_are_joined),
        cmocka_unit_test(runs_are_planned),
        cmocka_unit_test(one_rank_fills_the_cores),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
