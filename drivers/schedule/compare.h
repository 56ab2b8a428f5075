/* compare.h - a training run's trace: what its schedule's actions cost, and where its time went.
 *
 * The trace is what a training driver's --trace writes. A step begins with the first event of any coordinate and ends
 * with the last one, and may pass through the schedule several times; all numbers are milliseconds, means over these
 * passes and over the mesh's pipelines. */
#ifndef SL_DRIVERS_SCHEDULE_COMPARE_H
#define SL_DRIVERS_SCHEDULE_COMPARE_H

#include "spmd/schedule/simulate.h"

/* Where a rank's time goes: every moment of a step belongs to one of them. */
enum schedule_part {
    SCHEDULE_PART_COMPUTE,
    SCHEDULE_PART_NOT_READY, /* these three as in layers/modules/profile.h */
    SCHEDULE_PART_TRANSFER,
    SCHEDULE_PART_NO_CORE,
    SCHEDULE_PART_COMMUNICATION, /* its own work on messages */
    SCHEDULE_PART_REDUCTION,     /* only what nothing else covers */
    SCHEDULE_PART_OPTIMIZER,
    SCHEDULE_PART_GATHERING, /* of parameters that are sharded over data: only what nothing else covers */
    SCHEDULE_PART_REST,
    SCHEDULE_PARTS
};
extern const char *const schedule_part_name[SCHEDULE_PARTS];

/* Of these, the three in which a rank does nothing. */
double schedule_waiting(const double part[SCHEDULE_PARTS]);

/* An event. */
struct schedule_record {
    enum schedule_part part; /* BUBBLE: waiting */
    char letter; /* compute: F B I W; communication: s(end), t(ake) or another one's; gathering: u(nshard), r(eshard),
                    or g(ather), of all loops before the first action */
    int step, pipeline, rank, loop;
    int stage, microbatch, count; /* stage -1: unknown, or none */
    double begin, end;            /* ms */
    double transfer, no_core;     /* parts of the time from begin to end */
    int turn;                     /* of an unshard: how many its rank's loop had in the step before */
    double
        together; /* of a reduction or an unshard: when all pipelines of the step had begun it; until then it waits */
    double updating; /* of a reduction: the optimizer's time within it */
};

struct schedule_trace {
    const char *path;
    /* What the trace says about its schedule; ranks 0: nothing. */
    char name[32];
    int ranks, loops, microbatches;
    int run;                /* microbatches of a forward and of an input gradient */
    bool ascends;           /* backwards came in ascending order (sl_schedule_ascend) */
    bool sharded;           /* parameters were sharded over data, and gathered ahead of use */
    int passes;             /* through it a step */
    bool overlap;           /* reductions beside compute */
    double delay;           /* ms by which the engine delayed each message */
    int coordinates, cores; /* 0: unknown */
    bool divided;           /* waiting, by the engine; otherwise all of it is "not ready" */
    int group;              /* microbatches of a weight-gradient product, told from the events */
    int count;
    struct schedule_record *record; /* once measured: of whole steps, sorted by step, pipeline, rank */
};

struct schedule_measured_rank {
    double part[SCHEDULE_PARTS];
    double bubble; /* share of the pipeline's compute span in which it does not compute */
};

struct schedule_measurement {
    int steps;
    double step, bubble;
    double gather;                       /* of all loops' parameters before the first action */
    struct schedule_measured_rank *rank; /* [ranks] */
};

/* Whether others of its rank may go on meanwhile. */
static inline bool schedule_is_beside(const struct schedule_record *record) {
    return record->part == SCHEDULE_PART_REDUCTION || record->part == SCHEDULE_PART_GATHERING;
}

/* Events of one step, pipeline or rank: records BEGIN to END - 1. */
struct schedule_range {
    int begin, end;
};

/* The records from BEGIN on, and before END, that are alike as far as KEYS says: step, pipeline, rank. */
struct schedule_range schedule_range_at(const struct schedule_trace *trace, int begin, int end, int keys);

/* SL_BAD_INPUT says where the file is wrong. Free with schedule_trace_free, also after a failure. */
int schedule_trace_read(struct schedule_trace *trace, const char *path, struct sl_error *error);
void schedule_trace_free(struct schedule_trace *trace);

/* Joins the microbatches of SCHEDULE, which has not been lowered, as they were in the run, and in the run's order.
 * SL_BAD_INPUT where SCHEDULE has no such runs. */
int schedule_trace_fuse(const struct schedule_trace *trace, struct sl_schedule *schedule, struct sl_error *error);

/* What each of the run's STAGES costs, whatever its schedule was: fills in COSTS and STAGE [stages]. SL_BAD_INPUT where
 * the trace is of another number of stages. */
int schedule_trace_costs(struct schedule_trace *trace, int stages, struct sl_costs *costs, struct sl_stage_costs *stage,
                         struct sl_error *error);

/* Means over all of TRACE's whole steps: costs (STAGE [stages]; communication: both ends' work on a message, and the
 * engine's delay) and parts. A rank's own
 * work costs what it takes with a core to itself: time without one is not in it. A reduction's cost is all of its time
 * but the optimizer's.
 * but the optimizer's, and so is a gather's, unless nobody waited for it: then it may have ended earlier.
 * SL_BAD_INPUT where the trace is not one of SCHEDULE. Free with schedule_measurement_free. */
int schedule_trace_measure(struct schedule_trace *trace, const struct sl_schedule *schedule, struct sl_costs *costs,
                           struct sl_stage_costs *stage, struct schedule_measurement *measurement,
                           struct sl_error *error);
/* The parts alone, of a trace that holds whole steps, in order. */
int schedule_trace_parts(const struct schedule_trace *trace, int ranks, struct schedule_measurement *measurement,
                         struct sl_error *error);
void schedule_measurement_free(struct schedule_measurement *measurement);

/* Every rank of SIMULATION begins MS later, which it spends on gathering parameters. */
void schedule_simulation_gathers(struct sl_simulation *simulation, double ms);

/* The same parts of a simulated rank, which has a core to itself; its communication takes it no time. */
void schedule_simulated_parts(const struct sl_simulation *simulation, int rank, double part[SCHEDULE_PARTS]);

#endif
