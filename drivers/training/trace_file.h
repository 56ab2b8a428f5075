/* trace_file.h - all coordinates' traces, and the file of Chrome trace events that becomes of them.
 *
 * A row a coordinate holds its compute, communication, waiting and optimizer; a second one its reductions over data,
 * which run beside them. Times are microseconds since the first event. Each event's args name step, rank, stage, loop,
 * microbatch, count and data; where the mesh has more axes, also the number of its pipeline; transfer and no_core are
 * the parts of "dur" that modules/profile.h calls so, where they are not 0. "shardloop" beside the events tells the
 * schedule, how many passes through it a step has, the engine's delay of messages in ms, how many coordinates there
 * were on how many cores (0: unknown), and whether the engine divides waiting. */
#ifndef SL_DRIVERS_TRAINING_TRACE_FILE_H
#define SL_DRIVERS_TRAINING_TRACE_FILE_H

#include <stdio.h>

#include "drivers/training/job.h"
#include "layers/training/trace.h"

struct sl_trace_file {
    const char *path;
    FILE *stream;
    bool divided; /* waiting, by the engine */
    struct sl_trace trace[SL_MAX_COORDINATES];
};

/* Takes memory for STEPS steps, or for as many as are sensible. */
int sl_trace_file_open(struct sl_trace_file *file, const struct sl_job *job, int64_t steps, struct sl_error *error);
/* Opens PATH, which loses its contents, in the process that will write it. */
int sl_trace_file_create(struct sl_trace_file *file, const char *path, struct sl_error *error);
/* The coordinate's own trace, on which it begins to record. */
struct sl_trace *sl_trace_file_of(struct sl_trace_file *file, struct sl_spmd *self);
/* Writes and closes the file. */
int sl_trace_file_write(struct sl_trace_file *file, const struct sl_job *job, struct sl_error *error);
/* Gives the memory back; also where nothing was opened. */
void sl_trace_file_free(struct sl_trace_file *file);

#endif
