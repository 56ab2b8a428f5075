/* test_checkpoint.c - checkpoints of one mesh are loaded by another, bit by bit; a resumed run equals an uninterrupted
 * one; other files are refused and change nothing; a killed run leaves complete files. */
#include <signal.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/rigs/folder.h"
#include "tests/rigs/saved_job.h"

#include "layers/training/checkpoint.h"

enum { STEPS = 4 };

extern char **environ;

/* Only coordinate 0's process uses it; others have a directory of their own. In memory, so syncing is short. */
static char directory[FOLDER], path[300], other[300];

static int make_directory(void **state) {
    (void)state;
    if (!make_folder(directory, "test_checkpoint")) return -1;
    snprintf(path, sizeof path, "%s/saved", directory);
    snprintf(other, sizeof other, "%s/again", directory);
    return 0;
}

static int remove_directory(void **state) {
    (void)state;
    unlink(path);
    unlink(other);
    return rmdir(directory); /* fails if a temporary file remains */
}

static const struct sl_setting settings[] = {{"model", "small"}, {"layers", "4"}, {NULL, ""}};

static int put(const char *name, const struct file *file) {
    unlink(name); /* overwriting a file makes file systems flush it, which takes milliseconds */
    FILE *stream = fopen(name, "wb");
    if (!stream) return SL_FAILED;
    const size_t written = fwrite(file->data, 1, file->bytes, stream);
    return fclose(stream) == 0 && written == file->bytes ? SL_OK : SL_FAILED;
}

/* ---- whatever the mesh ---- */

/* Takes STEPS, or loads FROM; saves to TO. */
struct passage {
    const char *from, *to;
    int steps;
    struct sl_checkpoint about;
};

static int pass(struct worker *worker) {
    struct sl_spmd *self = worker->self;
    struct sl_trainer *trainer = worker->trainer;
    struct passage *passage = worker->job->user;
    struct sl_checkpoint about = {.step = -1, .samples = 77, .seed = UINT64_MAX};
    if (passage->from)
        SL_TRY(sl_checkpoint_load(self, trainer, self->coordinate == 0 ? passage->from : NULL, settings, &about));
    else
        SL_TRY(train_steps(worker, 0, passage->steps));
    /* Every coordinate has the run's position. */
    if (about.samples != 77 || about.seed != UINT64_MAX || sl_trainer_steps(trainer) != passage->steps)
        return sl_fail(self, SL_CHECK_FAILED, "step %lld, samples %lld", (long long)sl_trainer_steps(trainer),
                       (long long)about.samples);
    if (self->coordinate == 0) passage->about = about;
    return sl_checkpoint_save(self, trainer, passage->to, &about, settings, NULL);
}

struct layout {
    const char *mesh;
    int loops;
    bool zero, fsdp, parallel;
};

static const struct layout layouts[] = {
    {"data=2,pipe=2,tensor=2", 2, true, false, false}, {"data=2,pipe=2,tensor=2", 1, true, true, true},
    {"data=1,pipe=4,tensor=2", 1, true, false, false}, {"data=8,pipe=1,tensor=1", 1, true, false, false},
    {"data=8,pipe=1,tensor=1", 1, true, true, false},  {"data=2,pipe=2,tensor=2", 1, false, true, false},
    {"tensor=2,data=2,pipe=2", 2, true, true, true},   {"data=4,pipe=2,tensor=1", 2, false, false, false},
    {"data=1,pipe=1,tensor=1", 4, true, true, true},
};
enum { LAYOUTS = sizeof layouts / sizeof *layouts };

static struct job job_on(const struct layout *layout, int (*program)(struct worker *), void *user) {
    struct job job = saved_job(layout->mesh);
    job.model.fsdp = layout->fsdp;
    job.model.vocabulary_parallel = layout->parallel;
    job.model.vocabulary = 31; /* no tensor axis divides it */
    job.loops = layout->loops;
    job.shared_out = layout->zero;
    job.program = program;
    job.user = user;
    return job;
}

static struct job run_on_layout(const struct layout *layout, int (*program)(struct worker *), void *user) {
    struct job job = job_on(layout, program, user);
    run_job(&job);
    free_job(&job);
    return job;
}

static void travel(const struct layout *layout, struct passage *passage) { run_on_layout(layout, pass, passage); }

static const struct layout alone = {"data=1,pipe=1,tensor=1", 1, false, false, false};

/* Initial values are the same everywhere. */
static void initial_values_make_the_same_file(void **state) {
    (void)state;
    travel(&alone, &(struct passage){.to = path});
    for (int i = 0; i < LAYOUTS; i++) {
        travel(&layouts[i], &(struct passage){.to = other});
        expect_same_files(path, other, layouts[i].mesh);
    }
}

static void every_mesh_loads_what_another_saved(void **state) {
    (void)state;
    for (int from = 0; from < LAYOUTS; from += 2) {
        travel(&layouts[from], &(struct passage){.to = path, .steps = 2});
        for (int to = 0; to < LAYOUTS; to++) {
            if (test_is_small && (from / 2 + to) % 3) continue; /* each saves, and each loads */
            travel(&layouts[to], &(struct passage){.from = path, .to = other, .steps = 2});
            expect_same_files(path, other, layouts[to].mesh);
        }
    }
}

/* A table longer than a single message. */
static int pass_long(struct worker *worker) {
    const struct passage *passage = worker->job->user;
    struct sl_checkpoint about;
    if (passage->from) SL_TRY(sl_checkpoint_load(worker->self, worker->trainer, passage->from, settings, &about));
    return sl_checkpoint_save(worker->self, worker->trainer, passage->to, &(struct sl_checkpoint){0}, settings, NULL);
}

static void long_tensors_travel_in_pieces(void **state) {
    (void)state;
    static const char *const to[] = {path, other, other};
    for (int i = 0; i < 3; i++) {
        struct passage passage = {.from = i == 2 ? path : NULL, .to = to[i]};
        struct job job = job_on(i == 0 ? &alone : &layouts[2], pass_long, &passage);
        job.model.vocabulary = 70000;
        run_job(&job);
        free_job(&job);
        expect_same_files(path, to[i], job.mesh);
        if (!has_results()) continue;
        struct sl_store file = {0};
        assert_int_equal(sl_safetensors_map(&file, to[i], NULL), SL_OK);
        const struct sl_array *table = &sl_store_find(&file, "embedding")->array;
        const float *value = table->data, *end = value + sl_array_elements(table);
        for (; value < end; value += 100) assert_true(norm_of(100, value, NULL) > 0);
        sl_store_free(&file);
    }
}

/* Moments are loaded into their places: after a step on another mesh they are nearly the same, and not zero. */
static void meshes_save_nearly_the_same_moments(void **state) {
    (void)state;
    travel(&alone, &(struct passage){.to = path, .steps = 1});
    for (int i = 0; i < LAYOUTS; i++) {
        travel(&layouts[i], &(struct passage){.to = other, .steps = 1});
        if (!has_results()) continue;
        struct sl_store want = {0}, got = {0};
        struct sl_error error;
        assert_int_equal(sl_safetensors_read(&want, path, &error), SL_OK);
        assert_int_equal(sl_safetensors_map(&got, other, &error), SL_OK);
        assert_int_equal(got.count, want.count);
        for (int t = 0; t < want.count; t++) {
            const struct sl_tensor *tensor = sl_store_find(&got, want.tensor[t].name);
            const float *a = want.tensor[t].array.data, *b = tensor->array.data;
            if (!strstr(tensor->name, "_moment.")) continue;
            const size_t count = sl_array_elements(&tensor->array);
            const double norm = norm_of(count, a, NULL), difference = norm_of(count, b, a);
            if (norm == 0 || difference > 1e-4 * norm + 1e-12)
                fail_msg("%s on %s: %g of %g", tensor->name, layouts[i].mesh, difference, norm);
        }
        sl_store_free(&want);
        sl_store_free(&got);
    }
}

static void no_optimizer(struct sl_store *store) {
    for (int i = 0; i < store->notes; i++)
        if (!strcmp(store->note[i].key, "optimizer")) store->note[i].key[0] = '0';
}

/* Files from before there was more than one optimizer. */
static void a_file_that_names_no_optimizer_is_adamw_s(void **state) {
    (void)state;
    travel(&alone, &(struct passage){.to = path, .steps = 1});
    if (!shares_memory()) return;
    struct sl_store store = {0};
    struct sl_error error;
    assert_int_equal(sl_safetensors_read(&store, path, &error), SL_OK);
    no_optimizer(&store);
    assert_int_equal(sl_safetensors_write(&store, other, &error), SL_OK);
    sl_store_free(&store);
    travel(&layouts[0], &(struct passage){.from = other, .to = other, .steps = 1});
    expect_same_files(path, other, "no optimizer");
}

/* ---- another optimizer ---- */

static struct sl_optimizer_options with_momentum(void) {
    struct sl_optimizer_options options = sl_sgd_defaults(1e-2f);
    options.momentum = 0.5f;
    return options;
}

/* The momentum is in the file under its name, for any mesh, and a run with another optimizer refuses the file. */
static void sgd_saves_its_momentum(void **state) {
    (void)state;
    for (int i = 0; i < LAYOUTS; i++) {
        struct passage first = {.to = path, .steps = 2}, again = {.from = path, .to = other, .steps = 2};
        struct job job = job_on(&layouts[i], pass, &first);
        job.optimizer = with_momentum();
        run_job(&job);
        free_job(&job);
        job = job_on(&layouts[(i + 1) % LAYOUTS], pass, &again);
        job.optimizer = with_momentum();
        run_job(&job);
        free_job(&job);
        expect_same_files(path, other, layouts[i].mesh);
        if (!has_results()) continue;
        struct sl_store file = {0};
        assert_int_equal(sl_safetensors_map(&file, path, NULL), SL_OK);
        assert_string_equal(sl_store_note(&file, "optimizer"), "sgd");
        assert_non_null(sl_store_find(&file, "optimizer.momentum.norm.gamma"));
        assert_null(sl_store_find(&file, "optimizer.first_moment.norm.gamma"));
        sl_store_free(&file);
    }
    struct job job = job_on(&alone, pass, &(struct passage){.from = path, .to = other});
    struct sl_error error;
    assert_int_equal(try_job(&job, &error), SL_BAD_INPUT);
    assert_non_null(strstr(error.message, "the optimizer is sgd in the checkpoint, and adamw here"));
    free_job(&job);
}

/* A trainer that only goes forward may have no optimizer. */
static void no_optimizer_saves_values_alone(void **state) {
    (void)state;
    struct job job = job_on(&alone, pass, &(struct passage){.to = path});
    struct sl_store file = {0};
    job.forward_only = true;
    job.optimizer = (struct sl_optimizer_options){0};
    run_job(&job);
    free_job(&job);
    if (!has_results()) return;
    assert_int_equal(sl_safetensors_map(&file, path, NULL), SL_OK);
    assert_string_equal(sl_store_note(&file, "optimizer"), "none");
    assert_null(sl_store_find(&file, "optimizer.first_moment.norm.gamma"));
    sl_store_free(&file);
}

/* ---- the same run ---- */

static int save(struct worker *worker, const char *to) {
    return sl_checkpoint_save(worker->self, worker->trainer, to, &(struct sl_checkpoint){0}, settings, NULL);
}

static int train_and_save(struct worker *worker) {
    SL_TRY(train_steps(worker, 0, STEPS));
    return save(worker, path);
}

static int train_half(struct worker *worker) {
    SL_TRY(train_steps(worker, 0, STEPS / 2));
    return save(worker, other);
}

/* A step is taken before it, and forgotten. */
static int resume(struct worker *worker) {
    struct sl_checkpoint about;
    SL_TRY(train_steps(worker, 0, 1));
    SL_TRY(sl_checkpoint_load(worker->self, worker->trainer, other, settings, &about));
    SL_TRY(train_steps(worker, STEPS / 2, STEPS));
    return save(worker, other);
}

static void a_resumed_run_is_the_same_run(void **state) {
    (void)state;
    for (int i = 0; i < LAYOUTS; i++) {
        const struct job whole = run_on_layout(&layouts[i], train_and_save, NULL);
        run_on_layout(&layouts[i], train_half, NULL);
        const struct job half = run_on_layout(&layouts[i], resume, NULL);
        assert_memory_equal(whole.loss + STEPS / 2, half.loss + STEPS / 2, STEPS / 2 * sizeof *half.loss);
        if (has_results()) assert_true(whole.loss[STEPS - 1] != whole.loss[STEPS - 2]);
        expect_same_files(path, other, layouts[i].mesh);
    }
}

/* ---- refusals ---- */

/* A change of a file, and the error message. */
struct change {
    void (*change)(struct sl_store *store);
    const char *reason;
    const struct sl_setting *settings; /* NULL: the file's own */
};

static void leave(struct sl_store *store) { (void)store; }
static void note(struct sl_store *store, const char *key, const char *text) { sl_store_set_note(store, key, text); }
static void no_notes(struct sl_store *store) {
    for (int i = 0; i < store->notes; i++) store->note[i].key[0] = '0';
}
static void version_3(struct sl_store *store) { note(store, "shardloop.checkpoint", "3"); }
static void step_x(struct sl_store *store) { note(store, "step", "x"); }
static void step_negative(struct sl_store *store) { note(store, "step", "-1"); }
static void step_large(struct sl_store *store) { note(store, "step", "9223372036854775808"); }
static void seed_large(struct sl_store *store) { note(store, "seed", "18446744073709551616"); }
static void seed_none(struct sl_store *store) { note(store, "seed", ""); }
static void setting_more(struct sl_store *store) { note(store, "config.heads", "2"); }
static void tensor_more(struct sl_store *store) { sl_store_add(store, "another", SL_F32, 0, NULL); }
static struct sl_tensor *find(struct sl_store *store, const char *name) { return sl_store_find(store, name); }
static void tensor_renamed(struct sl_store *store) { find(store, "norm.gamma")->name[0] = 'x'; }
static void moment_renamed(struct sl_store *store) { find(store, "optimizer.second_moment.norm.beta")->name[0] = 'x'; }
static void optimizer_sgd(struct sl_store *store) { note(store, "optimizer", "sgd"); }
static void type_i32(struct sl_store *store) { find(store, "norm.gamma")->array.dtype = SL_I32; }
static void transposed(struct sl_store *store) {
    struct sl_array *array = &find(store, "optimizer.first_moment.embedding")->array;
    array->shape[0] = 16, array->shape[1] = 31;
}
static void flat(struct sl_store *store) {
    struct sl_array *array = &find(store, "embedding")->array;
    array->dims = 1, array->shape[0] = 31 * 16;
}

static const struct sl_setting other_layers[] = {{"model", "small"}, {"layers", "8"}, {NULL, ""}};
static const struct sl_setting more_settings[] = {{"model", "small"}, {"layers", "4"}, {"heads", "2"}, {NULL, ""}};

static const struct change changes[] = {
    {leave, "layers is 4 in the checkpoint, and 8 here", other_layers},
    {leave, "heads is not set in the checkpoint, and 2 here", more_settings},
    {setting_more, "heads is 2 in the checkpoint, and not set here", NULL},
    {no_notes, "not a checkpoint: its metadata have no shardloop.checkpoint", NULL},
    {version_3, "a checkpoint of version 3, not 1 or 2", NULL},
    {step_x, "not a checkpoint: step is x, not a number", NULL},
    {step_negative, "step is -1, not a number up to 9223372036854775807", NULL},
    {step_large, "step is 9223372036854775808, not a number", NULL},
    {seed_large, "seed is 18446744073709551616, not a number", NULL},
    {seed_none, "seed is , not a number", NULL},
    {tensor_more, "the model has no tensor another", NULL},
    {tensor_renamed, "there is no tensor norm.gamma", NULL},
    {moment_renamed, "there is no tensor optimizer.second_moment.norm.beta", NULL},
    {optimizer_sgd, "the optimizer is sgd in the checkpoint, and adamw here", NULL},
    {type_i32, "tensor norm.gamma is [16] of I32 in the checkpoint, and [16] of F32 here", NULL},
    {transposed, "tensor optimizer.first_moment.embedding is [16,31] of F32 in the checkpoint, and [31,16] of F32 here",
     NULL},
    {flat, "tensor embedding is [496] of F32 in the checkpoint, and [31,16] of F32 here", NULL},
};

/* The file at OTHER is refused everywhere, with the same line, and nothing changes. The error is then forgotten. */
static int expect_refusal(struct sl_spmd *self, struct sl_trainer *trainer, const struct sl_setting *wanted,
                          const char *reason) {
    struct sl_checkpoint about;
    const uint32_t before = fingerprint(trainer);
    const int status = sl_checkpoint_load(self, trainer, other, wanted ? wanted : settings, &about);
    const struct sl_error error = self->error;
    self->error = (struct sl_error){0};
    if (status != SL_BAD_INPUT || error.status != SL_BAD_INPUT || !strstr(error.message, reason))
        return sl_fail(self, SL_CHECK_FAILED, "status %d: %.200s, not: %s", status, error.message, reason);
    if (self->coordinate == 0 && strncmp(error.message, other, strlen(other)) != 0)
        return sl_fail(self, SL_CHECK_FAILED, "no path in: %s", error.message);
    if (fingerprint(trainer) != before) return sl_fail(self, SL_CHECK_FAILED, "half loaded: %s", reason);
    return SL_OK;
}

static int change_and_load(struct worker *worker) {
    struct sl_spmd *self = worker->self;
    SL_TRY(train_steps(worker, 0, 1));
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        struct sl_store store = {0};
        int status = SL_OK;
        if (self->coordinate == 0) {
            status = sl_safetensors_read(&store, path, &self->error);
            if (status == SL_OK) changes[i].change(&store);
            if (status == SL_OK) status = sl_safetensors_write(&store, other, &self->error);
            sl_store_free(&store);
        }
        SL_TRY(status);
        SL_TRY(expect_refusal(self, worker->trainer, changes[i].settings, changes[i].reason));
    }
    if (self->coordinate == 0) unlink(other);
    return expect_refusal(self, worker->trainer, NULL, "cannot be opened: No such file");
}

static void other_files_are_refused_and_change_nothing(void **state) {
    (void)state;
    for (int i = 0; i < LAYOUTS; i += 3) {
        travel(&layouts[i], &(struct passage){.to = path, .steps = 1});
        run_on_layout(&layouts[i], change_and_load, NULL);
    }
}

static void the_run_says_what_was_refused(void **state) {
    (void)state;
    travel(&alone, &(struct passage){.to = path});
    const struct layout layout = {"data=1,pipe=2,tensor=2", 1, true, false, false};
    struct job job = job_on(&layout, pass, &(struct passage){.from = path, .to = other});
    struct sl_error error;
    job.model.dimension = 32;
    assert_int_equal(try_job(&job, &error), SL_BAD_INPUT);
    free_job(&job);
    assert_non_null(strstr(error.message, "embedding is [31,16] of F32 in the checkpoint, and [31,32] of F32 here"));
}

/* Bytes of the header are changed, or the file is cut: no content leads to a crash. */
static int load_mutations(struct worker *worker) {
    struct sl_spmd *self = worker->self;
    const struct file whole = *(const struct file *)worker->job->user;
    uint64_t random = 9;
    const int header = 8 + (whole.data[0] | whole.data[1] << 8);
    struct file changed = {.data = malloc(whole.bytes)};
    const int count = TEST_WATCHES_THREADS ? 40 : 400;
    int status = changed.data ? SL_OK : SL_FAILED;
    for (int i = 0, refused = 0; i < count && status == SL_OK; i++) {
        memcpy(changed.data, whole.data, whole.bytes);
        changed.bytes = i % 4 ? whole.bytes : (size_t)pick(&random, (int)whole.bytes);
        for (int changes = i % 4; changes > 0; changes--)
            changed.data[pick(&random, header)] = (unsigned char)pick(&random, 256);
        if (put(other, &changed)) status = SL_FAILED;
        struct sl_checkpoint about;
        if (status == SL_OK) status = sl_checkpoint_load(self, worker->trainer, other, settings, &about);
        refused += status == SL_BAD_INPUT;
        if (status == SL_BAD_INPUT) status = SL_OK;
        if (status == SL_OK) self->error = (struct sl_error){0};
        if (i == count - 1 && refused < count / 4 * 3)
            status = sl_fail(self, SL_CHECK_FAILED, "only %d were refused", refused);
    }
    free(changed.data);
    return status;
}

/* A run without settings of its own. */
static int pass_without_settings(struct worker *worker) {
    struct sl_checkpoint about = {0};
    SL_TRY(sl_checkpoint_save(worker->self, worker->trainer, path, &about, NULL, NULL));
    return sl_checkpoint_load(worker->self, worker->trainer, path, NULL, &about);
}

static void there_may_be_no_settings(void **state) {
    struct sl_checkpoint about;
    struct sl_error error;
    (void)state;
    run_on_layout(&alone, pass_without_settings, NULL);
    if (has_results()) {
        assert_int_equal(sl_checkpoint_check(path, NULL, NULL, &about, &error), SL_OK);
        assert_int_equal(sl_checkpoint_check(path, settings, NULL, &about, &error), SL_BAD_INPUT);
    }
    travel(&alone, &(struct passage){.to = path}); /* all processes do */
    if (!has_results()) return;
    assert_int_equal(sl_checkpoint_check(path, NULL, NULL, &about, &error), SL_BAD_INPUT);
    assert_non_null(strstr(error.message, "model is small in the checkpoint, and not set here"));
}

static void changed_bytes_do_no_harm(void **state) {
    (void)state;
    if (!shares_memory()) return;
    travel(&alone, &(struct passage){.to = path});
    struct file file = read_file(path);
    run_on_layout(&alone, load_mutations, &file);
    free(file.data);
}

/* ---- failures ---- */

static void a_full_disk_leaves_the_old_file(void **state) {
    (void)state;
    travel(&alone, &(struct passage){.to = path});
    travel(&alone, &(struct passage){.to = other});
    struct rlimit before, limit;
    struct sl_error error;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    limit = before;
    limit.rlim_cur = 4096;
    void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    const struct layout layout = {"data=2,pipe=2,tensor=1", 1, true, false, false};
    struct job job = job_on(&layout, pass, &(struct passage){.to = other, .steps = 1});
    const int status = try_job(&job, &error);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    signal(SIGXFSZ, handler);
    free_job(&job);
    if (status != SL_FAILED) fail_msg("status %d: %s", status, error.message);
    if (has_results()) assert_non_null(strstr(error.message, "again: cannot be written: File too large"));
    expect_same_files(path, other, "after the failure");
}

/* ---- directories ---- */

static int save_forever(struct worker *worker) {
    struct sl_spmd *self = worker->self;
    const char *to = worker->job->user;
    char name[SL_MAX_PATH] = "";
    for (int64_t step = sl_trainer_steps(worker->trainer) + 1;; step++) {
        const struct sl_checkpoint about = {.samples = 8 * step};
        SL_TRY(train_steps(worker, 0, 1));
        SL_TRY(sl_checkpoint_name(to, step, name, &self->error));
        SL_TRY(sl_checkpoint_save(self, worker->trainer, name, &about, settings, NULL));
        if (self->coordinate == 0) SL_TRY(sl_checkpoint_prune(to, step, 2, -1, &self->error));
    }
}

static int resume_and_save_forever(struct worker *worker) {
    struct sl_spmd *self = worker->self;
    char name[SL_MAX_PATH] = "";
    struct sl_checkpoint about;
    if (sl_checkpoint_last_step(worker->job->user) >= 0) {
        if (self->coordinate == 0) SL_TRY(sl_checkpoint_latest(worker->job->user, name, NULL, &self->error));
        SL_TRY(sl_checkpoint_load(self, worker->trainer, name, settings, &about));
        if (about.samples != 8 * about.step) return sl_fail(self, SL_CHECK_FAILED, "another step's samples");
    }
    return save_forever(worker);
}

/* A program that saves as often as it can is killed again and again at any moment. It always resumes from its last
 * checkpoint, or from the one before if it was killed during a save. */
static void a_killed_run_can_be_resumed(void **state) {
    (void)state;
    if (!shares_memory()) return;
    char *const argument[] = {"test_checkpoint", "save-forever", directory, NULL};
    int64_t last = -1;
    uint64_t random = 4;
    for (int round = 0; round < (test_is_small ? 5 : getenv("SL_TEST_LONG") ? 30 : 15); round++) {
        pid_t child;
        int status;
        assert_int_equal(posix_spawn(&child, "/proc/self/exe", NULL, NULL, argument, environ), 0);
        const int64_t begin = sl_checkpoint_last_step(directory);
        /* Wait for the first checkpoint or, in later rounds, for a new one, and a moment longer. */
        for (int i = 0; sl_checkpoint_last_step(directory) <= begin && i < 30000; i++) usleep(1000);
        usleep((useconds_t)pick(&random, 10000));
        kill(child, SIGKILL);
        assert_int_equal(waitpid(child, &status, 0), child);
        if (!WIFSIGNALED(status)) fail_msg("it ended by itself, with status %d", status);
        char name[SL_MAX_PATH];
        struct sl_error error;
        struct sl_checkpoint about;
        if (sl_checkpoint_latest(directory, name, NULL, &error) ||
            sl_checkpoint_check(name, settings, NULL, &about, &error))
            fail_msg("%s", error.message);
        assert_true(about.step > last);
        assert_int_equal(about.samples, 8 * about.step);
        last = about.step;
    }
    struct sl_error error;
    assert_int_equal(sl_checkpoint_prune(directory, INT64_MAX, 1, -1, &error), SL_OK);
    assert_int_equal(sl_checkpoint_last_step(directory), -1);
}

static void touch(int64_t step, const char *suffix) {
    char name[SL_MAX_PATH + 16];
    assert_int_equal(sl_checkpoint_name(directory, step, name, NULL), SL_OK);
    strcat(name, suffix);
    struct sl_store store = {0};
    assert_int_equal(sl_safetensors_write(&store, name, NULL), SL_OK);
}

static void expect_latest(const char *name) {
    char found[SL_MAX_PATH];
    struct sl_error error;
    if (sl_checkpoint_latest(directory, found, NULL, &error)) fail_msg("%s", error.message);
    assert_string_equal(found + strlen(directory) + 1, name);
}

static void expect_there(int64_t step, const char *suffix, bool there) {
    char name[SL_MAX_PATH + 16];
    assert_int_equal(sl_checkpoint_name(directory, step, name, NULL), SL_OK);
    strcat(name, suffix);
    assert_int_equal(access(name, F_OK), there ? 0 : -1);
}

static void directories_keep_the_latest(void **state) {
    (void)state;
    char found[SL_MAX_PATH], name[SL_MAX_PATH];
    struct sl_error error;
    unlink(path);
    assert_int_equal(sl_checkpoint_latest("/nowhere", found, NULL, &error), SL_BAD_INPUT);
    assert_non_null(strstr(error.message, "/nowhere: cannot be opened: No such file"));
    assert_int_equal(sl_checkpoint_last_step("/nowhere"), -1);
    assert_int_equal(sl_checkpoint_latest(directory, found, NULL, &error), SL_BAD_INPUT);
    assert_non_null(strstr(error.message, "there is no checkpoint"));
    static const int64_t steps[] = {5, 20, 100, 99999999, 100000000};
    for (int i = 0; i < 5; i++) touch(steps[i], "");
    touch(200000000, ".17.tmp");
    touch(30, ".backup");
    expect_latest("step-100000000.safetensors");
    assert_int_equal(sl_checkpoint_last_step(directory), 100000000);
    /* A truncated checkpoint does not count. */
    assert_int_equal(sl_checkpoint_name(directory, 100000000, name, &error), SL_OK);
    assert_int_equal(truncate(name, 3), 0);
    expect_latest("step-99999999.safetensors");
    /* Files of later steps stay; one earlier file stays. */
    assert_int_equal(sl_checkpoint_prune(directory, 100, 2, -1, &error), SL_OK);
    expect_there(5, "", false);
    expect_there(20, "", true);
    expect_there(100, "", true);
    expect_there(99999999, "", true);
    expect_there(30, ".backup", true);
    expect_there(200000000, ".17.tmp", false);
    assert_int_equal(sl_checkpoint_prune(directory, 99999999, 1, -1, &error), SL_OK);
    expect_there(100, "", false);
    expect_there(99999999, "", true);
    assert_int_equal(unlink(name), 0);
    touch(99999999, "");
    assert_int_equal(sl_checkpoint_name(directory, 99999999, name, &error), SL_OK);
    assert_int_equal(truncate(name, 3), 0);
    assert_int_equal(sl_checkpoint_latest(directory, found, NULL, &error), SL_BAD_INPUT);
    assert_non_null(strstr(error.message, "no checkpoint is whole: "));
    assert_non_null(strstr(error.message, "step-99999999.safetensors: too short"));
    assert_int_equal(unlink(name), 0);
    snprintf(name, sizeof name, "%s/step-00000030.safetensors.backup", directory);
    assert_int_equal(unlink(name), 0);
}

int main(int argc, char **argv) {
    if (argc > 2 && !strcmp(argv[1], "save-forever")) {
        const struct layout layout = {"data=2,pipe=1,tensor=1", 1, true, false, false};
        struct job job = job_on(&layout, resume_and_save_forever, argv[2]);
        struct sl_error error = {0};
        const int status = try_job(&job, &error);
        fprintf(stderr, "# %s\n", error.message);
        return status;
    }
    begin_tests(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(initial_values_make_the_same_file),
        cmocka_unit_test(every_mesh_loads_what_another_saved),
        cmocka_unit_test(long_tensors_travel_in_pieces),
        cmocka_unit_test(meshes_save_nearly_the_same_moments),
        cmocka_unit_test(a_file_that_names_no_optimizer_is_adamw_s),
        cmocka_unit_test(sgd_saves_its_momentum),
        cmocka_unit_test(no_optimizer_saves_values_alone),
        cmocka_unit_test(a_resumed_run_is_the_same_run),
        cmocka_unit_test(other_files_are_refused_and_change_nothing),
        cmocka_unit_test(the_run_says_what_was_refused),
        cmocka_unit_test(there_may_be_no_settings),
        cmocka_unit_test(changed_bytes_do_no_harm),
        cmocka_unit_test(a_full_disk_leaves_the_old_file),
        cmocka_unit_test(a_killed_run_can_be_resumed),
        cmocka_unit_test(directories_keep_the_latest),
    };
    return cmocka_run_group_tests(tests, make_directory, remove_directory);
}
