/* pretend_hosts.c - engine mpi takes processes of this host for those of several. SL_TEST_HOSTS has the numbers of
 * processes on each, as in "3,5,8"; further hosts have the last number. If it is not set, there is one host. With
 * SL_TEST_REAL_HOSTS, MPI finds the hosts. For programs that link it, or load it before MPI. */
#include <mpi.h>
#include <stdlib.h>

int MPI_Comm_split_type(MPI_Comm comm, int type, int key, MPI_Info info, MPI_Comm *new) {
    const char *sizes = getenv("SL_TEST_HOSTS");
    int rank, host = 0, size = 1;
    if (!sizes || getenv("SL_TEST_REAL_HOSTS") || type != MPI_COMM_TYPE_SHARED)
        return PMPI_Comm_split_type(comm, type, key, info, new);
    MPI_Comm_rank(comm, &rank);
    for (;; rank -= size, host++) {
        if (*sizes) size = atoi(sizes);
        if (rank < size || size < 1) break;
        while (*sizes && *sizes++ != ',') continue;
    }
    return MPI_Comm_split(comm, host, key, new);
}
