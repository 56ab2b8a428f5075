/* checkpoints.h - a run that is saved at intervals, and resumed: --save, --save-every, --resume. */
#ifndef SL_DRIVERS_COMMON_CHECKPOINTS_H
#define SL_DRIVERS_COMMON_CHECKPOINTS_H

#include "drivers/common/options.h"
#include "layers/snapshot/snapshot.h"

enum { SL_MOST_SETTINGS = 24 };

/* --restart-mesh, in the order of its words. */
enum sl_restart_mesh { SL_RESTART_SAME, SL_RESTART_FEWER };

struct sl_checkpoint_options {
    const char *save, *resume; /* NULL: not asked for */
    int every;                 /* steps; 0: only at the end */
    int keep;                  /* checkpoints that stay; 0: the latest and the best */
    bool parts;                /* each process writes its own part */
    bool async;                /* written by a thread while the run goes on */
    int restart;               /* how often a run that dies is started again (drivers/training/restart.h) */
    const char *launcher;      /* by which; NULL: the engine's */
    int restart_mesh;          /* enum sl_restart_mesh */
};

extern const struct sl_option sl_checkpoint_table[];

/* A run's, shared by all coordinates. */
struct sl_checkpoints {
    struct sl_checkpoint_options options;
    uint64_t seed;
    struct sl_setting setting[SL_MOST_SETTINGS + 1]; /* the same wherever the run goes on; a key of NULL ends them */
    const char *optimizer;                           /* its name */
    const struct sl_options *command;                /* what it goes on with in place of the run's own is told */
    const struct sl_store *notes;                    /* saved with it: its options and data */
    bool brief;                                      /* a program reads stdout: people are told less */
    int64_t evaluate_every;                          /* steps from one evaluation to the next; 0: there are none */
    /* Filled in by sl_checkpoints_open. */
    char from[SL_MAX_PATH]; /* the file that --resume has found, */
    int64_t first;          /* and its steps */
    int64_t best;           /* the steps of the checkpoint that had the least evaluation loss; -1: none */
    double best_loss;
    bool locked;
    int lock; /* of the directory that is saved in, while it is locked: with parts, each process's */
    struct sl_snapshot *snapshot; /* in a process that writes, with --save-async; else NULL */
};

/* FILE is the latest checkpoint where PATH is a directory, otherwise PATH itself. The process that SPEAKS says on
 * stderr that a later one was cut short. */
int sl_checkpoints_find(const char *path, bool speaks, char file[SL_MAX_PATH], struct sl_error *error);

/* Says on stderr, "PROGRAM: ...", what people should know: of a file that is used nevertheless, or of the end of a run.
 */
void sl_remark(const char *format, ...) SL_PRINTF(1, 2);

/* Says so where the checkpoint's run had other data of option NAME than HERE, their identity (NULL: there are none),
 * although nobody asked for others. */
void sl_checkpoints_compare_data(const struct sl_options *command, const char *name, const char *here);

/* Maps the latest checkpoint where PATH is a directory, otherwise PATH itself, for its values. The process that SPEAKS
 * says on stderr what users should know of a file that is used nevertheless: that it has no checksums, or that a later
 * one was cut short. The data are yet to be verified: sl_checkpoint_verify. */
int sl_checkpoints_map(struct sl_store *values, const char *path, bool speaks, struct sl_error *error);

/* Before the run, in the process that writes files: finds what to resume and refuses what does not fit, with remarks as
 * above, makes the directory to save in and locks it. It may hold no checkpoint of more steps than the run begins with:
 * that one would be found in place of this run's. */
int sl_checkpoints_open(struct sl_checkpoints *checkpoints, struct sl_error *error);
void sl_checkpoints_close(struct sl_checkpoints *checkpoints);

/* Collective: goes on from the checkpoint, if there is one to resume. ABOUT tells where it is; zeros where there is
 * none. */
int sl_checkpoints_resume(const struct sl_checkpoints *checkpoints, struct sl_spmd *self, struct sl_trainer *trainer,
                          struct sl_checkpoint *about);

/* Before the run, in the other processes: starts what they need to save parts while the run goes on. */
int sl_checkpoints_join(struct sl_checkpoints *checkpoints, struct sl_error *error);

/* Collective: adds to BUDGET what sl_checkpoints_make_room will take. TRAINER is planned. */
int sl_checkpoints_plan_bytes(const struct sl_checkpoint_options *options, struct sl_spmd *self,
                              struct sl_trainer *trainer, struct sl_budget *budget);
/* Collective, before the first step: takes the memory that saving needs beside the run; for parts, finds out that all
 * processes see one directory, and locks it. */
int sl_checkpoints_make_room(struct sl_checkpoints *checkpoints, struct sl_spmd *self, struct sl_trainer *trainer);
/* Collective, after each step: saves the run where it is time, or the LAST step. SAMPLES have been taken so far. With
 * --save-async what has been saved before the last step may still be on its way to the disk; once the last step is
 * saved, everything is there. */
int sl_checkpoints_save(const struct sl_checkpoints *checkpoints, struct sl_spmd *self, struct sl_trainer *trainer,
                        int64_t samples, bool last);

/* On coordinate 0: an evaluation after STEP steps, once these are saved, had this LOSS. With --keep best the checkpoint
 * stays if no other had less, and DIR/best.json names it. */
int sl_checkpoints_evaluated(struct sl_checkpoints *checkpoints, int64_t step, double loss, struct sl_error *error);

/* ---- what people are told by the process that speaks ---- */

/* Before a run to STEPS: what it does not go on with as it was, that it has taken them already, or, on stdout, that
 * most of it will not be kept. */
void sl_checkpoints_tell_begin(const struct sl_checkpoints *checkpoints, int64_t steps);
/* After STEP of STEPS were taken: where they are, and the command that goes on with them. INTERRUPTED: by a signal. */
void sl_checkpoints_tell_end(const struct sl_checkpoints *checkpoints, int64_t step, int64_t steps, bool interrupted);

/* The file that names the best checkpoint of a directory, best.json of --keep best. */
struct sl_best {
    int64_t step; /* after so many steps, from 0 on */
    double loss;  /* of its evaluation, finite */
};

/* SL_BAD_INPUT where PATH cannot be read, or has no step and evaluation_loss. */
int sl_best_read(const char *path, struct sl_best *best, struct sl_error *error);
/* Replaces PATH once the new file is whole; SL_BAD_INPUT or SL_FAILED where it cannot be written. */
int sl_best_write(const char *path, const struct sl_best *best, struct sl_error *error);

#endif
