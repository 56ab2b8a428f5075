/* graph.c - the fake CUDA's graphs. Capture saves the work of a stream, one node after another, and the work of other
 * streams that wait for its events. In a launched graph, each of these other streams has a stream of its own for its
 * part (its shadow), and the first stream must wait for them before capture ends. A call that CUDA forbids during
 * capture spoils the capture. */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "driver.h"
#include "fake.h"

struct CUgraphNode_st {
    struct CUgraphNode_st *next;
    const struct CUgraphNode_st *of; /* in an instantiated graph: the captured node */
    CUstream stream;                 /* NULL: the launching stream */
    enum { WORK, MARK, AWAIT } kind;
    int mark;
    void (*work)(void *);
    void (*keep)(const void *argument, bool launched);
    void (*drop)(const void *argument);
    char *line; /* in the account; NULL: none */
    size_t bytes;
    _Alignas(max_align_t) unsigned char argument[];
};

enum { STREAMS = 64 };

struct CUgraph_st {
    CUstream stream[STREAMS];
    int nodes[STREAMS], joined[STREAMS]; /* joined: how many of a stream's nodes the first stream has waited for */
    int streams, marks;
    int *marked, *after; /* [marks]: the stream of each mark, and how many of its nodes come before it */
    bool spoilt;
    struct CUgraphNode_st *first, **end, *last;
    char *line; /* of the next node */
};

struct CUgraphExec_st {
    struct CUgraphNode_st *first;
    int marks;
};

static _Thread_local struct CUgraph_st *capture; /* the thread's */

static int number_of(const struct CUgraph_st *graph, cudaStream_t stream) {
    int number = 0;
    while (number < graph->streams && graph->stream[number] != stream) number++;
    return number;
}

struct CUgraph_st *fake_capturing(void) { return capture; }

struct CUgraph_st *fake_capture_of(cudaStream_t stream) {
    return capture && number_of(capture, stream) < capture->streams ? capture : NULL;
}

bool fake_spoils_capture(void) {
    if (capture) capture->spoilt = true;
    return capture != NULL;
}

void fake_capture_line(struct CUgraph_st *graph, const char *line) {
    char *before = graph->line;
    const size_t size = (before ? strlen(before) : 0) + strlen(line) + 2;
    graph->line = malloc(size);
    if (!graph->line) abort();
    snprintf(graph->line, size, "%s%s%s", before ? before : "", before ? "\n" : "", line);
    free(before);
}

/* Writes each of a node's lines to the record. */
static void tell(cudaStream_t stream, const char *lines) {
    for (const char *line = lines; line && *line;) {
        const size_t length = strcspn(line, "\n");
        fake_work(stream, "%.*s", (int)length, line);
        line += length + (line[length] != 0);
    }
}

static struct CUgraphNode_st *new_node(void (*work)(void *), const void *argument, size_t bytes, char *line) {
    struct CUgraphNode_st *node = malloc(sizeof *node + bytes);
    if (!node) abort();
    *node = (struct CUgraphNode_st){.work = work, .line = line, .bytes = bytes};
    if (bytes) memcpy(node->argument, argument, bytes);
    return node;
}

int fake_capture(struct CUgraph_st *graph, cudaStream_t stream, void (*work)(void *), const void *argument,
                 size_t bytes) {
    const int number = number_of(graph, stream);
    graph->last = *graph->end = new_node(work, argument, bytes, graph->line);
    graph->last->stream = number ? stream : NULL;
    graph->end = &graph->last->next;
    graph->line = NULL;
    graph->nodes[number]++;
    return 0;
}

int fake_capture_mark(struct CUgraph_st *graph, cudaStream_t stream) {
    const int mark = graph->marks++, number = number_of(graph, stream);
    graph->marked = realloc(graph->marked, (size_t)graph->marks * sizeof *graph->marked);
    graph->after = realloc(graph->after, (size_t)graph->marks * sizeof *graph->after);
    if (!graph->marked || !graph->after) abort();
    fake_capture(graph, stream, NULL, NULL, 0);
    graph->last->kind = MARK;
    graph->last->mark = mark;
    graph->marked[mark] = number;
    graph->after[mark] = graph->nodes[number];
    return mark;
}

int fake_capture_await(struct CUgraph_st *graph, cudaStream_t stream, int mark) {
    const int number = number_of(graph, stream);
    if (number == STREAMS) return -1;
    if (number == graph->streams) graph->stream[graph->streams++] = stream;
    if (!number) graph->joined[graph->marked[mark]] = graph->after[mark];
    fake_capture(graph, stream, NULL, NULL, 0);
    graph->last->kind = AWAIT;
    graph->last->mark = mark;
    return 0;
}

void fake_capture_holds(struct CUgraph_st *graph, void (*keep)(const void *, bool), void (*drop)(const void *)) {
    graph->last->keep = keep;
    graph->last->drop = drop;
    keep(graph->last->argument, false);
}

static bool is_joined(const struct CUgraph_st *graph) {
    bool joined = true;
    for (int i = 1; i < graph->streams; i++) joined = joined && graph->joined[i] == graph->nodes[i];
    return joined;
}

CUresult cuStreamBeginCapture_v2(CUstream stream, CUstreamCaptureMode mode) {
    FAKE_DRIVER();
    if (capture || mode != CU_STREAM_CAPTURE_MODE_THREAD_LOCAL) return CUDA_ERROR_INVALID_VALUE;
    capture = calloc(1, sizeof *capture);
    if (!capture) return CUDA_ERROR_OUT_OF_MEMORY;
    capture->stream[0] = stream;
    capture->streams = 1;
    capture->end = &capture->first;
    return CUDA_SUCCESS;
}

CUresult cuStreamGetCaptureInfo_v2(CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *number, CUgraph *graph,
                                   const CUgraphNode **last, size_t *count) {
    FAKE_DRIVER();
    const struct CUgraph_st *its = fake_capture_of(stream);
    if (number || graph) return CUDA_ERROR_INVALID_VALUE; /* not used by callers */
    *status = !its          ? CU_STREAM_CAPTURE_STATUS_NONE
              : its->spoilt ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
                            : CU_STREAM_CAPTURE_STATUS_ACTIVE;
    if (!its || its->spoilt) return CUDA_SUCCESS;
    *last = &its->last;
    *count = its->last ? 1 : 0;
    return CUDA_SUCCESS;
}

CUresult cuStreamEndCapture(CUstream stream, CUgraph *graph) {
    struct CUgraph_st *its = fake_capture_of(stream);
    capture = NULL;
    *graph = its;
    fake_record("call %s", __func__);
    if (!its) return CUDA_ERROR_INVALID_VALUE;
    const CUresult status = fake_fails(__func__) ? CUDA_ERROR_UNKNOWN
                            : its->spoilt        ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED
                            : !is_joined(its)    ? CUDA_ERROR_STREAM_CAPTURE_UNJOINED
                                                 : CUDA_SUCCESS;
    if (!status) return status;
    *graph = NULL;
    cuGraphDestroy(its);
    return status;
}

static void free_nodes(struct CUgraphNode_st *node) {
    for (struct CUgraphNode_st *next; node; node = next) {
        next = node->next;
        if (node->drop) node->drop(node->argument);
        free(node->line);
        free(node);
    }
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec *made, CUgraph graph, unsigned long long flags) {
    FAKE_DRIVER();
    if (flags || !graph) return CUDA_ERROR_INVALID_VALUE;
    *made = calloc(1, sizeof **made);
    if (!*made) return CUDA_ERROR_OUT_OF_MEMORY;
    struct CUgraphNode_st **end = &(*made)->first;
    for (const struct CUgraphNode_st *node = graph->first; node; node = node->next) {
        *end = new_node(node->work, node->argument, node->bytes, node->line ? strdup(node->line) : NULL);
        (*end)->of = node;
        (*end)->stream = node->stream;
        (*end)->kind = node->kind;
        (*end)->mark = node->mark;
        (*end)->keep = node->keep;
        (*end)->drop = node->drop;
        if (node->keep) node->keep(node->argument, false);
        end = &(*end)->next;
    }
    (*made)->marks = graph->marks;
    return CUDA_SUCCESS;
}

bool fake_graph_change(CUgraphExec made, CUgraphNode of, void (*work)(void *), const void *argument, size_t bytes,
                       const char *line) {
    struct CUgraphNode_st *node = made->first;
    while (node && node->of != of) node = node->next;
    if (!node || node->work != work || node->bytes != bytes) return false;
    memcpy(node->argument, argument, bytes);
    free(node->line);
    node->line = strdup(line);
    return true;
}

CUresult cuGraphLaunch(CUgraphExec made, CUstream stream) {
    FAKE_DRIVER();
    if (capture) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    struct mark **mark = calloc((size_t)made->marks + 1, sizeof *mark);
    int failed = !mark;
    for (struct CUgraphNode_st *node = made->first; node && !failed; node = node->next) {
        cudaStream_t on = node->stream ? fake_shadow(node->stream) : stream;
        tell(on, node->line);
        if (node->keep) node->keep(node->argument, true);
        if (node->kind == MARK) {
            mark[node->mark] = fake_mark(on);
        } else {
            failed = node->kind == AWAIT ? fake_await(on, mark[node->mark])
                                         : fake_enqueue(on, node->work, node->argument, node->bytes);
        }
    }
    for (int i = 0; mark && i < made->marks; i++) fake_unmark(mark[i]);
    free(mark);
    return failed ? CUDA_ERROR_LAUNCH_FAILED : CUDA_SUCCESS;
}

CUresult cuGraphExecDestroy(CUgraphExec made) {
    free_nodes(made->first);
    free(made);
    return CUDA_SUCCESS;
}

CUresult cuGraphDestroy(CUgraph graph) {
    free_nodes(graph->first);
    free(graph->marked);
    free(graph->after);
    free(graph->line);
    free(graph);
    return CUDA_SUCCESS;
}
