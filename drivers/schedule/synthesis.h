/* synthesis.h - searches for a schedule: options and result. */
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

/* Zero-initialize, except inputs. */
struct schedule_synthesis {
    int ranks, loops;                  /* input; the model has ranks * loops parts */
    const struct sl_stage_costs *cost; /* input: of each part, unless read from a file */
    struct sl_costs costs;             /* communication and overlap are inputs, too */
    struct sl_stage_costs *part;       /* [ranks * loops] */
    double *kept;                      /* [ranks * loops] */
    bool in_bytes;                     /* `kept` is read from a file */
    struct sl_synthesized found;       /* its schedule was moved to the caller */
    double *held;                      /* [ranks] largest number of bytes saved by the found schedule */
};

/* Reads the costs of the parts from PATH (NULL: none), and searches for SCHEDULE, which the caller frees.
 * SL_BAD_INPUT names an impossible input. */
int schedule_synthesis_find(struct schedule_synthesis *synthesis, const struct schedule_synthesis_options *options,
                            int microbatches, const char *path, struct sl_schedule *schedule, struct sl_error *error);
/* Returns the costs of the found schedule: COST [stages], and the rest in COSTS. */
void schedule_synthesis_costs(const struct schedule_synthesis *synthesis, struct sl_costs *costs,
                              struct sl_stage_costs *cost);
void schedule_synthesis_free(struct schedule_synthesis *synthesis);

#endif
