/* spmd.h - one program text, run once at every coordinate of a mesh.
 *
 *     static int program(struct sl_spmd *self, void *arg) {
 *         printf("%d of %d\n", sl_axis_index(self, "model"), sl_axis_size(self, "model"));
 *         return SL_OK;
 *     }
 *     sl_run(&mesh, &engine, program, arg);
 */
#ifndef SL_SPMD_SPMD_H
#define SL_SPMD_SPMD_H

#include "spmd/mesh.h"

SL_BEGIN_C

struct sl_engine_table;

/* An engine as the user configures it. sl_engine_open (collectives/engines.h) fills one in. */
struct sl_engine {
    const struct sl_engine_table *table;
    double timeout;         /* seconds that an absent peer is waited for */
    bool checked;           /* calls carry and compare their signatures */
    double delay;           /* local: seconds that every call and message takes longer, as on a slow network */
    bool spare;             /* mpi: there may be more processes than coordinates; those beyond the mesh look on */
    struct sl_error *error; /* receives the verdict of a failed run; NULL: it is printed on stderr */
};

/* What a program knows of itself. One per coordinate, owned by the engine for the length of the run. */
struct sl_spmd {
    const struct sl_mesh *mesh;
    const struct sl_engine *engine;
    int coordinate;
    int device;            /* number of the device that it computes on, which the engine chooses; -1: the CPU */
    struct sl_error error; /* filled by sl_fail */
    void *queue;           /* compute queue whose work comes before communication; NULL on CPUs */
    bool timed;            /* the engine counts in `waited` */
    double waited;         /* seconds that communication calls have waited for peers */
    void *state;           /* the engine's own */
};

typedef int sl_program(struct sl_spmd *self, void *arg);

/* Runs PROGRAM at each coordinate and returns when all have returned; never exits. SL_OK when every coordinate returned
 * SL_OK. A status that one or more return ends the run for all: the others' communication calls return SL_FAILED at
 * once, and the run's verdict names the coordinate and its message. */
int sl_run(const struct sl_mesh *mesh, const struct sl_engine *engine, sl_program *program, void *arg);

/* Whether this process prints and writes files: all do but those that engine mpi has beside the first, which holds
 * coordinate 0. Once a run has failed, it is the one that knows why. */
bool sl_speaks(const struct sl_engine *engine);

/* Gives ERROR to whoever configured ENGINE: into engine->error, or as a line on stderr. Returns its status. */
int sl_report(const struct sl_engine *engine, const struct sl_error *error);

/* This coordinate's index along, and the size of, the axis called AXIS: 0 and 1 where the mesh has no such axis. */
int sl_axis_index(const struct sl_spmd *self, const char *axis);
int sl_axis_size(const struct sl_spmd *self, const char *axis);

/* Records why this coordinate cannot go on; returns STATUS, which the program then returns. Keeps the first message. */
int sl_fail(struct sl_spmd *self, int status, const char *format, ...) SL_PRINTF(3, 4);

/* Seconds on the monotonic clock. */
double sl_now(void);

SL_END_C
#endif
