/* sums.c - what kernels add up for the host, where they work: the host reads it once a step. */
#include "layers/modules/module.h"
#include "spmd/device/device.h"

/* On the host there is one part, of two numbers at most. */
size_t sl_sums_bytes(void) {
    return sizeof(struct sl_sums) + (sl_device.shares_memory ? 2 : SL_SUM_ROOM) * sizeof(double);
}

void sl_sums_clear(struct sl_sums *sums) { sl_device.zero(sums, sizeof *sums); }

void sl_sums_read(const struct sl_sums *sums, struct sl_metrics *metrics) {
    struct sl_sums here;
    sl_device.copy(&here, sums, offsetof(struct sl_sums, squares)); /* the rest is not for metrics */
    sl_metrics_add(metrics, here.losses);
    metrics->auxiliary += here.auxiliary;
}
