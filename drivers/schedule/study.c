/* study.c - proves and simulates a schedule. */
#include "drivers/schedule/study.h"

#include <stdlib.h>

#include "layers/training/pipeline.h"
#include "spmd/schedule/synthesis/synthesize.h"

int schedule_study_prove(struct schedule_study *study, int buffers, int group, struct sl_error *error) {
    SL_TRY(sl_schedule_lower(&study->schedule, error));
    study->buffers = buffers;
    if (buffers < 1) {
        SL_TRY(sl_schedule_slots(&study->schedule, SL_PIPELINE_FEWEST_SLOTS, &study->buffers, error));
        if (group <= 1) return SL_OK; /* proven by the search for buffers */
    }
    return sl_schedule_check(&study->schedule, study->buffers, group > 1 ? group : 1, NULL, error);
}

int schedule_study_costs(struct schedule_study *study, const struct sl_stage_costs *cost, struct sl_error *error) {
    const int stages = sl_schedule_stages(&study->schedule);
    study->cost = malloc((size_t)stages * sizeof *study->cost);
    if (!study->cost) return sl_error_set(error, SL_FAILED, "no memory to simulate");
    for (int s = 0; s < stages; s++) study->cost[s] = *cost;
    return SL_OK;
}

void schedule_study_join(struct schedule_study *study, const struct sl_stage_costs *part, int parts) {
    const int stages = sl_schedule_stages(&study->schedule), depth = sl_schedule_depth(&study->schedule);
    sl_join_costs(part, parts, study->cost, depth);
    for (int s = depth; s < stages; s++) study->cost[s] = study->cost[s - depth];
}

int schedule_study_kept(const struct schedule_study *study) {
    int most = 0;
    for (int r = 0; r < study->simulation.ranks; r++)
        if (study->simulation.rank[r].stash > most) most = study->simulation.rank[r].stash;
    return most;
}

void schedule_study_forget_actions(struct schedule_study *study) {
    for (int r = 0; r < study->schedule.ranks; r++) {
        free(study->schedule.rank[r].action);
        study->schedule.rank[r] = (struct sl_rank_schedule){0};
    }
}

void schedule_study_free(struct schedule_study *study) {
    sl_schedule_free(&study->schedule);
    sl_simulation_free(&study->simulation);
    free(study->cost);
    *study = (struct schedule_study){0};
}
