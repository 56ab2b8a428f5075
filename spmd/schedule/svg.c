/* svg.c - a simulated schedule as a timeline. */
#include <math.h>

#include "spmd/schedule/draw.h"

/* Lengths in pixels. */
enum { LEFT = 124, RIGHT = 24, TOP = 62, ROW = 30, LANE = 8, GAP = 8, AXIS = 42, LEGEND = 30, LETTER = 6 };
enum { NARROWEST = 700, WIDEST = 4000 };

struct drawing {
    const struct sl_schedule *schedule;
    const struct sl_simulation *simulation;
    FILE *file;
    double scale;  /* pixels a millisecond */
    double pitch;  /* from row to row */
    double bottom; /* where the axis lies */
};

struct colour {
    int red, green, blue;
};
static const struct colour idle = {236, 236, 236};

/* Of the first and the last of many loops; shades between them are mixed. */
static const struct colour shades[SL_ACTION_KINDS][2] = {
    [SL_FORWARD] = {{174, 204, 242}, {33, 84, 156}},       [SL_BACKWARD] = {{170, 222, 190}, {20, 108, 70}},
    [SL_INPUT_GRADIENT] = {{250, 207, 140}, {184, 98, 0}}, [SL_WEIGHT_GRADIENT] = {{221, 192, 235}, {108, 52, 140}},
    [SL_REDUCE] = {{190, 190, 190}, {80, 80, 80}},
};
static const char *const kind_name[SL_ACTION_KINDS] = {[SL_FORWARD] = "forward",
                                                       [SL_BACKWARD] = "backward",
                                                       [SL_INPUT_GRADIENT] = "input gradient",
                                                       [SL_WEIGHT_GRADIENT] = "weight gradient",
                                                       [SL_REDUCE] = "reduction"};

static struct colour colour_of(const struct drawing *drawing, enum sl_action_kind kind, int loop) {
    const int loops = drawing->schedule->loops;
    const double part = loops > 1 ? (double)loop / (loops - 1) : 0.25;
    const struct colour *from = &shades[kind][0], *to = &shades[kind][1];
    return (struct colour){(int)(from->red + part * (to->red - from->red)),
                           (int)(from->green + part * (to->green - from->green)),
                           (int)(from->blue + part * (to->blue - from->blue))};
}

static bool is_dark(struct colour colour) {
    return 0.299 * colour.red + 0.587 * colour.green + 0.114 * colour.blue < 140;
}

static double x_of(const struct drawing *drawing, double time) { return LEFT + time * drawing->scale; }
static double y_of(const struct drawing *drawing, int rank) { return TOP + rank * drawing->pitch; }

/* XML allows not all characters, and a schedule's name may be anything. */
static void print_escaped(FILE *file, const char *text) {
    for (; *text; text++) {
        const unsigned char c = (unsigned char)*text;
        if (c == '<' || c == '>' || c == '&' || c == '"')
            fprintf(file, "&#%d;", c);
        else
            fputc(c < ' ' || c > '~' ? '?' : c, file);
    }
}

/* ---- boxes ---- */

static void print_box(const struct drawing *drawing, const struct sl_event *event) {
    FILE *file = drawing->file;
    const struct colour colour = colour_of(drawing, event->kind, event->loop);
    const double y = y_of(drawing, event->rank) + (event->kind == SL_REDUCE ? ROW : 0);
    fprintf(file, "<rect x=\"%.6g\" y=\"%.6g\" width=\"%.6g\" height=\"%d\" fill=\"#%02x%02x%02x\">",
            x_of(drawing, event->begin), y, (event->end - event->begin) * drawing->scale,
            event->kind == SL_REDUCE ? LANE : ROW, colour.red, colour.green, colour.blue);
    fprintf(file, "<title>stage %d, %s", event->stage, kind_name[event->kind]);
    if (event->kind != SL_REDUCE) fprintf(file, " of microbatch %d", event->microbatch);
    if (event->microbatches > 1) fprintf(file, " to %d", event->microbatch + event->microbatches - 1);
    fprintf(file, ", %.6g to %.6g ms</title></rect>\n", event->begin, event->end);
}

/* Its microbatches, where the box has room for them. */
static void print_label(const struct drawing *drawing, const struct sl_event *event) {
    char label[32];
    const int last = event->microbatch + event->microbatches - 1;
    int letters = snprintf(label, sizeof label, "%d", event->microbatch);
    if (last > event->microbatch) letters = snprintf(label, sizeof label, "%d-%d", event->microbatch, last);
    if (event->kind == SL_REDUCE || (event->end - event->begin) * drawing->scale < letters * LETTER + 1) return;
    const bool light = is_dark(colour_of(drawing, event->kind, event->loop));
    fprintf(drawing->file, "<text x=\"%.6g\" y=\"%.6g\"%s>%s</text>\n", x_of(drawing, (event->begin + event->end) / 2),
            y_of(drawing, event->rank) + ROW / 2 + 4, light ? " fill=\"#fff\"" : "", label);
}

static void print_events(const struct drawing *drawing) {
    const struct sl_simulation *simulation = drawing->simulation;
    fputs("<g stroke=\"#fff\" stroke-width=\"0.8\">\n", drawing->file);
    for (int i = 0; i < simulation->count; i++)
        if (simulation->event[i].end > simulation->event[i].begin) print_box(drawing, &simulation->event[i]);
    fputs("</g>\n<g font-size=\"10\" text-anchor=\"middle\">\n", drawing->file);
    for (int i = 0; i < simulation->count; i++) print_label(drawing, &simulation->event[i]);
    fputs("</g>\n", drawing->file);
}

/* ---- around them ---- */

/* One, two or five times a power of ten, so that ticks are at least 50 pixels apart. */
static double tick_step(double scale) {
    const double least = 50 / scale, power = pow(10, floor(log10(least)));
    return least <= power ? power : least <= 2 * power ? 2 * power : least <= 5 * power ? 5 * power : 10 * power;
}

static void print_axis(const struct drawing *drawing) {
    FILE *file = drawing->file;
    const double end = drawing->simulation->step, y = drawing->bottom, step = tick_step(drawing->scale);
    fprintf(file, "<g stroke=\"#555\">\n<path d=\"M%d %.6gH%.6g", LEFT, y, x_of(drawing, end));
    for (int i = 0; i * step <= end * (1 + 1e-9); i++) fprintf(file, "M%.6g %.6gv5", x_of(drawing, i * step), y);
    fputs("\"/>\n</g>\n<g font-size=\"11\" text-anchor=\"middle\">\n", file);
    for (int i = 0; i * step <= end * (1 + 1e-9); i++)
        fprintf(file, "<text x=\"%.6g\" y=\"%.6g\">%g</text>\n", x_of(drawing, i * step), y + 17, i * step);
    fprintf(file, "<text x=\"%.6g\" y=\"%.6g\">time (ms)</text>\n</g>\n", x_of(drawing, end / 2), y + 33);
}

/* Each rank's name, its stages where they are few, and the time in which it could compute. */
static void print_rows(const struct drawing *drawing) {
    const struct sl_schedule *schedule = drawing->schedule;
    FILE *file = drawing->file;
    for (int r = 0; r < schedule->ranks; r++) {
        const double y = y_of(drawing, r);
        fprintf(file, "<rect x=\"%d\" y=\"%.6g\" width=\"%.6g\" height=\"%d\" fill=\"#%02x%02x%02x\"/>\n", LEFT, y,
                drawing->simulation->span * drawing->scale, ROW, idle.red, idle.green, idle.blue);
        fprintf(file, "<text x=\"%d\" y=\"%.6g\" text-anchor=\"end\">rank %d</text>\n", LEFT - 8, y + 13, r);
        fprintf(file, "<text x=\"%d\" y=\"%.6g\" text-anchor=\"end\" font-size=\"9\" fill=\"#555\">stage%s ", LEFT - 8,
                y + 25, schedule->loops > 1 ? "s" : "");
        if (schedule->loops <= 4 && sl_schedule_stages(schedule) <= 100)
            for (int l = 0; l < schedule->loops; l++)
                fprintf(file, "%s%d", l ? ", " : "", sl_schedule_stage(schedule, r, l));
        else
            fprintf(file, "%d, %d ... %d", sl_schedule_stage(schedule, r, 0), sl_schedule_stage(schedule, r, 1),
                    sl_schedule_stage(schedule, r, schedule->loops - 1));
        fputs("</text>\n", file);
    }
}

static void print_swatch(const struct drawing *drawing, double x, double y, struct colour colour, const char *text) {
    fprintf(drawing->file, "<rect x=\"%.6g\" y=\"%.6g\" width=\"14\" height=\"12\" fill=\"#%02x%02x%02x\"/>\n", x, y,
            colour.red, colour.green, colour.blue);
    fprintf(drawing->file, "<text x=\"%.6g\" y=\"%.6g\">%s</text>\n", x + 19, y + 10, text);
}

static bool has_kind(const struct sl_simulation *simulation, enum sl_action_kind kind) {
    for (int i = 0; i < simulation->count; i++)
        if (simulation->event[i].kind == kind && simulation->event[i].end > simulation->event[i].begin) return true;
    return false;
}

static void print_legend(const struct drawing *drawing) {
    const int loops = drawing->schedule->loops, shown = loops < 8 ? loops : 8;
    const double y = drawing->bottom + AXIS + 6;
    double x = LEFT;
    fputs("<g font-size=\"11\">\n", drawing->file);
    for (enum sl_action_kind kind = SL_FORWARD; kind < SL_ACTION_KINDS; kind++) {
        if (!has_kind(drawing->simulation, kind)) continue;
        print_swatch(drawing, x, y, colour_of(drawing, kind, loops / 2), kind_name[kind]);
        x += kind == SL_INPUT_GRADIENT || kind == SL_WEIGHT_GRADIENT ? 122 : 84;
    }
    print_swatch(drawing, x, y, idle, "idle");
    x += 54;
    for (int i = 0; i < shown && loops > 1; i++) {
        char text[32];
        snprintf(text, sizeof text, "loops 0%s %d", loops > 2 ? " to" : ",", loops - 1);
        print_swatch(drawing, x, y, colour_of(drawing, SL_FORWARD, i * (loops - 1) / (shown - 1)),
                     i == shown - 1 ? text : "");
        x += 14;
    }
    fputs("</g>\n", drawing->file);
}

static void print_title(const struct drawing *drawing) {
    const struct sl_schedule *schedule = drawing->schedule;
    const struct sl_simulation *simulation = drawing->simulation;
    FILE *file = drawing->file;
    fprintf(file, "<text x=\"%d\" y=\"24\" font-size=\"15\" font-weight=\"bold\">", LEFT);
    print_escaped(file, schedule->name);
    fprintf(file, "</text>\n<text x=\"%d\" y=\"44\">%d rank%s, %d loop%s, %d microbatch%s: step %.6g ms", LEFT,
            schedule->ranks, schedule->ranks > 1 ? "s" : "", schedule->loops, schedule->loops > 1 ? "s" : "",
            schedule->microbatches, schedule->microbatches > 1 ? "es" : "", simulation->step);
    if (simulation->step > simulation->span) fprintf(file, ", compute %.6g ms", simulation->span);
    fprintf(file, ", bubble %.1f %%</text>\n", 100 * simulation->bubble);
}

/* The shortest box has room for two letters, but the whole stays between a page's width and a wall's. */
static double find_scale(const struct sl_simulation *simulation) {
    double shortest = simulation->step;
    for (int i = 0; i < simulation->count; i++) {
        const double length = simulation->event[i].end - simulation->event[i].begin;
        if (simulation->event[i].kind != SL_REDUCE && length > 0) shortest = fmin(shortest, length);
    }
    if (simulation->step < 1e-100) return 1; /* nothing that could be seen, and its inverse may be no number */
    return fmin(fmax(16 / shortest, NARROWEST / simulation->step), WIDEST / simulation->step);
}

void sl_schedule_write_svg(const struct sl_schedule *schedule, const struct sl_simulation *simulation, FILE *file) {
    const bool lanes = has_kind(simulation, SL_REDUCE);
    struct drawing drawing = {.schedule = schedule,
                              .simulation = simulation,
                              .file = file,
                              .scale = find_scale(simulation),
                              .pitch = ROW + GAP + (lanes ? LANE : 0)};
    drawing.bottom = y_of(&drawing, schedule->ranks);
    const double width = fmax(x_of(&drawing, simulation->step), LEFT + NARROWEST) + RIGHT;
    const double height = drawing.bottom + AXIS + LEGEND;
    fprintf(file,
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.6g\" height=\"%.6g\" viewBox=\"0 0 %.6g %.6g\" "
            "font-family=\"Helvetica, Arial, sans-serif\" font-size=\"12\">\n<title>",
            width, height, width, height);
    print_escaped(file, schedule->name);
    fprintf(file, "</title>\n<rect width=\"%.6g\" height=\"%.6g\" fill=\"#fff\"/>\n", width, height);
    print_title(&drawing);
    print_rows(&drawing);
    print_events(&drawing);
    print_axis(&drawing);
    print_legend(&drawing);
    fputs("</svg>\n", file);
}
