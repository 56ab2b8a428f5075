/* learning_rate.h - the learning rate of each step. */
#ifndef SL_DRIVERS_TRAINING_CHOICES_LEARNING_RATE_H
#define SL_DRIVERS_TRAINING_CHOICES_LEARNING_RATE_H

#include "spmd/base/base.h"

/* The rate rises linearly to HIGHEST during the warm-up. Then it is constant, or falls to LEAST along half a cosine
 * until the last step. */
struct sl_learning_rate {
    double highest, least;
    int64_t warmup, steps; /* steps of the whole run, warm-up included */
    bool falls;
};

/* Returns the learning rate of STEP, counted from 0. */
double sl_learning_rate_at(const struct sl_learning_rate *rate, int64_t step);

#endif
