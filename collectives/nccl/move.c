/* move.c - enqueues the work of a collective of the nccl engine.
 *
 * Contiguous blocks in the device's memory are sent from, and received into, the program's own memory. Others are
 * packed in a buffer of the group's; blocks in the host's memory pass through a second, pinned buffer, from which the
 * device can copy while the host goes on. Sums with a result in the host's memory are computed by the host, from all
 * members' blocks, in member order: small control values so are the same, bit by bit, as on other engines.
 *
 * Sums on the device are NCCL's: its order of additions differs, so results of three and more members differ in the
 * last digits from other engines', and bf16 is rounded after each addition. NCCL's maximum ignores NaN, which must not
 * be ignored: floats' maxima, and sums in tree order, are computed here. */
#include "collectives/nccl/engine.h"

#include <stdlib.h>
#include <string.h>

#include "collectives/operations.h"
#include "collectives/sums/reduce.h"
#include "spmd/device/device.h"

/* ---- layout of blocks ---- */

static enum sl_reduction reduction_of(const struct sl_collective *call) { return sl_operation_of(call)->reduction; }

/* Number of blocks sent, and received, by this member. */
static int blocks_in(const struct sl_collective *call) {
    if (!sl_call_reads(call)) return 0;
    return sl_operation_of(call)->cuts ? call->group->size : 1;
}

static int blocks_out(const struct sl_collective *call) {
    if (!sl_call_writes(call)) return 0;
    return sl_operation_of(call)->joins ? call->group->size : 1;
}

/* Whether NCCL's result differs at most by the order of additions. Its maximum ignores NaN. */
static bool nccl_combines(const struct sl_collective *call) {
    return reduction_of(call) == SL_SUM || (reduction_of(call) == SL_MAXIMUM && sl_dtypes[call->dtype].integer);
}

/* Whether blocks are contiguous and adjacent, as NCCL's own operations need. */
static bool is_direct(const struct sl_collective *call, const struct sl_view *view, int count) {
    return sl_block_is_solid(call, view) && (count < 2 || view->peer == sl_block_elements(call));
}

/* ---- buffers ---- */

static size_t rounded(size_t bytes) { return (bytes + SL_CACHE_LINE - 1) / SL_CACHE_LINE * SL_CACHE_LINE; }

/* Takes the smallest sufficient free buffer; otherwise the largest free one grows: after one step all sizes have been
 * seen. Its old memory stays allocated: freeing it would wait for all work on the device. KEEPS: the buffer stays taken
 * until the call is delivered; otherwise it is free at once, since the next call uses it behind this one. NULL without
 * memory. */
static struct sl_nccl_buffer *take_buffer(struct sl_nccl_coordinate *me, struct sl_nccl_buffer **list, size_t bytes,
                                          bool host, bool keeps) {
    struct sl_nccl_buffer *fits = NULL, *largest = NULL;
    for (struct sl_nccl_buffer *at = *list; at; at = at->next) {
        if (at->taken) continue;
        if (at->bytes >= bytes && (!fits || at->bytes < fits->bytes)) fits = at;
        if (!largest || at->bytes > largest->bytes) largest = at;
    }
    if (!fits && !(fits = largest)) {
        fits = calloc(1, sizeof *fits);
        if (!fits) return NULL;
        fits->next = *list;
        *list = fits;
    }
    if (fits->bytes < bytes) {
        fits->memory = sl_nccl_take(me, bytes, host);
        fits->bytes = fits->memory ? bytes : 0;
    }
    fits->taken = keeps && fits->memory;
    return fits->memory ? fits : NULL;
}

static bool reserve(struct sl_nccl_group *group, struct sl_nccl_call *c, size_t device, size_t pinned) {
    struct sl_nccl_coordinate *me = group->wire.me;
    const bool read_later = c->combines && !c->out.host; /* read by the compute queue */
    c->device = device ? take_buffer(me, &group->device, device, false, read_later) : NULL;
    c->pinned = pinned ? take_buffer(me, &group->pinned, pinned, true, true) : NULL;
    return (c->device || !device) && (c->pinned || !pinned);
}

void sl_nccl_buffers_close(struct sl_nccl_buffer *buffer) {
    while (buffer) {
        struct sl_nccl_buffer *next = buffer->next;
        free(buffer);
        buffer = next;
    }
}

bool sl_nccl_plan(struct sl_nccl_group *group, struct sl_nccl_call *c) {
    const struct sl_collective *call = &c->call;
    const size_t block = sl_block_bytes(call), size = sl_dtype_size(call->dtype);
    c->in =
        (struct sl_nccl_blocks){(char *)(uintptr_t)call->input, size * call->input_view.peer, blocks_in(call), 0, 0};
    c->out = (struct sl_nccl_blocks){call->output, size * call->output_view.peer, blocks_out(call), 0, 0};
    c->in.host = c->in.count && !sl_device.reaches(call->input);
    c->out.host = c->out.count && !sl_device.reaches(call->output);
    c->combines = reduction_of(call) != SL_NO_REDUCTION && (c->out.host || !nccl_combines(call));
    if (c->combines) c->out.count = call->group->size;
    const bool in_buffer = c->in.count && (c->in.host || !is_direct(call, &call->input_view, c->in.count));
    const bool out_buffer =
        c->combines || (c->out.count && (c->out.host || !is_direct(call, &call->output_view, c->out.count)));
    const size_t in = in_buffer ? rounded(block * (size_t)c->in.count) : 0;
    const size_t out = out_buffer ? rounded(block * (size_t)c->out.count) : 0;
    const size_t pinned_in = c->in.host ? in : 0, pinned_out = c->out.host ? out : 0;
    if (!reserve(group, c, in + out, pinned_in + pinned_out)) return false;
    if (in_buffer) c->in.base = c->device->memory, c->in.peer = block;
    if (out_buffer) c->out.base = c->device->memory + in, c->out.peer = block;
    if (c->in.host) c->in.pinned = c->pinned->memory;
    if (c->out.host) c->out.pinned = c->pinned->memory + pinned_in;
    return true;
}

/* ---- packing ---- */

struct layout {
    char *base; /* of one block */
    const struct sl_view *view;
};

static char *run_of(const struct layout *layout, size_t size, size_t row, size_t column) {
    return layout->base + size * (row * layout->view->stride[0] + column * layout->view->stride[1]);
}

/* Copies a block, run by run. */
static void copy_on_host(const struct sl_collective *call, struct layout to, struct layout from) {
    const size_t size = sl_dtype_size(call->dtype);
    for (size_t row = 0; row < call->count[0]; row++) {
        for (size_t column = 0; column < call->count[1]; column++)
            memcpy(run_of(&to, size, row, column), run_of(&from, size, row, column), size * call->count[2]);
    }
}

/* The same in the stream: one 2D copy for all runs along the longer of the two strides. */
static bool copy_on_device(struct sl_nccl_wire *wire, const struct sl_collective *call, struct layout to,
                           struct layout from) {
    const size_t size = sl_dtype_size(call->dtype);
    const int at_once = call->count[0] > call->count[1] ? 0 : 1;
    for (size_t i = 0; i < call->count[!at_once]; i++) {
        const size_t row = at_once ? i : 0, column = at_once ? 0 : i;
        if (!SL_NCCL_CUDA(wire, cudaMemcpy2DAsync(run_of(&to, size, row, column), size * to.view->stride[at_once],
                                                  run_of(&from, size, row, column), size * from.view->stride[at_once],
                                                  size * call->count[2], call->count[at_once], cudaMemcpyDefault,
                                                  wire->stream)))
            return false;
    }
    return true;
}

static char *block_at(const struct sl_collective *call, const void *array, const struct sl_view *view, int number) {
    return (char *)(uintptr_t)array + sl_dtype_size(call->dtype) * view->peer * (size_t)number;
}

bool sl_nccl_pack(struct sl_nccl_group *group, struct sl_nccl_call *c) {
    const struct sl_collective *call = &c->call;
    const struct sl_view tight = sl_packed_blocks(call), *view = &call->input_view;
    const size_t block = sl_block_bytes(call);
    if (!c->in.count || (char *)(uintptr_t)call->input == c->in.base) return true;
    for (int i = 0; i < c->in.count; i++) {
        const struct layout from = {block_at(call, call->input, view, i), view};
        const struct layout to = {(c->in.host ? c->in.pinned : c->in.base) + block * (size_t)i, &tight};
        if (c->in.host) {
            copy_on_host(call, to, from);
        } else if (!copy_on_device(&group->wire, call, to, from)) {
            return false;
        }
    }
    return !c->in.host ||
           SL_NCCL_CUDA(&group->wire, cudaMemcpyAsync(c->in.base, c->in.pinned, block * (size_t)c->in.count,
                                                      cudaMemcpyDefault, group->wire.stream));
}

bool sl_nccl_unpack(struct sl_nccl_group *group, struct sl_nccl_call *c) {
    const struct sl_collective *call = &c->call;
    const struct sl_view tight = sl_packed_blocks(call), *view = &call->output_view;
    const size_t block = sl_block_bytes(call);
    if (!c->out.count || call->output == c->out.base) return true;
    if (c->out.host) {
        return SL_NCCL_CUDA(&group->wire, cudaMemcpyAsync(c->out.pinned, c->out.base, block * (size_t)c->out.count,
                                                          cudaMemcpyDefault, group->wire.stream));
    }
    for (int i = 0; i < c->out.count && !c->combines; i++) {
        const struct layout from = {c->out.base + block * (size_t)i, &tight};
        const struct layout to = {block_at(call, call->output, view, i), view};
        if (!copy_on_device(&group->wire, call, to, from)) return false;
    }
    return true;
}

/* Combines all members' blocks. On the device the output is contiguous. */
static void combine(struct sl_nccl_group *group, struct sl_nccl_call *c) {
    const struct sl_collective *call = &c->call;
    const void **input = group->blocks;
    char *blocks = c->out.host ? c->out.pinned : c->out.base;
    void *output = c->out.host ? blocks : call->output; /* on the host: the first block */
    for (int i = 0; i < c->out.count; i++) input[i] = blocks + sl_block_bytes(call) * (size_t)i;
    const struct sl_matrices all = sl_one_array(sl_block_elements(call));
    (c->out.host ? sl_reduce_matrices : sl_reduce_on_device)(reduction_of(call), call->dtype, call->scale, &all,
                                                             c->out.count, input, 1, &output);
}

void sl_nccl_deliver(struct sl_nccl_group *group, struct sl_nccl_call *c) {
    const struct sl_collective *call = &c->call;
    const struct sl_view tight = sl_packed_blocks(call), *view = &call->output_view;
    if (c->combines) combine(group, c);
    for (int i = 0; i < (c->combines ? 1 : c->out.count) && c->out.host; i++) {
        const struct layout from = {c->out.pinned + sl_block_bytes(call) * (size_t)i, &tight};
        copy_on_host(call, (struct layout){block_at(call, call->output, view, i), view}, from);
    }
    if (c->device && c->combines && !c->out.host) c->device->taken = false;
    if (c->pinned) c->pinned->taken = false;
}

/* ---- NCCL's part ---- */

static ncclDataType_t type_of(enum sl_dtype dtype) {
    switch (dtype) {
    case SL_F32:
        return ncclFloat32;
    case SL_BF16:
        return ncclBfloat16;
    case SL_F16:
        return ncclFloat16;
    case SL_I32:
        return ncclInt32;
    case SL_QUANTIZED:
        break;
    }
    return ncclUint8;
}

/* The block for, or from, PEER. */
static char *block_of(const struct sl_nccl_blocks *blocks, int peer) {
    return blocks->base + (blocks->count > 1 ? blocks->peer * (size_t)peer : 0);
}

/* Sends and receives this member's blocks, one by one. */
static bool send_and_receive(struct sl_nccl_group *group, struct sl_nccl_call *c) {
    const struct sl_collective *call = &c->call;
    const struct sl_positions to = sl_call_destinations(call), from = sl_call_sources(call);
    const size_t bytes = sl_block_bytes(call);
    const int size = call->group->size, me = call->group->rank;
    struct sl_nccl_wire *wire = &group->wire;
    if (sl_operation_of(call)->zeros && from.begin == from.end &&
        !SL_NCCL_CUDA(wire, cudaMemsetAsync(c->out.base, 0, bytes, wire->stream)))
        return false;
    bool done = SL_NCCL(wire, ncclGroupStart());
    for (int k = 0; k < size && done; k++) { /* members do not all turn to the same peer at a time */
        const int next = (me + k) % size, previous = (me + size - k) % size;
        if (sl_has_position(to, next))
            done = SL_NCCL(wire, ncclSend(block_of(&c->in, next), bytes, ncclUint8, next, wire->comm, wire->stream));
        if (done && sl_has_position(from, previous))
            done = SL_NCCL(wire,
                           ncclRecv(block_of(&c->out, previous), bytes, ncclUint8, previous, wire->comm, wire->stream));
    }
    return SL_NCCL(wire, ncclGroupEnd()) && done;
}

static bool all_gather(struct sl_nccl_group *group, struct sl_nccl_call *c) {
    struct sl_nccl_wire *wire = &group->wire;
    return SL_NCCL(wire, ncclAllGather(c->in.base, c->out.base, sl_block_elements(&c->call), type_of(c->call.dtype),
                                       wire->comm, wire->stream));
}

static bool broadcast(struct sl_nccl_group *group, struct sl_nccl_call *c) {
    struct sl_nccl_wire *wire = &group->wire;
    const void *in = c->in.count ? c->in.base : c->out.base;
    return SL_NCCL(wire, ncclBroadcast(in, c->out.base, sl_block_elements(&c->call), type_of(c->call.dtype),
                                       c->call.root, wire->comm, wire->stream));
}

static bool sum_by(struct sl_nccl_group *group, struct sl_nccl_call *c, ncclRedOp_t op) {
    struct sl_nccl_wire *wire = &group->wire;
    const ncclDataType_t type = type_of(c->call.dtype);
    const size_t count = sl_block_elements(&c->call);
    if (sl_operation_of(&c->call)->cuts)
        return SL_NCCL(wire, ncclReduceScatter(c->in.base, c->out.base, count, type, op, wire->comm, wire->stream));
    return SL_NCCL(wire, ncclAllReduce(c->in.base, c->out.base, count, type, op, wire->comm, wire->stream));
}

/* Sums with a scale other than 1 / members. */
static bool sum_scaled(struct sl_nccl_group *group, struct sl_nccl_call *c) {
    struct sl_nccl_wire *wire = &group->wire;
    uint64_t scale; /* large enough for an element of any type */
    sl_store_float(c->call.dtype, &scale, 0, c->call.scale);
    ncclRedOp_t op;
    if (!SL_NCCL(wire,
                 ncclRedOpCreatePreMulSum(&op, &scale, type_of(c->call.dtype), ncclScalarHostImmediate, wire->comm)))
        return false;
    const bool done = sum_by(group, c, op);
    return SL_NCCL(wire, ncclRedOpDestroy(op, wire->comm)) && done;
}

static bool sum(struct sl_nccl_group *group, struct sl_nccl_call *c) {
    const struct sl_collective *call = &c->call;
    if (reduction_of(call) == SL_MAXIMUM) return sum_by(group, c, ncclMax);
    if (call->scale == 1 || sl_dtypes[call->dtype].integer) return sum_by(group, c, ncclSum);
    return call->scale == 1.0f / (float)call->group->size ? sum_by(group, c, ncclAvg) : sum_scaled(group, c);
}

/* Operations missing in NCCL are composed of sends and receives. */
bool sl_nccl_exchange(struct sl_nccl_group *group, struct sl_nccl_call *c) {
    const struct sl_collective *call = &c->call;
    const bool reduces = reduction_of(call) != SL_NO_REDUCTION;
    if (reduces && !c->combines) return sum(group, c);
    if (reduces && !sl_operation_of(call)->cuts) return all_gather(group, c); /* gathers the summands */
    if (call->operation == SL_ALL_GATHER) return all_gather(group, c);
    if (call->operation == SL_BROADCAST) return broadcast(group, c);
    return send_and_receive(group, c);
}
