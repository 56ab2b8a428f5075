/* swap.c - short calls of all_to_all over several hosts: see hosts.h.
 *
 * A leader has a slot for each distance: at first, slot d has the blocks from its host to the host d before it. In step
 * s it sends the slots whose distance has bit s, one after another, to the leader 2^s hosts before it, and receives the
 * same slots of the leader 2^s hosts after it. In the end slot d has the blocks from the host d after it (Bruck et al.,
 * "Efficient algorithms for all-to-all communications in multiport message-passing systems", 1997). */
#include <string.h>

#include "collectives/mpi/mailbox_internal.h"
#include "collectives/mpi/swap.h"

static int hosts_of(const struct sl_mpi_call *c) { return c->communicator->hosts->count; }
static int mine(const struct sl_mpi_call *c) { return c->communicator->hosts->mine; }

static struct sl_positions members_of(const struct sl_mpi_call *c, int host) {
    const int *first = c->communicator->hosts->first;
    return (struct sl_positions){first[host], first[host + 1]};
}

static size_t bytes_of(const struct sl_mpi_call *c, int slot, int step) {
    const struct sl_layout layout = sl_mpi_layout_of(c->communicator);
    return sl_swapped_bytes(&layout, &c->call, mine(c), slot, step);
}

/* Bytes of the largest slot. */
static size_t room_of_slot(const struct sl_mpi_call *c) {
    const struct sl_layout layout = sl_mpi_layout_of(c->communicator);
    const size_t most = (size_t)sl_layout_most(&layout);
    return most * most * sl_block_bytes(&c->call);
}

/* After the slots of the leader's buffer: the data that it sends in a step, and that it receives. */
size_t sl_mpi_swap_room(const struct sl_mpi_call *c) { return room_of_slot(c) * 3 * (size_t)hosts_of(c); }

static char *slot_at(const struct sl_mpi_call *c, int slot) { return c->received + room_of_slot(c) * (size_t)slot; }
static char *sent(const struct sl_mpi_call *c) { return slot_at(c, hosts_of(c)); }
static char *received(const struct sl_mpi_call *c) { return slot_at(c, 2 * hosts_of(c)); }

void sl_mpi_swap_collect(const struct sl_mpi_call *c) {
    const size_t bytes = sl_block_bytes(&c->call);
    const struct sl_positions here = members_of(c, mine(c));
    for (int slot = 0; slot < hosts_of(c) && bytes; slot++) {
        const struct sl_positions to = members_of(c, (mine(c) + hosts_of(c) - slot) % hosts_of(c));
        const size_t row = bytes * (size_t)(to.end - to.begin);
        for (int peer = here.begin; peer < here.end; peer++)
            memcpy(slot_at(c, slot) + row * (size_t)(peer - here.begin),
                   sl_mpi_box_of(c, peer)->piece[c->slot][0] + bytes * (size_t)to.begin, row);
    }
}

void sl_mpi_swap_exchange(struct sl_mpi_call *c) {
    const int step = c->step, hosts = hosts_of(c), distance = 1 << step;
    const int from = members_of(c, (mine(c) + distance) % hosts).begin;
    const int to = members_of(c, (mine(c) + hosts - distance) % hosts).begin;
    size_t out = 0, in = 0;
    for (int slot = 1; slot < hosts; slot++) {
        if (!(slot & distance)) continue;
        if (c->received) memcpy(sent(c) + out, slot_at(c, slot), bytes_of(c, slot, step));
        out += bytes_of(c, slot, step);
        in += bytes_of(c, slot, step + 1);
    }
    const size_t size = sl_dtype_size(c->call.dtype);
    sl_mpi_receive(c, SL_MPI_FIRST_EXCHANGE, from, c->received ? received(c) : NULL, in / size, &c->receive[from]);
    sl_mpi_send(c, SL_MPI_FIRST_EXCHANGE, to, c->received ? sent(c) : NULL, out / size, &c->send[to]);
}

void sl_mpi_swap_take(const struct sl_mpi_call *c) {
    size_t in = 0;
    for (int slot = 1; slot < hosts_of(c) && c->received; slot++) {
        if (!(slot & 1 << c->step)) continue;
        memcpy(slot_at(c, slot), received(c) + in, bytes_of(c, slot, c->step + 1));
        in += bytes_of(c, slot, c->step + 1);
    }
}

size_t sl_mpi_swap_results(const struct sl_mpi_call *c, char *result) {
    const size_t bytes = sl_block_bytes(&c->call);
    const struct sl_positions here = members_of(c, mine(c));
    const int mates = here.end - here.begin;
    for (int slot = 0; slot < hosts_of(c) && bytes; slot++) {
        const struct sl_positions from = members_of(c, (mine(c) + slot) % hosts_of(c));
        for (int i = 0; i < (from.end - from.begin) * mates; i++) {
            const int peer = from.begin + i / mates, mate = i % mates;
            memcpy(result + bytes * (size_t)(mate * c->call.group->size + peer), slot_at(c, slot) + bytes * (size_t)i,
                   bytes);
        }
    }
    return bytes * (size_t)(mates * c->call.group->size);
}
