/* process.c - this process among the others: which of them are on its host, which have ended or are stopped, and which
 * one prints. */
#include "collectives/mpi/process/process.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum {
    FAREWELL_MS = 2000,
    TURN_TO_REPORT_MS = 1000,
    REPORT_TICK_MS = 20,
    TIME_TO_CLAIM_MS = 100,
    TIME_TO_SAY_MS = 1000
};

/* MPI has one state per process. */
static struct sl_mpi_process process;
static volatile sig_atomic_t terminated; /* by SIGTERM */

/* A process: its id, or 0 if not visible from here; the first process on its host; its position on the host. */
struct home {
    int32_t pid, host, place;
};
static struct home *home; /* [size] */

struct sl_mpi_process *sl_mpi_process(void) { return &process; }

static void sleep_ms(int ms) {
    const struct timespec time = {ms / 1000, ms % 1000 * 1000000L};
    nanosleep(&time, NULL);
}

/* ---- printing ---- */

/* Before MPI has started, the rank comes from the launcher's environment. */
bool sl_mpi_speaks(void) { return process.open ? process.rank == process.speaker : sl_mpi_announced_rank() == 0; }

/* A failure before the first run may concern one process only, such as a file missing on its host. If it concerns all,
 * the printing process goes first, and the launcher ends the others, or they find the line printed. */
bool sl_mpi_reports(void) {
    if (process.begun) return sl_mpi_speaks();
    for (int ms = 0; ms < TURN_TO_REPORT_MS && !sl_mpi_speaks(); ms += REPORT_TICK_MS) {
        if (sl_mpi_word_is_claimed()) break;
        sleep_ms(REPORT_TICK_MS);
    }
    const bool reports = sl_mpi_claim_word();
    if (reports && !process.open) sleep_ms(TIME_TO_CLAIM_MS);
    if (!reports) sleep_ms(TIME_TO_SAY_MS); /* ending earlier would end the process that prints */
    return reports;
}

/* ---- the others ---- */

static void find_homes(MPI_Comm host) {
    struct home mine = {getpid(), process.rank, 0};
    MPI_Comm_rank(host, &mine.place);
    MPI_Comm_size(host, &process.here);
    MPI_Bcast(&mine.host, 1, MPI_INT32_T, 0, host);
    MPI_Allgather(&mine, 3, MPI_INT32_T, home, 3, MPI_INT32_T, process.comm);
    for (int rank = 0; rank < process.size; rank++) { /* all are alive here */
        if (home[rank].host != mine.host || (kill(home[rank].pid, 0) && errno == ESRCH)) home[rank].pid = 0;
    }
    MPI_Barrier(process.comm);
}

/* Finds whether this host's processes have a core each, and whether they are all processes and share all its cores. */
static void find_cores(MPI_Comm host) {
    cpu_set_t mine, allowed;
    int free;
    CPU_ZERO(&mine);
    sched_getaffinity(0, sizeof mine, &mine);
    MPI_Allreduce(&mine, &allowed, sizeof allowed, MPI_BYTE, MPI_BOR, host);
    process.spin = process.here <= CPU_COUNT(&allowed);
    const int unbound = CPU_EQUAL(&mine, &allowed) && process.here == process.size && !process.spin;
    MPI_Allreduce(&unbound, &free, 1, MPI_INT, MPI_MIN, host);
    process.unbound = free;
}

static void find_tags(void) {
    int *largest, known;
    MPI_Comm_get_attr(process.comm, MPI_TAG_UB, &largest, &known);
    process.largest_tag = known ? *largest : 32767;
}

bool sl_mpi_find_others(MPI_Comm host) {
    home = calloc((size_t)process.size, sizeof *home);
    if (!home) return false;
    find_homes(host);
    find_tags();
    find_cores(host);
    return true;
}

bool sl_mpi_is_neighbour(int rank) { return home[rank].pid != 0; }

bool sl_mpi_is_stopped_here(int rank) { return home[rank].pid && sl_mpi_is_stopped(home[rank].pid); }

int sl_mpi_pid_of(int rank) { return home[rank].pid; }

int sl_mpi_host_of(int rank) { return home[rank].host; }

int sl_mpi_place_of(int rank) { return home[rank].place; }

bool sl_mpi_is_gone(int rank) { return home[rank].pid && kill(home[rank].pid, 0) && errno == ESRCH; }

/* ---- SIGTERM ---- */

static struct sigaction before;

/* Delays the end of the process, if SIGTERM would have ended it at once. */
static void note(int number) {
    terminated = 1;
    if (before.sa_handler == SIG_DFL) {
        alarm(FAREWELL_MS / 1000);
    } else if (before.sa_handler != SIG_IGN && !(before.sa_flags & SA_SIGINFO)) {
        before.sa_handler(number);
    }
}

void sl_mpi_catch_sigterm(void) {
    struct sigaction action = {.sa_handler = note, .sa_flags = (int)SA_RESETHAND};
    sigemptyset(&action.sa_mask);
    sigaction(SIGTERM, &action, &before);
}

void sl_mpi_release_sigterm(void) {
    if (!terminated) sigaction(SIGTERM, &before, NULL);
}

bool sl_mpi_terminated(void) { return terminated; }
