/* parameters.c - declares, lays out, takes and initializes flat parameter storage. */
#include "layers/parameters.h"

#include <stdlib.h>
#include <string.h>

#include "spmd/device.h"
#include "spmd/memory.h"
#include "spmd/flax.h"

int sl_parameters_open(struct sl_parameters *parameters, int loops) {
    *parameters = (struct sl_parameters){.loops = loops};
    parameters->loop = calloc((size_t)loops, sizeof *parameters->loop);
    return parameters->loop ? SL_OK : SL_FAILED;
}

void sl_parameters_close(struct sl_parameters *parameters) {
    sl_device.give(parameters->memory);
    free(parameters->loop);
    free(parameters->list);
    *parameters = (struct sl_parameters){0};
}

int sl_parameters_declare(struct sl_parameters *parameters, const struct sl_mesh *mesh,
                          const struct sl_parameter *parameter, struct sl_error *error) {
    if (parameters->count == parameters->capacity) {
        const int capacity = parameters->capacity ? 2 * parameters->capacity : 32;
        struct sl_parameter *grown = realloc(parameters->list, (size_t)capacity * sizeof *grown);
        if (!grown) {
            sl_error_set(error, SL_FAILED, "no memory to declare parameter %s", parameter->name);
            return -1;
        }
        parameters->list = grown;
        parameters->capacity = capacity;
    }
    size_t local[SL_MAX_DIMS], count = 1;
    if (sl_spec_local_shape(&parameter->spec, mesh, parameter->dims, parameter->shape, local, error)) return -1;
    for (int d = 0; d < parameter->dims; d++) count *= local[d];

    struct sl_parameter *declared = &parameters->list[parameters->count];
    struct sl_loop_storage *loop = &parameters->loop[parameter->loop];
    *declared = *parameter;
    declared->count = count;
    declared->offset = loop->used;
    /* Each parameter begins on a cache line, for aligned kernels and products. */
    loop->used += sl_round_up(count, SL_CACHE_LINE / sizeof(float));
    return parameters->count++;
}

void sl_parameters_layout(struct sl_parameters *parameters, int data, int index, bool zero) {
    for (int l = 0; l < parameters->loops; l++) {
        struct sl_loop_storage *loop = &parameters->loop[l];
        loop->count = sl_round_up(loop->used, (size_t)data * SL_CACHE_LINE / sizeof(float));
        loop->shard_count = zero ? loop->count / (size_t)data : loop->count;
        loop->shard = zero ? loop->shard_count * (size_t)index : 0;
    }
}

/* Of a loop's rounded values, in floats: two to each, and whole cache lines. */
static size_t rounded_floats(const struct sl_parameters *parameters, const struct sl_loop_storage *loop) {
    return parameters->rounds ? sl_round_up(loop->count * sizeof *loop->rounded, SL_CACHE_LINE) / sizeof(float) : 0;
}

size_t sl_parameters_bytes(const struct sl_parameters *parameters) {
    size_t floats = 0;
    for (int l = 0; l < parameters->loops; l++) {
        const struct sl_loop_storage *loop = &parameters->loop[l];
        floats += 2 * loop->count + 2 * loop->shard_count + rounded_floats(parameters, loop);
    }
    return floats * sizeof(float);
}

int sl_parameters_take(struct sl_parameters *parameters, struct sl_error *error) {
    float *next = parameters->memory = sl_device.take(sl_parameters_bytes(parameters));
    if (!next)
        return sl_error_set(error, SL_FAILED, "no memory for %zu bytes of parameters and optimizer state",
                            sl_parameters_bytes(parameters));
    for (int l = 0; l < parameters->loops; l++) {
        struct sl_loop_storage *loop = &parameters->loop[l];
        loop->value = next;
        loop->gradient = loop->value + loop->count;
        loop->first_moment = loop->gradient + loop->count;
        loop->second_moment = loop->first_moment + loop->shard_count;
        next = loop->second_moment + loop->shard_count;
        if (parameters->rounds) loop->rounded = (uint16_t *)(void *)next;
        next += rounded_floats(parameters, loop);
    }
    return SL_OK;
}

/* Words of the shard by the element's global index: row and column of the array seen as [rows, last dim]. What is
 * contiguous in the shard's last dim is contiguous in the array, segment by segment. */
static void words_by_position(const struct sl_parameter *parameter, const struct sl_kernels *kernels,
                              const struct sl_spmd *self, struct sl_key key, uint32_t *words) {
    const size_t cols = parameter->shape[parameter->dims - 1];
    size_t local[SL_MAX_DIMS];
    sl_spec_local_shape(&parameter->spec, self->mesh, parameter->dims, parameter->shape, local, NULL);
    const int last = parameter->dims - 1;
    const int segments = last < parameter->spec.dims ? parameter->spec.dim[last].segments : 1;
    const size_t run = local[last] / (size_t)segments;
    for (size_t i = 0; i < parameter->count; i += run) {
        const size_t global =
            sl_spec_global_index(&parameter->spec, self->mesh, self->coordinate, parameter->dims, parameter->shape, i);
        kernels->random_words_global(key, (uint32_t)(global / cols), 1, (uint32_t)(global % cols), (uint32_t)run,
                                     words + i);
    }
}

static void initialize(const struct sl_parameters *parameters, const struct sl_parameter *parameter,
                       const struct sl_kernels *kernels, const struct sl_spmd *self, uint32_t *words) {
    float *value = parameters->loop[parameter->loop].value + parameter->offset;
    switch (parameter->initializer) {
    case SL_INIT_ZEROS:
        break; /* storage comes zeroed */
    case SL_INIT_ONES:
        kernels->fill(parameter->count, 1.0f, value);
        break;
    case SL_INIT_TRUNCATED_NORMAL:
        if (parameter->key_is_flax)
            kernels->random_words(parameter->key, (uint32_t)parameter->count, words);
        else
            words_by_position(parameter, kernels, self, parameter->key, words);
        kernels->truncated_normal((uint32_t)parameter->count, words, parameter->scale, value);
        break;
    }
}

int sl_parameters_initialize(struct sl_parameters *parameters, struct sl_spmd *self, const struct sl_group *data) {
    if (data->rank == 0) {
        const struct sl_kernels *kernels = sl_kernels_select();
        size_t most = 0;
        for (int i = 0; i < parameters->count; i++)
            if (parameters->list[i].count > most) most = parameters->list[i].count;
        uint32_t *words = sl_device.take(most * sizeof *words);
        if (!words) return sl_fail(self, SL_FAILED, "no memory for %zu random words", most);
        for (int i = 0; i < parameters->count; i++) initialize(parameters, &parameters->list[i], kernels, self, words);
        sl_device.give(words);
    }
    for (int l = 0; l < parameters->loops && data->size > 1; l++) {
        struct sl_loop_storage *loop = &parameters->loop[l];
        SL_TRY(sl_broadcast(self, data, SL_F32, loop->value, loop->value, loop->count, 0));
    }
    return SL_OK;
}

void sl_parameters_round(const struct sl_parameters *parameters, const struct sl_kernels *kernels, int loop) {
    const struct sl_loop_storage *storage = &parameters->loop[loop];
    if (parameters->rounds) kernels->round_bf16(storage->count, storage->value, storage->rounded);
}

void sl_parameters_seed(struct sl_parameters *parameters, uint64_t seed) {
    for (int i = 0; i < parameters->count; i++) {
        const char *const path[] = {parameters->list[i].name, NULL};
        parameters->list[i].key = sl_flax_fold(sl_key_of_seed(seed), path, 0);
        parameters->list[i].key_is_flax = false;
    }
}
