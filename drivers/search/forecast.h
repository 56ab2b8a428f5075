/* forecast.h - what was predicted of a run, beside what it then took. */
#ifndef SL_DRIVERS_SEARCH_FORECAST_H
#define SL_DRIVERS_SEARCH_FORECAST_H

#include <jansson.h>

#include "drivers/search/search.h"

struct sl_forecast {
    bool made;
    struct sl_prediction own;
    struct sl_layout best; /* of all layouts on the same number of devices; not planned where there is no other */
};

/* For a run of JOB with --machine: predicts it, and other layouts. Does nothing without that option. */
int sl_forecast_make(struct sl_forecast *forecast, struct sl_job *job, const struct sl_engine *engine,
                     const struct sl_options *command, struct sl_error *error);

/* What was measured: ms of the median step, and of the fast and slow tenth of them; bytes of the fullest coordinate. */
struct sl_measured {
    double median, fast, slow, bytes;
};

/* Two lines for people: both figures, and what holds the run back. */
void sl_forecast_print(FILE *stream, const struct sl_forecast *forecast, const struct sl_measured *measured);
/* {"ms", "bubble", "bytes", "better_ms", "better_layout"}; NULL without memory. */
json_t *sl_forecast_json(const struct sl_forecast *forecast);

#endif
