/* fuzz_report.c - input files of the driver report: metrics as JSON lines, and traces.
 *
 * The first byte chooses between them; the file begins after it. */
#include <locale.h>
#include <math.h>

#include "drivers/tools/report/chart.h"
#include "drivers/tools/report/runs/csv.h"
#include "drivers/tools/report/runs/facts.h"
#include "drivers/tools/report/memory_bars.h"
#include "drivers/tools/report/page.h"
#include "drivers/tools/report/terminal.h"
#include "tests/fuzz/fuzz.h"

static void check_series(const struct report_series *series) {
    for (int i = 0; i < series->count; i++) {
        FUZZ_PROMISE(!(fabs(series->point[i].value) > REPORT_LARGEST), "%g", series->point[i].value);
        FUZZ_PROMISE(i == 0 || series->point[i - 1].step < series->point[i].step, "step %g", series->point[i].step);
    }
}

/* Checks that a drawing contains no nan or inf. */
static void check_drawing(char *text) {
    FUZZ_PROMISE(!strstr(text, "nan") && !strstr(text, "inf"), "%s", text);
    free(text);
}

static void draw(const struct report_runs *runs) {
    char *text;
    size_t size;
    const struct report_terminal terminal = report_terminal_of(fuzz_nowhere(), 80, false);
    FILE *file = open_memstream(&text, &size);
    FUZZ_PROMISE(file, "memory");
    for (int p = 0; p < REPORT_PLOTS; p++) {
        report_chart_write_file(file, &report_plots[p], runs);
        report_terminal_plot(&terminal, &report_plots[p], runs);
    }
    report_csv_write(file, runs);
    fclose(file);
    check_drawing(text);
    report_memory_write(fuzz_nowhere(), runs, true); /* it has the file's own words */
    report_terminal_facts(&terminal, runs);
}

static int read_metrics(const char *path, struct sl_error *error) {
    struct report_runs runs = {0};
    const struct report_timeline none[1] = {0};
    char argument[80];
    const char *word = argument;
    snprintf(argument, sizeof argument, "fuzz=%s", path);
    const int status = report_runs_open(&runs, &word, 1, error);
    if (status == SL_OK && runs.run[0].metrics) {
        for (int q = 0; q < REPORT_QUANTITIES; q++) check_series(&runs.run[0].series[q]);
        draw(&runs);
        FUZZ_PROMISE(!report_page_write(fuzz_nowhere(), &runs, none, error), "%s", error->message);
    }
    report_runs_free(&runs);
    return status;
}

static int read_trace(const char *path, struct sl_error *error) {
    struct report_timeline timeline = {0};
    const int status = report_timeline_open(&timeline, path, error);
    if (status == SL_OK && !timeline.missing.status) {
        char *text;
        size_t size;
        FILE *file = open_memstream(&text, &size);
        FUZZ_PROMISE(file, "memory");
        report_timeline_write(file, &timeline);
        fclose(file);
        check_drawing(text);
    } else if (status == SL_OK) {
        fuzz_refused(timeline.missing.status, &timeline.missing);
    }
    report_timeline_free(&timeline);
    return status;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct sl_error error = {0};
    if (size < 1) return 0;
    const char *path = fuzz_file(0, data + 1, size - 1);
    const int status = (data[0] % 2 ? read_trace : read_metrics)(path, &error);
    if (status) fuzz_refused(status, &error);
    return 0;
}
