/* tape.c - compares the calls of a step with those of the one before, and runs those that come again as graphs. */
#include "spmd/device/tape.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "spmd/base/memory.h"
#include "spmd/device/graph.h"

enum {
    FIRST = 32,  /* calls of a piece after a wait: the device has nothing to do until it is launched */
    MOST = 512,  /* of a later one, each of which may have twice as many as the one before */
    FEWEST = 8,  /* that are worth a graph */
    ASTRAY = 2,  /* steps in turn that are not as they were, after which others are learned */
    LEARNED = 8, /* steps that are learned before this is given up */
    ALIGNMENT = 16,
};

/* How the calls of a step are taken. */
enum mode {
    PLAINLY, /* they go to the stream, and that is all; also between steps */
    LEARNS,  /* and are noted */
    CHECKS,  /* and are compared with those that were noted */
    REPLAYS, /* they are compared, and wait until a piece of them is whole */
};

struct call {
    sl_cuda_run *run; /* NULL: of a kernel, whose launch is the argument */
    size_t at, bytes; /* of its argument in the tape's memory */
    CUgraphNode node;
    bool begins;  /* the stream was used between this call and the one before */
    bool changed; /* its argument is not its node's */
};

struct piece {
    int first, end;
    struct sl_graph graph;
};

struct sl_tape {
    const void *owner; /* whose steps these are */
    enum sl_graphs use;
    enum mode mode;
    bool refused; /* there will be no graphs */
    bool used;    /* the stream, since the last call */
    struct call *call;
    int count, room; /* of those that were noted */
    int next;        /* of the step that is taken: the call that comes */
    int issued;      /* its calls before this one are in the stream */
    int alike;       /* steps in turn that were as they were noted */
    int astray;      /* that were not */
    int learned;     /* steps that were noted from the first call on */
    struct piece *piece;
    int pieces, current; /* of the step that is taken */
    char *memory;        /* of arguments */
    size_t filled, size;
    struct sl_graph_report report;
};

/* ---- calls ---- */

static const void *argument_of(const struct sl_tape *t, const struct call *call) { return t->memory + call->at; }

/* Onto the stream, or into the graph that is captured there. */
static bool issue(struct sl_cuda_queue *queue, sl_cuda_run *run, const void *argument) {
    return run ? run(queue, argument) : sl_cuda_launch(queue, argument);
}

/* What has waited. */
static void issue_waiting(struct sl_cuda_queue *queue, struct sl_tape *t) {
    for (; t->issued < t->next; t->issued++) issue(queue, t->call[t->issued].run, argument_of(t, &t->call[t->issued]));
}

static const char *name_of(sl_cuda_run *run, const void *argument) {
    return run ? "a product, copy or fill" : ((const struct sl_kernel_launch *)argument)->name;
}

/* The call that comes, as it is to be: whether it is the one that was noted. A kernel's arguments may be others. */
static bool is_expected(struct sl_tape *t, sl_cuda_run *run, const void *argument, size_t bytes) {
    struct call *call = t->next < t->count ? &t->call[t->next] : NULL;
    if (!call || call->run != run || call->bytes != bytes) return false;
    char *noted = t->memory + call->at;
    if (!memcmp(noted, argument, bytes)) return true;
    if (run || memcmp(noted, argument, sizeof(CUfunction))) return false;
    memcpy(noted, argument, bytes);
    call->changed = true;
    return true;
}

/* For one more call, whose argument ends at END. */
static bool make_room(struct sl_tape *t, size_t end) {
    struct call *call = sl_grow(t->call, t->count, &t->room, 256, sizeof *t->call);
    if (call) t->call = call;
    if (!call || end <= t->size) return call != NULL;
    char *memory = realloc(t->memory, 2 * end);
    if (!memory) return false;
    t->memory = memory;
    t->size = 2 * end;
    return true;
}

static bool note(struct sl_tape *t, sl_cuda_run *run, const void *argument, size_t bytes) {
    const size_t at = sl_round_up(t->filled, ALIGNMENT);
    if (!make_room(t, at + bytes)) return false;
    memcpy(t->memory + at, argument, bytes);
    t->call[t->count++] = (struct call){.run = run, .at = at, .bytes = bytes, .begins = t->used};
    t->filled = at + bytes;
    return true;
}

/* Calls from the one that comes on are no longer known. */
static void forget(struct sl_tape *t) {
    t->count = t->next;
    t->filled = t->count ? t->call[t->count - 1].at + t->call[t->count - 1].bytes : 0;
    t->alike = 0;
}

/* ---- pieces ---- */

static void close_pieces(struct sl_cuda_queue *queue, struct sl_tape *t) {
    for (int i = 0; i < t->pieces; i++) sl_graph_close(queue, &t->piece[i].graph);
    free(t->piece);
    t->piece = NULL;
    t->pieces = 0;
}

/* Divides what was noted. False without memory. */
static bool cut(struct sl_tape *t) {
    int most = FIRST;
    t->piece = calloc((size_t)t->count, sizeof *t->piece);
    for (int i = 0; i < t->count && t->piece; i++) {
        struct piece *last = t->piece + t->pieces;
        if (i && !t->call[i].begins && i - last[-1].first < most) {
            last[-1].end = i + 1;
            continue;
        }
        most = !i || t->call[i].begins ? FIRST : most < MOST ? 2 * most : MOST;
        *last = (struct piece){.first = i, .end = i + 1};
        t->pieces++;
    }
    return t->piece != NULL;
}

static bool capture(struct sl_cuda_queue *queue, struct sl_tape *t, struct piece *piece) {
    bool done = sl_graph_begin(queue);
    if (!done) return false;
    for (int i = piece->first; i < piece->end && done; i++) {
        struct call *call = &t->call[i];
        done = issue(queue, call->run, argument_of(t, call));
        if (done && !call->run) done = (call->node = sl_graph_last(queue)) != NULL;
        call->changed = false;
    }
    return sl_graph_end(queue, &piece->graph) && done;
}

/* Kernels whose arguments are others get them in the graph. */
static bool change(struct sl_cuda_queue *queue, struct sl_tape *t, const struct piece *piece) {
    for (int i = piece->first; i < piece->end; i++) {
        struct call *call = &t->call[i];
        if (!call->changed) continue;
        if (!sl_graph_change(queue, &piece->graph, call->node, argument_of(t, call))) return false;
        call->changed = false;
        t->report.changed++;
    }
    return true;
}

/* There will be no more graphs, for what the queue has failed with; unless they are insisted on, that is no failure. */
static void refuse(struct sl_cuda_queue *queue, struct sl_tape *t) {
    snprintf(t->report.why, sizeof t->report.why, "%s", queue->failure.message);
    if (t->use != SL_GRAPHS_ON) queue->failure = (struct sl_error){0};
    t->refused = true;
    t->mode = PLAINLY;
}

/* The last call of the current piece has come. */
static void end_piece(struct sl_cuda_queue *queue, struct sl_tape *t) {
    struct piece *piece = &t->piece[t->current++];
    const int calls = piece->end - piece->first;
    const bool whole = t->issued == piece->first && !queue->failure.status;
    if (!whole || (calls < FEWEST && t->use != SL_GRAPHS_ON)) {
        issue_waiting(queue, t);
    } else if ((piece->graph.made ? change(queue, t, piece) : capture(queue, t, piece)) &&
               sl_graph_launch(queue, &piece->graph)) {
        t->issued = t->next;
        t->report.graphs++;
        t->report.kept += calls;
    } else {
        refuse(queue, t);
        issue_waiting(queue, t);
    }
}

/* ---- what comes ---- */

/* Another call than the one that was noted. */
static void go_astray(struct sl_cuda_queue *queue, struct sl_tape *t, sl_cuda_run *run, const void *argument) {
    const struct call *call = t->next < t->count ? &t->call[t->next] : NULL;
    if (t->mode == CHECKS) {
        forget(t);
        t->mode = LEARNS;
        return;
    }
    snprintf(t->report.why, sizeof t->report.why, "call %d of the step was %.80s, and is %.80s", t->next,
             call ? name_of(call->run, argument_of(t, call)) : "none", name_of(run, argument));
    issue_waiting(queue, t);
    t->mode = PLAINLY;
    t->astray++;
    t->alike = 0;
}

static bool take(struct sl_cuda_queue *queue, sl_cuda_run *run, const void *argument, size_t bytes) {
    struct sl_tape *t = queue->tape;
    queue->busy = true;
    if (!t || t->mode == PLAINLY) return issue(queue, run, argument);
    if (t->mode != LEARNS && !is_expected(t, run, argument, bytes)) go_astray(queue, t, run, argument);
    if (t->mode == LEARNS && !note(t, run, argument, bytes)) t->mode = PLAINLY;
    if (t->mode == PLAINLY) return issue(queue, run, argument);
    if (t->mode == CHECKS && t->used) t->call[t->next].begins = true;
    t->used = false;
    t->next++;
    if (t->mode != REPLAYS) return issue(queue, run, argument);
    if (t->next == t->piece[t->current].end) end_piece(queue, t);
    return true;
}

bool sl_cuda_enqueue(struct sl_cuda_queue *queue, sl_cuda_run *run, const void *argument, size_t bytes) {
    return take(queue, run, argument, bytes);
}

bool sl_tape_launch(struct sl_cuda_queue *queue, const struct sl_kernel_launch *launch) {
    return take(queue, NULL, launch, sl_kernel_launch_bytes(launch));
}

cudaStream_t sl_cuda_stream(struct sl_cuda_queue *queue) {
    struct sl_tape *t = queue->tape;
    if (t && t->mode != PLAINLY) {
        t->used = true;
        if (t->mode == REPLAYS) issue_waiting(queue, t);
    }
    return queue->stream;
}

/* ---- steps ---- */

static void start_anew(struct sl_cuda_queue *queue, struct sl_tape *t) {
    close_pieces(queue, t);
    t->next = 0;
    forget(t);
    t->astray = 0;
    t->learned++;
}

void sl_tape_begin(struct sl_cuda_queue *queue, const void *owner, enum sl_graphs use) {
    struct sl_tape *t = queue->tape;
    if (use == SL_GRAPHS_OFF || queue->watched) return;
    if (!t) t = queue->tape = calloc(1, sizeof *t);
    if (!t) return;
    if (t->owner != owner) {
        start_anew(queue, t);
        t->owner = owner;
        t->use = use;
        t->learned = 1;
        t->refused = false;
        t->report = (struct sl_graph_report){0};
    }
    t->report.steps++;
    if (t->astray >= ASTRAY) start_anew(queue, t);
    if (t->refused || t->learned > LEARNED) return;
    t->next = t->issued = t->current = 0;
    t->used = true;
    t->mode = !t->count ? LEARNS : !t->pieces && !t->alike ? CHECKS : REPLAYS;
    if (t->mode != REPLAYS) return;
    if (!t->pieces && !cut(t)) t->mode = PLAINLY;
    t->report.calls = t->count;
    t->report.graphs = t->report.kept = t->report.changed = 0;
}

/* A step that ends sooner than the one before is another one, too. */
void sl_tape_end(struct sl_cuda_queue *queue) {
    struct sl_tape *t = queue->tape;
    if (!t || t->mode == PLAINLY) return;
    if (t->mode == REPLAYS) issue_waiting(queue, t);
    if (t->mode == REPLAYS && t->next < t->count) {
        snprintf(t->report.why, sizeof t->report.why, "the step had %d calls, and has %d", t->count, t->next);
        t->astray++;
    } else if (t->mode == REPLAYS) {
        t->astray = 0;
        t->report.replayed++;
    } else if (t->mode == LEARNS || t->next < t->count) {
        forget(t);
    } else {
        t->alike++;
    }
    t->mode = PLAINLY;
}

void sl_tape_report(const struct sl_cuda_queue *queue, struct sl_graph_report *report) {
    *report = queue->tape ? queue->tape->report : (struct sl_graph_report){0};
}

void sl_tape_close(struct sl_cuda_queue *queue) {
    struct sl_tape *t = queue->tape;
    if (!t) return;
    close_pieces(queue, t);
    free(t->call);
    free(t->memory);
    free(t);
    queue->tape = NULL;
}
