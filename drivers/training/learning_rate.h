/* learning_rate.h - the learning rate of each step. */
#ifndef SL_DRIVERS_TRAINING_LEARNING_RATE_H
#define SL_DRIVERS_TRAINING_LEARNING_RATE_H

#include "spmd/base/base.h"

/* It rises linearly to HIGHEST over the warm-up. Then it stays, or falls to LEAST along half a cosine until the last
 * step. */
struct sl_learning_rate {
    double highest, least;
    int64_t warmup, steps; /* the steps of the whole run, the warm-up's included */
    bool falls;
};

/* Of STEP, counted from 0. */
double sl_learning_rate_at(const struct sl_learning_rate *rate, int64_t step);

#endif
