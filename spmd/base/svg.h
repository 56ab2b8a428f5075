/* svg.h - a few shapes for drawings, as SVG text. Lengths are in pixels. */
#ifndef SL_SPMD_BASE_SVG_H
#define SL_SPMD_BASE_SVG_H

#include <stdio.h>

#include "spmd/base/base.h"

SL_BEGIN_C

enum sl_svg_anchor { SL_SVG_START, SL_SVG_MIDDLE, SL_SVG_END };

/* Largest width of a character of sl_svg_text, and height of a line. */
enum { SL_SVG_CHARACTER = 8, SL_SVG_LINE = 18 };

void sl_svg_begin(FILE *file, double width, double height);
void sl_svg_end(FILE *file);

/* FILL is a colour as CSS writes it. */
void sl_svg_box(FILE *file, double x, double y, double width, double height, const char *fill);
/* Draws one line of text, vertically centred at Y. */
void sl_svg_text(FILE *file, double x, double y, enum sl_svg_anchor anchor, const char *text);

/* Writes TEXT for XML, between tags or in an attribute: special characters as entities, without control characters,
 * which XML does not allow. */
void sl_svg_escape(FILE *file, const char *text);

/* Background colours for black text: colour I modulo their number; and a similar colour among a terminal's 256. */
const char *sl_svg_colour(int i);
int sl_terminal_colour(int i);

SL_END_C
#endif
