/* engine.c - the local engine: starts a thread per coordinate, joins them, reports the verdict. */
#include "collectives/local/engine.h"

#include <errno.h>
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "collectives/engines.h"
#include "collectives/verdict.h"
#include "spmd/device/device.h"

/* ---- one coordinate's thread ---- */

/* Binds the calling thread to a PU. Failure is ignored: the thread stays unbound. */
static void bind_to(int pu) {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(pu, &one);
    pthread_setaffinity_np(pthread_self(), sizeof one, &one);
}

/* For coordinates that share cores: a coordinate woken by a message does not preempt the sender, which continues with
 * its next microbatches while its weights are in the cache. Failure (not permitted) is ignored. */
static void run_in_long_turns(void) {
    const struct sched_param parameters = {0};
    pthread_setschedparam(pthread_self(), SCHED_BATCH, &parameters);
}

static void *run_coordinate(void *arg) {
    struct sl_local_coordinate *me = arg;
    struct sl_local_run *run = me->run;
    const int pu = run->placement.pu[me->spmd.coordinate];
    if (!run->spin) run_in_long_turns();
    if (pu >= 0) bind_to(pu);
    const int status = run->program(&me->spmd, run->arg);
    if (status) sl_local_give_up(me, status);
    atomic_store(&me->returned, true); /* SC with words, for the proofs */
    sl_local_wake_all(run);
    return NULL;
}

/* ---- the run ---- */

static int distance(int one, int other, void *arg) {
    (void)arg;
    return sl_device.distance(one, other);
}

static const char *bus(int device, void *arg) {
    (void)arg;
    return sl_device.bus(device);
}

/* Places coordinates, and binds several of them if each can have its own PU, or if whole replicas can share PUs. Takes
 * the closest PUs, beginning with the caller's, to separate concurrent runs. A single coordinate stays unbound.
 * Distances do not matter for two PUs, or for shared PUs. */
static void place(struct sl_local_run *run) {
    const int usable = sl_topology_usable(), size = run->mesh->size;
    const struct sl_placement_devices devices = {.count = sl_device.count(), .distance = distance, .bus = bus};
    struct sl_topology topology;
    run->spin = size <= usable;
    if (sl_device.rests) sl_device.rests(!run->spin);
    const bool bind = size > 1;
    if (bind) sl_topology_read(&topology, usable > 2 && run->spin);
    sl_place_coordinates(run->mesh, bind ? &topology : NULL, sched_getcpu(), &devices, &run->placement);
}

/* Whether all used devices reach each other's memory; ends the run if not. True without a check if an engine built on
 * this one moves the data. */
static bool devices_meet(struct sl_local_run *run) {
    const int devices = run->engine->table == &sl_engine_local ? sl_device.count() : 0;
    bool used[devices + 1];
    memset(used, 0, sizeof used);
    for (int i = 0; i < run->mesh->size && devices; i++)
        if (run->placement.device[i] >= 0) used[run->placement.device[i]] = true;
    for (int i = 0; i < devices; i++) {
        for (int j = i + 1; j < devices; j++) {
            if (!used[i] || !used[j] || sl_device.distance(i, j) < INT_MAX) continue;
            sl_local_end(run, SL_BAD_INPUT,
                         "engine local: devices %d and %d do not reach each other's memory: use engine nccl, or let "
                         "all coordinates share a device (CUDA_VISIBLE_DEVICES)",
                         i, j);
            return false;
        }
    }
    return true;
}

/* ---- the end ---- */

static const double time_to_return = 1; /* seconds after a verdict about a wait, for the coordinate to return */
enum { TICK_NS = 20000000 };

/* Whether coordinate I's thread has ended; waits at most a tick for it. */
static bool has_ended(const struct sl_local_run *run, int i) {
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += TICK_NS;
    if (until.tv_nsec >= 1000000000L) until.tv_sec++, until.tv_nsec -= 1000000000L;
    return pthread_timedjoin_np(run->coordinate[i].thread, NULL, &until) != ETIMEDOUT;
}

/* Prints the verdict, and that coordinate I has not returned yet. */
static void tell_early(const struct sl_local_run *run, int i) {
    char who[SL_VERDICT_NAME], ends[60] = "sl_run returns when it does";
    if (run->engine->grace > 0) snprintf(ends, sizeof ends, "the process ends in %g s", run->engine->grace);
    fprintf(stderr, "shardloop: %s\nshardloop: the run has ended, and %s has not returned from the program: %s\n",
            run->verdict.message, sl_verdict_name(run->mesh, i, who), ends);
}

/* Waits for the threads of the first STARTED coordinates. If a run has ended and a coordinate does not return, prints
 * the verdict early. */
static void join(struct sl_local_run *run, int started) {
    double ended = 0;
    for (int i = 0; i < started; i++) {
        while (!has_ended(run, i)) {
            if (!atomic_load(&run->status)) continue;
            const double now = sl_now();
            if (ended == 0) ended = now;
            const double told = ended + (run->in_vain ? time_to_return : run->engine->timeout);
            if (!run->told && now > told) {
                tell_early(run, i);
                run->told = true;
            }
            if (run->engine->grace > 0 && now > told + run->engine->grace) _exit(atomic_load(&run->status));
        }
    }
}

static void launch(struct sl_local_run *run) {
    const int size = run->mesh->size;
    int started = 0;
    place(run);
    if (!devices_meet(run)) return;
    for (; started < size; started++) {
        struct sl_local_coordinate *coordinate = &run->coordinate[started];
        coordinate->spmd.device = run->placement.device[started];
        const int error = pthread_create(&coordinate->thread, NULL, run_coordinate, coordinate);
        if (error) {
            sl_local_end(run, SL_FAILED, "coordinate %d of %d cannot start: %s", started, size, strerror(error));
            break;
        }
    }
    join(run, started);
}

/* Reports the verdict. TOLD: it has been printed. */
static int deliver(const struct sl_engine *engine, int status, const struct sl_error *verdict, bool told) {
    if (status == SL_OK) return SL_OK;
    if (engine->error) {
        *engine->error = *verdict;
    } else if (!told) {
        fprintf(stderr, "shardloop: %s\n", verdict->message);
    }
    return status;
}

/* Reads a number from a file of the system; LONG_MAX if there is none. */
static long number_in(const char *path) {
    long number = LONG_MAX;
    FILE *file = fopen(path, "re");
    if (file && fscanf(file, "%ld", &number) != 1) number = LONG_MAX;
    if (file) fclose(file);
    return number;
}

/* Refuses more threads than the system allows, before it allocates memory for them. */
static int check_threads(int coordinates, struct sl_error *error) {
    enum { MAPPINGS = 2 }; /* per thread: its stack, and the guard pages */
    const long threads = number_in("/proc/sys/kernel/threads-max");
    const long stacks = number_in("/proc/sys/vm/max_map_count") / MAPPINGS, most = threads < stacks ? threads : stacks;
    if (coordinates <= most) return SL_OK;
    return sl_error_set(error, SL_BAD_INPUT,
                        "engine local: %d coordinates are as many threads, and this system has room for %ld (%s)",
                        coordinates, most, threads < stacks ? "kernel.threads-max" : "half of vm.max_map_count");
}

static int run_mesh(const struct sl_mesh *mesh, const struct sl_engine *engine, sl_program *program, void *arg) {
    const size_t size = (size_t)mesh->size, coordinates = size * sizeof(struct sl_local_coordinate);
    struct sl_error error = {0};
    if (check_threads(mesh->size, &error)) return deliver(engine, error.status, &error, false);
    struct sl_local_run *run = sl_local_take(sizeof *run + coordinates + 2 * size * sizeof *run->placement.pu);
    if (!run) {
        const struct sl_error no_memory = {SL_FAILED, "no memory to start the run"};
        return deliver(engine, SL_FAILED, &no_memory, false);
    }
    run->placement.pu = (int *)(void *)&run->coordinate[size];
    run->placement.device = run->placement.pu + size;
    run->mesh = mesh, run->engine = engine, run->program = program, run->arg = arg;
    pthread_mutex_init(&run->opening, NULL);
    for (int i = 0; i < mesh->size; i++) {
        struct sl_local_coordinate *coordinate = &run->coordinate[i];
        coordinate->run = run;
        coordinate->spmd = (struct sl_spmd){.mesh = mesh,
                                            .engine = engine,
                                            .coordinate = i,
                                            .state = coordinate,
                                            .divides = engine->table == &sl_engine_local};
    }
    launch(run);
    const int status = deliver(engine, atomic_load(&run->status), &run->verdict, run->told);
    sl_local_groups_close(run);
    sl_local_channels_close(run);
    sl_local_lines_close(run);
    for (int i = 0; i < mesh->size; i++) sl_local_marks_close(&run->coordinate[i]);
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

/* ---- for an engine above ---- */

static int enter(struct sl_spmd *self, const char *verb, const char *object, const char *site) {
    return sl_local_enter(sl_local_self(self), verb, object, site);
}

static void give_up(struct sl_spmd *self, int status) { sl_local_give_up(sl_local_self(self), status); }

static void end(struct sl_spmd *self, const struct sl_error *verdict, int absent) {
    (void)absent;
    sl_local_end(sl_local_self(self)->run, SL_FAILED, "%s", verdict->message);
}

const struct sl_engine_table sl_engine_local = {
    .name = "local",
    .run = run_mesh,
    .group_open = sl_local_group_open,
    .group_close = sl_local_group_close,
    .start = sl_local_start,
    .test = sl_local_test,
    .wait = sl_local_finish,
    .gather_from = sl_local_gather_from,
    .peers_begin = sl_local_peers_begin,
    .peers_end = sl_local_peers_end,
    .group_memory = sl_local_group_memory,
    .channel_open = sl_local_channel_open,
    .channel_acquire = sl_local_channel_acquire,
    .channel_post = sl_local_channel_post,
    .channel_take = sl_local_channel_take,
    .channel_release = sl_local_channel_release,
    .progress = progress,
    .enter = enter,
    .give_up = give_up,
    .end = end,
    .line_open = sl_local_line_open,
    .line_close = sl_local_line_close,
    .line_tell = sl_local_line_tell,
    .line_hear = sl_local_line_hear,
    .line_heard = sl_local_line_heard,
    .line_message = sl_local_line_message,
};
