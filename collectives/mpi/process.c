/* process.c - this process among the others: starts and leaves MPI, meets the others, checks which have ended or are
 * stopped. */
#include "collectives/mpi/engine.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "collectives/launcher.h"
#include "spmd/device/device.h"
#include "spmd/topology.h"

enum {
    FAREWELL_MS = 2000,
    TURN_TO_REPORT_MS = 1000,
    REPORT_TICK_MS = 20,
    TIME_TO_CLAIM_MS = 100,
    TIME_TO_SAY_MS = 1000,
    TIME_TO_PRINT_MS = 200,
    TIME_TO_SPEAK_MS = 5000
};

static const double time_to_come = 1; /* seconds, for a process's last message to a meeting before it ended */
static const double time_to_find = 3; /* seconds, for others to find the missing process, and the printed line */

/* MPI has one state per process. */
static struct sl_mpi_process process;
static struct sl_mpi_attendance *attendance; /* [size] */
static MPI_Request meeting = MPI_REQUEST_NULL;

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

/* ---- meetings ---- */

/* The process seen stopped while this process waits for all. */
static struct sl_mpi_standing standing = {.who = -1};

/* Forgets the process seen stopped in an earlier wait: no checks have been made since. */
void sl_mpi_meet(const struct sl_mpi_attendance *attending) {
    static struct sl_mpi_attendance mine; /* MPI reads it until all have met */
    mine = *attending;
    standing.who = -1;
    MPI_Iallgather(&mine, sizeof mine, MPI_BYTE, attendance, sizeof mine, MPI_BYTE, process.comm, &meeting);
}

bool sl_mpi_have_met(void) {
    int met;
    MPI_Test(&meeting, &met, MPI_STATUS_IGNORE);
    return met;
}

int sl_mpi_find_stopped(void) {
    if (sl_now() < standing.looked + 1e-3 * SL_MPI_TICK_MS) return -1;
    const int stopped = sl_mpi_find_still();
    const double seconds = sl_mpi_count_standing(&standing, stopped, 2e-3 * SL_MPI_TICK_MS);
    return seconds >= process.timeout ? stopped : -1;
}

bool sl_mpi_await(MPI_Request *request, struct sl_mpi_missing *missing) {
    double gone = 0;
    int ended = 0;
    for (int round = 0;; round++) {
        const int code = MPI_Test(request, &ended, MPI_STATUS_IGNORE);
        if (code != MPI_SUCCESS) {
            *missing = (struct sl_mpi_missing){.rank = -1, .code = code};
            break;
        }
        if (ended) return true;
        sl_mpi_pause(round);
        if (round % 256 != 255) continue;
        *missing = (struct sl_mpi_missing){.rank = sl_mpi_find_gone()};
        if (missing->rank >= 0 && gone == 0) gone = sl_now();
        if (missing->rank >= 0 && sl_now() > gone + (terminated ? 0 : time_to_come)) break;
        *missing = (struct sl_mpi_missing){.rank = sl_mpi_find_stopped(), .stopped = true};
        if (missing->rank >= 0) break;
    }
    process.lost = true;
    process.speaker = sl_mpi_claim_word() ? process.rank : -1;
    return false;
}

bool sl_mpi_await_all(struct sl_mpi_missing *missing) { return sl_mpi_await(&meeting, missing); }

int sl_mpi_report_missing(const struct sl_mesh *mesh, const struct sl_mpi_missing *missing, const char *when,
                          struct sl_error *error) {
    char who[SL_VERDICT_NAME], reason[MPI_MAX_ERROR_STRING];
    int length;
    if (missing->rank < 0) {
        MPI_Error_string(missing->code, reason, &length);
        return sl_error_set(error, SL_FAILED, "engine mpi: %s, %s: are the processes of one build?", reason, when);
    }
    snprintf(who, sizeof who, "process %d", missing->rank);
    if (mesh && missing->rank < mesh->size) sl_verdict_name(mesh, missing->rank, who);
    if (!missing->stopped)
        return sl_error_set(error, SL_FAILED, "engine mpi: %s is lost: its process has ended %s", who, when);
    return sl_error_set(error, SL_FAILED,
                        "engine mpi: %s is absent: its process (pid %d) has been stopped for %g s, %s", who,
                        (int)home[missing->rank].pid, process.timeout, when);
}

const struct sl_mpi_attendance *sl_mpi_attendance(int rank) { return &attendance[rank]; }

/* ---- leaving ---- */

/* Waits for the printed line to be passed on, and for the other processes, which would print the same if this process
 * were gone. */
static void stay(void) {
    fflush(NULL);
    sleep_ms(sl_mpi_speaks() ? TIME_TO_PRINT_MS : TIME_TO_SPEAK_MS);
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

/* Called at exit. Processes leave MPI together; some may still be at the beginning of a run, and learn the end of this
 * one in this way. */
static void leave(int status, void *arg) {
    struct sl_mpi_missing missing;
    (void)arg;
    int finalized;
    MPI_Finalized(&finalized);
    if (finalized) return;
    if (process.lost || process.run) abandon(status);
    fflush(NULL); /* readers may be slow, and the others' timeout for MPI's end begins when all have met */
    if (!process.parting)
        sl_mpi_meet(&(struct sl_mpi_attendance){.occasion = SL_MPI_LEAVE, .number = process.runs, .status = status});
    if (!sl_mpi_await_all(&missing)) abandon_without(&missing, status);
    sl_mpi_stop_listening();
    sl_mpi_show_segments();
    sl_mpi_guard("ended", process.timeout, NULL);
    MPI_Finalize();
    sl_mpi_unguard();
}

/* ---- opening ---- */

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
static int join(bool started, struct sl_error *error) {
    MPI_Comm host;
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN); /* for functions without one, as MPI_Testall */
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
    find_homes(host);
    find_tags();
    find_cores(host);
    sl_mpi_board_open(host);
    sl_mpi_bells_open(host);
    sl_mpi_mailboxes_open(host);
    if (started) sl_mpi_hide_segments(host);
    MPI_Comm_free(&host);
    process.open = true;
    return SL_OK;
}

int sl_mpi_open(double timeout, struct sl_error *error) {
    if (process.open) return SL_OK;
    int started, finalized;
    MPI_Initialized(&started);
    MPI_Finalized(&finalized);
    if (finalized) return sl_error_set(error, SL_FAILED, "engine mpi: this process has left MPI already");
    process.timeout = timeout;
    SL_TRY(sl_mpi_guard("started", timeout, error));
    if (!started) start_mpi();
    const int status = join(!started, error);
    sl_mpi_unguard();
    if (!started && !status) on_exit(leave, NULL);
    return status;
}

bool sl_mpi_is_neighbour(int rank) { return home[rank].pid != 0; }

bool sl_mpi_is_stopped_here(int rank) { return home[rank].pid && sl_mpi_is_stopped(home[rank].pid); }

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
