/* test_schedule_registry.c - every row of the registry is complete: it can be found, explained, generated and proven,
 * and nothing depends on its name. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "spmd/schedule/registry.h"
#include "tests/rigs/schedule_tables.h"

enum { MOST_LOOPS = 4 }; /* largest number tried here */

static int most_tried(const struct sl_schedule_kind *kind) {
    return kind->most_loops < MOST_LOOPS ? kind->most_loops : MOST_LOOPS;
}

static void rows_are_whole(void **state) {
    (void)state;
    const struct sl_schedule_kind *kind;
    int rows = 0;
    for (; (kind = sl_schedule_kind_at(rows)); rows++) {
        assert_in_range(strlen(kind->name), 1, sizeof((struct sl_schedule *)NULL)->name - 1);
        assert_int_equal(strcspn(kind->name, " ,|\n"), strlen(kind->name)); /* one word of a list */
        assert_true(kind->help[0] && !strchr(kind->help, '\n'));
        assert_true(kind->source[0] && !strchr(kind->source, '\n'));
        assert_non_null(kind->generate);
        assert_in_range(kind->least_loops, 1, kind->default_loops);
        assert_in_range(kind->default_loops, kind->least_loops, kind->most_loops);
        assert_ptr_equal(sl_schedule_find(kind->name, NULL), kind); /* names are unique */
    }
    assert_true(rows >= 9);
    assert_null(sl_schedule_kind_at(-1));
    assert_null(sl_schedule_kind_at(rows + 1));
}

/* Users rely on these. */
static void known_schedules_keep_their_loops(void **state) {
    (void)state;
    static const struct {
        const char *name;
        int least, most, by_default;
    } known[] = {
        {"gpipe", 1, 1, 1},
        {"1f1b", 1, 1, 1},
        {"pipedream-flush", 1, 1, 1},
        {"interleaved-1f1b", 1, SL_ANY_LOOPS, 2},
        {"looped-bfs", 1, SL_ANY_LOOPS, 2},
        {"looped-dfs", 1, SL_ANY_LOOPS, 2},
        {"interleaved-zb", 1, SL_ANY_LOOPS, 2},
        {"zbv", 2, 2, 2},
        {"dualpipev", 2, 2, 2},
        {"dualpipe", 2, 2, 2},
        {"sequential", 1, SL_ANY_LOOPS, 1},
        {"grouped", 1, 1, 1},
        {"interleaved", 1, 1, 1},
        {"rotating", 1, SL_ANY_LOOPS, 2},
        {"rotating-inputs", 1, SL_ANY_LOOPS, 2},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        const struct sl_schedule_kind *kind = sl_schedule_find(known[i].name, NULL);
        assert_non_null(kind);
        assert_int_equal(kind->least_loops, known[i].least);
        assert_int_equal(kind->most_loops, known[i].most);
        assert_int_equal(kind->default_loops, known[i].by_default);
    }
}

static void generate(struct sl_schedule *schedule, const struct sl_schedule_kind *kind, int ranks, int loops,
                     int microbatches) {
    struct sl_error error = {0};
    if (sl_schedule_generate(schedule, kind, ranks, loops, microbatches, &error))
        fail_msg("%s of %d x %d, %d microbatches: %s", kind->name, ranks, loops, microbatches, error.message);
}

/* Three rounds of as many microbatches as ranks suit every algorithm; mirrored ranks come in pairs. */
static void every_row_is_generated_and_proven(void **state) {
    (void)state;
    const struct sl_schedule_kind *kind;
    for (int n = 0; (kind = sl_schedule_kind_at(n)); n++) {
        for (int loops = kind->least_loops; loops <= most_tried(kind); loops++) {
            const int pair = kind->placement == SL_MIRRORED ? 2 : 1;
            for (int ranks = pair; ranks <= 4; ranks += pair) {
                struct sl_schedule schedule;
                struct sl_error error = {0};
                int slots;
                generate(&schedule, kind, ranks, loops, 3 * ranks);
                assert_string_equal(schedule.name, kind->name);
                if (sl_schedule_lower(&schedule, &error) || sl_schedule_slots(&schedule, 1, &slots, &error) ||
                    sl_schedule_check(&schedule, slots, 1, NULL, &error))
                    fail_msg("%s", error.message);
                sl_schedule_free(&schedule);
            }
        }
    }
}

/* A row under another name gives the same table. */
static void nothing_depends_on_the_name(void **state) {
    (void)state;
    static char ours[TABLE_BYTES], renamed[TABLE_BYTES];
    const struct sl_schedule_kind *kind;
    for (int n = 0; (kind = sl_schedule_kind_at(n)); n++) {
        struct sl_schedule_kind other = *kind;
        other.name = "of-another-name";
        for (int loops = kind->least_loops; loops <= most_tried(kind); loops++) {
            struct sl_schedule schedule;
            generate(&schedule, kind, 4, loops, 12);
            table_text(&schedule, ours);
            sl_schedule_free(&schedule);
            generate(&schedule, &other, 4, loops, 12);
            table_text(&schedule, renamed);
            sl_schedule_free(&schedule);
            assert_string_equal(ours, renamed);
        }
    }
}

static void loops_follow_the_row(void **state) {
    (void)state;
    static const struct {
        int least, most, given, fit;
        const char *message; /* for the given loops; NULL: they are allowed */
    } cases[] = {
        {1, 1, 1, 1, NULL},
        {1, 1, 2, 1, "schedule x: 2 loops: must be 1"},
        {2, 2, 1, 2, "schedule x: 1 loops: must be 2"},
        {2, 4, 3, 3, NULL},
        {2, 4, 5, 4, "schedule x: 5 loops: must be from 2 to 4"},
        {3, SL_ANY_LOOPS, 2, 3, "schedule x: 2 loops: must be at least 3"},
        {1, SL_ANY_LOOPS, 50, 50, NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct sl_schedule_kind kind = *sl_schedule_find("looped-bfs", NULL);
        struct sl_schedule schedule;
        struct sl_error error = {0};
        kind.name = "x";
        kind.least_loops = cases[i].least;
        kind.most_loops = cases[i].most;
        assert_int_equal(sl_schedule_fit_loops(&kind, cases[i].given), cases[i].fit);
        assert_int_equal(sl_schedule_generate(&schedule, &kind, 2, cases[i].given, 4, &error),
                         cases[i].message ? SL_BAD_INPUT : SL_OK);
        if (cases[i].message) assert_string_equal(error.message, cases[i].message);
        sl_schedule_free(&schedule);
    }
}

static void names_are_listed_as_far_as_there_is_room(void **state) {
    (void)state;
    char all[500], few[12], message[600];
    struct sl_error error = {0};
    const struct sl_schedule_kind *kind;
    sl_schedule_names(all, sizeof all);
    assert_non_null(strstr(all,
                           "gpipe, 1f1b, pipedream-flush, interleaved-1f1b, looped-bfs, looped-dfs, interleaved-zb, "
                           "zbv, dualpipev, dualpipe, sequential, grouped, interleaved, rotating, "
                           "rotating-inputs"));
    for (int n = 0; (kind = sl_schedule_kind_at(n)); n++) assert_non_null(strstr(all, kind->name));
    sl_schedule_names(few, sizeof few);
    assert_int_equal(strlen(few), sizeof few - 1);
    assert_memory_equal(few, all, sizeof few - 1);
    assert_null(sl_schedule_find("2f2b", &error));
    assert_int_equal(error.status, SL_BAD_INPUT);
    snprintf(message, sizeof message, "there is no schedule \"2f2b\": the schedules are %s", all);
    assert_string_equal(error.message, message);
    assert_null(sl_schedule_find("2f2b", NULL));
}

int main(void) {
    cmocka_set_message_output(CM_OUTPUT_TAP);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_whole),
        cmocka_unit_test(known_schedules_keep_their_loops),
        cmocka_unit_test(every_row_is_generated_and_proven),
        cmocka_unit_test(nothing_depends_on_the_name),
        cmocka_unit_test(loops_follow_the_row),
        cmocka_unit_test(names_are_listed_as_far_as_there_is_room),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
