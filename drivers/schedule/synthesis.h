/* synthesis.h - a schedule that is looked for: what is asked, and what was found. */
#ifndef SL_DRIVERS_SCHEDULE_SYNTHESIS_H
#define SL_DRIVERS_SCHEDULE_SYNTHESIS_H

#include "drivers/common/options.h"
#include "spmd/schedule/synthesis/synthesize.h"

struct schedule_synthesis_options {
    bool asked, named;
    double memory, seconds; /* memory: NAN for no limit */
    int iterations;
    uint64_t seed;
};
#define SCHEDULE_SYNTHESIS_DEFAULTS {.named = true, .memory = (double)NAN, .seconds = 10, .iterations = 30000}

extern const struct sl_option schedule_synthesis_table[];

/* Zero-initialize, but for what is to be given. */
struct schedule_synthesis {
    int ranks, loops;                  /* given; the model has ranks * loops parts */
    const struct sl_stage_costs *cost; /* given: of each part, unless a file says otherwise */
    struct sl_costs costs;             /* communication and overlap are given, too */
    struct sl_stage_costs *part;       /* [ranks * loops] */
    double *kept;                      /* [ranks * loops] */
    bool in_bytes;                     /* a file says what is kept */
    struct sl_synthesized found;       /* its schedule has gone to the caller */
    double *held;                      /* [ranks] bytes that the found schedule keeps at most */
};

/* Reads the costs of the parts from PATH (NULL: none), and looks for the SCHEDULE, which the caller frees. SL_BAD_INPUT
 * says what cannot be. */
int schedule_synthesis_find(struct schedule_synthesis *synthesis, const struct schedule_synthesis_options *options,
                            int microbatches, const char *path, struct sl_schedule *schedule, struct sl_error *error);
/* What the found schedule's stages cost: COST [stages], and the rest of COSTS. */
void schedule_synthesis_costs(const struct schedule_synthesis *synthesis, struct sl_costs *costs,
                              struct sl_stage_costs *cost);
void schedule_synthesis_free(struct schedule_synthesis *synthesis);

#endif
