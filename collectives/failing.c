/* failing.c - counts a coordinate's calls, and forwards them until it is to fail. */
#include "collectives/failing.h"

#include <inttypes.h>
#include <stdlib.h>

struct sl_failing {
    struct sl_engine engine; /* self->engine points here */
    struct sl_engine_table table;
    const struct sl_engine *below;
    struct sl_fault *fault;
    int count, coordinate;
    struct sl_fault *next; /* of the faults whose step has begun, the first to happen; NULL: none */
    int64_t left;          /* calls before it */
};

static struct sl_failing *failing_of(const struct sl_spmd *self) { return (struct sl_failing *)self->engine; }

static const struct sl_engine_table *below(const struct sl_spmd *self) { return failing_of(self)->below->table; }

/* Counts a call, and ends the run if the coordinate fails in it; if it has ended, the fault is left for the next run.
 * The engine below then gets the call nevertheless: it returns once peers no longer use the coordinate's memory. */
static void count_call(struct sl_spmd *self) {
    struct sl_failing *f = failing_of(self);
    struct sl_fault *fault = f->next;
    if (!fault || f->left-- > 0 || below(self)->progress(self)) return;
    f->next = NULL;
    fault->happened = true;
    sl_fail(self, SL_FAILED, "fails at call %" PRId64 " of step %" PRId64 ", as --fail %d@%" PRId64 ":%" PRId64 " says",
            fault->call, fault->step, self->coordinate, fault->step, fault->call);
    if (below(self)->give_up) below(self)->give_up(self, SL_FAILED);
}

static int start(struct sl_spmd *self, struct sl_request *request) {
    count_call(self);
    return below(self)->start(self, request);
}

static int wait_for(struct sl_spmd *self, struct sl_request *request) {
    count_call(self);
    return below(self)->wait(self, request);
}

static int channel_take(struct sl_spmd *self, struct sl_channel *channel, const void **slot) {
    count_call(self);
    return below(self)->channel_take(self, channel, slot);
}

static int progress(struct sl_spmd *self) {
    count_call(self);
    return below(self)->progress(self);
}

int sl_failing_open(struct sl_failing **failing, struct sl_spmd *self, struct sl_fault *fault, int count) {
    int own = 0;
    *failing = NULL;
    for (int i = 0; i < count; i++) own += fault[i].coordinate == self->coordinate && !fault[i].happened;
    if (!own) return SL_OK;
    struct sl_failing *f = calloc(1, sizeof *f);
    if (!f) return sl_fail(self, SL_FAILED, "no memory to make a coordinate fail");
    f->below = self->engine;
    f->engine = *self->engine;
    f->table = *self->engine->table;
    f->table.start = start, f->table.wait = wait_for;
    f->table.channel_take = channel_take, f->table.progress = progress;
    f->engine.table = &f->table;
    f->fault = fault, f->count = count, f->coordinate = self->coordinate;
    self->engine = &f->engine;
    *failing = f;
    return SL_OK;
}

void sl_failing_close(struct sl_failing *f, struct sl_spmd *self) {
    if (!f) return;
    self->engine = f->below;
    free(f);
}

void sl_failing_begin_step(struct sl_failing *f, int64_t step) {
    for (int i = 0; f && i < f->count; i++) {
        struct sl_fault *fault = &f->fault[i];
        const bool begins = fault->coordinate == f->coordinate && fault->step == step && !fault->happened;
        if (!begins || (f->next && f->left <= fault->call)) continue;
        f->next = fault;
        f->left = fault->call;
    }
}
