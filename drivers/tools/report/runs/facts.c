/* facts.c - summary numbers of a run. */
#include "drivers/tools/report/runs/facts.h"

#include <math.h>
#include <string.h>

#include "drivers/common/metrics.h"
#include "drivers/speed/cores.h"

/* ---- values ---- */

static double value_of(const struct report_point *point) { return point ? point->value : NAN; }
static double step_of(const struct report_point *point) { return point ? point->step : NAN; }

/* The last value of a SERIES; its best value, the highest or the lowest, and the step of that; its median. */
static double last(const struct report_run *run, int series) {
    return value_of(report_series_last(&run->series[series]));
}
static double best(const struct report_run *run, int series, bool highest) {
    return value_of(report_series_best(&run->series[series], highest));
}
static double best_step(const struct report_run *run, int series, bool highest) {
    return step_of(report_series_best(&run->series[series], highest));
}
static double median(const struct report_run *run, int series) { return report_series_median(&run->series[series]); }

static double steps(const struct report_run *run) { return run->metrics ? report_run_steps(run) : NAN; }
static double last_step(const struct report_run *run) {
    const struct report_series *loss = &run->series[REPORT_LOSS];
    return loss->count ? loss->point[loss->count - 1].step : NAN;
}
static double final_loss(const struct report_run *run) { return last(run, REPORT_LOSS); }
static double lowest_loss(const struct report_run *run) { return best(run, REPORT_LOSS, false); }
static double lowest_loss_step(const struct report_run *run) { return best_step(run, REPORT_LOSS, false); }
static double evaluation(const struct report_run *run) { return last(run, REPORT_EVALUATION); }
static double best_evaluation(const struct report_run *run) { return best(run, REPORT_EVALUATION, false); }
static double best_evaluation_step(const struct report_run *run) { return best_step(run, REPORT_EVALUATION, false); }
static double accuracy(const struct report_run *run) { return last(run, REPORT_ACCURACY); }
static double test_accuracy(const struct report_run *run) { return best(run, REPORT_TEST_ACCURACY, true); }
static double test_accuracy_step(const struct report_run *run) { return best_step(run, REPORT_TEST_ACCURACY, true); }
static double median_ms(const struct report_run *run) { return median(run, REPORT_MS); }
static double tokens(const struct report_run *run) { return median(run, REPORT_TOKENS); }
static double samples(const struct report_run *run) { return median(run, REPORT_SAMPLES); }
static double utilization(const struct report_run *run) { return median(run, REPORT_UTILIZATION); }

/* Returns the number KEY of OBJECT, from 0 to REPORT_LARGEST. */
static double number_in(const json_t *object, const char *key) {
    const json_t *number = json_object_get(object, key);
    const double value = json_is_number(number) ? json_number_value(number) : NAN;
    return value >= 0 && value <= REPORT_LARGEST ? value : NAN;
}
static double told(const struct report_run *run, const char *key) { return number_in(run->summary, key); }
static double parameters(const struct report_run *run) { return told(run, "parameters"); }
static double coordinates(const struct report_run *run) { return told(run, "coordinates"); }
static double cores(const struct report_run *run) {
    const double count = told(run, "cores");
    return count > 0 ? count : NAN; /* 0: unknown to the run */
}
static double coordinate_bytes(const struct report_run *run) { return told(run, "coordinate_bytes"); }
static double peak_bytes(const struct report_run *run) { return told(run, "peak_bytes"); }

/* ---- restarts, by the watcher's line ---- */

static double lost(const struct report_run *run, const char *cause, const char *key) {
    return number_in(json_object_get(run->losses, cause), key);
}
static double goodput(const struct report_run *run) { return number_in(run->losses, "goodput"); }
static double restarts(const struct report_run *run) { return lost(run, "restarts", "count"); }
static double restart_seconds(const struct report_run *run) { return lost(run, "restarts", "seconds"); }
static double resizes(const struct report_run *run) { return lost(run, "resizes", "count"); }
static double resize_seconds(const struct report_run *run) { return lost(run, "resizes", "seconds"); }
static double start_seconds(const struct report_run *run) { return lost(run, "start", "seconds"); }
static double steps_again(const struct report_run *run) { return number_in(run->losses, "steps_again"); }
static double again_seconds(const struct report_run *run) { return number_in(run->losses, "again_seconds"); }
static double moved_bytes(const struct report_run *run) { return number_in(run->losses, "moved_bytes"); }

const struct report_fact report_facts[REPORT_FACTS] = {
    {"steps", "steps", 0, 1, 0, false, steps, NULL, REPORT_EXACT, REPORT_LOSS},
    {"last_step", "last step", 0, 1, 0, false, last_step, NULL, REPORT_EXACT, REPORT_LOSS},
    {"final_loss", "final loss", 6, 1, -1, false, final_loss, NULL, REPORT_OF_STEPS, REPORT_LOSS},
    {"lowest_loss", "lowest loss", 6, 1, -1, false, lowest_loss, lowest_loss_step, REPORT_OF_STEPS, REPORT_LOSS},
    {"evaluation_loss", "last evaluation", 6, 1, -1, false, evaluation, NULL, REPORT_EXACT, REPORT_LOSS},
    {"best_evaluation_loss", "best evaluation", 6, 1, -1, false, best_evaluation, best_evaluation_step, REPORT_EXACT,
     REPORT_LOSS},
    {"accuracy", "final accuracy", 4, 1, 1, false, accuracy, NULL, REPORT_OF_STEPS, REPORT_ACCURACY},
    {"best_test_accuracy", "best test accuracy", 4, 1, 1, false, test_accuracy, test_accuracy_step, REPORT_EXACT,
     REPORT_LOSS},
    {"median_ms", "ms a step (median)", 4, 1, -1, true, median_ms, NULL, REPORT_OF_PARTS, REPORT_MS},
    {"tokens_per_second", "tokens/s (median)", 5, 1, 1, true, tokens, NULL, REPORT_OF_PARTS, REPORT_TOKENS},
    {"samples_per_second", "samples/s (median)", 5, 1, 1, true, samples, NULL, REPORT_OF_PARTS, REPORT_SAMPLES},
    {"mfu", "mfu (median)", 3, 1, 1, true, utilization, NULL, REPORT_OF_PARTS, REPORT_UTILIZATION},
    {"parameters", "parameters", 0, 1, 0, false, parameters, NULL, REPORT_EXACT, REPORT_LOSS},
    {"coordinates", "coordinates", 0, 1, 0, false, coordinates, NULL, REPORT_EXACT, REPORT_LOSS},
    {"cores", "on cores", 0, 1, 0, false, cores, NULL, REPORT_EXACT, REPORT_LOSS},
    {"coordinate_bytes", "MB of a coordinate", 4, 1e6, -1, false, coordinate_bytes, NULL, REPORT_EXACT, REPORT_LOSS},
    {"peak_bytes", "peak MB of a process", 4, 1e6, -1, false, peak_bytes, NULL, REPORT_EXACT, REPORT_LOSS},
    {"goodput", "goodput", 4, 1, 1, true, goodput, NULL, REPORT_EXACT, REPORT_LOSS},
    {"restarts", "restarts", 0, 1, 0, false, restarts, NULL, REPORT_EXACT, REPORT_LOSS},
    {"restart_seconds", "s lost by restarts", 4, 1, 0, true, restart_seconds, NULL, REPORT_EXACT, REPORT_LOSS},
    {"resizes", "resizes", 0, 1, 0, false, resizes, NULL, REPORT_EXACT, REPORT_LOSS},
    {"resize_seconds", "s lost by resizes", 4, 1, 0, true, resize_seconds, NULL, REPORT_EXACT, REPORT_LOSS},
    {"start_seconds", "s lost by the start", 4, 1, 0, true, start_seconds, NULL, REPORT_EXACT, REPORT_LOSS},
    {"steps_again", "steps computed twice", 0, 1, 0, false, steps_again, NULL, REPORT_EXACT, REPORT_LOSS},
    {"again_seconds", "s lost by these steps", 4, 1, 0, true, again_seconds, NULL, REPORT_EXACT, REPORT_LOSS},
    {"moved_bytes", "MB of state moved", 4, 1e6, 0, false, moved_bytes, NULL, REPORT_EXACT, REPORT_LOSS},
};

/* ---- side by side ---- */

const char *report_run_state(const struct report_run *run) {
    if (!run->metrics) return "no metrics";
    if (!run->summary) return "not finished";
    return json_is_true(json_object_get(run->summary, "interrupted")) ? "interrupted" : "finished";
}

bool report_fact_is_known(const struct report_fact *fact, const struct report_runs *runs) {
    for (int i = 0; i < runs->count; i++)
        if (!isnan(fact->value(&runs->run[i]))) return true;
    return false;
}

struct report_interval report_fact_interval(const struct report_fact *fact, const struct report_run *run) {
    const struct report_series *series = &run->series[fact->quantity];
    const double value = fact->value(run);
    if (fact->chance == REPORT_EXACT || isnan(value)) return (struct report_interval){value, value};
    if (fact->chance == REPORT_OF_PARTS) return (struct report_interval){series->low, series->high};
    const double noise = report_series_noise(series);
    return (struct report_interval){value - noise, value + noise};
}

/* Whether the intervals of the two values overlap. */
static bool are_alike(const struct report_fact *fact, const struct report_run *a, const struct report_run *b) {
    const struct report_interval one = report_fact_interval(fact, a), other = report_fact_interval(fact, b);
    return one.low <= other.high && other.low <= one.high;
}

/* Prints VALUE in the fact's unit and digits. */
static char *print(const struct report_fact *fact, double value, char *text, size_t size) {
    const bool whole = fact->digits == 0 ||
                       fabs(value) >= pow(10, fact->digits); /* avoids an exponent for a number with many digits */
    if (isnan(value))
        snprintf(text, size, "-");
    else if (whole && fabs(value) < 1e15)
        snprintf(text, size, "%.0f", value);
    else
        snprintf(text, size, "%.*g", fact->digits ? fact->digits : 6, value);
    return text;
}

char *report_fact_text(const struct report_fact *fact, const struct report_run *run, char *text, size_t size) {
    return print(fact, fact->value(run) / fact->unit, text, size);
}

char *report_fact_place(const struct report_fact *fact, const struct report_run *run, char *text, size_t size) {
    const double step = fact->step ? fact->step(run) : NAN;
    const struct report_interval reach = report_fact_interval(fact, run);
    char low[32], high[32];
    text[0] = 0;
    if (!isnan(step))
        snprintf(text, size, "at %.0f", step);
    else if (reach.low < reach.high)
        snprintf(text, size, "%s to %s", print(fact, reach.low / fact->unit, low, sizeof low),
                 print(fact, reach.high / fact->unit, high, sizeof high));
    return text;
}

/* Negligible relative difference. */
static const double nothing = 5e-4;

char *report_fact_difference(const struct report_fact *fact, const struct report_runs *runs, int i, char *text,
                             size_t size) {
    const double first = fact->value(&runs->run[0]), ratio = fact->value(&runs->run[i]) / first;
    text[0] = 0;
    if (i == 0 || fact->better == 0 || !(first > 0) || !isfinite(ratio) || ratio > 100 || fabs(ratio - 1) < nothing)
        return text;
    if (are_alike(fact, &runs->run[0], &runs->run[i])) return text;
    snprintf(text, size, "%+.1f %%", 100 * (ratio - 1));
    return text;
}

const char *report_run_cores(const struct report_run *run, char *text, size_t size) {
    const double all = coordinates(run), own = cores(run);
    *text = '\0';
    return all <= SL_MOST_COORDINATES && own < all ? sl_cores_describe((int)all, (int)own, text, size) : text;
}

/* Whether two runs have the same mesh; older runs may not have it. */
static bool has_same_mesh(const struct report_run *a, const struct report_run *b) {
    const char *one = report_option_of(a, "--mesh"), *other = report_option_of(b, "--mesh");
    if (one && other && strcmp(one, other) != 0) return false;
    return !(coordinates(a) < coordinates(b) || coordinates(a) > coordinates(b));
}

bool report_speeds_compare(const struct report_runs *runs) {
    char text[100];
    for (int i = 0; i < runs->count; i++)
        if (*report_run_cores(&runs->run[i], text, sizeof text) || !has_same_mesh(&runs->run[0], &runs->run[i]))
            return false;
    return true;
}

bool report_fact_is_best(const struct report_fact *fact, const struct report_runs *runs, int i) {
    const double own = fact->value(&runs->run[i]);
    int worse = 0;
    if (fact->better == 0 || isnan(own) || (fact->speed && !report_speeds_compare(runs))) return false;
    for (int k = 0; k < runs->count; k++) {
        const double value = fact->value(&runs->run[k]);
        if (k == i || isnan(value)) continue;
        if (fact->better * (own - value) <= nothing * fabs(own)) return false;
        if (are_alike(fact, &runs->run[i], &runs->run[k])) return false;
        worse++;
    }
    return worse > 0;
}

/* ---- options ---- */

const char *report_option_of(const struct report_run *run, const char *option) {
    return json_string_value(json_object_get(json_object_get(run->summary, "options"), option));
}

/* Whether an option only names an output, which does not matter to the comparison. */
static bool is_record(const char *option) {
    static const char *const records[] = {"--metrics", "--tensorboard", "--trace", "--gradients", "--save", "--json"};
    for (size_t i = 0; i < sizeof records / sizeof *records; i++)
        if (!strcmp(option, records[i])) return true;
    return false;
}

/* Whether the runs have different values; runs without any options are skipped. */
static bool differs(const struct report_runs *runs, const char *option) {
    const struct report_run *first = NULL;
    if (is_record(option)) return false;
    for (int i = 0; i < runs->count; i++) {
        const struct report_run *run = &runs->run[i];
        if (!json_object_get(run->summary, "options")) continue;
        const char *value = report_option_of(run, option), *other = first ? report_option_of(first, option) : value;
        if (!value != !other || (value && strcmp(value, other) != 0)) return true;
        if (!first) first = run;
    }
    return false;
}

void report_options_that_differ(const struct report_runs *runs, void (*tell)(const char *option, void *arg),
                                void *arg) {
    for (int i = 0; i < runs->count; i++) {
        const char *option;
        json_t *value;
        json_object_foreach(json_object_get(runs->run[i].summary, "options"), option, value) {
            bool told_before = false;
            for (int k = 0; k < i; k++) told_before |= report_option_of(&runs->run[k], option) != NULL;
            if (!told_before && differs(runs, option)) tell(option, arg);
        }
    }
}

/* ---- JSON ---- */

/* Makes a JSON number; counts of steps, parameters and bytes are integers. */
static json_t *number_of(const struct report_fact *fact, double value) {
    const bool counts = (fact->digits == 0 || fact->unit > 1) && value <= REPORT_LAST_STEP;
    return counts ? json_integer((json_int_t)value) : sl_json_real(value);
}

static void add_interval(json_t *object, const struct report_fact *fact, const struct report_run *run) {
    const struct report_interval reach = report_fact_interval(fact, run);
    char key[64];
    snprintf(key, sizeof key, "%s_low", fact->key);
    json_object_set_new(object, key, sl_json_real(reach.low));
    snprintf(key, sizeof key, "%s_high", fact->key);
    json_object_set_new(object, key, sl_json_real(reach.high));
}

int report_facts_json(const struct report_runs *runs, struct sl_error *error) {
    for (int i = 0; i < runs->count; i++) {
        const struct report_run *run = &runs->run[i];
        json_t *object = json_pack("{ss ss}", "run", run->name, "state", report_run_state(run));
        for (int f = 0; object && f < REPORT_FACTS; f++) {
            const double value = report_facts[f].value(run);
            if (isnan(value)) continue;
            char key[64];
            snprintf(key, sizeof key, "%s_step", report_facts[f].key);
            json_object_set_new(object, report_facts[f].key, number_of(&report_facts[f], value));
            if (report_facts[f].chance != REPORT_EXACT) add_interval(object, &report_facts[f], run);
            if (report_facts[f].step)
                json_object_set_new(object, key, json_integer((json_int_t)report_facts[f].step(run)));
        }
        SL_TRY(sl_json_print(stdout, "stdout", object, error));
    }
    return SL_OK;
}
