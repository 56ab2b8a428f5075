/* engine.c - the mpi engine: runs the program at the one coordinate that is here, and delivers the run's verdict. */
#include "collectives/mpi/engine.h"

#include <stdio.h>
#include <stdlib.h>

#include "collectives/engines.h"
#include "spmd/device/device.h"

static const double time_to_end = 1;    /* seconds for messages to be received that nobody waits for */
static const double time_to_return = 2; /* for a coordinate that was absent */

/* ---- giving up ---- */

int sl_mpi_give_up(struct sl_mpi_run *run, int status) {
    struct sl_error verdict = {0};
    char who[SL_VERDICT_NAME];
    sl_verdict_name(run->mesh, run->spmd.coordinate, who);
    if (run->spmd.error.message[0]) {
        sl_verdict_add(&verdict, "%s: %s", who, run->spmd.error.message);
    } else {
        sl_verdict_add(&verdict, "%s: the program returned status %d", who, status);
    }
    sl_mpi_propose(run, status, -1, &verdict);
    return sl_mpi_await_end(run);
}

/* ---- the beginning ---- */

/* Tells whether processes mean to start the same run. */
static int32_t number_of_run(const struct sl_mpi_run *run) {
    char mesh[200];
    uint32_t number = 2166136261u ^ (uint32_t)run->number ^ (uint32_t)run->engine->checked << 16;
    for (const char *c = sl_mesh_print(run->mesh, mesh, sizeof mesh); *c; c++) {
        number = (number ^ (uint8_t)*c) * 16777619u;
    }
    return (int32_t)number;
}

static int check_processes(const struct sl_mpi_run *run, struct sl_error *error) {
    const int size = sl_mpi_process()->size, wanted = run->mesh->size;
    char mesh[200];
    sl_mesh_print(run->mesh, mesh, sizeof mesh);
    if (sl_mpi_process()->lost)
        return sl_error_set(error, SL_FAILED, "engine mpi: a process was lost in an earlier run");
    if (!sl_device.shares_memory && run->engine->table == &sl_engine_mpi)
        return sl_error_set(error, SL_BAD_INPUT,
                            "engine mpi moves what is in the host's memory, and layers compute in that of devices "
                            "(%s): use engine nccl, or a build of another preset",
                            sl_device.name);
    if (size == wanted || (size > wanted && run->engine->spare)) return SL_OK;
    if (size == 1)
        return sl_error_set(error, SL_BAD_INPUT,
                            "engine mpi: the mesh %s needs %d processes, this is a single one: start it by "
                            "mpirun -n %d PROGRAM, or by srun",
                            mesh, wanted, wanted);
    return sl_error_set(error, SL_BAD_INPUT, "engine mpi: the mesh %s needs %d processes, the launcher has started %d",
                        mesh, wanted, size);
}

/* All processes start the same run, or none does. */
static int gather_all(struct sl_mpi_run *run, struct sl_error *error) {
    struct sl_mpi_process *process = sl_mpi_process();
    const int32_t number = number_of_run(run);
    sl_mpi_meet(SL_MPI_START, number, SL_OK);
    process->lost = !sl_mpi_await_all();
    if (process->lost) return sl_error_set(error, SL_FAILED, "engine mpi: a process has been lost before the run");
    for (int rank = 0; rank < process->size; rank++) {
        const struct sl_mpi_attendance *other = sl_mpi_attendance(rank);
        if (other->occasion == SL_MPI_START && other->number == number) continue;
        process->parting = other->occasion == SL_MPI_LEAVE;
        if (!process->parting)
            return sl_error_set(error, SL_FAILED, "engine mpi: processes %d and %d start different runs", process->rank,
                                rank);
        return sl_error_set(error, other->status ? other->status : SL_FAILED,
                            "engine mpi: process %d has exited instead of starting the run", rank);
    }
    return SL_OK;
}

static void make_wire(struct sl_mpi_run *run) {
    MPI_Request request;
    int made = 0;
    MPI_Comm_idup(sl_mpi_process()->comm, &run->wire, &request);
    for (int round = 0; !made; round++) {
        MPI_Test(&request, &made, MPI_STATUS_IGNORE);
        if (!made) sl_mpi_pause(round);
    }
    MPI_Comm_set_errhandler(run->wire, MPI_ERRORS_RETURN);
}

/* ---- the end ---- */

static bool sends(const struct sl_mpi_run *run) { return sl_mpi_groups_sending(run) || sl_mpi_channels_sending(run); }

/* How long, once the run has ended, for those who have not come: they may still compute, or be there again. */
static double patience(const struct sl_mpi_run *run) {
    if (run->absent < 0) return run->engine->timeout;
    return sl_mpi_terminated() || sl_mpi_is_gone(run->absent) ? 0 : time_to_return;
}

/* Waits until all have returned from the program and know how the run has ended. */
static void finish(struct sl_mpi_run *run, int status) {
    struct sl_mpi_process *process = sl_mpi_process();
    double ended = 0;
    sl_mpi_meet(SL_MPI_FINISH, run->number, status);
    for (int round = 0; !sl_mpi_have_met() && !process->lost; round++) {
        const bool over = sl_mpi_turn(run) != SL_OK;
        if (over && ended == 0) ended = sl_now();
        if (over && sl_now() > ended + patience(run)) process->lost = true;
        if (!over && round % 1024 == 1023) sl_mpi_look_for_gone(run);
        sl_mpi_pause(round);
    }
    for (int rank = 0; rank < process->size && !process->lost; rank++) {
        if (sl_mpi_attendance(rank)->status) sl_mpi_await_end(run);
    }
}

/* Whether messages are left that nobody has received: they could turn up in a later run. */
static bool has_leftovers(struct sl_mpi_run *run) {
    const double end = sl_now() + time_to_end;
    for (int round = 0; sends(run) && sl_now() < end; round++) {
        sl_mpi_turn(run);
        sl_mpi_pause(round);
    }
    sl_mpi_meet(SL_MPI_CLOSE, run->number, sends(run));
    sl_mpi_process()->lost = !sl_mpi_await_all();
    if (sl_mpi_process()->lost) return true;
    for (int rank = 0; rank < sl_mpi_process()->size; rank++) {
        if (sl_mpi_attendance(rank)->status) return true;
    }
    return false;
}

/* After a failure, or with messages on their way, the run is abandoned. */
static void close_run(struct sl_mpi_run *run) {
    if (run->status || has_leftovers(run)) {
        run->next = sl_mpi_process()->abandoned;
        sl_mpi_process()->abandoned = run;
        return;
    }
    sl_mpi_withdraw(run);
    sl_mpi_groups_close(run);
    sl_mpi_channels_close(run);
    MPI_Comm_free(&run->wire);
    free(run);
}

/* ---- a run ---- */

static struct sl_mpi_run *new_run(const struct sl_mesh *mesh, const struct sl_engine *engine) {
    const int devices = sl_device.count();
    struct sl_mpi_run *run = calloc(1, sizeof *run);
    if (!run) return NULL;
    run->mesh = mesh;
    run->engine = engine;
    run->number = ++sl_mpi_process()->runs;
    sl_mpi_process()->speaker = 0;
    run->watch.peer = run->absent = -1;
    run->spmd = (struct sl_spmd){.mesh = mesh,
                                 .engine = engine,
                                 .coordinate = sl_mpi_process()->rank,
                                 .device = devices ? sl_mpi_process()->local_rank % devices : -1,
                                 .state = run};
    return run;
}

/* A process beyond the mesh looks on. A program may not notice what has been found wrong meanwhile. */
static int run_here(struct sl_mpi_run *run, sl_program *program, void *arg) {
    if (run->spmd.coordinate >= run->mesh->size) return SL_OK;
    const int status = program(&run->spmd, arg);
    if (status) sl_mpi_give_up(run, status);
    sl_mpi_turn(run);
    return run->proposed ? sl_mpi_await_end(run) : status;
}

static int run_mesh(const struct sl_mesh *mesh, const struct sl_engine *engine, sl_program *program, void *arg) {
    struct sl_error error = {0};
    if (sl_mpi_open(&error)) return sl_report(engine, &error);
    struct sl_mpi_process *process = sl_mpi_process();
    struct sl_mpi_run *run = new_run(mesh, engine);
    if (!run) {
        sl_error_set(&error, SL_FAILED, "engine mpi: no memory to start the run");
        return sl_report(engine, &error);
    }
    if (check_processes(run, &error) || gather_all(run, &error)) {
        free(run);
        return sl_report(engine, &error);
    }
    make_wire(run);
    process->run = run;
    sl_mpi_catch_sigterm();
    const int status = run_here(run, program, arg);
    run->returned = true;
    finish(run, status);
    sl_mpi_release_sigterm();
    process->run = NULL;
    const int result = run->status ? sl_report(engine, &run->verdict) : SL_OK;
    close_run(run);
    return result;
}

static int progress(struct sl_spmd *self) { return sl_mpi_turn(sl_mpi_self(self)); }

const struct sl_engine_table sl_engine_mpi = {
    .name = "mpi",
    .apart = true,
    .open = sl_mpi_open,
    .speaks = sl_mpi_speaks,
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
};
