/* launch.c - checks processes started by a launcher. */
#include "drivers/command_line/launch.h"

#include <stdio.h>
#include <unistd.h>

#include "collectives/engines.h"
#include "collectives/launcher.h"
#include "spmd/device/device.h"

static const struct sl_engine_table *find(struct sl_launch_engine engine) {
    return engine.name ? sl_engine_find(engine.name) : NULL;
}

/* Whether this process is one of several that do not communicate. */
static bool is_alone_among_many(const struct sl_launch *launch, struct sl_launch_engine engine) {
    return launch->processes > 1 && find(engine) == &sl_engine_local;
}

int sl_launch_check(const char *program, struct sl_launch_engine engine, struct sl_error *error) {
    const struct sl_launch launch = sl_launch_of_process();
    if (!is_alone_among_many(&launch, engine)) return SL_OK;
    if (!engine.asked)
        return sl_error_set(error, SL_BAD_INPUT,
                            "%d processes were started by %s, but --engine is local: each would run on its own; use "
                            "--engine %s",
                            launch.processes, launch.launcher, sl_device.shares_memory ? "mpi" : "nccl");
    if (launch.rank <= 0)
        fprintf(stderr, "%s: %d processes were started by %s, and with --engine local each runs on its own\n", program,
                launch.processes, launch.launcher);
    return SL_OK;
}

void sl_launch_report(const char *program, struct sl_launch_engine engine, const struct sl_error *error) {
    enum { MOMENT = 1 }; /* second: a launcher ends all processes when one of them has failed */
    const struct sl_engine of = {.table = find(engine)};
    const struct sl_launch launch = sl_launch_of_process();
    if (!engine.asked && launch.rank > 0 && is_alone_among_many(&launch, engine))
        sleep(MOMENT);
    else if (sl_reports(&of))
        fprintf(stderr, "%s: %s\n", program, error->message);
}
