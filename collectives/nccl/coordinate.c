/* coordinate.c - a coordinate of the nccl engine: the engine below it, and its memory. */
#include <stdlib.h>

#include "collectives/nccl/engine.h"
#include "spmd/device/device.h"

const struct sl_nccl_hosts *sl_nccl_hosts_of(const struct sl_engine *engine) {
    return engine->table->apart ? &sl_nccl_processes : &sl_nccl_threads;
}

struct sl_nccl_coordinate *sl_nccl_self(const struct sl_spmd *self) {
    return &sl_nccl_hosts_of(self->engine)->run_of(self)->coordinate[self->coordinate];
}

int sl_nccl_enter(struct sl_nccl_coordinate *me, const char *verb, const char *object, const char *site) {
    SL_TRY(me->run->below->enter(me->self, verb, object, site));
    return me->run->hosts->progress(me);
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
