/* trace_file.h - all coordinates' traces, and the file of Chrome trace events that becomes of them.
 *
 * A process of that format is a pipeline, and a thread of it, which is a row, a coordinate with its compute,
 * communication, waiting and optimizer. Rows below it have its reductions over data, which run beside them: as many as
 * are under way at a time. The first process has a row of steps with their losses. Times are microseconds since the
 * first step that is recorded. Each event's args name step, rank, stage, loop, microbatch, count and data; where the
 * mesh has more axes, also the number of its pipeline. An arrow (phases "s" and "f", one id) leads from each send to
 * its take. "shardloop" beside the events tells the schedule, and how many passes through it a step has. */
#ifndef SL_DRIVERS_TRAINING_TRACE_FILE_H
#define SL_DRIVERS_TRAINING_TRACE_FILE_H

#include <stdio.h>

#include "drivers/training/job.h"
#include "layers/training/trace.h"

struct sl_trace_step {
    int64_t number;
    double begin, end; /* on sl_now's clock */
    double loss;
};

struct sl_trace_file {
    const char *path;
    FILE *stream;
    int capacity, steps;
    struct sl_trace_step *step; /* [capacity] */
    struct sl_trace trace[SL_MAX_COORDINATES];
};

/* Takes memory for STEPS steps, or for as many as are sensible. */
int sl_trace_file_open(struct sl_trace_file *file, const struct sl_job *job, int64_t steps, struct sl_error *error);
/* Opens PATH, which loses its contents, in the process that will write it. */
int sl_trace_file_create(struct sl_trace_file *file, const char *path, struct sl_error *error);
/* The coordinate's own trace, on which it begins to record. */
struct sl_trace *sl_trace_file_of(struct sl_trace_file *file, struct sl_spmd *self);
/* Records step NUMBER; later ones are left out where there is no room. */
void sl_trace_file_step(struct sl_trace_file *file, int64_t number, double begin, double end, double loss);
/* Writes and closes the file. */
int sl_trace_file_write(struct sl_trace_file *file, const struct sl_job *job, struct sl_error *error);
/* Gives the memory back; also where nothing was opened. */
void sl_trace_file_free(struct sl_trace_file *file);

#endif
