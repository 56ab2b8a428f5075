/* state.c - walks over a coordinate's state between two steps. */
#include "layers/records/replay/state.h"

#include <string.h>

enum { PIECE = 1 << 12 }; /* floats of optimizer state at a time */

/* Floats of the values in memory. */
static size_t values_of(const struct sl_range *range) {
    return !range->value ? 0 : range->own_floats ? range->shard_count : range->count;
}

static size_t states_of(const struct sl_parameters *parameters, int range) {
    return sl_range_trains(parameters, range) ? parameters->range[range].shard_count : 0;
}

static size_t rounded_of(const struct sl_range *range) { return range->rounded ? range->rounded_count : 0; }

/* Brings the values of RANGE into memory, if values take turns there. */
static int use(struct sl_trainer *trainer, int range, bool writes) {
    struct sl_parameters *parameters = sl_trainer_parameters(trainer);
    return sl_parameters_use_values(parameters, range, writes, &sl_trainer_self(trainer)->error);
}

size_t sl_state_bytes(struct sl_trainer *trainer) {
    const struct sl_parameters *parameters = sl_trainer_parameters(trainer);
    size_t bytes = 0;
    for (int i = 0; i < parameters->ranges; i++) {
        const struct sl_range *range = &parameters->range[i];
        if (!range->count || use(trainer, i, false)) continue;
        bytes += values_of(range) * sizeof(float) + rounded_of(range) * sizeof(uint16_t);
        bytes += states_of(parameters, i) * (size_t)parameters->states * sizeof(float);
    }
    return bytes;
}

static int refuse(struct sl_trainer *trainer, int number) {
    return sl_fail(sl_trainer_self(trainer), SL_FAILED, "the coordinate's state: %s", strerror(number));
}

/* Moves all tensors of the optimizer, offloaded or not. */
static int move_states(struct sl_trainer *trainer, int i, bool writes, sl_state_move *move, void *arg) {
    const struct sl_parameters *parameters = sl_trainer_parameters(trainer);
    struct sl_error *error = &sl_trainer_self(trainer)->error;
    const size_t count = states_of(parameters, i);
    float piece[PIECE];
    for (int state = 0; state < parameters->states; state++) {
        for (size_t first = 0, part; first < count; first += part) {
            part = count - first < PIECE ? count - first : PIECE;
            if (!writes) SL_TRY(sl_parameters_read_state(parameters, i, state, first, part, piece, error));
            const int number = move(arg, piece, part * sizeof *piece);
            if (number) return refuse(trainer, number);
            if (writes) SL_TRY(sl_parameters_write_state(parameters, i, state, first, part, piece, error));
        }
    }
    return SL_OK;
}

static int move_all(struct sl_trainer *trainer, bool writes, sl_state_move *move, void *arg) {
    const struct sl_parameters *parameters = sl_trainer_parameters(trainer);
    for (int i = 0; i < parameters->ranges; i++) {
        const struct sl_range *range = &parameters->range[i];
        if (!range->count) continue;
        SL_TRY(use(trainer, i, writes));
        int number = move(arg, range->value, values_of(range) * sizeof(float));
        if (!number) number = move(arg, range->rounded, rounded_of(range) * sizeof(uint16_t));
        if (number) return refuse(trainer, number);
        SL_TRY(move_states(trainer, i, writes, move, arg));
    }
    return SL_OK;
}

int sl_state_read(struct sl_trainer *trainer, sl_state_move *move, void *arg) {
    return move_all(trainer, false, move, arg);
}

int sl_state_write(struct sl_trainer *trainer, sl_state_move *move, void *arg) {
    return move_all(trainer, true, move, arg);
}
