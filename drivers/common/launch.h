/* launch.h - the processes that a launcher has started: whether they are one run, and which of them speaks. */
#ifndef SL_DRIVERS_COMMON_LAUNCH_H
#define SL_DRIVERS_COMMON_LAUNCH_H

#include "spmd/base/error.h"

/* SL_BAD_INPUT where a launcher has started several processes and ENGINE is sl_default_engine, which nobody asked for:
 * each would do the whole run. Where somebody did ask for engine local, one of them says so on stderr. */
int sl_launch_check(const char *program, const char *engine, struct sl_error *error);

/* Prints "PROGRAM: MESSAGE" on stderr, in one of the processes. ENGINE may be NULL: the driver has none. */
void sl_launch_report(const char *program, const char *engine, const struct sl_error *error);

#endif
