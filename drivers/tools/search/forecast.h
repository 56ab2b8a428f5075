/* forecast.h - predicts a run, and reports the prediction next to the measurements. */
#ifndef SL_DRIVERS_TOOLS_SEARCH_FORECAST_H
#define SL_DRIVERS_TOOLS_SEARCH_FORECAST_H

#include "drivers/tools/search/search.h"
#include "drivers/training/training.h"

struct sl_forecast {
    struct sl_training_forecast told; /* the base struct; must come first */
    struct sl_job *job;
    const struct sl_engine *engine;
    const struct sl_options *command;
    const struct sl_search_options *options; /* NULL: other layouts are not predicted */
    struct sl_prediction own;
    bool timed;            /* OWN's times are computed with measured rates; otherwise with rates of a typical core */
    struct sl_layout best; /* the best layout on the same number of devices; `fits` is false if there is none */
    bool searched;         /* other layouts were predicted */
};

/* Prepares a forecast for TRAINING, over ENGINE: predicts its job and other layouts for the report at its end. With
 * --machine it does so before the training, otherwise after it, from the profile of its first steps. FORECAST and
 * all arguments must outlive the training. */
int sl_forecast_make(struct sl_forecast *forecast, struct sl_training *training, const struct sl_engine *engine,
                     const struct sl_search_options *options, struct sl_error *error);

/* Makes a forecast for a run of FORECAST's job, engine, command and options outside of a training, from PROFILE
 * [coordinates] of STEPS steps that took SECONDS; with 0 steps, of bytes only. FORECAST->told.made says whether it
 * succeeded. */
void sl_forecast_settle(struct sl_forecast *forecast, const struct sl_profile *profile, int64_t steps, double seconds);
void sl_forecast_print(const struct sl_forecast *forecast, FILE *stream, const struct sl_training_measured *measured);
json_t *sl_forecast_json(const struct sl_forecast *forecast);

#endif
