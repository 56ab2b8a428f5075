/* fit.h - whether what coordinates plan to take is there: in their machines, their processes and their devices. */
#ifndef SL_DRIVERS_MEMORY_FIT_H
#define SL_DRIVERS_MEMORY_FIT_H

#include "drivers/memory/report.h"

/* A limit, and what the coordinates that share it need. */
struct sl_misfit {
    enum sl_limit limit;
    double need, room, whole; /* bytes: of these coordinates together; that can be taken; the limit itself */
    double besides;           /* of the need, what their processes take besides coordinates, where processes share */
    int fullest, others;      /* the coordinate that needs most, and how many other ones share the limit */
    double most;              /* bytes of the fullest */
};

/* Whether MEMORY[mesh->size], as it was gathered when all was planned, fits. If it does not, MISFIT is the first kind
 * of limit that is exceeded, and of that kind the one that is exceeded by the largest factor. */
bool sl_memory_fits(const struct sl_memory *memory, const struct sl_mesh *mesh, struct sl_misfit *misfit);

/* The coordinates with which COORDINATE shares LIMIT, itself among them. */
struct sl_misfit sl_memory_sharing(const struct sl_memory *memory, const struct sl_mesh *mesh, int coordinate,
                                   enum sl_limit limit);

/* "this machine has 20.10 GB free of 24.00 GB" in TEXT [size], of a limit of which ROOM is left. Returns TEXT. */
char *sl_limit_describe(enum sl_limit limit, double room, double whole, char *text, size_t size);
/* "1.53 GB", "20.1 MB" in TEXT [size]. Returns TEXT. */
char *sl_bytes_describe(double bytes, char *text, size_t size);

#endif
