/* synthesize.h - schedules made to measure: the shortest ones found for given costs and memory.
 *
 * The model has `ranks` x `loops` parts, each with its own times. The search tries layouts with one stage per rank,
 * made of neighbouring parts, and layouts with `loops` stages per rank on a ring; if `loops` is even, also two stages
 * per rank on a V. For each layout it builds sketches by list scheduling, and improves the best ones. Input and weight
 * gradients are separate, as in Qi et al. 2023, "Zero Bubble Pipeline Parallelism"; V placements under a limit of
 * memory are those of Qi et al. 2024, "Pipeline Parallelism with Controllable Memory". */
#ifndef SL_SPMD_SCHEDULE_SYNTHESIS_SYNTHESIZE_H
#define SL_SPMD_SCHEDULE_SYNTHESIS_SYNTHESIZE_H

#include "spmd/schedule/simulate.h"

SL_BEGIN_C

enum { SL_SYNTHESIS_MOST_RANKS = 128, SL_SYNTHESIS_MOST_LOOPS = 16 };

struct sl_synthesis {
    int ranks, loops, microbatches;    /* their product is at most 65536 */
    const struct sl_stage_costs *part; /* [ranks * loops]; the search looks at forward, input and weight gradient */
    const double *kept;                /* [ranks * loops] bytes saved per part and microbatch, from its forward to its
                                          weight gradient; NULL: 1 each */
    double communication;              /* time of a message between two ranks */
    double memory;                     /* bytes a rank may save; INFINITY: any number */
    bool named;    /* begins with the schedules of registry.h; the result is never longer than a fitting one of these */
    uint64_t seed; /* the same seed and iterations give the same result */
    int iterations; /* at least 1; per layout */
    double seconds; /* limit of the search; a first sketch is made in any case */
};

/* The result of a search. */
struct sl_synthesized {
    struct sl_schedule schedule; /* proven, with as many slots as it needs */
    const char *layout;          /* placement of stages: "in line", "on a ring", "on a V", "balanced" */
    double span;                 /* until the last rank has computed: sl_simulation.span */
    double bound;                /* no schedule of any of the layouts is shorter */
};

/* SL_BAD_INPUT if numbers are out of range or no schedule fits the memory; SL_FAILED without memory. Free with
 * sl_schedule_free(&found->schedule). */
int sl_schedule_synthesize(const struct sl_synthesis *synthesis, struct sl_synthesized *found, struct sl_error *error);

/* Computes the costs of STAGES equal shares of a model with PARTS parts. */
void sl_join_costs(const struct sl_stage_costs *part, int parts, struct sl_stage_costs *stage, int stages);
/* The same for saved bytes. If PART is NULL, 1 each. */
void sl_join_kept(const double *part, int parts, double *kept, int stages);
/* The most bytes RANK of a table saves at once, if each of its stages saves KEPT [stages] per microbatch. Weight
 * gradients are computed in ascending order. Negative without memory. */
double sl_schedule_kept(const struct sl_schedule *schedule, int rank, const double *kept);

SL_END_C
#endif
