/* process.h - parts of this process's resident memory: the coordinates' memory is counted at its allocation, other
 * parts are named here. */
#ifndef SL_DRIVERS_MEMORY_PROCESS_H
#define SL_DRIVERS_MEMORY_PROCESS_H

#include <stdio.h>

#include "spmd/base/base.h"

/* Bytes in RAM. */
enum sl_process_part {
    SL_PROCESS_LIBRARIES, /* the program and its libraries: code and constants */
    SL_PROCESS_FILES,     /* other mapped files: data, parameters */
    SL_PROCESS_SHARED,    /* memory shared by processes */
    SL_PROCESS_STACKS,    /* of threads */
    SL_PROCESS_CODE,      /* generated code */
    SL_PROCESS_HEAP,      /* heap memory of others than coordinates: the driver, libraries */
    SL_PROCESS_FREED,     /* freed memory that the heap keeps */
    SL_PROCESS_PARTS
};

/* Their names, as keys of JSON. */
extern const char *const sl_process_part_name[SL_PROCESS_PARTS];

struct sl_process_memory {
    double resident; /* all of it; 0: unknown */
    double part[SL_PROCESS_PARTS];
    double unexplained; /* the rest; negative if allocated memory has not been touched */
};

/* Reads mappings from FILE, in the format of /proc/self/smaps: resident bytes and their parts; *OTHERS becomes the
 * bytes of the heap and of mappings without a name. The first file in the list is the program. Returns false if FILE
 * is not such a list. */
bool sl_process_memory_parse(FILE *file, struct sl_process_memory *memory, double *others);

/* Returns this process's memory; its coordinates HOLD so many bytes of the host's memory. */
struct sl_process_memory sl_process_memory_now(double held);

/* Returns the expected bytes of a process besides its COORDINATES' plans of PLANNED bytes together: libraries, the
 * driver's own data, threads' stacks, and copies that the library of products makes for each coordinate. An upper
 * estimate, partly allocated already at the time of the call: exceeding a control group's limit would end the
 * process without a message. */
double sl_process_besides(int coordinates, double planned);

/* Returns the maximal resident memory of this process so far. */
double sl_peak_bytes(void);

#endif
