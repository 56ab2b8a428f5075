/* trace_file.h - all coordinates' traces, written as a file of Chrome trace events.
 *
 * A process of that format is a pipeline. Its threads, which viewers show as rows, are coordinates with their compute,
 * communication, waiting and optimizer. The first process also has a row of steps with their losses.
 *
 * Further rows below a coordinate's row have events in parallel with it, as many rows as there are events at the same
 * time. These are: reductions over data; gathers of sharded parameters, where "unshard" lasts from the beginning of a
 * loop's gather to its end, "reshard" takes no time, and, if replicas read each other's memory, "gather" is the gather
 * of all loops before the first action; and, if products are computed piece by piece, pieces of a microbatch's rows,
 * where "multiply 2" is the product of piece 2, and "scatter 2" or "gather 2" lasts from the start of that piece's move
 * to its end.
 *
 * Times are microseconds since the first step or event. Each event's args name step, rank, stage, loop, microbatch,
 * count and data; if the mesh has more axes, also the number of its pipeline. If they are not 0, the args transfer and
 * no_core are parts of "dur" as layers/modules/calls/profile.h defines them. An arrow (phases "s" and "f", one id)
 * leads from each send to its take.
 *
 * Besides the events, "shardloop" has the schedule, the passes through it per step, the engine's delay of messages in
 * ms, the numbers of coordinates and of cores (0: unknown), and whether the engine divides waiting. */
#ifndef SL_LAYERS_TRAINING_TRACE_TRACE_FILE_H
#define SL_LAYERS_TRAINING_TRACE_TRACE_FILE_H

#include <stdio.h>

#include "spmd/schedule/schedule.h"
#include "spmd/trace.h"

SL_BEGIN_C

/* The recorded run. Everything it points to must outlive the file. */
struct sl_trace_run {
    const struct sl_mesh *mesh;
    const char *pipe_axis, *data_axis;  /* names; MESH may lack either */
    const struct sl_schedule *schedule; /* lowered */
    int passes;                         /* passes through the schedule per step */
    int64_t moves; /* most events of pieces of a microbatch's rows, per pass through all layers of a coordinate */
    int wgrad_group;
    bool overlap;    /* whether reductions run in parallel with compute */
    double delay_ms; /* the engine's delay of each message */
    int cores;       /* cores for the coordinates; 0: unknown */
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
    bool divided;               /* whether the engine divides waiting */
    int coordinates;
    struct sl_trace *trace; /* [coordinates] */
};

/* Allocates memory for STEPS steps, or for a sensible maximum. FILE is zero, or has been created. */
int sl_trace_file_open(struct sl_trace_file *file, const struct sl_trace_run *run, int64_t steps,
                       struct sl_error *error);
/* Opens PATH, the value of OPTION, and empties it, in the writing process. SL_BAD_INPUT if it cannot be opened. */
int sl_trace_file_create(struct sl_trace_file *file, const char *option, const char *path, struct sl_error *error);
/* The coordinate's own trace; starts recording. */
struct sl_trace *sl_trace_file_of(struct sl_trace_file *file, struct sl_spmd *self);
/* Records step NUMBER; steps for which there is no room are left out. */
void sl_trace_file_step(struct sl_trace_file *file, int64_t number, double begin, double end, double loss);
/* Writes and closes the file. */
int sl_trace_file_write(struct sl_trace_file *file, struct sl_error *error);
/* Frees the memory; also if nothing was opened. */
void sl_trace_file_free(struct sl_trace_file *file);

SL_END_C

#endif
