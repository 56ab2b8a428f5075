/* watch.c - the watchdog: one thread per process, for all communicators.
 *
 * It asks them for errors, and measures the time of calls begun by all hosts concerned. If a run fails, the watchdog
 * aborts its communicators, so no queue waits for a peer and no host for a queue. It also lets channels' receivers
 * join, and sends the first message over each channel's wire: connecting needs both ends, and the hosts do not wait for
 * it. */
#include "collectives/nccl/engine.h"

#include <stdio.h>
#include <time.h>

enum { TICK_MS = 20, SHORT_TICK_MS = 1 };

/* ---- verdicts ---- */

static void end_run(struct sl_nccl_wire *wire, const struct sl_nccl_flight *flight, const char *why, int absent) {
    struct sl_nccl_run *run = wire->me->run;
    struct sl_error verdict = {0};
    char who[SL_VERDICT_NAME], where[300];
    sl_verdict_add(&verdict, "%s: ", sl_verdict_name(run->mesh, wire->me->self->coordinate, who));
    if (flight) {
        sl_verdict_add(&verdict, "%s: ", sl_last_call_describe(&flight->place, where, sizeof where));
    } else {
        sl_verdict_add(&verdict, "the communicator %s: ", wire->name);
    }
    sl_verdict_add(&verdict, "%s", why);
    run->below->end(wire->me->self, &verdict, absent);
    atomic_store(&run->failed, true);
}

/* The oldest call under way that all hosts have begun. */
static const struct sl_nccl_flight *oldest(struct sl_nccl_wire *wire) {
    const struct sl_nccl_flight *found = NULL;
    for (int i = 0; i < wire->flights; i++) {
        struct sl_nccl_flight *flight = &wire->flight[i];
        if (flight->since == 0) continue;
        if (sl_nccl_has_landed(wire, i)) {
            flight->since = 0;
        } else if (!found || flight->since < found->since) {
            found = flight;
        }
    }
    return found;
}

/* A coordinate on WIRE whose process has ended, or -1: NCCL need not notice. */
static int find_gone(const struct sl_nccl_wire *wire) {
    bool (*is_gone)(int) = wire->me->run->below->is_gone;
    if (wire->first_word) {
        const struct sl_nccl_channel *channel = sl_nccl_channel_of(wire);
        const int other = channel->end == SL_NCCL_SENDER ? channel->to : channel->from;
        return is_gone && is_gone(other) ? other : -1;
    }
    const struct sl_group *group = &sl_nccl_group_of(wire)->group;
    for (int i = 0; i < group->size && is_gone; i++) {
        if (is_gone(sl_group_member(group, i))) return sl_group_member(group, i);
    }
    return -1;
}

/* ---- polling ---- */

/* Advances the opening of a channel's wire; returns whether it is ready. */
static bool go_on(struct sl_nccl_wire *wire) {
    if (wire->state == SL_NCCL_OPENING) {
        if (wire->first_word(wire)) wire->state = SL_NCCL_FIRST_WORD;
    } else {
        wire->state = SL_NCCL_READY;
    }
    return wire->state == SL_NCCL_READY;
}

/* Checks one wire; returns whether it should be checked again soon. */
static bool look_after(struct sl_nccl_wire *wire) {
    ncclResult_t state = ncclSuccess;
    cudaSetDevice(wire->device); /* this thread's device: another device would get a context for nothing */
    bool soon = wire->first_word && sl_nccl_is_apart(sl_nccl_channel_of(wire));
    if (!sl_nccl_lock(wire)) return soon;
    const bool asked = SL_NCCL(wire, ncclCommGetAsyncError(wire->comm, &state));
    if (asked && sl_nccl_succeeded(wire, "NCCL", state) && wire->first_word && wire->state != SL_NCCL_READY) {
        soon = state == ncclInProgress || !go_on(wire);
    }
    const struct sl_nccl_flight *flight = oldest(wire);
    const int gone = flight ? find_gone(wire) : -1;
    char why[SL_VERDICT_NAME + 100], who[SL_VERDICT_NAME];
    if (wire->failure.status) {
        end_run(wire, flight, wire->failure.message, -1);
    } else if (gone >= 0) {
        snprintf(why, sizeof why, "%s is lost: its process has ended", sl_verdict_name(wire->me->run->mesh, gone, who));
        end_run(wire, flight, why, gone);
    } else if (flight && sl_now() > flight->since + wire->me->run->engine->timeout) {
        snprintf(why, sizeof why, "has not ended after %g s, though all that it needs have begun it",
                 wire->me->run->engine->timeout);
        end_run(wire, flight, why, -1);
    }
    sl_nccl_unlock(wire);
    return soon;
}

static void sleep_until_changed(struct sl_nccl_run *run, int ms) {
    struct timespec end;
    clock_gettime(CLOCK_MONOTONIC, &end);
    end.tv_nsec += ms * 1000000L;
    end.tv_sec += end.tv_nsec / 1000000000;
    end.tv_nsec %= 1000000000;
    pthread_cond_timedwait(&run->changed, &run->lock, &end);
}

void *sl_nccl_watchdog(void *arg) {
    struct sl_nccl_run *run = arg;
    pthread_mutex_lock(&run->lock);
    while (!run->over) {
        bool soon = false;
        for (struct sl_nccl_wire *wire = run->wires; wire && run->inside; wire = wire->next) {
            if (!atomic_load(&run->failed)) soon |= look_after(wire);
        }
        for (struct sl_nccl_wire *wire = run->wires; wire && atomic_load(&run->failed); wire = wire->next)
            sl_nccl_wire_abort(wire);
        if (!run->over) sleep_until_changed(run, soon ? SHORT_TICK_MS : TICK_MS);
    }
    pthread_mutex_unlock(&run->lock);
    return NULL;
}
