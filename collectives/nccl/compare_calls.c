/* compare_calls.c - checked mode for processes: compares calls in their streams, before their data moves.
 *
 * Hosts send each other their calls, but do not wait for them when they start a call. So the call's stream first
 * exchanges descriptions, all of one size, with the members needed by the call, and then runs a host function, which
 * compares them. A difference ends the run: the stream goes on only when the communicator has been aborted, so nothing
 * of the call is sent or received. */
#include <time.h>

#include "collectives/nccl/engine.h"

/* Seconds after which a stream goes on in any case: NCCL may wait for it during an abort. By then NCCL has signalled
 * the device. */
static const double time_to_abort = 2;

struct comparison {
    struct sl_nccl_group *group;
    struct sl_call_note *sent, *received; /* device: this call's; [group size]. The next two likewise: */
    struct sl_call_note *mine, *theirs;   /* pinned */
    bool *needs;                          /* by member */
};

struct sl_nccl_comparisons {
    struct sl_nccl_comparisons *next;
    struct comparison of[SL_MAX_IN_FLIGHT];
};

/* ---- memory ---- */

static struct sl_nccl_comparisons *new_comparisons(struct sl_nccl_coordinate *me) {
    const size_t size = (size_t)me->run->mesh->size, each = 1 + size;
    struct sl_nccl_comparisons *made = sl_nccl_take(me, sizeof *made + SL_MAX_IN_FLIGHT * size, true);
    struct sl_call_note *device = sl_nccl_take(me, SL_MAX_IN_FLIGHT * each * sizeof *device, false);
    struct sl_call_note *pinned = sl_nccl_take(me, SL_MAX_IN_FLIGHT * each * sizeof *pinned, true);
    if (!made || !device || !pinned) return NULL;
    *made = (struct sl_nccl_comparisons){0};
    for (int slot = 0; slot < SL_MAX_IN_FLIGHT; slot++) {
        struct comparison *of = &made->of[slot];
        of->sent = device + each * (size_t)slot, of->received = of->sent + 1;
        of->mine = pinned + each * (size_t)slot, of->theirs = of->mine + 1;
        of->needs = (bool *)(made + 1) + size * (size_t)slot;
    }
    return made;
}

bool sl_nccl_comparisons_open(struct sl_nccl_group *group) {
    struct sl_nccl_coordinate *me = group->wire.me;
    if (!me->run->engine->checked) return true;
    group->comparisons = me->comparisons ? me->comparisons : new_comparisons(me);
    if (!group->comparisons) return false;
    if (me->comparisons) me->comparisons = me->comparisons->next;
    for (int slot = 0; slot < SL_MAX_IN_FLIGHT; slot++) group->comparisons->of[slot].group = group;
    return true;
}

void sl_nccl_comparisons_close(struct sl_nccl_group *group) {
    struct sl_nccl_coordinate *me = group->wire.me;
    if (!group->comparisons) return;
    group->comparisons->next = me->comparisons;
    me->comparisons = group->comparisons;
    group->comparisons = NULL;
}

/* ---- in the stream ---- */

static struct comparison *comparison_of(struct sl_nccl_group *group, const struct sl_nccl_call *c) {
    return &group->comparisons->of[c->ticket % SL_MAX_IN_FLIGHT];
}

bool sl_nccl_describe(struct sl_nccl_group *group, struct sl_nccl_call *c) {
    struct sl_nccl_wire *wire = &group->wire;
    struct comparison *of = comparison_of(group, c);
    *of->mine = sl_note_call(&c->call);
    bool done =
        SL_NCCL_CUDA(wire, cudaMemcpyAsync(of->sent, of->mine, sizeof *of->sent, cudaMemcpyDefault, wire->stream));
    done = done && SL_NCCL(wire, ncclGroupStart());
    if (!done) return false;
    for (int peer = 0; peer < group->group.size && done; peer++) {
        of->needs[peer] = peer != group->group.rank && sl_nccl_needs(&c->call, peer);
        if (!of->needs[peer]) continue;
        done = SL_NCCL(wire, ncclSend(of->sent, sizeof *of->sent, ncclUint8, peer, wire->comm, wire->stream)) &&
               SL_NCCL(wire,
                       ncclRecv(&of->received[peer], sizeof *of->received, ncclUint8, peer, wire->comm, wire->stream));
    }
    return SL_NCCL(wire, ncclGroupEnd()) && done;
}

/* Ends the run, unless it has ended already. The watchdog holds the lock during an abort, and NCCL may then wait for
 * this stream. */
static void end_run(struct sl_nccl_coordinate *me, const struct sl_error *verdict) {
    struct sl_nccl_run *run = me->run;
    const struct timespec nap = {.tv_nsec = 100000};
    while (pthread_mutex_trylock(&run->lock)) {
        if (atomic_load(&run->failed)) return;
        nanosleep(&nap, NULL);
    }
    if (!atomic_load(&run->failed)) run->below->end(me->self, verdict, -1);
    atomic_store(&run->failed, true);
    pthread_cond_broadcast(&run->changed);
    pthread_mutex_unlock(&run->lock);
}

static void await_abort(const struct sl_nccl_wire *wire) {
    const struct timespec nap = {.tv_nsec = 1000000};
    const double end = sl_now() + time_to_abort;
    while (!atomic_load(&wire->gone) && sl_now() < end) nanosleep(&nap, NULL);
}

/* Runs in a thread of CUDA's. The call itself may be over by now. After an abort the received bytes are no description.
 */
static void compare(void *argument) {
    const struct comparison *of = argument;
    struct sl_nccl_wire *wire = &of->group->wire;
    const struct sl_group *group = &of->group->group;
    struct sl_collective mine = sl_noted_call(of->mine);
    mine.group = group;
    for (int peer = 0; peer < group->size && !atomic_load(&wire->me->run->failed); peer++) {
        const struct sl_collective theirs = sl_noted_call(&of->theirs[peer]);
        if (!of->needs[peer] || sl_calls_agree(&mine, &theirs, peer)) continue;
        struct sl_error verdict = {0};
        sl_verdict_mismatch(&verdict, wire->me->run->mesh, &mine, sl_group_member(group, group->rank), &theirs,
                            sl_group_member(group, peer));
        end_run(wire->me, &verdict);
        await_abort(wire);
        return;
    }
}

bool sl_nccl_judge(struct sl_nccl_group *group, struct sl_nccl_call *c) {
    struct sl_nccl_wire *wire = &group->wire;
    struct comparison *of = comparison_of(group, c);
    const size_t bytes = (size_t)group->group.size * sizeof *of->theirs;
    return SL_NCCL_CUDA(wire, cudaMemcpyAsync(of->theirs, of->received, bytes, cudaMemcpyDefault, wire->stream)) &&
           SL_NCCL_CUDA(wire, cudaLaunchHostFunc(wire->stream, compare, of));
}
