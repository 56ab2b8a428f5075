/* schedule.c - generates the compute actions of a schedule. */
#include "spmd/schedule.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_STAGES = 4096, MAX_MICROBATCHES = 65536, MAX_CELLS = 1 << 22 };

static int larger(int a, int b) { return a > b ? a : b; }

int sl_schedule_iterations(const struct sl_schedule *schedule) {
    const int m = schedule->microbatches, s = schedule->ranks;
    return schedule->loops * larger(m, s) + (m < s ? m : s) - 1;
}

char sl_action_letter(enum sl_action_kind kind) {
    static const char letter[SL_ACTION_KINDS] = {'F', 'B', 'I', 'W'};
    return letter[kind] ? letter[kind] : '?';
}

void sl_schedule_free(struct sl_schedule *schedule) {
    for (int r = 0; schedule->rank && r < schedule->ranks; r++) free(schedule->rank[r].action);
    free(schedule->rank);
    memset(schedule, 0, sizeof *schedule);
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

/* The looping pipeline's columns for a compute action of RANK. The first rank reads its rows from the stage-input
 * buffer, the last stage writes its rows to the output buffer, everyone else works on the state that goes round. */
static struct sl_action compute_action(const struct sl_schedule *schedule, int rank, enum sl_action_kind kind, int time,
                                       int microbatch, int loop) {
    const bool last_stage = rank == schedule->ranks - 1 && loop == schedule->loops - 1;
    return (struct sl_action){
        .kind = kind,
        .time = time,
        .microbatch = microbatch,
        .loop = loop,
        .input = rank == 0 ? microbatch : -1,
        .output = last_stage ? microbatch : -1,
        .update = -1,
        .params = loop,
        .peer = -1,
    };
}

/* Breadth first: all microbatches of a loop, then the next loop; microbatch i of loop l is on rank r in iteration
 * i + r + l * max(microbatches, ranks). The backward pass is the forward pass's clock run in reverse. With one loop
 * this is GPipe. */
static int breadth_first(struct sl_schedule *schedule) {
    const int period = larger(schedule->microbatches, schedule->ranks), end = 2 * sl_schedule_iterations(schedule) - 1;
    for (int r = 0; r < schedule->ranks; r++) {
        struct sl_rank_schedule *rank = &schedule->rank[r];
        for (int l = 0; l < schedule->loops; l++) {
            for (int i = 0; i < schedule->microbatches; i++) {
                const struct sl_action forward = compute_action(schedule, r, SL_FORWARD, i + r + l * period, i, l);
                if (!sl_schedule_append(rank, &forward)) return SL_FAILED;
            }
        }
        for (int n = rank->count - 1; n >= 0; n--) {
            struct sl_action backward = rank->action[n];
            backward.kind = SL_BACKWARD;
            backward.time = end - backward.time;
            if (!sl_schedule_append(rank, &backward)) return SL_FAILED;
        }
    }
    return SL_OK;
}

static int check_numbers(const char *name, int stages, int loops, int microbatches, struct sl_error *error) {
    if (stages < 1 || loops < 1 || (long long)stages * loops > MAX_STAGES)
        return sl_error_set(error, SL_BAD_INPUT,
                            "schedule %s: %d stages x %d loops: both must be at least 1, their product at most %d",
                            name, stages, loops, MAX_STAGES);
    if (microbatches < 1 || microbatches > MAX_MICROBATCHES)
        return sl_error_set(error, SL_BAD_INPUT, "schedule %s: %d microbatches: must be from 1 to %d", name,
                            microbatches, MAX_MICROBATCHES);
    if ((long long)stages * loops * microbatches > MAX_CELLS)
        return sl_error_set(error, SL_BAD_INPUT,
                            "schedule %s: %d stages x %d loops x %d microbatches: their product must be at most %d",
                            name, stages, loops, microbatches, MAX_CELLS);
    return SL_OK;
}

struct generator {
    const char *name;
    int max_loops;
    int (*generate)(struct sl_schedule *schedule);
};

static const struct generator generators[] = {
    {"gpipe", 1, breadth_first},
    {"looped-bfs", MAX_STAGES, breadth_first},
};
enum { GENERATORS = sizeof generators / sizeof *generators };

static const struct generator *find_generator(const char *name, struct sl_error *error) {
    char names[128] = "";
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
    if (loops > generator->max_loops)
        return sl_error_set(error, SL_BAD_INPUT, "schedule %s: %d loops: must be %d", name, loops,
                            generator->max_loops);
    *schedule = (struct sl_schedule){.ranks = stages, .loops = loops, .microbatches = microbatches};
    strncpy(schedule->name, name, sizeof schedule->name - 1);
    schedule->rank = calloc((size_t)stages, sizeof *schedule->rank);
    if (schedule->rank && generator->generate(schedule) == SL_OK) return SL_OK;
    sl_schedule_free(schedule);
    return sl_error_set(error, SL_FAILED, "schedule %s: no memory", name);
}
