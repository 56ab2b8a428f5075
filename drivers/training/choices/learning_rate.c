/* learning_rate.c - warm-up, then a constant or half a cosine. */
#include "drivers/training/choices/learning_rate.h"

#include <math.h>

double sl_learning_rate_at(const struct sl_learning_rate *rate, int64_t step) {
    if (step < rate->warmup) return rate->highest * (double)(step + 1) / (double)rate->warmup;
    if (!rate->falls) return rate->highest;
    const double left = (double)(rate->steps - rate->warmup);
    const double share = left > 0 ? fmin(1.0, (double)(step - rate->warmup) / left) : 1.0;
    return rate->least + 0.5 * (rate->highest - rate->least) * (1 + cos(M_PI * share));
}
