/* svg.h - the few shapes that drawings are made of, as SVG text. Lengths are in pixels. */
#ifndef SL_SPMD_BASE_SVG_H
#define SL_SPMD_BASE_SVG_H

#include <stdio.h>

#include "spmd/base/base.h"

SL_BEGIN_C

enum sl_svg_anchor { SL_SVG_START, SL_SVG_MIDDLE, SL_SVG_END };

/* What a character of sl_svg_text takes, at most, and a line. */
enum { SL_SVG_CHARACTER = 8, SL_SVG_LINE = 18 };

void sl_svg_begin(FILE *file, double width, double height);
void sl_svg_end(FILE *file);

/* FILL is a colour as CSS writes it. */
void sl_svg_box(FILE *file, double x, double y, double width, double height, const char *fill);
/* One line whose middle height is Y. */
void sl_svg_text(FILE *file, double x, double y, enum sl_svg_anchor anchor, const char *text);

/* Writes TEXT as XML has it between tags and in attributes: what means something there is named, and control
 * characters, which it does not allow, are left out. */
void sl_svg_escape(FILE *file, const char *text);

/* Colours on which black can be read, the I-th modulo their number; and nearly the same one among a terminal's 256. */
const char *sl_svg_colour(int i);
int sl_terminal_colour(int i);

SL_END_C
#endif
