/* shared.c - memory shared by processes of one host.
 *
 * It has no file name: its maker sends the others its process id and file number, by which they find it. So nothing is
 * left behind, however processes end. */
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "collectives/mpi/process/process.h"
#include "collectives/mpi/process/shared.h"

/* Checks the file size limit: a file beyond it would end the process. */
static bool may_be(size_t bytes) {
    struct rlimit limit;
    return !getrlimit(RLIMIT_FSIZE, &limit) && (limit.rlim_cur == RLIM_INFINITY || bytes <= limit.rlim_cur);
}

void *sl_mpi_map(int file, size_t offset, size_t bytes) {
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, (off_t)offset);
    return memory == MAP_FAILED ? NULL : memory;
}

/* Makes a new zeroed file of BYTES, and its ORIGIN for others. -1: failed. */
static int make(size_t bytes, struct sl_mpi_origin *origin) {
    struct stat made;
    *origin = (struct sl_mpi_origin){.pid = getpid(), .file = -1};
    const int file = may_be(bytes) ? memfd_create("shardloop", MFD_CLOEXEC) : -1;
    if (file < 0) return -1;
    if (ftruncate(file, (off_t)bytes) || fstat(file, &made)) {
        close(file);
        return -1;
    }
    origin->file = file;
    origin->device = (int64_t)made.st_dev;
    origin->inode = (int64_t)made.st_ino;
    return file;
}

/* Opens the file of another process; -1: not visible from here. Processes in different containers may have the same
 * number, so the file's device and inode are checked. */
static int find(const struct sl_mpi_origin *origin) {
    char path[64];
    struct stat found;
    if (origin->file < 0) return -1;
    snprintf(path, sizeof path, "/proc/%lld/fd/%lld", (long long)origin->pid, (long long)origin->file);
    const int file = open(path, O_RDWR | O_CLOEXEC);
    if (file < 0) return -1;
    if (!fstat(file, &found) && (int64_t)found.st_dev == origin->device && (int64_t)found.st_ino == origin->inode)
        return file;
    close(file);
    return -1;
}

void *sl_mpi_share(size_t bytes, struct sl_mpi_origin *origin) {
    const int file = make(bytes, origin);
    void *memory = file < 0 ? NULL : sl_mpi_map(file, 0, bytes);
    if (!memory) sl_mpi_stop_sharing(origin);
    return memory;
}

void sl_mpi_stop_sharing(struct sl_mpi_origin *origin) {
    if (origin->file >= 0) close((int)origin->file);
    origin->file = -1;
}

void *sl_mpi_share_of(size_t bytes, const struct sl_mpi_origin *origin) {
    const int file = find(origin);
    void *memory = file < 0 ? NULL : sl_mpi_map(file, 0, bytes);
    if (file >= 0) close(file);
    return memory;
}

void sl_mpi_unmap(void *memory, size_t bytes) {
    if (memory) munmap(memory, bytes);
}

/* Whether all processes of this host are visible from here. Others could not ring here. */
static bool sees_all(void) {
    int seen = 0;
    for (int rank = 0; rank < sl_mpi_process()->size; rank++) seen += sl_mpi_is_neighbour(rank);
    return seen == sl_mpi_process()->here;
}

static bool all_have(MPI_Comm host, bool has) {
    int mine = has, all;
    MPI_Allreduce(&mine, &all, 1, MPI_INT, MPI_MIN, host);
    return all;
}

int sl_mpi_share_file_with_all(MPI_Comm host, size_t bytes) {
    const bool makes = sl_mpi_place_of(sl_mpi_process()->rank) == 0;
    struct sl_mpi_origin origin = {.file = -1};
    int file = makes ? make(bytes, &origin) : -1;
    MPI_Bcast(&origin, sizeof origin, MPI_BYTE, 0, host);
    if (!makes && sees_all()) file = find(&origin);
    if (all_have(host, file >= 0 && sees_all())) return file;
    if (file >= 0) close(file);
    return -1;
}

void *sl_mpi_share_with_all(MPI_Comm host, size_t bytes) {
    const int file = sl_mpi_share_file_with_all(host, bytes);
    void *memory = file < 0 ? NULL : sl_mpi_map(file, 0, bytes);
    const bool all = all_have(host, memory);
    if (file >= 0) close(file);
    if (all) return memory;
    sl_mpi_unmap(memory, bytes);
    return NULL;
}
