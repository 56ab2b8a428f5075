/* mark.c - marks: how the queue of one coordinate's device waits for another's queue, while no host waits.
 *
 * A word (words.c) signals enqueued work to a peer; the mark beside it, set before the word is raised, signals the end
 * of the work to the peer's queue. A coordinate has a ring of marks. If a mark is set again before a peer has followed
 * it, the peer's queue waits for more than it must, never for less. Queues cannot wait for each other in a circle: each
 * waits for earlier enqueued work. */
#include "collectives/local/engine.h"
#include "spmd/device/device.h"

int sl_local_mark(struct sl_local_coordinate *me, void **mark) {
    void **next = &me->mark[me->marks++ % SL_LOCAL_MARKS];
    const int status = sl_device.mark(next, &me->spmd.error);
    *mark = *next;
    return status;
}

int sl_local_mark_or_settle(struct sl_local_coordinate *me, bool queued, void **mark) {
    *mark = NULL;
    return queued ? sl_local_mark(me, mark) : sl_device.settle(&me->spmd.error);
}

void sl_local_await_moved(struct sl_local_coordinate *coordinate) { sl_device.await(atomic_load(&coordinate->moved)); }

void sl_local_marks_close(struct sl_local_coordinate *coordinate) {
    for (int i = 0; i < SL_LOCAL_MARKS; i++) sl_device.free_mark(coordinate->mark[i]);
}
