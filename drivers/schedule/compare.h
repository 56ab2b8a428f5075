/* compare.h - a training run's trace: what its schedule's actions cost, and where its time went.
 *
 * The trace is what looping_pipeline --trace writes. A step begins with the first event of any coordinate and ends with
 * the last one; all numbers are milliseconds, means over steps and over the pipelines along the data axis. */
#ifndef SL_DRIVERS_SCHEDULE_COMPARE_H
#define SL_DRIVERS_SCHEDULE_COMPARE_H

#include "spmd/schedule/simulate.h"

/* Where a rank's time goes: every moment of a step belongs to one of them. */
enum sl_part {
    SL_PART_COMPUTE,
    SL_PART_WAITING,
    SL_PART_COMMUNICATION, /* its own work on messages */
    SL_PART_REDUCTION,     /* only what nothing else covers */
    SL_PART_OPTIMIZER,
    SL_PART_REST,
    SL_PARTS
};
extern const char *const sl_part_name[SL_PARTS];

struct sl_trace_record; /* an event, opaque */

struct sl_run_trace {
    const char *path;
    /* What the trace says about its schedule; ranks 0: nothing. */
    char name[32];
    int ranks, loops, microbatches;
    bool overlap; /* reductions beside compute */
    int group;    /* microbatches of a weight-gradient product, told from the events */
    int count;
    struct sl_trace_record *record;
};

struct sl_measured_rank {
    double part[SL_PARTS];
    double bubble; /* idle share of the pipeline's compute span */
};

struct sl_measurement {
    int steps;
    double step, bubble;
    struct sl_measured_rank *rank; /* [ranks] */
};

/* SL_BAD_INPUT says where the file is wrong. Free with sl_run_trace_free, also after a failure. */
int sl_run_trace_read(struct sl_run_trace *trace, const char *path, struct sl_error *error);
void sl_run_trace_free(struct sl_run_trace *trace);

/* What each of the run's STAGES costs, whatever its schedule was: fills in COSTS and STAGE [stages]. SL_BAD_INPUT where
 * the trace is of another number of stages. */
int sl_run_trace_costs(struct sl_run_trace *trace, int stages, struct sl_costs *costs, struct sl_stage_costs *stage,
                       struct sl_error *error);

/* Means over all of TRACE's whole steps: costs (STAGE [stages]; communication: both ends' work on a message) and parts.
 * SL_BAD_INPUT where the trace is not one of SCHEDULE. Free with sl_measurement_free. */
int sl_run_trace_measure(struct sl_run_trace *trace, const struct sl_schedule *schedule, struct sl_costs *costs,
                         struct sl_stage_costs *stage, struct sl_measurement *measurement, struct sl_error *error);
void sl_measurement_free(struct sl_measurement *measurement);

/* The same parts of a simulated rank; its communication and optimizer take it no time. */
void sl_simulated_parts(const struct sl_simulation *simulation, int rank, double part[SL_PARTS]);

#endif
