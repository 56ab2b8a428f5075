/* profile.h - a coordinate's time by kinds of work. Every moment of a step counts for exactly one kind.
 *
 * Code announces the kind of work that it begins, and at its end restores the previous kind:
 *
 *     const enum sl_work before = sl_profile_begin(profile, SL_WORK_PRODUCTS);
 *     ...
 *     sl_profile_end(profile, before);
 *
 * Time without work is subtracted from the interrupted kind of work, and is one of three:
 *
 *  - not ready: the coordinate waits for data that has not been computed. The schedule is to blame.
 *  - transfer: it waits for data that has been sent: the engine's delay, the network, waking up (at most 0.1 ms if
 *    each coordinate has a core; if they share cores, waking up counts as no core).
 *  - no core: coordinates share cores. This coordinate was ready to run and was not running; or it waits for a peer
 *    that was ready and was not running. The share of a wait counted here is the peer's time without a core divided by
 *    all the peer's time since its previous message; the peer's own waits count as they were divided there. Other
 *    programs of the machine take cores, too, and so do pages that are read from a disk.
 *
 * The engine divides waits (self->waited). Time without a core during the coordinate's own work is wall time less CPU
 * time. Engines that cannot divide waits (all but local, because they do not know when a message was sent) count all
 * waits as not ready. If a coordinate computes on a device, its own work is never without a core.
 *
 * The bubble is measured separately: between the first compute of any rank and the end of the last compute, it is the
 * share of time in which ranks do not compute, whatever else they do. Compute is F, I and W, reported by the
 * executor. */
#ifndef SL_LAYERS_MODULES_CALLS_PROFILE_H
#define SL_LAYERS_MODULES_CALLS_PROFILE_H

#include <string.h>

#include "spmd/engine.h"
#include "spmd/spmd.h"

SL_BEGIN_C

enum sl_work {
    SL_WORK_OTHER, /* the executor itself */
    SL_WORK_PRODUCTS,
    SL_WORK_KERNELS,
    SL_WORK_OPTIMIZER,
    SL_WORK_COMMUNICATION, /* moving and summing data */
    SL_WORK_NOT_READY,     /* waiting for data not computed yet */
    SL_WORK_TRANSFER,      /* waiting for data already sent */
    SL_WORK_NO_CORE,       /* ready to run without a core, or waiting for a peer in this state */
    SL_WORKS
};

struct sl_profile {
    struct sl_spmd *self;
    double seconds[SL_WORKS];
    /* Start of the current kind of work, and the coordinate's seconds of waiting, of transfers and without a core at
     * that time. */
    double mark, waited, transferred, starved, starved_at_work;
    enum sl_work current;
    /* Seconds of compute; and, summed over all steps, the seconds from a step's begin to its first compute, and to the
     * end of its last compute. */
    double computing, first, last;
    double began, latest; /* begin of the step, and end of its last compute so far; 0: no compute yet */
    bool divided;         /* the engine distinguishes transfer from not ready */
    struct sl_traffic sent[SL_TRAFFIC_KINDS]; /* messages: if the engine counts them */
};

static inline void sl_profile_mark(struct sl_profile *profile) {
    const struct sl_spmd *self = profile->self;
    profile->mark = sl_now();
    profile->waited = self->waited;
    profile->transferred = self->transferred;
    profile->starved = self->starved;
    profile->starved_at_work = sl_starved_at_work(self, profile->mark, sl_cpu_now());
}

/* Counts the time since the last call for the current kind of work, begins WORK, and returns the previous kind. If
 * PROFILE is NULL, nothing is measured; the same holds for sl_profile_end. */
static inline enum sl_work sl_profile_begin(struct sl_profile *profile, enum sl_work work) {
    if (!profile) return SL_WORK_OTHER;
    const enum sl_work before = profile->current;
    const double mark = profile->mark, last_waited = profile->waited, last_transferred = profile->transferred,
                 last_starved = profile->starved, last_at_work = profile->starved_at_work;
    sl_profile_mark(profile);
    const double waited = profile->waited - last_waited, transferred = profile->transferred - last_transferred,
                 starved = profile->starved - last_starved, at_work = profile->starved_at_work - last_at_work;
    profile->seconds[before] += profile->mark - mark - waited - at_work;
    profile->seconds[SL_WORK_NOT_READY] += waited - transferred - starved;
    profile->seconds[SL_WORK_TRANSFER] += transferred;
    profile->seconds[SL_WORK_NO_CORE] += starved + at_work;
    profile->current = work;
    return before;
}

/* Ends a kind of work and goes on with BEFORE, the return value of sl_profile_begin. */
static inline void sl_profile_end(struct sl_profile *profile, enum sl_work before) {
    sl_profile_begin(profile, before);
}

/* The time, if it is measured. */
static inline double sl_profile_now(const struct sl_profile *profile) { return profile ? sl_now() : 0; }

/* Begins a step. If PROFILE is NULL, nothing is measured; the same holds for sl_profile_compute. */
static inline void sl_profile_step(struct sl_profile *profile) {
    if (!profile) return;
    profile->began = sl_now();
    profile->latest = 0;
}

/* Counts compute from BEGIN, a result of sl_profile_now, until now. */
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

/* Returns the bubble of COORDINATES, whose profiles lie STRIDE bytes apart; NaN if they have not computed. */
double sl_profile_bubble(const struct sl_profile *profile, size_t stride, int coordinates);

/* Clears all measurements, and begins again with SL_WORK_OTHER. From now on the engine counts waiting (self->timed),
 * and messages in PROFILE, which has to stay until self->sent is NULL or the run is over. */
static inline void sl_profile_start(struct sl_profile *profile, struct sl_spmd *self) {
    for (int w = 0; w < SL_WORKS; w++) profile->seconds[w] = 0;
    memset(profile->sent, 0, sizeof profile->sent);
    self->sent = profile->sent;
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
