/* sketch.h - what the search for a schedule works on: a layout with its costs, and sketches.
 *
 * A sketch says in which order each rank computes what: a list of codes, one for each action. All microbatches cost the
 * same, so that a stage takes them in ascending order, and a code need not name one: the n-th forward of a stage is
 * that of microbatch n. Input and weight gradients are actions of their own. */
#ifndef SL_SPMD_SCHEDULE_SYNTHESIS_SKETCH_H
#define SL_SPMD_SCHEDULE_SYNTHESIS_SKETCH_H

#include "spmd/schedule/synthesis/synthesize.h"
#include "spmd/schedule/turns.h"

SL_BEGIN_C

/* What stage, loop and kind a code means: code = kind + SL_SKETCH_KINDS * loop. */
enum { SL_SKETCH_F, SL_SKETCH_I, SL_SKETCH_W, SL_SKETCH_KINDS };
enum { SL_SKETCH_LOOPS = SL_SYNTHESIS_MOST_LOOPS };

struct sl_layout {
    struct sl_schedule table;     /* has no actions: ranks, loops, microbatches, and which rank holds which stage */
    struct sl_stage_costs *cost;  /* [stages] */
    double *kept;                 /* [stages] bytes of a microbatch from its forward to its weight gradient */
    double communication, memory; /* memory: bytes that a rank may keep */
    /* [SL_SKETCH_W][stages] the line on which what a stage's forward and input gradient wait for comes: a number below
     * the number of stages, or -1. Messages of two stages that come from one rank to another are on one line, in order.
     */
    int *line;
};

struct sl_sketch {
    uint16_t *code; /* [ranks][sl_layout_actions] */
    double span;    /* how long it takes; INFINITY: it does not run */
};

/* Memory of a walk over a sketch, and what was seen on it. */
struct sl_sketch_walk {
    struct sl_turns turns;
    int *next;    /* [ranks] */
    double *now;  /* [ranks] */
    int *done;    /* [stages][SL_SKETCH_KINDS] */
    double *end;  /* [stages][SL_SKETCH_KINDS][microbatches] */
    int *place;   /* the same: the action's number in its rank's list */
    int *which;   /* [ranks][actions] its microbatch */
    bool *waited; /* [ranks][actions] the rank was idle before it, until a message came */
};

/* A sequence of numbers that look random, the same everywhere. */
struct sl_dice {
    uint64_t state;
};
uint64_t sl_dice_throw(struct sl_dice *dice);
/* From 0 to below N, and from 0 to below 1. */
int sl_dice_below(struct sl_dice *dice, int n);
double sl_dice_share(struct sl_dice *dice);

/* Actions of a rank. */
static inline int sl_layout_actions(const struct sl_layout *layout) {
    return SL_SKETCH_KINDS * layout->table.loops * layout->table.microbatches;
}
/* The time of an action. */
static inline double sl_layout_cost(const struct sl_layout *layout, int stage, int kind) {
    const struct sl_stage_costs *cost = &layout->cost[stage];
    return kind == SL_SKETCH_F ? cost->forward : kind == SL_SKETCH_I ? cost->input_gradient : cost->weight_gradient;
}
/* How long a message travels from one stage to another. */
static inline double sl_layout_travel(const struct sl_layout *layout, int from, int to) {
    return sl_schedule_rank_of(&layout->table, from) == sl_schedule_rank_of(&layout->table, to) ? 0
                                                                                                : layout->communication;
}
/* The stage whose result an action waits for: of kind KIND, or none (-1). */
static inline int sl_layout_source(const struct sl_layout *layout, int stage, int kind) {
    if (kind == SL_SKETCH_F) return stage - 1;
    return kind == SL_SKETCH_I && stage + 1 < sl_schedule_stages(&layout->table) ? stage + 1 : -1;
}
/* The line on which KIND, forward or input gradient, gets a message for STAGE; -1: none, also where there is no such
 * stage. */
static inline int sl_layout_line(const struct sl_layout *layout, int stage, int kind) {
    const int stages = sl_schedule_stages(&layout->table);
    return stage < 0 || stage >= stages ? -1 : layout->line[kind * stages + stage];
}
/* A layout whose costs, communication and memory are still to be given. SL_BAD_INPUT as by sl_schedule_open, SL_FAILED
 * without memory. Free with sl_layout_free in any case. */
int sl_layout_open(struct sl_layout *layout, int ranks, int loops, int microbatches, enum sl_stage_placement placement,
                   struct sl_error *error);
void sl_layout_free(struct sl_layout *layout);
/* Finds the lines: stages have been placed. */
void sl_layout_find_lines(struct sl_layout *layout);
/* Whether messages of two stages are on one line. */
bool sl_layout_shares_lines(const struct sl_layout *layout);
/* Moves stages to other ranks until sl_layout_bound is as low as it becomes by exchanging two: ranks have more equal
 * shares then. False: nothing could be gained. */
bool sl_layout_balance(struct sl_layout *layout, struct sl_dice *dice);
/* What RANK keeps of one microbatch of all its stages. */
double sl_layout_share(const struct sl_layout *layout, int rank);
/* Whether every rank has room for that. */
bool sl_layout_fits(const struct sl_layout *layout);
/* No sketch of LAYOUT takes less time. */
double sl_layout_bound(const struct sl_layout *layout);

/* False without memory. */
bool sl_sketch_open(struct sl_sketch *sketch, const struct sl_layout *layout);
void sl_sketch_copy(struct sl_sketch *sketch, const struct sl_sketch *from, const struct sl_layout *layout);
void sl_sketch_free(struct sl_sketch *sketch);
bool sl_sketch_walk_open(struct sl_sketch_walk *walk, const struct sl_layout *layout);
void sl_sketch_walk_free(struct sl_sketch_walk *walk);

/* Whether RANK's list CODE has nothing before what it needs of its own, and never keeps more than there is room for. */
bool sl_sketch_fits(const struct sl_layout *layout, int rank, const uint16_t *code);
/* Finds sketch->span, as sl_schedule_simulate does for the table. */
void sl_sketch_time(struct sl_sketch *sketch, const struct sl_layout *layout, struct sl_sketch_walk *walk);

/* The sketch of a table with the layout's placement: the order of its actions, with backwards in two. False: it has no
 * such sketch, or keeps more than there is room for. */
bool sl_sketch_read(struct sl_sketch *sketch, const struct sl_layout *layout, const struct sl_schedule *table,
                    struct sl_sketch_walk *walk);
/* Appends the sketch's actions to an empty table, and gives them their times. */
int sl_sketch_write(const struct sl_sketch *sketch, const struct sl_layout *layout, struct sl_schedule *table,
                    struct sl_error *error);

/* ---- the search ---- */

/* When to stop: there is no more time, or nothing shorter. */
struct sl_search {
    struct sl_dice dice;
    double deadline; /* of sl_search_seconds */
    double enough;   /* no sketch of the layout takes less */
};
double sl_search_seconds(void);
static inline bool sl_search_over(const struct sl_search *search, const struct sl_sketch *best, int iteration) {
    return best->span <= search->enough * (1 + 1e-12) ||
           (iteration % 16 == 0 && sl_search_seconds() >= search->deadline);
}

/* Looks for a sketch by list scheduling: makes ITERATIONS of them, each by rules that are like the best ones so far, or
 * new. BEST is replaced by what is shorter. False without memory. */
bool sl_sketch_list(struct sl_sketch *best, const struct sl_layout *layout, struct sl_search *search, int iterations,
                    struct sl_sketch_walk *walk);
/* The same by sketches that repeat, where no line has messages of two stages: their order would have to be kept. */
bool sl_sketch_repeat(struct sl_sketch *best, const struct sl_layout *layout, struct sl_search *search, int iterations,
                      struct sl_sketch_walk *walk);
/* Makes BEST shorter by moving actions of its longest chain, ITERATIONS times. False without memory. */
bool sl_sketch_improve(struct sl_sketch *best, const struct sl_layout *layout, struct sl_search *search, int iterations,
                       struct sl_sketch_walk *walk);

SL_END_C
#endif
