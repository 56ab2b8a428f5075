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

/* Counts a call. SL_FAILED if the coordinate fails in it. */
static int count_call(struct sl_spmd *self) {
    struct sl_failing *f = failing_of(self);
    struct sl_fault *fault = f->next;
    if (!fault || f->left-- > 0) return SL_OK;
    f->next = NULL;
    fault->happened = true;
    return sl_fail(self, SL_FAILED, "coordinate %d fails at call %" PRId64 " of step %" PRId64 ", as --fail asks",
                   self->coordinate, fault->call, fault->step);
}

static const struct sl_engine_table *below(const struct sl_spmd *self) { return failing_of(self)->below->table; }

static int start(struct sl_spmd *self, struct sl_request *request) {
    SL_TRY(count_call(self));
    return below(self)->start(self, request);
}

static int wait_for(struct sl_spmd *self, struct sl_request *request) {
    SL_TRY(count_call(self));
    return below(self)->wait(self, request);
}

static int channel_take(struct sl_spmd *self, struct sl_channel *channel, const void **slot) {
    SL_TRY(count_call(self));
    return below(self)->channel_take(self, channel, slot);
}

static int progress(struct sl_spmd *self) {
    SL_TRY(count_call(self));
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
