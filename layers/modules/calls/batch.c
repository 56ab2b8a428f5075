/* batch.c - copies examples to the device through pinned memory; the host does not wait for the copies. */
#include "layers/modules/calls/batch.h"

#include <stddef.h>
#include <string.h>

#include "layers/kernels/kernels.h"
#include "spmd/device/device.h"

struct sl_batch sl_batch_rows(const struct sl_batch *batch, int first, int rows, int in, int out) {
    return (struct sl_batch){
        .rows = rows,
        .inputs = batch->inputs ? batch->inputs + (size_t)first * (size_t)in : NULL,
        .labels = batch->labels ? batch->labels + first : NULL,
        .tokens = batch->tokens ? batch->tokens + first : NULL,
        .places = batch->places ? batch->places + first : NULL,
        .targets = batch->targets ? batch->targets + (size_t)first * (size_t)out : NULL,
    };
}

size_t sl_batch_room_bytes(size_t rows, size_t in, size_t out) {
    return sl_device.shares_memory ? 0 : rows * ((in + out) * sizeof(float) + 3 * sizeof(int32_t));
}

bool sl_batch_room_open(struct sl_batch_room *room, size_t rows, size_t in, size_t out, size_t times,
                        struct sl_budget *held) {
    *room = (struct sl_batch_room){.rows = rows, .in = in, .out = out, .times = times};
    if (sl_device.shares_memory) return true;
    room->inputs = sl_device_take(held, SL_MEMORY_BATCH, rows * in * sizeof *room->inputs);
    room->labels = sl_device_take(held, SL_MEMORY_BATCH, rows * sizeof *room->labels);
    room->tokens = sl_device_take(held, SL_MEMORY_BATCH, rows * sizeof *room->tokens);
    room->places = sl_device_take(held, SL_MEMORY_BATCH, rows * sizeof *room->places);
    room->host_tokens = sl_device.take_host(times * rows * sizeof *room->host_tokens);
    room->host_places = sl_device.take_host(times * rows * sizeof *room->host_places);
    room->host_inputs = sl_device.take_host(times * rows * in * sizeof *room->host_inputs);
    room->host_labels = sl_device.take_host(times * rows * sizeof *room->host_labels);
    room->targets = sl_device_take(held, SL_MEMORY_BATCH, rows * out * sizeof *room->targets);
    room->host_targets = sl_device.take_host(times * rows * out * sizeof *room->host_targets);
    return room->inputs && room->labels && room->host_inputs && room->host_labels && room->tokens &&
           room->host_tokens && room->targets && room->host_targets && room->places && room->host_places;
}

void sl_batch_room_close(struct sl_batch_room *room) {
    sl_device.give(room->inputs);
    sl_device.give(room->labels);
    sl_device.give_host(room->host_inputs);
    sl_device.give_host(room->host_labels);
    sl_device.give(room->tokens);
    sl_device.give_host(room->host_tokens);
    sl_device.give(room->places);
    sl_device.give_host(room->host_places);
    sl_device.give(room->targets);
    sl_device.give_host(room->host_targets);
}

/* FROM at an address that the device can read: FROM itself, or ROOM, to which it is copied through buffer NUMBER of
 * HOST. */
static const void *bring(const void *from, size_t bytes, size_t number, void *host, void *room) {
    if (!from || sl_device.shares_memory || sl_device.reaches(from)) return from;
    char *through = (char *)host + number * bytes;
    memcpy(through, from, bytes);
    sl_device.copy(room, through, bytes);
    return room;
}

struct sl_batch sl_batch_bring(struct sl_batch_room *room, const struct sl_batch *batch, size_t number) {
    const size_t rows = room->rows, which = number % room->times;
    if (!sl_device.shares_memory && which == 0) sl_device.settle(NULL); /* copies may still read the host's buffers */
    return (struct sl_batch){
        .rows = batch->rows,
        .inputs = bring(batch->inputs, rows * room->in * sizeof(float), which, room->host_inputs, room->inputs),
        .labels = bring(batch->labels, rows * sizeof(int32_t), which, room->host_labels, room->labels),
        .tokens = bring(batch->tokens, rows * sizeof(int32_t), which, room->host_tokens, room->tokens),
        .places = bring(batch->places, rows * sizeof(int32_t), which, room->host_places, room->places),
        .targets = bring(batch->targets, rows * room->out * sizeof(float), which, room->host_targets, room->targets),
    };
}

/* ---- sums over rows: kernels add to them, and the host reads them once a step ---- */

/* On the host there is one part, of at most two numbers. */
size_t sl_sums_bytes(void) {
    return sizeof(struct sl_sums) + (sl_device.shares_memory ? 2 : SL_SUM_ROOM) * sizeof(double);
}

void sl_sums_clear(struct sl_sums *sums) { sl_device.zero(sums, sizeof *sums); }

void sl_sums_read(const struct sl_sums *sums, struct sl_metrics *metrics) {
    struct sl_sums here;
    sl_device.copy(&here, sums, offsetof(struct sl_sums, squares)); /* the other fields are not metrics */
    sl_metrics_add(metrics, here.losses);
    metrics->auxiliary += here.auxiliary;
}
