/* interrupt.h - SIGINT and SIGTERM as a question to ask after each step. */
#ifndef SL_DRIVERS_COMMON_INTERRUPT_H
#define SL_DRIVERS_COMMON_INTERRUPT_H

/* From here on the first SIGINT or SIGTERM only leaves a note; a second one of the same ends the process as usual. */
void sl_interrupt_catch(void);

/* The signal that has arrived, 0 when none has. Threads may see it at different steps: one asks, and tells the others.
 */
int sl_interrupt_arrived(void);

#endif
