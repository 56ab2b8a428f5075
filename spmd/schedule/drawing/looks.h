/* looks.h - the looks of the kinds of events in timelines. */
#ifndef SL_SPMD_SCHEDULE_DRAWING_LOOKS_H
#define SL_SPMD_SCHEDULE_DRAWING_LOOKS_H

#include "spmd/schedule/simulate.h"

SL_BEGIN_C

struct sl_colour {
    int red, green, blue;
};

struct sl_look {
    const char *name;          /* NULL: drawn like another kind */
    struct sl_colour shade[2]; /* of the first and the last of many loops; shades between them are mixed */
};

/* Indexed by the kind sl_look_of returns. */
extern const struct sl_look sl_looks[SL_EVENT_KINDS];

/* Returns the kind whose look EVENT has: all messages look alike. */
static inline int sl_look_of(const struct sl_event *event) {
    return event->kind >= SL_SEND_ACTIVATION && event->kind <= SL_TAKE_GRADIENT ? SL_SEND_ACTIVATION : event->kind;
}

/* Kinds that run in parallel with compute have a lane below their rank's row. */
static inline bool sl_look_has_lane(int kind) { return kind == SL_REDUCE || kind == SL_UNSHARD || kind == SL_RESHARD; }

/* Whether EVENT is drawn: it takes time, or is a mark. */
static inline bool sl_look_shows(const struct sl_event *event) {
    return event->end > event->begin || event->kind == SL_RESHARD;
}

SL_END_C
#endif
