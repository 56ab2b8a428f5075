/* forecast.c - predicted and measured, side by side. */
#include "drivers/search/forecast.h"

#include <stdlib.h>

#include "drivers/common/metrics.h"
#include "drivers/machine/machine_file.h"

/* Below this share another layout is no better: predictions are no closer. */
static const double worth = 0.05;

static const char *const share_name[SL_SHARES] = {"products_ms", "attention_ms", "kernels_ms", "calls_ms"};

/* What takes the largest part of a step beside products. */
static const char *hindrance(const struct sl_prediction *of, double *ms) {
    const struct {
        const char *name;
        double ms;
    } parts[] = {{"waiting in the pipeline (the bubble)", of->pipeline_ms * of->bubble},
                 {"attention", of->share_ms[SL_SHARE_ATTENTION]},
                 {"kernels beside products", of->share_ms[SL_SHARE_KERNELS]},
                 {"communication within layers", of->share_ms[SL_SHARE_CALLS]},
                 {"sums of gradients over data", of->reduce_ms},
                 {"the optimizer", of->optimizer_ms}};
    int most = 0;
    for (int i = 1; i < (int)(sizeof parts / sizeof *parts); i++) most = parts[i].ms > parts[most].ms ? i : most;
    *ms = parts[most].ms;
    return parts[most].name;
}

static const struct sl_forecast *forecast_of(const struct sl_training_forecast *told) {
    return (const struct sl_forecast *)told;
}

static void print(const struct sl_training_forecast *told, FILE *stream, const struct sl_training_measured *measured) {
    const struct sl_forecast *forecast = forecast_of(told);
    const struct sl_prediction *own = &forecast->own;
    const struct sl_layout *best = &forecast->best;
    double ms;
    const char *name = hindrance(own, &ms);
    fprintf(stream, "predicted %.4g ms a step, measured %.4g (%.4g to %.4g); planned %.1f MB a coordinate, held %.1f\n",
            own->ms, measured->median, measured->fast, measured->slow, own->bytes / 1e6, measured->bytes / 1e6);
    fprintf(stream, "beside products most goes to %s, %.3g ms", name, ms);
    if (best->fits && best->prediction.ms < (1 - worth) * own->ms)
        fprintf(stream, "; predicted to take %.0f %% less: %s\n", 100 * (1 - best->prediction.ms / own->ms),
                best->text);
    else
        fprintf(stream, "; no layout is predicted to be more than %.0f %% faster\n", 100 * worth);
}

static json_t *json(const struct sl_training_forecast *told) {
    const struct sl_forecast *forecast = forecast_of(told);
    const struct sl_layout *best = &forecast->best;
    json_t *object = json_pack("{sf sf sI}", "ms", forecast->own.ms, "bubble", forecast->own.bubble, "bytes",
                               (json_int_t)forecast->own.bytes);
    for (int i = 0; object && i < SL_SHARES; i++)
        json_object_set_new(object, share_name[i], sl_json_real(forecast->own.share_ms[i]));
    if (object) {
        json_object_set_new(object, "reduce_ms", sl_json_real(forecast->own.reduce_ms));
        json_object_set_new(object, "optimizer_ms", sl_json_real(forecast->own.optimizer_ms));
    }
    if (object && best->fits) {
        json_object_set_new(object, "better_ms", sl_json_real(best->prediction.ms));
        json_object_set_new(object, "better_layout", json_string(best->text));
    }
    return object;
}

int sl_forecast_make(struct sl_forecast *forecast, struct sl_training *training, const struct sl_engine *engine,
                     const struct sl_search_options *options, struct sl_error *error) {
    if (!options->machine || !training->job->type->copy || !sl_speaks(engine)) return SL_OK;
    SL_TRY(
        sl_search_compare(training->job, engine, training->command, options, &forecast->own, &forecast->best, error));
    forecast->told = (struct sl_training_forecast){print, json};
    training->forecast = &forecast->told;
    return SL_OK;
}
