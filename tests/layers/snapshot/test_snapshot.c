/* test_snapshot.c - what a thread writes while a run goes on has the bytes of a save that waits; memory is planned;
 * what cannot be written ends the run with one line, and nothing is left half written; whoever ends waits for the
 * thread. */
#include <dirent.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include "tests/rigs/folder.h"
#include "tests/rigs/saved_job.h"

#include "layers/snapshot/snapshot.h"

enum { STEPS = 4, KEPT = 100 };

static char behind[FOLDER], before[FOLDER]; /* saved while the run goes on, and while it waits */

static int make_directories(void **state) {
    (void)state;
    return make_folder(behind, "test_snapshot") && make_folder(before, "test_snapshot") ? 0 : -1;
}

/* Returns how many files there were. */
static int empty(const char *directory) {
    DIR *open = opendir(directory);
    int count = 0;
    assert_non_null(open);
    for (const struct dirent *entry; (entry = readdir(open));)
        if (*entry->d_name != '.') count += !unlinkat(dirfd(open), entry->d_name, 0);
    closedir(open);
    return count;
}

static int remove_directories(void **state) {
    (void)state;
    empty(behind); /* of a test that has failed */
    empty(before);
    return rmdir(behind) || rmdir(before);
}

static const struct sl_setting settings[] = {{"model", "small"}, {NULL, ""}};

struct saving {
    struct sl_snapshot *snapshot;
    const char *directory;
    bool compares; /* each step is also saved as ever */
    bool fails;    /* the run ends by a failure after its first save */
};

static int save_both(struct worker *worker, const struct saving *saving, int step) {
    const struct sl_checkpoint about = {.samples = 8 * step, .seed = 3};
    char path[SL_MAX_PATH];
    SL_TRY(sl_snapshot_save(saving->snapshot, worker->self, worker->trainer, saving->directory, &about, settings, NULL,
                            KEPT));
    if (!saving->compares) return SL_OK;
    SL_TRY(sl_checkpoint_name(before, step, path, &worker->self->error));
    return sl_checkpoint_save(worker->self, worker->trainer, path, &about, settings, NULL);
}

static int check_bytes(struct worker *worker, const struct sl_budget *held_before) {
    struct sl_budget planned = *held_before;
    SL_TRY(sl_snapshot_plan_bytes(worker->self, worker->trainer, &planned));
    if (!memcmp(&planned, &worker->self->held, sizeof planned)) return SL_OK;
    return sl_fail(worker->self, SL_CHECK_FAILED, "%llu bytes planned, %llu held",
                   (unsigned long long)sl_budget_total(&planned),
                   (unsigned long long)sl_budget_total(&worker->self->held));
}

static int train_and_save(struct worker *worker) {
    const struct saving *saving = worker->job->user;
    const struct sl_budget held = worker->self->held;
    SL_TRY(sl_snapshot_open(saving->snapshot, worker->self, worker->trainer));
    SL_TRY(check_bytes(worker, &held));
    for (int step = 1; step <= STEPS; step++) {
        SL_TRY(train_steps(worker, 0, 1));
        SL_TRY(save_both(worker, saving, step));
        /* It has the copy; another one's failure could come before that is there. */
        if (saving->fails && worker->self->coordinate == 0) return sl_fail(worker->self, SL_FAILED, "the end");
    }
    return sl_snapshot_wait(saving->snapshot, worker->self, worker->trainer);
}

static int run(const char *mesh, bool fsdp, struct saving *saving, struct sl_error *error) {
    struct job job = saved_job(mesh);
    job.model.fsdp = fsdp;
    job.program = train_and_save;
    job.user = saving;
    if (sl_snapshot_start(&saving->snapshot, error)) return error->status;
    const int status = try_job(&job, error);
    free_job(&job);
    return status;
}

static void expect_same_step(int step, const char *mesh) {
    char path[2][SL_MAX_PATH];
    assert_int_equal(sl_checkpoint_name(behind, step, path[0], NULL), SL_OK);
    assert_int_equal(sl_checkpoint_name(before, step, path[1], NULL), SL_OK);
    expect_same_files(path[0], path[1], mesh);
}

static void files_are_those_of_saves_that_wait(void **state) {
    static const char *const meshes[] = {"data=2,pipe=2,tensor=2", "data=1,pipe=4,tensor=2", "data=8,pipe=1,tensor=1"};
    (void)state;
    for (int i = 0; i < 6; i++) {
        struct saving saving = {.directory = behind, .compares = true};
        struct sl_error error = {0};
        if (run(meshes[i / 2], i % 2, &saving, &error)) fail_msg("%s: %s", meshes[i / 2], error.message);
        for (int step = 1; step <= STEPS && has_results(); step++) expect_same_step(step, meshes[i / 2]);
        if (has_results()) assert_int_equal(sl_snapshot_account(saving.snapshot).copies, STEPS);
        sl_snapshot_close(saving.snapshot);
        if (has_results()) assert_int_equal(empty(behind), STEPS);
        empty(before);
    }
}

/* A run that fails ends while its copy may still be on its way. */
static void the_end_waits_for_the_thread(void **state) {
    struct saving saving = {.directory = behind, .fails = true};
    struct sl_error error = {0};
    (void)state;
    if (!shares_memory()) return;
    assert_int_equal(run("data=2,pipe=2,tensor=1", false, &saving, &error), SL_FAILED);
    sl_snapshot_close(saving.snapshot);
    assert_int_equal(sl_checkpoint_last_step(behind), 1);
    assert_int_equal(empty(behind), 1);
}

/* expect_failure: the run ends with a line that has TEXT. */
static void expect_failure(const char *directory, const char *text) {
    struct saving saving = {.directory = directory};
    struct sl_error error = {0};
    assert_int_equal(run("data=2,pipe=2,tensor=1", false, &saving, &error), SL_FAILED);
    if (has_results() && !strstr(error.message, text)) fail_msg("%s", error.message);
    if (has_results()) assert_true(sl_snapshot_has_failed(saving.snapshot));
    sl_snapshot_close(saving.snapshot);
}

static void a_full_disk_ends_the_run(void **state) {
    struct rlimit usual, limit;
    (void)state;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &usual), 0);
    limit = usual;
    limit.rlim_cur = 4096;
    void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    expect_failure(behind, ".safetensors: cannot be written: File too large");
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &usual), 0);
    signal(SIGXFSZ, handler);
    assert_int_equal(empty(behind), 0);
}

static void so_does_a_directory_that_is_gone(void **state) {
    (void)state;
    expect_failure("/nowhere", "/nowhere/step-00000001.safetensors: cannot be written: No such file");
}

static void nothing_needs_no_end(void **state) {
    struct sl_snapshot *snapshot;
    struct sl_error error;
    (void)state;
    assert_int_equal(sl_snapshot_start(&snapshot, &error), SL_OK);
    assert_false(sl_snapshot_has_failed(snapshot));
    sl_snapshot_close(snapshot);
    assert_false(sl_snapshot_has_failed(NULL));
    sl_snapshot_close(NULL);
}

int main(int argc, char **argv) {
    begin_tests(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(files_are_those_of_saves_that_wait),
        cmocka_unit_test(the_end_waits_for_the_thread),
        cmocka_unit_test(a_full_disk_ends_the_run),
        cmocka_unit_test(so_does_a_directory_that_is_gone),
        cmocka_unit_test(nothing_needs_no_end),
    };
    return cmocka_run_group_tests(tests, make_directories, remove_directories);
}
