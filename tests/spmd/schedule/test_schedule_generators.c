/* test_schedule_generators.c - every generator makes PyTorch's tables, for all sizes of its algorithm. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "spmd/schedule/generate.h"
#include "tests/rigs/schedule_tables.h"

static const struct {
    const char *pytorch, *name;
} names[] = {
    {"1F1B", "pipedream-flush"}, {"Interleaved1F1B", "interleaved-1f1b"},
    {"LoopedBFS", "looped-bfs"}, {"InterleavedZeroBubble", "interleaved-zb"},
    {"ZBVZeroBubble", "zbv"},    {"DualPipeV", "dualpipev"},
};

static const char *our_name(const char *pytorch) {
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (!strcmp(names[i].pytorch, pytorch)) return names[i].name;
    }
    fail_msg("no generator for %s", pytorch);
    return NULL;
}

static void make(struct sl_schedule *schedule, const char *name, int ranks, int loops, int microbatches) {
    struct sl_error error = {0};
    if (sl_schedule_make(schedule, name, ranks, loops, microbatches, &error))
        fail_msg("%s of %d x %d, %d microbatches: %s", name, ranks, loops, microbatches, error.message);
}

/* Lowers the table and proves it, with as few slots as it can do with. */
static void prove(struct sl_schedule *schedule, int *stash) {
    struct sl_error error = {0};
    int slots = 0, status = sl_schedule_lower(schedule, &error);
    if (status == SL_OK) status = sl_schedule_slots(schedule, 1, &slots, &error);
    if (status == SL_OK) status = sl_schedule_check(schedule, slots, 1, stash, &error);
    if (status == SL_OK)
        status = sl_schedule_check(schedule, slots, schedule->microbatches / schedule->copies, NULL, &error);
    if (status)
        fail_msg("%s of %d x %d, %d microbatches: %s", schedule->name, schedule->ranks, schedule->loops,
                 schedule->microbatches, error.message);
}

/* ---- PyTorch's tables ---- */

static void tables_are_pytorchs(void **state) {
    (void)state;
    static struct table_file file[TABLE_FILES];
    static char ours[TABLE_BYTES], theirs[TABLE_BYTES];
    const int files = list_tables(file);
    assert_true(files >= 59);
    for (int i = 0; i < files; i++) {
        struct sl_schedule schedule;
        make(&schedule, our_name(file[i].algorithm), file[i].ranks, file[i].loops, file[i].microbatches);
        assert_true(read_bytes(file[i].path, theirs) > 0);
        drop_idle(theirs);
        table_text(&schedule, ours);
        size_t same = 0;
        while (ours[same] && ours[same] == theirs[same]) same++;
        if (ours[same] != theirs[same])
            fail_msg("%s: expected ...%.40s, made ...%.40s", file[i].path, theirs + same, ours + same);
        prove(&schedule, NULL);
        sl_schedule_free(&schedule);
    }
}

/* Two names of one table. */
static void names_agree_with_one_loop(void **state) {
    (void)state;
    static const char *const same[][2] = {{"gpipe", "looped-bfs"}, {"1f1b", "interleaved-1f1b"}};
    static char plain[TABLE_BYTES], looped[TABLE_BYTES];
    for (int i = 0; i < 2; i++) {
        for (int ranks = 1; ranks <= 5; ranks++) {
            for (int rounds = 1; rounds <= 3; rounds++) {
                struct sl_schedule schedule;
                make(&schedule, same[i][0], ranks, 1, rounds * ranks);
                table_text(&schedule, plain);
                sl_schedule_free(&schedule);
                make(&schedule, same[i][1], ranks, 1, rounds * ranks);
                table_text(&schedule, looped);
                sl_schedule_free(&schedule);
                assert_string_equal(plain, looped);
            }
        }
    }
}

/* ---- all sizes ---- */

/* The rules, said once more. */
static bool is_allowed(const struct sl_schedule_kind *kind, int ranks, int loops, int microbatches) {
    if (loops < kind->least_loops || loops > kind->most_loops) return false;
    if (kind->placement == SL_MIRRORED && (ranks % 2 || microbatches % 2)) return false;
    if (kind->generate == sl_generate_dualpipe) return microbatches >= 2 * ranks;
    if (kind->generate != sl_generate_1f1b || !kind->variant.one_f_one_b.in_rounds) return true;
    return microbatches < ranks || microbatches % (microbatches / ranks) == 0;
}

enum { NEVER = -1, MOST_STAGES = 24, MOST_MICROBATCHES = 16 };
struct times {
    int forward[MOST_STAGES][MOST_MICROBATCHES], input[MOST_STAGES][MOST_MICROBATCHES],
        weight[MOST_STAGES][MOST_MICROBATCHES];
};

static void note(int *time, const struct sl_action *action) {
    assert_int_equal(*time, NEVER);
    *time = action->time;
}

/* Every action once, a rank's cells one after the other. */
static void note_times(const struct sl_schedule *schedule, struct times *times) {
    memset(times, 0xff, sizeof *times);
    for (int r = 0; r < schedule->ranks; r++) {
        int before = -1;
        for (int i = 0; i < schedule->rank[r].count; i++) {
            const struct sl_action *action = &schedule->rank[r].action[i];
            const int stage = sl_schedule_stage(schedule, r, action->loop), m = action->microbatch;
            assert_in_range(stage, 0, schedule->ranks * schedule->loops - 1);
            assert_in_range(m, 0, schedule->microbatches - 1);
            if (action->kind == SL_FORWARD) note(&times->forward[stage][m], action);
            if (sl_has_input_gradient(action->kind)) note(&times->input[stage][m], action);
            if (sl_has_weight_gradient(action->kind)) note(&times->weight[stage][m], action);
            assert_true(action->paired ? action->time == before : action->time > before);
            before = action->time;
        }
    }
}

/* No action comes before its inputs. */
static void check_times(const struct sl_schedule *schedule, const struct times *times) {
    const int depth = schedule->ranks * schedule->loops / schedule->copies,
              each = schedule->microbatches / schedule->copies;
    for (int s = 0; s < schedule->copies * depth; s++) {
        const bool first = s % depth == 0, last = s % depth == depth - 1;
        for (int m = 0; m < schedule->microbatches; m++) {
            if (s / depth != m / each) {
                assert_true(times->forward[s][m] == NEVER && times->input[s][m] == NEVER);
                continue;
            }
            assert_true(times->forward[s][m] > (first ? NEVER : times->forward[s - 1][m]));
            assert_true(times->input[s][m] > times->forward[s][m]);
            assert_true(last || times->input[s][m] > times->input[s + 1][m]);
            assert_true(times->weight[s][m] >= times->input[s][m]);
        }
    }
}

static void all_sizes_are_whole_and_proven(void **state) {
    (void)state;
    static struct times times;
    const struct sl_schedule_kind *kind;
    for (int n = 0; (kind = sl_schedule_kind_at(n)); n++) {
        for (int ranks = 1; ranks <= 6; ranks++) {
            for (int loops = 1; loops <= 4; loops++) {
                for (int microbatches = 1; microbatches <= 15; microbatches++) {
                    if (!is_allowed(kind, ranks, loops, microbatches)) {
                        struct sl_error error = {0};
                        struct sl_schedule schedule;
                        assert_int_equal(sl_schedule_make(&schedule, kind->name, ranks, loops, microbatches, &error),
                                         SL_BAD_INPUT);
                        assert_true(error.message[0]);
                        continue;
                    }
                    struct sl_schedule schedule;
                    make(&schedule, kind->name, ranks, loops, microbatches);
                    note_times(&schedule, &times);
                    check_times(&schedule, &times);
                    prove(&schedule, NULL);
                    sl_schedule_free(&schedule);
                }
            }
        }
    }
}

/* ---- known properties of the schedules ---- */

/* pipedream-flush: a rank never holds more microbatches than there are ranks from itself to the last. */
static void one_f_one_b_holds_few_microbatches(void **state) {
    (void)state;
    for (int ranks = 1; ranks <= 8; ranks++) {
        for (int microbatches = 1; microbatches <= 12; microbatches++) {
            struct sl_schedule schedule;
            int stash[8];
            make(&schedule, "pipedream-flush", ranks, 1, microbatches);
            prove(&schedule, stash);
            for (int r = 0; r < ranks; r++)
                assert_int_equal(stash[r], microbatches < ranks - r ? microbatches : ranks - r);
            sl_schedule_free(&schedule);
        }
    }
}

/* ZBV with enough microbatches: a rank that has begun never waits. */
static void zbv_has_no_bubbles(void **state) {
    (void)state;
    for (int ranks = 1; ranks <= 8; ranks++) {
        for (int microbatches = 2 * ranks - 1; microbatches <= 20; microbatches++) {
            struct sl_schedule schedule;
            make(&schedule, "zbv", ranks, 2, microbatches);
            for (int r = 0; r < ranks; r++) {
                assert_int_equal(schedule.rank[r].count, 6 * microbatches);
                for (int i = 0; i < schedule.rank[r].count; i++)
                    assert_int_equal(schedule.rank[r].action[i].time, r + i);
            }
            sl_schedule_free(&schedule);
        }
    }
}

/* DualPipe: a pair of mirrored ranks does the work of one rank of DualPipeV, with half of the microbatches each. */
static void dualpipe_is_dualpipev_twice(void **state) {
    (void)state;
    for (int half = 1; half <= 4; half++) {
        for (int each = 2 * half; each <= 12; each++) {
            struct sl_schedule both, one;
            make(&both, "dualpipe", 2 * half, 2, 2 * each);
            make(&one, "dualpipev", half, 2, each);
            for (int r = 0; r < 2 * half; r++) {
                const struct sl_rank_schedule *mine = &both.rank[r], *like = &one.rank[r < half ? r : 2 * half - 1 - r];
                assert_int_equal(mine->count, like->count);
                for (int i = 0; i < mine->count; i++) {
                    const struct sl_action *a = &mine->action[i], *b = &like->action[i];
                    const int stage = sl_schedule_stage(&both, r, a->loop), copy = stage / (2 * half);
                    assert_true(a->kind == b->kind && a->loop == b->loop && a->paired == b->paired);
                    assert_int_equal(a->time, b->time);
                    assert_int_equal(a->microbatch, b->microbatch + copy * each);
                    assert_int_equal(copy ? 4 * half - 1 - stage : stage, r); /* the second copy comes down */
                }
            }
            sl_schedule_free(&both);
            sl_schedule_free(&one);
        }
    }
}

/* ---- rules ---- */

static void broken_rules_are_named(void **state) {
    (void)state;
    static const struct {
        const char *name;
        int ranks, loops, microbatches;
        const char *message;
    } cases[] = {
        {"interleaved-1f1b", 4, 2, 9,
         "schedule interleaved-1f1b: 9 microbatches on 4 stages: must be a multiple of the number of rounds, which is "
         "microbatches / stages rounded down: 2"},
        {"interleaved-zb", 2, 1, 7,
         "schedule interleaved-zb: 7 microbatches on 2 stages: must be a multiple of the number of rounds, which is "
         "microbatches / stages rounded down: 3"},
        {"dualpipev", 4, 2, 7, "schedule dualpipev: 7 microbatches on 4 stages: must be at least 8, two a stage"},
        {"dualpipe", 5, 2, 10, "schedule dualpipe: 5 stages: must be an even number, for ranks in pairs"},
        {"dualpipe", 4, 2, 6, "schedule dualpipe: 6 microbatches on 4 stages: must be at least 8, two a stage"},
        {"dualpipe", 4, 2, 9, "schedule dualpipe: 9 microbatches: must be an even number, half of them from each end"},
        {"zbv", 4, 3, 8, "schedule zbv: 3 loops: must be 2"},
        {"dualpipev", 4, 1, 8, "schedule dualpipev: 1 loops: must be 2"},
        {"1f1b", 4, 2, 8, "schedule 1f1b: 2 loops: must be 1"},
        {"gpipe", 4, 2, 8, "schedule gpipe: 2 loops: must be 1"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct sl_schedule schedule;
        struct sl_error error = {0};
        assert_int_equal(
            sl_schedule_make(&schedule, cases[i].name, cases[i].ranks, cases[i].loops, cases[i].microbatches, &error),
            SL_BAD_INPUT);
        assert_string_equal(error.message, cases[i].message);
    }
}

int main(void) {
    cmocka_set_message_output(CM_OUTPUT_TAP);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tables_are_pytorchs),
        cmocka_unit_test(names_agree_with_one_loop),
        cmocka_unit_test(all_sizes_are_whole_and_proven),
        cmocka_unit_test(one_f_one_b_holds_few_microbatches),
        cmocka_unit_test(zbv_has_no_bubbles),
        cmocka_unit_test(dualpipe_is_dualpipev_twice),
        cmocka_unit_test(broken_rules_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
