/* test_zero.c - gradients that are sharded as soon as they are summed: the same in less memory, with the same bits if a
 * layer's gradient is summed once. */
#include "layers/training/exchange.h"
#include "tests/rigs/numbers.h"
#include "tests/rigs/trainer_rig.h"

enum { MOST_COORDINATES = 64 }; /* of its meshes */

enum { STEPS = 3, FEW_STEPS = 2 }; /* the second step has rooms that the first has used */

/* A coordinate's bytes of gradients, planned and in use. */
struct bytes {
    uint64_t planned, held;
};

static int train_and_count(struct sl_spmd *self, struct job *job, struct sl_trainer *trainer) {
    struct bytes *bytes = job->user;
    struct sl_budget planned = {0};
    sl_trainer_plan_bytes(trainer, &planned);
    bytes[self->coordinate].planned = planned.bytes[SL_MEMORY_GRADIENTS];
    bytes[self->coordinate].held = self->held.bytes[SL_MEMORY_GRADIENTS];
    SL_TRY(train_steps(self, job, trainer, 0, job->steps));
    return sl_gather_records(self, bytes, sizeof *bytes);
}

/* Sums in another order. */
static void expect_near_store(const struct sl_store *a, const struct sl_store *b) {
    assert_int_equal(a->count, b->count);
    for (int i = 0; i < a->count; i++) {
        const float *one = a->tensor[i].array.data, *other = same_tensor(b, &a->tensor[i]);
        for (size_t e = 0; e < sl_array_elements(&a->tensor[i].array); e++)
            expect_close(a->tensor[i].name, e, other[e], one[e], 1e-5, 1e-5);
    }
}

static struct job new_job(const char *mesh, const char *schedule, int loops, int layers) {
    return (struct job){.mesh = mesh,
                        .schedule = schedule,
                        .loops = loops,
                        .layers = layers,
                        .microbatches = 4,
                        .group = 4,
                        .steps = test_runs_few ? FEW_STEPS : STEPS,
                        .overlap = true,
                        .zero = 1,
                        .train = train_and_count};
}

static int coordinates_of(const struct job *job) {
    struct sl_error error = {0};
    struct sl_mesh mesh;
    assert_int_equal(sl_mesh_parse(&mesh, job->mesh, &error), SL_OK);
    return mesh.size;
}

/* Runs JOB with --zero 1 and 2. With 2 no coordinate's gradients may take more memory, and with SHARES each must take
 * less. PARTS: a layer is summed several times in a step, so results are near; otherwise they are equal. */
static void compare(struct job job, bool shares, bool parts) {
    struct bytes bytes[2][MOST_COORDINATES] = {{{0}}};
    struct job way[2] = {job, job};
    for (int i = 0; i < 2; i++) {
        way[i].zero = 1 + i;
        way[i].user = bytes[i];
        run_job(&way[i]);
    }
    for (int c = 0; c < coordinates_of(&job) && has_results(); c++) {
        for (int i = 0; i < 2; i++) assert_int_equal(bytes[i][c].held, bytes[i][c].planned);
        if (bytes[1][c].held > bytes[0][c].held || (shares && bytes[1][c].held == bytes[0][c].held))
            fail_msg("%s on %s, coordinate %d: gradients take %llu bytes, without sharing %llu", job.schedule, job.mesh,
                     c, (unsigned long long)bytes[1][c].held, (unsigned long long)bytes[0][c].held);
    }
    if (has_results() && !parts) expect_same_run(&way[0], &way[1]);
    if (has_results() && parts) {
        expect_near_store(&way[0].values, &way[1].values);
        expect_near_store(&way[0].gradients, &way[1].gradients);
        for (int step = 0; step < job.steps; step++)
            expect_close("loss", (size_t)step, way[1].loss[step], way[0].loss[step], 1e-5, 0);
        expect_close("evaluation", 0, way[1].evaluated, way[0].evaluated, 1e-5, 0);
    }
    for (int i = 0; i < 2; i++) free_job(&way[i]);
}

static void numbers_stay_under_every_schedule(void **state) {
    (void)state;
    static const struct {
        const char *schedule;
        int loops;
        bool shares; /* all microbatches of a loop have their W before those of another loop */
        bool parts;  /* each microbatch has its W before the next one's */
    } of[] = {{"looped-bfs", 4, true, true}, {"looped-dfs", 4, true, true},     {"interleaved-1f1b", 4, false, true},
              {"gpipe", 1, false, false},    {"1f1b", 1, false, false},         {"zbv", 2, false, true},
              {"dualpipev", 2, false, true}, {"interleaved-zb", 4, false, true}};
    static const char *const meshes[] = {"data=2,model=2", "model=2,data=4"};
    for (int m = 0; m < (test_runs_few ? 1 : 2); m++)
        for (int s = 0; s < (int)(sizeof of / sizeof *of); s++)
            for (int group = 4; group > 0; group -= 3) {
                struct job job = new_job(meshes[m], of[s].schedule, of[s].loops, 2 * of[s].loops);
                job.group = group;
                compare(job, of[s].shares && group == 4, of[s].parts && group == 1);
            }
}

/* One room for all layers' gradients, also within one loop, because each layer's gradient is released before the next
 * one is computed: if all microbatches have their W after one action, in one group or in several, and if groups have
 * theirs one after another. */
static void layers_share_one_room(void **state) {
    (void)state;
    static const struct {
        const char *mesh, *schedule;
        int group, microbatches;
        enum sl_recomputation recomputation;
        bool parts;
    } of[] = {
        {"data=2,model=2", "1f1b", 4, 4, SL_RECOMPUTE_NONE, false},
        {"data=2,model=2", "1f1b", 2, 4, SL_RECOMPUTE_NONE, true},
        {"data=3,model=1", "1f1b", 1, 4, SL_RECOMPUTE_NONE, true},
        {"data=2,model=2", "1f1b", 1, 4, SL_RECOMPUTE_FULL, true},
        {"data=4,model=1", "1f1b", 2, 4, SL_RECOMPUTE_SELECTIVE, true},
        {"data=4,model=1", "gpipe", 1, 4, SL_RECOMPUTE_NONE, false},
        {"data=3,model=1", "gpipe", 2, 4, SL_RECOMPUTE_FULL, false},
        {"data=4,model=1", "1f1b", 1, 1, SL_RECOMPUTE_NONE, false},
        {"data=4,model=1", "1f1b", 1, 1, SL_RECOMPUTE_FULL, false},
        {"data=2,model=2", "interleaved-zb", 4, 4, SL_RECOMPUTE_SELECTIVE, false},
        {"data=2,model=2", "interleaved-zb", 1, 4, SL_RECOMPUTE_NONE, true},
    };
    for (int i = 0; i < (int)(sizeof of / sizeof *of); i++)
        for (int overlap = 0; overlap < 2; overlap++) {
            if (test_runs_few && overlap != i % 2) continue;
            const struct sl_classifier shape = {.inputs = INPUTS,
                                                .hidden = HIDDEN,
                                                .expansion = 2,
                                                .classes = CLASSES,
                                                .recomputation = of[i].recomputation};
            struct job job = new_job(of[i].mesh, of[i].schedule, 1, 8);
            job.shape = &shape;
            job.group = of[i].group;
            job.microbatches = of[i].microbatches;
            job.overlap = overlap;
            compare(job, true, of[i].parts);
        }
}

static void so_they_do_without_overlap_and_with_delays(void **state) {
    (void)state;
    for (int i = 0; i < 4; i++) {
        struct job job = new_job("data=3,model=1", "looped-bfs", 4, 4);
        job.overlap = i & 1;
        job.delay = i & 2 ? 1e-7 : 0;
        compare(job, true, false);
    }
}

/* A norm, which needs all sums; passes and bf16 operands; an optimizer that adds up by itself. */
static void so_they_do_for_all_updates(void **state) {
    (void)state;
    struct sl_optimizer_options momentum = sl_sgd_defaults(0.05f);
    momentum.momentum = 0.9f;
    for (int i = 0; i < 4; i++) {
        struct job job = new_job("data=2,model=2", "looped-bfs", 4, 8);
        if (i == 0) job.clip = 0.05f;
        if (i == 1) job.accumulate = 2, job.group = job.microbatches = 2;
        if (i == 2) job.precision = SL_BF16;
        if (i == 3) job.optimizer = &momentum;
        compare(job, i != 1, false);
    }
    for (int i = 0; i < 3; i++) { /* also if layers have several sums */
        struct job job = new_job("data=3,model=1", "1f1b", 1, 8);
        job.group = 1;
        if (i == 0) job.clip = 0.05f;
        if (i == 1) job.storage = SL_BF16;
        if (i == 2) job.optimizer = &momentum;
        compare(job, true, true);
    }
}

/* One coordinate has no other to share with. */
static void alone_there_is_nothing_to_share(void **state) {
    (void)state;
    compare(new_job("data=1,model=2", "looped-bfs", 4, 8), false, false);
}

int main(int argc, char **argv) {
    begin_tests(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_stay_under_every_schedule),
        cmocka_unit_test(layers_share_one_room),
        cmocka_unit_test(so_they_do_without_overlap_and_with_delays),
        cmocka_unit_test(so_they_do_for_all_updates),
        cmocka_unit_test(alone_there_is_nothing_to_share),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
