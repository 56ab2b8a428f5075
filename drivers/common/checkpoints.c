/* checkpoints.c - a run that is saved at intervals, and resumed. */
#include "drivers/common/checkpoints.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
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

int sl_checkpoints_find(const char *path, char file[SL_MAX_PATH], struct sl_error *error) {
    struct stat about;
    if (stat(path, &about) || S_ISDIR(about.st_mode)) return sl_checkpoint_latest(path, file, error);
    if (snprintf(file, SL_MAX_PATH, "%s", path) < SL_MAX_PATH) return SL_OK;
    return sl_error_set(error, SL_BAD_INPUT, "%.100s...: the path is too long", path);
}

static int find_checkpoint(struct sl_checkpoints *c, struct sl_checkpoint *about, struct sl_error *error) {
    SL_TRY(sl_checkpoints_find(c->options.resume, c->from, error));
    SL_TRY(sl_checkpoint_check(c->from, c->setting, about, error));
    if (about->seed == c->seed) return SL_OK;
    return sl_error_set(error, SL_BAD_INPUT, "%s: seed is %" PRIu64 " in the checkpoint, and %" PRIu64 " here", c->from,
                        about->seed, c->seed);
}

/* Two runs would remove each other's checkpoints. Where the file system knows no locks, nobody is kept out. */
static int lock_directory(struct sl_checkpoints *c, struct sl_error *error) {
    const char *directory = c->options.save;
    if (mkdir(directory, 0777) && errno != EEXIST)
        return sl_error_set(error, SL_BAD_INPUT, "--save %s: cannot be made: %s", directory, strerror(errno));
    c->lock = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (c->lock < 0)
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
    if (last <= c->first) return sl_safetensors_can_write(path, error);
    return sl_error_set(error, SL_BAD_INPUT,
                        "--save: %s is there, and this run begins after %" PRId64
                        " steps: resume it (--resume %s), or save elsewhere",
                        path, c->first, c->options.save);
}

int sl_checkpoints_open(struct sl_checkpoints *c, struct sl_error *error) {
    struct sl_checkpoint about = {0};
    c->lock = -1;
    if (c->options.resume) SL_TRY(find_checkpoint(c, &about, error));
    c->first = about.step;
    return c->options.save ? prepare_directory(c, error) : SL_OK;
}

void sl_checkpoints_close(struct sl_checkpoints *c) {
    if (c->lock > 0) close(c->lock);
    c->lock = -1;
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
