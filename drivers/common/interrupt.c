/* interrupt.c - signals that would end a run in the middle of a step. */
#include "drivers/common/interrupt.h"

#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <unistd.h>

#include "spmd/spmd.h"

enum { AT_ONCE = 1000 }; /* milliseconds */

/* A handler is given nothing but the signal's number: what it leaves has to be global. */
static atomic_int arrived;
static atomic_llong when; /* the first one came, in milliseconds */
static atomic_bool stopped;
static atomic_bool watched; /* somebody may see stderr: a step may take its time */

/* A launcher that ends its processes sends each of them the signal twice at once, to it and to its group: that is one
 * request. */
static void leave_note(int number) {
    long long first = 0;
    const long long here = (long long)(1e3 * sl_now());
    if (atomic_compare_exchange_strong(&when, &first, here)) {
        static const char note[] = "\nending after this step; once more ends at once\n";
        atomic_store(&arrived, number);
        if (atomic_load(&watched) && write(STDERR_FILENO, note, sizeof note - 1) < 0) return;
    } else if (here - first > AT_ONCE) {
        signal(number, SIG_DFL);
        raise(number);
    }
}

void sl_interrupt_catch(void) {
    atomic_store(&watched, isatty(STDERR_FILENO) == 1);
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

/* Writes go on, and so does reading but for a wait. */
void sl_interrupt_catch_stops(void) {
    struct sigaction action = {.sa_handler = leave_stop, .sa_flags = SA_RESTART};
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
}

bool sl_interrupt_stopped(void) { return atomic_load(&stopped); }
void sl_interrupt_take_stop(void) { atomic_store(&stopped, false); }
