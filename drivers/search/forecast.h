/* forecast.h - what was predicted of a run, beside what it then took. */
#ifndef SL_DRIVERS_SEARCH_FORECAST_H
#define SL_DRIVERS_SEARCH_FORECAST_H

#include "drivers/search/search.h"
#include "drivers/training/training.h"

struct sl_forecast {
    struct sl_training_forecast told; /* the first: it is found again by its address */
    struct sl_job *job;
    const struct sl_engine *engine;
    const struct sl_options *command;
    const struct sl_search_options *options; /* NULL: no other layouts are predicted */
    struct sl_prediction own;
    bool timed;            /* OWN's times are of rates that somebody has seen; else they are those of a typical core */
    struct sl_layout best; /* of all layouts on the same number of devices; it does not fit where there is no other */
    bool searched;         /* other layouts have been predicted */
};

/* For a TRAINING of its job over ENGINE: predicts it and other layouts, to be told at its end; with --machine before it
 * begins, and else when it has ended, by what its first steps have shown. FORECAST and what is given last as long as
 * the training. */
int sl_forecast_make(struct sl_forecast *forecast, struct sl_training *training, const struct sl_engine *engine,
                     const struct sl_search_options *options, struct sl_error *error);

/* For a run of FORECAST's job, engine, command and options that no training makes: predicts it by the PROFILE
 * [coordinates] of STEPS steps, which took SECONDS; of no steps, its bytes alone. FORECAST->told.made says whether that
 * was possible, and tells it. */
void sl_forecast_settle(struct sl_forecast *forecast, const struct sl_profile *profile, int64_t steps, double seconds);
void sl_forecast_print(const struct sl_forecast *forecast, FILE *stream, const struct sl_training_measured *measured);
json_t *sl_forecast_json(const struct sl_forecast *forecast);

#endif
