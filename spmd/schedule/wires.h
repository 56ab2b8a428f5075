/* wires.h - the channels of a table in a walk: one for each ordered pair of ranks and direction, first in, first
 * out. */
#ifndef SL_SPMD_SCHEDULE_WIRES_H
#define SL_SPMD_SCHEDULE_WIRES_H

#include "spmd/schedule/schedule.h"

SL_BEGIN_C

enum { SL_NO_MESSAGE = -1 };

/* A message is a number, 0 or more, chosen by the walk. */
struct sl_wire {
    int from, to;
    int sent, taken, released; /* messages so far; released: their slots are free again */
    int acquired;              /* the message for which a slot has been acquired and not posted yet, or
                                  SL_NO_MESSAGE */
    int another;               /* another wire from the same rank in the same direction, or -1 */
    int room, *message;        /* messages sent and not taken, at their numbers modulo ROOM */
};

struct sl_wires {
    int count;
    struct sl_wire *wire;
    int *edge; /* [2][stages]: the wire on which stage s sends activations, and the wire on which it sends
                  gradients */
};

/* False without memory; free with sl_wires_close in any case. */
bool sl_wires_open(struct sl_wires *wires, const struct sl_schedule *schedule);
void sl_wires_close(struct sl_wires *wires);

/* Sends MESSAGE. False without memory. */
bool sl_wire_post(struct sl_wire *wire, int message);
/* The message to be received next; SL_NO_MESSAGE: there is none yet. */
static inline int sl_wire_front(const struct sl_wire *wire) {
    return wire->taken < wire->sent ? wire->message[wire->taken & (wire->room - 1)] : SL_NO_MESSAGE;
}

SL_END_C
#endif
