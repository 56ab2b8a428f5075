/* exchange.c - moves the data of a collective of the mpi engine by messages between its members; mailbox.c does it if
 * all members are on one host, hosts.c and chain.c do it for several hosts.
 *
 * A call consists of exchanges, in each of which members send each other blocks: one exchange for all operations except
 * long sums, which need two. In these each member owns a share of the elements. It receives all members' values for its
 * share, combines them in member order, and sends the result to all. In short sums each member receives everything and
 * combines it in the same way. So sums have the same order, and the same bits, on all members and on other engines.
 *
 * Contiguous blocks are sent from, and received into, the program's own memory; others are packed in a buffer of the
 * group's. An exchange begins when the previous one has ended, so none writes where another still reads. */
#include "collectives/mpi/hosts.h"

#include <stdlib.h>
#include <string.h>

#include "collectives/sums/copies.h"
#include "collectives/costs/costs.h"
#include "collectives/sums/reduce.h"

enum {
    SHORT_MESSAGE = 1024, /* bytes: up to this size MPI accepts a message at once, and maybe beyond */
};

/* ---- buffers ---- */

/* A group's buffer: a piece for each possible call under way; nothing is allocated once the longest call has been seen.
 * Untouched pieces use no memory. */
struct sl_mpi_buffer {
    struct sl_mpi_buffer *next; /* earlier ones, with smaller pieces */
    size_t bytes;               /* per piece */
    unsigned taken;             /* bit set of pieces */
    char *memory;
};

static struct sl_mpi_buffer *new_buffer(size_t bytes) {
    struct sl_mpi_buffer *buffer = calloc(1, sizeof *buffer);
    if (!buffer) return NULL;
    buffer->bytes = (bytes + SL_CACHE_LINE - 1) / SL_CACHE_LINE * SL_CACHE_LINE;
    buffer->memory = aligned_alloc(SL_CACHE_LINE, buffer->bytes * SL_MAX_IN_FLIGHT);
    if (buffer->memory) return buffer;
    free(buffer);
    return NULL;
}

/* Takes a piece of at least BYTES for the call. Returns it, or NULL without memory. */
static char *take_piece(struct sl_mpi_call *c, size_t bytes) {
    struct sl_mpi_communicator *communicator = c->communicator;
    if (!communicator->buffers || communicator->buffers->bytes < bytes) {
        struct sl_mpi_buffer *larger = new_buffer(bytes);
        if (!larger) return NULL;
        larger->next = communicator->buffers;
        communicator->buffers = larger;
    }
    c->buffer = communicator->buffers;
    for (c->piece = 0; c->buffer->taken >> c->piece & 1;) c->piece++;
    c->buffer->taken |= 1u << c->piece;
    return c->buffer->memory + c->buffer->bytes * (size_t)c->piece;
}

static bool combines(const struct sl_collective *call) { return sl_operation_of(call)->reduction != SL_NO_REDUCTION; }

/* ---- blocks ---- */

/* The element at INDEX; NULL if ARRAY is NULL, as in a barrier. */
static char *element(const struct sl_collective *call, const void *array, size_t index) {
    return array ? (char *)array + index * sl_dtype_size(call->dtype) : NULL;
}

/* Copies a block, run by run. */
static void copy_block(const struct sl_collective *call, char *out, const struct sl_view *out_view, const char *in,
                       const struct sl_view *in_view) {
    const size_t size = sl_dtype_size(call->dtype), *runs = call->count;
    if (in == out) return; /* in place */
    for (size_t row = 0; row < runs[0]; row++) {
        sl_copy_rows(runs[1], size * runs[2], out + size * row * out_view->stride[0], size * out_view->stride[1],
                     in + size * row * in_view->stride[0], size * in_view->stride[1]);
    }
}

/* ---- messages ---- */

/* MPI only transports elements, so their size is enough. */
static MPI_Datatype type_of(enum sl_dtype dtype) {
    switch (sl_dtype_size(dtype)) {
    case 1:
        return MPI_UINT8_T;
    case 2:
        return MPI_UINT16_T;
    case 4:
        return MPI_UINT32_T;
    default:
        return MPI_UINT64_T;
    }
}

void sl_mpi_send(struct sl_mpi_call *c, enum sl_mpi_kind kind, int peer, const void *data, size_t count,
                 MPI_Request *request) {
    sl_mpi_count_message(c, peer, count * sl_dtype_size(c->call.dtype));
    sl_mpi_ok(c->run,
              MPI_Isend(data, (int)count, type_of(c->call.dtype), sl_group_member(c->call.group, peer),
                        sl_mpi_tag_of(c->communicator, c->slot, kind), c->run->wire, request),
              "MPI_Isend");
    sl_mpi_ring_for_letter(sl_group_member(c->call.group, peer));
}

void sl_mpi_receive(struct sl_mpi_call *c, enum sl_mpi_kind kind, int peer, void *data, size_t count,
                    MPI_Request *request) {
    sl_mpi_ok(c->run,
              MPI_Irecv(data, (int)count, type_of(c->call.dtype), sl_group_member(c->call.group, peer),
                        sl_mpi_tag_of(c->communicator, c->slot, kind), c->run->wire, request),
              "MPI_Irecv");
}

static enum sl_mpi_kind kind_of(const struct sl_mpi_call *c) {
    return c->phase == SL_MPI_SECOND ? SL_MPI_SECOND_EXCHANGE : SL_MPI_FIRST_EXCHANGE;
}
static void send(struct sl_mpi_call *c, int peer, const void *data, size_t count) {
    sl_mpi_send(c, kind_of(c), peer, data, count, &c->send[peer]);
}
static void receive(struct sl_mpi_call *c, int peer, void *data, size_t count) {
    sl_mpi_receive(c, kind_of(c), peer, data, count, &c->receive[peer]);
}

/* ---- blocks from all to all ---- */

static void exchange(struct sl_mpi_call *c) {
    const struct sl_collective *call = &c->call;
    const int size = call->group->size;
    const struct sl_view tight = sl_packed_blocks(call);
    const size_t bytes = sl_block_bytes(call);
    for (int k = 1; k < size; k++) {
        const int peer = sl_mpi_previous_peer(call, k);
        if (!sl_mpi_receives_from(call, peer)) continue;
        receive(c, peer, c->received ? c->received + bytes * (size_t)peer : sl_mpi_output_block(call, peer),
                sl_block_elements(call));
    }
    for (int k = 1; k < size; k++) {
        const int peer = sl_mpi_next_peer(call, k);
        if (!sl_mpi_sends_to(call, peer)) continue;
        char *block = c->sent ? c->sent + bytes * (size_t)peer : NULL;
        if (block) copy_block(call, block, &tight, sl_mpi_input_block(call, peer), &call->input_view);
        send(c, peer, block ? block : sl_mpi_input_block(call, peer), sl_block_elements(call));
    }
}

/* Copies this member's block for itself. */
static void copy_own_block(const struct sl_collective *call) {
    const int me = call->group->rank;
    const bool own = !combines(call) && sl_mpi_sends_to(call, me) && sl_mpi_receives_from(call, me);
    if (sl_block_elements(call) && own)
        copy_block(call, sl_mpi_output_block(call, me), &call->output_view, sl_mpi_input_block(call, me),
                   &call->input_view);
}

static void unpack(struct sl_mpi_call *c) {
    const struct sl_collective *call = &c->call;
    const struct sl_view tight = sl_packed_blocks(call);
    for (int peer = 0; peer < call->group->size && c->received; peer++) {
        if (peer == call->group->rank || !sl_mpi_receives_from(call, peer)) continue;
        copy_block(call, sl_mpi_output_block(call, peer), &call->output_view,
                   c->received + sl_block_bytes(call) * (size_t)peer, &tight);
    }
}

/* ---- sums ---- */

/* Whether all members get the complete result. */
static bool is_sum(const struct sl_collective *call) { return combines(call) && !sl_operation_of(call)->cuts; }
static bool is_short(const struct sl_collective *call) { return sl_block_bytes(call) <= SL_SHORT_CALL; }

struct share {
    size_t begin, count;
};

/* The share of the member at POSITION. Shares begin at cache lines. */
static struct share share_of(const struct sl_collective *call, int position) {
    const size_t line = SL_CACHE_LINE / sl_dtype_size(call->dtype), members = (size_t)call->group->size;
    const size_t total = call->count[2], lines = (total + line - 1) / line;
    const size_t most = (lines + members - 1) / members * line;
    const size_t begin = most * (size_t)position < total ? most * (size_t)position : total;
    return (struct share){begin, total - begin < most ? total - begin : most};
}

/* Elements summed by the member at POSITION: all in a short sum, its share in a long one. */
static struct share summed_by(const struct sl_collective *call, int position) {
    return is_short(call) ? (struct share){0, call->count[2]} : share_of(call, position);
}

static void exchange_summands(struct sl_mpi_call *c) {
    const struct sl_collective *call = &c->call;
    const struct share mine = summed_by(call, call->group->rank);
    for (int k = 1; k < call->group->size; k++) {
        const int from = sl_mpi_previous_peer(call, k), to = sl_mpi_next_peer(call, k);
        const struct share theirs = summed_by(call, to);
        if (mine.count) receive(c, from, element(call, c->received, mine.count * (size_t)from), mine.count);
        if (theirs.count) send(c, to, element(call, call->input, theirs.begin), theirs.count);
    }
}

static void sum(struct sl_mpi_call *c) {
    const struct sl_collective *call = &c->call;
    const struct share mine = summed_by(call, call->group->rank);
    const void **input = c->communicator->input;
    void *output = element(call, call->output, mine.begin);
    for (int peer = 0; peer < call->group->size; peer++) {
        input[peer] = peer == call->group->rank ? element(call, call->input, mine.begin)
                                                : element(call, c->received, mine.count * (size_t)peer);
    }
    sl_reduce(sl_operation_of(call)->reduction, call->dtype, call->scale, mine.count, call->group->size, input, 1,
              &output);
}

static void exchange_sums(struct sl_mpi_call *c) {
    const struct sl_collective *call = &c->call;
    const struct share mine = share_of(call, call->group->rank);
    for (int k = 1; k < call->group->size; k++) {
        const int from = sl_mpi_previous_peer(call, k), to = sl_mpi_next_peer(call, k);
        const struct share theirs = share_of(call, from);
        if (theirs.count) receive(c, from, element(call, call->output, theirs.begin), theirs.count);
        if (mine.count) send(c, to, element(call, call->output, mine.begin), mine.count);
    }
}

/* psum_scatter: sums the received blocks for this member, which are packed one after the other. */
static void sum_blocks(struct sl_mpi_call *c) {
    const struct sl_collective *call = &c->call;
    const struct sl_view tight = sl_packed_blocks(call), *view = &call->input_view;
    const int me = call->group->rank;
    const void **input = c->communicator->input;
    for (size_t row = 0; row < call->count[0]; row++) {
        for (size_t column = 0; column < call->count[1]; column++) {
            const size_t at = row * tight.stride[0] + column * tight.stride[1];
            for (int peer = 0; peer < call->group->size; peer++) {
                input[peer] = element(call, c->received, sl_block_elements(call) * (size_t)peer + at);
            }
            input[me] = element(call, sl_mpi_input_block(call, me), row * view->stride[0] + column * view->stride[1]);
            void *output =
                element(call, call->output, row * call->output_view.stride[0] + column * call->output_view.stride[1]);
            sl_reduce(sl_operation_of(call)->reduction, call->dtype, call->scale, call->count[2], call->group->size,
                      input, 1, &output);
        }
    }
}

/* ---- phases ---- */

int sl_mpi_set_aside(struct sl_mpi_call *c) {
    const struct sl_collective *call = &c->call;
    const size_t size = (size_t)call->group->size, block = sl_block_bytes(call) * size;
    size_t sent = 0, received = 0;
    c->sent = c->received = NULL;
    if (c->route->room) {
        received = c->route->room(c);
    } else if (c->route != &sl_mpi_by_messages) {
        return SL_OK;
    } else if (is_sum(call)) {
        received = size * summed_by(call, 0).count * sl_dtype_size(call->dtype); /* the first share is the largest */
    } else {
        if (!sl_block_is_solid(call, &call->input_view)) sent = block;
        const bool scattered = sl_call_writes(call) && !sl_block_is_solid(call, &call->output_view);
        if (combines(call) || scattered) received = block;
    }
    if (size == 1 || !(sent + received)) return SL_OK;
    char *piece = take_piece(c, sent + received);
    if (!piece)
        return sl_fail(&c->run->spmd, SL_FAILED, "%s over \"%s\": no memory for %zu bytes (called at %s)",
                       sl_collective_name(call), call->group->name, sent + received, call->site);
    if (sent) c->sent = piece;
    if (received) c->received = piece + sent;
    return SL_OK;
}

void sl_mpi_begin(struct sl_mpi_call *c) {
    struct sl_collective *call = &c->call;
    c->phase = SL_MPI_FIRST;
    if (c->route->begin) c->route->begin(c);
    if (!sl_block_elements(call) && call->operation != SL_BARRIER) return; /* pointers may be NULL then */
    const struct sl_positions from = sl_call_sources(call);
    if (sl_operation_of(call)->zeros && from.begin == from.end) memset(call->output, 0, sl_block_bytes(call));
    copy_own_block(call);
    if (c->route != &sl_mpi_by_messages) return;
    if (is_sum(call)) {
        exchange_summands(c);
    } else {
        exchange(c);
    }
}

/* Uses the data of the first exchange. */
static void use_received(struct sl_mpi_call *c) {
    const struct sl_collective *call = &c->call;
    if (is_sum(call)) {
        sum(c);
    } else if (combines(call)) {
        sum_blocks(c);
    } else {
        unpack(c);
    }
}

/* Whether COUNT requests have ended. Reports errors. */
bool sl_mpi_have_ended(struct sl_mpi_call *c, int count, MPI_Request *request) {
    enum { AT_ONCE = 128 };
    MPI_Status status[AT_ONCE];
    bool all = true;
    for (int first = 0; first < count && all; first += AT_ONCE) {
        const int some = count - first < AT_ONCE ? count - first : AT_ONCE;
        int ended = 0, code = MPI_Testall(some, request + first, &ended, status);
        for (int i = 0; i < some && code == MPI_ERR_IN_STATUS; i++) {
            const int its = status[i].MPI_ERROR;
            if (its != MPI_SUCCESS && its != MPI_ERR_PENDING) code = its;
        }
        all = sl_mpi_ok(c->run, code, "the data of a peer's call") && ended;
    }
    return all;
}

/* Rings for the senders of long messages, which wait until these have been received. */
static void tell_senders(struct sl_mpi_call *c) {
    const struct sl_collective *call = &c->call;
    for (int peer = 0; peer < call->group->size && sl_block_bytes(call) > SHORT_MESSAGE; peer++)
        if (peer != call->group->rank && sl_mpi_receives_from(call, peer))
            sl_mpi_ring_for_letter(sl_group_member(call->group, peer));
}

/* Moves the call on, exchange by exchange. Returns whether it is over. */
static bool exchange_on(struct sl_mpi_call *c) {
    const struct sl_collective *call = &c->call;
    if (!sl_mpi_have_ended(c, 2 * c->width, c->receive)) return false;
    tell_senders(c);
    if (c->phase == SL_MPI_SECOND || !sl_block_elements(call)) return true;
    use_received(c);
    if (!is_sum(call) || is_short(call)) return true;
    c->phase = SL_MPI_SECOND;
    exchange_sums(c);
    return exchange_on(c);
}

void sl_mpi_move_on(struct sl_mpi_call *c) {
    if (c->phase < SL_MPI_FIRST || !c->route->go(c)) return;
    if (c->buffer) c->buffer->taken &= ~(1u << c->piece);
    c->buffer = NULL;
    c->phase = SL_MPI_IDLE;
}

static bool receives_from(const struct sl_mpi_call *c, int peer) { return sl_mpi_receives_from(&c->call, peer); }
static bool sends_to(const struct sl_mpi_call *c, int peer) { return sl_mpi_sends_to(&c->call, peer); }

static bool always(const struct sl_mpi_call *c) {
    (void)c;
    return true;
}

static int peer_at(const struct sl_mpi_call *c, int index, bool receives) {
    (void)c, (void)receives;
    return index;
}

const struct sl_mpi_route sl_mpi_by_messages = {NULL,     exchange_on, NULL, receives_from,
                                                sends_to, always,      NULL, peer_at};

void sl_mpi_buffers_close(struct sl_mpi_communicator *communicator) {
    while (communicator->buffers) {
        struct sl_mpi_buffer *buffer = communicator->buffers;
        communicator->buffers = buffer->next;
        free(buffer->memory);
        free(buffer);
    }
}
