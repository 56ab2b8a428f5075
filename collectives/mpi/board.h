/* board.h - what the processes of a host know of each other. */
#ifndef SL_COLLECTIVES_MPI_BOARD_H
#define SL_COLLECTIVES_MPI_BOARD_H

#include <mpi.h>

#include "spmd/base/base.h"

SL_BEGIN_C

/* Collective over HOST. */
void sl_mpi_board_open(MPI_Comm host);

/* A process of this host that has ended, or that is stopped, or -1: as of a tick ago. All together look once a tick. */
int sl_mpi_find_gone(void);
int sl_mpi_find_still(void);

enum { SL_MPI_PLACE = 300 }; /* bytes of a place as text */
/* What a process is at. */
struct sl_mpi_note {
    int32_t run;
    int32_t state, peer;      /* enum state in verdict.c; for whom it waits */
    uint32_t number;          /* of its waits */
    char place[SL_MPI_PLACE]; /* of its latest call */
};
/* Whether somebody has asked since this process wrote a note. */
bool sl_mpi_is_asked(void);
void sl_mpi_write_note(const struct sl_mpi_note *note);
/* Asks the process of RANK for a note. False where that takes a message. Writes its latest note, and when it was
 * written; 0: there is none that counts. */
bool sl_mpi_ask_neighbour(int rank, struct sl_mpi_note *note, double *written);
/* Notes that in the run of that number nothing writes into this process's buffers any more; and whether RANK has. */
void sl_mpi_note_quiet(int run);
bool sl_mpi_is_noted_quiet(int rank, int run);

SL_END_C
#endif
