/* chart.c - draws a plot over steps as SVG.
 *
 * Colours are given as attributes, for programs without style sheets, and as classes, by which a dark page changes
 * them. */
#include "drivers/tools/report/chart.h"

#include <math.h>

#include "drivers/tools/report/scale.h"
#include "drivers/tools/report/texts.h"
#include "spmd/base/svg.h"

enum { LEFT = 62, RIGHT = 14, TOP = 12, BOTTOM = 36, LINE = 20, MARKED = 40 };

/* Distinguishable for colour-blind readers, on white; chart.css has colours for black. */
static const char *const colours[REPORT_COLOURS] = {"#0072b2", "#d55e00", "#00805c", "#a8508a", "#8a6a00", "#4a4f57"};
static const char *const dashes[] = {"none", "7 3", "2 3", "9 3 2 3"};

struct chart {
    FILE *file;
    const struct report_plot *plot;
    const struct report_runs *runs;
    double width, top, bottom; /* ends of the picture and of the plot in it */
    struct report_range range;
    struct report_scale x, y;
};

char *report_run_class(int i, char *text, size_t size) {
    const int dash = i / REPORT_COLOURS % 4;
    if (dash)
        snprintf(text, size, "r%d d%d", i % REPORT_COLOURS, dash);
    else
        snprintf(text, size, "r%d", i % REPORT_COLOURS);
    return text;
}

void report_svg_begin(FILE *file, double width, double height, const char *label, bool file_of_its_own) {
    fputs("<svg class=\"chart\" role=\"img\" ", file);
    if (file_of_its_own)
        fprintf(file, "xmlns=\"http://www.w3.org/2000/svg\" width=\"%g\" height=\"%g\" ", width, height);
    fprintf(file, "viewBox=\"0 0 %g %g\" font-family=\"system-ui, sans-serif\" font-size=\"12\" aria-label=\"", width,
            height);
    sl_svg_escape(file, label);
    fputs("\">\n", file);
    if (!file_of_its_own) return;
    fprintf(file, "<style>%s</style>\n<rect class=\"paper\" width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n",
            report_chart_css);
}

/* ---- axes ---- */

static void write_axes(const struct chart *chart) {
    FILE *file = chart->file;
    double tick[REPORT_TICKS];
    char text[32];
    int ticks = report_scale_ticks(&chart->y, 6, tick);
    fputs("<path class=\"grid\" stroke=\"#e1e4e8\" d=\"", file);
    for (int i = 0; i < ticks; i++)
        fprintf(file, "M%d %.4gH%.4g", LEFT, report_scale_at(&chart->y, tick[i]), chart->width - RIGHT);
    fputs("\"/>\n<g class=\"ticks\" fill=\"#57606a\" font-size=\"11\">\n", file);
    for (int i = 0; i < ticks; i++)
        fprintf(file, "<text x=\"%d\" y=\"%.4g\" text-anchor=\"end\">%s</text>\n", LEFT - 7,
                report_scale_at(&chart->y, tick[i]) + 4, report_number(tick[i], text, sizeof text));
    ticks = report_scale_ticks(&chart->x, 6, tick);
    for (int i = 0; i < ticks; i++)
        fprintf(file, "<text x=\"%.4g\" y=\"%.4g\" text-anchor=\"middle\">%s</text>\n",
                report_scale_at(&chart->x, tick[i]), chart->bottom + 15, report_number(tick[i], text, sizeof text));
    fprintf(file, "<text x=\"%.4g\" y=\"%.4g\" text-anchor=\"middle\">step</text>\n</g>\n",
            (LEFT + chart->width - RIGHT) / 2, chart->bottom + 30);
}

/* ---- series ---- */

static double x_at(const struct chart *chart, const struct report_bucket *bucket) {
    return report_scale_at(&chart->x, bucket->step);
}

/* Draws lines through the means, interrupted by gaps; a point between gaps becomes a dot. */
static void write_line(const struct chart *chart, const struct report_bucket *bucket, int count) {
    bool drawing = false;
    fputs("<path class=\"line\" fill=\"none\" stroke=\"currentColor\" stroke-width=\"1.6\" stroke-linejoin=\"round\" "
          "stroke-linecap=\"round\" d=\"",
          chart->file);
    for (int i = 0; i < count; i++) {
        const bool is_gap = isnan(bucket[i].mean);
        if (!is_gap)
            fprintf(chart->file, "%c%.4g %.4g", drawing ? 'L' : 'M', x_at(chart, &bucket[i]),
                    report_scale_at(&chart->y, bucket[i].mean));
        if (!is_gap && !drawing && (i + 1 == count || isnan(bucket[i + 1].mean))) fputs("h0", chart->file);
        drawing = !is_gap;
    }
    fputs("\"/>\n", chart->file);
}

/* Draws the area between the lowest and the highest values of the buckets BEGIN to END - 1. */
static void write_band(const struct chart *chart, const struct report_bucket *bucket, int begin, int end) {
    for (int i = begin; i < end; i++)
        fprintf(chart->file, "%c%.4g %.4g", i > begin ? 'L' : 'M', x_at(chart, &bucket[i]),
                report_scale_at(&chart->y, bucket[i].high));
    for (int i = end - 1; i >= begin; i--)
        fprintf(chart->file, "L%.4g %.4g", x_at(chart, &bucket[i]), report_scale_at(&chart->y, bucket[i].low));
    fputc('Z', chart->file);
}

static void write_bands(const struct chart *chart, const struct report_bucket *bucket, int count) {
    fputs("<path class=\"band\" fill=\"currentColor\" stroke=\"currentColor\" stroke-width=\".8\" opacity=\".3\" d=\"",
          chart->file);
    for (int i = 0, end; i < count; i = end + 1) {
        for (end = i; end < count && !isnan(bucket[end].mean);) end++;
        if (end > i) write_band(chart, bucket, i, end);
    }
    fputs("\"/>\n", chart->file);
}

static void write_marks(const struct chart *chart, const struct report_bucket *bucket, int count) {
    for (int i = 0; i < count; i++)
        if (!isnan(bucket[i].mean))
            fprintf(chart->file, "<circle cx=\"%.4g\" cy=\"%.4g\" r=\"2.5\" fill=\"currentColor\"/>\n",
                    x_at(chart, &bucket[i]), report_scale_at(&chart->y, bucket[i].mean));
}

static void write_run(const struct chart *chart, int i) {
    struct report_bucket bucket[REPORT_MOST_BUCKETS];
    char class[16];
    const struct report_series *series = &chart->runs->run[i].series[chart->plot->quantity];
    const int begin = report_plot_begin(chart->plot, &chart->runs->run[i]);
    const int count = report_series_buckets(series, begin, chart->range.first, chart->range.last,
                                            report_plot_buckets(chart->runs), bucket);
    if (!count) return;
    fprintf(chart->file, "<g class=\"%s\" color=\"%s\" stroke-dasharray=\"%s\">\n",
            report_run_class(i, class, sizeof class), colours[i % REPORT_COLOURS], dashes[i / REPORT_COLOURS % 4]);
    if (count < series->count - begin) write_bands(chart, bucket, count);
    write_line(chart, bucket, count);
    if (count <= MARKED) write_marks(chart, bucket, count);
    fputs("</g>\n", chart->file);
}

/* ---- the whole chart ---- */

static void write_all(struct chart *chart) {
    const struct report_range *range = &chart->range;
    const double room = 0.04 * (range->high - range->low);
    chart->x = (struct report_scale){range->first, range->last, LEFT, chart->width - RIGHT, false};
    chart->y = (struct report_scale){range->low - room, range->high + room, chart->bottom, chart->top, false};
    write_axes(chart);
    for (int i = 0; i < chart->runs->count; i++) write_run(chart, i);
    fputs("</svg>\n", chart->file);
}

void report_chart_write(FILE *file, const struct report_plot *plot, const struct report_runs *runs) {
    enum { WIDTH = 560, HEIGHT = 250 };
    struct chart chart = {file, plot, runs, .width = WIDTH, .top = TOP, .bottom = HEIGHT - BOTTOM};
    if (!report_plot_range(plot, runs, &chart.range)) return;
    report_svg_begin(file, WIDTH, HEIGHT, plot->title, false);
    write_all(&chart);
}

static void write_legend(const struct chart *chart) {
    char class[16];
    double y = TOP + LINE;
    fprintf(chart->file,
            "<text class=\"ink\" fill=\"#1f2328\" x=\"%d\" y=\"%g\" font-size=\"15\" font-weight=\"600\">%s</text>\n",
            LEFT, y, chart->plot->title);
    for (int i = 0; i < chart->runs->count; i++) {
        y += LINE;
        fprintf(chart->file,
                "<path class=\"%s\" color=\"%s\" stroke=\"currentColor\" stroke-width=\"2.5\" stroke-dasharray=\"%s\" "
                "d=\"M%d %gh24\"/><text class=\"ink\" fill=\"#1f2328\" x=\"%d\" y=\"%g\">",
                report_run_class(i, class, sizeof class), colours[i % REPORT_COLOURS], dashes[i / REPORT_COLOURS % 4],
                LEFT, y, LEFT + 32, y + 4);
        sl_svg_escape(chart->file, chart->runs->run[i].name);
        fputs("</text>\n", chart->file);
    }
}

bool report_chart_write_file(FILE *file, const struct report_plot *plot, const struct report_runs *runs) {
    enum { WIDTH = 800, PLOT = 340 };
    struct chart chart = {file, plot, runs, .width = WIDTH, .top = TOP + LINE * (runs->count + 2)};
    chart.bottom = chart.top + PLOT;
    if (!report_plot_range(plot, runs, &chart.range)) return false;
    report_svg_begin(file, WIDTH, chart.bottom + BOTTOM, plot->title, true);
    write_legend(&chart);
    write_all(&chart);
    return true;
}
