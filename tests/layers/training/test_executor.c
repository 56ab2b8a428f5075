/* test_executor.c - one executor runs every table: each proven table gives the bits of a model without a pipeline. */
#include <string.h>

#include "spmd/schedule/registry.h"
#include "tests/rigs/trainer_rig.h"

enum { LAYERS = 9, STEPS = 2 };

static struct job job_on(const char *mesh, const char *schedule, int loops, int microbatches, int group) {
    return (struct job){.mesh = mesh,
                        .schedule = schedule,
                        .loops = loops,
                        .layers = LAYERS,
                        .microbatches = microbatches,
                        .group = group,
                        .steps = STEPS,
                        .dropout = 0.25,
                        .zero = true,
                        .overlap = true};
}

static void expect_same(const struct job *expected, const struct job *job) {
    assert_memory_equal(expected->loss, job->loss, STEPS * sizeof *job->loss);
    expect_same_store(&expected->values, &job->values);
    expect_same_store(&expected->gradients, &job->gradients);
}

/* Without a pipeline: the same microbatches and groups. */
static struct job run_single(int microbatches, int group) {
    struct job single = job_on("data=1,model=1", "gpipe", 1, microbatches, group);
    run_job(&single);
    return single;
}

/* Returns whether JOB's schedule has runs of RUN microbatches. */
static bool has_runs(const struct sl_schedule_kind *kind, int ranks, int loops, int microbatches, int run) {
    struct sl_schedule probe;
    struct sl_error error;
    bool fused;
    assert_int_equal(sl_schedule_generate(&probe, kind, ranks, loops, microbatches, &error), SL_OK);
    assert_int_equal(sl_schedule_fuse(&probe, run, &fused, &error), SL_OK);
    sl_schedule_free(&probe);
    return fused;
}

/* Runs JOB with each length of runs that its schedule allows. Returns how many there are. */
static int expect_same_fused(const struct job *single, const struct job *job, const struct sl_schedule_kind *kind,
                             int ranks) {
    int runs = 0;
    for (int run = 2; run <= job->microbatches; run++) {
        struct job fused = *job;
        if (job->microbatches % run || !has_runs(kind, ranks, job->loops, job->microbatches, run)) continue;
        fused.fuse = run;
        run_job(&fused);
        expect_same(single, &fused);
        free_job(&fused);
        runs++;
    }
    return runs;
}

/* Returns N, to run one in N cases: NCCL for the engine nccl, which makes communicators for each run. */
static int one_in(int nccl) { return !strcmp(test_engine, "nccl") ? nccl : test_is_small ? 3 : 1; }

/* Nine layers: most of the stage counts do not divide them. */
static void every_schedule_gives_the_same_bits(void **state) {
    (void)state;
    int runs = 0, fused = 0;
    for (int microbatches = 4; microbatches <= 12; microbatches += microbatches == 4 ? 2 : 6) {
        for (int group = 1; group <= microbatches; group = group == 1 ? 2 : group == 2 ? microbatches : group + 1) {
            struct job single = run_single(microbatches, group);
            const struct sl_schedule_kind *kind;
            for (int i = 0; (kind = sl_schedule_kind_at(i)); i++) {
                if (kind->placement == SL_MIRRORED) continue; /* sums over copies have bits of their own */
                for (int loops = kind->least_loops; loops <= kind->most_loops && loops <= 3; loops++) {
                    for (int ranks = 1; ranks <= 3; ranks++) {
                        char mesh[32];
                        struct sl_schedule probe;
                        struct sl_error refused;
                        if (sl_schedule_generate(&probe, kind, ranks, loops, microbatches, &refused)) continue;
                        sl_schedule_free(&probe);
                        if (runs++ % one_in(15)) continue;
                        snprintf(mesh, sizeof mesh, "data=1,model=%d", ranks);
                        struct job job = job_on(mesh, kind->name, loops, microbatches, group);
                        fused += expect_same_fused(&single, &job, kind, ranks);
                        run_job(&job);
                        expect_same(&single, &job);
                        free_job(&job);
                    }
                }
            }
            free_job(&single);
        }
    }
    assert_true(runs > 300);
    assert_true(fused * one_in(15) > 200);
}

/* Two copies of the model, each with half of the microbatches, are two replicas with half of the rows. */
static void dualpipe_has_the_bits_of_two_replicas(void **state) {
    (void)state;
    for (int ranks = 2; ranks <= 4; ranks += 2) {
        for (int each = ranks; each <= 6; each += 2) {
            for (int group = 1; group <= each; group = group == 1 ? 2 : group == 2 && each > 2 ? each : each + 1) {
                char mesh[32];
                struct job replicas = job_on("data=2,model=1", "gpipe", 1, each, group);
                snprintf(mesh, sizeof mesh, "data=1,model=%d", ranks);
                struct job copies = job_on(mesh, "dualpipe", 2, 2 * each, group);
                run_job(&replicas);
                run_job(&copies);
                expect_same(&replicas, &copies);
                free_job(&replicas);
                free_job(&copies);
            }
        }
    }
}

/* ---- random tables ---- */

static unsigned next_random(unsigned *random) {
    *random = *random * 1664525u + 1013904223u;
    return *random >> 16;
}

/* A stage's progress in a random table: microbatches done so far. */
struct progress {
    int forwards, backwards, weights;
    bool split;   /* separate input and weight gradients */
    bool descend; /* the microbatches of a run */
};

/* Finds the actions that STAGE could do next. Returns how many of the three. */
static int ready(const struct progress *progress, int stage, int stages, int microbatches,
                 enum sl_action_kind kind[3]) {
    const struct progress *p = &progress[stage];
    int count = 0;
    if (p->forwards < microbatches && (stage == 0 || progress[stage - 1].forwards > p->forwards))
        kind[count++] = SL_FORWARD;
    if (p->backwards < p->forwards && (stage == stages - 1 || progress[stage + 1].backwards > p->backwards))
        kind[count++] = p->split ? SL_INPUT_GRADIENT : SL_BACKWARD;
    if (p->split && p->weights < p->backwards) kind[count++] = SL_WEIGHT_GRADIENT;
    return count;
}

/* Appends COUNT microbatches from FIRST on, the last one first if they DESCEND. */
static void append_run(struct sl_schedule *table, enum sl_action_kind kind, int stage, int first, int count,
                       bool descend) {
    for (int i = 0; i < count; i++) {
        const int microbatch = first + (descend ? count - 1 - i : i);
        assert_int_equal(sl_schedule_compute(table, kind, stage, microbatch, false), SL_OK);
    }
}

/* Makes a table with random places of stages, in a random order that respects dependencies. Microbatches ascend in each
 * stage; in some stages they descend within runs of RUN. */
static void random_table(struct sl_schedule *table, int ranks, int loops, int microbatches, int run, unsigned *random) {
    struct sl_error error;
    const int stages = ranks * loops;
    struct progress progress[16] = {0};
    int places[16], held[16] = {0};
    assert_int_equal(sl_schedule_open(table, "random", ranks, loops, microbatches, &error), SL_OK);
    for (int i = 0; i < stages; i++) places[i] = i / loops;
    for (int i = stages - 1; i > 0; i--) {
        const int j = (int)(next_random(random) % (unsigned)(i + 1)), swapped = places[i];
        places[i] = places[j];
        places[j] = swapped;
    }
    for (int s = 0; s < stages; s++) {
        const int place = places[s] * loops + held[places[s]]++;
        table->stage[place] = s;
        table->place[s] = place;
        progress[s].split = next_random(random) % 2;
        progress[s].descend = run > 1 && next_random(random) % 2;
    }
    for (int left = stages * microbatches; left > 0;) {
        enum sl_action_kind kind[3];
        const int s = (int)(next_random(random) % (unsigned)stages);
        const int choices = ready(progress, s, stages, microbatches, kind);
        if (choices == 0) continue;
        const enum sl_action_kind chosen = kind[next_random(random) % (unsigned)choices];
        int *done = chosen == SL_FORWARD           ? &progress[s].forwards
                    : chosen == SL_WEIGHT_GRADIENT ? &progress[s].weights
                                                   : &progress[s].backwards;
        const int count = chosen == SL_WEIGHT_GRADIENT ? 1 : run;
        append_run(table, chosen, s, *done, count, progress[s].descend);
        *done += count;
        left -= sl_has_weight_gradient(chosen) ? count : 0;
    }
    assert_int_equal(sl_schedule_clock(table, &error), SL_OK);
}

static void take_given(const struct job *job, struct sl_schedule *table) {
    struct sl_schedule *given = job->user;
    *table = *given;
    *given = (struct sl_schedule){0};
}

/* Lowers TABLE and, if it is proven, runs it. Frees TABLE. */
static bool run_if_proven(struct sl_schedule *table, const struct job *single) {
    struct sl_error refused;
    int slots;
    char mesh[32];
    assert_int_equal(sl_schedule_lower(table, &refused), SL_OK);
    snprintf(mesh, sizeof mesh, "data=1,model=%d", table->ranks);
    if (sl_schedule_slots(table, SL_PIPELINE_FEWEST_SLOTS, &slots, &refused)) {
        assert_true(strlen(refused.message) > 0);
        sl_schedule_free(table);
        return false;
    }
    struct job job = job_on(mesh, "a random table", table->loops, table->microbatches, single->group);
    job.make = take_given;
    job.user = table;
    run_job(&job);
    expect_same(single, &job);
    free_job(&job);
    return true;
}

static void random_tables_run_if_proven(void **state) {
    (void)state;
    struct job single = run_single(4, 2);
    unsigned random = 1;
    int proven = 0;
    const int rounds = 200 / one_in(5);
    for (int round = 0; round < rounds; round++) {
        struct sl_schedule table;
        const int ranks = 1 + (int)(next_random(&random) % 4), loops = 1 + (int)(next_random(&random) % 2);
        random_table(&table, ranks, loops, 4, 1, &random);
        proven += run_if_proven(&table, &single);
    }
    assert_in_range(proven, rounds / 4, rounds - 1); /* some are refused: messages overtake each other */
    free_job(&single);
}

/* Runs ascend or descend; groups of weight gradients are shorter and longer than they, and do not divide into them. */
static void random_tables_run_fused(void **state) {
    static const struct {
        int microbatches, group, run;
    } shapes[] = {{4, 1, 2}, {8, 2, 4}, {8, 4, 2}, {12, 6, 4}, {12, 4, 6}, {12, 3, 2}, {12, 12, 3}, {6, 2, 3}};
    unsigned random = 3;
    int proven = 0, rounds = 0;
    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        struct job single = run_single(shapes[i].microbatches, shapes[i].group);
        for (int round = 0; round < 25 / one_in(5); round++, rounds++) {
            struct sl_schedule table;
            struct sl_error error;
            bool fused;
            const int ranks = 1 + (int)(next_random(&random) % 4), loops = 1 + (int)(next_random(&random) % 2);
            random_table(&table, ranks, loops, shapes[i].microbatches, shapes[i].run, &random);
            assert_int_equal(sl_schedule_fuse(&table, shapes[i].run, &fused, &error), SL_OK);
            assert_true(fused);
            proven += run_if_proven(&table, &single);
        }
        free_job(&single);
    }
    assert_in_range(proven, rounds / 4, rounds - 1);
}

/* Two neighbours in a rank's list change places. */
static void exchanged_actions_run_if_proven(void **state) {
    (void)state;
    struct job single = run_single(4, 1);
    unsigned random = 7;
    int proven = 0, rounds = 0;
    const struct sl_schedule_kind *kind;
    for (int i = 0; (kind = sl_schedule_kind_at(i)); i++) {
        if (kind->placement == SL_MIRRORED) continue;
        for (int round = 0; round < 40 / one_in(5); round++, rounds++) {
            struct sl_schedule table;
            struct sl_error error;
            assert_int_equal(sl_schedule_generate(&table, kind, 2, kind->least_loops, 4, &error), SL_OK);
            assert_int_equal(sl_schedule_lower(&table, &error), SL_OK);
            struct sl_rank_schedule *rank = &table.rank[next_random(&random) % 2];
            const unsigned at = next_random(&random) % (unsigned)(rank->count - 1);
            const struct sl_action first = rank->action[at];
            rank->action[at] = rank->action[at + 1];
            rank->action[at + 1] = first;
            proven += run_if_proven(&table, &single);
        }
    }
    assert_in_range(proven, rounds / 20, rounds - rounds / 20);
    free_job(&single);
}

int main(int argc, char **argv) {
    begin_tests(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_schedule_gives_the_same_bits), cmocka_unit_test(dualpipe_has_the_bits_of_two_replicas),
        cmocka_unit_test(random_tables_run_if_proven),        cmocka_unit_test(random_tables_run_fused),
        cmocka_unit_test(exchanged_actions_run_if_proven),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
