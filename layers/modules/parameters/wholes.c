/* wholes.c - values sharded over data, if the members hold whole kernels together: a member's columns of a kernel are a
 * row apart. */
#include "layers/modules/parameters/parameters.h"

#include <string.h>

#include "spmd/device/device.h"

static size_t smaller(size_t a, size_t b) { return a < b ? a : b; }

/* Copies elements [FIRST, END) of PARAMETER's shard, in contiguous runs. */
static void copy_runs(const struct sl_parameters *parameters, const struct sl_parameter *parameter, size_t first,
                      size_t end, float *piece, bool writes) {
    const size_t members = (size_t)parameters->members, run = sl_parameter_run(parameter);
    float *whole = parameters->range[parameter->range].value + parameter->offset * members;
    whole += run * (size_t)parameters->member;
    for (size_t i = first, count; i < end; i += count, piece += count) {
        float *place = whole + i / run * run * members + i % run;
        count = smaller(run - i % run, end - i);
        memcpy(writes ? place : piece, writes ? piece : place, count * sizeof *piece);
    }
}

void sl_parameters_copy_values(const struct sl_parameters *parameters, int range, size_t first, size_t count,
                               float *piece, bool writes) {
    const struct sl_range *of = &parameters->range[range];
    if (!sl_range_is_whole(parameters, range)) {
        float *values = sl_range_values(of, first);
        sl_device.copy(writes ? values : piece, writes ? piece : values, count * sizeof *piece);
        return;
    }
    if (!writes) memset(piece, 0, count * sizeof *piece); /* no values between parameters */
    for (int i = 0; i < parameters->count; i++) {
        const struct sl_parameter *parameter = &parameters->list[i];
        const size_t begin = parameter->offset > first ? parameter->offset : first;
        const size_t end = smaller(parameter->offset + parameter->count, first + count);
        if (parameter->range == range && begin < end)
            copy_runs(parameters, parameter, begin - parameter->offset, end - parameter->offset,
                      piece + (begin - first), writes);
    }
}
