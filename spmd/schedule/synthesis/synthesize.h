/* synthesize.h - schedules made to measure: the shortest that a search finds for given costs and room.
 *
 * The model has `ranks` x `loops` parts, each with its own times. The search looks at one stage a rank, where a rank's
 * parts are neighbours; and at `loops` stages a rank, on a ring and, where they are two, on a V. Of each it makes
 * sketches by list scheduling, and improves the best ones. Input and weight gradients are apart, as in Qi et al. 2023,
 * "Zero Bubble Pipeline Parallelism"; V placements under a limit of memory are those of Qi et al. 2024, "Pipeline
 * Parallelism with Controllable Memory". */
#ifndef SL_SPMD_SCHEDULE_SYNTHESIS_SYNTHESIZE_H
#define SL_SPMD_SCHEDULE_SYNTHESIS_SYNTHESIZE_H

#include "spmd/schedule/simulate.h"

SL_BEGIN_C

enum { SL_SYNTHESIS_MOST_RANKS = 128, SL_SYNTHESIS_MOST_LOOPS = 16 };

struct sl_synthesis {
    int ranks, loops, microbatches;    /* their product is at most 65536 */
    const struct sl_stage_costs *part; /* [ranks * loops]; the search looks at forward, input and weight gradient */
    const double *kept;   /* [ranks * loops] bytes that a part keeps of a microbatch, from its forward to its weight
                             gradient; NULL: 1 each */
    double communication; /* time of a message between two ranks */
    double memory;        /* bytes that a rank may keep; INFINITY: any number */
    bool named;           /* it begins with the schedules of registry.h, and is never longer than one that fits */
    uint64_t seed;        /* the same seed and iterations find the same, */
    int iterations;       /* at least 1, of each layout, */
    double seconds;       /* unless there is no time for them; a first sketch is made anyway */
};

/* What was found. */
struct sl_synthesized {
    struct sl_schedule schedule; /* proven for as many slots as it needs */
    const char *layout;          /* how stages lie: "in line", "on a ring", "on a V", "balanced" */
    double span;                 /* until the last rank has computed: sl_simulation.span */
    double bound;                /* no schedule of any of the layouts is shorter */
};

/* SL_BAD_INPUT where numbers are out of range or nothing fits into the memory; SL_FAILED without memory. Free with
 * sl_schedule_free(&found->schedule). */
int sl_schedule_synthesize(const struct sl_synthesis *synthesis, struct sl_synthesized *found, struct sl_error *error);

/* The costs of STAGES stages that a model's PARTS parts make up, each with its share of them. */
void sl_join_costs(const struct sl_stage_costs *part, int parts, struct sl_stage_costs *stage, int stages);
/* The same for bytes that are kept. PART is NULL: 1 each. */
void sl_join_kept(const double *part, int parts, double *kept, int stages);
/* The most bytes that RANK of a table keeps at once, if each of its stages keeps KEPT [stages] of a microbatch. Weight
 * gradients are computed in ascending order. Negative without memory. */
double sl_schedule_kept(const struct sl_schedule *schedule, int rank, const double *kept);

SL_END_C
#endif
