/* cores.h - how many cores a run has, and a line where coordinates share them. */
#ifndef SL_DRIVERS_SPEED_CORES_H
#define SL_DRIVERS_SPEED_CORES_H

#include <stdio.h>

#include "spmd/spmd.h"

/* Cores (hardware threads) that the coordinates of a run over ENGINE may use, asked before the run. 0: that is unknown,
 * or not what their times depend on: they are processes that a launcher has placed, or compute on devices. */
int sl_cores_of(const struct sl_engine *engine);

/* How many of a run's SIZE coordinates share how many cores: those of a host, for processes. CORES 0: each has its own,
 * or computes on a device. */
void sl_cores_share(const struct sl_engine *engine, int size, int *coordinates, int *cores);

/* How many cores of this machine each of a run's SIZE coordinates can have, asked before the run: at least 1. For
 * processes, no more than this one may use; on devices 1. */
int sl_cores_each(const struct sl_engine *engine, int size);

/* "8 coordinates share 2 cores: times are not those of 8 devices"; empty where they do not share any. Returns TEXT. */
const char *sl_cores_describe(int coordinates, int cores, char *text, size_t size);

/* The same as a line of its own on STREAM; nothing where they do not share any. */
void sl_cores_print(FILE *stream, int coordinates, int cores);

#endif
