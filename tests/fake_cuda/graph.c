/* graph.c - the fake CUDA's graphs: what a stream is given while it is captured, one node after the other. A call that
 * CUDA forbids meanwhile spoils the capture. */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "driver.h"
#include "fake.h"

struct CUgraphNode_st {
    struct CUgraphNode_st *next;
    const struct CUgraphNode_st *of; /* in a graph that was made: the one that was captured */
    void (*work)(void *);
    char *line; /* in the account; NULL: none */
    size_t bytes;
    _Alignas(max_align_t) unsigned char argument[];
};

struct CUgraph_st {
    CUstream stream;
    bool spoilt;
    struct CUgraphNode_st *first, **end, *last;
    char *line; /* of the node that comes next */
};

struct CUgraphExec_st {
    struct CUgraphNode_st *first;
};

static _Thread_local struct CUgraph_st *capture; /* the thread's */

struct CUgraph_st *fake_capture_of(cudaStream_t stream) {
    return capture && capture->stream == stream ? capture : NULL;
}

bool fake_spoils_capture(void) {
    if (capture) capture->spoilt = true;
    return capture != NULL;
}

void fake_capture_line(struct CUgraph_st *graph, const char *line) {
    free(graph->line);
    graph->line = strdup(line);
}

static struct CUgraphNode_st *new_node(void (*work)(void *), const void *argument, size_t bytes, char *line) {
    struct CUgraphNode_st *node = malloc(sizeof *node + bytes);
    if (!node) abort();
    *node = (struct CUgraphNode_st){.work = work, .line = line, .bytes = bytes};
    if (bytes) memcpy(node->argument, argument, bytes);
    return node;
}

int fake_capture(struct CUgraph_st *graph, void (*work)(void *), const void *argument, size_t bytes) {
    graph->last = *graph->end = new_node(work, argument, bytes, graph->line);
    graph->end = &graph->last->next;
    graph->line = NULL;
    return 0;
}

CUresult cuStreamBeginCapture_v2(CUstream stream, CUstreamCaptureMode mode) {
    FAKE_DRIVER();
    if (capture || mode != CU_STREAM_CAPTURE_MODE_THREAD_LOCAL) return CUDA_ERROR_INVALID_VALUE;
    capture = calloc(1, sizeof *capture);
    if (!capture) return CUDA_ERROR_OUT_OF_MEMORY;
    capture->stream = stream;
    capture->end = &capture->first;
    return CUDA_SUCCESS;
}

CUresult cuStreamGetCaptureInfo_v2(CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *number, CUgraph *graph,
                                   const CUgraphNode **last, size_t *count) {
    FAKE_DRIVER();
    const struct CUgraph_st *its = fake_capture_of(stream);
    if (number || graph) return CUDA_ERROR_INVALID_VALUE; /* nobody asks */
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
                                                 : CUDA_SUCCESS;
    if (!status) return status;
    *graph = NULL;
    cuGraphDestroy(its);
    return status;
}

static void free_nodes(struct CUgraphNode_st *node) {
    for (struct CUgraphNode_st *next; node; node = next) {
        next = node->next;
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
        end = &(*end)->next;
    }
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
    for (struct CUgraphNode_st *node = made->first; node; node = node->next) {
        if (node->line) fake_work(stream, "%s", node->line);
        if (fake_enqueue(stream, node->work, node->argument, node->bytes)) return CUDA_ERROR_LAUNCH_FAILED;
    }
    return CUDA_SUCCESS;
}

CUresult cuGraphExecDestroy(CUgraphExec made) {
    free_nodes(made->first);
    free(made);
    return CUDA_SUCCESS;
}

CUresult cuGraphDestroy(CUgraph graph) {
    free_nodes(graph->first);
    free(graph->line);
    free(graph);
    return CUDA_SUCCESS;
}
