/* line.c - see line.h. The two count on in turns. */
#include "benchmarks/line.h"

#include "benchmarks/measure.h"

enum { BATCHES = 5, TURNS = 2000 }; /* turns of a batch, of both together */

static void pass(struct sl_line *line, uint32_t turn) {
    while (atomic_load_explicit(&line->count, memory_order_acquire) != turn) continue;
    atomic_store_explicit(&line->count, turn + 1, memory_order_release);
}

double sl_line_measure(struct sl_line *line, int member, uint32_t before) {
    double ns[BATCHES];
    uint32_t turn = before * BATCHES * TURNS + (uint32_t)member;
    for (int batch = 0; batch < BATCHES; batch++) {
        const double began = sl_now();
        for (const uint32_t end = turn + TURNS; turn != end; turn += 2) pass(line, turn);
        ns[batch] = 1e9 * (sl_now() - began) / TURNS;
    }
    return sl_median(BATCHES, ns);
}
