/* forward.c - tables of forwards only, on another schedule's stages: for generation and evaluation. */
#include <string.h>

#include "spmd/schedule/schedule.h"

static int open_like(struct sl_schedule *forward, const struct sl_schedule *like, const char *name, int microbatches,
                     struct sl_error *error) {
    const size_t stages = (size_t)sl_schedule_stages(like);
    SL_TRY(sl_schedule_open(forward, name, like->ranks, like->loops, microbatches, error));
    memcpy(forward->stage, like->stage, stages * sizeof *forward->stage);
    memcpy(forward->place, like->place, stages * sizeof *forward->place);
    forward->copies = like->copies;
    forward->forwards = true;
    return SL_OK;
}

static int no_memory(const struct sl_schedule *schedule, struct sl_error *error) {
    return sl_error_set(error, SL_FAILED, "schedule %s: no memory", schedule->name);
}

/* ---- a table made stage by stage ---- */

static int fill(struct sl_schedule *forward, struct sl_error *error) {
    const int depth = sl_schedule_depth(forward);
    for (int m = 0, copy = 0; m < forward->microbatches; m++) {
        while (m >= sl_schedule_first_of_copy(forward, copy + 1)) copy++;
        for (int s = copy * depth; s < (copy + 1) * depth; s++)
            if (sl_schedule_compute(forward, SL_FORWARD, s, m, false)) return no_memory(forward, error);
    }
    SL_TRY(sl_schedule_clock(forward, error));
    return sl_schedule_lower(forward, error);
}

int sl_schedule_forward(struct sl_schedule *forward, const struct sl_schedule *like, int microbatches,
                        struct sl_error *error) {
    SL_TRY(open_like(forward, like, "forward", microbatches, error));
    const int status = fill(forward, error);
    if (status) sl_schedule_free(forward);
    return status;
}

/* ---- a table made from another table ---- */

/* The number of iterations, over all ranks. */
static int length_of(const struct sl_schedule *schedule) {
    int length = 0;
    for (int r = 0; r < schedule->ranks; r++)
        for (int i = 0; i < schedule->rank[r].count; i++)
            if (schedule->rank[r].action[i].time >= length) length = schedule->rank[r].action[i].time + 1;
    return length;
}

/* Appends the actions of RANK in PASS. A copy's microbatches of all PASSES are numbered consecutively. */
static bool add_pass(const struct sl_schedule *of, int rank, int pass, int passes, int time,
                     struct sl_rank_schedule *to) {
    const struct sl_rank_schedule *from = &of->rank[rank];
    const int each = sl_schedule_first_of_copy(of, 1); /* microbatches of a copy */
    for (int i = 0; i < from->count; i++) {
        struct sl_action action = from->action[i];
        if (!sl_goes_forward(action.kind)) continue;
        action.time += time;
        const int copy = action.microbatch / each, m = action.microbatch % each;
        action.microbatch = (uint16_t)((copy * passes + pass) * each + m);
        if (!sl_schedule_append(to, &action)) return false;
    }
    return true;
}

int sl_schedule_stream(struct sl_schedule *stream, const struct sl_schedule *of, int passes, struct sl_error *error) {
    const int length = length_of(of);
    bool added = true;
    SL_TRY(open_like(stream, of, of->name, passes * of->microbatches, error));
    stream->run = of->run;
    stream->lowered = true;
    for (int r = 0; r < of->ranks; r++)
        for (int p = 0; p < passes; p++) added = added && add_pass(of, r, p, passes, p * length, &stream->rank[r]);
    if (added) return SL_OK;
    const int status = no_memory(stream, error);
    sl_schedule_free(stream);
    return status;
}
