/* bell.c - lets a waiting process sleep until a neighbour has data for it.
 *
 * MPI can only wait by polling. If processes share cores, a polling process takes the core from working ones. So each
 * process has a bell in shared memory. A process with data for another rings its bell: for a message of MPI's, or for
 * data in shared memory, for which MPI need not be polled. A waiting process checks for data and sleeps until its bell
 * rings. Each host has its own bells: a wait for another host, which cannot ring here, sleeps only briefly. */
#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "collectives/mpi/engine.h"

/* SC: the ringing process sees the owner's sleep, or the owner sees the ring. A reader that has made room sees the
 * owner's request, or the owner sees the room. */
struct bell {
    _Alignas(SL_CACHE_LINE) _Atomic uint32_t rings;
    _Atomic uint32_t letters; /* rings for messages of MPI's */
    _Atomic uint32_t sleeps;
    _Atomic uint32_t wants_room;
};

static struct bell *bells; /* [processes of this host]; NULL: none */

void sl_mpi_bells_open(MPI_Comm host) {
    bells = sl_mpi_share_with_all(host, (size_t)sl_mpi_process()->here * sizeof *bells);
}

bool sl_mpi_has_bells(void) { return bells; }
bool sl_mpi_bells_tell_all(void) { return bells && sl_mpi_process()->here == sl_mpi_process()->size; }

/* NULL: not on this host. */
static struct bell *bell_of(int rank) {
    return bells && sl_mpi_is_neighbour(rank) ? &bells[sl_mpi_place_of(rank)] : NULL;
}
static struct bell *own(void) { return bell_of(sl_mpi_process()->rank); }

static void ring(struct bell *bell) {
    atomic_fetch_add(&bell->rings, 1);
    if (atomic_load(&bell->sleeps)) syscall(SYS_futex, &bell->rings, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

void sl_mpi_ring(int rank) {
    struct bell *bell = bell_of(rank);
    if (bell) ring(bell);
}

void sl_mpi_ring_for_letter(int rank) {
    struct bell *bell = bell_of(rank);
    if (!bell) return;
    atomic_fetch_add(&bell->letters, 1);
    ring(bell);
}

void sl_mpi_ring_for_room(int rank) {
    struct bell *bell = bell_of(rank);
    if (bell && atomic_load(&bell->wants_room)) ring(bell);
}

void sl_mpi_want_room(bool wants) {
    if (bells && wants != atomic_load_explicit(&own()->wants_room, memory_order_relaxed))
        atomic_store(&own()->wants_room, wants);
}

uint32_t sl_mpi_rings(void) { return bells ? atomic_load(&own()->rings) : 0; }
uint32_t sl_mpi_letters(void) { return bells ? atomic_load(&own()->letters) : 0; }

void sl_mpi_sleep(uint32_t rings, long ns) {
    const struct timespec time = {.tv_nsec = ns};
    atomic_store(&own()->sleeps, 1);
    if (atomic_load(&own()->rings) == rings) syscall(SYS_futex, &own()->rings, FUTEX_WAIT, rings, &time, NULL, 0);
    atomic_store(&own()->sleeps, 0);
}
