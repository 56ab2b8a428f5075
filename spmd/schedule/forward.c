/* forward.c - forward actions alone, on another schedule's stages: for models that only generate. */
#include <string.h>

#include "spmd/schedule/schedule.h"

static int fill(struct sl_schedule *forward, const struct sl_schedule *like, struct sl_error *error) {
    const size_t stages = (size_t)sl_schedule_stages(like);
    memcpy(forward->stage, like->stage, stages * sizeof *forward->stage);
    memcpy(forward->place, like->place, stages * sizeof *forward->place);
    for (int m = 0; m < forward->microbatches; m++)
        for (int s = 0; s < (int)stages; s++)
            if (sl_schedule_compute(forward, SL_FORWARD, s, m, false))
                return sl_error_set(error, SL_FAILED, "schedule %s: no memory", forward->name);
    SL_TRY(sl_schedule_clock(forward, error));
    return sl_schedule_lower(forward, error);
}

int sl_schedule_forward(struct sl_schedule *forward, const struct sl_schedule *like, int microbatches,
                        struct sl_error *error) {
    SL_TRY(sl_schedule_open(forward, "forward", like->ranks, like->loops, microbatches, error));
    const int status = fill(forward, like, error);
    if (status) sl_schedule_free(forward);
    return status;
}
