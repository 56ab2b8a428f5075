/* share.c - each thread of a crew takes equally many units. */
#include "layers/modules/share.h"

#include "spmd/base/crew.h"
#include "spmd/base/memory.h"

enum {
    SHARED = 1 << 15, /* numbers: a pass over fewer numbers is not faster on two cores than on one */
    STEP = 64,        /* single numbers are divided at cache lines */
};

struct share {
    sl_share_work *work;
    const void *arg;
    size_t units, each; /* each: units of every part but the last */
};

static void do_part(void *arg, int part) {
    const struct share *share = arg;
    const size_t first = share->each * (size_t)part, left = share->units - first;
    share->work(share->arg, first, first + (left < share->each ? left : share->each));
}

void sl_share(const struct sl_context *context, size_t units, size_t width, sl_share_work *work, const void *arg) {
    const size_t threads = (size_t)sl_crew_threads(context->crew);
    if (threads < 2 || units * width < SHARED) {
        work(arg, 0, units);
        return;
    }
    struct share share = {work, arg, units, (units + threads - 1) / threads};
    if (width == 1) share.each = sl_round_up(share.each, STEP);
    sl_crew_run(context->crew, (int)((units + share.each - 1) / share.each), do_part, &share);
}
