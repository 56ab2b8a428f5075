/* exchange.c - shards from and to a store of whole tensors. */
#include "layers/exchange.h"

#include <stdlib.h>
#include <string.h>

#include "spmd/device.h"

/* Names and shapes differ between stages, so OWNER tells the others about its I-th parameter. */
static int tell(struct sl_spmd *self, const struct sl_group *world, int owner, const struct sl_parameters *parameters,
                int i, struct sl_parameter *parameter) {
    _Static_assert(sizeof *parameter % sizeof(int32_t) == 0, "sent as words");
    *parameter = self->coordinate == owner ? parameters->list[i] : (struct sl_parameter){0};
    return sl_broadcast(self, world, SL_I32, parameter, parameter, sizeof *parameter / sizeof(int32_t), owner);
}

static int tell_count(struct sl_spmd *self, const struct sl_group *world, int owner, int32_t *count) {
    return sl_broadcast(self, world, SL_I32, count, count, 1, owner);
}

/* ---- from a store ---- */

/* On coordinate 0: cuts the shard of coordinate TO out of its tensor. */
static int cut(struct sl_spmd *self, int to, const struct sl_parameter *parameter, const struct sl_store *store,
               float *shard) {
    const struct sl_tensor *tensor = sl_store_find(store, parameter->name);
    if (!tensor) return sl_fail(self, SL_BAD_INPUT, "parameter %s is not in the given values", parameter->name);
    if (tensor->array.dtype != SL_F32 || tensor->array.dims != parameter->dims ||
        memcmp(tensor->array.shape, parameter->shape, (size_t)parameter->dims * sizeof *parameter->shape) != 0)
        return sl_fail(self, SL_BAD_INPUT, "parameter %s: the given values have another shape or type",
                       parameter->name);
    sl_spec_slice(&parameter->spec, self->mesh, to, &tensor->array, shard);
    return SL_OK;
}

/* TO's shard goes from coordinate 0 to TO, into VALUE (given there, NULL elsewhere). */
static int import_shard(struct sl_spmd *self, const struct sl_group *world, int to,
                        const struct sl_parameter *parameter, const struct sl_store *store, float *value) {
    const int from_first[1][2] = {{0, to}};
    const size_t count = parameter->count;
    float *room = malloc(2 * count * sizeof *room); /* for the shard that is sent, and as it is received */
    if (!room) return sl_fail(self, SL_FAILED, "no memory to hand out %s", parameter->name);
    int status = self->coordinate == 0 ? cut(self, to, parameter, store, room) : SL_OK;
    if (status == SL_OK) status = sl_ppermute(self, world, SL_F32, room, room + count, count, 1, from_first);
    if (status == SL_OK && value) sl_device.copy(value, room + count, count * sizeof *value);
    free(room);
    return status;
}

int sl_import(struct sl_spmd *self, const struct sl_group *world, struct sl_parameters *parameters,
              const struct sl_store *store) {
    for (int to = 0; to < world->size; to++) {
        int32_t count = parameters->count;
        SL_TRY(tell_count(self, world, to, &count));
        for (int i = 0; i < count; i++) {
            struct sl_parameter parameter;
            SL_TRY(tell(self, world, to, parameters, i, &parameter));
            float *value = self->coordinate == to ? sl_parameter_value(parameters, i) : NULL;
            SL_TRY(import_shard(self, world, to, &parameter, store, value));
        }
    }
    return SL_OK;
}

/* ---- to a store ---- */

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
    const size_t count = parameter->count;
    float *sent = malloc(2 * count * sizeof *sent), *received = sent + count;
    if (!sent) return sl_fail(self, SL_FAILED, "no memory to assemble %s", parameter->name);
    if (shard) sl_device.copy(sent, shard, count * sizeof *sent);
    int status = sl_ppermute(self, world, SL_F32, sent, received, count, 1, to_first);
    if (status == SL_OK && self->coordinate == 0) {
        for (size_t i = 0; i < count; i++) received[i] *= scale;
        status = assemble(self, owner, parameter, received, store);
    }
    free(sent);
    return status;
}

int sl_export(struct sl_spmd *self, const struct sl_group *world, const struct sl_parameters *parameters, bool owner,
              bool gradients, float scale, struct sl_store *store) {
    for (int from = 0; from < world->size; from++) {
        const bool mine = owner && self->coordinate == from;
        int32_t count = mine ? parameters->count : 0;
        SL_TRY(tell_count(self, world, from, &count));
        for (int i = 0; i < count; i++) {
            struct sl_parameter parameter;
            SL_TRY(tell(self, world, from, parameters, i, &parameter));
            const float *shard = NULL;
            if (mine) shard = gradients ? sl_parameter_gradient(parameters, i) : sl_parameter_value(parameters, i);
            SL_TRY(export_shard(self, world, from, &parameter, shard, scale, store));
        }
    }
    return SL_OK;
}

/* ---- whatever coordinates have ---- */

int sl_gather_records(struct sl_spmd *self, void *records, size_t bytes) {
    struct sl_group world;
    SL_TRY(sl_group_axes(self, "*", &world));
    const void *mine = (const char *)records + bytes * (size_t)self->coordinate;
    struct sl_collective call = sl_describe_all_gather(&world, SL_I32, mine, records, 1, bytes / sizeof(int32_t));
    call.operation = SL_GATHER;
    call.root = 0;
    return sl_call(self, SL_HERE, call);
}

int sl_gather_traces(struct sl_spmd *self, struct sl_trace *trace) {
    int32_t count[SL_MAX_COORDINATES][2] = {{0}};
    struct sl_group world, pair;
    const int me = self->coordinate;
    if (!self->engine->table->apart) return SL_OK; /* they are all in place */
    SL_TRY(sl_group_axes(self, "*", &world));
    count[me][0] = trace[me].count;
    count[me][1] = trace[me].dropped;
    SL_TRY(sl_all_gather(self, &world, SL_I32, count[me], count, 1, 2));
    for (int from = 1; from < world.size; from++) {
        const int both[] = {0, from};
        SL_TRY(sl_group_list(self, 2, both, &pair));
        if (pair.rank < 0) continue;
        struct sl_trace_event *event = trace[from].event;
        trace[from].count = count[from][0];
        trace[from].dropped = count[from][1];
        SL_TRY(sl_broadcast(self, &pair, SL_I32, event, event, (size_t)count[from][0] * sizeof *event / 4, 1));
    }
    return SL_OK;
}
