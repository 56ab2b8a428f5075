/* profile.c - the bubble of a run. */
#include "layers/modules/calls/profile.h"

#include <math.h>

#include "spmd/device/device.h"

double sl_profile_bubble(const struct sl_profile *profile, size_t stride, int coordinates) {
    double computing = 0, first = INFINITY, last = 0;
    for (int c = 0; c < coordinates; c++) {
        const struct sl_profile *of = (const void *)((const char *)profile + (size_t)c * stride);
        if (of->computing <= 0) continue;
        computing += of->computing;
        first = fmin(first, of->first);
        last = fmax(last, of->last);
    }
    const bool known = sl_device.shares_memory && computing > 0; /* a queue's compute is not the host's */
    return known ? fmax(0, 1 - computing / (coordinates * (last - first))) : (double)NAN;
}
