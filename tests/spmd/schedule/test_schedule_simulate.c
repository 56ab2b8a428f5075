/* test_schedule_simulate.c - simulated times: closed forms of the literature, a naive oracle, bounds. Costs are whole
 * numbers, so sums are exact. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "spmd/schedule/fuse.h"
#include "spmd/schedule/registry.h"
#include "spmd/schedule/simulate.h"

enum { MOST_STAGES = 64, MOST_MICROBATCHES = 40 };

static unsigned seed = 20;
static int random_below(int end) {
    seed = seed * 1664525u + 1013904223u;
    return (int)((seed >> 8) % (unsigned)end);
}

/* False: the generator does not allow these numbers. */
static bool try_make(struct sl_schedule *schedule, const char *name, int ranks, int loops, int microbatches) {
    struct sl_error error = {0};
    if (sl_schedule_make(schedule, name, ranks, loops, microbatches, &error)) return false;
    assert_int_equal(sl_schedule_lower(schedule, &error), SL_OK);
    return true;
}

static void simulate(const struct sl_schedule *schedule, const struct sl_costs *costs, struct sl_simulation *result) {
    struct sl_error error = {0};
    if (sl_schedule_simulate(schedule, costs, result, &error)) fail_msg("%s", error.message);
}

/* The same costs for all stages. */
static void simulate_uniform(const struct sl_schedule *schedule, struct sl_stage_costs stage, double communication,
                             int group, struct sl_simulation *result) {
    const struct sl_costs costs = {
        .count = 1, .stage = &stage, .communication = communication, .overlap = true, .group = group};
    simulate(schedule, &costs, result);
}

/* ---- closed forms ---- */

/* Every rank is idle for (ranks - 1) times IDLE(costs); its time is its work plus that. */
struct closed_form {
    const char *name;
    int loops;                         /* 0: 1 to 4 */
    int per_round;                     /* microbatches are a multiple of the ranks */
    int (*fewest)(int ranks);          /* microbatches */
    struct sl_stage_costs least, most; /* costs for which it holds */
    double (*idle)(struct sl_stage_costs);
};

static int one(int ranks) {
    (void)ranks;
    return 1;
}
static int as_many(int ranks) { return ranks; }
static int twice_less_one(int ranks) { return 2 * ranks - 1; }
static int twice(int ranks) { return 2 * ranks; }

static double forward_and_backward(struct sl_stage_costs c) { return c.forward + c.input_gradient + c.weight_gradient; }
static double less_the_weights(struct sl_stage_costs c) { return c.forward + c.input_gradient - c.weight_gradient; }
static double one_forward(struct sl_stage_costs c) { return c.forward; }

static const struct closed_form closed_forms[] = {
    /* (n - 1) / (n + m - 1): Huang et al. 2019, and with 1F1B Narayanan et al. 2019. */
    {"gpipe", 1, 0, one, {1, 1, 1, 0, 0, 0}, {9, 9, 9, 0, 0, 0}, forward_and_backward},
    {"pipedream-flush", 1, 0, one, {1, 1, 1, 0, 0, 0}, {9, 9, 9, 0, 0, 0}, forward_and_backward},
    {"1f1b", 1, 0, one, {1, 1, 1, 0, 0, 0}, {9, 9, 9, 0, 0, 0}, forward_and_backward},
    /* (n - 1) / (v m + n - 1): Narayanan et al. 2021, Lamy-Poirier 2023. */
    {"looped-bfs", 0, 0, as_many, {1, 1, 1, 0, 0, 0}, {9, 9, 9, 0, 0, 0}, forward_and_backward},
    {"looped-dfs", 0, 1, as_many, {1, 1, 1, 0, 0, 0}, {9, 9, 9, 0, 0, 0}, forward_and_backward},
    {"interleaved-1f1b", 0, 1, as_many, {1, 1, 1, 0, 0, 0}, {9, 9, 9, 0, 0, 0}, forward_and_backward},
    /* ZB-H1: (n - 1) (F + I - W) of idle time, Qi et al. 2023; loops make the work more, and not the idle time. */
    {"interleaved-zb", 0, 1, as_many, {1, 1, 1, 0, 0, 0}, {1, 1, 1, 0, 0, 0}, less_the_weights},
    {"interleaved-zb", 0, 1, as_many, {7, 4, 1, 0, 0, 0}, {9, 6, 3, 0, 0, 0}, less_the_weights},
    /* ZB-V with F = I = W: Qi et al. 2023 call it zero, because no rank is idle between its first action and its last.
     * Rank r begins r forwards late; so it is (n - 1) / (6 m + n - 1) of the time from the first rank's first action to
     * the last rank's last one. */
    {"zbv", 2, 0, twice_less_one, {1, 1, 1, 0, 0, 0}, {1, 1, 1, 0, 0, 0}, one_forward},
    {"zbv", 2, 0, twice_less_one, {5, 5, 5, 0, 0, 0}, {5, 5, 5, 0, 0, 0}, one_forward},
    /* DualPipeV with F = I = W, its pairs one after the other: as ZB-V. */
    {"dualpipev", 2, 0, twice, {1, 1, 1, 0, 0, 0}, {1, 1, 1, 0, 0, 0}, one_forward},
};

static int between(double least, double most) { return (int)least + random_below((int)(most - least) + 1); }

static void check_closed_form(const struct closed_form *form, int n, int v, int m) {
    struct sl_schedule schedule;
    struct sl_simulation result;
    struct sl_stage_costs c = {between(form->least.forward, form->most.forward),
                               between(form->least.input_gradient, form->most.input_gradient),
                               between(form->least.weight_gradient, form->most.weight_gradient),
                               0,
                               0,
                               0};
    if (!try_make(&schedule, form->name, n, v, m)) fail_msg("%s: %d %d %d", form->name, n, v, m);
    simulate_uniform(&schedule, c, 0, 0, &result);
    const double work = v * m * forward_and_backward(c), idle = (n - 1) * form->idle(c);
    if (result.span != work + idle || result.step != result.span || result.bubble != idle / (work + idle))
        fail_msg("%s: %d ranks, %d loops, %d microbatches: %g, not %g + %g", form->name, n, v, m, result.span, work,
                 idle);
    for (int r = 0; r < n; r++) {
        assert_true(result.rank[r].busy == work);
        assert_true(result.rank[r].bubble == idle / (work + idle));
    }
    sl_simulation_free(&result);
    sl_schedule_free(&schedule);
}

static void closed_forms_hold(void **state) {
    (void)state;
    for (size_t f = 0; f < sizeof closed_forms / sizeof *closed_forms; f++) {
        const struct closed_form *form = &closed_forms[f];
        for (int n = 1; n <= 8; n++) {
            for (int v = form->loops ? form->loops : 1; v <= (form->loops ? form->loops : 4); v++) {
                for (int m = form->fewest(n); m <= 4 * n + 1; m += form->per_round ? n : 1)
                    check_closed_form(form, n, v, m);
            }
        }
    }
}

/* Fewer microbatches than ranks in a looping pipeline: a loop takes as long as a microbatch's way round. */
static void looping_with_few_microbatches(void **state) {
    (void)state;
    for (int n = 2; n <= 8; n++) {
        for (int v = 1; v <= 4; v++) {
            for (int m = 1; m < n; m++) {
                struct sl_schedule schedule;
                struct sl_simulation result;
                assert_true(try_make(&schedule, "looped-bfs", n, v, m));
                simulate_uniform(&schedule, (struct sl_stage_costs){2, 3, 4, 0, 0, 0}, 0, 0, &result);
                assert_true(result.span == 9 * (v * n + m - 1));
                assert_true(result.bubble == (double)(v * n + m - 1 - v * m) / (v * n + m - 1));
                sl_simulation_free(&result);
                sl_schedule_free(&schedule);
            }
        }
    }
}

/* Without microbatches one rank works at a time: (n - 1) / n. */
static void one_microbatch_is_naive(void **state) {
    (void)state;
    for (int n = 1; n <= 32; n++) {
        struct sl_schedule schedule;
        struct sl_simulation result;
        struct sl_stage_costs c = {1 + random_below(9), 1 + random_below(9), 1 + random_below(9), 0, 0, 0};
        assert_true(try_make(&schedule, "gpipe", n, 1, 1));
        simulate_uniform(&schedule, c, 0, 0, &result);
        assert_true(result.bubble == (double)(n - 1) / n);
        sl_simulation_free(&result);
        sl_schedule_free(&schedule);
    }
}

/* Filling and draining wait for a message a hop; a rank does not wait for itself. */
static void messages_take_their_time(void **state) {
    (void)state;
    for (int n = 1; n <= 6; n++) {
        for (int m = 1; m <= 9; m++) {
            struct sl_schedule schedule;
            struct sl_simulation result;
            assert_true(try_make(&schedule, "gpipe", n, 1, m));
            simulate_uniform(&schedule, (struct sl_stage_costs){2, 3, 4, 0, 0, 0}, 5, 0, &result);
            assert_true(result.span == (n + m - 1) * 9 + 2 * (n - 1) * 5);
            sl_simulation_free(&result);
            sl_schedule_free(&schedule);
        }
    }
    struct sl_schedule schedule;
    struct sl_simulation result;
    assert_true(try_make(&schedule, "looped-bfs", 1, 3, 4));
    simulate_uniform(&schedule, (struct sl_stage_costs){2, 3, 4, 0, 0, 0}, 5, 0, &result);
    assert_true(result.span == 3 * 4 * 9);
    sl_simulation_free(&result);
    sl_schedule_free(&schedule);
}

/* The executor's order: gradients are sent before weight gradients are computed; the first rank computes weight
 * gradients last of all. */
static void grouped_weight_gradients_fill_the_drain(void **state) {
    (void)state;
    for (int n = 1; n <= 6; n++) {
        for (int m = 1; m <= 9; m++) {
            struct sl_schedule schedule;
            struct sl_simulation result;
            assert_true(try_make(&schedule, "gpipe", n, 1, m));
            simulate_uniform(&schedule, (struct sl_stage_costs){2, 3, 4, 7, 0, 0}, 0, m, &result);
            assert_true(result.span == (n + m - 1) * 5 + m * 4);
            assert_true(result.step == result.span + 7);
            for (int i = 0; i < result.count; i++) {
                const struct sl_event *event = &result.event[i];
                assert_true(event->kind != SL_BACKWARD);
                if (event->kind == SL_WEIGHT_GRADIENT) assert_int_equal(event->microbatches, m);
            }
            sl_simulation_free(&result);
            sl_schedule_free(&schedule);
        }
    }
}

/* Splits each backward: the input gradient is sent before the weight gradient begins. */
static void split_backwards(struct sl_schedule *schedule) {
    for (int r = 0; r < schedule->ranks; r++) {
        struct sl_rank_schedule whole = schedule->rank[r], *split = &schedule->rank[r];
        *split = (struct sl_rank_schedule){0};
        for (int i = 0; i < whole.count; i++) {
            struct sl_action action = whole.action[i];
            const bool backward = action.kind == SL_BACKWARD;
            action.time *= 2;
            if (backward) action.kind = SL_INPUT_GRADIENT;
            assert_non_null(sl_schedule_append(split, &action));
            if (!backward) continue;
            action.kind = SL_WEIGHT_GRADIENT;
            action.time++;
            action.paired = false;
            assert_non_null(sl_schedule_append(split, &action));
        }
        free(whole.action);
    }
}

/* Tables with backwards in ascending order of microbatches. */
static void groups_of_one_are_split_backwards(void **state) {
    (void)state;
    static const char *const name[] = {"1f1b", "pipedream-flush", "interleaved-1f1b", "interleaved-zb",
                                       "zbv",  "dualpipev"};
    for (size_t i = 0; i < sizeof name / sizeof *name; i++) {
        for (int n = 1; n <= 5; n++) {
            struct sl_schedule whole, split;
            struct sl_simulation first, second;
            struct sl_error error = {0};
            const int loops = sl_schedule_find(name[i], NULL)->default_loops;
            const struct sl_stage_costs c = {1 + random_below(5), 1 + random_below(5), 1 + random_below(5), 1, 0, 0};
            assert_true(try_make(&whole, name[i], n, loops, 2 * n));
            assert_int_equal(sl_schedule_make(&split, name[i], n, loops, 2 * n, &error), SL_OK);
            split_backwards(&split);
            assert_int_equal(sl_schedule_lower(&split, &error), SL_OK);
            simulate_uniform(&whole, c, 2, 1, &first);
            simulate_uniform(&split, c, 2, 0, &second);
            for (int r = 0; r < n; r++) {
                assert_true(first.rank[r].end == second.rank[r].end);
                assert_true(first.rank[r].reduced == second.rank[r].reduced);
                assert_int_equal(first.rank[r].stash, second.rank[r].stash);
            }
            sl_simulation_free(&first);
            sl_simulation_free(&second);
            sl_schedule_free(&whole);
            sl_schedule_free(&split);
        }
    }
}

/* With a loop's reduction below the next loop's backwards only the last one is seen; without overlap all of them. */
/* A run of four microbatches has the weight gradients of four groups, or of two. */
static void groups_divide_runs(void **state) {
    (void)state;
    const struct sl_stage_costs costs = {.forward = 1, .input_gradient = 1, .weight_gradient = 1};
    for (int group = 1; group <= 4; group *= 2) {
        struct sl_schedule schedule;
        struct sl_simulation result;
        struct sl_error error = {0};
        bool fused = false;
        assert_int_equal(sl_schedule_make(&schedule, "gpipe", 1, 1, 8, &error), SL_OK);
        assert_int_equal(sl_schedule_fuse(&schedule, 4, &fused, &error), SL_OK);
        assert_true(fused);
        assert_int_equal(sl_schedule_lower(&schedule, &error), SL_OK);
        simulate_uniform(&schedule, costs, 0, group, &result);
        assert_true(result.span == 24);
        assert_int_equal(result.count, 2 + 2 + 8 / group + 1); /* and the reduction */
        sl_simulation_free(&result);
        sl_schedule_free(&schedule);
    }
}

static void reductions_hide_behind_other_loops(void **state) {
    (void)state;
    const struct sl_stage_costs base = {2, 3, 4, 0, 0, 0};
    for (int n = 1; n <= 5; n++) {
        for (int v = 1; v <= 4; v++) {
            for (int m = n; m <= n + 4; m += 2) {
                for (int reduce = 1; reduce <= 100; reduce += 9) {
                    struct sl_schedule schedule;
                    struct sl_simulation with, without;
                    struct sl_stage_costs c = base;
                    c.reduce = reduce;
                    struct sl_costs costs = {.count = 1, .stage = &c, .overlap = true};
                    const int span = (v * m + n - 1) * 9, hidden = (v - 1) * (reduce < m * 7 ? reduce : m * 7);
                    assert_true(try_make(&schedule, "looped-bfs", n, v, m));
                    simulate(&schedule, &costs, &with);
                    costs.overlap = false;
                    simulate(&schedule, &costs, &without);
                    assert_true(with.span == span && without.span == span);
                    assert_true(with.step == span + v * reduce - hidden);
                    assert_true(without.step == span + v * reduce);
                    sl_simulation_free(&with);
                    sl_simulation_free(&without);
                    sl_schedule_free(&schedule);
                }
            }
        }
    }
}

/* Each loop's turn is an event; the last one ends the step. */
static void check_turns(const struct sl_schedule *schedule, const struct sl_simulation *result, double update) {
    int turns = 0;
    double last = 0;
    for (int i = 0; i < result->count; i++) {
        const struct sl_event *event = &result->event[i];
        if (event->kind != SL_EVENT_OPTIMIZER) continue;
        assert_true(event->end - event->begin == update);
        last = fmax(last, event->end);
        turns++;
    }
    assert_int_equal(turns, sl_schedule_stages(schedule));
    assert_true(last == result->step);
}

/* Without reductions the optimizer comes after the rank's last action. Beside reductions it runs between actions: then
 * a loop's turn delays those of the loops below, and only the last loop's is visible. */
static void the_optimizer_takes_its_time(void **state) {
    (void)state;
    const double work = 9, update = 5;
    for (int n = 1; n <= 4; n++) {
        for (int v = 1; v <= 4; v++) {
            for (int reduce = 0; reduce <= 3; reduce += 3) {
                const struct sl_stage_costs c = {2, 3, 4, reduce, update, 0};
                struct sl_costs costs = {.count = 1, .stage = &c, .overlap = true};
                struct sl_schedule schedule;
                struct sl_simulation with, without;
                const int m = n + 2;
                const double span = (v * m + n - 1) * work;
                assert_true(try_make(&schedule, "looped-bfs", n, v, m));
                simulate(&schedule, &costs, &with);
                costs.overlap = false;
                simulate(&schedule, &costs, &without);
                check_turns(&schedule, &with, update);
                check_turns(&schedule, &without, update);
                for (int r = 0; r < n; r++) {
                    assert_true(with.rank[r].optimizer == v * update && without.rank[r].optimizer == v * update);
                    assert_true(with.rank[r].busy == v * m * work);
                }
                assert_true(without.span == span && without.step == span + v * (reduce + update));
                if (reduce == 0) assert_true(with.span == span && with.step == span + v * update);
                if (reduce > 0) assert_true(with.step == with.span + reduce + update);
                if (n == 1) assert_true(with.step == span + v * update + (reduce ? reduce : 0));
                sl_simulation_free(&with);
                sl_simulation_free(&without);
                sl_schedule_free(&schedule);
            }
        }
    }
}

/* A message's own time within a wait is at most the wait; the rest is the sender's. */
static void messages_on_their_way_are_told_apart(void **state) {
    (void)state;
    struct sl_schedule schedule;
    struct sl_simulation result;
    assert_true(try_make(&schedule, "gpipe", 3, 1, 1));
    simulate_uniform(&schedule, (struct sl_stage_costs){2, 3, 4, 0, 0, 0}, 5, 0, &result);
    for (int r = 0; r < 3; r++) assert_true(result.rank[r].transfer == (r == 1 ? 10 : 5));
    sl_simulation_free(&result);
    sl_schedule_free(&schedule);
}

static void first_in_last_out_is_kept(void **state) {
    (void)state;
    for (int n = 1; n <= 6; n++) {
        struct sl_schedule schedule;
        struct sl_simulation result;
        assert_true(try_make(&schedule, "pipedream-flush", n, 1, 2 * n));
        simulate_uniform(&schedule, (struct sl_stage_costs){1, 1, 1, 0, 0, 0}, 0, 0, &result);
        for (int r = 0; r < n; r++) assert_int_equal(result.rank[r].stash, n - r);
        sl_simulation_free(&result);
        simulate_uniform(&schedule, (struct sl_stage_costs){1, 1, 1, 0, 0, 0}, 0, 2 * n, &result);
        for (int r = 0; r < n; r++) assert_int_equal(result.rank[r].stash, 2 * n);
        sl_simulation_free(&result);
        sl_schedule_free(&schedule);
    }
}

/* ---- random costs ---- */

struct random_costs {
    struct sl_stage_costs stage[MOST_STAGES];
    struct sl_costs costs;
};

static void draw_costs(struct random_costs *drawn, int stages) {
    for (int s = 0; s < stages; s++)
        drawn->stage[s] =
            (struct sl_stage_costs){random_below(9), random_below(9), random_below(9), random_below(30), 0, 0};
    drawn->costs = (struct sl_costs){
        .count = stages, .stage = drawn->stage, .communication = random_below(4), .overlap = random_below(2)};
}

static bool draw_schedule(struct sl_schedule *schedule) {
    int kinds = 0;
    while (sl_schedule_kind_at(kinds)) kinds++;
    const struct sl_schedule_kind *kind = sl_schedule_kind_at(random_below(kinds));
    const int ranks = 1 + random_below(6), loops = kind->default_loops + random_below(2);
    return try_make(schedule, kind->name, ranks, loops, 1 + random_below(18));
}

/* When STAGE has done F (or, BACKWARD, its input gradient) of microbatch I: end[backward][stage][i]. */
struct oracle {
    double end[2][MOST_STAGES][MOST_MICROBATCHES];
    bool done[2][MOST_STAGES][MOST_MICROBATCHES];
    double now[MOST_STAGES];
    int next[MOST_STAGES];
};

/* Sets READY to the end of the action's inputs, found from stages only; returns false if these are not done yet. */
static bool oracle_ready(const struct oracle *oracle, const struct sl_schedule *schedule, const struct sl_costs *costs,
                         int stage, const struct sl_action *action, double *ready) {
    const bool backward = action->kind != SL_FORWARD;
    const int from = backward ? stage + 1 : stage - 1, i = action->microbatch;
    const int depth = sl_schedule_stages(schedule) / schedule->copies;
    *ready = 0;
    if (action->kind == SL_WEIGHT_GRADIENT || from < 0 || from / depth != stage / depth) return true;
    const bool travels = sl_schedule_rank_of(schedule, from) != sl_schedule_rank_of(schedule, stage);
    *ready = oracle->end[backward][from][i] + (travels ? costs->communication : 0);
    return oracle->done[backward][from][i];
}

static bool oracle_step(struct oracle *oracle, const struct sl_schedule *schedule, const struct sl_costs *costs,
                        int rank) {
    if (oracle->next[rank] == schedule->rank[rank].count) return false;
    const struct sl_action *action = &schedule->rank[rank].action[oracle->next[rank]];
    const int stage = sl_schedule_stage(schedule, rank, action->loop);
    double ready, cost = costs->stage[stage].forward;
    if (action->kind <= SL_WEIGHT_GRADIENT) {
        if (!oracle_ready(oracle, schedule, costs, stage, action, &ready)) return false;
        if (action->kind != SL_FORWARD)
            cost = sl_has_input_gradient(action->kind) * costs->stage[stage].input_gradient +
                   sl_has_weight_gradient(action->kind) * costs->stage[stage].weight_gradient;
        oracle->now[rank] = fmax(oracle->now[rank], ready) + cost;
        const bool backward = action->kind != SL_FORWARD;
        if (action->kind != SL_WEIGHT_GRADIENT) {
            oracle->end[backward][stage][action->microbatch] = oracle->now[rank];
            oracle->done[backward][stage][action->microbatch] = true;
        }
    }
    oracle->next[rank]++;
    return true;
}

/* Breadth-first tables of several loops take states before they need them. */
static bool takes_early(const struct sl_schedule *schedule) {
    for (int i = 0; i < schedule->rank[0].count; i++)
        if (schedule->rank[0].action[i].kind == SL_TAKE_ACTIVATION && schedule->rank[0].action[i].has_update)
            return true;
    return false;
}

/* Every event ends at the oracle's time. States that are taken early may delay a rank: the oracle has no messages. */
static void agrees_with_the_oracle(void **state) {
    (void)state;
    static struct oracle oracle;
    int compared = 0;
    for (int round = 0; round < 600; round++) {
        struct sl_schedule schedule;
        struct sl_simulation result;
        struct random_costs drawn;
        if (!draw_schedule(&schedule)) continue;
        draw_costs(&drawn, sl_schedule_stages(&schedule));
        /* The oracle knows no turns between actions. */
        for (int s = 0; s < sl_schedule_stages(&schedule) && !drawn.costs.overlap; s++)
            drawn.stage[s].optimizer = random_below(9);
        simulate(&schedule, &drawn.costs, &result);
        memset(&oracle, 0, sizeof oracle);
        for (bool moved = true; moved;) {
            moved = false;
            for (int r = 0; r < schedule.ranks; r++)
                while (oracle_step(&oracle, &schedule, &drawn.costs, r)) moved = true;
        }
        const bool early = takes_early(&schedule);
        for (int i = 0; i < result.count && !early; i++) {
            const struct sl_event *event = &result.event[i];
            if (event->kind == SL_WEIGHT_GRADIENT || event->kind >= SL_REDUCE) continue;
            assert_true(event->end == oracle.end[event->kind != SL_FORWARD][event->stage][event->microbatch]);
            compared++;
        }
        for (int r = 0; r < schedule.ranks; r++)
            assert_true(early ? result.rank[r].end >= oracle.now[r] : result.rank[r].end == oracle.now[r]);
        sl_simulation_free(&result);
        sl_schedule_free(&schedule);
    }
    assert_in_range(compared, 10000, 1 << 30);
}

/* All work is done. It takes at least as long as the busiest rank's work and one microbatch's way, and at most as long
 * as all work in sequence. */
static void check_bounds(const struct sl_schedule *schedule, const struct sl_costs *costs,
                         const struct sl_simulation *result) {
    double all = 0, way = 0, reductions = 0;
    const int stages = sl_schedule_stages(schedule);
    for (int r = 0; r < schedule->ranks; r++) {
        double work = 0;
        for (int l = 0; l < schedule->loops; l++) {
            const struct sl_stage_costs *c = &costs->stage[sl_schedule_stage(schedule, r, l)];
            work += (double)schedule->microbatches / schedule->copies *
                    (c->forward + c->input_gradient + c->weight_gradient);
            way += c->forward + c->input_gradient;
            reductions += c->reduce;
        }
        assert_true(result->rank[r].busy == work);
        assert_true(result->rank[r].end >= work && result->span >= result->rank[r].end);
        assert_true(result->rank[r].bubble >= 0 && result->rank[r].bubble <= 1);
        all += work;
    }
    assert_true(result->span >= way);
    assert_true(result->span <= all + 2 * (stages - 1) * schedule->microbatches * costs->communication);
    assert_true(result->step >= result->span && result->step <= result->span + reductions);
    if (result->span > 0) assert_true(fabs(result->bubble - (1 - all / (schedule->ranks * result->span))) < 1e-12);
}

/* A rank does one thing at a time, and reduces a loop after its last weight gradient, one loop at a time. */
static void check_events(const struct sl_schedule *schedule, const struct sl_costs *costs,
                         const struct sl_simulation *result) {
    double computed[MOST_STAGES] = {0}, reduced[MOST_STAGES] = {0}, weights[MOST_STAGES] = {0};
    int microbatches[MOST_STAGES] = {0}, reductions = 0;
    for (int i = 0; i < result->count; i++) {
        const struct sl_event *event = &result->event[i];
        double *now = event->kind == SL_REDUCE ? &reduced[event->rank] : &computed[event->rank];
        assert_true(event->begin >= *now && event->end >= event->begin);
        *now = event->end;
        assert_int_equal(event->stage, sl_schedule_stage(schedule, event->rank, event->loop));
        if (event->kind != SL_REDUCE && sl_has_weight_gradient(event->kind)) {
            weights[event->stage] = event->end;
            microbatches[event->stage] += event->microbatches;
        }
        if (event->kind != SL_REDUCE) continue;
        reductions++;
        assert_int_equal(microbatches[event->stage], schedule->microbatches / schedule->copies);
        assert_true(event->begin >= (costs->overlap ? weights[event->stage] : result->rank[event->rank].end));
        assert_true(event->end - event->begin == costs->stage[event->stage].reduce);
    }
    assert_int_equal(reductions, sl_schedule_stages(schedule));
}

static void random_costs_keep_the_bounds(void **state) {
    (void)state;
    for (int round = 0; round < 600; round++) {
        struct sl_schedule schedule;
        struct sl_simulation result, other;
        struct random_costs drawn;
        if (!draw_schedule(&schedule)) continue;
        draw_costs(&drawn, sl_schedule_stages(&schedule));
        if (random_below(2)) {
            do drawn.costs.group = 1 + random_below(schedule.microbatches);
            while (schedule.microbatches / schedule.copies % drawn.costs.group);
        }
        simulate(&schedule, &drawn.costs, &result);
        check_bounds(&schedule, &drawn.costs, &result);
        check_events(&schedule, &drawn.costs, &result);

        drawn.costs.overlap = !drawn.costs.overlap;
        simulate(&schedule, &drawn.costs, &other);
        assert_true(other.span == result.span);
        assert_true(drawn.costs.overlap ? other.step <= result.step : other.step >= result.step);
        sl_simulation_free(&other);

        /* Nothing gets faster by waiting longer. */
        drawn.costs.overlap = !drawn.costs.overlap;
        drawn.costs.communication += 3;
        drawn.stage[random_below(sl_schedule_stages(&schedule))].forward += 2;
        simulate(&schedule, &drawn.costs, &other);
        assert_true(other.span >= result.span && other.step >= result.step);
        sl_simulation_free(&other);
        sl_simulation_free(&result);
        sl_schedule_free(&schedule);
    }
}

/* ---- refusals ---- */

static void refuses(const struct sl_schedule *schedule, const struct sl_costs *costs, const char *text) {
    struct sl_simulation result;
    struct sl_error error = {0};
    assert_int_equal(sl_schedule_simulate(schedule, costs, &result, &error), SL_BAD_INPUT);
    if (!strstr(error.message, text)) fail_msg("%s", error.message);
    assert_null(result.event);
}

static void bad_input_is_refused(void **state) {
    (void)state;
    struct sl_schedule schedule;
    struct sl_error error = {0};
    struct sl_stage_costs stage[3] = {{1, 1, 1, 1, 0, 0}, {1, 1, 1, 1, 0, 0}, {1, 1, 1, 1, 0, 0}};
    struct sl_costs costs = {.count = 3, .stage = stage};
    assert_int_equal(sl_schedule_make(&schedule, "gpipe", 3, 1, 4, &error), SL_OK);
    refuses(&schedule, &costs, "lowered");
    assert_int_equal(sl_schedule_lower(&schedule, &error), SL_OK);
    costs.count = 2;
    refuses(&schedule, &costs, "3 stages, but costs are given for 2");
    costs.count = 3;
    stage[1].weight_gradient = -1;
    refuses(&schedule, &costs, "the weight gradient of stage 1 costs -1");
    stage[1].weight_gradient = NAN;
    refuses(&schedule, &costs, "the weight gradient of stage 1 costs nan");
    stage[1].weight_gradient = 1;
    stage[2].reduce = INFINITY;
    refuses(&schedule, &costs, "the reduction of stage 2 costs inf");
    stage[2].reduce = 1;
    stage[0].optimizer = -3;
    refuses(&schedule, &costs, "the optimizer of stage 0 costs -3");
    stage[0].optimizer = 0;
    costs.communication = -2;
    refuses(&schedule, &costs, "communication costs -2");
    costs.communication = 0;
    costs.group = 3;
    refuses(&schedule, &costs, "4 microbatches do not divide into weight-gradient groups of 3");
    costs.group = 0;
    schedule.rank[2].count--;
    refuses(&schedule, &costs, "schedule gpipe: ");
    sl_schedule_free(&schedule);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(closed_forms_hold),
        cmocka_unit_test(looping_with_few_microbatches),
        cmocka_unit_test(one_microbatch_is_naive),
        cmocka_unit_test(messages_take_their_time),
        cmocka_unit_test(grouped_weight_gradients_fill_the_drain),
        cmocka_unit_test(groups_of_one_are_split_backwards),
        cmocka_unit_test(groups_divide_runs),
        cmocka_unit_test(reductions_hide_behind_other_loops),
        cmocka_unit_test(the_optimizer_takes_its_time),
        cmocka_unit_test(messages_on_their_way_are_told_apart),
        cmocka_unit_test(first_in_last_out_is_kept),
        cmocka_unit_test(agrees_with_the_oracle),
        cmocka_unit_test(random_costs_keep_the_bounds),
        cmocka_unit_test(bad_input_is_refused),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
