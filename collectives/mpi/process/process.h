/* process.h - the lowest layer of the mpi engine: this process among the others.
 *
 * The engine has one process per coordinate, started by a launcher (mpirun, srun), and three layers, each of which
 * calls those before it:
 *
 * - process.h: who the others are, whether they live, and how all start, meet and leave; with shared.h, for what the
 *   processes of one host share, and board.h, where they read about each other.
 * - collectives/mpi/word.h: a run, its waits and its verdicts.
 * - collectives/mpi/wire.h: its data.
 *
 * Above them collectives/mpi/engine.c runs a program. Before and after a run, and before they exit, all processes meet
 * (meeting.c). */
#ifndef SL_COLLECTIVES_MPI_PROCESS_PROCESS_H
#define SL_COLLECTIVES_MPI_PROCESS_PROCESS_H

#include <mpi.h>

#include "collectives/engines.h"
#include "collectives/verdict.h"

SL_BEGIN_C

struct sl_mpi_run;

/* ---- this process (process.c) ---- */

/* MPI has one state per process, and so has this engine. */
struct sl_mpi_process {
    bool open;
    MPI_Comm comm; /* all processes: meetings and messages */
    int rank, size;
    double timeout; /* seconds: the last opened engine's */
    int here;       /* number of processes on this host */
    int largest_tag;
    bool spin;    /* every process has its own core */
    bool unbound; /* all processes are on this host and share its cores; none is bound to some of them */
    int speaker;  /* rank of the printing process: the first process, or the one with the verdict; -1: not this one */
    bool lost;    /* a process does not answer any more: MPI cannot be left in order */
    bool parting; /* a process has left */
    struct sl_mpi_run *run;       /* the current run, or NULL */
    struct sl_mpi_run *abandoned; /* runs whose memory MPI may still read and write */
    int runs;                     /* number of runs so far */
    bool begun;                   /* a run has begun: all processes know how it ends */
};

struct sl_mpi_process *sl_mpi_process(void);

/* Collective over all processes: fills in the state; HOST has those of this host. False without memory. */
bool sl_mpi_find_others(MPI_Comm host);

/* Whether this process prints for the run; reports: the same before the first run, of which it may know alone. */
bool sl_mpi_speaks(void);
bool sl_mpi_reports(void);

/* is_neighbour: whether the process of RANK is on this host and visible from here; if so, whether it has ended, or is
 * stopped. */
bool sl_mpi_is_neighbour(int rank);
bool sl_mpi_is_gone(int rank);
bool sl_mpi_is_stopped_here(int rank);
/* Its id; 0: not a neighbour. */
int sl_mpi_pid_of(int rank);
/* The first process on its host, which identifies the host. */
int sl_mpi_host_of(int rank);
/* Its position among the processes of its host. */
int sl_mpi_place_of(int rank);

/* Between catch and release, SIGTERM is also recorded: launchers send it to the remaining processes when one has died,
 * about a second before they kill them. */
void sl_mpi_catch_sigterm(void);
void sl_mpi_release_sigterm(void);
bool sl_mpi_terminated(void);

/* ---- meetings (meeting.c) ---- */

enum {
    SL_MPI_TICK_MS = 100,     /* between two looks of a wait; */
    SL_MPI_LAST_TICK_MS = 10, /* after SIGTERM, when little time is left */
};
/* False without memory. */
bool sl_mpi_meetings_open(void);

/* A process of this host, stopped for the timeout, or -1. Waits call this repeatedly. */
int sl_mpi_find_stopped(void);

/* All processes meet and exchange one of these. */
enum sl_mpi_occasion { SL_MPI_START, SL_MPI_FINISH, SL_MPI_CLOSE, SL_MPI_LEAVE };
struct sl_mpi_attendance {
    int32_t occasion, number; /* of the run */
    int32_t status;
    int32_t bytes; /* at the start: bytes of the signature, which is sent if hashes differ; and its hash */
    uint64_t hash;
};
void sl_mpi_meet(const struct sl_mpi_attendance *attending);
/* Whether all have come. Does not wait. */
bool sl_mpi_have_met(void);

/* A process of this host with all others waiting for it, outside of runs; or an error of MPI. */
struct sl_mpi_missing {
    int rank;
    bool stopped; /* it has been stopped for the timeout; otherwise it has ended */
    int code;     /* rank -1: MPI's error */
};
/* Waits until all have come; or, in general, until REQUEST, which needs all processes, has ended. False if a process is
 * missing: the process is then `lost`, and the first of this host to find out prints it. */
bool sl_mpi_await_all(struct sl_mpi_missing *missing);
bool sl_mpi_await(MPI_Request *request, struct sl_mpi_missing *missing);
/* Describes the missing process: as a coordinate, unless MESH is NULL. WHEN is, for example, "before the run began".
 * Returns SL_FAILED. */
int sl_mpi_report_missing(const struct sl_mesh *mesh, const struct sl_mpi_missing *missing, const char *when,
                          struct sl_error *error);
const struct sl_mpi_attendance *sl_mpi_attendance(int rank);

/* ---- joining the others (join.c) ---- */

/* Functions of the layers above. */
struct sl_mpi_joining {
    bool (*joined)(MPI_Comm host); /* collective over HOST, when all know each other; false without memory */
    void (*leaving)(void);         /* called before this process leaves MPI */
};

/* Starts MPI, once. If another process of this host is stopped for TIMEOUT seconds meanwhile, or if the start takes 30
 * s longer than TIMEOUT, this process ends with a line on stderr: calls of MPI cannot be given up. */
int sl_mpi_join(double timeout, const struct sl_mpi_joining *joining, struct sl_error *error);

/* ---- the beginning of a run (start.c) ---- */

/* Before run NUMBER: meets all processes and compares their signatures. SL_BAD_INPUT, with the same message everywhere,
 * lists the differences; SL_FAILED names a missing process. */
int sl_mpi_start_together(const struct sl_mesh *mesh, const struct sl_engine *engine, int number,
                          struct sl_error *error);

/* ---- the processes of this host, also before MPI has started (neighbours.c) ---- */

/* Rank in the launcher's environment; 0: none. The first call must be on the main thread. */
int sl_mpi_announced_rank(void);

/* Returns whether this process prints for the job. On each host the first caller prints, as long as it lives. A process
 * without a launcher always prints. */
bool sl_mpi_claim_word(void);
/* Whether a living process prints for the job. */
bool sl_mpi_word_is_claimed(void);
/* Called before this process ends, if it prints: waits, at most MOST seconds, until all other running processes of this
 * host and program have asked. A later one would count as the first. */
void sl_mpi_keep_word(double most);

bool sl_mpi_is_stopped(int pid);
/* The id of a stopped process of this job, or -1. Checks SUSPECT first. Unless ALONE is set, one process of this host
 * checks all others, which check only that one. */
int sl_mpi_find_stopped_sibling(int suspect, bool alone, int *rank);
/* say: reports a process stopped too long to the others of this host; is_said: whether another process has. */
void sl_mpi_say_stopped(void);
bool sl_mpi_is_said_stopped(void);
/* Leaves the checking to others. */
void sl_mpi_stop_watching(void);

/* Time for which the same process has been seen stopped. */
struct sl_mpi_standing {
    int who; /* -1: none */
    double seconds, looked;
};
/* Adds to the time if WHO is the same as before. The time between two checks counts at most MOST, since this process
 * itself may not have run. Returns the seconds. */
double sl_mpi_count_standing(struct sl_mpi_standing *standing, int who, double most);

/* ---- while MPI blocks (watchdog.c) ---- */

/* Between guard and unguard a thread ends this process if MPI has not STARTED, or ENDED (WHAT), in time. */
int sl_mpi_guard(const char *what, double timeout, struct sl_error *error);
void sl_mpi_unguard(void);

SL_END_C
#endif
