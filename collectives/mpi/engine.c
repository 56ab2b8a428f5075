/* engine.c - the mpi engine: runs the program at this process's coordinate, and reports the run's verdict. */
#include "collectives/mpi/wire.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

#include "collectives/engines.h"
#include "spmd/device/device.h"
#include "spmd/placement/placement.h"

static const double time_to_end = 1;      /* seconds, for messages to arrive without a waiting process */
static const double time_to_return = 1.5; /* seconds, for an absent coordinate to return */

static const struct sl_mpi_carrier *const carriers[SL_MPI_CARRIERS] = {&sl_mpi_channels, &sl_mpi_groups, &sl_mpi_lines};

/* ---- the beginning ---- */

enum { MESSAGES = 16 }; /* provided; with more under way, as at the end of a run that fails, more are allocated */

static bool joined(MPI_Comm host) {
    if (!sl_mpi_provide_messages(MESSAGES)) return false;
    sl_mpi_mailboxes_open(host);
    return true;
}

static int join(double timeout, struct sl_error *error) {
    static const struct sl_mpi_joining joining = {joined, sl_mpi_stop_listening};
    return sl_mpi_join(timeout, &joining, error);
}

static int make_wire(struct sl_mpi_run *run, struct sl_error *error) {
    MPI_Request request;
    struct sl_mpi_missing missing;
    MPI_Comm_idup(sl_mpi_process()->comm, &run->wire, &request);
    if (!sl_mpi_await(&request, &missing))
        return sl_mpi_report_missing(run->mesh, &missing, "before the run began", error);
    MPI_Comm_set_errhandler(run->wire, MPI_ERRORS_RETURN);
    return SL_OK;
}

/* ---- the end ---- */

/* Seconds to wait, once the run has ended, for missing processes: they may still compute, or return. */
static double patience(const struct sl_mpi_run *run) {
    if (run->absent < 0) return run->engine->timeout;
    return sl_mpi_terminated() || sl_mpi_is_gone(run->absent) ? 0 : time_to_return;
}

/* Waits until all have returned from the program and know how the run has ended. */
static void finish(struct sl_mpi_run *run, int status) {
    struct sl_mpi_process *process = sl_mpi_process();
    double ended = 0, looked = sl_now();
    sl_mpi_meet(&(struct sl_mpi_attendance){.occasion = SL_MPI_FINISH, .number = run->number, .status = status});
    for (int round = 0; !sl_mpi_have_met() && !process->lost; round++) {
        const bool over = sl_mpi_turn(run) != SL_OK;
        const double now = sl_now();
        if (over && ended == 0) ended = now;
        if (over && now > ended + patience(run)) process->lost = true;
        if (!over && (now > looked + 1e-3 * SL_MPI_TICK_MS || sl_mpi_terminated())) {
            sl_mpi_look_for_missing(run);
            looked = now;
        }
        sl_mpi_pause(round);
    }
    for (int rank = 0; rank < process->size && !process->lost; rank++) {
        if (sl_mpi_attendance(rank)->status) sl_mpi_await_end(run);
    }
}

/* Waits for a while until all sent messages have arrived. */
static void let_arrive(struct sl_mpi_run *run) {
    const double end = sl_now() + time_to_end;
    for (int round = 0; sl_mpi_is_sending(run) && sl_now() < end; round++) {
        sl_mpi_turn(run);
        sl_mpi_pause(round);
    }
}

/* Frees the run. After a failure, or if messages under way could turn up in a later run, the run is abandoned. */
static int close_run(struct sl_mpi_run *run, struct sl_error *error) {
    struct sl_mpi_process *process = sl_mpi_process();
    struct sl_mpi_missing missing;
    int status = SL_OK;
    bool over = !run->status;
    if (over) {
        let_arrive(run);
        sl_mpi_meet(&(struct sl_mpi_attendance){
            .occasion = SL_MPI_CLOSE, .number = run->number, .status = sl_mpi_is_sending(run)});
        if (!sl_mpi_await_all(&missing))
            status = sl_mpi_report_missing(run->mesh, &missing, "before the run ended", error);
    }
    for (int rank = 0; rank < process->size && over; rank++) over = !process->lost && !sl_mpi_attendance(rank)->status;
    if (over) {
        sl_mpi_withdraw(run);
        for (int i = 0; i < SL_MPI_CARRIERS; i++) carriers[i]->close(run);
        MPI_Comm_free(&run->wire);
        free(run);
    } else {
        run->next = process->abandoned;
        process->abandoned = run;
    }
    return status;
}

/* ---- a run ---- */

static struct sl_mpi_run *new_run(const struct sl_mesh *mesh, const struct sl_engine *engine) {
    const int devices = sl_device.count();
    const size_t processes = (size_t)sl_mpi_process()->size, words = sl_set_words(sl_mpi_process()->size);
    struct sl_mpi_run *run = calloc(1, sizeof *run + 2 * words * sizeof(uint64_t) + processes * sizeof *run->chain +
                                           SL_MPI_PLACES * sizeof *run->place_called);
    if (!run) return NULL;
    run->told = (uint64_t *)(run + 1);
    run->quiet = run->told + words;
    run->chain = (struct sl_mpi_link *)(run->quiet + words);
    run->place_called = (char(*)[SL_MPI_PLACE])(run->chain + processes);
    run->mesh = mesh;
    run->engine = engine;
    run->carrier = carriers;
    run->number = ++sl_mpi_process()->runs;
    sl_mpi_process()->speaker = 0;
    run->watch.peer = run->absent = -1;
    run->spmd = (struct sl_spmd){.mesh = mesh,
                                 .engine = engine,
                                 .coordinate = sl_mpi_process()->rank,
                                 .device = devices ? sl_mpi_place_of(sl_mpi_process()->rank) % devices : -1,
                                 .state = run};
    return run;
}

/* If all processes share this host's cores: binds them as engine local binds threads, and for the same reasons
 * schedules them in long turns. Returns whether BEFORE has to be restored. */
static bool share_cores(const struct sl_mpi_run *run, cpu_set_t *before) {
    const struct sched_param parameters = {0};
    struct sl_topology topology;
    cpu_set_t one;
    if (!sl_mpi_process()->unbound) return false;
    sched_setscheduler(0, SCHED_BATCH, &parameters);
    int *places = malloc(2 * (size_t)run->mesh->size * sizeof *places);
    if (!places) return false;
    sl_topology_read(&topology, false);
    const struct sl_placement placement = {places, places + run->mesh->size};
    sl_place_coordinates(run->mesh, &topology, -1, NULL, &placement);
    const int pu = placement.pu[run->spmd.coordinate];
    free(places);
    if (pu < 0 || sched_getaffinity(0, sizeof *before, before)) return false;
    CPU_ZERO(&one);
    CPU_SET(pu, &one);
    return !sched_setaffinity(0, sizeof one, &one);
}

/* A process beyond the mesh does not run the program. The program may not notice a verdict proposed meanwhile. */
static int run_here(struct sl_mpi_run *run, sl_program *program, void *arg) {
    if (run->spmd.coordinate >= run->mesh->size) return SL_OK;
    cpu_set_t before;
    const bool bound = share_cores(run, &before);
    const int status = program(&run->spmd, arg);
    if (bound) sched_setaffinity(0, sizeof before, &before);
    if (status) sl_mpi_give_up(run, status);
    sl_mpi_turn(run);
    return run->proposed ? sl_mpi_await_end(run) : status;
}

static int run_mesh(const struct sl_mesh *mesh, const struct sl_engine *engine, sl_program *program, void *arg) {
    struct sl_error error = {0};
    if (join(engine->timeout, &error)) return sl_report(engine, &error);
    struct sl_mpi_process *process = sl_mpi_process();
    struct sl_mpi_run *run = new_run(mesh, engine);
    process->timeout = engine->timeout;
    if (!run) {
        sl_error_set(&error, SL_FAILED, "engine mpi: no memory to start the run");
        return sl_report(engine, &error);
    }
    sl_mpi_mailboxes_clear();
    sl_mpi_catch_sigterm(); /* a waiting process reports the loss of others */
    if (sl_mpi_start_together(mesh, engine, run->number, &error) || make_wire(run, &error)) {
        sl_mpi_release_sigterm();
        if (!process->lost) free(run); /* otherwise MPI may still write there */
        return sl_report(engine, &error);
    }
    process->run = run;
    process->begun = true;
    const int status = run_here(run, program, arg);
    run->returned = true;
    finish(run, status);
    sl_mpi_collect_waits(run);
    process->run = NULL;
    if (run->status) error = run->verdict;
    close_run(run, &error);
    sl_mpi_release_sigterm();
    return error.status ? sl_report(engine, &error) : SL_OK;
}

/* Waits for the end if this coordinate has proposed it. */
static int progress(struct sl_spmd *self) {
    struct sl_mpi_run *run = sl_mpi_self(self);
    const int status = sl_mpi_turn(run);
    return !status && run->proposed ? sl_mpi_await_end(run) : status;
}

/* ---- for an engine above ---- */

static int enter(struct sl_spmd *self, const char *verb, const char *object, const char *site) {
    return sl_mpi_enter(sl_mpi_self(self), verb, object, site);
}

static void give_up(struct sl_spmd *self, int status) { sl_mpi_give_up(sl_mpi_self(self), status); }

static void end(struct sl_spmd *self, const struct sl_error *verdict, int absent) {
    struct sl_mpi_ending *ending = &sl_mpi_self(self)->ending;
    int none = SL_MPI_NO_ENDING;
    if (!atomic_compare_exchange_strong(&ending->state, &none, SL_MPI_BEING_WRITTEN)) return;
    ending->verdict = *verdict;
    ending->absent = absent;
    atomic_store_explicit(&ending->state, SL_MPI_WRITTEN, memory_order_release);
}

const struct sl_engine_table sl_engine_mpi = {
    .name = "mpi",
    .apart = true,
    .both_ends = true,
    .open = join,
    .speaks = sl_mpi_speaks,
    .reports = sl_mpi_reports,
    .run = run_mesh,
    .group_open = sl_mpi_group_open,
    .group_close = sl_mpi_group_close,
    .start = sl_mpi_start,
    .test = sl_mpi_test,
    .wait = sl_mpi_finish,
    .channel_open = sl_mpi_channel_open,
    .channel_acquire = sl_mpi_channel_acquire,
    .channel_post = sl_mpi_channel_post,
    .channel_take = sl_mpi_channel_take,
    .channel_release = sl_mpi_channel_release,
    .progress = progress,
    .enter = enter,
    .give_up = give_up,
    .end = end,
    .is_gone = sl_mpi_is_gone, /* a coordinate's number is its rank */
    .line_open = sl_mpi_line_open,
    .line_close = sl_mpi_line_close,
    .line_tell = sl_mpi_line_tell,
    .line_hear = sl_mpi_line_hear,
    .line_heard = sl_mpi_line_heard,
    .line_message = sl_mpi_line_message,
};
