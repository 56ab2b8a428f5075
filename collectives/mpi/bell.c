/* bell.c - lets who waits sleep, until a neighbour has something for it.
 *
 * MPI only knows waiting as asking again and again. Where processes share cores, whoever asks takes the core from those
 * who work. So each process has a bell in memory that all processes share. Who has sent a message rings
 * its receiver's, who has received one its sender's; who waits looks at what has come, and sleeps until its bell rings.
 * There are bells only where all processes are on one host: who waited for another host would sleep too long.
 * MPI may have more to do than bells tell, such as the next part of a long message: so nobody sleeps for long. */
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "collectives/mpi/engine.h"

/* SC: who rings sees that the owner sleeps, or the owner that it has rung. */
struct bell {
    _Alignas(SL_CACHE_LINE) _Atomic uint32_t rings;
    _Atomic uint32_t sleeps;
};

static struct bell *bells; /* [processes], by rank; NULL: there are none */

/* What the first process has made, as the others find it: memory without a name, of which nothing is left behind. */
struct origin {
    int64_t pid, file, device, inode;
};

static bool is_it(int file, const struct origin *origin) {
    struct stat found;
    return file >= 0 && !fstat(file, &found) && (int64_t)found.st_dev == origin->device &&
           (int64_t)found.st_ino == origin->inode;
}

static void make(size_t bytes, struct origin *origin) {
    struct stat made = {0};
    origin->pid = getpid();
    origin->file = memfd_create("shardloop bells", MFD_CLOEXEC);
    if (origin->file < 0 || ftruncate((int)origin->file, (off_t)bytes) || fstat((int)origin->file, &made)) return;
    origin->device = (int64_t)made.st_dev;
    origin->inode = (int64_t)made.st_ino;
}

static int open_there(const struct origin *origin) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%lld/fd/%lld", (long long)origin->pid, (long long)origin->file);
    return open(path, O_RDWR | O_CLOEXEC);
}

/* Whoever is not seen from here cannot ring here. */
static bool sees_all(void) {
    bool all = true;
    for (int rank = 0; rank < sl_mpi_process()->size; rank++) all = all && sl_mpi_is_neighbour(rank);
    return all;
}

void sl_mpi_bells_open(MPI_Comm host) {
    const size_t bytes = (size_t)sl_mpi_process()->size * sizeof *bells;
    const bool makes = sl_mpi_process()->local_rank == 0;
    struct origin origin = {.file = -1};
    void *memory = MAP_FAILED;
    int all;
    if (makes) make(bytes, &origin);
    MPI_Bcast(&origin, sizeof origin, MPI_BYTE, 0, host);
    const int file = makes ? (int)origin.file : origin.file < 0 ? -1 : open_there(&origin);
    if (origin.inode && sees_all() && is_it(file, &origin))
        memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    const int mapped = memory != MAP_FAILED;
    MPI_Allreduce(&mapped, &all, 1, MPI_INT, MPI_MIN, host);
    if (file >= 0) close(file);
    if (all)
        bells = memory;
    else if (mapped)
        munmap(memory, bytes);
}

bool sl_mpi_has_bells(void) { return bells; }

void sl_mpi_ring(int rank) {
    if (!bells) return;
    atomic_fetch_add(&bells[rank].rings, 1);
    if (atomic_load(&bells[rank].sleeps)) syscall(SYS_futex, &bells[rank].rings, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

uint32_t sl_mpi_rings(void) { return bells ? atomic_load(&bells[sl_mpi_process()->rank].rings) : 0; }

void sl_mpi_sleep(uint32_t rings, long ns) {
    struct bell *own = &bells[sl_mpi_process()->rank];
    const struct timespec time = {.tv_nsec = ns};
    atomic_store(&own->sleeps, 1);
    if (atomic_load(&own->rings) == rings) syscall(SYS_futex, &own->rings, FUTEX_WAIT, rings, &time, NULL, 0);
    atomic_store(&own->sleeps, 0);
}
