/* fit.h - compares the coordinates' planned memory with the limits of their machines, processes and devices. */
#ifndef SL_DRIVERS_MEMORY_FIT_H
#define SL_DRIVERS_MEMORY_FIT_H

#include "drivers/memory/memory_report.h"

/* A limit, and the need of the coordinates sharing it. */
struct sl_misfit {
    enum sl_limit limit;
    double need, room, whole; /* bytes: planned by these coordinates together; still available; the limit itself */
    double besides;           /* part of `need`: their processes' other memory, for shared limits */
    int fullest, others;      /* the coordinate with the largest need, and the number of other coordinates sharing
                               * the limit */
    double most;              /* bytes of the fullest */
};

/* Whether MEMORY[mesh->size], gathered at planning time, fits. If it does not, MISFIT is the first kind of limit
 * that is exceeded; within this kind, the limit exceeded by the largest factor. */
bool sl_memory_fits(const struct sl_memory *memory, const struct sl_mesh *mesh, struct sl_misfit *misfit);

/* Returns the need of the coordinates with which COORDINATE shares LIMIT, itself included. */
struct sl_misfit sl_memory_sharing(const struct sl_memory *memory, const struct sl_mesh *mesh, int coordinate,
                                   enum sl_limit limit);

/* Writes "this machine has 20.10 GB free of 24.00 GB" to TEXT [size], for a limit with ROOM left. Returns TEXT. */
char *sl_limit_describe(enum sl_limit limit, double room, double whole, char *text, size_t size);
/* Writes "1.53 GB", "20.1 MB" to TEXT [size]. Returns TEXT. */
char *sl_bytes_describe(double bytes, char *text, size_t size);

#endif
