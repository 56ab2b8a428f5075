/* far_states.c - offloads the optimizer's tensors; they are read and written a piece at a time. */
#include <stddef.h>

#include "layers/modules/parameters/parameters.h"
#include "spmd/device/device.h"

enum { MOST = 1 << 18 /* elements of each tensor per piece */ };

static size_t state_floats(const struct sl_parameters *parameters) {
    size_t floats = 0;
    for (int r = 0; r < parameters->ranges; r++)
        if (!sl_range_is_frozen(parameters, r)) floats += (size_t)parameters->states * parameters->range[r].shard_count;
    return floats;
}

size_t sl_far_piece(const struct sl_parameters *parameters) {
    size_t most = 0;
    for (int r = 0; r < parameters->ranges; r++)
        if (!sl_range_is_frozen(parameters, r) && parameters->range[r].shard_count > most)
            most = parameters->range[r].shard_count;
    return most < MOST ? most : MOST;
}

size_t sl_far_room_bytes(const struct sl_parameters *parameters) {
    return parameters->far_states ? (size_t)parameters->states * sl_far_piece(parameters) * sizeof(float) : 0;
}

int sl_parameters_open_far(struct sl_parameters *parameters, struct sl_error *error) {
    const size_t floats = state_floats(parameters);
    size_t next = 0;
    if (!parameters->far_states || parameters->values_only || floats == 0) return SL_OK;
    for (int r = 0; r < parameters->ranges; r++) {
        if (sl_range_is_frozen(parameters, r)) continue;
        parameters->range[r].far = next;
        next += (size_t)parameters->states * parameters->range[r].shard_count;
    }
    parameters->far_room = sl_device.take(sl_far_room_bytes(parameters));
    if (!parameters->far_room)
        return sl_error_set(error, SL_FAILED, "no memory for a room of %zu bytes for what is offloaded",
                            sl_far_room_bytes(parameters));
    sl_budget_add(parameters->held, SL_MEMORY_OPTIMIZER, sl_far_room_bytes(parameters));
    SL_TRY(sl_far_open(&parameters->far, parameters->far_directory, floats * sizeof(float), error));
    sl_budget_add(parameters->held, SL_MEMORY_OFFLOADED, floats * sizeof(float));
    return SL_OK;
}

void sl_parameters_close_far(struct sl_parameters *parameters) {
    sl_far_close(&parameters->far);
    sl_device.give(parameters->far_room);
    parameters->far_room = NULL;
}

/* Byte offset of element FIRST of the range's state tensor STATE. */
static size_t place_of(const struct sl_range *range, int state, size_t first) {
    return (range->far + (size_t)state * range->shard_count + first) * sizeof(float);
}

int sl_parameters_read_state(const struct sl_parameters *parameters, int range, int state, size_t first, size_t count,
                             float *to, struct sl_error *error) {
    const struct sl_range *of = &parameters->range[range];
    if (parameters->far_states)
        return sl_far_read(&parameters->far, place_of(of, state, first), to, count * sizeof *to, error);
    sl_device.copy(to, of->state[state] + first, count * sizeof *to);
    return SL_OK;
}

int sl_parameters_write_state(const struct sl_parameters *parameters, int range, int state, size_t first, size_t count,
                              const float *from, struct sl_error *error) {
    const struct sl_range *of = &parameters->range[range];
    if (parameters->far_states)
        return sl_far_write(&parameters->far, place_of(of, state, first), from, count * sizeof *from, error);
    sl_device.copy(of->state[state] + first, from, count * sizeof *from);
    return SL_OK;
}

void sl_parameters_expect_states(const struct sl_parameters *parameters, int range, size_t first, size_t count) {
    for (int s = 0; s < parameters->states; s++)
        sl_far_expect(&parameters->far, place_of(&parameters->range[range], s, first), count * sizeof(float));
}
