/* test_together.c - replicas of one process that share their values and read each other's gradients give the results of
 * replicas with copies of their own (as an engine with delays has). */
#include <unistd.h>

#include "tests/rigs/trainer_rig.h"

enum { STEPS = MAX_STEPS };

static bool are_together(void) { return shares_memory() && sl_device.shares_memory; }

/* Checks that the values are in common memory if they should be. */
static int expect_place(struct sl_spmd *self, const struct job *job, struct sl_trainer *trainer) {
    const struct sl_parameters *parameters = sl_trainer_parameters(trainer);
    const bool together = are_together() && job->zero && job->delay == 0 && sl_axis_size(self, "data") > 1;
    if (parameters->one_copy == together && !parameters->common == !together) return SL_OK;
    return sl_fail(self, SL_CHECK_FAILED, "values are%s held together", together ? " not" : "");
}

/* Gradients are asked for between steps, twice; evaluations follow steps at once. */
static int train_and_look(struct sl_spmd *self, struct job *job, struct sl_trainer *trainer) {
    SL_TRY(expect_place(self, job, trainer));
    for (int step = 0; step < job->steps; step++) {
        SL_TRY(train_steps(self, job, trainer, step, step + 1));
        if (job->accumulate < 2) SL_TRY(evaluate(self, job, trainer));
        if (step != 1) continue;
        for (int i = 0; i < 2; i++) {
            struct sl_store gradients = {0};
            SL_TRY(sl_trainer_export(trainer, true, &gradients));
            sl_store_free(&gradients);
        }
    }
    return SL_OK;
}

static struct job new_job(const char *mesh) {
    return (struct job){.mesh = mesh,
                        .schedule = "looped-bfs",
                        .loops = 2,
                        .layers = 4,
                        .microbatches = 2,
                        .group = 2,
                        .steps = STEPS,
                        .overlap = true,
                        .zero = true,
                        .train = train_and_look};
}

/* JOB in three ways: together, with copies, and without sharing the optimizer's state out. */
static void expect_same_bits(struct job job) {
    struct job way[3] = {job, job, job};
    way[1].delay = 1e-7;
    way[2].zero = false;
    for (int i = 0; i < 3; i++) {
        run_job(&way[i]);
        if (!has_results()) continue;
        expect_same_store(&way[0].values, &way[i].values);
        expect_same_store(&way[0].gradients, &way[i].gradients);
        for (int step = 0; step < job.steps; step++) assert_true(way[0].loss[step] == way[i].loss[step]);
        assert_true(way[0].evaluated == way[i].evaluated);
    }
    for (int i = 0; i < 3; i++) free_job(&way[i]);
}

static const char *const meshes[] = {"data=2,model=2", "data=3,model=1", "model=2,data=4", "data=8"};
enum { MESHES = sizeof meshes / sizeof *meshes };

static void bits_are_those_of_copies(void **state) {
    (void)state;
    for (int i = 0; i < MESHES; i++)
        for (int overlap = 0; overlap < 2; overlap++) {
            struct job job = new_job(meshes[i]);
            job.overlap = overlap;
            expect_same_bits(job);
        }
}

/* Rounded values are held together, too: each member rounds its part. */
static void so_are_those_of_bf16_operands(void **state) {
    (void)state;
    for (int i = 0; i < MESHES; i++) {
        struct job job = new_job(meshes[i]);
        job.precision = SL_BF16;
        expect_same_bits(job);
    }
}

/* Sums needed before the first is used; several passes; optimizers with and without sums of their own. */
static void so_are_those_of_all_updates(void **state) {
    (void)state;
    struct sl_optimizer_options plain = sl_sgd_defaults(0.05f), momentum = plain;
    momentum.momentum = 0.9f;
    momentum.decay = 0.01f;
    for (int i = 0; i < 2; i++) {
        struct job clipped = new_job(meshes[i]), passes = new_job(meshes[i]), sgd = new_job(meshes[i]);
        clipped.clip = 0.05f;
        expect_same_bits(clipped);
        passes.accumulate = 2;
        expect_same_bits(passes);
        sgd.optimizer = i ? &momentum : &plain;
        expect_same_bits(sgd);
    }
}

/* Loaded values are written once, and all coordinates see them. */
static void given_values_reach_all(void **state) {
    (void)state;
    for (int i = 0; i < 4; i++) {
        struct job first = new_job(meshes[i / 2]);
        first.precision = i % 2 ? SL_BF16 : SL_F32;
        first.steps = 1;
        run_job(&first);
        struct job job = new_job(meshes[i / 2]);
        job.precision = first.precision;
        job.from = &first.values;
        expect_same_bits(job);
        free_job(&first);
    }
}

/* A coordinate that gives up frees its own memory, while the others still compute with values that it has written. */
static int give_up(struct sl_spmd *self, struct job *job, struct sl_trainer *trainer) {
    SL_TRY(train_steps(self, job, trainer, 0, 1));
    if (self->coordinate == *(const int *)job->user) return sl_fail(self, SL_CHECK_FAILED, "it gave up");
    return train_steps(self, job, trainer, 1, STEPS);
}

static void values_outlive_who_wrote_them(void **state) {
    (void)state;
    for (int who = 0; who < 4; who++) {
        struct job job = new_job("data=4,model=1");
        struct sl_error error = {0};
        job.train = give_up;
        job.user = &who;
        open_job(&job);
        const int status = run_on((struct test_run){.mesh = job.mesh, .arg = &job}, train_program, &error);
        assert_int_equal(status, SL_CHECK_FAILED);
        assert_non_null(strstr(error.message, "it gave up"));
        free_job(&job);
    }
}

int main(int argc, char **argv) {
    begin_tests(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bits_are_those_of_copies),      cmocka_unit_test(so_are_those_of_bf16_operands),
        cmocka_unit_test(so_are_those_of_all_updates),   cmocka_unit_test(given_values_reach_all),
        cmocka_unit_test(values_outlive_who_wrote_them),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
