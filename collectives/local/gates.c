/* gates.c - meeting points for the members of large groups; see communicator_internal.h. */
#include "collectives/local/communicator_internal.h"
#include "collectives/operations.h"

bool sl_local_has_gates(const struct sl_collective *call) {
    return call->group->size > SL_LOCAL_FEW && sl_call_meets(call);
}

/* Counts one more of MEMBERS in. Returns whether it was the last one; if so, resets the count. The last one has
 * acquired all earlier writes of the others. No member arrives for the next call in this slot before the gate has been
 * opened. */
static bool count_in(_Atomic uint32_t *came, int members) {
    if (atomic_fetch_add_explicit(came, 1, memory_order_acq_rel) + 1 < (uint32_t)members) return false;
    atomic_store_explicit(came, 0, memory_order_relaxed);
    return true;
}

bool sl_local_come(struct sl_local_communicator *communicator, struct gate *gate, int rank, uint32_t pass) {
    const uint32_t slot = pass % SL_MAX_IN_FLIGHT;
    const int block = rank / SL_LOCAL_FEW, left = communicator->size - block * SL_LOCAL_FEW;
    return count_in(&gate->block[block].came[slot], left < SL_LOCAL_FEW ? left : SL_LOCAL_FEW) &&
           count_in(&gate->came[slot], sl_local_blocks(communicator->size));
}

void sl_local_open(struct sl_local_coordinate *me, struct gate *gate, uint32_t pass) {
    sl_local_stamp(me, &gate->opened[pass % SL_MAX_IN_FLIGHT]);
    sl_local_post(&gate->open[pass % SL_MAX_IN_FLIGHT], pass + 1);
}

int sl_local_await_open(struct sl_local_coordinate *me, struct gate *gate, uint32_t pass,
                        const struct sl_local_lack *lack) {
    const uint32_t slot = pass % SL_MAX_IN_FLIGHT;
    return sl_local_wait_for_all(me, &gate->open[slot], pass + 1, lack, &gate->opened[slot]);
}
