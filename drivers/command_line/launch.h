/* launch.h - checks processes started by a launcher: are they one run, and which process reports errors. */
#ifndef SL_DRIVERS_COMMAND_LINE_LAUNCH_H
#define SL_DRIVERS_COMMAND_LINE_LAUNCH_H

#include <stdbool.h>

#include "spmd/base/error.h"

/* A driver's engine; ASKED: the user has chosen it. */
struct sl_launch_engine {
    const char *name; /* NULL: the driver has none */
    bool asked;
};

/* Checks the engine. If a launcher has started several processes and ENGINE is local by default, returns
 * SL_BAD_INPUT: each process would do the whole run. If the user has chosen local, one process warns on stderr. */
int sl_launch_check(const char *program, struct sl_launch_engine engine, struct sl_error *error);

/* Prints "PROGRAM: MESSAGE" on stderr, in only one of the processes. */
void sl_launch_report(const char *program, struct sl_launch_engine engine, const struct sl_error *error);

#endif
