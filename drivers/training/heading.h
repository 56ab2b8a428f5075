/* heading.h - prints the first lines of a training run: model, mesh, schedule and data. */
#ifndef SL_DRIVERS_TRAINING_HEADING_H
#define SL_DRIVERS_TRAINING_HEADING_H

#include <stdio.h>

#include "drivers/training/job.h"

/* A driver's additions; "": not printed. */
struct sl_heading {
    char data[200];     /* training data */
    char numbers[200];  /* order of random numbers */
    const char *remark; /* on the model; NULL: none */
    double parameters;  /* of the whole model; 0: not printed */
    double trained;     /* number of trained ones if some are frozen; 0: all */
    double adapters;    /* parameters of adapters, which are trained instead; 0: none */
};

/* Prints the number of parameters, of trained parameters and of adapter parameters, and the remark; omits unset
 * ones. */
void sl_heading_parameters(FILE *stream, const struct sl_heading *heading);

/* Prints three lines, and a fourth if times are easily misread: if coordinates share cores, or several replicas have
 * no pipeline. */
void sl_heading_print(FILE *stream, const struct sl_job *job, const struct sl_heading *heading);

#endif
