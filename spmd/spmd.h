/* spmd.h - one program, run at every coordinate of a mesh.
 *
 *     static int program(struct sl_spmd *self, void *arg) {
 *         printf("%d of %d\n", sl_axis_index(self, "model"), sl_axis_size(self, "model"));
 *         return SL_OK;
 *     }
 *     sl_run(&mesh, &engine, program, arg); */
#ifndef SL_SPMD_SPMD_H
#define SL_SPMD_SPMD_H

#include "spmd/base/budget.h"
#include "spmd/mesh.h"

SL_BEGIN_C

struct sl_engine_table;
struct sl_lists;
struct sl_signature;
struct sl_waits;

/* An engine as the user configures it. sl_engine_open (collectives/engines.h) fills in the fields. */
struct sl_engine {
    const struct sl_engine_table *table;
    double timeout;         /* seconds for which an absent peer is waited for */
    bool checked;           /* members of a group compare their calls before data moves */
    double delay;           /* local: seconds by which every call and message is delayed, as on a slow network */
    bool recorded;          /* what coordinates receive is kept (collectives/replay): none reads its peers' memory */
    bool spare;             /* mpi: there may be more processes than coordinates; those beyond the mesh run nothing */
    struct sl_error *error; /* receives the verdict of a failed run; NULL: it is printed on stderr */
    /* Seconds. Where a run has ended and a coordinate's program does not return, engine local says so on stderr, with
     * the verdict: a second after a verdict on a wait, `timeout` after any other. So long after that the process ends
     * with the run's status; 0: sl_run waits for the coordinate. */
    double grace;
    struct sl_waits *waits; /* receives who waits for whom where that ends a run (collectives/waits.h); NULL: nothing */
    /* What processes that start a run together have to agree on, besides what the engine signs itself
     * (spmd/signature.h); NULL: nothing. */
    const struct sl_signature *signature;
};

/* What a coordinate is at, for verdicts: whoever walks a schedule says so before each action, and modules while they
 * are called. Who notes it for later copies the module's name, which lives no longer than the module. */
struct sl_doing {
    const char *what;              /* "forward"; NULL: nobody has said */
    int stage, microbatch, action; /* the action's number in its rank's schedule, from 0 */
    int64_t steps;                 /* of training that have begun; 0: none */
    const char *module;            /* the innermost one that is being called, "blocks.3.up (dense)"; NULL: none */
};

/* What a program knows of its coordinate. The engine owns one for each coordinate while the run lasts. */
struct sl_spmd {
    const struct sl_mesh *mesh;
    const struct sl_engine *engine;
    int coordinate;
    int device;            /* number of its device, which the engine chooses; -1: the CPU */
    struct sl_error error; /* filled in by sl_fail */
    void *queue;           /* compute queue, whose work precedes communication; NULL on CPUs */
    /* Set `timed` to let the engine count for how many seconds communication calls have waited for peers (`waited`),
     * and how many CPU seconds that has cost (`waited_cpu`). An engine that `divides` also counts for how long, of
     * `waited`, what a call waited for was on its way (`transferred`), and for how long this coordinate or the peer was
     * ready to run and had no core (`starved`); in the rest of `waited` the peer had not come so far. */
    bool timed, divides;
    double waited, waited_cpu, transferred, starved;
    struct sl_budget held; /* memory that this coordinate has taken, where those who take it count */
    struct sl_doing doing;
    struct sl_lists *lists; /* sl_run's own: of the groups' members */
    void *state;            /* the engine's own */
};

/* A program. Returns SL_OK, or the status with which it cannot go on. */
typedef int sl_program(struct sl_spmd *self, void *arg);

/* Runs PROGRAM at each coordinate, and returns when all have returned; it never exits. SL_OK if PROGRAM returned SL_OK
 * at every coordinate. Any other status ends the run for all: communication calls of the other coordinates return
 * SL_FAILED at once, and the run's verdict names the coordinate and its message. ARG is passed on to PROGRAM. */
int sl_run(const struct sl_mesh *mesh, const struct sl_engine *engine, sl_program *program, void *arg);

/* SL_BAD_INPUT, with the engine's limit, where a run on ENGINE cannot have so many COORDINATES. sl_run checks it. */
int sl_engine_holds(const struct sl_engine *engine, int coordinates, struct sl_error *error);

/* Whether this process should print and write files. If a launcher has started several processes, only the one that
 * holds coordinate 0 should; after a run that has failed, the one that knows the verdict. */
bool sl_speaks(const struct sl_engine *engine);
/* Whether this process should say what has gone wrong. Also one that does not speak should, before its first run: the
 * others may not know. */
bool sl_reports(const struct sl_engine *engine);

/* Delivers ERROR to the user of ENGINE: in engine->error, or as a line on stderr. Returns its status. */
int sl_report(const struct sl_engine *engine, const struct sl_error *error);

/* This coordinate's index along AXIS; 0 if the mesh has no such axis. */
int sl_axis_index(const struct sl_spmd *self, const char *axis);
/* The size of AXIS; 1 if the mesh has no such axis. */
int sl_axis_size(const struct sl_spmd *self, const char *axis);

/* Records why this coordinate cannot go on. Returns STATUS, which the program should return in turn. If there is a
 * message already, it is kept. */
int sl_fail(struct sl_spmd *self, int status, const char *format, ...) SL_PRINTF(3, 4);

/* Seconds on the monotonic clock. */
double sl_now(void);
/* CPU seconds of the calling thread. */
double sl_cpu_now(void);

/* Seconds for which this coordinate's thread was at its own work, ready to run, and had no core, from some moment until
 * NOW, when it had used CPU seconds: differences count. The thread of a coordinate with a device sleeps while that
 * computes: there it is 0.
 *
 * A thread whose time is up often loses its core when it asks for its CPU seconds. Which clock is read first decides
 * where that pause belongs: it comes after NOW where NOW is sl_now() from before, and before it otherwise. */
static inline double sl_starved_at_work(const struct sl_spmd *self, double now, double cpu) {
    return self->device >= 0 ? 0 : now - self->waited - (cpu - self->waited_cpu);
}

SL_END_C
#endif
