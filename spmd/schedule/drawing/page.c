/* page.c - a timeline as a page for browsers. */
#include "spmd/schedule/drawing/page.h"

#include "spmd/base/svg.h"
#include "spmd/schedule/drawing/looks.h"

/* Prints a JSON string, in which no HTML tag can begin. */
static void print_string(FILE *file, const char *text) {
    if (!text) {
        fputs("null", file);
        return;
    }
    fputc('"', file);
    for (; *text; text++) {
        const unsigned char c = (unsigned char)*text;
        if (c < ' ' || c == '"' || c == '\\' || c == '<')
            fprintf(file, "\\u%04x", c);
        else
            fputc(c, file);
    }
    fputc('"', file);
}

static void print_kinds(FILE *file) {
    fputs("\"kinds\":[", file);
    for (int k = 0; k < SL_EVENT_KINDS; k++) {
        const struct sl_colour *first = &sl_looks[k].shade[0], *last = &sl_looks[k].shade[1];
        fputs(k ? ",[" : "[", file);
        print_string(file, sl_looks[k].name);
        fprintf(file, ",[%d,%d,%d],[%d,%d,%d],%d]", first->red, first->green, first->blue, last->red, last->green,
                last->blue, sl_look_has_lane(k));
    }
    fputs("],\n", file);
}

static void print_stages(FILE *file, const struct sl_schedule *schedule) {
    for (int r = 0; r < schedule->ranks; r++) {
        for (int l = 0; l < schedule->loops; l++)
            fprintf(file, "%s%d", l ? "," : r ? "],[" : "[", sl_schedule_stage(schedule, r, l));
    }
    fputc(']', file);
}

static void print_layer(FILE *file, const struct sl_timeline_layer *layer) {
    fputs("{\"name\":", file);
    print_string(file, layer->schedule->name);
    fputs(",\"heading\":", file);
    print_string(file, layer->heading);
    fputs(",\"row\":", file);
    print_string(file, layer->row);
    fprintf(file, ",\"idle\":%.6g,\"stages\":[", layer->idle);
    print_stages(file, layer->schedule);
    fputs("],\n\"boxes\":[", file);
    bool first = true;
    for (int i = 0; i < layer->count; i++) {
        const struct sl_event *event = &layer->event[i];
        if (!sl_look_shows(event)) continue;
        fprintf(file, "%s%d,%d,%d,%d,%d,%.7g,%.6g",
                first   ? ""
                : i % 8 ? ","
                        : ",\n",
                event->rank, sl_look_of(event), event->loop, event->microbatch, event->microbatches, event->begin,
                event->end - event->begin);
        first = false;
    }
    fputs("]}", file);
}

static void print_data(FILE *file, const struct sl_timeline *timeline) {
    fputs("<script type=\"application/json\" id=\"data\">{", file);
    print_kinds(file);
    fprintf(file, "\"end\":%.9g,\"beside\":%s,\"over\":%s,\n\"layers\":[", timeline->end,
            timeline->beside ? "true" : "false", timeline->over ? "true" : "false");
    for (int l = 0; l < timeline->layers; l++) {
        if (l) fputs(",\n", file);
        print_layer(file, &timeline->layer[l]);
    }
    fputs("]}</script>\n", file);
}

void sl_page_write(const struct sl_timeline *timeline, FILE *file) {
    fputs("<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
          "<meta name=\"viewport\" content=\"width=device-width\">\n<title>",
          file);
    sl_svg_escape(file, timeline->title);
    fprintf(file, "</title>\n<style>\n%s</style>\n</head>\n<body>\n<header><h1>", sl_page_css);
    sl_svg_escape(file, timeline->title);
    fputs("</h1><p>", file);
    sl_svg_escape(file, timeline->subtitle);
    fputs("</p><p id=\"legend\"></p></header>\n<canvas tabindex=\"0\"></canvas>\n<footer><div id=\"said\">", file);
    fputs("The wheel zooms, the mouse moves the drawing and tells of the box under it, a double click shows all.\n"
          "Keys: + and - zoom, arrows move, Home shows all.</div>",
          file);
    for (int i = 0; i < timeline->notes; i++) {
        fputs("<p class=\"note\">", file);
        sl_svg_escape(file, timeline->note[i]);
        fputs("</p>", file);
    }
    fputs("</footer>\n<noscript>The page's script draws it.</noscript>\n", file);
    print_data(file, timeline);
    fprintf(file, "<script>\n%s</script>\n</body>\n</html>\n", sl_page_js);
}
