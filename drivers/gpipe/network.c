/* network.c - a network of linear layers: its values, and its layers at a rank. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "drivers/gpipe/gpipe.h"

static size_t inputs_of(const struct gpipe_network *network) {
    return (size_t)network->batch * (size_t)network->columns[0];
}

/* Adds the parameter layers.LAYER.NAME, with COUNT of the next random numbers in [-BOUND, BOUND). */
static int add_value(struct gpipe_network *network, int layer, const char *name, int dims, const size_t *shape,
                     float bound, struct sl_key key) {
    char full[32];
    snprintf(full, sizeof full, "layers.%d.%s", layer, name);
    struct sl_tensor *tensor = sl_store_add(&network->values, full, SL_F32, dims, shape);
    if (!tensor) return SL_FAILED;
    const uint32_t count = (uint32_t)sl_array_elements(&tensor->array);
    sl_random_uniform(sl_fold_in(key, (uint32_t)network->values.count), count, -bound, bound, tensor->array.data);
    return SL_OK;
}

static int add_values(struct gpipe_network *network, struct sl_key key) {
    for (int l = 0; l < network->layers; l++) {
        const size_t kernel[] = {(size_t)network->columns[l], (size_t)network->columns[l + 1]};
        const float bound = 1.0f / sqrtf((float)kernel[0]);
        SL_TRY(add_value(network, l, "kernel", 2, kernel, bound, key));
        SL_TRY(add_value(network, l, "bias", 1, &kernel[1], bound, key));
    }
    return SL_OK;
}

int gpipe_network_open(struct gpipe_network *network, const int *columns, bool relu, int batch, uint64_t seed,
                       struct sl_error *error) {
    *network = (struct gpipe_network){.relu = relu, .batch = batch, .layers = -1};
    for (; *columns; columns++) network->columns[++network->layers] = *columns;
    const size_t inputs = inputs_of(network);
    network->inputs = calloc(inputs, sizeof *network->inputs);
    if (!network->inputs || add_values(network, sl_fold_in(sl_key_of_seed(seed), 1)))
        return sl_error_set(error, SL_FAILED, "no memory for a network");
    sl_random_normal(sl_fold_in(sl_key_of_seed(seed), 2), (uint32_t)inputs, network->inputs);
    return SL_OK;
}

void gpipe_network_free(struct gpipe_network *network) {
    free(network->inputs);
    sl_store_free(&network->values);
}

static struct sl_module *build_layer(const struct gpipe_network *network, const struct sl_mesh *mesh, int layer) {
    const int in = network->columns[layer], out = network->columns[layer + 1];
    char name[32];
    snprintf(name, sizeof name, "layers.%d", layer);
    if (sl_mesh_find_axis(mesh, GPIPE_TENSOR_AXIS) < 0) return sl_dense(name, in, out);
    return layer % 2 ? sl_row_parallel(name, in, out, mesh, GPIPE_TENSOR_AXIS)
                     : sl_column_parallel(name, in, out, mesh, GPIPE_TENSOR_AXIS);
}

struct sl_module *gpipe_stage(const struct gpipe_network *network, const struct sl_mesh *mesh, int rank, int ranks) {
    struct sl_module *part[2 * network->layers];
    int parts = 0;
    for (int l = rank * network->layers / ranks; l < (rank + 1) * network->layers / ranks; l++) {
        struct sl_module *layer = part[parts++] = build_layer(network, mesh, l);
        if (network->relu && l < network->layers - 1) part[parts++] = gpipe_relu(layer ? layer->out : 0);
    }
    return sl_sequential("", parts, part);
}
