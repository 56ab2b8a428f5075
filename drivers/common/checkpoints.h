/* checkpoints.h - saves a run at intervals, and resumes it: --save, --save-every, --resume. */
#ifndef SL_DRIVERS_COMMON_CHECKPOINTS_H
#define SL_DRIVERS_COMMON_CHECKPOINTS_H

#include "drivers/common/options.h"
#include "layers/records/snapshot/protection.h"
#include "layers/records/snapshot/snapshot.h"

enum { SL_MOST_SETTINGS = 24 };

/* Values of --restart-mesh, in the order of its words. */
enum sl_restart_mesh { SL_RESTART_SAME, SL_RESTART_FEWER };

struct sl_checkpoint_options {
    const char *save, *resume; /* NULL: not given */
    int every;                 /* steps; 0: only at the end */
    int keep;                  /* checkpoints to keep; 0: the latest and the best */
    bool parts;                /* each process writes its own part */
    bool async;                /* a thread writes while the run continues */
    int protect;               /* 1: each step is also kept in memory that outlives the process; 0: not */
    int restart;               /* limit of restarts after a run dies (drivers/training/restart/restart.h) */
    const char *launcher;      /* command line of the launcher; NULL: the engine's default */
    int restart_mesh;          /* enum sl_restart_mesh */
};

extern const struct sl_option sl_checkpoint_table[];

/* Checkpoint state of a run, shared by all coordinates. */
struct sl_checkpoints {
    struct sl_checkpoint_options options;
    uint64_t seed;
    struct sl_setting setting[SL_MOST_SETTINGS + 1]; /* must be the same in a resumed run; a key of NULL ends them */
    const char *optimizer;                           /* name of the optimizer */
    const struct sl_options *command;                /* its options that override the resumed run's are reported */
    const struct sl_store *notes;                    /* options and data of the run, saved with each checkpoint */
    bool brief;                                      /* a program reads stdout: fewer messages for people */
    bool compares;                                   /* replicas, before a checkpoint is written */
    int64_t evaluate_every;                          /* steps between evaluations; 0: none */
    int coordinates;                                 /* of the mesh */
    bool watched; /* a watcher may start the coordinates again in this process: if one fails, steps stay in memory */
    /* Filled in by sl_checkpoints_open. */
    char whole[SL_MAX_PATH]; /* the step that sl_checkpoints_collect has completed, or sl_checkpoints_begin_at's */
    char from[SL_MAX_PATH];  /* the file that --resume has found, */
    int64_t first;           /* and the number of steps it was saved after */
    int64_t best;            /* steps of the checkpoint with the least evaluation loss; -1: none */
    double best_loss;
    bool locked;
    int lock;                         /* file descriptor of the save directory, locked; with parts, one per process */
    struct sl_snapshot *snapshot;     /* in a process that writes, with --save-async; otherwise NULL */
    struct sl_protection *protection; /* with --protect; otherwise NULL */
};

/* Writes to FILE the latest checkpoint of PATH if PATH is a directory, otherwise PATH itself. If a later checkpoint
 * was cut short, the process with SPEAKS says so on stderr. */
int sl_checkpoints_find(const char *path, bool speaks, char file[SL_MAX_PATH], struct sl_error *error);

/* Prints a remark for people on stderr, "PROGRAM: ...": about an imperfect file that is used all the same, or about
 * the end of a run. */
void sl_remark(const char *format, ...) SL_PRINTF(1, 2);

/* If the checkpoint's run had other data of option NAME than HERE, their identity (NULL: none), and the user did not
 * ask for other data, says so on stderr. */
void sl_checkpoints_compare_data(const struct sl_options *command, const char *name, const char *here);

/* Maps the latest checkpoint of PATH if PATH is a directory, otherwise PATH itself, to read its values. The process
 * with SPEAKS says on stderr if the file has no checksums, or if a later one was cut short. The data are not
 * verified yet: call sl_checkpoint_verify. */
int sl_checkpoints_map(struct sl_store *values, const char *path, bool speaks, struct sl_error *error);

/* Call it before sl_checkpoints_open, in all processes: if --resume names a step in the memory of several hosts, brings
 * its parts to coordinate 0's host. */
int sl_checkpoints_collect(struct sl_checkpoints *checkpoints, const struct sl_mesh *mesh,
                           const struct sl_engine *engine);
/* Call it before the run, in the process that writes files. Finds the checkpoint to resume and refuses one that does
 * not fit, with remarks as above; makes the save directory and locks it. Refuses a directory with a checkpoint of
 * more steps than the run begins with: a later run would find it in place of this run's. Call it again to begin again,
 * after the two functions below; the directory stays locked meanwhile. */
int sl_checkpoints_open(struct sl_checkpoints *checkpoints, struct sl_error *error);
/* Waits until everything is written, also after a failure. */
void sl_checkpoints_finish(struct sl_checkpoints *checkpoints);
/* Sets the checkpoint, or the step in memory, from which the run begins again; NULL: none. */
void sl_checkpoints_begin_at(struct sl_checkpoints *checkpoints, const char *place);
void sl_checkpoints_close(struct sl_checkpoints *checkpoints);

/* Collective: loads the checkpoint to resume, if there is one. ABOUT receives its position; zeros if there is none. */
int sl_checkpoints_resume(const struct sl_checkpoints *checkpoints, struct sl_spmd *self, struct sl_trainer *trainer,
                          struct sl_checkpoint *about);

/* Call it before the run, in the other processes: starts their thread for saving parts in the background. */
int sl_checkpoints_join(struct sl_checkpoints *checkpoints, struct sl_error *error);

/* Collective: adds to BUDGET the memory that sl_checkpoints_make_room and sl_checkpoints_open_memory will
 * allocate. TRAINER is planned. */
int sl_checkpoints_plan_bytes(const struct sl_checkpoint_options *options, struct sl_spmd *self,
                              struct sl_trainer *trainer, struct sl_budget *budget);
/* Collective, before the first step: allocates the memory for saving in the background; for parts, verifies that all
 * processes see one directory, and locks it; with --protect, refuses a run without room in memory. */
int sl_checkpoints_make_room(struct sl_checkpoints *checkpoints, struct sl_spmd *self, struct sl_trainer *trainer);
/* Collective, once nothing else can refuse the run: with --protect, removes earlier runs' steps from memory, and
 * reserves room for this run's. */
int sl_checkpoints_open_memory(const struct sl_checkpoints *checkpoints, struct sl_spmd *self,
                               struct sl_trainer *trainer);
/* Collective, after each step: saves the run if a checkpoint is due or the step is the LAST. SAMPLES have been taken
 * so far. With --save-async, earlier checkpoints may still be being written; after the last step everything is on
 * disk. */
int sl_checkpoints_save(const struct sl_checkpoints *checkpoints, struct sl_spmd *self, struct sl_trainer *trainer,
                        int64_t samples, bool last);

/* With --protect, copies the step to memory that outlives the process. Call it in each coordinate after each step, when
 * the step's records are written; it does nothing after the LAST step. */
int sl_checkpoints_protect(const struct sl_checkpoints *checkpoints, struct sl_spmd *self, struct sl_trainer *trainer,
                           int64_t samples, bool last);
/* Call it in a coordinate whose training has ended with STATUS. If the coordinate itself has failed, the steps in
 * memory are removed: they may be wrong. A watched run removes them only if they may be: if values are not finite, or
 * replicas differ. */
void sl_checkpoints_end(const struct sl_checkpoints *checkpoints, struct sl_spmd *self,
                        const struct sl_trainer *trainer, int status);

/* Call it on coordinate 0, after an evaluation of the saved state after STEP steps gave LOSS. With --keep best the
 * checkpoint stays if no other had less, and DIR/best.json names it. */
int sl_checkpoints_evaluated(struct sl_checkpoints *checkpoints, int64_t step, double loss, struct sl_error *error);

/* ---- messages for people, by the speaking process ---- */

/* Call it before a run to STEPS. Reports changes against the resumed run, or a run without steps left, or, on
 * stdout, that most of the run will not be saved. */
void sl_checkpoints_tell_begin(const struct sl_checkpoints *checkpoints, int64_t steps);
/* Call it after STEP of STEPS steps. Reports the checkpoint, and the command to resume from it. INTERRUPTED: by a
 * signal. */
void sl_checkpoints_tell_end(const struct sl_checkpoints *checkpoints, int64_t step, int64_t steps, bool interrupted);

/* Contents of best.json, which names the best checkpoint of a directory (--keep best). */
struct sl_best {
    int64_t step; /* number of steps taken, from 0 on */
    double loss;  /* evaluation loss, finite */
};

/* Reads PATH. Returns SL_BAD_INPUT if it cannot be read, or lacks step or evaluation_loss. */
int sl_best_read(const char *path, struct sl_best *best, struct sl_error *error);
/* Replaces PATH after the new file is complete; SL_BAD_INPUT or SL_FAILED if it cannot be written. */
int sl_best_write(const char *path, const struct sl_best *best, struct sl_error *error);

#endif
