/* owed.c - a list of the calls and messages of a replayed step that have ended before their peers' hosts were asked.
 * graphs.c asks them later. */
#include <stdlib.h>

#include "collectives/nccl/engine.h"
#include "spmd/base/memory.h"

void sl_nccl_branch(struct sl_nccl_coordinate *me, bool open) {
    struct sl_cuda_queue *queue = sl_nccl_queue(me);
    if (queue && open != (queue->branches != NULL))
        sl_cuda_branch(queue, open ? me->run->branches : NULL, open ? me : NULL);
    if (open) return;
    free(me->owed);
    me->owed = NULL;
    me->owes = me->owed_room = 0;
}

static bool owe(struct sl_nccl_coordinate *me, const struct sl_nccl_owed *what) {
    if (sl_cuda_course(sl_nccl_queue(me)) != SL_CUDA_LATER) return false;
    struct sl_nccl_owed *owed = sl_grow(me->owed, me->owes, &me->owed_room, 64, sizeof *owed);
    if (!owed) return false;
    me->owed = owed;
    owed[me->owes++] = *what;
    sl_nccl_queue(me)->owes = true;
    return true;
}

bool sl_nccl_owe(struct sl_nccl_group *group, const struct sl_nccl_call *c) {
    return owe(group->wire.me, &(struct sl_nccl_owed){.group = group, .call = c->call, .ticket = c->ticket});
}

bool sl_nccl_owe_message(struct sl_nccl_channel *channel, int slot, uint32_t target) {
    return owe(channel->me, &(struct sl_nccl_owed){.channel = channel, .slot = slot, .ticket = target});
}

bool sl_nccl_refused(struct sl_cuda_queue *queue, struct sl_nccl_wire *wire) {
    if (!sl_cuda_captures(queue)) return false;
    pthread_mutex_lock(&wire->lock);
    if (wire->failure.status) sl_cuda_fail(queue, "NCCL", wire->failure.message);
    wire->failure = (struct sl_error){0};
    pthread_mutex_unlock(&wire->lock);
    return false;
}
