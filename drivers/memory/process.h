/* process.h - what this process's resident memory consists of: the coordinates' is counted where it is taken, and the
 * rest has names here. */
#ifndef SL_DRIVERS_MEMORY_PROCESS_H
#define SL_DRIVERS_MEMORY_PROCESS_H

#include <stdio.h>

#include "spmd/base/base.h"

/* Bytes in RAM. */
enum sl_process_part {
    SL_PROCESS_LIBRARIES, /* the program and its libraries: code and constants */
    SL_PROCESS_FILES,     /* other files that are mapped: data, parameters */
    SL_PROCESS_SHARED,    /* memory that processes share */
    SL_PROCESS_STACKS,    /* of threads */
    SL_PROCESS_CODE,      /* generated code */
    SL_PROCESS_HEAP,      /* taken from the heap by others than coordinates: the driver, libraries */
    SL_PROCESS_FREED,     /* given back to the heap, which keeps it */
    SL_PROCESS_PARTS
};

/* Their names, as keys of JSON. */
extern const char *const sl_process_part_name[SL_PROCESS_PARTS];

struct sl_process_memory {
    double resident; /* all of it; 0: unknown */
    double part[SL_PROCESS_PARTS];
    double unexplained; /* the rest: negative where memory that was taken has not been touched */
};

/* Mappings as /proc/self/smaps lists them, read from FILE: resident bytes and the parts that it tells; *OTHERS becomes
 * those of the heap and of memory without a name. The first file in the list is the program. False where FILE is no
 * such list. */
bool sl_process_memory_parse(FILE *file, struct sl_process_memory *memory, double *others);

/* This process's, of which its coordinates HOLD so many bytes of the host's memory. */
struct sl_process_memory sl_process_memory_now(double held);

/* What a process is likely to take besides what its COORDINATES plan to take, PLANNED bytes together: libraries, the
 * driver's own data, threads' stacks, and the copies that the library of products makes for each coordinate. An
 * estimate from above, of which a part may be there when it is asked for, because a control group that is exceeded ends
 * the process without a word. */
double sl_process_besides(int coordinates, double planned);

/* The most that this process has had in RAM. */
double sl_peak_bytes(void);

#endif
