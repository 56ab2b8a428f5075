/* test_trainer.c - training on a mesh: the same bits under every schedule and stage count, whatever is sharded or
 * overlapped; the sums are right across data sizes; nothing is allocated after the first step. */
#include <math.h>
#include <stdlib.h>

#include "run_on.h"

#include "layers/classifier.h"
#include "layers/memory.h"
#include "layers/trainer.h"

enum { INPUTS = 12, CLASSES = 5, BATCH = 48, STEPS = 4, MAX_LOSSES = 16 };

/* Calls of malloc and its kin out of this program's objects (the linker sends them here); libraries' own are not seen.
 */
static _Atomic long allocations;
void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *memory, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *memory, size_t size);
void *__wrap_malloc(size_t size) {
    allocations++;
    return __real_malloc(size);
}
void *__wrap_calloc(size_t count, size_t size) {
    allocations++;
    return __real_calloc(count, size);
}
void *__wrap_realloc(void *memory, size_t size) {
    allocations++;
    return __real_realloc(memory, size);
}

struct job {
    const char *mesh, *schedule;
    int loops, layers, microbatches, group;
    double dropout;
    bool zero, overlap;
    /* Filled in. */
    struct sl_schedule table;
    float inputs[BATCH * INPUTS];
    int32_t labels[BATCH];
    double loss[STEPS];
    struct sl_store values, gradients;
    long allocations_after_first, taken_after_first;
};

static int train(struct sl_spmd *self, struct job *job, struct sl_trainer *trainer) {
    const int rows = BATCH / sl_axis_size(self, "data"), first = rows * sl_axis_index(self, "data");
    const struct sl_batch batch = {job->inputs + first * INPUTS, job->labels + first};
    struct sl_group world;
    long before = 0;
    uint64_t taken = 0;
    SL_TRY(sl_group_axes(self, "*", &world));
    for (int step = 0; step < STEPS; step++) {
        struct sl_metrics metrics;
        bool stop = false;
        SL_TRY(sl_trainer_step(trainer, &batch, &metrics, &stop));
        if (self->coordinate == 0) job->loss[step] = metrics.loss / metrics.rows;
        if (metrics.rows != BATCH) return sl_fail(self, SL_CHECK_FAILED, "%g rows were counted", metrics.rows);
        if (step > 0) continue;
        SL_TRY(sl_barrier(self, &world)); /* everyone's first step is done before the count begins */
        before = allocations;
        taken = sl_memory_count();
        SL_TRY(sl_barrier(self, &world));
    }
    SL_TRY(sl_barrier(self, &world));
    if (self->coordinate == 0) {
        job->allocations_after_first = allocations - before;
        job->taken_after_first = (long)(sl_memory_count() - taken);
    }
    SL_TRY(sl_barrier(self, &world));
    SL_TRY(sl_trainer_export(trainer, false, &job->values));
    return sl_trainer_export(trainer, true, &job->gradients);
}

static int program(struct sl_spmd *self, void *arg) {
    struct job *job = arg;
    const struct sl_classifier classifier = {.inputs = INPUTS,
                                             .hidden = 16,
                                             .expansion = 2,
                                             .classes = CLASSES,
                                             .layers = job->layers,
                                             .dropout = job->dropout,
                                             .stages = sl_axis_size(self, "model"),
                                             .loops = job->loops};
    const struct sl_trainer_options options = {
        .pipeline = {.axis = "model",
                     .schedule = &job->table,
                     .gemm = sl_gemm_find("reference", &self->error),
                     .rows = BATCH / sl_axis_size(self, "data") / job->microbatches,
                     .group = job->group},
        .data_axis = "data",
        .adamw = sl_adamw_defaults(1e-2f),
        .zero = job->zero,
        .overlap = job->overlap,
        .seed = 3,
    };
    struct sl_model model = {0};
    struct sl_trainer *trainer = NULL;
    int status = sl_classifier_build(&classifier, sl_axis_index(self, "model"), &model, &self->error);
    if (status == SL_OK) status = sl_trainer_plan(&trainer, self, &options, &model);
    if (status == SL_OK) status = sl_trainer_open(trainer, NULL);
    if (status == SL_OK) status = train(self, job, trainer);
    sl_trainer_close(trainer);
    sl_classifier_free(&model);
    return status;
}

static void run_job(struct job *job) {
    struct sl_error error = {0};
    struct sl_mesh mesh;
    assert_int_equal(sl_mesh_parse(&mesh, job->mesh, &error), SL_OK);
    assert_int_equal(sl_schedule_make(&job->table, job->schedule, sl_mesh_axis_size(&mesh, "model"), job->loops,
                                      job->microbatches, &error),
                     SL_OK);
    assert_int_equal(sl_schedule_lower(&job->table, &error), SL_OK);
    sl_random_normal(sl_key_of_seed(5), BATCH * INPUTS, job->inputs);
    sl_random_randint(sl_key_of_seed(6), BATCH, 0, CLASSES, job->labels);
    const int status = run_on((struct test_run){.mesh = job->mesh, .arg = job}, program, &error);
    if (status) fail_msg("%s on %s: %s", job->schedule, job->mesh, error.message);
}

static void free_job(struct job *job) {
    sl_schedule_free(&job->table);
    sl_store_free(&job->values);
    sl_store_free(&job->gradients);
}

static void expect_same_store(const struct sl_store *a, const struct sl_store *b) {
    assert_int_equal(a->count, b->count);
    for (int i = 0; i < a->count; i++) {
        const struct sl_tensor *other = sl_store_find(b, a->tensor[i].name);
        assert_non_null(other);
        if (memcmp(a->tensor[i].array.data, other->array.data, sl_array_elements(&a->tensor[i].array) * sizeof(float)))
            fail_msg("%s has other bits", a->tensor[i].name);
    }
}

static void expect_same(const struct job *a, const struct job *b) {
    if (memcmp(a->loss, b->loss, sizeof a->loss))
        fail_msg("%s on %s: loss %.9g, not %.9g", b->schedule, b->mesh, b->loss[STEPS - 1], a->loss[STEPS - 1]);
    expect_same_store(&a->values, &b->values);
    expect_same_store(&a->gradients, &b->gradients);
}

static void check_and_free(const struct job *expected, struct job *job) {
    expect_same(expected, job);
    free_job(job);
}

/* With dropout, whose masks go by global position. */
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
                                  .dropout = 0.2,
                                  .zero = true,
                                  .overlap = true};
                run_job(&job);
                if (i == 0)
                    first = job;
                else
                    check_and_free(&first, &job);
            }
            assert_true(first.loss[STEPS - 1] < first.loss[0]);
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
            /* Twelve layers: more loops than reductions that are under way at once. */
            struct job job = {.mesh = mesh,
                              .schedule = "looped-bfs",
                              .loops = 6,
                              .layers = 12,
                              .microbatches = 4,
                              .group = 4,
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
        struct job plain = {.mesh = "data=1,model=1", .schedule = "gpipe", .loops = 1};
        struct job looping = {.mesh = "data=1,model=2", .schedule = "looped-bfs", .loops = 2};
        plain.layers = looping.layers = 4;
        plain.microbatches = looping.microbatches = 4;
        plain.group = looping.group = group[g];
        run_job(&plain);
        run_job(&looping);
        expect_same(&plain, &looping);
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
        struct job job = {.mesh = mesh, .schedule = "gpipe", .loops = 1, .layers = 4, .microbatches = 4, .group = 4};
        job.zero = true;
        job.dropout = 0.3;
        run_job(&job);
        memcpy(loss[data - 1], job.loss, sizeof job.loss);
        free_job(&job);
        for (int step = 0; step < STEPS; step++)
            assert_true(fabs(loss[data - 1][step] - loss[0][step]) <= 1e-4 * loss[0][step]);
    }
}

static void nothing_is_allocated_after_the_first_step(void **state) {
    (void)state;
    struct job job = {.mesh = "data=2,model=4",
                      .schedule = "looped-bfs",
                      .loops = 2,
                      .layers = 8,
                      .microbatches = 6,
                      .group = 3,
                      .dropout = 0.1,
                      .zero = true,
                      .overlap = true};
    const long before = allocations;
    run_job(&job);
    assert_true(allocations > before); /* the count does count */
    assert_int_equal(job.allocations_after_first, 0);
    assert_int_equal(job.taken_after_first, 0);
    free_job(&job);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(schedules_and_stage_counts_give_the_same_bits),
        cmocka_unit_test(sharding_and_overlap_give_the_same_bits),
        cmocka_unit_test(groups_give_the_same_bits_in_every_schedule),
        cmocka_unit_test(data_sizes_agree),
        cmocka_unit_test(nothing_is_allocated_after_the_first_step),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
