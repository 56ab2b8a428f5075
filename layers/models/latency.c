/* latency.c - percentiles of times. */
#include "layers/models/latency.h"

#include <math.h>

static const double ratio = 1.01, least_ms = 1e-3;

void sl_latency_add(struct sl_latency *latency, double ms, int64_t count) {
    const double class = ms > least_ms ? log(ms / least_ms) / log(ratio) : 0;
    latency->count[class < SL_LATENCY_CLASSES - 1 ? (int)class : SL_LATENCY_CLASSES - 1] += count;
    latency->all += count;
}

double sl_latency_percentile(const struct sl_latency *latency, double share) {
    const double wanted = fmax(1, ceil(share * (double)latency->all));
    double seen = 0;
    for (int c = 0; c < SL_LATENCY_CLASSES; c++) {
        seen += (double)latency->count[c];
        if (seen >= wanted) return least_ms * pow(ratio, c + 0.5); /* middle of the class */
    }
    return NAN;
}
