/* test_verdict.c - texts of verdicts: places and their current work, differing calls, signatures. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "collectives/operations.h"
#include "collectives/signatures.h"
#include "spmd/signature.h"

/* ---- places ---- */

static void expect_place(const struct sl_last_call *place, const char *wanted) {
    char text[300];
    assert_string_equal(sl_last_call_describe(place, text, sizeof text), wanted);
}

static void places_are_told(void **state) {
    (void)state;
    const struct sl_doing nothing = {0}, in_step = {.steps = 8}, forward = {.what = "forward", .stage = 3, .steps = 8};
    const struct sl_doing alone = {.what = "forward", .stage = 3}, module = {.module = "up (dense)"};
    const struct sl_doing both = {.steps = 8, .module = "up (dense)"};
    const struct sl_doing all = {.what = "forward", .steps = 1, .module = "up (dense)"};
    static const char call[] = "psum over \"data\" at train.c:12";
    const struct {
        const struct sl_doing *doing;
        const char *after;
    } row[] = {{&nothing, ""},
               {&in_step, " (step 7)"},
               {&forward, " (forward of stage 3, microbatch 0, action 0, step 7)"},
               {&alone, " (forward of stage 3, microbatch 0, action 0)"},
               {&module, " (in up (dense))"},
               {&both, " (step 7, in up (dense))"},
               {&all, " (forward of stage 0, microbatch 0, action 0, step 0, in up (dense))"}};
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        struct sl_last_call place = {0};
        char wanted[200];
        sl_last_call_note(&place, "psum", "over \"data\"", "train.c:12", row[i].doing);
        snprintf(wanted, sizeof wanted, "%s%s", call, row[i].after);
        expect_place(&place, wanted);
        sl_last_call_note(&place, NULL, NULL, NULL, row[i].doing);
        snprintf(wanted, sizeof wanted, "its start%s", row[i].after);
        expect_place(&place, wanted);
    }
    expect_place(&(struct sl_last_call){.verb = "psum"}, "its start"); /* half a place is none */
    expect_place(&(struct sl_last_call){.verb = "psum", .object = "over all"}, "its start");
}

static void waits_are_noted(void **state) {
    (void)state;
    struct sl_waiting waiting;
    struct sl_last_call place = {0};
    const struct sl_doing doing = {.what = "forward", .stage = 1, .steps = 2};
    char site[300];
    memset(site, 's', sizeof site - 1);
    site[sizeof site - 1] = 0;
    sl_last_call_note(&place, "psum", "over \"data\"", site, &doing);
    sl_waiting_note(&waiting, SL_WAITS, 3, &place);
    assert_int_equal(waiting.peer, 3);
    assert_int_equal(strlen(waiting.site), sizeof waiting.site - 1); /* it is cut */
    assert_string_equal(waiting.module, "");
    sl_waiting_note(&waiting, SL_COMPUTES, 3, &(struct sl_last_call){0});
    assert_int_equal(waiting.peer, -1);
    assert_string_equal(waiting.verb, "");
    assert_string_equal(sl_waiting_name(SL_WAITS), "waits");
    assert_string_equal(sl_waiting_name(SL_RETURNED), "returned");
    assert_string_equal(sl_waiting_name(-1), "unknown"); /* from another process anything may come */
    assert_string_equal(sl_waiting_name(99), "unknown");
}

/* ---- verdicts ---- */

static struct sl_mesh mesh_of(const char *text) {
    struct sl_mesh mesh;
    assert_int_equal(sl_mesh_parse(&mesh, text, NULL), SL_OK);
    return mesh;
}

static void what_does_not_fit_is_counted(void **state) {
    (void)state;
    const struct sl_mesh mesh = mesh_of("data=64");
    struct sl_error verdict = {0};
    int told = 0;
    sl_verdict_deadlock(&verdict, 64);
    while (told < 64 && sl_verdict_add_wait(&verdict, &mesh, told, (told + 1) % 64, "psum over \"data\" at train.c:12"))
        told++;
    assert_in_range(told, 5, 20);
    const size_t before = strlen(verdict.message);
    assert_false(sl_verdict_add(&verdict, "%0800d", 7));
    assert_int_equal(strlen(verdict.message), before);
    sl_verdict_add_more(&verdict, 64 - told);
    assert_non_null(strstr(verdict.message, " more"));
    assert_true(strlen(verdict.message) < sizeof verdict.message);
}

static void absent_and_alone(void **state) {
    (void)state;
    const struct sl_mesh mesh = mesh_of("data=2");
    struct sl_error verdict = {0};
    sl_verdict_deadlock(&verdict, 1);
    assert_string_equal(verdict.message, "deadlock: 1 coordinate waits for itself:");
    verdict = (struct sl_error){0};
    sl_verdict_absent(&verdict, &mesh, 1, 2.5, NULL);
    assert_string_equal(verdict.message,
                        "coordinate 1 (data=1) is absent: no sign of it for 2.5 s, while others wait for it:");
    verdict = (struct sl_error){0};
    sl_verdict_absent(&verdict, &mesh, 1, 2.5, "its start");
    assert_non_null(strstr(verdict.message, "since its start, while"));
}

/* Every operation by its name, with whom it pairs. */
static void calls_that_differ(void **state) {
    (void)state;
    const struct sl_mesh mesh = mesh_of("data=3");
    const struct sl_group group = {
        .size = 3, .rank = 0, .name = "data", .members = {.dims = 1, .count = {3}, .stride = {1}}};
    float in[6] = {0}, out[18];
    const int pair[1][2] = {{0, 1}};
    const struct sl_collective calls[] = {
        sl_describe_barrier(&group),
        sl_describe_psum(&group, SL_F32, in, out, 6),
        sl_describe_pmax(&group, SL_F32, in, out, 6),
        sl_describe_pmean(&group, SL_F32, in, out, 6),
        sl_describe_ppermute(&group, SL_F32, in, out, 6, 1, pair),
        sl_describe_broadcast(&group, SL_F32, in, out, 6, 2),
        sl_describe_broadcast(&group, SL_F32, in, out, 6, 1),
        sl_describe_gather(&group, SL_F32, in, out, 6, 0),
        sl_describe_psum(&group, SL_BF16, in, out, 6),
        sl_describe_psum(&group, SL_F32, in, out, 5),
    };
    enum { CALLS = sizeof calls / sizeof *calls };
    struct sl_collective call[CALLS];
    for (int i = 0; i < CALLS; i++) {
        call[i] = calls[i];
        call[i].site = "train.c:12";
    }
    for (int i = 0; i < CALLS; i++) {
        for (int j = 0; j < CALLS; j++) {
            if (i == j && call[i].operation != SL_BARRIER) continue;
            struct sl_error verdict = {0};
            if (i != j) assert_false(sl_calls_agree(&call[i], &call[j], 1));
            sl_verdict_mismatch(&verdict, &mesh, &call[i], 0, &call[j], 1);
            assert_non_null(strstr(verdict.message, "calls over \"data\" differ: coordinate 0 (data=0) calls "));
            assert_non_null(strstr(verdict.message, sl_collective_name(&call[j])));
        }
    }
    struct sl_error verdict = {0};
    sl_verdict_mismatch(&verdict, &mesh, &call[4], 0, &call[7], 1);
    assert_non_null(strstr(verdict.message, "from nobody to position 1"));
    assert_non_null(strstr(verdict.message, "to position 0"));
    struct sl_collective elsewhere = call[1];
    elsewhere.site = "other.c:3";
    assert_false(sl_calls_agree(&call[1], &elsewhere, 1));
    char same[] = "train.c:12"; /* the same text at another place */
    elsewhere.site = same;
    assert_true(sl_calls_agree(&call[1], &elsewhere, 1));
}

static void ends_of_channels(void **state) {
    (void)state;
    const struct sl_channel_end end = {2, 8, "a.c:1"}, same = {2, 8, "b.c:1"}, bytes = {2, 9, "b.c:1"},
                                slots = {3, 8, "b.c:1"};
    struct sl_error verdict = {0};
    assert_true(sl_channel_ends_agree(&verdict, 0, 1, &end, &same));
    assert_string_equal(verdict.message, "");
    assert_false(sl_channel_ends_agree(&verdict, 0, 1, &end, &bytes));
    assert_non_null(strstr(verdict.message, "2 slots of 8 bytes at a.c:1, 2 slots of 9 bytes at b.c:1"));
    verdict = (struct sl_error){0};
    assert_false(sl_channel_ends_agree(&verdict, 0, 1, &end, &slots));
    assert_non_null(strstr(verdict.message, "3 slots of 8 bytes"));
}

/* ---- signatures ---- */

/* Gives each of COUNT processes the value TEXT[process % DIFFERENT] of KEY and adds the comparison's text to
 * VERDICT. */
static void compare_key(const char *key, const char *axes, int count, int different, const char *const *text,
                        struct sl_error *verdict) {
    enum { MOST = 80 };
    const struct sl_mesh mesh = mesh_of(axes);
    struct sl_signature signature[MOST] = {{0}};
    struct sl_signed theirs[MOST];
    for (int i = 0; i < count; i++) {
        assert_true(sl_signature_add(&signature[i], key, text[i % different]));
        theirs[i] = (struct sl_signed){signature[i].bytes, signature[i].size};
    }
    sl_verdict_signatures(verdict, &mesh, count, theirs);
    for (int i = 0; i < count; i++) sl_signature_free(&signature[i]);
}

static void compare_on(const char *axes, int count, int different, const char *const *text, struct sl_error *verdict) {
    compare_key("--lr", axes, count, different, text, verdict);
}

static void compare(int count, int different, const char *const *text, struct sl_error *verdict) {
    *verdict = (struct sl_error){0};
    compare_on("data=64", count, different, text, verdict);
}

static void signatures_of_many(void **state) {
    (void)state;
    static const char *const values[] = {"0.1", "0.2", "0.3", "0.4", "0.5", "0.6"};
    struct sl_error verdict;
    compare(6, 6, values, &verdict);
    assert_non_null(strstr(verdict.message, "and 3 more"));
    compare(64, 2, values, &verdict); /* every second one: too many places to tell */
    assert_non_null(strstr(verdict.message, ", ..."));
    assert_non_null(strstr(verdict.message, "coordinates 0, 2, 4"));
    compare(70, 2, values, &verdict); /* processes without coordinates */
    assert_non_null(strstr(verdict.message, "processes 0, 2, 4"));
    compare(3, 1, values, &verdict);
    assert_string_equal(verdict.message, "the processes' signatures differ");
}

static void long_texts(void **state) {
    (void)state;
    char one[600], other[600], third[600];
    const char *const values[] = {one, other, third};
    struct sl_error verdict;
    memset(one, 'a', sizeof one - 1);
    one[sizeof one - 1] = 0;
    strcpy(other, one);
    strcpy(third, one);
    other[500] = 'b';
    third[20] = '\n';
    compare(3, 3, values, &verdict);
    assert_non_null(strstr(verdict.message, "..."));
    assert_null(strchr(verdict.message, '\n'));
    assert_non_null(strstr(verdict.message, "aaab"));
}

/* With long names of coordinates not even three texts fit: the clause is cut. */
static void long_texts_at_long_names(void **state) {
    (void)state;
    static const char mesh[] = "a_replica_of_the_model=2,a_stage_of_the_pipeline=2,a_share_of_each_tensor=1";
    char text[4][200];
    const char *const values[] = {text[0], text[1], text[2], text[3]};
    struct sl_error verdict = {0};
    for (int i = 0; i < 4; i++) {
        memset(text[i], 'a' + i, sizeof text[i] - 1);
        text[i][sizeof text[i] - 1] = 0;
    }
    compare_on(mesh, 4, 4, values, &verdict);
    assert_int_equal(strncmp(verdict.message, "--lr is aaa", 11), 0);
    assert_non_null(strstr(verdict.message, "(a_replica_of_the_model=0, a_stage_of_the_pipeline=1, "));
    assert_null(strstr(verdict.message, "ddd"));
    assert_in_range(strlen(verdict.message), 500, 600);
}

/* Not even two texts of a long key fit with the longest names of coordinates. */
static void two_texts_fill_a_clause(void **state) {
    (void)state;
    static const char mesh[] = "a_replica_of_the_modelx=2,a_stage_of_the_pipeline=2,a_share_of_each_tensorx=2,"
                               "a_share_of_a_sequencex=2,an_expert_of_the_modelx=1,a_sixth_of_all_the_axes=1";
    char text[3][200], key[80];
    const char *const values[] = {text[0], text[1], text[2]};
    struct sl_error verdict = {0};
    for (int i = 0; i < 3; i++) {
        memset(text[i], 'a' + i, sizeof text[i] - 1);
        text[i][sizeof text[i] - 1] = 0;
    }
    memset(key, 'k', sizeof key - 1);
    key[sizeof key - 1] = 0;
    compare_key(key, mesh, 3, 3, values, &verdict);
    assert_non_null(strstr(verdict.message, "bbb"));
    assert_null(strstr(verdict.message, "ccc"));
}

/* If no text fits any more, the differing keys are counted. */
static void differences_beyond_the_room(void **state) {
    (void)state;
    static const char *const values[] = {"0.1", "0.2"};
    struct sl_error verdict = {0};
    memset(verdict.message, '-', sizeof verdict.message - 40);
    compare_on("data=64", 2, 2, values, &verdict);
    assert_string_equal(verdict.message + sizeof verdict.message - 40, "; and 1 more");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(places_are_told),
        cmocka_unit_test(waits_are_noted),
        cmocka_unit_test(absent_and_alone),
        cmocka_unit_test(what_does_not_fit_is_counted),
        cmocka_unit_test(calls_that_differ),
        cmocka_unit_test(ends_of_channels),
        cmocka_unit_test(signatures_of_many),
        cmocka_unit_test(long_texts),
        cmocka_unit_test(two_texts_fill_a_clause),
        cmocka_unit_test(long_texts_at_long_names),
        cmocka_unit_test(differences_beyond_the_room),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
