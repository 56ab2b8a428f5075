/* test_offload.c - offloaded arrays keep their bits, under every schedule; memory in use is as planned, and smaller. */
#include "tests/rigs/trainer_rig.h"

enum { MOST_COORDINATES = 64 }; /* of its meshes */

enum { STEPS = 3, OPTIMIZER = 1, ACTIVATIONS = 2, WEIGHTS = 4, ALL = 7 };

/* Each coordinate's; the test's own thread reads them after the run. */
struct bytes {
    struct sl_budget planned[MOST_COORDINATES], held[MOST_COORDINATES];
};

static int train(struct sl_spmd *self, struct job *job, struct sl_trainer *trainer) {
    struct bytes *bytes = job->user;
    sl_trainer_plan_bytes(trainer, &bytes->planned[self->coordinate]);
    bytes->held[self->coordinate] = self->held;
    return train_steps(self, job, trainer, 0, job->steps);
}

static struct job job_of(const char *mesh, const char *schedule, int loops, int group) {
    return (struct job){.mesh = mesh,
                        .schedule = schedule,
                        .loops = loops,
                        .layers = 8,
                        .microbatches = 8,
                        .group = group,
                        .steps = STEPS,
                        .dropout = 0.1,
                        .zero = true,
                        .overlap = true,
                        .train = train};
}

/* Runs JOB again with OFFLOAD: as many saved bytes in memory, or fewer. LEAVES: coordinate 0 offloads bytes, and has
 * fewer in memory. */
static void try_job(const struct job *job, int offload, bool leaves) {
    static struct bytes bytes[2];
    struct job one = *job, other = *job;
    memset(bytes, 0, sizeof bytes);
    one.user = &bytes[0];
    other.user = &bytes[1];
    other.offload = offload;
    run_job(&one);
    run_job(&other);
    expect_same_run(&one, &other);
    for (int c = 0; c < MOST_COORDINATES; c++) {
        for (int k = 0; k < SL_MEMORY_CATEGORIES; k++)
            if (k != SL_MEMORY_HANDOVER && bytes[1].planned[c].bytes[k] != bytes[1].held[c].bytes[k])
                fail_msg("%s on %s: coordinate %d holds other bytes of %s than planned", job->schedule, job->mesh, c,
                         sl_memory_name[k]);
        assert_true(bytes[1].held[c].bytes[SL_MEMORY_KEPT] <= bytes[0].held[c].bytes[SL_MEMORY_KEPT]);
    }
    if (has_results()) {
        assert_int_equal(bytes[0].held[0].bytes[SL_MEMORY_OFFLOADED], 0);
        if ((bytes[1].held[0].bytes[SL_MEMORY_OFFLOADED] > 0) != leaves)
            fail_msg("%s on %s, groups of %d: %lu bytes are offloaded", job->schedule, job->mesh, job->group,
                     (unsigned long)bytes[1].held[0].bytes[SL_MEMORY_OFFLOADED]);
        if (leaves && offload != OPTIMIZER) /* a piece of a state is more than these small ones */
            assert_true(sl_budget_total(&bytes[1].held[0]) - bytes[1].held[0].bytes[SL_MEMORY_OPTIMIZER] <
                        sl_budget_total(&bytes[0].held[0]) - bytes[0].held[0].bytes[SL_MEMORY_OPTIMIZER]);
    }
    free_job(&one);
    free_job(&other);
}

static void activations_come_back_under_every_schedule(void **state) {
    static const struct {
        const char *schedule;
        int loops;
    } table[] = {{"gpipe", 1},          {"1f1b", 1},       {"zbv", 2},
                 {"looped-bfs", 2},     {"looped-dfs", 4}, {"interleaved-1f1b", 2},
                 {"interleaved-zb", 2}, {"dualpipev", 2}};
    (void)state;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        for (int group = 1; group <= 4; group += 3) {
            struct job job = job_of("data=1,model=2", table[i].schedule, table[i].loops, group);
            try_job(&job, ACTIVATIONS, true);
        }
}

static void runs_and_passes_come_back(void **state) {
    struct job job = job_of("data=1,model=1", "looped-bfs", 4, 1);
    (void)state;
    job.fuse = 2;
    try_job(&job, ALL, true);
    job.fuse = 0;
    job.microbatches = 4;
    job.accumulate = 2;
    try_job(&job, ALL, true);
}

static void weights_take_turns(void **state) {
    static const char *const mesh[] = {"data=1,model=1", "data=2,model=1", "data=2,model=2"};
    (void)state;
    for (int m = 0; m < 3; m++) {
        struct job job = job_of(mesh[m], "looped-bfs", 4, 4);
        job.microbatches = 4;
        try_job(&job, WEIGHTS, true);
        job.clip = 0.1f;
        try_job(&job, WEIGHTS, true);
        job.zero = false;
        job.precision = SL_BF16;
        try_job(&job, ALL, true);
    }
    struct job job = job_of("data=1,model=2", "interleaved-1f1b", 4, 1);
    try_job(&job, ALL, true);
}

/* A coordinate with one loop uses all of it all the time. */
static void one_loop_stays(void **state) {
    struct job job = job_of("data=2,model=2", "gpipe", 1, 8);
    (void)state;
    try_job(&job, WEIGHTS, false);
    try_job(&job, OPTIMIZER, true);
}

int main(int argc, char **argv) {
    begin_tests(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(activations_come_back_under_every_schedule),
        cmocka_unit_test(runs_and_passes_come_back),
        cmocka_unit_test(weights_take_turns),
        cmocka_unit_test(one_loop_stays),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
