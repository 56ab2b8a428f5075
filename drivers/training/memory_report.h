/* memory_report.h - what memory each coordinate takes: --dry-run, and the end of a training. */
#ifndef SL_DRIVERS_TRAINING_MEMORY_REPORT_H
#define SL_DRIVERS_TRAINING_MEMORY_REPORT_H

#include <jansson.h>

#include "drivers/training/job.h"

/* Bytes of a coordinate. */
struct sl_memory {
    double parameters, gradients, optimizer;
    double activations; /* what is kept between forward and backward, workspace, channels */
};

/* Collective: coordinate 0 gets everyone's in MEMORY[coordinates], as planned. */
int sl_memory_gather(const struct sl_worker *worker, struct sl_memory *memory);

/* Prints MEMORY[mesh->size]: a table with a row a coordinate, or where JSON an object a coordinate. */
int sl_memory_report(const struct sl_memory *memory, const struct sl_mesh *mesh, bool json, struct sl_error *error);

/* MEMORY[mesh->size] as a list with an object a coordinate, in bytes; NULL without memory for it. */
json_t *sl_memory_json(const struct sl_memory *memory, const struct sl_mesh *mesh);

/* Of the coordinate that takes the most. */
double sl_memory_most(const struct sl_memory *memory, const struct sl_mesh *mesh);

#endif
