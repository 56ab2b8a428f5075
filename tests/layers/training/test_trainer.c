/* test_trainer.c - training on a mesh: the same bits under every schedule and stage count, with any sharding and
 * overlap; no allocation after the first step; a failed coordinate ends the run. */
#include <limits.h>
#include <math.h>
#include <unistd.h>

#include "tests/rigs/allocations.h"
#include "tests/rigs/trainer_rig.h"

#include "spmd/base/memory.h"
#include "layers/modules/modules.h"

enum { STEPS = MAX_STEPS };

static void check_and_free(const struct job *expected, struct job *job) {
    expect_same_run(expected, job);
    free_job(job);
}

/* With dropout, which depends on the global position. */
static void schedules_and_stage_counts_give_the_same_bits(void **state) {
    (void)state;
    static const struct {
        const char *mesh, *schedule;
        int loops;
    } layout[] = {
        {"data=%d,model=1", "gpipe", 1},      {"data=%d,model=2", "gpipe", 1},
        {"data=%d,model=4", "gpipe", 1},      {"data=%d,model=8", "gpipe", 1},
        {"data=%d,model=1", "looped-bfs", 8}, {"data=%d,model=2", "looped-bfs", 2},
        {"data=%d,model=2", "looped-bfs", 4}, {"data=%d,model=4", "looped-bfs", 2},
        {"model=8,data=%d", "looped-bfs", 1},
    };
    static const int microbatches[] = {2, 6}; /* fewer than stages, and more */
    for (int data = 1; data <= 2; data++) {
        for (size_t m = 0; m < 2; m++) {
            struct job first = {0};
            for (size_t i = 0; i < sizeof layout / sizeof *layout; i++) {
                char mesh[64];
                snprintf(mesh, sizeof mesh, layout[i].mesh, data);
                struct job job = {.mesh = mesh,
                                  .schedule = layout[i].schedule,
                                  .loops = layout[i].loops,
                                  .layers = 8,
                                  .microbatches = microbatches[m],
                                  .group = microbatches[m],
                                  .steps = STEPS,
                                  .dropout = 0.2,
                                  .zero = true,
                                  .overlap = true};
                run_job(&job);
                if (i == 0)
                    first = job;
                else
                    check_and_free(&first, &job);
            }
            if (has_results()) assert_true(first.loss[STEPS - 1] < first.loss[0]);
            free_job(&first);
        }
    }
}

/* Sharding the optimizer's state, and reducing early, move work and change nothing. */
static void sharding_and_overlap_give_the_same_bits(void **state) {
    (void)state;
    for (int data = 2; data <= 3; data++) {
        struct job first = {0};
        for (int i = 0; i < 4; i++) {
            char mesh[64];
            snprintf(mesh, sizeof mesh, "data=%d,model=2", data);
            /* Twelve layers: more loops than concurrent reductions. */
            struct job job = {.mesh = mesh,
                              .schedule = "looped-bfs",
                              .loops = 6,
                              .layers = 12,
                              .microbatches = 4,
                              .group = 4,
                              .steps = STEPS,
                              .zero = i & 1,
                              .overlap = i & 2};
            run_job(&job);
            if (i == 0)
                first = job;
            else
                check_and_free(&first, &job);
        }
        free_job(&first);
    }
}

/* Weight gradients in groups: the schedule does not matter, the group changes the last digits only. */
static void groups_give_the_same_bits_in_every_schedule(void **state) {
    (void)state;
    double loss[3];
    static const int group[] = {1, 2, 4};
    for (int g = 0; g < 3; g++) {
        struct job plain = {.mesh = "data=1,model=1", .schedule = "gpipe", .loops = 1, .steps = STEPS};
        struct job looping = {.mesh = "data=1,model=2", .schedule = "looped-bfs", .loops = 2, .steps = STEPS};
        plain.layers = looping.layers = 4;
        plain.microbatches = looping.microbatches = 4;
        plain.group = looping.group = group[g];
        run_job(&plain);
        run_job(&looping);
        expect_same_run(&plain, &looping);
        loss[g] = plain.loss[STEPS - 1];
        free_job(&plain);
        free_job(&looping);
    }
    for (int g = 0; g < 2; g++) assert_true(fabs(loss[g] - loss[2]) <= 1e-4 * loss[2]);
}

/* Another data size sums in another order, and nothing else: the mean over data is the mean over all rows. */
static void data_sizes_agree(void **state) {
    (void)state;
    double loss[4][STEPS];
    for (int data = 1; data <= 4; data++) {
        char mesh[64];
        snprintf(mesh, sizeof mesh, "data=%d,model=2", data);
        struct job job = {.mesh = mesh,
                          .schedule = "gpipe",
                          .loops = 1,
                          .layers = 4,
                          .microbatches = 4,
                          .group = 4,
                          .steps = STEPS,
                          .dropout = 0.3,
                          .zero = true};
        run_job(&job);
        memcpy(loss[data - 1], job.loss, sizeof job.loss);
        free_job(&job);
        for (int step = 0; step < STEPS; step++)
            assert_true(fabs(loss[data - 1][step] - loss[0][step]) <= 1e-4 * loss[0][step]);
    }
}

/* ---- models other than the classifier: stages of one layer each, without their own report of that ---- */

enum { STAGE_PARTS = 4 };

/* Returns a stage of two dense layers with a dropout in between; LAST, if not NULL, follows them. */
static struct sl_module *build_stage(const struct job *job, int stage, int stages, struct sl_module *last) {
    char name[32];
    snprintf(name, sizeof name, "stages.%d", stage);
    const int in = stage ? HIDDEN : INPUTS, out = stage == stages - 1 ? CLASSES : HIDDEN;
    struct sl_module *const part[STAGE_PARTS] = {sl_dense("in", in, HIDDEN), sl_dropout(HIDDEN, job->dropout),
                                                 sl_dense("out", HIDDEN, out), last};
    return sl_sequential(name, last ? STAGE_PARTS : STAGE_PARTS - 1, part);
}

/* FOLLOWER(job, self, loop, columns), if not NULL, returns the last module of a stage. */
static int build_stages(struct job *job, struct sl_spmd *self, struct sl_model *model,
                        struct sl_module *(*follower)(struct job *, const struct sl_spmd *, int, int)) {
    const int rank = sl_axis_index(self, "model"), ranks = sl_axis_size(self, "model"), stages = ranks * job->loops;
    *model = (struct sl_model){
        .loops = job->loops,
        .layers = 1,
        .stage = calloc((size_t)job->loops, sizeof *model->stage),
        .loss = rank == ranks - 1 ? sl_softmax_cross_entropy(CLASSES) : NULL,
    };
    if (!model->stage) return sl_fail(self, SL_FAILED, "no memory for the model");
    for (int loop = 0; loop < job->loops; loop++) {
        const int stage = loop * ranks + rank, columns = stage == stages - 1 ? CLASSES : HIDDEN;
        model->stage[loop] = build_stage(job, stage, stages, follower ? follower(job, self, loop, columns) : NULL);
    }
    return SL_OK;
}

static int build_dropouts(struct job *job, struct sl_spmd *self, struct sl_model *model) {
    return build_stages(job, self, model, NULL);
}

/* Dropouts are numbered by their stage then, wherever it lies. */
static void dropouts_outside_layers_give_the_same_bits(void **state) {
    (void)state;
    static const char *const meshes[] = {"data=2,model=1", "data=2,model=2", "data=2,model=4"};
    static const int loops[] = {4, 2, 1};
    struct job first = {0};
    for (int i = 0; i < 3; i++) {
        struct job job = {.mesh = meshes[i],
                          .schedule = loops[i] == 1 ? "gpipe" : "looped-bfs",
                          .loops = loops[i],
                          .microbatches = 4,
                          .group = 4,
                          .steps = STEPS,
                          .dropout = 0.4,
                          .build = build_dropouts};
        run_job(&job);
        if (i == 0)
            first = job;
        else
            check_and_free(&first, &job);
    }
    if (has_results()) assert_true(first.evaluated != first.loss[STEPS - 1]);
    free_job(&first);
}

/* ---- a failing coordinate ---- */

/* COORDINATE fails with STATUS in the weight gradients of LOOP, in its second step. The members that sum gradients with
 * it are slow: when it fails, they have not yet read its inputs of earlier sums. */
struct fault {
    int coordinate, loop, status, steps;
};

enum { LATE = 5000, LONG_AFTERWARDS = 30000 }; /* microseconds */

struct follower {
    struct sl_module module;
    struct fault *fault;
};

static int pass_on(const struct sl_module *module, struct sl_context *context, struct sl_given x, struct sl_result *y) {
    sl_device.copy(y->floats, x.floats, sl_module_elements(module, context) * sizeof *y->floats);
    return SL_OK;
}

static int pass_back(const struct sl_module *module, struct sl_context *context, struct sl_given x, struct sl_given dy,
                     struct sl_result *dx) {
    (void)x;
    return dx ? pass_on(module, context, dy, dx) : SL_OK;
}

static int give_up(const struct sl_module *module, struct sl_context *context, struct sl_given x, struct sl_given dy) {
    (void)x, (void)dy;
    struct fault *fault = ((const struct follower *)module)->fault;
    if (fault->steps++ == 0) return SL_OK;
    return sl_fail(context->self, fault->status, "the module gave up");
}

static int be_late(const struct sl_module *module, struct sl_context *context, struct sl_given x, struct sl_given dy) {
    (void)module, (void)context, (void)x, (void)dy;
    usleep(LATE);
    return SL_OK;
}

#define FOLLOWER(NAME, BACKWARD_WEIGHT)                                                                                \
    {.name = NAME,                                                                                                     \
     .plan = sl_plan_keeps_nothing,                                                                                    \
     .forward = pass_on,                                                                                               \
     .backward_input = pass_back,                                                                                      \
     .backward_weight = BACKWARD_WEIGHT,                                                                               \
     .bytes = sizeof(struct follower)}
static const struct sl_module_type passing = FOLLOWER("passing", NULL), failing = FOLLOWER("failing", give_up),
                                   late = FOLLOWER("late", be_late);

static struct sl_module *new_follower(struct job *job, const struct sl_spmd *self, int loop, int columns) {
    struct fault *fault = job->user;
    const bool here = self->coordinate == fault->coordinate;
    const bool same_rank = self->coordinate % 2 == fault->coordinate % 2; /* on data=2,model=2 */
    const struct sl_module_type *type = here && loop == fault->loop ? &failing : !here && same_rank ? &late : &passing;
    struct sl_module *module = sl_module_new(type, type->name, columns, columns);
    if (module) ((struct follower *)module)->fault = fault;
    return module;
}

static int build_failing(struct job *job, struct sl_spmd *self, struct sl_model *model) {
    return build_stages(job, self, model, new_follower);
}

/* The run learns of a failure when the program returns, here long after its memory has gone. */
static int failing_program(struct sl_spmd *self, void *arg) {
    const struct fault *fault = ((struct job *)arg)->user;
    const int status = train_program(self, arg);
    if (self->coordinate == fault->coordinate) usleep(LONG_AFTERWARDS);
    return status;
}

static void a_failure_within_a_step_ends_the_run(void **state) {
    (void)state;
    static const char *const who[] = {"(data=0, model=0)", "(data=0, model=1)", "(data=1, model=0)",
                                      "(data=1, model=1)"};
    static const int loops[] = {5, 4, 0}; /* with no reduction under way, with one, with as many as there may be */
    for (int i = 0; i < 36; i++) {
        struct fault fault = {i % 4, loops[i / 4 % 3], i % 2 ? SL_FAILED : SL_CHECK_FAILED, 0};
        struct job job = {.mesh = "data=2,model=2",
                          .schedule = "looped-bfs",
                          .loops = 6,
                          .microbatches = 4,
                          .group = 4,
                          .steps = STEPS,
                          .zero = i / 12,
                          .overlap = true,
                          .build = build_failing,
                          .user = &fault};
        open_job(&job);
        EXPECT_VERDICT(((struct test_run){.mesh = job.mesh, .arg = &job}), failing_program, fault.status, who[i % 4],
                       "the module gave up");
        if (shares_memory()) assert_int_equal(fault.steps, 2);
        free_job(&job);
    }
}

/* ---- models that do not fit ---- */

enum misfit { WIDE_LOSS, NO_LOSS, NO_STAGE, WIDE_STAGE, MISFITS };

static int build_misfit(struct job *job, struct sl_spmd *self, struct sl_model *model) {
    const enum misfit misfit = *(const enum misfit *)job->user;
    SL_TRY(build_stages(job, self, model, NULL));
    struct sl_module **wrong = misfit == WIDE_LOSS || misfit == NO_LOSS ? &model->loss : &model->stage[1];
    sl_module_free(*wrong);
    *wrong = misfit == WIDE_LOSS    ? sl_softmax_cross_entropy(CLASSES + 1)
             : misfit == WIDE_STAGE ? sl_dense("wide", HIDDEN + 1, CLASSES)
                                    : NULL;
    return SL_OK;
}

static void a_model_that_does_not_fit_is_refused(void **state) {
    char text[MISFITS][80] = {
        [NO_LOSS] = "the model with the last stage has no loss", [NO_STAGE] = "the model has no stage for loop 1"};
    (void)state;
    snprintf(text[WIDE_LOSS], sizeof *text, "the loss takes %d columns, but the last stage gives %d", CLASSES + 1,
             CLASSES);
    snprintf(text[WIDE_STAGE], sizeof *text, "the stage of loop 1 hands over %d columns, not %d", HIDDEN + 1, HIDDEN);
    for (enum misfit misfit = 0; misfit < MISFITS; misfit++) {
        struct job job = {.mesh = "data=2,model=1",
                          .schedule = "looped-bfs",
                          .loops = 2,
                          .microbatches = 4,
                          .group = 4,
                          .steps = STEPS,
                          .build = build_misfit,
                          .user = &misfit};
        open_job(&job);
        EXPECT_VERDICT(((struct test_run){.mesh = job.mesh, .arg = &job}), train_program, SL_BAD_INPUT, text[misfit]);
        free_job(&job);
    }
}

/* ---- allocations ---- */

struct counts {
    long allocations, taken; /* after the first step */
};

static int count_after_the_first_step(struct sl_spmd *self, struct job *job, struct sl_trainer *trainer) {
    struct counts *counts = job->user;
    struct sl_group world;
    SL_TRY(sl_group_axes(self, "*", &world));
    SL_TRY(train_steps(self, job, trainer, 0, 1));
    SL_TRY(sl_barrier(self, &world)); /* everyone's first step is done before the count begins */
    const struct counts before = {allocations, (long)sl_memory_count()};
    SL_TRY(sl_barrier(self, &world));
    SL_TRY(train_steps(self, job, trainer, 1, job->steps));
    SL_TRY(sl_barrier(self, &world));
    if (self->coordinate == 0)
        *counts = (struct counts){allocations - before.allocations, (long)sl_memory_count() - before.taken};
    return sl_barrier(self, &world);
}

static void expect_nothing_after_the_first_step(enum sl_dtype precision) {
    struct counts counts = {-1, -1};
    struct job job = {.mesh = "data=2,model=4",
                      .schedule = "looped-bfs",
                      .loops = 2,
                      .layers = 8,
                      .microbatches = 6,
                      .group = 3,
                      .steps = STEPS,
                      .dropout = 0.1,
                      .zero = true,
                      .overlap = true,
                      .precision = precision,
                      .train = count_after_the_first_step,
                      .user = &counts};
    long before = allocations;
    void *aligned = sl_memory_take(1);
    assert_true(allocations > before); /* the count includes allocations on cache lines */
    sl_memory_give(aligned);
    before = allocations;
    run_job(&job);
    if (has_results()) {
        assert_true(allocations > before);
        assert_int_equal(counts.allocations, 0);
        assert_int_equal(counts.taken, 0);
    }
    free_job(&job);
}

static void nothing_is_allocated_after_the_first_step(void **state) {
    (void)state;
    expect_nothing_after_the_first_step(SL_F32);
    expect_nothing_after_the_first_step(SL_BF16);
}

/* The fewest microbatches with 256 rows together; else all. */
static void groups_follow_from_shapes(void **state) {
    const int shapes[][3] = {{4, 256, 1}, {4, 1024, 1}, {4, 255, 2}, {4, 64, 4}, {4, 16, 4},
                             {6, 86, 3},  {6, 64, 6},   {7, 128, 7}, {1, 1, 1},  {4096, INT_MAX, 1}};
    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        assert_int_equal(sl_pipeline_wgrad_group(shapes[i][0], shapes[i][1]), shapes[i][2]);
}

int main(int argc, char **argv) {
    begin_tests(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(schedules_and_stage_counts_give_the_same_bits),
        cmocka_unit_test(sharding_and_overlap_give_the_same_bits),
        cmocka_unit_test(groups_give_the_same_bits_in_every_schedule),
        cmocka_unit_test(groups_follow_from_shapes),
        cmocka_unit_test(data_sizes_agree),
        cmocka_unit_test(dropouts_outside_layers_give_the_same_bits),
        cmocka_unit_test(a_failure_within_a_step_ends_the_run),
        cmocka_unit_test(a_model_that_does_not_fit_is_refused),
        cmocka_unit_test(nothing_is_allocated_after_the_first_step),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
