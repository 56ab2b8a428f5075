/* test_schedule.c - generated schedules: the article's index arrays, proofs, and tables that must be refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "spmd/schedule/deadlock.h"
#include "spmd/schedule/registry.h"

static void make(struct sl_schedule *schedule, const char *name, int stages, int loops, int microbatches) {
    struct sl_error error = {0};
    assert_int_equal(sl_schedule_make(schedule, name, stages, loops, microbatches, &error), SL_OK);
    assert_int_equal(sl_schedule_lower(schedule, &error), SL_OK);
}

/* The three stages printed in the article on looping pipelines: 3 stages, 2 loops, 4 microbatches. */
static void prints_the_articles_indices(void **state) {
    (void)state;
    static const char expected[] = "=========== Stage Index 0 ===========\n"
                                   "step  :  0  1  2  3  4  5  6  7  8  9\n"
                                   "input :  0  1  2  3  0  1  2  3 -1 -1\n"
                                   "output: -1 -1 -1 -1 -1 -1 -1 -1 -1 -1\n"
                                   "update: -1 -1 -1  0  1  2  3 -1 -1 -1\n"
                                   "params:  0  0  0  0  1  1  1  1  0  0\n\n"
                                   "=========== Stage Index 1 ===========\n"
                                   "step  :  0  1  2  3  4  5  6  7  8  9\n"
                                   "input : -1 -1 -1 -1 -1 -1 -1 -1 -1 -1\n"
                                   "output: -1 -1 -1 -1 -1 -1 -1 -1 -1 -1\n"
                                   "update: -1 -1 -1 -1 -1 -1 -1 -1 -1 -1\n"
                                   "params:  0  0  0  0  0  1  1  1  1  0\n\n"
                                   "=========== Stage Index 2 ===========\n"
                                   "step  :  0  1  2  3  4  5  6  7  8  9\n"
                                   "input : -1 -1 -1 -1 -1 -1 -1 -1 -1 -1\n"
                                   "output: -1 -1 -1 -1 -1 -1  0  1  2  3\n"
                                   "update: -1 -1 -1 -1 -1 -1 -1 -1 -1 -1\n"
                                   "params:  0  0  0  0  0  0  1  1  1  1\n\n";
    struct sl_schedule schedule;
    char text[4096] = "";
    FILE *file = fmemopen(text, sizeof text, "w");
    assert_non_null(file);
    make(&schedule, "looped-bfs", 3, 2, 4);
    assert_int_equal(sl_schedule_print_indices(&schedule, file), SL_OK);
    fclose(file);
    assert_string_equal(text, expected);
    sl_schedule_free(&schedule);
}

/* The indices as prepare_looping_pipeline_indices of the article computes them, for microbatches >= stages. */
static void indices_follow_the_articles_formula(void **state) {
    (void)state;
    for (int s = 2; s <= 8; s++) {
        for (int v = 1; v <= 5; v++) {
            for (int m = s; m <= s + 9; m += 3) {
                struct sl_schedule schedule;
                make(&schedule, "looped-bfs", s, v, m);
                assert_int_equal(sl_schedule_iterations(&schedule), v * m + s - 1);
                for (int r = 0; r < s; r++) {
                    int forwards = 0;
                    for (int i = 0; i < schedule.rank[r].count; i++) {
                        const struct sl_action *action = &schedule.rank[r].action[i];
                        if (action->kind == SL_TAKE_ACTIVATION && r == 0) {
                            assert_in_range(action->time, s, s + (v - 1) * m - 1);
                            assert_int_equal(sl_action_update(action), (action->time - s) % m);
                        }
                        if (action->kind != SL_FORWARD) continue;
                        forwards++;
                        assert_int_equal(sl_action_input(action), r == 0 ? action->time % m : -1);
                        assert_int_equal(sl_action_output(action), r == s - 1 && action->time >= v * m + s - 1 - m
                                                                       ? action->time - (v * m + s - 1 - m)
                                                                       : -1);
                        assert_int_equal(sl_action_params(action), (action->time - r) / m);
                    }
                    assert_int_equal(forwards, v * m);
                }
                sl_schedule_free(&schedule);
            }
        }
    }
}

/* The clock cycles of GPipe: in cycle t partition j works on microbatch t - j. */
static void gpipe_follows_the_clock(void **state) {
    (void)state;
    struct sl_schedule schedule;
    make(&schedule, "gpipe", 3, 1, 5);
    assert_int_equal(sl_schedule_iterations(&schedule), 7);
    for (int r = 0; r < 3; r++) {
        for (int i = 0; i < schedule.rank[r].count; i++) {
            const struct sl_action *action = &schedule.rank[r].action[i];
            if (action->kind == SL_FORWARD) assert_int_equal(action->microbatch, action->time - r);
            if (action->kind == SL_BACKWARD) assert_int_equal(action->microbatch, 13 - action->time - r);
        }
    }
    sl_schedule_free(&schedule);
}

static void every_size_is_proven(void **state) {
    (void)state;
    for (int s = 1; s <= 9; s++) {
        for (int v = 1; v <= 5; v++) {
            for (int m = 1; m <= 20; m++) {
                struct sl_schedule schedule;
                struct sl_error error = {0};
                int stash[9] = {0};
                make(&schedule, "looped-bfs", s, v, m);
                if (sl_schedule_check(&schedule, 1, m, stash, &error)) fail_msg("%s", error.message);
                for (int r = 0; r < s; r++) assert_int_equal(stash[r], v * m);
                sl_schedule_free(&schedule);
            }
        }
    }
}

/* A table is refused if any action is dropped, doubled or exchanged with one that it depends on. */
static void broken_tables_are_refused(void **state) {
    (void)state;
    unsigned random = 12345, refused = 0;
    for (int round = 0; round < 2000; round++) {
        struct sl_schedule schedule;
        struct sl_error error = {0};
        make(&schedule, "looped-bfs", 3, 2, 4);
        random = random * 1664525u + 1013904223u;
        struct sl_rank_schedule *rank = &schedule.rank[(random >> 16) % 3];
        random = random * 1664525u + 1013904223u;
        const int at = (int)((random >> 16) % (unsigned)rank->count);
        if (round % 2) { /* drop */
            memmove(&rank->action[at], &rank->action[at + 1], (size_t)(rank->count - at - 1) * sizeof *rank->action);
            rank->count--;
        } else { /* double */
            const struct sl_action copy = rank->action[at];
            assert_non_null(sl_schedule_append(rank, &copy));
        }
        refused += sl_schedule_check(&schedule, 2, 1, NULL, &error) == SL_BAD_INPUT && error.message[0];
        sl_schedule_free(&schedule);
    }
    assert_int_equal(refused, 2000);
}

static void a_deadlock_is_named(void **state) {
    (void)state;
    struct sl_schedule schedule;
    struct sl_error error = {0};
    make(&schedule, "gpipe", 2, 1, 2);
    /* Rank 0 takes its last gradient before it sends any activation: rank 1 has none to make a gradient of. */
    struct sl_rank_schedule *rank = &schedule.rank[0];
    const struct sl_action last = rank->action[rank->count - 3];
    assert_int_equal(last.kind, SL_TAKE_GRADIENT);
    memmove(&rank->action[1], &rank->action[0], (size_t)(rank->count - 3) * sizeof *rank->action);
    rank->action[0] = last;
    assert_int_equal(sl_schedule_check(&schedule, 2, 1, NULL, &error), SL_BAD_INPUT);
    assert_non_null(strstr(error.message,
                           "deadlock: rank 0 in the take of the gradient of microbatch 0 in stage 0 waits "
                           "for rank 1, rank 1 in the take of the activation of microbatch 0 in stage 1 "
                           "waits for rank 0"));
    sl_schedule_free(&schedule);
}

/* The shortest circle among several, from any start; the end of the way if there is none. */
static void the_shortest_circle_is_found(void **state) {
    (void)state;
    static const struct {
        int waits_for[8], length, first;
    } of[] = {
        {{1, 2, 3, 4, 2, 6, 5, 0}, 2, 5},  {{1, 2, 0, 4, 3, 3, 3, 3}, 2, 3},        {{7, 0, 1, 2, 3, 4, 5, 6}, 8, 0},
        {{1, 2, -1, 4, 3, 3, 3, 3}, 0, 1}, {{-1, -1, -1, 3, -1, -1, -1, -1}, 1, 3},
    };
    int work[16], first;
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        assert_int_equal(sl_deadlock_circle(8, of[i].waits_for, work, &first), of[i].length);
        assert_int_equal(first, of[i].first);
    }
}

/* One walk finds the same number of slots as a search among all numbers. */
static void the_fewest_slots_are_found(void **state) {
    (void)state;
    for (int i = 0; sl_schedule_kind_at(i); i++) {
        const struct sl_schedule_kind *kind = sl_schedule_kind_at(i);
        const int pair = kind->placement == SL_MIRRORED ? 2 : 1;
        for (int ranks = pair; ranks <= 6; ranks += pair) {
            for (int microbatches = 2 * ranks; microbatches <= 24; microbatches += ranks) {
                struct sl_schedule schedule;
                struct sl_error error = {0};
                int slots, fewest = 1;
                make(&schedule, kind->name, ranks, kind->default_loops, microbatches);
                while (sl_schedule_check(&schedule, fewest, 1, NULL, &error)) fewest++;
                for (int least = 1; least <= 4; least++) {
                    assert_int_equal(sl_schedule_slots(&schedule, least, &slots, &error), SL_OK);
                    assert_int_equal(slots, least > fewest ? least : fewest);
                }
                sl_schedule_free(&schedule);
            }
        }
    }
}

static void impossible_numbers_are_refused(void **state) {
    (void)state;
    struct sl_schedule schedule;
    struct sl_error error = {0};
    assert_int_equal(sl_schedule_make(&schedule, "nonsense", 2, 1, 2, &error), SL_BAD_INPUT);
    assert_non_null(strstr(error.message, "gpipe, 1f1b, pipedream-flush, interleaved-1f1b, looped-bfs"));
    assert_int_equal(sl_schedule_make(&schedule, "gpipe", 2, 2, 2, &error), SL_BAD_INPUT);
    assert_int_equal(sl_schedule_make(&schedule, "looped-bfs", 0, 2, 2, &error), SL_BAD_INPUT);
    assert_int_equal(sl_schedule_make(&schedule, "looped-bfs", 2, 2, 0, &error), SL_BAD_INPUT);
    assert_int_equal(sl_schedule_make(&schedule, "looped-bfs", 2, 1 << 30, 1, &error), SL_BAD_INPUT);
}

/* Two stages, two microbatches, written by hand; FAULT changes the forward of microbatch 1 in stage 1. */
enum { HAND_STAGE = 1, HAND_MICROBATCH = 1 };
struct fault {
    enum sl_action_kind kind;
    int stage, microbatch;
    bool again; /* the field to change is in the next row, too */
    const char *text;
};

static void write_by_hand(struct sl_schedule *schedule, const struct fault *fault) {
    struct sl_error error = {0};
    assert_int_equal(sl_schedule_open(schedule, "mine", 2, 1, 2, &error), SL_OK);
    sl_schedule_place_stages(schedule, SL_RING);
    for (int m = 0; m < 2; m++) {
        for (int s = 0; s < 2; s++) {
            const bool here = fault && s == HAND_STAGE && m == HAND_MICROBATCH;
            if (here)
                assert_int_equal(sl_schedule_compute(schedule, fault->kind, fault->stage, fault->microbatch, false),
                                 SL_OK);
            if (!here || fault->again) assert_int_equal(sl_schedule_compute(schedule, SL_FORWARD, s, m, false), SL_OK);
        }
        for (int s = 1; s >= 0; s--) assert_int_equal(sl_schedule_compute(schedule, SL_BACKWARD, s, m, false), SL_OK);
    }
}

static void what_is_wrong_by_hand_is_told(void **state) {
    (void)state;
    static const struct fault faults[] = {
        {SL_FORWARD, 2, 1, false,
         "schedule mine: forward of microbatch 1 in stage 2: microbatches are 0 to 1, stages 0 to 1"},
        {SL_FORWARD, -1, 1, false,
         "schedule mine: forward of microbatch 1 in stage -1: microbatches are 0 to 1, stages 0 to 1"},
        {SL_FORWARD, 1000000, 0, true,
         "schedule mine: forward of microbatch 0 in stage 1000000: microbatches are 0 to 1, stages 0 to 1"},
        {SL_FORWARD, 1, 2, false,
         "schedule mine: forward of microbatch 2 in stage 1: microbatches are 0 to 1, stages 0 to 1"},
        {SL_BACKWARD, 1, -1, true,
         "schedule mine: backward of microbatch -1 in stage 1: microbatches are 0 to 1, stages 0 to 1"},
        {SL_FORWARD, 1, 65537, false,
         "schedule mine: forward of microbatch 65537 in stage 1: microbatches are 0 to 1, stages 0 to 1"},
        {SL_SEND_ACTIVATION, 1, 1, true,
         "schedule mine: kind 4 of an action: it computes from SL_FORWARD to SL_WEIGHT_GRADIENT"},
        {(enum sl_action_kind)77, 1, 1, true,
         "schedule mine: kind 77 of an action: it computes from SL_FORWARD to SL_WEIGHT_GRADIENT"},
    };
    struct sl_schedule schedule;
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        struct sl_error error = {0};
        write_by_hand(&schedule, &faults[i]);
        assert_int_equal(sl_schedule_clock(&schedule, &error), SL_BAD_INPUT);
        assert_string_equal(error.message, faults[i].text);
        assert_int_equal(sl_schedule_lower(&schedule, &error), SL_BAD_INPUT);
        assert_string_equal(error.message, faults[i].text);
        sl_schedule_free(&schedule);
    }
    static const struct fault twice[] = {
        {SL_FORWARD, 1, 1, true, "schedule mine: rank 1, forward of microbatch 1 in stage 1: it was done before"},
        {SL_BACKWARD, 0, 0, true, "schedule mine: rank 0, backward of microbatch 0 in stage 0: it was done before"},
    };
    for (size_t i = 0; i < sizeof twice / sizeof *twice; i++) {
        struct sl_error error = {0};
        write_by_hand(&schedule, &twice[i]);
        int slots;
        assert_int_equal(sl_schedule_clock(&schedule, &error), SL_OK);
        assert_int_equal(sl_schedule_lower(&schedule, &error), SL_OK);
        assert_int_equal(sl_schedule_slots(&schedule, 1, &slots, &error), SL_BAD_INPUT);
        assert_string_equal(error.message, twice[i].text);
        sl_schedule_free(&schedule);
    }
    write_by_hand(&schedule, NULL);
    assert_int_equal(sl_schedule_clock(&schedule, NULL), SL_OK);
    sl_schedule_free(&schedule);
}

/* A list made by sl_schedule_append, and stages without a place. */
static void tables_name_what_they_have(void **state) {
    (void)state;
    struct sl_schedule schedule;
    struct sl_error error = {0};
    write_by_hand(&schedule, NULL);
    assert_non_null(sl_schedule_append(&schedule.rank[1], &(struct sl_action){.kind = SL_FORWARD, .microbatch = 2}));
    assert_int_equal(sl_schedule_lower(&schedule, &error), SL_BAD_INPUT);
    assert_non_null(strstr(error.message, "rank 1, action 4 has kind 0, loop 0, microbatch 2: "));
    sl_schedule_free(&schedule);
    assert_int_equal(sl_schedule_open(&schedule, "mine", 2, 1, 2, &error), SL_OK);
    assert_int_equal(sl_schedule_compute(&schedule, SL_FORWARD, 1, 0, false), SL_OK);
    assert_int_equal(sl_schedule_clock(&schedule, &error), SL_BAD_INPUT);
    assert_string_equal(error.message,
                        "schedule mine: stage 1 has no place: call sl_schedule_place_stages before the first action");
    sl_schedule_free(&schedule);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(prints_the_articles_indices),    cmocka_unit_test(indices_follow_the_articles_formula),
        cmocka_unit_test(gpipe_follows_the_clock),        cmocka_unit_test(every_size_is_proven),
        cmocka_unit_test(broken_tables_are_refused),      cmocka_unit_test(a_deadlock_is_named),
        cmocka_unit_test(the_shortest_circle_is_found),   cmocka_unit_test(the_fewest_slots_are_found),
        cmocka_unit_test(impossible_numbers_are_refused), cmocka_unit_test(what_is_wrong_by_hand_is_told),
        cmocka_unit_test(tables_name_what_they_have),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
