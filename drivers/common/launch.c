/* launch.c - the processes that a launcher has started. */
#include "drivers/common/launch.h"

#include <stdio.h>
#include <unistd.h>

#include "collectives/engines.h"
#include "collectives/launcher.h"
#include "drivers/common/options.h"
#include "spmd/device/device.h"

/* Whether this process is one of several that know nothing of each other. */
static bool is_alone_among_many(const struct sl_launch *launch, const char *engine) {
    return launch->processes > 1 && sl_engine_find(engine) == &sl_engine_local;
}

int sl_launch_check(const char *program, const char *engine, struct sl_error *error) {
    const struct sl_launch launch = sl_launch_of_process();
    if (!is_alone_among_many(&launch, engine)) return SL_OK;
    if (engine == sl_default_engine)
        return sl_error_set(error, SL_BAD_INPUT,
                            "%d processes were started by %s, but --engine is local: each would run on its own; use "
                            "--engine %s",
                            launch.processes, launch.launcher, sl_device.shares_memory ? "mpi" : "nccl");
    if (launch.rank <= 0)
        fprintf(stderr, "%s: %d processes were started by %s, and with --engine local each runs on its own\n", program,
                launch.processes, launch.launcher);
    return SL_OK;
}

void sl_launch_report(const char *program, const char *engine, const struct sl_error *error) {
    enum { MOMENT = 1 }; /* second: a launcher ends all processes when it sees that one of them has failed */
    const struct sl_engine of = {.table = engine ? sl_engine_find(engine) : NULL};
    const struct sl_launch launch = sl_launch_of_process();
    if (engine == sl_default_engine && launch.rank > 0 && is_alone_among_many(&launch, engine))
        sleep(MOMENT);
    else if (sl_reports(&of))
        fprintf(stderr, "%s: %s\n", program, error->message);
}
