/* terminal.c - draws plots and prints numbers in a terminal. */
#include "drivers/tools/report/terminal.h"

#include <langinfo.h>
#include <locale.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "drivers/tools/report/runs/facts.h"
#include "drivers/tools/report/scale.h"

enum { ROWS = 12, LABEL = 9, MOST_CELLS = REPORT_MOST_COLUMNS, MOST_DOTS = 2 * MOST_CELLS };
enum { TITLE = 21, VALUE = 14, DIFFERENCE = 9 }; /* columns of the table of numbers */

/* A character of the drawing: its set dots out of 2 x 4, and the last run drawn in it. */
struct cell {
    unsigned char dots;
    signed char run;
};

struct canvas {
    int wide, high; /* dots */
    int per_column, per_row;
    struct report_scale x, y; /* to dots */
    int run;
    struct cell cell[ROWS][MOST_CELLS];
};

static const char letters[] = "*+ox#@%&abcdefghijklmnpqr";
_Static_assert(sizeof letters > REPORT_MOST_RUNS, "a letter a run");
static const int colours[] = {39, 208, 43, 176, 178, 250};

struct report_terminal report_terminal_of(FILE *file, int columns, bool coloured) {
    const char *type = getenv("TERM"), *wide = getenv("COLUMNS");
    struct report_terminal terminal = {.file = file, .columns = columns, .coloured = coloured};
    if (columns < 1 && wide) terminal.columns = (int)strtol(wide, NULL, 10);
    if (terminal.columns < 1) terminal.columns = 80;
    if (terminal.columns < REPORT_LEAST_COLUMNS) terminal.columns = REPORT_LEAST_COLUMNS;
    if (terminal.columns > REPORT_MOST_COLUMNS) terminal.columns = REPORT_MOST_COLUMNS;
    setlocale(LC_CTYPE, "");
    terminal.unicode = !strcmp(nl_langinfo(CODESET), "UTF-8") && !(type && !strcmp(type, "dumb"));
    return terminal;
}

/* ---- text ---- */

/* Returns the start of the next character of TEXT, which is UTF-8. */
static const char *next_character(const char *text) {
    do text++;
    while ((*text & 0xc0) == 0x80);
    return text;
}

enum side { LEFT, RIGHT, NO_SIDE };

/* Prints TEXT aligned to SIDE in WIDTH columns, cut if too long. */
static void put_text(const struct report_terminal *terminal, const char *text, int width, enum side side) {
    int length = 0;
    for (const char *c = text; *c; c = next_character(c)) length++;
    if (length > width) length = width;
    if (side == RIGHT) fprintf(terminal->file, "%*s", width - length, "");
    for (int i = 0; i < length; i++) {
        const char *next = next_character(text);
        if (terminal->unicode || next == text + 1)
            fprintf(terminal->file, "%.*s", (int)(next - text), text);
        else
            fputc('?', terminal->file);
        text = next;
    }
    if (side == LEFT) fprintf(terminal->file, "%*s", width - length, "");
}

static void begin_colour(const struct report_terminal *terminal, int run) {
    if (terminal->coloured) fprintf(terminal->file, "\033[38;5;%dm", colours[run % 6]);
}
static void end_colour(const struct report_terminal *terminal) {
    if (terminal->coloured) fputs("\033[0m", terminal->file);
}

/* Whether to draw braille dots: runs then differ only in colour. */
static bool draws_dots(const struct report_terminal *terminal, const struct report_runs *runs) {
    return terminal->unicode && (terminal->coloured || runs->count == 1);
}

/* ---- drawing ---- */

/* Sets a dot; Y counts from the bottom. */
static void set_dot(struct canvas *canvas, int x, int y) {
    static const unsigned char bit[4][2] = {{0x01, 0x08}, {0x02, 0x10}, {0x04, 0x20}, {0x40, 0x80}};
    const int down = canvas->high - 1 - y;
    if (x < 0 || x >= canvas->wide || down < 0 || down >= canvas->high) return;
    struct cell *cell = &canvas->cell[down / canvas->per_row][x / canvas->per_column];
    cell->dots |= bit[down % canvas->per_row][x % canvas->per_column];
    cell->run = (signed char)canvas->run;
}

static void set_column(struct canvas *canvas, int x, int from, int to) {
    for (int y = from < to ? from : to; y <= (from < to ? to : from); y++) set_dot(canvas, x, y);
}

/* Draws a line from one point to the next. */
static void set_line(struct canvas *canvas, int x0, int y0, int x1, int y1) {
    int last = y0;
    for (int x = x0 + 1; x <= x1; x++) {
        const int y = (int)lround(y0 + (double)(y1 - y0) * (x - x0) / (x1 - x0));
        set_column(canvas, x, last < y ? last + 1 : last > y ? last - 1 : y, y);
        last = y;
    }
}

static int dot_of(const struct report_scale *scale, double value) { return (int)lround(report_scale_at(scale, value)); }

/* Whether to use a log scale: the range spans more than two decades. */
static bool spans_decades(const struct report_range *range) { return range->low > 0 && range->high / range->low > 100; }

static void draw_run(struct canvas *canvas, const struct report_series *series, int begin) {
    struct report_bucket bucket[MOST_DOTS];
    const struct report_scale *x = &canvas->x, *y = &canvas->y;
    const int count = report_series_buckets(series, begin, x->low, x->high, canvas->wide, bucket);
    for (int i = 0; i < count; i++) {
        if (isnan(bucket[i].mean)) continue;
        const int at = dot_of(x, bucket[i].step);
        set_column(canvas, at, dot_of(y, bucket[i].low), dot_of(y, bucket[i].high));
        if (i && !isnan(bucket[i - 1].mean))
            set_line(canvas, dot_of(x, bucket[i - 1].step), dot_of(y, bucket[i - 1].mean), at,
                     dot_of(y, bucket[i].mean));
    }
}

/* ---- printing ---- */

static void print_cell(const struct report_terminal *terminal, const struct cell *cell, bool dots) {
    if (!cell->dots) {
        fputc(' ', terminal->file);
        return;
    }
    begin_colour(terminal, cell->run);
    if (dots) /* U+2800 and the dots */
        fprintf(terminal->file, "\xe2%c%c", 0xa0 | cell->dots >> 6, 0x80 | (cell->dots & 0x3f));
    else
        fputc(letters[cell->run], terminal->file);
    end_colour(terminal);
}

static void print_row(const struct report_terminal *terminal, const struct canvas *canvas, int row, bool dots) {
    const int cells = canvas->wide / canvas->per_column;
    int end = cells;
    while (end > 0 && !canvas->cell[row][end - 1].dots) end--;
    for (int c = 0; c < end; c++) print_cell(terminal, &canvas->cell[row][c], dots);
    fputc('\n', terminal->file);
}

/* Prints a tick with as many digits as fit, without cutting off an exponent. */
static void label_tick(double value, char *label, size_t size) {
    report_number(value, label, size);
    for (int digits = 4; strlen(label) > LABEL && digits > 0; digits--) snprintf(label, size, "%.*g", digits, value);
}

/* Labels the row of each tick's value. */
static void label_rows(const struct canvas *canvas, char label[ROWS][32]) {
    double tick[REPORT_TICKS];
    const int ticks = report_scale_ticks(&canvas->y, 4, tick);
    for (int r = 0; r < ROWS; r++) *label[r] = 0;
    for (int i = 0; i < ticks; i++) {
        const int row = (canvas->high - 1 - dot_of(&canvas->y, tick[i])) / canvas->per_row;
        label_tick(tick[i], label[row], sizeof *label);
    }
}

static void print_rows(const struct report_terminal *terminal, const struct canvas *canvas, bool dots) {
    char label[ROWS][32];
    label_rows(canvas, label);
    for (int r = 0; r < ROWS; r++) {
        put_text(terminal, label[r], LABEL, RIGHT);
        fputs(terminal->unicode ? *label[r] ? " \u2524" : " \u2502" : " |", terminal->file);
        print_row(terminal, canvas, r, dots);
    }
}

static void print_steps(const struct report_terminal *terminal, const struct report_range *range, int cells) {
    char first[32], last[32], line[80];
    fprintf(terminal->file, "%*s", LABEL + 1, "");
    fputs(terminal->unicode ? "\u2514" : "+", terminal->file);
    for (int i = 0; i < cells; i++) fputs(terminal->unicode ? "\u2500" : "-", terminal->file);
    report_number(range->first, first, sizeof first);
    snprintf(line, sizeof line, "step %s", report_number(range->last, last, sizeof last));
    fprintf(terminal->file, "\n%*s%-*s%*s\n", LABEL + 2, "", cells / 2, first, cells - cells / 2, line);
}

static void print_legend(const struct report_terminal *terminal, const struct report_plot *plot,
                         const struct report_runs *runs) {
    for (int i = 0; i < runs->count; i++) {
        if (!runs->run[i].series[plot->quantity].count) continue;
        fprintf(terminal->file, "%*s", LABEL + 2, "");
        begin_colour(terminal, i);
        fputs(draws_dots(terminal, runs) ? "\u2501\u2501" : (char[]){letters[i], letters[i], 0}, terminal->file);
        end_colour(terminal);
        fputc(' ', terminal->file);
        put_text(terminal, runs->run[i].name, terminal->columns - LABEL - 5, NO_SIDE);
        fputc('\n', terminal->file);
    }
}

bool report_terminal_plot(const struct report_terminal *terminal, const struct report_plot *plot,
                          const struct report_runs *runs) {
    struct report_range range;
    if (!report_plot_range(plot, runs, &range)) return false;
    const int cells = terminal->columns - LABEL - 3;
    const bool dots = draws_dots(terminal, runs);
    struct canvas canvas = {.per_column = dots ? 2 : 1, .per_row = dots ? 4 : 1};
    canvas.wide = cells * canvas.per_column;
    canvas.high = ROWS * canvas.per_row;
    canvas.x = (struct report_scale){range.first, range.last, 0, canvas.wide - 1, false};
    canvas.y = (struct report_scale){range.low, range.high, 0, canvas.high - 1, spans_decades(&range)};
    for (canvas.run = 0; canvas.run < runs->count; canvas.run++) {
        const struct report_run *run = &runs->run[canvas.run];
        draw_run(&canvas, &run->series[plot->quantity], report_plot_begin(plot, run));
    }
    fprintf(terminal->file, "\n%*s%s%s\n", LABEL + 2, "", plot->title, canvas.y.log ? " (log scale)" : "");
    print_rows(terminal, &canvas, dots);
    print_steps(terminal, &range, cells);
    if (runs->count > 1) print_legend(terminal, plot, runs);
    return true;
}

/* ---- numbers ---- */

/* Other runs have a column for the difference from the first. */
static int cell_width(int run) { return run ? VALUE + DIFFERENCE : VALUE; }

static void print_block(const struct report_terminal *terminal, const struct report_runs *runs, int begin, int end) {
    char text[64], difference[32], both[100];
    put_text(terminal, "", TITLE, LEFT);
    for (int i = begin; i < end; i++) {
        begin_colour(terminal, i);
        put_text(terminal, runs->run[i].name, cell_width(i) - 1, RIGHT);
        end_colour(terminal);
        fputc(i + 1 < end ? ' ' : '\n', terminal->file);
    }
    put_text(terminal, "state", TITLE, LEFT);
    for (int i = begin; i < end; i++) {
        put_text(terminal, report_run_state(&runs->run[i]), cell_width(i) - 1, RIGHT);
        fputc(i + 1 < end ? ' ' : '\n', terminal->file);
    }
    for (int f = 0; f < REPORT_FACTS; f++) {
        if (!report_fact_is_known(&report_facts[f], runs)) continue;
        put_text(terminal, report_facts[f].title, TITLE, LEFT);
        for (int i = begin; i < end; i++) {
            report_fact_difference(&report_facts[f], runs, i, difference, sizeof difference);
            report_fact_text(&report_facts[f], &runs->run[i], text, sizeof text);
            snprintf(both, sizeof both, i ? "%s %8s" : "%s", text, difference);
            put_text(terminal, both, cell_width(i) - 1, RIGHT);
            fputc(i + 1 < end ? ' ' : '\n', terminal->file);
        }
    }
}

static void print_cores(const struct report_terminal *terminal, const struct report_run *run) {
    char cores[100], line[400];
    if (!*report_run_cores(run, cores, sizeof cores)) return;
    snprintf(line, sizeof line, "%.200s: %s", run->name, cores);
    put_text(terminal, line, terminal->columns, NO_SIDE);
    fputc('\n', terminal->file);
}

void report_terminal_facts(const struct report_terminal *terminal, const struct report_runs *runs) {
    const int fit = (terminal->columns - TITLE) / (VALUE + DIFFERENCE), each = fit > 0 ? fit : 1;
    for (int begin = 0; begin < runs->count; begin += each) {
        if (begin) fputc('\n', terminal->file);
        print_block(terminal, runs, begin, begin + each < runs->count ? begin + each : runs->count);
    }
    for (int i = 0; i < runs->count; i++) print_cores(terminal, &runs->run[i]);
}
