/* trace.h - what a coordinate did when: one event for each piece of work, in memory that the caller provides.
 *
 *     const struct sl_trace_mark mark = sl_trace_begin(trace);
 *     ...
 *     sl_trace_end(trace, mark, (struct sl_trace_event){.name = "F", .work = SL_TRACE_COMPUTE, .stage = 4, ...});
 *
 * The time that communication calls in between wait for peers becomes an event of its own, before the work. The engine
 * counts that time only while self->timed is set. */
#ifndef SL_LAYERS_TRAINING_TRACE_H
#define SL_LAYERS_TRAINING_TRACE_H

#include "spmd/spmd.h"

SL_BEGIN_C

enum sl_trace_work {
    SL_TRACE_COMPUTE,
    SL_TRACE_COMMUNICATION, /* activations and gradients handed over, metrics summed */
    SL_TRACE_REDUCE,        /* gradients summed and values gathered over data, from start to end, beside other work */
    SL_TRACE_WAITING,
    SL_TRACE_OPTIMIZER,
    SL_TRACE_WORKS
};

struct sl_trace_event {
    char name[24];     /* "F", "I", "W", "send activation", ... */
    double begin, end; /* in seconds on sl_now's clock */
    enum sl_trace_work work;
    int step, loop;
    int stage;             /* -1: the work belongs to no stage, and microbatch and count mean nothing */
    int microbatch, count; /* the first microbatch, and how many there are */
};

/* The events of one coordinate. `dropped` counts events for which there was no room. */
struct sl_trace {
    struct sl_spmd *self;
    struct sl_trace_event *event; /* [capacity] */
    int capacity, count, dropped;
    int step;
};

struct sl_trace_mark {
    double began, waited;
};

/* Adds EVENT with the trace's step. If TRACE is NULL nothing is recorded; the same holds for the functions below. */
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
    if (!trace) return (struct sl_trace_mark){0, 0};
    return (struct sl_trace_mark){sl_now(), trace->self->waited};
}

/* Ends the piece of work that began at MARK, and adds its event. The caller fills in EVENT but for its times. */
static inline void sl_trace_end(struct sl_trace *trace, struct sl_trace_mark mark, struct sl_trace_event event) {
    if (!trace) return;
    const double waited = trace->self->waited - mark.waited;
    event.begin = mark.began + waited;
    event.end = sl_now();
    struct sl_trace_event waiting = event;
    waiting.work = SL_TRACE_WAITING;
    waiting.begin = mark.began;
    waiting.end = event.begin;
    if (waited > 0) sl_trace_add(trace, waiting);
    sl_trace_add(trace, event);
}

SL_END_C
#endif
