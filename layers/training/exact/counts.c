/* counts.c - sums of metrics, in the order of coordinates or of leaves. */
#include "layers/training/exact/counts.h"

#include <string.h>

#include "spmd/base/memory.h"
#include "spmd/device/device.h"

/* ---- passes ---- */

enum { NUMBERS = sizeof(struct sl_sums) / sizeof(double) };

static size_t kept_bytes(int passes) { return passes > 1 ? (size_t)passes * sizeof(struct sl_sums) : 0; }

size_t sl_pass_sums_bytes(int passes) { return 2 * kept_bytes(passes); }

int sl_pass_sums_open(struct sl_pass_sums *sums, int passes, struct sl_budget *held, struct sl_error *error) {
    *sums = (struct sl_pass_sums){.passes = passes};
    if (passes == 1) return SL_OK;
    sums->kept = sl_device.take(kept_bytes(passes));
    sums->here = sl_memory_take(kept_bytes(passes));
    if (!sums->kept || !sums->here) return sl_error_set(error, SL_FAILED, "no memory to train");
    sl_budget_add(held, SL_MEMORY_RUNTIME, sl_pass_sums_bytes(passes));
    return SL_OK;
}

void sl_pass_sums_close(struct sl_pass_sums *sums) {
    sl_device.give(sums->kept);
    sl_memory_give(sums->here);
    *sums = (struct sl_pass_sums){0};
}

void sl_pass_sums_keep(struct sl_pass_sums *sums, int pass, const struct sl_sums *of) {
    if (sums->kept) sl_device.copy(sums->kept + (size_t)pass * NUMBERS, of, sizeof *of);
}

void sl_pass_sums_read(struct sl_pass_sums *sums, const struct sl_sums *of, int each, struct sl_metrics *metrics) {
    if (sums->kept) sl_device.copy(sums->here, sums->kept, kept_bytes(sums->passes));
    for (int pass = 0; pass < sums->passes; pass++) {
        struct sl_metrics own = {0};
        if (sums->kept) {
            const double *its = sums->here + (size_t)pass * NUMBERS;
            own = (struct sl_metrics){its[0], its[1], its[2], its[3]};
        } else {
            sl_sums_read(of, &own);
        }
        sl_add_counts(&metrics[pass / each], &own);
    }
}

/* ---- coordinates and leaves ---- */

void sl_add_counts(struct sl_metrics *sum, const struct sl_metrics *own) {
    sum->loss += own->loss;
    sum->correct += own->correct;
    sum->rows += own->rows;
    sum->auxiliary += own->auxiliary;
}

static struct sl_metrics divided(const struct sl_metrics *sum, double by) {
    return (struct sl_metrics){sum->loss / by, sum->correct / by, sum->rows / by, sum->auxiliary / by};
}

struct sl_metrics sl_sum_counts(const struct sl_counting *counting, const struct sl_metrics *all, size_t count,
                                size_t i) {
    struct sl_metrics sum = {0};
    for (size_t c = 0; c < (size_t)counting->world->size; c++) sl_add_counts(&sum, &all[c * count + i]);
    return divided(&sum, counting->copies);
}

/* Number of coordinate C's replica. *COUNT becomes the number of replicas. */
static int replica_of(const struct sl_counting *counting, const struct sl_mesh *mesh, int c, int *count) {
    int replica = 0;
    *count = 1;
    for (int a = 0; a < mesh->axes; a++) {
        const char *name = mesh->axis[a].name;
        if (!sl_axes_have(counting->data_axis, name)) continue;
        if (counting->context_axis && !strcmp(counting->context_axis, name)) continue;
        replica = replica * mesh->axis[a].size + sl_mesh_index(mesh, c, a);
        *count *= mesh->axis[a].size;
    }
    return replica;
}

/* Only coordinates with the last stage have metrics of a leaf; the others add zeros. */
int sl_sum_leaves(struct sl_spmd *self, const struct sl_counting *counting, size_t count, const struct sl_metrics *own,
                  struct sl_metrics *all, struct sl_metrics *metrics) {
    const struct sl_mesh *mesh = self->mesh;
    int members;
    replica_of(counting, mesh, 0, &members);
    SL_TRY(sl_all_gather(self, counting->world, SL_I32, own, all, count * (sizeof *own / sizeof(int32_t))));
    *metrics = (struct sl_metrics){0};
    for (int member = 0; member < members; member++) {
        for (size_t i = 0; i < count; i++) {
            struct sl_metrics leaf = {0};
            for (int c = 0; c < counting->world->size; c++)
                if (replica_of(counting, mesh, c, &members) == member)
                    sl_add_counts(&leaf, &all[(size_t)c * count + i]);
            leaf = divided(&leaf, counting->copies);
            sl_add_counts(metrics, &leaf);
        }
    }
    return SL_OK;
}
