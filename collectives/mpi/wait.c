/* wait.c - polling, often but not too often. */
#include "collectives/mpi/engine.h"

#include <sched.h>
#include <stdio.h>
#include <time.h>

#include "collectives/engines.h"

enum {
    SPINS = 200,       /* if every process has its own core: polls without a pause, about 100 us */
    YIELDS = 8,        /* next; if cores are shared, at once */
    TAKEN_US = 3,      /* a longer yield let another process work, not only poll */
    NAP_US = 50,       /* then */
    DOZE_US = 1000,    /* longest sleep if a bell would ring: parts of long messages do not ring */
    SPINS_A_LOOK = 16, /* between two readings of the clock */
};

/* Seconds to wait for half received messages: if all peers are there; and after a loss, for an early verdict. */
static const double time_to_receive = 2, time_to_receive_after_loss = 0.2;

static void relax(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

void sl_mpi_pause(int round) {
    const int spins = sl_mpi_process()->spin ? SPINS : 0;
    if (round < spins) return;
    if (round < spins + YIELDS) {
        sched_yield();
        return;
    }
    const struct timespec nap = {.tv_nsec = NAP_US * 1000L};
    nanosleep(&nap, NULL);
}

/* The same after RINGS have been seen, if MPI may have a message: each sleep without result makes the next one longer.
 */
static void pause_for_mpi(int round, uint32_t rings) {
    const int first = sl_mpi_process()->spin ? SPINS + YIELDS : YIELDS;
    if (!sl_mpi_has_bells() || round < first) {
        sl_mpi_pause(round);
        return;
    }
    const int doubled = sl_mpi_bells_tell_all() ? round - first : 0;
    const long us = doubled < 5 ? (long)NAP_US << doubled : DOZE_US;
    sl_mpi_sleep(rings, 1000 * us);
}

/* Whether the bell rings within a few checks, or after one yield if cores are shared. */
static bool is_rung(uint32_t rings) {
    if (!sl_mpi_process()->spin) {
        sched_yield();
        return sl_mpi_rings() != rings;
    }
    for (int i = 0; i < SPINS_A_LOOK; i++) {
        relax();
        if (sl_mpi_rings() != rings) return true;
    }
    return false;
}

/* Pauses if the bell certainly rings. If cores are shared, the process sleeps after a few yields in which others
 * worked. As long as no process uses the core, staying awake is better: waking up takes long. */
static void pause_until_rung(struct sl_mpi_run *run, uint32_t rings) {
    double now = sl_now();
    const double end = now + SL_AWAKE_SECONDS;
    for (int taken = 0; taken < YIELDS && now < end;) {
        const double before = now;
        if (is_rung(rings)) return;
        now = sl_now();
        taken += !sl_mpi_process()->spin && now - before > 1e-6 * TAKEN_US;
    }
    sl_mpi_sleep(rings, 1000000L * SL_MPI_TICK_MS);
    run->overdue = sl_mpi_rings() == rings;
}

void sl_mpi_withdraw(struct sl_mpi_run *run) {
    const double end = sl_now() + (run->absent < 0 ? time_to_receive : time_to_receive_after_loss);
    sl_mpi_groups_withdraw(run, end);
    sl_mpi_channels_withdraw(run, end);
}

/* If all processes have bells, polls MPI when the bell has rung for it. MPI may deliver a message later than its ring:
 * a waiting process polls again after a tick without rings, and polls all the time if it only waits for the end of the
 * run. */
static void listen(struct sl_mpi_run *run) {
    const uint32_t letters = sl_mpi_letters();
    const bool ends = run->proposed || run->returned || run->status;
    const bool due = !sl_mpi_bells_tell_all() || letters != run->letters || run->overdue || ends;
    if (!due && !sl_mpi_has_outgoing()) return;
    run->letters = letters;
    run->overdue = false;
    sl_mpi_listen(run);
}

int sl_mpi_turn(struct sl_mpi_run *run) {
    if (run->unmatched) sl_mpi_channels_match(run);
    if (!run->status) sl_mpi_advance(run);
    if (sl_mpi_is_asked()) sl_mpi_note_state(run);
    listen(run);
    if (!run->status) return SL_OK;
    if (!run->still) {
        run->still = true;
        sl_mpi_withdraw(run);
        sl_mpi_say_quiet(run);
    }
    return SL_FAILED;
}

int sl_mpi_wait(struct sl_mpi_run *run, struct sl_mpi_wait *wait) {
    if (wait->ready(wait->of)) return SL_OK;
    const struct sl_wait_mark mark = sl_wait_begin(&run->spmd);
    double looked = sl_now();
    int status = SL_OK;
    const bool bells = sl_mpi_has_bells();
    run->wait = wait;
    run->waits++;
    uint32_t heard = sl_mpi_rings() - 1;
    for (int round = 0;; round++) {
        const uint32_t rings = sl_mpi_rings();
        status = sl_mpi_turn(run);
        if (status || wait->ready(wait->of)) break;
        if (rings != heard) { /* the end of the turn may have brought data after its beginning had looked for it */
            heard = rings;
            continue;
        }
        if (bells && wait->rung && !run->moves_by_mpi && !run->unmatched && !run->remote)
            pause_until_rung(run, rings);
        else
            pause_for_mpi(round, rings);
        if (round % 64 && !bells) continue; /* reading clocks takes time, too */
        const double now = sl_now();
        if (now < looked + 1e-3 * SL_MPI_TICK_MS) continue;
        looked = now;
        sl_mpi_look(run);
    }
    run->wait = NULL;
    if (run->noted) sl_mpi_note_state(run); /* the wait is over */
    run->noted = false;
    sl_mpi_want_room(false);
    sl_wait_end(&run->spmd, mark);
    return status;
}

int sl_mpi_enter(struct sl_mpi_run *run, const char *verb, const char *object, const char *site) {
    sl_last_call_note(&run->place, verb, object, site, &run->spmd.doing);
    if (run->spmd.error.status) return sl_mpi_give_up(run, run->spmd.error.status);
    return run->status ? sl_mpi_turn(run) : SL_OK;
}

/* ---- errors of MPI ---- */

bool sl_mpi_ok(struct sl_mpi_run *run, int code, const char *what) {
    if (code == MPI_SUCCESS) return true;
    char reason[MPI_MAX_ERROR_STRING], who[SL_VERDICT_NAME], where[300];
    int length;
    struct sl_error verdict = {0};
    MPI_Error_string(code, reason, &length);
    sl_verdict_add(&verdict, "%s, in %s: %s: %s", sl_verdict_name(run->mesh, run->spmd.coordinate, who),
                   sl_last_call_describe(&run->place, where, sizeof where), what, reason);
    sl_mpi_propose(run, SL_FAILED, -1, &verdict);
    return false;
}

bool sl_mpi_is_pending(MPI_Request request) {
    int ended = 1;
    if (request != MPI_REQUEST_NULL) MPI_Request_get_status(request, &ended, MPI_STATUS_IGNORE);
    return !ended;
}

void sl_mpi_withdraw_receive(MPI_Request *request, double end) {
    int ended = !sl_mpi_is_pending(*request);
    if (!ended) MPI_Cancel(request);
    for (int round = 0; !ended; round++) {
        MPI_Test(request, &ended, MPI_STATUS_IGNORE);
        if (sl_now() > end) break;
        if (!ended) sl_mpi_pause(round);
    }
}
