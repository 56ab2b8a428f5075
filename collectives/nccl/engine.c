/* engine.c - the nccl engine: runs the program at its coordinates under a watchdog, and frees the run's memory. */
#include "collectives/nccl/engine.h"

#include <stdlib.h>
#include <string.h>

#include "collectives/engines.h"
#include "collectives/launcher.h"
#include "spmd/device/device.h"

int sl_nccl_progress(struct sl_spmd *self) {
    struct sl_nccl_coordinate *me = sl_nccl_self(self);
    return sl_nccl_passed(me, sl_nccl_alive(me));
}

/* ---- one coordinate ---- */

/* Compares the ends of channels that have not met. */
static int match_channels(struct sl_nccl_coordinate *me) {
    SL_TRY(sl_nccl_progress(me->self)); /* it hears of other ends */
    for (struct sl_nccl_channel *channel = me->channels; channel; channel = channel->next) {
        if (channel->wire.me) sl_nccl_is_apart(channel);
    }
    return sl_nccl_progress(me->self);
}

/* Waits for all flights: a peer may still need data sent from here. */
static int finish(struct sl_nccl_coordinate *me) {
    SL_TRY(match_channels(me));
    for (struct sl_nccl_group *group = me->groups; group; group = group->next)
        SL_TRY(sl_nccl_await_flights(&group->wire));
    for (struct sl_nccl_channel *channel = me->channels; channel; channel = channel->next) {
        SL_TRY(sl_nccl_await_flights(&channel->wire));
    }
    return SL_OK;
}

static void count_inside(struct sl_nccl_run *run, int change) {
    pthread_mutex_lock(&run->lock);
    run->inside += change;
    pthread_mutex_unlock(&run->lock);
}

/* The program, as the engine below runs it. */
static int run_coordinate(struct sl_spmd *self, void *arg) {
    struct sl_nccl_run *run = arg;
    struct sl_nccl_coordinate *me = &run->coordinate[self->coordinate];
    me->self = self;
    self->above = me;
    count_inside(run, 1);
    int status = run->program(self, run->arg);
    if (!status) status = finish(me);
    if (status) {
        run->below->give_up(me->self, status); /* before others see effects of the abort */
        sl_nccl_abort(me);
    }
    sl_nccl_branch(me, false);
    count_inside(run, -1);
    return status;
}

/* ---- the run ---- */

static struct sl_nccl_run *new_run(const struct sl_mesh *mesh, const struct sl_engine *engine) {
    struct sl_nccl_run *run = calloc(1, sizeof *run + (size_t)mesh->size * sizeof *run->coordinate);
    if (!run) return NULL;
    run->below = engine->table->apart ? &sl_engine_mpi : &sl_engine_local;
    run->branches = &sl_nccl_branches;
    run->mesh = mesh;
    run->engine = engine;
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&run->changed, &attributes);
    pthread_condattr_destroy(&attributes);
    pthread_mutex_init(&run->lock, NULL);
    for (int i = 0; i < mesh->size; i++) run->coordinate[i].run = run;
    return run;
}

static void free_run(struct sl_nccl_run *run) {
    for (int i = 0; i < run->mesh->size; i++) {
        struct sl_nccl_coordinate *me = &run->coordinate[i];
        sl_nccl_groups_close(me);
        sl_nccl_channels_close(me);
    }
    for (int i = 0; i < run->mesh->size; i++) {
        struct sl_nccl_coordinate *me = &run->coordinate[i];
        while (me->memory) {
            struct sl_nccl_memory *kept = me->memory;
            me->memory = kept->next;
            (kept->host ? sl_device.give_host : sl_device.give)(kept->memory);
            free(kept);
        }
    }
    pthread_mutex_destroy(&run->lock);
    pthread_cond_destroy(&run->changed);
    free(run);
}

static void end_watch(struct sl_nccl_run *run, pthread_t watchdog) {
    pthread_mutex_lock(&run->lock);
    run->over = true;
    pthread_cond_broadcast(&run->changed);
    pthread_mutex_unlock(&run->lock);
    pthread_join(watchdog, NULL);
}

int sl_nccl_run(const struct sl_mesh *mesh, const struct sl_engine *engine, sl_program *program, void *arg) {
    struct sl_error error = {0};
    pthread_t watchdog;
    struct sl_nccl_run *run = new_run(mesh, engine);
    int status = SL_OK;
    if (!run) {
        status = sl_error_set(&error, SL_FAILED, "engine nccl: no memory to start the run");
        return sl_report(engine, &error);
    }
    run->program = program;
    run->arg = arg;
    /* Ranks on one GPU wait for each other in kernels: all these kernels must fit on the GPU at once. */
    const char *shared = getenv("NCCL_MULTI_RANK_GPU_ENABLE");
    if (shared && !strcmp(shared, "1")) setenv("NCCL_MAX_CTAS", "2", 0);
    setenv("NCCL_RUNTIME_CONNECT", "0",
           0); /* connects rings and trees when a communicator is made, not at the first calls */
    const int refused = pthread_create(&watchdog, NULL, sl_nccl_watchdog, run);
    if (refused) {
        sl_error_set(&error, SL_FAILED, "engine nccl: the watchdog cannot start: %s", strerror(refused));
        status = sl_report(engine, &error);
    } else {
        status = run->below->run(mesh, engine, run_coordinate, run);
        end_watch(run, watchdog);
    }
    free_run(run);
    return status;
}

/* ---- as processes ---- */

static struct sl_engine_table processes;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void make_processes(void) {
    processes = sl_engine_nccl;
    processes.apart = true;
    processes.missing = sl_engine_mpi.missing;
    processes.open = sl_engine_mpi.open;
    processes.speaks = sl_engine_mpi.speaks;
    processes.reports = sl_engine_mpi.reports;
}

/* If this process is one of several, it is only one coordinate of the mesh. */
static const struct sl_engine_table *launched(void) {
    if (sl_launch_of_process().processes < 2) return NULL;
    pthread_once(&once, make_processes);
    return &processes;
}

const struct sl_engine_table sl_engine_nccl = {
    .name = "nccl",
    .both_ends = true,
    .launched = launched,
    .run = sl_nccl_run,
    .group_open = sl_nccl_group_open,
    .group_close = sl_nccl_group_close,
    .start = sl_nccl_start,
    .test = sl_nccl_test,
    .wait = sl_nccl_finish,
    .channel_open = sl_nccl_channel_open,
    .channel_acquire = sl_nccl_channel_acquire,
    .channel_post = sl_nccl_channel_post,
    .channel_take = sl_nccl_channel_take,
    .channel_release = sl_nccl_channel_release,
    .channels_rest = sl_nccl_channels_rest,
    .progress = sl_nccl_progress,
};
