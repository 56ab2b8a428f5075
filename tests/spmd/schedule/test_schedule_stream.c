/* test_schedule_stream.c - tables of forwards only: proven, simulated, and refused if broken. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "spmd/schedule/fuse.h"
#include "spmd/schedule/registry.h"
#include "spmd/schedule/simulate.h"

static void make(struct sl_schedule *schedule, const struct sl_schedule_kind *kind, int ranks, int microbatches,
                 int run) {
    struct sl_error error = {0};
    bool fused = true;
    if (sl_schedule_generate(schedule, kind, ranks, kind->default_loops, microbatches, &error))
        fail_msg("%s", error.message);
    if (run > 1) assert_int_equal(sl_schedule_fuse(schedule, run, &fused, &error), SL_OK);
    assert_true(fused);
    assert_int_equal(sl_schedule_lower(schedule, &error), SL_OK);
}

static void stream(struct sl_schedule *passes, const struct sl_schedule *of, int count) {
    struct sl_error error = {0};
    if (sl_schedule_stream(passes, of, count, &error)) fail_msg("%s", error.message);
}

/* Returns the span of a table if each forward takes 1. */
static double span_of(const struct sl_schedule *schedule) {
    const struct sl_stage_costs stage = {.forward = 1};
    const struct sl_costs costs = {.count = 1, .stage = &stage};
    struct sl_simulation result;
    struct sl_error error = {0};
    if (sl_schedule_simulate(schedule, &costs, &result, &error)) fail_msg("%s", error.message);
    const double span = result.span;
    assert_true(result.step == span);
    sl_simulation_free(&result);
    return span;
}

/* Passes of every schedule, with as many slots as its own table needs; each microbatch is computed once in each
 * stage. */
static void passes_of_every_schedule_are_proven(void **state) {
    (void)state;
    for (int k = 0; sl_schedule_kind_at(k); k++) {
        const struct sl_schedule_kind *kind = sl_schedule_kind_at(k);
        for (int ranks = 1; ranks <= 4; ranks *= 2) {
            struct sl_schedule schedule, passes;
            struct sl_error error = {0};
            int slots;
            if (ranks == 1 && kind->placement != SL_RING) continue;
            make(&schedule, kind, ranks, 8, 1);
            assert_int_equal(sl_schedule_slots(&schedule, 1, &slots, &error), SL_OK);
            for (int count = 1; count <= 3; count++) {
                stream(&passes, &schedule, count);
                assert_int_equal(passes.microbatches, 8 * count);
                if (sl_schedule_check(&passes, slots, 1, NULL, &error))
                    fail_msg("%s on %d: %s", kind->name, ranks, error.message);
                const double span = span_of(&passes), work = (double)passes.microbatches * passes.loops / passes.copies;
                assert_in_range((int)span, (int)work, (int)work * ranks);
                sl_schedule_free(&passes);
            }
            sl_schedule_free(&schedule);
        }
    }
}

/* Without loops a rank has work from when the first microbatch comes until the last one has gone. */
static void passes_follow_each_other_without_a_gap(void **state) {
    (void)state;
    static const struct {
        const char *name;
        int run;
    } of[] = {{"gpipe", 1}, {"1f1b", 1}, {"gpipe", 2}, {"gpipe", 4}};
    for (int i = 0; i < 4; i++) {
        struct sl_schedule schedule, passes;
        make(&schedule, sl_schedule_find(of[i].name, NULL), 4, 8, of[i].run);
        stream(&passes, &schedule, 5);
        assert_true(span_of(&passes) == 5 * 8 + 3 * of[i].run);
        sl_schedule_free(&passes);
        sl_schedule_free(&schedule);
    }
}

/* Tables that lack a forward, have one twice, or have another kind. */
static void broken_tables_are_refused(void **state) {
    (void)state;
    struct sl_schedule schedule, passes;
    struct sl_error error = {0};
    make(&schedule, sl_schedule_find("1f1b", NULL), 2, 4, 1);
    for (int i = 0; i < 3; i++) {
        stream(&passes, &schedule, 2);
        struct sl_rank_schedule *last = &passes.rank[1];
        struct sl_action *end = &last->action[last->count - 1];
        assert_int_equal(end->kind, SL_FORWARD);
        if (i == 0) last->count--;
        if (i == 1) *end = last->action[last->count - 3];
        if (i == 2) end->kind = SL_BACKWARD;
        assert_int_equal(sl_schedule_check(&passes, 8, 1, NULL, &error), SL_BAD_INPUT);
        assert_non_null(strstr(error.message, i == 0   ? "has no forward in stage 1"
                                              : i == 1 ? "it was done before"
                                                       : "forwards alone"));
        sl_schedule_free(&passes);
    }
    sl_schedule_free(&schedule);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(passes_of_every_schedule_are_proven),
        cmocka_unit_test(passes_follow_each_other_without_a_gap),
        cmocka_unit_test(broken_tables_are_refused),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
