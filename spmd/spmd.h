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
#include "spmd/traffic.h"

SL_BEGIN_C

struct sl_engine_table;
struct sl_lists;
struct sl_signature;
struct sl_waits;

/* An engine as the user configures it. sl_engine_open (collectives/engines.h) fills in the fields. */
struct sl_engine {
    const struct sl_engine_table *table;
    double timeout;         /* seconds to wait for an absent peer */
    bool checked;           /* members of a group compare their calls before data moves */
    double delay;           /* local: seconds by which every call and message is delayed, as on a slow network */
    bool recorded;          /* received data is recorded (collectives/replay), so coordinates do not read their
                               peers' memory */
    bool spare;             /* mpi: there may be more processes than coordinates; processes beyond the mesh run
                               nothing */
    struct sl_error *error; /* receives the verdict of a failed run; NULL: it is printed on stderr */
    /* Seconds; engine local only. If a run has ended and a coordinate's program does not return, the engine reports it
     * on stderr with the verdict: one second after a verdict on a wait, `timeout` after any other verdict. `grace`
     * seconds after this report the process ends with the run's status; 0: sl_run waits for the coordinate. */
    double grace;
    struct sl_waits *waits; /* receives the waits for peers if they end a run (collectives/waits.h); NULL: not
                               written */
    /* Further entries on which all processes of a run must agree (spmd/signature.h). The engine signs build and mesh by
     * itself. NULL: no further entries. */
    const struct sl_signature *signature;
};

/* The current activity of a coordinate, for verdicts. A walk over a schedule sets it before each action; modules set
 * `module` while they are called. The module's name lives only as long as the module: a copy of this struct for later
 * needs a copy of the name. */
struct sl_doing {
    const char *what;              /* "forward"; NULL: not set */
    int stage, microbatch, action; /* the action's number in its rank's schedule, from 0 */
    int64_t steps;                 /* begun training steps; 0: none */
    const char *module;            /* the innermost module being called, "blocks.3.up (dense)"; NULL:
                                      none */
};

/* A program's view of its coordinate. The engine owns one struct per coordinate while the run lasts. */
struct sl_spmd {
    const struct sl_mesh *mesh;
    const struct sl_engine *engine;
    int coordinate;
    int device;            /* device number, chosen by the engine; -1: the CPU */
    struct sl_error error; /* filled in by sl_fail */
    void *queue;           /* compute queue; its work precedes communication; NULL on CPUs */
    /* Set `timed` to count the seconds in which communication calls wait for peers (`waited`) and the CPU seconds of
     * these waits (`waited_cpu`). If the engine sets `divides`, it also splits `waited`: `transferred` are seconds in
     * which the awaited data was on its way, `starved` seconds in which this coordinate or its peer was ready to run
     * but had no core. In the rest the peer had not reached its part of the call. */
    bool timed, divides;
    double waited, waited_cpu, transferred, starved;
    /* [SL_TRAFFIC_KINDS]: engine mpi counts messages here: an entry for each operation of collectives, then one for
     * channels. NULL: nothing is counted. */
    struct sl_traffic *sent;
    struct sl_budget held; /* bytes this coordinate has allocated, as far as the allocating code counts
                              them */
    struct sl_doing doing;
    struct sl_lists *lists; /* used by sl_run: lists of the groups' members */
    void *state;            /* the engine's own state */
    void *above;            /* state of an engine built on that engine */
};

/* A program. Returns SL_OK, or the status of its failure. */
typedef int sl_program(struct sl_spmd *self, void *arg);

/* Runs PROGRAM at each coordinate, and returns when all have returned; it never exits. SL_OK if PROGRAM returned SL_OK
 * at every coordinate. Any other status ends the run for all: communication calls of the other coordinates return
 * SL_FAILED at once, and the run's verdict names the coordinate and its message. ARG is passed on to PROGRAM. */
int sl_run(const struct sl_mesh *mesh, const struct sl_engine *engine, sl_program *program, void *arg);

/* Whether this process should print and write files. If a launcher has started several processes, only one should: the
 * process of coordinate 0; after a failed run, the process with the verdict. */
bool sl_speaks(const struct sl_engine *engine);
/* Whether this process should report an error. Before its first run, a process reports errors even if sl_speaks is
 * false: the other processes may not know the error. */
bool sl_reports(const struct sl_engine *engine);

/* Delivers ERROR to the user of ENGINE: in engine->error, or as a line on stderr. Returns its status. */
int sl_report(const struct sl_engine *engine, const struct sl_error *error);

/* This coordinate's index along AXIS; 0 if the mesh has no such axis. */
int sl_axis_index(const struct sl_spmd *self, const char *axis);
/* The size of AXIS; 1 if the mesh has no such axis. */
int sl_axis_size(const struct sl_spmd *self, const char *axis);

/* Records why this coordinate cannot go on. Returns STATUS, which the program should return in turn. The first message
 * stays: later calls do not replace it. */
int sl_fail(struct sl_spmd *self, int status, const char *format, ...) SL_PRINTF(3, 4);

/* Seconds on the monotonic clock. */
double sl_now(void);
/* CPU seconds of the calling thread. */
double sl_cpu_now(void);

/* Seconds for which this coordinate's thread was ready to do its own work but had no core. The count begins at an
 * arbitrary moment and ends at NOW; CPU are the thread's CPU seconds at NOW; only differences of two results have a
 * meaning. 0 for a coordinate with a device: its thread sleeps while the device computes.
 *
 * A thread at the end of its time slice often loses its core while it asks for its CPU seconds. If sl_now() is read
 * first, this pause is counted after NOW, otherwise before NOW. */
static inline double sl_starved_at_work(const struct sl_spmd *self, double now, double cpu) {
    return self->device >= 0 ? 0 : now - self->waited - (cpu - self->waited_cpu);
}

SL_END_C
#endif
