/* graph.c - the driver's calls for graphs. Captures are local to a thread: other threads use their streams as usual. */
#include "spmd/device/cuda/graph.h"

static const char what[] = "a graph of the step";

bool sl_graph_begin(struct sl_cuda_queue *queue) {
    const struct sl_cuda_driver *driver = sl_cuda_driver(queue);
    return driver && sl_cuda_drove(queue, "cuStreamBeginCapture", what,
                                   driver->begin_capture(queue->stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
}

CUgraphNode sl_graph_last(struct sl_cuda_queue *queue) {
    CUstreamCaptureStatus status;
    const CUgraphNode *last = NULL;
    size_t count = 0;
    if (!sl_cuda_drove(queue, "cuStreamGetCaptureInfo", what,
                       sl_cuda_driver(queue)->capture_info(queue->stream, &status, NULL, NULL, &last, &count)))
        return NULL;
    if (status == CU_STREAM_CAPTURE_STATUS_ACTIVE && count == 1) return *last;
    sl_cuda_fail(queue, "cuStreamGetCaptureInfo", "a graph of the step: the launch is not its last node");
    return NULL;
}

bool sl_graph_end(struct sl_cuda_queue *queue, struct sl_graph *graph) {
    const struct sl_cuda_driver *driver = sl_cuda_driver(queue);
    *graph = (struct sl_graph){0};
    return sl_cuda_drove(queue, "cuStreamEndCapture", what, driver->end_capture(queue->stream, &graph->captured)) &&
           !queue->failure.status &&
           sl_cuda_drove(queue, "cuGraphInstantiate", what, driver->graph_make(&graph->made, graph->captured, 0));
}

bool sl_graph_change(struct sl_cuda_queue *queue, const struct sl_graph *graph, CUgraphNode node,
                     const struct sl_kernel_launch *launch) {
    size_t bytes = launch->count * sizeof *launch->parameter;
    void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, (void *)launch->parameter, CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes,
                     CU_LAUNCH_PARAM_END};
    const CUDA_KERNEL_NODE_PARAMS kernel = {.func = launch->function,
                                            .gridDimX = launch->blocks,
                                            .gridDimY = 1,
                                            .gridDimZ = 1,
                                            .blockDimX = launch->threads,
                                            .blockDimY = 1,
                                            .blockDimZ = 1,
                                            .sharedMemBytes = launch->shared,
                                            .extra = extra};
    return sl_cuda_drove(queue, "cuGraphExecKernelNodeSetParams", launch->name,
                         sl_cuda_driver(queue)->graph_set_kernel(graph->made, node, &kernel));
}

bool sl_graph_launch(struct sl_cuda_queue *queue, const struct sl_graph *graph) {
    return sl_cuda_drove(queue, "cuGraphLaunch", what, sl_cuda_driver(queue)->graph_launch(graph->made, queue->stream));
}

void sl_graph_close(struct sl_cuda_queue *queue, struct sl_graph *graph) {
    const struct sl_cuda_driver *driver = sl_cuda_driver(queue);
    if (graph->made) sl_cuda_drove(queue, "cuGraphExecDestroy", what, driver->graph_free_made(graph->made));
    if (graph->captured) sl_cuda_drove(queue, "cuGraphDestroy", what, driver->graph_free(graph->captured));
    *graph = (struct sl_graph){0};
}
