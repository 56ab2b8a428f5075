/* schedule.c - tables of actions: memory, placement of stages, and appending. */
#include "spmd/schedule/schedule.h"

#include <stdlib.h>
#include <string.h>

#include "spmd/base/memory.h"

enum { MAX_MICROBATCHES = 1 << 16, MAX_CELLS = 1 << 23 };

char sl_action_letter(enum sl_action_kind kind) {
    static const char letter[SL_ACTION_KINDS] = {'F', 'B', 'I', 'W'};
    return letter[kind] ? letter[kind] : '?';
}

/* ---- memory ---- */

static int check_numbers(const char *name, int ranks, int loops, int microbatches, struct sl_error *error) {
    if (ranks < 1 || loops < 1 || (long long)ranks * loops > SL_MAX_STAGES)
        return sl_error_set(error, SL_BAD_INPUT,
                            "schedule %s: %d stages x %d loops: both must be at least 1, their product at most %d",
                            name, ranks, loops, SL_MAX_STAGES);
    if (microbatches < 1 || microbatches > MAX_MICROBATCHES)
        return sl_error_set(error, SL_BAD_INPUT, "schedule %s: %d microbatches: must be from 1 to %d", name,
                            microbatches, MAX_MICROBATCHES);
    if ((long long)ranks * loops * microbatches > MAX_CELLS)
        return sl_error_set(error, SL_BAD_INPUT,
                            "schedule %s: %d stages x %d loops x %d microbatches: their product must be at most %d",
                            name, ranks, loops, microbatches, MAX_CELLS);
    return SL_OK;
}

int sl_schedule_open(struct sl_schedule *schedule, const char *name, int ranks, int loops, int microbatches,
                     struct sl_error *error) {
    memset(schedule, 0, sizeof *schedule);
    SL_TRY(check_numbers(name, ranks, loops, microbatches, error));
    *schedule = (struct sl_schedule){.ranks = ranks, .loops = loops, .microbatches = microbatches, .copies = 1};
    strncpy(schedule->name, name, sizeof schedule->name - 1);
    schedule->stage = calloc((size_t)ranks * (size_t)loops, sizeof *schedule->stage);
    schedule->place = calloc((size_t)ranks * (size_t)loops, sizeof *schedule->place);
    schedule->rank = calloc((size_t)ranks, sizeof *schedule->rank);
    if (schedule->stage && schedule->place && schedule->rank) return SL_OK;
    sl_schedule_free(schedule);
    return sl_error_set(error, SL_FAILED, "schedule %s: no memory", name);
}

void sl_schedule_free(struct sl_schedule *schedule) {
    for (int r = 0; schedule->rank && r < schedule->ranks; r++) free(schedule->rank[r].action);
    free(schedule->rank);
    free(schedule->stage);
    free(schedule->place);
    memset(schedule, 0, sizeof *schedule);
}

/* Two mirrored ranks hold the same parts of the model in the same order. */
static int stage_at(const struct sl_schedule *schedule, enum sl_stage_placement placement, int rank, int loop) {
    const int mirrored = schedule->ranks - 1 - rank;
    const int inner = schedule->loops - 2; /* loops between a first and a last one */
    if (placement == SL_ADJACENT) return rank * schedule->loops + loop;
    if (placement == SL_ADJACENT_BETWEEN && loop > 0 && loop <= inner) return schedule->ranks + rank * inner + loop - 1;
    if (placement == SL_MIRRORED && rank > mirrored) loop = 1 - loop;
    return loop * schedule->ranks +
           (placement != SL_RING && placement != SL_ADJACENT_BETWEEN && loop % 2 ? mirrored : rank);
}

void sl_schedule_place_stages(struct sl_schedule *schedule, enum sl_stage_placement placement) {
    schedule->copies = placement == SL_MIRRORED ? 2 : 1;
    for (int r = 0; r < schedule->ranks; r++) {
        for (int l = 0; l < schedule->loops; l++) {
            const int stage = stage_at(schedule, placement, r, l), place = r * schedule->loops + l;
            schedule->stage[place] = stage;
            schedule->place[stage] = place;
        }
    }
}

struct sl_action *sl_schedule_append(struct sl_rank_schedule *rank, const struct sl_action *action) {
    struct sl_action *grown = sl_grow(rank->action, rank->count, &rank->capacity, 64, sizeof *grown);
    if (!grown) return NULL;
    rank->action = grown;
    rank->action[rank->count] = *action;
    return &rank->action[rank->count++];
}

static bool is_compute(enum sl_action_kind kind) { return (unsigned)kind <= SL_WEIGHT_GRADIENT; }

int sl_schedule_check_actions(const struct sl_schedule *schedule, struct sl_error *error) {
    const int stages = sl_schedule_stages(schedule);
    if (*schedule->wrong) return sl_error_set(error, SL_BAD_INPUT, "schedule %s: %s", schedule->name, schedule->wrong);
    for (int s = 0; s < stages; s++)
        if (schedule->place[s] < 0 || schedule->place[s] >= stages || schedule->stage[schedule->place[s]] != s)
            return sl_error_set(
                error, SL_BAD_INPUT,
                "schedule %s: stage %d has no place: call sl_schedule_place_stages before the first action",
                schedule->name, s);
    for (int r = 0; r < schedule->ranks; r++) {
        for (int i = 0; i < schedule->rank[r].count; i++) {
            const struct sl_action *action = &schedule->rank[r].action[i];
            const int run = is_compute(action->kind) ? sl_schedule_run(schedule, action->kind) : 0;
            const int stage = action->loop < schedule->loops ? sl_schedule_stage(schedule, r, action->loop) : -1;
            if (run && stage >= 0 && action->microbatch >= sl_schedule_first_microbatch(schedule, stage) &&
                action->microbatch + run <= sl_schedule_end_microbatch(schedule, stage))
                continue;
            return sl_error_set(
                error, SL_BAD_INPUT,
                "schedule %s: rank %d, action %d has kind %d, loop %d, microbatch %d: kinds are SL_FORWARD to "
                "SL_WEIGHT_GRADIENT, loops 0 to %d, microbatches 0 to %d",
                schedule->name, r, i, (int)action->kind, action->loop, action->microbatch, schedule->loops - 1,
                schedule->microbatches - 1);
        }
    }
    return SL_OK;
}

/* Whether the schedule has such an action; records the first one it does not have. */
static bool has_action(struct sl_schedule *schedule, enum sl_action_kind kind, int stage, int microbatch) {
    const int stages = sl_schedule_stages(schedule), some = stage >= 0 && stage < stages ? stage : 0;
    const int first = sl_schedule_first_microbatch(schedule, some), end = sl_schedule_end_microbatch(schedule, some);
    const bool fits = is_compute(kind) && stage == some && microbatch >= first && microbatch < end;
    if (fits && schedule->place[stage] >= 0 && schedule->place[stage] < stages) return true;
    if (*schedule->wrong) return false;
    if (!is_compute(kind))
        snprintf(schedule->wrong, sizeof schedule->wrong,
                 "kind %d of an action: it computes from SL_FORWARD to SL_WEIGHT_GRADIENT", (int)kind);
    else if (fits)
        snprintf(schedule->wrong, sizeof schedule->wrong, "stage %d is at place %d: there are 0 to %d", stage,
                 schedule->place[stage], stages - 1);
    else
        snprintf(schedule->wrong, sizeof schedule->wrong,
                 "%s of microbatch %d in stage %d: microbatches are %d to %d, stages 0 to %d", sl_action_name(kind),
                 microbatch, stage, first, end - 1, stages - 1);
    return false;
}

int sl_schedule_compute(struct sl_schedule *schedule, enum sl_action_kind kind, int stage, int microbatch,
                        bool paired) {
    if (!has_action(schedule, kind, stage, microbatch)) return SL_OK;
    const struct sl_action action = {
        .kind = kind,
        .microbatch = (uint16_t)microbatch,
        .loop = (uint16_t)sl_schedule_loop_of(schedule, stage),
        .paired = paired,
        .has_input = sl_schedule_is_first(schedule, stage),
        .has_output = sl_schedule_is_last(schedule, stage),
    };
    return sl_schedule_append(&schedule->rank[sl_schedule_rank_of(schedule, stage)], &action) ? SL_OK : SL_FAILED;
}

const char *sl_action_name(enum sl_action_kind kind) {
    static const char *const name[SL_ACTION_KINDS] = {
        "forward",
        "backward",
        "input gradient",
        "weight gradient",
        "send of the activation",
        "take of the activation",
        "send of the gradient",
        "take of the gradient",
        "reduction",
        "gathering of parameters",
        "release of parameters",
    };
    return name[kind];
}
