/* board.h - state of the processes of a host, shared among them. */
#ifndef SL_COLLECTIVES_MPI_PROCESS_BOARD_H
#define SL_COLLECTIVES_MPI_PROCESS_BOARD_H

#include <mpi.h>

#include "spmd/base/base.h"

SL_BEGIN_C

/* Collective over HOST. */
void sl_mpi_board_open(MPI_Comm host);

/* An ended, or a stopped, process of this host, or -1: at most a tick old. All processes together check once a tick. */
int sl_mpi_find_gone(void);
int sl_mpi_find_still(void);

enum { SL_MPI_PLACE = 300 }; /* bytes of a place as text */
/* State of a process. */
struct sl_mpi_note {
    int32_t run;
    int32_t state, peer;      /* enum state in ../questions.c; the peer it waits for */
    uint32_t number;          /* of its waits */
    char place[SL_MPI_PLACE]; /* place of its latest call */
};
/* Whether another process has asked since this process wrote its last note. */
bool sl_mpi_is_asked(void);
void sl_mpi_write_note(const struct sl_mpi_note *note);
/* Asks the process of RANK for a note. False if this needs a message. Reads its latest note, and the time at which it
 * was written; 0: no whole note. */
bool sl_mpi_ask_neighbour(int rank, struct sl_mpi_note *note, double *written);
/* note_quiet: reports the end of all writes into this process's buffers in this run; is_noted_quiet: whether RANK has
 * reported it. */
void sl_mpi_note_quiet(int run);
bool sl_mpi_is_noted_quiet(int rank, int run);

SL_END_C
#endif
