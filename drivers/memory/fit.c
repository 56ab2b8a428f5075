/* fit.c - adds up coordinates sharing a limit, and compares them with it. */
#include "drivers/memory/fit.h"

#include <math.h>

#include "spmd/device/device.h"

/* Whether the coordinates' planned memory is the host's. */
static bool is_of_host(void) { return !sl_device.memory; }

/* Whether two coordinates share LIMIT. */
static bool share(const struct sl_memory *one, const struct sl_memory *other, enum sl_limit limit) {
    if (one->host != other->host) return false;
    if (limit == SL_LIMIT_DEVICE) return one->device == other->device;
    return sl_limit_is_shared(limit) || one->process == other->process;
}

/* Processes of a machine may find different limits; the smallest counts. */
struct sl_misfit sl_memory_sharing(const struct sl_memory *memory, const struct sl_mesh *mesh, int coordinate,
                                   enum sl_limit limit) {
    struct sl_misfit sum = {.limit = limit, .room = INFINITY, .whole = INFINITY, .fullest = coordinate, .others = -1};
    for (int c = 0; c < mesh->size; c++) {
        const double bytes = (double)sl_budget_total(&memory[c].planned);
        if (!share(&memory[c], &memory[coordinate], limit)) continue;
        sum.need += bytes;
        if (sl_limit_is_shared(limit)) sum.besides += sl_memory_besides(memory, mesh, c);
        sum.others++;
        if (bytes > sum.most) sum.most = bytes, sum.fullest = c;
        if (!memory[c].looked || memory[c].limits.room[limit] >= sum.room) continue;
        sum.room = memory[c].limits.room[limit];
        sum.whole = memory[c].limits.whole[limit];
    }
    sum.need += sum.besides;
    return sum;
}

bool sl_memory_fits(const struct sl_memory *memory, const struct sl_mesh *mesh, struct sl_misfit *misfit) {
    bool fits = true;
    for (int limit = 0; limit < SL_LIMITS && fits; limit++) {
        if ((limit == SL_LIMIT_DEVICE) == is_of_host()) continue;
        for (int c = 0; c < mesh->size; c++) {
            bool first = true;
            for (int before = 0; before < c && first; before++) first = !share(&memory[before], &memory[c], limit);
            if (!first) continue;
            const struct sl_misfit sum = sl_memory_sharing(memory, mesh, c, limit);
            if (sum.need <= sum.room || (!fits && sum.need / sum.room <= misfit->need / misfit->room)) continue;
            *misfit = sum;
            fits = false;
        }
    }
    return fits;
}

char *sl_bytes_describe(double bytes, char *text, size_t size) {
    snprintf(text, size, bytes < 1e9 ? "%.1f MB" : "%.2f GB", bytes < 1e9 ? bytes / 1e6 : bytes / 1e9);
    return text;
}

char *sl_limit_describe(enum sl_limit limit, double room, double whole, char *text, size_t size) {
    static const char *const has[SL_LIMITS] = {
        [SL_LIMIT_MACHINE] = "this machine has",
        [SL_LIMIT_CONTAINER] = "the control group of this process has",
        [SL_LIMIT_ADDRESSES] = "the limit of this process's address space (ulimit -v) has",
        [SL_LIMIT_DATA] = "the limit of this process's data (ulimit -d) has",
        [SL_LIMIT_DEVICE] = "its device has",
    };
    char left[32], all[32];
    snprintf(text, size, "%s %s free of %s", has[limit], sl_bytes_describe(room, left, sizeof left),
             sl_bytes_describe(whole, all, sizeof all));
    return text;
}
