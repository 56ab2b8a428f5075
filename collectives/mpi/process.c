/* process.c - this process among the others: starts and leaves MPI, meets the others, knows who has ended. */
#include "collectives/mpi/engine.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum { FAREWELL_MS = 2000, TIME_TO_PRINT_MS = 200, TIME_TO_SPEAK_MS = 5000 };

static const double time_to_come = 1; /* for what a process sent to a meeting before it ended */

/* MPI has one state a process. */
static struct sl_mpi_process process;
static struct sl_mpi_attendance *attendance; /* [size] */
static MPI_Request meeting = MPI_REQUEST_NULL;

/* Of each process: its id, or 0 where it cannot be seen from here; and the first process on its host. */
struct home {
    int32_t pid, host;
};
static struct home *home; /* [size] */

struct sl_mpi_process *sl_mpi_process(void) { return &process; }

static void sleep_ms(int ms) {
    const struct timespec time = {ms / 1000, ms % 1000 * 1000000L};
    nanosleep(&time, NULL);
}

/* ---- who prints ---- */

/* Before MPI has started, launchers tell the rank by the environment. */
static int announced_rank(void) {
    static const char *const names[] = {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *rank = getenv(names[i]);
        if (rank) return atoi(rank);
    }
    return 0;
}

bool sl_mpi_speaks(void) { return process.open ? process.rank == process.speaker : announced_rank() == 0; }

/* ---- meetings ---- */

void sl_mpi_meet(enum sl_mpi_occasion occasion, int32_t number, int status) {
    static struct sl_mpi_attendance mine; /* MPI reads it until all have met */
    mine = (struct sl_mpi_attendance){(int32_t)occasion, number, status};
    MPI_Iallgather(&mine, 3, MPI_INT32_T, attendance, 3, MPI_INT32_T, process.comm, &meeting);
}

bool sl_mpi_have_met(void) {
    int met;
    MPI_Test(&meeting, &met, MPI_STATUS_IGNORE);
    return met;
}

static bool is_one_gone(void) {
    for (int rank = 0; rank < process.size; rank++) {
        if (sl_mpi_is_gone(rank)) return true;
    }
    return false;
}

bool sl_mpi_await_all(void) {
    double gone = 0;
    for (int round = 0; !sl_mpi_have_met(); round++) {
        sl_mpi_pause(round);
        if (round % 1024 != 1023 || !is_one_gone()) continue;
        if (gone == 0) gone = sl_now();
        if (sl_now() > gone + time_to_come) return false;
    }
    return true;
}

const struct sl_mpi_attendance *sl_mpi_attendance(int rank) { return &attendance[rank]; }

/* ---- leaving ---- */

/* Ends all processes, before exit would write what is still in stdout. Who prints does it first: the others give it the
 * time, also to be held in MPI by a host that is gone, and it the launcher, which passes on what was printed. */
static void abandon(int status) {
    fflush(NULL);
    sleep_ms(sl_mpi_speaks() ? TIME_TO_PRINT_MS : TIME_TO_SPEAK_MS);
    MPI_Abort(MPI_COMM_WORLD, status ? status : SL_FAILED);
}

/* At exit. One process leaves MPI only together with the others; some may still be at the beginning of a run, which
 * so learn that this one does not come. */
static void leave(int status, void *arg) {
    (void)arg;
    int finalized;
    MPI_Finalized(&finalized);
    if (finalized) return;
    if (process.lost || process.run) abandon(status);
    if (!process.parting) sl_mpi_meet(SL_MPI_LEAVE, process.runs, status);
    if (!sl_mpi_await_all()) abandon(status);
    sl_mpi_stop_listening();
    MPI_Finalize();
}

/* ---- opening ---- */

static void find_homes(MPI_Comm host) {
    struct home mine = {getpid(), process.rank};
    MPI_Bcast(&mine.host, 1, MPI_INT32_T, 0, host);
    MPI_Allgather(&mine, 2, MPI_INT32_T, home, 2, MPI_INT32_T, process.comm);
    for (int rank = 0; rank < process.size; rank++) { /* all are alive */
        if (home[rank].host != mine.host || (kill(home[rank].pid, 0) && errno == ESRCH)) home[rank].pid = 0;
    }
    MPI_Barrier(process.comm);
}

/* Whether this host's processes have a core each. */
static bool find_cores(MPI_Comm host) {
    cpu_set_t allowed;
    int processes;
    CPU_ZERO(&allowed);
    sched_getaffinity(0, sizeof allowed, &allowed);
    MPI_Allreduce(MPI_IN_PLACE, &allowed, sizeof allowed, MPI_BYTE, MPI_BOR, host);
    MPI_Comm_size(host, &processes);
    return processes <= CPU_COUNT(&allowed);
}

static void find_tags(void) {
    int *largest, known;
    MPI_Comm_get_attr(process.comm, MPI_TAG_UB, &largest, &known);
    process.largest_tag = known ? *largest : 32767;
}

int sl_mpi_open(struct sl_error *error) {
    if (process.open) return SL_OK;
    int started, finalized, provided;
    MPI_Initialized(&started);
    MPI_Finalized(&finalized);
    if (finalized) return sl_error_set(error, SL_FAILED, "engine mpi: this process has left MPI already");
    if (!started) MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &provided);
    MPI_Comm host;
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN); /* of functions without a communicator, MPI_Testall */
    MPI_Comm_dup(MPI_COMM_WORLD, &process.comm);
    MPI_Comm_set_errhandler(process.comm, MPI_ERRORS_RETURN);
    MPI_Comm_rank(process.comm, &process.rank);
    MPI_Comm_size(process.comm, &process.size);
    MPI_Comm_split_type(process.comm, MPI_COMM_TYPE_SHARED, process.rank, MPI_INFO_NULL, &host);
    attendance = calloc((size_t)process.size, sizeof *attendance);
    home = calloc((size_t)process.size, sizeof *home);
    const bool room =
        sl_mpi_provide_messages(2 * process.size); /* a question or an answer for each, and as many again */
    if (!attendance || !home || !room) return sl_error_set(error, SL_FAILED, "engine mpi: no memory");
    MPI_Comm_rank(host, &process.local_rank);
    find_homes(host);
    find_tags();
    process.spin = find_cores(host);
    MPI_Comm_free(&host);
    process.open = true;
    if (!started) on_exit(leave, NULL);
    return SL_OK;
}

bool sl_mpi_is_neighbour(int rank) { return home[rank].pid != 0; }

bool sl_mpi_is_gone(int rank) { return home[rank].pid && kill(home[rank].pid, 0) && errno == ESRCH; }

/* ---- SIGTERM ---- */

static volatile sig_atomic_t terminated;
static struct sigaction before;

/* A process that would have died of it at once dies a little later. */
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
