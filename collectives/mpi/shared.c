/* shared.c - memory that processes of one host share.
 *
 * It has no name: whoever has made it tells the others its own process and the number of the file there, under which
 * they find it. So nothing is left behind, however processes end. */
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "collectives/mpi/engine.h"

/* A file that would be larger than files may be ends the process. */
static bool may_be(size_t bytes) {
    struct rlimit limit;
    return !getrlimit(RLIMIT_FSIZE, &limit) && (limit.rlim_cur == RLIM_INFINITY || bytes <= limit.rlim_cur);
}

static void *map(int file, size_t bytes) {
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

void *sl_mpi_share(size_t bytes, struct sl_mpi_origin *origin) {
    struct stat made;
    void *memory = NULL;
    *origin = (struct sl_mpi_origin){.pid = getpid(), .file = -1};
    const int file = may_be(bytes) ? memfd_create("shardloop", MFD_CLOEXEC) : -1;
    if (file < 0) return NULL;
    if (!ftruncate(file, (off_t)bytes) && !fstat(file, &made)) memory = map(file, bytes);
    if (!memory) {
        close(file);
        return NULL;
    }
    origin->file = file;
    origin->device = (int64_t)made.st_dev;
    origin->inode = (int64_t)made.st_ino;
    return memory;
}

void sl_mpi_stop_sharing(struct sl_mpi_origin *origin) {
    if (origin->file >= 0) close((int)origin->file);
    origin->file = -1;
}

/* Processes may have the same number in different containers: what is found has to be what was made. */
void *sl_mpi_share_of(size_t bytes, const struct sl_mpi_origin *origin) {
    char path[64];
    struct stat found;
    void *memory = NULL;
    if (origin->file < 0) return NULL;
    snprintf(path, sizeof path, "/proc/%lld/fd/%lld", (long long)origin->pid, (long long)origin->file);
    const int file = open(path, O_RDWR | O_CLOEXEC);
    if (file < 0) return NULL;
    if (!fstat(file, &found) && (int64_t)found.st_dev == origin->device && (int64_t)found.st_ino == origin->inode)
        memory = map(file, bytes);
    close(file);
    return memory;
}

void sl_mpi_unmap(void *memory, size_t bytes) {
    if (memory) munmap(memory, bytes);
}

/* Whoever is not seen from here cannot ring here. */
static bool sees_all(void) {
    bool all = true;
    for (int rank = 0; rank < sl_mpi_process()->size; rank++) all = all && sl_mpi_is_neighbour(rank);
    return all;
}

void *sl_mpi_share_with_all(MPI_Comm host, size_t bytes) {
    const bool makes = sl_mpi_process()->local_rank == 0;
    struct sl_mpi_origin origin = {.file = -1};
    int mapped, all;
    void *memory = makes ? sl_mpi_share(bytes, &origin) : NULL;
    MPI_Bcast(&origin, sizeof origin, MPI_BYTE, 0, host);
    if (!makes && sees_all()) memory = sl_mpi_share_of(bytes, &origin);
    mapped = memory && sees_all();
    MPI_Allreduce(&mapped, &all, 1, MPI_INT, MPI_MIN, host);
    if (makes) sl_mpi_stop_sharing(&origin);
    if (all) return memory;
    sl_mpi_unmap(memory, bytes);
    return NULL;
}
