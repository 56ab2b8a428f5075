/* generate.h - the generators of the registry's rows, one per family of schedules. */
#ifndef SL_SPMD_SCHEDULE_GENERATE_H
#define SL_SPMD_SCHEDULE_GENERATE_H

#include "spmd/schedule/registry.h"

SL_BEGIN_C

sl_schedule_generator sl_generate_looped;      /* looped.c */
sl_schedule_generator sl_generate_1f1b;        /* 1f1b.c */
sl_schedule_generator sl_generate_zero_bubble; /* zero_bubble.c */
sl_schedule_generator sl_generate_dualpipe;    /* dualpipe.c */
sl_schedule_generator sl_generate_lockstep;    /* lockstep.c, as are its members' clocks: */
sl_lockstep_clock sl_sequential_forward, sl_sequential_backward, sl_grouped_forward, sl_grouped_backward,
    sl_interleaved_forward, sl_interleaved_backward, sl_rotating_forward, sl_rotating_backward;

static inline int sl_smaller(int a, int b) { return a < b ? a : b; }
static inline int sl_larger(int a, int b) { return a > b ? a : b; }

SL_END_C
#endif
