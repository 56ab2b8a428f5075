/* interrupt.c - signals that would end a run in the middle of a step. */
#include "drivers/common/interrupt.h"

#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>

/* A handler is given nothing but the signal's number: what it leaves has to be global. */
static atomic_int arrived;

static void leave_note(int signal) { atomic_store(&arrived, signal); }

void sl_interrupt_catch(void) {
    struct sigaction action = {.sa_handler = leave_note, .sa_flags = SA_RESTART | (int)SA_RESETHAND};
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    signal(SIGPIPE, SIG_IGN);
}

int sl_interrupt_arrived(void) { return atomic_load(&arrived); }
