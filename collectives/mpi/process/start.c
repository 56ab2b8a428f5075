/* start.c - the beginning of a run: all processes meet and compare their signatures.
 *
 * Each process sends the hash of its signature (spmd/signature.h) with its attendance. If hashes differ, all know it:
 * then they exchange the signatures themselves, one per hash, and all get the same verdict. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

#include "collectives/engines.h"
#include "collectives/mpi/process/process.h"
#include "collectives/signatures.h"
#include "spmd/base/build_id.h"
#include "spmd/device/device.h"
#include "spmd/signature.h"

enum { MOST_BYTES = 1 << 20 }; /* of a sent signature */

static int refuse(struct sl_error *error) {
    return sl_error_set(error, SL_FAILED, "engine mpi: no memory to start the run");
}

/* ---- contents of a signature ---- */

static bool sign(const struct sl_mesh *mesh, const struct sl_engine *engine, int number,
                 struct sl_signature *signature) {
    char build[SL_BUILD_ID_SIZE], axes[200], run[20];
    snprintf(run, sizeof run, "%d", number);
    return sl_signature_add(signature, "build", sl_build_id(build)) &&
           sl_signature_add(signature, "mesh", sl_mesh_print(mesh, axes, sizeof axes)) &&
           sl_signature_add(signature, "checked mode", engine->checked ? "yes" : "no") &&
           sl_signature_add(signature, "number of the run", run) && sl_signature_append(signature, engine->signature);
}

/* ---- differences ---- */

/* The signatures of all processes, one after another. */
struct exchange {
    int *bytes, *place; /* [size], in ALL; 0 bytes if an earlier process has the same hash */
    char *all;
    struct sl_signed *theirs; /* [size] */
};

static int first_like(int rank) {
    int first = 0;
    while (sl_mpi_attendance(first)->hash != sl_mpi_attendance(rank)->hash) first++;
    return first;
}

static bool open_exchange(struct exchange *exchange) {
    const int size = sl_mpi_process()->size;
    int total = 0;
    exchange->bytes = calloc((size_t)size, sizeof *exchange->bytes);
    exchange->place = calloc((size_t)size, sizeof *exchange->place);
    exchange->theirs = calloc((size_t)size, sizeof *exchange->theirs);
    if (!exchange->bytes || !exchange->place || !exchange->theirs) return false;
    for (int rank = 0; rank < size; rank++) {
        exchange->place[rank] = total;
        if (first_like(rank) == rank) exchange->bytes[rank] = sl_mpi_attendance(rank)->bytes;
        total += exchange->bytes[rank];
    }
    exchange->all = malloc((size_t)total + 1);
    for (int rank = 0; rank < size && exchange->all; rank++) {
        const int first = first_like(rank);
        exchange->theirs[rank] =
            (struct sl_signed){exchange->all + exchange->place[first], (size_t)exchange->bytes[first]};
    }
    return exchange->all;
}

static void close_exchange(struct exchange *exchange) {
    free(exchange->bytes);
    free(exchange->place);
    free(exchange->all);
    free(exchange->theirs);
}

static int tell_differences(const struct sl_mesh *mesh, const struct sl_signature *mine, struct sl_error *error) {
    struct sl_mpi_process *process = sl_mpi_process();
    struct exchange exchange = {0};
    struct sl_mpi_missing missing;
    MPI_Request request;
    if (!open_exchange(&exchange)) {
        close_exchange(&exchange);
        process->lost = true; /* for the others, which exchange */
        return refuse(error);
    }
    MPI_Iallgatherv(mine->bytes, exchange.bytes[process->rank], MPI_BYTE, exchange.all, exchange.bytes, exchange.place,
                    MPI_BYTE, process->comm, &request);
    if (!sl_mpi_await(&request, &missing)) /* MPI may still write into the memory */
        return sl_mpi_report_missing(mesh, &missing, "before the run began", error);
    sl_error_set(error, SL_BAD_INPUT, "engine mpi: ");
    sl_verdict_signatures(error, mesh, process->size, exchange.theirs);
    close_exchange(&exchange);
    return error->status;
}

/* ---- the meeting ---- */

/* Checks whether all have come for a run. */
static int check_attendance(struct sl_error *error) {
    struct sl_mpi_process *process = sl_mpi_process();
    for (int rank = 0; rank < process->size; rank++) {
        const struct sl_mpi_attendance *other = sl_mpi_attendance(rank);
        if (other->occasion == SL_MPI_START) continue;
        process->parting = other->occasion == SL_MPI_LEAVE;
        if (!process->parting)
            return sl_error_set(error, SL_FAILED, "engine mpi: processes %d and %d start different runs", process->rank,
                                rank);
        return sl_error_set(error, other->status ? other->status : SL_FAILED,
                            "engine mpi: process %d has exited instead of starting the run", rank);
    }
    return SL_OK;
}

static int meet(const struct sl_mesh *mesh, int number, const struct sl_signature *mine, struct sl_error *error) {
    const int size = sl_mpi_process()->size, most = INT_MAX / size < MOST_BYTES ? INT_MAX / size : MOST_BYTES;
    struct sl_mpi_missing missing;
    sl_mpi_meet(&(struct sl_mpi_attendance){.occasion = SL_MPI_START,
                                            .number = number,
                                            .bytes = mine->size < (size_t)most ? (int)mine->size : most,
                                            .hash = sl_signature_hash(mine)});
    if (!sl_mpi_await_all(&missing)) return sl_mpi_report_missing(mesh, &missing, "before the run began", error);
    SL_TRY(check_attendance(error));
    for (int rank = 0; rank < size; rank++)
        if (first_like(rank) != 0) return tell_differences(mesh, mine, error);
    return SL_OK;
}

/* Checks the number of processes against the mesh, on which all agree. */
static int check_processes(const struct sl_mesh *mesh, const struct sl_engine *engine, struct sl_error *error) {
    const int size = sl_mpi_process()->size, wanted = mesh->size;
    char axes[200];
    sl_mesh_print(mesh, axes, sizeof axes);
    if (!sl_device.shares_memory && engine->table == &sl_engine_mpi)
        return sl_error_set(error, SL_BAD_INPUT,
                            "engine mpi moves data in the host's memory, and layers compute in memory of devices "
                            "(%s): use engine nccl, or a build of another preset",
                            sl_device.name);
    if (size == wanted || (size > wanted && engine->spare)) return SL_OK;
    if (size == 1)
        return sl_error_set(error, SL_BAD_INPUT,
                            "engine mpi: the mesh %s needs %d processes, this is a single one: start it by "
                            "mpirun -n %d PROGRAM, or by srun",
                            axes, wanted, wanted);
    return sl_error_set(error, SL_BAD_INPUT, "engine mpi: the mesh %s needs %d processes, the launcher has started %d",
                        axes, wanted, size);
}

int sl_mpi_start_together(const struct sl_mesh *mesh, const struct sl_engine *engine, int number,
                          struct sl_error *error) {
    struct sl_signature mine = {0};
    if (sl_mpi_process()->lost)
        return sl_error_set(error, SL_FAILED, "engine mpi: a process was lost in an earlier run");
    int status = sign(mesh, engine, number, &mine) ? meet(mesh, number, &mine, error) : refuse(error);
    if (!status) status = check_processes(mesh, engine, error);
    sl_signature_free(&mine);
    return status;
}
