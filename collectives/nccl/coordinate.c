/* coordinate.c - a coordinate of the nccl engine: the beginning of its calls, and its memory. */
#include <stdlib.h>

#include "collectives/nccl/engine.h"
#include "spmd/device/device.h"

int sl_nccl_enter(struct sl_nccl_coordinate *me, const char *verb, const char *object, const char *site) {
    SL_TRY(me->run->below->enter(me->self, verb, object, site));
    return sl_nccl_alive(me);
}

void *sl_nccl_take(struct sl_nccl_coordinate *me, size_t bytes, bool host) {
    struct sl_nccl_memory *kept = malloc(sizeof *kept);
    void *memory = kept ? (host ? sl_device.take_host : sl_device.take)(bytes) : NULL;
    if (!memory) {
        free(kept);
        return NULL;
    }
    *kept = (struct sl_nccl_memory){me->memory, memory, host};
    me->memory = kept;
    return memory;
}
