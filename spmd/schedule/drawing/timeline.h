/* timeline.h - the ranks' events as SVG: rows of boxes over an axis of time. A drawing has a layer for each schedule or
 * run, all on the same scale.
 *
 * The drawing is as wide as a page. If its boxes had no room for two letters, it is folded into bands of equal time, as
 * long as the drawing is not higher than a page; then boxes become narrower. CSS in the drawing adapts its colours to
 * light and dark pages. */
#ifndef SL_SPMD_SCHEDULE_DRAWING_TIMELINE_H
#define SL_SPMD_SCHEDULE_DRAWING_TIMELINE_H

#include <stdio.h>

#include "spmd/schedule/simulate.h"

SL_BEGIN_C

struct sl_timeline_layer {
    const struct sl_schedule *schedule; /* its ranks, and their stages */
    const char *heading;                /* a line above the layer's rows; NULL: none */
    const char *row;                    /* label of its rows, "measured"; NULL: the stages of their ranks */
    double idle;                        /* until this time a rank without an event is drawn as idle */
    int count;
    const struct sl_event *event; /* all SENDs and TAKEs look alike */
};

struct sl_timeline {
    const char *title, *subtitle;
    double end; /* end of the axis in ms; it begins at 0 */
    int layers;
    const struct sl_timeline_layer *layer;
    bool beside; /* layers, of equally many ranks, show a rank's rows one below the other; otherwise whole
                    layers come one below the other, and the drawing is not folded */
    bool over;   /* the first of two layers of equally many ranks is drawn over the second one, which is grey */
    int notes;
    const char *const *note; /* lines below the drawing */
};

/* Writes TIMELINE as a drawing; sl_page_write (page.h) writes it as a page. */
typedef void sl_timeline_writer(const struct sl_timeline *timeline, FILE *file);
sl_timeline_writer sl_timeline_write;

SL_END_C
#endif
