/* trace.h - a coordinate's activity over time: one event for each piece of work, in the caller's memory.
 *
 *     const struct sl_trace_mark mark = sl_trace_begin(trace);
 *     ...
 *     sl_trace_end(trace, mark, (struct sl_trace_event){.name = "F", .work = SL_TRACE_COMPUTE, .stage = 4, ...});
 *
 * If communication calls between begin and end wait for peers, the waiting time becomes an event of its own, before the
 * work. The engine counts that time only while self->timed is set. layers/modules/calls/profile.h defines transfer and
 * no core. */
#ifndef SL_SPMD_TRACE_H
#define SL_SPMD_TRACE_H

#include <stdio.h>

#include "spmd/spmd.h"

SL_BEGIN_C

enum sl_trace_work {
    SL_TRACE_COMPUTE,
    SL_TRACE_COMMUNICATION, /* activations and gradients sent and received, metrics summed */
    SL_TRACE_REDUCE,        /* gradients summed and values gathered over data, from start to end, in parallel with other
                               work */
    SL_TRACE_WAITING,
    SL_TRACE_OPTIMIZER,
    SL_TRACE_GATHER,  /* parameters gathered over data ahead of use, from start to end, in parallel with other work;
                         computing may wait for its end */
    SL_TRACE_PRODUCT, /* part of an action: the product of a piece of its rows */
    SL_TRACE_MOVE,    /* a piece's rows scattered or gathered over an axis, from start to end, in parallel with products
                         of other pieces */
    SL_TRACE_WORKS
};

struct sl_trace_event {
    char name[24];     /* "F", "I", "W", "send activation", ... */
    double begin, end; /* in seconds on sl_now's clock */
    double transfer;   /* if waiting: seconds during which the data was on its way */
    double no_core;    /* seconds without a core: of the coordinate or, if waiting, of the coordinate or its peer */
    enum sl_trace_work work;
    int step, loop;
    int stage;             /* -1: the work belongs to no stage; microbatch and count are then unused */
    int microbatch, count; /* the first microbatch, and their number */
};

/* Events of one coordinate. `dropped` counts events for which there was no room. */
struct sl_trace {
    struct sl_spmd *self;
    struct sl_trace_event *event; /* [capacity] */
    int capacity, count, dropped;
    int step;
    bool whole;                   /* parts of actions have no events */
    struct sl_trace_event action; /* the pipeline's present action, whose parts may have events of their own */
};

struct sl_trace_mark {
    double began, waited, transferred, starved, starved_at_work;
};

/* Adds EVENT with the trace's step. If TRACE is NULL, nothing is recorded; this also holds for the functions below. */
static inline void sl_trace_add(struct sl_trace *trace, struct sl_trace_event event) {
    if (!trace) return;
    event.step = trace->step;
    if (trace->count < trace->capacity)
        trace->event[trace->count++] = event;
    else
        trace->dropped++;
}

/* Begins a piece of work. */
static inline struct sl_trace_mark sl_trace_begin(const struct sl_trace *trace) {
    if (!trace) return (struct sl_trace_mark){0, 0, 0, 0, 0};
    const struct sl_spmd *self = trace->self;
    const double began = sl_now();
    return (struct sl_trace_mark){began, self->waited, self->transferred, self->starved,
                                  sl_starved_at_work(self, began, sl_cpu_now())};
}

/* The time, if events are recorded. */
static inline double sl_trace_now(const struct sl_trace *trace) { return trace ? sl_now() : 0; }

/* Adds a part of the pipeline's present action, "NAME I", which BEGAN at this time and ends now. */
static inline void sl_trace_piece(struct sl_trace *trace, enum sl_trace_work work, const char *name, int i,
                                  double began) {
    if (!trace || trace->whole) return;
    struct sl_trace_event event = trace->action;
    event.work = work;
    event.begin = began;
    event.end = sl_now();
    snprintf(event.name, sizeof event.name, "%s %d", name, i);
    sl_trace_add(trace, event);
}

/* Ends the piece of work begun at MARK, and adds its event. The caller sets all fields of EVENT but its times. A pause
 * caused by reading the clocks counts as the event's no_core, not as work. */
static inline void sl_trace_end(struct sl_trace *trace, struct sl_trace_mark mark, struct sl_trace_event event) {
    if (!trace) return;
    const struct sl_spmd *self = trace->self;
    const double cpu = sl_cpu_now(), end = sl_now(), waited = self->waited - mark.waited,
                 starved = sl_starved_at_work(self, end, cpu) - mark.starved_at_work;
    struct sl_trace_event waiting = event;
    event.begin = mark.began + waited;
    event.end = end;
    event.no_core = starved < 0 ? 0 : starved < event.end - event.begin ? starved : event.end - event.begin;
    waiting.work = SL_TRACE_WAITING;
    waiting.begin = mark.began;
    waiting.end = event.begin;
    waiting.transfer = self->transferred - mark.transferred;
    waiting.no_core = self->starved - mark.starved;
    if (waited > 0) sl_trace_add(trace, waiting);
    sl_trace_add(trace, event);
}

SL_END_C
#endif
