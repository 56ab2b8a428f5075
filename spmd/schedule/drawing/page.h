/* page.h - a timeline as a page for browsers, which needs nothing else: the wheel zooms, the mouse moves it, and a few
 * lines tell of the box under the mouse: action, stage, microbatches, when it was and how long it took; where layers
 * lie beside each other, predicted and measured, in all of them. */
#ifndef SL_SPMD_SCHEDULE_DRAWING_PAGE_H
#define SL_SPMD_SCHEDULE_DRAWING_PAGE_H

#include "spmd/schedule/drawing/timeline.h"

SL_BEGIN_C

/* The boxes are a list of numbers in the page, about 30 bytes each; its script draws those that are to be seen. When a
 * browser has read the page, <html data-boxes> says how many there are, and <html data-view> from which time to which,
 * in ms, they are shown. */
void sl_page_write(const struct sl_timeline *timeline, FILE *file);

/* The page's style sheet and its script, which lie beside this file. */
extern const char sl_page_css[], sl_page_js[];

SL_END_C
#endif
