/* bell.c - lets who waits sleep, until a neighbour has something for it.
 *
 * MPI only knows waiting as asking again and again. Where processes share cores, whoever asks takes the core from those
 * who work. So each process has a bell in memory that the processes of this host share. Who has sent a message rings
 * its receiver's, who has received one its sender's; who waits looks at what has come, and sleeps until its bell rings.
 * MPI may have more to do than bells tell, such as the next part of a long message: so nobody sleeps for long. */
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/mman.h>
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

/* The first process of the host makes the memory, under a name that is gone when all have it. */
void sl_mpi_bells_open(MPI_Comm host) {
    const size_t bytes = (size_t)sl_mpi_process()->size * sizeof *bells;
    char name[40];
    int first = (int)getpid(), made = 0, mapped, all;
    void *memory = MAP_FAILED;
    MPI_Bcast(&first, 1, MPI_INT, 0, host);
    snprintf(name, sizeof name, "/shardloop.%d", first);
    const bool makes = sl_mpi_process()->local_rank == 0;
    int file = makes ? shm_open(name, O_CREAT | O_EXCL | O_RDWR, 0600) : -1;
    if (makes) made = file >= 0 && !ftruncate(file, (off_t)bytes);
    MPI_Bcast(&made, 1, MPI_INT, 0, host);
    if (made && !makes) file = shm_open(name, O_RDWR, 0);
    if (made && file >= 0) memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    mapped = memory != MAP_FAILED;
    MPI_Allreduce(&mapped, &all, 1, MPI_INT, MPI_MIN, host);
    if (makes && file >= 0) shm_unlink(name);
    if (file >= 0) close(file);
    if (all)
        bells = memory;
    else if (mapped)
        munmap(memory, bytes);
}

bool sl_mpi_has_bells(void) { return bells; }

void sl_mpi_ring(int rank) {
    if (!bells || !sl_mpi_is_neighbour(rank)) return;
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
