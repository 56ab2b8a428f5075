/* swap.h - the leaders' part of short calls of all_to_all over several hosts, for hosts.c. */
#ifndef SL_COLLECTIVES_MPI_SWAP_H
#define SL_COLLECTIVES_MPI_SWAP_H

#include "collectives/mpi/hosts.h"

SL_BEGIN_C

/* Bytes of a leader's buffer. */
size_t sl_mpi_swap_room(const struct sl_mpi_call *c);
/* Copies the blocks of this host's members from their mailboxes. */
void sl_mpi_swap_collect(const struct sl_mpi_call *c);
/* Begins the step c->step, a message each way, and takes the data of an ended one. */
void sl_mpi_swap_exchange(struct sl_mpi_call *c);
void sl_mpi_swap_take(const struct sl_mpi_call *c);
/* Writes the results of this host's members, one member after another. Returns their bytes. */
size_t sl_mpi_swap_results(const struct sl_mpi_call *c, char *result);

SL_END_C
#endif
