/* timeline.c - the ranks' events as SVG. */
#include "spmd/schedule/drawing/timeline.h"

#include <math.h>
#include <string.h>

#include "spmd/schedule/drawing/looks.h"

/* Lengths in pixels. */
enum { LEFT = 124, RIGHT = 24, TOP = 62, AXIS = 42, LEGEND = 30, NOTE = 16, HEADING = 22, LETTER = 6, MARK = 2 };
enum { NARROWEST = 700, WIDEST = 1200, TALLEST = 1600, UNIT = 16 };
/* Heights of a row: with one layer; one layer over another; several beside each other; below each other; and the
 * least. */
enum { ROW = 30, OVER = 42, BESIDE = 22, BELOW = 16, LOWEST = 5 };

struct drawing {
    const struct sl_timeline *timeline;
    FILE *file;
    bool lanes; /* lanes below rows, for reductions and gathers */
    int row, lane, gap;
    double pitch; /* distance between the rows of two neighbouring ranks in a layer */
    double scale; /* pixels per millisecond */
    double line;  /* width of the line between boxes */
    double band;  /* milliseconds per band */
    int bands;
    double height; /* of a band, without its axis */
    /* The current band. */
    double top, begin, end;
};

/* Letters, paper and idle time adapt to the page's colours. Boxes and the letters in them do not. */
static const char style[] =
    "<style>.ink{fill:#1f2328}.faint{fill:#57606a}.paper{fill:#fff}.idle{fill:#ececec}.axis{stroke:#57606a;fill:none}"
    ".boxes{stroke:#fff}.under{fill:#c9ced4}\n@media(prefers-color-scheme:dark){.ink{fill:#e6edf3}.faint{fill:#9198a1}."
    "paper{fill:#0d1117}"
    ".idle{fill:#2b313a}.axis{stroke:#9198a1}.boxes{stroke:#0d1117}"
    ".under{fill:#4a525d}}</style>\n";

static struct sl_colour colour_of(int kind, int loop, int loops) {
    const double part = loops > 1 ? (double)loop / (loops - 1) : 0.25;
    const struct sl_colour *from = &sl_looks[kind].shade[0], *to = &sl_looks[kind].shade[1];
    return (struct sl_colour){(int)(from->red + part * (to->red - from->red)),
                              (int)(from->green + part * (to->green - from->green)),
                              (int)(from->blue + part * (to->blue - from->blue))};
}

static bool is_dark(struct sl_colour colour) {
    return 0.299 * colour.red + 0.587 * colour.green + 0.114 * colour.blue < 140;
}

/* Replaces characters not allowed in XML; a schedule's name may hold any. */
static void print_escaped(FILE *file, const char *text) {
    for (; *text; text++) {
        const unsigned char c = (unsigned char)*text;
        if (c == '<' || c == '>' || c == '&' || c == '"')
            fprintf(file, "&#%d;", c);
        else
            fputc(c < ' ' || c > '~' ? '?' : c, file);
    }
}

/* ---- positions ---- */

/* Whether LAYER is drawn under another one. */
static bool is_under(const struct sl_timeline *timeline, int layer) { return timeline->over && layer > 0; }

static double x_of(const struct drawing *drawing, double time) {
    return LEFT + (time - drawing->begin) * drawing->scale;
}

static double y_of(const struct drawing *drawing, int layer, int rank) {
    const struct sl_timeline *timeline = drawing->timeline;
    double y = drawing->top + rank * drawing->pitch;
    if (timeline->over) return y;
    if (timeline->beside) return y + layer * (drawing->row + drawing->lane + 2);
    for (int l = 0; l <= layer; l++) {
        if (timeline->layer[l].heading) y += HEADING;
        if (l < layer) y += timeline->layer[l].schedule->ranks * drawing->pitch;
    }
    return y;
}

/* Height of a row's boxes; a layer over another one leaves a strip of it visible. */
static int height_of(const struct drawing *drawing, int layer) {
    return drawing->timeline->over && layer == 0 ? drawing->row * 5 / 8 : drawing->row;
}

static bool has_kind(const struct sl_timeline *timeline, int kind) {
    for (int l = 0; l < timeline->layers && !is_under(timeline, l); l++) {
        const struct sl_timeline_layer *layer = &timeline->layer[l];
        for (int i = 0; i < layer->count; i++)
            if (sl_look_of(&layer->event[i]) == kind && sl_look_shows(&layer->event[i])) return true;
    }
    return false;
}

/* Sets the rows' heights; many rows are lower. */
static void find_rows(struct drawing *drawing) {
    const struct sl_timeline *timeline = drawing->timeline;
    int rows = 0;
    for (int l = 0; l < timeline->layers && !is_under(timeline, l); l++) rows += timeline->layer[l].schedule->ranks;
    const int most = timeline->over ? OVER : timeline->layers == 1 ? ROW : timeline->beside ? BESIDE : BELOW;
    const int room = TALLEST / rows * 3 / 4;
    drawing->row = room > most ? most : room < LOWEST ? LOWEST : room;
    drawing->gap = drawing->row * 8 / ROW;
    drawing->lane =
        has_kind(timeline, SL_REDUCE) || has_kind(timeline, SL_UNSHARD) ? (drawing->row * 8 + ROW - 1) / ROW : 0;
    drawing->pitch = drawing->row + drawing->lane + drawing->gap;
    if (timeline->beside && timeline->layers > 1)
        drawing->pitch = timeline->layers * (drawing->row + drawing->lane + 2) + drawing->gap;
    const int last = timeline->layers - 1;
    drawing->height = y_of(drawing, last, timeline->layer[last].schedule->ranks) - drawing->top;
    if (timeline->beside && last > 0) drawing->height -= last * (drawing->row + drawing->lane + 2);
}

/* Mean time of the shortest kind of compute action. */
static double find_unit(const struct sl_timeline *timeline) {
    double sum[SL_WEIGHT_GRADIENT + 1] = {0}, count[SL_WEIGHT_GRADIENT + 1] = {0}, unit = timeline->end;
    for (int l = 0; l < timeline->layers; l++) {
        const struct sl_timeline_layer *layer = &timeline->layer[l];
        for (int i = 0; i < layer->count; i++) {
            const struct sl_event *event = &layer->event[i];
            if (event->kind > SL_WEIGHT_GRADIENT || event->end <= event->begin) continue;
            sum[event->kind] += event->end - event->begin;
            count[event->kind]++;
        }
    }
    for (int k = 0; k <= SL_WEIGHT_GRADIENT; k++)
        if (count[k] > 0) unit = fmin(unit, sum[k] / count[k]);
    return unit;
}

/* One, two or five times a power of ten: ticks are at least 50 pixels apart. */
static double tick_step(double scale) {
    const double least = 50 / scale, power = pow(10, floor(log10(least)));
    return least <= power ? power : least <= 2 * power ? 2 * power : least <= 5 * power ? 5 * power : 10 * power;
}

static void find_scale(struct drawing *drawing) {
    const struct sl_timeline *timeline = drawing->timeline;
    const double end = timeline->end;
    *drawing = (struct drawing){.timeline = timeline, .file = drawing->file, .scale = 1, .band = end, .bands = 1};
    find_rows(drawing);
    if (end < 1e-100) return; /* invisible, and its inverse may overflow */
    const double unit = find_unit(timeline), wanted = UNIT / unit * end;
    const bool folds = timeline->beside || timeline->over || timeline->layers == 1;
    const double most = folds ? fmax(1, floor(TALLEST / (drawing->height + AXIS))) : 1;
    /* If rows are compared, narrower boxes are better than many bands. */
    const double bands = fmin(ceil(wanted / WIDEST / (timeline->beside || timeline->over ? 2 : 1)), most);
    drawing->scale = fmin(fmax(wanted, NARROWEST), bands * WIDEST) / end;
    if (bands > 1) {
        const double step = tick_step(drawing->scale);
        drawing->band = ceil(end / bands / step) * step;
        drawing->scale = fmin(drawing->scale, WIDEST / drawing->band);
        drawing->bands = (int)ceil(end / drawing->band * (1 - 1e-9));
    }
    drawing->line = fmin(0.8, unit * drawing->scale / 12);
}

/* ---- boxes ---- */

/* Clips an event to the band; false: nothing of it is drawn. A mark gets a visible width. */
static bool clip(const struct drawing *drawing, const struct sl_event *event, double *begin, double *end) {
    const double seen = event->end > event->begin ? event->end : event->begin + MARK / drawing->scale;
    *begin = fmax(event->begin, drawing->begin);
    *end = fmin(seen, drawing->end);
    return *end > *begin && sl_look_shows(event);
}

static void print_box(const struct drawing *drawing, int layer, const struct sl_event *event, double begin,
                      double end) {
    FILE *file = drawing->file;
    const struct sl_timeline_layer *of = &drawing->timeline->layer[layer];
    const int kind = sl_look_of(event);
    const struct sl_colour colour = colour_of(kind, event->loop, of->schedule->loops);
    const bool lane = sl_look_has_lane(kind), under = is_under(drawing->timeline, layer);
    const double y = y_of(drawing, layer, event->rank) + (lane ? drawing->row : 0);
    char fill[24] = "class=\"under\"";
    if (under && lane) return;
    if (!under)
        snprintf(fill, sizeof fill, "fill=\"#%02x%02x%02x\"", colour.red & 255, colour.green & 255, colour.blue & 255);
    /* Messages are short: an outline would hide them. */
    fprintf(file, "<rect x=\"%.6g\" y=\"%.6g\" width=\"%.6g\" height=\"%d\" %s%s><title>", x_of(drawing, begin), y,
            (end - begin) * drawing->scale, lane ? drawing->lane : height_of(drawing, layer), fill,
            kind == SL_SEND_ACTIVATION || kind == SL_RESHARD ? " stroke=\"none\"" : "");
    if (drawing->timeline->over) print_escaped(file, of->schedule->name), fputs(": ", file);
    if (of->row) fprintf(file, "%s: ", of->row);
    if (kind != SL_EVENT_OPTIMIZER && event->stage >= 0) fprintf(file, "stage %d, ", event->stage);
    fputs(sl_looks[kind].name, file);
    if (kind < SL_REDUCE) fprintf(file, " of microbatch %d", event->microbatch);
    if (event->microbatches > 1) fprintf(file, " to %d", event->microbatch + event->microbatches - 1);
    fprintf(file, ", %.6g to %.6g ms</title></rect>\n", event->begin, event->end);
}

/* Prints the box's microbatches, if there is room. */
static void print_label(const struct drawing *drawing, int layer, const struct sl_event *event, double begin,
                        double end) {
    char label[32];
    const int last = event->microbatch + event->microbatches - 1;
    int letters = snprintf(label, sizeof label, "%d", event->microbatch);
    if (last > event->microbatch) letters = snprintf(label, sizeof label, "%d-%d", event->microbatch, last);
    if (event->kind > SL_WEIGHT_GRADIENT || (end - begin) * drawing->scale < letters * LETTER + 1) return;
    const double y = y_of(drawing, layer, event->rank);
    const char *ink = is_dark(colour_of(event->kind, event->loop, drawing->timeline->layer[layer].schedule->loops))
                          ? " fill=\"#fff\""
                          : "";
    if (is_under(drawing->timeline, layer)) ink = " class=\"ink\"";
    const double base =
        is_under(drawing->timeline, layer) ? y + drawing->row - 4 : y + height_of(drawing, layer) / 2 + 4;
    fprintf(drawing->file, "<text x=\"%.6g\" y=\"%.6g\"%s>%s</text>\n", x_of(drawing, (begin + end) / 2), base, ink,
            label);
}

static void print_events(const struct drawing *drawing) {
    double begin, end;
    const struct sl_timeline *timeline = drawing->timeline;
    fprintf(drawing->file, "<g class=\"boxes\" stroke-width=\"%.2g\">\n", drawing->line);
    for (int l = timeline->layers - 1; l >= 0; l--) { /* front layers are drawn last */
        const struct sl_timeline_layer *layer = &timeline->layer[l];
        for (int i = 0; i < layer->count; i++)
            if (clip(drawing, &layer->event[i], &begin, &end)) print_box(drawing, l, &layer->event[i], begin, end);
    }
    fputs("</g>\n<g fill=\"#111\" font-size=\"10\" text-anchor=\"middle\">\n", drawing->file);
    for (int l = 0; l < timeline->layers && drawing->row >= 10; l++) {
        const struct sl_timeline_layer *layer = &timeline->layer[l];
        for (int i = 0; i < layer->count; i++)
            if (clip(drawing, &layer->event[i], &begin, &end)) print_label(drawing, l, &layer->event[i], begin, end);
    }
    fputs("</g>\n", drawing->file);
}

/* ---- axes, names and legend ---- */

/* Prints the axis below the band's rows. */
static void print_axis(const struct drawing *drawing) {
    FILE *file = drawing->file;
    const double y = drawing->top + drawing->height, step = tick_step(drawing->scale), past = drawing->end * (1 + 1e-9);
    const double first = ceil(drawing->begin / step * (1 - 1e-9));
    fprintf(file, "<path class=\"axis\" d=\"M%d %.6gH%.6g", LEFT, y, x_of(drawing, drawing->end));
    for (int i = 0; (first + i) * step <= past; i++)
        fprintf(file, "M%.6g %.6gv5", x_of(drawing, (first + i) * step), y);
    fputs("\"/>\n<g font-size=\"11\" text-anchor=\"middle\">\n", file);
    for (int i = 0; (first + i) * step <= past; i++)
        fprintf(file, "<text x=\"%.6g\" y=\"%.6g\">%g</text>\n", x_of(drawing, (first + i) * step), y + 17,
                (first + i) * step);
    if (drawing->end >= drawing->timeline->end)
        fprintf(file, "<text x=\"%.6g\" y=\"%.6g\">time (ms)</text>\n",
                x_of(drawing, (drawing->begin + drawing->end) / 2), y + 33);
    fputs("</g>\n", file);
}

static void print_stages(const struct drawing *drawing, const struct sl_schedule *schedule, int rank, double y) {
    FILE *file = drawing->file;
    fprintf(file, "<text class=\"faint\" x=\"%d\" y=\"%.6g\" text-anchor=\"end\" font-size=\"9\">stage%s ", LEFT - 8, y,
            schedule->loops > 1 ? "s" : "");
    if (schedule->loops <= 4 && sl_schedule_stages(schedule) <= 100)
        for (int l = 0; l < schedule->loops; l++)
            fprintf(file, "%s%d", l ? ", " : "", sl_schedule_stage(schedule, rank, l));
    else if (schedule->loops > 1)
        fprintf(file, "%d, %d ... %d", sl_schedule_stage(schedule, rank, 0), sl_schedule_stage(schedule, rank, 1),
                sl_schedule_stage(schedule, rank, schedule->loops - 1));
    else
        fprintf(file, "%d", sl_schedule_stage(schedule, rank, 0));
    fputs("</text>\n", file);
}

/* Prints the name of a rank's row, and its stages if there is room. */
static void print_name(const struct drawing *drawing, int layer, int rank) {
    FILE *file = drawing->file;
    const struct sl_timeline_layer *of = &drawing->timeline->layer[layer];
    const bool stages = !of->row && drawing->row >= ROW;
    const double y = y_of(drawing, layer, rank), middle = y + drawing->row / 2.0 + 4;
    if (is_under(drawing->timeline, layer)) return;
    if (rank % (int)ceil(13 / drawing->pitch)) return;
    fprintf(file, "<text x=\"%d\" y=\"%.6g\" text-anchor=\"end\">", LEFT - 8, stages ? y + 13 : middle);
    if (layer == 0 || !drawing->timeline->beside) fprintf(file, "rank %d%s", rank, of->row ? " " : "");
    fprintf(file, "%s</text>\n", of->row ? of->row : "");
    if (stages) print_stages(drawing, of->schedule, rank, y + 25);
}

/* Prints names, and the time in which ranks could compute. */
static void print_rows(const struct drawing *drawing) {
    const struct sl_timeline *timeline = drawing->timeline;
    FILE *file = drawing->file;
    for (int l = 0; l < timeline->layers; l++) {
        const struct sl_timeline_layer *layer = &timeline->layer[l];
        const double idle = timeline->over ? 0 : fmin(layer->idle, drawing->end) - drawing->begin;
        if (layer->heading) {
            fprintf(file, "<text x=\"%d\" y=\"%.6g\" font-weight=\"bold\">", LEFT, y_of(drawing, l, 0) - 6);
            print_escaped(file, layer->heading);
            fputs("</text>\n", file);
        }
        for (int r = 0; r < layer->schedule->ranks; r++) {
            if (idle > 0)
                fprintf(file, "<rect class=\"idle\" x=\"%d\" y=\"%.6g\" width=\"%.6g\" height=\"%d\"/>\n", LEFT,
                        y_of(drawing, l, r), idle * drawing->scale, drawing->row);
            print_name(drawing, l, r);
        }
    }
}

/* FILL is an attribute. */
static void print_swatch(FILE *file, double x, double y, const char *fill, const char *text) {
    fprintf(file, "<rect x=\"%.6g\" y=\"%.6g\" width=\"14\" height=\"12\" %s/>\n", x, y, fill);
    fprintf(file, "<text x=\"%.6g\" y=\"%.6g\">", x + 19, y + 10);
    print_escaped(file, text);
    fputs("</text>\n", file);
}

static void print_colour(FILE *file, double x, double y, struct sl_colour colour, const char *text) {
    char fill[32];
    snprintf(fill, sizeof fill, "fill=\"#%02x%02x%02x\"", colour.red & 255, colour.green & 255, colour.blue & 255);
    print_swatch(file, x, y, fill, text);
}

static int most_loops(const struct sl_timeline *timeline) {
    int loops = 1;
    for (int l = 0; l < timeline->layers && !is_under(timeline, l); l++)
        if (timeline->layer[l].schedule->loops > loops) loops = timeline->layer[l].schedule->loops;
    return loops;
}

static double entry_width(const char *text) { return 36 + LETTER * (double)strlen(text); }

/* Returns the width of the legend, which is printed at height Y if FILE is not NULL. */
static double legend(const struct sl_timeline *timeline, double y, FILE *file) {
    const int loops = most_loops(timeline), shown = loops < 8 ? loops : 8;
    char text[32];
    double x = LEFT;
    for (int kind = 0; kind < SL_EVENT_KINDS; kind++) {
        if (!sl_looks[kind].name || !has_kind(timeline, kind)) continue;
        if (file) print_colour(file, x, y, colour_of(kind, loops / 2, loops), sl_looks[kind].name);
        x += entry_width(sl_looks[kind].name);
    }
    const char *rest = timeline->over ? timeline->layer[1].schedule->name : "idle";
    if (file) print_swatch(file, x, y, timeline->over ? "class=\"under\"" : "class=\"idle\"", rest);
    x += entry_width(rest);
    if (loops == 1) return x;
    snprintf(text, sizeof text, "loops 0%s %d", loops > 2 ? " to" : ",", loops - 1);
    for (int i = 0; i < shown; i++, x += 14)
        if (file)
            print_colour(file, x, y, colour_of(SL_FORWARD, i * (loops - 1) / (shown - 1), loops),
                         i == shown - 1 ? text : "");
    return x - 14 + entry_width(text);
}

static void print_head(const struct sl_timeline *timeline, double width, double height, FILE *file) {
    fprintf(file,
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.6g\" height=\"%.6g\" viewBox=\"0 0 %.6g %.6g\" "
            "font-family=\"Helvetica, Arial, sans-serif\" font-size=\"12\" class=\"ink\">\n<title>",
            width, height, width, height);
    print_escaped(file, timeline->title);
    fprintf(file, "</title>\n%s<rect class=\"paper\" width=\"%.6g\" height=\"%.6g\"/>\n", style, width, height);
    fprintf(file, "<text x=\"%d\" y=\"24\" font-size=\"15\" font-weight=\"bold\">", LEFT);
    print_escaped(file, timeline->title);
    fprintf(file, "</text>\n<text x=\"%d\" y=\"44\">", LEFT);
    print_escaped(file, timeline->subtitle);
    fputs("</text>\n", file);
}

void sl_timeline_write(const struct sl_timeline *timeline, FILE *file) {
    struct drawing drawing = {.timeline = timeline, .file = file};
    find_scale(&drawing);
    const double drawn = fmax(drawing.band * drawing.scale, NARROWEST), below = legend(timeline, 0, NULL);
    const double bottom = TOP + drawing.bands * (drawing.height + AXIS);
    const double told = LEFT + 6.6 * (double)strlen(timeline->subtitle);
    print_head(timeline, fmax(fmax(LEFT + drawn, below), told) + RIGHT, bottom + LEGEND + timeline->notes * NOTE, file);
    for (int b = 0; b < drawing.bands; b++) {
        drawing.top = TOP + b * (drawing.height + AXIS);
        drawing.begin = b * drawing.band;
        drawing.end = b == drawing.bands - 1 ? timeline->end : drawing.begin + drawing.band;
        print_rows(&drawing);
        print_events(&drawing);
        print_axis(&drawing);
    }
    fputs("<g font-size=\"11\">\n", file);
    legend(timeline, bottom + 6, file);
    for (int i = 0; i < timeline->notes; i++) {
        fprintf(file, "<text x=\"%d\" y=\"%.6g\">", LEFT, bottom + LEGEND + NOTE * i + 6);
        print_escaped(file, timeline->note[i]);
        fputs("</text>\n", file);
    }
    fputs("</g>\n</svg>\n", file);
}
