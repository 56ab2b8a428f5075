/* wait.c - polling, often but not too often. */
#include "collectives/mpi/word.h"

#include <stdio.h>

/* Seconds to wait for half received messages: if all peers are there; and after a loss, for an early verdict. */
static const double time_to_receive = 2, time_to_receive_after_loss = 0.2;
static const double time_to_tell = 0.3; /* seconds, for coordinates to report their waits */

void sl_mpi_withdraw(struct sl_mpi_run *run) {
    const double end = sl_now() + (run->absent < 0 ? time_to_receive : time_to_receive_after_loss);
    for (int i = 0; i < SL_MPI_CARRIERS; i++) run->carrier[i]->withdraw(run, end);
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

/* Proposes the verdict of an engine above, if there is one. */
static void propose_ending(struct sl_mpi_run *run) {
    struct sl_mpi_ending *ending = &run->ending;
    if (atomic_load_explicit(&ending->state, memory_order_acquire) != SL_MPI_WRITTEN) return;
    atomic_store_explicit(&ending->state, SL_MPI_PROPOSED, memory_order_relaxed);
    sl_mpi_propose(run, SL_FAILED, ending->absent, &ending->verdict);
}

int sl_mpi_turn(struct sl_mpi_run *run) {
    propose_ending(run);
    for (int i = 0; i < SL_MPI_CARRIERS; i++) run->carrier[i]->advance(run);
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
            run->overdue = !sl_mpi_pause_until_rung(rings);
        else
            sl_mpi_pause_for_letter(round, rings);
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

/* ---- the end ---- */

int sl_mpi_await_end(struct sl_mpi_run *run) {
    for (int round = 0; sl_mpi_turn(run) == SL_OK; round++) sl_mpi_pause(round);
    return SL_FAILED;
}

int sl_mpi_wait_for_oneself(struct sl_mpi_run *run) {
    struct sl_error verdict = {0};
    char where[SL_MPI_PLACE];
    const int me = run->spmd.coordinate;
    sl_verdict_deadlock(&verdict, 1);
    sl_verdict_add_wait(&verdict, run->mesh, me, me, sl_last_call_describe(&run->place, where, sizeof where));
    sl_mpi_propose(run, SL_FAILED, -1, &verdict);
    return sl_mpi_await_end(run);
}

int sl_mpi_give_up(struct sl_mpi_run *run, int status) {
    struct sl_error verdict = {0};
    char who[SL_VERDICT_NAME];
    propose_ending(run); /* the coordinate may fail because of it */
    sl_verdict_name(run->mesh, run->spmd.coordinate, who);
    if (run->spmd.error.message[0]) {
        sl_verdict_add(&verdict, "%s: %s", who, run->spmd.error.message);
    } else {
        sl_verdict_add(&verdict, "%s: the program returned status %d", who, status);
    }
    sl_mpi_propose(run, status, -1, &verdict);
    return sl_mpi_await_end(run);
}

void sl_mpi_collect_waits(struct sl_mpi_run *run) {
    struct sl_waits *waits = run->engine->waits;
    const double end = sl_now() + time_to_tell;
    if (!waits || !run->heard) return;
    for (int round = 0; sl_now() < end; round++) {
        int missing = 0;
        for (int i = 0; i < run->mesh->size; i++)
            missing += !sl_set_has(run->told, i) && i != run->absent && !sl_mpi_is_gone(i);
        if (!missing) break;
        sl_mpi_turn(run);
        sl_mpi_pause(round);
    }
    for (int i = 0; i < run->mesh->size; i++)
        if (!sl_set_has(run->told, i))
            waits->coordinate[i] = (struct sl_waiting){.state = SL_WAITING_UNKNOWN, .peer = -1};
    waits->coordinates = run->mesh->size;
}

/* ---- calls ---- */

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
