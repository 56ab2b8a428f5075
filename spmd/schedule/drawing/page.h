/* page.h - a timeline as a self-contained page for browsers: the wheel zooms, the mouse moves the drawing, and a few
 * lines describe the box under the mouse: action, stage, microbatches, time and duration; if layers lie beside each
 * other, predicted and measured, in all of them. */
#ifndef SL_SPMD_SCHEDULE_DRAWING_PAGE_H
#define SL_SPMD_SCHEDULE_DRAWING_PAGE_H

#include "spmd/schedule/drawing/timeline.h"

SL_BEGIN_C

/* The boxes are a list of numbers in the page, about 30 bytes each; the page's script draws the visible ones. When a
 * browser has read the page, <html data-boxes> has the number of boxes, and <html data-view> the visible range of times
 * in ms. */
void sl_page_write(const struct sl_timeline *timeline, FILE *file);

/* The page's style sheet and script, from the files beside this one. */
extern const char sl_page_css[], sl_page_js[];

SL_END_C
#endif
