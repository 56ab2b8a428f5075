/* watchdog.c - watches the start and end of MPI, whose functions block until all processes have called them, and cannot
 * be interrupted.
 *
 * It is a thread without calls of MPI. If another process of this host has been stopped for the timeout, or if the
 * start takes much longer than the timeout (more so with many processes), one process prints the reason, and every
 * process with such a finding ends itself; the launcher then ends the others, such as a stopped one. /proc shows
 * stopped processes; one process of the host reads it for all. */
#include "collectives/mpi/process/process.h"
#include "collectives/mpi/process/shared.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "collectives/launcher.h"
#include "spmd/spmd.h"

static const double patience = 30;      /* seconds: processes may start late, and not all are visible from here */
static const double for_each = 0.5;     /* seconds for each process of this host: they share cores while they start */
static const double turn_to_speak = 3;  /* seconds, after which processes other than the first print */
static const int time_to_hear = 1;      /* seconds for the line to be passed on, and for others to find it printed */
static const int time_to_be_ended = 10; /* seconds for the launcher, after the printing process has ended */

/* MPI has one state per process, and so has its watchdog. */
static struct {
    bool on;
    const char *what;     /* "started" */
    double timeout, most; /* seconds of a stopped process; of the start */
    double limit;         /* seconds after which this process gives up */
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
} watch = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* Prints the line, unless another process has, and ends this process. Does not flush stdout, which another thread may
 * be writing. */
static void end_process(double seconds, const char *reason) {
    const bool speaks = sl_mpi_claim_word();
    if (speaks)
        dprintf(STDERR_FILENO, "%s: engine mpi: MPI has not %s within %g s: %s\n", program_invocation_short_name,
                watch.what, seconds, reason);
    sl_mpi_remove_segments();
    sleep((unsigned)(speaks ? time_to_hear : time_to_be_ended));
    if (speaks) sl_mpi_keep_word(time_to_be_ended - time_to_hear);
    sl_mpi_remove_segments(); /* others may have made theirs a little later */
    _exit(SL_FAILED);
}

static void blame(int pid, int rank) {
    char reason[100];
    int used =
        rank < 0 ? snprintf(reason, sizeof reason, "a process") : snprintf(reason, sizeof reason, "process %d", rank);
    snprintf(reason + used, sizeof reason - (size_t)used, " (pid %d) has been stopped for %g s", pid, watch.timeout);
    sl_mpi_say_stopped();
    end_process(watch.timeout, reason);
}

/* Waits for SECONDS, or until the watch is over. The lock is held. */
static void rest(double seconds) {
    struct timespec end;
    clock_gettime(CLOCK_MONOTONIC, &end);
    const long long ns = end.tv_nsec + (long long)(1e9 * seconds);
    end.tv_sec += (time_t)(ns / 1000000000);
    end.tv_nsec = (long)(ns % 1000000000);
    if (watch.on) pthread_cond_timedwait(&watch.changed, &watch.lock, &end);
}

/* Time in which this process did not run does not count. */
static void *look_out(void *arg) {
    const double quarter = watch.timeout / 4, tick = quarter < 0.05 ? 0.05 : quarter < 1 ? quarter : 1;
    struct sl_mpi_standing standing = {.who = -1}, here = {.who = -1};
    (void)arg;
    pthread_mutex_lock(&watch.lock);
    for (rest(tick); watch.on; rest(tick)) {
        int rank = -1;
        const bool said = sl_mpi_is_said_stopped();
        const int stopped = sl_mpi_find_stopped_sibling(standing.who, said, &rank);
        const double seconds = sl_mpi_count_standing(&standing, stopped, 2 * tick);
        if (seconds >= watch.timeout || (said && stopped >= 0)) blame(stopped, rank);
        if (sl_mpi_count_standing(&here, getpid(), 2 * tick) >= watch.limit)
            end_process(watch.most, "not all processes have come, and none of this host is stopped");
    }
    pthread_mutex_unlock(&watch.lock);
    sl_mpi_stop_watching();
    return NULL;
}

int sl_mpi_guard(const char *what, double timeout, struct sl_error *error) {
    pthread_condattr_t attributes;
    sigset_t all, before;
    watch.what = what;
    watch.timeout = timeout;
    watch.most = timeout + patience + for_each * sl_launch_of_process().here;
    watch.limit = watch.most + (sl_mpi_announced_rank() ? turn_to_speak : 0);
    watch.on = true;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&watch.changed, &attributes);
    pthread_condattr_destroy(&attributes);
    sigfillset(&all); /* the program's handlers run in its own thread */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const int refused = pthread_create(&watch.thread, NULL, look_out, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (!refused) return SL_OK;
    watch.on = false;
    return sl_error_set(error, SL_FAILED, "engine mpi: the watchdog cannot start: %s", strerror(refused));
}

void sl_mpi_unguard(void) {
    if (!watch.on) return;
    pthread_mutex_lock(&watch.lock);
    watch.on = false;
    pthread_cond_signal(&watch.changed);
    pthread_mutex_unlock(&watch.lock);
    pthread_join(watch.thread, NULL);
    pthread_cond_destroy(&watch.changed);
}
