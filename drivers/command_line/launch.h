/* launch.h - the processes that a launcher has started: whether they are one run, and which of them speaks. */
#ifndef SL_DRIVERS_COMMAND_LINE_LAUNCH_H
#define SL_DRIVERS_COMMAND_LINE_LAUNCH_H

#include <stdbool.h>

#include "spmd/base/error.h"

/* The engine that a driver takes; ASKED: somebody has asked for it. */
struct sl_launch_engine {
    const char *name; /* NULL: the driver has none */
    bool asked;
};

/* SL_BAD_INPUT where a launcher has started several processes and ENGINE is local, which nobody asked for: each would
 * do the whole run. Where somebody did ask for it, one of them says so on stderr. */
int sl_launch_check(const char *program, struct sl_launch_engine engine, struct sl_error *error);

/* Prints "PROGRAM: MESSAGE" on stderr, in one of the processes. */
void sl_launch_report(const char *program, struct sl_launch_engine engine, const struct sl_error *error);

#endif
