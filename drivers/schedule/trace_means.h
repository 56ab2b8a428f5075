/* trace_means.h - reads a training run's trace: costs of its schedule's actions, and parts of its time.
 *
 * A training driver writes the trace with --trace. A step begins with the first event of any coordinate and ends
 * with the last one, and may have several passes through the schedule; all numbers are milliseconds, means over
 * these passes and over the mesh's pipelines. */
#ifndef SL_DRIVERS_SCHEDULE_TRACE_MEANS_H
#define SL_DRIVERS_SCHEDULE_TRACE_MEANS_H

#include "spmd/schedule/simulate.h"

/* Parts of a rank's time: every moment of a step belongs to one of them. */
enum schedule_part {
    SCHEDULE_PART_COMPUTE,
    SCHEDULE_PART_NOT_READY, /* these three as in layers/modules/calls/profile.h */
    SCHEDULE_PART_TRANSFER,
    SCHEDULE_PART_NO_CORE,
    SCHEDULE_PART_COMMUNICATION, /* the rank's own work on messages */
    SCHEDULE_PART_REDUCTION,     /* only time not covered by other parts */
    SCHEDULE_PART_OPTIMIZER,
    SCHEDULE_PART_GATHERING, /* of parameters sharded over data: only time not covered by other parts */
    SCHEDULE_PART_REST,
    SCHEDULE_PARTS
};
extern const char *const schedule_part_name[SCHEDULE_PARTS];

/* Returns the sum of the three parts in which a rank does nothing. */
double schedule_waiting(const double part[SCHEDULE_PARTS]);

/* An event. */
struct schedule_record {
    enum schedule_part part; /* BUBBLE: waiting */
    char letter;             /* compute: F B I W; communication: s(end), t(ake) or another one's; gathering: u(nshard),
                              * r(eshard), or g(ather), of all loops before the first action */
    int step, pipeline, rank, loop;
    int stage, microbatch, count; /* stage -1: unknown, or none */
    double begin, end;            /* ms */
    double transfer, no_core;     /* parts of the time from begin to end */
    int turn;                     /* of an unshard: number of earlier unshards of its rank's loop in the step */
    double together; /* of a reduction or an unshard: time when all pipelines of the step had begun it; until then it
                      * waits */
    double updating; /* of a reduction: the optimizer's time within it */
};

struct schedule_trace {
    const char *path;
    /* From the trace's description of its schedule; ranks 0: it has none. */
    char name[32];
    int ranks, loops, microbatches;
    int run;                /* microbatches of a forward and of an input gradient */
    bool ascends;           /* backwards are in ascending order (sl_schedule_ascend) */
    bool sharded;           /* parameters were sharded over data, and gathered before use */
    int passes;             /* passes through the schedule per step */
    bool overlap;           /* reductions overlap with compute */
    double delay;           /* ms by which the engine delayed each message */
    int coordinates, cores; /* 0: unknown */
    bool divided;           /* waiting is divided into parts by the engine; otherwise all of it is "not ready" */
    int group;              /* microbatches of a weight-gradient product, derived from the events */
    int count;
    struct schedule_record *record; /* after measuring: only events of complete steps, sorted by step, pipeline, rank */
};

struct schedule_measured_rank {
    double part[SCHEDULE_PARTS];
    double bubble; /* of the time from the pipeline's first compute to its last, the share in which the rank does not
                    * compute */
};

struct schedule_measurement {
    int steps;
    double step, bubble;
    double gather;                       /* time in which all loops' parameters are gathered before the first action */
    struct schedule_measured_rank *rank; /* [ranks] */
};

/* Whether other events of its rank may overlap with RECORD. */
static inline bool schedule_is_beside(const struct schedule_record *record) {
    return record->part == SCHEDULE_PART_REDUCTION || record->part == SCHEDULE_PART_GATHERING;
}

/* Events of one step, pipeline or rank: records BEGIN to END - 1. */
struct schedule_range {
    int begin, end;
};

/* Returns the records from BEGIN on, and before END, with equal KEYS: step, pipeline, rank. */
struct schedule_range schedule_range_at(const struct schedule_trace *trace, int begin, int end, int keys);

/* Reads the trace. SL_BAD_INPUT names the mistake in the file. Free with schedule_trace_free, also after a failure. */
int schedule_trace_read(struct schedule_trace *trace, const char *path, struct sl_error *error);
void schedule_trace_free(struct schedule_trace *trace);

/* Joins the microbatches of SCHEDULE, which is not lowered yet, and orders them, as in the traced run. SL_BAD_INPUT
 * if SCHEDULE has no such runs of microbatches. */
int schedule_trace_fuse(const struct schedule_trace *trace, struct sl_schedule *schedule, struct sl_error *error);

/* Computes the costs of each of the traced run's STAGES, independent of its schedule: fills in COSTS and STAGE
 * [stages]. SL_BAD_INPUT if the trace has another number of stages. */
int schedule_trace_costs(struct schedule_trace *trace, int stages, struct sl_costs *costs, struct sl_stage_costs *stage,
                         struct sl_error *error);

/* Computes means over all complete steps of TRACE: COSTS with STAGE [stages], and the parts of MEASUREMENT. The cost of
 * communication is both ends' work on a message plus the engine's delay. The cost of a rank's own work excludes time
 * without a core. Reductions and gathers are timed from the moment at which all pipelines have begun them; the cost of
 * a reduction excludes the optimizer's time. If no rank waited for a gather, it may have ended before its recorded end.
 * SL_BAD_INPUT if the trace is not one of SCHEDULE. Free with schedule_measurement_free. */
int schedule_trace_measure(struct schedule_trace *trace, const struct sl_schedule *schedule, struct sl_costs *costs,
                           struct sl_stage_costs *stage, struct schedule_measurement *measurement,
                           struct sl_error *error);
/* Computes only the parts, for a trace with complete steps in order. */
int schedule_trace_parts(const struct schedule_trace *trace, int ranks, struct schedule_measurement *measurement,
                         struct sl_error *error);
void schedule_measurement_free(struct schedule_measurement *measurement);

/* Delays every rank of SIMULATION by MS, as for gathering parameters. */
void schedule_simulation_gathers(struct sl_simulation *simulation, double ms);

/* Computes the same parts for a simulated rank, which has a core to itself; its communication takes it no time. */
void schedule_simulated_parts(const struct sl_simulation *simulation, int rank, double part[SCHEDULE_PARTS]);

#endif
