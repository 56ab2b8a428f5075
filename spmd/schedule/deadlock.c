/* deadlock.c - the shortest circle of ranks that wait for each other. */
#include "spmd/schedule/deadlock.h"

enum { UNKNOWN = -1 };

/* Writes to CIRCLE the length of the circle each rank leads to. SEEN: the last rank on whose way a rank was met. */
static void note_circles(int ranks, const int *waits_for, int *circle, int *seen) {
    for (int r = 0; r < ranks; r++) {
        circle[r] = waits_for[r] == SL_WAITS_FOR_NOBODY ? 0 : UNKNOWN;
        seen[r] = UNKNOWN;
    }
    for (int r = 0; r < ranks; r++) {
        int at = r;
        for (; circle[at] == UNKNOWN && seen[at] != r; at = waits_for[at]) seen[at] = r;
        int length = circle[at];
        if (length == UNKNOWN) { /* the way has come back to AT */
            length = 1;
            for (int i = waits_for[at]; i != at; i = waits_for[i]) length++;
        }
        for (at = r; circle[at] == UNKNOWN; at = waits_for[at]) circle[at] = length;
    }
}

int sl_deadlock_circle(int ranks, const int *waits_for, int *work, int *first) {
    int shortest = ranks + 1, rank = 0;
    note_circles(ranks, waits_for, work, work + ranks);
    for (int r = 0; r < ranks; r++) {
        if (waits_for[r] == SL_WAITS_FOR_NOBODY || work[r] >= shortest) continue;
        shortest = work[r];
        rank = r;
    }
    for (int i = 0; i < ranks && waits_for[waits_for[rank]] != SL_WAITS_FOR_NOBODY; i++) rank = waits_for[rank];
    *first = rank;
    return shortest;
}
