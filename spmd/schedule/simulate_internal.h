/* simulate_internal.h - the walk over a table with a clock for each rank (simulate.c), and ranks with shared cores
 * (cores.c). */
#ifndef SL_SPMD_SCHEDULE_SIMULATE_INTERNAL_H
#define SL_SPMD_SCHEDULE_SIMULATE_INTERNAL_H

#include "spmd/base/heap.h"
#include "spmd/schedule/simulate.h"
#include "spmd/schedule/turns.h"

struct cores;

enum { NOT_SENT = -1 };

/* Weight gradients of a stage, which run in groups. */
struct weights {
    bool *due; /* [microbatches] */
    int next;  /* first microbatch of the next group */
    int ready; /* all microbatches below it are due */
};

/* A piece of work, and its place in the list of events; NULL: not listed. */
struct piece {
    struct sl_event event;
    struct sl_event *listed;
};

/* Loops of a rank whose reductions have begun, in this order. */
struct updates {
    struct piece *reduction; /* [loops] */
    int count, used;
};

struct walk {
    const struct sl_schedule *schedule;
    const struct sl_costs *costs;
    struct sl_simulation *result;
    struct sl_turns turns;
    int *next;                /* [ranks] */
    double *now;              /* [ranks] */
    double *owed;             /* [ranks] extra time of the next work, after a wait */
    double *arrival;          /* [stages][microbatches] arrival of the last message to the stage, or NOT_SENT; a
                                 gradient is sent after the activation has been received */
    struct weights *weights;  /* [stages], only with groups */
    bool *due;                /* memory of weights */
    double *gathered;         /* [stages] end of the gather of its parameters */
    double *gather_end;       /* [ranks] end of the rank's last gather */
    struct updates *updates;  /* [ranks] */
    struct piece *reductions; /* memory of updates */
    struct cores *cores;      /* NULL: each rank has a core of its own */
};

/* Work of a rank, to be run when the rank has a core. */
struct queued {
    struct piece piece;
    int following; /* next in the rank's queue, or -1 */
};

/* Ranks with shared cores. Each does its work in the order in which it was queued. */
struct cores {
    double each; /* cores for one copy of the table */
    double time; /* current time of all ranks */
    double work; /* work done so far by a rank without idle time */
    /* Ranks that compute, by the value of `work` at the end of their first piece; and later ones, by the time at which
     * they continue. */
    struct sl_heap computing, later;
    bool *waits; /* [ranks] it is in one of the heaps */
    int *first;  /* [ranks] the piece it computes, or will compute with a core; -1: none */
    int *last;   /* [ranks] the last queued piece */
    struct queued *queued;
    int count, capacity, unused; /* unused: first free entry of `queued`, or -1 */
    bool no_memory;
    double *whole; /* [ranks] core time of the first piece */
    double *after; /* [ranks] optimizer time after the rank's last action */
    bool *ended;   /* [ranks] all actions have been walked */
};

static inline double larger(double a, double b) { return a > b ? a : b; }

/* Steps of a walk, as callbacks. */
struct steps {
    /* Walks ACTION, the next one of RANK. False: it must wait for a message not sent yet, or for the rank's own work.
     */
    bool (*step)(struct walk *walk, int rank, const struct sl_action *action);
    /* After all actions of RANK: its next update; false if there is none. */
    bool (*update)(struct walk *walk, int rank);
};

/* ---- cores.c ---- */

/* Walks the whole table by STEPS. SL_FAILED without memory. */
int sl_cores_walk(struct walk *walk, const struct steps *steps, struct sl_error *error);
void sl_cores_close(struct walk *walk);
/* Queues PIECE. Its rank runs it when it has a core; only then are its begin and end set. */
void sl_cores_queue(struct walk *walk, const struct piece *piece);
static inline bool sl_cores_busy(const struct walk *walk, int rank) {
    return walk->cores && walk->cores->first[rank] >= 0;
}

#endif
