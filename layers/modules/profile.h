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
 *  - not ready: it waits, and what it waits for has not been computed. The schedule is to blame.
 *  - transfer: it waits, and what it waits for has been sent: the engine's delay, the network, waking up (at most
 *    0.1 ms where there is a core for each coordinate; where they share cores waking up is of the next kind).
 *  - no core: coordinates share cores. This one was ready to run and was not running; or it waits, and the one that it
 *    waits for was ready and was not running. Of a wait, the engine takes the share that the peer's time without a core
 *    has in all its time since its last message before; a peer's own waits count as they were divided there. Other
 *    programs of the machine take cores, too, and so do pages that are read from a disk.
 *
 * The engine divides waiting (self->waited); its own work's time without a core is wall time less CPU time. Engines
 * that cannot divide (all but local: nobody tells them when a message was sent) count all waiting as not ready. Where a
 * coordinate computes on a device, its own work is never without a core.
 *
 * The bubble is another matter: of the time from the first compute of any rank to the last one's end, the share in
 * which ranks do not compute, whatever they do instead. Compute is F, I and W, which the executor tells of. */
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
    SL_WORK_NOT_READY,     /* waiting for what has not been computed yet */
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
    /* Seconds of compute; and, of all steps added up, from a step's begin to its first compute, and to its last one's
     * end. */
    double computing, first, last;
    double began, latest; /* when the step has begun, and when its last compute so far has ended; 0: there was none */
    bool divided;         /* by the engine, which tells transfer from not ready */
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
    profile->seconds[SL_WORK_NOT_READY] += waited - transferred - starved;
    profile->seconds[SL_WORK_TRANSFER] += transferred;
    profile->seconds[SL_WORK_NO_CORE] += starved + at_work;
    profile->current = work;
    return before;
}

/* Ends a kind of work: BEFORE goes on, which sl_profile_begin returned. */
static inline void sl_profile_end(struct sl_profile *profile, enum sl_work before) {
    sl_profile_begin(profile, before);
}

/* A step begins. If PROFILE is NULL nothing is measured; the same holds for sl_profile_compute. */
static inline void sl_profile_step(struct sl_profile *profile) {
    if (!profile) return;
    profile->began = sl_now();
    profile->latest = 0;
}

/* There was compute from BEGIN on sl_now's clock until now. */
static inline void sl_profile_compute(struct sl_profile *profile, double begin) {
    if (!profile) return;
    const double now = sl_now();
    if (profile->latest == 0) {
        profile->first += begin - profile->began;
        profile->last += begin - profile->began;
        profile->latest = begin;
    }
    profile->last += now - profile->latest;
    profile->latest = now;
    profile->computing += now - begin;
}

/* The bubble of COORDINATES, whose profiles lie STRIDE bytes apart; NaN if they have not computed. */
double sl_profile_bubble(const struct sl_profile *profile, size_t stride, int coordinates);

/* Forgets what was measured, and begins again with SL_WORK_OTHER. From now on the engine counts waiting
 * (self->timed). */
static inline void sl_profile_start(struct sl_profile *profile, struct sl_spmd *self) {
    for (int w = 0; w < SL_WORKS; w++) profile->seconds[w] = 0;
    profile->self = self;
    profile->computing = profile->first = profile->last = 0;
    sl_profile_step(profile);
    profile->current = SL_WORK_OTHER;
    profile->divided = self->divides;
    self->timed = true;
    sl_profile_mark(profile);
}

SL_END_C
#endif
