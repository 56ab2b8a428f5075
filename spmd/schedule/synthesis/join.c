/* join.c - the costs of stages made of several parts, and a table's saved bytes. */
#include <math.h>
#include <stdlib.h>

#include "spmd/schedule/synthesis/synthesize.h"

/* The share of part PART in stage STAGE, if each stage has SHARE parts. */
static double overlap(int stage, int part, double share) {
    return fmax(0, fmin((stage + 1) * share, part + 1) - fmax(stage * share, part));
}

static void add_share(struct sl_stage_costs *sum, const struct sl_stage_costs *part, double share) {
    sum->forward += share * part->forward;
    sum->input_gradient += share * part->input_gradient;
    sum->weight_gradient += share * part->weight_gradient;
    sum->reduce += share * part->reduce;
    sum->optimizer += share * part->optimizer;
}

void sl_join_costs(const struct sl_stage_costs *part, int parts, struct sl_stage_costs *stage, int stages) {
    const double share = (double)parts / stages;
    for (int s = 0; s < stages; s++) {
        stage[s] = (struct sl_stage_costs){0};
        for (int p = (int)(s * share); p < parts && p < (s + 1) * share; p++)
            add_share(&stage[s], &part[p], overlap(s, p, share));
    }
}

void sl_join_kept(const double *part, int parts, double *kept, int stages) {
    const double share = (double)parts / stages;
    for (int s = 0; s < stages; s++) {
        kept[s] = 0;
        for (int p = (int)(s * share); p < parts && p < (s + 1) * share; p++)
            kept[s] += overlap(s, p, share) * (part ? part[p] : 1);
    }
}

double sl_schedule_kept(const struct sl_schedule *schedule, int rank, const double *kept) {
    const int microbatches = schedule->microbatches;
    const struct sl_rank_schedule *actions = &schedule->rank[rank];
    bool *due = calloc((size_t)schedule->loops * (size_t)microbatches, sizeof *due);
    int *next = calloc((size_t)schedule->loops, sizeof *next);
    double held = 0, most = due && next ? 0 : -1;
    for (int l = 0; next && l < schedule->loops; l++)
        next[l] = sl_schedule_first_microbatch(schedule, sl_schedule_stage(schedule, rank, l));
    for (int i = 0; most >= 0 && i < actions->count; i++) {
        const struct sl_action *action = &actions->action[i];
        const double each = kept[sl_schedule_stage(schedule, rank, action->loop)];
        bool *of_loop = &due[action->loop * microbatches];
        if (action->kind == SL_FORWARD) held += each * sl_schedule_run(schedule, action->kind);
        if (sl_has_weight_gradient(action->kind))
            for (int m = 0; m < sl_schedule_run(schedule, action->kind); m++) of_loop[action->microbatch + m] = true;
        for (int *m = &next[action->loop]; *m < microbatches && of_loop[*m]; ++*m) held -= each;
        most = fmax(most, held);
    }
    free(due);
    free(next);
    return most;
}
