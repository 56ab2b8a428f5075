/* blocks.c - parameters with values in a file's blocks: they take no memory in the ranges. */
#include "layers/modules/parameters/parameters.h"

#include "spmd/base/memory.h"

/* Padded shards are not used as blocks, because the file does not have their padding. */
void sl_parameters_find_blocks(struct sl_parameters *parameters, const struct sl_mesh *mesh, int i) {
    struct sl_parameter *parameter = &parameters->list[i];
    const bool trains = !parameters->values_only && !parameter->frozen;
    if (!parameters->source || parameters->laid_out || parameter->blocks.at) return;
    if (trains || parameter->adapter || parameter->room != parameter->count) return;
    const struct sl_shard shard =
        sl_spec_shard(&parameter->spec, mesh, parameters->coordinate, parameter->dims, parameter->shape);
    parameters->source->find(parameters->source->arg, &shard, parameter);
    parameter->blocks.dots = parameters->source->dots;
    if (parameter->blocks.at) parameter->count = 0;
}

/* Place of the first declaration of a parameter declared twice. */
static size_t first_place(const struct sl_parameters *parameters, int second) {
    for (int i = 0; i < second; i++)
        if (parameters->list[i].mark == parameters->list[second].mark) return parameters->list[i].offset;
    return 0;
}

void sl_parameters_leave_blocks_out(struct sl_parameters *parameters) {
    if (!parameters->source) return;
    for (int r = 0; r < parameters->ranges; r++) parameters->range[r].used = 0;
    for (int i = 0; i < parameters->count; i++) {
        struct sl_parameter *parameter = &parameters->list[i];
        struct sl_range *range = &parameters->range[parameter->range];
        parameter->offset = parameter->second ? first_place(parameters, i) : range->used;
        if (!parameter->second && !parameter->blocks.at)
            range->used += sl_round_up(parameter->room, SL_CACHE_LINE / sizeof(float));
    }
}

size_t sl_parameters_block_bytes(const struct sl_parameters *parameters) {
    size_t bytes = 0;
    for (int i = 0; i < parameters->count; i++) {
        const struct sl_parameter *parameter = &parameters->list[i];
        if (parameter->blocks.at && !parameter->second)
            bytes += parameter->blocks.rows * sl_blocks_row_bytes(&parameter->blocks);
    }
    return bytes;
}
