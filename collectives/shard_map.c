/* shard_map.c - maps a function over shards of global arrays. */
#include "collectives/shard_map.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "collectives/collectives.h"

struct run {
    const struct sl_shard_map *map;
    sl_shard_function *function;
    void *arg;
};

/* One coordinate's shards, and coordinate 0's buffer for gathered shards of an output. */
struct shards {
    struct sl_array in[SL_MAX_ARRAYS], out[SL_MAX_ARRAYS];
    char *gathered;
};

/* Checks ARRAY's own description, and the bytes of a shard and of all coordinates' shards together for overflow. */
static int check_array(const char *role, int number, const struct sl_array *array, const struct sl_spec *spec,
                       const struct sl_mesh *mesh, struct sl_error *error) {
    size_t local[SL_MAX_DIMS];
    struct sl_error reason;
    if (!sl_dtype_exists((int)array->dtype)) {
        return sl_error_set(error, SL_BAD_INPUT, "shard_map: %s %d: %d is no dtype", role, number, (int)array->dtype);
    }
    if (sl_spec_local_shape(spec, mesh, array->dims, array->shape, local, &reason)) {
        return sl_error_set(error, SL_BAD_INPUT, "shard_map: %s %d: %s", role, number, reason.message);
    }
    const size_t elements = sl_array_elements(array);
    if (elements > SIZE_MAX / 8 / (size_t)mesh->size) {
        return sl_error_set(error, SL_BAD_INPUT, "shard_map: %s %d: its shape has more elements than memory can hold",
                            role, number);
    }
    if (elements > 0 && !array->data) {
        return sl_error_set(error, SL_BAD_INPUT, "shard_map: %s %d has no data", role, number);
    }
    return SL_OK;
}

static int check_map(const struct sl_shard_map *map, const struct sl_mesh *mesh, sl_shard_function *function,
                     struct sl_error *error) {
    if (!mesh || !function) return sl_error_set(error, SL_BAD_INPUT, "shard_map: no %s", mesh ? "function" : "mesh");
    SL_TRY(sl_mesh_check(mesh, error));
    if (map->inputs < 0 || map->inputs > SL_MAX_ARRAYS || map->outputs < 0 || map->outputs > SL_MAX_ARRAYS) {
        return sl_error_set(error, SL_BAD_INPUT, "shard_map: %d inputs and %d outputs; 0 to %d of each are allowed",
                            map->inputs, map->outputs, SL_MAX_ARRAYS);
    }
    for (int i = 0; i < map->inputs; i++) {
        SL_TRY(check_array("input", i, &map->input[i], &map->in_spec[i], mesh, error));
    }
    for (int i = 0; i < map->outputs; i++) {
        SL_TRY(check_array("output", i, &map->output[i], &map->out_spec[i], mesh, error));
    }
    return SL_OK;
}

static size_t array_bytes(const struct sl_array *array) {
    return sl_array_elements(array) * sl_dtype_size(array->dtype);
}

/* Allocates LOCAL with the dtype and shape of a shard of GLOBAL, filled with zeros. */
static int take_shard(struct sl_spmd *self, const struct sl_array *global, const struct sl_spec *spec,
                      struct sl_array *local) {
    *local = (struct sl_array){.dtype = global->dtype, .dims = global->dims};
    SL_TRY(sl_spec_local_shape(spec, self->mesh, global->dims, global->shape, local->shape, &self->error));
    local->data = calloc(1, array_bytes(local) + 1); /* an empty shard has an address too */
    return local->data ? SL_OK : sl_fail(self, SL_FAILED, "shard_map: no memory for %zu bytes", array_bytes(local));
}

static int take_shards(struct sl_spmd *self, const struct sl_shard_map *map, struct shards *shards) {
    size_t gathered = 1;
    for (int i = 0; i < map->inputs; i++) {
        SL_TRY(take_shard(self, &map->input[i], &map->in_spec[i], &shards->in[i]));
        sl_spec_slice(&map->in_spec[i], self->mesh, self->coordinate, &map->input[i], shards->in[i].data);
    }
    for (int i = 0; i < map->outputs; i++) {
        SL_TRY(take_shard(self, &map->output[i], &map->out_spec[i], &shards->out[i]));
        const size_t bytes = array_bytes(&shards->out[i]) * (size_t)self->mesh->size;
        if (bytes > gathered) gathered = bytes;
    }
    if (self->coordinate == 0 && !(shards->gathered = malloc(gathered))) {
        return sl_fail(self, SL_FAILED, "shard_map: no memory for %zu bytes", gathered);
    }
    return SL_OK;
}

static void give_shards(struct shards *shards) {
    for (int i = 0; i < SL_MAX_ARRAYS; i++) {
        free(shards->in[i].data);
        free(shards->out[i].data);
    }
    free(shards->gathered);
}

/* At coordinate 0: compares the bytes gathered from coordinates with the same shard. */
static int check_replicas(struct sl_spmd *self, const struct sl_shard_map *map, int output, const char *gathered,
                          size_t bytes) {
    for (int coordinate = 0; coordinate < self->mesh->size; coordinate++) {
        const int first = sl_spec_first_replica(&map->out_spec[output], self->mesh, coordinate);
        if (!memcmp(gathered + (size_t)coordinate * bytes, gathered + (size_t)first * bytes, bytes)) continue;
        char spec[100], here[100], there[100];
        return sl_fail(self, SL_FAILED,
                       "shard_map: output %d: under its spec '%s' coordinates %s and %s hold the same shard, but their "
                       "values differ",
                       output, sl_spec_print(&map->out_spec[output], spec, sizeof spec),
                       sl_mesh_describe(self->mesh, first, there, sizeof there),
                       sl_mesh_describe(self->mesh, coordinate, here, sizeof here));
    }
    return SL_OK;
}

static int gather_outputs(struct sl_spmd *self, const struct sl_group *all, const struct sl_shard_map *map,
                          struct shards *shards) {
    for (int i = 0; i < map->outputs; i++) {
        const size_t bytes = array_bytes(&shards->out[i]);
        if (!bytes) continue;
        const struct sl_array *local = &shards->out[i];
        SL_TRY(sl_gather(self, all, local->dtype, local->data, shards->gathered, sl_array_elements(local), 0));
        if (self->coordinate != 0) continue;
        SL_TRY(check_replicas(self, map, i, shards->gathered, bytes));
        for (int coordinate = 0; coordinate < self->mesh->size; coordinate++) {
            if (!sl_spec_is_first_replica(&map->out_spec[i], self->mesh, coordinate)) continue;
            sl_spec_assemble(&map->out_spec[i], self->mesh, coordinate, &map->output[i],
                             shards->gathered + (size_t)coordinate * bytes);
        }
    }
    return SL_OK;
}

static int map_program(struct sl_spmd *self, void *arg) {
    const struct run *run = arg;
    struct sl_group all;
    SL_TRY(sl_group_axes(self, "*", &all));
    struct shards shards = {0};
    int status = take_shards(self, run->map, &shards);
    if (!status) status = run->function(self, shards.in, shards.out, run->arg);
    if (!status) status = gather_outputs(self, &all, run->map, &shards);
    give_shards(&shards);
    return status ? status : sl_group_close(self, &all);
}

int sl_shard_map_run(const struct sl_shard_map *map, const struct sl_mesh *mesh, const struct sl_engine *engine,
                     sl_shard_function *function, void *arg) {
    struct sl_error error = {0};
    if (check_map(map, mesh, function, &error)) return sl_report(engine, &error);
    struct run run = {map, function, arg};
    return sl_run(mesh, engine, map_program, &run);
}
