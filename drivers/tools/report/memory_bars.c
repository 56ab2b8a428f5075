/* memory_bars.c - draws memory by category. */
#include "drivers/tools/report/memory_bars.h"

#include <math.h>
#include <string.h>

#include "drivers/tools/report/chart.h"
#include "drivers/tools/report/scale.h"
#include "spmd/base/svg.h"

enum {
    CATEGORIES = 12,
    ROWS = 16,
    NAMED = 3
}; /* limits: categories of a drawing, rows of a run, named coordinates
    * of a row */
enum { WIDTH = 560, LEFT = 150, RIGHT = 70, LINE = 22, BAR = 14 };

/* Coordinates with equal memory. */
struct row {
    int count, coordinate[NAMED]; /* the first ones */
    double bytes[CATEGORIES];
};

struct bars {
    FILE *file;
    int categories;
    const char *category[CATEGORIES];
    double most; /* bytes of a row */
    double y;
};

static const char *const colours[CATEGORIES] = {"#4e79a7", "#f28e2b", "#76b7b2", "#b07aa1", "#59a14f", "#edc948",
                                                "#9c755f", "#ff9da7", "#86bcb6", "#a0a0a0", "#e15759", "#d4a6c8"};

static const json_t *list_of(const struct report_run *run) {
    const json_t *list = json_object_get(run->summary, "memory");
    return json_is_array(list) && json_array_size(list) ? list : NULL;
}

bool report_memory_is_known(const struct report_run *run) { return list_of(run) != NULL; }

/* ---- collecting rows ---- */

static int find_category(struct bars *bars, const char *name) {
    for (int c = 0; c < bars->categories; c++)
        if (!strcmp(bars->category[c], name)) return c;
    if (bars->categories == CATEGORIES || !strcmp(name, "coordinate") || !strcmp(name, "total")) return -1;
    bars->category[bars->categories] = name;
    return bars->categories++;
}

/* Whether a category is a sum of others, in runs that list the parts of activations. */
static bool is_sum(const json_t *object, const char *name) {
    return !strcmp(name, "activations") && json_object_get(object, "kept");
}

/* Fills in ROW; returns the bytes of all categories together. */
static double take_row(struct bars *bars, json_t *object, struct row *row) {
    const char *name;
    json_t *number;
    double sum = 0;
    *row = (struct row){0};
    json_object_foreach(object, name, number) {
        const double bytes = json_is_number(number) ? json_number_value(number) : 0;
        const int category =
            bytes > 0 && bytes <= REPORT_LARGEST && !is_sum(object, name) ? find_category(bars, name) : -1;
        if (category < 0) continue;
        row->bytes[category] = bytes;
        sum += bytes;
    }
    return sum;
}

/* Fills in the rows of LIST, at most ROWS; *LEFT_OUT: number of coordinates beyond them. */
static int take_rows(struct bars *bars, const json_t *list, struct row *row, int *left_out) {
    int rows = 0;
    size_t i;
    json_t *object;
    *left_out = 0;
    json_array_foreach(list, i, object) {
        struct row next, *same = row;
        bars->most = fmax(bars->most, take_row(bars, object, &next));
        while (same < row + rows && memcmp(same->bytes, next.bytes, sizeof next.bytes) != 0) same++;
        if (same == row + ROWS) {
            ++*left_out;
            continue;
        }
        if (same == row + rows) row[rows++] = next;
        if (same->count < NAMED) same->coordinate[same->count] = (int)i;
        same->count++;
    }
    return rows;
}

/* ---- drawing ---- */

static void write_label(struct bars *bars, const struct row *row) {
    fprintf(bars->file, "<text class=\"ink\" fill=\"#1f2328\" x=\"%d\" y=\"%g\" text-anchor=\"end\">", LEFT - 8,
            bars->y + BAR - 2);
    if (row->count <= 2) fputs(row->count == 1 ? "coordinate " : "coordinates ", bars->file);
    for (int i = 0; i < row->count && i < NAMED; i++) fprintf(bars->file, "%s%d", i ? ", " : "", row->coordinate[i]);
    if (row->count > NAMED) fprintf(bars->file, " and %d more", row->count - NAMED);
    fputs("</text>\n", bars->file);
}

static void write_row(struct bars *bars, const struct row *row) {
    double x = LEFT, sum = 0;
    write_label(bars, row);
    for (int c = 0; c < bars->categories; c++) {
        const double width = row->bytes[c] / bars->most * (WIDTH - LEFT - RIGHT);
        if (width <= 0) continue;
        fprintf(bars->file, "<rect x=\"%.4g\" y=\"%.4g\" width=\"%.4g\" height=\"%d\" fill=\"%s\"><title>", x, bars->y,
                width, BAR, colours[c]);
        sl_svg_escape(bars->file, bars->category[c]);
        fprintf(bars->file, ": %.4g MB</title></rect>\n", row->bytes[c] / 1e6);
        x += width;
        sum += row->bytes[c];
    }
    fprintf(bars->file, "<text class=\"ink\" fill=\"#1f2328\" x=\"%.4g\" y=\"%.4g\">%.4g MB</text>\n", x + 6,
            bars->y + BAR - 2, sum / 1e6);
    bars->y += LINE;
}

static void write_run(struct bars *bars, const struct report_run *run, bool named) {
    struct row row[ROWS];
    int left_out;
    const int rows = take_rows(bars, list_of(run), row, &left_out);
    if (named) {
        fprintf(bars->file, "<text class=\"ink\" fill=\"#1f2328\" x=\"8\" y=\"%g\" font-weight=\"600\">",
                bars->y + BAR - 2);
        sl_svg_escape(bars->file, run->name);
        fputs("</text>\n", bars->file);
        bars->y += LINE;
    }
    for (int r = 0; r < rows; r++) write_row(bars, &row[r]);
    if (!left_out) return;
    fprintf(bars->file, "<g class=\"ticks\" fill=\"#57606a\"><text x=\"%d\" y=\"%g\">and %d more</text></g>\n", LEFT,
            bars->y + BAR - 2, left_out);
    bars->y += LINE;
}

static double entry_width(const char *category) { return 24 + 7.0 * (double)strlen(category); }

static void write_entry(const struct bars *bars, int category, double x) {
    fprintf(bars->file,
            "<rect x=\"%g\" y=\"%g\" width=\"11\" height=\"11\" fill=\"%s\"/><text class=\"ink\" fill=\"#1f2328\" "
            "x=\"%g\" y=\"%g\">",
            x, bars->y + 1, colours[category], x + 16, bars->y + 11);
    sl_svg_escape(bars->file, bars->category[category]);
    fputs("</text>\n", bars->file);
}

/* Writes the legend if WRITES; otherwise only advances y. */
static void write_legend(struct bars *bars, bool writes) {
    double x = LEFT;
    for (int c = 0; c < bars->categories; c++) {
        const double width = entry_width(bars->category[c]);
        if (x > LEFT && x + width > WIDTH) {
            x = LEFT;
            bars->y += LINE;
        }
        if (writes) write_entry(bars, c, x);
        x += width;
    }
    bars->y += LINE;
}

/* Finds the categories, the scale and the height of the drawing. */
static double measure(struct bars *bars, const struct report_runs *runs) {
    struct row row[ROWS];
    struct bars legend;
    int lines = 0, left_out;
    for (int i = 0; i < runs->count; i++) {
        if (!report_memory_is_known(&runs->run[i])) continue;
        lines += take_rows(bars, list_of(&runs->run[i]), row, &left_out) + (runs->count > 1) + (left_out > 0);
    }
    legend = *bars;
    write_legend(&legend, false);
    return legend.y + LINE * lines;
}

bool report_memory_write(FILE *file, const struct report_runs *runs, bool file_of_its_own) {
    struct bars bars = {.file = file, .y = 8};
    const double height = measure(&bars, runs);
    if (bars.most <= 0) return false;
    report_svg_begin(file, WIDTH, height, "Memory by category", file_of_its_own);
    write_legend(&bars, true);
    for (int i = 0; i < runs->count; i++)
        if (report_memory_is_known(&runs->run[i])) write_run(&bars, &runs->run[i], runs->count > 1);
    fputs("</svg>\n", file);
    return true;
}
