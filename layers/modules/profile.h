/* profile.h - where a coordinate's time goes. Every moment of a step is counted for exactly one kind of work.
 *
 * Code that begins another kind of work says so, and when it ends, it restores the kind before:
 *
 *     const enum sl_work before = sl_profile_begin(profile, SL_WORK_PRODUCTS);
 *     ...
 *     sl_profile_end(profile, before);
 *
 * Time in which the coordinate does no work is taken away from the kind of work that it interrupts, and is one of
 * three:
 *
 *  - bubble: it waits, and what it waits for has not been computed. The schedule is to blame.
 *  - transfer: it waits, and what it waits for has been sent: the engine's delay, the network, waking up (at most
 *    0.1 ms where there is a core for each coordinate; where they share cores waking up is of the next kind).
 *  - no core: coordinates share cores. This one was ready to run and was not running; or it waits, and the one that it
 *    waits for was ready and was not running. Of a wait, the engine takes the share that the peer's time without a core
 *    has in all its time since its last message before; a peer's own waits count as they were divided there. Other
 *    programs of the machine take cores, too, and so do pages that are read from a disk.
 *
 * The engine divides waiting (self->waited); its own work's time without a core is wall time less CPU time. Engines
 * that cannot divide (all but local: nobody tells them when a message was sent) count all waiting as bubble. Where a
 * coordinate computes on a device, its own work is never without a core. */
#ifndef SL_LAYERS_MODULES_PROFILE_H
#define SL_LAYERS_MODULES_PROFILE_H

#include "spmd/spmd.h"

SL_BEGIN_C

enum sl_work {
    SL_WORK_OTHER, /* the executor itself */
    SL_WORK_PRODUCTS,
    SL_WORK_KERNELS,
    SL_WORK_OPTIMIZER,
    SL_WORK_COMMUNICATION, /* moving and summing data */
    SL_WORK_BUBBLE,        /* waiting for what has not been computed yet */
    SL_WORK_TRANSFER,      /* waiting for what is on its way */
    SL_WORK_NO_CORE,       /* ready to run, or waiting for one that is */
    SL_WORKS
};

struct sl_profile {
    struct sl_spmd *self;
    double seconds[SL_WORKS];
    /* When the current kind of work began, and the counts of waiting and of time without a core then, in seconds. */
    double mark, waited, transferred, starved, starved_at_work;
    enum sl_work current;
    bool divided; /* by the engine, which tells transfer from bubble */
};

static inline void sl_profile_mark(struct sl_profile *profile) {
    const struct sl_spmd *self = profile->self;
    profile->mark = sl_now();
    profile->waited = self->waited;
    profile->transferred = self->transferred;
    profile->starved = self->starved;
    profile->starved_at_work = sl_starved_at_work(self, profile->mark, sl_cpu_now());
}

/* Counts the time since the last call for the kind before, which it returns, and begins WORK. If PROFILE is NULL
 * nothing is measured; the same holds for sl_profile_end. */
static inline enum sl_work sl_profile_begin(struct sl_profile *profile, enum sl_work work) {
    if (!profile) return SL_WORK_OTHER;
    const enum sl_work before = profile->current;
    const struct sl_profile last = *profile;
    sl_profile_mark(profile);
    const double waited = profile->waited - last.waited, transferred = profile->transferred - last.transferred,
                 starved = profile->starved - last.starved, at_work = profile->starved_at_work - last.starved_at_work;
    profile->seconds[before] += profile->mark - last.mark - waited - at_work;
    profile->seconds[SL_WORK_BUBBLE] += waited - transferred - starved;
    profile->seconds[SL_WORK_TRANSFER] += transferred;
    profile->seconds[SL_WORK_NO_CORE] += starved + at_work;
    profile->current = work;
    return before;
}

/* Ends a kind of work: BEFORE goes on, which sl_profile_begin returned. */
static inline void sl_profile_end(struct sl_profile *profile, enum sl_work before) {
    sl_profile_begin(profile, before);
}

/* Forgets what was measured, and begins again with SL_WORK_OTHER. From now on the engine counts waiting
 * (self->timed). */
static inline void sl_profile_start(struct sl_profile *profile, struct sl_spmd *self) {
    for (int w = 0; w < SL_WORKS; w++) profile->seconds[w] = 0;
    profile->self = self;
    profile->current = SL_WORK_OTHER;
    profile->divided = self->divides;
    self->timed = true;
    sl_profile_mark(profile);
}

SL_END_C
#endif
