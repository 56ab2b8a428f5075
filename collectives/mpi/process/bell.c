/* bell.c - lets a waiting process sleep until a neighbour has data for it.
 *
 * MPI can only wait by polling. If processes share cores, a polling process takes the core from working ones. So each
 * process has a bell in shared memory. A process that has data for another one rings the other's bell, and says whether
 * the data are a message of MPI's: for data in shared memory the other need not poll MPI. A waiting process checks for
 * data and sleeps until its bell rings. Other hosts cannot ring here: a wait for another host sleeps only briefly. */
#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "collectives/engines.h"
#include "collectives/mpi/process/process.h"
#include "collectives/mpi/process/shared.h"

enum {
    SPINS = 200,       /* if every process has its own core: polls without a pause, about 100 us */
    YIELDS = 8,        /* next; if cores are shared, at once */
    TAKEN_US = 3,      /* a longer yield let another process work, not only poll */
    NAP_US = 50,       /* then */
    DOZE_US = 1000,    /* longest sleep without data of the program to wait for, or if a bell would ring: parts of long
                          messages do not ring */
    SPINS_A_LOOK = 16, /* between two readings of the clock */
};

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

/* ---- pauses of a wait ---- */

/* Sleeps until the bell has rung more often than RINGS, at most NS nanoseconds (below a second). */
static void sleep_at_most(uint32_t rings, long ns) {
    const struct timespec time = {.tv_nsec = ns};
    atomic_store(&own()->sleeps, 1);
    if (atomic_load(&own()->rings) == rings) syscall(SYS_futex, &own()->rings, FUTEX_WAIT, rings, &time, NULL, 0);
    atomic_store(&own()->sleeps, 0);
}

static void relax(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

/* Whether ROUND ends without a sleep. */
static bool stays_awake(int round) {
    const int spins = sl_mpi_process()->spin ? SPINS : 0;
    if (round >= spins && round < spins + YIELDS) sched_yield();
    return round < spins + YIELDS;
}

/* Nanoseconds of a sleep: with each one before it twice as many. */
static long longer(int round) {
    const int doubled = round - YIELDS - (sl_mpi_process()->spin ? SPINS : 0);
    return 1000L * (doubled < 5 ? NAP_US << doubled : DOZE_US);
}

static void nap(long ns) { nanosleep(&(struct timespec){.tv_nsec = ns}, NULL); }

void sl_mpi_pause(int round) {
    if (!stays_awake(round)) nap(longer(round));
}

void sl_mpi_pause_for_letter(int round, uint32_t rings) {
    if (stays_awake(round)) return;
    if (sl_mpi_has_bells())
        sleep_at_most(rings, sl_mpi_bells_tell_all() ? longer(round) : 1000L * NAP_US);
    else
        nap(1000L * NAP_US);
}

/* Whether the bell rings within a few checks, or after one yield if cores are shared. */
static bool is_rung(uint32_t rings) {
    if (!sl_mpi_process()->spin) {
        sched_yield();
        return sl_mpi_rings() != rings;
    }
    for (int i = 0; i < SPINS_A_LOOK; i++) {
        relax();
        if (sl_mpi_rings() != rings) return true;
    }
    return false;
}

/* If cores are shared, the process sleeps after a few yields in which others worked. As long as no process uses the
 * core, staying awake is better: waking up takes long. */
bool sl_mpi_pause_until_rung(uint32_t rings) {
    double now = sl_now();
    const double end = now + SL_AWAKE_SECONDS;
    for (int taken = 0; taken < YIELDS && now < end;) {
        const double before = now;
        if (is_rung(rings)) return true;
        now = sl_now();
        taken += !sl_mpi_process()->spin && now - before > 1e-6 * TAKEN_US;
    }
    sleep_at_most(rings, 1000000L * SL_MPI_TICK_MS);
    return sl_mpi_rings() != rings;
}

/* ---- requests of MPI's ---- */

bool sl_mpi_is_pending(MPI_Request request) {
    int ended = 1;
    if (request != MPI_REQUEST_NULL) MPI_Request_get_status(request, &ended, MPI_STATUS_IGNORE);
    return !ended;
}

void sl_mpi_withdraw_receive(MPI_Request *request, double end) {
    int ended = !sl_mpi_is_pending(*request);
    if (!ended) MPI_Cancel(request);
    for (int round = 0; !ended; round++) {
        MPI_Test(request, &ended, MPI_STATUS_IGNORE);
        if (sl_now() > end) break;
        if (!ended) sl_mpi_pause(round);
    }
}
