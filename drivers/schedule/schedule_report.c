/* schedule_report.c - prints simulated and measured times as tables and as JSON. */
#include "drivers/schedule/schedule_report.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "drivers/common/output.h"
#include "drivers/speed/cores.h"
#include "drivers/common/metrics.h"
#include "spmd/schedule/csv.h"

/* ---- as text ---- */

/* Whether a part is printed; gathering only if parameters are sharded. */
static bool is_told(const struct schedule_report *report, int part) {
    return part != SCHEDULE_PART_GATHERING || report->schedule->sharded;
}

void schedule_report_simulation(const struct schedule_report *report) {
    static const struct sl_column column[] = {{"rank", -6},  {"busy ms", 10}, {"idle ms", 10},
                                              {"bubble", 8}, {"kept", 5},     {"gathering ms", 12}};
    const struct sl_simulation *simulation = report->simulation;
    FILE *file = report->output->stream;
    struct sl_table table;
    fputc('\n', file);
    sl_table_begin(&table, file, is_told(report, SCHEDULE_PART_GATHERING) ? 6 : 5, column);
    for (int r = 0; r < simulation->ranks; r++) {
        const struct sl_simulated_rank *rank = &simulation->rank[r];
        sl_table_cell(&table, "%d", r);
        sl_table_cell(&table, "%.6g", rank->busy);
        sl_table_cell(&table, "%.6g", simulation->span - rank->busy);
        sl_table_cell(&table, "%.1f %%", 100 * rank->bubble);
        sl_table_cell(&table, "%d", rank->stash);
        if (is_told(report, SCHEDULE_PART_GATHERING)) sl_table_cell(&table, "%.6g", rank->gathering);
    }
    const int stages = sl_schedule_stages(report->schedule);
    fprintf(file, "a model of %d stage%s, %d a rank\n", stages, stages == 1 ? "" : "s", report->schedule->loops);
    double optimizer = 0;
    for (int r = 0; r < simulation->ranks; r++) optimizer = fmax(optimizer, simulation->rank[r].optimizer);
    fprintf(file, "step %.6g ms: compute until %.6g ms, then reductions%s for %.6g ms; bubble %.1f %% of the compute\n",
            simulation->step, simulation->span, optimizer > 0 ? " and optimizer" : "",
            simulation->step - simulation->span, 100 * simulation->bubble);
}

void schedule_report_synthesis(const struct schedule_report *report) {
    const struct schedule_synthesis *synthesis = report->synthesis;
    const double span = report->simulation->span, bound = synthesis->found.bound;
    double most = 0;
    for (int r = 0; r < report->schedule->ranks; r++) most = fmax(most, synthesis->held[r]);
    fprintf(
        report->output->stream,
        "\n%d stage%s a rank, %s: compute takes %.6g ms; no schedule takes less than %.6g ms (%.1f %% less); a rank "
        "keeps "
        "at most %.10g %s\n",
        report->schedule->loops, report->schedule->loops > 1 ? "s" : "", synthesis->found.layout, span, bound,
        span > 0 ? 100 * fmax(0, 1 - bound / span) : 0, most,
        synthesis->in_bytes ? "bytes" : "microbatches of a part of the model");
}

/* Parts and bubble of a rank, or the mean of all ranks. */
struct row {
    double part[SCHEDULE_PARTS], step, bubble;
};

static void add_rank(const struct schedule_report *report, int rank, struct row *measured, struct row *predicted,
                     double weight) {
    double part[SCHEDULE_PARTS];
    schedule_simulated_parts(report->simulation, rank, part);
    for (int p = 0; p < SCHEDULE_PARTS; p++) {
        measured->part[p] += weight * report->measurement->rank[rank].part[p];
        predicted->part[p] += weight * part[p];
    }
    measured->step += weight * report->measurement->step;
    predicted->step += weight * report->simulation->step;
    measured->bubble += weight * report->measurement->rank[rank].bubble;
    predicted->bubble += weight * report->simulation->rank[rank].bubble;
}

static void mean_rank(const struct schedule_report *report, struct row *measured, struct row *predicted) {
    *measured = *predicted = (struct row){{0}, 0, 0};
    for (int r = 0; r < report->simulation->ranks; r++)
        add_rank(report, r, measured, predicted, 1.0 / report->simulation->ranks);
}

static struct row difference(const struct row *measured, const struct row *predicted) {
    struct row row = {.step = measured->step - predicted->step, .bubble = measured->bubble - predicted->bubble};
    for (int p = 0; p < SCHEDULE_PARTS; p++) row.part[p] = measured->part[p] - predicted->part[p];
    return row;
}

/* Returns 0 for a value printed as 0.00, to avoid a minus sign. */
static double hundredths(double value) { return fabs(value) < 0.005 ? 0 : value; }

static void print_row(const struct schedule_report *report, struct sl_table *table, const char *rank, const char *what,
                      const struct row *row, bool sign) {
    sl_table_cell(table, "%s", rank);
    sl_table_cell(table, "%s", what);
    for (int p = 0; p < SCHEDULE_PARTS; p++)
        if (is_told(report, p)) sl_table_cell(table, sign ? "%+.2f" : "%.2f", hundredths(row->part[p]));
    sl_table_cell(table, sign ? "%+.2f" : "%.2f", hundredths(row->step));
    sl_table_cell(table, sign ? "%+.1f %%" : "%.1f %%", 10 * hundredths(10 * row->bubble));
}

static void print_rows(const struct schedule_report *report, struct sl_table *table, const char *rank,
                       const struct row *measured, const struct row *predicted) {
    const struct row more = difference(measured, predicted);
    print_row(report, table, rank, "measured", measured, false);
    print_row(report, table, "", "predicted", predicted, false);
    print_row(report, table, "", "difference", &more, true);
}

/* Prints conditions under which the times were measured. */
static void print_conditions(const struct schedule_trace *trace, FILE *file) {
    char shared[100];
    if (*sl_cores_describe(trace->coordinates, trace->cores, shared, sizeof shared))
        fprintf(file, "%s; predicted is for a core each, with reductions as measured\n", shared);
    if (!trace->divided) fprintf(file, "measured not ready: all waiting; the engine did not tell transfer from it\n");
}

enum { MOST_COLUMNS = SCHEDULE_PARTS + 4 };

/* Sets the columns; returns their number. */
static int find_columns(const struct schedule_report *report, struct sl_column column[MOST_COLUMNS]) {
    int columns = 0;
    column[columns++] = (struct sl_column){"rank", -4};
    column[columns++] = (struct sl_column){"ms a step", -10};
    for (int p = 0; p < SCHEDULE_PARTS; p++) {
        const int letters = (int)strlen(schedule_part_name[p]);
        if (is_told(report, p))
            column[columns++] = (struct sl_column){schedule_part_name[p], letters < 8 ? 8 : letters};
    }
    column[columns++] = (struct sl_column){"step", 9};
    column[columns++] = (struct sl_column){"bubble", 8};
    return columns;
}

/* Prints the parts of the difference between two steps. */
static void print_differences(const struct schedule_report *report, const struct row *more, FILE *file) {
    for (int p = 0; p < SCHEDULE_PARTS; p++)
        if (is_told(report, p))
            fprintf(file, "%s %s %+.2f", p ? "," : "", schedule_part_name[p], hundredths(more->part[p]));
    fprintf(file, " ms\n");
}

void schedule_report_comparison(const struct schedule_report *report) {
    struct sl_column column[MOST_COLUMNS];
    const struct sl_schedule *schedule = report->schedule;
    struct row measured, predicted;
    FILE *file = report->output->stream;
    struct sl_table table;
    fprintf(file, "schedule %s, %d ranks, %d loops, %d microbatches; means of %d steps\n", schedule->name,
            schedule->ranks, schedule->loops, schedule->microbatches, report->measurement->steps);
    print_conditions(report->trace, file);
    sl_table_begin(&table, file, find_columns(report, column), column);
    for (int r = 0; r < schedule->ranks; r++) {
        char rank[16];
        snprintf(rank, sizeof rank, "%d", r);
        measured = predicted = (struct row){{0}, 0, 0};
        add_rank(report, r, &measured, &predicted, 1);
        print_rows(report, &table, rank, &measured, &predicted);
    }
    mean_rank(report, &measured, &predicted);
    print_rows(report, &table, "all", &measured, &predicted);
    const struct row more = difference(&measured, &predicted);
    const double ratio = predicted.step / measured.step; /* not finite for a measured time of almost 0 */
    fprintf(file, "step measured %.2f ms, predicted %.2f ms (%+.1f %%):", measured.step, predicted.step,
            isfinite(ratio) ? 100 * (ratio - 1) : 0);
    print_differences(report, &more, file);
}

/* ---- as JSON ---- */

/* Makes a string, or null if TEXT is not UTF-8, as the name of a file may be. */
static json_t *json_text(const char *text) {
    json_t *string = json_string(text);
    return string ? string : json_null();
}

static const char *const part_key[SCHEDULE_PARTS] = {"compute_ms",   "not_ready_ms",     "transfer_ms",
                                                     "no_core_ms",   "communication_ms", "reduction_ms",
                                                     "optimizer_ms", "gathering_ms",     "rest_ms"};

static json_t *json_row(const struct row *row) {
    json_t *object = json_pack("{s:o,s:o,s:o}", "step_ms", sl_json_real(row->step), "bubble", sl_json_real(row->bubble),
                               "idle", sl_json_real(row->bubble)); /* equal to "bubble" */
    for (int p = 0; object && p < SCHEDULE_PARTS; p++)
        json_object_set_new(object, part_key[p], sl_json_real(row->part[p]));
    if (object) json_object_set_new(object, "waiting_ms", sl_json_real(schedule_waiting(row->part)));
    return object;
}

/* Adds measured, predicted and difference (means over ranks), and the values per rank. */
static void add_comparison(const struct schedule_report *report, json_t *object) {
    struct row measured, predicted, more;
    json_t *ranks = json_array();
    mean_rank(report, &measured, &predicted);
    more = difference(&measured, &predicted);
    json_object_set_new(object, "steps", json_integer(report->measurement->steps));
    json_object_set_new(object, "coordinates", json_integer(report->trace->coordinates));
    json_object_set_new(object, "cores", json_integer(report->trace->cores));
    json_object_set_new(object, "measured", json_row(&measured));
    json_object_set_new(object, "predicted", json_row(&predicted));
    json_object_set_new(object, "difference", json_row(&more));
    for (int r = 0; r < report->schedule->ranks; r++) {
        measured = predicted = (struct row){{0}, 0, 0};
        add_rank(report, r, &measured, &predicted, 1);
        json_array_append_new(
            ranks, json_pack("{s:o,s:o}", "measured", json_row(&measured), "predicted", json_row(&predicted)));
    }
    json_object_set_new(object, "each_rank", ranks);
}

/* Returns the found table as in --format csv, so the search need not be repeated for it. */
static json_t *json_table(const struct sl_schedule *schedule) {
    struct sl_text text;
    FILE *stream = sl_text_open(&text);
    if (!stream) return NULL;
    const int status = sl_schedule_write_csv(schedule, stream);
    const bool whole = sl_text_close(stream);
    json_t *table = status == SL_OK && whole ? json_stringn(text.bytes, text.size) : NULL;
    free(text.bytes);
    return table;
}

int schedule_report_json(const struct schedule_report *report, struct sl_error *error) {
    const struct sl_schedule *schedule = report->schedule;
    const struct sl_simulation *simulation = report->simulation;
    json_t *stash = json_array(), *busy = json_array(), *bubble = json_array(), *gathering = json_array();
    for (int r = 0; r < simulation->ranks; r++) {
        json_array_append_new(stash, json_integer(simulation->rank[r].stash));
        json_array_append_new(busy, sl_json_real(simulation->rank[r].busy));
        json_array_append_new(bubble, sl_json_real(simulation->rank[r].bubble));
        json_array_append_new(gathering, sl_json_real(simulation->rank[r].gathering));
    }
    json_t *object =
        json_pack("{s:o,s:i,s:i,s:i,s:o,s:o,s:o,s:o,s:o,s:o,s:i,s:b}", "name", json_text(schedule->name), "ranks",
                  schedule->ranks, "loops", schedule->loops, "microbatches", schedule->microbatches, "bubble",
                  sl_json_real(simulation->bubble), "step_ms", sl_json_real(simulation->step), "compute_ms",
                  sl_json_real(simulation->span), "peak_stash", stash, "rank_busy_ms", busy, "rank_bubble", bubble,
                  "buffers", report->buffers, "valid", true);
    if (object && schedule->sharded) json_object_set(object, "rank_gathering_ms", gathering);
    json_decref(gathering);
    if (object && report->measurement) add_comparison(report, object);
    if (object && report->synthesis) {
        json_t *held = json_array();
        for (int r = 0; r < schedule->ranks; r++) json_array_append_new(held, sl_json_real(report->synthesis->held[r]));
        json_object_set_new(object, "bound_ms", sl_json_real(report->synthesis->found.bound));
        json_object_set_new(object, "kept_bytes", held);
        json_object_set_new(object, "csv", json_table(schedule));
    }
    return sl_json_print(report->output->stream, report->output->name, object, error);
}

int schedule_report_invalid(const struct sl_output *output, const char *name, int ranks, const char *reason,
                            struct sl_error *error) {
    json_t *object = json_pack("{s:o,s:b,s:o}", "name", json_text(name), "valid", false, "reason", json_text(reason));
    if (object && ranks > 0) json_object_set_new(object, "ranks", json_integer(ranks));
    return sl_json_print(output->stream, output->name, object, error);
}
