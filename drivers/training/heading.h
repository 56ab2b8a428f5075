/* heading.h - the lines at the head of a training run: what it is that the numbers below belong to. */
#ifndef SL_DRIVERS_TRAINING_HEADING_H
#define SL_DRIVERS_TRAINING_HEADING_H

#include <stdio.h>

#include "drivers/training/job.h"

/* What a driver adds; "": nothing is told. */
struct sl_heading {
    char data[200];     /* what it trains on */
    char numbers[200];  /* how random numbers are drawn */
    const char *remark; /* on the model; NULL: none */
    double parameters;  /* of the whole model; 0: not told */
    double trained;     /* of these, where not all are; 0: all */
    double adapters;    /* parameters of adapters, which train in their place; 0: there are none */
};

/* Prints how many parameters there are, how many of them train, how many adapters have, and the remark; nothing where
 * that is not told. */
void sl_heading_parameters(FILE *stream, const struct sl_heading *heading);

/* Prints three lines, and another one where times are easily taken for what they are not: of coordinates that share
 * cores, of several replicas without a pipeline. */
void sl_heading_print(FILE *stream, const struct sl_job *job, const struct sl_heading *heading);

#endif
