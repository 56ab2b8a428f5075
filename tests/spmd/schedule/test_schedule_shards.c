/* test_schedule_shards.c - UNSHARD and RESHARD: their places, the checker's refusals, and their costs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "spmd/schedule/csv.h"
#include "spmd/schedule/fuse.h"
#include "spmd/schedule/registry.h"
#include "spmd/schedule/simulate.h"

enum { MOST_RANKS = 4, MOST_LOOPS = 5, MOST_MICROBATCHES = 8 };

static bool is_inserted(const struct sl_action *action) {
    return action->kind == SL_UNSHARD || action->kind == SL_RESHARD;
}

static bool reads(const struct sl_action *action) {
    return action->kind == SL_FORWARD || sl_has_input_gradient(action->kind);
}

static void lower(struct sl_schedule *schedule, bool sharded) {
    struct sl_error error;
    schedule->sharded = sharded;
    if (sl_schedule_lower(schedule, &error)) fail_msg("%s", error.message);
}

/* Without the two kinds of actions, the table is the plain one. */
static void expect_the_same_rest(const struct sl_schedule *sharded, const struct sl_schedule *plain) {
    for (int r = 0; r < plain->ranks; r++) {
        int at = 0;
        for (int i = 0; i < sharded->rank[r].count; i++) {
            const struct sl_action *action = &sharded->rank[r].action[i];
            if (is_inserted(action)) continue;
            assert_true(at < plain->rank[r].count);
            const struct sl_action *other = &plain->rank[r].action[at++];
            assert_true(action->kind == other->kind && action->time == other->time && action->loop == other->loop &&
                        action->microbatch == other->microbatch && action->peer == other->peer &&
                        action->has_input == other->has_input && action->has_output == other->has_output &&
                        action->has_update == other->has_update && action->paired == other->paired);
        }
        assert_int_equal(at, plain->rank[r].count);
    }
}

/* Checks that at most two loops are gathered at once, each before its use. If a rank continues with a loop that it had
 * to gather, the gather must begin before the rank's last computation for another loop. */
static void expect_gathered_ahead(const struct sl_schedule *schedule, int rank) {
    const struct sl_rank_schedule *actions = &schedule->rank[rank];
    bool whole[MOST_LOOPS] = {false}, fresh[MOST_LOOPS] = {false};
    int count = 0, most = 0, computed = 0;
    for (int i = 0; i < actions->count; i++) {
        const struct sl_action *action = &actions->action[i];
        if (is_inserted(action)) {
            whole[action->loop] = action->kind == SL_UNSHARD;
            fresh[action->loop] = computed > 0;
            count += action->kind == SL_UNSHARD ? 1 : -1;
            most = count > most ? count : most;
        }
        if (!reads(action)) continue;
        assert_true(whole[action->loop]);
        assert_false(fresh[action->loop]);
        memset(fresh, 0, sizeof fresh);
        computed++;
    }
    assert_int_equal(count, 0);
    assert_int_equal(most, schedule->loops < 2 ? 1 : 2);
    assert_int_equal(sl_schedule_unsharded(schedule, rank), most);
}

static void every_schedule_gathers_one_action_early(void **state) {
    (void)state;
    const struct sl_schedule_kind *kind;
    struct sl_error error;
    int slots;
    for (int k = 0; (kind = sl_schedule_kind_at(k)); k++)
        for (int ranks = 1; ranks <= MOST_RANKS; ranks++)
            for (int loops = 1; loops <= MOST_LOOPS; loops++)
                for (int microbatches = 1; microbatches <= MOST_MICROBATCHES; microbatches++) {
                    struct sl_schedule plain, sharded;
                    if (sl_schedule_generate(&plain, kind, ranks, loops, microbatches, &error)) continue;
                    assert_int_equal(sl_schedule_generate(&sharded, kind, ranks, loops, microbatches, &error), SL_OK);
                    lower(&plain, false);
                    lower(&sharded, true);
                    if (sl_schedule_slots(&sharded, 1, &slots, &error)) fail_msg("%s", error.message);
                    expect_the_same_rest(&sharded, &plain);
                    for (int r = 0; r < ranks; r++) expect_gathered_ahead(&sharded, r);
                    sl_schedule_free(&plain);
                    sl_schedule_free(&sharded);
                }
}

static struct sl_schedule make(bool sharded) {
    struct sl_schedule schedule;
    struct sl_error error;
    assert_int_equal(sl_schedule_make(&schedule, "looped-bfs", 2, 4, 4, &error), SL_OK);
    lower(&schedule, sharded);
    return schedule;
}

static void remove_action(struct sl_rank_schedule *rank, enum sl_action_kind kind) {
    int at = 0;
    while (rank->action[at].kind != kind) at++;
    rank->count--;
    memmove(&rank->action[at], &rank->action[at + 1], (size_t)(rank->count - at) * sizeof *rank->action);
}

static void expect_refused(struct sl_schedule *schedule, const char *why) {
    struct sl_error error = {0};
    assert_int_equal(sl_schedule_check(schedule, 16, 1, NULL, &error), SL_BAD_INPUT);
    if (!strstr(error.message, why)) fail_msg("\"%s\" does not say: %s", error.message, why);
    sl_schedule_free(schedule);
}

static void the_checker_refuses(void **state) {
    (void)state;
    struct sl_schedule schedule = make(true);
    remove_action(&schedule.rank[1], SL_UNSHARD);
    expect_refused(&schedule, "rank 1, forward of microbatch 0 in stage 1: its loop's parameters have not been");
    schedule = make(true);
    remove_action(&schedule.rank[0], SL_RESHARD);
    expect_refused(&schedule, "there is room for two loops only");
    schedule = make(true);
    schedule.rank[0].action[1].loop = schedule.rank[0].action[0].loop;
    expect_refused(&schedule, "gathered already");
    schedule = make(true);
    schedule.rank[0].count--;
    expect_refused(&schedule, "rank 0 keeps the gathered parameters of 1 loops");
}

static double step_of(const struct sl_schedule *schedule, double unshard, double *waited) {
    const struct sl_stage_costs stage = {.forward = 1, .input_gradient = 1, .weight_gradient = 1, .unshard = unshard};
    const struct sl_costs costs = {.count = 1, .stage = &stage, .overlap = true};
    struct sl_simulation simulation;
    struct sl_error error;
    if (sl_schedule_simulate(schedule, &costs, &simulation, &error)) fail_msg("%s", error.message);
    const double step = simulation.step;
    *waited = 0;
    for (int r = 0; r < simulation.ranks; r++) *waited += simulation.rank[r].gathering;
    sl_simulation_free(&simulation);
    return step;
}

/* A loop computes for four units forward and eight backward. Shorter gathers cause a single wait. */
static void only_the_first_gather_is_waited_for(void **state) {
    (void)state;
    struct sl_schedule plain = make(false), sharded = make(true);
    double waited;
    const double step = step_of(&plain, 0, &waited);
    assert_true(step_of(&sharded, 0, &waited) == step && waited == 0);
    for (int cost = 1; cost <= 4; cost++) {
        assert_true(step_of(&sharded, cost, &waited) == step + cost);
        assert_true(waited <= 2 * cost);
    }
    assert_true(step_of(&sharded, 40, &waited) > step + 40);
    assert_true(step_of(&plain, 40, &waited) == step);
    sl_schedule_free(&plain);
    sl_schedule_free(&sharded);
}

/* A drawing has a gather for each action that begins one, and a mark for each end; none if gathering takes no time. */
static void events_show_them(void **state) {
    (void)state;
    struct sl_schedule sharded = make(true);
    int wanted[SL_ACTION_KINDS] = {0};
    for (int r = 0; r < sharded.ranks; r++)
        for (int i = 0; i < sharded.rank[r].count; i++) wanted[sharded.rank[r].action[i].kind]++;
    for (int unshard = 0; unshard <= 1; unshard++) {
        const struct sl_stage_costs stage = {1, 1, 1, 1, 1, unshard};
        const struct sl_costs costs = {.count = 1, .stage = &stage, .overlap = true};
        struct sl_simulation simulation;
        struct sl_error error;
        int shown[SL_EVENT_KINDS] = {0};
        if (sl_schedule_simulate(&sharded, &costs, &simulation, &error)) fail_msg("%s", error.message);
        for (int i = 0; i < simulation.count; i++) {
            const struct sl_event *event = &simulation.event[i];
            shown[event->kind]++;
            if (event->kind == SL_RESHARD) assert_true(event->begin == event->end);
        }
        assert_int_equal(shown[SL_UNSHARD], unshard ? wanted[SL_UNSHARD] : 0);
        assert_int_equal(shown[SL_RESHARD], shown[SL_UNSHARD]);
        sl_simulation_free(&simulation);
    }
    sl_schedule_free(&sharded);
}

static void a_file_has_them(void **state) {
    (void)state;
    static const char path[] = "sharded.csv";
    struct sl_schedule sharded = make(true), read;
    struct sl_error error;
    char first[32] = "";
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_int_equal(sl_schedule_write_csv(&sharded, file), SL_OK);
    fclose(file);
    file = fopen(path, "r");
    assert_non_null(file);
    assert_int_equal(fread(first, 1, 22, file), 22);
    fclose(file);
    assert_string_equal(first, "0UNSHARD,2UNSHARD,0F0,");
    if (sl_schedule_read_csv(&read, path, &error)) fail_msg("%s", error.message);
    lower(&read, true);
    for (int r = 0; r < sharded.ranks; r++) {
        int at = 0;
        for (int i = 0; i < sharded.rank[r].count; i++) {
            const struct sl_action *action = &sharded.rank[r].action[i];
            if (!reads(action) && !is_inserted(action)) continue;
            while (!reads(&read.rank[r].action[at]) && !is_inserted(&read.rank[r].action[at])) at++;
            assert_int_equal(read.rank[r].action[at].kind, action->kind);
            assert_int_equal(read.rank[r].action[at].loop, action->loop);
            assert_int_equal(read.rank[r].action[at++].microbatch, action->microbatch);
        }
    }
    remove(path);
    sl_schedule_free(&read);
    sl_schedule_free(&sharded);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_schedule_gathers_one_action_early),
        cmocka_unit_test(the_checker_refuses),
        cmocka_unit_test(only_the_first_gather_is_waited_for),
        cmocka_unit_test(events_show_them),
        cmocka_unit_test(a_file_has_them),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
