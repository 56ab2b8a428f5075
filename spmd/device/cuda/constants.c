/* constants.c - device copies of the host's constant bytes. Bytes are looked up among earlier copies, so a step with
 * the same lists as the steps before it copies none. */
#include "spmd/device/cuda/constants.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "spmd/base/hash.h"
#include "spmd/base/memory.h"
#include "spmd/device/device.h"
#include "spmd/device/cuda/driver.h"

enum {
    ROOM = 1 << 20, /* bytes per queue: 4096 lists of the arrays of eight members */
    ALIGNMENT = 64,
    MOST = ROOM / ALIGNMENT,
    PLACES = 2 * MOST,
};

struct constant {
    uint32_t at, bytes; /* position and size; 0 bytes: the place is free */
};

struct sl_constants {
    char *memory;      /* device memory [ROOM] */
    char mirror[ROOM]; /* the host's copy of it */
    size_t used;
    struct constant place[PLACES]; /* hash table with linear probing */
    int device;
    struct sl_constants *next; /* in the list of spare structs */
};

/* Structs without a queue. As in regions.c, they are reused: freeing device memory would wait for all work of the
 * device. */
static struct sl_constants *spare;
static pthread_mutex_t spare_lock = PTHREAD_MUTEX_INITIALIZER;

static struct sl_constants *take_spare(int device) {
    pthread_mutex_lock(&spare_lock);
    struct sl_constants **at = &spare, *found;
    while (*at && (*at)->device != device) at = &(*at)->next;
    found = *at;
    if (found) *at = found->next;
    pthread_mutex_unlock(&spare_lock);
    return found;
}

bool sl_constants_open(struct sl_cuda_queue *queue) {
    const struct sl_cuda_driver *driver = sl_cuda_driver(queue);
    CUdeviceptr memory = 0;
    if (!driver) return false;
    queue->constants = take_spare(queue->device);
    if (queue->constants) return true;
    if (!sl_cuda_drove(queue, "cuMemAlloc", "memory of constants", driver->allocate(&memory, ROOM))) return false;
    struct sl_constants *own = calloc(1, sizeof *own);
    if (!own) {
        driver->free(memory);
        sl_cuda_fail(queue, "constants", "no memory for what they are");
        return false;
    }
    own->memory = (char *)(uintptr_t)memory;
    own->device = queue->device;
    queue->constants = own;
    return true;
}

void sl_constants_close(struct sl_cuda_queue *queue) {
    struct sl_constants *own = queue->constants;
    if (!own) return;
    pthread_mutex_lock(&spare_lock);
    own->next = spare;
    spare = own;
    pthread_mutex_unlock(&spare_lock);
    queue->constants = NULL;
}

/* The place of these bytes, or the free place for them. */
static struct constant *look_up(struct sl_constants *own, const void *from, size_t bytes) {
    size_t i = sl_hash(from, bytes) % PLACES;
    while (own->place[i].bytes &&
           (own->place[i].bytes != bytes || memcmp(own->mirror + own->place[i].at, from, bytes) != 0))
        i = (i + 1) % PLACES;
    return &own->place[i];
}

/* If there is no more room, the memory is reused from its start: earlier work in the queue reads its constants before
 * they are overwritten. */
const void *sl_constants_find(struct sl_cuda_queue *queue, const void *from, size_t bytes) {
    struct sl_constants *own = queue->constants;
    if (!own || !bytes) return NULL; /* opening has failed, and has reported so */
    if (bytes > SL_MOST_CONSTANT) {
        char why[40];
        snprintf(why, sizeof why, "one has more than %d bytes", SL_MOST_CONSTANT);
        sl_cuda_fail(queue, "constants", why);
        return own->memory;
    }
    struct constant *place = look_up(own, from, bytes);
    if (place->bytes) return own->memory + place->at;
    if (own->used + bytes > ROOM) {
        memset(own->place, 0, sizeof own->place);
        own->used = 0;
        place = look_up(own, from, bytes);
    }
    *place = (struct constant){(uint32_t)own->used, (uint32_t)bytes};
    own->used += sl_round_up(bytes, ALIGNMENT);
    memcpy(own->mirror + place->at, from, bytes);
    queue->busy = true;
    SL_CUDA(queue, cudaMemcpyAsync(own->memory + place->at, from, bytes, cudaMemcpyDefault, sl_cuda_stream(queue)));
    return own->memory + place->at;
}
