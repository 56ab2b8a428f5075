/* leaves.c - a sum of 1, 2, 4, ... leaves waits for a sum of as many leaves after it, like the digits of a binary
 * counter. */
#include "layers/training/exact/leaves.h"

#include <string.h>

#include "layers/modules/leaves.h"
#include "spmd/device/device.h"

bool sl_leaves_divide(int leaves, int coordinates) {
    const int each = leaves / coordinates;
    return leaves % coordinates == 0 && (coordinates == 1 || (each & (each - 1)) == 0);
}

/* ---- leaves of sequences ---- */

/* Floats of a leaf's gradients: of each trained range, and of its second gradients. */
static size_t apart_floats(const struct sl_parameters *parameters, int range) {
    bool twice = false;
    if (!sl_range_trains(parameters, range)) return 0;
    for (int i = 0; i < parameters->count; i++)
        twice = twice || (parameters->list[i].range == range && parameters->list[i].second);
    return (twice ? 2 : 1) * parameters->range[range].count;
}

int sl_apart_check(struct sl_spmd *self, int count, int exact, int zero, bool sharded) {
    const char *other = !exact      ? "exact 0, without leaves of the batch"
                        : zero == 2 ? "zero 2"
                        : sharded   ? "a sharded schedule"
                                    : NULL;
    if (!count || !other) return SL_OK;
    return sl_fail(self, SL_BAD_INPUT, "the pipeline's option context_leaves is %d: it does not go with %s", count,
                   other);
}

size_t sl_apart_bytes(const struct sl_parameters *parameters) {
    size_t floats = 0;
    for (int r = 0; r < parameters->ranges; r++) floats += apart_floats(parameters, r);
    return (size_t)(sl_apart_count(parameters) - 1) * floats * sizeof(float);
}

int sl_apart_open(struct sl_parameters *parameters, struct sl_budget *held, struct sl_error *error) {
    const size_t bytes = sl_apart_bytes(parameters);
    struct sl_apart *apart = &parameters->apart;
    for (int r = 0; r < parameters->ranges; r++) {
        parameters->range[r].apart = apart->floats;
        apart->floats += apart_floats(parameters, r);
    }
    if (bytes) apart->memory = sl_device_take(held, SL_MEMORY_GRADIENTS, bytes);
    if (!bytes || apart->memory) return SL_OK;
    return sl_error_set(error, SL_FAILED, "no memory for the gradients of %d leaves: %zu bytes", apart->count, bytes);
}

void sl_apart_close(struct sl_parameters *parameters) {
    sl_device.give(parameters->apart.memory);
    parameters->apart.memory = NULL;
}

void sl_apart_clear(const struct sl_parameters *parameters) {
    for (int r = 0; r < parameters->ranges; r++) {
        const struct sl_range *range = &parameters->range[r];
        if (!apart_floats(parameters, r)) continue;
        sl_device.zero(range->gradient, range->count * sizeof(float));
        if (range->second) sl_device.zero(range->second, range->count * sizeof(float));
    }
    if (parameters->apart.memory) sl_device.zero(parameters->apart.memory, sl_apart_bytes(parameters));
}

void sl_apart_sum(const struct sl_parameters *parameters, const struct sl_kernels *kernels, int range) {
    for (int step = 1; step < sl_apart_count(parameters); step *= 2)
        for (int leaf = 0; leaf < sl_apart_count(parameters); leaf += 2 * step)
            kernels->add(parameters->range[range].count, sl_range_gradient_of(parameters, range, false, leaf + step),
                         sl_range_gradient_of(parameters, range, false, leaf));
}

/* ---- leaves of the batch ---- */

void sl_leaves_plan(struct sl_parameters *parameters, int leaves, int members, int gradients) {
    parameters->sums_by_tree = leaves > 0;
    parameters->scatters_late = leaves > 0 && members > 1 && (leaves != members || gradients > 1);
}

/* Whether all gradients are complete before they are summed over data. A gradient that is sharded over data and has no
 * parts is summed as soon as it is computed, before the leaf's other weight gradients and other leaves. */
static bool are_whole(struct sl_spmd *self, int leaves, int gradients, const struct sl_parameters *parameters) {
    const int members = sl_axis_size(self, parameters->data_axis);
    for (int i = 0; i < parameters->count; i++) {
        if (members == 1 || (leaves == members && gradients == 1)) break;
        if (!sl_range_is_sharded(parameters, parameters->list[i].range)) continue;
        if (parameters->list[i].frozen || parameters->list[i].parts) continue;
        sl_fail(
            self, SL_BAD_INPUT,
            "the trainer's option exact is %d: parameter %s is sharded over %s, so that each of %d coordinates must "
            "have one leaf, and one weight gradient of it: accumulate 1, wgrad_group microbatches",
            leaves, parameters->list[i].name, parameters->data_axis, members);
        return false;
    }
    return true;
}

int sl_leaves_check(struct sl_spmd *self, int leaves, int members, int gradients,
                    const struct sl_parameters *parameters) {
    if (leaves < 1 || !sl_leaves_divide(leaves, members))
        return sl_fail(
            self, SL_BAD_INPUT,
            "the trainer's option exact is %d: it must be 0, or so many leaves that each of %d coordinates has "
            "1, 2, 4, ... of them",
            leaves, members);
    if (strchr(parameters->data_axis, ',') && !parameters->apart.count)
        return sl_fail(self, SL_BAD_INPUT,
                       "the trainer's option exact is %d: leaves lie along one axis, and data_axis is \"%s\"", leaves,
                       parameters->data_axis);
    if (parameters->turns)
        return sl_fail(self, SL_BAD_INPUT, "the trainer's options exact and offload_weights: choose one of them");
    return are_whole(self, leaves, gradients, parameters) ? SL_OK : SL_BAD_INPUT;
}

/* The most sums that wait at the same time: the most ones in the binary digits of a number below COUNT. */
static size_t levels_of(int count) {
    size_t levels = 0;
    while (count >>= 1) levels++;
    return levels;
}

/* Floats of a leaf in RANGE: gradients, or their parts. */
static size_t floats_of(const struct sl_range *range) { return range->parts_count ? range->parts_count : range->count; }

/* Floats of all ranges below END. */
static size_t floats_before(const struct sl_parameters *parameters, int end) {
    size_t floats = 0;
    for (int r = 0; r < end; r++)
        if (sl_range_trains(parameters, r)) floats += floats_of(&parameters->range[r]);
    return floats;
}

size_t sl_leaves_bytes(const struct sl_parameters *parameters, int count) {
    return levels_of(count) * floats_before(parameters, parameters->ranges) * sizeof(float);
}

int sl_leaves_open(struct sl_leaves *leaves, const struct sl_parameters *parameters, int count, struct sl_budget *held,
                   struct sl_error *error) {
    const size_t bytes = sl_leaves_bytes(parameters, count);
    *leaves = (struct sl_leaves){
        .parameters = parameters, .count = count, .floats = floats_before(parameters, parameters->ranges)};
    if (bytes) leaves->memory = sl_device_take(held, SL_MEMORY_GRADIENTS, bytes);
    if (!bytes || leaves->memory) return SL_OK;
    return sl_error_set(error, SL_FAILED, "no memory for the sums of %d leaves: %zu bytes", count, bytes);
}

void sl_leaves_close(struct sl_leaves *leaves) {
    sl_device.give(leaves->memory);
    *leaves = (struct sl_leaves){0};
}

/* Bits do not depend on the order of the two summands. */
void sl_leaves_add(const struct sl_leaves *leaves, const struct sl_kernels *kernels, int range, int leaf) {
    const struct sl_range *storage = &leaves->parameters->range[range];
    const bool last = leaf == leaves->count - 1;
    const size_t floats = floats_of(storage);
    float *const own = storage->parts_count ? storage->parts : storage->gradient;
    size_t waits = 0;
    if (!leaves->memory || !floats) return;
    float *const first = leaves->memory + floats_before(leaves->parameters, range);
    for (int digits = leaf; digits; digits &= digits - 1) waits++;
    for (int pairs = leaf; waits && (last || pairs & 1); pairs >>= 1)
        kernels->add(floats, first + --waits * leaves->floats, own);
    if (!last) sl_device.copy(first + waits * leaves->floats, own, floats * sizeof(float));
}

/* Sums the parts of a parameter of two dims, sharded along the second. */
static int scatter_rows(struct sl_spmd *self, const struct sl_group *data, const struct sl_parameters *parameters,
                        int i) {
    const struct sl_parameter *parameter = &parameters->list[i];
    const size_t columns = parameter->shape[1], shape[] = {parameter->count * (size_t)data->size / columns, columns};
    return sl_psum_scatter_tree_dim(self, data, SL_F32, sl_parameter_parts(parameters, i),
                                    sl_parameter_gradient(parameters, i), 2, shape, 1);
}

int sl_parts_sum(struct sl_spmd *self, const struct sl_group *data, const struct sl_parameters *parameters,
                 const struct sl_kernels *kernels, int range) {
    for (int i = 0; i < parameters->count && parameters->range[range].parts_count; i++) {
        const struct sl_parameter *parameter = &parameters->list[i];
        if (parameter->range != range || parameter->parts == SL_COMPLETE) continue;
        if (parameter->parts == SL_OWN_ROWS) {
            SL_TRY(scatter_rows(self, data, parameters, i));
            continue;
        }
        float *const parts = sl_parameter_parts(parameters, i);
        sl_tree_blocks(kernels, data->size, parameter->count, parts);
        sl_device.copy(sl_parameter_gradient(parameters, i), parts, parameter->count * sizeof *parts);
    }
    return SL_OK;
}
