/* exchange.c - shards from and to a store of whole tensors. */
#include "layers/exchange.h"

#include <stdlib.h>
#include <string.h>

int sl_import(struct sl_spmd *self, struct sl_parameters *parameters, const struct sl_store *store) {
    for (int i = 0; i < parameters->count; i++) {
        const struct sl_parameter *parameter = &parameters->list[i];
        const struct sl_tensor *tensor = sl_store_find(store, parameter->name);
        if (!tensor) return sl_fail(self, SL_BAD_INPUT, "parameter %s is not in the given values", parameter->name);
        if (tensor->array.dtype != SL_F32 || tensor->array.dims != parameter->dims ||
            memcmp(tensor->array.shape, parameter->shape, (size_t)parameter->dims * sizeof *parameter->shape) != 0)
            return sl_fail(self, SL_BAD_INPUT, "parameter %s: the given values have another shape or type",
                           parameter->name);
        sl_spec_slice(&parameter->spec, self->mesh, self->coordinate, &tensor->array,
                      sl_parameter_value(parameters, i));
    }
    return SL_OK;
}

/* On coordinate 0: puts OWNER's shard into its place. */
static int assemble(struct sl_spmd *self, int owner, const struct sl_parameter *parameter, const float *shard,
                    struct sl_store *store) {
    struct sl_tensor *tensor = sl_store_find(store, parameter->name);
    if (!tensor) tensor = sl_store_add(store, parameter->name, SL_F32, parameter->dims, parameter->shape);
    if (!tensor) return sl_fail(self, SL_FAILED, "no memory to assemble %s", parameter->name);
    sl_spec_assemble(&parameter->spec, self->mesh, owner, &tensor->array, shard);
    return SL_OK;
}

/* OWNER's SHARD (given there, NULL elsewhere) goes to coordinate 0. */
static int export_shard(struct sl_spmd *self, const struct sl_group *world, int owner,
                        const struct sl_parameter *parameter, const float *shard, float scale, struct sl_store *store) {
    const int to_first[1][2] = {{owner, 0}};
    float *received = malloc(parameter->count * sizeof *received);
    if (!received) return sl_fail(self, SL_FAILED, "no memory to assemble %s", parameter->name);
    int status = sl_ppermute(self, world, SL_F32, shard, received, parameter->count, 1, to_first);
    if (status == SL_OK && self->coordinate == 0) {
        for (size_t i = 0; i < parameter->count; i++) received[i] *= scale;
        status = assemble(self, owner, parameter, received, store);
    }
    free(received);
    return status;
}

int sl_export(struct sl_spmd *self, const struct sl_group *world, const struct sl_parameters *parameters, bool owner,
              bool gradients, float scale, struct sl_store *store) {
    for (int from = 0; from < world->size; from++) {
        const bool mine = owner && self->coordinate == from;
        int32_t count = mine ? parameters->count : 0;
        SL_TRY(sl_broadcast(self, world, SL_I32, &count, &count, 1, from));
        for (int i = 0; i < count; i++) {
            /* The others learn what comes: names and shapes differ between stages. */
            struct sl_parameter parameter = {0};
            _Static_assert(sizeof parameter % sizeof(int32_t) == 0, "sent as words");
            if (mine) parameter = parameters->list[i];
            SL_TRY(sl_broadcast(self, world, SL_I32, &parameter, &parameter, sizeof parameter / sizeof(int32_t), from));
            const float *shard = NULL;
            if (mine) shard = gradients ? sl_parameter_gradient(parameters, i) : sl_parameter_value(parameters, i);
            SL_TRY(export_shard(self, world, from, &parameter, shard, scale, store));
        }
    }
    return SL_OK;
}
