/* restart_internal.h - the watcher of a run, and the command line of the next run. */
#ifndef SL_DRIVERS_TRAINING_RESTART_RESTART_INTERNAL_H
#define SL_DRIVERS_TRAINING_RESTART_RESTART_INTERNAL_H

#include <limits.h>
#include <signal.h>

#include "drivers/training/restart/control.h"
#include "drivers/training/restart/hosts.h"
#include "drivers/training/restart/launched.h"
#include "drivers/training/restart/losses.h"
#include "drivers/training/restart/restart.h"

enum { MESH_TEXT = 256 }; /* bytes of a mesh */

struct sl_watcher {
    const struct sl_options *options;
    const struct sl_checkpoint_options *checkpoints;
    const char *command, *engine;
    char program[PATH_MAX]; /* path of this program's file */
    char *launcher;         /* its words begin argv; NULL: the program is started directly */
    int head, count, words; /* words of argv: the launcher's, those before the options, and all */
    char **argv;
    struct sl_mesh full;       /* of the command line, or of the last resize: a run that has shrunk grows to it */
    struct sl_hosts hosts;     /* of the launcher */
    struct sl_mesh mesh;       /* of the next run */
    char mesh_text[MESH_TEXT]; /* if different from the command line's mesh; else "" */
    bool protects;             /* steps are kept in memory */
    bool noted;                /* the command line, beside those of the present run */
    bool lost;      /* the watcher has ended the last run: one of its processes had ended, or another mesh was wanted */
    int rank;       /* coordinate of the ended process; -1: not known */
    int fruitless;  /* runs in a row without a saved checkpoint or a step in memory */
    int64_t last;   /* steps of the latest of them when the present run began; -1: none */
    int64_t memory; /* number of the step in memory from which the next run continues; -1: none */
    bool whole;     /* this host has all parts of it; otherwise the run may find a step before or after it */
    int64_t foreign;        /* number of the latest step of another run, not to continue from; -1: none */
    int64_t stale;          /* number of the latest step in memory when the present run began; -1: none */
    char from[SL_MAX_PATH]; /* the checkpoint to resume from, */
    int64_t begins;         /* its steps, */
    double bytes;           /* and the bytes of its tensors */
    int64_t before;         /* steps of the latest checkpoint before the first run; -1: none */
    sigset_t signals, usual;
    /* Descriptors to read signals, requests, and messages of the run's process from; negative: none. */
    int ear[SL_EARS];
    pid_t child;             /* the run's process; 0: none */
    bool found;              /* the next run begins at `from` */
    bool resumed;            /* the process was told to, when it was started */
    bool stays;              /* its coordinates have ended, and it waits for an answer */
    bool here;               /* they were started again in this process */
    bool again;              /* a run has been started before */
    int restarts;            /* so far */
    struct sl_error failure; /* why they have ended */
    int asked;               /* the terminating signal that has arrived; 0: none */
    /* A request for another mesh: */
    char wanted[MESH_TEXT]; /* "": there is none */
    int64_t after;          /* the step in memory when it came: the run ends with the next one, */
    double until;           /* but by this time */
    int answer;             /* descriptor of its answer; -1: none */
    char back[MESH_TEXT];   /* the mesh to go back to, until the run takes a step on the new one; "": none */
    struct sl_losses losses;
};

/* Refuses options that do not fit --restart. */
int sl_restart_check(const struct sl_watcher *w, struct sl_error *error);
/* Begins argv with the launcher's words, the program and the command. */
int sl_restart_begin_words(struct sl_watcher *w, struct sl_error *error);
/* Completes the command line of a run that begins, or GOES_ON from w->from. Added options come last, so they
 * override. */
void sl_restart_complete(struct sl_watcher *w, bool goes_on);
void sl_restart_free_words(struct sl_watcher *w);

/* Whether the command line can be planned on the mesh TEXT. */
bool sl_restart_can_be_planned(struct sl_watcher *w, bool goes_on, char *text);
/* Makes TEXT the mesh of the next run, whose words are begun. */
int sl_restart_take_mesh(struct sl_watcher *w, const char *text, struct sl_error *error);
/* Makes the next run's mesh smaller; returns false, without changes, if no smaller one can be planned. */
bool sl_restart_take_fewer(struct sl_watcher *w, bool goes_on);
/* If the launcher's hosts have changed, writes the mesh for them to TEXT: the full one, or the most replicas that they
 * take. Returns whether the run is to continue on this mesh, which is not its present one. */
bool sl_restart_mesh_of_hosts(struct sl_watcher *w, char text[MESH_TEXT]);

/* ---- while a run trains ---- */

/* Takes a request for another mesh. */
void sl_restart_take_request(struct sl_watcher *w);
/* Wants another mesh if the hosts have changed. */
void sl_restart_look_at_hosts(struct sl_watcher *w);
/* Notes a run's first new step, and answers a request for another mesh. */
void sl_restart_note_step(struct sl_watcher *w);
/* Returns whether the run should end now for another mesh: it has taken another step, on several hosts it has left all
 * but this one, or the time is over. If no step is in memory, refuses the request. */
bool sl_restart_is_due(struct sl_watcher *w);
/* Answers the request, if there is one. */
void sl_restart_answer(struct sl_watcher *w, const char *text);

#endif
