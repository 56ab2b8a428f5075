/* losses.c - counts and prints the time that a watched run has lost. */
#include "drivers/training/restart/losses.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>

#include "drivers/common/checkpoints.h"
#include "drivers/common/metrics.h"

void sl_losses_begin(struct sl_losses *losses, double now) {
    if (losses->first == 0) losses->first = now;
    if (losses->since == 0) losses->since = now;
}

void sl_losses_cause(struct sl_losses *losses, enum sl_lost_by cause, int64_t step) {
    losses->cause = cause;
    losses->count[cause]++;
    if (step < losses->furthest) losses->again += losses->furthest - step;
    losses->furthest = step;
}

bool sl_losses_run(const struct sl_losses *losses) { return losses->since > 0; }

double sl_losses_end(struct sl_losses *losses) {
    const double lost = losses->since > 0 ? sl_now() - losses->since : 0;
    losses->seconds[losses->cause] += lost;
    losses->since = 0;
    return lost;
}

void sl_losses_print(const struct sl_losses *losses, bool known, bool json) {
    const int deaths = losses->count[SL_LOST_BY_DEATH], resizes = losses->count[SL_LOST_BY_RESIZE];
    const double *lost = losses->seconds, wall = sl_now() - losses->first;
    const double all = lost[SL_LOST_BY_START] + lost[SL_LOST_BY_DEATH] + lost[SL_LOST_BY_RESIZE];
    if (!known || deaths + resizes == 0 || wall <= 0) return;
    if (!json) {
        sl_remark("%d restart%s took %.2f s, %d resize%s %.2f s, the start %.2f s; %" PRId64
                  " finished steps were computed again; goodput %.1f %%",
                  deaths, deaths == 1 ? "" : "s", lost[SL_LOST_BY_DEATH], resizes, resizes == 1 ? "" : "s",
                  lost[SL_LOST_BY_RESIZE], lost[SL_LOST_BY_START], losses->again, 100 * (1 - all / wall));
        return;
    }
    json_t *object = json_pack("{s{si so} s{si so} s{so} sI so so}", "restarts", "count", deaths, "seconds",
                               sl_json_real(lost[SL_LOST_BY_DEATH]), "resizes", "count", resizes, "seconds",
                               sl_json_real(lost[SL_LOST_BY_RESIZE]), "start", "seconds",
                               sl_json_real(lost[SL_LOST_BY_START]), "steps_again", (json_int_t)losses->again,
                               "wall_seconds", sl_json_real(wall), "goodput", sl_json_real(1 - all / wall));
    sl_json_print(stdout, "stdout", object, NULL);
}
