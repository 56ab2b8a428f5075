/* test_snapshot.c - checkpoints written by a thread during a run have the bytes of a save that waits; memory is
 * planned; a failed write ends the run with one line and leaves no partial file; a run waits for its thread at the end.
 * Parts written by several processes have the values of a single file, and count when all parts are there. */
#include <dirent.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include "tests/rigs/folder.h"
#include "tests/rigs/saved_job.h"

#include "layers/records/snapshot/saved_parts.h"
#include "layers/records/snapshot/snapshot.h"
#include "layers/formats/stores/store_parts.h"

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
    empty(behind); /* files of a failed test */
    empty(before);
    return rmdir(behind) || rmdir(before);
}

static const struct sl_setting settings[] = {{"model", "small"}, {NULL, ""}};

struct saving {
    struct sl_snapshot *snapshot;
    const char *directory;
    bool compares; /* each step is also saved as ever */
    bool parts;
    bool fails; /* the run ends by a failure after its first save */
};

/* The folder of coordinate 0's process, for all. */
static int share_folder(struct worker *worker, char folder[FOLDER]) {
    return sl_broadcast(worker->self, sl_trainer_world(worker->trainer), SL_I32, folder, folder,
                        FOLDER / sizeof(int32_t), 0);
}

static int save_both(struct worker *worker, const struct saving *saving, int step) {
    const struct sl_checkpoint about = {.samples = 8 * step, .seed = 3};
    char path[SL_MAX_PATH];
    SL_TRY(sl_snapshot_save(saving->snapshot, worker->self, worker->trainer, saving->directory, &about, settings, NULL,
                            KEPT, -1));
    if (!saving->compares) return SL_OK;
    if (saving->parts) return sl_saved_parts_save(worker->self, worker->trainer, before, &about, settings, NULL);
    SL_TRY(sl_checkpoint_name(before, step, path, &worker->self->error));
    return sl_checkpoint_save(worker->self, worker->trainer, path, &about, settings, NULL);
}

static int check_bytes(struct worker *worker, bool parts, const struct sl_budget *held_before) {
    struct sl_budget planned = *held_before;
    SL_TRY(sl_snapshot_plan_bytes(worker->self, worker->trainer, parts, &planned));
    if (!memcmp(&planned, &worker->self->held, sizeof planned)) return SL_OK;
    return sl_fail(worker->self, SL_CHECK_FAILED, "%llu bytes planned, %llu held",
                   (unsigned long long)sl_budget_total(&planned),
                   (unsigned long long)sl_budget_total(&worker->self->held));
}

static int train_and_save(struct worker *worker) {
    const struct saving *saving = worker->job->user;
    const struct sl_budget held = worker->self->held;
    SL_TRY(sl_snapshot_open(saving->snapshot, worker->self, worker->trainer, saving->parts));
    SL_TRY(check_bytes(worker, saving->parts, &held));
    for (int step = 1; step <= STEPS; step++) {
        SL_TRY(train_steps(worker, 0, 1));
        SL_TRY(save_both(worker, saving, step));
        /* The thread has its copy; before that, another coordinate's failure could come first. */
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

/* A failed run ends while its copy may still be unwritten. */
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

/* Expects the run to end with a line that contains TEXT. */
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

/* ---- parts: of processes ---- */

struct layout {
    const char *mesh;
    bool fsdp, zero;
};
static const struct layout layouts[] = {
    {"data=2,pipe=2,tensor=2", false, true},  {"data=2,pipe=2,tensor=2", true, true},
    {"tensor=2,data=2,pipe=2", false, false}, {"data=1,pipe=4,tensor=2", false, true},
    {"data=8,pipe=1,tensor=1", false, true},  {"data=4,pipe=1,tensor=2", true, false},
};
enum { LAYOUTS = sizeof layouts / sizeof *layouts };

struct split {
    char folder[2][FOLDER]; /* of parts and of files */
    bool loads;             /* the parts, and saves a file of them: step 0 of the trainer would be another one */
    int full;               /* the disk of this coordinate is; -1: none is */
};

static const struct sl_checkpoint at_two = {.step = 2, .samples = 16, .seed = 3};

static int save_file(struct worker *worker, const char *folder) {
    char path[SL_MAX_PATH];
    SL_TRY(sl_checkpoint_name(folder, 2, path, &worker->self->error));
    return sl_checkpoint_save(worker->self, worker->trainer, path, &at_two, settings, NULL);
}

static int save_split(struct worker *worker) {
    struct split *split = worker->job->user;
    struct sl_checkpoint about;
    char index[SL_MAX_PATH];
    for (int i = 0; i < 2; i++) SL_TRY(share_folder(worker, split->folder[i]));
    SL_TRY(sl_checkpoint_index_name(split->folder[0], 2, index, &worker->self->error));
    if (split->loads) {
        SL_TRY(sl_checkpoint_load(worker->self, worker->trainer, index, settings, &about));
        return save_file(worker, split->folder[1]);
    }
    SL_TRY(train_steps(worker, 0, 2));
    SL_TRY(sl_saved_parts_prove(worker->self, worker->trainer, split->folder[0]));
    SL_TRY(sl_saved_parts_save(worker->self, worker->trainer, split->folder[0], &at_two, settings, NULL));
    return save_file(worker, split->folder[0]);
}

static void run_split(const struct layout *layout, struct split *split) {
    struct job job = saved_job(layout->mesh);
    snprintf(split->folder[0], FOLDER, "%s", behind);
    snprintf(split->folder[1], FOLDER, "%s", before);
    job.model.fsdp = layout->fsdp;
    job.shared_out = layout->zero;
    job.program = save_split;
    job.user = split;
    run_job(&job);
    free_job(&job);
}

/* The index gives the file's values, for any requested elements. */
static void expect_same_values(const char *mesh) {
    char path[2][SL_MAX_PATH];
    struct sl_store index = {0}, file = {0};
    struct sl_error error;
    float values[40];
    assert_int_equal(sl_checkpoint_index_name(behind, 2, path[0], NULL), SL_OK);
    assert_int_equal(sl_checkpoint_name(behind, 2, path[1], NULL), SL_OK);
    if (sl_parts_map(&index, path[0], &error) || sl_safetensors_map(&file, path[1], &error) ||
        sl_safetensors_verify(&index, NULL, NULL, &error))
        fail_msg("%s: %s", mesh, error.message);
    assert_int_equal(index.count, file.count);
    assert_int_equal(index.notes, file.notes);
    for (int i = 0; i < file.notes; i++)
        assert_string_equal(sl_store_note(&index, file.note[i].key), file.note[i].text);
    for (int i = 0; i < file.count; i++) {
        const struct sl_tensor *whole = &file.tensor[i], *pieces = &index.tensor[i];
        const size_t elements = sl_array_elements(&whole->array);
        assert_string_equal(pieces->name, whole->name);
        for (size_t at = 0, count; at < elements; at += count) {
            count = elements - at < 37 ? elements - at : 37;
            sl_tensor_read(pieces, at, count, values);
            assert_memory_equal(values, (const float *)whole->array.data + at, count * sizeof *values);
        }
        assert_int_equal(sl_tensor_hold(&index.tensor[i]), SL_OK);
        assert_memory_equal(pieces->array.data, whole->array.data, sl_tensor_bytes(whole));
        sl_tensor_let_go(&index.tensor[i]);
    }
    sl_store_free(&index);
    sl_store_free(&file);
}

/* Each value is in one part, and values of replicas are spread over the parts. */
static void expect_even_parts(int parts) {
    char path[SL_MAX_PATH];
    size_t least = SIZE_MAX, most = 0;
    for (int part = 1; part <= parts; part++) {
        struct sl_store store = {0};
        assert_int_equal(sl_checkpoint_part_name(behind, 2, part, parts, path, NULL), SL_OK);
        assert_int_equal(sl_safetensors_map(&store, path, NULL), SL_OK);
        if (store.mapped < least) least = store.mapped;
        if (store.mapped > most) most = store.mapped;
        sl_store_free(&store);
    }
    if (most > 2 * least) fail_msg("parts have from %zu to %zu bytes", least, most);
}

static void parts_have_what_a_file_has(void **state) {
    (void)state;
    if (shares_memory()) return;
    for (int i = 0; i < LAYOUTS; i++) {
        const struct layout *layout = &layouts[i], *next = &layouts[(i + 1) % LAYOUTS];
        char path[2][SL_MAX_PATH];
        run_split(layout, &(struct split){.full = -1});
        if (has_results()) expect_same_values(layout->mesh);
        if (has_results() && !strncmp(layout->mesh, "data=8", 6)) expect_even_parts(8);
        /* Another mesh loads the parts, and saves the file again. */
        run_split(next, &(struct split){.loads = true, .full = -1});
        assert_int_equal(sl_checkpoint_name(behind, 2, path[0], NULL), SL_OK);
        assert_int_equal(sl_checkpoint_name(before, 2, path[1], NULL), SL_OK);
        expect_same_files(path[0], path[1], layout->mesh);
        empty(behind);
        empty(before);
    }
}

/* Each process has a folder of its own. */
static int prove_nothing(struct worker *worker) { return sl_saved_parts_prove(worker->self, worker->trainer, behind); }

static void folders_of_their_own_are_refused(void **state) {
    struct job job = saved_job("data=2,pipe=2,tensor=1");
    struct sl_error error = {0};
    (void)state;
    if (shares_memory()) return;
    job.program = prove_nothing;
    assert_int_equal(try_job(&job, &error), SL_BAD_INPUT);
    if (has_results() && !strstr(error.message, "--save-parts: coordinate 1, on ")) fail_msg("%s", error.message);
    free_job(&job);
    assert_int_equal(empty(behind), 0);
}

static int save_on_full_disk(struct worker *worker) {
    struct split *split = worker->job->user;
    const struct sl_checkpoint about = {.samples = 8};
    struct rlimit usual, limit;
    SL_TRY(share_folder(worker, split->folder[0]));
    SL_TRY(sl_saved_parts_save(worker->self, worker->trainer, split->folder[0], &about, settings, NULL));
    SL_TRY(train_steps(worker, 0, 1));
    getrlimit(RLIMIT_FSIZE, &usual);
    limit = usual;
    limit.rlim_cur = 1024;
    void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
    if (worker->self->coordinate == split->full) setrlimit(RLIMIT_FSIZE, &limit);
    const int status = sl_saved_parts_save(worker->self, worker->trainer, split->folder[0], &about, settings, NULL);
    setrlimit(RLIMIT_FSIZE, &usual);
    signal(SIGXFSZ, handler);
    return status;
}

/* The checkpoint before counts then, and no file of the new one remains. */
static void one_full_disk_of_four_ends_the_run(void **state) {
    (void)state;
    if (shares_memory()) return;
    for (int full = 0; full < 4; full += 3) {
        struct split split = {.full = full};
        struct job job = saved_job("data=2,pipe=2,tensor=1");
        struct sl_error error = {0};
        char named[80];
        snprintf(split.folder[0], FOLDER, "%s", behind);
        snprintf(named, sizeof named, "step-00000001.part-%d-of-4.safetensors: cannot be written: File too large",
                 full + 1);
        job.program = save_on_full_disk;
        job.user = &split;
        assert_int_equal(try_job(&job, &error), SL_FAILED);
        free_job(&job);
        if (!has_results()) continue;
        if (!strstr(error.message, named)) fail_msg("%s", error.message);
        assert_int_equal(sl_checkpoint_last_step(behind), 0);
        assert_int_equal(empty(behind), 5);
    }
}

static int save_parts_behind(struct worker *worker) {
    for (int i = 0; i < 2; i++) SL_TRY(share_folder(worker, i ? before : behind));
    return train_and_save(worker);
}

static void parts_written_behind_are_those_of_saves_that_wait(void **state) {
    char own[2][FOLDER];
    (void)state;
    if (shares_memory()) return;
    memcpy(own[0], behind, FOLDER);
    memcpy(own[1], before, FOLDER);
    for (int i = 0; i < LAYOUTS; i += 2) {
        struct saving saving = {.directory = behind, .compares = true, .parts = true};
        struct sl_error error = {0};
        struct job job = saved_job(layouts[i].mesh);
        char path[2][SL_MAX_PATH];
        job.program = save_parts_behind;
        job.user = &saving;
        assert_int_equal(sl_snapshot_start(&saving.snapshot, &error), SL_OK);
        if (try_job(&job, &error)) fail_msg("%s: %s", layouts[i].mesh, error.message);
        const int parts = 8;
        free_job(&job);
        sl_snapshot_close(saving.snapshot);
        for (int step = 1; step <= STEPS && has_results(); step++) {
            for (int part = 0; part <= parts; part++) {
                for (int f = 0; f < 2; f++)
                    assert_int_equal(part ? sl_checkpoint_part_name(own[f], step, part, parts, path[f], NULL)
                                          : sl_checkpoint_index_name(own[f], step, path[f], NULL),
                                     SL_OK);
                expect_same_files(path[0], path[1], layouts[i].mesh);
            }
        }
        memcpy(behind, own[0], FOLDER);
        memcpy(before, own[1], FOLDER);
        if (has_results()) assert_int_equal(empty(behind), STEPS * (parts + 1));
        empty(before);
    }
}

int main(int argc, char **argv) {
    begin_tests(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(files_are_those_of_saves_that_wait),
        cmocka_unit_test(the_end_waits_for_the_thread),
        cmocka_unit_test(a_full_disk_ends_the_run),
        cmocka_unit_test(so_does_a_directory_that_is_gone),
        cmocka_unit_test(nothing_needs_no_end),
        cmocka_unit_test(parts_have_what_a_file_has),
        cmocka_unit_test(folders_of_their_own_are_refused),
        cmocka_unit_test(one_full_disk_of_four_ends_the_run),
        cmocka_unit_test(parts_written_behind_are_those_of_saves_that_wait),
    };
    return cmocka_run_group_tests(tests, make_directories, remove_directories);
}
