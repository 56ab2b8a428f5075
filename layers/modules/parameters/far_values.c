/* far_values.c - offloads values and gradients of loops (spmd/device/window.h). A unit is a loop: its range, and the
 * range sharded over data. Tied parameters stay in memory. */
#include <stdlib.h>

#include "layers/modules/parameters/parameters.h"
#include "spmd/base/memory.h"
#include "spmd/device/device.h"

enum { MOST_FRAMES = 2 }; /* one in use, one being copied */

/* Rounded values take half a float each, in whole cache lines. */
size_t sl_range_value_floats(const struct sl_range *range) {
    const size_t floats = range->own_floats ? range->shard_count : range->count;
    return floats + sl_round_up(range->rounded_count * sizeof *range->rounded, SL_CACHE_LINE) / sizeof(float);
}

static size_t unit_floats(const struct sl_parameters *parameters, int loop, bool gradients) {
    const struct sl_range *whole = &parameters->range[loop], *sharded = whole + parameters->loops;
    if (gradients) return whole->count + sharded->count;
    return sl_range_value_floats(whole) + sl_range_value_floats(sharded);
}

struct sl_far_values sl_parameters_far_values(const struct sl_parameters *parameters, bool gradients) {
    struct sl_far_values far = {0};
    size_t most = 0;
    for (int l = 0; l < parameters->loops; l++) {
        const size_t bytes = unit_floats(parameters, l, gradients) * sizeof(float);
        far.far += bytes;
        if (bytes > most) most = bytes;
    }
    const int half = parameters->loops / 2;
    far.frames = half < MOST_FRAMES ? half : MOST_FRAMES;
    if ((size_t)far.frames * most >= far.far) far.frames = 1;
    far.near = (size_t)far.frames * sl_round_up(most, SL_CACHE_LINE);
    return far;
}

int sl_parameters_plan_turns(struct sl_parameters *parameters, int loop, bool gradients, struct sl_error *error) {
    return parameters->turns ? sl_window_plan_use(&parameters->turns[gradients], loop, error) : SL_OK;
}

int sl_parameters_begin_turns(struct sl_parameters *parameters, struct sl_error *error) {
    if (parameters->loops < 2) return SL_OK; /* there is nothing to offload */
    parameters->turns = calloc(2, sizeof *parameters->turns);
    return parameters->turns ? SL_OK : sl_error_set(error, SL_FAILED, "no memory to plan what is offloaded");
}

int sl_parameters_open_turns(struct sl_parameters *parameters, struct sl_error *error) {
    for (int gradients = 0; parameters->turns && gradients < 2; gradients++) {
        const struct sl_far_values far = sl_parameters_far_values(parameters, gradients);
        struct sl_window *window = &parameters->turns[gradients];
        for (int l = 0; l < parameters->loops; l++)
            SL_TRY(sl_window_add(window, unit_floats(parameters, l, gradients) * sizeof(float), error));
        SL_TRY(sl_window_open(window, far.frames, parameters->far_directory, error));
        sl_window_begin_stored(window);
        sl_budget_add(parameters->held, gradients ? SL_MEMORY_GRADIENTS : SL_MEMORY_PARAMETERS, far.near);
        sl_budget_add(parameters->held, SL_MEMORY_OFFLOADED, far.far);
    }
    return SL_OK;
}

void sl_parameters_close_turns(struct sl_parameters *parameters) {
    for (int i = 0; parameters->turns && i < 2; i++) sl_window_close(&parameters->turns[i]);
    free(parameters->turns);
    parameters->turns = NULL;
}

int sl_parameters_use_values(const struct sl_parameters *parameters, int range, bool changes, struct sl_error *error) {
    void *memory;
    if (!sl_range_takes_turns(parameters, range)) return SL_OK;
    const int loop = range % parameters->loops;
    SL_TRY(sl_window_use(&parameters->turns[0], loop, changes, &memory, error));
    float *next = memory;
    for (int r = loop; r < 2 * parameters->loops; r += parameters->loops) {
        parameters->range[r].value = next;
        if (parameters->rounds) parameters->range[r].rounded = (uint16_t *)(void *)(next + parameters->range[r].count);
        next += sl_range_value_floats(&parameters->range[r]);
    }
    return SL_OK;
}

/* Modules do not write the padding, so it is set to zero: the frame may hold another loop's gradients. */
int sl_parameters_use_gradients(const struct sl_parameters *parameters, int range, bool changes,
                                struct sl_error *error) {
    void *memory;
    if (!sl_range_takes_turns(parameters, range)) return SL_OK;
    const int loop = range % parameters->loops;
    SL_TRY(sl_window_use(&parameters->turns[1], loop, changes, &memory, error));
    float *next = memory;
    for (int r = loop; r < 2 * parameters->loops; r += parameters->loops) {
        struct sl_range *of = &parameters->range[r];
        of->gradient = next;
        of->sum = next + of->shard;
        sl_device.zero(next + of->used, (of->count - of->used) * sizeof *next);
        next += of->count;
    }
    return SL_OK;
}

void sl_parameters_drop_gradients(const struct sl_parameters *parameters) {
    for (int l = 0; parameters->turns && l < parameters->loops; l++) sl_window_drop(&parameters->turns[1], l);
}
