/* predict.h - predicts the time of a job's step on a machine, and its memory, without running it.
 *
 * Each rank of the pipeline is planned as for a run, one after the other, at the coordinate that is first along all
 * other axes, so the bytes are exact. The work counted by planning (layers/modules/load.h) is converted to seconds
 * by the machine's rates (drivers/tools/machine/machine.h), and the schedule is simulated with these
 * (spmd/schedule/simulate.h). */
#ifndef SL_DRIVERS_TOOLS_SEARCH_PREDICT_H
#define SL_DRIVERS_TOOLS_SEARCH_PREDICT_H

#include "drivers/tools/machine/machine.h"
#include "drivers/training/job.h"

/* Kinds of a coordinate's work. */
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
    double pipeline_ms, reduce_ms, optimizer_ms; /* parts of it: the passes, sums over data after them, the optimizer */
    double bubble;                               /* as in layers/modules/calls/profile.h, of all passes */
    double idle_ms;                              /* time in the passes when places are idle; if coordinates share
                                                  * places, others work while one waits */
    double sharers;                              /* coordinates per place */
    double share_ms[SL_SHARES];                  /* work of the busiest coordinate per step */
    struct sl_budget budget;                     /* of the coordinate with the largest budget */
    double bytes;                                /* its total in memory */
    int stages;                                  /* of a copy of the model; 0: more than SL_PREDICTED_STAGES, and
                                                  * stage_ms is not set */
    double stage_ms[SL_PREDICTED_STAGES];        /* work of each stage per step */
    double traffic[SL_LINKS]; /* largest number of bytes that a coordinate sends per step, by class of link */
    double link_ms[SL_LINKS]; /* longest time of a coordinate's calls per step, by class of link */
};

/* Predicts JOB, which is opened and only planned, over an engine like LIKE. Returns SL_BAD_INPUT or another status,
 * with the error set, if the job cannot be planned. */
int sl_predict(struct sl_job *job, const struct sl_engine *like, const struct sl_machine *machine,
               struct sl_prediction *prediction, struct sl_error *error);

#endif
