/* classifier_flax.c - the notebook's random streams: all keys from the seed, by flax's module paths.
 *
 * The seed's key is split into three: for the model, the inputs and the labels. The model's key is split into two: for
 * initial values and for training. Names and counters in the paths are those of the notebook's modules. */
#include "layers/models/classifier.h"

#include <string.h>

#include "spmd/flax.h"

static struct sl_key model_key(uint64_t seed) { return sl_split(sl_key_of_seed(seed), 3, 0); }

/* Key of a block's kernel: path and counter differ between the plain pipeline's scan over layers and the looping
 * pipeline's two scans. */
static struct sl_key block_key(struct sl_key rank_key, const struct sl_parameter *parameter, bool looping, int layer,
                               int loops, int layers) {
    const char *dense = strstr(parameter->name, "input_dense") ? "input_dense" : "output_dense";
    const char *const path[] = {"pipeline", "sharded", "mlp_layers", "block", dense, NULL};
    if (!looping) return sl_flax_fold(sl_split(rank_key, (uint32_t)layers, (uint32_t)layer), path, 3);
    const struct sl_key loop_key = sl_split(rank_key, (uint32_t)loops, (uint32_t)(parameter->range % loops));
    return sl_flax_fold(sl_split(loop_key, 1, 0), path, 7);
}

void sl_classifier_flax_parameters(struct sl_parameters *parameters, uint64_t seed, bool looping, int rank, int loops,
                                   int layers) {
    const struct sl_key rank_key = sl_fold_in(sl_split(model_key(seed), 2, 0), (uint32_t)rank);
    for (int i = 0; i < parameters->count; i++) {
        struct sl_parameter *parameter = &parameters->list[i];
        int block;
        if (sscanf(parameter->name, "blocks.%d.", &block) == 1) {
            parameter->key = block_key(rank_key, parameter, looping, block % layers, loops, layers);
        } else {
            const char *dense = strncmp(parameter->name, "input_dense", 11) ? "output_dense" : "input_dense";
            const char *const path[] = {dense, "sharded", NULL};
            parameter->key = sl_flax_fold(rank_key, path, 1);
        }
        parameter->key_is_flax = true;
    }
}

void sl_classifier_flax_open(struct sl_classifier_keys *keys, uint64_t seed) {
    static const char *const looping[] = {"block", "Dropout_0", NULL};
    static const char *const plain[] = {"pipeline", "sharded", "mlp_layers", "block", "Dropout_0", NULL};
    keys->training = sl_split(model_key(seed), 2, 1);
    keys->path = keys->looping ? sl_flax_path(looping, 2) : sl_flax_path(plain, 4);
    static const char *const pipeline[] = {"pipeline", "sharded", NULL};
    keys->pipeline = sl_flax_path(pipeline, 1);
}

/* The step's key, folded with the coordinate's number on the (data, model) mesh. */
static struct sl_key step_key(struct sl_classifier_keys *keys) {
    const struct sl_key step = sl_split(keys->training, 2, 1);
    keys->training = sl_split(keys->training, 2, 0);
    return sl_fold_in(sl_split(step, 1, 0), (uint32_t)(keys->data_index * keys->model + keys->rank));
}

void sl_classifier_flax_step(struct sl_classifier_keys *keys, struct sl_key *key) {
    const struct sl_key dropout = step_key(keys);
    struct sl_key carry = sl_fold_in(dropout, keys->pipeline);
    for (int t = 0; t < keys->iterations; t++) {
        if (keys->looping) {
            const struct sl_key drawn = sl_split(carry, 2, 1);
            carry = sl_split(carry, 2, 0);
            key[t] = sl_fold_in(sl_split(drawn, 1, 0), keys->path);
            continue;
        }
        const struct sl_key iteration = sl_split(dropout, (uint32_t)keys->iterations, (uint32_t)t);
        for (int l = 0; l < keys->layers; l++)
            key[t * keys->layers + l] =
                sl_fold_in(sl_split(iteration, (uint32_t)keys->layers, (uint32_t)l), keys->path);
    }
}
