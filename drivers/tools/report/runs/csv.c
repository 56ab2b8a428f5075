/* csv.c - merges a run's series, each sorted by step, into rows. */
#include "drivers/tools/report/runs/csv.h"

#include <math.h>
#include <string.h>

static bool is_known(const struct report_runs *runs, int quantity) {
    for (int i = 0; i < runs->count; i++)
        if (runs->run[i].series[quantity].count) return true;
    return false;
}

/* Writes a field, in quotes if it contains a separator. */
static void write_text(FILE *file, const char *text) {
    const bool bare = !text[strcspn(text, ",\"\r\n")];
    if (!bare) fputc('"', file);
    for (; *text; text++) {
        if (*text == '"') fputc('"', file);
        fputc(*text, file);
    }
    if (!bare) fputc('"', file);
}

/* Returns the first step of RUN without a row; AT has the next index of each series; NaN: no more steps. */
static double next_step(const struct report_run *run, const int at[REPORT_QUANTITIES]) {
    double step = NAN;
    for (int q = 0; q < REPORT_QUANTITIES; q++)
        if (at[q] < run->series[q].count) step = fmin(step, run->series[q].point[at[q]].step);
    return step;
}

static void write_run(FILE *file, const struct report_runs *runs, const struct report_run *run) {
    int at[REPORT_QUANTITIES] = {0};
    for (double step; !isnan(step = next_step(run, at));) {
        write_text(file, run->name);
        fprintf(file, ",%.0f", step);
        for (int q = 0; q < REPORT_QUANTITIES; q++) {
            const struct report_series *series = &run->series[q];
            const bool here = at[q] < series->count && series->point[at[q]].step <= step;
            if (is_known(runs, q)) fputc(',', file);
            if (here && !isnan(series->point[at[q]].value)) fprintf(file, "%.9g", series->point[at[q]].value);
            at[q] += here;
        }
        fputs("\r\n", file);
    }
}

void report_csv_write(FILE *file, const struct report_runs *runs) {
    fputs("run,step", file);
    for (int q = 0; q < REPORT_QUANTITIES; q++)
        if (is_known(runs, q)) fprintf(file, ",%s", report_quantity_key(q));
    fputs("\r\n", file);
    for (int i = 0; i < runs->count; i++) write_run(file, runs, &runs->run[i]);
}
