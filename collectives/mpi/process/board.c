/* board.c - state shared by the processes of a host in one page of memory.
 *
 * Processes that wait for others check now and then whether all are alive, and whether one is stopped. If each did it
 * alone, the checks would grow with the square of the processes. So one check counts for all: the first process to
 * check after a tick checks all processes of the host, the others read its result.
 *
 * Each process also has a note with its state. A waiting process writes its own once a tick; a computing one writes it
 * at its next call after it has been asked. So neighbours ask each other without messages. */
#include <stdalign.h>
#include <stdatomic.h>
#include <string.h>

#include "collectives/mpi/process/board.h"
#include "collectives/mpi/process/process.h"
#include "collectives/mpi/process/shared.h"

struct finding {
    _Atomic uint64_t looked; /* us: time of the last check */
    _Atomic int32_t rank;    /* 1 + rank of the process found; 0: none */
};

struct note {
    alignas(SL_CACHE_LINE) _Atomic uint32_t version; /* odd while its owner writes; 0: never written */
    _Atomic uint32_t asked;                          /* since the last writing */
    _Atomic uint32_t quiet;                          /* the run in which nothing writes into its buffers any more */
    double written;
    struct sl_mpi_note text;
};

struct board {
    alignas(SL_CACHE_LINE) struct finding gone, stopped;
    struct note note[];
};

/* Without shared memory each process has its own board, without notes. */
static struct board own_board, *board = &own_board;
static bool has_notes;

void sl_mpi_board_open(MPI_Comm host) {
    const size_t here = (size_t)sl_mpi_process()->here;
    struct board *shared = sl_mpi_share_with_all(host, sizeof *shared + here * sizeof *shared->note);
    has_notes = shared;
    if (shared) board = shared;
}

/* ---- missing processes ---- */

static bool stands_still(int rank) { return rank != sl_mpi_process()->rank && sl_mpi_is_stopped_here(rank); }

/* The first one. So an ended process beyond a run's mesh, which comes last, does not hide one that the run needs. */
static int look(bool (*is)(int rank)) {
    for (int rank = 0; rank < sl_mpi_process()->size; rank++)
        if (sl_mpi_is_neighbour(rank) && is(rank)) return rank;
    return -1;
}

static int find(struct finding *finding, bool (*is)(int rank)) {
    const uint64_t now = (uint64_t)(1e6 * sl_now());
    uint64_t looked = atomic_load(&finding->looked);
    const bool due = now >= looked + 1000 * (sl_mpi_terminated() ? SL_MPI_LAST_TICK_MS : SL_MPI_TICK_MS);
    if (due && atomic_compare_exchange_strong(&finding->looked, &looked, now))
        atomic_store(&finding->rank, 1 + look(is));
    return atomic_load(&finding->rank) - 1;
}

int sl_mpi_find_gone(void) { return find(&board->gone, sl_mpi_is_gone); }
int sl_mpi_find_still(void) { return find(&board->stopped, stands_still); }

/* ---- notes ---- */

static struct note *note_of(int rank) {
    return has_notes && sl_mpi_is_neighbour(rank) ? &board->note[sl_mpi_place_of(rank)] : NULL;
}

bool sl_mpi_is_asked(void) {
    const struct note *note = note_of(sl_mpi_process()->rank);
    return note && atomic_load_explicit(&note->asked, memory_order_relaxed);
}

void sl_mpi_write_note(const struct sl_mpi_note *text) {
    struct note *note = note_of(sl_mpi_process()->rank);
    if (!note) return;
    const uint32_t version = atomic_load_explicit(&note->version, memory_order_relaxed);
    atomic_store_explicit(&note->asked, 0, memory_order_relaxed);
    atomic_store_explicit(&note->version, version + 1, memory_order_relaxed);
    atomic_thread_fence(memory_order_release);
    note->written = sl_now();
    note->text = *text;
    atomic_store_explicit(&note->version, version + 2, memory_order_release);
}

bool sl_mpi_ask_neighbour(int rank, struct sl_mpi_note *text, double *written) {
    struct note *note = note_of(rank);
    if (!note) return false;
    *written = 0;
    atomic_store_explicit(&note->asked, 1, memory_order_relaxed);
    const uint32_t version = atomic_load_explicit(&note->version, memory_order_acquire);
    const double when = note->written;
    *text = note->text;
    atomic_thread_fence(memory_order_acquire);
    const bool whole = !(version & 1) && atomic_load_explicit(&note->version, memory_order_relaxed) == version;
    if (version && whole) *written = when;
    return true;
}

void sl_mpi_note_quiet(int run) {
    struct note *note = note_of(sl_mpi_process()->rank);
    if (note) atomic_store_explicit(&note->quiet, (uint32_t)run, memory_order_release);
}

bool sl_mpi_is_noted_quiet(int rank, int run) {
    const struct note *note = note_of(rank);
    return note && atomic_load_explicit(&note->quiet, memory_order_acquire) == (uint32_t)run;
}
