/* timeline.h - what ranks do when, as SVG: rows of boxes over an axis of time. One drawing has a layer for each
 * schedule or run that it shows, all on the same scale.
 *
 * The drawing is as wide as a page. Where its boxes had no room for two letters it goes on below, in bands of equal
 * time, as far as they are not higher than a page; then boxes become narrower. Its colours suit light and dark pages:
 * CSS in the drawing asks which it is. */
#ifndef SL_SPMD_SCHEDULE_DRAWING_TIMELINE_H
#define SL_SPMD_SCHEDULE_DRAWING_TIMELINE_H

#include <stdio.h>

#include "spmd/schedule/simulate.h"

SL_BEGIN_C

struct sl_timeline_layer {
    const struct sl_schedule *schedule; /* its ranks, and their stages */
    const char *heading;                /* a line above the layer's rows; NULL: none */
    const char *row;                    /* what its rows show, "measured"; NULL: the stages of their ranks */
    double idle;                        /* until this time a rank that does nothing is idle */
    int count;
    const struct sl_event *event; /* all SENDs and TAKEs look alike */
};

struct sl_timeline {
    const char *title, *subtitle;
    double end; /* of the axis, in ms, which begins at 0 */
    int layers;
    const struct sl_timeline_layer *layer;
    bool beside; /* the layers, of equally many ranks, show a rank's rows one below the other; otherwise whole layers
                    come one below the other, and the drawing does not fold */
    bool over;   /* the first of two layers of equally many ranks is drawn over the second one, which is grey */
    int notes;
    const char *const *note; /* lines below the drawing */
};

/* As a drawing; sl_page_write (page.h) makes a page of it. */
typedef void sl_timeline_writer(const struct sl_timeline *timeline, FILE *file);
sl_timeline_writer sl_timeline_write;

SL_END_C
#endif
