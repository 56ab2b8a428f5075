/* sketch.h - data of the search for a schedule: a layout with its costs, and sketches.
 *
 * A sketch is the order of actions on each rank: a list of codes, one per action. All microbatches cost the same, so a
 * stage computes them in ascending order, and a code need not name one: the n-th forward of a stage is microbatch n's.
 * Input and weight gradients are separate actions. */
#ifndef SL_SPMD_SCHEDULE_SYNTHESIS_SKETCH_H
#define SL_SPMD_SCHEDULE_SYNTHESIS_SKETCH_H

#include "spmd/schedule/synthesis/synthesize.h"
#include "spmd/schedule/turns.h"

SL_BEGIN_C

/* A code is kind + SL_SKETCH_KINDS * loop; with the rank, loop means a stage. */
enum { SL_SKETCH_F, SL_SKETCH_I, SL_SKETCH_W, SL_SKETCH_KINDS };
enum { SL_SKETCH_LOOPS = SL_SYNTHESIS_MOST_LOOPS };

struct sl_layout {
    struct sl_schedule table;     /* without actions: ranks, loops, microbatches, and the placement of stages */
    struct sl_stage_costs *cost;  /* [stages] */
    double *kept;                 /* [stages] bytes saved per microbatch, from its forward to its weight
                                     gradient */
    double communication, memory; /* memory: bytes a rank may save */
    /* [SL_SKETCH_W][stages] the line on which a stage's forward or input gradient receives its message: a number below
     * the number of stages, or -1. If two stages get messages from one rank to another, they share a line, in order. */
    int *line;
};

struct sl_sketch {
    uint16_t *code; /* [ranks][sl_layout_actions] */
    double span;    /* duration; INFINITY: it deadlocks */
};

/* Memory of a walk over a sketch, and its results. */
struct sl_sketch_walk {
    struct sl_turns turns;
    int *next;    /* [ranks] */
    double *now;  /* [ranks] */
    int *done;    /* [stages][SL_SKETCH_KINDS] */
    double *end;  /* [stages][SL_SKETCH_KINDS][microbatches] */
    int *place;   /* the same size: the action's number in its rank's list */
    int *which;   /* [ranks][actions] the action's microbatch */
    bool *waited; /* [ranks][actions] the rank was idle before the action, until a message came */
};

/* A pseudo-random sequence, equal on all machines. */
struct sl_dice {
    uint64_t state;
};
uint64_t sl_dice_throw(struct sl_dice *dice);
/* sl_dice_below: from 0 to below N; sl_dice_share: from 0 to below 1. */
int sl_dice_below(struct sl_dice *dice, int n);
double sl_dice_share(struct sl_dice *dice);

/* The number of actions of a rank. */
static inline int sl_layout_actions(const struct sl_layout *layout) {
    return SL_SKETCH_KINDS * layout->table.loops * layout->table.microbatches;
}
/* The time of an action. */
static inline double sl_layout_cost(const struct sl_layout *layout, int stage, int kind) {
    const struct sl_stage_costs *cost = &layout->cost[stage];
    return kind == SL_SKETCH_F ? cost->forward : kind == SL_SKETCH_I ? cost->input_gradient : cost->weight_gradient;
}
/* The time of a message from one stage to another. */
static inline double sl_layout_travel(const struct sl_layout *layout, int from, int to) {
    return sl_schedule_rank_of(&layout->table, from) == sl_schedule_rank_of(&layout->table, to) ? 0
                                                                                                : layout->communication;
}
/* The stage whose action of KIND must precede that of STAGE; -1: none. */
static inline int sl_layout_source(const struct sl_layout *layout, int stage, int kind) {
    if (kind == SL_SKETCH_F) return stage - 1;
    return kind == SL_SKETCH_I && stage + 1 < sl_schedule_stages(&layout->table) ? stage + 1 : -1;
}
/* The line on which STAGE receives messages for KIND, forward or input gradient; -1: none, or no such stage. */
static inline int sl_layout_line(const struct sl_layout *layout, int stage, int kind) {
    const int stages = sl_schedule_stages(&layout->table);
    return stage < 0 || stage >= stages ? -1 : layout->line[kind * stages + stage];
}
/* Opens a layout; the caller then sets costs, communication and memory. SL_BAD_INPUT as by sl_schedule_open, SL_FAILED
 * without memory. Free with sl_layout_free in any case. */
int sl_layout_open(struct sl_layout *layout, int ranks, int loops, int microbatches, enum sl_stage_placement placement,
                   struct sl_error *error);
void sl_layout_free(struct sl_layout *layout);
/* Finds the lines of the placed stages. */
void sl_layout_find_lines(struct sl_layout *layout);
/* Whether two stages share a line. */
bool sl_layout_shares_lines(const struct sl_layout *layout);
/* Lowers sl_layout_bound by exchanging random pairs of stages between ranks, which get more equal work. False: no
 * gain. */
bool sl_layout_balance(struct sl_layout *layout, struct sl_dice *dice);
/* Bytes RANK saves for one microbatch of all its stages. */
double sl_layout_share(const struct sl_layout *layout, int rank);
/* Whether every rank has this room. */
bool sl_layout_fits(const struct sl_layout *layout);
/* A lower bound: no sketch of LAYOUT takes less time. */
double sl_layout_bound(const struct sl_layout *layout);

/* False without memory. */
bool sl_sketch_open(struct sl_sketch *sketch, const struct sl_layout *layout);
void sl_sketch_copy(struct sl_sketch *sketch, const struct sl_sketch *from, const struct sl_layout *layout);
void sl_sketch_free(struct sl_sketch *sketch);
bool sl_sketch_walk_open(struct sl_sketch_walk *walk, const struct sl_layout *layout);
void sl_sketch_walk_free(struct sl_sketch_walk *walk);

/* Whether RANK's list CODE computes nothing before the own actions it needs, and never saves more bytes than there is
 * room for. */
bool sl_sketch_fits(const struct sl_layout *layout, int rank, const uint16_t *code);
/* Computes sketch->span, as sl_schedule_simulate does for the table. */
void sl_sketch_time(struct sl_sketch *sketch, const struct sl_layout *layout, struct sl_sketch_walk *walk);

/* Reads the order of actions from a table with the layout's placement; backwards are split in two. False: TABLE has no
 * sketch, or saves more bytes than there is room for. */
bool sl_sketch_read(struct sl_sketch *sketch, const struct sl_layout *layout, const struct sl_schedule *table,
                    struct sl_sketch_walk *walk);
/* Appends the sketch's actions to an empty table, and sets their times. */
int sl_sketch_write(const struct sl_sketch *sketch, const struct sl_layout *layout, struct sl_schedule *table,
                    struct sl_error *error);

/* ---- the search ---- */

/* When to stop: the time is over, or the best possible sketch is found. */
struct sl_search {
    struct sl_dice dice;
    double deadline; /* a time of sl_search_seconds */
    double enough;   /* lower bound of all sketches of the layout */
};
double sl_search_seconds(void);
static inline bool sl_search_over(const struct sl_search *search, const struct sl_sketch *best, int iteration) {
    return best->span <= search->enough * (1 + 1e-12) ||
           (iteration % 16 == 0 && sl_search_seconds() >= search->deadline);
}

/* Searches by list scheduling: builds ITERATIONS sketches, each by rules like the best ones so far, or new. A shorter
 * sketch replaces BEST. False without memory. */
bool sl_sketch_list(struct sl_sketch *best, const struct sl_layout *layout, struct sl_search *search, int iterations,
                    struct sl_sketch_walk *walk);
/* Searches among periodic sketches, if no two stages share a line: messages on a shared line would have to stay in
 * order. */
bool sl_sketch_repeat(struct sl_sketch *best, const struct sl_layout *layout, struct sl_search *search, int iterations,
                      struct sl_sketch_walk *walk);
/* Makes BEST shorter by moving actions of its longest chain, ITERATIONS times. False without memory. */
bool sl_sketch_improve(struct sl_sketch *best, const struct sl_layout *layout, struct sl_search *search, int iterations,
                       struct sl_sketch_walk *walk);

SL_END_C
#endif
