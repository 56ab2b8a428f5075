/* initialize.c - initial values of parameters, made from random words. One member of the data axis draws for all, or
 * each draws its own. */
#include "layers/modules/parameters/parameters.h"

#include <stdlib.h>

#include "spmd/device/device.h"
#include "spmd/flax.h"

/* Elements of the whole array. */
static size_t elements_of(const struct sl_parameter *parameter) {
    size_t elements = 1;
    for (int d = 0; d < parameter->dims; d++) elements *= parameter->shape[d];
    return elements;
}

/* Global index of the shard's element I. */
static size_t global_index(const struct sl_parameter *parameter, const struct sl_spmd *self, size_t i) {
    return sl_spec_global_index(&parameter->spec, self->mesh, self->coordinate, parameter->dims, parameter->shape, i);
}

/* Draws the shard's words by their global positions: row and column of the array seen as [rows, last dim]. Elements
 * contiguous in the shard's last dim are contiguous in the array, segment by segment. */
static void words_by_position(const struct sl_parameter *parameter, const struct sl_kernels *kernels,
                              const struct sl_spmd *self, struct sl_key key, uint32_t *words) {
    const size_t cols = parameter->shape[parameter->dims - 1];
    size_t local[SL_MAX_DIMS];
    sl_spec_local_shape(&parameter->spec, self->mesh, parameter->dims, parameter->shape, local, NULL);
    const int last = parameter->dims - 1;
    const int segments = last < parameter->spec.dims ? parameter->spec.dim[last].segments : 1;
    const size_t run = local[last] / (size_t)segments;
    for (size_t s = 0; s < local[last]; s += run) { /* consecutive rows, a segment at a time */
        for (size_t i = s, rows; i < parameter->count; i += rows * local[last]) {
            const size_t global = global_index(parameter, self, i);
            for (rows = 1; i + rows * local[last] < parameter->count; rows++)
                if (global_index(parameter, self, i + rows * local[last]) != global + rows * cols) break;
            kernels->draws->words_global(key, (uint32_t)(global / cols), (uint32_t)rows, (uint32_t)(global % cols),
                                         (uint32_t)run, local[last], words + i);
        }
    }
}

/* Draws the shard's words in JAX's layout. There a word depends on the number of all words, so the words of the whole
 * array are drawn, and the host picks the shard's. */
static int words_in_flax_order(const struct sl_parameter *parameter, const struct sl_kernels *kernels,
                               struct sl_spmd *self, uint32_t *words) {
    const size_t elements = elements_of(parameter);
    if (parameter->count == elements) {
        kernels->draws->words(parameter->key, (uint32_t)elements, words);
        return SL_OK;
    }
    uint32_t *const drawn = sl_device.take(elements * sizeof *drawn), *const all = malloc(elements * sizeof *all);
    if (drawn && all) {
        kernels->draws->words(parameter->key, (uint32_t)elements, drawn);
        sl_device.copy(all, drawn, elements * sizeof *all);
        for (size_t i = 0; i < parameter->count; i++) /* word i comes from position i or later */
            all[i] = all[sl_spec_global_index(&parameter->spec, self->mesh, self->coordinate, parameter->dims,
                                              parameter->shape, i)];
        sl_device.copy(words, all, parameter->count * sizeof *all);
    }
    const bool enough = drawn && all;
    sl_device.give(drawn);
    free(all);
    return enough ? SL_OK : sl_fail(self, SL_FAILED, "no memory for %zu random words", elements);
}

/* Draws values; the words lie in the values' own memory. */
static int initialize(const struct sl_parameter *parameter, const struct sl_kernels *kernels, struct sl_spmd *self,
                      float *value) {
    uint32_t *words = (uint32_t *)(void *)value;
    switch (parameter->initializer) {
    case SL_INIT_ZEROS:
        break; /* storage is zeroed already */
    case SL_INIT_ONES:
        kernels->fill(parameter->count, 1.0f, value);
        break;
    case SL_INIT_TRUNCATED_NORMAL:
        if (parameter->key_is_flax)
            SL_TRY(words_in_flax_order(parameter, kernels, self, words));
        else
            words_by_position(parameter, kernels, self, parameter->key, words);
        kernels->draws->truncated_normal((uint32_t)parameter->count, words, parameter->scale, value);
        break;
    }
    return SL_OK;
}

/* For a RANGE of which each member stores only its own part as float32. The first member draws all values in the memory
 * of the gradients, and broadcasts them; each member copies its part, and rounds all values. */
static int spread_kernels(const struct sl_parameters *parameters, struct sl_spmd *self, const struct sl_group *data,
                          int range) {
    const struct sl_kernels *kernels = sl_kernels_select();
    const struct sl_range *of = &parameters->range[range];
    float *const all = of->gradient;
    sl_device.zero(all, of->count * sizeof *all);
    for (int i = 0; i < parameters->count && data->rank == 0; i++) {
        const struct sl_parameter *parameter = &parameters->list[i];
        if (parameter->range != range || parameter->second) continue;
        SL_TRY(initialize(parameter, kernels, self, all + parameter->offset));
    }
    SL_TRY(sl_broadcast(self, data, SL_F32, all, all, of->count, 0));
    sl_device.copy(of->value, all + of->shard, of->shard_count * sizeof *all);
    kernels->round_bf16(of->count, all, of->rounded);
    sl_device.zero(all, of->count * sizeof *all);
    return SL_OK;
}

/* Broadcasts the first member's values. Values held together are in place already. */
static int spread(const struct sl_parameters *parameters, struct sl_spmd *self, const struct sl_group *data) {
    if (parameters->one_copy) return sl_barrier(self, data);
    for (int r = 0; r < parameters->ranges && data->size > 1; r++) {
        struct sl_range *range = &parameters->range[r];
        if (sl_range_is_sharded(parameters, r)) continue;
        if (range->own_floats && range->count) SL_TRY(spread_kernels(parameters, self, data, r));
        if (range->own_floats) continue;
        SL_TRY(sl_parameters_use_values(parameters, r, true, &self->error));
        if (range->count) SL_TRY(sl_broadcast(self, data, SL_F32, range->value, range->value, range->count, 0));
        if (!sl_kernels_are_bf16_alone(parameters) || range->rounded_count == 0) continue;
        SL_TRY(sl_broadcast(self, data, SL_BF16, range->rounded, range->rounded, range->rounded_count, 0));
    }
    return SL_OK;
}

/* Member of the data axis that draws the values of PARAMETER, if one draws for all: the first one or, for values held
 * together, the member with the fewest drawn so far (DRAWN). */
static int who_draws(const struct sl_parameters *parameters, const struct sl_parameter *parameter, int members,
                     size_t *drawn) {
    int who = 0;
    if (!sl_range_is_common(parameters, parameter->range)) return who;
    for (int member = 1; member < members; member++)
        if (drawn[member] < drawn[who]) who = member;
    drawn[who] += parameter->initializer == SL_INIT_TRUNCATED_NORMAL ? parameter->count : 0;
    return who;
}

/* Returns whether the values of parameter I are drawn in a separate room: they are bf16-only, or not contiguous. */
static bool needs_room(const struct sl_parameters *parameters, int i) {
    return sl_parameter_is_bf16_alone(parameters, i) || sl_range_is_whole(parameters, parameters->list[i].range);
}

/* Draws this member's values, using ROOM if needed. */
static int draw(struct sl_parameters *parameters, struct sl_spmd *self, const struct sl_group *data, float *room) {
    const struct sl_kernels *kernels = sl_kernels_select();
    size_t drawn[data->size + 1];
    memset(drawn, 0, sizeof drawn);
    for (int i = 0; i < parameters->count; i++) {
        const struct sl_parameter *parameter = &parameters->list[i];
        if (parameter->second || parameters->range[parameter->range].own_floats) continue; /* drawn elsewhere */
        if (parameters->given && !parameter->adapter) continue;
        const int who = who_draws(parameters, parameter, data->size, drawn);
        if (data->rank != who && !sl_range_is_sharded(parameters, parameter->range)) continue;
        SL_TRY(sl_parameters_use_values(parameters, parameter->range, true, &self->error));
        if (!needs_room(parameters, i)) {
            SL_TRY(initialize(parameter, kernels, self, sl_parameter_value(parameters, i)));
            continue;
        }
        kernels->fill(parameter->count, 0.0f, room);
        SL_TRY(initialize(parameter, kernels, self, room));
        if (sl_parameter_is_bf16_alone(parameters, i))
            kernels->round_bf16(parameter->count, room, sl_parameter_rounded(parameters, i));
        else
            sl_parameters_copy_values(parameters, parameter->range, parameter->offset, parameter->count, room, true);
    }
    return SL_OK;
}

int sl_parameters_initialize(struct sl_parameters *parameters, struct sl_spmd *self, const struct sl_group *data) {
    size_t most = 0; /* floats to be drawn in the room */
    if (!parameters->memory)
        return sl_fail(self, SL_BAD_INPUT,
                       "the parameters have no memory: sl_parameters_take comes before sl_parameters_initialize");
    if (parameters->given && !parameters->adapters) return SL_OK;
    for (int i = 0; i < parameters->count; i++)
        if (needs_room(parameters, i) && parameters->list[i].count > most) most = parameters->list[i].count;
    float *room = most ? sl_device.take(most * sizeof *room) : NULL;
    if (most && !room) return sl_fail(self, SL_FAILED, "no memory for %zu random values", most);
    const int status = draw(parameters, self, data, room);
    sl_device.give(room);
    SL_TRY(status);
    SL_TRY(spread(parameters, self, data));
    SL_TRY(sl_parameters_round_all(parameters, &self->error));
    return parameters->one_copy ? sl_barrier(self, data) : SL_OK;
}
