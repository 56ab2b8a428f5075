/* trace_file.h - all coordinates' traces, and the file of Chrome trace events that becomes of them.
 *
 * A process of that format is a pipeline, and a thread of it, which is a row, a coordinate with its compute,
 * communication, waiting and optimizer. Rows below it have its reductions over data, which run beside them: as many as
 * are under way at a time. The first process has a row of steps with their losses. Times are microseconds since the
 * first step that is recorded. Each event's args name step, rank, stage, loop, microbatch, count and data; where the
 * mesh has more axes, also the number of its pipeline; transfer and no_core are the parts of "dur" that
 * modules/profile.h calls so, where they are not 0. An arrow (phases "s" and "f", one id) leads from each send to its
 * take. Gathers of sharded parameters have such rows, too: "unshard" lasts from the beginning of a loop's gather to its
 * end, "reshard" takes no time, and "gather" is that of all loops before the first action, where replicas read each
 * other's memory. "shardloop" beside the events tells the schedule, how many passes through it a step has, the engine's
 * delay of messages in ms, how many coordinates there were on how many cores (0: unknown), and whether the engine
 * divides waiting. */
#ifndef SL_LAYERS_TRAINING_TRACE_FILE_H
#define SL_LAYERS_TRAINING_TRACE_FILE_H

#include <stdio.h>

#include "layers/training/trace.h"
#include "spmd/schedule/schedule.h"

SL_BEGIN_C

/* The run that is recorded. What it points to outlives the file. */
struct sl_trace_run {
    const struct sl_mesh *mesh;
    const char *pipe_axis, *data_axis;  /* names; MESH may lack either */
    const struct sl_schedule *schedule; /* lowered */
    int passes;                         /* through it, a step */
    int wgrad_group;
    bool overlap;    /* reductions beside compute */
    double delay_ms; /* of each message, by the engine */
    int cores;       /* that the coordinates may use; 0: unknown */
};

struct sl_trace_step {
    int64_t number;
    double begin, end; /* on sl_now's clock */
    double loss;
};

struct sl_trace_file {
    struct sl_trace_run run;
    const char *path;
    FILE *stream;
    int capacity, steps;
    struct sl_trace_step *step; /* [capacity] */
    bool divided;               /* waiting, by the engine */
    int coordinates;
    struct sl_trace *trace; /* [coordinates] */
};

/* Takes memory for STEPS steps, or for as many as are sensible. FILE is zero, or has been created. */
int sl_trace_file_open(struct sl_trace_file *file, const struct sl_trace_run *run, int64_t steps,
                       struct sl_error *error);
/* Opens PATH, which OPTION names and which loses its contents, in the process that will write it. SL_BAD_INPUT where it
 * cannot be opened. */
int sl_trace_file_create(struct sl_trace_file *file, const char *option, const char *path, struct sl_error *error);
/* The coordinate's own trace, on which it begins to record. */
struct sl_trace *sl_trace_file_of(struct sl_trace_file *file, struct sl_spmd *self);
/* Records step NUMBER; later ones are left out where there is no room. */
void sl_trace_file_step(struct sl_trace_file *file, int64_t number, double begin, double end, double loss);
/* Writes and closes the file. */
int sl_trace_file_write(struct sl_trace_file *file, struct sl_error *error);
/* Gives the memory back; also where nothing was opened. */
void sl_trace_file_free(struct sl_trace_file *file);

SL_END_C

#endif
