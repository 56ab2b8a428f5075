/* call.c - a call of the mpi engine: its tags, the members that it concerns, and their blocks. */
#include "collectives/mpi/wire.h"

int sl_mpi_tag_of(const struct sl_mpi_communicator *communicator, int slot, enum sl_mpi_kind kind) {
    return sl_mpi_tag(((int64_t)communicator->number * SL_MAX_IN_FLIGHT + slot) * SL_MPI_KINDS + kind, false);
}

bool sl_mpi_receives_from(const struct sl_collective *call, int peer) {
    return sl_has_position(sl_call_sources(call), peer);
}

bool sl_mpi_sends_to(const struct sl_collective *call, int peer) {
    return sl_has_position(sl_call_destinations(call), peer);
}

int sl_mpi_next_peer(const struct sl_collective *call, int k) { return (call->group->rank + k) % call->group->size; }
int sl_mpi_previous_peer(const struct sl_collective *call, int k) {
    return (call->group->rank + call->group->size - k) % call->group->size;
}

/* The block of PEER; NULL if ARRAY is NULL, as in a barrier. */
static char *block(const struct sl_collective *call, const void *array, const struct sl_view *view, int peer) {
    return array ? (char *)array + (size_t)peer * view->peer * sl_dtype_size(call->dtype) : NULL;
}

const char *sl_mpi_input_block(const struct sl_collective *call, int peer) {
    return block(call, call->input, &call->input_view, peer);
}

char *sl_mpi_output_block(const struct sl_collective *call, int peer) {
    return block(call, call->output, &call->output_view, peer);
}
