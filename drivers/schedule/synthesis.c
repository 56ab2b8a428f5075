/* synthesis.c - options of the search for a schedule, and the search. */
#include "drivers/schedule/synthesis.h"

#include <math.h>
#include <stdlib.h>

#include "drivers/schedule/costs.h"

enum { NOT_GIVEN = -1 };

#define FIELD(name) offsetof(struct schedule_synthesis_options, name)

const struct sl_option schedule_synthesis_table[] = {
    {"synthesize", SL_OPTION_FLAG, FIELD(asked), .read = "!all",
     .help =
         "look for the shortest schedule of a model of --stages x --loops parts with the costs of the options above "
         "and of --costs: one stage a rank, --loops of them, or two on a V"},
    {"memory", SL_OPTION_REAL, FIELD(memory), .min = 0, .max = SCHEDULE_MOST_BYTES, .value = "BYTES",
     .read = "synthesize",
     .help =
         "that a rank may keep for weight gradients to come, as `kept` in --costs counts them; without that each part "
         "keeps 1 of a microbatch (default: no limit)"},
    {"seconds", SL_OPTION_REAL, FIELD(seconds), .min = 0, .max = 86400, .read = "synthesize",
     .help = "that the search may take, though it is not done"},
    {"iterations", SL_OPTION_INTEGER, FIELD(iterations), .min = 1, .max = 1 << 30, .read = "synthesize",
     .help = "schedules to try of each kind of layout; as many find the same on any computer that has the time"},
    {"search-seed", SL_OPTION_SEED, FIELD(seed), .read = "synthesize", .help = "seed of the search's random numbers"},
    {"named", SL_OPTION_SWITCH, FIELD(named), .read = "synthesize", .help = "begin with the schedules below"},
    {0},
};

static int read_parts(struct schedule_synthesis *synthesis, const char *path, struct sl_error *error) {
    const size_t parts = (size_t)synthesis->ranks * (size_t)synthesis->loops;
    synthesis->part = calloc(parts, sizeof *synthesis->part);
    synthesis->kept = calloc(2 * parts, sizeof *synthesis->kept);
    synthesis->held = calloc((size_t)synthesis->ranks, sizeof *synthesis->held);
    if (!synthesis->part || !synthesis->kept || !synthesis->held)
        return sl_error_set(error, SL_FAILED, "no memory to look for a schedule");
    for (size_t p = 0; p < parts; p++) {
        synthesis->part[p] = *synthesis->cost;
        synthesis->kept[p] = NOT_GIVEN;
    }
    if (path) SL_TRY(schedule_costs_read(&synthesis->costs, synthesis->part, synthesis->kept, (int)parts, path, error));
    synthesis->in_bytes = synthesis->kept[0] != NOT_GIVEN;
    for (size_t p = 0; p < parts && !synthesis->in_bytes; p++) synthesis->kept[p] = 1;
    return SL_OK;
}

/* Computes the ranks' saved bytes. */
static int look_at(struct schedule_synthesis *synthesis, const struct sl_schedule *schedule, struct sl_error *error) {
    const int parts = synthesis->ranks * synthesis->loops, stages = sl_schedule_stages(schedule);
    double *joined = synthesis->kept + parts;
    sl_join_kept(synthesis->kept, parts, joined, stages);
    for (int r = 0; r < schedule->ranks; r++) {
        synthesis->held[r] = sl_schedule_kept(schedule, r, joined);
        if (synthesis->held[r] < 0) return sl_error_set(error, SL_FAILED, "no memory to look for a schedule");
    }
    return SL_OK;
}

int schedule_synthesis_find(struct schedule_synthesis *synthesis, const struct schedule_synthesis_options *options,
                            int microbatches, const char *path, struct sl_schedule *schedule, struct sl_error *error) {
    if ((long long)synthesis->ranks * synthesis->loops > SL_MAX_STAGES)
        return sl_error_set(error, SL_BAD_INPUT,
                            "--synthesize: %d stages, %d loops: must be at most %d stages together", synthesis->ranks,
                            synthesis->loops, SL_MAX_STAGES);
    SL_TRY(read_parts(synthesis, path, error));
    const struct sl_synthesis asked = {.ranks = synthesis->ranks,
                                       .loops = synthesis->loops,
                                       .microbatches = microbatches,
                                       .part = synthesis->part,
                                       .kept = synthesis->kept,
                                       .communication = synthesis->costs.communication,
                                       .memory = isnan(options->memory) ? (double)INFINITY : options->memory,
                                       .named = options->named,
                                       .seed = options->seed,
                                       .iterations = options->iterations,
                                       .seconds = options->seconds};
    struct sl_error why = {0};
    const int status = sl_schedule_synthesize(&asked, &synthesis->found, &why);
    if (status) return sl_error_set(error, status, "--synthesize: %s", why.message);
    *schedule = synthesis->found.schedule;
    synthesis->found.schedule = (struct sl_schedule){0};
    return look_at(synthesis, schedule, error);
}

void schedule_synthesis_costs(const struct schedule_synthesis *synthesis, struct sl_costs *costs,
                              struct sl_stage_costs *cost) {
    sl_join_costs(synthesis->part, synthesis->ranks * synthesis->loops, cost, costs->count);
    costs->communication = synthesis->costs.communication;
    costs->overlap = synthesis->costs.overlap;
}

void schedule_synthesis_free(struct schedule_synthesis *synthesis) {
    free(synthesis->part);
    free(synthesis->kept);
    free(synthesis->held);
}
