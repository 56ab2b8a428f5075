/* test_checkpoint_damage.c - a checkpoint with damage anywhere is refused on all coordinates and changes nothing; files
 * of the first version, without checksums, are accepted; values that are not finite are not saved; links are not
 * followed. */
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/rigs/folder.h"
#include "tests/rigs/transformer_job.h"

#include "layers/training/checkpoint.h"

static char directory[FOLDER];

static int make_directory(void **state) {
    (void)state;
    return make_folder(directory, "test_damage") ? 0 : -1;
}

static int remove_directory(void **state) {
    (void)state;
    if (sl_checkpoint_prune(directory, INT64_MAX, 1, -1, NULL)) return -1;
    return rmdir(directory); /* fails if a temporary file remains */
}

static const struct sl_setting settings[] = {{"model", "small"}, {NULL, ""}};

/* The checkpoint of so many steps. */
static const char *at(int64_t step) {
    static _Thread_local char path[2][SL_MAX_PATH];
    static _Thread_local int next;
    next ^= 1;
    assert_int_equal(sl_checkpoint_name(directory, step, path[next], NULL), SL_OK);
    return path[next];
}

static void run(const char *mesh, int (*program)(struct worker *), void *user) {
    struct job job = {.mesh = mesh,
                      .schedule = "gpipe",
                      .model = {.vocabulary = 32,
                                .dimension = 8,
                                .heads = 2,
                                .blocks = 1,
                                .layers_per_block = 1,
                                .latent = 4,
                                .rope = 4,
                                .positions = 4},
                      .loops = 1,
                      .batch = 8,
                      .sequence = 4,
                      .shared_out = true,
                      .optimizer = sl_adamw_defaults(1e-2f),
                      .program = program,
                      .user = user};
    run_job(&job);
    free_job(&job);
}

static int save(struct worker *worker, int64_t step) {
    sl_trainer_set_steps(worker->trainer, step);
    return sl_checkpoint_save(worker->self, worker->trainer, at(step), &(struct sl_checkpoint){.samples = 8 * step},
                              settings, NULL);
}

static int save_two(struct worker *worker) {
    SL_TRY(save(worker, 1));
    return save(worker, 2);
}

/* Everywhere, with the same line, and nothing changes. The error is then forgotten. */
static int expect_refusal(struct worker *worker, const char *path, const char *reason) {
    struct sl_spmd *self = worker->self;
    struct sl_checkpoint about;
    const uint32_t before = fingerprint(worker->trainer);
    const int status = sl_checkpoint_load(self, worker->trainer, path, settings, &about);
    const struct sl_error error = self->error;
    self->error = (struct sl_error){0};
    if (status != SL_BAD_INPUT || error.status != SL_BAD_INPUT || !strstr(error.message, reason) ||
        strchr(error.message, '\n'))
        return sl_fail(self, SL_CHECK_FAILED, "status %d: %.300s, not: %s", status, error.message, reason);
    if (fingerprint(worker->trainer) != before) return sl_fail(self, SL_CHECK_FAILED, "half loaded: %s", reason);
    return SL_OK;
}

static int expect_loads(struct worker *worker, const char *path, int64_t version) {
    struct sl_checkpoint about = {0};
    SL_TRY(sl_checkpoint_load(worker->self, worker->trainer, path, settings, &about));
    if (about.version == version && about.samples == 8 * about.step) return SL_OK;
    return sl_fail(worker->self, SL_CHECK_FAILED, "version %lld", (long long)about.version);
}

/* ---- single bits ---- */

static void flip(const char *path, off_t place, int bit) {
    const int file = open(path, O_RDWR | O_CLOEXEC);
    unsigned char byte = 0;
    if (file < 0 || pread(file, &byte, 1, place) != 1) abort();
    byte ^= (unsigned char)(1 << bit);
    if (pwrite(file, &byte, 1, place) != 1) abort();
    close(file);
}

/* Flips one bit of every third byte of the header (test_checksums.c has every bit), and of the data one bit in every 4
 * KB and in the first and last byte of each tensor; the error names the older checkpoint each time. */
static int load_flipped(struct worker *worker) {
    struct sl_spmd *self = worker->self;
    const off_t *place = worker->job->user;
    for (int i = 0; place[i] >= 0; i++) {
        if (self->coordinate == 0) flip(at(2), place[i], i % 8);
        SL_TRY(expect_refusal(worker, self->coordinate ? NULL : at(2), "; an older checkpoint is "));
        if (self->coordinate == 0) flip(at(2), place[i], i % 8);
    }
    return expect_loads(worker, self->coordinate ? NULL : at(2), 2);
}

static void flipped_bits_are_refused(void **state) {
    (void)state;
    enum { MOST = 20000 };
    static off_t place[MOST];
    run("data=1", save_two, NULL);
    if (!shares_memory()) return;
    struct sl_store store = {0};
    assert_int_equal(sl_safetensors_map(&store, at(2), NULL), SL_OK);
    const off_t start = (char *)store.tensor[0].array.data - store.mapping;
    int count = 0;
    for (off_t byte = 0; byte < (off_t)store.mapped; byte++) {
        bool due = (byte < start && byte % 3 == 0) || byte % 4096 == 0;
        for (int t = 0; t < store.count; t++) {
            const off_t first = (char *)store.tensor[t].array.data - store.mapping;
            due = due || byte == first || byte == first + (off_t)sl_tensor_bytes(&store.tensor[t]) - 1;
        }
        assert_true(count < MOST - 1);
        if (due) place[count++] = byte;
    }
    place[count] = -1;
    sl_store_free(&store);
    run("data=1", load_flipped, place);
    for (int i = 0; place[i] >= 0; i++) place[i] = place[i < count / 50 ? 50 * i : count];
    run("data=2", load_flipped, place);
}

/* Whatever is cut off. */
static int load_cut(struct worker *worker) {
    struct sl_spmd *self = worker->self;
    struct stat status = {0};
    if (self->coordinate == 0 && stat(at(2), &status)) abort();
    for (int i = 0; i < 200; i++) {
        const off_t length = i < 100 ? status.st_size - 1 - i : (off_t)((199 - i) * status.st_size / 100);
        if (self->coordinate == 0 && truncate(at(2), length)) abort();
        SL_TRY(expect_refusal(worker, self->coordinate ? NULL : at(2), ""));
    }
    return SL_OK;
}

static void cut_files_are_refused(void **state) {
    (void)state;
    if (!shares_memory()) return;
    run("data=1", save_two, NULL);
    run("data=2", load_cut, NULL);
    /* The directory's latest complete file; the line gives the reason for skipping the later one. */
    char found[SL_MAX_PATH];
    struct sl_error skipped, error;
    assert_int_equal(sl_checkpoint_latest(directory, found, &skipped, &error), SL_OK);
    assert_string_equal(found, at(1));
    assert_int_equal(skipped.status, SL_BAD_INPUT);
    assert_memory_equal(skipped.message, at(2), strlen(at(2)));
    run("data=1", save_two, NULL);
    assert_int_equal(sl_checkpoint_latest(directory, found, &skipped, &error), SL_OK);
    assert_string_equal(found, at(2));
    assert_int_equal(skipped.status, SL_OK);
    /* A damaged file of full length stays the latest: a run must not silently resume from another. */
    flip(at(2), 30, 1);
    assert_int_equal(sl_checkpoint_latest(directory, found, &skipped, &error), SL_OK);
    assert_string_equal(found, at(2));
    struct sl_checkpoint about;
    assert_int_equal(sl_checkpoint_check(found, settings, NULL, &about, &error), SL_BAD_INPUT);
    assert_non_null(strstr(error.message, at(1)));
}

/* ---- versions ---- */

static void rewrite(const char *from, const char *to, const char *version, bool checksums, float value) {
    struct sl_store store = {0};
    struct sl_error error = {0};
    if (sl_safetensors_read(&store, from, &error)) fail_msg("%s", error.message);
    assert_int_equal(sl_store_set_note(&store, "shardloop.checkpoint", version), SL_OK);
    if (value != 0) ((float *)sl_store_find(&store, "norm.gamma")->array.data)[5] = value;
    store.checksums = checksums;
    if (sl_safetensors_write(&store, to, &error)) fail_msg("%s", error.message);
    sl_store_free(&store);
}

static int load_first(struct worker *worker) { return expect_loads(worker, at(3), 1); }
static int load_bare(struct worker *worker) {
    return expect_refusal(worker, at(3), "a checkpoint of version 2 has checksums, and this one has none");
}
static int load_not_finite(struct worker *worker) {
    return expect_refusal(worker, at(3), "tensor norm.gamma: value 5 is not finite");
}
static int load_renamed(struct worker *worker) {
    return expect_refusal(worker, at(4), "the name says step 4, and the checkpoint says step 3");
}

static int save_three(struct worker *worker) { return save(worker, 3); }

static void versions_and_names(void **state) {
    (void)state;
    run("data=1", save_three, NULL);
    if (!shares_memory()) return;
    rewrite(at(3), at(3), "1", false, 0);
    run("data=2", load_first, NULL);
    rewrite(at(3), at(3), "1", false, INFINITY);
    run("data=2", load_not_finite, NULL);
    rewrite(at(3), at(3), "2", false, 0.5f);
    run("data=2", load_bare, NULL);
    run("data=1", save_three, NULL);
    assert_int_equal(rename(at(3), at(4)), 0);
    run("data=2", load_renamed, NULL);
}

/* ---- saving ---- */

/* The last coordinate's share of the second moments has a NaN. */
static int save_not_finite(struct worker *worker) {
    struct sl_spmd *self = worker->self;
    SL_TRY(save(worker, 5));
    if (self->coordinate == 1) {
        const float nan = NAN;
        sl_device.copy(sl_trainer_parameters(worker->trainer)->range[0].state[1], &nan, sizeof nan);
    }
    const int status = save(worker, 5);
    const struct sl_error error = self->error;
    self->error = (struct sl_error){0};
    if (status != SL_FAILED || !strstr(error.message, "cannot be written: tensor optimizer.second_moment.") ||
        !strstr(error.message, " is not finite"))
        return sl_fail(self, SL_CHECK_FAILED, "status %d: %.300s", status, error.message);
    return expect_loads(worker, self->coordinate ? NULL : at(5), 2); /* the older one */
}

static int save_nowhere(struct worker *worker) {
    const int status = sl_checkpoint_save(worker->self, worker->trainer, "/nowhere/step-00000001.safetensors",
                                          &(struct sl_checkpoint){0}, settings, NULL);
    const struct sl_error error = worker->self->error;
    worker->self->error = (struct sl_error){0};
    if (status == SL_FAILED && error.status == SL_FAILED && strstr(error.message, "No such file")) return SL_OK;
    return sl_fail(worker->self, SL_CHECK_FAILED, "status %d: %.300s", status, error.message);
}

static int save_six(struct worker *worker) { return save(worker, 6); }

static void saving(void **state) {
    (void)state;
    if (!shares_memory()) return;
    run("data=2", save_not_finite, NULL);
    run("data=2", save_nowhere, NULL);
    struct sl_error error = {0};
    assert_int_equal(sl_checkpoint_prune("/nowhere", 1, 1, -1, &error), SL_FAILED);
    assert_int_equal(error.status, SL_FAILED);
    /* A link with a checkpoint's name is replaced; its target stays unchanged. */
    char outside[300];
    struct stat status;
    snprintf(outside, sizeof outside, "%s/outside", directory);
    FILE *file = fopen(outside, "w");
    assert_non_null(file);
    fputs("mine", file);
    fclose(file);
    assert_int_equal(symlink(outside, at(6)), 0);
    run("data=2", save_six, NULL);
    assert_int_equal(lstat(at(6), &status), 0);
    assert_true(S_ISREG(status.st_mode));
    assert_int_equal(stat(outside, &status), 0);
    assert_int_equal(status.st_size, 4);
    assert_int_equal(unlink(outside), 0);
}

/* ---- paths ---- */

static void paths(void **state) {
    (void)state;
    char older[SL_MAX_PATH];
    assert_int_equal(sl_checkpoint_step_of("step-00000012.safetensors"), 12);
    assert_int_equal(sl_checkpoint_step_of("/a/step-123456789.safetensors"), 123456789);
    assert_int_equal(sl_checkpoint_step_of("a/step-00000012.safetensors.1.tmp"), -1);
    assert_int_equal(sl_checkpoint_step_of("step-00000012.safetensors/"), -1);
    assert_false(sl_checkpoint_older("/step-00000012.safetensors", older));
    assert_false(sl_checkpoint_older("/nowhere/step-00000012.safetensors", older));
    assert_int_equal(sl_sync_parent("made/"), 0); /* in "." */
    assert_int_equal(sl_sync_parent("/made"), 0);
    assert_int_equal(sl_sync_parent("/nowhere/made//"), ENOENT);
    assert_int_equal(sl_sync_parent("/"), 0);
}

/* Paths that are too long, or become so with the suffix of a file in the making. */
static void long_paths(void **state) {
    (void)state;
    char name[SL_MAX_PATH + 10];
    struct sl_draft draft;
    memset(name, 'a', sizeof name);
    for (int length = SL_MAX_PATH - 31; length < SL_MAX_PATH + 10; length += 20) {
        struct sl_error error = {0};
        name[length] = 0;
        assert_int_equal(sl_draft_check(name, SL_LINKS_REPLACED, &error), SL_BAD_INPUT);
        assert_non_null(strstr(error.message, "aaa...: the path is too long"));
        assert_int_equal(sl_draft_open(&draft, name, SL_LINKS_FOLLOWED, &error), SL_BAD_INPUT);
        name[length] = 'a';
    }
}

int main(int argc, char **argv) {
    begin_tests(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(flipped_bits_are_refused),
        cmocka_unit_test(cut_files_are_refused),
        cmocka_unit_test(versions_and_names),
        cmocka_unit_test(saving),
        cmocka_unit_test(paths),
        cmocka_unit_test(long_paths),
    };
    return cmocka_run_group_tests(tests, make_directory, remove_directory);
}
