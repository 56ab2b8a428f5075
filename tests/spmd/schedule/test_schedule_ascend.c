/* test_schedule_ascend.c - tables with descending backwards, reversed: unchanged parts, and the gain for weight
 * gradients. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "spmd/schedule/fuse.h"
#include "spmd/schedule/registry.h"

enum { MOST_RANKS = 5, MOST_LOOPS = 3, MOST_MICROBATCHES = 12 };

/* Makes a table of KIND. Returns whether KIND allows these numbers. */
static bool make(struct sl_schedule *schedule, const struct sl_schedule_kind *kind, int ranks, int loops,
                 int microbatches) {
    struct sl_error error;
    return sl_schedule_generate(schedule, kind, ranks, loops, microbatches, &error) == SL_OK;
}

static bool turns(const struct sl_schedule_kind *kind) {
    return kind->generate == sl_schedule_find("gpipe", NULL)->generate;
}

/* Lowers the table and proves it, for weight gradients in groups of GROUP. */
static void prove(struct sl_schedule *schedule, int group) {
    struct sl_error error;
    int slots;
    if (sl_schedule_lower(schedule, &error) || sl_schedule_slots(schedule, 1, &slots, &error) ||
        sl_schedule_check(schedule, slots, group, NULL, &error))
        fail_msg("%s of %d x %d, %d microbatches: %s", schedule->name, schedule->ranks, schedule->loops,
                 schedule->microbatches, error.message);
}

/* Actions have the same places and times; forwards have the same microbatches, backwards those of the other end. */
static void expect_turned(const struct sl_schedule *schedule, const struct sl_schedule *before) {
    for (int r = 0; r < schedule->ranks; r++) {
        assert_int_equal(schedule->rank[r].count, before->rank[r].count);
        for (int i = 0; i < schedule->rank[r].count; i++) {
            const struct sl_action *now = &schedule->rank[r].action[i], *then = &before->rank[r].action[i];
            assert_int_equal(now->kind, then->kind);
            assert_int_equal(now->time, then->time);
            assert_int_equal(now->loop, then->loop);
            assert_int_equal(now->microbatch, now->kind == SL_FORWARD ? then->microbatch
                                                                      : schedule->microbatches - 1 - then->microbatch);
            assert_int_equal(now->has_input, then->has_input);
            assert_int_equal(now->has_output, then->has_output);
        }
    }
}

static void expect_weights_follow(const struct sl_schedule *schedule, int rank, int group, bool expected) {
    bool follow;
    assert_true(sl_schedule_weights_follow(schedule, rank, group, &follow));
    assert_int_equal(follow, expected);
}

/* In groups of GROUP and runs of RUN no weight gradient waits, if whole groups come at once. */
static void expect_nothing_waits(const struct sl_schedule_kind *kind, int ranks, int loops, int microbatches, int group,
                                 int run) {
    struct sl_schedule schedule;
    struct sl_error error;
    bool fused = true;
    assert_true(make(&schedule, kind, ranks, loops, microbatches));
    sl_schedule_ascend(&schedule);
    if (run > 1) assert_int_equal(sl_schedule_fuse(&schedule, run, &fused, &error), SL_OK);
    prove(&schedule, group);
    for (int r = 0; r < ranks && fused; r++) {
        expect_weights_follow(&schedule, r, group, run % group == 0);
        if (run % group && group % run) continue;
        assert_int_equal(sl_schedule_backward_window(&schedule, r, group), group > run ? group : run);
    }
    sl_schedule_free(&schedule);
}

static void backwards_ascend(void **state) {
    (void)state;
    const struct sl_schedule_kind *kind;
    for (int i = 0; (kind = sl_schedule_kind_at(i)); i++) {
        for (int ranks = 1; ranks <= MOST_RANKS; ranks++) {
            for (int n = 0; n < MOST_LOOPS * MOST_MICROBATCHES; n++) {
                const int loops = n % MOST_LOOPS + 1, microbatches = n / MOST_LOOPS + 1;
                struct sl_schedule schedule, before;
                if (!make(&before, kind, ranks, loops, microbatches)) continue;
                assert_true(make(&schedule, kind, ranks, loops, microbatches));
                sl_schedule_ascend(&schedule);
                if (turns(kind)) assert_true(schedule.ascends);
                if (schedule.ascends) expect_turned(&schedule, &before);
                prove(&schedule, 1);
                sl_schedule_free(&schedule);
                sl_schedule_free(&before);
                for (int group = 1; turns(kind) && group <= microbatches; group++)
                    for (int run = 1; microbatches % group == 0 && run <= microbatches; run++)
                        if (microbatches % run == 0) expect_nothing_waits(kind, ranks, loops, microbatches, group, run);
            }
        }
    }
}

/* Other tables stay: backwards in turns with forwards, with separate weight gradients, lowered, or in runs. */
static void others_stay(void **state) {
    (void)state;
    static const char *const names[] = {"1f1b", "zbv", "interleaved-zb", "gpipe", "gpipe"};
    for (int i = 0; i < 5; i++) {
        struct sl_error error;
        struct sl_schedule schedule;
        bool fused = true;
        assert_int_equal(sl_schedule_make(&schedule, names[i], 2, i == 1 || i == 2 ? 2 : 1, 4, &error), SL_OK);
        if (i == 3) assert_int_equal(sl_schedule_lower(&schedule, &error), SL_OK);
        if (i == 4) assert_int_equal(sl_schedule_fuse(&schedule, 2, &fused, &error), SL_OK);
        assert_true(fused);
        sl_schedule_ascend(&schedule);
        assert_false(schedule.ascends);
        if (i != 3) prove(&schedule, 1);
        for (int r = 0; r < 2; r++) expect_weights_follow(&schedule, r, 1, i == 0);
        sl_schedule_free(&schedule);
    }
}

int main(void) {
    cmocka_set_message_output(CM_OUTPUT_TAP);
    const struct CMUnitTest tests[] = {cmocka_unit_test(backwards_ascend), cmocka_unit_test(others_stay)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
