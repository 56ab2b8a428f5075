/* curve_print.c - prints the curves: as a table, a drawing, or JSON lines. */
#include <stdio.h>

#include "drivers/common/metrics.h"
#include "drivers/schedule/curve_internal.h"
#include "spmd/base/svg.h"

/* Describes the common inputs. Returns TEXT. */
static const char *describe(const struct curves *curves, char *text, size_t size) {
    const struct schedule_curve_options *options = curves->options;
    int used = snprintf(text, size, "utilization over the batch: %d ranks of %d layer%s", options->model.stages,
                        options->model.loops, options->model.loops > 1 ? "s" : "");
    if (options->machine)
        snprintf(text + used, size - (size_t)used, " of width %d; %s", options->width, options->machine);
    else if (curves->sends)
        snprintf(text + used, size - (size_t)used, "; a message takes %g ms", options->model.communication);
    return text;
}

static const char *unit_of(const struct curves *curves) { return curves->options->machine ? "rows" : "microbatches"; }

/* ---- the table ---- */

static void print_point(struct sl_table *table, const struct curves *curves, const struct curve_point *point) {
    if (point->utilization < 0)
        sl_table_cell(table, "-");
    else if (curves->options->machine)
        sl_table_cell(table, "%.1f %% (%d)", 100 * point->utilization, point->microbatches);
    else
        sl_table_cell(table, "%.1f %%", 100 * point->utilization);
}

static void print_table(const struct curves *curves, FILE *file) {
    struct sl_column column[1 + 2 * SCHEDULE_MOST_CURVES] = {{unit_of(curves), 12}};
    struct sl_table table;
    char text[400];
    int columns = 1;
    for (int i = 0; i < curves->count; i++) {
        column[columns++] = (struct sl_column){curves->curve[i].kind->name, 17};
        if (curves->sends) column[columns++] = (struct sl_column){"sent", 13};
    }
    fprintf(file, "%s\n\n", describe(curves, text, sizeof text));
    sl_table_begin(&table, file, columns, column);
    for (int b = 0; b < curves->batches; b++) {
        sl_table_cell(&table, "%d", curves->batch[b]);
        for (int i = 0; i < curves->count; i++) {
            print_point(&table, curves, &curves->curve[i].free[b]);
            if (curves->sends) print_point(&table, curves, &curves->curve[i].sent[b]);
        }
    }
    fprintf(file,
            "\nutilization: of the ranks' time until the step's end, the share that the work would take%s\n%s%s"
            "-: the schedule does not fit\n",
            curves->options->machine ? " at the best rate" : "",
            curves->sends ? "sent: the same with communication between ranks\n" : "",
            curves->options->machine ? "(in parentheses the number of microbatches that is best)\n" : "");
}

/* ---- JSON ---- */

static int print_json(const struct curves *curves, const struct sl_output *output, struct sl_error *error) {
    for (int i = 0; i < curves->count; i++) {
        for (int b = 0; b < curves->batches; b++) {
            for (int sends = 0; sends <= curves->sends; sends++) {
                const struct curve *curve = &curves->curve[i];
                const struct curve_point *point = sends ? &curve->sent[b] : &curve->free[b];
                if (point->utilization < 0) continue;
                SL_TRY(sl_json_print(output->stream, output->name,
                                     json_pack("{s:s,s:i,s:i,s:i,s:b,s:o}", "name", curve->kind->name, "loops",
                                               curve->loops, unit_of(curves), curves->batch[b], "best_microbatches",
                                               point->microbatches, "communication", sends, "utilization",
                                               sl_json_real(point->utilization)),
                                     error));
            }
        }
    }
    return SL_OK;
}

/* ---- the drawing ---- */

enum { LEFT = 64, TOP = 40, WIDTH = 720, PLOT = 320, RIGHT = 24, BELOW = 48 };

/* Distinguishable for colour-blind readers, on white. */
static const char *const colours[SCHEDULE_MOST_CURVES] = {"#0072b2", "#d55e00", "#00805c", "#a8508a",
                                                          "#8a6a00", "#4a4f57", "#56a0d3", "#b03030"};

struct frame {
    double top, bottom;
    int batches;
};

static double x_of(const struct frame *frame, int batch) {
    return LEFT + (double)(WIDTH - RIGHT - LEFT) * batch / (frame->batches > 1 ? frame->batches - 1 : 1);
}
static double y_of(const struct frame *frame, double percent) {
    return frame->bottom - (frame->bottom - frame->top) * percent / 100;
}

static void draw_axes(const struct curves *curves, const struct frame *frame, FILE *file) {
    char text[64];
    for (int percent = 0; percent <= 100; percent += 20) {
        const double y = y_of(frame, percent);
        snprintf(text, sizeof text, "%d %%", percent);
        fprintf(file, "<path stroke=\"#e1e4e8\" d=\"M%d %gH%d\"/>\n", LEFT, y, WIDTH - RIGHT);
        sl_svg_text(file, LEFT - 8, y, SL_SVG_END, text);
    }
    for (int b = 0; b < curves->batches; b++) {
        snprintf(text, sizeof text, "%d", curves->batch[b]);
        sl_svg_text(file, x_of(frame, b), frame->bottom + 16, SL_SVG_MIDDLE, text);
    }
    snprintf(text, sizeof text, "%s of a batch", unit_of(curves));
    sl_svg_text(file, (LEFT + WIDTH - RIGHT) / 2.0, frame->bottom + 36, SL_SVG_MIDDLE, text);
}

/* Draws a line through the existing points; dashed with communication. */
static void draw_line(const struct curves *curves, const struct frame *frame, int i, bool sends, FILE *file) {
    const struct curve_point *point = sends ? curves->curve[i].sent : curves->curve[i].free;
    char command = 'M';
    fprintf(file, "<path fill=\"none\" stroke=\"%s\" stroke-width=\"2\"%s d=\"", colours[i],
            sends ? " stroke-dasharray=\"6 4\"" : "");
    for (int b = 0; b < curves->batches; b++) {
        if (point[b].utilization < 0) continue;
        fprintf(file, "%c%.5g %.5g", command, x_of(frame, b), y_of(frame, 100 * point[b].utilization));
        command = 'L';
    }
    fputs("h0\"/>\n", file);
}

static void draw(const struct curves *curves, FILE *file) {
    const double top = TOP + SL_SVG_LINE * (curves->count + curves->sends);
    const struct frame frame = {.top = top, .bottom = top + PLOT, .batches = curves->batches};
    char text[400];
    sl_svg_begin(file, WIDTH, frame.bottom + BELOW);
    sl_svg_text(file, LEFT, SL_SVG_LINE, SL_SVG_START, describe(curves, text, sizeof text));
    for (int i = 0; i < curves->count; i++) {
        const double y = TOP + SL_SVG_LINE * i;
        fprintf(file, "<path stroke=\"%s\" stroke-width=\"2\" d=\"M%d %gh24\"/>\n", colours[i], LEFT, y);
        sl_svg_text(file, LEFT + 32, y, SL_SVG_START, curves->curve[i].kind->name);
    }
    if (curves->sends)
        sl_svg_text(file, LEFT + 32, TOP + SL_SVG_LINE * curves->count, SL_SVG_START, "dashed: with communication");
    draw_axes(curves, &frame, file);
    for (int i = 0; i < curves->count; i++)
        for (int sends = 0; sends <= curves->sends; sends++) draw_line(curves, &frame, i, sends, file);
    sl_svg_end(file);
}

int schedule_curves_print(const struct curves *curves, const struct sl_output *output, struct sl_error *error) {
    switch (curves->options->format) {
    case SCHEDULE_CURVE_JSON:
        return print_json(curves, output, error);
    case SCHEDULE_CURVE_SVG:
        draw(curves, output->stream);
        return SL_OK;
    case SCHEDULE_CURVE_TABLE:
        print_table(curves, output->stream);
    }
    return SL_OK;
}
