/* limits.h - memory still available to this process, its machine and its device. */
#ifndef SL_DRIVERS_MEMORY_LIMITS_H
#define SL_DRIVERS_MEMORY_LIMITS_H

#include <stdio.h>

#include "spmd/base/base.h"

enum sl_limit {
    SL_LIMIT_MACHINE,   /* RAM and swap: shared by all processes of the machine */
    SL_LIMIT_CONTAINER, /* of the process's control group: shared, too */
    SL_LIMIT_ADDRESSES, /* RLIMIT_AS, per process */
    SL_LIMIT_DATA,      /* RLIMIT_DATA, per process */
    SL_LIMIT_DEVICE,    /* the device's memory: shared by its coordinates */
    SL_LIMITS
};

/* Whether all processes of a machine share the limit. */
static inline bool sl_limit_is_shared(enum sl_limit limit) { return limit <= SL_LIMIT_CONTAINER; }

/* Bytes; infinite without a limit. */
struct sl_limits {
    double room[SL_LIMITS];  /* still available */
    double whole[SL_LIMITS]; /* the limit itself */
};

/* Returns the limits of this process at present, including the calling thread's device. */
struct sl_limits sl_limits_now(void);

/* Returns the bytes of KEY ("MemAvailable") in FILE, with lines "KEY: NUMBER kB" or "KEY NUMBER", the latter in
 * bytes; NAN if missing. */
double sl_limits_find(FILE *file, const char *key);
/* Finds in FILE, like /proc/self/cgroup, the path of the control group that limits memory, and writes it to PATH
 * [size]; *UNIFIED: version 2 of control groups instead of 1. Returns false if there is none. */
bool sl_limits_find_group(FILE *file, char *path, size_t size, bool *unified);

#endif
