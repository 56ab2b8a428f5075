/* parameters.c - declares, lays out and allocates flat parameter storage. */
#include "layers/modules/parameters/parameters.h"

#include <stdlib.h>
#include <string.h>

#include "spmd/device/device.h"
#include "spmd/base/hash.h"
#include "spmd/base/memory.h"
#include "spmd/flax.h"

int sl_parameters_open(struct sl_parameters *parameters, int loops) {
    *parameters = (struct sl_parameters){.loops = loops, .ranges = 5 * loops + 1};
    parameters->range = calloc((size_t)parameters->ranges, sizeof *parameters->range);
    if (!parameters->range) return SL_FAILED;
    for (int l = 0; l < loops; l++) sl_parameters_part(parameters, l, l);
    return SL_OK;
}

void sl_parameters_part(struct sl_parameters *parameters, int part, int loop) {
    for (int kind = 0; kind < 3; kind++) parameters->range[kind * parameters->loops + part].loop = loop;
}

void sl_parameters_close(struct sl_parameters *parameters) {
    sl_parameters_close_far(parameters);
    sl_parameters_close_turns(parameters);
    sl_device.give(parameters->memory);
    free(parameters->range);
    free(parameters->list);
    free(parameters->place);
    *parameters = (struct sl_parameters){0};
}

/* The place of NAME in the hash table, or the free place for it. */
static int *place_of(const struct sl_parameters *parameters, const char *name, uint64_t mark) {
    const size_t places = 2 * (size_t)parameters->capacity;
    size_t at = mark % places;
    for (int i; (i = parameters->place[at]); at = (at + 1) % places)
        if (parameters->list[i - 1].mark == mark && !strcmp(parameters->list[i - 1].name, name)) break;
    return &parameters->place[at];
}

static int find(const struct sl_parameters *parameters, const char *name) {
    return parameters->count ? *place_of(parameters, name, sl_hash(name, strlen(name))) - 1 : -1;
}

/* Makes room for one more parameter. Returns false without memory. */
static bool grow(struct sl_parameters *parameters) {
    const int before = parameters->capacity;
    struct sl_parameter *grown = sl_grow(parameters->list, parameters->count, &parameters->capacity, 32, sizeof *grown);
    if (!grown) return false;
    parameters->list = grown;
    if (parameters->capacity == before) return true;
    int *place = calloc(2 * (size_t)parameters->capacity, sizeof *place);
    if (!place) return parameters->capacity = before, false;
    free(parameters->place);
    parameters->place = place;
    for (int i = parameters->count; i-- > 0;) *place_of(parameters, grown[i].name, grown[i].mark) = i + 1;
    return true;
}

static bool same_shape(const struct sl_parameter *one, const struct sl_parameter *other) {
    return one->dims == other->dims && !memcmp(one->shape, other->shape, (size_t)one->dims * sizeof *one->shape);
}

/* The number that PARAMETER has from the first planning of the model. */
static int find_again(const struct sl_parameters *parameters, const struct sl_parameter *parameter,
                      struct sl_error *error) {
    const int i = find(parameters, parameter->name);
    const struct sl_parameter *known = i < 0 ? NULL : &parameters->list[i];
    if (known && same_shape(known, parameter)) return i;
    sl_error_set(error, SL_BAD_INPUT, "parameter %s: the model that was planned first has %s", parameter->name,
                 known ? "another shape of it" : "none of that name");
    return -1;
}

/* Only a tied parameter may be declared twice, and only with the same shape. */
static int check_again(const struct sl_parameter *known, const struct sl_parameter *parameter, struct sl_error *error) {
    if (!known->tied || !parameter->tied)
        return sl_error_set(error, SL_BAD_INPUT,
                            "parameter %s is declared twice: names of parameters are unique in the whole model, so "
                            "give its module another name, or tie it",
                            parameter->name);
    if (same_shape(known, parameter)) return SL_OK;
    return sl_error_set(error, SL_BAD_INPUT, "parameter %s: its two stages declare it with different shapes",
                        parameter->name);
}

/* Whether one of SPEC's axes is in AXES. */
static bool is_sharded_over(const struct sl_spec *spec, const char *axes) {
    for (int d = 0; axes && d < spec->dims; d++)
        for (int a = 0; a < spec->dim[d].axes; a++)
            if (sl_axes_have(axes, spec->dim[d].axis[a])) return true;
    return false;
}

static int range_of(const struct sl_parameters *parameters, const struct sl_parameter *parameter) {
    const int first = parameter->frozen ? sl_tied_range(parameters) + 1 : 0;
    if (parameter->tied && !parameter->frozen) return sl_tied_range(parameters);
    const bool sharded = !parameter->tied && is_sharded_over(&parameter->spec, parameters->data_axis);
    return first + parameter->range + (sharded ? parameters->loops : 0);
}

int sl_parameters_declare(struct sl_parameters *parameters, const struct sl_mesh *mesh,
                          const struct sl_parameter *given, struct sl_error *error) {
    struct sl_parameter own = *given, *const parameter = &own;
    own.tied = own.tied || parameters->copied;
    if (parameters->laid_out) return find_again(parameters, parameter, error);
    const int before = find(parameters, parameter->name);
    if (before >= 0 && check_again(&parameters->list[before], parameter, error)) return -1;
    if (!grow(parameters)) {
        sl_error_set(error, SL_FAILED, "no memory to declare parameter %s", parameter->name);
        return -1;
    }
    size_t local[SL_MAX_DIMS], room = 1;
    struct sl_error misfit = {0};
    if (sl_spec_local_shape(&parameter->spec, mesh, parameter->dims, parameter->shape, local, &misfit)) {
        sl_error_set(error, misfit.status, "parameter %s: %s", parameter->name, misfit.message);
        return -1;
    }
    for (int d = 0; d < parameter->dims; d++) room *= local[d];
    const struct sl_shard shard =
        sl_spec_shard(&parameter->spec, mesh, parameters->coordinate, parameter->dims, parameter->shape);

    struct sl_parameter *declared = &parameters->list[parameters->count];
    *declared = *parameter;
    declared->mark = sl_hash(parameter->name, strlen(parameter->name));
    declared->count = sl_shard_elements(&shard);
    declared->room = room;
    declared->decay = sl_rule_decays(parameters->decays, parameter->name);
    declared->adapter = sl_patterns_match(parameters->adapters, parameter->name);
    declared->frozen = sl_patterns_match(parameters->frozen, parameter->name) ||
                       (parameters->adapters && !declared->adapter && !parameters->values_only);
    declared->loop = before >= 0 ? parameters->list[before].loop : parameter->range;
    declared->range = before >= 0 ? parameters->list[before].range : range_of(parameters, declared);
    declared->second = before >= 0;
    struct sl_range *range = &parameters->range[declared->range];
    declared->offset = before >= 0 ? parameters->list[before].offset : range->used;
    /* Each parameter begins on a cache line, for aligned kernels and products. */
    if (before < 0) range->used += sl_round_up(room, SL_CACHE_LINE / sizeof(float));
    if (before < 0) *place_of(parameters, declared->name, declared->mark) = parameters->count + 1;
    return parameters->count++;
}

void sl_parameters_part_gradient(struct sl_parameters *parameters, int i, enum sl_parts parts) {
    if (!parameters->laid_out) parameters->list[i].parts = parts;
}

/* Lays out parts of gradients, one after another, each of all members' shards. */
static void lay_parts_out(struct sl_parameters *parameters, size_t members) {
    for (int i = 0; i < parameters->count; i++) {
        struct sl_parameter *parameter = &parameters->list[i];
        struct sl_range *range = &parameters->range[parameter->range];
        if (parameter->parts == SL_COMPLETE || !sl_range_trains(parameters, parameter->range)) continue;
        parameter->part = range->parts_count;
        range->parts_count += sl_round_up(members * parameter->count, SL_CACHE_LINE / sizeof(float));
    }
}

/* Moves kernels to the rounded values of their ranges; the other parameters become contiguous. */
static void part_kernels(struct sl_parameters *parameters, size_t data) {
    for (int r = 0; r < parameters->ranges; r++) parameters->range[r].used = 0;
    for (int i = 0; i < parameters->count; i++) {
        struct sl_parameter *parameter = &parameters->list[i];
        struct sl_range *range = &parameters->range[parameter->range];
        size_t *used = parameter->kernel ? &range->rounded_count : &range->used;
        if (parameter->blocks.at) continue;
        if (parameter->second) {
            parameter->offset = parameters->list[find(parameters, parameter->name)].offset;
            continue;
        }
        parameter->offset = *used;
        *used += sl_round_up(parameter->room, SL_CACHE_LINE / sizeof(uint16_t));
    }
    for (int r = 0; r < parameters->ranges; r++) {
        size_t *count = &parameters->range[r].rounded_count;
        *count = sl_round_up(*count, data * SL_CACHE_LINE / sizeof(uint16_t));
    }
}

static bool are_kernels(const struct sl_parameters *parameters, int range) {
    for (int i = 0; i < parameters->count; i++)
        if (parameters->list[i].range == range && !parameters->list[i].kernel) return false;
    return true;
}

/* Moves kernels read only as bf16 to ranges of their own, together with the loop's room; the other parameters become
 * contiguous. */
static void part_floats(struct sl_parameters *parameters) {
    const int loops = parameters->loops;
    for (int l = 0; l < loops; l++) {
        struct sl_range *others = &parameters->range[l], *kernels = others + 2 * loops;
        kernels->own_floats = true;
        kernels->room = others->room;
        others->room = 0;
        others->used = 0;
    }
    parameters->range[sl_tied_range(parameters)].own_floats = are_kernels(parameters, sl_tied_range(parameters));
    for (int i = 0; i < parameters->count; i++) {
        struct sl_parameter *parameter = &parameters->list[i];
        if (parameter->range >= loops) continue;
        if (parameter->kernel) parameter->range += 2 * loops;
        struct sl_range *range = &parameters->range[parameter->range];
        parameter->offset = range->used;
        range->used += sl_round_up(parameter->room, SL_CACHE_LINE / sizeof(float));
    }
}

void sl_parameters_layout(struct sl_parameters *parameters, int data, int index, bool zero) {
    const bool alone = sl_kernels_are_bf16_alone(parameters);
    parameters->members = data;
    parameters->member = index;
    sl_parameters_leave_blocks_out(parameters);
    if (alone) part_kernels(parameters, (size_t)data);
    if (parameters->shards_floats) part_floats(parameters);
    for (int r = 0; r < parameters->ranges; r++) {
        struct sl_range *range = &parameters->range[r];
        const bool shares = zero && !sl_range_is_sharded(parameters, r);
        range->count = sl_round_up(range->used, (size_t)data * SL_CACHE_LINE / sizeof(float));
        range->shard_count = shares ? range->count / (size_t)data : range->count;
        range->shard = shares ? range->shard_count * (size_t)index : 0;
        if (!alone && parameters->rounds) range->rounded_count = range->count;
    }
    lay_parts_out(parameters, (size_t)data);
    sl_rooms_choose(parameters);
    parameters->laid_out = true;
}

static bool is_declared_twice(const struct sl_parameters *parameters, int range) {
    for (int i = 0; i < parameters->count; i++)
        if (parameters->list[i].range == range && parameters->list[i].second) return true;
    return false;
}

/* Returns whether the values of RANGE lie in memory read by all members of data. */
static bool is_shared(const struct sl_parameters *parameters, int range) {
    return sl_range_is_common(parameters, range) || sl_range_is_whole(parameters, range);
}
/* Floats of the values of RANGE: if RANGE is whole, of all members together. */
static size_t all_value_floats(const struct sl_parameters *parameters, int range) {
    const size_t floats = sl_range_value_floats(&parameters->range[range]);
    return sl_range_is_whole(parameters, range) ? floats * (size_t)parameters->members : floats;
}
/* This coordinate's part of these floats. */
static size_t own_value_floats(const struct sl_parameters *parameters, int range) {
    return all_value_floats(parameters, range) / (is_shared(parameters, range) ? (size_t)parameters->members : 1);
}

struct sl_parameter_bytes sl_parameters_each_bytes(const struct sl_parameters *parameters) {
    struct sl_parameter_bytes bytes = {.values = sl_parameters_block_bytes(parameters)};
    for (int r = 0; r < parameters->ranges; r++) {
        const struct sl_range *range = &parameters->range[r];
        const size_t near = sl_range_takes_turns(parameters, r) ? 0 : sizeof(float);
        bytes.values += own_value_floats(parameters, r) * near;
        if (!sl_range_trains(parameters, r)) continue;
        const size_t floats = range->room ? range->shard_count : range->count;
        bytes.gradients +=
            floats * (is_declared_twice(parameters, r) ? 2 : 1) * near + range->parts_count * sizeof(float);
        bytes.states += (size_t)parameters->states * range->shard_count * sizeof(float);
    }
    if (!parameters->values_only) bytes.gradients += sl_rooms_floats(parameters) * sizeof(float);
    if (parameters->turns) {
        const struct sl_far_values values = sl_parameters_far_values(parameters, false);
        const struct sl_far_values gradients = sl_parameters_far_values(parameters, true);
        bytes.values += values.near;
        bytes.gradients += gradients.near;
        bytes.far = values.far + gradients.far;
    }
    if (!parameters->far_states || bytes.states == 0) return bytes;
    bytes.far += bytes.states;
    bytes.states = sl_far_room_bytes(parameters);
    return bytes;
}

size_t sl_parameters_bytes(const struct sl_parameters *parameters) {
    const struct sl_parameter_bytes bytes = sl_parameters_each_bytes(parameters);
    return bytes.values + bytes.gradients + bytes.states;
}

static size_t common_floats(const struct sl_parameters *parameters) {
    size_t floats = 0;
    for (int r = 0; r < parameters->ranges; r++)
        if (is_shared(parameters, r)) floats += all_value_floats(parameters, r);
    return floats;
}

/* Bytes of this coordinate's own allocation. */
static size_t own_bytes(const struct sl_parameters *parameters) {
    const struct sl_parameter_bytes bytes = sl_parameters_each_bytes(parameters);
    const size_t turning = parameters->turns ? sl_parameters_far_values(parameters, true).near : 0;
    size_t floats = 0;
    for (int r = 0; r < parameters->ranges; r++)
        if (!is_shared(parameters, r) && !sl_range_takes_turns(parameters, r))
            floats += sl_range_value_floats(&parameters->range[r]);
    return floats * sizeof(float) + bytes.gradients - turning + (parameters->far_states ? 0 : bytes.states);
}

int sl_parameters_take_common(struct sl_parameters *parameters, struct sl_spmd *self, const struct sl_group *data) {
    const size_t floats = common_floats(parameters);
    void *memory;
    if (floats == 0) return SL_OK;
    SL_TRY(sl_group_memory(self, data, floats * sizeof(float), &memory));
    parameters->common = memory;
    return SL_OK;
}

void sl_parameters_plan_bytes(const struct sl_parameters *parameters, struct sl_budget *budget) {
    const struct sl_parameter_bytes bytes = sl_parameters_each_bytes(parameters);
    sl_budget_add(budget, SL_MEMORY_PARAMETERS, bytes.values);
    sl_budget_add(budget, SL_MEMORY_GRADIENTS, bytes.gradients);
    sl_budget_add(budget, SL_MEMORY_OPTIMIZER, bytes.states);
    sl_budget_add(budget, SL_MEMORY_OFFLOADED, bytes.far);
}

/* Sets the address of the values of RANGE to *NEXT, which moves behind them; counts this coordinate's part. */
static void place_values(struct sl_parameters *parameters, int number, float **next) {
    struct sl_range *range = &parameters->range[number];
    range->value = *next;
    if (range->rounded_count)
        range->rounded = (uint16_t *)(void *)(*next + (range->own_floats ? range->shard_count : range->count));
    sl_budget_add(parameters->held, SL_MEMORY_PARAMETERS, own_value_floats(parameters, number) * sizeof(float));
    if (*next) *next += all_value_floats(parameters, number); /* NULL: no range has values here */
}

/* Takes COUNT floats at *NEXT, which moves behind them; counts them as memory for WHAT. */
static float *hand_out(struct sl_parameters *parameters, enum sl_memory_kind what, size_t count, float **next) {
    float *memory = *next;
    sl_budget_add(parameters->held, what, count * sizeof *memory);
    *next += count;
    return memory;
}

static void place_gradient(struct sl_parameters *parameters, struct sl_range *range, float **next) {
    if (range->room) { /* the gradient lies in a room */
        range->sum = hand_out(parameters, SL_MEMORY_GRADIENTS, range->shard_count, next);
        return;
    }
    range->gradient = hand_out(parameters, SL_MEMORY_GRADIENTS, range->count, next);
    range->sum = range->gradient + range->shard;
    if (range->parts_count) range->parts = hand_out(parameters, SL_MEMORY_GRADIENTS, range->parts_count, next);
}

static void place_rooms(struct sl_parameters *parameters, float **next) {
    const int rooms = sl_rooms_count(parameters);
    for (int room = 1; room <= rooms; room++) {
        float *memory = hand_out(parameters, SL_MEMORY_GRADIENTS, sl_room_floats(parameters, room, SIZE_MAX), next);
        for (int r = 0; r < parameters->ranges; r++)
            if (parameters->range[r].room == room) parameters->range[r].gradient = memory;
    }
}

int sl_parameters_take(struct sl_parameters *parameters, struct sl_error *error) {
    if (!parameters->laid_out || parameters->memory)
        return sl_error_set(error, SL_BAD_INPUT,
                            parameters->memory ? "the parameters' memory has been taken already"
                                               : "the parameters have no layout: sl_parameters_layout comes before "
                                                 "sl_parameters_take");
    if (common_floats(parameters) && !parameters->common)
        return sl_error_set(error, SL_BAD_INPUT,
                            "the parameters' values have no memory: with one_copy or wholes, "
                            "sl_parameters_take_common comes before sl_parameters_take");
    const size_t own = own_bytes(parameters); /* 0 if all ranges are offloaded */
    sl_budget_add(parameters->held, SL_MEMORY_PARAMETERS, sl_parameters_block_bytes(parameters));
    float *common = parameters->common, *next = parameters->memory = sl_device.take(own ? own : SL_CACHE_LINE);
    if (!next) return sl_error_set(error, SL_FAILED, "no memory for %zu bytes of parameters and optimizer state", own);
    for (int r = 0; r < parameters->ranges; r++) {
        struct sl_range *range = &parameters->range[r];
        const bool turns = sl_range_takes_turns(parameters, r);
        if (!turns) place_values(parameters, r, is_shared(parameters, r) ? &common : &next);
        if (!sl_range_trains(parameters, r)) continue;
        if (!turns) place_gradient(parameters, range, &next);
        const int states = parameters->far_states ? 0 : parameters->states;
        if (sl_device.shares_memory) /* the optimizer reads before it writes */
            sl_memory_touch(next, (size_t)states * range->shard_count * sizeof *next);
        for (int s = 0; s < states; s++)
            range->state[s] = hand_out(parameters, SL_MEMORY_OPTIMIZER, range->shard_count, &next);
        if (is_declared_twice(parameters, r))
            range->second = hand_out(parameters, SL_MEMORY_GRADIENTS, range->count, &next);
    }
    if (!parameters->values_only) place_rooms(parameters, &next);
    SL_TRY(sl_parameters_open_turns(parameters, error));
    return sl_parameters_open_far(parameters, error);
}

bool sl_parameter_is_first(const struct sl_parameters *parameters, const struct sl_spmd *self, int i, bool shared) {
    const struct sl_parameter *parameter = &parameters->list[i];
    const struct sl_mesh *mesh = self->mesh;
    if (parameter->second || (parameter->tied && parameters->tied_elsewhere)) return false;
    for (int a = 0; a < mesh->axes; a++) {
        const char *axis = mesh->axis[a].name;
        if (sl_mesh_index(mesh, self->coordinate, a) == 0 || is_sharded_over(&parameter->spec, axis)) continue;
        if (parameters->stage_axis && !strcmp(axis, parameters->stage_axis)) continue;
        if (shared && parameters->data_axis && sl_axes_have(parameters->data_axis, axis)) continue;
        return false;
    }
    return true;
}

void sl_parameter_share(const struct sl_parameters *parameters, int i, size_t *first, size_t *count) {
    const struct sl_parameter *parameter = &parameters->list[i];
    const struct sl_range *range = &parameters->range[parameter->range];
    const size_t shard_end = range->shard + range->shard_count, end = parameter->offset + parameter->count;
    const size_t begin = parameter->offset > range->shard ? parameter->offset : range->shard;
    const size_t stop = end < shard_end ? end : shard_end;
    *first = begin - parameter->offset;
    *count = stop > begin && !parameter->frozen ? stop - begin : 0;
}

const uint16_t *sl_parameters_rounded(const struct sl_parameters *parameters, const float *value) {
    if (!parameters->rounds || sl_kernels_are_bf16_alone(parameters)) return NULL;
    for (int r = 0; r < parameters->ranges; r++) {
        const struct sl_range *range = &parameters->range[r];
        const uintptr_t first = (uintptr_t)range->value, at = (uintptr_t)value;
        const size_t count = range->own_floats ? 0 : range->count;
        if (range->rounded && at >= first && at < first + count * sizeof *value)
            return range->rounded + (at - first) / sizeof *value;
    }
    return NULL;
}

bool sl_range_is_rounded_here(const struct sl_parameters *parameters, int range) {
    const struct sl_range *storage = &parameters->range[range];
    if (!parameters->rounds || sl_kernels_are_bf16_alone(parameters) || sl_range_is_common(parameters, range))
        return false;
    return storage->own_floats || storage->shard_count == storage->count;
}

void sl_parameters_round(const struct sl_parameters *parameters, const struct sl_kernels *kernels, int range) {
    const struct sl_range *storage = &parameters->range[range];
    const bool common = sl_range_is_common(parameters, range), part = common || storage->own_floats;
    const size_t first = part ? storage->shard : 0, count = part ? storage->shard_count : storage->count;
    if (sl_kernels_are_bf16_alone(parameters)) return;
    if (!parameters->rounds || !count) return;
    (common ? kernels->share_bf16 : kernels->round_bf16)(count, sl_range_values(storage, first),
                                                         storage->rounded + first);
}

/* Rounds kernels in place; values held together are rounded by the first member. */
static void settle_kernels(const struct sl_parameters *parameters) {
    const struct sl_kernels *kernels = sl_kernels_select();
    for (int i = 0; i < parameters->count; i++) {
        const struct sl_parameter *parameter = &parameters->list[i];
        const bool other =
            sl_range_is_common(parameters, parameter->range) && parameters->range[parameter->range].shard;
        if (parameter->kernel && !parameter->second && !other)
            kernels->settle_bf16(parameter->count, sl_parameter_value(parameters, i), NULL);
    }
}

int sl_parameters_round_all(const struct sl_parameters *parameters, struct sl_error *error) {
    if (parameters->settled_bf16) settle_kernels(parameters);
    for (int r = 0; r < parameters->ranges && parameters->rounds; r++) {
        SL_TRY(sl_parameters_use_values(parameters, r, true, error));
        sl_parameters_round(parameters, sl_kernels_select(), r);
    }
    return SL_OK;
}

void sl_parameters_seed(struct sl_parameters *parameters, uint64_t seed) {
    for (int i = 0; i < parameters->count; i++) {
        const char *const path[] = {parameters->list[i].name, NULL};
        parameters->list[i].key = sl_flax_fold(sl_key_of_seed(seed), path, 0);
        parameters->list[i].key_is_flax = false;
    }
}
