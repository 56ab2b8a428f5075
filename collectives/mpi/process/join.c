/* join.c - this process joins the others, and leaves them: starts and ends MPI. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "collectives/launcher.h"
#include "collectives/mpi/process/board.h"
#include "collectives/mpi/process/process.h"
#include "collectives/mpi/process/shared.h"
#include "spmd/device/device.h"
#include "spmd/placement/topology.h"

enum { TIME_TO_PRINT_MS = 200, TIME_TO_SPEAK_MS = 5000 };

static const double time_to_find = 3; /* seconds, for others to find the missing process, and the printed line */
static const double time_to_answer = 2, longest_linger = 10; /* seconds: see linger */

static const struct sl_mpi_joining *above;

/* ---- leaving ---- */

/* Waits for the printed line to be passed on, and for the other processes, which would print the same if this process
 * were gone. */
static void stay(void) {
    fflush(NULL);
    const int ms = sl_mpi_speaks() ? TIME_TO_PRINT_MS : TIME_TO_SPEAK_MS;
    struct timespec left = {ms / 1000, ms % 1000 * 1000000L};
    while (nanosleep(&left, &left) && errno == EINTR) continue; /* the launcher's SIGTERM may interrupt it */
    if (sl_mpi_speaks()) sl_mpi_keep_word(time_to_find);
}

/* Ends all processes, before exit would write the rest of stdout. The printing process goes first: the others give it
 * time, since it may be held in MPI by a lost host, and it gives the launcher time to pass the line on. */
static void abandon(int status) {
    stay();
    MPI_Abort(MPI_COMM_WORLD, status ? status : SL_FAILED);
}

/* Called at exit, if a process has not come to leave together. Only the printing process reports it. */
static void abandon_without(const struct sl_mpi_missing *missing, int status) {
    struct sl_error error = {0};
    sl_mpi_report_missing(NULL, missing, "before all have left MPI", &error);
    if (!status && sl_mpi_speaks()) fprintf(stderr, "%s: %s\n", program_invocation_short_name, error.message);
    stay();
    _exit(SL_FAILED);
}

/* At MPI's end a process tells the launcher that it leaves, waits two seconds for an answer, and goes on without one.
 * If the launcher, which may be busy with hundreds of processes, sees the process end before it reads the message, it
 * tells of a failure. So if MPI's end TOOK that long, the process waits as long again. */
static void linger(double took) {
    const double seconds = took < longest_linger ? took : longest_linger;
    struct timespec left = {(time_t)seconds, (long)(1e9 * (seconds - (double)(time_t)seconds))};
    while (took >= time_to_answer && nanosleep(&left, &left) && errno == EINTR) continue;
}

/* Called at exit. Processes leave MPI together; some may still be at the beginning of a run, and learn the end of this
 * one in this way. */
static void leave(int status, void *arg) {
    const struct sl_mpi_process *process = sl_mpi_process();
    struct sl_mpi_missing missing;
    int finalized;
    (void)arg;
    MPI_Finalized(&finalized);
    if (finalized) return;
    if (process->lost || process->run) abandon(status);
    fflush(NULL); /* readers may be slow, and the others' timeout for MPI's end begins when all have met */
    if (!process->parting)
        sl_mpi_meet(&(struct sl_mpi_attendance){.occasion = SL_MPI_LEAVE, .number = process->runs, .status = status});
    if (!sl_mpi_await_all(&missing)) abandon_without(&missing, status);
    above->leaving();
    sl_mpi_show_segments();
    sl_mpi_guard("ended", process->timeout, NULL);
    const double began = sl_now();
    MPI_Finalize();
    sl_mpi_unguard();
    linger(sl_now() - began);
}

/* ---- joining ---- */

/* Open MPI sends messages of up to 32 KB at once, without an answer of the receiver, which would have to be awake. If
 * processes share cores, MPI yields its core after each poll without result, since long messages come in parts, without
 * single copies, and their sender has to work. Values from the environment or --mca take precedence. */
static void start_mpi(void) {
    int provided;
    const bool share = sl_launch_of_process().here > sl_topology_usable();
    if (share) setenv("OMPI_MCA_mpi_yield_when_idle", "1", 0);
    if (sl_device.rests) sl_device.rests(share);
    setenv("OMPI_MCA_btl_vader_eager_limit", "32768", 0);
    MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &provided);
}

/* Collective: collects the processes' knowledge of each other. STARTED: this engine, not its user, has started MPI. */
static int find_each_other(bool started, struct sl_error *error) {
    struct sl_mpi_process *process = sl_mpi_process();
    MPI_Comm host;
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN); /* for functions without one, as MPI_Testall */
    MPI_Comm_dup(MPI_COMM_WORLD, &process->comm);
    MPI_Comm_set_errhandler(process->comm, MPI_ERRORS_RETURN);
    MPI_Comm_rank(process->comm, &process->rank);
    MPI_Comm_size(process->comm, &process->size);
    MPI_Comm_split_type(process->comm, MPI_COMM_TYPE_SHARED, process->rank, MPI_INFO_NULL, &host);
    if (!sl_mpi_meetings_open() || !sl_mpi_find_others(host))
        return sl_error_set(error, SL_FAILED, "engine mpi: no memory");
    sl_mpi_board_open(host);
    sl_mpi_bells_open(host);
    if (!above->joined(host)) return sl_error_set(error, SL_FAILED, "engine mpi: no memory");
    if (started) sl_mpi_hide_segments(host);
    MPI_Comm_free(&host);
    process->open = true;
    return SL_OK;
}

int sl_mpi_join(double timeout, const struct sl_mpi_joining *joining, struct sl_error *error) {
    if (sl_mpi_process()->open) return SL_OK;
    int started, finalized;
    MPI_Initialized(&started);
    MPI_Finalized(&finalized);
    if (finalized) return sl_error_set(error, SL_FAILED, "engine mpi: this process has left MPI already");
    sl_mpi_process()->timeout = timeout;
    above = joining;
    SL_TRY(sl_mpi_guard("started", timeout, error));
    if (!started) start_mpi();
    const int status = find_each_other(!started, error);
    sl_mpi_unguard();
    if (!started && !status) on_exit(leave, NULL);
    return status;
}
