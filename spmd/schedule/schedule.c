/* schedule.c - tables of actions: memory, placement of stages, and the generators by name. */
#include "spmd/schedule/schedule.h"

#include <stdlib.h>
#include <string.h>

#include "spmd/schedule/generate.h"

enum { MAX_STAGES = 4096, MAX_MICROBATCHES = 65536, MAX_CELLS = 1 << 22 };

char sl_action_letter(enum sl_action_kind kind) {
    static const char letter[SL_ACTION_KINDS] = {'F', 'B', 'I', 'W'};
    return letter[kind] ? letter[kind] : '?';
}

/* ---- memory ---- */

static int check_numbers(const char *name, int ranks, int loops, int microbatches, struct sl_error *error) {
    if (ranks < 1 || loops < 1 || (long long)ranks * loops > MAX_STAGES)
        return sl_error_set(error, SL_BAD_INPUT,
                            "schedule %s: %d stages x %d loops: both must be at least 1, their product at most %d",
                            name, ranks, loops, MAX_STAGES);
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
    *schedule = (struct sl_schedule){.ranks = ranks, .loops = loops, .microbatches = microbatches};
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

void sl_schedule_place_stages(struct sl_schedule *schedule, enum sl_stage_placement placement) {
    for (int r = 0; r < schedule->ranks; r++) {
        for (int l = 0; l < schedule->loops; l++) {
            const int across = placement == SL_V && l % 2 ? schedule->ranks - 1 - r : r;
            const int stage = l * schedule->ranks + across, place = r * schedule->loops + l;
            schedule->stage[place] = stage;
            schedule->place[stage] = place;
        }
    }
}

struct sl_action *sl_schedule_append(struct sl_rank_schedule *rank, const struct sl_action *action) {
    if (rank->count == rank->capacity) {
        const int capacity = rank->capacity ? 2 * rank->capacity : 64;
        struct sl_action *grown = realloc(rank->action, (size_t)capacity * sizeof *grown);
        if (!grown) return NULL;
        rank->action = grown;
        rank->capacity = capacity;
    }
    rank->action[rank->count] = *action;
    return &rank->action[rank->count++];
}

int sl_schedule_compute(struct sl_schedule *schedule, enum sl_action_kind kind, int stage, int microbatch,
                        bool paired) {
    const int loop = sl_schedule_loop_of(schedule, stage);
    const struct sl_action action = {
        .kind = kind,
        .microbatch = microbatch,
        .loop = loop,
        .input = stage == 0 ? microbatch : -1,
        .output = stage == sl_schedule_stages(schedule) - 1 ? microbatch : -1,
        .update = -1,
        .params = loop,
        .peer = -1,
        .paired = paired,
    };
    return sl_schedule_append(&schedule->rank[sl_schedule_rank_of(schedule, stage)], &action) ? SL_OK : SL_FAILED;
}

/* ---- generators ---- */

struct generator {
    const char *name;
    int least_loops, most_loops;
    enum sl_stage_placement placement;
    bool clocked; /* it gives the times itself */
    sl_schedule_generator *generate;
};

static const struct generator generators[] = {
    {"gpipe", 1, 1, SL_RING, true, sl_generate_looped},
    {"1f1b", 1, 1, SL_RING, false, sl_generate_1f1b},
    {"pipedream-flush", 1, 1, SL_RING, false, sl_generate_1f1b},
    {"interleaved-1f1b", 1, MAX_STAGES, SL_RING, false, sl_generate_1f1b},
    {"looped-bfs", 1, MAX_STAGES, SL_RING, true, sl_generate_looped},
    {"looped-dfs", 1, MAX_STAGES, SL_RING, true, sl_generate_looped},
    {"interleaved-zb", 1, MAX_STAGES, SL_RING, false, sl_generate_1f1b},
    {"zbv", 2, 2, SL_V, false, sl_generate_zero_bubble},
    {"dualpipev", 2, 2, SL_V, false, sl_generate_dualpipe},
};
enum { GENERATORS = sizeof generators / sizeof *generators };

const char *sl_schedule_name(int i) { return i >= 0 && i < GENERATORS ? generators[i].name : NULL; }

int sl_schedule_default_loops(const char *name) {
    for (int i = 0; i < GENERATORS; i++)
        if (!strcmp(generators[i].name, name)) return generators[i].most_loops > 1 ? 2 : 1;
    return 1;
}

static const struct generator *find_generator(const char *name, struct sl_error *error) {
    char names[200] = "";
    for (int i = 0; i < GENERATORS; i++) {
        if (!strcmp(generators[i].name, name)) return &generators[i];
        if (i) strcat(names, ", ");
        strcat(names, generators[i].name);
    }
    sl_error_set(error, SL_BAD_INPUT, "there is no schedule \"%s\": the schedules are %s", name, names);
    return NULL;
}

int sl_schedule_make(struct sl_schedule *schedule, const char *name, int stages, int loops, int microbatches,
                     struct sl_error *error) {
    memset(schedule, 0, sizeof *schedule);
    const struct generator *generator = find_generator(name, error);
    if (!generator) return SL_BAD_INPUT;
    SL_TRY(check_numbers(name, stages, loops, microbatches, error));
    if (loops < generator->least_loops || loops > generator->most_loops)
        return sl_error_set(error, SL_BAD_INPUT, "schedule %s: %d loops: must be %d", name, loops,
                            generator->least_loops);
    SL_TRY(sl_schedule_open(schedule, name, stages, loops, microbatches, error));
    sl_schedule_place_stages(schedule, generator->placement);
    error->status = SL_OK;
    int status = generator->generate(schedule, error);
    if (status && !error->status) sl_error_set(error, status, "schedule %s: no memory", name);
    if (status == SL_OK && !generator->clocked) status = sl_schedule_clock(schedule, error);
    if (status) sl_schedule_free(schedule);
    return status;
}
