/* local.c - the local engine: starts a thread per coordinate, joins them, delivers the verdict. */
#include "collectives/local.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "collectives/engines.h"

void *sl_local_take(size_t bytes) {
    const size_t rounded = (bytes + SL_CACHE_LINE - 1) / SL_CACHE_LINE * SL_CACHE_LINE;
    void *memory = aligned_alloc(SL_CACHE_LINE, rounded);
    if (memory) memset(memory, 0, rounded);
    return memory;
}

/* ---- one coordinate's thread ---- */

void sl_local_give_up(struct sl_local_coordinate *me, int status) {
    char who[200];
    sl_mesh_describe(me->run->mesh, me->spmd.coordinate, who, sizeof who);
    const char *message = me->spmd.error.message;
    if (message[0]) {
        sl_local_end(me->run, status, "coordinate %s: %s", who, message);
    } else {
        sl_local_end(me->run, status, "coordinate %s: the program returned status %d", who, status);
    }
}

static void *run_coordinate(void *arg) {
    struct sl_local_coordinate *me = arg;
    struct sl_local_run *run = me->run;
    const int status = run->program(&me->spmd, run->arg);
    if (status) sl_local_give_up(me, status);
    atomic_store(&me->returned, true); /* SC with words, for the proofs */
    sl_local_wake_all(run);
    return NULL;
}

/* ---- cores ---- */

struct cores {
    cpu_set_t allowed;
    int count; /* of them; 0 where that cannot be found out */
    int first; /* the caller's own: runs side by side then tend to differ */
};

static void find_cores(struct cores *cores) {
    CPU_ZERO(&cores->allowed);
    cores->count = sched_getaffinity(0, sizeof cores->allowed, &cores->allowed) ? 0 : CPU_COUNT(&cores->allowed);
    const int here = sched_getcpu();
    cores->first = here < 0 ? 0 : here;
}

/* Ties THREAD to the next allowed core from *CORE on. That it stays where it was is no failure. */
static void pin(pthread_t thread, const struct cores *cores, int *core) {
    while (!CPU_ISSET(*core % CPU_SETSIZE, &cores->allowed)) ++*core;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(*core % CPU_SETSIZE, &one);
    pthread_setaffinity_np(thread, sizeof one, &one);
    ++*core;
}

/* Where coordinates share cores: one that is woken by a message does not take the core from the sender, which so goes
 * through its next microbatches with its weights in the cache. That it is not allowed is no failure. */
static void run_in_long_turns(pthread_t thread) {
    const struct sched_param parameters = {0};
    pthread_setschedparam(thread, SCHED_BATCH, &parameters);
}

/* ---- the run ---- */

static void launch(struct sl_local_run *run) {
    struct cores cores;
    find_cores(&cores);
    const int size = run->mesh->size;
    run->spin = size <= cores.count;
    int started = 0, core = cores.first;
    for (; started < size; started++) {
        struct sl_local_coordinate *coordinate = &run->coordinate[started];
        const int error = pthread_create(&coordinate->thread, NULL, run_coordinate, coordinate);
        if (error) {
            sl_local_end(run, SL_FAILED, "coordinate %d of %d cannot start: %s", started, size, strerror(error));
            break;
        }
        if (!run->spin) run_in_long_turns(coordinate->thread);
        if (run->spin && size > 1) pin(coordinate->thread, &cores, &core);
    }
    for (int i = 0; i < started; i++) pthread_join(run->coordinate[i].thread, NULL);
}

static int deliver(const struct sl_engine *engine, int status, const struct sl_error *verdict) {
    if (status == SL_OK) return SL_OK;
    if (engine->error) {
        *engine->error = *verdict;
    } else {
        fprintf(stderr, "shardloop: %s\n", verdict->message);
    }
    return status;
}

static int run_mesh(const struct sl_mesh *mesh, const struct sl_engine *engine, sl_program *program, void *arg) {
    struct sl_local_run *run = sl_local_take(sizeof *run + (size_t)mesh->size * sizeof *run->coordinate);
    if (!run) {
        const struct sl_error no_memory = {SL_FAILED, "no memory to start the run"};
        return deliver(engine, SL_FAILED, &no_memory);
    }
    run->mesh = mesh, run->engine = engine, run->program = program, run->arg = arg;
    pthread_mutex_init(&run->opening, NULL);
    for (int i = 0; i < mesh->size; i++) {
        struct sl_local_coordinate *coordinate = &run->coordinate[i];
        coordinate->run = run;
        coordinate->spmd = (struct sl_spmd){.mesh = mesh, .engine = engine, .coordinate = i, .state = coordinate};
    }
    launch(run);
    const int status = deliver(engine, atomic_load(&run->status), &run->verdict);
    sl_local_groups_close(run);
    sl_local_channels_close(run);
    pthread_mutex_destroy(&run->opening);
    free(run);
    return status;
}

static int progress(struct sl_spmd *self) {
    struct sl_local_coordinate *me = sl_local_self(self);
    const uint32_t beat = atomic_load_explicit(&me->beat, memory_order_relaxed);
    atomic_store_explicit(&me->beat, beat + 2, memory_order_relaxed);
    return sl_local_alive(me);
}

const struct sl_engine_table sl_engine_local = {
    .name = "local",
    .run = run_mesh,
    .group_open = sl_local_group_open,
    .start = sl_local_start,
    .test = sl_local_test,
    .wait = sl_local_finish,
    .channel_open = sl_local_channel_open,
    .channel_acquire = sl_local_channel_acquire,
    .channel_post = sl_local_channel_post,
    .channel_take = sl_local_channel_take,
    .channel_release = sl_local_channel_release,
    .progress = progress,
};
