/* attention_parts_internal.h - attention of few queries to many keys, with the keys divided among a device's teams:
 * each team has a part of the keys, and writes its results to the device's room. A second region merges the parts in
 * order. The number of parts depends on the call's sizes alone, so that bits do not change from run to run. */
#ifndef SL_LAYERS_KERNELS_ATTENTION_ATTENTION_PARTS_INTERNAL_H
#define SL_LAYERS_KERNELS_ATTENTION_ATTENTION_PARTS_INTERNAL_H

#include <math.h>

#include "spmd/base/memory.h"
#include "spmd/base/numbers/vector_math.h"
#include "spmd/device/offload.h"

enum { FEW_BLOCKS = 4 }; /* most blocks of keys that one team processes alone: a second region takes about as long */

/* Returns the keys of a part, whole blocks of BLOCK, for at most SEEN visible keys and UNITS teams without parts.
 * NUMBERS: floats written per part. */
SL_INLINE size_t keys_of_part(size_t seen, size_t block, size_t units, size_t numbers) {
    const size_t wanted = (SL_TEAMS + units - 1) / units, room = SL_DEVICE_ROOM / sizeof(float) / numbers;
    const size_t parts = wanted < room ? wanted : room;
    if (parts < 2 || seen <= FEW_BLOCKS * block) return seen;
    return sl_round_up((seen + parts - 1) / parts, block);
}

/* Merges o [rows, heads, width] and logsum [heads, rows], which may be NULL, from PARTS parts, stored one after another
 * in ALL and LOGSUMS. A part without visible keys has the logsum -INFINITY, and adds nothing. Adds BIAS [heads, width],
 * unless it is NULL. */
SL_INLINE void merge_parts(size_t parts, size_t rows, size_t heads, size_t width, const float *all,
                           const float *logsums, const float *bias, float *o, float *logsum) {
    const size_t each = rows * heads;
    SL_ROWS(is_device_ptr(all, logsums, bias, o, logsum))
    for (size_t unit = 0; unit < each; unit++) {
        const size_t at = unit % heads * rows + unit / heads;
        float high = -INFINITY, sum = 0.0f;
        for (size_t p = 0; p < parts; p++) high = logsums[p * each + at] > high ? logsums[p * each + at] : high;
        for (size_t p = 0; p < parts; p++) sum += sl_exp(logsums[p * each + at] - high);
        SL_LANES()
        for (size_t c = 0; c < width; c++) {
            float total = 0.0f;
            for (size_t p = 0; p < parts; p++) {
                const float share = sl_exp(logsums[p * each + at] - high);
                if (share != 0.0f) total += share * all[(p * each + unit) * width + c];
            }
            o[unit * width + c] = bias ? bias[unit % heads * width + c] + total / sum : total / sum;
        }
        if (logsum) logsum[at] = high + sl_log(sum);
    }
}

#endif
