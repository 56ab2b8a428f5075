/* gathers.h - kernels that are sharded over data (FSDP), gathered a loop at a time, ahead of their use.
 *
 * While it is planned, a module adds its kernel, and is given a number; in a call it asks for the whole kernel. What
 * happens between the two follows the schedule's UNSHARD and RESHARD: there is room for so many loops as the table
 * gathers at once, UNSHARD starts a loop's gathers, which go on while other loops compute, and the loop's first use
 * waits for them. The gathers have a group of their own, so that modules may communicate over data meanwhile.
 *
 * Where coordinates read their peers' memory, the members of data hold all gathered kernels together, in memory that
 * all of them read: each counts its part of it. Kernels of floats lie there always (sl_parameters.wholes), and nothing
 * is moved. Of bf16, every member lays its shards down there before a step. */
#ifndef SL_LAYERS_MODULES_PARAMETERS_GATHERS_H
#define SL_LAYERS_MODULES_PARAMETERS_GATHERS_H

#include "layers/modules/parameters/parameters.h"

SL_BEGIN_C

struct sl_gathered {
    int loop, parameter;
    size_t rows, columns; /* of the whole kernel; its columns are sharded */
    enum sl_dtype dtype;
    size_t offset; /* bytes from the beginning of its loop's room; of all kernels' if they are held together */
};

struct sl_gathers {
    const char *axis; /* whose coordinates have the shards */
    bool together;    /* the members hold the kernels together, */
    bool wholes;      /* and their values lie there (sl_parameters.wholes) */
    int frames;       /* loops that have room at once, otherwise */
    size_t most;      /* bytes of a whole kernel; modules gather larger ones for each use */
    int count, capacity;
    struct sl_gathered *list; /* by loop */
    int loops;
    size_t *used;       /* [loops] bytes of the loop's kernels */
    size_t frame_bytes; /* the most of those */
    struct sl_group group;
    char *memory; /* [frames, frame_bytes]; what is held together is the group's */
    const struct sl_parameters *parameters;
    int *frame;    /* [loops] its room, or -1 */
    int *left;     /* [loops] its gathers that have not ended */
    double *began; /* [loops] when they were started, in seconds on sl_now's clock; the caller may set it to 0 */
    /* Kernels to be gathered, as a ring [count]: numbers of those that were asked for, started, ended. */
    int *queue;
    int asked, started, ended;
    struct sl_request request[SL_MAX_IN_FLIGHT];
};

/* Prepares for a model of LOOPS loops, of which FRAMES at once have room, and for kernels of any size. WHOLES is that
 * of the parameters. Collective over the mesh. Free with sl_gathers_close, also after a failure. */
int sl_gathers_plan(struct sl_gathers *gathers, struct sl_spmd *self, const char *axis, int loops, int frames,
                    bool wholes);
/* Whether kernels [ROWS, COLUMNS] of DTYPE are to be added. */
bool sl_gathers_take(const struct sl_gathers *gathers, size_t rows, size_t columns, enum sl_dtype dtype);
/* Adds the kernel [ROWS, COLUMNS] of LOOP whose shard PARAMETER is, and which is read as DTYPE; loops come in ascending
 * order. Returns its number; -1 without memory. */
int sl_gathers_add(struct sl_gathers *gathers, int loop, int parameter, size_t rows, size_t columns,
                   enum sl_dtype dtype);
/* Bytes that sl_gathers_open will take on this coordinate. */
size_t sl_gathers_bytes(const struct sl_gathers *gathers);
/* Takes the memory, and counts it in HELD. PARAMETERS have theirs. Collective over data. */
int sl_gathers_open(struct sl_gathers *gathers, struct sl_spmd *self, const struct sl_parameters *parameters,
                    struct sl_budget *held);
void sl_gathers_close(struct sl_gathers *gathers, struct sl_spmd *self);

/* Before the first use of values that have changed. Collective over data. */
int sl_gathers_begin(struct sl_gathers *gathers, struct sl_spmd *self);
/* UNSHARD and RESHARD of LOOP. */
int sl_gathers_start(struct sl_gathers *gathers, struct sl_spmd *self, int loop);
int sl_gathers_drop(struct sl_gathers *gathers, struct sl_spmd *self, int loop);
/* Does what can be done without waiting. */
int sl_gathers_advance(struct sl_gathers *gathers, struct sl_spmd *self);
/* Waits until the kernels of LOOP are there. */
int sl_gathers_wait(struct sl_gathers *gathers, struct sl_spmd *self, int loop);
/* Drops all loops. */
int sl_gathers_end(struct sl_gathers *gathers, struct sl_spmd *self);
/* Kernel NUMBER [rows, columns], once its loop's are there. */
const void *sl_gathered_kernel(const struct sl_gathers *gathers, int number);

SL_END_C
#endif
