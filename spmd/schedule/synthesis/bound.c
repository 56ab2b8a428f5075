/* bound.c - lower bounds for the time of all schedules of a layout.
 *
 * Each rank's bounds follow from work before its first action and after its last ones:
 *
 *     work    all work of the rank, after the shortest way of a microbatch to its first stage
 *     tail    the same without weight gradients that may be delayed behind its last input gradient, as many as its
 *             room allows; then the way back to the first stage
 *     room    a microbatch occupies room in a stage at least for its way to the last stage and back; the sum over all
 *             microbatches of room times time is limited by the rank's room */
#include <math.h>

#include "spmd/schedule/synthesis/sketch.h"

/* The time of a microbatch from its begin in stage FROM to its arrival in stage TO, forward or backward. */
static double way(const struct sl_layout *layout, int kind, int from, int to) {
    double time = 0;
    const int step = from < to ? 1 : -1;
    for (int s = from; s != to; s += step)
        time += sl_layout_cost(layout, s, kind) + sl_layout_travel(layout, s, s + step);
    return time;
}

static double bound_of_rank(const struct sl_layout *layout, int rank) {
    const struct sl_schedule *table = &layout->table;
    const int last = sl_schedule_stages(table) - 1, first = sl_schedule_stage(table, rank, 0);
    const double microbatches = table->microbatches;
    double chain = 0, weights = 0, room = 0, dearest = 0;
    for (int l = 0; l < table->loops; l++) {
        const int stage = sl_schedule_stage(table, rank, l);
        const struct sl_stage_costs *cost = &layout->cost[stage];
        const double stays = way(layout, SL_SKETCH_F, stage, last) + layout->cost[last].forward +
                             way(layout, SL_SKETCH_I, last, stage) + cost->input_gradient + cost->weight_gradient;
        chain += microbatches * (cost->forward + cost->input_gradient);
        weights += microbatches * cost->weight_gradient;
        room += microbatches * layout->kept[stage] * stays;
        dearest = layout->kept[stage] > 0 ? fmax(dearest, cost->weight_gradient / layout->kept[stage]) : INFINITY;
    }
    const double head = way(layout, SL_SKETCH_F, 0, first);
    const double after = way(layout, SL_SKETCH_I, first, 0) - (first ? layout->cost[first].input_gradient : 0) +
                         (first ? layout->cost[0].input_gradient : 0) + layout->cost[0].weight_gradient;
    const double later = layout->memory < INFINITY && dearest < INFINITY ? layout->memory * dearest : INFINITY;
    const double work = head + chain + weights, tail = head + chain + fmax(0, weights - later) + after;
    return fmax(fmax(work, tail), layout->memory < INFINITY ? head + room / layout->memory : 0);
}

double sl_layout_bound(const struct sl_layout *layout) {
    double bound = 0;
    for (int r = 0; r < layout->table.ranks; r++) bound = fmax(bound, bound_of_rank(layout, r));
    return bound;
}
