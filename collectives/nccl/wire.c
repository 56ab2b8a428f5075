/* wire.c - an NCCL communicator and its stream: opening, waiting, failures, aborting. */
#include "collectives/nccl/engine.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { YIELDS = 50, NAP_US = 20 };

void sl_nccl_pause(int round) {
    const struct timespec nap = {.tv_nsec = NAP_US * 1000L};
    if (round < YIELDS) {
        sched_yield();
    } else {
        nanosleep(&nap, NULL);
    }
}

/* ---- failures ---- */

static bool keep(struct sl_nccl_wire *wire, const char *call, const char *why, const char *more) {
    pthread_mutex_lock(&wire->lock);
    if (!wire->failure.status)
        sl_error_set(&wire->failure, SL_FAILED, "%.*s: %s%s%s", (int)strcspn(call, "("), call, why, *more ? ": " : "",
                     more);
    pthread_mutex_unlock(&wire->lock);
    return false;
}

bool sl_nccl_succeeded(struct sl_nccl_wire *wire, const char *call, ncclResult_t result) {
    if (result == ncclSuccess || result == ncclInProgress) return true;
    const char *more = ncclGetLastError(wire->comm);
    return keep(wire, call, ncclGetErrorString(result), more ? more : "");
}

bool sl_nccl_cuda_succeeded(struct sl_nccl_wire *wire, const char *call, cudaError_t error) {
    if (!error) return true;
    cudaGetLastError(); /* clears the error */
    return keep(wire, call, cudaGetErrorString(error), "");
}

/* ---- opening and closing ---- */

/* Makes a recursive lock. */
static void make_lock(pthread_mutex_t *lock) {
    pthread_mutexattr_t attributes;
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(lock, &attributes);
    pthread_mutexattr_destroy(&attributes);
}

int sl_nccl_wire_open(struct sl_nccl_coordinate *me, struct sl_nccl_wire *wire, int flights) {
    struct sl_nccl_run *run = me->run;
    wire->me = me;
    make_lock(&wire->lock);
    wire->flight = calloc((size_t)flights, sizeof *wire->flight);
    bool made = wire->flight && SL_NCCL_CUDA(wire, cudaGetDevice(&wire->device)) &&
                SL_NCCL_CUDA(wire, cudaStreamCreateWithFlags(&wire->stream, cudaStreamNonBlocking)) &&
                SL_NCCL_CUDA(wire, cudaEventCreateWithFlags(&wire->before, cudaEventDisableTiming));
    for (; made && wire->flights < flights; wire->flights += made) {
        made = SL_NCCL_CUDA(wire, cudaEventCreateWithFlags(&wire->flight[wire->flights].done, cudaEventDisableTiming));
    }
    pthread_mutex_lock(&run->lock);
    wire->next = run->wires;
    run->wires = wire;
    pthread_cond_broadcast(&run->changed);
    pthread_mutex_unlock(&run->lock);
    return made ? SL_OK : sl_nccl_fail(wire, "opening", "its stream");
}

bool sl_nccl_wire_join(struct sl_nccl_wire *wire, int size, ncclUniqueId id, int rank) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    pthread_mutex_lock(&wire->lock);
    const bool joins = SL_NCCL(wire, ncclCommInitRankConfig(&wire->comm, size, id, rank, &config));
    pthread_mutex_unlock(&wire->lock);
    return joins;
}

void sl_nccl_wire_leave(struct sl_nccl_wire *wire) {
    struct sl_nccl_run *run = wire->me->run;
    pthread_mutex_lock(&run->lock);
    struct sl_nccl_wire **at = &run->wires;
    while (*at != wire) at = &(*at)->next;
    *at = wire->next;
    pthread_mutex_unlock(&run->lock);
}

/* All members' calls have ended by now, and the watchdog does not watch it any more: an abort loses nothing. */
void sl_nccl_wire_close(struct sl_nccl_wire *wire) {
    if (!wire->me) return;
    if (wire->aborting) pthread_join(wire->aborter, NULL);
    if (wire->comm) ncclCommAbort(wire->comm);
    if (wire->stream) cudaStreamDestroy(wire->stream);
    if (wire->before) cudaEventDestroy(wire->before);
    for (int i = 0; i < wire->flights; i++) cudaEventDestroy(wire->flight[i].done);
    free(wire->flight);
    pthread_mutex_destroy(&wire->lock);
}

/* ---- locking, and giving up ---- */

bool sl_nccl_lock(struct sl_nccl_wire *wire) {
    pthread_mutex_lock(&wire->lock);
    if (wire->comm && !wire->aborted) return true;
    pthread_mutex_unlock(&wire->lock);
    return false;
}

void sl_nccl_unlock(struct sl_nccl_wire *wire) { pthread_mutex_unlock(&wire->lock); }

static void *abort_alone(void *comm) {
    ncclCommAbort(comm);
    return NULL;
}

/* NCCL releases streams at once, and then waits until no graph has calls of the communicator. */
void sl_nccl_wire_abort(struct sl_nccl_wire *wire) {
    pthread_mutex_lock(&wire->lock);
    wire->aborted = true;
    if (wire->comm && wire->captured) wire->aborting = !pthread_create(&wire->aborter, NULL, abort_alone, wire->comm);
    if (wire->comm && !wire->aborting) ncclCommAbort(wire->comm);
    wire->comm = NULL;
    atomic_store(&wire->gone, true);
    pthread_mutex_unlock(&wire->lock);
}

/* Once nothing waits for peers, the streams' remaining work ends soon. */
void sl_nccl_abort(struct sl_nccl_coordinate *me) {
    struct sl_nccl_run *run = me->run;
    atomic_store(&run->failed, true);
    pthread_mutex_lock(&run->lock);
    pthread_cond_broadcast(&run->changed);
    pthread_mutex_unlock(&run->lock);
    for (struct sl_nccl_group *group = me->groups; group; group = group->next) sl_nccl_wire_abort(&group->wire);
    for (struct sl_nccl_channel *channel = me->channels; channel; channel = channel->next) {
        if (channel->wire.me) sl_nccl_wire_abort(&channel->wire);
    }
    for (struct sl_nccl_group *group = me->groups; group; group = group->next) {
        if (group->wire.stream) cudaStreamSynchronize(group->wire.stream);
    }
    for (struct sl_nccl_channel *channel = me->channels; channel; channel = channel->next) {
        if (channel->wire.stream) cudaStreamSynchronize(channel->wire.stream);
    }
}

int sl_nccl_passed(struct sl_nccl_coordinate *me, int status) {
    if (status && sl_nccl_alive(me)) sl_nccl_abort(me);
    return status;
}

int sl_nccl_fail(struct sl_nccl_wire *wire, const char *verb, const char *site) {
    struct sl_nccl_coordinate *me = wire->me;
    pthread_mutex_lock(&wire->lock);
    const struct sl_error failure = wire->failure;
    pthread_mutex_unlock(&wire->lock);
    if (failure.status && !sl_nccl_alive(me)) {
        sl_fail(me->self, SL_FAILED, "%s %s at %s: %s", verb, wire->name, site, failure.message);
        me->run->below->give_up(me->self, SL_FAILED);
    }
    sl_nccl_abort(me);
    return SL_FAILED;
}

/* ---- waiting ---- */

/* Whether the communicator has no work in the background. Sets *FAILED if it has failed. The wire is locked. */
static bool is_ready(struct sl_nccl_wire *wire, bool *failed) {
    ncclResult_t state = ncclInProgress;
    const bool channel = wire->first_word != NULL;
    *failed = !SL_NCCL(wire, ncclCommGetAsyncError(wire->comm, &state)) || !sl_nccl_succeeded(wire, "NCCL", state);
    return state == ncclSuccess && (!channel || wire->state == SL_NCCL_READY);
}

static bool is_late(struct sl_nccl_wire *wire, double began, const char *what) {
    const double timeout = wire->me->run->engine->timeout;
    if (sl_now() < began + timeout) return false;
    char why[100];
    snprintf(why, sizeof why, "is not ready after %g s, though all have come", timeout);
    keep(wire, what, why, "");
    return true;
}

int sl_nccl_await_ready(struct sl_nccl_wire *wire, const char *verb, const char *site) {
    const double began = sl_now();
    for (int round = 0;; round++) {
        const bool locked = sl_nccl_lock(wire);
        bool failed = !locked;
        const bool ready = locked && is_ready(wire, &failed);
        if (locked) sl_nccl_unlock(wire);
        if (ready) return SL_OK;
        if (failed || is_late(wire, began, "the communicator")) return sl_nccl_fail(wire, verb, site);
        SL_TRY(sl_nccl_passed(wire->me, sl_nccl_alive(wire->me)));
        sl_nccl_pause(round);
    }
}

bool sl_nccl_get_ready(struct sl_nccl_wire *wire, const char *verb, const char *site) {
    bool failed;
    if (is_ready(wire, &failed)) return true;
    sl_nccl_unlock(wire);
    return !sl_nccl_await_ready(wire, verb, site) && sl_nccl_lock(wire);
}

int sl_nccl_wire_adopt(struct sl_nccl_wire *wire, ncclComm_t *split, const char *verb, const char *site) {
    const double began = sl_now();
    for (int round = 0; !__atomic_load_n(split, __ATOMIC_ACQUIRE); round++) {
        if (is_late(wire, began, "the communicator")) return sl_nccl_fail(wire, verb, site);
        SL_TRY(sl_nccl_passed(wire->me, sl_nccl_alive(wire->me)));
        sl_nccl_pause(round);
    }
    pthread_mutex_lock(&wire->lock);
    wire->comm = *split;
    pthread_mutex_unlock(&wire->lock);
    *split = NULL;
    return SL_OK;
}

/* Any CUDA error other than "not ready" is a failure on the device: the waiting host or the watchdog ends the run. */
bool sl_nccl_has_landed(struct sl_nccl_wire *wire, int flight) {
    const cudaError_t state = cudaEventQuery(wire->flight[flight].done);
    return state != cudaErrorNotReady && sl_nccl_cuda_succeeded(wire, "cudaEventQuery", state);
}

static bool has_failed(struct sl_nccl_wire *wire) {
    pthread_mutex_lock(&wire->lock);
    const bool failed = wire->failure.status != SL_OK;
    pthread_mutex_unlock(&wire->lock);
    return failed;
}

int sl_nccl_await_flight(struct sl_nccl_wire *wire, int flight) {
    struct sl_nccl_coordinate *me = wire->me;
    const struct sl_nccl_flight *awaited = &wire->flight[flight];
    const struct sl_wait_mark mark = sl_wait_begin(me->self);
    for (int round = 0;; round++) {
        const bool landed = sl_nccl_has_landed(wire, flight);
        SL_TRY(sl_nccl_passed(me, sl_nccl_alive(me))); /* a flight ended by an abort has not landed */
        if (landed && !atomic_load(&me->run->failed)) break;
        if (has_failed(wire)) return sl_nccl_fail(wire, awaited->place.verb, awaited->place.site);
        sl_nccl_pause(round);
    }
    sl_wait_end(me->self, mark);
    return SL_OK;
}

int sl_nccl_await_flights(struct sl_nccl_wire *wire) {
    for (int i = 0; i < wire->flights; i++) {
        pthread_mutex_lock(&wire->lock);
        const bool awaited = wire->flight[i].since > 0;
        pthread_mutex_unlock(&wire->lock);
        if (awaited) SL_TRY(sl_nccl_await_flight(wire, i));
    }
    return SL_OK;
}

/* ---- streams ---- */

bool sl_nccl_follow(struct sl_nccl_wire *wire) {
    struct sl_cuda_queue *queue = sl_nccl_queue(wire->me);
    if (!queue->busy) return true; /* the host has already waited for its work */
    return SL_NCCL_CUDA(wire, cudaEventRecord(wire->before, sl_cuda_stream(queue))) &&
           SL_NCCL_CUDA(wire, cudaStreamWaitEvent(wire->stream, wire->before, 0));
}

void sl_nccl_note(struct sl_nccl_wire *wire, int flight, const char *verb, const char *site) {
    struct sl_nccl_flight *f = &wire->flight[flight];
    f->since = 0;
    sl_last_call_note(&f->place, verb, wire->name, site, &wire->me->self->doing);
}

bool sl_nccl_mark(struct sl_nccl_wire *wire, int flight, const char *verb, const char *site) {
    sl_nccl_note(wire, flight, verb, site);
    return SL_NCCL_CUDA(wire, cudaEventRecord(wire->flight[flight].done, wire->stream));
}

void sl_nccl_watch(struct sl_nccl_wire *wire, int flight) {
    pthread_mutex_lock(&wire->lock);
    wire->flight[flight].since = sl_now();
    pthread_mutex_unlock(&wire->lock);
}

bool sl_nccl_lead(struct sl_nccl_wire *wire, int flight) {
    struct sl_cuda_queue *queue = sl_nccl_queue(wire->me);
    if (sl_nccl_has_landed(wire, flight)) return true;
    queue->busy = true;
    return SL_NCCL_CUDA(wire, cudaStreamWaitEvent(sl_cuda_stream(queue), wire->flight[flight].done, 0));
}
