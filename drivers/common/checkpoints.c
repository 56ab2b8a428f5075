/* checkpoints.c - a run that is saved at intervals, and resumed. */
#include "drivers/common/checkpoints.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum { KEPT = 2, MOST_STEPS = 1000000000 }; /* checkpoints */

#define FIELD(name) offsetof(struct sl_checkpoint_options, name)

const struct sl_option sl_checkpoint_table[] = {
    {"save", SL_OPTION_TEXT, FIELD(save), .value = "DIR", .path = SL_PATH_SAVED,
     .help = "save a checkpoint in DIR when the run ends, also by SIGINT or SIGTERM; DIR keeps the latest two"},
    {"save-every", SL_OPTION_INTEGER, FIELD(every), .min = 0, .max = MOST_STEPS,
     .help = "also save a checkpoint after every N steps; 0: only at the end"},
    {"resume", SL_OPTION_TEXT, FIELD(resume), .value = "DIR", .path = SL_PATH_CHECKPOINT,
     .help = "go on from the latest checkpoint in DIR, or from the checkpoint file DIR; the mesh may be another one; "
             "--steps counts the steps before the checkpoint, too"},
    {0},
};

int sl_checkpoints_check(const struct sl_checkpoint_options *options, struct sl_error *error) {
    if (!options->every || options->save) return SL_OK;
    return sl_error_set(error, SL_BAD_INPUT, "--save-every %d: needs a directory, --save DIR", options->every);
}

/* ---- before the run ---- */

/* A line for people, about a file that is used nevertheless. */
static void remark(const char *format, ...) SL_PRINTF(1, 2);
static void remark(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    fprintf(stderr, "%s: ", program_invocation_short_name);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
}

static void remark_version(const char *path, int64_t version) {
    if (version == 1) remark("%s carries no checksums: damage in it would go unnoticed", path);
}

/* FILE is the latest checkpoint where PATH is a directory, otherwise PATH itself. */
static int find_file(const char *path, bool speaks, char file[SL_MAX_PATH], struct sl_error *error) {
    struct stat about;
    struct sl_error skipped = {0};
    if (stat(path, &about) || S_ISDIR(about.st_mode)) {
        SL_TRY(sl_checkpoint_latest(path, file, &skipped, error));
        if (skipped.status && speaks) remark("%s; %s is taken in its place", skipped.message, file);
        return SL_OK;
    }
    if (snprintf(file, SL_MAX_PATH, "%s", path) < SL_MAX_PATH) return SL_OK;
    return sl_error_set(error, SL_BAD_INPUT, "%.100s...: the path is too long", path);
}

int sl_checkpoints_map(struct sl_store *values, const char *path, bool speaks, struct sl_error *error) {
    char file[SL_MAX_PATH];
    int version;
    SL_TRY(find_file(path, speaks, file, error));
    SL_TRY(sl_checkpoint_map(values, file, &version, error));
    if (speaks) remark_version(file, version);
    return SL_OK;
}

static int find_checkpoint(struct sl_checkpoints *c, struct sl_checkpoint *about, struct sl_error *error) {
    SL_TRY(find_file(c->options.resume, true, c->from, error));
    SL_TRY(sl_checkpoint_check(c->from, c->setting, c->optimizer, about, error));
    remark_version(c->from, about->version);
    if (about->seed == c->seed) return SL_OK;
    return sl_error_set(error, SL_BAD_INPUT, "%s: seed is %" PRIu64 " in the checkpoint, and %" PRIu64 " here", c->from,
                        about->seed, c->seed);
}

/* Makes the directory to save in; an entry that is not on the disk would lose all checkpoints with it. */
static int make_directory(const char *directory, struct sl_error *error) {
    if (mkdir(directory, 0777)) {
        if (errno == EEXIST) return SL_OK;
        return sl_error_set(error, SL_BAD_INPUT, "--save %s: cannot be made: %s", directory, strerror(errno));
    }
    const int number = sl_sync_parent(directory);
    if (!number) return SL_OK;
    return sl_error_set(error, SL_FAILED, "--save %s: its entry cannot be synced: %s", directory, strerror(number));
}

/* Two runs would remove each other's checkpoints. Where the file system knows no locks, nobody is kept out. */
static int lock_directory(struct sl_checkpoints *c, struct sl_error *error) {
    const char *directory = c->options.save;
    SL_TRY(make_directory(directory, error));
    c->lock = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    c->locked = c->lock >= 0;
    if (!c->locked)
        return sl_error_set(error, SL_BAD_INPUT, "--save %s: cannot be opened: %s", directory, strerror(errno));
    if (flock(c->lock, LOCK_EX | LOCK_NB) && errno == EWOULDBLOCK)
        return sl_error_set(error, SL_BAD_INPUT, "--save %s: another run saves there", directory);
    return SL_OK;
}

static int prepare_directory(struct sl_checkpoints *c, struct sl_error *error) {
    char path[SL_MAX_PATH];
    SL_TRY(lock_directory(c, error));
    const int64_t last = sl_checkpoint_last_step(c->options.save);
    SL_TRY(sl_checkpoint_name(c->options.save, last < 0 ? 0 : last, path, error));
    if (last <= c->first) return sl_draft_check(path, SL_LINKS_REPLACED, error);
    return sl_error_set(error, SL_BAD_INPUT,
                        "--save: %s is there, and this run begins after %" PRId64
                        " steps: resume it (--resume %s), or save elsewhere",
                        path, c->first, c->options.save);
}

int sl_checkpoints_open(struct sl_checkpoints *c, struct sl_error *error) {
    struct sl_checkpoint about = {0};
    if (c->options.resume) SL_TRY(find_checkpoint(c, &about, error));
    c->first = about.step;
    return c->options.save ? prepare_directory(c, error) : SL_OK;
}

void sl_checkpoints_close(struct sl_checkpoints *c) {
    if (c->locked) close(c->lock);
    c->locked = false;
}

/* ---- while it runs ---- */

int sl_checkpoints_resume(const struct sl_checkpoints *c, struct sl_spmd *self, struct sl_trainer *trainer,
                          struct sl_checkpoint *about) {
    *about = (struct sl_checkpoint){0};
    return c->options.resume ? sl_checkpoint_load(self, trainer, c->from, c->setting, about) : SL_OK;
}

int sl_checkpoints_save(const struct sl_checkpoints *c, struct sl_spmd *self, struct sl_trainer *trainer,
                        int64_t samples, bool last) {
    const int64_t step = sl_trainer_steps(trainer);
    const struct sl_checkpoint about = {.samples = samples, .seed = c->seed};
    char path[SL_MAX_PATH];
    const bool due = last || (c->options.every && step % c->options.every == 0);
    if (!c->options.save || !due) return SL_OK;
    SL_TRY(sl_checkpoint_name(c->options.save, step, path, &self->error));
    SL_TRY(sl_checkpoint_save(self, trainer, path, &about, c->setting));
    return self->coordinate == 0 ? sl_checkpoint_prune(c->options.save, step, KEPT, &self->error) : SL_OK;
}
