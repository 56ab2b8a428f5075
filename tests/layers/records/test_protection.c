/* test_protection.c - steps in memory: the latest step that all coordinates have written counts, on any mesh; a step
 * with a part that is unsealed, cut short or damaged does not; a step is written to its end even if the run ends
 * meanwhile; memory is planned; no files are left. */
#include <unistd.h>

#include "tests/rigs/allocations.h"
#include "tests/rigs/folder.h"
#include "tests/rigs/saved_job.h"

#include "collectives/failing.h"
#include "layers/formats/stores/store_parts.h"
#include "layers/records/snapshot/protection.h"
#include "layers/records/snapshot/protection_folder.h"

enum { STEPS = 5 };

static char save[FOLDER];

static int make_directory(void **state) {
    (void)state;
    return make_folder(save, "test_protection") ? 0 : -1;
}

/* Removes the folder of the saved run from memory. */
static void forget(void) {
    char folder[SL_MAX_PATH];
    if (!sl_protection_name(save, folder, NULL)) sl_protection_remove(folder, NULL);
}

static int remove_directory(void **state) {
    (void)state;
    forget();
    return rmdir(save);
}

static const struct sl_setting settings[] = {{"model", "small"}, {NULL, ""}};

struct protecting {
    struct sl_protection *protection;
    int lags;  /* this coordinate does not write the last step; -1: all do */
    bool ends; /* the run removes its steps */
};

static int check_bytes(struct worker *worker, const struct sl_budget *held_before) {
    struct sl_budget planned = *held_before;
    SL_TRY(sl_protection_plan_bytes(worker->self, worker->trainer, &planned));
    if (!memcmp(&planned, &worker->self->held, sizeof planned)) return SL_OK;
    return sl_fail(worker->self, SL_CHECK_FAILED, "%llu bytes planned, %llu held",
                   (unsigned long long)sl_budget_total(&planned),
                   (unsigned long long)sl_budget_total(&worker->self->held));
}

static int train_and_protect(struct worker *worker) {
    const struct protecting *job = worker->job->user;
    struct sl_spmd *self = worker->self;
    const struct sl_checkpoint about = {.seed = 3};
    const struct sl_budget held = self->held;
    SL_TRY(sl_protection_prepare(job->protection, self, worker->trainer, save, NULL));
    SL_TRY(sl_protection_open(job->protection, self, worker->trainer, save, NULL, &about, settings, NULL));
    SL_TRY(check_bytes(worker, &held));
    for (int step = 1; step <= STEPS; step++) {
        SL_TRY(train_steps(worker, 0, 1));
        if (step == STEPS && self->coordinate == job->lags) continue;
        const size_t before = taken;
        SL_TRY(sl_protection_commit(job->protection, self, worker->trainer, 8 * step));
        if (taken > before && step > 1)
            return sl_fail(self, SL_CHECK_FAILED, "step %d takes %zu bytes of memory", step, taken - before);
    }
    if (job->ends) sl_protection_end(job->protection, self);
    return SL_OK;
}

static void protect(const char *mesh, int lags, bool ends) {
    struct job job = saved_job(mesh);
    struct protecting protecting = {sl_protection_new(8), lags, ends};
    struct sl_error error = {0};
    assert_non_null(protecting.protection);
    job.program = train_and_protect;
    job.user = &protecting;
    if (try_job(&job, &error)) fail_msg("%s: %s", mesh, error.message);
    free_job(&job);
    sl_protection_close(protecting.protection);
}

static void the_latest_step_of_all_counts(void **state) {
    static const char *const meshes[] = {"data=2,pipe=2,tensor=2", "data=1,pipe=4,tensor=2", "data=8,pipe=1,tensor=1"};
    char index[SL_MAX_PATH];
    struct sl_checkpoint about = {0};
    struct sl_error error = {0};
    (void)state;
    for (int i = 0; i < 6; i++) {
        const bool lags = i % 2;
        protect(meshes[i / 2], lags ? 3 : -1, false);
        assert_int_equal(sl_protection_step(save), lags ? STEPS - 1 : STEPS);
        assert_int_equal(sl_protection_find(save, index, NULL), lags ? STEPS - 1 : STEPS);
        if (sl_checkpoint_check(index, settings, NULL, &about, &error)) fail_msg("%s", error.message);
        assert_int_equal(about.samples, 8 * about.step);
        assert_int_equal(about.seed, 3);
    }
    protect(meshes[0], -1, true);
    assert_int_equal(sl_protection_step(save), -1);
}

/* Changes the byte AT bytes before the end of the part of coordinate 0 in PLACE; 0: cuts the part short. */
static void damage(const char *index, int place, long at) {
    char start[SL_MAX_PATH], path[SL_MAX_PATH];
    snprintf(start, sizeof start, "%.*s", (int)(strrchr(index, '/') - index), index);
    sl_protection_part(start, place, 1, 2, path);
    FILE *file = fopen(path, "r+");
    assert_non_null(file);
    assert_int_equal(fseek(file, -(at ? at : 1), SEEK_END), 0);
    if (at) {
        const int was = fgetc(file);
        assert_int_equal(fseek(file, -1, SEEK_CUR), 0);
        fputc(was ^ 1, file);
    } else {
        assert_int_equal(ftruncate(fileno(file), ftell(file)), 0);
    }
    fclose(file);
}

/* Fails at its first sign of progress while it writes the last step. */
static int fail_while_protecting(struct worker *worker) {
    const struct protecting *job = worker->job->user;
    struct sl_spmd *self = worker->self;
    const struct sl_checkpoint about = {.seed = 3};
    struct sl_fault fault = {.step = STEPS};
    struct sl_failing *failing;
    SL_TRY(sl_protection_prepare(job->protection, self, worker->trainer, save, NULL));
    SL_TRY(sl_protection_open(job->protection, self, worker->trainer, save, NULL, &about, settings, NULL));
    SL_TRY(sl_failing_open(&failing, self, &fault, 1));
    int status = SL_OK;
    for (int step = 1; step <= STEPS && status == SL_OK; step++) {
        status = train_steps(worker, 0, 1);
        sl_failing_begin_step(failing, step);
        if (status == SL_OK) status = sl_protection_commit(job->protection, self, worker->trainer, 8 * step);
    }
    sl_failing_close(failing, self);
    return status;
}

static void a_step_is_written_to_its_end(void **state) {
    char index[SL_MAX_PATH];
    struct job job = saved_job("data=1,pipe=1,tensor=1");
    struct protecting protecting = {sl_protection_new(1), -1, false};
    struct sl_error error = {0};
    (void)state;
    assert_non_null(protecting.protection);
    job.program = fail_while_protecting;
    job.user = &protecting;
    assert_int_equal(try_job(&job, &error), SL_FAILED);
    if (!strstr(error.message, "fails at call 0")) fail_msg("%s", error.message);
    assert_int_equal(sl_protection_find(save, index, NULL), STEPS);
    free_job(&job);
    sl_protection_close(protecting.protection);
}

static void damaged_parts_do_not_count(void **state) {
    char index[SL_MAX_PATH];
    (void)state;
    protect("data=2,pipe=1,tensor=1", -1, false);
    assert_int_equal(sl_protection_find(save, index, NULL), STEPS);
    damage(index, STEPS % 2, 0);
    assert_int_equal(sl_protection_find(save, index, NULL), STEPS - 1);
    damage(index, (STEPS - 1) % 2, 5);
    assert_int_equal(sl_protection_step(save), STEPS - 1); /* by its header */
    assert_int_equal(sl_protection_find(save, index, NULL), -1);
    forget();
}

int main(int argc, char **argv) {
    begin_tests(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_latest_step_of_all_counts, make_directory, remove_directory),
        cmocka_unit_test_setup_teardown(a_step_is_written_to_its_end, make_directory, remove_directory),
        cmocka_unit_test_setup_teardown(damaged_parts_do_not_count, make_directory, remove_directory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
