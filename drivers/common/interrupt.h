/* interrupt.h - signals during a step: a run asks for SIGINT and SIGTERM after each step; SIGPIPE becomes an error
 * of the write. */
#ifndef SL_DRIVERS_COMMON_INTERRUPT_H
#define SL_DRIVERS_COMMON_INTERRUPT_H

#include <stdbool.h>

/* Catches the first SIGINT or SIGTERM from here on: it sets a flag, and prints "PROGRAM: ends after WHAT; again:
 * ends now" on stderr if that is a terminal or if IN_LOGS. WHAT is for example "this step and saves"; NULL in a
 * process that does not speak. A signal more than a second later ends the process as usual. Writing to a pipe
 * without a reader fails instead of ending the process. */
void sl_interrupt_catch(const char *what, bool in_logs);

/* Returns the signal that has arrived, 0 if none. Threads may see it at different steps: one asks, and sends the
 * answer to the others. */
int sl_interrupt_arrived(void);

/* Catches signals for chats instead: SIGINT sets a flag that can be cleared, SIGTERM a flag to end. */
void sl_interrupt_catch_stops(void);
bool sl_interrupt_stopped(void);
void sl_interrupt_take_stop(void);

#endif
