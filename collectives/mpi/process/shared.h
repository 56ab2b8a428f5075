/* shared.h - what the processes of one host share: memory, and bells in it that wake them. */
#ifndef SL_COLLECTIVES_MPI_PROCESS_SHARED_H
#define SL_COLLECTIVES_MPI_PROCESS_SHARED_H

#include <mpi.h>

#include "spmd/base/base.h"

SL_BEGIN_C

/* ---- memory shared by processes of one host (shared.c) ---- */

/* Identifies shared memory to other processes. */
struct sl_mpi_origin {
    int64_t pid, file, device, inode; /* file -1: none */
};

/* Returns new zeroed memory of BYTES without a file name; NULL on failure. Others can map it until its maker stops
 * sharing it; mapped memory stays until it is unmapped. */
void *sl_mpi_share(size_t bytes, struct sl_mpi_origin *origin);
void sl_mpi_stop_sharing(struct sl_mpi_origin *origin);
/* Maps memory made by another process; NULL: not visible from here. */
void *sl_mpi_share_of(size_t bytes, const struct sl_mpi_origin *origin);
void sl_mpi_unmap(void *memory, size_t bytes);
/* Collective over HOST: the same memory for all processes. NULL everywhere if it fails, or if some processes do not see
 * each other. */
void *sl_mpi_share_with_all(MPI_Comm host, size_t bytes);
/* The same for a file without a name, from which each process maps the parts it needs. -1: failed. */
int sl_mpi_share_file_with_all(MPI_Comm host, size_t bytes);
/* Maps BYTES of it from OFFSET on; NULL on failure. */
void *sl_mpi_map(int file, size_t offset, size_t bytes);

/* ---- shared memory of MPI's (segments.c) ---- */

/* Collective over HOST: unlinks MPI's shared memory once all have it mapped. */
void sl_mpi_hide_segments(MPI_Comm host);
/* Called before MPI is left. */
void sl_mpi_show_segments(void);
/* Removes the segments made so far. Called before all processes of this job end while MPI starts. */
void sl_mpi_remove_segments(void);

/* ---- sleeping (bell.c) ---- */

/* Collective over HOST. Without memory for all there are no bells, and waits poll MPI. */
void sl_mpi_bells_open(MPI_Comm host);
bool sl_mpi_has_bells(void);
/* Whether all processes are on this host, and have bells: then a bell rings for each message of MPI's. */
bool sl_mpi_bells_tell_all(void);
/* Wakes the process of RANK, if it sleeps on this host: shared memory holds data for it. */
void sl_mpi_ring(int rank);
/* The same: MPI has a message for it. */
void sl_mpi_ring_for_letter(int rank);
/* ring_for_room: the same if it wants room: a message has been read. A process calls want_room before it checks for
 * room once more. */
void sl_mpi_ring_for_room(int rank);
void sl_mpi_want_room(bool wants);
/* How often this process's bell has rung, in all and for MPI. */
uint32_t sl_mpi_rings(void);
uint32_t sl_mpi_letters(void);

/* Pauses between two polls: the longer, the higher ROUND is, at most 1 ms. So those that wait for all take little time
 * from those that still compute. */
void sl_mpi_pause(int round);
/* The same after RINGS have been seen, if MPI may have a message: each sleep without result makes the next one longer.
 */
void sl_mpi_pause_for_letter(int round, uint32_t rings);
/* Pauses if the bell certainly rings, at most a tick. Returns whether it has. There must be bells. */
bool sl_mpi_pause_until_rung(uint32_t rings);

/* Whether REQUEST, of MPI's, is under way. Does not change it. */
bool sl_mpi_is_pending(MPI_Request request);
/* Ends REQUEST, a receive, whether or not its message is coming. If half of the message has arrived, waits for the rest
 * until END at most: its sender may be lost. */
void sl_mpi_withdraw_receive(MPI_Request *request, double end);

SL_END_C
#endif
