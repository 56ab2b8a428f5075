/* profile.h - where a coordinate's time goes. Every moment of a step is counted for exactly one kind of work.
 *
 * Code that begins another kind of work says so, and when it ends, it restores the kind before:
 *
 *     const enum sl_work before = sl_profile_begin(profile, SL_WORK_PRODUCTS);
 *     ...
 *     sl_profile_end(profile, before);
 *
 * The engine counts how long communication calls wait for peers (self->waited). That time is subtracted from the kind
 * of work that waited, and is counted as SL_WORK_WAITING. */
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
    SL_WORK_WAITING,       /* for peers */
    SL_WORKS
};

struct sl_profile {
    struct sl_spmd *self;
    double seconds[SL_WORKS];
    /* When the current kind of work began, and the engine's count of waiting then, both in seconds. */
    double mark, waited;
    enum sl_work current;
};

/* Counts the time since the last call for the kind before, which it returns, and begins WORK. If PROFILE is NULL
 * nothing is measured; the same holds for sl_profile_end. */
static inline enum sl_work sl_profile_begin(struct sl_profile *profile, enum sl_work work) {
    if (!profile) return SL_WORK_OTHER;
    const enum sl_work before = profile->current;
    const double now = sl_now(), waited = profile->self->waited - profile->waited;
    profile->seconds[before] += now - profile->mark - waited;
    profile->seconds[SL_WORK_WAITING] += waited;
    profile->mark = now;
    profile->waited += waited;
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
    profile->mark = sl_now();
    profile->waited = self->waited;
    profile->current = SL_WORK_OTHER;
    self->timed = true;
}

SL_END_C
#endif
