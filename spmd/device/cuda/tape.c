/* tape.c - compares the calls of a step with those of the step before, and runs repeated calls as graphs. */
#include "spmd/device/cuda/tape.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "spmd/base/memory.h"
#include "spmd/device/cuda/graph.h"

enum {
    FIRST = 32,  /* calls of a piece after a wait: the device is idle until its graph is launched */
    MOST = 512,  /* most calls of a later piece; each may have twice as many as the one before */
    WHOLE = 8,   /* factor by which a piece may be longer while branches are at work */
    FEWEST = 8,  /* least calls of a graph */
    ASTRAY = 2,  /* steps in turn that differ from the noted calls, before the calls are learned anew */
    LEARNED = 8, /* times that the calls are learned before graphs are given up */
    ALIGNMENT = 16,
    KINDS = 4,  /* most kinds of steps */
    UNLIKE = 4, /* steps in turn that differ from the step before of their kind, before there is a further kind */
};

/* What happens to the calls of a step. */
enum mode {
    PLAINLY, /* they go to the stream; also between steps */
    LEARNS,  /* they go to the stream, and are noted */
    CHECKS,  /* they go to the stream, and are compared with the noted ones */
    REPLAYS, /* they are compared, and wait until their piece is complete */
};

struct call {
    sl_cuda_run *run; /* NULL: a kernel; the argument is its launch */
    size_t at, bytes; /* position and size of its argument in the order's memory */
    CUgraphNode node;
    bool begins;  /* the stream was used between this call and the one before */
    bool changed; /* its argument differs from its node's */
};

struct piece {
    int first, end;
    struct sl_graph graph;
};

/* The calls of steps of one kind. */
struct order {
    struct call *call;
    int count, room; /* noted calls; room in the array */
    char *memory;    /* of arguments */
    size_t filled, size;
    int alike;  /* steps in turn that were equal to the noted calls */
    int astray; /* steps in turn that were not */
    struct piece *piece;
    int pieces;
    bool bound; /* it cannot become graphs: see cut */
};

struct sl_tape {
    const void *owner; /* owner of the steps */
    enum sl_graphs use;
    enum mode mode;
    bool refused; /* there will be no more graphs */
    bool used;    /* the stream was used since the last call */
    bool parted;  /* a piece of the step ran as single calls: the stream was used within it */
    bool captures;
    struct order order[KINDS];
    int kinds;         /* kinds of steps, which take turns */
    int steps, unlike; /* steps since `kinds` changed; steps in turn that differed from the step before of
                          their kind */
    int learned;       /* how often all calls were learned anew with one kind */
    struct order *now; /* the kind of the current step */
    int next;          /* number of the next call */
    int issued;        /* calls before this one are in the stream */
    int current;       /* the first incomplete piece */
    struct sl_graph_report report;
};

/* ---- calls ---- */

static const void *argument_of(const struct order *o, const struct call *call) { return o->memory + call->at; }

/* Issues a call to the stream, or into the graph that is being captured. */
static bool issue(struct sl_cuda_queue *queue, sl_cuda_run *run, const void *argument) {
    return run ? run(queue, argument) : sl_cuda_launch(queue, argument);
}

/* Issues the waiting calls. */
static void issue_waiting(struct sl_cuda_queue *queue, struct sl_tape *t) {
    for (; t->issued < t->next; t->issued++)
        issue(queue, t->now->call[t->issued].run, argument_of(t->now, &t->now->call[t->issued]));
}

static const char *name_of(sl_cuda_run *run, const void *argument) {
    return run ? "a product, copy or fill" : ((const struct sl_kernel_launch *)argument)->name;
}

/* The noted call at the place of the next call; NULL: the step had no more. */
static struct call *expected(const struct sl_tape *t) {
    return t->next < t->now->count ? &t->now->call[t->next] : NULL;
}

/* Whether the next call is the noted one. A kernel may have other arguments: they are noted. */
static bool is_expected(struct sl_tape *t, sl_cuda_run *run, const void *argument, size_t bytes) {
    struct call *call = expected(t);
    if (!call || call->run != run || call->bytes != bytes) return false;
    char *noted = t->now->memory + call->at;
    if (!memcmp(noted, argument, bytes)) return true;
    if (run || memcmp(noted, argument, sizeof(CUfunction))) return false;
    memcpy(noted, argument, bytes);
    call->changed = true;
    return true;
}

/* Makes room for one more call, whose argument ends at END. */
static bool make_room(struct order *o, size_t end) {
    struct call *call = sl_grow(o->call, o->count, &o->room, 256, sizeof *o->call);
    if (call) o->call = call;
    if (!call || end <= o->size) return call != NULL;
    char *memory = realloc(o->memory, 2 * end);
    if (!memory) return false;
    o->memory = memory;
    o->size = 2 * end;
    return true;
}

static bool note(struct order *o, sl_cuda_run *run, const void *argument, size_t bytes, bool begins) {
    const size_t at = sl_round_up(o->filled, ALIGNMENT);
    if (!make_room(o, at + bytes)) return false;
    memcpy(o->memory + at, argument, bytes);
    o->call[o->count++] = (struct call){.run = run, .at = at, .bytes = bytes, .begins = begins};
    o->filled = at + bytes;
    return true;
}

/* Forgets all calls but the first COUNT. */
static void forget(struct order *o, int count) {
    o->count = count;
    o->filled = count ? o->call[count - 1].at + o->call[count - 1].bytes : 0;
    o->alike = 0;
}

/* ---- pieces ---- */

static void close_pieces(struct sl_cuda_queue *queue, struct order *o) {
    for (int i = 0; i < o->pieces; i++) sl_graph_close(queue, &o->piece[i].graph);
    free(o->piece);
    o->piece = NULL;
    o->pieces = 0;
}

/* Change of the number of branches at work by CALL: 1, 0 or -1. */
static int branches_of(const struct sl_cuda_queue *queue, const struct call *call) {
    if (!queue->branches || !call->run) return 0;
    return (call->run == queue->branches->begin) - (call->run == queue->branches->end);
}

/* Whether messages are on their way after CALL; ARE: before it. */
static bool are_posted(const struct sl_cuda_queue *queue, const struct call *call, bool are) {
    if (!queue->branches || !call->run) return are;
    return call->run == queue->branches->post || (are && call->run != queue->branches->rest);
}

/* Divides the noted calls into pieces. At the end of a piece all branches are joined, so a piece should not end while
 * several are at work. It must not end while messages are on their way: their receiver may need later calls first. If
 * the host uses the stream there, the step cannot become graphs (bound). False without memory. */
static bool cut(const struct sl_cuda_queue *queue, struct order *o) {
    int most = FIRST, open = 0;
    bool posted = false;
    o->bound = false;
    o->piece = calloc((size_t)o->count, sizeof *o->piece);
    for (int i = 0; i < o->count && o->piece; i++) {
        struct piece *last = o->piece + o->pieces;
        const int calls = i && !o->call[i].begins ? i - last[-1].first : 0;
        o->bound = o->bound || (posted && !calls);
        if (calls && (calls < most || posted || (open > 0 && calls < WHOLE * most))) {
            last[-1].end = i + 1;
        } else {
            most = !calls ? FIRST : most < MOST ? 2 * most : MOST;
            open = 0;
            *last = (struct piece){.first = i, .end = i + 1};
            o->pieces++;
        }
        open += branches_of(queue, &o->call[i]);
        if (open < 0) open = 0; /* the branch began in an earlier piece */
        posted = are_posted(queue, &o->call[i], posted);
    }
    o->bound = o->bound || posted;
    return o->piece != NULL;
}

static void join(struct sl_cuda_queue *queue, bool lost) {
    if (queue->branches) queue->branches->join(queue->owner, lost);
}

static bool capture(struct sl_cuda_queue *queue, struct order *o, struct piece *piece) {
    bool done = sl_graph_begin(queue);
    if (!done) return false;
    queue->tape->captures = true;
    queue->stretch++;
    for (int i = piece->first; i < piece->end && done; i++) {
        struct call *call = &o->call[i];
        done = issue(queue, call->run, argument_of(o, call));
        if (done && !call->run) done = (call->node = sl_graph_last(queue)) != NULL;
        call->changed = false;
    }
    join(queue, !done);
    queue->tape->captures = false;
    queue->stretch++;
    return sl_graph_end(queue, &piece->graph) && done;
}

/* Updates the graph for kernels with changed arguments, and adds their number to *CHANGED. */
static bool change(struct sl_cuda_queue *queue, struct order *o, const struct piece *piece, int *changed) {
    for (int i = piece->first; i < piece->end; i++) {
        struct call *call = &o->call[i];
        if (!call->changed) continue;
        if (!sl_graph_change(queue, &piece->graph, call->node, argument_of(o, call))) return false;
        call->changed = false;
        (*changed)++;
    }
    return true;
}

/* Gives up graphs after a failure of the queue, which becomes the report's reason. Unless graphs are SL_GRAPHS_ON, the
 * queue itself has not failed. */
static void refuse(struct sl_cuda_queue *queue, struct sl_tape *t) {
    snprintf(t->report.why, sizeof t->report.why, "%s", queue->failure.message);
    if (t->use != SL_GRAPHS_ON) queue->failure = (struct sl_error){0};
    t->refused = true;
    t->mode = PLAINLY;
}

/* Runs the current piece, whose last call has come. */
static void end_piece(struct sl_cuda_queue *queue, struct sl_tape *t) {
    struct piece *piece = &t->now->piece[t->current++];
    const int calls = piece->end - piece->first;
    const bool whole = t->issued == piece->first && !queue->failure.status;
    const bool worth = calls >= FEWEST || t->use == SL_GRAPHS_ON;
    t->parted = t->parted || (worth && !whole);
    if (!whole || !worth) {
        issue_waiting(queue, t);
        join(queue, false);
    } else if ((piece->graph.made ? change(queue, t->now, piece, &t->report.changed) : capture(queue, t->now, piece)) &&
               sl_graph_launch(queue, &piece->graph)) {
        t->issued = t->next;
        queue->stretch++;
        t->report.graphs++;
        t->report.kept += calls;
    } else {
        refuse(queue, t);
        issue_waiting(queue, t);
        join(queue, false);
    }
}

/* ---- incoming calls ---- */

/* Handles a call unequal to the noted one. */
static void go_astray(struct sl_cuda_queue *queue, struct sl_tape *t, sl_cuda_run *run, const void *argument) {
    const struct call *call = expected(t);
    snprintf(t->report.why, sizeof t->report.why, "call %d of the step was %.80s, and is %.80s", t->next,
             call ? name_of(call->run, argument_of(t->now, call)) : "none", name_of(run, argument));
    if (t->mode == CHECKS) {
        forget(t->now, t->next);
        t->mode = LEARNS;
        t->unlike++;
    } else {
        issue_waiting(queue, t);
        t->mode = PLAINLY;
        t->now->astray++;
        t->now->alike = 0;
    }
}

static bool take(struct sl_cuda_queue *queue, sl_cuda_run *run, const void *argument, size_t bytes) {
    struct sl_tape *t = queue->tape;
    queue->busy = true;
    if (!t || t->mode == PLAINLY) return issue(queue, run, argument);
    if (t->mode != LEARNS && !is_expected(t, run, argument, bytes)) go_astray(queue, t, run, argument);
    if (t->mode == LEARNS && !note(t->now, run, argument, bytes, t->used)) t->mode = PLAINLY;
    if (t->mode == PLAINLY) return issue(queue, run, argument);
    if (t->mode == CHECKS && t->used) t->now->call[t->next].begins = true;
    t->used = false;
    t->next++;
    if (t->mode != REPLAYS) return issue(queue, run, argument);
    if (t->next == t->now->piece[t->current].end) end_piece(queue, t);
    return true;
}

bool sl_cuda_enqueue(struct sl_cuda_queue *queue, sl_cuda_run *run, const void *argument, size_t bytes) {
    return take(queue, run, argument, bytes);
}

bool sl_tape_launch(struct sl_cuda_queue *queue, const struct sl_kernel_launch *launch) {
    return take(queue, NULL, launch, sl_kernel_launch_bytes(launch));
}

/* Tells the branches' owner that all calls have been issued. */
static void settle(struct sl_cuda_queue *queue) {
    if (!queue->owes) return;
    queue->owes = false;
    queue->branches->settle(queue->owner);
}

cudaStream_t sl_cuda_stream(struct sl_cuda_queue *queue) {
    struct sl_tape *t = queue->tape;
    if (t && t->mode != PLAINLY) {
        t->used = true;
        if (t->mode == REPLAYS) issue_waiting(queue, t);
    }
    settle(queue);
    return queue->stream;
}

enum sl_cuda_course sl_cuda_course(const struct sl_cuda_queue *queue) {
    const struct sl_tape *t = queue->tape;
    if (!t || t->mode == PLAINLY) return SL_CUDA_AT_ONCE;
    return t->mode == REPLAYS ? SL_CUDA_LATER : SL_CUDA_NOTED;
}

bool sl_cuda_is_whole(const struct sl_cuda_queue *queue) {
    const struct sl_tape *t = queue->tape;
    return sl_cuda_course(queue) == SL_CUDA_LATER && t->current < t->now->pieces &&
           t->issued == t->now->piece[t->current].first;
}

bool sl_cuda_captures(const struct sl_cuda_queue *queue) { return queue->tape && queue->tape->captures; }

/* ---- steps ---- */

/* Forgets all steps; KINDS kinds of steps take turns from now on. */
static void start_anew(struct sl_cuda_queue *queue, struct sl_tape *t, int kinds) {
    for (int k = 0; k < KINDS; k++) {
        close_pieces(queue, &t->order[k]);
        forget(&t->order[k], 0);
        t->order[k].astray = 0;
    }
    t->kinds = kinds;
    t->steps = t->unlike = 0;
    if (kinds == 1) t->learned++;
}

/* Learns the steps anew if they have changed. If buffers are used in turn, equal steps do not follow each other
 * directly: then there is a further kind. */
static void look_back(struct sl_cuda_queue *queue, struct sl_tape *t) {
    bool astray = false;
    for (int k = 0; k < t->kinds; k++) astray = astray || t->order[k].astray >= ASTRAY;
    if (astray)
        start_anew(queue, t, 1);
    else if (t->unlike >= UNLIKE)
        start_anew(queue, t, t->kinds < KINDS ? t->kinds + 1 : 1);
}

static void open_steps(struct sl_cuda_queue *queue, struct sl_tape *t, const void *owner, enum sl_graphs use) {
    start_anew(queue, t, 1);
    t->owner = owner;
    t->use = use;
    t->learned = 1;
    t->refused = false;
    t->report = (struct sl_graph_report){0};
}

/* Runs the step as calls; later steps may become graphs. */
static void stay_calls(struct sl_tape *t) {
    snprintf(t->report.why, sizeof t->report.why,
             "messages are on their way where a graph would end (sl_channels_rest)");
    t->mode = PLAINLY;
    t->now->astray++;
}

void sl_tape_begin(struct sl_cuda_queue *queue, const void *owner, enum sl_graphs use) {
    struct sl_tape *t = queue->tape;
    if (use == SL_GRAPHS_OFF || queue->watched) return;
    if (!t) t = queue->tape = calloc(1, sizeof *t);
    if (!t) return;
    if (t->owner != owner) open_steps(queue, t, owner, use);
    t->report.steps++;
    queue->steps++;
    look_back(queue, t);
    if (t->refused || t->learned > LEARNED) return;
    struct order *o = t->now = &t->order[t->steps++ % t->kinds];
    t->next = t->issued = t->current = 0;
    t->used = true;
    t->parted = false;
    t->mode = !o->count ? LEARNS : !o->pieces && !o->alike ? CHECKS : REPLAYS;
    if (t->mode != REPLAYS) return;
    if (!o->pieces && !cut(queue, o)) t->mode = PLAINLY;
    if (o->bound || queue->posted)
        stay_calls(t);
    else
        join(queue, false); /* earlier branches cannot be part of a graph */
    t->report.calls = o->count;
    t->report.graphs = t->report.kept = t->report.changed = 0;
}

/* A step with fewer calls than the one before differs from it, too. */
void sl_tape_end(struct sl_cuda_queue *queue) {
    struct sl_tape *t = queue->tape;
    if (!t || t->mode == PLAINLY) {
        settle(queue);
        return;
    }
    struct order *o = t->now;
    if (t->mode == REPLAYS) issue_waiting(queue, t);
    settle(queue);
    if (t->mode != LEARNS && t->next < o->count)
        snprintf(t->report.why, sizeof t->report.why, "the step had %d calls, and has %d", o->count, t->next);
    if (t->mode == REPLAYS && t->next < o->count) {
        o->astray++;
    } else if (t->mode == REPLAYS) {
        o->astray = 0;
        t->report.replayed++;
        t->report.parted += t->parted;
    } else if (t->mode == LEARNS) {
        o->alike = 0;
    } else if (t->next < o->count) {
        forget(o, t->next);
        t->unlike++;
    } else {
        o->alike++;
        t->unlike = 0;
        *t->report.why = 0;
    }
    t->mode = PLAINLY;
}

void sl_tape_report(const struct sl_cuda_queue *queue, struct sl_graph_report *report) {
    *report = queue->tape ? queue->tape->report : (struct sl_graph_report){0};
}

void sl_tape_close(struct sl_cuda_queue *queue) {
    struct sl_tape *t = queue->tape;
    if (!t) return;
    for (int k = 0; k < KINDS; k++) {
        close_pieces(queue, &t->order[k]);
        free(t->order[k].call);
        free(t->order[k].memory);
    }
    free(t);
    queue->tape = NULL;
}

void sl_cuda_forget(struct sl_cuda_queue *queue) {
    struct sl_tape *t = queue->tape;
    sl_cuda_stream(queue);
    if (!t) return;
    start_anew(queue, t, 1);
    t->learned = 1;
    t->mode = PLAINLY;
}

void sl_cuda_branch(struct sl_cuda_queue *queue, const struct sl_cuda_branches *branches, void *owner) {
    sl_cuda_forget(queue);
    queue->branches = branches;
    queue->owner = owner;
    queue->owes = false;
}
