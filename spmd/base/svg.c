/* svg.c - a few shapes for drawings. */
#include "spmd/base/svg.h"

static const struct {
    const char *svg;
    int terminal;
} colours[] = {{"#afd7ff", 153}, {"#ffafaf", 217}, {"#afd787", 150}, {"#ffd75f", 221},
               {"#d7afff", 183}, {"#ffaf87", 216}, {"#87d7d7", 116}, {"#ffafd7", 218},
               {"#d7d787", 186}, {"#87afff", 111}, {"#d7af87", 180}, {"#bcbcbc", 250}};
enum { COLOURS = sizeof colours / sizeof *colours };

const char *sl_svg_colour(int i) { return colours[i % COLOURS].svg; }

int sl_terminal_colour(int i) { return colours[i % COLOURS].terminal; }

void sl_svg_begin(FILE *file, double width, double height) {
    fprintf(file,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%g\" height=\"%g\" viewBox=\"0 0 %g %g\" "
            "font-family=\"monospace\" font-size=\"13\">\n<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n",
            width, height, width, height);
}

void sl_svg_end(FILE *file) { fputs("</svg>\n", file); }

void sl_svg_box(FILE *file, double x, double y, double width, double height, const char *fill) {
    fprintf(file, "<rect x=\"%g\" y=\"%g\" width=\"%g\" height=\"%g\" fill=\"%s\" stroke=\"black\"/>\n", x, y, width,
            height, fill);
}

void sl_svg_escape(FILE *file, const char *text) {
    for (; *text; text++) {
        switch (*text) {
        case '&':
            fputs("&amp;", file);
            break;
        case '<':
            fputs("&lt;", file);
            break;
        case '>':
            fputs("&gt;", file);
            break;
        case '"':
            fputs("&quot;", file);
            break;
        default:
            if ((unsigned char)*text >= ' ') fputc(*text, file);
        }
    }
}

void sl_svg_text(FILE *file, double x, double y, enum sl_svg_anchor anchor, const char *text) {
    static const char *const name[] = {"start", "middle", "end"};
    fprintf(file, "<text x=\"%g\" y=\"%g\" text-anchor=\"%s\" dominant-baseline=\"central\">", x, y, name[anchor]);
    sl_svg_escape(file, text);
    fputs("</text>\n", file);
}
