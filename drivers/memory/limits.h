/* limits.h - how much more memory this process, its machine and its device can give. */
#ifndef SL_DRIVERS_MEMORY_LIMITS_H
#define SL_DRIVERS_MEMORY_LIMITS_H

#include <stdio.h>

#include "spmd/base/base.h"

enum sl_limit {
    SL_LIMIT_MACHINE,   /* RAM and swap: all processes of the machine share them */
    SL_LIMIT_CONTAINER, /* of the control group in which the process runs: shared, too */
    SL_LIMIT_ADDRESSES, /* RLIMIT_AS: the process's */
    SL_LIMIT_DATA,      /* RLIMIT_DATA: the process's */
    SL_LIMIT_DEVICE,    /* the device's memory: its coordinates share it */
    SL_LIMITS
};

/* Whether all processes of a machine share it. */
static inline bool sl_limit_is_shared(enum sl_limit limit) { return limit <= SL_LIMIT_CONTAINER; }

/* Bytes; infinite where there is no limit. */
struct sl_limits {
    double room[SL_LIMITS];  /* that can still be taken */
    double whole[SL_LIMITS]; /* the limit itself */
};

/* What this process finds now, on its calling thread's device, too. */
struct sl_limits sl_limits_now(void);

/* The bytes of KEY ("MemAvailable") in FILE, whose lines are "KEY:  NUMBER kB" or "KEY NUMBER", the latter in bytes;
 * NAN where there is none. */
double sl_limits_find(FILE *file, const char *key);
/* From FILE, which is like /proc/self/cgroup: the path of the control group that limits memory, in PATH [size];
 * *UNIFIED tells version 2 of control groups from 1. False where there is none. */
bool sl_limits_find_group(FILE *file, char *path, size_t size, bool *unified);

#endif
