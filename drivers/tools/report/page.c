/* page.c - writes a report as one HTML page.
 *
 * Every picture is SVG, visible without scripts. The script redraws the plots over steps from the numbers in the
 * element "data", on log scales, smoothed, in the width of the page. */
#include "drivers/tools/report/page.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "drivers/common/output.h"
#include "drivers/tools/report/chart.h"
#include "drivers/tools/report/runs/facts.h"
#include "drivers/tools/report/memory_bars.h"
#include "drivers/tools/report/texts.h"
#include "spmd/base/svg.h"

/* ---- numbers for the script ---- */

/* Five digits are more than visible, and half of the length of all digits. */
/* Without memory ARRAY or VALUE is NULL, and the page is incomplete: *COMPLETE becomes false. */
static void append(json_t *array, json_t *value, bool *complete) { *complete &= !json_array_append_new(array, value); }

static json_t *number(double value) { return isnan(value) ? json_null() : json_real(value); }

static json_t *series_of(const struct report_plot *plot, const struct report_runs *runs, int run,
                         const struct report_range *range, bool *complete) {
    struct report_bucket bucket[REPORT_MOST_BUCKETS];
    const struct report_series *series = &runs->run[run].series[plot->quantity];
    const int begin = report_plot_begin(plot, &runs->run[run]);
    const int count =
        report_series_buckets(series, begin, range->first, range->last, report_plot_buckets(runs), bucket);
    const bool whole = count == series->count - begin;
    json_t *x = json_array(), *y = json_array(), *low = json_array(), *high = json_array();
    for (int i = 0; i < count; i++) {
        append(x, json_integer((json_int_t)bucket[i].step), complete);
        append(y, number(bucket[i].mean), complete);
        if (whole) continue;
        append(low, number(bucket[i].low), complete);
        append(high, number(bucket[i].high), complete);
    }
    return json_pack("{si so so so so}", "run", run, "x", x, "y", y, "low", low, "high", high);
}

static void add_plot(json_t *plots, const struct report_plot *plot, const struct report_runs *runs, bool *complete) {
    struct report_range range;
    if (!report_plot_range(plot, runs, &range)) return;
    json_t *series = json_array();
    for (int i = 0; i < runs->count; i++)
        if (runs->run[i].series[plot->quantity].count)
            append(series, series_of(plot, runs, i, &range, complete), complete);
    append(plots,
           json_pack("{ss sb sI sI so}", "id", plot->name, "noisy", plot->noisy, "first", (json_int_t)range.first,
                     "last", (json_int_t)range.last, "series", series),
           complete);
}

/* Writes JSON in a script element, with each < escaped: "</script>" would end it. */
static int write_data(FILE *file, const struct report_runs *runs, struct sl_error *error) {
    json_t *names = json_array(), *plots = json_array();
    bool complete = true;
    for (int i = 0; i < runs->count; i++) append(names, json_string(runs->run[i].name), &complete);
    for (int p = 0; p < REPORT_PLOTS; p++) add_plot(plots, &report_plots[p], runs, &complete);
    json_t *data = json_pack("{so so}", "runs", names, "plots", plots);
    char *text = data && complete ? json_dumps(data, JSON_COMPACT | JSON_REAL_PRECISION(5)) : NULL;
    json_decref(data);
    if (!text) return sl_error_set(error, SL_FAILED, "no memory for the page");
    fputs("<script type=\"application/json\" id=\"data\">", file);
    for (const char *c = text; *c; c++)
        if (*c == '<')
            fputs("\\u003c", file);
        else
            fputc(*c, file);
    fputs("</script>\n", file);
    free(text);
    return SL_OK;
}

/* ---- the table of runs ---- */

static void write_name(FILE *file, const struct report_runs *runs, int i) {
    char class[16];
    fprintf(file, "<svg class=\"key %s\" width=\"26\" height=\"10\" aria-hidden=\"true\"><path d=\"M1 5h24\"/></svg>",
            report_run_class(i, class, sizeof class));
    sl_svg_escape(file, runs->run[i].name);
}

static void write_fact(FILE *file, const struct report_fact *fact, const struct report_runs *runs) {
    char text[80];
    const struct report_run *run = runs->run;
    fprintf(file, "<tr><th scope=\"row\">%s</th>", fact->title);
    for (int i = 0; i < runs->count; i++) {
        fprintf(file, "<td%s>%s", report_fact_is_best(fact, runs, i) ? " class=\"best\"" : "",
                report_fact_text(fact, &run[i], text, sizeof text));
        if (*report_fact_place(fact, &run[i], text, sizeof text)) fprintf(file, " <small>%s</small>", text);
        if (*report_fact_difference(fact, runs, i, text, sizeof text)) fprintf(file, " <small>%s</small>", text);
        fputs("</td>", file);
    }
    fputs("</tr>\n", file);
}

struct option_rows {
    FILE *file;
    const struct report_runs *runs;
};

static void write_option(const char *option, void *arg) {
    const struct option_rows *rows = arg;
    fputs("<tr><th scope=\"row\"><code>", rows->file);
    sl_svg_escape(rows->file, option);
    fputs("</code></th>", rows->file);
    for (int i = 0; i < rows->runs->count; i++) {
        const char *value = report_option_of(&rows->runs->run[i], option);
        fputs("<td>", rows->file);
        sl_svg_escape(rows->file, value ? value : "-");
        fputs("</td>", rows->file);
    }
    fputs("</tr>\n", rows->file);
}

/* Writes the numbers of a single run, as tiles instead of a table. */
static void write_tiles(FILE *file, const struct report_runs *runs) {
    char text[80], place[80];
    const struct report_run *run = runs->run;
    fprintf(file, "<dl class=\"tiles\">\n<div><dt>state</dt><dd>%s</dd></div>\n", report_run_state(run));
    for (const struct report_fact *fact = report_facts; fact < report_facts + REPORT_FACTS; fact++)
        if (report_fact_is_known(fact, runs))
            fprintf(file, "<div><dt>%s</dt><dd>%s <small>%s</small></dd></div>\n", fact->title,
                    report_fact_text(fact, run, text, sizeof text), report_fact_place(fact, run, place, sizeof place));
    fputs("</dl>\n", file);
}

static void write_facts(FILE *file, const struct report_runs *runs) {
    fputs("<div class=\"wide\"><table>\n<tr><td></td>", file);
    for (int i = 0; i < runs->count; i++) {
        fputs("<th scope=\"col\">", file);
        write_name(file, runs, i);
        fputs("</th>", file);
    }
    fputs("</tr>\n<tr><th scope=\"row\">state</th>", file);
    for (int i = 0; i < runs->count; i++) fprintf(file, "<td>%s</td>", report_run_state(&runs->run[i]));
    fputs("</tr>\n", file);
    for (int f = 0; f < REPORT_FACTS; f++)
        if (report_fact_is_known(&report_facts[f], runs)) write_fact(file, &report_facts[f], runs);
    struct option_rows rows = {file, runs};
    report_options_that_differ(runs, write_option, &rows);
    fputs("</table></div>\n", file);
    fprintf(
        file,
        "<p class=\"note\">Percentages are against the first run. <b>Bold</b> is the best of a row%s. Neither is told "
        "of a difference that chance may make: small numbers say from where to where a median lay in eight parts of "
        "the run, or how far a step's number is off by the differences of neighbouring steps.</p>\n",
        report_speeds_compare(runs) ? "" : "; of speed none is, where runs had other meshes or shared cores");
}

/* ---- remarks ---- */

char *report_run_remark(const struct report_run *run, char *text, size_t size) {
    int gaps = 0;
    for (int q = 0; q < REPORT_QUANTITIES; q++) gaps += run->series[q].gaps;
    text[0] = 0;
    if (run->cut)
        snprintf(text, size, "the last line, %d, is not whole and was left out: the run may be writing it", run->cut);
    else if (gaps)
        snprintf(text, size,
                 gaps > 1 ? "%d numbers are null: gaps in the plots" : "%d number is null: a gap in its plot", gaps);
    return text;
}

static void write_remark(FILE *file, const struct report_run *run, const char *remark) {
    if (!*remark) return;
    fputs("<p class=\"note\">", file);
    sl_svg_escape(file, run->name);
    fprintf(file, ": %s.</p>\n", remark);
}

static void write_remarks(FILE *file, const struct report_runs *runs) {
    char remark[160];
    for (int i = 0; i < runs->count; i++) {
        write_remark(file, &runs->run[i], report_run_cores(&runs->run[i], remark, sizeof remark));
        write_remark(file, &runs->run[i], report_run_remark(&runs->run[i], remark, sizeof remark));
    }
}

/* ---- plots ---- */

/* Returns the largest number of steps in a bucket of PLOT; 1: every step is drawn. */
static double steps_of_bucket(const struct report_plot *plot, const struct report_runs *runs) {
    const int buckets = report_plot_buckets(runs);
    struct report_range range;
    for (int i = 0; i < runs->count; i++)
        if (runs->run[i].series[plot->quantity].count - report_plot_begin(plot, &runs->run[i]) > buckets &&
            report_plot_range(plot, runs, &range))
            return ceil((range.last - range.first) / buckets);
    return 1;
}

static void write_plot(FILE *file, const struct report_plot *plot, const struct report_runs *runs) {
    struct report_range range;
    const double steps = steps_of_bucket(plot, runs);
    if (!report_plot_range(plot, runs, &range)) return;
    fprintf(file, "<section class=\"card\" id=\"%s\"><header><h2>%s</h2>", plot->name, plot->title);
    if (range.positive > 0) fputs("<label class=\"control\" hidden><input type=\"checkbox\"> log scale</label>", file);
    fputs("</header>\n<div class=\"plot\">", file);
    report_chart_write(file, plot, runs);
    fputs("<div class=\"tip\" hidden></div></div>\n<p class=\"note\">", file);
    fputs(plot->about, file);
    if (steps > 1)
        fprintf(file, "%sa point is the mean of up to %.0f steps, the band around it spans their lowest and highest",
                *plot->about ? "; " : "", steps);
    fputs("</p></section>\n", file);
}

static void write_memory(FILE *file, const struct report_runs *runs) {
    bool known = false;
    for (int i = 0; i < runs->count; i++) known |= report_memory_is_known(&runs->run[i]);
    if (!known) return;
    fputs("<section class=\"card\" id=\"memory\"><header><h2>Memory by category</h2></header>\n<div class=\"picture\">",
          file);
    report_memory_write(file, runs, false);
    fputs("</div><p class=\"note\">as planned before the run, which takes it all at its start; activations depend on "
          "<code>--wgrad-group</code>, whose default keeps every microbatch under any schedule</p></section>\n",
          file);
}

/* Writes the timeline; the page needs only the svg element of the file. */
static int write_timeline(FILE *file, const struct report_run *run, const struct report_timeline *timeline,
                          struct sl_error *error) {
    struct sl_text picture;
    fputs("<section class=\"card all\"><header><h2>A step of the pipeline: ", file);
    sl_svg_escape(file, run->name);
    fputs("</h2></header>\n", file);
    if (timeline->missing.status) {
        fputs("<p class=\"note\">Not drawn: ", file);
        sl_svg_escape(file, timeline->missing.message);
        fputs("</p>", file);
    } else {
        FILE *memory = sl_text_open(&picture);
        if (memory) report_timeline_write(memory, timeline);
        const bool whole = sl_text_close(memory);
        if (whole) fprintf(file, "<div class=\"wide\">%s</div>", strstr(picture.bytes, "<svg"));
        free(picture.bytes);
        if (!whole) return sl_error_set(error, SL_FAILED, "no memory for the page");
    }
    fputs("</section>\n", file);
    return SL_OK;
}

/* ---- the page ---- */

static void write_head(FILE *file, const struct report_runs *runs) {
    fputs("<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
          "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
          "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; "
          "script-src 'unsafe-inline'; img-src data:\">\n"
          "<meta name=\"color-scheme\" content=\"light dark\">\n<link rel=\"icon\" href=\"data:,\">\n<title>Training: ",
          file);
    sl_svg_escape(file, runs->run[0].name);
    if (runs->count > 1) fprintf(file, " and %d more", runs->count - 1);
    fprintf(file, "</title>\n<style>\n%s%s</style></head>\n<body>\n<h1>Training: ", report_chart_css, report_page_css);
    if (runs->count > 1)
        fprintf(file, "%d runs", runs->count);
    else
        sl_svg_escape(file, runs->run[0].name);
    fputs("</h1>\n", file);
}

/* Writes the script's controls: selected runs, smoothing. */
static void write_controls(FILE *file, const struct report_runs *runs) {
    fputs("<div class=\"bar control\" hidden>", file);
    for (int i = 0; i < runs->count && runs->count > 1; i++) {
        fprintf(file, "<label><input type=\"checkbox\" name=\"run\" value=\"%d\" checked>", i);
        write_name(file, runs, i);
        fputs("</label>\n", file);
    }
    fputs("<label>smoothing <input type=\"range\" id=\"smoothing\" min=\"0\" max=\"0.99\" step=\"0.01\" value=\"0\"> "
          "<output id=\"smoothed\">0</output></label></div>\n",
          file);
}

int report_page_write(FILE *file, const struct report_runs *runs, const struct report_timeline *timeline,
                      struct sl_error *error) {
    write_head(file, runs);
    (runs->count > 1 ? write_facts : write_tiles)(file, runs);
    write_remarks(file, runs);
    write_controls(file, runs);
    fputs("<main>\n", file);
    for (int p = 0; p < REPORT_PLOTS; p++) write_plot(file, &report_plots[p], runs);
    write_memory(file, runs);
    for (int i = 0; i < runs->count; i++)
        if (runs->run[i].trace) SL_TRY(write_timeline(file, &runs->run[i], &timeline[i], error));
    fputs("</main>\n", file);
    SL_TRY(write_data(file, runs, error));
    fprintf(file, "<script>\n%s</script>\n</body></html>\n", report_page_js);
    return SL_OK;
}
