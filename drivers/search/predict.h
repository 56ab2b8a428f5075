/* predict.h - how long a step of a job would take on a machine, and what memory: without running it.
 *
 * Each rank of the pipeline is planned as a run plans it, one after the other, at the coordinate that is first along
 * all other axes, so that the bytes are exact. The work that planning counts (layers/modules/load.h) becomes seconds by
 * the machine's rates (drivers/machine/machine.h), and the schedule is simulated with these (spmd/schedule/simulate.h).
 */
#ifndef SL_DRIVERS_SEARCH_PREDICT_H
#define SL_DRIVERS_SEARCH_PREDICT_H

#include "drivers/machine/machine.h"
#include "drivers/training/job.h"

/* What a coordinate's time goes to. */
enum sl_share {
    SL_SHARE_PRODUCTS,
    SL_SHARE_ATTENTION,
    SL_SHARE_KERNELS,
    SL_SHARE_CALLS, /* communication within modules: over tensor, experts, FSDP */
    SL_SHARES
};

enum { SL_PREDICTED_STAGES = 64 };

struct sl_prediction {
    double ms;                                   /* of a step */
    double pipeline_ms, reduce_ms, optimizer_ms; /* of it: the passes, what waits for sums over data, the optimizer */
    double bubble;                               /* as in layers/modules/profile.h, of all passes */
    double idle_ms;                              /* of the passes in which places have nothing to do: where coordinates
                                                    share them, others work while one waits */
    double sharers;                              /* coordinates of a place */
    double share_ms[SL_SHARES];                  /* of the busiest coordinate's work in a step */
    struct sl_budget budget;                     /* of the coordinate that takes most */
    double bytes;                                /* all of it that is in memory */
    int stages;                                  /* 0: more than SL_PREDICTED_STAGES, of which nothing is told */
    double stage_ms[SL_PREDICTED_STAGES];        /* of each stage's work in a step */
    double traffic[SL_LINKS]; /* bytes that the coordinate that sends most sends in a step, by class of link */
};

/* Predicts JOB, which has been decided and is only planned, over an engine like LIKE. MESH is the job's own, or one
 * with more replicas: then times and traffic are those of MESH, while the bytes are those of the job's mesh.
 * SL_BAD_INPUT, or another status, with the error set where it cannot be planned. */
int sl_predict(struct sl_job *job, const struct sl_mesh *mesh, const struct sl_engine *like,
               const struct sl_machine *machine, struct sl_prediction *prediction, struct sl_error *error);

#endif
