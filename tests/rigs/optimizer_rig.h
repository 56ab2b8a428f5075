/* optimizer_rig.h - flat storage for an optimizer to update, and reference results from tests/data. Includes cmocka. */
#ifndef SL_TESTS_RIGS_OPTIMIZER_RIG_H
#define SL_TESTS_RIGS_OPTIMIZER_RIG_H

#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "tests/rigs/numbers.h"

#include "layers/training/optimizers/optimizer.h"

/* One loop's storage for parameters of the given sizes, the last of them followed by padding. */
struct storage {
    struct sl_range loop;
    struct sl_parameter *list;
};

/* DECAY has a flag for each parameter. All are in the second of two loops; the list has as many of the first between
 * them, with flags to the contrary. */
static inline void make_storage(struct storage *storage, int parameters, const size_t *sizes, const bool *decay,
                                size_t padding) {
    *storage = (struct storage){.list = array_of(2 * (size_t)parameters, sizeof(struct sl_parameter))};
    struct sl_range *loop = &storage->loop;
    for (int i = 0; i < parameters; i++) {
        const struct sl_parameter parameter = {.range = 1, .offset = loop->used, .count = sizes[i], .decay = decay[i]};
        storage->list[2 * i] = storage->list[2 * i + 1] = parameter;
        storage->list[2 * i + 1].range = 0;
        storage->list[2 * i + 1].offset += sizes[i] / 2;
        storage->list[2 * i + 1].decay = !decay[i];
        loop->used += sizes[i];
    }
    loop->count = loop->used + padding;
    loop->shard_count = loop->count;
    loop->value = device_floats(loop->count);
    loop->gradient = device_floats(loop->count);
    for (int s = 0; s < SL_OPTIMIZER_STATES; s++) loop->state[s] = device_floats(loop->count);
}

static inline void free_storage(struct storage *storage) {
    release_array(storage->loop.value);
    release_array(storage->loop.gradient);
    for (int s = 0; s < SL_OPTIMIZER_STATES; s++) release_array(storage->loop.state[s]);
    free(storage->list);
}

/* All of STORAGE's, as the second of two LOOPS. */
static inline struct sl_parameters parameters_of(struct storage *storage, int parameters,
                                                 const struct sl_optimizer_options *options, struct sl_range loops[2]) {
    loops[0] = (struct sl_range){0};
    loops[1] = storage->loop;
    return (struct sl_parameters){.count = 2 * parameters,
                                  .capacity = 2 * parameters,
                                  .list = storage->list,
                                  .ranges = 2,
                                  .range = loops,
                                  .states = sl_optimizer_states(options)};
}

static inline void update(struct storage *storage, int parameters, const struct sl_optimizer_options *options,
                          const struct sl_kernels *kernels, int64_t step, float gradient_scale) {
    storage->loop.sum = storage->loop.gradient + storage->loop.shard;
    struct sl_range loops[2];
    struct sl_parameters all = parameters_of(storage, parameters, options, loops);
    sl_optimizer_update(options, kernels, &all, 1, step, gradient_scale, NULL);
}

/* The same with the sum of the members' gradients. */
static inline void update_sum(struct storage *storage, int parameters, const struct sl_optimizer_options *options,
                              const struct sl_kernels *kernels, int64_t step, float gradient_scale, int members,
                              const float *const *gradient) {
    struct sl_range loops[2];
    struct sl_parameters all = parameters_of(storage, parameters, options, loops);
    sl_optimizer_update_sum(options, kernels, &all, 1, step, gradient_scale, members, gradient, NULL, NULL);
}

/* ---- facts ---- */

static inline json_t *load_facts(const char *name) {
    json_error_t error;
    char path[512];
    snprintf(path, sizeof path, "%s/%s", SL_TEST_DATA, name);
    json_t *facts = json_load_file(path, 0, &error);
    if (!facts) fail_msg("%s: %s", path, error.text);
    return facts;
}

static inline void read_floats(const json_t *object, const char *key, size_t count, float *values) {
    const json_t *array = json_object_get(object, key);
    assert_int_equal(json_array_size(array), count);
    for (size_t i = 0; i < count; i++) values[i] = (float)json_number_value(json_array_get(array, i));
}

#endif
