/* interrupt.c - catches signals during a step. */
#include "drivers/common/interrupt.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

#include "spmd/spmd.h"

enum { AT_ONCE = 1000 }; /* milliseconds */

/* A handler receives only the signal's number, so its results are global. */
static atomic_int arrived;
static atomic_llong when; /* time of the first signal, in milliseconds */
static atomic_bool stopped;
static char note[200];    /* the answer on stderr: a step may take long */
static atomic_int length; /* length of the note */

/* Records a signal. A launcher that ends its processes sends each of them the signal twice at once, to the process
 * and to its group: that counts as one request. */
static void leave_note(int number) {
    long long first = 0;
    const long long here = (long long)(1e3 * sl_now());
    if (atomic_compare_exchange_strong(&when, &first, here)) {
        atomic_store(&arrived, number);
        if (write(STDERR_FILENO, note, (size_t)atomic_load(&length)) < 0) return;
    } else if (here - first > AT_ONCE) {
        signal(number, SIG_DFL);
        raise(number);
    }
}

void sl_interrupt_catch(const char *what, bool in_logs) {
    const bool terminal = isatty(STDERR_FILENO) == 1; /* the cursor may be behind "^C" */
    if (what && (terminal || in_logs))
        atomic_store(&length, snprintf(note, sizeof note, "%s%.40s: ends after %.80s; again: ends now\n",
                                       terminal ? "\n" : "", program_invocation_short_name, what));
    struct sigaction action = {.sa_handler = leave_note, .sa_flags = SA_RESTART};
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    signal(SIGPIPE, SIG_IGN);
}

int sl_interrupt_arrived(void) { return atomic_load(&arrived); }

/* ---- chats ---- */

static void leave_stop(int number) {
    if (number == SIGINT)
        atomic_store(&stopped, true);
    else
        atomic_store(&arrived, number);
}

/* SA_RESTART: writes continue, and so do reads except waits. */
void sl_interrupt_catch_stops(void) {
    struct sigaction action = {.sa_handler = leave_stop, .sa_flags = SA_RESTART};
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
}

bool sl_interrupt_stopped(void) { return atomic_load(&stopped); }
void sl_interrupt_take_stop(void) { atomic_store(&stopped, false); }
