/* losses.c - counts and reports the time that a watched run has lost. */
#include "drivers/training/restart/losses.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "drivers/common/checkpoints.h"
#include "drivers/common/metrics.h"
#include "drivers/common/output.h"

void sl_losses_begin(struct sl_losses *losses, double now) {
    if (losses->first == 0) losses->first = now;
    if (losses->since == 0) losses->since = now;
}

void sl_losses_cause(struct sl_losses *losses, enum sl_lost_by cause, int64_t step, double bytes) {
    losses->cause = cause;
    losses->count[cause]++;
    losses->moved += bytes;
    if (step < losses->furthest)
        losses->again += losses->furthest - step;
    else
        losses->furthest = step;
}

bool sl_losses_run(const struct sl_losses *losses) { return losses->since > 0; }

double sl_losses_end(struct sl_losses *losses, int64_t step) {
    const double now = sl_now(), lost = losses->since > 0 ? now - losses->since : 0;
    losses->seconds[losses->cause] += lost;
    losses->since = step < losses->furthest ? now : 0;
    losses->cause = SL_LOST_BY_AGAIN;
    return lost;
}

static json_t *describe(const struct sl_losses *losses, double wall, double goodput) {
    const double *lost = losses->seconds;
    return json_pack("{s{si so} s{si so} s{so} sI so sI so so}", "restarts", "count", losses->count[SL_LOST_BY_DEATH],
                     "seconds", sl_json_real(lost[SL_LOST_BY_DEATH]), "resizes", "count",
                     losses->count[SL_LOST_BY_RESIZE], "seconds", sl_json_real(lost[SL_LOST_BY_RESIZE]), "start",
                     "seconds", sl_json_real(lost[SL_LOST_BY_START]), "steps_again", (json_int_t)losses->again,
                     "again_seconds", sl_json_real(lost[SL_LOST_BY_AGAIN]), "moved_bytes", (json_int_t)losses->moved,
                     "wall_seconds", sl_json_real(wall), "goodput", sl_json_real(goodput));
}

static void print(const struct sl_losses *losses, double goodput) {
    const int deaths = losses->count[SL_LOST_BY_DEATH], resizes = losses->count[SL_LOST_BY_RESIZE];
    const double *lost = losses->seconds;
    sl_remark("%d restart%s took %.2f s, %d resize%s %.2f s, the start %.2f s; %" PRId64
              " finished steps were computed again, in %.2f s; %.1f MB of state were moved; goodput %.1f %%",
              deaths, deaths == 1 ? "" : "s", lost[SL_LOST_BY_DEATH], resizes, resizes == 1 ? "" : "s",
              lost[SL_LOST_BY_RESIZE], lost[SL_LOST_BY_START], losses->again, lost[SL_LOST_BY_AGAIN],
              1e-6 * losses->moved, 100 * goodput);
}

static int append(const char *metrics, json_t *object, struct sl_error *error) {
    FILE *file;
    int status = sl_output_file("--metrics", metrics, true, &file, error);
    if (status) {
        json_decref(object);
        return status;
    }
    status = sl_json_print(file, metrics, object, error);
    if (fclose(file) && status == SL_OK) status = sl_error_set(error, SL_FAILED, "%s: %s", metrics, strerror(errno));
    return status;
}

int sl_losses_report(const struct sl_losses *losses, bool known, bool json, const char *metrics,
                     struct sl_error *error) {
    const double wall = sl_now() - losses->first;
    struct stat about;
    double all = 0;
    if (!known || losses->count[SL_LOST_BY_DEATH] + losses->count[SL_LOST_BY_RESIZE] == 0 || wall <= 0) return SL_OK;
    for (int cause = 0; cause < SL_LOST_BY; cause++) all += losses->seconds[cause];
    const double goodput = 1 - all / wall;
    if (!json) print(losses, goodput);
    if (json) SL_TRY(sl_json_print(stdout, "stdout", describe(losses, wall, goodput), error));
    if (!metrics || stat(metrics, &about) || !S_ISREG(about.st_mode)) return SL_OK;
    return append(metrics, describe(losses, wall, goodput), error);
}
