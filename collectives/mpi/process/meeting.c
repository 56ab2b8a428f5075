/* meeting.c - all processes meet; if one does not come, the others find out which. */
#include <stdio.h>
#include <stdlib.h>

#include "collectives/mpi/process/board.h"
#include "collectives/mpi/process/process.h"
#include "collectives/mpi/process/shared.h"

static const double time_to_come = 1; /* seconds, for a process's last message to a meeting before it ended */

static struct sl_mpi_attendance *attendance; /* [size] */
static MPI_Request meeting = MPI_REQUEST_NULL;

bool sl_mpi_meetings_open(void) {
    attendance = calloc((size_t)sl_mpi_process()->size, sizeof *attendance);
    return attendance;
}

/* The process seen stopped while this process waits for all. */
static struct sl_mpi_standing standing = {.who = -1};

/* Forgets the process seen stopped in an earlier wait: no checks have been made since. */
void sl_mpi_meet(const struct sl_mpi_attendance *attending) {
    static struct sl_mpi_attendance mine; /* MPI reads it until all have met */
    mine = *attending;
    standing.who = -1;
    MPI_Iallgather(&mine, sizeof mine, MPI_BYTE, attendance, sizeof mine, MPI_BYTE, sl_mpi_process()->comm, &meeting);
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
    return seconds >= sl_mpi_process()->timeout ? stopped : -1;
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
        if (round % 64 != 63) continue;
        *missing = (struct sl_mpi_missing){.rank = sl_mpi_find_gone()};
        if (missing->rank >= 0 && gone == 0) gone = sl_now();
        if (missing->rank >= 0 && sl_now() > gone + (sl_mpi_terminated() ? 0 : time_to_come)) break;
        *missing = (struct sl_mpi_missing){.rank = sl_mpi_find_stopped(), .stopped = true};
        if (missing->rank >= 0) break;
    }
    sl_mpi_process()->lost = true;
    sl_mpi_process()->speaker = sl_mpi_claim_word() ? sl_mpi_process()->rank : -1;
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
                        sl_mpi_pid_of(missing->rank), sl_mpi_process()->timeout, when);
}

const struct sl_mpi_attendance *sl_mpi_attendance(int rank) { return &attendance[rank]; }
