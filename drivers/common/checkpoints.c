/* checkpoints.c - saves a run at intervals, and resumes it. */
#include "drivers/common/checkpoints.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "collectives/launcher.h"
#include "drivers/command_line/called.h"
#include "drivers/common/metrics.h"
#include "drivers/common/output.h"
#include "layers/records/snapshot/protection_collect.h"
#include "layers/records/snapshot/saved_parts.h"

enum { MOST_KEPT = 1000000, MOST_STEPS = 1000000000, MOST_RESTARTS = 1000000 };
static const char *const data_keys[] = {"data", "eval-data", NULL}; /* names of options and of notes */

#define FIELD(name) offsetof(struct sl_checkpoint_options, name)

const struct sl_option sl_checkpoint_table[] = {
    {"save", SL_OPTION_TEXT, FIELD(save), .value = "DIR", .path = SL_PATH_SAVED, .read = "!show-shardings",
     .help = "save a checkpoint in DIR when the run ends, also by SIGINT or SIGTERM"},
    {"save-every", SL_OPTION_INTEGER, FIELD(every), .min = 0, .max = MOST_STEPS, .read = "save",
     .help = "also save a checkpoint after every N steps; 0: only at the end"},
    {"keep", SL_OPTION_INTEGER, FIELD(keep), .min = 1, .max = MOST_KEPT, .value = "N|best", .zero = "best",
     .read = "save",
     .help = "checkpoints that stay in the directory of --save: the latest N; best: the latest one, and the one after "
             "whose step an evaluation had the least loss"},
    {"save-parts", SL_OPTION_FLAG, FIELD(parts), .read = "save",
     .help = "with --save and several processes, each writes its own part of the checkpoint, and an index names the "
             "parts: all processes must see one DIR. By default the process of coordinate 0 writes one file"},
    {"save-async", SL_OPTION_FLAG, FIELD(async), .read = "save&save-every",
     .help = "with --save-every, copy the state between two steps, and write the copy while the next steps run: the "
             "process that writes takes memory of the file's size for the copy"},
    {"resume", SL_OPTION_TEXT, FIELD(resume), .value = "DIR", .path = SL_PATH_CHECKPOINT,
     .help =
         "continue from the latest checkpoint in DIR, or from the checkpoint file DIR, with the options and data of "
         "its run unless others are given; --steps counts the steps before the checkpoint, too"},
    {"protect", SL_OPTION_INTEGER, FIELD(protect), .min = 0, .max = 1, .read = "save",
     .help = "1: copy the state after each step to memory that outlives the processes, in /dev/shm, and begin restarts "
             "there; the default with --restart and several processes. 0: begin restarts at the last checkpoint"},
    {"restart", SL_OPTION_INTEGER, FIELD(restart), .min = 0, .max = MOST_RESTARTS, .read = "!show-shardings",
     .help = "if the run dies, start it again from its last checkpoint, up to N times: needs --save and --save-every; "
             "0: never"},
    {"launcher", SL_OPTION_TEXT, FIELD(launcher), .value = "COMMAND", .read = "restart",
     .help =
         "with --restart, the command that starts the processes, such as \"srun -n 8\"; %n in it becomes the size of "
         "the mesh (default: with engine mpi, mpirun -n and that size)"},
    {"restart-mesh", SL_OPTION_CHOICE, FIELD(restart_mesh), .value = "same|fewer", .read = "restart",
     .help = "with --restart, mesh for a run that died twice in a row without saving: same, or fewer: the next smaller "
             "number of replicas that fits the batch and the model. With fewer, replicas also follow the file that "
             "--hostfile in --launcher names, when it changes"},
    {0},
};

/* ---- before the run ---- */

void sl_remark(const char *format, ...) {
    char *line;
    va_list arguments;
    va_start(arguments, format);
    const int length = vasprintf(&line, format, arguments);
    va_end(arguments);
    if (length < 0) return; /* without memory the run itself will fail */
    fprintf(stderr, "%s: %s\n", program_invocation_short_name, sl_error_line(line));
    free(line);
}

static void remark_version(const char *path, int64_t version) {
    if (version == 1) sl_remark("%s carries no checksums: damage in it would go unnoticed", path);
}

int sl_checkpoints_find(const char *path, bool speaks, char file[SL_MAX_PATH], struct sl_error *error) {
    struct stat about;
    struct sl_error skipped = {0};
    if (stat(path, &about) || S_ISDIR(about.st_mode)) {
        SL_TRY(sl_checkpoint_latest(path, file, &skipped, error));
        if (skipped.status && speaks) sl_remark("%s; %s is taken in its place", skipped.message, file);
        return SL_OK;
    }
    if (snprintf(file, SL_MAX_PATH, "%s", path) < SL_MAX_PATH) return SL_OK;
    return sl_error_set(error, SL_BAD_INPUT, "%.100s...: the path is too long", path);
}

int sl_checkpoints_map(struct sl_store *values, const char *path, bool speaks, struct sl_error *error) {
    char file[SL_MAX_PATH];
    int version;
    SL_TRY(sl_checkpoints_find(path, speaks, file, error));
    SL_TRY(sl_checkpoint_map(values, file, &version, error));
    if (speaks) remark_version(file, version);
    return SL_OK;
}

void sl_checkpoints_compare_data(const struct sl_options *command, const char *name, const char *here) {
    const struct sl_adoption *adoption = &command->adoption;
    const bool takes_data = adoption->resumes || command->params >= SL_KEPT_DATA;
    const char *there = *adoption->file && takes_data ? sl_store_note(&adoption->notes, name) : NULL;
    if (!here || !there || !strcmp(here, there) || sl_option_given(command, name)) return;
    sl_remark("--%s: the data have changed since %s was saved: %s there, and %s here", name, adoption->file, there,
              here);
}

static int find_checkpoint(struct sl_checkpoints *c, struct sl_checkpoint *about, struct sl_error *error) {
    SL_TRY(sl_checkpoints_find(c->options.resume, true, c->from, error));
    SL_TRY(sl_checkpoint_check(c->from, c->setting, c->optimizer, about, error));
    remark_version(c->from, about->version);
    if (about->seed == c->seed) return SL_OK;
    return sl_error_set(error, SL_BAD_INPUT, "%s: seed is %" PRIu64 " in the checkpoint, and %" PRIu64 " here", c->from,
                        about->seed, c->seed);
}

/* Makes the save directory and syncs its entry: without the entry on disk, all checkpoints would be lost. */
static int make_directory(const char *directory, struct sl_error *error) {
    if (mkdir(directory, 0777)) {
        if (errno == EEXIST) return SL_OK;
        return sl_error_set(error, SL_BAD_INPUT, "--save %s: cannot be made: %s", directory, strerror(errno));
    }
    const int number = sl_sync_parent(directory);
    if (!number) return SL_OK;
    return sl_error_set(error, SL_FAILED, "--save %s: its entry cannot be synced: %s", directory, strerror(number));
}

/* Locks the directory: two runs would remove each other's checkpoints. On a file system without locks it stays
 * unlocked. */
static int lock_directory(struct sl_checkpoints *c, struct sl_error *error) {
    const char *directory = c->options.save;
    if (c->locked) return SL_OK;
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
    if (last > c->first) sl_checkpoint_at(c->options.save, last, path);
    if (last <= c->first) return sl_draft_check(path, SL_LINKS_REPLACED, error);
    return sl_error_set(error, SL_BAD_INPUT,
                        "--save: %s is there, and this run begins after %" PRId64
                        " steps: resume it (--resume %s), or save elsewhere",
                        path, c->first, c->options.save);
}

/* ---- the best checkpoint ---- */

int sl_best_read(const char *path, struct sl_best *best, struct sl_error *error) {
    json_t *object = sl_json_read("--keep best: ", path, 0, error);
    const json_t *step = json_object_get(object, "step"), *loss = json_object_get(object, "evaluation_loss");
    *best = (struct sl_best){json_integer_value(step), json_number_value(loss)};
    int status = object ? SL_OK : error->status;
    if (object && (!json_is_integer(step) || best->step < 0 || !json_is_number(loss)))
        status = sl_error_set(error, SL_BAD_INPUT, "--keep best: %s: has no step and evaluation_loss", path);
    json_decref(object);
    return status;
}

int sl_best_write(const char *path, const struct sl_best *best, struct sl_error *error) {
    struct sl_output output;
    SL_TRY(sl_output_open(&output, path, error));
    output.option = "--save";
    const int status = sl_json_print(
        output.stream, path,
        json_pack("{sI so}", "step", (json_int_t)best->step, "evaluation_loss", sl_json_real(best->loss)), error);
    return sl_output_close(&output, status, error);
}

static bool keeps_best(const struct sl_checkpoints *c) { return c->options.save && c->options.keep == 0; }

/* Writes the path of best.json, which has the steps and the loss of the best checkpoint. */
static int best_path(const struct sl_checkpoints *c, char path[SL_MAX_PATH], struct sl_error *error) {
    if (snprintf(path, SL_MAX_PATH, "%s/best.json", c->options.save) < SL_MAX_PATH) return SL_OK;
    return sl_error_set(error, SL_BAD_INPUT, "%.100s...: the path is too long", c->options.save);
}

/* For a run that resumes in the directory it saves to. */
static int read_best(struct sl_checkpoints *c, struct sl_error *error) {
    char path[SL_MAX_PATH], best[SL_MAX_PATH];
    struct sl_best known;
    SL_TRY(best_path(c, path, error));
    if (access(path, F_OK)) return SL_OK;
    SL_TRY(sl_best_read(path, &known, error));
    if (known.step <= c->first && sl_checkpoint_at(c->options.save, known.step, best))
        c->best = known.step, c->best_loss = known.loss;
    return SL_OK;
}

static int prepare_best(struct sl_checkpoints *c, struct sl_error *error) {
    const int64_t every = c->evaluate_every;
    if (!every)
        return sl_error_set(error, SL_BAD_INPUT,
                            "--keep best: this run makes no evaluations to choose by, as --evaluate-every of a "
                            "transformer or --data fashion-mnist would");
    if (!c->options.every || c->options.every % every)
        return sl_error_set(error, SL_BAD_INPUT,
                            "--keep best: --save-every is %d, and must be a multiple of the %" PRId64
                            " step%s between evaluations",
                            c->options.every, every, every == 1 ? "" : "s");
    return read_best(c, error);
}

static int write_best(const struct sl_checkpoints *c, struct sl_error *error) {
    const struct sl_best best = {c->best, c->best_loss};
    char path[SL_MAX_PATH];
    SL_TRY(best_path(c, path, error));
    return sl_best_write(path, &best, error);
}

int sl_checkpoints_evaluated(struct sl_checkpoints *c, int64_t step, double loss, struct sl_error *error) {
    char path[SL_MAX_PATH];
    const bool saved = keeps_best(c) && (step % c->options.every == 0 || sl_checkpoint_at(c->options.save, step, path));
    if (!saved || !isfinite(loss) || (c->best >= 0 && loss >= c->best_loss)) return SL_OK;
    c->best = step, c->best_loss = loss;
    SL_TRY(write_best(c, error));
    return c->options.async ? SL_OK : sl_checkpoint_prune(c->options.save, step, 1, c->best, error);
}

/* ---- before the run, in all processes ---- */

static int collect(struct sl_spmd *self, void *arg) {
    struct sl_checkpoints *c = arg;
    size_t moved = 0;
    SL_TRY(sl_protection_collect(self, c->options.resume, c->whole, &moved));
    if (moved) sl_remark("%s has all parts now: other hosts have sent %.1f MB", c->whole, 1e-6 * (double)moved);
    return SL_OK;
}

int sl_checkpoints_collect(struct sl_checkpoints *c, const struct sl_mesh *mesh, const struct sl_engine *engine) {
    const char *resume = c->options.resume;
    if (!resume || !engine->table->apart || !sl_protection_is_in_memory(resume)) return SL_OK;
    SL_TRY(sl_run(mesh, engine, collect, c));
    c->options.resume = c->whole;
    return SL_OK;
}

static int make_protection(struct sl_checkpoints *c, struct sl_error *error) {
    sl_protection_close(c->protection);
    c->protection = NULL;
    if (!c->options.save || !c->options.protect) return SL_OK;
    c->protection = sl_protection_new(c->coordinates);
    return c->protection ? SL_OK : sl_error_set(error, SL_FAILED, "--protect: no memory");
}

int sl_checkpoints_open(struct sl_checkpoints *c, struct sl_error *error) {
    struct sl_checkpoint about = {0};
    c->best = -1;
    if (c->options.resume) SL_TRY(find_checkpoint(c, &about, error));
    c->first = about.step;
    if (keeps_best(c)) SL_TRY(prepare_best(c, error));
    if (c->options.save) SL_TRY(prepare_directory(c, error));
    SL_TRY(make_protection(c, error));
    return c->options.async ? sl_snapshot_start(&c->snapshot, error) : SL_OK;
}

int sl_checkpoints_join(struct sl_checkpoints *c, struct sl_error *error) {
    SL_TRY(make_protection(c, error));
    return c->options.async && c->options.parts ? sl_snapshot_start(&c->snapshot, error) : SL_OK;
}

void sl_checkpoints_finish(struct sl_checkpoints *c) {
    sl_snapshot_close(c->snapshot);
    c->snapshot = NULL;
}

void sl_checkpoints_begin_at(struct sl_checkpoints *c, const char *place) {
    snprintf(c->whole, sizeof c->whole, "%s", place ? place : "");
    c->options.resume = place ? c->whole : NULL;
}

/* The directory stays locked while a checkpoint is still being written. */
void sl_checkpoints_close(struct sl_checkpoints *c) {
    sl_checkpoints_finish(c);
    sl_protection_close(c->protection);
    c->protection = NULL;
    if (c->locked) close(c->lock);
    c->locked = false;
}

/* ---- during the run ---- */

int sl_checkpoints_resume(const struct sl_checkpoints *c, struct sl_spmd *self, struct sl_trainer *trainer,
                          struct sl_checkpoint *about) {
    *about = (struct sl_checkpoint){0};
    return c->options.resume ? sl_checkpoint_load(self, trainer, c->from, c->setting, about) : SL_OK;
}

static bool in_parts(const struct sl_checkpoint_options *options, const struct sl_spmd *self) {
    return options->save && options->parts && sl_saved_parts_are_possible(self);
}

int sl_checkpoints_plan_bytes(const struct sl_checkpoint_options *options, struct sl_spmd *self,
                              struct sl_trainer *trainer, struct sl_budget *budget) {
    if (options->save && options->protect) SL_TRY(sl_protection_plan_bytes(self, trainer, budget));
    return options->async ? sl_snapshot_plan_bytes(self, trainer, in_parts(options, self), budget) : SL_OK;
}

/* Shares the lock: all processes of a run write, and all must have ended when the next run begins. Coordinate 0
 * turns its exclusive lock into a shared one, and the others take it, too. */
static int share_lock(struct sl_checkpoints *c, struct sl_spmd *self, struct sl_trainer *trainer) {
    const char *directory = c->options.save;
    if (self->coordinate == 0 && flock(c->lock, LOCK_SH | LOCK_NB) && errno == EWOULDBLOCK)
        return sl_fail(self, SL_BAD_INPUT, "--save %s: another run saves there", directory);
    SL_TRY(sl_barrier(self, sl_trainer_world(trainer)));
    if (self->coordinate == 0) return SL_OK;
    c->lock = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    c->locked = c->lock >= 0;
    if (c->locked) flock(c->lock, LOCK_SH | LOCK_NB);
    return SL_OK;
}

static const char *begins_from(const struct sl_checkpoints *c) { return c->options.resume ? c->from : NULL; }

int sl_checkpoints_make_room(struct sl_checkpoints *c, struct sl_spmd *self, struct sl_trainer *trainer) {
    const bool parts = in_parts(&c->options, self);
    if (parts) SL_TRY(sl_saved_parts_prove(self, trainer, c->options.save));
    if (parts || (c->protection && self->engine->table->apart)) SL_TRY(share_lock(c, self, trainer));
    if (c->options.async) SL_TRY(sl_snapshot_open(c->snapshot, self, trainer, parts));
    if (!c->protection) return SL_OK;
    return sl_protection_prepare(c->protection, self, trainer, c->options.save, begins_from(c));
}

int sl_checkpoints_open_memory(const struct sl_checkpoints *c, struct sl_spmd *self, struct sl_trainer *trainer) {
    const struct sl_checkpoint about = {.seed = c->seed};
    if (!c->protection) return SL_OK;
    return sl_protection_open(c->protection, self, trainer, c->options.save, begins_from(c), &about, c->setting,
                              c->notes);
}

static int save_now(const struct sl_checkpoints *c, struct sl_spmd *self, struct sl_trainer *trainer,
                    const struct sl_checkpoint *about, bool parts) {
    const char *directory = c->options.save;
    char path[SL_MAX_PATH];
    if (parts) return sl_saved_parts_save(self, trainer, directory, about, c->setting, c->notes);
    SL_TRY(sl_checkpoint_name(directory, sl_trainer_steps(trainer), path, &self->error));
    return sl_checkpoint_save(self, trainer, path, about, c->setting, c->notes);
}

static int kept_latest(const struct sl_checkpoints *c) { return keeps_best(c) ? 1 : c->options.keep; }

int sl_checkpoints_save(const struct sl_checkpoints *c, struct sl_spmd *self, struct sl_trainer *trainer,
                        int64_t samples, bool last) {
    const int64_t step = sl_trainer_steps(trainer);
    const struct sl_checkpoint about = {.samples = samples, .seed = c->seed, .compares = c->compares};
    const bool due = last || (c->options.every && step % c->options.every == 0);
    if (!c->options.save || !due) return SL_OK;
    /* If the step's checkpoint exists already, it is saved as one file, which replaces it by a single rename. */
    const bool parts = in_parts(&c->options, self);
    bool new = parts;
    if (parts) SL_TRY(sl_saved_parts_are_new(self, trainer, c->options.save, &new));
    if (c->options.async && !last && new == parts)
        return sl_snapshot_save(c->snapshot, self, trainer, c->options.save, &about, c->setting, c->notes,
                                kept_latest(c), c->best);
    if (c->options.async) SL_TRY(sl_snapshot_wait(c->snapshot, self, trainer));
    SL_TRY(save_now(c, self, trainer, &about, new));
    if (self->coordinate != 0) return SL_OK;
    return sl_checkpoint_prune(c->options.save, step, kept_latest(c), c->best, &self->error);
}

int sl_checkpoints_protect(const struct sl_checkpoints *c, struct sl_spmd *self, struct sl_trainer *trainer,
                           int64_t samples, bool last) {
    if (!c->protection) return SL_OK;
    return last ? sl_protection_settle(c->protection, self)
                : sl_protection_commit(c->protection, self, trainer, samples);
}

/* After the death of another coordinate, sl_progress fails. */
void sl_checkpoints_end(const struct sl_checkpoints *c, struct sl_spmd *self, const struct sl_trainer *trainer,
                        int status) {
    if (!c->protection || (status == SL_OK && !sl_protection_leads(c->protection, self))) return;
    if (c->watched && status == SL_FAILED && !sl_trainer_diverged(trainer)) return;
    if (status == SL_OK || sl_progress(self) == SL_OK) sl_protection_end(c->protection, self);
}

/* ---- messages for people ---- */

enum { LONG = 1000, SOME = 100 }; /* steps: more than a user would lose by chance */

/* Twice as many steps, for an example command. */
static int64_t more_than(int64_t steps) { return steps ? 2 * steps : SOME; }

/* Writes option NAME if its value is a file or a folder to which the next run will append. */
static int print_record(const struct sl_checkpoints *c, const char *name, char *text, size_t size) {
    char word[SL_MAX_PATH];
    struct stat about;
    const char *path = c->command ? sl_option_file(c->command, name) : NULL;
    if (!path || stat(path, &about) || !(S_ISREG(about.st_mode) || S_ISDIR(about.st_mode))) return 0;
    return snprintf(text, size, " --%s %s", name, sl_shell_word(path, word, sizeof word));
}

/* Writes the command to resume from the saved checkpoint, with --steps if STEPS is not 0. */
static const char *print_command(const struct sl_checkpoints *c, int64_t steps, char *text, size_t size) {
    char directory[SL_MAX_PATH], program[SL_MAX_PATH];
    const char *engine = c->command && c->command->engine ? *c->command->engine : "local";
    const struct sl_launch launch = sl_launch_of_process();
    const bool alone = !strcmp(engine, "local");
    int used = 0;
    sl_shell_word(c->options.save, directory, sizeof directory);
    if (!alone && launch.processes > 1) used = snprintf(text, size, "%s -n %d ", launch.launcher, launch.processes);
    used += snprintf(text + used, size - (size_t)used, "%s",
                     c->command ? sl_program_called(c->command->program, program, sizeof program)
                                : program_invocation_name);
    if (!alone) used += snprintf(text + used, size - (size_t)used, " --engine %s", engine);
    used += snprintf(text + used, size - (size_t)used, " --resume %s --save %s", directory, directory);
    if (c->options.every) used += snprintf(text + used, size - (size_t)used, " --save-every %d", c->options.every);
    if (!c->options.keep) used += snprintf(text + used, size - (size_t)used, " --keep best");
    if (c->options.parts) used += snprintf(text + used, size - (size_t)used, " --save-parts");
    if (c->options.async) used += snprintf(text + used, size - (size_t)used, " --save-async");
    used += print_record(c, "metrics", text + used, size - (size_t)used);
    used += print_record(c, "tensorboard", text + used, size - (size_t)used);
    if (steps) snprintf(text + used, size - (size_t)used, " --steps %" PRId64, steps);
    return text;
}

static void remark_changes(const struct sl_checkpoints *c) {
    if (!c->command) return;
    const struct sl_adoption *adoption = &c->command->adoption;
    if (*adoption->overrides) sl_remark("%s of the run in %s", adoption->overrides, c->from);
    for (const char *const *key = data_keys; *key; key++)
        sl_checkpoints_compare_data(c->command, *key, sl_store_note(c->notes, *key));
}

void sl_checkpoints_tell_begin(const struct sl_checkpoints *c, int64_t steps) {
    const int64_t left = steps - c->first;
    remark_changes(c);
    if (c->brief) return;
    if (c->options.resume && left < 0)
        sl_remark("nothing to do: %s is after %" PRId64 " steps already, and --steps is %" PRId64, c->from, c->first,
                  steps);
    if (c->options.resume && left == 0)
        sl_remark("nothing to do: the run in %s has taken all its %" PRId64 " steps; --steps %" PRId64 " goes on",
                  c->from, c->first, more_than(c->first));
    if (left < 1 || (left < LONG && !c->options.resume)) return;
    char steps_left[40] = "this step";
    if (left > 1) snprintf(steps_left, sizeof steps_left, "these %" PRId64 " steps", left);
    if (!c->options.save)
        printf("nothing of %s will be kept; --save DIR keeps %s\n", steps_left, left > 1 ? "them" : "it");
    else if (!c->options.every && left > 1)
        printf("only the end of %s will be kept; --save-every N saves on the way, too\n", steps_left);
}

void sl_checkpoints_tell_end(const struct sl_checkpoints *c, int64_t step, int64_t steps, bool interrupted) {
    char path[SL_MAX_PATH], command[6 * SL_MAX_PATH];
    if (c->brief) return;
    fflush(stdout); /* earlier output comes first */
    if (!c->options.save) {
        if (interrupted) sl_remark("interrupted after step %" PRId64 "; nothing was saved: --save DIR saves", step - 1);
        return;
    }
    if (sl_checkpoint_name(c->options.save, step, path, NULL)) return;
    if (keeps_best(c) && c->best >= 0 && sl_checkpoint_at(c->options.save, c->best, path))
        sl_remark("the least evaluation loss, %.6g, is that of %s", c->best_loss, path);
    sl_checkpoint_at(c->options.save, step, path);
    print_command(c, interrupted ? 0 : more_than(steps), command, sizeof command);
    if (interrupted)
        sl_remark("interrupted after step %" PRId64 ", saved in %s; go on with: %s", step - 1, path, command);
    else
        sl_remark("saved in %s; go on with: %s", path, command);
}
