/* wires.c - channels between the ranks of a table. */
#include "spmd/schedule/wires.h"

#include <stdlib.h>

enum { NONE = -1, FEWEST = 4 };

/* Finds or makes the wire between the ranks of two neighbouring stages. LAST: each rank's newest wire in this
 * direction. */
static int find_wire(struct sl_wires *wires, int *last, int from, int to) {
    for (int w = last[from]; w != NONE; w = wires->wire[w].another)
        if (wires->wire[w].to == to) return w;
    wires->wire[wires->count] =
        (struct sl_wire){.from = from, .to = to, .acquired = SL_NO_MESSAGE, .another = last[from]};
    return last[from] = wires->count++;
}

/* Finds the wires between neighbouring stages, up or down; LAST [ranks] is scratch memory. */
static void make_edges(struct sl_wires *wires, const struct sl_schedule *schedule, bool up, int *last) {
    const int stages = sl_schedule_stages(schedule);
    for (int r = 0; r < schedule->ranks; r++) last[r] = NONE;
    for (int s = 0; s < stages; s++) {
        if (up ? sl_schedule_is_last(schedule, s) : sl_schedule_is_first(schedule, s)) continue;
        wires->edge[up ? s : stages + s] =
            find_wire(wires, last, sl_schedule_rank_of(schedule, s), sl_schedule_rank_of(schedule, up ? s + 1 : s - 1));
    }
}

bool sl_wires_open(struct sl_wires *wires, const struct sl_schedule *schedule) {
    const size_t stages = (size_t)sl_schedule_stages(schedule);
    int *last = malloc((size_t)schedule->ranks * sizeof *last);
    *wires = (struct sl_wires){.wire = calloc(2 * stages, sizeof *wires->wire),
                               .edge = calloc(2 * stages, sizeof *wires->edge)};
    const bool taken = last && wires->wire && wires->edge;
    if (taken) {
        make_edges(wires, schedule, true, last);
        make_edges(wires, schedule, false, last);
    }
    free(last);
    return taken;
}

void sl_wires_close(struct sl_wires *wires) {
    for (int w = 0; w < wires->count; w++) free(wires->wire[w].message);
    free(wires->wire);
    free(wires->edge);
    *wires = (struct sl_wires){0};
}

/* Doubles the room, a power of two. */
static bool grow(struct sl_wire *wire) {
    const int room = wire->room ? 2 * wire->room : FEWEST;
    int *message = malloc((size_t)room * sizeof *message);
    if (!message) return false;
    for (int i = wire->taken; i < wire->sent; i++) message[i & (room - 1)] = wire->message[i & (wire->room - 1)];
    free(wire->message);
    wire->message = message;
    wire->room = room;
    return true;
}

bool sl_wire_post(struct sl_wire *wire, int message) {
    if (wire->sent - wire->taken == wire->room && !grow(wire)) return false;
    wire->message[wire->sent++ & (wire->room - 1)] = message;
    return true;
}
