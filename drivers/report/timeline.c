/* timeline.c - measured over predicted, on one axis.
 *
 * Boxes of one colour are one path, and those too narrow to be seen are joined: a step may have many thousands. */
#include "drivers/report/timeline.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "drivers/report/chart.h"
#include "drivers/report/scale.h"

enum { WIDTH = 1000, LEFT = 120, RIGHT = 20, TOP = 34, AXIS = 40 };
enum { MEASURED = 20, PREDICTED = 14, LANE = 4, PITCH = 56 }; /* of a rank: its rows' heights */
enum { MOST_ACTIONS = 1000000, MOST_RANKS = 16, SHADES = 4, LABELLED = 16 };

/* ---- what is drawn ---- */

enum work { FORWARD, BACKWARD, INPUT_GRADIENT, WEIGHT_GRADIENT, REDUCTION, OPTIMIZER, MESSAGES, WORKS };
static const struct {
    const char *name, *colour;
} works[WORKS] = {{"forward", "#4a86c8"},         {"backward", "#3f9e72"},  {"input gradient", "#e09a36"},
                  {"weight gradient", "#a274c4"}, {"reduction", "#7d848d"}, {"optimizer", "#c9566f"},
                  {"messages", "#b9bfc7"}};

struct box {
    enum work work;
    int rank, loop, microbatch, count;
    double begin, end; /* ms since the step began */
};

/* The boxes of one row a rank. */
struct boxes {
    int count;
    struct box *box;
    double end;
};

static enum work work_of_letter(char letter) {
    return letter == 'F' ? FORWARD : letter == 'B' ? BACKWARD : letter == 'I' ? INPUT_GRADIENT : WEIGHT_GRADIENT;
}

/* False: it is not drawn. */
static bool work_of_record(const struct schedule_record *record, enum work *work) {
    if (record->part == SCHEDULE_PART_COMPUTE)
        *work = work_of_letter(record->letter);
    else if (record->part == SCHEDULE_PART_REDUCTION)
        *work = REDUCTION;
    else if (record->part == SCHEDULE_PART_OPTIMIZER)
        *work = OPTIMIZER;
    else if (record->part == SCHEDULE_PART_COMMUNICATION)
        *work = MESSAGES;
    else
        return false;
    return true;
}

/* The step in the middle: of records sorted by step, that which the middle one belongs to. */
static int middle_step(const struct schedule_trace *trace) { return trace->record[trace->count / 2].step; }

static bool is_drawn(const struct schedule_trace *trace, const struct schedule_record *record) {
    return record->step == middle_step(trace) && record->pipeline == trace->record[0].pipeline;
}

/* Takes the measured boxes. False without memory. */
static bool take_measured(const struct schedule_trace *trace, struct boxes *boxes) {
    double begin = INFINITY;
    *boxes = (struct boxes){.box = malloc(((size_t)trace->count + 1) * sizeof *boxes->box)};
    if (!boxes->box) return false;
    for (int i = 0; i < trace->count; i++)
        if (is_drawn(trace, &trace->record[i])) begin = fmin(begin, trace->record[i].begin);
    for (int i = 0; i < trace->count; i++) {
        const struct schedule_record *record = &trace->record[i];
        enum work work;
        if (!is_drawn(trace, record) || !work_of_record(record, &work)) continue;
        boxes->box[boxes->count++] =
            (struct box){work,          record->rank,          record->loop,       record->microbatch,
                         record->count, record->begin - begin, record->end - begin};
        boxes->end = fmax(boxes->end, record->end - begin);
    }
    return true;
}

static bool take_predicted(const struct sl_simulation *simulation, struct boxes *boxes) {
    *boxes = (struct boxes){.box = malloc(((size_t)simulation->count + 1) * sizeof *boxes->box)};
    if (!boxes->box) return false;
    for (int i = 0; i < simulation->count; i++) {
        const struct sl_event *event = &simulation->event[i];
        const enum work work = event->kind == SL_REDUCE            ? REDUCTION
                               : event->kind <= SL_WEIGHT_GRADIENT ? work_of_letter(sl_action_letter(event->kind))
                                                                   : WORKS;
        if (work == WORKS || event->end <= event->begin) continue;
        boxes->box[boxes->count++] = (struct box){
            work, event->rank, event->loop, event->microbatch, event->microbatches, event->begin, event->end};
        boxes->end = fmax(boxes->end, event->end);
    }
    return true;
}

/* ---- drawing ---- */

struct drawing {
    FILE *file;
    int ranks, loops;
    struct report_scale x;
    double height; /* of a row's boxes */
    double offset; /* of the row in its rank's */
};

static double y_of(const struct drawing *drawing, const struct box *box) {
    return TOP + PITCH * box->rank + drawing->offset + (box->work == REDUCTION ? drawing->height : 0);
}

/* Messages are posted and taken while nothing computes, mostly for a moment: a low box keeps them apart. */
static double height_of(const struct drawing *drawing, const struct box *box) {
    return box->work == REDUCTION ? LANE : box->work == MESSAGES ? drawing->height / 2 : drawing->height;
}

static int shade_of(const struct drawing *drawing, const struct box *box) {
    return drawing->loops > SHADES ? (int)((int64_t)box->loop * SHADES / drawing->loops) : box->loop;
}

static void write_box(const struct drawing *drawing, const struct box *box, double begin, double end) {
    const double height = height_of(drawing, box);
    const double gap = end - begin > 3 ? 0.7 : 0; /* between neighbours */
    const double width = fmax(end - begin - gap, 0.2);
    fprintf(drawing->file, "M%.5g %.4gh%.3gv%.3gh-%.3gz", begin,
            y_of(drawing, box) + (box->work == MESSAGES ? height / 2 : 0), width, height, width);
}

/* Joins boxes that are next to each other and cannot be told apart. Boxes of a rank lie one after the other. */
static void write_path(const struct drawing *drawing, const struct boxes *boxes, enum work work, int shade) {
    const struct box *open = NULL;
    double begin = 0, end = 0;
    for (int i = 0; i < boxes->count; i++) {
        const struct box *box = &boxes->box[i];
        if (box->work != work || shade_of(drawing, box) != shade || box->rank >= drawing->ranks) continue;
        const double from = report_scale_at(&drawing->x, box->begin), to = report_scale_at(&drawing->x, box->end);
        if (!open)
            fprintf(drawing->file, "<path fill=\"%s\" opacity=\"%.2g\" stroke=\"none\" d=\"", works[work].colour,
                    1 - 0.18 * shade);
        if (open && open->rank == box->rank && to >= begin && to - begin < 1) {
            end = fmax(end, to);
            continue;
        }
        if (open) write_box(drawing, open, begin, end);
        open = box;
        begin = from;
        end = to;
    }
    if (!open) return;
    write_box(drawing, open, begin, end);
    fputs("\"/>\n", drawing->file);
}

/* The microbatch in each box that has room for its number, unless there are too many of them. */
static void write_labels(const struct drawing *drawing, const struct boxes *boxes) {
    int labels = 0;
    fputs("<g font-size=\"9\" fill=\"#fff\" text-anchor=\"middle\">\n", drawing->file);
    for (int i = 0; i < boxes->count && labels < 1000; i++) {
        const struct box *box = &boxes->box[i];
        const double from = report_scale_at(&drawing->x, box->begin), to = report_scale_at(&drawing->x, box->end);
        if (box->work > WEIGHT_GRADIENT || to - from < LABELLED || box->rank >= drawing->ranks) continue;
        fprintf(drawing->file, "<text x=\"%.5g\" y=\"%.4g\">%d", (from + to) / 2,
                y_of(drawing, box) + drawing->height / 2 + 3, box->microbatch);
        if (box->count > 1 && to - from > 2 * LABELLED) fprintf(drawing->file, "-%d", box->microbatch + box->count - 1);
        fputs("</text>\n", drawing->file);
        labels++;
    }
    fputs("</g>\n", drawing->file);
}

/* One row of each rank. */
static void write_row(struct drawing *drawing, const struct boxes *boxes, double offset, double height) {
    drawing->offset = offset;
    drawing->height = height;
    for (enum work work = 0; work < WORKS; work++)
        for (int shade = 0; shade < SHADES; shade++) write_path(drawing, boxes, work, shade);
    write_labels(drawing, boxes);
}

static void write_ranks(const struct drawing *drawing) {
    for (int r = 0; r < drawing->ranks; r++) {
        const double y = TOP + PITCH * r;
        fprintf(
            drawing->file,
            "<text class=\"ink\" fill=\"#1f2328\" x=\"8\" y=\"%g\">rank %d</text>\n<g class=\"ticks\" fill=\"#57606a\" "
            "font-size=\"10\" text-anchor=\"end\"><text x=\"%d\" y=\"%g\">measured</text><text x=\"%d\" "
            "y=\"%g\">predicted</text></g>\n<path class=\"grid\" stroke=\"#e1e4e8\" d=\"M%d %gH%d\"/>\n",
            y + 24, r, LEFT - 8, y + MEASURED / 2 + 4, LEFT - 8, y + MEASURED + LANE + 2 + PREDICTED / 2 + 3, 8,
            y + PITCH - 6, WIDTH - RIGHT);
    }
}

static void write_axis(const struct drawing *drawing, double y) {
    double tick[REPORT_TICKS];
    char text[32];
    const int ticks = report_scale_ticks(&drawing->x, 8, tick);
    fputs("<path class=\"grid\" stroke=\"#e1e4e8\" d=\"", drawing->file);
    for (int i = 0; i < ticks; i++)
        fprintf(drawing->file, "M%.5g %dV%.4g", report_scale_at(&drawing->x, tick[i]), TOP - 4, y);
    fputs("\"/>\n<g class=\"ticks\" fill=\"#57606a\" font-size=\"11\" text-anchor=\"middle\">\n", drawing->file);
    for (int i = 0; i < ticks; i++)
        fprintf(drawing->file, "<text x=\"%.5g\" y=\"%.4g\">%s</text>\n", report_scale_at(&drawing->x, tick[i]), y + 14,
                report_number(tick[i], text, sizeof text));
    fprintf(drawing->file, "<text x=\"%d\" y=\"%.4g\">ms</text>\n</g>\n", (LEFT + WIDTH - RIGHT) / 2, y + 29);
}

static void write_legend(FILE *file, const struct boxes *measured, const struct boxes *predicted) {
    bool seen[WORKS] = {false};
    double x = LEFT;
    for (int i = 0; i < measured->count; i++) seen[measured->box[i].work] = true;
    for (int i = 0; i < predicted->count; i++) seen[predicted->box[i].work] = true;
    for (enum work work = 0; work < WORKS; work++) {
        if (!seen[work]) continue;
        fprintf(file,
                "<rect x=\"%g\" y=\"6\" width=\"11\" height=\"11\" fill=\"%s\"/><text class=\"ink\" fill=\"#1f2328\" "
                "x=\"%g\" y=\"16\">%s</text>\n",
                x, works[work].colour, x + 16, works[work].name);
        x += 34 + 7.0 * (double)strlen(works[work].name);
    }
}

void report_timeline_write(FILE *file, const struct report_timeline *timeline, bool file_of_its_own) {
    struct boxes measured, predicted = {0};
    struct drawing drawing = {.file = file, .loops = timeline->schedule.loops, .ranks = timeline->schedule.ranks};
    if (drawing.ranks > MOST_RANKS) drawing.ranks = MOST_RANKS;
    if (take_measured(&timeline->trace, &measured) && take_predicted(&timeline->simulation, &predicted)) {
        const double bottom = TOP + PITCH * drawing.ranks;
        drawing.x = (struct report_scale){0, fmax(fmax(measured.end, predicted.end), 1e-9), LEFT, WIDTH - RIGHT, false};
        report_svg_begin(file, WIDTH, bottom + AXIS, "A step of the pipeline, measured over predicted",
                         file_of_its_own);
        write_legend(file, &measured, &predicted);
        write_axis(&drawing, bottom);
        write_ranks(&drawing);
        write_row(&drawing, &measured, 0, MEASURED);
        write_row(&drawing, &predicted, MEASURED + LANE + 2, PREDICTED);
        fputs("</svg>\n", file);
    }
    free(measured.box);
    free(predicted.box);
}

void report_timeline_explain(FILE *file, const struct report_timeline *timeline) {
    const struct schedule_trace *trace = &timeline->trace;
    const struct sl_schedule *schedule = &timeline->schedule;
    fprintf(file, "Step %d of the trace, schedule %s, %d microbatches.", middle_step(trace), schedule->name,
            schedule->microbatches);
    if (trace->record[trace->count - 1].pipeline > trace->record[0].pipeline) fprintf(file, " The first pipeline.");
    if (schedule->ranks > MOST_RANKS) fprintf(file, " The first %d of %d ranks.", MOST_RANKS, schedule->ranks);
    fprintf(file, " Predicted with the mean costs of its actions: %.4g ms%s, measured %.4g ms (mean of %d steps).",
            timeline->simulation.step, trace->passes > 1 ? " for each pass" : "", timeline->measurement.step,
            timeline->measurement.steps);
    fprintf(file, " Idle while the pipeline computes: predicted %.1f %%, measured %.1f %%.",
            100 * timeline->simulation.bubble, 100 * timeline->measurement.bubble);
}

/* ---- reading ---- */

static int simulate(struct report_timeline *timeline, struct sl_error *error) {
    struct schedule_trace *trace = &timeline->trace;
    struct sl_schedule *schedule = &timeline->schedule;
    if (!trace->ranks)
        return sl_error_set(error, SL_BAD_INPUT, "the trace %.300s: does not say of which schedule it is", trace->path);
    if ((double)trace->ranks * trace->loops * trace->microbatches > MOST_ACTIONS)
        return sl_error_set(error, SL_BAD_INPUT, "the trace %.300s: its schedule is too large to be drawn",
                            trace->path);
    SL_TRY(sl_schedule_make(schedule, trace->name, trace->ranks, trace->loops, trace->microbatches, error));
    SL_TRY(sl_schedule_lower(schedule, error));
    const int stages = sl_schedule_stages(schedule);
    timeline->cost = calloc((size_t)stages, sizeof *timeline->cost);
    if (!timeline->cost) return sl_error_set(error, SL_FAILED, "no memory to simulate");
    struct sl_costs costs = {
        .count = stages, .stage = timeline->cost, .overlap = trace->overlap, .group = trace->group};
    SL_TRY(schedule_trace_measure(trace, schedule, &costs, timeline->cost, &timeline->measurement, error));
    return sl_schedule_simulate(schedule, &costs, &timeline->simulation, error);
}

int report_timeline_open(struct report_timeline *timeline, const char *path, struct sl_error *error) {
    SL_TRY(schedule_trace_read(&timeline->trace, path, error));
    const int status = simulate(timeline, &timeline->missing);
    if (status != SL_FAILED) return SL_OK;
    *error = timeline->missing;
    return status;
}

void report_timeline_free(struct report_timeline *timeline) {
    schedule_trace_free(&timeline->trace);
    schedule_measurement_free(&timeline->measurement);
    sl_simulation_free(&timeline->simulation);
    sl_schedule_free(&timeline->schedule);
    free(timeline->cost);
    *timeline = (struct report_timeline){0};
}
