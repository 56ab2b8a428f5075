/* gathers.h - kernels sharded over data (FSDP), gathered a loop at a time before their use.
 *
 * During planning a module adds its kernel and receives a number; in a call it requests the whole kernel by this
 * number. Gathers follow the schedule's UNSHARD and RESHARD: there is memory for as many loops as the table gathers at
 * once, UNSHARD starts a loop's gathers, which run while other loops compute, and the loop's first use waits for them.
 * The gathers have a group of their own, so modules may communicate over data meanwhile.
 *
 * If coordinates read their peers' memory, the members of data hold all gathered kernels together, in memory that all
 * of them read; each counts its part of this memory. Float32 kernels are always in it (sl_parameters.wholes), and no
 * data is moved. bf16 kernels are gathered there before a step: every member writes its shards. */
#ifndef SL_LAYERS_MODULES_PARAMETERS_GATHERS_H
#define SL_LAYERS_MODULES_PARAMETERS_GATHERS_H

#include "layers/modules/parameters/parameters.h"

SL_BEGIN_C

struct sl_gathered {
    int loop, parameter;
    size_t rows, columns; /* rows and columns of the whole kernel; its columns are sharded */
    enum sl_dtype dtype;
    size_t offset; /* bytes from the beginning of its loop's memory or, for kernels held together, of all kernels'
                      memory */
};

struct sl_gathers {
    const char *axis; /* axis of the shards */
    bool together;    /* the members hold the kernels together */
    bool wholes;      /* if so: the parameters' values are in this memory (sl_parameters.wholes) */
    int frames;       /* otherwise: loops that have memory at once */
    size_t most;      /* size limit in bytes of a whole kernel; modules gather larger kernels for each use */
    int count, capacity;
    struct sl_gathered *list; /* in the order of loops */
    int loops;
    size_t *used;       /* [loops] bytes of the loop's kernels */
    size_t frame_bytes; /* the largest of `used` */
    struct sl_group group;
    char *memory; /* [frames, frame_bytes]; memory held together belongs to the group */
    const struct sl_parameters *parameters;
    int *frame;    /* [loops] frame of the loop, or -1 */
    int *left;     /* [loops] unfinished gathers of the loop */
    double *began; /* [loops] start time of its gathers, in seconds on sl_now's clock; the caller may set it to 0 */
    /* Ring [count] of kernels to gather, and the numbers of requested, started and finished gathers. */
    int *queue;
    int asked, started, ended;
    struct sl_request request[SL_MAX_IN_FLIGHT];
};

/* Prepares for a model of LOOPS loops, with memory for FRAMES loops at a time, and for kernels of any size. WHOLES is
 * the parameters' flag. Collective over the mesh. Free with sl_gathers_close, also after a failure. */
int sl_gathers_plan(struct sl_gathers *gathers, struct sl_spmd *self, const char *axis, int loops, int frames,
                    bool wholes);
/* Returns whether a module should add a kernel [ROWS, COLUMNS] of DTYPE, or else gather it for each use. */
bool sl_gathers_take(const struct sl_gathers *gathers, size_t rows, size_t columns, enum sl_dtype dtype);
/* Adds the kernel [ROWS, COLUMNS] of LOOP, read as DTYPE; PARAMETER is its shard. Loops come in ascending order.
 * Returns its number, or -1 if there is no memory. */
int sl_gathers_add(struct sl_gathers *gathers, int loop, int parameter, size_t rows, size_t columns,
                   enum sl_dtype dtype);
/* Bytes allocated by sl_gathers_open on this coordinate. */
size_t sl_gathers_bytes(const struct sl_gathers *gathers);
/* Allocates the memory, and counts it in HELD. PARAMETERS must have their memory. Collective over data. */
int sl_gathers_open(struct sl_gathers *gathers, struct sl_spmd *self, const struct sl_parameters *parameters,
                    struct sl_budget *held);
void sl_gathers_close(struct sl_gathers *gathers, struct sl_spmd *self);

/* Call it before the first use of changed values. Collective over data. */
int sl_gathers_begin(struct sl_gathers *gathers, struct sl_spmd *self);
/* Carry out UNSHARD (start) and RESHARD (drop) of LOOP. */
int sl_gathers_start(struct sl_gathers *gathers, struct sl_spmd *self, int loop);
int sl_gathers_drop(struct sl_gathers *gathers, struct sl_spmd *self, int loop);
/* Does all work possible without waiting. */
int sl_gathers_advance(struct sl_gathers *gathers, struct sl_spmd *self);
/* Waits until the kernels of LOOP are gathered. */
int sl_gathers_wait(struct sl_gathers *gathers, struct sl_spmd *self, int loop);
/* Drops all loops. */
int sl_gathers_end(struct sl_gathers *gathers, struct sl_spmd *self);
/* Kernel NUMBER [rows, columns], after its loop's gathers. */
const void *sl_gathered_kernel(const struct sl_gathers *gathers, int number);

SL_END_C
#endif
