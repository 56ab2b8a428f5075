/* test_synthesize.c - schedules made to measure: proven, within the memory limit, as fast as reported, and faster than
 * the named schedules. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "spmd/schedule/registry.h"
#include "spmd/schedule/synthesis/sketch.h"

enum { SETS = 50, LOOPS = 2, MOST_RANKS = 8, MOST_PARTS = MOST_RANKS * LOOPS };

/* A model, and ranks for it. */
struct set {
    struct sl_stage_costs part[MOST_PARTS];
    double kept[MOST_PARTS];
    struct sl_synthesis asked;
    bool uneven;
};

/* Parts of equal costs, or of 0.5 to 2 times as much; for all there is room, for as many microbatches as ranks, or for
 * any number. */
static void draw_set(struct set *set, int number) {
    struct sl_dice dice = {(uint64_t)number};
    const int ranks = 2 + sl_dice_below(&dice, MOST_RANKS - 1), parts = ranks * LOOPS;
    const double input = 0.8 + 0.5 * sl_dice_share(&dice), weight = 0.6 + 0.5 * sl_dice_share(&dice);
    double least = 0;
    set->uneven = number % 2;
    for (int p = 0; p < parts; p++) {
        const double times = set->uneven ? 0.5 + 1.5 * sl_dice_share(&dice) : 1;
        set->part[p] = (struct sl_stage_costs){
            .forward = times, .input_gradient = times * input, .weight_gradient = times * weight};
        set->kept[p] = set->uneven ? 0.5 + sl_dice_share(&dice) : 1;
        least = fmax(least, 2 * set->kept[p]);
    }
    const int room = number / 2 % 3;
    set->asked = (struct sl_synthesis){.ranks = ranks,
                                       .loops = LOOPS,
                                       .microbatches = 4 + sl_dice_below(&dice, 29),
                                       .part = set->part,
                                       .kept = set->kept,
                                       .communication = 0.4 * sl_dice_share(&dice),
                                       .memory = room == 0   ? (double)INFINITY
                                                 : room == 1 ? least * ranks
                                                             : least * (1 + sl_dice_below(&dice, 2 * ranks)),
                                       .seed = 1,
                                       .iterations = 300,
                                       .seconds = 60};
}

/* Returns the time of SCHEDULE for the model of SET; INFINITY if it saves more than allowed. */
static double simulated(const struct set *set, const struct sl_schedule *schedule, double *most) {
    const struct sl_synthesis *asked = &set->asked;
    const int parts = asked->ranks * asked->loops, stages = sl_schedule_stages(schedule);
    struct sl_stage_costs cost[MOST_PARTS];
    double kept[MOST_PARTS];
    struct sl_simulation simulation;
    struct sl_error error;
    sl_join_costs(asked->part, parts, cost, stages);
    sl_join_kept(asked->kept, parts, kept, stages);
    *most = 0;
    for (int r = 0; r < schedule->ranks; r++) *most = fmax(*most, sl_schedule_kept(schedule, r, kept));
    const struct sl_costs costs = {.count = stages, .stage = cost, .communication = asked->communication};
    if (sl_schedule_simulate(schedule, &costs, &simulation, &error)) fail_msg("%s", error.message);
    const double span = simulation.span;
    sl_simulation_free(&simulation);
    return *most <= asked->memory * (1 + 1e-9) ? span : (double)INFINITY;
}

/* Returns the shortest time of the named schedules that fit. */
static double best_named(const struct set *set) {
    const struct sl_schedule_kind *kind;
    double best = INFINITY, most;
    for (int i = 0; (kind = sl_schedule_kind_at(i)); i++) {
        struct sl_schedule schedule;
        struct sl_error error;
        if (kind->placement == SL_MIRRORED) continue; /* it holds the model twice */
        if (sl_schedule_generate(&schedule, kind, set->asked.ranks, sl_schedule_fit_loops(kind, LOOPS),
                                 set->asked.microbatches, &error))
            continue;
        assert_int_equal(sl_schedule_lower(&schedule, &error), SL_OK);
        best = fmin(best, simulated(set, &schedule, &most));
        sl_schedule_free(&schedule);
    }
    return best;
}

static void find(const struct set *set, struct sl_synthesized *found) {
    struct sl_error error;
    if (sl_schedule_synthesize(&set->asked, found, &error)) fail_msg("%s", error.message);
}

/* Finds a schedule and proves it. The simulator's proof has room for all messages, this one for as many as needed. */
static double check_found(const struct set *set) {
    struct sl_synthesized found;
    struct sl_error error;
    int slots;
    double most;
    find(set, &found);
    if (sl_schedule_slots(&found.schedule, 1, &slots, &error) ||
        sl_schedule_check(&found.schedule, slots, 1, NULL, &error))
        fail_msg("%s", error.message);
    const double span = simulated(set, &found.schedule, &most);
    assert_true(most <= set->asked.memory * (1 + 1e-9));
    assert_true(fabs(span - found.span) <= 1e-9 * span);
    assert_true(span >= found.bound * (1 - 1e-9));
    sl_schedule_free(&found.schedule);
    return span;
}

static int by_size(const void *left, const void *right) {
    const double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

static double median(double *value, int count) {
    assert_true(count > 0);
    qsort(value, (size_t)count, sizeof *value, by_size);
    return (value[(count - 1) / 2] + value[count / 2]) / 2;
}

static void test_of_random_costs(void **state) {
    double alone[SETS], uneven[SETS];
    int fitting = 0, unevens = 0;
    (void)state;
    for (int i = 0; i < SETS; i++) {
        struct set set;
        draw_set(&set, i);
        const double named = best_named(&set), span = check_found(&set);
        set.asked.named = true;
        const double with_named = check_found(&set);
        assert_true(with_named <= named * (1 + 1e-9));
        if (named == INFINITY) continue;
        alone[fitting++] = span / named;
        if (set.uneven) uneven[unevens++] = with_named / named;
    }
    const double middle = median(alone, fitting), uneven_middle = median(uneven, unevens);
    print_message("# of the best named one's time: median %.4f in %d sets; %.4f in %d uneven sets begun with it\n",
                  middle, fitting, uneven_middle, unevens);
    assert_true(middle <= 1.02);
    assert_true(uneven_middle <= 0.95);
}

static void test_of_a_seed(void **state) {
    struct sl_synthesized first, again;
    struct set set;
    (void)state;
    for (int i = 0; i < 4; i++) {
        draw_set(&set, i);
        find(&set, &first);
        find(&set, &again);
        assert_int_equal(first.schedule.loops, again.schedule.loops);
        for (int r = 0; r < set.asked.ranks; r++) {
            const struct sl_rank_schedule *one = &first.schedule.rank[r], *other = &again.schedule.rank[r];
            assert_int_equal(one->count, other->count);
            for (int a = 0; a < one->count; a++) {
                assert_int_equal(one->action[a].kind, other->action[a].kind);
                assert_int_equal(one->action[a].loop, other->action[a].loop);
                assert_int_equal(one->action[a].microbatch, other->action[a].microbatch);
            }
        }
        sl_schedule_free(&first.schedule);
        sl_schedule_free(&again.schedule);
    }
}

/* For actions that all take 1, Qi et al. 2024 give the memory of their V-Min and V-Half, in microbatches of a rank's
 * two stages, and about the bubble's share of a step. */
static void test_of_little_room(void **state) {
    const int ranks = 4, microbatches = 32;
    const struct {
        int room;
        double adds;
    } published[] = {{(ranks + 4) / 3, 2.0 * ranks / (3 * microbatches)},
                     {(ranks + 2) / 2, 0.5 * ranks / microbatches}};
    struct set set = {.uneven = false};
    (void)state;
    for (int p = 0; p < MOST_PARTS; p++)
        set.part[p] = (struct sl_stage_costs){.forward = 1, .input_gradient = 1, .weight_gradient = 1};
    for (int i = 0; i < 2; i++) {
        set.asked = (struct sl_synthesis){.ranks = ranks,
                                          .loops = LOOPS,
                                          .microbatches = microbatches,
                                          .part = set.part,
                                          .memory = LOOPS * published[i].room,
                                          .iterations = 4000,
                                          .seconds = 60};
        const double work = 3 * LOOPS * microbatches, span = check_found(&set);
        print_message("# room for %d microbatches: the bubble adds %.4f, V-%s %.4f\n", published[i].room,
                      span / work - 1, i ? "Half" : "Min", published[i].adds);
        assert_true(span <= work * (1 + published[i].adds));
    }
}

/* On a ring and on a V two ranks of three have 15 to do for a microbatch; 12 each is possible. */
static void test_of_balance(void **state) {
    const double times[6] = {1, 3, 2, 3, 2, 1};
    struct set set = {.uneven = true};
    struct sl_synthesized found;
    (void)state;
    for (int p = 0; p < 6; p++)
        set.part[p] =
            (struct sl_stage_costs){.forward = times[p], .input_gradient = times[p], .weight_gradient = times[p]};
    set.asked = (struct sl_synthesis){.ranks = 3,
                                      .loops = LOOPS,
                                      .microbatches = 8,
                                      .part = set.part,
                                      .memory = INFINITY,
                                      .iterations = 300,
                                      .seconds = 60};
    find(&set, &found);
    assert_string_equal(found.layout, "balanced");
    assert_true(found.span >= 8 * 12 && found.span < 8 * 15);
    sl_schedule_free(&found.schedule);
    check_found(&set);
}

/* No time at all, one rank, one loop or many, one microbatch. */
static void test_of_small_numbers(void **state) {
    struct set set;
    (void)state;
    for (int i = 0; i < 12; i++) {
        draw_set(&set, i);
        set.asked.seconds = 0;
        check_found(&set);
        set.asked.iterations = 1;
        check_found(&set);
        set.asked.microbatches = 1;
        check_found(&set);
        set.asked.ranks = i % 3 + 1;
        for (set.asked.loops = 1; set.asked.loops <= 4; set.asked.loops++) {
            set.asked.memory = INFINITY;
            set.asked.named = i % 2;
            const double span = check_found(&set);
            double work = 0;
            for (int p = 0; p < set.asked.loops; p++)
                work += set.part[p].forward + set.part[p].input_gradient + set.part[p].weight_gradient;
            if (set.asked.ranks == 1) assert_true(fabs(span - work) < 1e-9 * work);
        }
    }
}

/* ---- against all possible schedules ---- */

static double shortest;
static int sketches;

/* Goes on with the list of RANK from action PLACE on in every way. */
static void try_all(const struct sl_layout *layout, struct sl_sketch *sketch, struct sl_sketch_walk *walk, int rank,
                    int place, int done[SL_SKETCH_KINDS]) {
    const int actions = sl_layout_actions(layout);
    if (place == actions) {
        if (!sl_sketch_fits(layout, rank, &sketch->code[rank * actions])) return;
        if (rank + 1 < layout->table.ranks) {
            int none[SL_SKETCH_KINDS] = {0};
            try_all(layout, sketch, walk, rank + 1, 0, none);
            return;
        }
        sl_sketch_time(sketch, layout, walk);
        shortest = fmin(shortest, sketch->span);
        sketches++;
        return;
    }
    for (int kind = 0; kind < SL_SKETCH_KINDS; kind++) {
        if (done[kind] >= (kind ? done[kind - 1] : layout->table.microbatches)) continue;
        sketch->code[rank * actions + place] = (uint16_t)kind;
        done[kind]++;
        try_all(layout, sketch, walk, rank, place + 1, done);
        done[kind]--;
    }
}

/* Two ranks, one stage each, three microbatches: 42 orders on each. */
static void test_of_the_shortest(void **state) {
    (void)state;
    for (int i = 0; i < 24; i++) {
        struct set set;
        struct sl_error error;
        struct sl_sketch sketch;
        struct sl_sketch_walk walk;
        struct sl_synthesized found;
        draw_set(&set, 2 * i + 1);
        set.asked.ranks = 2;
        set.asked.loops = 1;
        set.asked.microbatches = 3;
        set.asked.memory = i % 4 ? fmax(set.kept[0], set.kept[1]) * (i % 4) : (double)INFINITY;
        struct sl_layout layout = {0};
        assert_int_equal(sl_layout_open(&layout, 2, 1, 3, SL_RING, &error), SL_OK);
        memcpy(layout.cost, set.part, 2 * sizeof *set.part);
        memcpy(layout.kept, set.kept, 2 * sizeof *set.kept);
        layout.communication = set.asked.communication;
        layout.memory = set.asked.memory;
        assert_true(sl_sketch_open(&sketch, &layout) && sl_sketch_walk_open(&walk, &layout));
        shortest = INFINITY;
        sketches = 0;
        try_all(&layout, &sketch, &walk, 0, 0, (int[SL_SKETCH_KINDS]){0});
        assert_true(set.asked.memory < INFINITY || sketches == 42 * 42);
        find(&set, &found);
        assert_true(found.bound <= shortest * (1 + 1e-9));
        assert_true(fabs(found.span - shortest) <= 1e-9 * shortest);
        sl_schedule_free(&found.schedule);
        sl_sketch_free(&sketch);
        sl_sketch_walk_free(&walk);
        sl_layout_free(&layout);
    }
}

/* ---- refusals, and sums ---- */

static void expect_refused(const struct sl_synthesis *asked, const char *why) {
    struct sl_synthesized found;
    struct sl_error error;
    assert_int_equal(sl_schedule_synthesize(asked, &found, &error), SL_BAD_INPUT);
    assert_non_null(strstr(error.message, why));
}

static void test_of_what_is_refused(void **state) {
    struct set set;
    (void)state;
    draw_set(&set, 0);
    set.asked.memory = 1.5;
    expect_refused(&set.asked, "keeps 2 bytes of one microbatch: there is no schedule that keeps at most 1.5");
    set.asked.memory = -1;
    expect_refused(&set.asked, "must not be negative");
    set.asked.memory = NAN;
    expect_refused(&set.asked, "must not be negative");
    set.asked.memory = INFINITY;
    set.asked.loops = SL_SYNTHESIS_MOST_LOOPS + 1;
    expect_refused(&set.asked, "17 loops: a schedule that is looked for has 1 to 128 ranks and 1 to 16 loops");
    set.asked.loops = LOOPS;
    set.asked.microbatches = 40000;
    expect_refused(&set.asked, "40000 microbatches: their product must be at most 65536");
    set.asked.microbatches = 0;
    expect_refused(&set.asked, "0 microbatches");
}

/* The saved amount is the checker's count, if each stage saves 1. */
static void test_of_kept(void **state) {
    const struct sl_schedule_kind *kind;
    const double one[4 * LOOPS] = {1, 1, 1, 1, 1, 1, 1, 1};
    (void)state;
    for (int i = 0; (kind = sl_schedule_kind_at(i)); i++) {
        struct sl_schedule schedule;
        struct sl_error error;
        int stash[4];
        assert_int_equal(sl_schedule_generate(&schedule, kind, 4, sl_schedule_fit_loops(kind, LOOPS), 8, &error),
                         SL_OK);
        assert_int_equal(sl_schedule_lower(&schedule, &error), SL_OK);
        assert_int_equal(sl_schedule_check(&schedule, 16, 1, stash, &error), SL_OK);
        for (int r = 0; r < 4; r++) assert_true(sl_schedule_kept(&schedule, r, one) == stash[r]);
        sl_schedule_free(&schedule);
    }
}

static void test_of_thick_stages(void **state) {
    const double kept[3] = {1, 2, 4};
    double joined[2];
    (void)state;
    sl_join_kept(kept, 3, joined, 2);
    assert_true(joined[0] == 2 && joined[1] == 5);
    sl_join_kept(NULL, 3, joined, 2);
    assert_true(joined[0] == 1.5 && joined[1] == 1.5);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_of_random_costs),    cmocka_unit_test(test_of_a_seed),
        cmocka_unit_test(test_of_little_room),     cmocka_unit_test(test_of_balance),
        cmocka_unit_test(test_of_small_numbers),   cmocka_unit_test(test_of_the_shortest),
        cmocka_unit_test(test_of_what_is_refused), cmocka_unit_test(test_of_kept),
        cmocka_unit_test(test_of_thick_stages),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
