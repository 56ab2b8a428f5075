/* simulate_internal.h - a table that is walked with a clock on every rank (simulate.c), whose work may have to share
 * cores (cores.c). */
#ifndef SL_SPMD_SCHEDULE_SIMULATE_INTERNAL_H
#define SL_SPMD_SCHEDULE_SIMULATE_INTERNAL_H

#include "spmd/base/heap.h"
#include "spmd/schedule/simulate.h"
#include "spmd/schedule/turns.h"

struct cores;

enum { NOT_SENT = -1 };

/* Weight gradients of one stage that run in groups. */
struct weights {
    bool *due; /* [microbatches] */
    int next;  /* first microbatch of the next group */
    int ready; /* all microbatches below it are due */
};

/* A piece of work, and where it is listed; NULL: nowhere. */
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
    int *next;       /* [ranks] */
    double *now;     /* [ranks] */
    double *owed;    /* [ranks] what its next work takes longer, because it has waited */
    double *arrival; /* [stages][microbatches] when what was sent last reaches that stage, or NOT_SENT: a gradient comes
                        after the activation has been taken */
    struct weights *weights;  /* [stages], in groups only */
    bool *due;                /* memory of the above */
    double *gathered;         /* [stages] when its parameters are there; */
    double *gather_end;       /* [ranks] when the rank's last gather ends */
    struct updates *updates;  /* [ranks] */
    struct piece *reductions; /* memory of the above */
    struct cores *cores;      /* NULL: each rank has a core of its own */
};

/* What a rank is to do, when it has a core. */
struct queued {
    struct piece piece;
    int following; /* or -1 */
};

/* Ranks that share cores. Each does its work in the order in which it was queued. */
struct cores {
    double each; /* cores for one copy of the table */
    double time; /* of all ranks */
    double work; /* what a rank that always had some has computed by then */
    /* Those that compute, by WORK at the end of their first piece; those that go on, or begin, later, by time. */
    struct sl_heap computing, later;
    bool *waits; /* [ranks] it is one of them */
    int *first;  /* [ranks] what it computes, or would with a core, or -1; */
    int *last;   /* [ranks] the last that is queued */
    struct queued *queued;
    int count, capacity, unused; /* the last: the first of those that have been computed, or -1 */
    bool no_memory;
    double *whole; /* [ranks] what the first one needs: time on a core */
    double *after; /* [ranks] the optimizer's time after the rank's last action */
    bool *ended;   /* [ranks] all actions have been walked */
};

static inline double larger(double a, double b) { return a > b ? a : b; }

/* ---- simulate.c ---- */

/* Walks ACTION, the next one of RANK. False: it has to wait for a message that has not been sent yet, or for its own
 * work. */
bool sl_walk_step(struct walk *walk, int rank, const struct sl_action *action);
/* After all actions of RANK: the next turn of the optimizer; false where there is none. */
bool sl_walk_update(struct walk *walk, int rank);

/* ---- cores.c ---- */

/* Walks the whole table. SL_FAILED without memory. */
int sl_cores_walk(struct walk *walk, struct sl_error *error);
void sl_cores_close(struct walk *walk);
/* PIECE's rank will do it when it has a core; its begin and end are set then. */
void sl_cores_queue(struct walk *walk, const struct piece *piece);
static inline bool sl_cores_busy(const struct walk *walk, int rank) {
    return walk->cores && walk->cores->first[rank] >= 0;
}

#endif
