/* test_recompute.c - recomputed activations are not saved: full recomputation takes no more memory than selective,
 * which takes no more than none; the gradients' bits are the same. dy is not saved either if W follows I because ranks
 * share cores. */
#include "tests/rigs/transformer_job.h"

#include "spmd/schedule/registry.h"

enum { RECOMPUTATIONS = 3, MOST_RANKS = 4 };

static const char *const recomputations[RECOMPUTATIONS] = {"none", "selective", "full"};

static struct job job_on(int ranks, char mesh[static LAYOUT]) {
    snprintf(mesh, LAYOUT, "data=1,pipe=%d,tensor=1", ranks);
    return small_job(mesh);
}

/* ---- memory ---- */

/* Reports the coordinate's bytes without its state; such runs are in one process. */
static int tell_bytes(struct worker *worker) {
    size_t state, *bytes = worker->job->user;
    sl_trainer_bytes(worker->trainer, &state, &bytes[worker->self->coordinate]);
    return SL_OK;
}

/* Checks that no kind of recomputation of JOB takes more bytes than the one before. Returns false if JOB's schedule
 * does not allow its numbers. */
static bool less_is_held(struct job job) {
    size_t bytes[RECOMPUTATIONS][MOST_COORDINATES] = {0};
    for (int r = 0; r < RECOMPUTATIONS; r++) {
        struct job other = job;
        other.model.recomputation = r;
        other.user = bytes[r];
        if (!make_table(&other)) return false;
        run_job(&other);
        free_job(&other);
    }
    for (int r = 1; r < RECOMPUTATIONS; r++)
        for (int c = 0; c < coordinates_of(job.mesh); c++)
            if (bytes[r][c] > bytes[r - 1][c])
                fail_msg("%s with %d loops, %d microbatches in groups of %d and runs of %d: coordinate %d of %s holds "
                         "%zu bytes with %s, %zu with %s",
                         job.schedule, job.loops, job.microbatches, job.group, job.run, c, job.mesh, bytes[r][c],
                         recomputations[r], bytes[r - 1][c], recomputations[r - 1]);
    return true;
}

/* Weight gradients of each microbatch, of half of them and of all together. */
static int compare_groups(struct job job) {
    int compared = 0;
    for (int group = 1; group <= job.microbatches; group++) {
        const bool half = 2 * group == job.microbatches;
        if (group > 1 && group < job.microbatches && !half) continue;
        if (!strcmp(job.schedule, "dualpipe") && job.microbatches / 2 % group) continue; /* a copy has half of them */
        job.group = group;
        job.run = 1;
        compared += less_is_held(job);
        job.run = group;
        if (half && !test_is_small) compared += less_is_held(job);
    }
    return compared;
}

static void what_is_recomputed_is_not_held(void **state) {
    (void)state;
    const int step = test_is_small ? 5 : getenv("SL_TEST_LONG") ? 1 : 3;
    const struct sl_schedule_kind *kind;
    int compared = 0;
    for (int i = 0; (kind = sl_schedule_kind_at(i)); i++) {
        for (int ranks = 1; ranks <= MOST_RANKS; ranks++) {
            for (int microbatches = 1; microbatches <= 16; microbatches += step) {
                char mesh[LAYOUT];
                struct job job = job_on(ranks, mesh);
                job.schedule = kind->name;
                job.loops = kind->default_loops;
                job.batch = job.microbatches = microbatches;
                job.sizes_only = true;
                job.program = tell_bytes;
                compared += compare_groups(job);
            }
        }
    }
    assert_true(compared >= (test_is_small ? 200 : 300));
}

/* One coordinate, one microbatch: the layers' inputs and one layer. */
static void one_layer_is_held_at_a_time(void **state) {
    (void)state;
    size_t bytes[2][MOST_COORDINATES];
    struct job job = small_job("data=1,pipe=1,tensor=1");
    const size_t input = (size_t)(job.sequence * job.model.dimension) * sizeof(float);
    job.batch = job.microbatches = 1;
    job.sizes_only = true;
    job.program = tell_bytes;
    job.model.recomputation = SL_RECOMPUTE_FULL;
    for (int i = 0; i < 2; i++) {
        struct job of = job;
        of.model.blocks += i;
        of.user = bytes[i];
        run_job(&of);
        free_job(&of);
    }
    assert_int_equal(bytes[1][0] - bytes[0][0], (size_t)job.model.layers_per_block * input);
}

/* Under 1f1b the last rank's backward follows each forward, and frees its outputs: for microbatches beyond the
 * channels' slots it saves only more tokens and labels. */
static void outputs_of_microbatches_go_one_after_another(void **state) {
    (void)state;
    size_t bytes[2][MOST_COORDINATES];
    char mesh[LAYOUT];
    struct job job = job_on(2, mesh);
    const size_t texts = (size_t)(SL_PIPELINE_MOST_SLOTS * job.sequence) * 2 * sizeof(int32_t);
    job.schedule = "1f1b";
    job.group = job.run = 1;
    job.sizes_only = true;
    job.program = tell_bytes;
    for (int i = 0; i < 2; i++) {
        struct job of = job;
        of.batch = of.microbatches = SL_PIPELINE_MOST_SLOTS * (i + 1);
        of.user = bytes[i];
        assert_true(make_table(&of));
        run_job(&of);
        free_job(&of);
    }
    assert_in_range(bytes[1][1], bytes[0][1], bytes[0][1] + texts);
}

/* ---- results ---- */

/* Runs of all lengths, in turns with a part of each layer recomputed and all of it. */
static void expect_the_same_gradients(struct job job, int recomputation) {
    struct job want = job;
    run_job(&want);
    for (int run = 1; run <= job.microbatches; run *= 2, recomputation = 3 - recomputation) {
        char what[256];
        struct job same = job;
        same.model.recomputation = recomputation;
        same.run = run;
        if (!make_table(&same)) continue;
        snprintf(what, sizeof what, "%s on %s in groups of %d and runs of %d, %s", job.schedule, job.mesh, job.group,
                 run, recomputations[recomputation]);
        run_job(&same);
        if (has_results()) expect_same_bits(what, &same, &want);
        free_job(&same);
    }
    free_job(&want);
}

/* Runs that are groups, parts of groups, and several groups. */
static void tables_that_ascend_give_the_same_bits(void **state) {
    (void)state;
    static const struct {
        const char *schedule, *mesh;
        int loops, experts;
    } tables[] = {{"gpipe", "data=1,pipe=2,tensor=1", 1, 0},
                  {"gpipe", "data=2,pipe=1,tensor=2", 1, 4},
                  {"looped-bfs", "data=1,pipe=2,tensor=1", 2, 0},
                  {"looped-dfs", "data=1,pipe=2,tensor=1", 2, 0}};
    for (int i = 0; i < 4; i++) {
        for (int group = 1; group <= 4; group *= 2) {
            struct job job = small_job(tables[i].mesh);
            job.schedule = tables[i].schedule;
            job.loops = tables[i].loops;
            job.model.dropout = 0.1;
            job.model.experts = tables[i].experts;
            job.model.choices = 2;
            job.model.capacity = 1.25;
            job.model.expert_dimension = 16;
            job.accumulate = i == 2 ? 2 : 0;
            job.batch = job.accumulate || size_along(job.mesh, "data") > 1 ? 16 : 8;
            job.microbatches = 8;
            job.group = group;
            job.steps = 1;
            expect_the_same_gradients(job, 1 + group / 2 % 2);
            if (test_is_small) break;
        }
    }
}

/* ---- ranks that share cores ---- */

/* Every rank's W follows I at once: the last rank's memory for W is not needed, and no bit changes. */
static void weights_follow_where_ranks_share_cores(void **state) {
    (void)state;
    static const char *const meshes[] = {"data=1,pipe=2,tensor=1", "data=2,pipe=2,tensor=2"};
    for (int i = 0; i < 2; i++) {
        size_t bytes[2][MOST_COORDINATES];
        struct job job[2];
        for (int crowded = 0; crowded < 2; crowded++) {
            job[crowded] = small_job(meshes[i]);
            job[crowded].group = job[crowded].run = job[crowded].steps = 1;
            assert_true(make_table(&job[crowded]));
            job[crowded].table.crowded = crowded;
            struct job sizes = job[crowded];
            sizes.sizes_only = true;
            sizes.program = tell_bytes;
            sizes.user = bytes[crowded];
            run_job(&sizes);
            run_job(&job[crowded]);
        }
        const int last = coordinates_of(meshes[i]) - 1;
        assert_true(bytes[1][last] < bytes[0][last]);
        assert_true(bytes[1][0] == bytes[0][0]);
        if (has_results()) expect_same_bits(meshes[i], &job[1], &job[0]);
        free_job(&job[0]);
        free_job(&job[1]);
    }
}

int main(int argc, char **argv) {
    begin_tests(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_recomputed_is_not_held),
        cmocka_unit_test(one_layer_is_held_at_a_time),
        cmocka_unit_test(outputs_of_microbatches_go_one_after_another),
        cmocka_unit_test(tables_that_ascend_give_the_same_bits),
        cmocka_unit_test(weights_follow_where_ranks_share_cores),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
