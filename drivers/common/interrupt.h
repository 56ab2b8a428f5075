/* interrupt.h - signals that would end a run in the middle of a step: SIGINT and SIGTERM are a question to ask after
 * each one; SIGPIPE is an error of the write. */
#ifndef SL_DRIVERS_COMMON_INTERRUPT_H
#define SL_DRIVERS_COMMON_INTERRUPT_H

#include <stdbool.h>

/* From here on the first SIGINT or SIGTERM only leaves a note. It is answered on stderr where that is a terminal or,
 * IN_LOGS, whatever it is: "PROGRAM: ends after WHAT; again: ends now". WHAT, "this step and saves", is NULL in a
 * process that does not speak. A signal that comes more than a second later ends the process as usual. A write to a
 * pipe that nobody reads any more fails. */
void sl_interrupt_catch(const char *what, bool in_logs);

/* The signal that has arrived, 0 when none has. Threads may see it at different steps: one asks, and tells the others.
 */
int sl_interrupt_arrived(void);

/* For chats, in its place: SIGINT leaves a note that can be taken away, and SIGTERM one to end. */
void sl_interrupt_catch_stops(void);
bool sl_interrupt_stopped(void);
void sl_interrupt_take_stop(void);

#endif
