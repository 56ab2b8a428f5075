/* cores.h - the cores of a run, and a message if coordinates share them. */
#ifndef SL_DRIVERS_SPEED_CORES_H
#define SL_DRIVERS_SPEED_CORES_H

#include <stdio.h>

#include "spmd/spmd.h"

/* Returns the number of cores (hardware threads) for the coordinates of a run over ENGINE, before the run. Returns 0
 * if the number is unknown or does not affect times: the coordinates are processes that a launcher has placed, or
 * they compute on devices. */
int sl_cores_of(const struct sl_engine *engine);

/* Returns how many of a run's SIZE coordinates share how many cores; for processes, those of a host. CORES 0: each
 * has its own, or computes on a device. */
void sl_cores_share(const struct sl_engine *engine, int size, int *coordinates, int *cores);

/* Returns the number of this machine's cores for each of a run's SIZE coordinates, before the run: at least 1. For
 * processes, at most the cores this one may use; on devices 1. */
int sl_cores_each(const struct sl_engine *engine, int size);

/* Writes "8 coordinates share 2 cores: times are not those of 8 devices", or "" if they share none. Returns TEXT. */
const char *sl_cores_describe(int coordinates, int cores, char *text, size_t size);

/* Prints the same as a line on STREAM; nothing if they share none. */
void sl_cores_print(FILE *stream, int coordinates, int cores);

#endif
