/* forecast.c - reports predictions next to measurements. */
#include "drivers/tools/search/forecast.h"

#include <math.h>
#include <stdlib.h>

#include "drivers/common/metrics.h"
#include "drivers/common/progress.h"
#include "drivers/tools/machine/machine_file.h"
#include "drivers/tools/search/observed.h"

/* Minimal gain of a better layout in the report: predictions of small models have errors of this size. */
static const double worth = 0.15;

/* Share of time taken by other programs above which the report mentions it: predictions do not include it. */
static const double much = 0.1;

/* Minimal seconds of a run for a search. */
static const double searched = 2;

static const char *const share_name[SL_SHARES] = {"products_ms", "attention_ms", "kernels_ms", "calls_ms"};

/* Returns the largest part of a place's step besides products: all of its coordinates work there. */
static const char *hindrance(const struct sl_prediction *of, double *ms) {
    const struct {
        const char *name;
        double ms;
    } parts[] = {{"waiting for other stages", of->idle_ms},
                 {"attention", of->sharers * of->share_ms[SL_SHARE_ATTENTION]},
                 {"norms and other passes over rows", of->sharers * of->share_ms[SL_SHARE_KERNELS]},
                 {"communication within layers", of->sharers * of->share_ms[SL_SHARE_CALLS]},
                 {"sums of gradients over data", of->sharers * of->reduce_ms},
                 {"the optimizer", of->sharers * of->optimizer_ms}};
    int most = 0;
    for (int i = 1; i < (int)(sizeof parts / sizeof *parts); i++) most = parts[i].ms > parts[most].ms ? i : most;
    *ms = parts[most].ms;
    return parts[most].name;
}

static const struct sl_forecast *forecast_of(const struct sl_training_forecast *told) {
    return (const struct sl_forecast *)told;
}

/* Prints times, or why there are none. */
static void print_times(const struct sl_forecast *forecast, FILE *stream, const struct sl_training_measured *measured) {
    const struct sl_time_unit unit = sl_time_unit_of(fmax(forecast->timed ? forecast->own.ms : 0, measured->slow));
    if (forecast->timed)
        fprintf(stream, "predicted %.4g %s a step, ", forecast->own.ms / unit.ms, unit.name);
    else
        fprintf(stream, "predicted no time, as steps show rates from the second on; ");
    if (measured->steps > 1)
        fprintf(stream, "measured %.4g (%.4g to %.4g)", measured->median / unit.ms, measured->fast / unit.ms,
                measured->slow / unit.ms);
    else if (measured->steps == 1)
        fprintf(stream, "measured the first step alone, %.4g %s, which touches memory", measured->median / unit.ms,
                unit.name);
    else
        fprintf(stream, "measured no step");
}

/* Prints the largest obstacle to a faster run. */
static void print_hindrance(const struct sl_forecast *forecast, FILE *stream,
                            const struct sl_training_measured *measured) {
    double ms;
    const char *name = hindrance(&forecast->own, &ms);
    const struct sl_time_unit unit = sl_time_unit_of(ms);
    if (forecast->timed)
        fprintf(stream, "after products, most time goes to %s: %.3g %s%s", name, ms / unit.ms, unit.name,
                forecast->own.sharers > 1 ? " of each core" : "");
    else
        fprintf(stream, "after products, most time would go to %s on a typical core", name);
    if (measured->taken > much)
        fprintf(stream, "; other programs had the cores for %.0f %% of the time", 100 * measured->taken);
}

void sl_forecast_print(const struct sl_forecast *forecast, FILE *stream, const struct sl_training_measured *measured) {
    const struct sl_prediction *own = &forecast->own;
    const struct sl_layout *best = &forecast->best;
    const int run = sl_schedule_run(&forecast->job->schedule, SL_FORWARD);
    print_times(forecast, stream, measured);
    fprintf(stream, "; planned %.1f MB a coordinate, held %.1f", own->bytes / 1e6, measured->bytes / 1e6);
    if (!isnan(measured->bubble))
        fprintf(stream, "; bubble predicted %.1f %%, measured %.1f %%", 100 * own->bubble, 100 * measured->bubble);
    if (!isnan(measured->bubble) && run > 1) fprintf(stream, " (of runs of %d microbatches)", run);
    putc('\n', stream);
    print_hindrance(forecast, stream, measured);
    if (!forecast->options)
        fprintf(stream, "\n");
    else if (!forecast->searched)
        fprintf(stream, "; other layouts are predicted after %g s of steps\n", searched);
    else if (best->fits && best->prediction.ms < (1 - worth) * own->ms)
        fprintf(stream, "; predicted to take %.0f %% less time and %.1f MB a coordinate: %s\n",
                100 * (1 - best->prediction.ms / own->ms), best->prediction.bytes / 1e6, best->text);
    else
        fprintf(stream, "; no layout is predicted to be more than %.0f %% faster\n", 100 * worth);
}

static void print(const struct sl_training_forecast *told, FILE *stream, const struct sl_training_measured *measured) {
    sl_forecast_print(forecast_of(told), stream, measured);
}

/* Adds the parts of the time. */
static void add_shares(json_t *object, const struct sl_prediction *own) {
    for (int i = 0; i < SL_SHARES; i++) json_object_set_new(object, share_name[i], sl_json_real(own->share_ms[i]));
    json_object_set_new(object, "reduce_ms", sl_json_real(own->reduce_ms));
    json_object_set_new(object, "optimizer_ms", sl_json_real(own->optimizer_ms));
}

json_t *sl_forecast_json(const struct sl_forecast *forecast) {
    const struct sl_layout *best = &forecast->best;
    const double ms = forecast->timed ? forecast->own.ms : (double)NAN;
    const double bubble = forecast->timed ? forecast->own.bubble : (double)NAN;
    json_t *object = json_pack("{so so sI}", "ms", sl_json_real(ms), "bubble", sl_json_real(bubble), "bytes",
                               (json_int_t)forecast->own.bytes);
    if (object && forecast->timed) add_shares(object, &forecast->own);
    if (object && forecast->searched && best->fits) {
        json_object_set_new(object, "better_ms", sl_json_real(best->prediction.ms));
        json_object_set_new(object, "better_bytes", json_integer((json_int_t)best->prediction.bytes));
        json_object_set_new(object, "better_layout", json_string(best->text));
    }
    return object;
}

static json_t *json(const struct sl_training_forecast *told) { return sl_forecast_json(forecast_of(told)); }

/* Makes the forecast; failures are not reported, since the run has succeeded without it. */
void sl_forecast_settle(struct sl_forecast *forecast, const struct sl_profile *profile, int64_t steps, double seconds) {
    struct sl_machine *machine = forecast->told.made ? NULL : malloc(sizeof *machine);
    struct sl_job *job = forecast->job;
    struct sl_error why = {0};
    if (!machine) return;
    int status = sl_observe(machine, job, forecast->engine, profile, steps, &why);
    forecast->timed = steps > 0;
    forecast->searched = forecast->options && forecast->timed && seconds >= searched;
    if (status == SL_OK && forecast->searched)
        status = sl_search_compare(job, forecast->engine, forecast->command, forecast->options, machine, &forecast->own,
                                   &forecast->best, &why);
    else if (status == SL_OK)
        status = sl_search_predict(job, forecast->engine, machine, &forecast->own, &why);
    forecast->told.made = status == SL_OK;
    free(machine);
}

static void settle(struct sl_training_forecast *told, const struct sl_training *training, int64_t steps,
                   double seconds) {
    sl_forecast_settle((struct sl_forecast *)told, training->profile, steps, seconds);
}

int sl_forecast_make(struct sl_forecast *forecast, struct sl_training *training, const struct sl_engine *engine,
                     const struct sl_search_options *options, struct sl_error *error) {
    *forecast = (struct sl_forecast){.job = training->job,
                                     .engine = engine,
                                     .command = training->command,
                                     .options = training->job->options->advice ? options : NULL};
    if (!training->job->type->copy || training->job->sizes_only) return SL_OK;
    training->watched = true;
    if (!sl_speaks(engine)) return SL_OK;
    if (options->machine)
        SL_TRY(sl_search_compare(training->job, engine, training->command, options, NULL, &forecast->own,
                                 &forecast->best, error));
    forecast->timed = forecast->searched = options->machine != NULL;
    forecast->told = (struct sl_training_forecast){options->machine != NULL, settle, print, json};
    training->forecast = &forecast->told;
    return SL_OK;
}
