/* stamp.c - splits the time of a wait: when the peer raised the word, and how long it had no core before. */
#include "collectives/local/engine.h"

#include <time.h>

/* Relaxed accesses: words order the stamped data. */
static double get(const _Atomic double *place) { return atomic_load_explicit(place, memory_order_relaxed); }
static void set(_Atomic double *place, double value) { atomic_store_explicit(place, value, memory_order_relaxed); }

static double between(double low, double value, double high) { return value < low ? low : value > high ? high : value; }

static void note(struct sl_local_stamp *stamp, double time, double starved) {
    set(&stamp->time, time);
    set(&stamp->starved, starved);
}

void sl_local_stamp(struct sl_local_coordinate *me, struct sl_local_stamp *stamp) {
    const struct sl_spmd *self = &me->spmd;
    if (!self->timed && self->engine->delay <= 0) return;
    const double now = sl_now();
    const double starved = self->timed ? self->starved + sl_starved_at_work(self, now, sl_cpu_now()) : 0;
    note(stamp, now, starved);
    note(&me->latest, now, starved);
}

struct sl_local_pause sl_local_pause_begin(const struct sl_local_coordinate *me, int peer) {
    if (!me->spmd.timed) return (struct sl_local_pause){0};
    if (peer < 0) return (struct sl_local_pause){.mark = sl_wait_begin(&me->spmd)};
    const struct sl_local_stamp *latest = &me->run->coordinate[peer].latest;
    return (struct sl_local_pause){
        .mark = sl_wait_begin(&me->spmd), .seen = get(&latest->time), .starved = get(&latest->starved)};
}

/* Splits LATE, the seconds from the raising of the word until the waiter continues. The DELAY is transfer time, and so
 * is the time to wake up if the waiter has its own core. In the rest of LATE the waiter was ready to run but had no
 * core: it shares cores with other coordinates or programs. */
static void count_late(struct sl_local_coordinate *me, double late, double delay) {
    const double waking = me->run->spin ? 1e-4 : 0, travel = between(0, delay + waking, late);
    me->spmd.transferred += travel;
    me->spmd.starved += late - travel;
}

/* Between its last stamp before the wait and the raising of the word, the peer had no core for some seconds. These
 * seconds count in proportion to the share of that time for which the waiter waited. */
void sl_local_pause_end(struct sl_local_coordinate *me, const struct sl_local_pause *pause,
                        const struct sl_local_stamp *stamp) {
    struct sl_spmd *self = &me->spmd;
    const double end = sl_wait_end(self, pause->mark), raised = stamp ? get(&stamp->time) : 0;
    if (!self->timed || raised <= 0) return;
    const double since = pause->mark.began, early = between(0, raised - since, end - since);
    if (early > 0 && pause->seen > 0) {
        const double starved = get(&stamp->starved) - pause->starved;
        self->starved += between(0, starved * early / (raised - between(0, pause->seen, since)), early);
    }
    count_late(me, end - since - early, self->engine->delay);
    note(&me->latest, end, self->starved + sl_starved_at_work(self, end, sl_cpu_now()));
}

void sl_local_delay(struct sl_local_coordinate *me, double sent) {
    const double left = sent + me->spmd.engine->delay - sl_now();
    if (left <= 0) return;
    const struct timespec time = {(time_t)left, (long)(1e9 * (left - (double)(time_t)left))};
    const struct sl_wait_mark mark = sl_wait_begin(&me->spmd);
    clock_nanosleep(CLOCK_MONOTONIC, 0, &time, NULL); /* a signal may shorten it: it is only a simulation */
    const double end = sl_wait_end(&me->spmd, mark);
    if (me->spmd.timed) count_late(me, end - mark.began, left);
}
