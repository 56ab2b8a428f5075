/* page.h - a timeline as a page for browsers, which needs nothing else: the wheel zooms, the mouse moves it, and a line
 * tells of the box under the mouse: action, stage, microbatches, and when it was, also in the timeline's other rows. */
#ifndef SL_SPMD_SCHEDULE_DRAWING_PAGE_H
#define SL_SPMD_SCHEDULE_DRAWING_PAGE_H

#include <stdio.h>

#include "spmd/base/base.h"

SL_BEGIN_C

/* What is written between the two calls is the page's one drawing, SVG of sl_timeline_write. When a browser has read
 * the page, <html data-boxes> says how many boxes it tells of. */
void sl_page_begin(FILE *file, const char *title);
void sl_page_end(FILE *file);

SL_END_C
#endif
