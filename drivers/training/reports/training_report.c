/* training_report.c - a training run's lines for people and programs. */
#include "drivers/training/reports/training_report.h"

#include <errno.h>
#include <libgen.h>
#include <math.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "drivers/common/interrupt.h"
#include "drivers/command_line/streams.h"
#include "layers/formats/files/draft.h"

/* ---- fields of a step ---- */

double sl_step_number(const struct sl_step *step, const void *own) {
    (void)own;
    return (double)step->number;
}
double sl_step_loss(const struct sl_step *step, const void *own) {
    (void)own;
    return step->metrics.loss / step->metrics.rows;
}
double sl_step_accuracy(const struct sl_step *step, const void *own) {
    (void)own;
    return step->metrics.correct / step->metrics.rows;
}
double sl_step_rate(const struct sl_step *step, const void *own) {
    (void)own;
    return step->rate;
}
double sl_step_norm(const struct sl_step *step, const void *own) {
    (void)own;
    return step->norm;
}
double sl_step_ms(const struct sl_step *step, const void *own) {
    (void)own;
    return step->ms;
}

/* Milliseconds since the process was executed, from the kernel's record of its start (10 ms ticks). */
static double ms_since_exec(void) {
    unsigned long long ticks = 0;
    FILE *stat = fopen("/proc/self/stat", "r");
    if (stat) {
        if (fscanf(stat,
                   "%*d (%*[^)]) %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %llu",
                   &ticks) != 1)
            ticks = 0;
        fclose(stat);
    }
    struct timespec now;
    clock_gettime(CLOCK_BOOTTIME, &now);
    return 1e3 * ((double)now.tv_sec + 1e-9 * (double)now.tv_nsec - (double)ticks / (double)sysconf(_SC_CLK_TCK));
}

/* ---- files and objects ---- */

int sl_report_check_folder(const char *option, const char *path, struct sl_error *error) {
    char folder[SL_MAX_PATH];
    if (!path || !access(path, F_OK)) return SL_OK;
    snprintf(folder, sizeof folder, "%s", path);
    if (!access(dirname(folder), W_OK | X_OK)) return SL_OK;
    return sl_error_set(error, SL_BAD_INPUT, "%s: %s: %s", option, path, strerror(errno));
}

int sl_report_open(struct sl_report *report, const char *metrics, const char *events, bool resumed, int64_t first,
                   int64_t steps, struct sl_error *error) {
    report->first = first;
    SL_TRY(sl_metrics_open(&report->metrics, metrics, resumed ? first : -1, error));
    SL_TRY(sl_events_open(&report->events, events, first, error));
    report->opened = true;
    sl_progress_begin(&report->progress, "step", report->rows, steps - first,
                      report->json ? 0 : report->progress_every);
    report->progress.before = first;
    return SL_OK;
}

int sl_report_close(struct sl_report *report, struct sl_error *error) {
    const int closed = sl_metrics_close(&report->metrics, error);
    return sl_events_close(&report->events, closed ? NULL : error) ? SL_FAILED : closed;
}

bool sl_report_wants_json(const struct sl_report *report) {
    return report->json || report->metrics.path || report->events.stream;
}

/* Notes that an output is lost: its reader has gone, or the disk is full. The run goes on, so it can be saved. */
static int lose(struct sl_report *report, const struct sl_error *why, struct sl_error *error) {
    if (!report->opened) return sl_error_set(error, why->status, "%s", why->message);
    if (!report->lost.status) report->lost = *why;
    return SL_OK;
}

/* Discards further output to stdout. */
static int lose_stdout(struct sl_report *report, const struct sl_error *why, struct sl_error *error) {
    if (report->opened && !freopen("/dev/null", "w", stdout))
        return sl_error_set(error, SL_FAILED, "/dev/null cannot be opened");
    return lose(report, why, error);
}

/* Waits, before a line, until stdout accepts one. If a pipe is full and its reader never returns, a signal ends the
 * wait. */
static int await_stdout(struct sl_report *report, struct sl_error *error) {
    enum { PAUSE = 100 }; /* milliseconds */
    const struct sl_error nobody = {SL_FAILED, "stdout: nobody reads it"};
    struct pollfd out = {.fd = STDOUT_FILENO, .events = POLLOUT};
    while (report->opened && poll(&out, 1, PAUSE) <= 0)
        if (sl_interrupt_arrived()) return lose_stdout(report, &nobody, error);
    return SL_OK;
}

int sl_report_flush(struct sl_report *report, struct sl_error *error) {
    struct sl_error why = {0};
    return sl_stdout_finish(&why) ? lose_stdout(report, &why, error) : SL_OK;
}

static int print_json(struct sl_report *report, json_t *object, struct sl_error *error) {
    struct sl_error why = {0};
    SL_TRY(await_stdout(report, error));
    return sl_json_print(stdout, "stdout", json_incref(object), &why) ? lose_stdout(report, &why, error) : SL_OK;
}

int sl_report_print(struct sl_report *report, json_t *object, struct sl_error *error) {
    struct sl_error why = {0};
    int status = report->json ? print_json(report, object, error) : SL_OK;
    if (sl_events_write(&report->events, object, &why) && status == SL_OK) status = lose(report, &why, error);
    if (sl_metrics_write(&report->metrics, object, &why) && status == SL_OK) status = lose(report, &why, error);
    return status;
}

/* ---- steps ---- */

static void begin_table(struct sl_report *report, const struct sl_step *step) {
    int columns = 0;
    for (const struct sl_report_field *field = report->field; field->value; field++) {
        if (!field->title || (field->optional && isnan(field->value(step, report->own)))) continue;
        if (columns == SL_REPORT_COLUMNS) abort(); /* a driver has too many fields */
        report->shown[columns] = field;
        report->column[columns++] = (struct sl_column){field->title, field->width};
    }
    sl_table_begin(&report->table, stdout, columns, report->column);
}

static void print_cell(struct sl_table *table, const struct sl_report_field *field, double value) {
    if (isnan(value))
        sl_table_cell(table, "-");
    else if (field->style == 'd')
        sl_table_cell(table, "%lld", (long long)value);
    else if (field->style == 'f')
        sl_table_cell(table, "%.*f", field->digits, value);
    else
        sl_table_cell(table, "%.*g", field->digits, value);
}

static void print_row(struct sl_report *report, const struct sl_step *step) {
    sl_progress_clear(&report->progress);
    if (!report->table.stream) begin_table(report, step);
    for (int c = 0; c < report->table.columns; c++)
        print_cell(&report->table, report->shown[c], report->shown[c]->value(step, report->own));
}

static json_t *object_of(const struct sl_report *report, const struct sl_step *step) {
    json_t *object = json_object();
    for (const struct sl_report_field *field = report->field; object && field->value; field++) {
        const double value = field->key ? field->value(step, report->own) : NAN;
        if (isnan(value)) continue;
        json_object_set_new(object, field->key,
                            field->style == 'd' ? json_integer((json_int_t)value) : sl_json_real(value));
    }
    return object;
}

int sl_report_step(struct sl_report *report, const struct sl_step *step, bool shown, struct sl_error *error) {
    sl_step_times_add(&report->times, step->ms);
    report->final_loss = sl_step_loss(step, NULL);
    report->rows_done += step->metrics.rows;
    report->seconds += 1e-3 * step->ms;
    if (report->times.count == 1) report->first_step_ms = ms_since_exec();
    if (shown && !report->json) {
        SL_TRY(await_stdout(report, error));
        print_row(report, step);
    }
    SL_TRY(sl_report_flush(report, error));
    sl_progress_update(&report->progress, report->times.count, report->rows_done, report->seconds, report->final_loss,
                       sl_step_accuracy(step, NULL));
    return sl_report_wants_json(report) ? sl_report_print(report, object_of(report, step), error) : SL_OK;
}
