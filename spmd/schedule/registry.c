/* registry.c - the schedules, one row each, and generating one. Drivers list them in this order. */
#include "spmd/schedule/registry.h"

#include <stdio.h>
#include <string.h>

#include "spmd/schedule/generate.h"

static const struct sl_schedule_kind kinds[] = {
    {
        .name = "gpipe",
        .help = "all forwards, then all backwards",
        .source = "Huang et al. 2019, GPipe",
        .generate = sl_generate_looped,
        .least_loops = 1,
        .most_loops = 1,
        .default_loops = 1,
        .sets_times = true,
    },
    {
        .name = "1f1b",
        .help = "forwards and backwards take turns after a long warm-up, which hides delays between ranks; "
                "interleaved-1f1b at one loop",
        .source = "Narayanan et al. 2019, PipeDream",
        .generate = sl_generate_1f1b,
        .variant.one_f_one_b = {.per_hop = 2},
        .least_loops = 1,
        .most_loops = 1,
        .default_loops = 1,
    },
    {
        .name = "pipedream-flush",
        .help =
            "the 1F1B of textbooks: forwards and backwards take turns after a short warm-up, which holds the fewest "
            "microbatches",
        .source = "Narayanan et al. 2021, PipeDream-2BW",
        .generate = sl_generate_1f1b,
        .variant.one_f_one_b = {.per_hop = 1},
        .least_loops = 1,
        .most_loops = 1,
        .default_loops = 1,
    },
    {
        .name = "interleaved-1f1b",
        .help = "forwards and backwards take turns; rounds of microbatches go through the loops one after the other",
        .source = "Narayanan et al. 2021, Megatron-LM",
        .generate = sl_generate_1f1b,
        .variant.one_f_one_b = {.in_rounds = true, .per_hop = 2},
        .least_loops = 1,
        .most_loops = SL_ANY_LOOPS,
        .default_loops = 2,
    },
    {
        .name = "looped-bfs",
        .help = "breadth first: all microbatches go through a loop before the next one; all forwards, then all "
                "backwards",
        .source = "Lamy-Poirier 2023",
        .generate = sl_generate_looped,
        .least_loops = 1,
        .most_loops = SL_ANY_LOOPS,
        .default_loops = 2,
        .sets_times = true,
    },
    {
        .name = "looped-dfs",
        .help = "depth first: as many microbatches as ranks go through all loops before the next ones; all forwards, "
                "then all backwards",
        .source = "Lamy-Poirier 2023",
        .generate = sl_generate_looped,
        .variant.looped = {.depth_first = true},
        .least_loops = 1,
        .most_loops = SL_ANY_LOOPS,
        .default_loops = 2,
        .sets_times = true,
    },
    {
        .name = "interleaved-zb",
        .help = "interleaved-1f1b with weight gradients apart and later, where ranks would be idle",
        .source = "Qi et al. 2023, zero bubble",
        .generate = sl_generate_1f1b,
        .variant.one_f_one_b = {.in_rounds = true, .per_hop = 1, .split = true},
        .least_loops = 1,
        .most_loops = SL_ANY_LOOPS,
        .default_loops = 2,
    },
    {
        .name = "zbv",
        .help = "two stages a rank on a V, with weight gradients where ranks would be idle",
        .source = "Qi et al. 2023, zero bubble",
        .generate = sl_generate_zero_bubble,
        .least_loops = 2,
        .most_loops = 2,
        .default_loops = 2,
        .placement = SL_V,
    },
    {
        .name = "dualpipev",
        .help = "two stages a rank on a V; the forward of one and the backward of the other share a cell",
        .source = "DeepSeek-AI 2024, DualPipe cut in half",
        .generate = sl_generate_dualpipe,
        .least_loops = 2,
        .most_loops = 2,
        .default_loops = 2,
        .placement = SL_V,
    },
    {
        .name = "dualpipe",
        .help =
            "microbatches enter at both ends: a rank has a stage of either copy of the model, and the forward of one "
            "and the backward of the other share a cell",
        .source = "DeepSeek-AI 2024, DualPipe",
        .generate = sl_generate_dualpipe,
        .least_loops = 2,
        .most_loops = 2,
        .default_loops = 2,
        .placement = SL_MIRRORED,
    },
    {
        .name = "sequential",
        .help = "one microbatch at a time, through all stages and back",
        .source = "Graphcore's tutorial on pipelining",
        .generate = sl_generate_lockstep,
        .variant.lockstep = {sl_sequential_forward, sl_sequential_backward},
        .least_loops = 1,
        .most_loops = SL_ANY_LOOPS,
        .default_loops = 1,
    },
    {
        .name = "grouped",
        .help = "ranks in step, all of them forwards, then all backwards, in turns",
        .source = "Graphcore's tutorial on pipelining",
        .generate = sl_generate_lockstep,
        .variant.lockstep = {sl_grouped_forward, sl_grouped_backward},
        .least_loops = 1,
        .most_loops = 1,
        .default_loops = 1,
    },
    {
        .name = "interleaved",
        .help =
            "ranks in step, neighbours forwards and backwards in turns; holds as many microbatches as pipedream-flush",
        .source = "Graphcore's tutorial on pipelining",
        .generate = sl_generate_lockstep,
        .variant.lockstep = {sl_interleaved_forward, sl_interleaved_backward},
        .least_loops = 1,
        .most_loops = 1,
        .default_loops = 1,
    },
    {
        .name = "rotating",
        .help =
            "all stages of a rank in every step, each with another microbatch: neighbouring stages on a rank, and a "
            "longer bubble than gpipe's",
        .source = "Jaxformer's pipeline",
        .generate = sl_generate_lockstep,
        .variant.lockstep = {sl_rotating_forward, sl_rotating_backward},
        .least_loops = 1,
        .most_loops = SL_ANY_LOOPS,
        .default_loops = 2,
        .placement = SL_ADJACENT,
    },
    {
        .name = "rotating-inputs",
        .help = "rotating, between a first loop, in which inputs come round the ring, and a last one, in which outputs "
                "go on: for a batch whose microbatches the ranks share",
        .source = "Jaxformer's pipeline",
        .generate = sl_generate_lockstep,
        .variant.lockstep = {sl_rotating_forward, sl_rotating_backward},
        .least_loops = 1,
        .most_loops = SL_ANY_LOOPS,
        .default_loops = 2,
        .placement = SL_ADJACENT_BETWEEN,
    },
};
enum { KINDS = sizeof kinds / sizeof *kinds };

const struct sl_schedule_kind *sl_schedule_kind_at(int i) { return i >= 0 && i < KINDS ? &kinds[i] : NULL; }

void sl_schedule_names(char *text, size_t size) {
    size_t used = 0;
    for (int i = 0; i < KINDS && used < size; i++)
        used += (size_t)snprintf(text + used, size - used, "%s%s", i ? ", " : "", kinds[i].name);
}

const struct sl_schedule_kind *sl_schedule_find(const char *name, struct sl_error *error) {
    for (int i = 0; i < KINDS; i++)
        if (!strcmp(kinds[i].name, name)) return &kinds[i];
    char names[sizeof error->message];
    sl_schedule_names(names, sizeof names);
    sl_error_set(error, SL_BAD_INPUT, "there is no schedule \"%s\": the schedules are %s", name, names);
    return NULL;
}

int sl_schedule_fit_loops(const struct sl_schedule_kind *kind, int wanted) {
    if (wanted < kind->least_loops) return kind->least_loops;
    return wanted < kind->most_loops ? wanted : kind->most_loops;
}

/* ---- generating ---- */

static int check_loops(const struct sl_schedule_kind *kind, int loops, struct sl_error *error) {
    char allowed[64] = "";
    if (loops >= kind->least_loops && loops <= kind->most_loops) return SL_OK;
    if (kind->most_loops == SL_ANY_LOOPS)
        snprintf(allowed, sizeof allowed, "at least %d", kind->least_loops);
    else if (kind->most_loops > kind->least_loops)
        snprintf(allowed, sizeof allowed, "from %d to %d", kind->least_loops, kind->most_loops);
    else
        snprintf(allowed, sizeof allowed, "%d", kind->least_loops);
    return sl_error_set(error, SL_BAD_INPUT, "schedule %s: %d loops: must be %s", kind->name, loops, allowed);
}

int sl_schedule_generate(struct sl_schedule *schedule, const struct sl_schedule_kind *kind, int stages, int loops,
                         int microbatches, struct sl_error *error) {
    memset(schedule, 0, sizeof *schedule);
    SL_TRY(sl_schedule_open(schedule, kind->name, stages, loops, microbatches, error));
    int status = check_loops(kind, loops, error);
    if (status) {
        sl_schedule_free(schedule);
        return status;
    }
    sl_schedule_place_stages(schedule, kind->placement);
    error->status = SL_OK;
    status = kind->generate(schedule, kind, error);
    if (status && !error->status) sl_error_set(error, status, "schedule %s: no memory", kind->name);
    if (status == SL_OK && !kind->sets_times) status = sl_schedule_clock(schedule, error);
    if (status) sl_schedule_free(schedule);
    return status;
}

int sl_schedule_make(struct sl_schedule *schedule, const char *name, int stages, int loops, int microbatches,
                     struct sl_error *error) {
    memset(schedule, 0, sizeof *schedule);
    const struct sl_schedule_kind *kind = sl_schedule_find(name, error);
    if (!kind) return SL_BAD_INPUT;
    return sl_schedule_generate(schedule, kind, stages, loops, microbatches, error);
}
